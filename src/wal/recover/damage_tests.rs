//! Damage, exhaustively: of a log of less than 64 KiB every bit is flipped, every length is tried, every sector is
//! zeroed, replaced by every other one, and by what an older use of the file had there. Whatever happens, a value
//! that was never written is never handed on, and what a proof covers is there or refused with its place.

use super::*;
use crate::ring::sim::World;
use crate::ring::sim::damage::Damage;
use crate::wal::segment::file_name;
use crate::wal::testing::{Builder, Handed, WRITE, log_dir, no_predecessor, recover_sim};

/// A log of two segments, 52 KiB, over what the files held in an older use.
struct Log {
    world: World,
    records: Vec<Handed>,
    /// Of these the first so many are proven.
    proven: usize,
    segments: Vec<Builder>,
    old: Vec<Builder>,
}

fn log(sealed: bool) -> Log {
    let old = |number: u64, blocks: u64| {
        let mut old = Builder::new(number + 90, 0x0D, blocks, no_predecessor(), 1);
        while old.offset < old.bytes.len() {
            let text = format!("old {}", old.offset);
            old.group(&[text.as_bytes()]);
        }
        old
    };
    let old = vec![old(1, 6), old(2, 7)];
    let mut first = Builder::over(old[0].bytes.clone(), 1, 0xE1, no_predecessor(), 1);
    first.group(&[b"a", &[b'b'; 900]]).checkpoint(1).long(3, &[&[b'c'; 1500], &[b'd'; 1500]]).checkpoint(2);
    let mut second = Builder::over(old[1].bytes.clone(), 2, 0xE2, first.link(), first.next);
    second.group(&[b"f"]).checkpoint(1).group(&[b"g", b"h"]);
    let proven = if sealed { 6 } else { 4 };
    if sealed {
        second.seal();
    }
    let world = World::calm(1);
    let segments = vec![first, second];
    for segment in &segments {
        segment.plant(&world);
    }
    let (records, _) = recover_sim(&world, Mode::ReadOnly);
    assert_eq!(records.len(), 6);
    Log { world, records, proven, segments, old }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    refused: u32,
    /// Records behind the last proof were dropped: damage there can't be told from a torn tail.
    window: u32,
    unharmed: u32,
}

impl Log {
    /// How many records a last segment of this length proves: cutting takes proofs away with what they prove.
    fn proven_when_cut(&self, index: usize, len: u64) -> usize {
        let segment = &self.segments[index];
        let seal = segment.offset as u64 - 4096 + 64;
        match index {
            1 if len < 4096 + 64 => 3,
            1 if len < seal => self.proven.min(4),
            _ => self.proven,
        }
    }

    /// Recovers after a damage; what it hands on is a beginning of what was written, or it refuses with a place.
    fn judge(&self, tally: &mut Tally, what: &dyn Fn() -> String) {
        let (handed, recovered) = recover_sim(&self.world, Mode::ReadOnly);
        assert!(self.records.starts_with(&handed), "{}: a wrong value: {handed:?}", what());
        match recovered {
            Ok(_) if handed.len() == self.records.len() => tally.unharmed += 1,
            Ok(recovered) => {
                assert!(handed.len() >= self.proven, "{}: a proven record is gone: {recovered:?}", what());
                tally.window += 1;
            }
            Err(Error::Corrupt(place)) => {
                assert!(crate::wal::segment::parse_name(&place.file).is_some(), "{}: {place:?}", what());
                assert!(place.expected != place.got, "{}: {place:?}", what());
                tally.refused += 1;
            }
            Err(Error::Version(_)) => tally.refused += 1,
            Err(error) => panic!("{}: {error:?}", what()),
        }
    }

    fn name(&self, index: usize) -> String {
        file_name(self.segments[index].number)
    }

    fn restore(&self, index: usize) {
        self.segments[index].plant(&self.world);
    }
}

fn sectors(segment: &Builder) -> u64 {
    segment.bytes.len() as u64 / 512
}

fn sector(segment: &Builder, index: u64) -> &[u8] {
    &segment.bytes[index as usize * 512..][..512]
}

/// Every bit of one segment's file; a test of its own each, so that they run side by side.
fn flip_every_bit(sealed: bool, index: usize) {
    let log = log(sealed);
    let name = log.name(index);
    let mut tally = Tally::default();
    for bit in 0..log.segments[index].bytes.len() as u64 * 8 {
        let flip = Damage::FlipBit(bit);
        log.world.damage(log_dir(), &name, &flip);
        log.judge(&mut tally, &|| format!("{name}, bit {bit}"));
        log.world.damage(log_dir(), &name, &flip);
    }
    println!("every bit of {name}, sealed {sealed}: {tally:?}");
    assert!(tally.refused > 1000 && tally.unharmed > 1000, "{tally:?}");
    assert_eq!(tally.window > 0, !sealed && index == 1, "{tally:?}");
}

#[test]
fn every_flipped_bit_of_a_segment_with_a_successor() {
    flip_every_bit(false, 0);
}

#[test]
fn every_flipped_bit_of_an_unsealed_last_segment() {
    flip_every_bit(false, 1);
}

#[test]
fn every_flipped_bit_of_a_sealed_last_segment() {
    flip_every_bit(true, 1);
}

#[test]
fn every_truncation() {
    for sealed in [false, true] {
        let mut log = log(sealed);
        for index in 0..2 {
            let mut tally = Tally::default();
            let name = log.name(index);
            let all = log.proven;
            for len in (0..log.segments[index].bytes.len() as u64).rev() {
                log.world.damage(log_dir(), &name, &Damage::SetLen(len));
                log.proven = log.proven_when_cut(index, len);
                log.judge(&mut tally, &|| format!("{name} cut to {len}, sealed {sealed}"));
            }
            log.restore(index);
            log.proven = all;
            println!("every length of {name}, sealed {sealed}: {tally:?}");
            assert_eq!(tally.window > 0, index == 1, "{tally:?}");
        }
    }
}

/// Every sector replaced by each of `others`, and the log left writable afterwards.
fn replace_sectors(kind: &str, others: impl Fn(&Log, usize, u64) -> Vec<Vec<u8>>) {
    for sealed in [false, true] {
        let log = log(sealed);
        for index in 0..2 {
            let mut tally = Tally::default();
            let name = log.name(index);
            for at in 0..sectors(&log.segments[index]) {
                for (which, bytes) in others(&log, index, at).into_iter().enumerate() {
                    log.world.damage(log_dir(), &name, &Damage::Overwrite(at * 512, bytes));
                    log.judge(&mut tally, &|| {
                        format!("{kind} {which} in sector {at} of {name}, sealed {sealed}")
                    });
                }
                let sound = sector(&log.segments[index], at).to_vec();
                log.world.damage(log_dir(), &name, &Damage::Overwrite(at * 512, sound));
            }
            println!("{kind} in every sector of {name}, sealed {sealed}: {tally:?}");
            assert!(tally.refused > 0, "{tally:?}");
        }
    }
}

#[test]
fn every_sector_zeroed() {
    replace_sectors("zeros", |_, _, _| vec![vec![0; 512]]);
}

#[test]
fn every_sector_stale() {
    replace_sectors("an older use", |log, index, at| vec![sector(&log.old[index], at).to_vec()]);
}

#[test]
fn every_sector_replaced_by_every_other() {
    replace_sectors("a copy", |log, _, _| {
        let all = |segment: &Builder| -> Vec<Vec<u8>> {
            (0..sectors(segment)).map(|at| sector(segment, at).to_vec()).collect()
        };
        log.segments.iter().flat_map(all).collect()
    });
}

#[test]
fn every_sector_swapped_with_every_other_of_its_file() {
    let log = log(false);
    for index in 0..2 {
        let mut tally = Tally::default();
        let name = log.name(index);
        for a in 0..sectors(&log.segments[index]) {
            for b in 0..a {
                log.world.damage(log_dir(), &name, &Damage::SwapSectors(a, b));
                log.judge(&mut tally, &|| format!("{name}, sectors {a} and {b} swapped"));
                log.world.damage(log_dir(), &name, &Damage::SwapSectors(a, b));
            }
        }
        println!("sectors of {name} swapped: {tally:?}");
    }
}

/// After any damage that isn't refused the log can be written to, and holds the same afterwards.
#[test]
fn what_is_recovered_from_a_damaged_log_stays() {
    let log = log(false);
    for index in 0..2 {
        for at in 0..sectors(&log.segments[index]) {
            let world = log.world.fork(at);
            world.damage(log_dir(), &log.name(index), &Damage::ZeroSector(at));
            let (before, recovered) = recover_sim(&world, WRITE);
            if recovered.is_err() {
                continue;
            }
            let (after, recovered) = recover_sim(&world, WRITE);
            let recovered = recovered.unwrap();
            assert_eq!(before, after, "sector {at} of segment {index}");
            assert_eq!(recovered.stats.copied_records, 0);
            assert_eq!(recovered.next_sequence, 1 + after.iter().map(|r| u64::from(r.1)).sum::<u64>());
        }
    }
}
