//! Constants and structs of the transport, and how they become the Rust ring's own.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::NonNull;

use super::args::Prefixed;
use super::engine::{IOE_DRIVER_AUTO, IOE_DRIVER_POSIX, IOE_DRIVER_URING, unknown};
use super::status::c_string;
use crate::base::memory::CallerMemory;
use crate::base::sync::Mutex;
use crate::base::{Error, Result};
use crate::ring::driver::Kind;
use crate::ring::object::{Memory, OpFlags, RingCompletion, RingInfo, RingOp, TableOptions, opcode};
use crate::ring::options::{Allowed, Choice, RingOptions, SetupFlags};
use crate::ring::probe::{Capabilities, Feature};

/// A kernel thread polls the submission queue: fewer system calls, one busy CPU.
pub const IOE_RING_SQPOLL: u32 = 1 << 0;
/// That thread stays on the CPU sqpoll_cpu.
pub const IOE_RING_SQ_AFF: u32 = 1 << 1;
/// Completions are polled for: direct I/O on devices with poll queues only. ring_fd, ring_wake, timers and syncs
/// give IOE_E_UNSUPPORTED.
pub const IOE_RING_IOPOLL: u32 = 1 << 2;
/// Shares the workers (and the SQPOLL thread) of the ring attach_to.
pub const IOE_RING_ATTACH: u32 = 1 << 3;
/// The completion queue has cq_entries.
pub const IOE_RING_CQSIZE: u32 = 1 << 4;
/// A submission goes on behind an operation that is refused at once.
pub const IOE_RING_SUBMIT_ALL: u32 = 1 << 5;
/// Completion work waits for the owner's next system call instead of interrupting it.
pub const IOE_RING_COOP_TASKRUN: u32 = 1 << 6;
/// The ring tells when such work waits.
pub const IOE_RING_TASKRUN_FLAG: u32 = 1 << 7;
/// One thread alone submits. With IOE_RING_DEFER_TASKRUN the default of a ring that names none of SQPOLL,
/// COOP_TASKRUN, TASKRUN_FLAG, SINGLE_ISSUER, DEFER_TASKRUN.
pub const IOE_RING_SINGLE_ISSUER: u32 = 1 << 8;
/// Completion work waits until the owner asks for completions.
pub const IOE_RING_DEFER_TASKRUN: u32 = 1 << 9;
/// Only allowed_opcodes are accepted: others give -EACCES.
pub const IOE_RING_RESTRICT: u32 = 1 << 10;
/// Waits poll the network card's queues for a while.
pub const IOE_RING_NAPI: u32 = 1 << 11;

/// Nothing; completes with 0.
pub const IOE_OPCODE_NOP: u16 = 0;
/// Reads at `offset`; completes with the number of bytes. Fewer than asked for at the end of the file only, or in a
/// chain.
pub const IOE_OPCODE_READ: u16 = 1;
/// Writes at `offset`; completes with the number of bytes: all, but in a chain perhaps fewer.
pub const IOE_OPCODE_WRITE: u16 = 2;
/// Makes the file durable, data and everything else about it.
pub const IOE_OPCODE_FSYNC: u16 = 3;
/// Makes durable what is needed to read the data back.
pub const IOE_OPCODE_FDATASYNC: u16 = 4;
/// Completes with -ETIME after timeout_us.
pub const IOE_OPCODE_TIMEOUT: u16 = 5;
/// In a chain: cancels the operation before it when that takes longer than timeout_us.
pub const IOE_OPCODE_LINK_TIMEOUT: u16 = 6;
/// Completes when the file is ready for `events` (POLLIN, POLLOUT, ...), with the events that hold.
pub const IOE_OPCODE_POLL: u16 = 7;
/// Empties the file slot, in its place in a chain.
pub const IOE_OPCODE_CLOSE_SLOT: u16 = 8;
/// Cancels all operations of this user_data: each still completes, the cancel itself doesn't.
pub const IOE_OPCODE_CANCEL: u16 = 9;

/// The next operation starts when this one succeeded whole; else the rest of the chain gets -ECANCELED.
pub const IOE_OP_LINK: u16 = 1 << 0;
/// The next operation starts when this one has ended, however.
pub const IOE_OP_HARD_LINK: u16 = 1 << 1;
/// A poll that completes again and again until it is cancelled.
pub const IOE_OP_MULTISHOT: u16 = 1 << 2;
/// slot_or_fd is a descriptor, which the caller keeps open until the completion.
pub const IOE_OP_RAW_FD: u16 = 1 << 3;
/// buffer_or_pointer is a pointer; its memory is borrowed until the completion.
pub const IOE_OP_RAW_POINTER: u16 = 1 << 4;
/// The kernel chooses the buffer: for receiving, which comes with the network engine.
pub const IOE_OP_SELECT_BUFFER: u16 = 1 << 5;
/// A write that is durable when it completes.
pub const IOE_OP_DSYNC: u16 = 1 << 6;

/// The operation goes on: more completions of it follow.
pub const IOE_CQE_MORE: u32 = 1 << 0;
/// Not a result, but news that memory is the caller's again.
pub const IOE_CQE_NOTICE: u32 = 1 << 1;
/// The memory was copied, not sent from where it lay.
pub const IOE_CQE_COPIED: u32 = 1 << 2;
/// The kernel chose the buffer.
pub const IOE_CQE_BUFFER: u32 = 1 << 3;

/// For ring_file_set: any free slot.
pub const IOE_SLOT_ANY: c_int = -1;

/// A ring: submit operations, later receive their completions.
#[allow(non_camel_case_types, reason = "C's name")]
pub struct ring_t {
    _private: (),
}

/// What a ring is opened with; see ring_options_init.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
#[allow(non_camel_case_types, reason = "C's name")]
pub struct ring_options_t {
    /// sizeof(ring_options_t).
    pub size: usize,
    /// IOE_DRIVER_...
    pub driver: c_int,
    /// IOE_RING_... that must be had: else the open fails with IOE_E_UNSUPPORTED and the reason.
    pub flags: u32,
    /// IOE_RING_... that are taken if they can be had; ring_info tells.
    pub flags_wanted: u32,
    /// With IOE_RING_RESTRICT: the sum of 1 << IOE_OPCODE_... of what is allowed.
    pub allowed_opcodes: u64,
    /// Operations that can be submitted at once, and the longest chain; rounded up to a power of two. 256.
    pub entries: u32,
    /// Completions that the kernel holds; 0: four times `entries`. More are kept, none is lost.
    pub cq_entries: u32,
    /// CPU of the SQPOLL thread, with IOE_RING_SQ_AFF; -1: any.
    pub sqpoll_cpu: i32,
    /// The SQPOLL thread sleeps after so many idle milliseconds; 0: one second.
    pub sqpoll_idle_ms: u32,
    /// With IOE_RING_ATTACH: the ring to share with. Used during the open only.
    pub attach_to: *mut ring_t,
    /// NUMA node of the buffers; -1: any.
    pub numa_node: i32,
    /// File slots, all empty at first.
    pub file_slots: u32,
    /// Registered buffers.
    pub buffer_count: u32,
    /// Bytes of each.
    pub buffer_size: usize,
    /// Kernel-chosen buffers, which come with the network engine: 0, else IOE_E_UNSUPPORTED.
    pub select_count: u32,
    /// Bytes of each: 0, else IOE_E_UNSUPPORTED.
    pub select_size: usize,
    /// Huge pages behind the buffers, where the system has them.
    pub huge_pages: c_int,
}

// SAFETY: `repr(C)`, `size` first, integers and a pointer only.
unsafe impl Prefixed for ring_options_t {
    fn defaults() -> Self {
        let o = RingOptions::default();
        ring_options_t {
            size: size_of::<Self>(),
            driver: IOE_DRIVER_AUTO,
            flags: o.flags.bits(),
            flags_wanted: o.flags_wanted.bits(),
            allowed_opcodes: 0,
            entries: o.entries,
            cq_entries: o.cq_entries,
            sqpoll_cpu: -1,
            sqpoll_idle_ms: o.sqpoll_idle_ms,
            attach_to: std::ptr::null_mut(),
            numa_node: -1,
            file_slots: 0,
            buffer_count: 0,
            buffer_size: 0,
            select_count: 0,
            select_size: 0,
            huge_pages: 0,
        }
    }
}

/// How an operation ended. Frozen.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
#[allow(non_camel_case_types, reason = "C's name")]
pub struct ring_completion_t {
    /// The operation's.
    pub user_data: u64,
    /// A count or events, or -errno.
    pub result: i32,
    /// IOE_CQE_...
    pub flags: u32,
    /// The first byte of a read's or write's memory; else NULL.
    pub data: *mut c_void,
    /// The registered buffer; -1: none.
    pub buffer: i32,
    /// 0.
    pub reserved: i32,
}

/// An operation to queue. Frozen. Fields that an opcode doesn't speak of are ignored.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
#[allow(non_camel_case_types, reason = "C's name")]
pub struct ring_op_t {
    /// IOE_OPCODE_...
    pub opcode: u16,
    /// IOE_OP_...
    pub flags: u16,
    /// The file: a slot, or with IOE_OP_RAW_FD a descriptor.
    pub slot_or_fd: i32,
    /// The memory: a registered buffer's index, or with IOE_OP_RAW_POINTER an address.
    pub buffer_or_pointer: u64,
    /// Where in that memory.
    pub offset_in_buffer: u64,
    /// How many bytes.
    pub len: u64,
    /// Position in the file; ignored by what has none.
    pub offset: u64,
    /// The slot that an accepted connection goes into, which comes with the network engine.
    pub into_slot: i32,
    /// Events of a poll.
    pub events: u32,
    /// Duration of IOE_OPCODE_TIMEOUT and IOE_OPCODE_LINK_TIMEOUT.
    pub timeout_us: u64,
    /// Comes back in the completion.
    pub user_data: u64,
}

/// A registered buffer that was handed out. Frozen.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
#[allow(non_camel_case_types, reason = "C's name")]
pub struct ioe_buffer_t {
    /// Its first byte.
    pub data: *mut c_void,
    /// Its length.
    pub len: usize,
    /// Its number, for operations.
    pub index: i32,
    /// 0.
    pub reserved: i32,
}

/// What a ring came out as; see ring_info.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
#[allow(non_camel_case_types, reason = "C's name")]
pub struct ring_info_t {
    /// sizeof(ring_info_t), set by the caller.
    pub size: usize,
    /// IOE_DRIVER_URING or IOE_DRIVER_POSIX.
    pub driver: c_int,
    /// IOE_RING_... in effect, also those the library set by itself.
    pub flags: u32,
    /// Operations that can be submitted at once, and the longest chain.
    pub entries: u32,
    /// Completions that the kernel holds.
    pub cq_entries: u32,
    /// With IOE_RING_RESTRICT: the sum of 1 << IOE_OPCODE_... of what is allowed.
    pub allowed_opcodes: u64,
    /// File slots.
    pub file_slots: u32,
    /// Registered buffers.
    pub buffer_count: u32,
    /// Bytes of each.
    pub buffer_size: usize,
    /// Bytes that count against RLIMIT_MEMLOCK.
    pub pinned_bytes: u64,
    /// What came out differently than asked and why, a sentence per line: a flag of flags_wanted that couldn't be
    /// had, a smaller queue and the limit to raise, the reason why POSIX serves instead of io_uring. Never NULL;
    /// the library's, valid until the ring is closed.
    pub notes: *const c_char,
}

/// What this kernel allows, feature by feature: NULL when it is usable, else a sentence that says why not (the
/// library's, valid for ever). With IOE_DRIVER_POSIX all but the flags of io_uring's own work all the same.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
#[allow(non_camel_case_types, reason = "C's name")]
pub struct ring_capabilities_t {
    /// sizeof(ring_capabilities_t), set by the caller.
    pub size: usize,
    /// io_uring itself.
    pub io_uring: *const c_char,
    /// IOE_RING_SQPOLL.
    pub sqpoll: *const c_char,
    /// IOE_RING_SQ_AFF.
    pub sq_aff: *const c_char,
    /// IOE_RING_IOPOLL; whether a device has poll queues shows with its first read.
    pub iopoll: *const c_char,
    /// IOE_RING_ATTACH.
    pub attach: *const c_char,
    /// IOE_RING_CQSIZE.
    pub cqsize: *const c_char,
    /// IOE_RING_SUBMIT_ALL.
    pub submit_all: *const c_char,
    /// IOE_RING_COOP_TASKRUN.
    pub coop_taskrun: *const c_char,
    /// IOE_RING_TASKRUN_FLAG.
    pub taskrun_flag: *const c_char,
    /// IOE_RING_SINGLE_ISSUER.
    pub single_issuer: *const c_char,
    /// IOE_RING_DEFER_TASKRUN.
    pub defer_taskrun: *const c_char,
    /// IOE_RING_RESTRICT.
    pub restrictions: *const c_char,
    /// IOE_RING_NAPI.
    pub napi: *const c_char,
    /// File slots.
    pub file_slots: *const c_char,
    /// Registered buffers that can be replaced one by one.
    pub registered_buffers: *const c_char,
    /// IOE_OPCODE_LINK_TIMEOUT.
    pub link_timeout: *const c_char,
    /// IOE_OP_MULTISHOT with IOE_OPCODE_POLL.
    pub multishot_poll: *const c_char,
}

// SAFETY: `repr(C)`, `size` first, integers and a pointer only.
unsafe impl Prefixed for ring_info_t {
    fn defaults() -> Self {
        ring_info_t {
            size: size_of::<Self>(),
            driver: 0,
            flags: 0,
            entries: 0,
            cq_entries: 0,
            allowed_opcodes: 0,
            file_slots: 0,
            buffer_count: 0,
            buffer_size: 0,
            pinned_bytes: 0,
            notes: c"".as_ptr(),
        }
    }
}

// SAFETY: `repr(C)`, `size` first, pointers only.
unsafe impl Prefixed for ring_capabilities_t {
    fn defaults() -> Self {
        let all = Capabilities::probe();
        let of = |feature| all.of(feature).err().map_or(std::ptr::null(), keep);
        ring_capabilities_t {
            size: size_of::<Self>(),
            io_uring: of(Feature::IoUring),
            sqpoll: of(Feature::Sqpoll),
            sq_aff: of(Feature::SqAff),
            iopoll: of(Feature::Iopoll),
            attach: of(Feature::Attach),
            cqsize: of(Feature::CqSize),
            submit_all: of(Feature::SubmitAll),
            coop_taskrun: of(Feature::CoopTaskrun),
            taskrun_flag: of(Feature::TaskrunFlag),
            single_issuer: of(Feature::SingleIssuer),
            defer_taskrun: of(Feature::DeferTaskrun),
            restrictions: of(Feature::Restrict),
            napi: of(Feature::Napi),
            file_slots: of(Feature::FileSlots),
            registered_buffers: of(Feature::RegisteredBuffers),
            link_timeout: of(Feature::LinkTimeout),
            multishot_poll: of(Feature::MultishotPoll),
        }
    }
}

/// Keeps a sentence for ever, each once: there are few different ones.
fn keep(sentence: String) -> *const c_char {
    static KEPT: Mutex<Vec<&'static CStr>> = Mutex::new(Vec::new());
    let sentence = c_string(sentence);
    let mut kept = KEPT.lock();
    if let Some(known) = kept.iter().find(|known| ***known == *sentence) {
        return known.as_ptr();
    }
    let leaked: &'static CStr = Box::leak(sentence.into_boxed_c_str());
    kept.push(leaked);
    leaked.as_ptr()
}

pub(super) fn choice(driver: c_int) -> Result<Choice> {
    match driver {
        IOE_DRIVER_AUTO => Ok(Choice::Auto),
        IOE_DRIVER_URING => Ok(Choice::Uring),
        IOE_DRIVER_POSIX => Ok(Choice::Posix),
        other => Err(unknown("driver", other)),
    }
}

/// -1 is none.
fn optional(value: i32, name: &str) -> Result<Option<u32>> {
    match value {
        -1 => Ok(None),
        0.. => Ok(Some(value.unsigned_abs())),
        _ => Err(Error::invalid(format!("{name} is {value}, not a number and not -1"))),
    }
}

fn flags(bits: u32, name: &str) -> Result<SetupFlags> {
    SetupFlags::from_bits(bits).ok_or_else(|| {
        Error::invalid(format!("{name}: {:#x} are no IOE_RING_ flags", bits & !SetupFlags::all().bits()))
    })
}

/// The bit of cancelling in an allow-list: a ring may always cancel, so it changes nothing.
const CANCEL: u64 = 1 << opcode::CANCEL;

impl ring_options_t {
    /// As the Rust ring takes them, but for `attach_to`.
    pub(super) fn checked(&self) -> Result<(RingOptions, TableOptions)> {
        if self.select_count != 0 || self.select_size != 0 {
            let text = "select_count, select_size: kernel-chosen buffers come with the network engine";
            return Err(Error::Unsupported(text.into()));
        }
        let opcodes = self.allowed_opcodes & !CANCEL;
        let allowed = u32::try_from(opcodes).ok().and_then(Allowed::from_bits);
        let allowed = allowed
            .ok_or_else(|| Error::invalid(format!("allowed_opcodes: {opcodes:#x} has unknown opcodes")))?;
        let options = RingOptions {
            driver: choice(self.driver)?,
            flags: flags(self.flags, "flags")?,
            flags_wanted: flags(self.flags_wanted, "flags_wanted")?,
            allowed,
            entries: self.entries,
            cq_entries: self.cq_entries,
            sqpoll_cpu: optional(self.sqpoll_cpu, "sqpoll_cpu")?,
            sqpoll_idle_ms: self.sqpoll_idle_ms,
            attach_to: None,
        };
        let tables = TableOptions {
            file_slots: self.file_slots,
            buffer_count: self.buffer_count,
            buffer_size: self.buffer_size,
            huge_pages: self.huge_pages != 0,
            numa_node: optional(self.numa_node, "numa_node")?,
        };
        Ok((options, tables))
    }
}

impl ring_info_t {
    pub(super) fn of(info: &RingInfo, notes: &CStr) -> Self {
        let granted = &info.granted;
        ring_info_t {
            size: size_of::<Self>(),
            driver: if granted.kind == Kind::Uring { IOE_DRIVER_URING } else { IOE_DRIVER_POSIX },
            flags: granted.flags.bits(),
            entries: granted.entries,
            cq_entries: granted.cq_entries,
            allowed_opcodes: u64::from(granted.allowed.bits()),
            file_slots: info.file_slots,
            buffer_count: info.buffer_count,
            buffer_size: info.buffer_size,
            pinned_bytes: info.pinned_bytes,
            notes: notes.as_ptr(),
        }
    }
}

/// What a ring's notes say, as one text.
pub(super) fn notes(info: &RingInfo) -> String {
    let dropped = info.granted.dropped.iter();
    let dropped =
        dropped.map(|dropped| format!("{} was not to be had: {}", dropped.flags.names(), dropped.reason));
    info.granted.notes.iter().cloned().chain(dropped).collect::<Vec<_>>().join("\n")
}

impl ring_completion_t {
    pub(super) fn of(completion: &RingCompletion) -> Self {
        ring_completion_t {
            user_data: completion.user_data,
            result: completion.result,
            flags: completion.flags,
            data: completion.data.cast(),
            buffer: completion.buffer,
            reserved: 0,
        }
    }
}

impl ring_op_t {
    /// # Safety
    /// With IOE_OP_RAW_POINTER the memory is the ring's until the completion.
    pub(super) unsafe fn checked(&self) -> Result<RingOp> {
        let flags = OpFlags::from_bits_retain(self.flags);
        let memory = match self.opcode {
            opcode::READ | opcode::WRITE if flags.contains(OpFlags::RAW_POINTER) => {
                // SAFETY: the caller's promise.
                unsafe { lent(self.buffer_or_pointer, self.offset_in_buffer, self.len) }?
            }
            opcode::READ | opcode::WRITE => {
                registered(self.buffer_or_pointer, self.offset_in_buffer, self.len)?
            }
            _ => Memory::None,
        };
        Ok(RingOp {
            opcode: self.opcode,
            flags,
            slot_or_fd: self.slot_or_fd,
            memory,
            offset: self.offset,
            events: self.events,
            timeout_us: self.timeout_us,
            user_data: self.user_data,
        })
    }
}

fn registered(index: u64, offset: u64, len: u64) -> Result<Memory> {
    let index = u16::try_from(index).map_err(|_| Error::invalid(format!("there is no buffer {index}")))?;
    Ok(Memory::Registered { index, offset: offset as usize, len: len as usize })
}

/// # Safety
/// The memory is the ring's until the completion.
unsafe fn lent(address: u64, offset: u64, len: u64) -> Result<Memory> {
    let start = address.checked_add(offset).filter(|start| start.checked_add(len).is_some());
    let pointer = start.and_then(|start| NonNull::new(start as *mut u8));
    let pointer = match pointer {
        Some(pointer) if address != 0 => pointer,
        _ if len == 0 => NonNull::dangling(),
        _ => {
            let text = format!("IOE_OP_RAW_POINTER with the address {address:#x} + {offset} and {len} bytes");
            return Err(Error::invalid(text));
        }
    };
    // SAFETY: the caller's promise; an empty run needs none.
    Ok(Memory::Caller(unsafe { CallerMemory::outside(pointer, len as usize) }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::object::completion_flags;

    #[test]
    fn the_header_s_numbers_are_the_ring_s() {
        let flags = [
            (IOE_RING_SQPOLL, SetupFlags::SQPOLL),
            (IOE_RING_SQ_AFF, SetupFlags::SQ_AFF),
            (IOE_RING_IOPOLL, SetupFlags::IOPOLL),
            (IOE_RING_ATTACH, SetupFlags::ATTACH),
            (IOE_RING_CQSIZE, SetupFlags::CQSIZE),
            (IOE_RING_SUBMIT_ALL, SetupFlags::SUBMIT_ALL),
            (IOE_RING_COOP_TASKRUN, SetupFlags::COOP_TASKRUN),
            (IOE_RING_TASKRUN_FLAG, SetupFlags::TASKRUN_FLAG),
            (IOE_RING_SINGLE_ISSUER, SetupFlags::SINGLE_ISSUER),
            (IOE_RING_DEFER_TASKRUN, SetupFlags::DEFER_TASKRUN),
            (IOE_RING_RESTRICT, SetupFlags::RESTRICT),
            (IOE_RING_NAPI, SetupFlags::NAPI),
        ];
        assert_eq!(flags.iter().fold(0, |all, (c, _)| all | c), SetupFlags::all().bits());
        for (c, rust) in flags {
            assert_eq!(c, rust.bits());
        }
        let opcodes = [
            (IOE_OPCODE_NOP, opcode::NOP),
            (IOE_OPCODE_READ, opcode::READ),
            (IOE_OPCODE_WRITE, opcode::WRITE),
            (IOE_OPCODE_FSYNC, opcode::FSYNC),
            (IOE_OPCODE_FDATASYNC, opcode::FDATASYNC),
            (IOE_OPCODE_TIMEOUT, opcode::TIMEOUT),
            (IOE_OPCODE_LINK_TIMEOUT, opcode::LINK_TIMEOUT),
            (IOE_OPCODE_POLL, opcode::POLL),
            (IOE_OPCODE_CLOSE_SLOT, opcode::CLOSE_SLOT),
            (IOE_OPCODE_CANCEL, opcode::CANCEL),
            (IOE_OP_LINK, OpFlags::LINK.bits()),
            (IOE_OP_HARD_LINK, OpFlags::HARD_LINK.bits()),
            (IOE_OP_MULTISHOT, OpFlags::MULTISHOT.bits()),
            (IOE_OP_RAW_FD, OpFlags::RAW_FD.bits()),
            (IOE_OP_RAW_POINTER, OpFlags::RAW_POINTER.bits()),
            (IOE_OP_SELECT_BUFFER, OpFlags::SELECT_BUFFER.bits()),
            (IOE_OP_DSYNC, OpFlags::DSYNC.bits()),
        ];
        for (c, rust) in opcodes {
            assert_eq!(c, rust);
        }
        let completion = [
            (IOE_CQE_MORE, completion_flags::MORE),
            (IOE_CQE_NOTICE, completion_flags::NOTICE),
            (IOE_CQE_COPIED, completion_flags::COPIED),
            (IOE_CQE_BUFFER, completion_flags::BUFFER),
        ];
        for (c, rust) in completion {
            assert_eq!(c, rust);
        }
        for (bit, allowed) in [(IOE_OPCODE_NOP, Allowed::NOP), (IOE_OPCODE_CLOSE_SLOT, Allowed::CLOSE_SLOT)] {
            assert_eq!(1 << bit, allowed.bits());
        }
        assert_eq!(1 << IOE_OPCODE_FDATASYNC, Allowed::FDATASYNC.bits());
        assert_eq!(1 << IOE_OPCODE_POLL, Allowed::POLL.bits());
    }
}
