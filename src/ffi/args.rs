//! What comes in from C and goes out to it: bytes, names, out-parameters, structs that begin with their size.
//!
//! Everything that can be checked about an argument is checked here, before anything is done. What can't be checked
//! (that a pointer reaches as far as its length says) is the caller's promise, stated at the head of the header.

use std::ffi::{CStr, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::base::{Error, Result};

#[cfg(not(target_pointer_width = "64"))]
compile_error!("handles are 64-bit values in pointers: a 64-bit system is needed");

/// No struct of this interface will be larger; a larger `size` is an uninitialised one.
const MAX_STRUCT: usize = 4096;

/// A run of bytes, borrowed for the call. Length 0 is empty whatever the pointer.
///
/// # Safety
/// `pointer` reaches `len` bytes, unchanged until the call returns.
pub(super) unsafe fn bytes<'a>(pointer: *const c_void, len: usize, what: &str) -> Result<&'a [u8]> {
    if len == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() {
        return Err(Error::invalid(format!("{what} is NULL, but its length is {len}")));
    }
    if len > isize::MAX as usize {
        return Err(Error::TooLarge(format!("{what} has the length {len}, more than any memory").into()));
    }
    // SAFETY: not NULL and no longer than memory can be; the rest is the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(pointer.cast(), len) })
}

/// A key, borrowed for the call.
///
/// # Safety
/// As [`bytes`].
#[inline]
pub(super) unsafe fn key<'a>(pointer: *const c_void, len: usize) -> Result<&'a [u8]> {
    // SAFETY: the caller's promise.
    unsafe { bytes(pointer, len, "key") }
}

/// A value, borrowed for the call.
///
/// # Safety
/// As [`bytes`].
#[inline]
pub(super) unsafe fn value<'a>(pointer: *const c_void, len: usize) -> Result<&'a [u8]> {
    // SAFETY: the caller's promise.
    unsafe { bytes(pointer, len, "value") }
}

/// A handle as C holds it.
pub(super) fn as_pointer<T>(handle: u64) -> *mut T {
    std::ptr::without_provenance_mut(handle as usize)
}

/// The handle that C passes; nothing is read through the pointer.
#[inline]
pub(super) fn as_handle<T>(pointer: *const T) -> u64 {
    pointer.addr() as u64
}

/// A run of `count` elements, borrowed for the call.
///
/// # Safety
/// As [`bytes`].
pub(super) unsafe fn elements<'a, T: Copy>(pointer: *const T, count: usize, what: &str) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    aligned(pointer, what)?;
    if count > isize::MAX as usize / size_of::<T>() {
        return Err(Error::TooLarge(format!("{what} has {count} elements, more than any memory").into()));
    }
    // SAFETY: not NULL, aligned, no longer than memory can be; the rest is the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
}

/// Room for results: `max` elements that the call may write, but not read.
pub(super) fn room<T: Copy>(pointer: *mut T, max: i32, what: &str) -> Result<usize> {
    let count = usize::try_from(max).map_err(|_| Error::invalid(format!("max is {max}, not 0 or more")))?;
    if count > 0 {
        aligned(pointer, what)?;
    }
    Ok(count)
}

/// The name of a file or directory, borrowed for the call.
///
/// # Safety
/// `pointer` is NULL or ends with a NUL byte.
pub(super) unsafe fn path<'a>(pointer: *const c_char, what: &str) -> Result<&'a Path> {
    if pointer.is_null() {
        return Err(Error::invalid(format!("{what} is NULL")));
    }
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(pointer) };
    if name.is_empty() {
        return Err(Error::system(libc::ENOENT, format!("{what} is empty")));
    }
    Ok(Path::new(OsStr::from_bytes(name.to_bytes())))
}

/// A name of the library's own (a property), borrowed for the call.
///
/// # Safety
/// As [`path`].
pub(super) unsafe fn name<'a>(pointer: *const c_char, what: &str) -> Result<&'a str> {
    if pointer.is_null() {
        return Err(Error::invalid(format!("{what} is NULL")));
    }
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(pointer) };
    name.to_str().map_err(|_| Error::invalid(format!("{what} is not UTF-8")))
}

fn aligned<T>(pointer: *const T, what: &str) -> Result<()> {
    if pointer.is_null() {
        return Err(Error::invalid(format!("{what} is NULL")));
    }
    if !pointer.is_aligned() {
        return Err(Error::invalid(format!("{what} is {pointer:p}, not a multiple of {}", align_of::<T>())));
    }
    Ok(())
}

/// A place for a result, written only on success.
#[derive(Debug)]
pub(super) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Checks the pointer.
    pub(super) fn new(pointer: *mut T, what: &str) -> Result<Self> {
        aligned(pointer, what)?;
        Ok(Out(pointer))
    }

    /// Writes the result.
    ///
    /// # Safety
    /// The caller of the exported function promised a writable `T` there.
    pub(super) unsafe fn set(self, value: T) {
        // SAFETY: not NULL and aligned (`new`); the rest is the caller's promise.
        unsafe { self.0.write(value) }
    }

    /// What the caller put there.
    ///
    /// # Safety
    /// As [`Out::set`], and it is initialised.
    pub(super) unsafe fn get(&self) -> T
    where
        T: Copy,
    {
        // SAFETY: not NULL and aligned (`new`); the rest is the caller's promise.
        unsafe { self.0.read() }
    }
}

/// Copies a value to `buffer` with `*len` bytes of room, and sets `*len` to the value's length, also when it doesn't
/// fit.
///
/// # Safety
/// `buffer` has `*len` bytes.
pub(super) unsafe fn copy_out(value: &[u8], buffer: *mut c_void, len: Out<usize>) -> Result<()> {
    // SAFETY: `len` was checked by `Out::new`; that it is initialised is the caller's promise.
    let space = unsafe { len.get() };
    // SAFETY: as above.
    unsafe { len.set(value.len()) };
    if value.len() > space {
        return Err(Error::TooSmall { needed: value.len() });
    }
    if !value.is_empty() {
        // SAFETY: `room_for` refused a NULL buffer with room; the caller promises `*len` bytes there, and the value
        // is the library's memory, or a view's that the caller can't write.
        unsafe { std::ptr::copy(value.as_ptr(), buffer.cast(), value.len()) };
    }
    Ok(())
}

/// As [`copy_out`], for a text: a NUL byte goes behind it. `*len` counts the NUL when the text doesn't fit, and
/// doesn't when it does.
///
/// # Safety
/// `buffer` has `*len` bytes.
pub(super) unsafe fn text_out(text: String, buffer: *mut c_char, len: Out<usize>) -> Result<()> {
    let (length, pointer) = (text.len(), len.0);
    let text = super::status::c_string(text);
    // SAFETY: the caller's promise.
    unsafe { copy_out(text.as_bytes_with_nul(), buffer.cast(), len) }?;
    // SAFETY: checked by `Out::new`, and written by `copy_out` just now.
    unsafe { pointer.write(length) };
    Ok(())
}

/// Checks the buffer that [`copy_out`] will fill.
///
/// # Safety
/// `len` points to an initialised length.
pub(super) unsafe fn room_for(buffer: *mut c_void, len: *mut usize) -> Result<Out<usize>> {
    let len = Out::new(len, "len")?;
    // SAFETY: the caller's promise.
    let space = unsafe { len.get() };
    if space > 0 && buffer.is_null() {
        return Err(Error::invalid(format!("buffer is NULL, but *len is {space}")));
    }
    Ok(len)
}

/// A struct that the caller sized.
///
/// # Safety
/// `repr(C)`, its first field is `size: usize`, and every pattern of bits is a value of it.
pub(super) unsafe trait Prefixed: Copy {
    /// Its default values; `size` is filled in by whoever uses them.
    fn defaults() -> Self;
}

fn check_size<T: Prefixed>(size: usize, what: &str) -> Result<usize> {
    if size < size_of::<usize>() || size > MAX_STRUCT {
        return Err(Error::invalid(format!("the size of {what} is {size}; set it to sizeof({what})")));
    }
    Ok(size.min(size_of::<T>()))
}

/// What the caller set, over the defaults; NULL is the defaults. A field that this version doesn't know must be zero.
///
/// # Safety
/// `pointer` is NULL or reaches as far as its `size` says.
pub(super) unsafe fn options<T: Prefixed>(pointer: *const T, what: &str) -> Result<T> {
    let mut value = T::defaults();
    if pointer.is_null() {
        return Ok(value);
    }
    aligned(pointer, what)?;
    // SAFETY: not NULL and aligned; `size` is the first field of every such struct.
    let size = unsafe { pointer.cast::<usize>().read() };
    let known = check_size::<T>(size, what)?;
    // SAFETY: the caller promises `size` bytes.
    let given = unsafe { std::slice::from_raw_parts(pointer.cast::<u8>(), size) };
    if let Some(at) = given[known..].iter().position(|byte| *byte != 0) {
        let at = known + at;
        return Err(Error::invalid(format!(
            "byte {at} of {what} is set, and this version of the library knows no such field"
        )));
    }
    // SAFETY: `known` bytes are in both, and every pattern of bits is a `T` (trait).
    unsafe { std::ptr::copy_nonoverlapping(given.as_ptr(), std::ptr::from_mut(&mut value).cast(), known) };
    Ok(value)
}

/// Fills a struct of `size` bytes: the known fields with `value`, those beyond with zero, `size` with `size`.
///
/// # Safety
/// `pointer` reaches `size` bytes.
unsafe fn fill<T: Prefixed>(pointer: *mut T, size: usize, known: usize, value: &T) {
    // SAFETY: the caller promises `size` bytes, of which `known` are at most a `T`'s; checked for alignment.
    unsafe {
        std::ptr::copy_nonoverlapping(std::ptr::from_ref(value).cast::<u8>(), pointer.cast::<u8>(), known);
        pointer.cast::<u8>().add(known).write_bytes(0, size - known);
        pointer.cast::<usize>().write(size);
    }
}

/// `X_options_init`: the defaults, into a struct of `size` bytes.
///
/// # Safety
/// `pointer` is NULL or reaches `size` bytes.
pub(super) unsafe fn init<T: Prefixed>(pointer: *mut T, size: usize, what: &str) -> Result<()> {
    aligned(pointer, what)?;
    let known = check_size::<T>(size, what)?;
    // SAFETY: the caller's promise, and the checks above.
    unsafe { fill(pointer, size, known, &T::defaults()) };
    Ok(())
}

/// A struct of results that the caller sized: checked first, filled on success.
pub(super) struct Report<T> {
    pointer: *mut T,
    size: usize,
    known: usize,
}

impl<T: Prefixed> Report<T> {
    /// Checks the pointer and the size.
    ///
    /// # Safety
    /// `pointer` is NULL or reaches as far as its `size` says.
    pub(super) unsafe fn new(pointer: *mut T, what: &str) -> Result<Self> {
        aligned(pointer, what)?;
        // SAFETY: not NULL and aligned; `size` is the first field of every such struct.
        let size = unsafe { pointer.cast::<usize>().read() };
        let known = check_size::<T>(size, what)?;
        Ok(Report { pointer, size, known })
    }

    /// Fills it.
    ///
    /// # Safety
    /// As [`Report::new`].
    pub(super) unsafe fn set(self, value: &T) {
        // SAFETY: the promise of `new`, and its checks.
        unsafe { fill(self.pointer, self.size, self.known, value) }
    }
}
