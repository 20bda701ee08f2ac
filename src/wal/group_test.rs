//! The machine against a disk in memory and a model of what must be on it.
#![allow(clippy::disallowed_methods, reason = "tests start threads")]

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::base::map::Map;
use crate::wal::frame::{Kind, MAX_PAYLOAD, frame_len};
use crate::wal::plain_reader;
use crate::wal::segment::{BLOCK, FIRST_GROUP, LinkPayload};

const SEGMENT: u64 = 64 * 1024;

fn ground(number: u64, len: u64) -> Ground {
    Ground::fresh(number, number + 1000, len)
}

fn joined(groups: &mut Groups, len: usize, want: Want) -> Ticket {
    match groups.join(len, 1, want).unwrap() {
        Join::Joined(ticket) => ticket,
        other => panic!("{other:?}"),
    }
}

fn put(groups: &mut Groups, payload: &[u8], want: Want) -> Joined {
    let joined = joined(groups, payload.len(), want).copy(&[payload]);
    groups.finish(joined.record);
    joined
}

fn go(groups: &mut Groups) -> Box<Group> {
    match groups.start() {
        Start::Go(group) => group,
        other => panic!("{other:?}"),
    }
}

/// Segments as bytes, written by a leader without a device.
#[derive(Default)]
struct Disk {
    files: BTreeMap<u64, (u64, Vec<u8>)>,
    previous: u32,
    current: u64,
    last_sequence: u64,
    end: u64,
}

impl Disk {
    fn write(&mut self, group: &mut Group, len: u64, durable: u64) {
        let Place { log_number, epoch, offset } = group.place;
        let mut link = LinkPayload { first_live: 1, ..LinkPayload::default() };
        if group.lead_in == LeadIn::Link {
            if self.current > 0 {
                link.predecessor = self.current;
                link.predecessor_epoch = self.files[&self.current].0;
                link.predecessor_end = self.end;
                link.last_sequence = self.last_sequence;
                link.last_checksum = self.previous;
            }
            self.current = log_number;
            self.previous = 0;
            self.end = FIRST_GROUP;
        }
        assert_eq!(
            (log_number, offset),
            (self.current, self.end),
            "groups come in the order of their places"
        );
        let (bytes, previous) = group.complete(self.previous, durable, &link).unwrap();
        let file = &mut self.files.entry(log_number).or_insert_with(|| (epoch, vec![0; len as usize])).1;
        file[offset as usize..][..bytes.len()].copy_from_slice(bytes.as_slice());
        self.previous = previous;
        self.end = offset + bytes.len() as u64;
        if group.members > 0 {
            self.last_sequence = group.last_sequence;
        }
    }

    /// All batches, with the links between the segments checked.
    fn read(&self) -> Vec<(u64, u32, Vec<u8>)> {
        let mut all = Vec::new();
        let mut before: Option<(u64, plain_reader::Segment)> = None;
        for (number, (epoch, bytes)) in &self.files {
            let segment = plain_reader::read(bytes, *number, *epoch);
            let link = segment.link.unwrap_or_else(|| panic!("segment {number} has no link"));
            match &before {
                None => assert_eq!(link.predecessor, 0),
                Some((number, segment)) => {
                    assert_eq!(link.predecessor, *number);
                    assert_eq!(
                        (link.predecessor_end, link.last_checksum),
                        (segment.end, segment.last_checksum)
                    );
                }
            }
            all.extend(segment.batches.iter().cloned());
            before = Some((*number, segment));
        }
        all
    }
}

#[test]
fn frames_of_a_batch_are_first_middle_last_and_add_up() {
    for len in [0, 1, MAX_PAYLOAD, MAX_PAYLOAD + 1, 2 * MAX_PAYLOAD, 3 * MAX_PAYLOAD + 7] {
        let frames: Vec<_> = frames_of(len).collect();
        assert_eq!(frames.iter().map(|(_, len)| len).sum::<usize>(), len);
        assert_eq!(frames.iter().map(|(_, len)| frame_len(*len)).sum::<usize>(), batch_len(len));
        let kinds: Vec<_> = frames.iter().map(|(kind, _)| *kind).collect();
        match kinds.as_slice() {
            [kind] => assert_eq!(*kind, Kind::Full),
            [first, middle @ .., last] => {
                assert_eq!((*first, *last), (Kind::First, Kind::Last));
                assert!(middle.iter().all(|kind| *kind == Kind::Middle));
            }
            [] => panic!("a batch has a frame"),
        }
    }
}

#[test]
fn a_group_starts_only_when_its_members_have_finished() {
    let mut groups = Groups::new(1, Some(ground(1, SEGMENT)));
    let first = joined(&mut groups, 10, Want::Sync);
    let second = put(&mut groups, b"second", Want::Sync);
    assert_eq!(groups.finished(), 0, "the first one still copies");
    assert!(matches!(groups.start(), Start::Copying));
    // Closed by that: who comes now is in the next group.
    let third = put(&mut groups, b"third", Want::Sync);
    assert_eq!((second.group, third.group), (1, 2));
    let first = first.copy(&[b"0123456789"]);
    assert!(groups.finish(first.record));
    let mut group = go(&mut groups);
    assert_eq!((group.number, group.members, group.last_sequence), (1, 2, 2));
    assert!(matches!(groups.start(), Start::Busy));
    assert_eq!(groups.visible(), 0, "durable writes are shown after their sync");
    let mut disk = Disk::default();
    disk.write(&mut group, SEGMENT, 0);
    groups.done(group, true);
    assert_eq!((groups.durable(), groups.visible(), groups.written()), (2, 2, 2));
}

#[test]
fn a_group_whose_member_still_copies_cannot_be_completed() {
    let mut groups = Groups::new(1, Some(ground(1, SEGMENT)));
    let ticket = joined(&mut groups, 10, Want::Sync);
    groups.finish(ticket.joined.record);
    let mut group = go(&mut groups);
    assert!(matches!(group.complete(0, 0, &LinkPayload::default()), Err(Error::Internal(_))));
    drop(ticket);
    assert!(group.complete(0, 0, &LinkPayload::default()).is_ok());
}

#[test]
fn a_weak_batch_is_shown_when_all_before_it_are_in() {
    let mut groups = Groups::new(1, Some(ground(1, SEGMENT)));
    let durable = joined(&mut groups, 3, Want::Sync);
    let weak = put(&mut groups, b"weak", Want::Nothing);
    assert_eq!(groups.visible(), 0);
    let durable = durable.copy(&[b"dur"]);
    groups.finish(durable.record);
    assert_eq!(groups.visible(), weak.last_sequence, "it shows the durable one before it, too");
    put(&mut groups, b"later", Want::Sync);
    assert_eq!(groups.visible(), weak.last_sequence);
    groups.poison();
    let after = groups.visible();
    assert_eq!(after, weak.last_sequence);
    assert!(matches!(groups.start(), Start::Nothing), "nothing moves after poisoning");
}

#[test]
fn groups_that_are_full_wait_and_then_joining_waits() {
    let mut groups = Groups::new(1, Some(ground(1, 64 << 20)));
    let payload = vec![7; 200 * 1024];
    let mut count = 0;
    while let Join::Joined(ticket) = groups.join(payload.len(), 1, Want::Sync).unwrap() {
        let joined = ticket.copy(&[&payload]);
        groups.finish(joined.record);
        count += 1;
        assert!(count < 100, "it never becomes full");
    }
    assert!(count >= 6, "{count}");
    let mut disk = Disk::default();
    let mut group = go(&mut groups);
    disk.write(&mut group, 64 << 20, 0);
    groups.done(group, true);
    assert!(matches!(groups.join(payload.len(), 1, Want::Sync).unwrap(), Join::Joined(_)));
}

#[test]
fn a_batch_beyond_the_limit_is_refused_and_takes_nothing() {
    let mut groups = Groups::new(1, Some(ground(1, SEGMENT)));
    assert!(matches!(groups.join(MAX_BATCH + 1, 1, Want::Sync), Err(Error::TooLarge(_))));
    assert_eq!(groups.next_sequence(), 1);
}

#[test]
fn who_sleeps_is_to_be_woken_and_a_link_does_not_sleep() {
    let mut groups = Groups::new(1, None);
    groups.continue_in(ground(1, SEGMENT)).unwrap();
    put(&mut groups, b"weak", Want::Nothing);
    assert_eq!(groups.next_wanted(), None, "the first group has a link, and nobody waits for it");
    put(&mut groups, &[0; 40_000], Want::Nothing);
    groups.continue_in(ground(2, SEGMENT)).unwrap();
    let waits = put(&mut groups, &[0; 30_000], Want::Sync);
    assert_eq!(groups.next_wanted(), Some(waits.group));
}

#[test]
fn the_last_block_of_a_segment_is_kept_for_its_seal() {
    // Room for one group of one block, and the seal.
    let mut groups = Groups::new(1, Some(ground(1, FIRST_GROUP + 2 * BLOCK)));
    let mut disk = Disk::default();
    put(&mut groups, b"one", Want::Sync);
    let mut group = go(&mut groups);
    disk.write(&mut group, SEGMENT, 0);
    groups.done(group, true);
    assert!(matches!(groups.join(1, 1, Want::Sync).unwrap(), Join::NoGround { needed: BLOCK }));
    assert!(groups.seal().unwrap());
    let mut group = go(&mut groups);
    disk.write(&mut group, SEGMENT, 1);
    groups.done(group, true);
    assert!(!groups.seal().unwrap(), "there is no room for another");
    let (epoch, bytes) = &disk.files[&1];
    let segment = plain_reader::read(bytes, 1, *epoch);
    assert_eq!(
        (segment.seals.as_slice(), segment.durable_through, segment.end),
        (&[2][..], 1, FIRST_GROUP + 2 * BLOCK)
    );
}

#[test]
fn a_refusal_kills_durable_sequences_and_keeps_weak_ones() {
    let mut groups = Groups::new(1, Some(ground(1, SEGMENT)));
    let mut disk = Disk::default();
    put(&mut groups, b"1", Want::Sync);
    let mut group = go(&mut groups);
    disk.write(&mut group, SEGMENT, 0);
    groups.done(group, true);
    for (payload, want) in [("2", Want::Sync), ("3", Want::Nothing), ("4", Want::Sync), ("5", Want::Sync)] {
        put(&mut groups, payload.as_bytes(), want);
    }
    let group = go(&mut groups);
    put(&mut groups, b"6", Want::Write);
    put(&mut groups, b"7", Want::Sync);
    assert_eq!(groups.visible(), 6, "the weak ones were shown");
    groups.begin_refusal();
    assert!(matches!(groups.join(1, 1, Want::Sync).unwrap(), Join::Full), "nobody joins meanwhile");
    assert!(groups.all_finished());
    assert_eq!(groups.refuse(group).unwrap(), [(2, 2), (4, 5), (7, 7)]);
    assert_eq!((groups.visible(), groups.last_live(), groups.durable()), (6, 6, 1));
    assert!(matches!(groups.join(1, 1, Want::Sync).unwrap(), Join::NoGround { .. }));
    groups.continue_in(ground(2, SEGMENT)).unwrap();
    put(&mut groups, b"8", Want::Sync);
    while let Start::Go(mut group) = groups.start() {
        disk.write(&mut group, SEGMENT, 1);
        groups.done(group, true);
    }
    let found: Vec<u64> = disk.read().iter().map(|(sequence, _, _)| *sequence).collect();
    assert_eq!(found, [1, 3, 6, 8]);
    assert_eq!((groups.durable(), groups.visible()), (8, 8));
}

#[test]
fn a_refusal_of_everything_leaves_nothing_to_wait_for() {
    let mut groups = Groups::new(1, Some(ground(1, SEGMENT)));
    put(&mut groups, b"1", Want::Sync);
    let group = go(&mut groups);
    groups.begin_refusal();
    assert_eq!(groups.refuse(group).unwrap(), [(1, 1)]);
    assert_eq!(groups.last_live(), groups.durable());
    groups.continue_in(ground(2, SEGMENT)).unwrap();
    groups.link_alone().unwrap();
    let mut disk = Disk::default();
    let mut group = go(&mut groups);
    assert_eq!((group.members, group.lead_in), (0, LeadIn::Link));
    disk.write(&mut group, SEGMENT, 0);
    groups.done(group, true);
    let joined = put(&mut groups, b"2", Want::Sync);
    assert_eq!(joined.first_sequence, 2, "a refused sequence is never used again");
    let mut group = go(&mut groups);
    disk.write(&mut group, SEGMENT, 0);
    groups.done(group, true);
    assert_eq!(disk.read(), [(2, 1, b"2".to_vec())]);
}

#[test]
fn memory_is_used_again_and_that_of_a_large_batch_is_given_back() {
    let mut groups = Groups::new(1, Some(ground(1, 64 << 20)));
    let mut disk = Disk::default();
    let large = vec![3; MAX_ROOM + 1];
    for round in 0..20 {
        if round == 10 {
            put(&mut groups, &large, Want::Sync);
        }
        put(&mut groups, b"x", Want::Sync);
        while let Start::Go(mut group) = groups.start() {
            disk.write(&mut group, 64 << 20, 0);
            groups.done(group, true);
        }
        assert!(groups.pool.len() <= 2, "round {round}: {}", groups.pool.len());
        assert!(groups.pool.iter().all(|group| group.fill.room() <= MAX_ROOM));
    }
}

/// One step of a random history.
#[derive(Debug, Clone)]
enum Move {
    Join { len: usize, count: u32, want: Want },
    Finish { which: usize },
    Write { synced: bool, refused: bool },
    Seal,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let want = prop::sample::select(vec![Want::Nothing, Want::Write, Want::Sync]);
    let len = prop_oneof![8 => 0usize..300, 2 => 3000usize..20_000, 1 => 200_000usize..600_000];
    let step = prop_oneof![
        6 => (len, 1u32..4, want).prop_map(|(len, count, want)| Move::Join { len, count, want }),
        6 => any::<prop::sample::Index>().prop_map(|i| Move::Finish { which: i.index(1 << 20) }),
        4 => (any::<bool>(), 0u32..12).prop_map(|(synced, r)| Move::Write { synced, refused: r == 0 }),
        1 => Just(Move::Seal),
    ];
    prop::collection::vec(step, 1..120)
}

/// The machine, driven by random moves, and what it must have done.
struct Run {
    groups: Groups,
    disk: Disk,
    lens: Map<u64, u64>,
    number: u64,
    /// Payload by first sequence, of all that joined and were not refused.
    model: BTreeMap<u64, (u32, Vec<u8>)>,
    open: Vec<(Ticket, Vec<u8>)>,
    visible: u64,
}

impl Run {
    fn new() -> Self {
        let groups = Groups::new(1, None);
        let (disk, lens) = (Disk::default(), Map::default());
        Run { groups, disk, lens, number: 0, model: BTreeMap::new(), open: Vec::new(), visible: 0 }
    }

    fn ground(&mut self, needed: u64) {
        self.number += 1;
        let len = Ground::len_for(needed).max(SEGMENT);
        self.lens.insert(self.number, len);
        self.groups.continue_in(ground(self.number, len)).unwrap();
    }

    fn join(&mut self, len: usize, count: u32, want: Want) {
        loop {
            match self.groups.join(len, count, want).unwrap() {
                Join::Full => return,
                Join::NoGround { needed } => self.ground(needed),
                Join::Joined(ticket) => {
                    let first = ticket.joined.first_sequence;
                    let payload: Vec<u8> = (0..len).map(|i| (first as usize * 31 + i) as u8).collect();
                    self.model.insert(first, (count, payload.clone()));
                    self.open.push((ticket, payload));
                    return;
                }
            }
        }
    }

    fn finish(&mut self, which: usize) {
        if self.open.is_empty() {
            return;
        }
        let (ticket, payload) = self.open.swap_remove(which % self.open.len());
        let (a, b) = payload.split_at(payload.len() / 3);
        let joined = ticket.copy(&[a, b]);
        self.groups.finish(joined.record);
    }

    fn write(&mut self, synced: bool, refused: bool) {
        let Start::Go(mut group) = self.groups.start() else { return };
        if !refused {
            let len = self.lens[&group.place.log_number];
            self.disk.write(&mut group, len, self.groups.durable());
            self.groups.done(group, synced);
            return;
        }
        self.groups.begin_refusal();
        while !self.open.is_empty() {
            self.finish(0);
        }
        assert!(self.groups.all_finished());
        for (first, last) in self.groups.refuse(group).unwrap() {
            self.model.retain(|sequence, _| *sequence < first || *sequence > last);
        }
    }

    fn check(&mut self) {
        let visible = self.groups.visible();
        assert!(visible >= self.visible, "visible went back");
        assert!(visible <= self.groups.finished().max(self.groups.durable()), "shown before it was inserted");
        assert!(self.groups.durable() <= self.groups.written());
        self.visible = visible;
    }

    fn settle(&mut self) {
        while !self.open.is_empty() {
            self.finish(0);
        }
        loop {
            if let Some(needed) = self.groups.kept_need() {
                self.ground(needed);
            }
            match self.groups.start() {
                Start::Go(mut group) => {
                    let len = self.lens[&group.place.log_number];
                    self.disk.write(&mut group, len, self.groups.durable());
                    self.groups.done(group, true);
                }
                _ if self.groups.kept_need().is_none() => return,
                _ => {}
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn whatever_happens_the_log_holds_what_was_not_refused_in_order(moves in moves()) {
        let mut run = Run::new();
        for step in moves {
            match step {
                Move::Join { len, count, want } => run.join(len, count, want),
                Move::Finish { which } => run.finish(which),
                Move::Write { synced, refused } => run.write(synced, refused),
                Move::Seal => drop(run.groups.seal().unwrap()),
            }
            run.check();
        }
        run.settle();
        run.check();
        let expected: Vec<_> = run.model.iter().map(|(s, (c, p))| (*s, *c, p.clone())).collect();
        prop_assert_eq!(run.disk.read(), expected);
        prop_assert_eq!(run.groups.last_live().max(run.groups.written()), run.groups.written());
    }
}
