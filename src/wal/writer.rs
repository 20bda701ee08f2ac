//! The writer: issues one group after the other, in segments one behind the other.
//!
//! Whoever leads owns the writer meanwhile. [`Writer::issue`] puts a group where the machine placed it and makes it
//! durable in one of three ways; the answer says what is known: done, refused with nothing changed, or unknown.
//!
//! Invariants:
//!
//! - Done means: every byte was written, and, if asked for, a sync that started after the last write succeeded.
//! - After a failed sync, or a write that failed for another reason than a full disk, nothing is ever written or
//!   synced again: pages may read as if they were durable when they are not, and a second sync would say so too.
//! - A segment's link is issued only when everything its predecessor counts is durable; a segment is given up only
//!   when a durable link says that it isn't needed.
//! - A checkpoint is written only after the sync that it speaks of, and one at a time.
//!
//! What was rejected: a checkpoint write that isn't waited for (two could pass each other), and one way for all
//! drives (see [`sync`](super::sync)).

use std::collections::VecDeque;

use super::group::{Ground, Group, Groups, LeadIn};
use super::put::{self, Mark, Plan, Stop};
use super::recover::Recovered;
use super::segment::{BLOCK, Checkpoint, FIRST_GROUP, LinkPayload, Segment, block_of};
use super::spare::Spares;
use super::sync::{Choice, Drive, Way, Wish, choose};
use crate::base::defect::{self, Defect};
use crate::base::{Error, Result};
use crate::ring::Io;
use crate::ring::driver::Kind;
use crate::ring::op::File;
use crate::ring::uring::passed::Passed;

/// How a log is written.
#[derive(Debug)]
pub struct Options {
    /// Length of a segment in bytes, a multiple of 4096.
    pub segment_bytes: u64,
    /// Past the page cache, where the file system can.
    pub direct: bool,
    /// How writes are made durable.
    pub sync: Wish,
    /// Whoever leads may wait in a system call.
    pub may_block: bool,
    /// A checkpoint after so many bytes; 1: after every group, 0: never.
    pub checkpoint_every: u64,
    /// A ring for chains of leaders who have none of their own.
    pub ring: Option<Passed>,
}

/// A log that is ready to be written: the machine, the spare segments, the writer.
#[derive(Debug)]
pub struct Opened {
    /// Gives batches their places.
    pub groups: Groups,
    /// Gives segments.
    pub spares: Spares,
    /// Issues groups.
    pub writer: Writer,
}

/// How issuing a group ended.
#[derive(Debug)]
pub enum Outcome {
    /// Written; durable with everything before it when `synced`.
    Done {
        /// A sync followed.
        synced: bool,
    },
    /// The disk is full. The segment it was for is left; the refused group doesn't count there.
    Refused {
        /// The system's answer.
        error: Error,
        /// Part of it may be readable: only a durable link of a new segment excludes it.
        appended: bool,
        /// The segment that it should have begun, untouched.
        unused: Option<Segment>,
    },
    /// What is on the device is unknown. The writer is of no use any more.
    Failed(Error),
}

/// A segment that is being written.
#[derive(Debug, Clone)]
struct Position {
    segment: Segment,
    /// Behind the last group that counts.
    end: u64,
    /// The last header's checksum.
    previous: u32,
    /// The last checkpoint's counter.
    counter: u64,
    /// Bytes since that checkpoint.
    unchecked: u64,
    /// Something was written and not synced.
    unsynced: bool,
}

impl Position {
    fn fresh(segment: Segment) -> Self {
        Position { segment, end: FIRST_GROUP, previous: 0, counter: 0, unchecked: 0, unsynced: false }
    }
}

/// A segment before the current one.
#[derive(Debug, Clone, Copy)]
struct Old {
    number: u64,
    last_sequence: u64,
    len: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Writer {
    choice: Choice,
    checkpoint_every: u64,
    ring: Option<Passed>,
    position: Option<Position>,
    last_sequence: u64,
    durable: u64,
    live: VecDeque<Old>,
    /// Bytes of their files.
    live_bytes: u64,
    /// Records up to this sequence aren't needed any more.
    released: u64,
    /// Segments that aren't needed, number and length.
    retired: Vec<(u64, u64)>,
    failed: Option<Error>,
}

impl Writer {
    /// Makes a recovered log ready to be written. Nothing is written yet: the first batch, or the keeper, orders a
    /// segment where there is none.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a length of segments that can't be.
    pub fn open(io: &Io, dir: &File, recovered: Recovered, options: Options) -> Result<Opened> {
        let Options { segment_bytes, direct, sync, may_block, checkpoint_every, ring } = options;
        if !segment_bytes.is_multiple_of(BLOCK) || segment_bytes < FIRST_GROUP + 2 * BLOCK {
            let text =
                format!("log segments of {segment_bytes} bytes; five blocks of {BLOCK} or more are needed");
            return Err(Error::invalid(text));
        }
        let tail_number = recovered.tail.as_ref().map(|tail| tail.segment.number);
        let newest = recovered.live.iter().map(|info| info.number).max().unwrap_or(0);
        let used = tail_number.unwrap_or(newest);
        let mut spares = Spares::new(dir.clone(), direct, segment_bytes, recovered.highest_number, used);
        if let Some(spare) = recovered.spare.filter(|spare| spare.number > used) {
            let was = used;
            spares.put_back(spare);
            debug_assert!(was == used);
        }
        for number in recovered.unused {
            spares.retire(number, segment_bytes);
        }
        let ground = recovered.tail.as_ref().map(|tail| Ground {
            log_number: tail.segment.number,
            epoch: tail.segment.epoch,
            start: tail.offset,
            end: tail.segment.len - BLOCK,
            fresh: false,
        });
        let position = recovered.tail.map(|tail| Position {
            end: tail.offset,
            previous: tail.previous,
            counter: tail.checkpoint_counter,
            ..Position::fresh(tail.segment)
        });
        let direct = position.as_ref().map_or(direct, |position| position.segment.direct);
        let live: VecDeque<Old> = recovered
            .live
            .iter()
            .filter(|info| Some(info.number) != tail_number)
            .map(|info| Old { number: info.number, last_sequence: info.last_sequence, len: info.len })
            .collect();
        let writer = Writer {
            choice: choose(sync, Drive::of(io, dir), direct, may_block),
            checkpoint_every,
            ring,
            position,
            last_sequence: recovered.next_sequence - 1,
            durable: recovered.next_sequence - 1,
            live_bytes: live.iter().map(|old| old.len).sum(),
            live,
            released: 0,
            retired: Vec::new(),
            failed: None,
        };
        Ok(Opened { groups: Groups::new(recovered.next_sequence, ground), spares, writer })
    }

    /// How many segments the log has, and how many bytes their files take.
    pub fn footprint(&self) -> (u64, u64) {
        let current = self.position.as_ref().map(|position| position.segment.len);
        let count = self.live.len() as u64 + u64::from(current.is_some());
        (count, self.live_bytes + current.unwrap_or(0))
    }

    /// How writes are made durable, and why so.
    pub fn choice(&self) -> &Choice {
        &self.choice
    }

    /// The failure that ended it.
    pub fn failure(&self) -> Option<&Error> {
        self.failed.as_ref()
    }

    /// Records up to this sequence aren't needed any more. Their segments are given up with the next link.
    pub fn release(&mut self, up_to_sequence: u64) {
        self.released = self.released.max(up_to_sequence);
        if defect::on(Defect::DeleteBeforeFirstLive) {
            self.give_up();
        }
    }

    /// Segments, number and length, that a durable link has excluded since the last call.
    pub fn take_retired(&mut self) -> Vec<(u64, u64)> {
        std::mem::take(&mut self.retired)
    }

    fn give_up(&mut self) {
        while let Some(old) = self.live.front().filter(|old| old.last_sequence <= self.released) {
            self.retired.push((old.number, old.len));
            self.live_bytes -= old.len;
            self.live.pop_front();
        }
    }

    /// Writes a group; with `sync` makes it, and all before it, durable. `next` is the segment that a group with a
    /// link begins.
    pub async fn issue(&mut self, io: &Io, group: &mut Group, next: Option<Segment>, sync: bool) -> Outcome {
        if self.choice.way == Way::Linked
            && io.kind() == Kind::Inline
            && let Some(mut ring) = self.ring.take()
        {
            let driven = ring.with(|ring| ring.block_on(self.issue_on(ring, group, next, sync)));
            self.ring = Some(ring);
            return match driven {
                Ok(Ok(outcome)) => outcome,
                Ok(Err(e)) | Err(e) => self.fail(e),
            };
        }
        self.issue_on(io, group, next, sync).await
    }

    async fn issue_on(&mut self, io: &Io, group: &mut Group, next: Option<Segment>, sync: bool) -> Outcome {
        if let Some(e) = &self.failed {
            return Outcome::Failed(e.clone());
        }
        // What a link or a seal says of the groups before it must be true before it is written.
        let proves = group.lead_in == LeadIn::Link || group.members == 0;
        let sync = sync || proves;
        if proves && let Err(e) = self.sync(io).await {
            return Outcome::Failed(e);
        }
        let position = match (group.lead_in, &next, &self.position) {
            (LeadIn::Link, Some(segment), _) => Position::fresh(segment.clone()),
            (LeadIn::None | LeadIn::Seal, None, Some(position)) => position.clone(),
            _ => return self.fail(Error::Internal("a group and its segment don't belong together".into())),
        };
        match self.write(io, group, position, sync).await {
            Ok(synced) => Outcome::Done { synced },
            Err(Stop::Refused { error, appended }) => {
                Outcome::Refused { error, appended, unused: next.filter(|_| !appended) }
            }
            Err(Stop::Failed(e)) => self.fail(e),
        }
    }

    fn fail(&mut self, error: Error) -> Outcome {
        self.failed = Some(error.clone());
        Outcome::Failed(error)
    }

    async fn write(
        &mut self,
        io: &Io,
        group: &mut Group,
        mut position: Position,
        sync: bool,
    ) -> Result<bool, Stop> {
        let link = self.link_to(&position);
        let place = group.place;
        assert_eq!(
            (place.log_number, place.epoch, place.offset),
            (position.segment.number, position.segment.epoch, position.end),
            "groups are issued in the order of their places"
        );
        let (bytes, previous) =
            group.complete(position.previous, self.durable, &link).map_err(Stop::Failed)?;
        let len = bytes.len() as u64;
        let last_sequence = group.last_sequence.max(self.last_sequence);
        position.end += len;
        position.previous = previous;
        position.unchecked += len;
        let mark = self.mark(&mut position, sync, last_sequence).map_err(Stop::Failed)?;
        let dsync = self.choice.way == Way::Dsync && position.segment.direct && !position.unsynced;
        let plan = Plan { sync, dsync, chain: self.choice.way == Way::Linked, mark };
        let put = put::put(io, &position.segment.file, bytes, place.offset, plan).await?;
        position.unsynced = !sync;
        self.arrive(position, group.lead_in == LeadIn::Link);
        self.last_sequence = last_sequence;
        if sync {
            self.durable = last_sequence;
        }
        // The group is durable and will be acknowledged; the log can't go on all the same.
        self.failed = put.mark_failed;
        Ok(sync)
    }

    /// The group in `position` counts; with `linked` it is the first of its segment, and durable.
    fn arrive(&mut self, position: Position, linked: bool) {
        let before = self.position.replace(position);
        if let Some(Position { segment, .. }) = before.filter(|_| linked) {
            let last_sequence = self.last_sequence;
            self.live_bytes += segment.len;
            self.live.push_back(Old { number: segment.number, last_sequence, len: segment.len });
            self.give_up();
        }
    }

    /// What a link in `fresh` says of the log so far.
    fn link_to(&self, fresh: &Position) -> LinkPayload {
        let needed = self.live.iter().find(|old| old.last_sequence > self.released).map(|old| old.number);
        let Some(current) = &self.position else {
            let first_live = needed.unwrap_or(fresh.segment.number);
            return LinkPayload { first_live, ..LinkPayload::default() };
        };
        let newest = if self.last_sequence > self.released { &current.segment } else { &fresh.segment };
        LinkPayload {
            predecessor: current.segment.number,
            predecessor_epoch: current.segment.epoch,
            predecessor_end: current.end,
            last_sequence: self.last_sequence,
            last_checksum: current.previous,
            first_live: needed.unwrap_or(newest.number),
        }
    }

    /// The checkpoint that goes with a group, when one is due.
    fn mark(&self, position: &mut Position, sync: bool, last_sequence: u64) -> Result<Option<Mark>> {
        if !sync || self.checkpoint_every == 0 || position.unchecked < self.checkpoint_every {
            return Ok(None);
        }
        position.unchecked = 0;
        position.counter += 1;
        let checkpoint = Checkpoint {
            log_number: position.segment.number,
            epoch: position.segment.epoch,
            counter: position.counter,
            durable_through: last_sequence,
            durable_offset: position.end,
        };
        Ok(Some(Mark { block: block_of(&checkpoint.encode())?, offset: checkpoint.offset() }))
    }

    /// Makes everything written so far durable.
    ///
    /// # Errors
    /// The failure, which ends the writer.
    pub async fn sync(&mut self, io: &Io) -> Result<()> {
        if let Some(e) = &self.failed {
            return Err(e.clone());
        }
        if let Some(position) = self.position.as_mut().filter(|position| position.unsynced) {
            if let Err(e) = put::sync(io, &position.segment.file).await {
                self.failed = Some(e.clone());
                return Err(e);
            }
            position.unsynced = false;
        }
        self.durable = self.last_sequence;
        Ok(())
    }
}

#[cfg(test)]
#[path = "writer_test.rs"]
mod tests;
