//! Layer 2: the write-ahead log, whose every byte is in `docs/FORMAT.md`.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`frame`] | one frame: encode and decode, without I/O |
//! | [`segment`] | the file of a segment: header, checkpoints, link; making one ready |
//! | [`recover`] | finds what counts, hands it on, leaves a log to append to |
//! | [`writer`] | issues groups, in segments one after the other |
//! | [`sync`] | the ways of making a write durable, and the choice among them |
//!
//! The log knows nothing of what its batches mean; the store above gives it payloads and sequences.

pub mod frame;
pub mod recover;
pub mod segment;
pub mod sync;
pub mod writer;

#[cfg(test)]
mod testing;
