//! The log as an object of its own (`wal_t`): append, submit, reap in order.
//!
//! It is bound to one thread and stands on a ring, its own or a shared one. Appending copies the record into the
//! group that fills and returns; nothing leaves before the ring is driven. What happens then is done by tasks on the
//! ring (see [`lead`]): one issues group after group, one keeps spare segments ready, one writes a seal when nothing
//! has been written for a while. Each ends when it has nothing to do, so an idle log costs nothing.
//!
//! Invariants:
//!
//! - One event for each record that was appended, strictly in the order of sequences. Success means: on the device.
//! - A sequence is never given twice, also when its record was refused.
//! - LOCK is held in the ring that writes, from before the first write until after the last.
//! - The reactor's count of ready items includes every event that wasn't reaped, so one wait serves all objects.
//!
//! What was rejected: an append that waits for room (a host with an event loop must never block), and giving
//! sequences only when a record finds its place (the caller is to know it when append returns).

mod lead;
mod state;

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::os::fd::RawFd;
use std::path::Path;
use std::rc::Rc;

use self::state::State;
use super::lock::Lock;
use super::recover::{Deliver, Mode, RecoveryStats, recover};
use super::sync::Wish;
use super::writer::{self, Writer};
use crate::base::{Error, Result};
use crate::ring::Io;
use crate::ring::driver::Wait;
use crate::ring::options::{RingOptions, open_driver};

/// What a log is opened with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Length of a segment in bytes, a multiple of 4096, at least five times that.
    pub segment_bytes: u64,
    /// A checkpoint after so many bytes; 1: after every group, 0: never.
    pub checkpoint_every: u64,
    /// How records are made durable.
    pub sync: Wish,
    /// A seal after so many microseconds without a write.
    pub seal_after_us: u64,
    /// Past the page cache, where the file system can.
    pub direct: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            segment_bytes: 64 << 20,
            checkpoint_every: 1 << 20,
            sync: Wish::Auto,
            seal_after_us: 10_000,
            direct: true,
        }
    }
}

/// The ring that a log stands on.
pub enum On<'a> {
    /// One of its own, made with these options.
    Own(&'a RingOptions),
    /// One that others use too.
    Shared(&'a Io),
}

/// How a record ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// The caller's name for the record.
    pub user_data: u64,
    /// The record's sequence.
    pub sequence: u64,
    /// 0: it is durable. `-errno`: it was refused, nothing of it is in the log. `IOE_E_INDETERMINATE`: it may or may
    /// not be durable. `IOE_E_POISONED`: an earlier one failed, this one was never written.
    pub result: i32,
}

impl Event {
    /// A place to reap into.
    pub const EMPTY: Event = Event { user_data: 0, sequence: 0, result: 0 };
}

/// See the module.
pub struct Log {
    io: Io,
    private: bool,
    lock: Option<Lock>,
    state: Rc<RefCell<State>>,
    recovery: RecoveryStats,
    way: String,
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log").field("recovery", &self.recovery).field("way", &self.way).finish()
    }
}

impl Log {
    /// Opens the log in the directory `path`, which is made if it isn't there: takes its lock, recovers it, and is
    /// ready for appending. Blocks; binds the ring to no thread.
    ///
    /// # Errors
    /// [`Error::Busy`] when it is open elsewhere, those of recovery, [`Error::Invalid`] for options that can't be,
    /// what the system says.
    pub fn open(path: &Path, options: &Options, on: On<'_>) -> Result<Log> {
        let (ring, private) = match on {
            On::Own(ring) => (Io::new(open_driver(ring)?.0), true),
            On::Shared(io) => (io.clone(), false),
        };
        let io = Io::inline();
        io.block_on(Log::open_on(&io, ring, private, path, options))?
    }

    /// As [`Log::open`]; `io` opens and recovers, `ring` writes afterwards.
    ///
    /// # Errors
    /// As [`Log::open`].
    pub async fn open_on(io: &Io, ring: Io, private: bool, path: &Path, options: &Options) -> Result<Log> {
        let dir = io.open_dir(path, true)?;
        let mut lock = Lock::take(io, &dir, path).await?;
        let mode = Mode::Write { direct: options.direct, segment_bytes: options.segment_bytes };
        let recovered = recover(io, &dir, mode, &mut |_| Ok(())).await?;
        let recovery = recovered.stats;
        lock.register(&ring)?;
        let how = writer::Options {
            segment_bytes: options.segment_bytes,
            direct: options.direct,
            sync: options.sync,
            may_block: false,
            checkpoint_every: options.checkpoint_every,
            ring: None,
        };
        let opened = match Writer::open(io, &dir, recovered, how) {
            Ok(opened) => opened,
            Err(e) => {
                lock.unregister(&ring)?;
                return Err(e);
            }
        };
        let way = opened.writer.choice().to_string();
        let state = Rc::new(RefCell::new(State::new(opened, options.seal_after_us)));
        Ok(Log { io: ring, private, lock: Some(lock), state, recovery, way })
    }

    /// What recovery found.
    pub fn recovery(&self) -> &RecoveryStats {
        &self.recovery
    }

    /// How records are made durable, and why so.
    pub fn way(&self) -> &str {
        &self.way
    }

    /// Copies a record and queues it; returns its sequence. It leaves with the next submit or reap.
    ///
    /// # Errors
    /// [`Error::Stalled`] when too much is queued, or too many events weren't reaped; [`Error::TooLarge`];
    /// [`Error::Poisoned`]; no memory. Nothing was taken then.
    pub fn append(&mut self, data: &[u8], user_data: u64) -> Result<u64> {
        let sequence = self.state.borrow_mut().append(data, user_data)?;
        self.kick();
        Ok(sequence)
    }

    /// Sends off what is queued.
    ///
    /// # Errors
    /// What the driver says when it has failed as a whole.
    pub fn submit(&mut self) -> Result<()> {
        let driven = self.drive(0, Some(0));
        self.io.with_reactor(|reactor| reactor.signal_leftovers());
        driven
    }

    /// Sends off what is queued, waits until `min_complete` items are ready over all objects of the ring, for at most
    /// `timeout_ms` (-1: for ever, 0: not at all), and hands out this log's events. On a ring of its own it doesn't
    /// wait for events that can't come.
    ///
    /// # Errors
    /// `-EINTR` when a signal came and there is nothing to hand out, else what the driver says when it has failed as
    /// a whole.
    pub fn reap(&mut self, out: &mut [Event], min_complete: usize, timeout_ms: i32) -> Result<usize> {
        let deadline = match timeout_ms {
            ..-1 => return Err(Error::invalid("timeout_ms: -1 waits for ever, 0 doesn't wait")),
            -1 => None,
            ms => Some(self.io.now_us().saturating_add(ms as u64 * 1000)),
        };
        let driven = self.drive(min_complete, deadline);
        let count = self.state.borrow_mut().take(out);
        self.io.with_reactor(|reactor| {
            reactor.reaped(count);
            reactor.signal_leftovers();
        });
        match driven {
            Err(e) if count == 0 => Err(e),
            _ => Ok(count),
        }
    }

    /// The one descriptor to watch, the same for every object on the ring.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on a ring that can't have one, what the system says.
    pub fn fd(&mut self) -> Result<RawFd> {
        self.io.with_reactor(|reactor| reactor.notifier())
    }

    /// The records up to this sequence aren't needed any more. Whole segments of them are used again or removed once
    /// the next segment's link, which says so, is durable.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a sequence that wasn't given yet.
    pub fn release(&mut self, up_to_sequence: u64) -> Result<()> {
        self.state.borrow_mut().release(up_to_sequence)
    }

    /// Writes what is queued, waits for what is under way, seals the log and gives its lock back. Events that weren't
    /// reaped are dropped.
    ///
    /// # Errors
    /// [`Error::Indeterminate`] when a record that was still under way may or may not be durable; what the driver says
    /// when it has failed as a whole. The log is closed all the same.
    pub fn close(mut self) -> Result<()> {
        self.shut()
    }

    /// For a log whose owner thread has ended: nothing is waited for, and what the kernel may still use is kept.
    pub fn abandon(mut self) {
        if let Some(lock) = self.lock.take() {
            // The ring may still write: the lock is given back when the process ends.
            std::mem::forget(lock);
        }
    }

    fn kick(&self) {
        if self.state.borrow_mut().begin_leading() {
            self.io.spawn(lead::lead(self.io.clone(), self.state.clone()));
        }
    }

    fn drive(&mut self, min_complete: usize, deadline: Option<u64>) -> Result<()> {
        let mut wait = Wait::No;
        loop {
            self.kick();
            match self.io.turn(wait) {
                Err(e) if wait == Wait::No && e.errno() == Some(libc::EINTR) => {}
                other => other?,
            }
            let (ready, nudged, more) =
                self.io.with_reactor(|r| (r.ready(), r.take_nudge(), r.driver().more()));
            let over = nudged || ready >= min_complete || (self.private && !self.state.borrow().is_busy());
            if over && !more {
                return Ok(());
            }
            let now = self.io.now_us();
            wait = match deadline {
                // What the tasks have just queued leaves before this returns.
                _ if over => return self.io.turn(Wait::No),
                None => Wait::Forever,
                Some(at) if at <= now => return if more { self.io.turn(Wait::No) } else { Ok(()) },
                Some(at) => Wait::Us(at - now),
            };
        }
    }

    fn shut(&mut self) -> Result<()> {
        let Some(mut lock) = self.lock.take() else { return Ok(()) };
        let was_sound = self.state.borrow().poison().is_none();
        let ended = self.finish();
        let unreaped = self.state.borrow_mut().drop_events();
        self.io.with_reactor(|reactor| reactor.reaped(unreaped));
        if let Err(e) = ended {
            // Something may still be under way in the ring: its file stays locked.
            std::mem::forget(lock);
            return Err(e);
        }
        lock.unregister(&self.io)?;
        drop(lock);
        match self.state.borrow().poison() {
            Some(e) if was_sound => {
                let text = format!("the log failed while it was closed: {e}");
                Err(Error::Indeterminate(text.into()))
            }
            _ => Ok(()),
        }
    }

    /// Waits for all tasks to end, and seals.
    fn finish(&mut self) -> Result<()> {
        let timer = self.state.borrow_mut().begin_closing();
        if let Some(timer) = timer {
            self.io.with_reactor(|reactor| reactor.cancel(timer));
        }
        loop {
            self.kick();
            if !self.state.borrow().has_tasks() {
                break;
            }
            match self.io.turn(Wait::Forever) {
                Err(e) if e.errno() != Some(libc::EINTR) => return Err(e),
                _ => {}
            }
        }
        let sealing = self.state.borrow_mut().begin_seal();
        if sealing {
            self.io.block_on(lead::lead(self.io.clone(), self.state.clone()))?;
        }
        Ok(())
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        if self.lock.is_some()
            && let Err(e) = self.shut()
        {
            log::error!("a log that was dropped could not be closed: {e}");
        }
    }
}

/// Replays the log in the directory `path` without opening it: nothing is changed. `salvage` goes on behind damage.
/// Blocks.
///
/// # Errors
/// Those of recovery, the error of `deliver`, [`Error::Busy`] when the log is open.
pub fn replay(path: &Path, salvage: bool, deliver: &mut Deliver<'_>) -> Result<RecoveryStats> {
    let io = Io::inline();
    let mode = if salvage { Mode::Salvage } else { Mode::ReadOnly };
    io.block_on(async {
        let dir = io.open_dir(path, false)?;
        let _lock = Lock::take_to_read(&io, &dir, path).await?;
        recover(&io, &dir, mode, deliver).await.map(|recovered| recovered.stats)
    })?
}
