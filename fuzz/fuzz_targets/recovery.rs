//! Recovery of whole logs: segments made of frames with right checksums and any fields, so that the judgement behind the
//! checksums is what is tried. It must end with records or an error; a second recovery must deliver what the first did.
#![no_main]

use std::path::Path;

use arbitrary::Arbitrary;
use iouring_engine::base::Result;
use iouring_engine::ring::Io;
use iouring_engine::ring::sim::world::World;
use iouring_engine::wal::frame::{self, Header, Kind, Place};
use iouring_engine::wal::recover::{Mode, recover};
use iouring_engine::wal::segment::{self, BLOCK, Checkpoint, FIRST_GROUP, LinkPayload, SegmentHeader};
use libfuzzer_sys::fuzz_target;

const LEN: u64 = 16 * BLOCK;

#[derive(Arbitrary, Debug)]
struct Frame {
    kind: u8,
    payload: u8,
    count: u8,
    sequence: Option<u8>,
    durable_through: u8,
    previous: bool,
    foreign: bool,
    new_block: bool,
}

#[derive(Arbitrary, Debug)]
struct Log {
    number: u8,
    predecessor: u8,
    predecessor_end: u8,
    last_sequence: u8,
    sound_link: bool,
    first_live: u8,
    checkpoint: Option<(u8, u8)>,
    frames: Vec<Frame>,
    cut: Option<u16>,
    flip: Option<(u16, u8)>,
}

/// The checksum and the end of the segment built before: what a sound link names.
#[derive(Default, Clone, Copy)]
struct Last {
    number: u64,
    end: u64,
    checksum: u32,
    next: u64,
}

fn build(log: &Log, last: &mut Last) -> (u64, Vec<u8>) {
    let (number, epoch) = (u64::from(log.number % 8) + 1, u64::from(log.number) + 100);
    let mut bytes = vec![0; LEN as usize];
    let head = SegmentHeader { number, epoch, len: LEN }.encode();
    bytes[..head.len()].copy_from_slice(&head);
    if let Some((through, offset)) = log.checkpoint {
        let checkpoint = Checkpoint {
            log_number: number,
            epoch,
            counter: 1,
            durable_through: u64::from(through),
            durable_offset: u64::from(offset % 16) * BLOCK,
        };
        let at = checkpoint.offset() as usize;
        let encoded = checkpoint.encode();
        bytes[at..at + encoded.len()].copy_from_slice(&encoded);
    }
    let sound = log.sound_link;
    let link = LinkPayload {
        predecessor: if sound { last.number } else { u64::from(log.predecessor % 8) },
        predecessor_epoch: if sound && last.number > 0 { last.number + 99 } else { u64::from(log.predecessor) },
        predecessor_end: if sound { last.end } else { u64::from(log.predecessor_end % 17) * BLOCK },
        last_sequence: if sound { last.next.saturating_sub(1) } else { u64::from(log.last_sequence) },
        last_checksum: if sound { last.checksum } else { 7 },
        first_live: u64::from(log.first_live % 8),
    };
    let mut sequence = link.last_sequence + 1;
    let mut at = FIRST_GROUP as usize;
    let mut previous = 0;
    let payload = link.encode();
    put(&mut bytes, &mut at, &mut previous, Kind::Link, &payload, 0, (number, epoch, sequence, link.last_sequence), true);
    for f in &log.frames {
        let kinds = [Kind::Full, Kind::First, Kind::Middle, Kind::Last, Kind::Link, Kind::Seal];
        let kind = kinds[usize::from(f.kind) % kinds.len()];
        let count = if kind.is_batch() { u32::from(f.count % 4) + 1 } else { 0 };
        let payload = if kind == Kind::Seal { vec![] } else { vec![f.payload; usize::from(f.payload)] };
        if f.new_block {
            at = at.next_multiple_of(BLOCK as usize);
        }
        let at_sequence = f.sequence.map_or(sequence, u64::from);
        let epoch = if f.foreign { epoch + 1 } else { epoch };
        let place = (number, epoch, at_sequence, u64::from(f.durable_through));
        put(&mut bytes, &mut at, &mut previous, kind, &payload, count, place, f.previous);
        if matches!(kind, Kind::Full | Kind::Last) {
            sequence += u64::from(count);
        }
    }
    *last = Last { number, end: at.next_multiple_of(BLOCK as usize) as u64, checksum: previous, next: sequence };
    if let Some((at, mask)) = log.flip {
        bytes[usize::from(at)] ^= mask;
    }
    if let Some(cut) = log.cut {
        bytes.truncate(usize::from(cut));
    }
    (number, bytes)
}

#[allow(clippy::too_many_arguments, reason = "the fields of a frame")]
fn put(
    bytes: &mut [u8],
    at: &mut usize,
    previous: &mut u32,
    kind: Kind,
    payload: &[u8],
    count: u32,
    (log_number, epoch, sequence, durable_through): (u64, u64, u64, u64),
    chained: bool,
) {
    let len = frame::frame_len(payload.len());
    let Some(out) = bytes.get_mut(*at..*at + len) else { return };
    let place = Place { log_number, epoch, offset: *at as u64 };
    let payload_len = payload.len() as u32;
    let header = Header {
        kind,
        payload_len,
        count,
        place,
        sequence,
        durable_through,
        previous: if chained { *previous } else { 1 },
    };
    frame::write_payload(out, &place, &[payload]);
    *previous = frame::write_header(out, &header);
    *at += len;
}

fn replay(io: &Io, mode: Mode) -> Result<Vec<(u64, u32, Vec<u8>)>> {
    io.block_on(async {
        let dir = io.open_dir(Path::new("/log"), true)?;
        let mut records = Vec::new();
        recover(io, &dir, mode, &mut |record| {
            records.push((record.sequence, record.count, record.payload.to_vec()));
            Ok(())
        })
        .await?;
        Ok(records)
    })?
}

fuzz_target!(|logs: Vec<Log>| {
    let world = World::calm(1);
    let mut last = Last::default();
    for log in logs.iter().take(4) {
        let (number, bytes) = build(log, &mut last);
        world.plant(Path::new("/log"), &segment::file_name(number), &bytes);
    }
    let io = world.io();
    let looked = replay(&io, Mode::ReadOnly);
    let _ = replay(&io, Mode::Salvage);
    let write = Mode::Write { direct: true, segment_bytes: LEN };
    let first = replay(&io, write);
    match (&looked, &first) {
        (Ok(looked), Ok(first)) => assert_eq!(looked, first, "looking and opening see the same records"),
        (Err(_), Ok(_)) => panic!("what can't be looked at can't be opened"),
        _ => {}
    }
    if let Ok(first) = first {
        let again = replay(&io, write).expect("what was opened opens again");
        assert_eq!(again, first, "nothing is lost or won by opening again");
    }
});
