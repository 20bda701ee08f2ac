//! Memory that the kernel may read or write: page-aligned regions, and the `Buf`s carved from them.
//!
//! A [`Buf`] is a raw pointer with a length and a *home*. It is never a `Box` or a `Vec`, since moving one of
//! those while the kernel writes through its address would be undefined behaviour. A `Buf` in an operation is
//! owned by the reactor until the operation's last completion; nobody looks at its bytes meanwhile.
#![allow(unsafe_code, reason = "raw memory shared with the kernel is made, viewed and freed here alone")]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;

use super::defect::{self, Defect};
use super::error::{Error, Result};

/// Alignment of every region: what direct I/O asks of memory on the strictest devices.
pub const PAGE: usize = 4096;

/// Page-aligned, zeroed memory, freed with the last `Arc` to it.
#[derive(Debug)]
pub struct Region {
    pointer: NonNull<u8>,
    layout: Layout,
}

// SAFETY: a region is plain memory without thread affinity; who may touch which bytes when is kept by the `Buf`s
// over it (the reactor for those in flight, the holder for the others).
unsafe impl Send for Region {}
// SAFETY: as for `Send`; shared access hands out no reference to the bytes.
unsafe impl Sync for Region {}

impl Region {
    /// Zeroed memory of at least `len` bytes, rounded up to whole pages; never less than one page.
    ///
    /// # Errors
    /// `-ENOMEM` when the system has none, [`Error::TooLarge`] when the size itself is absurd.
    pub fn new(len: usize) -> Result<Arc<Self>> {
        let rounded = len.max(1).checked_next_multiple_of(PAGE);
        let layout = rounded.and_then(|size| Layout::from_size_align(size, PAGE).ok());
        let layout = layout.ok_or_else(|| Error::TooLarge(format!("{len} bytes of memory").into()))?;
        // SAFETY: the layout has a non-zero size.
        let pointer = NonNull::new(unsafe { alloc_zeroed(layout) });
        let pointer = pointer
            .ok_or_else(|| Error::system(libc::ENOMEM, format!("allocating {} bytes", layout.size())))?;
        Ok(Arc::new(Region { pointer, layout }))
    }

    /// Its length in bytes, a multiple of [`PAGE`].
    pub fn len(&self) -> usize {
        self.layout.size()
    }

    /// Never: a region has at least one page.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Its first byte.
    pub fn as_ptr(&self) -> *mut u8 {
        self.pointer.as_ptr()
    }
}

impl Region {
    /// Asks for huge pages behind it. The system may have none; then nothing changes.
    pub fn advise_huge(&self) {
        // SAFETY: the range is the region's own, and the advice changes no content.
        let _ = unsafe {
            rustix::mm::madvise(self.pointer.as_ptr().cast(), self.len(), rustix::mm::Advice::LinuxHugepage)
        };
    }

    /// Has its pages taken from one NUMA node; call it before they are touched.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when the system has no such node, or no nodes at all.
    pub fn bind_to_node(&self, node: u32) -> Result<()> {
        const BITS: usize = 1024;
        let refused = |why: &str| Error::Unsupported(format!("memory on NUMA node {node}: {why}").into());
        let mut mask = [0u64; BITS / 64];
        let word =
            mask.get_mut(node as usize / 64).ok_or_else(|| refused("there are at most 1,024 nodes"))?;
        *word = 1 << (node % 64);
        // SAFETY: the range is the region's own, the mask has as many bits as said, and only where future pages
        // come from changes.
        let result = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.pointer.as_ptr(),
                self.len(),
                libc::MPOL_BIND,
                mask.as_ptr(),
                BITS + 1,
                0,
            )
        };
        if result == 0 { Ok(()) } else { Err(refused(&std::io::Error::last_os_error().to_string())) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this very layout, and the last owner is gone.
        unsafe { dealloc(self.pointer.as_ptr(), self.layout) }
    }
}

/// Who keeps a [`Buf`]'s memory alive.
#[derive(Debug, Clone)]
pub enum Home {
    /// The region it is part of.
    Region(Arc<Region>),
    /// Whoever made it, by promise: the reactor's own registered pool, or a C caller until the completion.
    Outside,
}

/// A run of bytes that an operation reads or writes.
#[derive(Debug)]
pub struct Buf {
    pointer: NonNull<u8>,
    len: usize,
    /// Held for its drop alone.
    _home: Home,
}

// SAFETY: a `Buf` is the one handle to its bytes (see `Buf::part` for regions that are shared), and memory has no
// thread affinity.
unsafe impl Send for Buf {}

impl Buf {
    /// Zeroed memory of its own, page-aligned; `len` may be any length, the pages behind it are whole.
    ///
    /// # Errors
    /// As [`Region::new`].
    pub fn zeroed(len: usize) -> Result<Self> {
        let region = Region::new(len)?;
        Ok(Buf { pointer: region.pointer, len, _home: Home::Region(region) })
    }

    /// Zeroed memory that is filled with `bytes`.
    ///
    /// # Errors
    /// As [`Region::new`].
    pub fn copied(bytes: &[u8]) -> Result<Self> {
        let mut buf = Buf::zeroed(bytes.len())?;
        buf.as_mut_slice().copy_from_slice(bytes);
        Ok(buf)
    }

    /// A part of a region that others use too.
    ///
    /// # Safety
    /// While this `Buf` lives, nobody else writes those bytes, and nobody reads them while an operation that
    /// writes them is under way.
    ///
    /// # Panics
    /// When the range is not inside the region: ranges are computed by the library itself.
    pub unsafe fn part(region: &Arc<Region>, offset: usize, len: usize) -> Self {
        assert!(
            offset.checked_add(len).is_some_and(|end| end <= region.len()),
            "a part lies inside its region"
        );
        // SAFETY: the offset was just checked to be inside the region.
        let pointer = unsafe { region.pointer.add(offset) };
        Buf { pointer, len, _home: Home::Region(region.clone()) }
    }

    /// Memory that somebody else keeps alive.
    ///
    /// # Safety
    /// `pointer..pointer + len` stays valid, and is not touched in a way that races with the operation, until the
    /// `Buf` is dropped.
    pub unsafe fn outside(pointer: NonNull<u8>, len: usize) -> Self {
        Buf { pointer, len, _home: Home::Outside }
    }

    /// A `Buf` of no bytes.
    pub fn empty() -> Self {
        Buf { pointer: NonNull::dangling(), len: 0, _home: Home::Outside }
    }

    /// How many bytes it has.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its first byte, for the kernel.
    pub fn as_ptr(&self) -> *mut u8 {
        self.pointer.as_ptr()
    }

    /// Its bytes from `from` on, for a driver that carries operations out itself, in this process and later.
    pub(crate) fn lend(&self, from: usize) -> Lent {
        let from = from.min(self.len);
        // SAFETY: `from` is at most the length, so the address is inside the memory or one behind it.
        Lent { pointer: unsafe { self.pointer.add(from) }, len: self.len - from }
    }

    /// Shortens it to its first `len` bytes; longer than it is changes nothing.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Cuts it in two at `at`: it keeps the first bytes, the rest is returned. Both keep the region alive.
    ///
    /// # Panics
    /// When `at` is behind its end, or its memory is somebody else's: such a promise covers one `Buf`, not two.
    #[must_use]
    pub fn split_off(&mut self, at: usize) -> Self {
        assert!(at <= self.len, "a buffer is cut inside");
        assert!(matches!(self._home, Home::Region(_)), "only memory of a region is cut");
        // SAFETY: `at` was just checked to lie inside; the two halves don't overlap, because this one ends there.
        let pointer = unsafe { self.pointer.add(at) };
        let rest = Buf { pointer, len: self.len - at, _home: self._home.clone() };
        self.len = at;
        rest
    }

    /// Its bytes.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: the memory is valid for `len` bytes (constructors) and initialised (zeroed, or the caller's);
        // a `Buf` outside the reactor has no operation under way on it.
        unsafe { std::slice::from_raw_parts(self.pointer.as_ptr(), self.len) }
    }

    /// Its bytes, to be changed.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as `as_slice`, and `&mut self` is the only handle to these bytes.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.as_ptr(), self.len) }
    }
}

/// Memory that a C caller may use at any time, and promises to leave alone while an operation is under way on it.
///
/// The promise is made once, where the caller's pointer comes in (or the library's own memory goes out); from then
/// on operations on parts of it can be made safely.
#[derive(Debug, Clone)]
pub struct CallerMemory {
    pointer: NonNull<u8>,
    len: usize,
    home: Home,
}

impl CallerMemory {
    /// Memory of the caller.
    ///
    /// # Safety
    /// `pointer..pointer + len` stays valid until the last operation on it has ended, and the caller touches no part
    /// that an operation is under way on.
    pub unsafe fn outside(pointer: NonNull<u8>, len: usize) -> Self {
        CallerMemory { pointer, len, home: Home::Outside }
    }

    /// What a careless caller might promise: memory in the first page, which no process has mapped. Only for system
    /// calls, which refuse it.
    #[cfg(test)]
    pub fn nowhere(len: usize) -> Self {
        let pointer = NonNull::new(std::ptr::without_provenance_mut::<u8>(64)).expect("64 is not 0");
        CallerMemory { pointer, len, home: Home::Outside }
    }

    /// A part of a region whose bytes the library itself never looks at: they are for the C caller alone, whose
    /// address is all it is given. `None` when that is not inside the region.
    pub fn part(region: &Arc<Region>, offset: usize, len: usize) -> Option<Self> {
        offset.checked_add(len).filter(|end| *end <= region.len())?;
        // SAFETY: the offset was just checked to be inside the region.
        let pointer = unsafe { region.pointer.add(offset) };
        Some(CallerMemory { pointer, len, home: Home::Region(region.clone()) })
    }

    /// How many bytes it has.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its first byte.
    pub fn as_ptr(&self) -> *mut u8 {
        self.pointer.as_ptr()
    }

    /// A part of it, for one operation; `None` when that is not inside it.
    pub fn buf(&self, offset: usize, len: usize) -> Option<Buf> {
        offset.checked_add(len).filter(|end| *end <= self.len)?;
        // SAFETY: the offset was just checked to be inside. The caller's promise (see the type) keeps the memory
        // valid and untouched while the operation is under way.
        let pointer = unsafe { self.pointer.add(offset) };
        Some(Buf { pointer, len, _home: self.home.clone() })
    }
}

/// A region that is handed out front to back, in parts that many threads fill at once, and then taken whole.
///
/// It is safe by construction: a byte is handed out once, and the whole is given only when no part is left, which
/// the region's own reference count says.
#[derive(Debug)]
pub struct Fill {
    region: Arc<Region>,
    used: usize,
}

impl Fill {
    /// Room for at least `room` bytes.
    ///
    /// # Errors
    /// As [`Region::new`].
    pub fn new(room: usize) -> Result<Self> {
        Ok(Fill { region: Region::new(room)?, used: 0 })
    }

    /// How many bytes it has room for in all.
    pub fn room(&self) -> usize {
        self.region.len()
    }

    /// How many bytes were handed out.
    pub fn used(&self) -> usize {
        self.used
    }

    /// The next `len` bytes, with whatever an earlier use left in them; `None` when there is no room.
    pub fn take(&mut self, len: usize) -> Option<Buf> {
        let end = self.used.checked_add(len).filter(|end| *end <= self.region.len())?;
        // SAFETY: `used` only grows while any part lives (`reset` looks for that), so no two parts overlap.
        let part = unsafe { Buf::part(&self.region, self.used, len) };
        self.used = end;
        Some(part)
    }

    /// All bytes handed out so far as one buffer; `None` while a part of it lives.
    pub fn whole(&mut self) -> Option<Buf> {
        if !self.is_unshared() {
            return None;
        }
        // SAFETY: nobody else has a part of the region, and `take` will only give bytes behind these.
        Some(unsafe { Buf::part(&self.region, 0, self.used) })
    }

    /// Empties it for another use; false, and nothing happens, while a part of it lives.
    pub fn reset(&mut self) -> bool {
        let unused = self.is_unshared();
        if unused {
            self.used = 0;
        }
        unused
    }

    fn is_unshared(&mut self) -> bool {
        // `get_mut` orders the holders' last writes before this look.
        Arc::get_mut(&mut self.region).is_some() || defect::on(Defect::ReuseBufferEarly)
    }

    /// The same memory once more, while the defect is planted that this makes possible; else nothing.
    pub fn alias_for_a_planted_defect(&self) -> Option<Fill> {
        defect::on(Defect::ReuseBufferEarly).then(|| Fill { region: self.region.clone(), used: 0 })
    }
}

/// The memory of a [`Buf`] in an operation under way, as a driver knows it: what an address in a submission queue is
/// to the kernel. The reactor keeps the `Buf` until the operation's last completion, and a driver forgets what it
/// was lent no later than that, or when it is dropped (the reactor drops it before the operations).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lent {
    pointer: NonNull<u8>,
    len: usize,
}

// SAFETY: as for `Buf`: memory has no thread affinity, and only the owner of the operation uses it.
unsafe impl Send for Lent {}

impl Lent {
    /// How many bytes were lent.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether the address is a multiple of `align`.
    pub(crate) fn is_aligned(&self, align: usize) -> bool {
        (self.pointer.as_ptr() as usize).is_multiple_of(align)
    }

    /// Writes `bytes` at the front; what doesn't fit is left out.
    pub(crate) fn fill(&self, bytes: &[u8]) {
        let len = bytes.len().min(self.len);
        // SAFETY: `len` bytes are inside what was lent, which the reactor keeps valid while the operation is under
        // way; nobody else looks at it meanwhile, and `bytes` is the driver's own memory, so they don't overlap.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.pointer.as_ptr(), len) }
    }

    /// A copy of the first `len` bytes, or of all when there are fewer.
    pub(crate) fn copy(&self, len: usize) -> Vec<u8> {
        // SAFETY: the bytes are inside what was lent, initialised (`Buf`), and kept valid by the reactor while the
        // operation is under way.
        unsafe { std::slice::from_raw_parts(self.pointer.as_ptr(), len.min(self.len)) }.to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buf_is_page_aligned_and_zero() {
        let buf = Buf::zeroed(5000).unwrap();
        assert_eq!(buf.as_ptr() as usize % PAGE, 0);
        assert_eq!(buf.len(), 5000);
        assert!(buf.as_slice().iter().all(|b| *b == 0));
    }

    #[test]
    fn an_absurd_size_is_an_error() {
        assert!(matches!(Region::new(usize::MAX), Err(Error::TooLarge(_))));
        assert!(Region::new(isize::MAX as usize & !(PAGE - 1)).is_err());
    }

    #[test]
    fn parts_of_one_region_are_apart() {
        let region = Region::new(2 * PAGE).unwrap();
        // SAFETY: the two parts don't overlap.
        let (mut a, b) = unsafe { (Buf::part(&region, 0, 10), Buf::part(&region, 10, 10)) };
        a.as_mut_slice().fill(7);
        assert!(b.as_slice().iter().all(|b| *b == 0));
        a.truncate(3);
        assert_eq!(a.as_slice(), [7, 7, 7]);
    }

    #[test]
    fn a_fill_is_whole_only_without_parts() {
        let mut fill = Fill::new(PAGE).unwrap();
        let mut a = fill.take(10).unwrap();
        let mut b = fill.take(20).unwrap();
        assert!(fill.take(PAGE).is_none());
        a.as_mut_slice().fill(1);
        b.as_mut_slice().fill(2);
        assert!(fill.whole().is_none() && !fill.reset());
        drop((a, b));
        let whole = fill.whole().unwrap();
        assert_eq!((whole.len(), whole.as_slice()[9], whole.as_slice()[10]), (30, 1, 2));
        assert!(fill.whole().is_none(), "the whole is a part too");
        drop(whole);
        assert!(fill.reset());
        assert_eq!(fill.used(), 0);
    }

    #[test]
    fn a_cut_buffer_keeps_its_bytes() {
        let mut front = Buf::copied(b"abcdef").unwrap();
        let rest = front.split_off(2);
        assert_eq!((front.as_slice(), rest.as_slice()), (&b"ab"[..], &b"cdef"[..]));
    }
}
