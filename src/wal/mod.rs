//! Layer 2: the write-ahead log, whose every byte is in `docs/FORMAT.md`.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`frame`] | one frame: encode and decode, without I/O |
//! | [`segment`] | the file of a segment: header, checkpoints, link; making one ready |
//! | [`reader`] | walks a segment from frame to frame, checking all of it |
//! | [`recover`] | finds what counts, hands it on, leaves a log to append to |
//! | [`group`] | which batch goes where, in which order: a machine without I/O |
//! | [`layout`] | how batches lie in a group |
//! | [`spare`] | segments ready for use, and those nobody needs any more |
//! | [`writer`] | issues groups, in segments one after the other |
//! | [`log`] | the log as an object of its own, on a ring |
//! | [`lock`] | who has the directory open |
//! | `put` | the I/O of one group, and the verdict on it |
//! | [`sync`] | the ways of making a write durable, and the choice among them |
//!
//! The log knows nothing of what its batches mean; the store above gives it payloads and sequences.

pub mod frame;
pub mod group;
pub mod layout;
pub mod lock;
pub mod log;
mod put;
pub mod reader;
pub mod recover;
pub mod segment;
pub mod spare;
pub mod sync;
pub mod writer;

#[cfg(test)]
pub(crate) mod plain_reader;
#[cfg(test)]
mod testing;
