//! `ioe_set_log`: where the library's messages go.
//!
//! A callback is one small allocation that is never freed: a thread may be between reading the pointer and counting
//! itself in, and hosts set their callback once. Setting waits for callbacks that run; no lock is held while one
//! runs, so a fork in that moment leaves the child able to log. Rejected: a lock around the callback.

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::SeqCst};

use log::{LevelFilter, Log, Metadata, Record};

use super::guard::guard_void;
use super::process;
use super::thread::Thread;

/// Receives the library's messages: one line of UTF-8 without a line end, valid during the callback. `level` is
/// one of IOE_LOG_.... Any thread of the process, several at once. It must not call the library, throw, or longjmp.
#[allow(non_camel_case_types, reason = "C's name")]
pub type ioe_log_fn =
    Option<unsafe extern "C" fn(user_data: *mut c_void, level: c_int, message: *const c_char)>;

/// For `level`: the default, which is warnings and errors.
pub const IOE_LOG_DEFAULT: c_int = 0;
/// What went wrong and was not repaired.
pub const IOE_LOG_ERROR: c_int = 1;
/// What is not as it should be: a limit reached, a fallback taken.
pub const IOE_LOG_WARN: c_int = 2;
/// What happens seldom: a log recovered, a driver chosen.
pub const IOE_LOG_INFO: c_int = 3;
/// What helps to find a fault.
pub const IOE_LOG_DEBUG: c_int = 4;
/// Everything.
pub const IOE_LOG_TRACE: c_int = 5;

struct Sink {
    function: unsafe extern "C" fn(*mut c_void, c_int, *const c_char),
    user_data: *mut c_void,
    running: AtomicUsize,
    /// The process it was set in: a child's copy may count callbacks of threads it doesn't have.
    process: u32,
    /// Chains the sinks of former calls, so that a leak checker sees them.
    older: AtomicPtr<Sink>,
}

static SINK: AtomicPtr<Sink> = AtomicPtr::new(null_mut());
static OLDER: AtomicPtr<Sink> = AtomicPtr::new(null_mut());

struct ToSink;

impl Log for ToSink {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level() && !SINK.load(SeqCst).is_null()
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let message = super::status::c_string(record.args().to_string());
        deliver(record.level() as c_int, &message);
    }

    fn flush(&self) {}
}

fn deliver(level: c_int, message: &CString) {
    let sink = SINK.load(SeqCst);
    // SAFETY: null, or a sink, which is never freed.
    let Some(sink) = (unsafe { sink.as_ref() }) else { return };
    sink.running.fetch_add(1, SeqCst);
    // Looked at again after counting in: whoever replaced it meanwhile may not have seen the count.
    if std::ptr::eq(SINK.load(SeqCst), sink) {
        // Counts as a call of the library, so that the callback can't make one; it often is inside one already.
        let _inside = Thread::enter();
        // SAFETY: the host gave this function and its data to be called with a message until replaced.
        unsafe { (sink.function)(sink.user_data, level, message.as_ptr()) };
    }
    sink.running.fetch_sub(1, SeqCst);
}

/// Sends the library's messages to `fn`, from `level` upwards in importance (IOE_LOG_...; 0 is the default, warnings
/// and errors; an unknown level changes nothing); NULL turns them off, as they are in the beginning.
///
/// Returns when the callback set before will not run again, and is not running. Any thread. From inside a callback
/// it does nothing. `user_data` is handed to each callback; the library doesn't look at it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioe_set_log(r#fn: ioe_log_fn, user_data: *mut c_void, level: c_int) {
    guard_void("ioe_set_log", |call| {
        call.start();
        let filter = match level {
            IOE_LOG_DEFAULT | IOE_LOG_WARN => LevelFilter::Warn,
            IOE_LOG_ERROR => LevelFilter::Error,
            IOE_LOG_INFO => LevelFilter::Info,
            IOE_LOG_DEBUG => LevelFilter::Debug,
            IOE_LOG_TRACE => LevelFilter::Trace,
            _ => {
                return Err(crate::base::Error::invalid(format!(
                    "ioe_set_log: {level} is no IOE_LOG_ level"
                )));
            }
        };
        replace(r#fn, user_data, filter)
    });
}

fn replace(function: ioe_log_fn, user_data: *mut c_void, filter: LevelFilter) -> crate::base::Result<()> {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Refused when a Rust host has a logger of its own: then that one has the messages.
        let _ = log::set_logger(&ToSink);
    });
    let process = process::enrol()?;
    let new = function.map_or(null_mut(), |function| {
        let (running, older) = (AtomicUsize::new(0), AtomicPtr::new(null_mut()));
        let new = Box::into_raw(Box::new(Sink { function, user_data, running, process, older }));
        // SAFETY: made just above, and never freed.
        unsafe { &*new }.older.store(OLDER.swap(new, SeqCst), SeqCst);
        new
    });
    let old = SINK.swap(new, SeqCst);
    log::set_max_level(if new.is_null() { LevelFilter::Off } else { filter });
    // SAFETY: null, or a sink, which is never freed.
    let Some(old) = (unsafe { old.as_ref() }) else { return Ok(()) };
    while old.process == process && old.running.load(SeqCst) != 0 {
        super::handle::pause(64);
    }
    Ok(())
}
