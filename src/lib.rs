//! iouring-engine: a durable key-value store, a write-ahead log, and the io_uring transport they share.
//!
//! The crate is a set of layers; imports point downward only (a test holds this):
//!
//! | layer | module | what it is |
//! | --- | --- | --- |
//! | 0 | [`base`] | errors, codec, checksum, slab, memory, locks |
//! | 1 | [`ring`] | submit an operation, later receive its completion, over four drivers |
//! | 2 | [`wal`] | the log: format, groups, writing, recovery |
//! | 3 | [`engine`] | the store |
//! | 4 | `ffi` | the C boundary |
//!
//! Crate-wide invariants:
//!
//! - Memory that the kernel may touch belongs to the reactor until the operation's last completion.
//! - Nothing above `ring` reads a clock, sleeps, opens a file or spawns a thread by itself.
//! - Bytes from disk never panic; broken invariants of our own assert, in release builds too.
#![deny(missing_docs)]

pub mod base;
pub mod engine;
pub mod ffi;
pub mod ring;
pub mod wal;
