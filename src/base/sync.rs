//! Locks, atomics and threads: the standard library's, or shuttle's where a test explores schedules.
//!
//! A poisoned lock is taken all the same: every panic is caught at the C boundary, which poisons the handle, so
//! the state behind the lock is never trusted for writing afterwards.
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "the one place that names std's")]

#[cfg(not(feature = "shuttle"))]
pub use std::{sync::atomic, thread};

#[cfg(feature = "shuttle")]
pub use shuttle::{sync::atomic, thread};

#[cfg(not(feature = "shuttle"))]
use std::sync as imp;

#[cfg(feature = "shuttle")]
use shuttle::sync as imp;

pub use imp::{Arc, MutexGuard};
use std::time::Duration;

/// A mutual exclusion lock; see the module for poisoning.
#[derive(Debug, Default)]
pub struct Mutex<T>(imp::Mutex<T>);

impl<T> Mutex<T> {
    /// A lock around `value`.
    pub const fn new(value: T) -> Self {
        Mutex(imp::Mutex::new(value))
    }

    /// Waits for the lock and takes it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// A condition variable over a [`Mutex`].
#[derive(Debug, Default)]
pub struct Condvar(imp::Condvar);

impl Condvar {
    /// A condition nobody waits for.
    pub const fn new() -> Self {
        Condvar(imp::Condvar::new())
    }

    /// Gives the lock up until woken (spurious wake-ups happen).
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(guard).unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// As [`Condvar::wait`], at most for `timeout`.
    pub fn wait_timeout<'a, T>(&self, guard: MutexGuard<'a, T>, timeout: Duration) -> MutexGuard<'a, T> {
        self.0.wait_timeout(guard, timeout).unwrap_or_else(|poisoned| poisoned.into_inner()).0
    }

    /// Wakes one waiter.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// Starts one of the library's own threads: named, and with every signal blocked, so that the host's handlers
/// never run on it.
///
/// # Errors
/// What the system says when it can make no thread.
#[cfg(not(feature = "shuttle"))]
pub fn spawn<F>(name: &str, body: F) -> crate::base::Result<thread::JoinHandle<()>>
where
    F: FnOnce() + Send + 'static,
{
    let blocked = super::signals::BlockAll::new();
    let thread = thread::Builder::new().name(name.to_owned()).spawn(body);
    drop(blocked);
    thread.map_err(|e| crate::base::Error::from(e).context(format!("starting the thread {name}")))
}
