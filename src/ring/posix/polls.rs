//! The descriptors that the posix driver watches: its epoll, which is also what a host watches.
//!
//! Every poll has a duplicate of its descriptor: two polls of one file don't meet in epoll's table, and, as with
//! io_uring, closing the descriptor doesn't end the poll.
//!
//! Oneshot polls are level-triggered and leave the epoll when they fire; multishot ones are edge-triggered.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;

use super::files::borrow;
use crate::base::map::Map;
use crate::base::{Error, Result};
use crate::ring::completion::Token;

/// Bits that poll(2) knows; the rest of epoll's flags is not the caller's to set.
const POLL_BITS: u32 = 0x3fff;
/// Events taken at a time.
const BATCH: usize = 64;

/// What the driver itself watches. No token has these numbers, since their generation is 0.
pub(super) mod source {
    /// Results of the threads, and the driver's own signals.
    pub(in crate::ring::posix) const RESULTS: u64 = 0;
    /// The reactor's mailbox.
    pub(in crate::ring::posix) const MAILBOX: u64 = 1;
    /// The timerfd.
    pub(in crate::ring::posix) const TIMER: u64 = 2;
}

/// How a poll began.
pub(super) enum Armed {
    /// It is watched.
    Watching,
    /// The file is always ready; it is not watched.
    Ready(u32),
    /// `-errno`.
    Refused(i32),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Polls {
    epoll: OwnedFd,
    watched: Map<Token, OwnedFd>,
}

impl Polls {
    pub(super) fn new() -> Result<Self> {
        let epoll =
            epoll::create(CreateFlags::CLOEXEC).map_err(|e| Error::from(e).context("making an epoll"))?;
        Ok(Polls { epoll, watched: Map::default() })
    }

    pub(super) fn raw_fd(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.watched.is_empty()
    }

    /// Watches something of the driver's own, level-triggered.
    pub(super) fn watch(&self, fd: impl AsFd, source: u64) -> Result<()> {
        epoll::add(&self.epoll, fd, EventData::new_u64(source), EventFlags::IN)
            .map_err(|e| Error::from(e).context("adding to the ring's epoll"))
    }

    /// Starts a poll.
    pub(super) fn arm(&mut self, token: Token, fd: RawFd, events: u32, multishot: bool) -> Armed {
        let Some(fd) = borrow(fd) else { return Armed::Refused(-libc::EBADF) };
        let copy = match rustix::io::fcntl_dupfd_cloexec(fd, 0) {
            Ok(copy) => copy,
            Err(e) => return Armed::Refused(-e.raw_os_error()),
        };
        let mode = if multishot { EventFlags::ET } else { EventFlags::ONESHOT };
        let flags = EventFlags::from_bits_retain(events & POLL_BITS) | mode;
        match epoll::add(&self.epoll, &copy, EventData::new_u64(token.to_bits()), flags) {
            Ok(()) => {
                self.watched.insert(token, copy);
                Armed::Watching
            }
            // A plain file: always ready, as the kernel's own poll says.
            Err(Errno::PERM) => Armed::Ready(
                events & (libc::POLLIN | libc::POLLOUT | libc::POLLRDNORM | libc::POLLWRNORM) as u32,
            ),
            Err(e) => Armed::Refused(-e.raw_os_error()),
        }
    }

    /// Ends a poll; false when it isn't watched.
    pub(super) fn remove(&mut self, token: Token) -> bool {
        let Some(copy) = self.watched.remove(&token) else { return false };
        // Others may have the same open file, so closing the duplicate alone would not take it out.
        let _ = epoll::delete(&self.epoll, &copy);
        true
    }

    /// Waits at most `timeout_us` (for ever: `None`) and hands out (source or token, events); true when there may be
    /// more.
    pub(super) fn wait(&self, timeout_us: Option<u64>, events: &mut Vec<(u64, u32)>) -> Result<bool> {
        let timeout = timeout_us.map(|us| {
            // In whole milliseconds, rounded up; a longest wait of a day keeps it in the old system call's range.
            let ms = us.div_ceil(1000).min(86_400_000);
            Timespec { tv_sec: (ms / 1000) as i64, tv_nsec: (ms % 1000 * 1_000_000) as i64 }
        });
        let mut space = [const { MaybeUninit::<Event>::uninit() }; BATCH];
        let (found, _) = epoll::wait(&self.epoll, &mut space, timeout.as_ref())?;
        events.extend(found.iter().map(|event| (event.data.u64(), { event.flags }.bits())));
        Ok(found.len() == BATCH)
    }
}
