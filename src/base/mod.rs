//! Layer 0: what every other layer uses and what uses none of them.

pub mod checksum;
pub mod codec;
pub mod defect;
pub mod error;
pub mod list;
pub mod map;
pub mod memory;
pub mod signals;
pub mod slab;
pub mod sync;

pub use error::{Corruption, Error, Result};
