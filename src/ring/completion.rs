//! How an operation is known while it is under way, and how it ended.

use crate::base::slab::Key;

/// An operation under way: its place in the reactor's slab, which is also its `user_data` in the kernel.
pub type Token = Key;

/// One completion of one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// Of which operation.
    pub token: Token,
    /// A count or events ≥ 0, or `-errno`.
    pub result: i32,
    /// More completions of this operation will follow. Only when this is clear is it over.
    pub more: bool,
    /// The buffer that the kernel chose.
    pub buffer: Option<u16>,
    /// A zero-copy send's notification: its memory is free now.
    pub notice: bool,
}

impl Completion {
    /// The one and last completion of an operation.
    pub fn last(token: Token, result: i32) -> Self {
        Completion { token, result, more: false, buffer: None, notice: false }
    }
}
