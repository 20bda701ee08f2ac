//! How batches lie in a group: frames, the group's memory, and the two halves of filling it in.
//!
//! A group is a run of frames in one piece of memory. The callers' half ([`Ticket::copy`]) is done by many threads at
//! once, each in its own part; the leader's half ([`Group::complete`]) afterwards, when no part is held any more.

use super::frame::{self, Header, Kind, MAX_PAYLOAD, Place, frame_len};
use super::segment::{BLOCK, FIRST_GROUP, LINK_FRAME_LEN, LinkPayload};
use crate::base::memory::{Buf, Fill};
use crate::base::{Error, Result};

/// Rounds a length up to whole blocks.
pub fn padded(len: usize) -> usize {
    len.next_multiple_of(BLOCK as usize)
}

/// The frames of a batch: their kinds and payload lengths.
pub fn frames_of(len: usize) -> impl Iterator<Item = (Kind, usize)> {
    let mut left = len;
    let mut first = true;
    let mut over = false;
    std::iter::from_fn(move || {
        if over {
            return None;
        }
        let take = left.min(MAX_PAYLOAD);
        left -= take;
        over = left == 0;
        let kind = match (first, over) {
            (true, true) => Kind::Full,
            (true, false) => Kind::First,
            (false, true) => Kind::Last,
            (false, false) => Kind::Middle,
        };
        first = false;
        Some((kind, take))
    })
}

/// Bytes that a batch takes in its group.
pub fn batch_len(len: usize) -> usize {
    let (whole, rest) = (len / MAX_PAYLOAD, len % MAX_PAYLOAD);
    let last = if rest > 0 || whole == 0 { frame_len(rest) } else { 0 };
    whole * frame_len(MAX_PAYLOAD) + last
}

/// What a batch asks of its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Want {
    /// To go along.
    Nothing,
    /// To be handed to the kernel.
    Write,
    /// To be made durable.
    Sync,
}

/// A run of a segment that groups may be put in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ground {
    /// The segment's log number.
    pub log_number: u64,
    /// Its epoch.
    pub epoch: u64,
    /// Where the next group goes.
    pub start: u64,
    /// Where groups must end; a block for the last seal lies behind.
    pub end: u64,
    /// The segment has no link yet: the first group begins with it.
    pub fresh: bool,
}

impl Ground {
    /// A new segment: nothing but its header is written.
    pub fn fresh(log_number: u64, epoch: u64, len: u64) -> Self {
        Ground { log_number, epoch, start: FIRST_GROUP, end: len - BLOCK, fresh: true }
    }

    /// Length of a segment that holds a group of `needed` bytes and its seal.
    pub fn len_for(needed: u64) -> u64 {
        FIRST_GROUP + needed + BLOCK
    }
}

/// What a group begins with, before its batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeadIn {
    /// Nothing.
    None,
    /// The link of a new segment.
    Link,
    /// A seal: on its own, or to say that the sequences before the next batch were refused.
    Seal,
}

impl LeadIn {
    pub(super) fn len(self) -> usize {
        match self {
            LeadIn::None => 0,
            LeadIn::Link => LINK_FRAME_LEN,
            LeadIn::Seal => frame_len(0),
        }
    }
}

/// A batch in its group.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record {
    pub(super) sequence: u64,
    pub(super) count: u32,
    /// Where its first frame begins in the group.
    pub(super) at: usize,
    /// Its payload's length.
    pub(super) len: usize,
    pub(super) want: Want,
}

/// A run of frames that is written together.
#[derive(Debug)]
pub struct Group {
    /// From 1, one more for each.
    pub number: u64,
    /// Where it lies in the log.
    pub place: Place,
    /// What it begins with.
    pub lead_in: LeadIn,
    /// What its members ask for at most.
    pub want: Want,
    /// How many batches have joined.
    pub members: u32,
    /// How many payload bytes they have.
    pub bytes: usize,
    /// How many sequences they take.
    pub entries: u64,
    /// The last sequence once it is written; without members the one before it.
    pub last_sequence: u64,
    pub(super) fill: Fill,
    pub(super) records: Vec<Record>,
    /// The next sequence, for link and seal.
    pub(super) first_sequence: u64,
}

impl Group {
    /// Bytes it takes in the log, in whole blocks.
    pub fn padded_len(&self) -> usize {
        padded(self.fill.used())
    }

    /// The leader's half of all frames: their headers, the lead-in, the padding. Returns the bytes to write and the
    /// last header's checksum, which the next group needs as its `previous`.
    ///
    /// # Errors
    /// [`Error::Internal`] when a caller still holds a part of it.
    pub fn complete(
        &mut self,
        previous: u32,
        durable_through: u64,
        link: &LinkPayload,
    ) -> Result<(Buf, u32)> {
        let used = self.fill.used();
        let held = || Error::Internal("a group was issued while a caller still copied into it".into());
        if let Some(mut padding) = self.fill.take(padded(used) - used) {
            padding.as_mut_slice().fill(0);
        }
        let mut whole = self.fill.whole().ok_or_else(held)?;
        let bytes = whole.as_mut_slice();
        let mut previous = previous;
        let mut header = Header {
            kind: Kind::Seal,
            payload_len: 0,
            count: 0,
            place: self.place,
            sequence: self.first_sequence,
            durable_through,
            previous,
        };
        match self.lead_in {
            LeadIn::None => {}
            LeadIn::Seal => {
                let (frame, _) = bytes.split_at_mut(frame_len(0));
                frame::write_payload(frame, &self.place, &[]);
                previous = frame::write_header(frame, &header);
            }
            LeadIn::Link => {
                let Place { log_number, epoch, .. } = self.place;
                let sequence = self.first_sequence;
                previous = link.write_frame(bytes, log_number, epoch, sequence, durable_through);
            }
        }
        for record in &self.records {
            let mut at = record.at;
            (header.sequence, header.count) = (record.sequence, record.count);
            for (kind, len) in frames_of(record.len) {
                header.kind = kind;
                header.payload_len = len as u32;
                header.place.offset = self.place.offset + at as u64;
                header.previous = previous;
                previous = frame::write_header(&mut bytes[at..], &header);
                at += frame_len(len);
            }
        }
        Ok((whole, previous))
    }

    /// A batch's payload, out of the group's bytes.
    pub(super) fn payload(&self, bytes: &[u8], record: &Record) -> Vec<u8> {
        let mut payload = Vec::with_capacity(record.len);
        let mut at = record.at;
        for (_, len) in frames_of(record.len) {
            payload.extend_from_slice(&bytes[at + frame::HEADER_LEN..][..len]);
            at += frame_len(len);
        }
        payload
    }
}

/// A batch's place, until its payload is copied.
#[derive(Debug)]
pub struct Ticket {
    /// What is known of it for good.
    pub joined: Joined,
    pub(super) place: Place,
    pub(super) part: Buf,
    pub(super) len: usize,
}

/// A batch that has joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Joined {
    /// Its group's number.
    pub group: u64,
    /// Its own, for [`Groups::finish`](super::group::Groups::finish).
    pub record: u64,
    /// Its first sequence.
    pub first_sequence: u64,
    /// Its last one.
    pub last_sequence: u64,
}

impl Ticket {
    /// The caller's half of its frames: copies and checksums the payload, `parts` one behind the other.
    ///
    /// # Panics
    /// When the parts don't have the length that joined.
    pub fn copy(mut self, parts: &[&[u8]]) -> Joined {
        let total: usize = parts.iter().map(|part| part.len()).sum();
        assert_eq!(total, self.len, "a batch has the length that it joined with");
        if total <= MAX_PAYLOAD {
            frame::write_payload(self.part.as_mut_slice(), &self.place, parts);
        } else {
            self.copy_frames(parts);
        }
        self.joined
    }

    fn copy_frames(&mut self, parts: &[&[u8]]) {
        let mut place = self.place;
        let mut rest = self.part.as_mut_slice();
        let mut parts = parts.iter().copied();
        let mut current: &[u8] = &[];
        for (_, len) in frames_of(self.len) {
            let mut pieces = Vec::new();
            let mut missing = len;
            while missing > 0 {
                if current.is_empty() {
                    current = parts.next().unwrap_or_default();
                }
                let (piece, left) = current.split_at(missing.min(current.len()));
                pieces.push(piece);
                missing -= piece.len();
                current = left;
            }
            let (frame, behind) = rest.split_at_mut(frame_len(len));
            frame::write_payload(frame, &place, &pieces);
            place.offset += frame.len() as u64;
            rest = behind;
        }
    }
}

/// An empty group with memory of `room` bytes.
pub(super) fn new_group(room: usize) -> Result<Box<Group>> {
    Ok(Box::new(Group {
        number: 0,
        place: Place { log_number: 0, epoch: 0, offset: 0 },
        lead_in: LeadIn::None,
        want: Want::Nothing,
        members: 0,
        bytes: 0,
        entries: 0,
        last_sequence: 0,
        fill: Fill::new(room)?,
        records: Vec::new(),
        first_sequence: 0,
    }))
}

/// A planted defect: the group's memory is filled anew while it is being written.
pub(super) fn alias_of(group: &Group) -> Option<Box<Group>> {
    let mut alias = new_group(1).ok()?;
    alias.fill = group.fill.alias_for_a_planted_defect()?;
    Some(alias)
}
