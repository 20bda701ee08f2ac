//! The commit path over the simulated disk, and with real threads over a real one.
#![cfg(not(feature = "shuttle"))]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests start threads and look at files"
)]

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

use super::*;
use crate::base::defect::{self, Defect};
use crate::ring::options::{RingOptions, SetupFlags, open_driver};
use crate::ring::sim::fault::{Class, Effect, Fault};
use crate::ring::sim::{World, crash};
use crate::ring::uring::passed::Passed;
use crate::wal::plain_reader::read_log;
use crate::wal::recover::{Recovered, RecoveryStats};
use crate::wal::segment::parse_name;
use crate::wal::sync::Wish;
use crate::wal::writer;

const SEGMENT: u64 = 32 * 1024;
const DIR: &str = "/log";

fn empty() -> Recovered {
    Recovered {
        next_sequence: 1,
        tail: None,
        live: Vec::new(),
        spare: None,
        unused: Vec::new(),
        highest_number: 0,
        first_live: 0,
        stats: RecoveryStats::default(),
    }
}

fn how(sync: Wish) -> writer::Options {
    writer::Options {
        segment_bytes: SEGMENT,
        direct: true,
        sync,
        may_block: true,
        checkpoint_every: 4096,
        ring: None,
    }
}

/// What a caller knows of one of its writes.
#[derive(Debug, Clone)]
struct Known {
    level: Level,
    first: u64,
    payload: Vec<u8>,
    result: Result<()>,
}

/// A log on a simulated machine.
struct Bench {
    world: World,
    io: Io,
    commit: Rc<Commit>,
    known: Rc<RefCell<Vec<Known>>>,
}

impl Bench {
    fn new(world: World, sync: Wish) -> Self {
        let io = world.io();
        let dir = io.open_dir(DIR.as_ref(), true).unwrap();
        let opened = writer::Writer::open(&io, &dir, empty(), how(sync)).unwrap();
        let commit = Rc::new(Commit::new(opened, Options::default()));
        Bench { world, io, commit, known: Rc::default() }
    }

    async fn write(
        commit: &Commit,
        io: &Io,
        known: &RefCell<Vec<Known>>,
        payload: Vec<u8>,
        level: Level,
    ) -> Result<()> {
        let (a, b) = payload.split_at(payload.len() / 2);
        let joined = commit.join(io, &[a, b], 1, level).await?;
        let first = joined.first_sequence;
        // Inserting takes a while, and not always the same.
        io.sleep_us(first % 3 * 20).await;
        let result = commit.finish(io, joined).await;
        if result.is_ok() {
            let reached = if level == Level::Durable { commit.durable() } else { commit.visible() };
            assert!(reached >= first, "sequence {first} was acknowledged at {reached}");
        }
        known.borrow_mut().push(Known { level, first, payload, result: result.clone() });
        result
    }

    /// Several tasks with several writes each, of levels in turn.
    fn work(&self, tasks: usize, writes: usize, levels: &'static [Level], len: usize) {
        let running: Vec<_> = (0..tasks)
            .map(|task| {
                let (io, commit, known) = (self.io.clone(), self.commit.clone(), self.known.clone());
                self.io.spawn(async move {
                    for i in 0..writes {
                        let level = levels[(task + i) % levels.len()];
                        // Some come while a group is on its way.
                        io.sleep_us(((task * 7 + i * 3) % 5 * 60) as u64).await;
                        let payload = format!("{task}/{i}/").into_bytes();
                        let payload = payload.iter().copied().cycle().take(payload.len() + len).collect();
                        let _ = Self::write(&commit, &io, &known, payload, level).await;
                    }
                })
            })
            .collect();
        // The machine may crash: then nobody is left to be waited for.
        let _ = self.io.block_on(async {
            for task in running {
                task.wait().await;
            }
        });
    }

    fn run<T>(&self, future: impl Future<Output = T>) -> T {
        self.io.block_on(future).unwrap()
    }

    fn put(&self, payload: &[u8], level: Level) -> Result<()> {
        self.run(Self::write(&self.commit, &self.io, &self.known, payload.to_vec(), level))
    }

    /// What the callers were told must be what is there.
    fn check(&self, what: &str) {
        let durable = logged(&self.world.power_loss(&mut crash::nothing()), what);
        let kept = logged(&self.world.power_loss(&mut crash::everything()), what);
        for Known { level, first, payload, result } in self.known.borrow().iter() {
            let on = |log: &[(u64, u32, Vec<u8>)]| log.iter().any(|(s, _, p)| s == first && p == payload);
            match result {
                Ok(()) if *level == Level::Durable => {
                    assert!(on(&durable), "{what}: {first} was acknowledged and is gone");
                }
                // What was not synced is gone when the sync fails.
                Ok(()) if *level == Level::Buffered && !self.commit.is_poisoned() => {
                    assert!(on(&kept), "{what}: {first} was handed to the kernel and is gone");
                }
                Err(e) if e.errno() == Some(libc::ENOSPC) => {
                    assert!(self.commit.is_dead(*first), "{what}: {first} was refused and is visible");
                    assert!(!on(&kept) && !on(&durable), "{what}: {first} was refused and is there");
                }
                _ => {}
            }
        }
    }
}

fn files(world: &World) -> Vec<(u64, Vec<u8>)> {
    let dir = Path::new(DIR);
    let numbers = world.names(dir).into_iter().filter_map(|name| Some((parse_name(&name)?, name)));
    numbers.filter_map(|(number, name)| Some((number, world.read_raw(dir, &name)?))).collect()
}

fn logged(world: &World, what: &str) -> Vec<(u64, u32, Vec<u8>)> {
    let log = read_log(&files(world));
    assert!(log.windows(2).all(|pair| pair[0].0 < pair[1].0), "{what}: out of order");
    log
}

const MIXED: &[Level] = &[Level::Durable, Level::Volatile, Level::Buffered, Level::Durable];
const WAYS: [Wish; 3] = [Wish::Syscall, Wish::Linked, Wish::Dsync];

#[test]
fn many_writers_share_groups_and_all_is_there() {
    for (seed, way) in (0..30).zip(WAYS.into_iter().cycle()) {
        let bench = Bench::new(World::seeded(seed), way);
        bench.work(8, 12, MIXED, 40 + seed as usize * 50);
        bench.run(bench.commit.flush(&bench.io)).unwrap();
        let known = bench.known.borrow().clone();
        assert!(known.iter().all(|write| write.result.is_ok()), "seed {seed}: {known:?}");
        assert_eq!((bench.commit.visible(), bench.commit.durable()), (96, 96), "seed {seed}");
        let log = logged(&bench.world.power_loss(&mut crash::nothing()), &format!("seed {seed}"));
        assert_eq!(log.len(), 96, "seed {seed}: flushed, so all is durable");
        bench.check(&format!("seed {seed}"));
        assert!(bench.world.count(Class::WRITE) < 96, "seed {seed}: groups have several members");
    }
}

fn effects() -> Vec<Effect> {
    let errors = [libc::EIO, libc::ENOSPC, libc::EINTR, libc::EAGAIN, libc::ECANCELED];
    errors.map(Effect::Errno).into_iter().chain([Effect::ShortByOne, Effect::ShortByHalf]).collect()
}

/// Lets the n-th operation of the log go wrong, and checks what everybody was told. False when n is past the last.
fn one_fault(seed: u64, way: Wish, fault: Fault) -> bool {
    let what = format!("seed {seed}, {way:?}, {fault:?}");
    let bench = Bench::new(World::calm(seed), way);
    let fails = matches!(fault.effect, Effect::Errno(libc::EIO));
    bench.world.add_fault(fault);
    bench.work(3, 4, MIXED, 1500);
    let fired = bench.world.faults_fired() > 0;
    bench.world.clear_faults();
    let visible = bench.commit.visible();
    let after = bench.put(b"after", Level::Durable);
    if bench.commit.is_poisoned() {
        assert!(matches!(after, Err(Error::Poisoned(_))), "{what}: {after:?}");
        assert_eq!(bench.commit.visible(), visible, "{what}: visible stands still");
    } else {
        assert_eq!(after, Ok(()), "{what}: writes resume by themselves");
        let kept = bench.commit.shared.lock().groups.kept_need();
        assert_eq!(kept, None, "{what}: what was kept went first");
    }
    let known = bench.known.borrow().clone();
    for Known { result, .. } in &known {
        let expected = match result {
            Ok(()) | Err(Error::Indeterminate(_) | Error::Poisoned(_)) => true,
            Err(e) => e.errno() == Some(libc::ENOSPC) || fails,
        };
        assert!(expected, "{what}: {result:?}");
    }
    bench.check(&what);
    fired
}

#[test]
fn whatever_operation_of_the_log_fails_the_callers_are_told_the_truth() {
    for way in WAYS {
        for effect in effects() {
            for for_ever in [false, true] {
                let mut nth = 1;
                loop {
                    let class = Class::WRITE | Class::SYNC;
                    let fault = Fault { for_ever, ..Fault::once(class, nth, effect) };
                    if !one_fault(nth * 7, way, fault) {
                        break;
                    }
                    nth += 1;
                }
                assert!(nth > 10, "{nth}");
            }
        }
    }
}

#[test]
fn a_power_loss_after_any_completion_loses_nothing_acknowledged() {
    for way in WAYS {
        for at in 1..120 {
            let bench = Bench::new(World::seeded(at), way);
            bench.world.crash_at(at);
            bench.work(6, 3, MIXED, 900);
            bench.check(&format!("crash at {at}, {way:?}"));
        }
    }
}

#[test]
fn a_full_disk_refuses_and_writes_resume_when_there_is_space() {
    let bench = Bench::new(World::calm(3), Wish::Syscall);
    bench.put(b"first", Level::Durable).unwrap();
    bench.world.set_space(Some(bench.world.used_space()));
    let mut refused = 0;
    for i in 0..40 {
        let level = if i % 4 == 0 { Level::Volatile } else { Level::Durable };
        match bench.put(&[i; 3000], level) {
            Ok(()) => {}
            Err(e) if e.errno() == Some(libc::ENOSPC) => refused += 1,
            Err(e) => panic!("{e}"),
        }
    }
    assert!(refused > 20, "{refused}");
    assert!(!bench.commit.is_poisoned());
    bench.world.set_space(None);
    bench.put(b"space", Level::Durable).unwrap();
    bench.run(bench.commit.close(&bench.io)).unwrap();
    bench.check("full disk");
}

#[test]
fn a_full_disk_can_be_closed() {
    let bench = Bench::new(World::calm(4), Wish::Syscall);
    bench.put(b"first", Level::Durable).unwrap();
    bench.run(bench.commit.maintain(&bench.io)).unwrap();
    bench.world.set_space(Some(bench.world.used_space()));
    while bench.put(&[1; 3000], Level::Durable).is_ok() {}
    assert_eq!(bench.commit.shared.lock().spares.ready(), 1, "the spare is kept for the next opening");
    bench.run(bench.commit.close(&bench.io)).unwrap();
    assert!(matches!(bench.put(b"closed", Level::Durable), Err(Error::Closed)));
}

#[test]
fn the_keeper_writes_due_batches_and_the_idle_seal() {
    let bench = Bench::new(World::calm(5), Wish::Syscall);
    bench.put(b"volatile", Level::Volatile).unwrap();
    assert_eq!((bench.commit.visible(), bench.commit.durable()), (1, 0));
    let mut rounds = 0;
    let mut next = bench.run(bench.commit.maintain(&bench.io)).unwrap();
    while let Next::At(at) = next {
        rounds += 1;
        assert!(rounds < 10, "the keeper finds rest");
        let now = bench.io.now_us();
        bench.run(bench.io.sleep_us(at.saturating_sub(now)));
        next = bench.run(bench.commit.maintain(&bench.io)).unwrap();
    }
    assert_eq!(bench.commit.durable(), 1);
    assert!(bench.commit.shared.lock().sealed);
    assert!(bench.commit.shared.lock().spares.ready() > 0);
    bench.check("keeper");
}

#[test]
fn a_batch_of_volatile_writes_is_due_by_entries_and_by_bytes() {
    let bench = Bench::new(World::calm(6), Wish::Syscall);
    for i in 0..127 {
        bench.put(&[i; 10], Level::Volatile).unwrap();
    }
    assert_eq!(bench.commit.durable(), 0);
    bench.put(b"the 128th", Level::Volatile).unwrap();
    assert_eq!(bench.commit.durable(), 128);
    bench.put(&[1; 300_000], Level::Volatile).unwrap();
    assert_eq!(bench.commit.durable(), 129);
}

#[test]
fn flush_returns_when_all_before_it_is_durable() {
    let bench = Bench::new(World::calm(7), Wish::Linked);
    // The first group of a segment is always made durable, with its link.
    bench.put(b"first", Level::Durable).unwrap();
    bench.put(b"volatile", Level::Volatile).unwrap();
    bench.put(b"buffered", Level::Buffered).unwrap();
    assert_eq!((bench.commit.durable(), bench.commit.visible()), (1, 3));
    bench.run(bench.commit.flush(&bench.io)).unwrap();
    assert_eq!(bench.commit.durable(), 3);
    bench.run(bench.commit.flush(&bench.io)).unwrap();
    assert_eq!(logged(&bench.world.power_loss(&mut crash::nothing()), "flushed").len(), 3);
}

#[test]
fn segments_nobody_needs_are_used_again_only_after_a_durable_link_says_so() {
    let bench = Bench::new(World::calm(8), Wish::Syscall);
    for round in 0..30u8 {
        for i in 0..6 {
            bench.put(&[round, i], Level::Durable).unwrap();
        }
        bench.run(bench.commit.release(&bench.io, bench.commit.durable()));
        bench.run(bench.commit.maintain(&bench.io)).unwrap();
    }
    let names = bench.world.names(Path::new(DIR));
    assert!(names.len() <= 6, "{names:?}");
    let left = logged(&bench.world.power_loss(&mut crash::nothing()), "released");
    assert_eq!(left.last().map(|(s, ..)| *s), Some(180));
}

#[test]
fn a_batch_larger_than_a_segment_gets_its_own() {
    let bench = Bench::new(World::calm(9), Wish::Syscall);
    bench.put(b"before", Level::Durable).unwrap();
    bench.put(&vec![9; 700_000], Level::Durable).unwrap();
    bench.put(b"behind", Level::Durable).unwrap();
    bench.check("large");
    let lens: Vec<usize> = files(&bench.world).iter().map(|(_, bytes)| bytes.len()).collect();
    assert_eq!(lens.iter().filter(|len| **len as u64 > SEGMENT).count(), 1, "{lens:?}");
}

#[test]
fn a_write_that_is_given_up_poisons() {
    let bench = Bench::new(World::calm(10), Wish::Syscall);
    bench.put(b"sound", Level::Durable).unwrap();
    let joined = bench.run(bench.commit.join(&bench.io, &[b"x"], 1, Level::Durable)).unwrap();
    drop(joined);
    assert!(matches!(bench.put(b"later", Level::Durable), Err(Error::Poisoned(_))));
    assert_eq!(bench.commit.visible(), 1);
    bench.check("given up");
}

/// Every defect that this layer could have is found by the checks above.
#[test]
fn planted_defects_are_caught() {
    let found = |defect, body: &dyn Fn()| {
        let planted = defect::plant(defect);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        drop(planted);
        assert!(outcome.is_err(), "{defect:?} was not caught");
    };
    let crashes = || a_power_loss_after_any_completion_loses_nothing_acknowledged();
    let faults = || whatever_operation_of_the_log_fails_the_callers_are_told_the_truth();
    found(Defect::AckBeforeSync, &crashes);
    found(Defect::AckOutOfOrder, &crashes);
    found(Defect::ReuseBufferEarly, &crashes);
    found(Defect::RetryFailedSync, &faults);
    found(Defect::IgnoreShortWrite, &faults);
    found(Defect::PublishRefused, &faults);
}

#[test]
fn threads_over_a_real_directory_find_all_they_wrote() {
    threads_over_a_real_directory("auto", how(Wish::Auto));
}

#[test]
fn leaders_pass_a_ring_from_thread_to_thread() {
    let flags = SetupFlags::COOP_TASKRUN;
    let wanted = RingOptions { flags: SetupFlags::empty(), flags_wanted: flags, ..RingOptions::default() };
    let (driver, _) = open_driver(&wanted).unwrap();
    threads_over_a_real_directory(
        "ring",
        writer::Options { ring: Some(Passed::new(driver)), ..how(Wish::Linked) },
    );
}

fn threads_over_a_real_directory(name: &str, how: writer::Options) {
    let path = std::env::temp_dir().join(format!("ioe-commit-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    let io = Io::inline();
    let dir = io.open_dir(&path, true).unwrap();
    let how = writer::Options { segment_bytes: 256 * 1024, ..how };
    let opened = writer::Writer::open(&io, &dir, empty(), how).unwrap();
    let commit = Commit::new(opened, Options::default());
    std::thread::scope(|scope| {
        for thread in 0..8u8 {
            let commit = &commit;
            scope.spawn(move || {
                let io = Io::inline();
                for i in 0..60u8 {
                    let level = MIXED[usize::from(thread + i) % MIXED.len()];
                    io.block_on(async {
                        let joined = commit.join(&io, &[&[thread], &[i; 100]], 2, level).await.unwrap();
                        let first = joined.first_sequence;
                        commit.finish(&io, joined).await.unwrap();
                        assert!(commit.visible() > first);
                    })
                    .unwrap();
                }
            });
        }
        scope.spawn(|| {
            let io = Io::inline();
            for _ in 0..20 {
                let seen = commit.keeper_calls();
                let next = io.block_on(commit.maintain(&io)).unwrap().unwrap();
                if let Next::At(_) = next {
                    commit.park_keeper(&io, seen, next);
                }
            }
        });
    });
    io.block_on(commit.close(&io)).unwrap().unwrap();
    let names = io.list(&dir).unwrap();
    let numbers =
        names.iter().filter_map(|name| Some((parse_name(name)?, std::fs::read(path.join(name)).unwrap())));
    let log = read_log(&numbers.collect::<Vec<_>>());
    std::fs::remove_dir_all(&path).unwrap();
    assert_eq!(log.len(), 480);
    let expected: Vec<u64> = (0..480).map(|i| 1 + 2 * i).collect();
    assert_eq!(log.iter().map(|(sequence, ..)| *sequence).collect::<Vec<_>>(), expected);
    for thread in 0..8u8 {
        let own: Vec<u8> = log.iter().filter(|(_, _, p)| p[0] == thread).map(|(_, _, p)| p[1]).collect();
        assert_eq!(own, (0..60).collect::<Vec<u8>>(), "a thread's writes keep their order");
    }
}
