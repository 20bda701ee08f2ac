//! The library's one error type and its numeric codes.
//!
//! One enum serves all layers, because the C boundary has one list of codes: a layer of its own errors would
//! only be translated into these again. An error carries the sentence that `ioe_last_error()` shows: it says
//! what was refused and what to do about it.

use std::borrow::Cow;
use std::fmt;

/// Result of every fallible function in the crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The text of an error: what happened, where, and what to do.
pub type Detail = Cow<'static, str>;

/// Stored bytes that fail their check: where they are, and what was wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Corruption {
    /// Name of the file, relative to its store or log.
    pub file: String,
    /// Byte offset in the file.
    pub offset: u64,
    /// What a sound file has there.
    pub expected: String,
    /// What was found.
    pub got: String,
}

/// Everything that can go wrong, one variant per code of the C API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// The system refused; `errno` is positive.
    System {
        /// The system's error number, positive.
        errno: i32,
        /// What was attempted, on what.
        detail: Detail,
    },
    /// A bad argument (`-EINVAL`).
    Invalid(Detail),
    /// No such key.
    NotFound,
    /// Stored bytes fail their check.
    Corrupt(Box<Corruption>),
    /// An earlier write failed; reads work, reopen to write.
    Poisoned(Detail),
    /// This write may or may not be durable.
    Indeterminate(Detail),
    /// Open elsewhere, or children still open.
    Busy(Detail),
    /// The handle or connection is gone.
    Stale(Detail),
    /// Closed while the operation was pending.
    Closed,
    /// The caller's buffer is too small.
    TooSmall {
        /// The length that would have been enough.
        needed: usize,
    },
    /// This kernel, file system or driver can't.
    Unsupported(Detail),
    /// Written by an incompatible version.
    Version(Detail),
    /// Used in a child process.
    Forked,
    /// Cancelled by the caller.
    Cancelled,
    /// Back-pressure: try again later.
    Stalled(Detail),
    /// This object belongs to another thread.
    WrongThread(Detail),
    /// Can never fit a limit.
    TooLarge(Detail),
    /// A deadline passed.
    TimedOut,
    /// A defect was caught.
    Internal(Detail),
}

/// The numeric codes of the C API (`IOE_E_…`). They are never renumbered.
pub mod code {
    /// No such key.
    pub const NOT_FOUND: i32 = -10001;
    /// Stored bytes fail their check.
    pub const CORRUPT: i32 = -10002;
    /// An earlier write failed; reads work, reopen to write.
    pub const POISONED: i32 = -10003;
    /// This write may or may not be durable.
    pub const INDETERMINATE: i32 = -10004;
    /// Open elsewhere, or children still open.
    pub const BUSY: i32 = -10005;
    /// The handle or connection is gone.
    pub const STALE: i32 = -10006;
    /// Closed while the operation was pending.
    pub const CLOSED: i32 = -10007;
    /// The caller's buffer is too small.
    pub const TOO_SMALL: i32 = -10008;
    /// This kernel, file system or driver can't.
    pub const UNSUPPORTED: i32 = -10009;
    /// Written by an incompatible version.
    pub const VERSION: i32 = -10010;
    /// Used in a child process.
    pub const FORKED: i32 = -10011;
    /// Cancelled by the caller.
    pub const CANCELLED: i32 = -10012;
    /// Back-pressure.
    pub const STALLED: i32 = -10013;
    /// This object belongs to another thread.
    pub const WRONG_THREAD: i32 = -10014;
    /// Can never fit a limit.
    pub const TOO_LARGE: i32 = -10015;
    /// A deadline passed.
    pub const TIMED_OUT: i32 = -10016;
    /// A defect was caught.
    pub const INTERNAL: i32 = -10099;
}

impl Error {
    /// An error of the system; `errno` is positive.
    pub fn system(errno: i32, detail: impl Into<Detail>) -> Self {
        Error::System { errno, detail: detail.into() }
    }

    /// A bad argument.
    pub fn invalid(detail: impl Into<Detail>) -> Self {
        Error::Invalid(detail.into())
    }

    /// Stored bytes that fail their check.
    pub fn corrupt(
        file: impl Into<String>,
        offset: u64,
        expected: impl Into<String>,
        got: impl Into<String>,
    ) -> Self {
        Error::Corrupt(Box::new(Corruption {
            file: file.into(),
            offset,
            expected: expected.into(),
            got: got.into(),
        }))
    }

    /// The code that crosses the C boundary: `-errno`, or one of [`code`].
    pub fn code(&self) -> i32 {
        match self {
            Error::System { errno, .. } => -errno,
            Error::Invalid(_) => -libc::EINVAL,
            Error::NotFound => code::NOT_FOUND,
            Error::Corrupt(_) => code::CORRUPT,
            Error::Poisoned(_) => code::POISONED,
            Error::Indeterminate(_) => code::INDETERMINATE,
            Error::Busy(_) => code::BUSY,
            Error::Stale(_) => code::STALE,
            Error::Closed => code::CLOSED,
            Error::TooSmall { .. } => code::TOO_SMALL,
            Error::Unsupported(_) => code::UNSUPPORTED,
            Error::Version(_) => code::VERSION,
            Error::Forked => code::FORKED,
            Error::Cancelled => code::CANCELLED,
            Error::Stalled(_) => code::STALLED,
            Error::WrongThread(_) => code::WRONG_THREAD,
            Error::TooLarge(_) => code::TOO_LARGE,
            Error::TimedOut => code::TIMED_OUT,
            Error::Internal(_) => code::INTERNAL,
        }
    }

    /// The system's error number, when the system refused.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Error::System { errno, .. } => Some(*errno),
            _ => None,
        }
    }

    /// Adds where it happened in front of a system error's text.
    pub fn context(self, what: impl fmt::Display) -> Self {
        match self {
            Error::System { errno, detail } => {
                let detail = if detail.is_empty() { what.to_string() } else { format!("{what}: {detail}") };
                Error::System { errno, detail: detail.into() }
            }
            other => other,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::System { errno, detail } => {
                let text = std::io::Error::from_raw_os_error(*errno);
                if detail.is_empty() { write!(f, "{text}") } else { write!(f, "{detail}: {text}") }
            }
            Error::Invalid(d)
            | Error::Poisoned(d)
            | Error::Indeterminate(d)
            | Error::Busy(d)
            | Error::Stale(d)
            | Error::Unsupported(d)
            | Error::Version(d)
            | Error::Stalled(d)
            | Error::WrongThread(d)
            | Error::TooLarge(d)
            | Error::Internal(d) => f.write_str(d),
            Error::NotFound => f.write_str("no such key"),
            Error::Corrupt(c) => {
                write!(f, "{} at offset {}: expected {}, got {}", c.file, c.offset, c.expected, c.got)
            }
            Error::Closed => f.write_str("closed while the operation was pending"),
            Error::TooSmall { needed } => write!(f, "the buffer is too small: {needed} bytes are needed"),
            Error::Forked => f.write_str(
                "this handle was opened by the parent process; a child must open its own after fork",
            ),
            Error::Cancelled => f.write_str("cancelled by the caller"),
            Error::TimedOut => f.write_str("a deadline passed"),
        }
    }
}

impl std::error::Error for Error {}

impl From<std::io::Error> for Error {
    fn from(e: std::io::Error) -> Self {
        Error::system(e.raw_os_error().unwrap_or(libc::EIO), "")
    }
}

impl From<rustix::io::Errno> for Error {
    fn from(e: rustix::io::Errno) -> Self {
        Error::system(e.raw_os_error(), "")
    }
}
