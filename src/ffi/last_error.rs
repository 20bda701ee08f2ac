//! The detail of a thread's last failed call: kept as an [`Error`], put into words only when asked for.

use std::cell::RefCell;
use std::ffi::{CString, c_char};

use crate::base::Error;

#[derive(Default)]
struct Last {
    error: Option<Error>,
    /// The words handed to C, until the next time they are asked for.
    text: CString,
}

thread_local! {
    static LAST: RefCell<Last> = RefCell::new(Last::default());
}

/// Keeps the error of a call that failed.
pub(super) fn set(error: Error) {
    // Fails only while the thread ends, when nobody can ask any more.
    let _ = LAST.try_with(|last| {
        if let Ok(mut last) = last.try_borrow_mut() {
            last.error = Some(error);
        }
    });
}

/// The detail of the calling thread's last failed call (file and offset, the limit to raise, what to do), in
/// English. Empty when no call of this thread has failed. A successful call changes nothing.
///
/// Ownership: the library's; valid until this thread calls ioe_last_error again, or ends. Any thread, never
/// blocks, never fails.
#[unsafe(no_mangle)]
pub extern "C" fn ioe_last_error() -> *const c_char {
    const NONE: &std::ffi::CStr = c"";
    let words = LAST.try_with(|last| {
        let Ok(mut last) = last.try_borrow_mut() else { return NONE.as_ptr() };
        let text = last.error.as_ref().map_or_else(String::new, ToString::to_string);
        last.text = super::status::c_string(text);
        last.text.as_ptr()
    });
    words.unwrap_or(NONE.as_ptr())
}
