//! Blocks signals while one of the library's threads is being started.
//!
//! A new thread inherits its maker's mask, so blocking around the start leaves no moment in which the host's
//! handlers could run on a thread of ours. What is rejected: blocking inside the new thread, which has that moment.
#![allow(unsafe_code, reason = "the signal mask has no safe interface in the crates used")]

use std::mem::MaybeUninit;

/// While it lives, the calling thread has every signal blocked; dropping it puts the old mask back.
pub struct BlockAll {
    old: libc::sigset_t,
}

impl BlockAll {
    /// Blocks all signals on the calling thread.
    pub fn new() -> Self {
        let mut all = MaybeUninit::<libc::sigset_t>::uninit();
        let mut old = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: both pointers are to writable sets; `sigfillset` initialises the first, and
        // `pthread_sigmask` with a valid `how` can't fail and initialises the second.
        let old = unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), old.as_mut_ptr());
            old.assume_init()
        };
        BlockAll { old }
    }
}

impl Default for BlockAll {
    fn default() -> Self {
        BlockAll::new()
    }
}

impl Drop for BlockAll {
    fn drop(&mut self) {
        // SAFETY: `old` was filled by `pthread_sigmask` in `new`.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &self.old, std::ptr::null_mut());
        }
    }
}
