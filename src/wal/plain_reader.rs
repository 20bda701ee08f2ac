//! A reader for tests of the writing side: follows sound segments and panics when they contradict each other.
//!
//! It is written from FORMAT.md and shares nothing with recovery but the frame decoder, so that the two sides of the
//! log are not tested against each other alone.

use super::frame::{self, Header, Kind, Place, decode_header, decode_payload, has_magic};
use super::segment::{BLOCK, FIRST_GROUP, LinkPayload, SegmentHeader};

/// What a segment says.
#[derive(Debug, Default)]
pub struct Segment {
    /// Its link.
    pub link: Option<LinkPayload>,
    /// Sequence, count, payload of each batch.
    pub batches: Vec<(u64, u32, Vec<u8>)>,
    /// The next sequence of each seal.
    pub seals: Vec<u64>,
    /// Behind the last group.
    pub end: u64,
    /// The last header's checksum.
    pub last_checksum: u32,
    /// The highest durable-through.
    pub durable_through: u64,
    /// The next sequence.
    pub next: u64,
}

/// Reads a whole log, oldest segment first: number and bytes of each file. Files without a header or a link don't
/// count. Returns the batches.
pub fn read_log(files: &[(u64, Vec<u8>)]) -> Vec<(u64, u32, Vec<u8>)> {
    let mut segments: Vec<(u64, u64, &[u8], Segment)> = Vec::new();
    for (number, bytes) in files {
        let Ok(header) = SegmentHeader::decode(bytes.get(..BLOCK as usize).unwrap_or(&[]), *number) else {
            continue;
        };
        let segment = read(bytes, *number, header.epoch);
        if segment.link.is_some() {
            segments.push((*number, header.epoch, bytes, segment));
        }
    }
    segments.sort_by_key(|(number, ..)| *number);
    let links: Vec<_> = segments.iter().filter_map(|(.., segment)| segment.link).collect();
    let mut batches = Vec::new();
    for (number, epoch, bytes, segment) in &segments {
        let Some(link) = links.iter().find(|link| link.predecessor == *number) else {
            batches.extend(segment.batches.iter().cloned());
            continue;
        };
        assert_eq!(link.predecessor_epoch, *epoch, "segment {number}");
        let counted = read(&bytes[..link.predecessor_end as usize], *number, *epoch);
        assert_eq!(counted.end, link.predecessor_end, "segment {number} ends where its successor says");
        assert_eq!(counted.last_checksum, link.last_checksum, "segment {number}");
        batches.extend(counted.batches);
    }
    batches
}

/// Reads `bytes`, a whole file, up to the first block that begins no whole batch.
pub fn read(bytes: &[u8], log_number: u64, epoch: u64) -> Segment {
    let mut segment = Segment { end: FIRST_GROUP, ..Segment::default() };
    let mut at = FIRST_GROUP as usize;
    let mut open: Option<(u64, u32, Vec<u8>)> = None;
    while bytes.get(at..).is_some_and(has_magic) {
        let place = Place { log_number, epoch, offset: at as u64 };
        let header = match decode_header(&bytes[at..], &place) {
            Ok(header) => header,
            // An older use of the file, or a group that never was whole.
            Err(_) => break,
        };
        let Ok(payload) = decode_payload(&bytes[at..], &header) else { break };
        assert_eq!(header.previous, segment.last_checksum, "the chain of frame checksums at {at}");
        segment.last_checksum = frame::stored_checksum(&bytes[at..]);
        segment.durable_through = segment.durable_through.max(header.durable_through);
        take(&mut segment, &mut open, &header, payload);
        at += header.frame_len();
        segment.end = (at as u64).next_multiple_of(BLOCK);
        if !bytes.get(at..).is_some_and(has_magic) {
            let padding = bytes.get(at..segment.end as usize).unwrap_or_default();
            assert!(padding.iter().all(|byte| *byte == 0), "padding at {at}");
            at = segment.end as usize;
        }
    }
    segment
}

fn take(segment: &mut Segment, open: &mut Option<(u64, u32, Vec<u8>)>, header: &Header, payload: &[u8]) {
    let Header { kind, sequence, count, .. } = *header;
    match kind {
        Kind::Link => {
            assert!(segment.link.is_none() && segment.next == 0, "a link begins its segment");
            segment.link = LinkPayload::decode(payload);
            assert!(segment.link.is_some(), "a link has its payload");
            segment.next = sequence;
            return;
        }
        Kind::Seal => {
            assert!(open.is_none() && payload.is_empty());
            assert!(sequence >= segment.next, "a seal doesn't go back");
            segment.seals.push(sequence);
            segment.next = sequence;
            return;
        }
        Kind::Full | Kind::First => {
            assert!(open.is_none(), "a batch inside a batch");
            assert_eq!(sequence, segment.next, "sequences follow one another");
            *open = Some((sequence, count, payload.to_vec()));
        }
        Kind::Middle | Kind::Last => {
            let (first, of, bytes) = open.as_mut().unwrap_or_else(|| panic!("a batch without its start"));
            assert_eq!((*first, *of), (sequence, count));
            bytes.extend_from_slice(payload);
        }
    }
    if matches!(kind, Kind::Full | Kind::Last) {
        segment.next = sequence + u64::from(count);
        segment.batches.extend(open.take());
    }
}
