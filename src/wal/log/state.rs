//! What a log's calls and its tasks share: the machine, what waits to join it, what is under way, the events.
//!
//! No I/O here. All of it is one thread's; it is never borrowed across an await.

use std::collections::VecDeque;

use super::Event;
use crate::base::error::code;
use crate::base::{Error, Result};
use crate::ring::completion::Token;
use crate::wal::group::{Ground, Group, Groups, Join, MAX_BATCH, Start, Want};
use crate::wal::segment::Segment;
use crate::wal::spare::Spares;
use crate::wal::writer::{Opened, Writer};

/// Bytes of records that wait to join a group.
const PENDING_BYTES_MAX: usize = 8 << 20;
/// Records that were appended and whose events weren't reaped.
const RECORDS_MAX: usize = 1 << 16;
/// After a spare couldn't be prepared the next attempt waits so long.
const RETRY_US: u64 = 1_000_000;

/// A record that has its sequence and no place yet.
#[derive(Debug)]
struct Pending {
    sequence: u64,
    user_data: u64,
    data: Vec<u8>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct State {
    pub(super) groups: Groups,
    pub(super) spares: Spares,
    /// Away while somebody leads.
    pub(super) writer: Option<Writer>,
    /// Segments of groups with links that haven't been issued.
    next_segments: VecDeque<Segment>,
    pending: VecDeque<Pending>,
    pending_bytes: usize,
    /// Sequence and user data of the records in groups, in order.
    in_flight: VecDeque<(u64, u64)>,
    events: VecDeque<Event>,
    /// Events that the reactor hasn't been told of.
    untold: usize,
    next_sequence: u64,
    pub(super) released: u64,
    poison: Option<Error>,
    pub(super) closing: bool,
    /// Everything is proven by a seal.
    pub(super) sealed: bool,
    pub(super) seal_after_us: u64,
    pub(super) last_write_us: u64,
    pub(super) spare_retry_us: u64,
    pub(super) leading: bool,
    pub(super) keeping: bool,
    pub(super) idling: bool,
    /// What the idle task sleeps on.
    pub(super) timer: Option<Token>,
}

/// What the leading task does next.
pub(super) enum Step {
    /// Issues this group, in this new segment if it begins one.
    Issue(Box<Group>, Option<Segment>),
    /// Prepares a segment of this length.
    Make(u64),
    /// Nothing is left to do.
    Rest,
}

/// Sequence and user data of refused records that weren't told yet.
#[must_use = "each record has one event"]
pub(super) struct Refused(VecDeque<(u64, u64)>);

/// Why feeding stopped.
enum Fed {
    All,
    Full,
    Needs(u64),
    Failed(Error),
}

impl State {
    pub(super) fn new(opened: Opened, seal_after_us: u64) -> Self {
        let Opened { groups, spares, writer } = opened;
        State {
            next_sequence: groups.next_sequence(),
            groups,
            spares,
            writer: Some(writer),
            next_segments: VecDeque::new(),
            pending: VecDeque::new(),
            pending_bytes: 0,
            in_flight: VecDeque::new(),
            events: VecDeque::new(),
            untold: 0,
            released: 0,
            poison: None,
            closing: false,
            sealed: true,
            seal_after_us,
            last_write_us: 0,
            spare_retry_us: 0,
            leading: false,
            keeping: false,
            idling: false,
            timer: None,
        }
    }

    pub(super) fn append(&mut self, data: &[u8], user_data: u64) -> Result<u64> {
        if let Some(e) = &self.poison {
            let text = format!("an earlier write failed: {e}; close the log and open it again");
            return Err(Error::Poisoned(text.into()));
        }
        if data.len() > MAX_BATCH {
            let text = format!("a record of {} bytes; the log takes at most {MAX_BATCH}", data.len());
            return Err(Error::TooLarge(text.into()));
        }
        if self.pending.len() + self.in_flight.len() + self.events.len() >= RECORDS_MAX {
            let text = format!("{RECORDS_MAX} records are queued or their events not reaped; reap first");
            return Err(Error::Stalled(text.into()));
        }
        let sequence = self.next_sequence;
        if !self.pending.is_empty() || !self.join(data, user_data)? {
            self.queue(data, user_data)?;
        }
        self.next_sequence += 1;
        Ok(sequence)
    }

    /// Puts a record into the group that fills, if it can join now.
    fn join(&mut self, data: &[u8], user_data: u64) -> Result<bool> {
        let Join::Joined(ticket) = self.groups.join(data.len(), 1, Want::Sync)? else { return Ok(false) };
        let joined = ticket.copy(&[data]);
        self.groups.finish(joined.record);
        self.in_flight.push_back((joined.first_sequence, user_data));
        self.sealed = false;
        Ok(true)
    }

    fn queue(&mut self, data: &[u8], user_data: u64) -> Result<()> {
        if !self.pending.is_empty() && self.pending_bytes + data.len() > PENDING_BYTES_MAX {
            let text = format!("{} bytes of records are queued; try again after a reap", self.pending_bytes);
            return Err(Error::Stalled(text.into()));
        }
        let mut copy = Vec::new();
        let room = copy.try_reserve_exact(data.len());
        room.map_err(|_| Error::system(libc::ENOMEM, format!("copying a record of {} bytes", data.len())))?;
        copy.extend_from_slice(data);
        self.pending_bytes += data.len();
        self.pending.push_back(Pending { sequence: self.next_sequence, user_data, data: copy });
        Ok(())
    }

    /// Lets what waits join, as far as there is room.
    fn feed(&mut self) -> Fed {
        while let Some(first) = self.pending.front() {
            match self.groups.join(first.data.len(), 1, Want::Sync) {
                Ok(Join::Joined(ticket)) => {
                    let joined = ticket.copy(&[&first.data]);
                    debug_assert_eq!(joined.first_sequence, first.sequence, "the promised sequence");
                    self.groups.finish(joined.record);
                    self.in_flight.push_back((joined.first_sequence, first.user_data));
                    self.sealed = false;
                    self.pending_bytes -= first.data.len();
                    self.pending.pop_front();
                }
                Ok(Join::Full) => return Fed::Full,
                Ok(Join::NoGround { needed }) => {
                    let len = Ground::len_for(needed);
                    let Some(segment) = self.spare_for(len) else { return Fed::Needs(len) };
                    if let Err(e) = self.install(segment) {
                        return Fed::Failed(e);
                    }
                }
                Err(e) => return Fed::Failed(e),
            }
        }
        Fed::All
    }

    /// A segment for `len` bytes, leaving one prepared where there is a choice.
    fn spare_for(&mut self, len: u64) -> Option<Segment> {
        let first = self.groups.ground().is_none();
        let reserve = if first || len > self.spares.segment_bytes() { 0 } else { 1 };
        self.spares.take(len, reserve)
    }

    /// Goes on in `segment`.
    fn install(&mut self, segment: Segment) -> Result<()> {
        if self.groups.ground().is_some_and(|ground| ground.fresh)
            && let Some(unused) = self.next_segments.pop_back()
        {
            // It was too short for what comes now, and its number is passed.
            self.spares.retire(unused.number, unused.len);
        }
        self.groups.continue_in(Ground::fresh(segment.number, segment.epoch, segment.len))?;
        self.next_segments.push_back(segment);
        Ok(())
    }

    pub(super) fn next_step(&mut self) -> Step {
        if self.poison.is_some() {
            return Step::Rest;
        }
        loop {
            let fed = self.feed();
            if let Start::Go(group) = self.groups.start() {
                let next = self.segment_of(&group);
                return Step::Issue(group, next);
            }
            match fed {
                Fed::All | Fed::Full => return Step::Rest,
                Fed::Needs(len) => return Step::Make(len),
                Fed::Failed(e) => self.refuse_pending(&e),
            }
        }
    }

    fn segment_of(&mut self, group: &Group) -> Option<Segment> {
        let links = group.lead_in == crate::wal::group::LeadIn::Link;
        if links { self.next_segments.pop_front() } else { None }
    }

    /// What waits can't be written: all of it is refused, and nothing of it is in the log.
    pub(super) fn refuse_pending(&mut self, error: &Error) {
        let refused = std::mem::take(&mut self.pending);
        self.pending_bytes = 0;
        self.groups.skip(refused.len() as u64);
        for Pending { sequence, user_data, .. } in refused {
            self.tell(Event { user_data, sequence, result: error.code() });
        }
    }

    fn tell(&mut self, event: Event) {
        self.events.push_back(event);
        self.untold += 1;
    }

    /// Tells what a group's end has decided: records up to the machine's durable sequence.
    pub(super) fn acknowledge(&mut self) {
        let durable = self.groups.durable();
        while let Some((sequence, user_data)) = self.in_flight.pop_front_while(durable) {
            self.tell(Event { user_data, sequence, result: 0 });
        }
    }

    /// The disk is full: the group and all behind it are refused. Their events come with [`State::tell_refused`].
    pub(super) fn refuse(&mut self, group: Box<Group>, unused: Option<Segment>) -> Result<Refused> {
        self.groups.begin_refusal();
        self.groups.refuse(group)?;
        let refused = std::mem::take(&mut self.in_flight);
        let unused: Vec<Segment> = unused.into_iter().chain(self.next_segments.drain(..)).collect();
        unused.into_iter().rev().for_each(|segment| self.spares.put_back(segment));
        Ok(Refused(refused))
    }

    /// What was refused couldn't be excluded from the log: it is under way again, with what came since behind it.
    pub(super) fn put_back(&mut self, Refused(mut refused): Refused) {
        refused.append(&mut self.in_flight);
        self.in_flight = refused;
    }

    /// What was refused is excluded from the log for good.
    pub(super) fn tell_refused(&mut self, Refused(refused): Refused, error: &Error) {
        for (sequence, user_data) in refused {
            self.tell(Event { user_data, sequence, result: error.code() });
        }
    }

    /// A group of a new segment's link alone, which excludes what the segment before holds behind its end.
    pub(super) fn excluding(&mut self) -> Result<(Box<Group>, Option<Segment>)> {
        let len = Ground::len_for(crate::wal::segment::BLOCK);
        let none = || {
            let text = "the disk became full in the middle of a group, and no spare segment was left";
            Error::system(libc::ENOSPC, text)
        };
        let segment = self.spares.take(len, 0).ok_or_else(none)?;
        self.install(segment)?;
        self.groups.link_alone()?;
        match self.groups.start() {
            Start::Go(group) => {
                let next = self.segment_of(&group);
                Ok((group, next))
            }
            _ => Err(Error::Internal("a fresh segment has a group to begin with".into())),
        }
    }

    /// What is on the device is unknown: nothing is written any more.
    pub(super) fn poison_with(&mut self, error: Error) {
        log::error!("the log is poisoned: {error}");
        self.groups.poison();
        self.poison.get_or_insert(error);
        for (sequence, user_data) in std::mem::take(&mut self.in_flight) {
            self.tell(Event { user_data, sequence, result: code::INDETERMINATE });
        }
        for Pending { sequence, user_data, .. } in std::mem::take(&mut self.pending) {
            self.tell(Event { user_data, sequence, result: code::POISONED });
        }
        self.pending_bytes = 0;
    }

    pub(super) fn poison(&self) -> Option<&Error> {
        self.poison.as_ref()
    }

    /// Events that the reactor is to count from now on.
    pub(super) fn take_untold(&mut self) -> usize {
        std::mem::take(&mut self.untold)
    }

    pub(super) fn take(&mut self, out: &mut [Event]) -> usize {
        let count = out.len().min(self.events.len());
        for (place, event) in out.iter_mut().zip(self.events.drain(..count)) {
            *place = event;
        }
        count
    }

    /// Drops what wasn't reaped; how many of them the reactor counts.
    pub(super) fn drop_events(&mut self) -> usize {
        let count = self.events.len() - std::mem::take(&mut self.untold);
        self.events.clear();
        count
    }

    pub(super) fn release(&mut self, up_to_sequence: u64) -> Result<()> {
        if up_to_sequence >= self.next_sequence {
            let text =
                format!("sequence {up_to_sequence} was not given yet; the next is {}", self.next_sequence);
            return Err(Error::invalid(text));
        }
        self.released = self.released.max(up_to_sequence);
        Ok(())
    }

    /// Whether records are on their way to an event.
    pub(super) fn is_busy(&self) -> bool {
        self.leading || !self.pending.is_empty() || !self.in_flight.is_empty()
    }

    pub(super) fn has_tasks(&self) -> bool {
        self.leading || self.keeping || self.idling
    }

    /// True when a leading task is needed and there is none: the caller starts it.
    pub(super) fn begin_leading(&mut self) -> bool {
        let needed = !self.pending.is_empty() || self.groups.has_work();
        let begin = needed && !self.leading && self.poison.is_none();
        self.leading |= begin;
        begin
    }

    /// True when a seal is to be written now: the caller leads.
    pub(super) fn begin_seal(&mut self) -> bool {
        if self.sealed || self.leading || self.poison.is_some() {
            return false;
        }
        // No memory for a seal is no reason to fail: the records are durable without it.
        self.leading = self.groups.seal().unwrap_or(false);
        self.sealed = self.leading;
        self.leading
    }

    /// No new tasks are started; the timer to cancel.
    pub(super) fn begin_closing(&mut self) -> Option<Token> {
        self.closing = true;
        self.timer.take()
    }

    /// Whether a spare is to be prepared now.
    pub(super) fn wants_spare(&self, now: u64) -> bool {
        let wanted = match self.groups.ground() {
            Some(ground) if ground.start > ground.end / 2 => 2,
            _ => 1,
        };
        self.poison.is_none() && now >= self.spare_retry_us && self.spares.ready() < wanted
    }

    pub(super) fn put_off_spare(&mut self, now: u64) {
        self.spare_retry_us = now + RETRY_US;
    }
}

/// Taking from the front as long as a record is durable.
trait Front {
    fn pop_front_while(&mut self, durable: u64) -> Option<(u64, u64)>;
}

impl Front for VecDeque<(u64, u64)> {
    fn pop_front_while(&mut self, durable: u64) -> Option<(u64, u64)> {
        let ends = self.front().is_some_and(|(sequence, _)| *sequence <= durable);
        if ends { self.pop_front() } else { None }
    }
}
