//! Views of values, `engine_view_t`: what a view holds is behind a handle of its own, so that releasing one twice, or a
//! copy of it, or on any thread, or after the store is closed, harms nothing.

use std::ffi::{c_int, c_void};

use super::args::{self, Out, as_handle};
use super::engine::engine_t;
use super::guard::{guard, guard_void};
use super::handle::{Kind, Object};
use crate::engine::store::Store;
use crate::engine::view::View;

/// A value of the store, to be read in place.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
#[allow(non_camel_case_types, reason = "C's name")]
pub struct engine_view_t {
    /// The value; not to be written. Valid until the view is released.
    pub data: *const c_void,
    /// Its length.
    pub len: usize,
    /// What keeps it; the library's.
    pub pin: [u64; 2],
}

// SAFETY: the one type of this kind.
unsafe impl Object for View {
    const KIND: Kind = Kind::View;
    const SHARED: bool = false;
}

/// Sets `*out` to the value of a key, to be given back by engine_view_release. Values up to 4 KiB are copied, longer
/// ones stay where they are: then the view keeps the memory, up to a quarter of memory_limit_bytes over all views,
/// beyond which views copy too. A view outlives engine_close, and later changes of the key.
///
/// Errors: -EINVAL; IOE_E_NOT_FOUND; IOE_E_TOO_LARGE for a key over 65,535 bytes; -ENOMEM. Any thread. Waits for no
/// writer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engine_get_view(
    e: *mut engine_t,
    key: *const c_void,
    key_len: usize,
    out: *mut engine_view_t,
) -> c_int {
    guard("engine_get_view", |call| {
        let store = call.share::<Store>(as_handle(e))?;
        // SAFETY: convention 4: the key reaches its length.
        let key = unsafe { args::key(key, key_len) }?;
        let out = Out::new(out, "out")?;
        let view = store.get_view(key)?;
        // The bytes are behind a pointer of the view's, so they stay where they are when the view moves.
        let (data, len) = (view.as_ptr().cast(), view.len());
        let pin = [call.insert(view)?, 0];
        // SAFETY: convention 4: `out` can be written.
        unsafe { out.set(engine_view_t { data, len, pin }) };
        Ok(0)
    })
}

/// Gives a view back and makes it empty. NULL, an empty view, and one that was released before, do nothing.
///
/// Any thread, never blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engine_view_release(v: *mut engine_view_t) {
    guard_void("engine_view_release", |call| {
        call.start();
        if v.is_null() {
            return Ok(());
        }
        let out = Out::new(v, "v")?;
        // SAFETY: convention 4: `v` is a view that the library filled, or zeros.
        let pin = unsafe { out.get() }.pin[0];
        call.close_shared::<View>(pin)?;
        // SAFETY: convention 4: `v` can be written.
        unsafe { out.set(engine_view_t { data: std::ptr::null(), len: 0, pin: [0; 2] }) };
        Ok(())
    });
}
