//! File operations as plain system calls; used by the inline driver and by the posix driver's threads.
//!
//! A [`Call`] is what is left of an operation when its target has been looked up: plain parts that may go to
//! another thread, while the reactor keeps the operation itself, with its memory and its file, alive.
#![allow(unsafe_code, reason = "the memory of an operation is raw")]
#![allow(clippy::disallowed_methods, reason = "the drivers are where clocks and sleeps are made")]

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{BorrowedFd, RawFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::fs::OFlags;
use rustix::io::{Errno, ReadWriteFlags};

use crate::ring::driver::Entry;
use crate::ring::op::{Link, Op, Target};

#[derive(Debug, Clone, Copy)]
enum Kind {
    Read,
    Write { dsync: bool },
    Fsync { data_only: bool },
}

/// A file operation without its target: what to call, on which memory, where in the file.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    kind: Kind,
    pointer: *mut u8,
    len: usize,
    offset: u64,
}

// SAFETY: the pointer is to memory that the reactor keeps, and that nobody else looks at, until the operation's
// completion (`Buf`); which thread makes the system call doesn't matter.
unsafe impl Send for Call {}

impl Call {
    /// The call that an operation means, with `done` bytes of it done already; `None` when it is no file operation.
    pub fn of(op: &Op, done: usize) -> Option<Call> {
        let (kind, offset) = match op {
            Op::Read { offset, .. } => (Kind::Read, *offset),
            Op::Write { offset, dsync, .. } => (Kind::Write { dsync: *dsync }, *offset),
            Op::Fsync { data_only, .. } => {
                let kind = Kind::Fsync { data_only: *data_only };
                return Some(Call { kind, pointer: std::ptr::null_mut(), len: 0, offset: 0 });
            }
            _ => return None,
        };
        let buf = op.buf()?;
        let done = done.min(buf.len());
        let pointer = buf.as_ptr().wrapping_add(done);
        Some(Call { kind, pointer, len: buf.len() - done, offset: offset.wrapping_add(done as u64) })
    }

    /// Bytes that a whole transfer has; `None` for a sync.
    pub fn expected(&self) -> Option<usize> {
        (!matches!(self.kind, Kind::Fsync { .. })).then_some(self.len)
    }

    /// Events of poll(2) that say that the call would not block.
    pub fn readiness(&self) -> u32 {
        let wanted = if matches!(self.kind, Kind::Write { .. }) { PollFlags::OUT } else { PollFlags::IN };
        u32::from(wanted.bits())
    }

    fn source(&self) -> &[u8] {
        // SAFETY: the operation owns these bytes until its completion, and they are not written meanwhile.
        unsafe { std::slice::from_raw_parts(self.pointer, self.len) }
    }

    fn destination(&mut self) -> &mut [u8] {
        // SAFETY: the operation owns these bytes until its completion, and nobody else looks at them meanwhile;
        // a call is performed by one thread, once.
        unsafe { std::slice::from_raw_parts_mut(self.pointer, self.len) }
    }

    /// Performs it, however long that takes; a count or `-errno`.
    pub fn perform(mut self, fd: RawFd) -> i32 {
        let Some(fd) = borrow(fd) else { return -libc::EBADF };
        let offset = self.offset;
        let result = match self.kind {
            Kind::Fsync { data_only: true } => rustix::fs::fdatasync(fd).map(|()| 0),
            Kind::Fsync { data_only: false } => rustix::fs::fsync(fd).map(|()| 0),
            Kind::Read => match rustix::io::pread(fd, self.destination(), offset) {
                Err(Errno::SPIPE) => rustix::io::read(fd, self.destination()),
                other => other,
            },
            Kind::Write { dsync } => match write_at(fd, self.source(), offset, dsync) {
                Err(Errno::SPIPE) => rustix::io::write(fd, self.source()),
                other => other,
            },
        };
        outcome(result)
    }

    /// Performs it on something that may block for ever (a pipe, a socket, a terminal); `None` when it would.
    /// A descriptor that its owner made non-blocking answers `-EAGAIN`, as io_uring does.
    pub fn attempt(mut self, fd: RawFd) -> Option<i32> {
        let Some(borrowed) = borrow(fd) else { return Some(-libc::EBADF) };
        let flags = ReadWriteFlags::NOWAIT;
        let result = match self.kind {
            Kind::Fsync { .. } => return Some(self.perform(fd)),
            Kind::Read => {
                rustix::io::preadv2(borrowed, &mut [IoSliceMut::new(self.destination())], u64::MAX, flags)
            }
            Kind::Write { .. } => {
                rustix::io::pwritev2(borrowed, &[IoSlice::new(self.source())], u64::MAX, flags)
            }
        };
        match result {
            Err(Errno::AGAIN) if is_nonblocking(borrowed) => Some(-libc::EAGAIN),
            Err(Errno::AGAIN) => None,
            // It can't do without blocking by itself: ask first.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) if self.is_ready(borrowed) => {
                Some(self.perform(fd))
            }
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => None,
            other => Some(outcome(other)),
        }
    }

    fn is_ready(&self, fd: BorrowedFd<'_>) -> bool {
        let wanted = PollFlags::from_bits_truncate(self.readiness() as u16);
        let mut fds = [PollFd::from_borrowed_fd(fd, wanted)];
        let at_once = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        // What can't be asked is tried.
        rustix::event::poll(&mut fds, Some(&at_once)).map_or(true, |ready| ready > 0)
    }
}

fn is_nonblocking(fd: BorrowedFd<'_>) -> bool {
    rustix::fs::fcntl_getfl(fd).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK))
}

fn write_at(fd: BorrowedFd<'_>, bytes: &[u8], offset: u64, dsync: bool) -> Result<usize, Errno> {
    if dsync {
        rustix::io::pwritev2(fd, &[IoSlice::new(bytes)], offset, ReadWriteFlags::DSYNC)
    } else {
        rustix::io::pwrite(fd, bytes, offset)
    }
}

fn outcome(result: Result<usize, Errno>) -> i32 {
    match result {
        Ok(count) => count as i32,
        Err(e) => -e.raw_os_error(),
    }
}

/// Performs one operation; the answer is a count or `-errno`. `done` bytes of a transfer are done already.
pub fn perform(op: &Op, done: usize) -> i32 {
    let fd = match op.target() {
        Some(Target::File(file)) => file.raw_fd(),
        Some(Target::Foreign(fd)) => *fd,
        Some(Target::Slot(_)) => return -libc::EBADF,
        None => -1,
    };
    match (op, Call::of(op, done)) {
        (Op::Nop, _) => 0,
        (_, Some(call)) => call.perform(fd),
        (_, None) => -libc::EOPNOTSUPP,
    }
}

/// Whether this result breaks the link to the next operation: an error, or a transfer that is not whole.
pub fn breaks_chain(entry: &Entry<'_>, result: i32) -> bool {
    breaks_link(entry.link, entry.op.buf().map(|buf| buf.len() - entry.done), result)
}

/// As [`breaks_chain`], from the link and the bytes of a whole transfer.
pub fn breaks_link(link: Link, expected: Option<usize>, result: i32) -> bool {
    link == Link::Soft && (result < 0 || expected.is_some_and(|len| result as usize != len))
}

/// Borrows a descriptor that somebody else keeps open; none when it is no descriptor.
pub(in crate::ring) fn borrow(fd: RawFd) -> Option<BorrowedFd<'static>> {
    // SAFETY: the descriptor is used for one call only, while its owner (a `File`, a slot, or the C caller by its
    // promise) keeps it open; -1 is refused here because it is no descriptor.
    (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
}

/// The monotonic clock, in microseconds.
pub fn now_us() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000
}

/// Sleeps.
pub fn sleep_us(us: u64) {
    std::thread::sleep(Duration::from_micros(us));
}

/// A random number from the system's generator.
pub fn random() -> u64 {
    let mut bytes = [0u8; 8];
    let flags = rustix::rand::GetRandomFlags::empty();
    match rustix::rand::getrandom(&mut bytes, flags) {
        Ok(8) => u64::from_ne_bytes(bytes),
        // Only a system without the call (before 3.17) comes here; the clock differs at each use.
        _ => now_us().wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(std::process::id()),
    }
}
