//! Layer 3, the store: a memtable over the log, for any number of threads.
//!
//! | file | its one purpose |
//! | --- | --- |
//! | [`store`] | opening, reading, writing, closing: [`store::Store`] over [`core::Core`] |
//! | [`core`] | the store's logic, as `async fn`s over any `Io` |
//! | [`directory`] | whether a directory holds a store, may become one, or is somebody else's |
//! | [`options`] | what a store is opened with |
//! | [`batch`] | a write batch, and its bytes in the log |
//! | [`memtable`] | the entries in memory |
//! | [`view`] | values handed out without a copy |
//! | [`commit`] | how many threads' writes become one group |
//! | [`keeper`] | the one background thread |
//! | [`stats`] | what the store has done, as properties |
//!
//! Invariants:
//!
//! - Sequence, log position and visibility are one order, fixed on joining a group.
//! - Readers see sequences up to `visible` that aren't dead, and wait for no writer.
//! - Nothing can fail between joining a group and inserting into the memtable.

pub mod batch;
pub mod commit;
pub mod core;
pub mod directory;
pub mod keeper;
pub mod memtable;
pub mod options;
pub mod stats;
pub mod store;
pub mod view;

pub use batch::WriteBatch;
pub use commit::Level;
pub use options::Options;
pub use store::Store;
pub use view::View;
