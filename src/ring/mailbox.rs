//! How another thread finishes an operation of a reactor, or wakes it.
//!
//! A lock-free list and an eventfd of its own. The owner says that it is *asleep*, looks once more, and enters; a
//! sender writes to the eventfd only when the owner is asleep, so a busy loop costs senders one exchange. What was
//! rejected: the ring's registered eventfd (writing it doesn't wake `io_uring_enter`), and MSG_RING (uring only).

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};

use super::completion::Token;
use crate::base::sync::Mutex;
use crate::base::sync::atomic::{AtomicBool, Ordering, fence};
use crate::base::{Error, Result};

/// What a sender leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Letter {
    /// The `External` operation that it finishes; [`Token::NONE`] for a mere wake-up.
    pub token: Token,
    /// Its result.
    pub result: i32,
}

/// The box; shared by the reactor and all who may write to it.
#[derive(Debug)]
pub struct Mailbox {
    letters: Mutex<Vec<Letter>>,
    asleep: AtomicBool,
    waiting: AtomicBool,
    eventfd: OwnedFd,
}

impl Mailbox {
    /// An empty one.
    ///
    /// # Errors
    /// When the system has no descriptor left.
    pub fn new() -> Result<Self> {
        let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
        let eventfd =
            rustix::event::eventfd(0, flags).map_err(|e| Error::from(e).context("making an eventfd"))?;
        let flag = || AtomicBool::new(false);
        Ok(Mailbox { letters: Mutex::new(Vec::new()), asleep: flag(), waiting: flag(), eventfd })
    }

    /// The descriptor that the driver watches.
    pub fn raw_fd(&self) -> RawFd {
        self.eventfd.as_fd().as_raw_fd()
    }

    /// Leaves a letter, and wakes the owner if it sleeps. Any thread.
    pub fn send(&self, letter: Letter) {
        self.letters.lock().push(letter);
        self.waiting.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        if self.asleep.swap(false, Ordering::AcqRel) {
            self.ring();
        }
    }

    /// Wakes the owner whether it sleeps or not, and makes its descriptor readable. Any thread.
    pub fn ring(&self) {
        // An eventfd refuses only when its counter is full, and then it is readable already.
        let _ = rustix::io::write(&self.eventfd, &1u64.to_ne_bytes());
    }

    /// The owner is about to sleep. False when there is a letter: then it must not.
    pub fn fall_asleep(&self) -> bool {
        self.asleep.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        let empty = !self.waiting.load(Ordering::Acquire);
        if !empty {
            self.asleep.store(false, Ordering::Release);
        }
        empty
    }

    /// The owner is awake.
    pub fn wake_up(&self) {
        self.asleep.store(false, Ordering::Release);
    }

    /// Takes the letters, oldest first.
    pub fn take(&self) -> Vec<Letter> {
        if !self.waiting.swap(false, Ordering::AcqRel) {
            return Vec::new();
        }
        std::mem::take(&mut *self.letters.lock())
    }
}
