//! The log as an object: acknowledgements, crashes, full disks, failures, and the ring it stands on.

use super::*;
use crate::base::defect::Defect;
use crate::base::error::code;
use crate::ring::io::join;
use crate::ring::op::{Link, Op, Target, Timespec};
use crate::ring::options::{Choice, SetupFlags};
use crate::ring::sim::World;
use crate::ring::sim::crash;
use crate::ring::sim::fault::{Class, Effect, Fault};
use crate::wal::segment::BLOCK;
use crate::wal::testing::{Dir, caught, log_dir, recover_sim};

fn small() -> Options {
    Options { segment_bytes: 16 * BLOCK, checkpoint_every: 8192, ..Options::default() }
}

fn open(world: &World, options: &Options) -> Result<Log> {
    let (io, ring) = (world.io(), world.io());
    io.block_on(Log::open_on(&io, ring, true, log_dir(), options))?
}

fn record(number: u64) -> Vec<u8> {
    let len = if number.is_multiple_of(7) { 0 } else { number as usize * 37 % 900 };
    vec![number as u8; len]
}

/// Reaps until all of `count` records have ended.
fn reap_all(log: &mut Log, count: usize) -> Vec<Event> {
    let mut events = Vec::new();
    while events.len() < count {
        let mut out = [Event::EMPTY; 5];
        let got = log.reap(&mut out, 1, 10_000).unwrap();
        assert!(got > 0, "{} of {count} events came", events.len());
        events.extend_from_slice(&out[..got]);
    }
    events
}

fn handed(world: &World) -> Vec<u64> {
    let (records, recovered) = recover_sim(world, Mode::ReadOnly);
    recovered.unwrap();
    for (sequence, count, payload) in &records {
        assert_eq!((*count, payload), (1, &record(*sequence)), "sequence {sequence}");
    }
    records.iter().map(|(sequence, ..)| *sequence).collect()
}

#[test]
fn records_are_acknowledged_in_order_and_found_again() {
    for sync in [Wish::Auto, Wish::Linked, Wish::Dsync, Wish::Syscall] {
        let world = World::calm(1);
        let options = Options { sync, ..small() };
        let mut next = 1;
        for round in 0..3 {
            let mut log = open(&world, &options).unwrap();
            assert_eq!(log.recovery().records, round * 60);
            for _ in 0..60 {
                assert_eq!(log.append(&record(next), 1000 + next).unwrap(), next);
                next += 1;
            }
            let events = reap_all(&mut log, 60);
            let told: Vec<_> = events.iter().map(|e| (e.sequence, e.user_data, e.result)).collect();
            let expected: Vec<_> = (next - 60..next).map(|s| (s, 1000 + s, 0)).collect();
            assert_eq!(told, expected, "{sync:?}");
            assert_eq!(log.reap(&mut [Event::EMPTY; 4], 1, -1).unwrap(), 0, "nothing more can come");
            log.close().unwrap();
        }
        assert_eq!(handed(&world), (1..=180).collect::<Vec<_>>());
        assert_eq!(world.abandoned(), 0);
    }
}

#[test]
fn an_acknowledged_record_survives_power_loss_at_every_point() {
    survives_power_loss(&[1, 3, 9, 2, 12, 1, 30, 1, 1], 20, 1);
}

#[test]
fn released_segments_are_used_again_only_when_power_loss_cannot_bring_them_back() {
    survives_power_loss(&[1; 14], 0, 9);
}

#[test]
fn planted_defects_of_writing_are_caught() {
    caught(Defect::AckBeforeSync, || survives_power_loss(&[1, 3], 20, 1));
    caught(Defect::DeleteBeforeFirstLive, || survives_power_loss(&[1; 14], 0, 9));
}

/// Bursts of records are appended and acknowledged; after every so many bursts all but the last `kept` records are
/// released. The power is lost at every third step.
fn survives_power_loss(bursts: &[u64], kept: u64, every: usize) {
    let tiny = Options { seal_after_us: 50, segment_bytes: 6 * BLOCK, ..small() };
    let run = |world: &World, acknowledged: &mut u64, appended: &mut u64| -> Result<()> {
        let mut log = open(world, &tiny)?;
        for (index, burst) in bursts.iter().enumerate() {
            for _ in 0..*burst {
                *appended = log.append(&record(*appended + 1), 0)?;
            }
            while *acknowledged < *appended {
                let mut out = [Event::EMPTY; 4];
                let count = log.reap(&mut out, 1, 1000)?;
                for event in &out[..count] {
                    if event.result != 0 && world.crashed() {
                        return Err(Error::Closed);
                    }
                    assert_eq!((event.sequence, event.result), (*acknowledged + 1, 0));
                    *acknowledged = event.sequence;
                }
            }
            if index % every == every - 1 {
                log.release(acknowledged.saturating_sub(kept))?;
            }
        }
        log.close()
    };
    for seed in 0..3 {
        let mut at = 1;
        loop {
            let world = World::calm(seed);
            world.crash_at(at);
            let (mut acknowledged, mut appended) = (0, 0);
            let over = run(&world, &mut acknowledged, &mut appended).is_ok();
            for loss in 0..2 {
                let after = world.power_loss(&mut crash::by_seed(loss));
                let found = handed(&after);
                let place = format!("seed {seed}, crash at {at}, loss {loss}");
                let last = found.last().copied().unwrap_or(0);
                assert!((acknowledged..=appended).contains(&last), "{place}: {acknowledged} {last}");
                let first = found.first().copied().unwrap_or(1);
                assert_eq!(found, (first..=last).collect::<Vec<_>>(), "{place}");
                assert!(first <= (acknowledged + 1).saturating_sub(kept).max(1), "{place}: {first} is gone");
                let log = open(&after, &tiny).unwrap();
                assert_eq!(log.recovery().last_sequence, last, "{place}");
            }
            if over {
                break;
            }
            at += 3;
        }
        assert!(at > 20, "the run has many steps, {at}");
    }
}

#[test]
fn a_record_larger_than_a_segment_gets_its_own() {
    let world = World::calm(1);
    let mut log = open(&world, &small()).unwrap();
    let large = vec![9; 700_000];
    log.append(&record(1), 0).unwrap();
    log.append(&large, 0).unwrap();
    log.append(&record(3), 0).unwrap();
    assert!(reap_all(&mut log, 3).iter().all(|event| event.result == 0));
    log.close().unwrap();
    let (records, _) = recover_sim(&world, Mode::ReadOnly);
    assert_eq!(records[1].2, large);
    assert_eq!(records.len(), 3);
}

#[test]
fn released_segments_are_used_again() {
    let world = World::calm(1);
    let mut log = open(&world, &small()).unwrap();
    let mut most = 0;
    for number in 1..400 {
        log.append(&record(number), 0).unwrap();
        reap_all(&mut log, 1);
        log.release(number).unwrap();
        most = most.max(world.names(log_dir()).len());
    }
    assert!(most <= 6, "{most} files at once");
    assert!(matches!(log.release(400), Err(Error::Invalid(_))));
    log.close().unwrap();
    let found = handed(&world);
    assert_eq!(found.last(), Some(&399));
    assert!(found.len() < 40, "{} records are kept", found.len());
}

#[test]
fn an_idle_log_is_sealed() {
    let world = World::calm(1);
    let mut log = open(&world, &small()).unwrap();
    log.append(&record(1), 0).unwrap();
    reap_all(&mut log, 1);
    let before = recover_sim(&world, Mode::ReadOnly).1.unwrap().stats;
    assert!(!before.sealed);
    let ring = log.io.clone();
    let until = world.now_us() + 100_000;
    while world.now_us() < until {
        ring.turn(Wait::Us(until - world.now_us())).unwrap();
    }
    let after = recover_sim(&world, Mode::ReadOnly).1.unwrap().stats;
    assert!(after.sealed && after.unproven_records == 0, "{after:?}");
    assert_eq!(ring.live_tasks(), 0, "an idle log has no task");
    log.append(&record(2), 0).unwrap();
    reap_all(&mut log, 1);
    log.close().unwrap();
    assert_eq!(handed(&world), [1, 2]);
}

#[test]
fn a_failed_sync_leaves_the_outcome_unknown_and_ends_writing() {
    let world = World::calm(1);
    let mut log = open(&world, &small()).unwrap();
    log.append(&record(1), 0).unwrap();
    reap_all(&mut log, 1);
    world.add_fault(Fault::once(Class::SYNC, 1, Effect::Errno(libc::EIO)).on("1.wal"));
    log.append(&record(2), 7).unwrap();
    let events = reap_all(&mut log, 1);
    assert_eq!(events[0], Event { user_data: 7, sequence: 2, result: code::INDETERMINATE });
    assert!(matches!(log.append(&record(3), 0), Err(Error::Poisoned(_))));
    log.close().unwrap();
    let mut log = open(&world, &small()).unwrap();
    let last = log.recovery().last_sequence;
    assert!((1..=2).contains(&last));
    log.append(&record(last + 1), 0).unwrap();
    assert_eq!(reap_all(&mut log, 1)[0].result, 0);
    log.close().unwrap();
    handed(&world);
}

#[test]
fn a_full_disk_refuses_cleanly_and_writing_resumes() {
    let world = World::calm(1);
    let mut log = open(&world, &small()).unwrap();
    log.append(&record(1), 0).unwrap();
    reap_all(&mut log, 1);
    log.submit().unwrap();
    world.set_space(Some(world.used_space()));
    let mut refused = 0;
    let mut kept = vec![1];
    for number in 2..200 {
        assert_eq!(log.append(&record(number), number).unwrap(), number);
        let event = reap_all(&mut log, 1)[0];
        assert_eq!((event.sequence, event.user_data), (number, number));
        match event.result {
            0 => kept.push(number),
            result => {
                assert_eq!(result, -libc::ENOSPC);
                refused += 1;
            }
        }
    }
    assert!(refused > 0);
    world.set_space(None);
    log.append(&record(200), 0).unwrap();
    assert_eq!(reap_all(&mut log, 1)[0].result, 0, "writing resumes when space returns");
    kept.push(200);
    assert_eq!(handed(&world), kept, "before closing");
    log.close().unwrap();
    assert_eq!(handed(&world), kept);
}

#[test]
fn a_write_that_the_disk_refuses_never_comes_back() {
    for effect in [Effect::Errno(libc::ENOSPC), Effect::ShortByHalf] {
        let world = World::calm(1);
        let mut log = open(&world, &small()).unwrap();
        log.append(&record(1), 0).unwrap();
        reap_all(&mut log, 1);
        world.pass_us(1_000_000);
        log.submit().unwrap();
        world.add_fault(Fault::once(Class::WRITE, 1, effect).on("1.wal"));
        log.append(&record(2), 0).unwrap();
        log.append(&record(3), 0).unwrap();
        let events = reap_all(&mut log, 2);
        let kept = if events[0].result == 0 { vec![1, 2, 3, 4] } else { vec![1, 4] };
        log.append(&record(4), 0).unwrap();
        assert_eq!(reap_all(&mut log, 1)[0].result, 0);
        assert_eq!(handed(&world), kept);
        log.close().unwrap();
        assert_eq!(handed(&world), kept);
    }
}

#[test]
fn too_much_at_once_is_stalled_until_a_reap() {
    let world = World::calm(1);
    let mut log = open(&world, &small()).unwrap();
    let payload = vec![1; 100_000];
    let mut taken = 0;
    let stalled = loop {
        match log.append(&payload, 0) {
            Ok(_) => taken += 1,
            Err(e) => break e,
        }
    };
    assert!(matches!(stalled, Error::Stalled(_)));
    assert!(taken > 10);
    reap_all(&mut log, taken);
    assert_eq!(log.append(&payload, 0).unwrap(), taken as u64 + 1, "a stalled append takes no sequence");
    reap_all(&mut log, 1);
    log.close().unwrap();
}

#[test]
fn a_second_opening_is_busy_and_a_replay_too() {
    let dir = Dir::new("busy");
    let path = dir.path();
    let options = RingOptions { driver: Choice::Posix, ..RingOptions::default() };
    let log = Log::open(path, &small(), On::Own(&options)).unwrap();
    assert!(matches!(Log::open(path, &small(), On::Own(&options)), Err(Error::Busy(_))));
    assert!(matches!(replay(path, false, &mut |_| Ok(())), Err(Error::Busy(_))));
    log.close().unwrap();
    assert_eq!(replay(path, false, &mut |_| Ok(())).unwrap().records, 0);
    let missing = path.join("missing");
    assert_eq!(replay(&missing, false, &mut |_| Ok(())).err().and_then(|e| e.errno()), Some(libc::ENOENT));
}

#[test]
fn real_drivers_write_watch_and_share() {
    let defer = SetupFlags::SINGLE_ISSUER | SetupFlags::DEFER_TASKRUN;
    for (driver, flags) in
        [(Choice::Auto, SetupFlags::empty()), (Choice::Auto, defer), (Choice::Posix, defer)]
    {
        let dir = Dir::new("real");
        let ring = RingOptions { driver, flags_wanted: flags, ..RingOptions::default() };
        let mut log = Log::open(dir.path(), &small(), On::Own(&ring)).unwrap();
        let fd = log.fd().unwrap();
        for number in 1..=40 {
            log.append(&record(number), number).unwrap();
        }
        log.submit().unwrap();
        let mut acknowledged = 0;
        while acknowledged < 40 {
            assert!(readable(fd, 10_000), "{acknowledged} came, {driver:?}");
            let mut out = [Event::EMPTY; 7];
            loop {
                let count = log.reap(&mut out, 0, 0).unwrap();
                if count == 0 {
                    break;
                }
                assert!(out[..count].iter().all(|event| event.result == 0));
                acknowledged += count;
            }
        }
        log.close().unwrap();
        let io = Io::new(open_driver(&ring).unwrap().0);
        let mut first = Log::open(dir.path(), &small(), On::Shared(&io)).unwrap();
        let other = Dir::new("real-other");
        let mut second = Log::open(other.path(), &small(), On::Shared(&io)).unwrap();
        first.append(&record(41), 0).unwrap();
        second.append(&record(1), 0).unwrap();
        // Driving one log drives the other: its event is ready, and only it hands it out.
        let mut out = [Event::EMPTY; 4];
        assert_eq!(first.reap(&mut out, 2, 10_000).unwrap(), 1);
        assert_eq!(io.with_reactor(|r| r.ready()), 1);
        assert_eq!(second.reap(&mut out, 1, 0).unwrap(), 1);
        second.close().unwrap();
        first.close().unwrap();
        let mut sequences = Vec::new();
        let stats = replay(dir.path(), false, &mut |r| {
            assert_eq!(r.payload, record(r.sequence));
            sequences.push(r.sequence);
            Ok(())
        });
        assert_eq!(sequences, (1..=41).collect::<Vec<_>>());
        assert!(stats.unwrap().sealed);
        assert_eq!(io.live_tasks(), 0);
    }
}

/// Whether the descriptor becomes readable, as a host that only watches it would see.
fn readable(fd: RawFd, timeout_ms: u64) -> bool {
    let watcher = RingOptions { driver: Choice::Posix, ..RingOptions::default() };
    let io = Io::new(open_driver(&watcher).unwrap().0);
    let after = Timespec::from_us(timeout_ms * 1000);
    let poll = Op::Poll { target: Target::Foreign(fd), events: libc::POLLIN as u32, multishot: false };
    let chain = io.submit_chain(vec![(poll, Link::Soft), (Op::LinkTimeout { after }, Link::None)]).unwrap();
    let ended = io.block_on(join(chain)).unwrap();
    ended[0].0 > 0
}
