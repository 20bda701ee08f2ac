//! What the simulator promises to the tests that stand on it.

use std::path::Path;

use super::crash::{by_mask, by_seed, everything, masks, nothing, with_names};
use super::damage::Damage;
use super::fault::{Class, Effect, Fault};
use super::world::Options;
use super::*;
use crate::base::defect::{Defect, plant};
use crate::base::memory::Buf;
use crate::ring::fs::How;
use crate::ring::io::{Io, join};
use crate::ring::op::{File, Timespec};

const DIR: &str = "/store";
const NEW: How = How { write: true, create: true, exclusive: false, direct: false };
const DIRECT: How = How { direct: true, ..NEW };

fn dir() -> &'static Path {
    Path::new(DIR)
}

/// A machine with one durable, empty file `a`, and what is open on it.
fn start(world: &World, how: How) -> (Io, File, File) {
    let io = world.io();
    let directory = io.open_dir(dir(), true).unwrap();
    let file = io.open_at(&directory, "a", how).unwrap();
    io.block_on(io.sync(&directory, false)).unwrap().unwrap();
    (io, directory, file)
}

fn write(io: &Io, file: &File, offset: u64, bytes: &[u8]) -> Result<usize> {
    io.block_on(io.write(file, Buf::copied(bytes).unwrap(), offset, false)).unwrap().1
}

fn read(io: &Io, file: &File, offset: u64, len: usize) -> Result<Vec<u8>> {
    let (buf, count) = io.block_on(io.read(file, Buf::zeroed(len).unwrap(), offset)).unwrap();
    count.map(|count| buf.as_slice()[..count].to_vec())
}

fn sync(io: &Io, file: &File) -> Result<()> {
    io.block_on(io.sync(file, true)).unwrap()
}

fn op_write(file: &File, offset: u64, bytes: &[u8]) -> Op {
    let (target, buf) = (Target::File(file.clone()), Buf::copied(bytes).unwrap());
    Op::Write { target, buf, offset, buffer_index: None, dsync: false }
}

fn op_sync(file: &File) -> Op {
    Op::Fsync { target: Target::File(file.clone()), data_only: true }
}

/// Many writes, reads and syncs at once, over two rings; the machine's history.
fn history(seed: u64) -> u64 {
    let world = World::seeded(seed);
    let (io, _directory, file) = start(&world, NEW);
    let other = world.io();
    let mut random = random::Random::new(seed);
    for round in 0..20 {
        let op = |random: &mut random::Random| match random.below(3) {
            0 => op_sync(&file),
            _ => op_write(&file, random.below(9000), &vec![round; 700]),
        };
        let far = other.submit(op(&mut random));
        let near: Vec<_> = (0..8).map(|_| io.submit(op(&mut random))).collect();
        io.block_on(join(near)).unwrap();
        other.block_on(far).unwrap();
    }
    world.history()
}

#[test]
fn one_seed_is_one_history() {
    for seed in 0..20 {
        assert_eq!(history(seed), history(seed), "seed {seed}");
        assert_ne!(history(seed), history(seed + 1), "seed {seed}");
    }
}

#[test]
fn completions_come_in_every_order() {
    let mut orders = crate::base::map::Set::default();
    for seed in 0..200 {
        let world = World::calm(seed);
        let (io, _directory, file) = start(&world, NEW);
        let order = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
        for i in 0..3u8 {
            let (pending, order) = (io.submit(op_write(&file, 0, &[i])), order.clone());
            drop(io.spawn(async move {
                pending.await;
                order.borrow_mut().push(i);
            }));
        }
        io.block_on(io.until(|| order.borrow().len() == 3)).unwrap();
        let last = order.borrow()[2];
        assert_eq!(
            read(&io, &file, 0, 1).unwrap(),
            [last],
            "seed {seed}: the last to complete was the last to write"
        );
        orders.insert(order.take());
    }
    assert_eq!(orders.len(), 6);
}

#[test]
fn a_power_loss_leaves_what_was_synced_and_any_subset_of_the_rest() {
    let world = World::calm(1);
    let (io, _directory, file) = start(&world, NEW);
    write(&io, &file, 0, &[1; 2048]).unwrap();
    sync(&io, &file).unwrap();
    write(&io, &file, 512, &[2; 1024]).unwrap();
    write(&io, &file, 1024, &[3; 100]).unwrap();
    assert_eq!(world.pending_sectors(), 3);
    let mut seen = Vec::new();
    for mask in masks(3) {
        let bytes = world.power_loss(&mut by_mask(mask)).read_raw(dir(), "a").unwrap();
        let second = if mask & 1 != 0 { 2 } else { 1 };
        let third = if mask & 4 != 0 {
            (3, 2)
        } else if mask & 2 != 0 {
            (2, 2)
        } else {
            (1, 1)
        };
        let mut expected = [1; 2048];
        expected[512..1024].fill(second);
        expected[1024..1124].fill(third.0);
        expected[1124..1536].fill(third.1);
        assert!(bytes == expected, "mask {mask}");
        seen.push(bytes);
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 6);
}

#[test]
fn a_grown_length_is_lost_or_kept_with_its_sectors() {
    let world = World::calm(1);
    let (io, _directory, file) = start(&world, NEW);
    write(&io, &file, 0, &[7; 600]).unwrap();
    let lengths: Vec<u64> = masks(world.pending_sectors())
        .map(|mask| world.power_loss(&mut by_mask(mask)).read_raw(dir(), "a").unwrap().len() as u64)
        .collect();
    assert_eq!(lengths, [0, 600, 512, 600, 600, 600, 600, 600]);
}

#[test]
fn a_through_write_is_durable_at_its_completion_and_is_not_overtaken() {
    let world = World::calm(1);
    let (io, _directory, file) = start(&world, NEW);
    write(&io, &file, 0, &[1; 512]).unwrap();
    io.block_on(io.write(&file, Buf::copied(&[2; 512]).unwrap(), 0, true)).unwrap().1.unwrap();
    for mask in masks(world.pending_sectors()) {
        let bytes = world.power_loss(&mut by_mask(mask)).read_raw(dir(), "a").unwrap();
        assert!(bytes == [2; 512], "mask {mask}");
    }
}

#[test]
fn names_need_a_sync_of_their_directory() {
    let world = World::calm(1);
    let (io, directory, file) = start(&world, NEW);
    write(&io, &file, 0, b"x").unwrap();
    sync(&io, &file).unwrap();
    let made = io.open_at(&directory, "b", NEW).unwrap();
    sync(&io, &made).unwrap();
    io.rename(&directory, "a", "c").unwrap();
    assert_eq!(io.list(&directory).unwrap(), ["b", "c"]);
    assert_eq!(world.power_loss(&mut nothing()).names(dir()), ["a"]);
    assert_eq!(world.power_loss(&mut with_names(1, nothing())).names(dir()), ["a", "b"]);
    assert_eq!(world.power_loss(&mut everything()).names(dir()), ["b", "c"]);
    assert_eq!(world.kill().names(dir()), ["b", "c"]);
    // The other world's crash doesn't touch this one's.
    let (io, directory, _file) = start(&world.power_loss(&mut everything()), NEW);
    io.unlink(&directory, "c").unwrap();
    assert_eq!(io.list(&directory).unwrap(), ["a", "b"]);
}

#[test]
fn a_failed_sync_lies_afterwards() {
    let mut lost = 0;
    for seed in 0..40 {
        let world = World::calm(seed);
        let (io, _directory, file) = start(&world, NEW);
        world.add_fault(Fault::once(Class::SYNC, 1, Effect::Errno(libc::EIO)));
        write(&io, &file, 0, &[5; 512]).unwrap();
        assert_eq!(sync(&io, &file).unwrap_err().errno(), Some(libc::EIO));
        sync(&io, &file).unwrap();
        assert_eq!(read(&io, &file, 0, 512).unwrap(), [5; 512], "seed {seed}: the page cache still has it");
        let left = world.fork(1).power_loss(&mut everything()).read_raw(dir(), "a").unwrap();
        lost += usize::from(left != [5; 512]);
        // Written anew and synced, it is there.
        write(&io, &file, 0, &[5; 512]).unwrap();
        sync(&io, &file).unwrap();
        let left = world.power_loss(&mut nothing()).read_raw(dir(), "a").unwrap();
        assert_eq!(left, [5; 512], "seed {seed}");
    }
    assert!((10..40).contains(&lost), "lost {lost} times of 40");
}

#[test]
fn a_crash_comes_right_after_its_completion() {
    let world = World::calm(3);
    let (io, _directory, file) = start(&world, NEW);
    let before = world.completions();
    world.crash_at(before + 2);
    let outcomes: Vec<bool> =
        (0..4).map(|i| io.block_on(io.write(&file, Buf::copied(&[i]).unwrap(), 0, false)).is_ok()).collect();
    assert_eq!(outcomes, [true, true, false, false]);
    assert!(world.crashed() && io.meta(&file).is_err());
    assert_eq!(world.completions(), before + 2);
}

#[test]
fn a_crash_between_file_system_calls_keeps_the_earlier_ones() {
    let world = World::calm(3);
    let (io, directory, _file) = start(&world, NEW);
    world.crash_at(world.completions() + 1);
    io.open_at(&directory, "b", NEW).unwrap();
    assert!(io.rename(&directory, "b", "c").is_err());
    assert_eq!(world.kill().names(dir()), ["a", "b"]);
}

/// A write in flight, a lock, and the process killed; whether the lock was free before the write had landed.
fn killed(seed: u64, registered: bool) -> Option<bool> {
    let world = World::calm(seed);
    let (io, directory, file) = start(&world, NEW);
    let lock = io.open_at(&directory, "LOCK", NEW).unwrap();
    assert!(io.lock(&lock).unwrap());
    if registered {
        io.with_reactor(|r| {
            r.make_slots(1).unwrap();
            r.set_slot(0, Some(lock.raw_fd())).unwrap();
        });
    }
    drop(io.submit(op_write(&file, 0, b"late")));
    io.turn(crate::ring::driver::Wait::No).unwrap();
    if world.read_raw(dir(), "a").unwrap() == b"late" {
        return None;
    }
    let after = world.kill();
    drop((io, directory, file, lock));
    let (io, directory, file) = start(&after, NEW);
    let lock = io.open_at(&directory, "LOCK", NEW).unwrap();
    while !io.lock(&lock).unwrap() {
        io.block_on(io.sleep_us(100)).unwrap();
    }
    let at_once = read(&io, &file, 0, 4).unwrap();
    io.block_on(io.sleep_us(200_000)).unwrap();
    Some(at_once != read(&io, &file, 0, 4).unwrap())
}

#[test]
fn a_killed_process_s_writes_land_late_and_a_registered_lock_waits_for_them() {
    let late = (0..60).filter(|seed| killed(*seed, false) == Some(true)).count();
    assert!(late > 10, "only {late} of 60 writes landed after the lock was free");
    for seed in 0..60 {
        assert_ne!(killed(seed, true), Some(true), "seed {seed}");
    }
}

#[test]
fn locks_exclude_other_openings_until_closed() {
    let world = World::calm(1);
    let (io, directory, a) = start(&world, NEW);
    let b = io.open_at(&directory, "a", NEW).unwrap();
    assert!(io.lock(&a).unwrap() && io.lock(&a).unwrap() && !io.lock(&b).unwrap());
    drop(a);
    assert!(io.lock(&b).unwrap());
}

#[test]
fn short_writes_break_soft_links_and_are_finished_outside_chains() {
    for effect in [Effect::ShortByOne, Effect::ShortByHalf] {
        let world = World::calm(1);
        let (io, _directory, file) = start(&world, NEW);
        world.add_fault(Fault::once(Class::WRITE, 1, effect));
        let chain = vec![(op_write(&file, 0, &[1; 1000]), Link::Soft), (op_sync(&file), Link::None)];
        let done = io.block_on(join(io.submit_chain(chain).unwrap())).unwrap();
        let results: Vec<i32> = done.iter().map(|(result, _)| *result).collect();
        let expected = if effect == Effect::ShortByOne { 999 } else { 500 };
        assert_eq!(results, [expected, -libc::ECANCELED]);
        world.add_fault(Fault::once(Class::WRITE, 1, effect));
        assert_eq!(write(&io, &file, 0, &[2; 1000]).unwrap(), 1000);
        assert_eq!(read(&io, &file, 0, 2000).unwrap(), [2; 1000]);
    }
}

#[test]
fn a_full_disk_takes_what_fits_and_works_again_with_room() {
    let world = World::calm(1);
    let (io, directory, file) = start(&world, NEW);
    world.set_space(Some(8192));
    assert_eq!(write(&io, &file, 4096, &[1; 12_288]).unwrap_err().errno(), Some(libc::ENOSPC));
    assert_eq!(io.meta(&file).unwrap().len, 12_288);
    assert_eq!(write(&io, &file, 5000, &[2; 3000]).unwrap(), 3000);
    let other = io.open_at(&directory, "b", NEW).unwrap();
    assert_eq!(write(&io, &other, 0, b"x").unwrap_err().errno(), Some(libc::ENOSPC));
    io.set_len(&file, 0).unwrap();
    assert_eq!((world.used_space(), write(&io, &other, 0, b"x").unwrap()), (0, 1));
}

#[test]
fn direct_files_ask_for_alignment_and_are_short_by_sectors() {
    let world = World::calm(1);
    let (io, _directory, file) = start(&world, DIRECT);
    assert_eq!(write(&io, &file, 100, &[1; 512]).unwrap_err().errno(), Some(libc::EINVAL));
    assert_eq!(write(&io, &file, 0, &[1; 100]).unwrap_err().errno(), Some(libc::EINVAL));
    world.add_fault(Fault::once(Class::WRITE, 1, Effect::ShortByOne));
    assert_eq!(write(&io, &file, 0, &[1; 4096]).unwrap(), 4096);
    assert_eq!(world.count(Class::WRITE), 4);
}

#[test]
fn memory_is_rubbish_until_the_completion_and_is_read_at_the_write() {
    let world = World::calm(1);
    let (io, _directory, file) = start(&world, NEW);
    write(&io, &file, 0, &[1; 64]).unwrap();
    world.add_fault(Fault::once(Class::READ, 1, Effect::Errno(libc::EIO)));
    let (buf, result) = io.block_on(io.read(&file, Buf::zeroed(64).unwrap(), 0)).unwrap();
    assert!(result.is_err() && buf.as_slice() == [0xA5; 64]);
}

#[test]
fn memory_freed_in_flight_is_noticed() {
    let abandoned = |defect| {
        let world = World::calm(1);
        let (io, _directory, file) = start(&world, NEW);
        drop(io.submit(op_write(&file, 0, b"x")));
        io.turn(crate::ring::driver::Wait::No).unwrap();
        let planted = plant(defect);
        drop(io);
        drop(planted);
        world.abandoned()
    };
    assert_eq!((abandoned(Defect::IgnoreEpoch), abandoned(Defect::FreeInFlight)), (0, 1));
}

#[test]
fn waiting_for_what_can_t_happen_is_an_error() {
    let world = World::calm(1);
    let io = world.io();
    let error = io.block_on(io.until(|| false)).unwrap_err();
    assert!(matches!(error, Error::Internal(_)), "{error}");
}

#[test]
fn time_is_virtual() {
    let world = World::calm(1);
    let io = world.io();
    let before = io.now_us();
    let op = Op::Timeout { after: Timespec::from_us(3_600_000_000) };
    assert_eq!(io.block_on(io.submit(op)).unwrap().0, -libc::ETIME);
    assert!(io.now_us() - before >= 3_600_000_000);
}

#[test]
fn damage_is_seen_by_reads_and_survives() {
    let world = World::calm(1);
    world.plant(dir(), "a", &(0..2048u32).map(|i| i as u8).collect::<Vec<_>>());
    let fork = world.fork(2);
    for damage in [Damage::FlipBit(9), Damage::ZeroSector(1), Damage::SwapSectors(0, 1), Damage::SetLen(1500)]
    {
        assert!(fork.damage(dir(), "a", &damage));
    }
    let mut bytes = [0; 1500].to_vec();
    bytes.iter_mut().enumerate().skip(512).for_each(|(i, byte)| *byte = i as u8);
    bytes[513] ^= 2;
    assert!(fork.fork(3).power_loss(&mut nothing()).read_durable(dir(), "a").unwrap() == bytes);
    assert_eq!(world.read_raw(dir(), "a").unwrap().len(), 2048);
    assert!(!fork.damage(dir(), "b", &Damage::SetLen(0)));
    fork.plant_symlink(dir(), "link");
    let (io, directory, _file) = start(&fork, NEW);
    assert_eq!(io.open_at(&directory, "link", NEW).unwrap_err().errno(), Some(libc::ELOOP));
}

#[test]
fn files_without_a_name_or_an_opening_are_forgotten() {
    let world = World::new(Options { entries: 8, ..Options::calm(1) });
    let (io, directory, file) = start(&world, NEW);
    write(&io, &file, 0, &[1; 4096]).unwrap();
    io.unlink(&directory, "a").unwrap();
    assert_eq!((read(&io, &file, 0, 1).unwrap().len(), world.used_space()), (1, 4096));
    drop(file);
    assert_eq!((world.used_space(), world.open_files()), (0, 1));
    let left = world.power_loss(&mut by_seed(1)).names(dir());
    assert!(left == ["a"] || left.is_empty());
}

/// What each sector of a file may hold after a power loss: what it held at the last sync, or anything since.
#[derive(Clone, Default)]
struct Versions(std::collections::BTreeMap<u64, Vec<u8>>);

impl Versions {
    fn write(&mut self, sector: u64, value: u8, synced: bool) {
        let versions = self.0.entry(sector).or_insert_with(|| vec![0]);
        if synced {
            versions.clear();
        }
        versions.push(value);
    }

    fn sync(&mut self) {
        for versions in self.0.values_mut() {
            versions.drain(..versions.len() - 1);
        }
    }

    fn check(&self, bytes: &[u8], whole: bool, context: &str) {
        for (sector, versions) in &self.0 {
            let start = (*sector as usize * 512).min(bytes.len());
            let held = bytes[start..].chunks(512).next().unwrap_or(&[0]);
            assert!(held.iter().all(|byte| *byte == held[0]), "{context}: sector {sector} is torn");
            let latest = versions.last().copied().unwrap_or(0);
            let allowed = if whole { held[0] == latest } else { versions.contains(&held[0]) };
            assert!(allowed, "{context}: sector {sector} holds {} of {versions:?}", held[0]);
        }
    }
}

#[test]
fn what_is_left_is_always_something_that_was_written_since_the_last_sync() {
    for seed in 0..150 {
        let world = World::calm(seed);
        let (io, _directory, file) = start(&world, NEW);
        let mut random = random::Random::new(seed);
        let mut model = Versions::default();
        for round in 1..60u8 {
            let context = format!("seed {seed}, round {round}");
            let (first, count) = (random.below(20), 1 + random.below(4));
            let through = random.chance(128);
            if random.chance(256) {
                sync(&io, &file).unwrap();
                model.sync();
            } else {
                let bytes = Buf::copied(&vec![round; count as usize * 512]).unwrap();
                io.block_on(io.write(&file, bytes, first * 512, through)).unwrap().1.unwrap();
                (first..first + count).for_each(|sector| model.write(sector, round, through));
            }
            let left = |world: World| world.read_raw(dir(), "a").unwrap();
            model.check(
                &left(world.fork(1).power_loss(&mut by_seed(seed ^ u64::from(round)))),
                false,
                &context,
            );
            model.check(&left(world.fork(1).power_loss(&mut everything())), true, &context);
            model.check(&left(world.fork(1).kill()), true, &context);
        }
    }
}

/// A log of sectors, each acknowledged after its chain of write and sync, crashed at every completion: how many
/// acknowledged sectors were missing after some power loss.
fn lost_acknowledgements(seed: u64, ack_before_sync: bool) -> usize {
    let mut lost = 0;
    for crash_at in 1.. {
        let world = World::seeded(seed);
        let (io, _directory, file) = start(&world, NEW);
        let start = world.completions();
        world.crash_at(start + crash_at);
        let acknowledged = std::rc::Rc::new(std::cell::Cell::new(0u64));
        let (count, task) = (acknowledged.clone(), io.clone());
        let ended = io.block_on(async move {
            for i in 0..4u64 {
                let sync = task.submit(op_write(&file, i * 512, &[i as u8 + 1; 512])).await;
                assert_eq!(sync.0, 512);
                count.set(if ack_before_sync { i + 1 } else { i });
                task.sync(&file, true).await.unwrap();
                count.set(i + 1);
            }
        });
        for survivors in 0..8 {
            let left = world.power_loss(&mut by_seed(survivors)).read_raw(dir(), "a");
            let left = left.unwrap_or_default();
            let whole = (0..acknowledged.get()).all(|i| left.get(i as usize * 512) == Some(&(i as u8 + 1)));
            lost += usize::from(!whole);
        }
        if ended.is_ok() {
            break;
        }
    }
    lost
}

#[test]
fn a_sweep_over_all_crashes_tells_right_from_wrong() {
    for seed in 0..20 {
        assert_eq!(lost_acknowledgements(seed, false), 0, "seed {seed}");
        assert!(lost_acknowledgements(seed, true) > 0, "seed {seed}");
    }
}

#[test]
fn a_second_kill_carries_over_what_has_not_landed() {
    let mut landed_late = 0;
    for seed in 0..80 {
        let world = World::calm(seed);
        let (io, _directory, file) = start(&world, NEW);
        drop(io.submit(op_write(&file, 0, b"late")));
        io.turn(crate::ring::driver::Wait::No).unwrap();
        let second = world.kill().kill();
        let before = second.read_raw(dir(), "a").unwrap();
        assert!(second.pending().len() >= before.len().min(1));
        second.pass_us(1_000_000);
        landed_late += usize::from(second.read_raw(dir(), "a").unwrap() != before);
    }
    assert!(landed_late > 10, "{landed_late} of 80");
}

#[test]
fn several_handles_are_driven_as_threads_and_their_deadlock_is_found() {
    let run = |seed: u64, last: u32| {
        let world = World::calm(seed);
        let handles: Vec<Io> = (0..3).map(|_| world.io()).collect();
        let baton = std::rc::Rc::new(std::cell::Cell::new(0u32));
        for (me, io) in handles.iter().enumerate() {
            let (task, baton) = (io.clone(), baton.clone());
            drop(io.spawn(async move {
                for round in 0..4 {
                    task.until(|| baton.get() == round * 3 + me as u32).await;
                    task.sleep_us(50).await;
                    baton.set(baton.get() + 1);
                }
            }));
        }
        (world.drive(&handles, || baton.get() == last), world.history())
    };
    assert_eq!(run(1, 12).0, Ok(()));
    assert_eq!(run(1, 12), run(1, 12));
    assert!(matches!(run(1, 13).0, Err(Error::Internal(_))));
}
