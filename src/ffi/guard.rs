//! The one boundary that every exported function passes: panics, nested calls, results.
//!
//! A panic ends in IOE_E_INTERNAL; what the call was using is poisoned as its guards unwind (see `handle`). The
//! panic's own message goes to the detail and the log, never to stderr: the hook is replaced for panics inside
//! calls and on the library's own threads.

use std::cell::Cell;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use super::handle::{Claim, Object, Owned, Shared};
use super::thread::{TABLE, Thread, in_call};
use super::{last_error, process};
use crate::base::{Error, Result};

/// Runs the body of an exported function that returns `int`.
#[inline]
pub(super) fn guard(name: &'static str, body: impl FnOnce(&Call) -> Result<c_int>) -> c_int {
    let outcome = match Thread::enter() {
        Some(thread) => catch_unwind(AssertUnwindSafe(|| {
            body(&Call {
                thread,
                #[cfg(test)]
                name,
            })
        })),
        None => return fail(nested(name)),
    };
    match outcome {
        Ok(Ok(count)) => count,
        Ok(Err(error)) => fail(error),
        Err(payload) => fail(defect(name, payload.as_ref())),
    }
}

/// Runs the body of an exported function that returns nothing.
pub(super) fn guard_void(name: &'static str, body: impl FnOnce(&Call) -> Result<()>) {
    guard(name, |call| body(call).map(|()| 0));
}

#[cold]
fn fail(error: Error) -> c_int {
    let code = error.code();
    last_error::set(error);
    code
}

#[cold]
fn nested(name: &str) -> Error {
    let text = format!(
        "{name} was called out of a callback or signal handler that interrupts a call of the library"
    );
    Error::system(libc::EDEADLK, text)
}

#[cold]
fn defect(name: &str, payload: &(dyn std::any::Any + Send)) -> Error {
    let message = payload
        .downcast_ref::<&str>()
        .map(|s| (*s).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned());
    let place = PLACE.take().map_or_else(String::new, |place| format!(" at {place}"));
    let text = format!("{name} caught a defect of the library: {message}{place}; please report it");
    log::error!("{text}");
    Error::Internal(text.into())
}

thread_local! {
    /// Where the last panic of this thread was.
    static PLACE: Cell<Option<String>> = const { Cell::new(None) };
}

/// Keeps panics of calls and of the library's own threads off stderr.
fn quiet_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if in_call() {
                let _ = PLACE.try_with(|place| place.set(info.location().map(ToString::to_string)));
            } else if std::thread::current().name().is_some_and(|name| name.starts_with("ioe-")) {
                log::error!("a thread of the library ended by a defect: {info}; please report it");
            } else {
                before(info);
            }
        }));
    });
}

/// One call of an exported function.
pub(super) struct Call {
    thread: Thread,
    #[cfg(test)]
    name: &'static str,
}

impl Call {
    /// Where a test makes the call panic: behind the look-up of its handle, or at the start when it has none.
    #[inline]
    fn point(&self) {
        #[cfg(test)]
        super::tests::panic_if_told(self.name);
    }

    /// For functions without a handle: the place of the injected panic.
    #[inline]
    pub(super) fn start(&self) {
        self.point();
    }

    /// An object that any thread may use.
    #[inline]
    pub(super) fn share<T: Object + Sync>(&self, handle: u64) -> Result<Shared<'_, T>> {
        let object = TABLE.share(self.thread.slot(), process::current(), handle)?;
        self.point();
        Ok(object)
    }

    /// An object that one thread at a time may use.
    #[inline]
    pub(super) fn own<T: Object>(&self, handle: u64, claim: Claim) -> Result<Owned<'_, T>> {
        let object = TABLE.own(self.thread.slot(), process::current(), handle, claim)?;
        self.point();
        Ok(object)
    }

    /// What must be there before the first handle is. Called by whatever opens one, before it opens anything.
    ///
    /// # Errors
    /// As [`process::enrol`].
    pub(super) fn prepare(&self) -> Result<()> {
        quiet_panics();
        process::enrol().map(|_| ())
    }

    /// Puts an object in the table and returns its handle.
    pub(super) fn insert<T: Object>(&self, object: T) -> Result<u64> {
        TABLE.insert(process::enrol()?, object)
    }

    /// Takes an object out that any thread may use. Nothing when the handle is NULL.
    pub(super) fn close_shared<T: Object>(&self, handle: u64) -> Result<Option<Box<T>>> {
        self.point();
        if handle == 0 {
            return Ok(None);
        }
        TABLE.take_shared(self.thread.slot(), process::current(), handle).map(Some)
    }

    /// Takes an object out that one thread at a time may use, unless `ready` refuses; with it whether its owner has
    /// ended. Nothing when the handle is NULL.
    pub(super) fn close_owned<T: Object>(
        &self,
        handle: u64,
        ready: impl FnOnce(&T) -> Result<()>,
    ) -> Result<Option<(Box<T>, bool)>> {
        self.point();
        if handle == 0 {
            return Ok(None);
        }
        TABLE.take_owned(self.thread.slot(), process::current(), handle, ready).map(Some)
    }
}
