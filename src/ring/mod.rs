//! Layer 1, the transport: submit an operation, later receive its completion.
//!
//! | file | its one purpose |
//! | --- | --- |
//! | [`op`] | what can be asked for: [`op::Op`], and what it names: [`op::Target`], [`op::File`] |
//! | [`completion`] | how an operation is known while it is under way ([`completion::Token`]) and how it ended |
//! | [`driver`] | the seam: the four ways an operation happens, chosen at run time |
//! | `uring/` `posix/` `inline` `sim/` | those four ways |
//! | [`reactor`] | owns every operation in flight, and hands completions to their sinks |
//! | [`client`] | the trait of a sink that is a machine |
//! | [`io`] | the handle that `async fn`s use |
//! | [`task`] | the executor: tasks in a slab, no wakers |
//! | [`mailbox`] | how another thread finishes an operation of this reactor or wakes it |
//! | [`object`] | the ring as an object of the C API: driving it, slots, registered buffers, chains |
//! | [`fs`] | opening, listing, renaming, locking: what is done at once, not queued |
//! | [`options`] | what a ring is asked to be, and what was granted |
//! | [`uring::passed`] | a ring that is handed from thread to thread |
//! | [`probe`] | what this kernel allows, or the reason why not |
//!
//! Invariant: from submission to its last completion an operation, with its memory and its descriptor, belongs
//! to the reactor. It is freed only after that completion, or never.

pub mod client;
pub mod completion;
pub mod driver;
pub mod fs;
pub mod inline;
pub mod io;
pub mod mailbox;
pub mod object;
pub mod op;
pub mod options;
pub mod posix;
pub mod probe;
pub mod reactor;
pub mod sim;
pub mod task;
pub mod uring;

pub use io::Io;
