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

/// A number that threads sleep on until it changes. Changing it costs a system call only when somebody sleeps.
///
/// It is the futex of Linux; under shuttle a condition variable stands in, because shuttle can't see a futex.
#[derive(Debug, Default)]
pub struct WaitWord {
    value: atomic::AtomicU32,
    sleepers: atomic::AtomicU32,
    #[cfg(feature = "shuttle")]
    stand_in: (Mutex<()>, Condvar),
}

impl WaitWord {
    /// A word nobody sleeps on.
    pub fn new() -> Self {
        WaitWord::default()
    }

    /// Its value, to be read before the condition that the sleep is for.
    pub fn value(&self) -> u32 {
        self.value.load(atomic::Ordering::SeqCst)
    }

    /// Sleeps unless the value has changed from `seen`; at most for `timeout`. Wakes for no reason at times.
    pub fn wait(&self, seen: u32, timeout: Option<Duration>) {
        self.sleepers.fetch_add(1, atomic::Ordering::SeqCst);
        self.sleep(seen, timeout);
        self.sleepers.fetch_sub(1, atomic::Ordering::SeqCst);
    }

    #[cfg(not(feature = "shuttle"))]
    fn sleep(&self, seen: u32, timeout: Option<Duration>) {
        use rustix::thread::futex;
        let timeout = timeout.map(|t| futex::Timespec {
            tv_sec: i64::try_from(t.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: t.subsec_nanos().into(),
        });
        // It ends by a wake-up, a changed value, a signal or the time: the caller looks at its condition anyway.
        let _ = futex::wait(&self.value, futex::Flags::PRIVATE, seen, timeout.as_ref());
    }

    #[cfg(feature = "shuttle")]
    fn sleep(&self, seen: u32, timeout: Option<Duration>) {
        let guard = self.stand_in.0.lock();
        if self.value() == seen {
            drop(match timeout {
                None => self.stand_in.1.wait(guard),
                Some(timeout) => self.stand_in.1.wait_timeout(guard, timeout),
            });
        }
    }

    /// Changes the value and wakes everybody who sleeps.
    pub fn wake_all(&self) {
        self.wake(u32::MAX >> 1);
    }

    /// Changes the value and wakes one sleeper; whoever is just about to sleep doesn't.
    pub fn wake_one(&self) {
        self.wake(1);
    }

    #[cfg(not(feature = "shuttle"))]
    fn wake(&self, count: u32) {
        self.value.fetch_add(1, atomic::Ordering::SeqCst);
        // A sleeper counts itself before the kernel compares the value: not counted yet means that it will see
        // the new one.
        if self.sleepers.load(atomic::Ordering::SeqCst) > 0 {
            let _ = rustix::thread::futex::wake(&self.value, rustix::thread::futex::Flags::PRIVATE, count);
        }
    }

    #[cfg(feature = "shuttle")]
    fn wake(&self, count: u32) {
        let guard = self.stand_in.0.lock();
        self.value.fetch_add(1, atomic::Ordering::SeqCst);
        drop(guard);
        if count == 1 { self.stand_in.1.notify_one() } else { self.stand_in.1.notify_all() }
    }
}

/// Starts one of the library's own threads: named, and with every signal blocked, so that the host's handlers
/// never run on it.
///
/// # Errors
/// What the system says when it can make no thread.
pub fn spawn<F>(name: &str, body: F) -> crate::base::Result<thread::JoinHandle<()>>
where
    F: FnOnce() + Send + 'static,
{
    let blocked = super::signals::BlockAll::new();
    let thread = thread::Builder::new().name(name.to_owned()).spawn(body);
    drop(blocked);
    thread.map_err(|e| crate::base::Error::from(e).context(format!("starting the thread {name}")))
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn a_sleeper_wakes_when_the_word_changes() {
        let word = Arc::new(WaitWord::new());
        let seen = word.value();
        let sleeper = {
            let word = word.clone();
            thread::spawn(move || {
                while word.value() == seen {
                    word.wait(seen, None);
                }
            })
        };
        word.wake_one();
        sleeper.join().unwrap();
        // The value has changed already: this doesn't sleep.
        word.wait(seen, None);
    }

    #[test]
    fn a_sleep_ends_with_its_time() {
        let word = WaitWord::new();
        word.wait(word.value(), Some(Duration::from_millis(1)));
        assert_eq!(word.value(), 0);
    }
}
