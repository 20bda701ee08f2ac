//! The seam: what the reactor asks of each of the four ways an operation can happen.
//!
//! A driver is chosen at run time and dispatched by `match`; nothing above is generic over it (measured: no
//! difference). All drivers keep the same promises, which the conformance suite checks on each of them:
//!
//! - Every operation that was pushed has exactly one last completion, unless the driver fails as a whole.
//! - A chain is taken whole or not at all. A soft link that breaks, by an error or by a short transfer, gives
//!   `-ECANCELED` to every operation after it up to the chain's end; a hard link holds.
//! - Order between chains is unspecified.
//! - A short read or write is reported as it is; finishing it is the reactor's work.

use std::os::fd::RawFd;

use super::completion::{Completion, Token};
use super::inline::Inline;
use super::op::{Link, Op};
use super::posix::Posix;
use super::sim::Sim;
use super::uring::Uring;
use crate::base::Result;

/// An operation on its way to the driver. The reactor keeps `op` at this address until the last completion.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// Its name.
    pub token: Token,
    /// What to do.
    pub op: &'a Op,
    /// Bytes of a read or write that are already done: go on behind them.
    pub done: usize,
    /// How it holds back the next entry.
    pub link: Link,
}

/// How long [`Driver::enter`] may wait for a first completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    No,
    /// At most so many microseconds.
    Us(u64),
    /// Until there is one.
    Forever,
}

/// Which driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// io_uring.
    Uring,
    /// Threads and epoll.
    Posix,
    /// At once, in the calling thread.
    Inline,
    /// The simulator.
    Sim,
}

/// One of the four ways.
#[derive(Debug)]
pub enum Driver {
    /// io_uring.
    Uring(Box<Uring>),
    /// Threads and epoll.
    Posix(Box<Posix>),
    /// At once, in the calling thread.
    Inline(Inline),
    /// The simulator.
    Sim(Sim),
}

macro_rules! each {
    ($self:expr, $driver:ident => $body:expr) => {
        match $self {
            Driver::Uring($driver) => $body,
            Driver::Posix($driver) => $body,
            Driver::Inline($driver) => $body,
            Driver::Sim($driver) => $body,
        }
    };
}

impl Driver {
    /// Which one it is.
    pub fn kind(&self) -> Kind {
        match self {
            Driver::Uring(_) => Kind::Uring,
            Driver::Posix(_) => Kind::Posix,
            Driver::Inline(_) => Kind::Inline,
            Driver::Sim(_) => Kind::Sim,
        }
    }

    /// Makes the calling thread the owner. Called once, before the first `push`, `enter` or `cancel`.
    pub fn bind(&mut self) -> Result<()> {
        each!(self, driver => driver.bind())
    }

    /// The longest chain that fits when nothing else is queued.
    pub fn capacity(&self) -> usize {
        each!(self, driver => driver.capacity())
    }

    /// Takes a whole chain; false when there is no room for all of it now. Nothing starts before `enter`.
    #[inline]
    pub fn push(&mut self, chain: &[Entry<'_>]) -> bool {
        each!(self, driver => driver.push(chain))
    }

    /// Starts everything that was pushed, and waits for a completion as `wait` says. Returns early when
    /// `next` has something. `-EINTR` when a signal interrupted the wait. Another error means that the driver has
    /// failed as a whole (the owner thread has ended, the simulated machine has crashed).
    pub fn enter(&mut self, wait: Wait) -> Result<()> {
        each!(self, driver => driver.enter(wait))
    }

    /// The next completion, without a system call where there is one without.
    #[inline]
    pub fn next(&mut self) -> Option<Completion> {
        each!(self, driver => driver.next())
    }

    /// Whether `enter(Wait::No)` could bring completions forth that `next` doesn't have yet, or would submit
    /// something: entries pushed and not entered, deferred task work, an overflowed queue.
    #[inline]
    pub fn more(&self) -> bool {
        each!(self, driver => driver.more())
    }

    /// Asks an operation to end early. It still completes: with `-ECANCELED`, or with its result when it was too
    /// late (a running file operation). Unknown tokens are ignored.
    pub fn cancel(&mut self, token: Token) {
        each!(self, driver => driver.cancel(token));
    }

    /// The one descriptor to watch, made at the first call: readable from the moment a completion could be had.
    pub fn notifier(&mut self) -> Result<RawFd> {
        each!(self, driver => driver.notifier())
    }

    /// A turn begins (called first in every turn): makes the notifier unreadable, if there is one. What has happened
    /// before it is found in this turn, what happens after it makes the notifier readable anew.
    pub fn clear_notifier(&mut self) {
        each!(self, driver => driver.clear_notifier());
    }

    /// Makes the notifier readable, as an edge too, if there is one.
    pub fn signal_notifier(&mut self) {
        each!(self, driver => driver.signal_notifier());
    }

    /// Watches the mailbox's eventfd from now on, so that a write to it ends an `enter` that waits and makes the
    /// notifier readable. The driver reads the eventfd itself. `fd` stays open as long as the driver.
    pub fn watch_mailbox(&mut self, fd: RawFd) -> Result<()> {
        each!(self, driver => driver.watch_mailbox(fd))
    }

    /// Makes a table of `count` file slots, all empty.
    pub fn make_slots(&mut self, count: u32) -> Result<()> {
        each!(self, driver => driver.make_slots(count))
    }

    /// Puts a duplicate of a descriptor into a slot, or clears it. What is in flight on the old file goes on.
    pub fn set_slot(&mut self, slot: u32, fd: Option<RawFd>) -> Result<()> {
        each!(self, driver => driver.set_slot(slot, fd))
    }

    /// Makes a table of registered buffers (address, length); an address of 0 leaves a hole. Errors name the
    /// buffer, its address, its length and what it missed.
    pub fn register_buffers(&mut self, buffers: &[(usize, usize)]) -> Result<()> {
        each!(self, driver => driver.register_buffers(buffers))
    }

    /// Replaces one registered buffer; an address of 0 unregisters it. The reactor has seen to it that nothing is
    /// in flight on the old one.
    pub fn set_buffer(&mut self, index: u16, buffer: (usize, usize)) -> Result<()> {
        each!(self, driver => driver.set_buffer(index, buffer))
    }

    /// Whether this driver can do an operation at all; asked before it is queued.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::base::Error::Unsupported) with the reason.
    pub fn check(&self, op: &Op) -> Result<()> {
        match self {
            Driver::Uring(driver) => driver.check(op),
            _ => Ok(()),
        }
    }

    /// Whether other threads can wake this driver ([`Driver::watch_mailbox`] would work).
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::base::Error::Unsupported) with the reason.
    pub fn can_watch(&self) -> Result<()> {
        match self {
            Driver::Uring(driver) => driver.can_watch(),
            _ => Ok(()),
        }
    }

    /// Whether completions come only while somebody enters (a polled ring with operations under way).
    pub fn must_poll(&self) -> bool {
        match self {
            Driver::Uring(driver) => driver.must_poll(),
            _ => false,
        }
    }

    /// Microseconds of a clock that never goes back: the system's monotonic one, or the simulator's.
    pub fn now_us(&self) -> u64 {
        each!(self, driver => driver.now_us())
    }

    /// A number that nobody can foretell; the simulator's follows from its seed.
    pub fn random(&mut self) -> u64 {
        each!(self, driver => driver.random())
    }

    /// Bytes of memory that count against the memlock limit.
    pub fn pinned_bytes(&self) -> u64 {
        each!(self, driver => driver.pinned_bytes())
    }
}
