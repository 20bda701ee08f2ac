//! Submitting and waiting, in one system call.
//!
//! With DEFER_TASKRUN completions come forth only in a call with GETEVENTS on the owner's thread, so every call has
//! it. An overflowed completion queue is emptied into the ring by the same call.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use io_uring::IoUring;
use rustix::io::Errno;
use rustix::io_uring::{
    IoringEnterFlags, io_uring_enter, io_uring_enter_arg, io_uring_getevents_arg, io_uring_ptr,
};

use rustix::thread::Pid;

use super::super::driver::Wait;
use super::super::op::Timespec;
use super::Uring;
use crate::base::{Error, Result};

/// How often in a row the kernel may lack memory for requests before that is an error.
const STARVED_MAX: u32 = 10_000;
/// How often the driver looks whether the `SQPOLL` thread has made room.
const ROOM_TRIES: u32 = 10_000;

/// The next thread's number.
static NEXT: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The calling thread's number, never used again: the system's own thread numbers are, and asking for them is a
    /// system call.
    static ME: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
}

/// The thread that a ring belongs to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owner {
    number: u64,
    /// For messages.
    system: Pid,
}

impl Owner {
    /// The calling thread.
    pub(super) fn me() -> Self {
        Owner { number: ME.with(|me| *me), system: rustix::thread::gettid() }
    }

    /// Whether it is the calling thread.
    #[inline]
    pub(super) fn is_me(self) -> bool {
        // A thread that is ending can't ask any more; it is treated as another one.
        ME.try_with(|me| *me == self.number).unwrap_or(false)
    }
}

/// By which name the kernel is entered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Door {
    /// The descriptor, or the number of a registered one.
    pub(super) number: RawFd,
    /// Nothing, or `REGISTERED_RING`.
    pub(super) flags: IoringEnterFlags,
}

impl Door {
    /// By the ring's descriptor.
    pub(super) fn descriptor(ring: &IoUring) -> Self {
        Door { number: ring.as_raw_fd(), flags: IoringEnterFlags::empty() }
    }

    fn enter(self, submit: u32, wait: u32, flags: IoringEnterFlags, us: Option<u64>) -> Result<u32, Errno> {
        let flags = flags | self.flags;
        // SAFETY: the number is the ring's descriptor, open as long as the driver, or its number among the
        // registered rings of the calling thread, which `flags` says; it is never -1.
        let fd = unsafe { BorrowedFd::borrow_raw(self.number) };
        let Some(us) = us else {
            // SAFETY: entries that are submitted were pushed with memory that the reactor keeps.
            return unsafe { io_uring_enter(fd, submit, wait, flags) };
        };
        let time = Timespec::from_us(us);
        let arg = io_uring_getevents_arg {
            ts: io_uring_ptr::new((&raw const time).cast_mut().cast()),
            ..Default::default()
        };
        // SAFETY: as above; `time` lives until the call returns, and there is no signal mask.
        unsafe { io_uring_enter_arg(fd, submit, wait, flags | IoringEnterFlags::EXT_ARG, Some(&arg)) }
    }
}

impl Uring {
    /// Submits what was pushed, and waits as told for a first completion.
    ///
    /// # Errors
    /// `-EINTR` when a signal ended the wait; [`Error::WrongThread`] on a thread that isn't the owner; anything
    /// else is the ring's end.
    pub fn enter(&mut self, wait: Wait) -> Result<()> {
        self.count_overflow();
        if self.renewal_due {
            self.renew_notifier()?;
        }
        while !self.flush_chores() {
            // The queue is full: what is in it goes first.
            let before = self.ring.submission().len();
            self.submit(Wait::No)?;
            if !self.sqpoll && self.ring.submission().len() >= before {
                // The kernel takes nothing before completions are reaped; the caller comes again.
                return Ok(());
            }
        }
        self.submit(wait)
    }

    fn submit(&mut self, wait: Wait) -> Result<()> {
        let mut flags = IoringEnterFlags::GETEVENTS;
        if self.sqpoll {
            self.publish();
            match self.sqpoll_flags(wait)? {
                Some(more) => flags |= more,
                None => return Ok(()),
            }
        }
        let submit = self.ring.submission().len() as u32;
        match wait {
            Wait::No => self.call(submit, 0, flags, None),
            Wait::Forever => self.call(submit, 1, flags, None),
            Wait::Us(us) if self.iopoll => self.poll_for(submit, us),
            Wait::Us(us) => self.call(submit, 1, flags, Some(us)),
        }
    }

    fn call(&mut self, submit: u32, wait: u32, flags: IoringEnterFlags, us: Option<u64>) -> Result<()> {
        let start = us.map(|_| self.now_us());
        // On another thread the number would name one of that thread's own rings.
        let mine = self.owner.is_some_and(Owner::is_me);
        let door = if mine { self.door } else { Door::descriptor(&self.ring) };
        let outcome = door.enter(submit, wait, flags, us);
        if outcome != Err(Errno::AGAIN) {
            self.starved = 0;
        }
        match outcome {
            // What was submitted hides why the wait ended: without a completion, and before its time, it was a signal.
            Ok(count) if wait > 0 && count > 0 && count == submit && self.ring.completion().is_empty() => {
                let ended =
                    start.zip(us).is_some_and(|(start, us)| self.now_us() >= start.saturating_add(us));
                if ended { Ok(()) } else { Err(Error::system(libc::EINTR, "waiting for completions")) }
            }
            Ok(_) | Err(Errno::TIME) => Ok(()),
            // The overflowed completions must be taken first; `next` has them.
            Err(Errno::BUSY) => Ok(()),
            Err(Errno::AGAIN) => self.starve(),
            Err(e) => Err(self.failed(e)),
        }
    }

    /// The kernel had no memory for requests; what was pushed stays in the queue and is tried again.
    fn starve(&mut self) -> Result<()> {
        self.starved += 1;
        if self.starved > STARVED_MAX {
            return Err(Error::system(libc::EAGAIN, "the kernel has no memory for requests"));
        }
        rustix::thread::sched_yield();
        Ok(())
    }

    fn failed(&self, e: Errno) -> Error {
        match e {
            Errno::INTR => Error::system(libc::EINTR, "waiting for completions"),
            Errno::EXIST => self.wrong_thread(),
            Errno::BADR => {
                Error::system(libc::EBADR, "the kernel lost completions for want of memory; close this ring")
            }
            e => Error::from(e).context("entering the ring"),
        }
    }

    pub(super) fn wrong_thread(&self) -> Error {
        let owner = self.owner.map_or(0, |owner| owner.system.as_raw_nonzero().get());
        let text = format!("this ring belongs to thread {owner}, the first one that used it");
        Error::WrongThread(text.into())
    }

    /// With `IOPOLL` the kernel's wait knows no time limit: it is asked again and again instead, which is what a
    /// polled ring is for.
    fn poll_for(&mut self, submit: u32, us: u64) -> Result<()> {
        let end = self.now_us().saturating_add(us);
        self.call(submit, 0, IoringEnterFlags::GETEVENTS, None)?;
        while self.ring.completion().is_empty() && self.now_us() < end {
            self.call(0, 0, IoringEnterFlags::GETEVENTS, None)?;
        }
        Ok(())
    }

    /// Lets the `SQPOLL` thread see what was pushed, chains whole.
    fn publish(&mut self) {
        let mut queue = self.ring.submission();
        // SAFETY: the reactor keeps the memory and descriptors of these entries until their completions.
        let pushed = unsafe { queue.push_multiple(&self.staged) };
        debug_assert!(pushed.is_ok(), "`push` counted the staged entries");
        self.staged.clear();
    }

    /// What a call has to do beside the `SQPOLL` thread; nothing when there is no need for one.
    fn sqpoll_flags(&mut self, wait: Wait) -> Result<Option<IoringEnterFlags>> {
        let mut flags = IoringEnterFlags::empty();
        // The tail was published before this look, with a full fence in between: see the crate's `need_wakeup`.
        let queue = self.ring.submission();
        let (asleep, overflow) = (queue.need_wakeup(), queue.cq_overflow());
        drop(queue);
        flags.set(IoringEnterFlags::SQ_WAKEUP, asleep);
        let needed = std::mem::take(&mut self.refused);
        if needed > 0 {
            self.await_room(needed)?;
        }
        Ok((asleep || overflow || wait != Wait::No).then_some(flags))
    }

    /// A chain was refused: waits until the `SQPOLL` thread has taken enough to let it in.
    fn await_room(&mut self, needed: usize) -> Result<()> {
        for _ in 0..ROOM_TRIES {
            let queue = self.ring.submission();
            let (room, asleep) = (queue.capacity() - queue.len(), queue.need_wakeup());
            drop(queue);
            if room >= needed {
                return Ok(());
            }
            let mut flags = IoringEnterFlags::SQ_WAIT;
            flags.set(IoringEnterFlags::SQ_WAKEUP, asleep);
            self.call(0, 0, flags, None)?;
            rustix::thread::sched_yield();
        }
        // The thread is busy elsewhere (a shared one); the chain waits in the reactor.
        Ok(())
    }

    /// Puts the driver's own entries into the queue; false when some found no room.
    fn flush_chores(&mut self) -> bool {
        while let Some(entry) = self.chores.last() {
            if self.sqpoll {
                let queue = self.ring.submission();
                if queue.capacity() - queue.len() <= self.staged.len() {
                    drop(queue);
                    self.refused = 1;
                    return false;
                }
                drop(queue);
                self.staged.push(entry.clone());
            } else {
                // SAFETY: the driver's own entries name no memory.
                let pushed = unsafe { self.ring.submission().push(entry) };
                if pushed.is_err() {
                    return false;
                }
            }
            self.chores.pop();
        }
        true
    }

    fn count_overflow(&mut self) {
        if self.ring.submission().cq_overflow() {
            self.overflows += 1;
        }
    }

    /// Whether a call could bring something forth, or would submit something.
    pub fn more(&self) -> bool {
        if !self.staged.is_empty() || !self.chores.is_empty() || self.renewal_due {
            return true;
        }
        // SAFETY: no other view of the submission queue is alive; each method makes its own and drops it.
        let queue = unsafe { self.ring.submission_shared() };
        (!self.sqpoll && !queue.is_empty()) || queue.taskrun() || queue.cq_overflow()
    }

    /// Whether somebody has to call [`Uring::enter`] for completions to come at all.
    pub fn must_poll(&self) -> bool {
        self.polled > 0
    }
}
