//! Tests of the io_uring driver by itself. What all drivers promise is tested by the conformance suite.
#![allow(clippy::disallowed_methods, reason = "tests make files and threads of their own")]

mod flags;
mod limits;
mod memory;
mod notify;
mod queue;
mod restrict;

use std::os::fd::OwnedFd;

use crate::base::memory::Buf;
use crate::base::slab::Key;
use crate::ring::completion::{Completion, Token};
use crate::ring::driver::{Driver, Entry, Wait};
use crate::ring::op::{File, Link, Op, Target};
use crate::ring::options::{Choice, Granted, RingOptions, SetupFlags, open_driver};

/// Options for io_uring alone.
fn options(flags: SetupFlags, entries: u32) -> RingOptions {
    RingOptions { driver: Choice::Uring, flags, entries, ..RingOptions::default() }
}

/// A bound driver.
fn bound(options: &RingOptions) -> (Driver, Granted) {
    let (mut driver, granted) = open_driver(options).unwrap();
    driver.bind().unwrap();
    (driver, granted)
}

/// The name of the n-th operation.
fn token(n: u32) -> Token {
    Key { index: n, generation: 1 }
}

fn single(n: u32, op: &Op) -> Entry<'_> {
    Entry { token: token(n), op, done: 0, link: Link::None }
}

/// Waits until there are so many completions.
fn reap(driver: &mut Driver, count: usize) -> Vec<Completion> {
    let mut out = Vec::new();
    let end = driver.now_us() + 20_000_000;
    while out.len() < count {
        assert!(driver.now_us() < end, "only {} of {count} completions came", out.len());
        match driver.next() {
            Some(completion) => out.push(completion),
            None => driver.enter(Wait::Us(1_000_000)).unwrap(),
        }
    }
    out
}

/// An unnamed file in memory with these bytes.
fn memory_file(bytes: &[u8]) -> File {
    let fd: OwnedFd = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    assert_eq!(rustix::io::pwrite(&fd, bytes, 0), Ok(bytes.len()));
    File::from_fd(fd)
}

fn read_op(file: &File, len: usize, offset: u64) -> Op {
    Op::Read {
        target: Target::File(file.clone()),
        buf: Buf::zeroed(len).unwrap(),
        offset,
        buffer_index: None,
    }
}
