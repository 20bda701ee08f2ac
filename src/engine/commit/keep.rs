//! What is done beside the writes: segments ahead of use, groups that are due, seals, files nobody needs.

use std::time::Duration;

use super::{Commit, Next, Options, Shared};
use crate::base::Result;
use crate::ring::Io;
use crate::wal::group::Ground;
use crate::wal::segment::Segment;
use crate::wal::spare::{self, Order};

/// After a spare couldn't be prepared the keeper waits so long at first, twice as long each time, and so long at most:
/// an attempt fills what is left of the disk before it fails. A write that needs the segment tries at once.
const RETRY_FIRST_US: u64 = 500_000;
const RETRY_MAX_US: u64 = 30_000_000;

impl Commit {
    /// Whether the group that would be led next is due.
    pub(super) fn is_due(&self, shared: &Shared) -> bool {
        let Some(next) = shared.groups.next() else { return false };
        let Options { batch_max_entries, batch_max_bytes, .. } = &self.options;
        shared.groups.has_full()
            || next.entries >= u64::from(*batch_max_entries)
            || next.bytes >= *batch_max_bytes
    }

    /// Gives the machine a segment to go on in, with room for groups of `needed` bytes.
    pub(super) async fn find_ground(&self, io: &Io, needed: u64) -> Result<()> {
        let len = Ground::len_for(needed);
        loop {
            let seen = self.progress.value();
            let order = {
                let mut shared = self.shared.lock();
                shared.usable()?;
                if shared.has_ground(needed) {
                    return Ok(());
                }
                if let Some(segment) = shared.spare_for(len) {
                    self.install(&mut shared, segment)?;
                    // The keeper sees to the next spare.
                    shared.keeper_at = 0;
                    self.keeper.wake_one();
                    return Ok(());
                }
                shared.spares.order(len)
            };
            match order {
                Some(order) => self.fulfil(io, order).await?,
                None => self.wait(io, &self.progress, seen).await,
            }
        }
    }

    /// Prepares the first segment of a new log, so that its files are there once it is open.
    ///
    /// # Errors
    /// What the system says.
    pub async fn begin(&self, io: &Io) -> Result<()> {
        let order = {
            let mut shared = self.shared.lock();
            let len = shared.spares.segment_bytes();
            if shared.groups.ground().is_some() || shared.spares.ready() > 0 {
                None
            } else {
                shared.spares.order(len)
            }
        };
        match order {
            Some(order) => self.fulfil(io, order).await,
            None => Ok(()),
        }
    }

    async fn fulfil(&self, io: &Io, order: Order) -> Result<()> {
        let prepared = order.prepare(io).await;
        let supplied = self.shared.lock().spares.supply(prepared);
        self.progress.wake_all();
        supplied.map_err(|e| e.context("preparing a log segment"))
    }

    /// Goes on in `segment`.
    pub(super) fn install(&self, shared: &mut Shared, segment: Segment) -> Result<()> {
        if shared.groups.ground().is_some_and(|ground| ground.fresh)
            && let Some(unused) = shared.next_segments.pop_back()
        {
            // It was too short for what comes now, and its number is passed.
            shared.spares.retire(unused.number, unused.len);
        }
        shared.groups.continue_in(Ground::fresh(segment.number, segment.epoch, segment.len))?;
        shared.next_segments.push_back(segment);
        self.progress.wake_all();
        Ok(())
    }

    /// The keeper's work: prepares the spare segment, leads a due group, writes the idle seal, removes files.
    ///
    /// # Errors
    /// What stands in the way of going on; the keeper comes again all the same.
    pub async fn maintain(&self, io: &Io) -> Result<Next> {
        self.shared.lock().keeper_at = 0;
        let done = self.do_what_is_due(io).await;
        let mut shared = self.shared.lock();
        let at = self.next_due(&shared, io.now_us());
        shared.keeper_at = at;
        done?;
        Ok(if at == u64::MAX { Next::Idle } else { Next::At(at) })
    }

    async fn do_what_is_due(&self, io: &Io) -> Result<()> {
        self.shared.lock().usable()?;
        self.remove_doomed(io);
        self.write_what_is_due(io).await?;
        self.prepare_spare(io).await
    }

    fn next_due(&self, shared: &Shared, now: u64) -> u64 {
        let mut at = u64::MAX;
        if shared.closed || shared.poison.is_some() {
            return at;
        }
        if let Some(since) = shared.weak_since {
            at = at.min(since.saturating_add(self.options.batch_max_delay_us));
        }
        if !shared.sealed {
            // While something is still to be written the silence has not begun.
            let quiet = shared.writer.is_some() && !shared.groups.has_work();
            let since = if quiet { shared.last_write_us } else { now };
            at = at.min(since.saturating_add(self.options.seal_after_us));
        }
        // Who prepares one calls the keeper when it is used.
        let short = shared.spares.ready() < shared.spares_wanted() && !shared.spares.is_ordered();
        if short || shared.groups.kept_need().is_some() {
            at = at.min(shared.spare_retry.0.max(now));
        }
        at
    }

    async fn write_what_is_due(&self, io: &Io) -> Result<()> {
        let now = io.now_us();
        let kept = {
            let shared = self.shared.lock();
            shared.groups.kept_need().filter(|_| now >= shared.spare_retry.0)
        };
        if let Some(needed) = kept {
            match self.find_ground(io, needed).await {
                Err(e) if e.errno() == Some(libc::ENOSPC) => self.put_off(now),
                other => other?,
            }
        }
        let writer = {
            let mut shared = self.shared.lock();
            let due = |after: u64, since: u64| now >= since.saturating_add(after);
            let weak = shared.weak_since.is_some_and(|since| due(self.options.batch_max_delay_us, since));
            let idle = !shared.sealed
                && !shared.groups.has_work()
                && due(self.options.seal_after_us, shared.last_write_us);
            if !(weak || idle || kept.is_some()) {
                return Ok(());
            }
            let writer = shared.writer.take();
            if idle && writer.is_some() {
                shared.begin_seal()?;
            }
            writer
        };
        let refusals = self.shared.lock().refusals;
        if let Some(writer) = writer {
            self.lead(io, writer, true).await;
        }
        if self.shared.lock().refusals != refusals {
            self.put_off(now);
        }
        Ok(())
    }

    async fn prepare_spare(&self, io: &Io) -> Result<()> {
        loop {
            let now = io.now_us();
            let order = {
                let mut shared = self.shared.lock();
                let enough = shared.spares.ready() >= shared.spares_wanted();
                if enough || shared.closed || now < shared.spare_retry.0 {
                    return Ok(());
                }
                let len = shared.spares.segment_bytes();
                shared.spares.order(len)
            };
            let Some(order) = order else { return Ok(()) };
            match self.fulfil(io, order).await {
                Ok(()) => self.shared.lock().spare_retry = (0, 0),
                Err(e) => {
                    log::warn!("the log has no spare segment: {e}");
                    self.put_off(now);
                    return Ok(());
                }
            }
        }
    }

    fn put_off(&self, now: u64) {
        let mut shared = self.shared.lock();
        let pause = (shared.spare_retry.1 * 2).clamp(RETRY_FIRST_US, RETRY_MAX_US);
        shared.spare_retry = (now + pause, pause);
    }

    fn remove_doomed(&self, io: &Io) {
        loop {
            let Some((dir, number)) = self.shared.lock().spares.next_doomed() else { return };
            if let Err(e) = spare::remove(io, &dir, number) {
                // The next recovery finds the file and gives it back as unused.
                log::warn!("a log segment that is no longer needed stays: {e}");
            }
        }
    }

    /// How often the keeper was called, for [`Commit::park_keeper`]; to be read before its work begins, so that a call
    /// that comes during it isn't slept through.
    pub fn keeper_calls(&self) -> u32 {
        self.keeper.value()
    }

    /// The keeper thread sleeps here until `next`, or until there is news since it read `seen`. Blocking; not for
    /// simulated keepers.
    pub fn park_keeper(&self, io: &Io, seen: u32, next: Next) {
        let at = match next {
            Next::At(at) => at,
            Next::Idle => u64::MAX,
        };
        let now = io.now_us();
        match at {
            u64::MAX => self.keeper.wait(seen, None),
            at if at > now => self.keeper.wait(seen, Some(Duration::from_micros(at - now))),
            _ => {}
        }
    }

    /// Ends [`Commit::park_keeper`] early.
    pub fn wake_keeper(&self) {
        self.shared.lock().keeper_at = 0;
        self.keeper.wake_all();
    }

    /// Whether there is news for a keeper that was told `next`, for those that don't sleep by
    /// [`Commit::park_keeper`].
    pub fn keeper_is_called(&self, next: Next) -> bool {
        let at = if let Next::At(at) = next { at } else { u64::MAX };
        self.shared.lock().keeper_at < at
    }
}

impl Shared {
    /// Whether the machine can open a group of `needed` bytes already.
    fn has_ground(&self, needed: u64) -> bool {
        self.groups.kept_need().is_none()
            && self.groups.ground().is_some_and(|ground| ground.start + needed <= ground.end)
    }

    /// A segment for `len` bytes, leaving one prepared where there is a choice.
    fn spare_for(&mut self, len: u64) -> Option<Segment> {
        let first = self.groups.ground().is_none();
        let reserve = if first || len > self.spares.segment_bytes() { 0 } else { 1 };
        self.spares.take(len, reserve)
    }

    /// One is always kept ready; another while the current segment is more than half full.
    fn spares_wanted(&self) -> usize {
        match self.groups.ground() {
            Some(ground) if ground.start > ground.end / 2 => 2,
            _ => 1,
        }
    }
}
