//! A fence whose price the closer pays: calls are many, closes are few.
//!
//! A call shows the handle it uses and then checks that it is live; a close makes it dead and then looks who shows it.
//! Neither may be delayed behind the other. On the call's side that would be an exchange, most of what a whole call
//! costs. Where the kernel has `membarrier` (Linux 4.14), the close makes every running thread of the process pass
//! a barrier instead, and the call needs to keep the compiler from turning its two steps around, no more.
//!
//! Invariant: which of the two ways is used changes only while the process has no handle: [`enrol`] runs before the
//! number of the process is published, and no handle is made before that.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use crate::base::sync::atomic::AtomicU64;

/// Whether closes make calls pass a barrier. Tests under shuttle see the other way, which it can explore.
static CLOSER_PAYS: AtomicBool = AtomicBool::new(false);

/// Chooses the way for this process, which has no handle yet.
pub(super) fn enrol() {
    let usable =
        cfg!(not(feature = "shuttle")) && membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
    CLOSER_PAYS.store(usable, SeqCst);
}

/// Stores `value`; what the calling thread loads next is not loaded before a close can see it.
#[inline]
pub(super) fn store_before_load(place: &AtomicU64, value: u64) {
    if CLOSER_PAYS.load(std::sync::atomic::Ordering::Relaxed) {
        place.store(value, crate::base::sync::atomic::Ordering::Relaxed);
        std::sync::atomic::compiler_fence(SeqCst);
    } else {
        place.swap(value, SeqCst);
    }
}

/// The other side: what other threads stored by [`store_before_load`] before they could see this thread's last store
/// is seen from here on.
pub(super) fn before_looking() {
    if !CLOSER_PAYS.load(SeqCst) || membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED) {
        return;
    }
    // The host has forbidden the call since (a filter). A store reaches memory within microseconds: wait far longer.
    let long = rustix::thread::Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
    let _ = rustix::thread::nanosleep(&long);
}

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: the call takes three numbers, and touches no memory of this process.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}
