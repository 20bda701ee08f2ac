//! The group machine: which batch goes where in the log, in which order, without any I/O.
//!
//! A batch joins the *filling* group. Joining is short and fixes everything at once: sequence, position in the log,
//! place in the group's memory. The caller then copies and checksums its payload outside of any lock, and says when
//! it has [finished](Groups::finish). One group is *on its way* while the next fills; groups that are full wait in
//! between. The leader takes a group ([`Groups::start`]) once all its members have finished, completes its headers
//! ([`Group::complete`]) and tells how its I/O ended.
//!
//! Invariants: sequences, positions and acknowledgements follow one order. A group's memory is used again only when
//! no part of it is held by a caller or by an operation (the [`Fill`] sees to it). A refused sequence is never used
//! again. Once poisoned nothing moves any more.
//!
//! Why positions are fixed on joining: the checksum of a payload covers its place, and it is the caller, not the
//! leader, who has the time to compute it. So a group that doesn't fit its segment needs to know the next segment
//! *before* anybody may join it ([`Join::NoGround`]). What was rejected: several groups in flight (64 writers:
//! 135,000 puts/s with eight in flight, 292,000 with one, because the groups get small).

use std::collections::VecDeque;

use super::frame::Place;
pub use super::layout::{Ground, Group, Joined, LeadIn, Ticket, Want, batch_len, frames_of, padded};
use super::layout::{Record, alias_of, new_group};
use crate::base::defect::{self, Defect};
use crate::base::{Error, Result};

/// The longest payload of one batch: a value of 1 GiB with its key, and room for small company.
pub const MAX_BATCH: usize = (1 << 30) + (1 << 20);
/// Room of the first groups; twice the longest frame.
const FIRST_ROOM: usize = 512 * 1024;
/// Groups that turn out too small grow up to this.
const MAX_ROOM: usize = 4 << 20;
/// Full groups that may wait; beyond that joining waits.
const QUEUED_MAX: usize = 2;
/// Memory kept for the next groups.
const POOL_MAX: usize = 4;

/// The answer to a batch that wants to join.
#[derive(Debug)]
pub enum Join {
    /// It has joined.
    Joined(Ticket),
    /// All groups are full: lead one, or wait until one has been led.
    Full,
    /// The segment has no room (or there is none): [`Groups::continue_in`] another one, with room for so many bytes
    /// of groups.
    NoGround {
        /// Bytes that the next group takes at least, its link included.
        needed: u64,
    },
}

/// The answer to a leader that wants a group.
#[derive(Debug)]
pub enum Start {
    /// There is none.
    Nothing,
    /// One is on its way already.
    Busy,
    /// The next one's members haven't all finished.
    Copying,
    /// It is the leader's now, until [`Groups::done`], [`Groups::refuse`] or [`Groups::poison`].
    Go(Box<Group>),
}

/// A batch between joining and finishing.
#[derive(Debug)]
struct Pending {
    last_sequence: u64,
    finished: bool,
    weak: bool,
}

/// A refused batch that readers have seen: it is kept and written again.
#[derive(Debug)]
struct Kept {
    sequence: u64,
    count: u32,
    payload: Vec<u8>,
    want: Want,
}

/// See the module.
#[derive(Debug)]
pub struct Groups {
    ground: Option<Ground>,
    filling: Option<Box<Group>>,
    queued: VecDeque<Box<Group>>,
    on_its_way: bool,
    pool: VecDeque<Box<Group>>,
    room: usize,
    next_group: u64,
    next_sequence: u64,
    /// What recovery expects next in the segment; another sequence needs a seal that says so.
    expected: u64,
    pending: VecDeque<Pending>,
    /// Number of the first record in `pending`.
    pending_from: u64,
    /// All batches up to this sequence have finished.
    finished: u64,
    /// The highest sequence of a weak batch that has finished with all before it.
    shown: u64,
    written: u64,
    durable: u64,
    /// The last sequence that was given and not refused.
    last_live: u64,
    kept: VecDeque<Kept>,
    refusing: bool,
    poisoned: bool,
}

impl Groups {
    /// A machine whose next sequence is `next_sequence`; everything before it is durable.
    pub fn new(next_sequence: u64, ground: Option<Ground>) -> Self {
        let before = next_sequence - 1;
        Groups {
            ground,
            filling: None,
            queued: VecDeque::new(),
            on_its_way: false,
            pool: VecDeque::new(),
            room: FIRST_ROOM,
            next_group: 1,
            next_sequence,
            expected: next_sequence,
            pending: VecDeque::new(),
            pending_from: 0,
            finished: before,
            shown: before,
            written: before,
            durable: before,
            last_live: before,
            kept: VecDeque::new(),
            refusing: false,
            poisoned: false,
        }
    }

    /// Gives a batch its sequence and its place.
    ///
    /// # Errors
    /// [`Error::TooLarge`]; no memory. Nothing was taken.
    pub fn join(&mut self, len: usize, count: u32, want: Want) -> Result<Join> {
        if len > MAX_BATCH {
            let text = format!("a batch of {len} bytes; the log takes at most {MAX_BATCH} in one batch");
            return Err(Error::TooLarge(text.into()));
        }
        if self.refusing {
            return Ok(Join::Full);
        }
        if let Some(first) = self.kept.front() {
            // Order: what is kept goes first.
            return Ok(Join::NoGround { needed: needed_for(first.payload.len()) });
        }
        let need = batch_len(len);
        if !self.fits(need) {
            if self.queued.len() >= QUEUED_MAX {
                return Ok(Join::Full);
            }
            self.close_filling();
            self.room = (self.room * 2).min(MAX_ROOM);
        }
        if self.filling.is_none() && !self.open(need, self.next_sequence)? {
            return Ok(Join::NoGround { needed: needed_for(len) });
        }
        let first_sequence = self.next_sequence;
        self.next_sequence += u64::from(count);
        let ticket = self.put(Record { sequence: first_sequence, count, at: 0, len, want });
        self.last_live = ticket.joined.last_sequence;
        let last_sequence = ticket.joined.last_sequence;
        self.pending.push_back(Pending { last_sequence, finished: false, weak: want != Want::Sync });
        Ok(Join::Joined(ticket))
    }

    /// Whether the filling group, if there is one, has room for `need` more bytes.
    fn fits(&self, need: usize) -> bool {
        let (Some(group), Some(ground)) = (&self.filling, &self.ground) else { return true };
        let used = group.fill.used() + need;
        used <= group.fill.room() && group.place.offset + padded(used) as u64 <= ground.end
    }

    /// Opens a group for `need` bytes whose first batch has `sequence`; false when the segment has no room.
    fn open(&mut self, need: usize, sequence: u64) -> Result<bool> {
        let Some(ground) = &self.ground else { return Ok(false) };
        let lead_in = match (ground.fresh, sequence == self.expected) {
            (true, _) => LeadIn::Link,
            (false, false) => LeadIn::Seal,
            (false, true) => LeadIn::None,
        };
        let used = lead_in.len() + need;
        if ground.start + padded(used) as u64 > ground.end {
            return Ok(false);
        }
        self.open_with(lead_in, used, sequence)?;
        Ok(true)
    }

    fn open_with(&mut self, lead_in: LeadIn, used: usize, sequence: u64) -> Result<()> {
        let Some(ground) = &mut self.ground else { return Ok(()) };
        let at = self.pool.iter().position(|group| group.fill.room() >= used.max(self.room));
        let group = match at {
            Some(at) => self.pool.swap_remove_back(at),
            None => None,
        };
        let mut group = match group {
            Some(group) => group,
            None => new_group(used.max(self.room))?,
        };
        group.number = self.next_group;
        group.place = Place { log_number: ground.log_number, epoch: ground.epoch, offset: ground.start };
        group.lead_in = lead_in;
        group.want = if lead_in == LeadIn::Link { Want::Sync } else { Want::Nothing };
        (group.members, group.bytes, group.entries) = (0, 0, 0);
        group.first_sequence = sequence;
        group.last_sequence = sequence - 1;
        drop(group.fill.take(lead_in.len()));
        ground.fresh = false;
        self.next_group += 1;
        self.expected = sequence;
        self.filling = Some(group);
        Ok(())
    }

    /// Gives up the next `count` sequences: they were promised to batches that could never join. Nothing waits or
    /// fills then; the next group says that they were skipped.
    ///
    /// # Panics
    /// When a group fills, since a gap inside of it couldn't be told.
    pub fn skip(&mut self, count: u64) {
        assert!(self.filling.is_none(), "sequences are skipped between groups");
        self.next_sequence += count;
    }

    /// Puts a batch into the filling group, which has room for it.
    fn put(&mut self, record: Record) -> Ticket {
        let group = self.filling.as_mut().expect("a group was opened for this batch");
        let at = group.fill.used();
        let part = group.fill.take(batch_len(record.len)).expect("the group was opened with this room");
        let place = Place { offset: group.place.offset + at as u64, ..group.place };
        let last_sequence = record.sequence + u64::from(record.count) - 1;
        group.records.push(Record { at, ..record });
        group.members += 1;
        group.bytes += record.len;
        group.entries += u64::from(record.count);
        group.want = group.want.max(record.want);
        group.last_sequence = last_sequence;
        self.expected = last_sequence + 1;
        let joined = Joined {
            group: group.number,
            record: self.pending_from + self.pending.len() as u64,
            first_sequence: record.sequence,
            last_sequence,
        };
        Ticket { joined, place, part, len: record.len }
    }

    /// Nobody joins the filling group any more; it waits for its turn.
    fn close_filling(&mut self) {
        if let Some(group) = self.filling.take() {
            if let Some(ground) = &mut self.ground {
                ground.start = group.place.offset + group.padded_len() as u64;
            }
            self.queued.push_back(group);
        }
    }

    /// A batch's payload is copied, and whatever must happen before its sequence may be seen has happened. True when
    /// this moved [`Groups::finished`].
    pub fn finish(&mut self, record: u64) -> bool {
        let index = record.wrapping_sub(self.pending_from);
        let Some(pending) = self.pending.get_mut(index as usize) else { return false };
        pending.finished = true;
        let before = self.finished;
        while let Some(first) = self.pending.front().filter(|first| first.finished) {
            self.finished = first.last_sequence;
            if first.weak && !self.poisoned {
                self.shown = first.last_sequence;
            }
            self.pending.pop_front();
            self.pending_from += 1;
        }
        self.finished > before
    }

    /// Takes the next group, closing the filling one when no full one waits.
    pub fn start(&mut self) -> Start {
        if self.on_its_way {
            return Start::Busy;
        }
        if self.poisoned || self.refusing {
            return Start::Nothing;
        }
        if self.queued.is_empty() {
            self.close_filling();
        }
        match self.queued.pop_front() {
            None => Start::Nothing,
            Some(group) if group.members > 0 && group.last_sequence > self.finished => {
                self.queued.push_front(group);
                Start::Copying
            }
            Some(group) => {
                self.on_its_way = true;
                if defect::on(Defect::ReuseBufferEarly) {
                    self.pool.extend(alias_of(&group));
                }
                Start::Go(group)
            }
        }
    }

    /// The group was written whole and, with `synced`, made durable with all before it.
    pub fn done(&mut self, group: Box<Group>, synced: bool) {
        self.on_its_way = false;
        self.written = self.written.max(group.last_sequence);
        if synced {
            self.durable = self.written;
            if defect::on(Defect::AckOutOfOrder) {
                self.durable = self.finished.max(self.durable);
            }
        }
        self.recycle(group);
    }

    /// Everything written so far has been made durable by a sync standing alone.
    pub fn synced(&mut self) {
        self.durable = self.written;
    }

    fn recycle(&mut self, mut group: Box<Group>) {
        group.records.clear();
        // Memory of an unusually large batch goes back to the system.
        let usual = group.fill.room() <= MAX_ROOM && group.fill.room() >= self.room;
        if usual && self.pool.len() < POOL_MAX && group.fill.reset() {
            self.pool.push_back(group);
        }
    }

    /// The segment took nothing of the group on its way (the disk is full): it and all behind it will be refused.
    /// Nobody may join until [`Groups::refuse`], which needs all that have joined to finish first.
    pub fn begin_refusal(&mut self) {
        self.refusing = true;
    }

    /// Whether all that have joined have finished.
    pub fn all_finished(&self) -> bool {
        self.pending.is_empty()
    }

    /// Refuses the group on its way and all behind it: the sequences that never were visible are dead (the answer:
    /// ranges, first and last), weaker batches are kept for [`Groups::continue_in`]. The segment is left.
    ///
    /// # Errors
    /// [`Error::Internal`] when somebody still copies.
    pub fn refuse(&mut self, group: Box<Group>) -> Result<Vec<(u64, u64)>> {
        self.on_its_way = false;
        self.refusing = false;
        self.ground = None;
        let mut dead: Vec<(u64, u64)> = Vec::new();
        let behind: Vec<_> = self.queued.drain(..).chain(self.filling.take()).collect();
        for mut group in std::iter::once(group).chain(behind) {
            let held = || Error::Internal("a group was refused while a caller still copied into it".into());
            let whole = group.fill.whole().ok_or_else(held)?;
            for record in &group.records {
                let last = record.sequence + u64::from(record.count) - 1;
                if record.want != Want::Sync {
                    let payload = group.payload(whole.as_slice(), record);
                    let Record { sequence, count, want, .. } = *record;
                    self.kept.push_back(Kept { sequence, count, payload, want });
                    continue;
                }
                match dead.last_mut() {
                    Some((_, end)) if *end + 1 == record.sequence => *end = last,
                    _ => dead.push((record.sequence, last)),
                }
            }
            drop(whole);
            self.recycle(group);
        }
        self.last_live =
            self.kept.back().map_or(self.written, |kept| kept.sequence + u64::from(kept.count) - 1);
        Ok(dead)
    }

    /// Goes on in another segment; kept batches go first. What doesn't fit it stays kept.
    ///
    /// # Errors
    /// No memory.
    pub fn continue_in(&mut self, ground: Ground) -> Result<()> {
        self.close_filling();
        self.ground = Some(ground);
        while let Some(first) = self.kept.front() {
            let need = batch_len(first.payload.len());
            let sequence = first.sequence;
            if self.filling.is_some() && (sequence != self.expected || !self.fits(need)) {
                self.close_filling();
            }
            if self.filling.is_none() && !self.open(need, sequence)? {
                break;
            }
            if let Some(Kept { sequence, count, payload, want }) = self.kept.pop_front() {
                let ticket = self.put(Record { sequence, count, at: 0, len: payload.len(), want });
                ticket.copy(&[&payload]);
            }
        }
        self.close_filling();
        Ok(())
    }

    /// Makes a group of the fresh segment's link alone, when nothing else has begun it.
    ///
    /// # Errors
    /// No memory.
    pub fn link_alone(&mut self) -> Result<()> {
        if self.ground.is_some_and(|ground| ground.fresh) && self.filling.is_none() {
            self.open(0, self.next_sequence)?;
            self.close_filling();
        }
        Ok(())
    }

    /// Makes a group of a seal alone, behind everything; the block kept free at the segment's end serves the last
    /// one. False when there is nothing to seal.
    ///
    /// # Errors
    /// No memory.
    pub fn seal(&mut self) -> Result<bool> {
        let sealable = self.ground.is_some_and(|ground| !ground.fresh && ground.start <= ground.end);
        if !sealable || self.filling.is_some() || !self.queued.is_empty() || self.on_its_way {
            return Ok(false);
        }
        self.open_with(LeadIn::Seal, LeadIn::Seal.len(), self.next_sequence)?;
        if let Some(group) = &mut self.filling {
            group.want = Want::Sync;
        }
        self.close_filling();
        Ok(true)
    }

    /// The outcome of the group on its way is unknown: nothing moves any more.
    pub fn poison(&mut self) {
        self.poisoned = true;
        self.on_its_way = false;
    }

    /// Whether it is poisoned.
    pub fn is_poisoned(&self) -> bool {
        self.poisoned
    }

    /// Whether a group is on its way.
    pub fn is_busy(&self) -> bool {
        self.on_its_way
    }

    /// Whether a group waits or fills.
    pub fn has_work(&self) -> bool {
        self.filling.is_some() || !self.queued.is_empty()
    }

    /// Bytes of segment that the first kept batch needs; `None` when none is kept.
    pub fn kept_need(&self) -> Option<u64> {
        self.kept.front().map(|kept| needed_for(kept.payload.len()))
    }

    /// The group that would start next: a full one that waits, or the filling one.
    pub fn next(&self) -> Option<&Group> {
        self.queued.front().or(self.filling.as_ref()).map(|group| &**group)
    }

    /// The number of the first group that waits or fills and in which somebody waits. A group's own wish doesn't tell:
    /// a link asks for a sync, too, and sleeps nowhere.
    pub fn next_wanted(&self) -> Option<u64> {
        let mut groups = self.queued.iter().chain(&self.filling);
        let waited_for = |group: &Group| group.records.iter().any(|record| record.want != Want::Nothing);
        groups.find(|group| waited_for(group)).map(|group| group.number)
    }

    /// Asks that all groups that wait or fill be made durable.
    pub fn want_sync(&mut self) {
        self.queued.iter_mut().chain(&mut self.filling).for_each(|group| group.want = Want::Sync);
    }

    /// How many batches the filling group has.
    pub fn filling_members(&self) -> u32 {
        self.filling.as_ref().map_or(0, |group| group.members)
    }

    /// The number of the last group that was opened.
    pub fn last_group(&self) -> u64 {
        self.next_group - 1
    }

    /// Whether full groups wait.
    pub fn has_full(&self) -> bool {
        !self.queued.is_empty()
    }

    /// Where the next group goes.
    pub fn ground(&self) -> Option<&Ground> {
        self.ground.as_ref()
    }

    /// The next sequence to be given.
    pub fn next_sequence(&self) -> u64 {
        self.next_sequence
    }

    /// All batches up to this sequence have finished.
    pub fn finished(&self) -> u64 {
        self.finished
    }

    /// Sequences up to this one are handed to the kernel, dead ones aside.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Sequences up to this one are durable, dead ones aside.
    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// The last sequence that was given and not refused.
    pub fn last_live(&self) -> u64 {
        self.last_live
    }

    /// Readers may see up to this sequence: what is durable, and weaker batches as soon as all before them are in.
    pub fn visible(&self) -> u64 {
        self.durable.max(self.shown)
    }
}

fn needed_for(len: usize) -> u64 {
    padded(LeadIn::Link.len() + batch_len(len)) as u64
}

#[cfg(test)]
#[path = "group_test.rs"]
mod tests;
