//! The descriptor for the host's loop, and the watch on the mailbox.
//!
//! The descriptor is a registered eventfd, never the ring's own: a ring with DEFER_TASKRUN doesn't wake an epoll that
//! watches it. It is read first in a turn, and then the ring is entered and drained; read afterwards, a completion
//! that came in between would be stranded. Writing it doesn't wake a thread inside the ring, so the mailbox has an
//! eventfd of its own, watched by a multishot poll.
//!
//! Some kernels (6.18 among them) announce only the first completion that was brought about by a write to an eventfd,
//! and none of the later ones: a signal that is put off, because one eventfd may not wake another at once, is marked as
//! pending for ever. It concerns DEFER_TASKRUN alone, where the writer's thread announces. So the registration is made
//! anew after a completion that may have come this way (of the mailbox's watch, of a poll, of reading an eventfd), and
//! the drain goes on after that, so that what came meanwhile is found by looking.

use std::os::fd::{AsFd, AsRawFd, RawFd};

use io_uring::{opcode, types};
use rustix::event::EventfdFlags;

use super::super::posix::files;
use super::{MAILBOX, Uring};
use crate::base::{Error, Result};

impl Uring {
    /// The descriptor to watch.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with `IOPOLL`, whose completions nobody announces; else what the system says.
    pub fn notifier(&mut self) -> Result<RawFd> {
        self.not_polled("a descriptor to watch")?;
        if let Some(eventfd) = &self.notifier {
            return Ok(eventfd.as_raw_fd());
        }
        let eventfd = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| Error::from(e).context("making an eventfd"))?;
        let registered = self.ring.submitter().register_eventfd(eventfd.as_raw_fd());
        registered.map_err(|e| self.register_error("registering an eventfd", &e))?;
        let fd = eventfd.as_raw_fd();
        self.notifier = Some(eventfd);
        self.wary = self.deferred;
        Ok(fd)
    }

    /// Makes it unreadable.
    pub fn clear_notifier(&mut self) {
        if let Some(eventfd) = &self.notifier {
            // Nothing to read is just as clear.
            let _ = rustix::io::read(eventfd, &mut [0u8; 8]);
        }
    }

    /// Makes it readable, as an edge too.
    pub fn signal_notifier(&mut self) {
        if let Some(eventfd) = &self.notifier {
            // A full counter is readable already.
            let _ = rustix::io::write(eventfd.as_fd(), &1u64.to_ne_bytes());
        }
    }

    /// Watches the mailbox's eventfd from the next `enter` on.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with `IOPOLL`.
    pub fn watch_mailbox(&mut self, fd: RawFd) -> Result<()> {
        self.can_watch()?;
        self.mailbox = Some(fd);
        self.poll_mailbox(fd);
        Ok(())
    }

    /// Whether other threads can wake this ring.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with `IOPOLL`.
    pub fn can_watch(&self) -> Result<()> {
        self.not_polled("waking from another thread")
    }

    /// Registers the descriptor anew, when a completion may have been brought about by a write to an eventfd; see the
    /// module.
    #[cold]
    pub(super) fn renew_notifier(&mut self) -> Result<()> {
        if let Some(eventfd) = &self.notifier {
            let submitter = self.ring.submitter();
            // It isn't registered when the last renewal failed half-way.
            let _ = submitter.unregister_eventfd();
            let renewed = submitter.register_eventfd(eventfd.as_raw_fd());
            renewed.map_err(|e| self.register_error("registering an eventfd anew", &e))?;
        }
        self.renewal_due = false;
        Ok(())
    }

    fn poll_mailbox(&mut self, fd: RawFd) {
        let poll = opcode::PollAdd::new(types::Fd(fd), libc::POLLIN as u32).multi(true);
        self.chores.push(poll.build().user_data(MAILBOX));
    }

    /// The mailbox was written to, or the watch on it ended.
    pub(super) fn mailbox_event(&mut self, result: i32, more: bool) {
        let Some(fd) = self.mailbox else { return };
        self.renewal_due |= self.wary;
        if let (true, Some(fd)) = (result >= 0, files::borrow(fd)) {
            // It may have been read already for an earlier completion.
            let _ = rustix::io::read(fd, &mut [0u8; 8]);
        }
        // A multishot poll ends when the completion queue is full; an error would only come again.
        if !more && result >= 0 {
            self.poll_mailbox(fd);
        }
    }
}
