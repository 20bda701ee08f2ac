//! The calling thread's slot in the handle table, and the one table there is.
//!
//! A plain thread-local pointer without a destructor is what a call pays; a second thread-local, touched once, gives
//! the slot back when the thread ends. Calls made even later (destructors of the host that run after ours) borrow a
//! slot for the call; what they bind has no owner any more, and can be closed by anybody.

use std::cell::Cell;
use std::ptr::null;
use std::sync::atomic::Ordering::Relaxed;

use super::handle::{Slot, Table};

/// Every handle of the process.
pub(super) static TABLE: Table = Table::new();

thread_local! {
    static SLOT: Cell<*const Slot> = const { Cell::new(null()) };
    static LEAVE: Leave = const { Leave };
}

struct Leave;

impl Drop for Leave {
    fn drop(&mut self) {
        let slot = SLOT.replace(null());
        // SAFETY: null, or a slot of the table, which never frees one.
        if let Some(slot) = unsafe { slot.as_ref() } {
            TABLE.give_slot_back(slot);
        }
    }
}

/// The calling thread, inside a call of the library.
pub(super) struct Thread {
    slot: &'static Slot,
    borrowed: bool,
}

impl Thread {
    /// Enters a call; nothing when this thread is in one already (a callback or a signal handler calls the library).
    #[inline]
    pub(super) fn enter() -> Option<Thread> {
        // SAFETY: null, or a slot of the table, which never frees one.
        let (slot, borrowed) = match unsafe { SLOT.get().as_ref() } {
            Some(slot) => (slot, false),
            None => Self::first(),
        };
        if slot.in_call.load(Relaxed) != 0 {
            return None;
        }
        slot.in_call.store(1, Relaxed);
        Some(Thread { slot, borrowed })
    }

    #[cold]
    fn first() -> (&'static Slot, bool) {
        let slot = TABLE.take_slot();
        SLOT.set(slot);
        (slot, LEAVE.try_with(|_| ()).is_err())
    }

    /// Its slot.
    #[inline]
    pub(super) fn slot(&self) -> &'static Slot {
        self.slot
    }
}

impl Drop for Thread {
    #[inline]
    fn drop(&mut self) {
        self.slot.in_call.store(0, Relaxed);
        if self.borrowed {
            SLOT.set(null());
            TABLE.give_slot_back(self.slot);
        }
    }
}

/// Whether the calling thread is inside a call of the library.
pub(super) fn in_call() -> bool {
    // SAFETY: null, or a slot of the table, which never frees one.
    unsafe { SLOT.get().as_ref() }.is_some_and(|slot| slot.in_call.load(Relaxed) != 0)
}
