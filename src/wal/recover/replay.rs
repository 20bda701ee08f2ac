//! Joins frames into batches, hands them on, and keeps what the tail's treatment needs: what was proven, and the
//! places where the log could be cut.
//!
//! No I/O here: the walk feeds it frame after frame.

use std::collections::VecDeque;

use super::super::frame::{FrameError, Header, Kind, MAX_BATCH};
use super::super::segment::{BLOCK, LINK_FRAME_LEN};
use super::{Deliver, Record, RecoveryStats};
use crate::base::defect::{self, Defect};
use crate::base::{Error, Result};

/// A place where a successor's link could let this segment end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cut {
    /// A multiple of the block.
    pub(super) offset: u64,
    /// The header checksum of the last frame before it.
    pub(super) previous: u32,
    /// The next sequence there.
    pub(super) next: u64,
}

/// A batch that has begun.
#[derive(Debug, Clone, Copy)]
struct Open {
    sequence: u64,
    count: u32,
}

/// See the module.
pub(super) struct Replay<'a, 'd> {
    deliver: &'a mut Deliver<'d>,
    /// The next sequence; 0 before the first link.
    pub(super) next: u64,
    open: Option<Open>,
    batch: Vec<u8>,
    /// Last sequence and length of each batch that no proof covers yet.
    unproven: VecDeque<(u64, u64)>,
    /// The highest sequence that a proof says is durable.
    pub(super) proven: u64,
    /// The last sequence of the last batch.
    pub(super) last_batch: u64,
    /// Of the segment being read: behind its last counting frame.
    pub(super) end: u64,
    /// Of the segment being read: the header checksum of its last counting frame.
    pub(super) checksum: u32,
    /// Of the segment being read: whether its last counting frame is a seal.
    pub(super) sealed: bool,
    /// Of the segment being read: its bytes before this are durable.
    pub(super) proven_offset: u64,
    /// Of the segment being read: the sequence its link states.
    link_sequence: u64,
    cuts: Vec<Cut>,
    pub(super) stats: RecoveryStats,
}

fn wrong(name: &'static str, expected: u64, got: u64) -> FrameError {
    FrameError::Field { name, expected, got }
}

impl<'a, 'd> Replay<'a, 'd> {
    pub(super) fn new(deliver: &'a mut Deliver<'d>) -> Self {
        Replay {
            deliver,
            next: 0,
            open: None,
            batch: Vec::new(),
            unproven: VecDeque::new(),
            proven: 0,
            last_batch: 0,
            end: 0,
            checksum: 0,
            sealed: false,
            proven_offset: 0,
            link_sequence: 0,
            cuts: Vec::new(),
            stats: RecoveryStats::default(),
        }
    }

    /// A batch has begun and its last frame hasn't come.
    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Everything up to `sequence` is durable.
    pub(super) fn prove(&mut self, sequence: u64) {
        self.proven = self.proven.max(sequence);
        while self.unproven.front().is_some_and(|(last, _)| *last <= self.proven) {
            self.unproven.pop_front();
        }
        // Of the places that are proven only the last one matters.
        let keep = self.cuts.iter().rposition(|cut| self.is_proven(cut)).unwrap_or(0);
        self.cuts.drain(..keep);
    }

    /// Batches that no proof covers, and their bytes.
    pub(super) fn unproven(&self) -> (u64, u64) {
        (self.unproven.len() as u64, self.unproven.iter().map(|(_, bytes)| bytes).sum())
    }

    /// Whether everything before a cut is durable, the link of its segment included.
    fn is_proven(&self, cut: &Cut) -> bool {
        let link_proven = cut.next > self.link_sequence || self.proven >= self.link_sequence;
        cut.offset <= self.proven_offset || (cut.next - 1 <= self.proven && link_proven)
    }

    /// The last place before which everything is durable; `last` is where the walk ended, if the log could be cut
    /// there.
    pub(super) fn proven_cut(&self, last: Option<Cut>) -> Option<Cut> {
        let trust = defect::on(Defect::TrustUnprovenPages);
        self.cuts.iter().copied().chain(last).rfind(|cut| trust || self.is_proven(cut))
    }

    /// Takes a segment's link.
    pub(super) fn link(&mut self, header: &Header, checksum: u32, is_first: bool) -> Result<(), FrameError> {
        if !is_first {
            return Err(wrong("a kind other than", Kind::Link as u64, Kind::Link as u64));
        }
        if header.sequence < self.next {
            return Err(wrong("a sequence of at least", self.next, header.sequence));
        }
        self.next = header.sequence;
        self.link_sequence = header.sequence;
        self.proven_offset = 0;
        self.cuts.clear();
        self.counted(header, checksum);
        self.end = header.place.offset + LINK_FRAME_LEN as u64;
        self.prove(header.durable_through);
        Ok(())
    }

    fn counted(&mut self, header: &Header, checksum: u32) {
        self.end = header.place.offset + header.frame_len() as u64;
        self.checksum = checksum;
        self.sealed = header.kind == Kind::Seal;
    }

    /// Takes the next frame behind the link. The inner error is about the frame, the outer one ends the recovery.
    pub(super) fn frame(
        &mut self,
        header: &Header,
        checksum: u32,
        payload: &[u8],
    ) -> Result<Result<(), FrameError>> {
        let fits = match header.kind {
            Kind::Link => self.link(header, checksum, false),
            Kind::Seal => self.seal(header, checksum),
            _ => self.part(header),
        };
        if fits.is_err() {
            return Ok(fits);
        }
        self.prove(header.durable_through);
        match header.kind {
            Kind::Full => self.complete(header, checksum, Some(payload))?,
            Kind::First | Kind::Middle | Kind::Last => {
                if self.batch.len() + payload.len() > MAX_BATCH {
                    return Ok(Err(wrong(
                        "batch bytes of at most",
                        MAX_BATCH as u64,
                        self.batch.len() as u64,
                    )));
                }
                let room = self.batch.try_reserve(payload.len());
                room.map_err(|_| {
                    Error::system(libc::ENOMEM, format!("joining a batch of over {} bytes", self.batch.len()))
                })?;
                self.batch.extend_from_slice(payload);
                if header.kind == Kind::Last {
                    self.complete(header, checksum, None)?;
                }
            }
            Kind::Link | Kind::Seal => {}
        }
        Ok(Ok(()))
    }

    fn seal(&mut self, header: &Header, checksum: u32) -> Result<(), FrameError> {
        if self.open.is_some() {
            return Err(wrong("a kind of", Kind::Last as u64, header.kind as u64));
        }
        if !header.place.offset.is_multiple_of(BLOCK) {
            return Err(wrong("a seal on a multiple of", BLOCK, header.place.offset));
        }
        if header.sequence < self.next {
            return Err(wrong("a sequence of at least", self.next, header.sequence));
        }
        if header.durable_through >= self.last_batch {
            self.proven_offset = header.place.offset;
        }
        // It says so when sequences before it were refused.
        self.next = header.sequence;
        self.counted(header, checksum);
        Ok(())
    }

    fn part(&mut self, header: &Header) -> Result<(), FrameError> {
        let begins = matches!(header.kind, Kind::Full | Kind::First);
        match self.open {
            Some(_) if begins => return Err(wrong("a kind of", Kind::Last as u64, header.kind as u64)),
            None if !begins => return Err(wrong("a kind of", Kind::First as u64, header.kind as u64)),
            Some(open) if open.sequence != header.sequence => {
                return Err(wrong("sequence", open.sequence, header.sequence));
            }
            Some(open) if open.count != header.count => {
                return Err(wrong("count", u64::from(open.count), u64::from(header.count)));
            }
            None if header.sequence != self.next => {
                return Err(wrong("sequence", self.next, header.sequence));
            }
            _ => {}
        }
        if begins && header.place.offset.is_multiple_of(BLOCK) {
            let cut = Cut { offset: header.place.offset, previous: header.previous, next: self.next };
            self.cuts.push(cut);
        }
        if header.kind != Kind::Full {
            self.open = Some(Open { sequence: header.sequence, count: header.count });
        }
        Ok(())
    }

    fn complete(&mut self, header: &Header, checksum: u32, whole: Option<&[u8]>) -> Result<()> {
        self.counted(header, checksum);
        let payload = whole.unwrap_or(&self.batch);
        let record = Record { sequence: header.sequence, count: header.count, payload };
        let len = payload.len() as u64;
        (self.deliver)(record)?;
        let last = header.last_sequence();
        self.stats.records += 1;
        self.stats.bytes += len;
        if self.stats.first_sequence == 0 {
            self.stats.first_sequence = header.sequence;
        }
        self.stats.last_sequence = last;
        self.next = last + 1;
        self.last_batch = last;
        self.forget_open();
        if last > self.proven {
            self.unproven.push_back((last, len));
        }
        Ok(())
    }

    /// Drops a batch that has begun.
    pub(super) fn forget_open(&mut self) {
        self.open = None;
        self.batch.clear();
        // One large batch isn't reason to hold its memory while the rest is read.
        self.batch.shrink_to(1 << 20);
    }

    /// Planted defect: hands on a batch whose last frame never came.
    pub(super) fn accept_half(&mut self) -> Result<()> {
        if let (true, Some(open)) = (defect::on(Defect::AcceptHalfBatch), self.open) {
            self.open = None;
            (self.deliver)(Record { sequence: open.sequence, count: open.count, payload: &self.batch })?;
            self.next = open.sequence + u64::from(open.count);
        }
        Ok(())
    }
}
