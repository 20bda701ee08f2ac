//! The io_uring driver.
//!
//! | file | its one purpose |
//! | --- | --- |
//! | `setup` | making the ring: flags that must be had, flags that are wanted, too little locked memory |
//! | `encode` | an operation as a submission queue entry |
//! | `enter` | submitting and waiting, in one system call |
//! | `register` | file slots, registered buffers, restrictions, the ring's own descriptor |
//! | `notify` | the descriptor for the host's loop, and the watch on the mailbox |
//! | [`passed`] | a ring that is handed from thread to thread |
//! | `limits` | the sentences about locked memory |
//! | `trial` | tiny rings, made to see what the kernel allows |
//!
//! Invariants:
//!
//! - Memory and descriptors of an operation stay valid until its last completion: the reactor keeps them, nothing
//!   here owns any of it.
//! - The ring is made disabled and enabled by [`Uring::bind`] on its owner, so that it may be opened on one thread
//!   and used on another; from then on the kernel refuses other threads (`SINGLE_ISSUER`).
//! - A chain is pushed whole or not at all, and every entry is written whole, so that nothing of an earlier use of
//!   its place (a user value, a flag) can come back.
//! - Entries of the driver's own (cancels, the watch on the mailbox) have names of generation 0, which no
//!   operation ever has; their completions end here.
//! - Nothing allocates on the way of an operation, and one system call submits and waits.
//!
//! What was rejected: reaping from the queue in batches into a list of our own (one copy more for no gain), and
//! publishing entries to an `SQPOLL` thread as they are pushed (an operation must not start before `enter`).
#![allow(unsafe_code, reason = "the kernel's queues are shared memory, and entries carry raw addresses")]

mod encode;
mod enter;
mod limits;
mod notify;
pub mod passed;
mod register;
mod setup;
#[cfg(test)]
mod tests;
pub(super) mod trial;

use std::fmt;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use super::completion::{Completion, Token};
use super::driver::Entry;
use super::op::Op;
use super::options::Allowed;
use super::posix::files;
use crate::base::{Error, Result};
use io_uring::{IoUring, cqueue, squeue};

use enter::Owner;
pub use setup::Refusal;

/// The name of a cancel request.
const CANCEL: u64 = 1;
/// The name of the poll on the mailbox.
const MAILBOX: u64 = 2;
/// The name under which the kernel tells that it has let a replaced buffer go.
const BUFFER_GONE: u64 = 3;

/// What an operation that a write to an eventfd ends may give: 8 bytes read, or the events of a poll. Small transfers
/// give the same; for them the renewal is a needless system call.
const EVENTFD_RESULTS: std::ops::Range<i32> = 1..128;

/// The io_uring driver; see the module.
pub struct Uring {
    ring: IoUring,
    sqpoll: bool,
    iopoll: bool,
    /// Its descriptor, or its number among the owner's registered rings.
    door: enter::Door,
    /// The thread that bound it.
    owner: Option<Owner>,
    /// With `SQPOLL`: entries that its thread must not see before `enter`.
    staged: Vec<squeue::Entry>,
    /// Entries of the driver's own that found no room yet.
    chores: Vec<squeue::Entry>,
    /// Room that a refused chain needed.
    refused: usize,
    /// Operations under way; counted with `IOPOLL` alone, where somebody has to poll for them.
    polled: usize,
    /// How often in a row the kernel had no memory for requests.
    starved: u32,
    /// How often the completion queue overflowed into the kernel's own list.
    overflows: u64,
    notifier: Option<OwnedFd>,
    /// Completion work is deferred to the owner, and announced by whoever brought it about.
    deferred: bool,
    /// The notifier may go deaf; see `notify`.
    wary: bool,
    /// It may have gone deaf: it is to be registered anew.
    renewal_due: bool,
    mailbox: Option<RawFd>,
    /// Lengths of the registered buffers; 0 is a hole.
    buffers: Vec<usize>,
    /// Replaced buffers that the kernel may still use.
    releasing: usize,
    /// What a restricted ring accepts.
    allowed: Option<Allowed>,
}

impl fmt::Debug for Uring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Uring").field("fd", &self.ring.as_raw_fd()).finish_non_exhaustive()
    }
}

impl Uring {
    /// The ring's own descriptor, for `attach_to`. Nobody else reads, polls or closes it.
    pub fn ring_fd(&self) -> RawFd {
        self.ring.as_raw_fd()
    }

    /// Entries of the submission queue.
    pub fn capacity(&self) -> usize {
        self.ring.params().sq_entries() as usize
    }

    /// Takes a whole chain, or nothing when there is no room for all of it.
    #[inline]
    pub fn push(&mut self, chain: &[Entry<'_>]) -> bool {
        let mut queue = self.ring.submission();
        if queue.capacity() - queue.len() - self.staged.len() < chain.len() {
            self.refused = chain.len();
            return false;
        }
        let last = chain.len().saturating_sub(1);
        for (index, entry) in chain.iter().enumerate() {
            // The last link is cut whatever it says, or it would tie in the chain pushed next.
            let entry = encode::entry(entry, index < last, &self.buffers, self.allowed);
            if self.sqpoll {
                self.staged.push(entry);
                continue;
            }
            // SAFETY: the reactor keeps the operation's memory and descriptor until its last completion.
            let pushed = unsafe { queue.push(&entry) };
            debug_assert!(pushed.is_ok(), "the room was just counted");
        }
        if self.iopoll {
            self.polled += chain.len();
        }
        true
    }

    /// The next completion; no system call.
    #[inline]
    pub fn next(&mut self) -> Option<Completion> {
        loop {
            let entry = self.ring.completion().next()?;
            let bits = entry.user_data();
            if bits >> 32 == 0 {
                self.own(bits, &entry);
                continue;
            }
            let flags = entry.flags();
            let more = cqueue::more(flags);
            if self.iopoll && !more {
                self.polled -= 1;
            }
            let result = entry.result();
            if self.wary && EVENTFD_RESULTS.contains(&result) {
                self.renewal_due = true;
            }
            return Some(Completion {
                token: Token::from_bits(bits),
                result,
                more,
                buffer: cqueue::buffer_select(flags),
                notice: cqueue::notif(flags),
            });
        }
    }

    /// A completion of the driver's own.
    fn own(&mut self, bits: u64, entry: &cqueue::Entry) {
        match bits {
            MAILBOX => self.mailbox_event(entry.result(), cqueue::more(entry.flags())),
            BUFFER_GONE => self.releasing -= 1,
            // A cancel that came too late has nothing to tell: the operation itself completes.
            _ => {}
        }
    }

    /// Asks an operation to end early.
    pub fn cancel(&mut self, token: Token) {
        let entry = io_uring::opcode::AsyncCancel::new(token.to_bits()).build().user_data(CANCEL);
        self.chores.push(entry);
    }

    /// Whether this ring can do an operation at all.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for what a polled ring can't do.
    pub fn check(&self, op: &Op) -> Result<()> {
        let name = match op {
            Op::Fsync { .. } => "fsync",
            Op::Timeout { .. } | Op::LinkTimeout { .. } => "a timer",
            Op::Poll { .. } => "poll",
            Op::Nop | Op::Read { .. } | Op::Write { .. } | Op::CloseSlot { .. } | Op::External => {
                return Ok(());
            }
        };
        self.not_polled(name)
    }

    fn not_polled(&self, what: &str) -> Result<()> {
        if self.iopoll {
            let text = format!("{what}: not on a ring with IOPOLL; use a ring of its own without that flag");
            return Err(Error::Unsupported(text.into()));
        }
        Ok(())
    }

    /// How often the completion queue was full and completions waited in the kernel; none is lost by it.
    pub fn overflows(&self) -> u64 {
        self.overflows
    }

    /// Replaced registered buffers that the kernel hasn't let go yet.
    pub fn buffers_releasing(&self) -> usize {
        self.releasing
    }

    /// The monotonic clock.
    pub fn now_us(&self) -> u64 {
        files::now_us()
    }

    /// From the system.
    pub fn random(&mut self) -> u64 {
        files::random()
    }

    /// The queues and the registered buffers, in whole pages.
    pub fn pinned_bytes(&self) -> u64 {
        let params = self.ring.params();
        let queues = limits::ring_bytes(params.sq_entries(), params.cq_entries());
        queues + self.buffers.iter().map(|len| limits::pages(*len as u64)).sum::<u64>()
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        // A registered descriptor keeps the ring alive until its thread ends; another thread's can't be given back
        // from here, and the end of that thread does it.
        if self.owner.is_some_and(Owner::is_me) {
            self.give_back_door();
        }
    }
}
