//! The log on its own, `wal_t`: its functions.
//!
//! A log on a shared ring has parts of that ring in its hands, so every call claims the ring along with the log: two
//! threads never are inside one ring, also before anything is bound.

use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_void};

use super::args::{self, Out, Report, as_handle, as_pointer};
use super::engine::wish;
use super::guard::{Call, guard};
use super::handle::{Claim, Kind, Object, Owned};
use super::ring::RingBox;
use super::ring_types::choice;
use super::wal_types::*;
use crate::base::{Error, Result};
use crate::ring::options::RingOptions;
use crate::wal::log::{Event, Log, On, Options, replay};

/// The most events that one pass of a reap hands over.
const REAP_PASS: usize = 256;

/// What a `wal_t` stands for.
struct WalBox {
    /// The handle of the shared ring; 0 when it has its own.
    ring: u64,
    log: RefCell<Log>,
    reaped: RefCell<Vec<Event>>,
}

// SAFETY: the one type of this kind.
unsafe impl Object for WalBox {
    const KIND: Kind = Kind::Wal;
    const SHARED: bool = false;
}

// SAFETY: reached through `Owned` alone, which is one thread at a time; what it shares with a ring is reached only while
// that ring is held, too (`Using`). Its parts point to one another only, and go from thread to thread together.
unsafe impl Send for WalBox {}

/// A log, and the ring it stands on, during a call.
struct Using<'a> {
    wal: Owned<'a, WalBox>,
    _ring: Option<Owned<'a, RingBox>>,
}

fn using(call: &Call, w: *mut wal_t, bind: bool) -> Result<Using<'_>> {
    let mut wal = call.own::<WalBox>(as_handle(w), Claim::Wait)?;
    let claim = if bind { Claim::Bind } else { Claim::Wait };
    let ring = if wal.ring == 0 { None } else { Some(call.own::<RingBox>(wal.ring, claim)?) };
    if bind {
        wal.bind();
    }
    Ok(Using { wal, _ring: ring })
}

/// Fills `o`, a struct of `size` bytes (sizeof(wal_options_t)), with the defaults.
///
/// Errors: -EINVAL. Any thread, never blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wal_options_init(o: *mut wal_options_t, size: usize) -> c_int {
    guard("wal_options_init", |call| {
        call.start();
        // SAFETY: convention 5: `o` has `size` bytes.
        unsafe { args::init(o, size, "wal_options_t") }?;
        Ok(0)
    })
}

/// Opens the log in the directory `dir`, which is made when it is missing (its parent must be there), and sets `*out`,
/// to be closed by wal_close. `o` NULL means the defaults. What the log holds is recovered and made durable first, and
/// kept until wal_release; wal_recover reads it, before this call or after wal_close.
///
/// Errors: -EINVAL; IOE_E_BUSY when it is open elsewhere; IOE_E_CORRUPT with file and offset when it is damaged;
/// IOE_E_VERSION; IOE_E_UNSUPPORTED for a driver that can't be had; -ENOTDIR, -ENOENT, -EACCES, -EROFS, -ENOSPC, -EIO.
/// Any thread; the log isn't bound yet. Blocks: reads the whole log.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wal_open(
    dir: *const c_char,
    o: *const wal_options_t,
    out: *mut *mut wal_t,
) -> c_int {
    guard("wal_open", |call| {
        call.start();
        // SAFETY: convention 4: `dir` is a C string.
        let dir = unsafe { args::path(dir, "dir") }?;
        let out = Out::new(out, "out")?;
        // SAFETY: convention 5: `o` has `o->size` bytes.
        let asked = unsafe { args::options(o, "wal_options_t") }?;
        let options = asked.checked()?;
        let own = RingOptions { driver: choice(asked.driver)?, ..RingOptions::default() };
        call.prepare()?;
        let shared = as_handle(asked.ring);
        let held = if shared == 0 { None } else { Some(call.own::<RingBox>(shared, Claim::Wait)?) };
        let io = held.as_ref().map(|ring| ring.ring().io().clone());
        let log = Log::open(dir, &options, io.as_ref().map_or(On::Own(&own), On::Shared))?;
        let wal = WalBox { ring: shared, log: RefCell::new(log), reaped: RefCell::default() };
        let handle = call.insert(wal)?;
        if let Some(ring) = held {
            ring.add_child();
        }
        // SAFETY: convention 4: `out` can be written.
        unsafe { out.set(as_pointer(handle)) };
        Ok(0)
    })
}

impl wal_options_t {
    fn checked(&self) -> Result<Options> {
        Ok(Options {
            segment_bytes: self.segment_bytes as u64,
            checkpoint_every: self.checkpoint_every as u64,
            sync: wish(self.sync)?,
            seal_after_us: u64::from(self.seal_after_ms) * 1000,
            direct: self.direct != 0,
        })
    }
}

/// Copies a record and queues it; sets `*sequence`, unless that is NULL, to the record's number: 1 more than the record
/// before. It leaves with the next submit or reap, and its end is an event of wal_reap.
///
/// Errors: -EINVAL; IOE_E_STALLED when too much is queued or too many events weren't reaped; IOE_E_TOO_LARGE;
/// IOE_E_POISONED after a failed write; -ENOMEM; IOE_E_WRONG_THREAD. Nothing was taken then. Doesn't bind. Never blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wal_append(
    w: *mut wal_t,
    data: *const c_void,
    len: usize,
    user_data: u64,
    sequence: *mut u64,
) -> c_int {
    guard("wal_append", |call| {
        let using = using(call, w, false)?;
        // SAFETY: convention 4: `data` reaches `len` bytes.
        let data = unsafe { args::bytes(data, len, "data") }?;
        let out = if sequence.is_null() { None } else { Some(Out::new(sequence, "sequence")?) };
        let given = using.wal.log.borrow_mut().append(data, user_data)?;
        if let Some(out) = out {
            // SAFETY: convention 4: `sequence` can be written.
            unsafe { out.set(given) };
        }
        Ok(0)
    })
}

/// Sends off what is queued, without waiting for anything.
///
/// Errors: IOE_E_WRONG_THREAD; what the system says when the ring has failed as a whole. Binds. Never blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wal_submit(w: *mut wal_t) -> c_int {
    guard("wal_submit", |call| using(call, w, true)?.wal.log.borrow_mut().submit().map(|()| 0))
}

/// Sends off what is queued, waits until `min_complete` items are ready over all objects on the ring, for at most
/// `timeout_ms` (-1: for ever, 0: not at all), and hands out this log's events: at most `max`, one for each record that
/// was appended, strictly in the order of sequences. Returns how many, 0 or more. With a ring of its own it doesn't wait
/// for events that can't come.
///
/// Errors: -EINVAL; -EINTR when a signal came and nothing is ready; IOE_E_WRONG_THREAD. Binds. Blocks as asked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wal_reap(
    w: *mut wal_t,
    out: *mut wal_event_t,
    max: c_int,
    min_complete: c_int,
    timeout_ms: c_int,
) -> c_int {
    guard("wal_reap", |call| {
        let using = using(call, w, true)?;
        let max = args::room(out, max, "out")?;
        let mut wanted = usize::try_from(min_complete)
            .map_err(|_| Error::invalid(format!("min_complete is {min_complete}, not 0 or more")))?;
        let (mut log, mut reaped) = (using.wal.log.borrow_mut(), using.wal.reaped.borrow_mut());
        let (mut done, mut timeout_ms) = (0, timeout_ms);
        loop {
            let pass = (max - done).min(REAP_PASS);
            reaped.resize(pass, Event::EMPTY);
            let got = match log.reap(&mut reaped, wanted, timeout_ms) {
                Err(e) if done == 0 => return Err(e),
                Err(_) => break,
                Ok(got) => got,
            };
            for (index, event) in reaped.iter().take(got).enumerate() {
                let Event { user_data, sequence, result } = *event;
                let event = wal_event_t { user_data, sequence, result, reserved: 0, reserved2: 0 };
                // SAFETY: convention 4: `out` has room for `max` elements, and `done + index` is below that.
                unsafe { out.add(done + index).write(event) };
            }
            done += got;
            if got < pass || done == max {
                break;
            }
            (wanted, timeout_ms) = (0, 0);
        }
        c_int::try_from(done)
            .map_err(|_| Error::Internal("a reap handed out more than it was asked for".into()))
    })
}

/// Returns the one descriptor to watch (POLLIN), made by the first call: that of the ring, see ring_fd.
///
/// Errors: IOE_E_UNSUPPORTED with IOE_RING_IOPOLL, IOE_E_WRONG_THREAD, -EMFILE. Doesn't bind. Never blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wal_fd(w: *mut wal_t) -> c_int {
    guard("wal_fd", |call| using(call, w, false)?.wal.log.borrow_mut().fd())
}

/// The records up to and with this sequence aren't needed any more: their segments are used again, as soon as the log
/// says so durably.
///
/// Errors: -EINVAL for a sequence that wasn't given yet; IOE_E_WRONG_THREAD. Doesn't bind. Never blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wal_release(w: *mut wal_t, up_to_sequence: u64) -> c_int {
    guard("wal_release", |call| {
        using(call, w, false)?.wal.log.borrow_mut().release(up_to_sequence).map(|()| 0)
    })
}

/// Closes the log; NULL does nothing. What is queued is written, what is under way is waited for, and the log is sealed;
/// events that weren't reaped are lost. When the owner has ended, nothing is waited for, and the directory stays locked
/// until the process ends.
///
/// Errors: IOE_E_INDETERMINATE when records under way may or may not be durable; what stood in the way of writing them;
/// the log is closed and the handle gone all the same. IOE_E_WRONG_THREAD elsewhere than on the owner, while it lives:
/// nothing is closed then. Blocks: writes to the device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wal_close(w: *mut wal_t) -> c_int {
    guard("wal_close", |call| {
        call.start();
        let handle = as_handle(w);
        if handle == 0 {
            return Ok(0);
        }
        let shared = call.own::<WalBox>(handle, Claim::Inherit)?.ring;
        let ring = if shared == 0 { None } else { Some(call.own::<RingBox>(shared, Claim::Inherit)?) };
        let Some((wal, orphaned)) = call.close_owned::<WalBox>(handle, |_| Ok(()))? else { return Ok(0) };
        let log = wal.log.into_inner();
        let closed = if orphaned {
            log.abandon();
            Ok(0)
        } else {
            log.close().map(|()| 0)
        };
        if let Some(mut ring) = ring {
            ring.remove_child();
            // Closing may have driven the ring, which then is this thread's.
            let driven = ring.ring().is_bound();
            if driven && !orphaned {
                ring.bind();
            }
        }
        closed
    })
}

/// Fills `o`, a struct of `size` bytes (sizeof(wal_recover_options_t)), with the defaults.
///
/// Errors: -EINVAL. Any thread, never blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wal_recover_options_init(o: *mut wal_recover_options_t, size: usize) -> c_int {
    guard("wal_recover_options_init", |call| {
        call.start();
        // SAFETY: convention 5: `o` has `size` bytes.
        unsafe { args::init(o, size, "wal_recover_options_t") }?;
        Ok(0)
    })
}

/// Replays the log in the directory `dir` without opening it: hands its records to `fn` in order, with `user_data`, and
/// changes nothing. `fn` may be NULL, to count and check only. `stats`, whose `size` the caller set, is filled in on
/// success, unless it is NULL. `o` NULL means the defaults.
///
/// A log ends where a crash tore it; what is damaged below what was proven durable is IOE_E_CORRUPT, unless
/// o->salvage is set. Records may have been delivered by then.
///
/// Errors: -EINVAL; IOE_E_CANCELLED when `fn` returned not 0; IOE_E_BUSY while it is open; IOE_E_CORRUPT with file and
/// offset; IOE_E_VERSION; -ENOENT, -ENOTDIR, -EACCES, -EIO. Any thread. Blocks: reads the whole log.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wal_recover(
    dir: *const c_char,
    o: *const wal_recover_options_t,
    r#fn: wal_replay_fn,
    user_data: *mut c_void,
    stats: *mut wal_recovery_t,
) -> c_int {
    guard("wal_recover", |call| {
        call.start();
        // SAFETY: convention 4: `dir` is a C string.
        let dir = unsafe { args::path(dir, "dir") }?;
        // SAFETY: convention 5: `o` has `o->size` bytes.
        let options = unsafe { args::options(o, "wal_recover_options_t") }?;
        let report = if stats.is_null() {
            None
        } else {
            // SAFETY: convention 5: `stats` has `stats->size` bytes.
            Some(unsafe { Report::new(stats, "wal_recovery_t") }?)
        };
        call.prepare()?;
        let found = replay(dir, options.salvage != 0, &mut |record| {
            let Some(function) = r#fn else { return Ok(()) };
            let data = record.payload;
            // SAFETY: the caller gave this function to be called with records during this call.
            let said = unsafe { function(user_data, record.sequence, data.as_ptr().cast(), data.len()) };
            if said == 0 { Ok(()) } else { Err(Error::Cancelled) }
        })?;
        if let Some(report) = report {
            // SAFETY: convention 5, as above.
            unsafe { report.set(&wal_recovery_t::of(&found)) };
        }
        Ok(0)
    })
}
