//! Which process this is, as a number that costs one load: a page that the kernel wipes in a child after fork.
//!
//! A handle remembers the number of the process that opened it. In a child the page reads 0, so the parent's
//! handles are told from the child's own, and the child may open new ones. Rejected: `getpid` (168 ns a call),
//! `pthread_atfork` (not run by a bare `clone`, and it can't be taken back when a library is unloaded).

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering::SeqCst};

use super::fence;
use crate::base::{Error, Result};

/// On a page of its own, wiped in children.
static WORD: AtomicPtr<AtomicU32> = AtomicPtr::new(null_mut());
/// Copied to children, so that a child's number differs from all its ancestors'.
static LAST: AtomicU32 = AtomicU32::new(0);

/// The number of this process; 0 when it has opened nothing yet.
#[inline]
pub(super) fn current() -> u32 {
    // SAFETY: null, or the page that `enrol` mapped and nobody unmaps.
    unsafe { WORD.load(SeqCst).as_ref() }.map_or(0, |word| word.load(SeqCst))
}

/// The number of this process, which from now on has one. Called by whatever opens a handle.
///
/// # Errors
/// What the system says when it has no page, or can't wipe it in children.
pub(super) fn enrol() -> Result<u32> {
    if WORD.load(SeqCst).is_null() {
        let page = map()?;
        if WORD.compare_exchange(null_mut(), page, SeqCst, SeqCst).is_err() {
            // SAFETY: mapped just now with this length, and another thread's page was published instead.
            unsafe { libc::munmap(page.cast(), PAGE) };
        }
    }
    // SAFETY: published above or before; never unmapped.
    let word = unsafe { &*WORD.load(SeqCst) };
    if word.load(SeqCst) == 0 {
        fence::enrol();
        let number = LAST.fetch_add(1, SeqCst) + 1;
        // Another thread of this process may have been first: then its number is the one.
        let _ = word.compare_exchange(0, number, SeqCst, SeqCst);
    }
    Ok(word.load(SeqCst))
}

const PAGE: usize = crate::base::memory::PAGE;

fn map() -> Result<*mut AtomicU32> {
    let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new private mapping at an address of the kernel's choice touches nothing that exists.
    let page = unsafe { libc::mmap(null_mut(), PAGE, prot, flags, -1, 0) };
    if page == libc::MAP_FAILED {
        return Err(Error::from(std::io::Error::last_os_error()).context("mapping a page to notice fork by"));
    }
    // SAFETY: the page was just mapped, and is this function's alone.
    if unsafe { libc::madvise(page, PAGE, libc::MADV_WIPEONFORK) } != 0 {
        let error = Error::from(std::io::Error::last_os_error());
        // SAFETY: as above.
        unsafe { libc::munmap(page, PAGE) };
        return Err(error.context("MADV_WIPEONFORK (Linux 4.14 or newer is needed)"));
    }
    Ok(page.cast())
}
