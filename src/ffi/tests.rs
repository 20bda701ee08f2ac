//! Tests of the boundary as a whole: panics injected in every export.

use std::cell::Cell;

thread_local! {
    static PANIC_IN: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// Called by the guard in test builds: panics in the function that a test named.
pub(super) fn panic_if_told(name: &'static str) {
    if PANIC_IN.get() == Some(name) {
        PANIC_IN.set(None);
        panic!("injected into {name}");
    }
}
