//! How a write is made durable: the rule, and what it rests on.

/// How a write is to be made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Wish {
    /// By the rule.
    #[default]
    Auto,
    /// A chain write → fdatasync on a ring.
    Linked,
    /// One write with RWF_DSYNC.
    Dsync,
    /// pwrite, then fdatasync.
    Syscall,
}
