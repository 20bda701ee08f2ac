//! PLACEHOLDER
pub mod commit;
