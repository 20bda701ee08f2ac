//! Write batches, `engine_writebatch_t`.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};

use super::args::{self, Out, as_handle, as_pointer};
use super::guard::guard;
use super::handle::{Claim, Kind, Object};
use crate::base::Error;
use crate::engine::batch::WriteBatch;

/// Changes that are written together.
#[allow(non_camel_case_types, reason = "C's name")]
pub struct engine_writebatch_t {
    _private: (),
}

/// Borrowed by one call at a time: the handle's claim sees to it.
pub(super) type Batch = RefCell<WriteBatch>;

// SAFETY: the one type of this kind.
unsafe impl Object for Batch {
    const KIND: Kind = Kind::WriteBatch;
    const SHARED: bool = false;
}

/// Makes an empty batch: puts and deletes that engine_write writes together, all or none. Sets `*out`, to be freed
/// by engine_writebatch_destroy.
///
/// Errors: -EINVAL, -ENOMEM. Any thread, never blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engine_writebatch_create(out: *mut *mut engine_writebatch_t) -> c_int {
    guard("engine_writebatch_create", |call| {
        call.start();
        let out = Out::new(out, "out")?;
        call.prepare()?;
        let handle = call.insert(Batch::default())?;
        // SAFETY: convention 4: `out` can be written.
        unsafe { out.set(as_pointer(handle)) };
        Ok(0)
    })
}

/// Adds a put, with copies of key and value. Later changes of a key win over earlier ones.
///
/// Errors: -EINVAL; IOE_E_TOO_LARGE for a key over 65,535 bytes, a value over 1 GiB, or a batch over 4 GiB; -ENOMEM;
/// IOE_E_BUSY when another thread is using the batch. The batch is then as it was. One thread at a time, never
/// blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engine_writebatch_put(
    b: *mut engine_writebatch_t,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    value_len: usize,
) -> c_int {
    guard("engine_writebatch_put", |call| {
        let batch = call.own::<Batch>(as_handle(b), Claim::Refuse)?;
        // SAFETY: convention 4: both reach their lengths.
        let (key, value) = unsafe { (args::key(key, key_len)?, args::value(value, value_len)?) };
        batch.borrow_mut().put(key, value).map(|()| 0)
    })
}

/// Adds a delete, with a copy of the key.
///
/// Errors, thread, blocking: as engine_writebatch_put.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engine_writebatch_delete(
    b: *mut engine_writebatch_t,
    key: *const c_void,
    key_len: usize,
) -> c_int {
    guard("engine_writebatch_delete", |call| {
        let batch = call.own::<Batch>(as_handle(b), Claim::Refuse)?;
        // SAFETY: convention 4: the key reaches its length.
        batch.borrow_mut().delete(unsafe { args::key(key, key_len) }?).map(|()| 0)
    })
}

/// Takes all changes out again, and keeps the memory for the next ones.
///
/// Errors: -EINVAL; IOE_E_BUSY when another thread is using the batch. One thread at a time, never blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engine_writebatch_clear(b: *mut engine_writebatch_t) -> c_int {
    guard("engine_writebatch_clear", |call| {
        call.own::<Batch>(as_handle(b), Claim::Refuse)?.borrow_mut().clear();
        Ok(0)
    })
}

/// How many changes the batch has.
///
/// Errors: -EINVAL; IOE_E_BUSY when another thread is using the batch; IOE_E_TOO_LARGE when they are more than
/// INT_MAX. One thread at a time, never blocks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engine_writebatch_count(b: *const engine_writebatch_t) -> c_int {
    guard("engine_writebatch_count", |call| {
        let count = call.own::<Batch>(as_handle(b), Claim::Refuse)?.borrow().count();
        c_int::try_from(count)
            .map_err(|_| Error::TooLarge(format!("{count} changes are more than INT_MAX").into()))
    })
}

/// Frees the batch; NULL does nothing. Waits for a call in progress on another thread.
///
/// Errors: IOE_E_STALE. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn engine_writebatch_destroy(b: *mut engine_writebatch_t) -> c_int {
    guard("engine_writebatch_destroy", |call| {
        drop(call.close_owned::<Batch>(as_handle(b), |_| Ok(()))?);
        Ok(0)
    })
}
