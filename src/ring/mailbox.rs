//! How another thread finishes an operation of a reactor, or wakes it.
//!
//! A lock-free list and an eventfd of its own. The owner says that it is *asleep*, looks once more, and enters; a
//! sender writes to the eventfd only when the owner is asleep, so a busy loop costs senders one exchange. What was
//! rejected: the ring's registered eventfd (writing it doesn't wake `io_uring_enter`), MSG_RING (uring only), and
//! a lock around a vector (a sender that the scheduler stops while it holds the lock would stop the owner too).
//!
//! Invariants: a letter is taken exactly once, letters of one sender in their order; after
//! [`Mailbox::fall_asleep`] returned true, the next letter makes the eventfd readable.

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;

use super::completion::Token;
use crate::base::list::List;
use crate::base::sync::atomic::{AtomicBool, Ordering, fence};
use crate::base::{Error, Result};

/// What a sender leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Letter {
    /// The `External` operation that it finishes.
    pub token: Token,
    /// Its result.
    pub result: i32,
}

/// The box; shared by the owner and all who may write to it.
#[derive(Debug)]
pub struct Mailbox {
    letters: List<Letter>,
    /// Whoever waits is to return; there is no count of it.
    nudged: AtomicBool,
    asleep: AtomicBool,
    eventfd: OwnedFd,
    /// Of an owner that can't watch the eventfd yet.
    bell: OnceLock<OwnedFd>,
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
        Ok(Mailbox {
            letters: List::new(),
            nudged: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            eventfd,
            bell: OnceLock::new(),
        })
    }

    /// The descriptor that the owner watches.
    pub fn raw_fd(&self) -> RawFd {
        self.eventfd.as_fd().as_raw_fd()
    }

    /// Leaves a letter, and wakes the owner if it sleeps. Any thread.
    pub fn send(&self, letter: Letter) {
        self.letters.push(letter);
        self.ring_if_asleep();
    }

    /// Wants whoever waits for this ring to return. Any thread; many at once are one.
    pub fn nudge(&self) {
        self.nudged.store(true, Ordering::Release);
        self.ring_if_asleep();
    }

    /// Whether there was a nudge since the last question. The owner alone.
    pub fn take_nudge(&self) -> bool {
        self.nudged.load(Ordering::Relaxed) && self.nudged.swap(false, Ordering::Acquire)
    }

    fn ring_if_asleep(&self) {
        // Pairs with the fence of `fall_asleep`: either the owner sees the letter, or this sees it asleep.
        fence(Ordering::SeqCst);
        if self.asleep.swap(false, Ordering::AcqRel) {
            self.ring();
        }
    }

    /// Wakes the owner whether it sleeps or not, and makes its descriptor readable. Any thread.
    pub fn ring(&self) {
        // An eventfd refuses only when its counter is full, and then it is readable already.
        for eventfd in std::iter::once(&self.eventfd).chain(self.bell.get()) {
            let _ = rustix::io::write(eventfd, &1u64.to_ne_bytes());
        }
    }

    /// From now on this eventfd is rung too: a host watches it, and the owner can't watch the mailbox's own before
    /// its first turn.
    pub fn ring_also(&self, eventfd: OwnedFd) {
        // A second one would be of the same ring, and there is nothing to add.
        let _ = self.bell.set(eventfd);
    }

    /// Whether somebody rang; makes the descriptor unreadable again, until the next ring. The owner alone.
    pub fn take_ring(&self) -> bool {
        // Nothing to read means that nobody rang.
        rustix::io::read(&self.eventfd, &mut [0u8; 8]).is_ok()
    }

    /// The owner is about to sleep. False when there is a letter or a nudge: then it must not.
    pub fn fall_asleep(&self) -> bool {
        self.asleep.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        let empty = self.letters.is_empty() && !self.nudged.load(Ordering::Acquire);
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
        self.letters.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn letter(result: i32) -> Letter {
        Letter { token: Token::NONE, result }
    }

    #[test]
    fn letters_come_out_once_and_in_order() {
        let mailbox = Mailbox::new().unwrap();
        (0..5).for_each(|i| mailbox.send(letter(i)));
        assert!(!mailbox.fall_asleep());
        assert_eq!(mailbox.take(), (0..5).map(letter).collect::<Vec<_>>());
        assert!(mailbox.take().is_empty());
        assert!(mailbox.fall_asleep());
        mailbox.nudge();
        assert!(!mailbox.fall_asleep());
        assert!(mailbox.take_nudge() && !mailbox.take_nudge());
        assert!(mailbox.fall_asleep());
    }

    #[test]
    fn senders_on_many_threads_lose_nothing_and_keep_their_order() {
        let mailbox = Arc::new(Mailbox::new().unwrap());
        let senders: Vec<_> = (0..4)
            .map(|sender| {
                let mailbox = mailbox.clone();
                crate::base::sync::spawn("sender", move || {
                    (0..1000).for_each(|i| mailbox.send(letter(sender * 1000 + i)));
                })
                .unwrap()
            })
            .collect();
        let mut next = [0, 1000, 2000, 3000];
        let mut count = 0;
        while count < 4000 {
            for Letter { result, .. } in mailbox.take() {
                let place = &mut next[result as usize / 1000];
                assert_eq!(*place, result);
                *place += 1;
                count += 1;
            }
        }
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        assert!(mailbox.take().is_empty());
    }
}
