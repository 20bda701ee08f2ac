//! Result codes, their explanations, and the version.
//!
//! The codes are written as numbers here because the header is made from this file; a test compares them with
//! [`crate::base::error::code`].

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering::SeqCst};

/// Versions with the same major number are compatible.
pub const IOE_VERSION_MAJOR: c_int = 0;
/// Goes up when functions or fields are added.
pub const IOE_VERSION_MINOR: c_int = 1;
/// Goes up when only defects were mended.
pub const IOE_VERSION_PATCH: c_int = 0;

/// Success.
pub const IOE_OK: c_int = 0;
/// No such key.
pub const IOE_E_NOT_FOUND: c_int = -10001;
/// Stored bytes fail their check; ioe_last_error() names file, offset, what was expected and what was there.
pub const IOE_E_CORRUPT: c_int = -10002;
/// An earlier write failed; reads work, reopen to write.
pub const IOE_E_POISONED: c_int = -10003;
/// This write may or may not be durable.
pub const IOE_E_INDETERMINATE: c_int = -10004;
/// Open elsewhere, or children still open (named in the detail).
pub const IOE_E_BUSY: c_int = -10005;
/// The handle or connection is gone, or never was.
pub const IOE_E_STALE: c_int = -10006;
/// Closed while the operation was pending.
pub const IOE_E_CLOSED: c_int = -10007;
/// The caller's buffer is too small; the length needed is reported.
pub const IOE_E_TOO_SMALL: c_int = -10008;
/// This kernel, file system or driver can't; the detail says why.
pub const IOE_E_UNSUPPORTED: c_int = -10009;
/// Written by an incompatible version.
pub const IOE_E_VERSION: c_int = -10010;
/// The handle was opened by the parent process.
pub const IOE_E_FORKED: c_int = -10011;
/// Cancelled by the caller.
pub const IOE_E_CANCELLED: c_int = -10012;
/// Back-pressure: try again after the writable event, else after the next reap, release or flush.
pub const IOE_E_STALLED: c_int = -10013;
/// This object belongs to another thread.
pub const IOE_E_WRONG_THREAD: c_int = -10014;
/// Can never fit a limit (key, value, chain, memory ceiling).
pub const IOE_E_TOO_LARGE: c_int = -10015;
/// A deadline passed.
pub const IOE_E_TIMED_OUT: c_int = -10016;
/// A defect was caught; the handle is poisoned, and can only be closed.
pub const IOE_E_INTERNAL: c_int = -10099;

/// A run of bytes: keys, values, parts of a message.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
#[allow(non_camel_case_types, reason = "C's name")]
pub struct ioe_slice_t {
    /// The first byte; anything when `len` is 0.
    pub data: *const c_void,
    /// How many.
    pub len: usize,
}

const UNKNOWN: &std::ffi::CStr = c"no code of this library or the system";
const ERRNOS: usize = 4096;

/// Explanations of the system's errors, made when first asked for and kept for ever.
static SYSTEM: [AtomicPtr<c_char>; ERRNOS] = [const { AtomicPtr::new(null_mut()) }; ERRNOS];

/// Explains any result in one English sentence; a count is a success.
///
/// Ownership: the library's, valid for ever. Any thread, never blocks, never fails.
#[unsafe(no_mangle)]
pub extern "C" fn ioe_strerror(code: c_int) -> *const c_char {
    let text = match code {
        0.. => c"success",
        IOE_E_NOT_FOUND => c"no such key",
        IOE_E_CORRUPT => c"stored bytes fail their check",
        IOE_E_POISONED => c"an earlier write failed; reads work, reopen to write",
        IOE_E_INDETERMINATE => c"this write may or may not be durable",
        IOE_E_BUSY => c"open elsewhere, or children are still open",
        IOE_E_STALE => c"the handle or connection is gone, or never was",
        IOE_E_CLOSED => c"closed while the operation was pending",
        IOE_E_TOO_SMALL => c"the buffer is too small; the length needed is reported",
        IOE_E_UNSUPPORTED => c"this kernel, file system or driver can't do it",
        IOE_E_VERSION => c"written by an incompatible version",
        IOE_E_FORKED => c"the handle was opened by the parent process; a child must open its own",
        IOE_E_CANCELLED => c"cancelled by the caller",
        IOE_E_STALLED => {
            c"back-pressure: try again after the writable event, or the next reap, release or flush"
        }
        IOE_E_WRONG_THREAD => c"this object belongs to another thread",
        IOE_E_TOO_LARGE => c"larger than a limit that can't be waited out",
        IOE_E_TIMED_OUT => c"a deadline passed",
        IOE_E_INTERNAL => c"a defect of the library was caught; the handle is poisoned",
        _ => return system(code),
    };
    text.as_ptr()
}

fn system(code: c_int) -> *const c_char {
    let Some(place) = code.checked_neg().and_then(|errno| SYSTEM.get(usize::try_from(errno).ok()?)) else {
        return UNKNOWN.as_ptr();
    };
    let known = place.load(SeqCst);
    if !known.is_null() {
        return known;
    }
    let mut text = std::io::Error::from_raw_os_error(-code).to_string();
    // "No such file or directory (os error 2)": the number is in the caller's hand already.
    if let Some(end) = text.rfind(" (os error") {
        text.truncate(end);
    }
    let made = c_string(text).into_raw();
    match place.compare_exchange(null_mut(), made, SeqCst, SeqCst) {
        Ok(_) => made,
        Err(other) => {
            // SAFETY: made by `into_raw` just above, and handed to nobody: another thread's text was published.
            drop(unsafe { CString::from_raw(made) });
            other
        }
    }
}

/// The library's version, "MAJOR.MINOR.PATCH"; of the library that was loaded, while IOE_VERSION_... are those of the
/// header the program was compiled with.
///
/// Ownership: the library's, valid for ever. Any thread, never blocks, never fails.
#[unsafe(no_mangle)]
pub extern "C" fn ioe_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// A C string of a text, which ends at its first NUL byte if it has one.
pub(super) fn c_string(text: String) -> CString {
    CString::new(text).unwrap_or_else(|e| {
        let end = e.nul_position();
        let mut bytes = e.into_vec();
        bytes.truncate(end);
        CString::new(bytes).unwrap_or_default()
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;
    use crate::base::error::code;

    fn text(code: c_int) -> &'static str {
        // SAFETY: the function's promise.
        unsafe { CStr::from_ptr(ioe_strerror(code)) }.to_str().unwrap()
    }

    #[test]
    fn the_header_s_codes_are_the_crate_s() {
        let pairs = [
            (IOE_E_NOT_FOUND, code::NOT_FOUND),
            (IOE_E_CORRUPT, code::CORRUPT),
            (IOE_E_POISONED, code::POISONED),
            (IOE_E_INDETERMINATE, code::INDETERMINATE),
            (IOE_E_BUSY, code::BUSY),
            (IOE_E_STALE, code::STALE),
            (IOE_E_CLOSED, code::CLOSED),
            (IOE_E_TOO_SMALL, code::TOO_SMALL),
            (IOE_E_UNSUPPORTED, code::UNSUPPORTED),
            (IOE_E_VERSION, code::VERSION),
            (IOE_E_FORKED, code::FORKED),
            (IOE_E_CANCELLED, code::CANCELLED),
            (IOE_E_STALLED, code::STALLED),
            (IOE_E_WRONG_THREAD, code::WRONG_THREAD),
            (IOE_E_TOO_LARGE, code::TOO_LARGE),
            (IOE_E_TIMED_OUT, code::TIMED_OUT),
            (IOE_E_INTERNAL, code::INTERNAL),
        ];
        let mut texts = std::collections::BTreeSet::new();
        for (c, rust) in pairs {
            assert_eq!(c, rust);
            assert!(texts.insert(text(c)), "{c} has a text of its own");
        }
    }

    #[test]
    fn every_number_has_an_explanation() {
        assert_eq!(text(-libc::ENOENT), "No such file or directory");
        assert_eq!(text(7), "success");
        let unknown = UNKNOWN.to_str().unwrap();
        for code in [-4096, -10000, -10017, -10098, -10100, c_int::MIN] {
            assert_eq!(text(code), unknown);
        }
        assert!(std::ptr::eq(ioe_strerror(-5), ioe_strerror(-5)));
    }

    #[test]
    fn the_version_is_the_package_s() {
        // SAFETY: the function's promise.
        let version = unsafe { CStr::from_ptr(ioe_version()) }.to_str().unwrap();
        assert_eq!(version, format!("{IOE_VERSION_MAJOR}.{IOE_VERSION_MINOR}.{IOE_VERSION_PATCH}"));
    }
}
