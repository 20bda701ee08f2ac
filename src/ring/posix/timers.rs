//! The time-outs of the posix driver: an ordered set, and one timerfd set to the earliest.
//!
//! The timerfd makes the driver's epoll readable when a time-out is due, so a host that only watches the
//! descriptor sees it. What was rejected: the time-out argument of `epoll_wait` (milliseconds, and no use to such a
//! host), a heap with lazy removal (link time-outs that hardly ever fire would pile up in it).

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

use rustix::event::Timespec;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags};

use crate::base::map::Map;
use crate::base::{Error, Result};
use crate::ring::completion::Token;

/// See the module.
#[derive(Debug)]
pub(super) struct Timers {
    due: BTreeSet<(u64, Token)>,
    deadlines: Map<Token, u64>,
    timerfd: OwnedFd,
    armed: Option<u64>,
}

impl Timers {
    pub(super) fn new() -> Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timerfd = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)
            .map_err(|e| Error::from(e).context("making a timerfd"))?;
        Ok(Timers { due: BTreeSet::new(), deadlines: Map::default(), timerfd, armed: None })
    }

    pub(super) fn timerfd(&self) -> &OwnedFd {
        &self.timerfd
    }

    pub(super) fn is_empty(&self) -> bool {
        self.due.is_empty()
    }

    /// Adds a time-out.
    pub(super) fn insert(&mut self, token: Token, deadline_us: u64) {
        self.due.insert((deadline_us, token));
        self.deadlines.insert(token, deadline_us);
    }

    /// Takes a time-out away; false when it has fired or never was.
    pub(super) fn remove(&mut self, token: Token) -> bool {
        let deadline = self.deadlines.remove(&token);
        deadline.is_some_and(|deadline| self.due.remove(&(deadline, token)))
    }

    /// Takes one that is due.
    pub(super) fn expired(&mut self, now_us: u64) -> Option<Token> {
        let &(deadline, token) = self.due.first()?;
        if deadline > now_us {
            return None;
        }
        self.remove(token);
        Some(token)
    }

    /// Sets the timerfd to the earliest time-out, if that has changed.
    pub(super) fn arm(&mut self) {
        let earliest = self.due.first().map(|(deadline, _)| *deadline);
        if earliest == self.armed {
            return;
        }
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let value = earliest.map_or(zero, |us| Timespec {
            tv_sec: (us / 1_000_000) as i64,
            // All zero would mean never.
            tv_nsec: ((us % 1_000_000) * 1000).max(1) as i64,
        });
        let setting = Itimerspec { it_interval: zero, it_value: value };
        let set = rustix::time::timerfd_settime(&self.timerfd, TimerfdTimerFlags::ABSTIME, &setting);
        debug_assert!(set.is_ok(), "a valid time on our own timerfd: {set:?}");
        self.armed = earliest;
    }

    /// The timerfd has fired: makes it unreadable.
    pub(super) fn acknowledge(&mut self) {
        // Nothing to read means that it was set anew meanwhile.
        let _ = rustix::io::read(&self.timerfd, &mut [0u8; 8]);
        self.armed = None;
    }
}
