//! An operation as the C caller describes it, checked and turned into an [`Op`].
//!
//! Bad arguments are refused here, by name, before anything of the same call is queued; what only the kernel can
//! know (a slot that is empty by then, a descriptor that isn't open) is the completion's result.

use crate::base::memory::{Buf, CallerMemory};
use crate::base::{Error, Result};
use crate::ring::op::{Link, Op, Target, Timespec};

use super::buffers::Buffers;

/// Numbers of the operations (`IOE_OPCODE_…`), also the bit numbers of an allow-list. They never change; those of
/// the socket operations follow.
pub mod opcode {
    /// Nothing; completes with 0.
    pub const NOP: u16 = 0;
    /// Reads.
    pub const READ: u16 = 1;
    /// Writes.
    pub const WRITE: u16 = 2;
    /// Makes data and everything else about the file durable.
    pub const FSYNC: u16 = 3;
    /// Makes durable what is needed to read the data back.
    pub const FDATASYNC: u16 = 4;
    /// Completes with `-ETIME` after a while.
    pub const TIMEOUT: u16 = 5;
    /// Limits the time of the operation before it in the chain.
    pub const LINK_TIMEOUT: u16 = 6;
    /// Completes when a file is ready.
    pub const POLL: u16 = 7;
    /// Empties a slot.
    pub const CLOSE_SLOT: u16 = 8;
    /// Cancels the operations with the same `user_data`; has no completion of its own.
    pub const CANCEL: u16 = 9;
}

bitflags::bitflags! {
    /// Flags of an operation (`IOE_OP_…`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct OpFlags: u16 {
        /// The next operation starts when this one succeeded whole; else the rest of the chain is cancelled.
        const LINK = 1;
        /// The next operation starts when this one has ended, however.
        const HARD_LINK = 1 << 1;
        /// A poll that completes again and again until it is cancelled.
        const MULTISHOT = 1 << 2;
        /// `slot_or_fd` is a descriptor, which the caller keeps open until the completion.
        const RAW_FD = 1 << 3;
        /// The memory is a pointer, whose bytes are the ring's until the completion.
        const RAW_POINTER = 1 << 4;
        /// The kernel chooses the buffer; for receiving only.
        const SELECT_BUFFER = 1 << 5;
        /// A write that is durable when it completes.
        const DSYNC = 1 << 6;
    }
}

/// The memory of a read or write.
#[derive(Debug, Clone, Default)]
pub enum Memory {
    /// None.
    #[default]
    None,
    /// A part of a registered buffer.
    Registered {
        /// Which.
        index: u16,
        /// Where in it.
        offset: usize,
        /// How many bytes.
        len: usize,
    },
    /// Memory of the caller; goes with [`OpFlags::RAW_POINTER`].
    Caller(CallerMemory),
}

/// An operation to queue (`ring_op_t`).
#[derive(Debug, Clone, Default)]
pub struct RingOp {
    /// One of [`opcode`].
    pub opcode: u16,
    /// How.
    pub flags: OpFlags,
    /// The file.
    pub slot_or_fd: i32,
    /// The memory of a read or write.
    pub memory: Memory,
    /// Position in the file.
    pub offset: u64,
    /// Events of a poll.
    pub events: u32,
    /// Duration of a time-out.
    pub timeout_us: u64,
    /// The caller's name for it; of CANCEL, the name of what is to be cancelled.
    pub user_data: u64,
}

/// The most bytes of one transfer: the kernel's own limit.
const TRANSFER_MAX: usize = 0x7fff_f000;

impl RingOp {
    /// How it holds back the next one.
    pub(super) fn link(&self) -> Link {
        if self.flags.contains(OpFlags::HARD_LINK) {
            Link::Hard
        } else if self.flags.contains(OpFlags::LINK) {
            Link::Soft
        } else {
            Link::None
        }
    }

    /// The operation it means; `None` for CANCEL.
    pub(super) fn to_op(&self, buffers: &Buffers) -> Result<Option<Op>> {
        self.check_flags()?;
        Ok(Some(match self.opcode {
            opcode::NOP => Op::Nop,
            opcode::READ => {
                let (buf, buffer_index) = self.memory(buffers)?;
                Op::Read { target: self.target()?, buf, offset: self.position()?, buffer_index }
            }
            opcode::WRITE => {
                let (buf, buffer_index) = self.memory(buffers)?;
                let dsync = self.flags.contains(OpFlags::DSYNC);
                Op::Write { target: self.target()?, buf, offset: self.position()?, buffer_index, dsync }
            }
            opcode::FSYNC => Op::Fsync { target: self.target()?, data_only: false },
            opcode::FDATASYNC => Op::Fsync { target: self.target()?, data_only: true },
            opcode::TIMEOUT => Op::Timeout { after: Timespec::from_us(self.timeout_us) },
            opcode::LINK_TIMEOUT => Op::LinkTimeout { after: Timespec::from_us(self.timeout_us) },
            opcode::POLL => {
                let multishot = self.flags.contains(OpFlags::MULTISHOT);
                Op::Poll { target: self.target()?, events: self.events, multishot }
            }
            opcode::CLOSE_SLOT => Op::CloseSlot { slot: self.slot()? },
            opcode::CANCEL => return Ok(None),
            other => return Err(Error::invalid(format!("opcode {other} is not known"))),
        }))
    }

    fn check_flags(&self) -> Result<()> {
        let unknown = self.flags.bits() & !OpFlags::all().bits();
        if unknown != 0 {
            return Err(Error::invalid(format!("flags {unknown:#x} are not known")));
        }
        let transfer = matches!(self.opcode, opcode::READ | opcode::WRITE);
        let filed = transfer || matches!(self.opcode, opcode::FSYNC | opcode::FDATASYNC | opcode::POLL);
        let chained = self.link() != Link::None;
        let rules = [
            (OpFlags::SELECT_BUFFER, true, "SELECT_BUFFER: only for receiving from a socket"),
            (OpFlags::MULTISHOT, self.opcode != opcode::POLL, "MULTISHOT: only for POLL"),
            (OpFlags::MULTISHOT, chained, "MULTISHOT: not in a chain, which it would hold back for ever"),
            (OpFlags::DSYNC, self.opcode != opcode::WRITE, "DSYNC: only for WRITE"),
            (OpFlags::RAW_FD, !filed, "RAW_FD: only for operations on a file"),
            (OpFlags::RAW_POINTER, !transfer, "RAW_POINTER: only for READ and WRITE"),
            (OpFlags::LINK | OpFlags::HARD_LINK, self.opcode == opcode::CANCEL, "CANCEL can't be in a chain"),
        ];
        let broken = rules.into_iter().find(|(flags, broken, _)| *broken && self.flags.intersects(*flags));
        broken.map_or(Ok(()), |(_, _, text)| Err(Error::invalid(text)))
    }

    fn slot(&self) -> Result<u32> {
        u32::try_from(self.slot_or_fd)
            .map_err(|_| Error::invalid(format!("slot {}: slots count from 0", self.slot_or_fd)))
    }

    fn target(&self) -> Result<Target> {
        if !self.flags.contains(OpFlags::RAW_FD) {
            return Ok(Target::Slot(self.slot()?));
        }
        if self.slot_or_fd < 0 {
            return Err(Error::system(libc::EBADF, format!("descriptor {}", self.slot_or_fd)));
        }
        Ok(Target::Foreign(self.slot_or_fd))
    }

    fn position(&self) -> Result<u64> {
        let fits = i64::try_from(self.offset).is_ok();
        if fits {
            Ok(self.offset)
        } else {
            Err(Error::invalid(format!("offset {}: beyond any file", self.offset)))
        }
    }

    fn memory(&self, buffers: &Buffers) -> Result<(Buf, Option<u16>)> {
        let (buf, index) = match &self.memory {
            Memory::None => return Err(Error::invalid("a read or write without memory")),
            Memory::Caller(memory) => {
                let whole = memory.buf(0, memory.len());
                (whole.ok_or_else(|| Error::Internal("memory is not inside itself".into()))?, None)
            }
            Memory::Registered { index, offset, len } => (buffers.part(*index, *offset, *len)?, Some(*index)),
        };
        if buf.len() > TRANSFER_MAX {
            let text = format!("len: {} bytes; one transfer has at most {TRANSFER_MAX}", buf.len());
            return Err(Error::TooLarge(text.into()));
        }
        Ok((buf, index))
    }
}
