//! An operation as a submission queue entry.
//!
//! Each entry is built whole from zeros and copied into its place, so no field of the place's earlier use survives.

use io_uring::{opcode, squeue, types};

use super::super::driver::Entry;
use super::super::op::{Link, Op, Target, Timespec};
use super::super::options::Allowed;

/// What one transfer may have at most (`MAX_RW_COUNT`); the rest is a short transfer, which the reactor finishes.
const TRANSFER_MAX: usize = 0x7fff_f000;
/// The offset that means "at the file's own position"; nothing is added to it.
const AT_POSITION: u64 = u64::MAX;

/// The entry for one operation; `linked` when another one of its chain follows.
#[inline]
pub(super) fn entry(
    entry: &Entry<'_>,
    linked: bool,
    buffers: &[usize],
    allowed: Option<Allowed>,
) -> squeue::Entry {
    let built = match allowed {
        // The kernel refuses an operation that the ring uses itself (a poll) only under another name.
        Some(allowed) if !allowed.permits(entry.op) => refused(),
        _ => operation(entry, buffers),
    };
    let flags = match entry.link {
        _ if !linked => squeue::Flags::empty(),
        Link::None => squeue::Flags::empty(),
        Link::Soft => squeue::Flags::IO_LINK,
        Link::Hard => squeue::Flags::IO_HARDLINK,
    };
    built.flags(flags).user_data(entry.token.to_bits())
}

/// An operation that no ring allows: it completes with `-EACCES` and breaks its chain as any error does.
fn refused() -> squeue::Entry {
    opcode::Madvise::new(std::ptr::null(), 0, 0).build()
}

macro_rules! on {
    ($target:expr, $fd:ident => $entry:expr) => {
        match $target {
            Target::File(file) => {
                let $fd = types::Fd(file.raw_fd());
                $entry
            }
            Target::Foreign(fd) => {
                let $fd = types::Fd(*fd);
                $entry
            }
            Target::Slot(slot) => {
                let $fd = types::Fixed(*slot);
                $entry
            }
        }
    };
}

#[inline]
fn operation(entry: &Entry<'_>, buffers: &[usize]) -> squeue::Entry {
    match entry.op {
        Op::Read { target, buf, offset, buffer_index } => {
            let (pointer, len) = rest(buf.as_ptr(), buf.len(), entry.done);
            let offset = behind(*offset, entry.done);
            match registered(*buffer_index, buffers) {
                Some(index) => on!(target, fd =>
                    opcode::ReadFixed::new(fd, pointer, len, index).offset(offset).build()),
                None => on!(target, fd => opcode::Read::new(fd, pointer, len).offset(offset).build()),
            }
        }
        Op::Write { target, buf, offset, buffer_index, dsync } => {
            let (pointer, len) = rest(buf.as_ptr(), buf.len(), entry.done);
            let offset = behind(*offset, entry.done);
            let how = if *dsync { libc::RWF_DSYNC } else { 0 };
            match registered(*buffer_index, buffers) {
                Some(index) => on!(target, fd =>
                    opcode::WriteFixed::new(fd, pointer, len, index).offset(offset).rw_flags(how).build()),
                None => on!(target, fd =>
                    opcode::Write::new(fd, pointer, len).offset(offset).rw_flags(how).build()),
            }
        }
        Op::Fsync { target, data_only } => {
            let flags = if *data_only { types::FsyncFlags::DATASYNC } else { types::FsyncFlags::empty() };
            on!(target, fd => opcode::Fsync::new(fd).flags(flags).build())
        }
        Op::Timeout { after } => opcode::Timeout::new(timespec(after)).build(),
        Op::LinkTimeout { after } => opcode::LinkTimeout::new(timespec(after)).build(),
        Op::Poll { target, events, multishot } => {
            on!(target, fd => opcode::PollAdd::new(fd, *events).multi(*multishot).build())
        }
        Op::CloseSlot { slot } => opcode::Close::new(types::Fixed(*slot)).build(),
        // An external operation never comes here; were it to, it would end at once.
        Op::Nop | Op::External => opcode::Nop::new().build(),
    }
}

/// What is left of a transfer.
#[inline]
fn rest(pointer: *mut u8, len: usize, done: usize) -> (*mut u8, u32) {
    let done = done.min(len);
    (pointer.wrapping_add(done), (len - done).min(TRANSFER_MAX) as u32)
}

#[inline]
fn behind(offset: u64, done: usize) -> u64 {
    if offset == AT_POSITION { offset } else { offset.wrapping_add(done as u64) }
}

/// The registered buffer to use, if it is there; a hole is no buffer.
#[inline]
fn registered(index: Option<u16>, buffers: &[usize]) -> Option<u16> {
    index.filter(|index| buffers.get(usize::from(*index)).is_some_and(|len| *len > 0))
}

/// The kernel's view of a duration, which has the same layout.
fn timespec(after: &Timespec) -> *const types::Timespec {
    const { assert!(size_of::<Timespec>() == size_of::<types::Timespec>()) };
    std::ptr::from_ref(after).cast()
}
