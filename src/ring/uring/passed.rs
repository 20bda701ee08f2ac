//! A ring that is handed from thread to thread: one uses it, drains it, and passes it on.
#![allow(
    unsafe_code,
    reason = "an `Io` counts its clones without atomics; here it is shown that there is one"
)]

use crate::base::{Error, Result};
use crate::ring::Io;
use crate::ring::driver::Driver;

/// A ring without an owner thread, for whoever leads a group next.
///
/// The ring must not be bound to one thread: neither SINGLE_ISSUER nor DEFER_TASKRUN.
pub struct Passed {
    io: Option<Io>,
}

// SAFETY: between two calls of `with` the `Io` inside is the only handle to its reactor and nothing is in flight on
// it (`with` checks both and otherwise gives the ring up for good), so no other thread can touch the counts that are
// not atomic; a ring without SINGLE_ISSUER takes submissions from any thread.
unsafe impl Send for Passed {}

impl std::fmt::Debug for Passed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Passed").field("usable", &self.io.is_some()).finish()
    }
}

impl Passed {
    /// A ring to pass on.
    pub fn new(driver: Driver) -> Self {
        Passed { io: Some(Io::new(driver)) }
    }

    /// Uses the ring on this thread.
    ///
    /// # Errors
    /// [`Error::Internal`] when an earlier use left something in flight, or kept a handle: then the ring is leaked,
    /// since the thread that still uses it can't be told.
    pub fn with<T>(&mut self, body: impl FnOnce(&Io) -> T) -> Result<T> {
        let gone = || Error::Internal("the log's ring was given up: an operation was left on it".into());
        // Taken out while it is used: a panic in `body` leaves nothing behind that could be passed on.
        let io = std::mem::ManuallyDrop::new(self.io.take().ok_or_else(gone)?);
        let value = body(&io);
        if io.is_sole_handle() && io.with_reactor(|r| r.in_driver()) == 0 && io.live_tasks() == 0 {
            self.io = Some(std::mem::ManuallyDrop::into_inner(io));
        }
        Ok(value)
    }
}
