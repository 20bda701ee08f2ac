//! Segments ready for use, and what becomes of those nobody needs any more.
//!
//! A prepared spare is always kept, so that a log on a full disk can be opened after a crash. Preparing one is slow
//! and happens off the writers' path: this is the bookkeeping, and whoever has time does the work without holding
//! any lock ([`Spares::order`], [`Order::prepare`], [`Spares::supply`]).
//!
//! Invariants: numbers only grow along the log, so a spare whose number has been passed (a batch got a segment of its
//! own meanwhile) is no spare any more; its file is used again under a new number. A file with a second name is
//! somebody's copy: it is neither used again nor cut, only its name here is removed.

use std::collections::VecDeque;

use super::segment::{self, Segment};
use crate::base::Result;
use crate::ring::Io;
use crate::ring::fs::How;
use crate::ring::op::File;

/// Files kept for being used again.
const RETIRED_MAX: usize = 2;
/// A file is cut by this much at a time before it is removed: unlinking 256 MiB at once held other writes up for
/// 24–32 ms.
const CUT_BYTES: u64 = 4 << 20;

/// See the module.
#[derive(Debug)]
pub struct Spares {
    dir: File,
    direct: bool,
    segment_bytes: u64,
    next_number: u64,
    used: u64,
    ready: VecDeque<Segment>,
    /// Files of the usual length that may be used again.
    retired: Vec<u64>,
    /// Files to remove.
    doomed: Vec<u64>,
    ordered: bool,
}

/// A segment to prepare.
#[derive(Debug)]
pub struct Order {
    dir: File,
    direct: bool,
    number: u64,
    len: u64,
    recycle: Option<u64>,
}

impl Spares {
    /// Spares of a log in `dir` whose files have numbers up to `highest_number`; the highest one in use is `used`.
    pub fn new(dir: File, direct: bool, segment_bytes: u64, highest_number: u64, used: u64) -> Self {
        Spares {
            dir,
            direct,
            segment_bytes,
            next_number: highest_number + 1,
            used,
            ready: VecDeque::new(),
            retired: Vec::new(),
            doomed: Vec::new(),
            ordered: false,
        }
    }

    /// The usual length of a segment.
    pub fn segment_bytes(&self) -> u64 {
        self.segment_bytes
    }

    /// How many are ready.
    pub fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Whether one is being prepared.
    pub fn is_ordered(&self) -> bool {
        self.ordered
    }

    /// Takes one of at least `len` bytes, if more than `reserve` are ready.
    pub fn take(&mut self, len: u64, reserve: usize) -> Option<Segment> {
        while self.ready.front().is_some_and(|segment| segment.number <= self.used) {
            if let Some(passed) = self.ready.pop_front() {
                self.retire(passed.number, passed.len);
            }
        }
        // One that an earlier opening made may be shorter than those made now; what is behind it would wait for ever.
        let short = self.ready.iter().position(|segment| segment.len >= len)?;
        if self.ready.len() - short <= reserve {
            return None;
        }
        for passed in self.ready.drain(..short).collect::<Vec<_>>() {
            self.retire(passed.number, passed.len);
        }
        let segment = self.ready.pop_front()?;
        self.used = segment.number;
        Some(segment)
    }

    /// A spare that recovery found, or one that was taken and never written to.
    pub fn put_back(&mut self, segment: Segment) {
        self.used = self.used.min(segment.number - 1);
        self.next_number = self.next_number.max(segment.number + 1);
        self.ready.push_front(segment);
    }

    /// The work of preparing one more spare of at least `len` bytes; `None` while another is being prepared.
    pub fn order(&mut self, len: u64) -> Option<Order> {
        if self.ordered {
            return None;
        }
        self.ordered = true;
        let number = self.next_number;
        self.next_number += 1;
        let len = len.max(self.segment_bytes);
        let recycle = if len == self.segment_bytes { self.retired.pop() } else { None };
        Some(Order { dir: self.dir.clone(), direct: self.direct, number, len, recycle })
    }

    /// What became of the order. A segment of unusual length is handed out before the others: its batch waits.
    ///
    /// # Errors
    /// The order's own.
    pub fn supply(&mut self, prepared: Result<Segment>) -> Result<()> {
        self.ordered = false;
        let segment = prepared?;
        if segment.len > self.segment_bytes {
            // Its number is higher than those of the spares before it, which are passed from now on.
            for passed in std::mem::take(&mut self.ready) {
                self.retire(passed.number, passed.len);
            }
        }
        self.ready.push_back(segment);
        Ok(())
    }

    /// A file that nobody needs any more.
    pub fn retire(&mut self, number: u64, len: u64) {
        let again = len == self.segment_bytes && self.retired.len() < RETIRED_MAX;
        if again { self.retired.push(number) } else { self.doomed.push(number) }
    }

    /// The directory, and the next file to [`remove`].
    pub fn next_doomed(&mut self) -> Option<(File, u64)> {
        self.doomed.pop().map(|number| (self.dir.clone(), number))
    }

    /// Whether files wait to be removed.
    pub fn has_doomed(&self) -> bool {
        !self.doomed.is_empty()
    }
}

impl Order {
    /// Does the work; slow. An error leaves nothing behind but, perhaps, an unused file.
    ///
    /// # Errors
    /// As [`segment::prepare`].
    pub async fn prepare(self, io: &Io) -> Result<Segment> {
        let Order { dir, direct, number, len, recycle } = self;
        let recycle = match recycle {
            Some(old) if has_other_names(io, &dir, old)? => {
                segment::remove(io, &dir, old)?;
                None
            }
            other => other,
        };
        segment::prepare(io, &dir, number, len, recycle, direct).await
    }
}

fn has_other_names(io: &Io, dir: &File, number: u64) -> Result<bool> {
    let file = io.open_at(dir, &segment::file_name(number), How::default())?;
    Ok(io.meta(&file)?.links > 1)
}

/// Removes a segment that nobody needs: cut to nothing step by step first, unless it has other names.
///
/// # Errors
/// What the system says, with the name.
pub fn remove(io: &Io, dir: &File, number: u64) -> Result<()> {
    let name = segment::file_name(number);
    let file = io.open_at(dir, &name, How { write: true, ..How::default() })?;
    let meta = io.meta(&file)?;
    if meta.links <= 1 {
        let mut len = meta.len;
        while len > CUT_BYTES {
            len -= CUT_BYTES;
            io.set_len(&file, len)?;
        }
    }
    segment::remove(io, dir, number)
}
