//! PLACEHOLDER
pub mod sync;
pub mod writer;
