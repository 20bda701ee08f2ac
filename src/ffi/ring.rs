//! The transport, `ring_t`: its functions.

use std::cell::{RefCell, RefMut};
use std::ffi::{CString, c_int, c_void};
use std::os::fd::RawFd;
use std::ptr::NonNull;

use super::args::{self, Out, Report, as_handle, as_pointer};
use super::guard::{Call, guard};
use super::handle::{Claim, Kind, Object, Owned};
use super::last_error;
use super::ring_types::*;
use crate::base::memory::CallerMemory;
use crate::base::sync::atomic::{AtomicU32, Ordering::SeqCst};
use crate::base::{Error, Result};
use crate::ring::object::{OpFlags, RingCompletion, RingObject, Waker};

/// The most completions that one pass of a reap hands over.
const REAP_PASS: usize = 256;

/// What a `ring_t` stands for.
pub(super) struct RingBox {
    /// For any thread.
    waker: Result<Waker>,
    attach_fd: Result<RawFd>,
    notes: CString,
    /// Objects that stand on this ring.
    children: AtomicU32,
    /// For the thread that owns the handle, or holds it for a call.
    ring: RefCell<RingObject>,
    reaped: RefCell<Vec<RingCompletion>>,
}

// SAFETY: the one type of this kind.
unsafe impl Object for RingBox {
    const KIND: Kind = Kind::Ring;
    const SHARED: bool = true;
}

// SAFETY: `ring` and `reaped` are reached through `Owned` alone (below), which is one thread at a time; that it is the
// same thread from the first submission on is the handle's binding. Their parts point to one another only, and go
// from thread to thread together.
unsafe impl Send for RingBox {}
// SAFETY: shared use reaches the other fields alone, which are `Sync`.
unsafe impl Sync for RingBox {}

impl Owned<'_, RingBox> {
    /// The ring itself.
    pub(super) fn ring(&self) -> RefMut<'_, RingObject> {
        self.ring.borrow_mut()
    }

    /// One more object stands on it.
    pub(super) fn add_child(&self) {
        self.children.fetch_add(1, SeqCst);
    }

    /// One object less.
    pub(super) fn remove_child(&self) {
        self.children.fetch_sub(1, SeqCst);
    }
}

fn count(count: usize) -> Result<c_int> {
    c_int::try_from(count).map_err(|_| Error::TooLarge(format!("{count} are more than INT_MAX").into()))
}

/// Fills `o`, a struct of `size` bytes (sizeof(ring_options_t)), with the defaults.
///
/// Errors: -EINVAL. Any thread, never blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ring_options_init(o: *mut ring_options_t, size: usize) -> c_int {
    guard("ring_options_init", |call| {
        call.start();
        // SAFETY: convention 5: `o` has `size` bytes.
        unsafe { args::init(o, size, "ring_options_t") }?;
        Ok(0)
    })
}

/// Opens a ring and sets `*out`, to be closed by ring_close. `o` NULL means the defaults: io_uring where it can be
/// had, else POSIX calls with the same behaviour; no file slots, no buffers.
///
/// Errors: -EINVAL, naming the field or the combination of flags; IOE_E_UNSUPPORTED when a flag of `flags`, the
/// driver, or kernel-chosen buffers can't be had, with the reason; -ENOMEM, naming the limit to raise; -EMFILE.
/// When memory is short, queues and buffers may come out smaller: ring_info tells. Any thread; the ring isn't bound
/// yet. Doesn't block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ring_open(o: *const ring_options_t, out: *mut *mut ring_t) -> c_int {
    guard("ring_open", |call| {
        call.start();
        let out = Out::new(out, "out")?;
        // SAFETY: convention 5: `o` has `o->size` bytes.
        let asked = unsafe { args::options(o, "ring_options_t") }?;
        let (mut options, tables) = asked.checked()?;
        call.prepare()?;
        // Kept until the new ring is made, so that nobody closes it meanwhile.
        let other = as_handle(asked.attach_to);
        let other = if other == 0 { None } else { Some(call.share::<RingBox>(other)?) };
        options.attach_to = other.map(|other| other.attach_fd.clone()).transpose()?;
        let ring = RingObject::open(&options, &tables)?;
        let notes = super::status::c_string(notes(&ring.info()));
        let (waker, attach_fd) = (ring.waker(), ring.attach_fd());
        let (ring, reaped) = (RefCell::new(ring), RefCell::default());
        let ring = RingBox { waker, attach_fd, notes, children: AtomicU32::new(0), ring, reaped };
        let handle = call.insert(ring)?;
        // SAFETY: convention 4: `out` can be written.
        unsafe { out.set(as_pointer(handle)) };
        Ok(0)
    })
}

/// Closes the ring; NULL does nothing. Operations in flight are cancelled and waited for; their completions are lost.
/// Once it returns, the library and the kernel use none of the caller's memory, unless the owner has ended: then
/// what the kernel may still be writing to is kept for ever.
///
/// Errors: IOE_E_BUSY while objects (wal_t) stand on this ring; IOE_E_WRONG_THREAD elsewhere than on the owner,
/// while it lives. Waits for what can't be cancelled.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ring_close(r: *mut ring_t) -> c_int {
    guard("ring_close", |call| {
        let ready = |ring: &RingBox| match ring.children.load(SeqCst) {
            0 => Ok(()),
            n => Err(Error::Busy(format!("{n} wal_t stand on this ring: close them first").into())),
        };
        drop(call.close_owned::<RingBox>(as_handle(r), ready)?);
        Ok(0)
    })
}

/// Asks the kernel what it allows and fills `out`, whose `size` the caller set.
///
/// Errors: -EINVAL. Any thread. Makes and closes small rings, some hundred microseconds in all.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ring_capabilities(out: *mut ring_capabilities_t) -> c_int {
    guard("ring_capabilities", |call| {
        call.start();
        // SAFETY: convention 5: `out` has `out->size` bytes.
        let out = unsafe { Report::new(out, "ring_capabilities_t") }?;
        // SAFETY: as above.
        unsafe { out.set(&args::Prefixed::defaults()) };
        Ok(0)
    })
}

/// Fills `out`, whose `size` the caller set, with what the ring came out as.
///
/// Errors: -EINVAL, IOE_E_WRONG_THREAD. Never blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ring_info(r: *mut ring_t, out: *mut ring_info_t) -> c_int {
    guard("ring_info", |call| {
        let ring = call.own::<RingBox>(as_handle(r), Claim::Wait)?;
        // SAFETY: convention 5: `out` has `out->size` bytes.
        let out = unsafe { Report::new(out, "ring_info_t") }?;
        let info = ring_info_t::of(&ring.ring().info(), &ring.notes);
        // SAFETY: as above.
        unsafe { out.set(&info) };
        Ok(0)
    })
}

/// Returns the one descriptor to watch (POLLIN), made by the first call; every object on this ring returns the same
/// number. It is readable while a reap with time-out 0 would deliver something or make progress; level and edge
/// triggering both work. Never read or close it; it is gone with the ring.
///
/// Errors: IOE_E_UNSUPPORTED with IOE_RING_IOPOLL, IOE_E_WRONG_THREAD, -EMFILE. Doesn't bind. Never blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ring_fd(r: *mut ring_t) -> c_int {
    guard("ring_fd", |call| call.own::<RingBox>(as_handle(r), Claim::Wait)?.ring().fd())
}

/// Submits what is queued and waits until `min_complete` items are ready over all objects on the ring, for at most
/// `timeout_ms` (-1: for ever, 0: not at all). Returns how many are ready: fewer when the time is up, or when
/// ring_wake was called.
///
/// Errors: -EINVAL; -EINTR when a signal came and nothing is ready; IOE_E_WRONG_THREAD. Binds. Blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ring_wait(r: *mut ring_t, min_complete: c_int, timeout_ms: c_int) -> c_int {
    guard("ring_wait", |call| {
        let ring = call.own::<RingBox>(as_handle(r), Claim::Bind)?;
        let wanted = usize::try_from(min_complete)
            .map_err(|_| Error::invalid(format!("min_complete is {min_complete}, not 0 or more")))?;
        let ready = ring.ring().wait(wanted, timeout_ms)?;
        count(ready)
    })
}

/// Makes the owner's wait return, or its next one, and the descriptor readable. Many at once are one.
///
/// Errors: IOE_E_UNSUPPORTED with IOE_RING_IOPOLL. Any thread. Never blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ring_wake(r: *mut ring_t) -> c_int {
    guard("ring_wake", |call| {
        let ring = call.share::<RingBox>(as_handle(r))?;
        ring.waker.as_ref().map_err(Clone::clone)?.wake();
        Ok(0)
    })
}

/// Puts a duplicate of `fd` into a file slot (IOE_SLOT_ANY: any free one) and returns the slot. The caller still
/// closes `fd`. What is in flight on the slot's old file goes on.
///
/// Errors: -EINVAL for a slot that isn't there; -EBADF; IOE_E_STALLED when none is free; IOE_E_WRONG_THREAD.
/// Doesn't bind. Never blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ring_file_set(r: *mut ring_t, slot: c_int, fd: c_int) -> c_int {
    guard("ring_file_set", |call| {
        let ring = call.own::<RingBox>(as_handle(r), Claim::Wait)?;
        let slot = if slot == IOE_SLOT_ANY { None } else { Some(slot_number(slot)?) };
        let slot = ring.ring().set_file(slot, fd)?;
        count(slot as usize)
    })
}

/// Empties a file slot. What is in flight on its file goes on.
///
/// Errors: -EINVAL for a slot that isn't there; IOE_E_STALE when it is empty; IOE_E_WRONG_THREAD. Doesn't bind. Never
/// blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ring_file_clear(r: *mut ring_t, slot: c_int) -> c_int {
    guard("ring_file_clear", |call| {
        let ring = call.own::<RingBox>(as_handle(r), Claim::Wait)?;
        ring.ring().clear_file(slot_number(slot)?).map(|()| 0)
    })
}

fn slot_number(slot: c_int) -> Result<u32> {
    u32::try_from(slot).map_err(|_| Error::invalid(format!("there is no slot {slot}: they count from 0")))
}

/// Hands out a free registered buffer, to be used in operations and given back by ring_buffer_release.
///
/// Errors: -EINVAL; IOE_E_STALLED when none is free; IOE_E_WRONG_THREAD. Doesn't bind. Never blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ring_buffer_acquire(r: *mut ring_t, out: *mut ioe_buffer_t) -> c_int {
    guard("ring_buffer_acquire", |call| {
        let ring = call.own::<RingBox>(as_handle(r), Claim::Wait)?;
        let out = Out::new(out, "out")?;
        let got = ring.ring().acquire_buffer()?;
        let (data, index) = (got.data.cast(), c_int::from(got.index));
        // SAFETY: convention 4: `out` can be written.
        unsafe { out.set(ioe_buffer_t { data, len: got.len, index, reserved: 0 }) };
        Ok(0)
    })
}

/// Gives a registered buffer back.
///
/// Errors: -EINVAL for a buffer that isn't there; IOE_E_STALE when it wasn't handed out; IOE_E_BUSY while an
/// operation uses it; IOE_E_WRONG_THREAD. Doesn't bind. Never blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ring_buffer_release(r: *mut ring_t, index: c_int) -> c_int {
    guard("ring_buffer_release", |call| {
        let ring = call.own::<RingBox>(as_handle(r), Claim::Wait)?;
        ring.ring().release_buffer(buffer_number(index)?).map(|()| 0)
    })
}

/// Replaces a registered buffer by the caller's `len` bytes at `data`, or unregisters it (`data` NULL), after waiting
/// for what is in flight on it. The new memory is borrowed until it is replaced in its turn or the ring is closed;
/// when it is replaced, and `tag` isn't 0, a completion with IOE_CQE_NOTICE and user_data `tag` tells.
///
/// Errors: -EINVAL for a buffer that isn't there; -EFAULT, -ENOMEM with the address and the limit to raise;
/// IOE_E_BUSY when an open chain uses the buffer; -EINTR; IOE_E_WRONG_THREAD. The old buffer is then as it was.
/// Binds when it has to wait. Blocks while the buffer is in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ring_buffer_replace(
    r: *mut ring_t,
    index: c_int,
    data: *mut c_void,
    len: usize,
    tag: u64,
) -> c_int {
    guard("ring_buffer_replace", |call| {
        let mut ring = call.own::<RingBox>(as_handle(r), Claim::Wait)?;
        let index = buffer_number(index)?;
        let memory = match NonNull::new(data.cast::<u8>()) {
            None => None,
            Some(_) if len == 0 => return Err(Error::invalid("len is 0: a registered buffer has bytes")),
            Some(_) if len > isize::MAX as usize => {
                return Err(Error::TooLarge(format!("len is {len}, more than any memory").into()));
            }
            // SAFETY: convention 4 and the text above: borrowed until replaced in its turn, or closed.
            Some(data) => Some(unsafe { CallerMemory::outside(data, len) }),
        };
        if ring.ring().in_flight() > 0 {
            ring.bind();
        }
        ring.ring().replace_buffer(index, memory, tag).map(|()| 0)
    })
}

fn buffer_number(index: c_int) -> Result<u16> {
    u16::try_from(index).map_err(|_| Error::invalid(format!("there is no buffer {index}")))
}

/// Queues `count` operations: all of them or none. Returns `count`. They leave with the next submit, wait or reap of
/// any object on the ring. An operation with IOE_OP_LINK or IOE_OP_HARD_LINK opens a chain, which stays in the
/// library until its last operation, the first without a link, is there; submits and reaps leave an open chain. A full
/// submission queue makes operations wait inside the library.
///
/// Memory named by IOE_OP_RAW_POINTER, and descriptors named by IOE_OP_RAW_FD, are borrowed until the last completion
/// of the operation. Order between chains is unspecified.
///
/// Errors: -EINVAL, naming the operation and what is wrong with it; IOE_E_TOO_LARGE for a chain longer than `entries`;
/// -EACCES for what IOE_RING_RESTRICT doesn't allow; IOE_E_UNSUPPORTED for what this ring can't do; IOE_E_STALE for a
/// buffer that wasn't handed out; IOE_E_WRONG_THREAD. Doesn't bind. Never blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ring_queue(r: *mut ring_t, ops: *const ring_op_t, count: usize) -> c_int {
    guard("ring_queue", |call| {
        let ring = call.own::<RingBox>(as_handle(r), Claim::Wait)?;
        // SAFETY: convention 4: `ops` has `count` elements.
        let ops = unsafe { args::elements(ops, count, "ops") }?;
        if ops.len() > c_int::MAX as usize {
            return Err(Error::TooLarge(format!("{count} operations are more than INT_MAX").into()));
        }
        let queued = match ops {
            // SAFETY: the text above: what the operation names is borrowed until its completion.
            [one] => ring.ring().queue(&[unsafe { one.checked() }?])?,
            many => {
                // SAFETY: as above.
                let all: Result<Vec<_>> = many.iter().map(|op| unsafe { op.checked() }).collect();
                ring.ring().queue(&all?)?
            }
        };
        self::count(queued)
    })
}

fn transfer(
    op: u16,
    slot: c_int,
    (buffer, in_buffer, len): (c_int, usize, usize),
    at: u64,
    user_data: u64,
) -> ring_op_t {
    ring_op_t {
        opcode: op,
        slot_or_fd: slot,
        // A negative number becomes one that no buffer has.
        buffer_or_pointer: buffer as u64,
        offset_in_buffer: in_buffer as u64,
        len: len as u64,
        offset: at,
        user_data,
        ..NOTHING
    }
}

const NOTHING: ring_op_t = ring_op_t {
    opcode: 0,
    flags: 0,
    slot_or_fd: 0,
    buffer_or_pointer: 0,
    offset_in_buffer: 0,
    len: 0,
    offset: 0,
    into_slot: 0,
    events: 0,
    timeout_us: 0,
    user_data: 0,
};

/// Queues one operation for a helper, which can't name memory or descriptors of the caller.
fn queue_one(call: &Call, r: *mut ring_t, op: ring_op_t, flags: c_int) -> Result<c_int> {
    let ring = call.own::<RingBox>(as_handle(r), Claim::Wait)?;
    let flags = u16::try_from(flags)
        .map_err(|_| Error::invalid(format!("flags: {flags:#x} are no IOE_OP_ flags")))?;
    if OpFlags::from_bits_retain(flags).contains(OpFlags::RAW_POINTER) {
        return Err(Error::invalid("IOE_OP_RAW_POINTER is for ring_queue, which takes an address"));
    }
    // SAFETY: no address is in it, as was just checked.
    let op = unsafe { ring_op_t { flags, ..op }.checked() }?;
    let queued = ring.ring().queue(&[op])?;
    count(queued)
}

/// Queues a read of `len` bytes at `offset` of the file in `slot` into a registered buffer, `offset_in_buffer` bytes
/// into it. Returns 1.
///
/// Errors, thread: as ring_queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ring_read(
    r: *mut ring_t,
    slot: c_int,
    buffer: c_int,
    offset_in_buffer: usize,
    len: usize,
    offset: u64,
    flags: c_int,
    user_data: u64,
) -> c_int {
    let op = transfer(IOE_OPCODE_READ, slot, (buffer, offset_in_buffer, len), offset, user_data);
    guard("ring_read", |call| queue_one(call, r, op, flags))
}

/// Queues a write of `len` bytes at `offset` of the file in `slot` from a registered buffer, `offset_in_buffer` bytes
/// into it. Returns 1.
///
/// Errors, thread: as ring_queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ring_write(
    r: *mut ring_t,
    slot: c_int,
    buffer: c_int,
    offset_in_buffer: usize,
    len: usize,
    offset: u64,
    flags: c_int,
    user_data: u64,
) -> c_int {
    let op = transfer(IOE_OPCODE_WRITE, slot, (buffer, offset_in_buffer, len), offset, user_data);
    guard("ring_write", |call| queue_one(call, r, op, flags))
}

/// Queues a sync of the file in `slot`: with `data_only` of what is needed to read the data back, else of everything.
/// Returns 1.
///
/// Errors, thread: as ring_queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ring_fsync(
    r: *mut ring_t,
    slot: c_int,
    data_only: c_int,
    flags: c_int,
    user_data: u64,
) -> c_int {
    let opcode = if data_only == 0 { IOE_OPCODE_FSYNC } else { IOE_OPCODE_FDATASYNC };
    let op = ring_op_t { opcode, slot_or_fd: slot, user_data, ..NOTHING };
    guard("ring_fsync", |call| queue_one(call, r, op, flags))
}

/// Queues a time-out, which completes with -ETIME after `timeout_us` microseconds. Returns 1.
///
/// Errors, thread: as ring_queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ring_timeout(r: *mut ring_t, timeout_us: u64, user_data: u64) -> c_int {
    let op = ring_op_t { opcode: IOE_OPCODE_TIMEOUT, timeout_us, user_data, ..NOTHING };
    guard("ring_timeout", |call| queue_one(call, r, op, 0))
}

/// Asks all operations with this `user_data` to end early. Each still completes: with -ECANCELED, or with its result
/// when it was too late. The cancel itself has no completion. Returns how many there were.
///
/// Errors: IOE_E_WRONG_THREAD. Doesn't bind. Never blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ring_cancel(r: *mut ring_t, user_data: u64) -> c_int {
    guard("ring_cancel", |call| {
        let ring = call.own::<RingBox>(as_handle(r), Claim::Wait)?;
        let found = ring.ring().cancel(user_data)?;
        count(found)
    })
}

/// Submits what is queued, without waiting for anything.
///
/// Errors: IOE_E_WRONG_THREAD; what the system says when the ring has failed as a whole. Binds. Never blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ring_submit(r: *mut ring_t) -> c_int {
    guard("ring_submit", |call| {
        call.own::<RingBox>(as_handle(r), Claim::Bind)?.ring().submit()?;
        Ok(0)
    })
}

/// Submits what is queued and hands out completions that are ready, at most `max`; returns how many, 0 or more. When
/// it returns fewer than `max`, no more are ready. When one of them has -EINVAL or -EFAULT, ioe_last_error() says which
/// memory or alignment was refused.
///
/// Errors: -EINVAL; IOE_E_WRONG_THREAD; what the system says when the ring has failed as a whole. Binds. Never
/// blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ring_reap(r: *mut ring_t, out: *mut ring_completion_t, max: c_int) -> c_int {
    guard("ring_reap", |call| {
        let owned = call.own::<RingBox>(as_handle(r), Claim::Bind)?;
        let max = args::room(out, max, "out")?;
        let (mut ring, mut reaped) = (owned.ring(), owned.reaped.borrow_mut());
        let mut done = 0;
        loop {
            let pass = (max - done).min(REAP_PASS);
            reaped.resize(pass, RingCompletion::EMPTY);
            let got = match ring.reap(&mut reaped) {
                Err(e) if done == 0 => return Err(e),
                Err(_) => break,
                Ok(got) => got,
            };
            for (index, completion) in reaped.iter().take(got).enumerate() {
                // SAFETY: convention 4: `out` has room for `max` elements, and `done + index` is below that.
                unsafe { out.add(done + index).write(ring_completion_t::of(completion)) };
            }
            if let Some(detail) = ring.detail() {
                last_error::set(Error::invalid(detail));
            }
            done += got;
            if got < pass || done == max {
                break;
            }
        }
        count(done)
    })
}
