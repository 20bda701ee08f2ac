//! What recovery does with every way in which a log can end, on a simulated disk.

use super::*;
use crate::base::Corruption;
use crate::base::defect::Defect;
use crate::base::memory::Buf;
use crate::ring::fs::How;
use crate::ring::sim::damage::Damage;
use crate::ring::sim::fault::{Class, Effect, Fault};
use crate::ring::sim::{World, crash};
use crate::wal::frame::Kind;
use crate::wal::segment::{LinkPayload, file_name};
use crate::wal::testing::{Builder, Handed, WRITE, caught, log_dir, no_predecessor, recover_sim};

fn one(sequence: u64, payload: &[u8]) -> Handed {
    (sequence, 1, payload.to_vec())
}

fn corruption(result: Result<Recovered>) -> Corruption {
    match result {
        Err(Error::Corrupt(corruption)) => *corruption,
        other => panic!("expected corruption, got {other:?}"),
    }
}

/// `a` and `b` in one group, `c` in the next.
fn three() -> Builder {
    let mut log = Builder::new(1, 0xE1, 16, no_predecessor(), 1);
    log.group(&[b"a", b"b"]).group(&[b"c"]);
    log
}

fn abc() -> Vec<Handed> {
    vec![one(1, b"a"), one(2, b"b"), one(3, b"c")]
}

/// Recovers for writing; checks that a second recovery finds the same, and has nothing left to do.
fn twice(world: &World, expected: &[Handed]) -> Recovered {
    let (handed, recovered) = recover_sim(world, WRITE);
    let recovered = recovered.unwrap();
    assert_eq!(handed, expected);
    let (again, second) = recover_sim(world, WRITE);
    let second = second.unwrap();
    assert_eq!(again, expected);
    assert_eq!((second.stats.unproven_records, second.stats.copied_records), (0, 0));
    assert!(second.stats.sealed);
    assert_eq!(second.live, recovered.live_after_seal());
    recovered
}

impl Recovered {
    /// The list of segments as a second recovery sees it: the seal that recovery wrote counts.
    fn live_after_seal(&self) -> Vec<SegmentInfo> {
        let mut live = self.live.clone();
        if let (Some(last), Some(tail)) = (live.last_mut(), &self.tail) {
            last.end = tail.offset;
        }
        live
    }
}

#[test]
fn an_empty_directory_is_an_empty_log() {
    let world = World::calm(1);
    for mode in [Mode::ReadOnly, WRITE, Mode::Salvage] {
        let (handed, recovered) = recover_sim(&world, mode);
        let recovered = recovered.unwrap();
        assert!(handed.is_empty() && recovered.tail.is_none() && recovered.live.is_empty());
        assert_eq!((recovered.next_sequence, recovered.highest_number), (1, 0));
    }
}

#[test]
fn a_sealed_log_goes_on_in_its_segment() {
    let world = World::calm(1);
    let mut log = three();
    log.seal().plant(&world);
    let recovered = twice(&world, &abc());
    let tail = recovered.tail.unwrap();
    assert_eq!((tail.segment.number, tail.offset as usize, tail.previous), (1, log.offset, log.previous));
    assert_eq!(recovered.next_sequence, 4);
    assert!(recovered.stats.sealed);
    assert_eq!(world.names(log_dir()), ["1.wal"]);
    assert_eq!(world.read_raw(log_dir(), "1.wal").unwrap(), log.bytes, "nothing was changed");
}

#[test]
fn unproven_records_are_copied_and_proven_ones_stay() {
    let world = World::calm(1);
    three().plant(&world);
    let (handed, read_only) = recover_sim(&world, Mode::ReadOnly);
    let stats = read_only.unwrap().stats;
    assert_eq!(handed, abc());
    assert_eq!((stats.records, stats.unproven_records, stats.proven_through), (3, 1, 2));
    assert_eq!(world.names(log_dir()), ["1.wal"], "a read-only recovery changes nothing");
    let recovered = twice(&world, &abc());
    assert_eq!(recovered.stats.copied_records, 1);
    let live: Vec<_> = recovered.live.iter().map(|s| (s.number, s.first_sequence, s.last_sequence)).collect();
    assert_eq!(live, [(1, 1, 2), (2, 3, 3)]);
    assert_eq!(recovered.tail.unwrap().segment.number, 2);
}

#[test]
fn a_segment_whose_link_is_unproven_is_replaced_altogether() {
    let world = World::calm(1);
    let mut first = Builder::new(1, 0xE1, 16, no_predecessor(), 1);
    first.group(&[b"a"]);
    let mut second = Builder::new(2, 0xE2, 16, first.link(), 2);
    second.group(&[b"b"]);
    first.plant(&world);
    second.plant(&world);
    let recovered = twice(&world, &[one(1, b"a"), one(2, b"b")]);
    let live: Vec<_> = recovered.live.iter().map(|s| (s.number, s.first_sequence, s.last_sequence)).collect();
    assert_eq!(live, [(1, 1, 1), (3, 2, 2)]);
    assert_eq!(recovered.unused, [2]);
    assert_eq!(recovered.first_live, 1);
}

#[test]
fn a_log_cut_by_one_byte_opens_without_its_last_record_only() {
    let world = World::calm(1);
    let mut log = three();
    log.group(&[b"the last"]);
    log.plant(&world);
    let end = log.offset as u64 - BLOCK + frame_len_of(8);
    world.damage(log_dir(), "1.wal", &Damage::SetLen(end - 1));
    let recovered = twice(&world, &abc());
    assert!(recovered.stats.torn_bytes > 0);
    assert_eq!(recovered.stats.possible_damage, 1);
    assert_eq!(recovered.tail.unwrap().segment.number, 2, "nothing is appended to a torn segment");
}

#[test]
fn a_cut_that_took_nothing_is_counted_and_not_appended_to() {
    let world = World::calm(1);
    let mut log = three();
    log.seal().plant(&world);
    world.damage(log_dir(), "1.wal", &Damage::SetLen(log.offset as u64));
    let recovered = twice(&world, &abc());
    assert_eq!((recovered.stats.possible_damage, recovered.stats.torn_bytes), (1, 0));
    assert_eq!(recovered.tail.unwrap().segment.number, 2);
}

fn frame_len_of(payload_len: usize) -> u64 {
    crate::wal::frame::frame_len(payload_len) as u64 - 4
}

#[test]
fn a_torn_batch_is_dropped_whole() {
    let world = World::calm(1);
    let mut log = three();
    let from = log.offset;
    log.long(5, &[&[1; 3000], &[2; 3000], &[3; 3000]]);
    log.plant(&world);
    let (handed, _) = recover_sim(&world, Mode::ReadOnly);
    assert_eq!(handed[3], (4, 5, [[1; 3000], [2; 3000], [3; 3000]].concat()));
    for sector in from as u64 / 512..(from as u64 + 9216) / 512 {
        let world = world.fork(sector);
        world.damage(log_dir(), "1.wal", &Damage::ZeroSector(sector));
        let recovered = twice(&world, &abc());
        assert_eq!(recovered.next_sequence, 4);
    }
}

#[test]
fn damage_before_a_proof_is_refused_with_its_place() {
    let hit = 12_288 + 120 + 10;
    let mut by_frame = three();
    by_frame.group(&[b"d"]);
    let mut by_seal = Builder::new(1, 0xE1, 16, no_predecessor(), 1);
    by_seal.group(&[b"a", b"b"]).seal();
    let mut by_checkpoint = Builder::new(1, 0xE1, 16, no_predecessor(), 1);
    by_checkpoint.group(&[b"a", b"b"]).checkpoint(3);
    for log in [by_frame, by_seal, by_checkpoint] {
        let world = World::calm(1);
        log.plant(&world);
        world.damage(log_dir(), "1.wal", &Damage::FlipBit(hit * 8));
        let found = corruption(recover_sim(&world, WRITE).1);
        assert_eq!((found.file.as_str(), found.offset), ("1.wal", 12_288 + 120));
        assert!(found.expected.contains("durable up to"), "{found:?}");
        assert_eq!(world.names(log_dir()), ["1.wal"], "nothing was changed");
    }
}

#[test]
fn damage_before_a_successor_is_refused_with_its_place() {
    let world = World::calm(1);
    let first = three();
    first.plant(&world);
    let mut second = Builder::new(2, 0xE2, 16, first.link(), 4);
    second.group(&[b"d"]).plant(&world);
    let third = 16_384 * 8 + 300;
    world.damage(log_dir(), "1.wal", &Damage::FlipBit(third));
    let found = corruption(recover_sim(&world, WRITE).1);
    assert_eq!((found.file.as_str(), found.offset), ("1.wal", 16_384));
    assert!(found.expected.contains("2.wal says"), "{found:?}");
}

#[test]
fn a_missing_segment_is_damage_if_it_is_live_and_nothing_if_not() {
    for first_live in [1, 2] {
        let world = World::calm(1);
        let first = three();
        let link = LinkPayload { first_live, ..first.link() };
        let mut second = Builder::new(2, 0xE2, 16, link, 4);
        second.group(&[b"d"]).seal().plant(&world);
        let (handed, recovered) = recover_sim(&world, WRITE);
        if first_live == 1 {
            let found = corruption(recovered);
            assert_eq!(found.file, "1.wal");
            continue;
        }
        assert_eq!(handed, [one(4, b"d")]);
        assert_eq!(recovered.unwrap().first_live, 2);
    }
}

#[test]
fn a_segment_shorter_than_its_successor_says_is_damage() {
    let world = World::calm(1);
    let first = three();
    first.plant(&world);
    let mut second = Builder::new(2, 0xE2, 16, first.link(), 4);
    second.group(&[b"d"]).seal().plant(&world);
    world.damage(log_dir(), "1.wal", &Damage::SetLen(first.offset as u64 - 1));
    let found = corruption(recover_sim(&world, WRITE).1);
    assert_eq!((found.file.as_str(), found.offset), ("1.wal", first.offset as u64 - 1));
}

#[test]
fn refused_sequences_are_skipped_where_a_link_says_so() {
    let world = World::calm(1);
    let mut first = Builder::new(1, 0xE1, 16, no_predecessor(), 1);
    first.group(&[b"a"]);
    let link = first.link();
    // A group that was refused: readable, and never to be seen.
    first.group(&[b"refused"]).plant(&world);
    let mut second = Builder::new(2, 0xE2, 16, link, 3);
    second.durable = 1;
    second.group(&[b"c"]).seal().plant(&world);
    twice(&world, &[one(1, b"a"), one(3, b"c")]);
}

#[test]
fn refused_sequences_are_skipped_where_a_seal_says_so() {
    let world = World::calm(1);
    let mut log = Builder::new(1, 0xE1, 16, no_predecessor(), 1);
    log.group(&[b"a"]);
    // Nothing of the refused group is in the file, so writing went on behind a seal.
    log.next = 3;
    log.frame(Kind::Seal, 0, &[]);
    log.group(&[b"c"]).seal().plant(&world);
    twice(&world, &[one(1, b"a"), one(3, b"c")]);
}

#[test]
fn old_records_of_a_recycled_segment_never_come_back() {
    // The same groups in both uses of the file, so that the old ones stand exactly behind the new ones.
    let old = {
        let mut log = Builder::new(1, 0xE1, 16, no_predecessor(), 1);
        log.group(&[b"a"]).group(&[b"b"]).group(&[b"c"]).group(&[b"d"]).seal();
        log
    };
    for (epoch, number) in [(0xE2, 1), (0xE1, 2), (0xE2, 2)] {
        for sealed in [false, true] {
            let world = World::calm(1);
            let mut log = Builder::over(old.bytes.clone(), number, epoch, no_predecessor(), 1);
            log.group(&[b"A"]).group(&[b"B"]);
            if sealed {
                log.seal();
            }
            log.plant(&world);
            let recovered = twice(&world, &[one(1, b"A"), one(2, b"B")]);
            assert_eq!(recovered.stats.torn_bytes, 0, "what is behind the end is the file's older use");
            assert_eq!(recovered.stats.possible_damage, 0);
        }
    }
}

#[test]
fn spares_are_known_and_used() {
    let world = World::calm(1);
    three().plant(&world);
    Builder::spare(2, 0xE2, 16).plant(&world);
    Builder::spare(3, 0xE3, 16).plant(&world);
    let (handed, recovered) = recover_sim(&world, WRITE);
    let recovered = recovered.unwrap();
    assert_eq!(handed, abc());
    assert_eq!(recovered.tail.as_ref().unwrap().segment.number, 2, "no new file was needed");
    assert_eq!(recovered.spare.as_ref().unwrap().number, 3);
    assert!(recovered.unused.is_empty());
    assert_eq!(world.names(log_dir()), ["1.wal", "2.wal", "3.wal"]);
}

#[test]
fn a_spare_that_was_written_to_is_recycled_under_a_new_number() {
    let world = World::calm(1);
    three().plant(&world);
    // What a recovery that crashed before its link leaves: copies with the old proof.
    let mut half = Builder::new(2, 0xE2, 16, no_predecessor(), 3);
    half.durable = 2;
    half.next_group().group(&[b"c"]);
    half.bytes[FIRST_GROUP as usize..][..BLOCK as usize].fill(0);
    half.plant(&world);
    let recovered = twice(&world, &abc());
    assert_eq!(recovered.tail.unwrap().segment.number, 3);
    assert_eq!(world.names(log_dir()), ["1.wal", "3.wal"]);
}

#[test]
fn a_damaged_newest_segment_is_told_from_a_spare_by_what_it_proves() {
    let first = three();
    let mut second = Builder::new(2, 0xE2, 16, first.link(), 4);
    second.group(&[b"d"]).group(&[b"e"]);
    // Its link, its header: both must be missed.
    for (bit, offset) in [(FIRST_GROUP * 8 + 77, FIRST_GROUP), (33 * 8, 60), (3, 0)] {
        let world = World::calm(1);
        first.plant(&world);
        second.plant(&world);
        world.damage(log_dir(), "2.wal", &Damage::FlipBit(bit));
        let found = corruption(recover_sim(&world, WRITE).1);
        assert_eq!((found.file.as_str(), found.offset), ("2.wal", offset));
    }
}

#[test]
fn an_unknown_version_is_refused_and_nothing_changed() {
    let world = World::calm(1);
    let mut log = three();
    log.bytes[8] = 9;
    log.plant(&world);
    let (handed, recovered) = recover_sim(&world, WRITE);
    assert!(handed.is_empty());
    assert!(matches!(recovered, Err(Error::Version(text)) if text.contains("1.wal") && text.contains('9')));
    assert_eq!(world.names(log_dir()), ["1.wal"]);
}

#[test]
fn salvage_goes_on_behind_damage_and_counts_it() {
    let world = World::calm(1);
    let mut first = three();
    first.group(&[b"d"]).plant(&world);
    let mut second = Builder::new(2, 0xE2, 16, first.link(), 5);
    second.group(&[b"e"]).group(&[b"f"]).plant(&world);
    world.damage(log_dir(), "1.wal", &Damage::FlipBit((16_384 + 64) * 8));
    world.damage(log_dir(), "2.wal", &Damage::FlipBit(5));
    corruption(recover_sim(&world, Mode::ReadOnly).1);
    let (handed, recovered) = recover_sim(&world, Mode::Salvage);
    assert_eq!(handed, [one(1, b"a"), one(2, b"b"), one(4, b"d"), one(5, b"e"), one(6, b"f")]);
    assert!(recovered.unwrap().stats.damages >= 2);
}

#[test]
fn an_error_of_the_receiver_ends_the_recovery() {
    let world = World::calm(1);
    three().plant(&world);
    let io = world.io();
    let dir = io.open_dir(log_dir(), false).unwrap();
    let mut count = 0;
    let mut deliver = |_: Record<'_>| {
        count += 1;
        if count == 2 { Err(Error::Cancelled) } else { Ok(()) }
    };
    let ended = io.block_on(async { recover(&io, &dir, WRITE, &mut deliver).await }).unwrap();
    assert_eq!(ended.err(), Some(Error::Cancelled));
    assert_eq!(count, 2);
}

#[test]
fn a_batch_of_many_frames_is_joined_and_copied() {
    let world = World::calm(1);
    let parts: Vec<Vec<u8>> = (0..7).map(|part| vec![part; 200_000]).collect();
    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    let mut log = Builder::new(1, 0xE1, 400, no_predecessor(), 1);
    log.group(&[b"a"]).long(9, &parts).plant(&world);
    let recovered = twice(&world, &[one(1, b"a"), (2, 9, parts.concat())]);
    assert_eq!(recovered.stats.copied_records, 1);
    assert_eq!(recovered.next_sequence, 11);
    let name = file_name(recovered.tail.unwrap().segment.number);
    assert!(
        world.read_durable(log_dir(), &name).unwrap().len() as u64 > 16 * BLOCK,
        "it has the length it needs"
    );
}

#[test]
fn a_half_batch_without_its_last_frame_is_none() {
    let world = World::calm(1);
    let mut log = three();
    log.frame(Kind::First, 2, b"half");
    log.plant(&world);
    let recovered = twice(&world, &abc());
    assert!(recovered.stats.torn_bytes > 0);
}

#[test]
fn a_spare_that_is_too_short_for_the_copies_is_recycled() {
    let world = World::calm(1);
    let mut log = Builder::new(1, 0xE1, 16, no_predecessor(), 1);
    let payload = vec![7; 20_000];
    log.group(&[&payload]).plant(&world);
    Builder::spare(2, 0xE2, 6).plant(&world);
    let (_, recovered) = recover_sim(&world, WRITE);
    let recovered = recovered.unwrap();
    assert_eq!(recovered.tail.unwrap().segment.number, 3);
    assert!(recovered.spare.is_none());
    assert_eq!(recovered.unused, [1]);
    assert_eq!(world.names(log_dir()), ["1.wal", "3.wal"]);
}

/// The last batch is unproven, and something torn lies behind it.
fn unproven_and_torn() -> Builder {
    let mut log = three();
    log.group(&[b"d", b"e"]).group(&[b"f"]);
    log.durable = 5;
    log.frame(Kind::First, 3, b"torn");
    log
}

#[test]
fn a_recovery_that_crashes_half_way_recovers() {
    crash_half_way();
}

/// Every state that a crash during recovery can leave recovers to the same records.
fn crash_half_way() {
    let unsealed = unproven_and_torn();
    let all = [abc(), vec![one(4, b"d"), one(5, b"e"), one(6, b"f")]].concat();
    for with_spare in [false, true] {
        let start = World::calm(3);
        unsealed.plant(&start);
        if with_spare {
            Builder::spare(2, 0xE2, 16).plant(&start);
        }
        let mut crashes = 0;
        for at in 1.. {
            let world = start.fork(at);
            let before = world.completions();
            world.crash_at(before + at);
            let (_, recovered) = recover_sim(&world, WRITE);
            if recovered.is_ok() && !world.crashed() {
                break;
            }
            crashes += 1;
            for seed in 0..6 {
                let after = world.power_loss(&mut crash::by_seed(seed));
                let (handed, recovered) = recover_sim(&after, WRITE);
                assert!(recovered.is_ok(), "crash at {at}, seed {seed}: {recovered:?}");
                assert_eq!(handed, all, "crash at {at}, seed {seed}");
                twice(&after, &all);
            }
            twice(&world.kill(), &all);
        }
        assert!(crashes > 10, "recovery has many steps, {crashes} were crashed");
    }
}

#[test]
fn an_operation_that_fails_in_recovery_is_reported_and_harms_nothing() {
    let log = unproven_and_torn();
    let all = [abc(), vec![one(4, b"d"), one(5, b"e"), one(6, b"f")]].concat();
    for errno in [libc::EIO, libc::ENOSPC, libc::EACCES] {
        let mut failures = 0;
        for nth in 1.. {
            let world = World::calm(1);
            log.plant(&world);
            world.add_fault(Fault::once(Class::all(), nth, Effect::Errno(errno)));
            let (_, recovered) = recover_sim(&world, WRITE);
            if world.faults_fired() == 0 {
                break;
            }
            world.clear_faults();
            if let Err(e) = recovered {
                failures += 1;
                assert_eq!(e.errno(), Some(errno), "operation {nth}: {e:?}");
            }
            twice(&world, &all);
        }
        assert!(failures > 15, "{failures} operations failed with {errno}");
    }
}

#[test]
fn a_read_error_is_never_an_end() {
    for mode in [Mode::ReadOnly, Mode::Salvage, WRITE] {
        for nth in 1..=2 {
            let world = World::calm(1);
            three().plant(&world);
            world.add_fault(Fault::for_ever(Class::READ, nth, Effect::Errno(libc::EIO)));
            let error = recover_sim(&world, mode).1.unwrap_err();
            assert_eq!(error.errno(), Some(libc::EIO));
            assert!(error.to_string().contains("1.wal at offset"), "{error}");
        }
    }
}

/// What was read once is there for good, whatever a failed sync left in the page cache.
fn unproven_records_stay() {
    let mut seen = 0;
    for seed in 0..20 {
        let world = World::calm(seed);
        three().plant(&world);
        let io = world.io();
        let dir = io.open_dir(log_dir(), false).unwrap();
        let mut more = three();
        more.group(&[b"d"]);
        let (file, _) =
            segment::open_file(&io, &dir, "1.wal", How { write: true, ..How::default() }).unwrap();
        let at = three().offset;
        let group = Buf::copied(&more.bytes[at..at + 4096]).unwrap();
        io.block_on(io.write(&file, group, at as u64, false)).unwrap().1.unwrap();
        world.add_fault(Fault::once(Class::SYNC, 1, Effect::Errno(libc::EIO)));
        io.block_on(io.sync(&file, true)).unwrap().unwrap_err();
        let after = world.kill();
        let (handed, recovered) = recover_sim(&after, WRITE);
        recovered.unwrap();
        seen += usize::from(handed.len() == 4);
        let lost = after.power_loss(&mut crash::nothing());
        assert_eq!(recover_sim(&lost, WRITE).0, handed, "seed {seed}");
    }
    assert!(seen > 0, "a record behind a failed sync was read");
}

#[test]
fn unproven_records_are_durable_once_they_were_read() {
    unproven_records_stay();
}

/// A group is torn: its first batch is lost, its second one isn't. The first is written again, at the same place, with
/// the same bytes.
fn torn_records_stay_away() {
    let world = World::calm(1);
    let mut log = three();
    let lost = log.offset;
    let payload = vec![4; 4028];
    log.frame(Kind::Full, 1, &payload);
    assert_eq!(log.offset, lost + 4096, "the batch fills its block");
    log.next += 1;
    log.frame(Kind::Full, 1, b"from the dead");
    log.bytes[lost..lost + 4096].fill(0);
    log.plant(&world);
    let (handed, recovered) = recover_sim(&world, WRITE);
    assert_eq!(handed, abc());
    let tail = recovered.unwrap().tail.unwrap();
    let Segment { number, epoch, ref file, .. } = tail.segment;
    let mut again = Builder { number, epoch, ..log.clone() };
    (again.offset, again.previous, again.next) = (tail.offset as usize, tail.previous, 4);
    again.bytes.resize(tail.offset as usize + 4096, 0);
    again.frame(Kind::Full, 1, &payload);
    let io = world.io();
    let block = Buf::copied(&again.bytes[tail.offset as usize..][..4096]).unwrap();
    io.block_on(io.write(file, block, tail.offset, false)).unwrap().1.unwrap();
    let (handed, _) = recover_sim(&world, Mode::ReadOnly);
    assert_eq!(handed, [abc(), vec![one(4, &payload)]].concat());
}

#[test]
fn what_a_torn_group_left_never_lines_up_with_new_records() {
    torn_records_stay_away();
}

#[test]
fn planted_defects_of_recovery_are_caught() {
    caught(Defect::IgnoreEpoch, old_records_of_a_recycled_segment_never_come_back);
    caught(Defect::AcceptHalfBatch, a_half_batch_without_its_last_frame_is_none);
    caught(Defect::LinkBeforeCopies, crash_half_way);
    caught(Defect::AppendAfterTornTail, torn_records_stay_away);
    caught(Defect::TrustUnprovenPages, unproven_records_stay);
    caught(Defect::RewriteHeader, a_sealed_log_goes_on_in_its_segment);
}

/// The format must not move: the bytes that aren't zero of one segment, as they were when it was fixed.
#[test]
fn the_bytes_of_a_segment_are_fixed() {
    let link = LinkPayload {
        predecessor: 6,
        predecessor_epoch: 0x1122_3344_5566_7788,
        predecessor_end: 0x5000,
        last_sequence: 41,
        last_checksum: 0xCAFE_F00D,
        first_live: 5,
    };
    let mut log = Builder::new(7, 0x0102_0304_0506_0708, 8, link, 42);
    log.group(&[b"one", b""]).checkpoint(1).long(3, &[b"fir", b"mid", b"last"]).checkpoint(2).seal();
    let mut text = String::new();
    for (index, line) in log.bytes.chunks(16).enumerate().filter(|(_, line)| line.iter().any(|b| *b != 0)) {
        let hex: String = line.iter().map(|byte| format!("{byte:02x}")).collect();
        text += &format!("{:05x} {hex}\n", index * 16);
    }
    assert_eq!(text, include_str!("golden.txt"), "the format of the log has changed");
    let world = World::calm(1);
    log.plant(&world);
    let (handed, recovered) = recover_sim(&world, Mode::Salvage);
    recovered.unwrap();
    assert_eq!(handed, [one(42, b"one"), one(43, b""), (44, 3, b"firmidlast".to_vec())]);
}
