//! File operations as plain system calls; used by the inline driver and by the posix driver's threads.
#![allow(clippy::disallowed_methods, reason = "the drivers are where clocks and sleeps are made")]

use std::os::fd::{BorrowedFd, RawFd};
use std::time::Duration;

use rustix::io::{Errno, ReadWriteFlags};

use crate::base::memory::Buf;
use crate::ring::driver::Entry;
use crate::ring::inline::borrow;
use crate::ring::op::{Link, Op, Target};

/// Performs one operation; the answer is a count or `-errno`. `done` bytes of a transfer are done already.
pub fn perform(op: &Op, done: usize) -> i32 {
    let fd = match op.target() {
        Some(Target::File(file)) => file.raw_fd(),
        Some(Target::Foreign(fd)) => *fd,
        Some(Target::Slot(_)) => return -libc::EBADF,
        None => -1,
    };
    perform_on(op, fd, done)
}

/// As [`perform`], on a descriptor that the caller has looked up.
pub fn perform_on(op: &Op, fd: RawFd, done: usize) -> i32 {
    let result = match op {
        Op::Nop => return 0,
        Op::Read { buf, offset, .. } => {
            with(fd, |fd| read(fd, buf.as_ptr(), buf.len(), done, offset.wrapping_add(done as u64)))
        }
        Op::Write { buf, offset, dsync, .. } => {
            with(fd, |fd| write(fd, buf, done, offset.wrapping_add(done as u64), *dsync))
        }
        Op::Fsync { data_only, .. } => with(fd, |fd| {
            if *data_only { rustix::fs::fdatasync(fd) } else { rustix::fs::fsync(fd) }.map(|()| 0)
        }),
        Op::Timeout { .. }
        | Op::LinkTimeout { .. }
        | Op::Poll { .. }
        | Op::CloseSlot { .. }
        | Op::External => Err(Errno::OPNOTSUPP),
    };
    match result {
        Ok(count) => count as i32,
        Err(e) => -e.raw_os_error(),
    }
}

fn with(fd: RawFd, call: impl FnOnce(BorrowedFd<'_>) -> Result<usize, Errno>) -> Result<usize, Errno> {
    call(borrow(fd).ok_or(Errno::BADF)?)
}

#[allow(unsafe_code, reason = "the destination is raw memory owned by the operation")]
fn read(fd: BorrowedFd<'_>, pointer: *mut u8, len: usize, done: usize, offset: u64) -> Result<usize, Errno> {
    let rest = len.saturating_sub(done);
    // SAFETY: the operation owns `len` valid bytes at `pointer` until its completion (`Buf`), nobody else looks at
    // them meanwhile, and `done` of them lie before `rest`.
    let bytes = unsafe { std::slice::from_raw_parts_mut(pointer.add(len - rest), rest) };
    match rustix::io::pread(fd, &mut *bytes, offset) {
        Err(Errno::SPIPE) => rustix::io::read(fd, bytes),
        other => other,
    }
}

fn write(fd: BorrowedFd<'_>, buf: &Buf, done: usize, offset: u64, dsync: bool) -> Result<usize, Errno> {
    let bytes = buf.as_slice().get(done..).unwrap_or(&[]);
    let result = if dsync {
        rustix::io::pwritev2(fd, &[std::io::IoSlice::new(bytes)], offset, ReadWriteFlags::DSYNC)
    } else {
        rustix::io::pwrite(fd, bytes, offset)
    };
    match result {
        Err(Errno::SPIPE) => rustix::io::write(fd, bytes),
        other => other,
    }
}

/// Whether this result breaks the link to the next operation: an error, or a transfer that is not whole.
pub fn breaks_chain(entry: &Entry<'_>, result: i32) -> bool {
    if entry.link != Link::Soft {
        return false;
    }
    let whole = entry.op.buf().is_none_or(|buf| result as usize == buf.len() - entry.done);
    result < 0 || !whole
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
