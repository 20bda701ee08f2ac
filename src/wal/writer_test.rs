//! The writer over the simulated disk: what it writes, and what it never does again after a failure.

use std::path::Path;

use super::*;
use crate::ring::sim::World;
use crate::ring::sim::fault::{Class, Effect, Fault};
use crate::wal::group::{Join, Start, Want};
use crate::wal::plain_reader;
use crate::wal::recover::RecoveryStats;
use crate::wal::segment::{SegmentHeader, file_name};

const DIR: &str = "/log";
const SEGMENT: u64 = 64 * 1024;

struct Bench {
    world: World,
    io: Io,
    opened: Opened,
}

impl Bench {
    fn new(seed: u64, sync: Wish, checkpoint_every: u64) -> Self {
        let world = World::calm(seed);
        let io = world.io();
        let dir = io.open_dir(DIR.as_ref(), true).unwrap();
        let recovered = Recovered {
            next_sequence: 1,
            tail: None,
            live: Vec::new(),
            spare: None,
            unused: Vec::new(),
            highest_number: 0,
            first_live: 0,
            stats: RecoveryStats::default(),
        };
        let segment_bytes = SEGMENT;
        let options =
            Options { segment_bytes, direct: true, sync, may_block: true, checkpoint_every, ring: None };
        let opened = Writer::open(&io, &dir, recovered, options).unwrap();
        let mut bench = Bench { world, io, opened };
        // The first group, with the link.
        assert!(matches!(bench.put(10, true), Outcome::Done { synced: true }));
        bench
    }

    /// Issues a group of one batch.
    fn put(&mut self, len: usize, sync: bool) -> Outcome {
        let Opened { groups, spares, writer } = &mut self.opened;
        let mut next = None;
        let ticket = loop {
            match groups.join(len, 1, Want::Sync).unwrap() {
                Join::Joined(ticket) => break ticket,
                Join::NoGround { needed } => {
                    let order = spares.order(Ground::len_for(needed)).unwrap();
                    let prepared = self.io.block_on(order.prepare(&self.io)).unwrap();
                    spares.supply(prepared).unwrap();
                    let segment = spares.take(0, 0).unwrap();
                    groups.continue_in(Ground::fresh(segment.number, segment.epoch, segment.len)).unwrap();
                    next = Some(segment);
                }
                Join::Full => panic!("nothing waits"),
            }
        };
        let joined = ticket.copy(&[&vec![5; len]]);
        groups.finish(joined.record);
        let Start::Go(mut group) = groups.start() else { panic!("one group waits") };
        let outcome = self.io.block_on(writer.issue(&self.io, &mut group, next, sync)).unwrap();
        if let Outcome::Done { synced } = outcome {
            groups.done(group, synced);
        }
        outcome
    }

    fn segment(&self) -> (Vec<u8>, u64) {
        let bytes = self.world.read_raw(Path::new(DIR), &file_name(1)).unwrap();
        let epoch = SegmentHeader::decode(&bytes[..BLOCK as usize], 1).unwrap().epoch;
        (bytes, epoch)
    }

    fn batches(&self) -> usize {
        let (bytes, epoch) = self.segment();
        plain_reader::read(&bytes, 1, epoch).batches.len()
    }
}

#[test]
fn checkpoints_take_turns_and_never_claim_more_than_was_synced() {
    for way in [Wish::Syscall, Wish::Linked, Wish::Dsync] {
        let mut bench = Bench::new(1, way, 1);
        for last in 2..6u64 {
            assert!(matches!(bench.put(100, true), Outcome::Done { synced: true }));
            let (bytes, epoch) = bench.segment();
            let slot = |slot: u32| {
                let at = slot as usize * BLOCK as usize;
                Checkpoint::decode(&bytes[at..][..BLOCK as usize], slot, 1, epoch).unwrap()
            };
            let (newer, older) = if last % 2 == 0 { (slot(2), slot(1)) } else { (slot(1), slot(2)) };
            assert_eq!((newer.counter, newer.durable_through), (last, last), "{way:?}");
            assert_eq!((older.counter, older.durable_through), (last - 1, last - 1), "{way:?}");
            assert_eq!(newer.durable_offset, FIRST_GROUP + last * BLOCK);
        }
    }
}

#[test]
fn a_short_write_is_finished_and_synced_standing_alone() {
    for effect in [Effect::ShortByHalf, Effect::ShortByOne] {
        for way in [Wish::Syscall, Wish::Linked, Wish::Dsync] {
            let mut bench = Bench::new(2, way, 0);
            bench.world.add_fault(Fault::once(Class::WRITE, 1, effect));
            assert!(matches!(bench.put(20_000, true), Outcome::Done { synced: true }), "{way:?}");
            assert_eq!(bench.world.faults_fired(), 1);
            let durable = bench.world.power_loss(&mut crate::ring::sim::crash::nothing());
            let bytes = durable.read_raw(Path::new(DIR), &file_name(1)).unwrap();
            let (_, epoch) = bench.segment();
            assert_eq!(plain_reader::read(&bytes, 1, epoch).batches.len(), 2, "{effect:?}, {way:?}");
        }
    }
}

#[test]
fn a_write_that_makes_no_progress_is_an_error() {
    for errno in [libc::EINTR, libc::EAGAIN] {
        let mut bench = Bench::new(3, Wish::Syscall, 0);
        bench.world.add_fault(Fault::for_ever(Class::WRITE, 1, Effect::Errno(errno)));
        assert!(matches!(bench.put(100, true), Outcome::Failed(_)));
    }
}

#[test]
fn after_a_failed_sync_nothing_is_written_or_synced_again() {
    for way in [Wish::Syscall, Wish::Linked] {
        let mut bench = Bench::new(4, way, 0);
        bench.world.add_fault(Fault::once(Class::SYNC, 1, Effect::Errno(libc::EIO)));
        assert!(matches!(bench.put(100, true), Outcome::Failed(_)), "{way:?}");
        let before = (bench.world.count(Class::SYNC), bench.world.count(Class::WRITE));
        let io = bench.io.clone();
        assert!(io.block_on(bench.opened.writer.sync(&io)).unwrap().is_err());
        assert!(bench.opened.writer.failure().is_some());
        assert_eq!((bench.world.count(Class::SYNC), bench.world.count(Class::WRITE)), before, "{way:?}");
    }
}

#[test]
fn a_full_disk_is_refused_and_told_apart_from_a_partial_write() {
    let mut bench = Bench::new(5, Wish::Syscall, 0);
    bench.world.add_fault(Fault::for_ever(Class::WRITE, 1, Effect::Errno(libc::ENOSPC)));
    assert!(matches!(bench.put(100, true), Outcome::Refused { appended: false, .. }));
    let mut bench = Bench::new(6, Wish::Syscall, 0);
    bench.world.add_fault(Fault::once(Class::WRITE, 1, Effect::ShortByHalf));
    bench.world.add_fault(Fault::once(Class::WRITE, 2, Effect::Errno(libc::ENOSPC)));
    assert!(matches!(bench.put(20_000, true), Outcome::Refused { appended: true, .. }));
    assert_eq!(bench.batches(), 1);
}

#[test]
fn dsync_syncs_the_file_when_something_else_in_it_waits_for_a_sync() {
    let mut bench = Bench::new(7, Wish::Dsync, 0);
    let syncs = bench.world.count(Class::SYNC);
    assert!(matches!(bench.put(100, true), Outcome::Done { synced: true }));
    assert_eq!(bench.world.count(Class::SYNC), syncs, "the write is its own sync");
    assert!(matches!(bench.put(100, false), Outcome::Done { synced: false }));
    assert!(matches!(bench.put(100, true), Outcome::Done { synced: true }));
    assert_eq!(bench.world.count(Class::SYNC), syncs + 1);
    let durable = bench.world.power_loss(&mut crate::ring::sim::crash::nothing());
    let bytes = durable.read_raw(Path::new(DIR), &file_name(1)).unwrap();
    assert_eq!(plain_reader::read(&bytes, 1, bench.segment().1).batches.len(), 4);
}
