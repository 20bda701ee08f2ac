//! Looks at the front of every segment's file, and orders those that count into a chain.
//!
//! The newest segment with a sound header and a sound link is the chain's head; each link names the one before. What
//! is not in the chain holds nothing that counts: spares, segments that recovery replaced, segments no longer needed.
//! Whether such a file *should* have counted is for the proofs to say.

use super::super::frame::{self, FrameError, Header, Kind, Place};
use super::super::reader::Source;
use super::super::segment::{
    self, BLOCK_LEN, Checkpoint, FIRST_GROUP, HeaderError, LINK_FRAME_LEN, LinkPayload, SegmentHeader,
};
use crate::base::{Error, Result};
use crate::ring::io::Io;
use crate::ring::op::File;

/// What the front of a segment's file says.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) number: u64,
    pub(super) file_len: u64,
    pub(super) front: Result<Front, HeaderError>,
}

/// A sound header, and what stands behind it.
#[derive(Debug, Clone)]
pub(super) struct Front {
    pub(super) header: SegmentHeader,
    pub(super) checkpoint: Option<Checkpoint>,
    pub(super) link: Result<(LinkPayload, Header), FrameError>,
}

/// A segment of the chain.
#[derive(Debug, Clone, Copy)]
pub(super) struct Member {
    pub(super) number: u64,
    pub(super) header: SegmentHeader,
    pub(super) checkpoint: Option<Checkpoint>,
    pub(super) link: LinkPayload,
    pub(super) link_header: Header,
}

impl Found {
    /// As a part of the chain, if its header and its link are sound.
    pub(super) fn member(&self) -> Option<Member> {
        let front = self.front.as_ref().ok()?;
        let (link, link_header) = *front.link.as_ref().ok()?;
        let (header, checkpoint) = (front.header, front.checkpoint);
        Some(Member { number: self.number, header, checkpoint, link, link_header })
    }

    /// Why it isn't a part of the chain: offset, expected, got.
    pub(super) fn complaint(&self) -> (u64, String, String) {
        match &self.front {
            Err(HeaderError::Bad { offset, expected, got }) => (*offset, expected.clone(), got.clone()),
            Err(HeaderError::Foreign { number: other }) => {
                (16, format!("log number {}", self.number), format!("log number {other}"))
            }
            Err(HeaderError::Version(text)) => {
                (8, "a version that this library knows".to_owned(), text.clone())
            }
            Ok(Front { link: Err(error), .. }) => {
                (FIRST_GROUP, format!("a link with {}", error.expected()), error.got())
            }
            Ok(_) => (FIRST_GROUP, "a link".to_owned(), "one".to_owned()),
        }
    }
}

/// The fronts of all segments' files, by number.
pub(super) async fn survey(io: &Io, dir: &File) -> Result<Vec<Found>> {
    let mut numbers: Vec<u64> = io.list(dir)?.iter().filter_map(|name| segment::parse_name(name)).collect();
    numbers.sort_unstable();
    let mut all = Vec::with_capacity(numbers.len());
    for number in numbers {
        let mut source = Source::open(io, dir, number)?;
        let front = front(&mut source, number).await?;
        if let Err(HeaderError::Version(text)) = &front {
            return Err(Error::Version(format!("{} has {text}; nothing was changed", source.name()).into()));
        }
        all.push(Found { number, file_len: source.len(), front });
    }
    Ok(all)
}

async fn front(source: &mut Source, number: u64) -> Result<Result<Front, HeaderError>> {
    let bytes = source.at(0, BLOCK_LEN * 3 + LINK_FRAME_LEN).await?;
    let part = |from: usize, len: usize| bytes.get(from..bytes.len().min(from + len)).unwrap_or_default();
    let header = match SegmentHeader::decode(part(0, BLOCK_LEN), number) {
        Ok(header) => header,
        Err(error) => return Ok(Err(error)),
    };
    let slots =
        [1, 2].map(|slot| Checkpoint::decode(part(slot * BLOCK_LEN, 64), slot as u32, number, header.epoch));
    let checkpoint = slots.into_iter().flatten().max_by_key(|checkpoint| checkpoint.counter);
    let place = Place { log_number: number, epoch: header.epoch, offset: FIRST_GROUP };
    let link = link(part(BLOCK_LEN * 3, LINK_FRAME_LEN), &place);
    Ok(Ok(Front { header, checkpoint, link }))
}

fn link(bytes: &[u8], place: &Place) -> Result<(LinkPayload, Header), FrameError> {
    let header = frame::decode_header(bytes, place)?;
    let wrong = |name, expected: u64, got: u64| FrameError::Field { name, expected, got };
    if header.kind != Kind::Link {
        return Err(wrong("kind", Kind::Link as u64, header.kind as u64));
    }
    if header.previous != 0 {
        return Err(wrong("the previous frame's checksum", 0, u64::from(header.previous)));
    }
    let payload = frame::decode_payload(bytes, &header)?;
    let link = LinkPayload::decode(payload);
    let link = link.ok_or_else(|| {
        wrong("payload bytes in their ranges", segment::LINK_LEN as u64, payload.len() as u64)
    })?;
    if link.predecessor >= place.log_number || link.last_sequence >= header.sequence {
        return Err(wrong("a predecessor below", place.log_number, link.predecessor));
    }
    Ok((link, header))
}

/// The segments that make up the log, oldest first.
///
/// # Errors
/// A segment at or above the first live one that is missing, damaged, or another than its successor names.
pub(super) fn chain(all: &[Found]) -> Result<Vec<Member>> {
    let mut chain: Vec<Member> = Vec::new();
    let mut next = all.iter().rev().find_map(Found::member);
    let first_live = next.map_or(0, |head| head.link.first_live);
    while let Some(member) = next {
        chain.push(member);
        let wanted = member.link.predecessor;
        if wanted == 0 || wanted < first_live {
            break;
        }
        next = Some(predecessor(all, &member)?);
    }
    chain.reverse();
    Ok(chain)
}

fn predecessor(all: &[Found], member: &Member) -> Result<Member> {
    let LinkPayload { predecessor, predecessor_epoch, predecessor_end, .. } = member.link;
    let name = segment::file_name(predecessor);
    let says = format!("as {} says", segment::file_name(member.number));
    let Ok(index) = all.binary_search_by_key(&predecessor, |found| found.number) else {
        return Err(Error::corrupt(name, 0, format!("a segment, {says}"), "no such file"));
    };
    let found = &all[index];
    if found.file_len < predecessor_end {
        let expected = format!("at least {predecessor_end} bytes, {says}");
        return Err(Error::corrupt(name, found.file_len, expected, format!("{} bytes", found.file_len)));
    }
    let Some(before) = found.member() else {
        let (offset, expected, got) = found.complaint();
        return Err(Error::corrupt(name, offset, format!("{expected} (needed, {says})"), got));
    };
    if before.header.epoch != predecessor_epoch || before.header.len < predecessor_end {
        let expected = format!("epoch {predecessor_epoch:#x}, length {predecessor_end} or more, {says}");
        let got = format!("epoch {:#x}, length {}", before.header.epoch, before.header.len);
        return Err(Error::corrupt(name, 24, expected, got));
    }
    Ok(before)
}
