//! The ring object over both of its drivers.
//!
//! | file | what it tests |
//! | --- | --- |
//! | `chains` | queueing: whole chains, the open chain, links, cancelling, bad arguments |
//! | `driving` | submit, wait, reap, the descriptor, waking, several objects on one ring |
//! | `tables` | file slots and registered buffers |

mod chains;
mod driving;
mod tables;

use std::os::fd::{AsRawFd, OwnedFd};

use super::*;
use crate::ring::options::{Allowed, Choice};

/// Longer than any test takes: a time-out of this never fires by itself.
const NEVER_US: u64 = 600_000_000;

/// Runs a test over every driver that a ring can have here; says so when io_uring is not one of them.
fn on_each_driver(test: impl Fn(&RingOptions)) {
    for driver in [Choice::Posix, Choice::Uring] {
        let options = RingOptions { driver, entries: 16, ..RingOptions::default() };
        match open_driver(&options) {
            Ok(_) => test(&options),
            Err(e) if driver == Choice::Uring => eprintln!("tested over the POSIX driver alone: {e}"),
            Err(e) => panic!("the POSIX driver works everywhere: {e}"),
        }
    }
}

fn open(options: &RingOptions) -> RingObject {
    open_with(options, &TableOptions { file_slots: 4, ..TableOptions::default() })
}

fn open_with(options: &RingOptions, tables: &TableOptions) -> RingObject {
    RingObject::open(options, tables).unwrap()
}

fn nop(flags: OpFlags, user_data: u64) -> RingOp {
    RingOp { flags, user_data, ..RingOp::default() }
}

fn op(opcode: u16, user_data: u64) -> RingOp {
    RingOp { opcode, user_data, ..RingOp::default() }
}

fn never(user_data: u64) -> RingOp {
    RingOp { timeout_us: NEVER_US, ..op(opcode::TIMEOUT, user_data) }
}

fn poll(fd: &OwnedFd, user_data: u64) -> RingOp {
    let flags = OpFlags::RAW_FD;
    RingOp { flags, slot_or_fd: fd.as_raw_fd(), events: libc::POLLIN as u32, ..op(opcode::POLL, user_data) }
}

fn part(index: u16, offset: usize, len: usize) -> Memory {
    Memory::Registered { index, offset, len }
}

fn file(content: &[u8]) -> OwnedFd {
    let file = rustix::fs::memfd_create("ring-object-test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::io::pwrite(&file, content, 0).unwrap();
    file
}

fn pipe() -> (OwnedFd, OwnedFd) {
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap()
}

/// Waits for `count` completions and reaps exactly them: (name, result), in the order of their coming.
fn finish(ring: &mut RingObject, count: usize) -> Vec<(u64, i32)> {
    assert!(ring.wait(count, -1).unwrap() >= count);
    let mut out = vec![RingCompletion::EMPTY; count + 1];
    let reaped = ring.reap(&mut out).unwrap();
    assert_eq!(reaped, count, "{out:?}");
    out[..reaped].iter().map(|item| (item.user_data, item.result)).collect()
}

/// As [`finish`], sorted by name.
fn finish_sorted(ring: &mut RingObject, count: usize) -> Vec<(u64, i32)> {
    let mut items = finish(ring, count);
    items.sort_unstable();
    items
}

fn code<T: std::fmt::Debug>(result: Result<T>) -> i32 {
    result.unwrap_err().code()
}
