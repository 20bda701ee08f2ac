//! Operations: plain data that owns its memory until its last completion.
//!
//! An operation names a file by a shared [`File`] (kept open until the completion), by a slot of the driver's file
//! table, or, for C callers who said so, by a descriptor they keep open themselves. It never names a descriptor that
//! the library could close or reuse meanwhile.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use super::sim::Opening;
use crate::base::memory::Buf;

/// An open file or directory, shared; closed with its last clone.
#[derive(Debug, Clone)]
pub struct File(Arc<Inner>);

#[derive(Debug)]
enum Inner {
    Os(OwnedFd),
    Sim(Opening),
}

impl File {
    /// A file of the operating system.
    pub fn from_fd(fd: OwnedFd) -> Self {
        File(Arc::new(Inner::Os(fd)))
    }

    /// A file of the simulated disk.
    pub(super) fn simulated(opening: Opening) -> Self {
        File(Arc::new(Inner::Sim(opening)))
    }

    /// Its descriptor; for a simulated one a negative number that the kernel refuses and the simulator knows.
    pub fn raw_fd(&self) -> RawFd {
        match &*self.0 {
            Inner::Os(fd) => fd.as_raw_fd(),
            Inner::Sim(opening) => opening.raw_fd(),
        }
    }

    /// The simulator's side of it, when it is simulated.
    pub(super) fn opening(&self) -> Option<&Opening> {
        match &*self.0 {
            Inner::Os(_) => None,
            Inner::Sim(opening) => Some(opening),
        }
    }

    /// The descriptor for use with rustix.
    ///
    /// # Panics
    /// When the file is simulated: `ring::fs` never mixes the two.
    pub fn os(&self) -> &OwnedFd {
        match &*self.0 {
            Inner::Os(fd) => fd,
            Inner::Sim(_) => panic!("a simulated file has no descriptor"),
        }
    }
}

/// The file that an operation is about.
#[derive(Debug, Clone)]
pub enum Target {
    /// An open file of the library.
    File(File),
    /// A slot of the driver's file table.
    Slot(u32),
    /// A descriptor that a C caller keeps open until the completion.
    Foreign(RawFd),
}

/// Whether, and how, an operation holds back the next one of its chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Link {
    /// It is the last of its chain.
    #[default]
    None,
    /// The next one starts when this one succeeded whole; else the rest is cancelled (`-ECANCELED`).
    Soft,
    /// The next one starts when this one has ended, however.
    Hard,
}

/// A duration in the kernel's layout (`struct __kernel_timespec`); it stays where it is while the operation lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Timespec {
    /// Whole seconds.
    pub seconds: i64,
    /// The rest, in nanoseconds.
    pub nanoseconds: i64,
}

impl Timespec {
    /// A duration of so many microseconds.
    pub fn from_us(us: u64) -> Self {
        Timespec { seconds: (us / 1_000_000) as i64, nanoseconds: (us % 1_000_000 * 1000) as i64 }
    }

    /// The duration in microseconds.
    pub fn as_us(&self) -> u64 {
        (self.seconds as u64).saturating_mul(1_000_000).saturating_add(self.nanoseconds as u64 / 1000)
    }
}

/// What can be asked of a driver.
#[derive(Debug)]
pub enum Op {
    /// Nothing; completes with 0.
    Nop,
    /// Reads into `buf` from `offset`; completes with the byte count. Less than asked at end of file only,
    /// or inside a chain.
    Read {
        /// From where.
        target: Target,
        /// To where.
        buf: Buf,
        /// Position in the file; ignored by what has none (a pipe, a socket).
        offset: u64,
        /// The registered buffer that `buf` lies in.
        buffer_index: Option<u16>,
    },
    /// Writes `buf` at `offset`; completes with the byte count. All of it, or inside a chain perhaps less.
    Write {
        /// To where.
        target: Target,
        /// From where.
        buf: Buf,
        /// Position in the file; ignored by what has none.
        offset: u64,
        /// The registered buffer that `buf` lies in.
        buffer_index: Option<u16>,
        /// Durable when it completes (RWF_DSYNC).
        dsync: bool,
    },
    /// Makes what was written durable; a directory's entries too.
    Fsync {
        /// Of which file.
        target: Target,
        /// Only what is needed to read the data back (fdatasync).
        data_only: bool,
    },
    /// Completes with `-ETIME` after a while.
    Timeout {
        /// How long.
        after: Timespec,
    },
    /// Cancels the operation before it in the chain when that takes longer.
    LinkTimeout {
        /// How long.
        after: Timespec,
    },
    /// Completes when the file is ready, with the events (`POLLIN` and so on).
    Poll {
        /// Which file.
        target: Target,
        /// Events to wait for, as for poll(2).
        events: u32,
        /// Completes again and again, with `more` set, until cancelled.
        multishot: bool,
    },
    /// Clears a slot of the file table, in its place in a chain.
    CloseSlot {
        /// Which slot.
        slot: u32,
    },
    /// Finished by another thread, through the mailbox; no driver sees it.
    External,
}

impl Op {
    /// The buffer of a read or write.
    pub fn buf(&self) -> Option<&Buf> {
        match self {
            Op::Read { buf, .. } | Op::Write { buf, .. } => Some(buf),
            _ => None,
        }
    }

    /// Takes the buffer out, once the operation has ended.
    pub fn into_buf(self) -> Option<Buf> {
        match self {
            Op::Read { buf, .. } | Op::Write { buf, .. } => Some(buf),
            _ => None,
        }
    }

    /// The file it is about.
    pub fn target(&self) -> Option<&Target> {
        match self {
            Op::Read { target, .. }
            | Op::Write { target, .. }
            | Op::Fsync { target, .. }
            | Op::Poll { target, .. } => Some(target),
            _ => None,
        }
    }
}
