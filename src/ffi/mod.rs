//! Layer 4, the C boundary: one file per C object, and what they share.
//!
//! | file | its one purpose |
//! | --- | --- |
//! | [`handle`] | the table behind the handles |
//! | `fence` | what orders a call's and a close's steps |
//! | `thread` | the calling thread's slot in it |
//! | `process` | telling a child after fork from its parent |
//! | `guard` | the boundary every exported function passes |
//! | `args` | checking and copying what goes in and out |
//! | [`status`] | result codes, their explanations, the version |
//! | [`last_error`] [`log`] | the detail of the last failure; messages |
//! | [`ring`] [`ring_types`] | the transport |
//! | [`wal`] [`wal_types`] | the log on its own |
//! | [`engine`] [`writebatch`] [`view`] | the store |
//!
//! The header is made from these files by cbindgen, so their documentation is written for C programmers: it is the
//! manual. Conventions that hold for every function stand at its head (`cbindgen.toml`).
//!
//! Invariants: no panic leaves an exported function; nothing is done before every argument was checked; an
//! out-parameter is written on success only; no pointer of C is kept beyond the call unless the function says so.
#![allow(unsafe_code, reason = "the C boundary: pointers come in, and are checked as far as they can be")]
#![allow(
    clippy::missing_safety_doc,
    reason = "the conventions at the head of the header are the safety contract"
)]

pub(crate) mod args;
pub mod engine;
pub(crate) mod fence;
pub(crate) mod guard;
pub mod handle;
pub mod last_error;
pub mod log;
pub(crate) mod process;
pub mod ring;
pub mod ring_types;
pub mod status;
pub(crate) mod thread;
pub mod view;
pub mod wal;
pub mod wal_types;
pub mod writebatch;

#[cfg(test)]
mod tests;
