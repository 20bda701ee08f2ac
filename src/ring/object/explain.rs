//! The sentence behind a transfer's `-EINVAL` or `-EFAULT`: which memory, and which alignment it missed.
//!
//! The kernel says one number for an address, a length and an offset that direct I/O can't use. What the file asks
//! for is known from statx (since 6.1); nothing is guessed where it doesn't say.

use std::os::fd::RawFd;

use rustix::fs::{AtFlags, OFlags, StatxFlags};

use super::buffers::buffer_index;
use super::slots::Slots;
use crate::ring::op::{Op, Target};
use crate::ring::posix::files::borrow;

/// What direct I/O on a file asks for, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Alignment {
    memory: u32,
    offset: u32,
}

/// What direct I/O asks for on a descriptor; `None` when it isn't open for that, or the system doesn't say.
pub(super) fn alignment(fd: RawFd) -> Option<Alignment> {
    let fd = borrow(fd)?;
    if !rustix::fs::fcntl_getfl(fd).ok()?.contains(OFlags::DIRECT) {
        return None;
    }
    let stat = rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
    let says = stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0 && stat.stx_dio_offset_align != 0;
    says.then_some(Alignment { memory: stat.stx_dio_mem_align, offset: stat.stx_dio_offset_align })
}

/// The sentence; `None` for what is no transfer.
pub(super) fn refusal(op: &Op, result: i32, slots: &Slots) -> Option<String> {
    let (verb, target, buf, offset) = match op {
        Op::Read { target, buf, offset, .. } => ("reading", target, buf, *offset),
        Op::Write { target, buf, offset, .. } => ("writing", target, buf, *offset),
        _ => return None,
    };
    let (address, len) = (buf.as_ptr() as usize, buf.len());
    let name =
        buffer_index(op).map_or_else(|| "memory".to_owned(), |index| format!("registered buffer {index}"));
    let what = format!("{verb} {len} bytes at offset {offset}, {name} at address {address:#x}");
    if result == -libc::EFAULT {
        return Some(format!(
            "{what}: not all of that memory is mapped, or it is outside its registered buffer"
        ));
    }
    let asked = match target {
        Target::Slot(slot) => slots.alignment(*slot),
        Target::Foreign(fd) => alignment(*fd),
        Target::File(file) => alignment(file.raw_fd()),
    };
    let Some(Alignment { memory, offset: unit }) = asked else {
        return Some(format!("{what}: the file can't do this transfer"));
    };
    let missed: Vec<String> = [
        ("the address", address as u64, memory),
        ("the length", len as u64, unit),
        ("the offset", offset, unit),
    ]
    .into_iter()
    .filter(|(_, value, unit)| *unit != 0 && value % u64::from(*unit) != 0)
    .map(|(name, value, unit)| {
        format!("{name} is {} bytes beyond a multiple of {unit}", value % u64::from(unit))
    })
    .collect();
    if missed.is_empty() {
        return Some(format!("{what}: aligned as direct I/O asks, refused for another reason"));
    }
    Some(format!("{what}: direct I/O: {}", missed.join(", ")))
}
