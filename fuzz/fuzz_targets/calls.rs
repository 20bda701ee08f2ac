//! Sequences of C calls, with handles in every state (live, closed, forged, of another kind) and absurd lengths. Nothing
//! may crash, and memory may not be touched after it was freed: run under AddressSanitizer, as cargo-fuzz does.
//!
//! The functions are called as C calls them: by their exported names.
#![no_main]
#![allow(unsafe_code, reason = "it calls the library as C does")]

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr::{null, null_mut};

use arbitrary::Arbitrary;
// Links the library, whose exported names are declared below.
use iouring_engine as _;
use libfuzzer_sys::fuzz_target;

#[repr(C)]
#[derive(Clone, Copy)]
struct View {
    data: *const c_void,
    len: usize,
    pin: [u64; 2],
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Completion {
    user_data: u64,
    result: i32,
    flags: u32,
    data: *mut c_void,
    buffer: i32,
    reserved: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Buffer {
    data: usize,
    len: usize,
    index: i32,
    reserved: i32,
}

// SAFETY: the signatures are those of the C header.
unsafe extern "C" {
    fn ioe_strerror(code: c_int) -> *const c_char;
    fn ioe_last_error() -> *const c_char;
    fn engine_open(dir: *const c_char, o: *const c_void, out: *mut usize) -> c_int;
    fn engine_close(e: usize) -> c_int;
    fn engine_put(e: usize, k: *const u8, kl: usize, v: *const u8, vl: usize) -> c_int;
    fn engine_batch_put(e: usize, k: *const u8, kl: usize, v: *const u8, vl: usize) -> c_int;
    fn engine_get(e: usize, k: *const u8, kl: usize, b: *mut u8, l: *mut usize) -> c_int;
    fn engine_get_view(e: usize, k: *const u8, kl: usize, v: *mut View) -> c_int;
    fn engine_view_release(v: *mut View);
    fn engine_delete(e: usize, k: *const u8, kl: usize) -> c_int;
    fn engine_flush_batch(e: usize) -> c_int;
    fn engine_property(e: usize, name: *const c_char, b: *mut u8, l: *mut usize) -> c_int;
    fn engine_writebatch_create(out: *mut usize) -> c_int;
    fn engine_writebatch_put(b: usize, k: *const u8, kl: usize, v: *const u8, vl: usize) -> c_int;
    fn engine_writebatch_delete(b: usize, k: *const u8, kl: usize) -> c_int;
    fn engine_writebatch_clear(b: usize) -> c_int;
    fn engine_writebatch_count(b: usize) -> c_int;
    fn engine_writebatch_destroy(b: usize) -> c_int;
    fn engine_write(e: usize, b: usize, durability: c_int) -> c_int;
    fn ring_open(o: *const c_void, out: *mut usize) -> c_int;
    fn ring_close(r: usize) -> c_int;
    fn ring_fd(r: usize) -> c_int;
    fn ring_wait(r: usize, min: c_int, timeout_ms: c_int) -> c_int;
    fn ring_wake(r: usize) -> c_int;
    fn ring_file_set(r: usize, slot: c_int, fd: c_int) -> c_int;
    fn ring_file_clear(r: usize, slot: c_int) -> c_int;
    fn ring_buffer_acquire(r: usize, out: *mut Buffer) -> c_int;
    fn ring_buffer_release(r: usize, index: c_int) -> c_int;
    fn ring_read(r: usize, slot: c_int, buffer: c_int, at: usize, len: usize, offset: u64, flags: c_int, ud: u64) -> c_int;
    fn ring_write(r: usize, slot: c_int, buffer: c_int, at: usize, len: usize, offset: u64, flags: c_int, ud: u64)
    -> c_int;
    fn ring_fsync(r: usize, slot: c_int, data_only: c_int, flags: c_int, ud: u64) -> c_int;
    fn ring_timeout(r: usize, us: u64, ud: u64) -> c_int;
    fn ring_cancel(r: usize, ud: u64) -> c_int;
    fn ring_submit(r: usize) -> c_int;
    fn ring_reap(r: usize, out: *mut Completion, max: c_int) -> c_int;
    fn wal_open(dir: *const c_char, o: *const c_void, out: *mut usize) -> c_int;
    fn wal_append(w: usize, data: *const u8, len: usize, ud: u64, sequence: *mut u64) -> c_int;
    fn wal_submit(w: usize) -> c_int;
    fn wal_reap(w: usize, out: *mut [u64; 5], max: c_int, min: c_int, timeout_ms: c_int) -> c_int;
    fn wal_fd(w: usize) -> c_int;
    fn wal_release(w: usize, up_to: u64) -> c_int;
    fn wal_close(w: usize) -> c_int;
}

/// Which handle a call is given: one of those ever opened (live or closed by now), none, or a forged one.
#[derive(Arbitrary, Debug, Clone, Copy)]
enum Handle {
    Known(u8),
    Null,
    Forged(usize),
}

/// Bytes of a call: a pointer with its length, or no pointer with an absurd one.
#[derive(Arbitrary, Debug, Clone)]
enum Bytes {
    Real(Vec<u8>),
    NullWith(usize),
}

impl Bytes {
    fn raw(&self) -> (*const u8, usize) {
        match self {
            Bytes::Real(bytes) => (bytes.as_ptr(), bytes.len()),
            Bytes::NullWith(len) => (null(), *len),
        }
    }
}

#[derive(Arbitrary, Debug)]
enum Call {
    Explain(i32),
    EngineOpen(u8),
    EngineClose(Handle),
    Put(Handle, Bytes, Bytes),
    BatchPut(Handle, Bytes, Bytes),
    Get(Handle, Bytes, u8),
    View(Handle, Bytes),
    Delete(Handle, Bytes),
    FlushBatch(Handle),
    Property(Handle, String, u8),
    BatchCreate,
    BatchAdd(Handle, Bytes, Bytes),
    BatchDelete(Handle, Bytes),
    BatchClear(Handle),
    BatchDestroy(Handle),
    Write(Handle, Handle, i32),
    RingOpen,
    RingClose(Handle),
    RingWait(Handle, i32, u8),
    RingWake(Handle),
    RingFd(Handle),
    FileSet(Handle, i8, bool),
    FileClear(Handle, i32),
    Acquire(Handle),
    Release(Handle, i32),
    Read(Handle, i8, i8, u16, u32, u64, u8, u64),
    WriteAt(Handle, i8, i8, u16, u32, u16, u8, u64),
    Fsync(Handle, i8, bool, u8, u64),
    Timeout(Handle, u16, u64),
    Cancel(Handle, u64),
    Submit(Handle),
    Reap(Handle, i8),
    WalOpen(u8),
    WalAppend(Handle, Bytes, u64),
    WalSubmit(Handle),
    WalReap(Handle, i8, i8),
    WalFd(Handle),
    WalRelease(Handle, u64),
    WalClose(Handle),
}

/// Any code will do: what counts is that nothing crashes.
fn ignore(_: c_int) {}

struct Scene {
    folder: String,
    handles: Vec<usize>,
    file: std::fs::File,
}

impl Scene {
    fn handle(&self, handle: Handle) -> usize {
        match handle {
            Handle::Known(index) if !self.handles.is_empty() => self.handles[usize::from(index) % self.handles.len()],
            Handle::Known(_) | Handle::Null => 0,
            Handle::Forged(value) => value,
        }
    }

    fn folder(&self, kind: &str, index: u8) -> CString {
        CString::new(format!("{}/{kind}{}", self.folder, index % 3)).expect("no NUL in it")
    }

    fn opened(&mut self, code: c_int, handle: usize) {
        if code == 0 && self.handles.len() < 64 {
            self.handles.push(handle);
        }
    }

    fn call(&mut self, call: &Call) {
        let mut out = 0usize;
        match call {
            Call::EngineOpen(i) => {
                // SAFETY: a path that lives through the call, and a place for the handle.
                let code = unsafe { engine_open(self.folder("store", *i).as_ptr(), null(), &mut out) };
                self.opened(code, out);
            }
            Call::WalOpen(i) => {
                // SAFETY: as above.
                let code = unsafe { wal_open(self.folder("log", *i).as_ptr(), null(), &mut out) };
                self.opened(code, out);
            }
            Call::RingOpen => {
                // SAFETY: a place for the handle.
                let code = unsafe { ring_open(null(), &mut out) };
                self.opened(code, out);
            }
            Call::BatchCreate => {
                // SAFETY: a place for the handle.
                let code = unsafe { engine_writebatch_create(&mut out) };
                self.opened(code, out);
            }
            other => self.engine(other),
        }
    }

    fn engine(&mut self, call: &Call) {
        let h = |handle: &Handle| self.handle(*handle);
        let mut buffer = [0u8; 256];
        // SAFETY: every pointer is null, or to memory that lives through the call and has the length that goes with it;
        // handles are values that the library checks.
        unsafe {
            match call {
                Call::Explain(code) => {
                    assert!(!ioe_strerror(*code).is_null());
                    assert!(!ioe_last_error().is_null());
                }
                Call::EngineClose(e) => ignore(engine_close(h(e))),
                Call::Put(e, k, v) => ignore(engine_put(h(e), k.raw().0, k.raw().1, v.raw().0, v.raw().1)),
                Call::BatchPut(e, k, v) => ignore(engine_batch_put(h(e), k.raw().0, k.raw().1, v.raw().0, v.raw().1)),
                Call::Get(e, k, room) => {
                    let mut len = usize::from(*room);
                    let code = engine_get(h(e), k.raw().0, k.raw().1, buffer.as_mut_ptr(), &mut len);
                    assert!(code != 0 || len <= usize::from(*room));
                }
                Call::View(e, k) => {
                    let mut view = View { data: null(), len: 0, pin: [0; 2] };
                    if engine_get_view(h(e), k.raw().0, k.raw().1, &mut view) == 0 {
                        let bytes = std::slice::from_raw_parts(view.data.cast::<u8>().max(1 as *const u8), view.len);
                        std::hint::black_box(bytes.iter().fold(0u8, |a, b| a ^ b));
                        engine_view_release(&mut view);
                        engine_view_release(&mut view);
                    }
                }
                Call::Delete(e, k) => ignore(engine_delete(h(e), k.raw().0, k.raw().1)),
                Call::FlushBatch(e) => ignore(engine_flush_batch(h(e))),
                Call::Property(e, name, room) => {
                    let name = CString::new(name.replace('\0', "")).expect("no NUL in it");
                    let mut len = usize::from(*room);
                    ignore(engine_property(h(e), name.as_ptr(), buffer.as_mut_ptr(), &mut len));
                }
                Call::BatchAdd(b, k, v) => {
                    ignore(engine_writebatch_put(h(b), k.raw().0, k.raw().1, v.raw().0, v.raw().1));
                    ignore(engine_writebatch_count(h(b)));
                }
                Call::BatchDelete(b, k) => ignore(engine_writebatch_delete(h(b), k.raw().0, k.raw().1)),
                Call::BatchClear(b) => ignore(engine_writebatch_clear(h(b))),
                Call::BatchDestroy(b) => ignore(engine_writebatch_destroy(h(b))),
                Call::Write(e, b, level) => ignore(engine_write(h(e), h(b), *level)),
                other => self.ring(other),
            }
        }
    }

    fn ring(&self, call: &Call) {
        use std::os::fd::AsRawFd;
        let h = |handle: &Handle| self.handle(*handle);
        let empty = Completion { user_data: 0, result: 0, flags: 0, data: null_mut(), buffer: 0, reserved: 0 };
        let mut done = [empty; 128];
        let mut buffer = Buffer::default();
        // SAFETY: as in `engine`; reads and writes name registered buffers, which are the ring's own.
        unsafe {
            match *call {
                Call::RingClose(ref r) => ignore(ring_close(h(r))),
                Call::RingWait(ref r, min, ms) => ignore(ring_wait(h(r), min, c_int::from(ms % 4))),
                Call::RingWake(ref r) => ignore(ring_wake(h(r))),
                Call::RingFd(ref r) => ignore(ring_fd(h(r))),
                Call::FileSet(ref r, slot, bad) => {
                    let fd = if bad { -7 } else { self.file.as_raw_fd() };
                    ignore(ring_file_set(h(r), c_int::from(slot), fd));
                }
                Call::FileClear(ref r, slot) => ignore(ring_file_clear(h(r), slot)),
                Call::Acquire(ref r) => ignore(ring_buffer_acquire(h(r), &mut buffer)),
                Call::Release(ref r, index) => ignore(ring_buffer_release(h(r), index)),
                Call::Read(ref r, slot, index, at, len, offset, flags, ud) => {
                    let flags = c_int::from(flags) & !RAW;
                    ignore(ring_read(h(r), slot.into(), index.into(), at.into(), len as usize, offset, flags, ud));
                }
                Call::WriteAt(ref r, slot, index, at, len, offset, flags, ud) => {
                    let (flags, len) = (c_int::from(flags) & !RAW, len as usize % 65536);
                    ignore(ring_write(h(r), slot.into(), index.into(), at.into(), len, offset.into(), flags, ud));
                }
                Call::Fsync(ref r, slot, data_only, flags, ud) => {
                    ignore(ring_fsync(h(r), slot.into(), data_only.into(), c_int::from(flags) & !RAW, ud));
                }
                Call::Timeout(ref r, us, ud) => ignore(ring_timeout(h(r), us.into(), ud)),
                Call::Cancel(ref r, ud) => ignore(ring_cancel(h(r), ud)),
                Call::Submit(ref r) => ignore(ring_submit(h(r))),
                Call::Reap(ref r, max) => ignore(ring_reap(h(r), done.as_mut_ptr(), max.into())),
                Call::WalAppend(ref w, ref bytes, ud) => {
                    let mut sequence = 0;
                    ignore(wal_append(h(w), bytes.raw().0, bytes.raw().1, ud, &mut sequence));
                }
                Call::WalSubmit(ref w) => ignore(wal_submit(h(w))),
                Call::WalReap(ref w, max, min) => {
                    let mut events = [[0u64; 5]; 128];
                    ignore(wal_reap(h(w), events.as_mut_ptr(), max.into(), min.into(), 2));
                }
                Call::WalFd(ref w) => ignore(wal_fd(h(w))),
                Call::WalRelease(ref w, up_to) => ignore(wal_release(h(w), up_to)),
                Call::WalClose(ref w) => ignore(wal_close(h(w))),
                _ => {}
            }
        }
    }

    /// Closes everything, whatever kind it is: only the right function does it, the others must refuse.
    fn end(&mut self) {
        for handle in std::mem::take(&mut self.handles).into_iter().rev() {
            // SAFETY: handles are values that the library checks.
            unsafe {
                let codes =
                    [wal_close(handle), engine_close(handle), ring_close(handle), engine_writebatch_destroy(handle)];
                assert!(codes.iter().filter(|code| **code == 0).count() <= 1, "one handle, one kind: {codes:?}");
            }
        }
    }
}

/// Flags that name memory or descriptors of the caller by address: a promise that random numbers can't keep.
const RAW: c_int = 8 | 16;

fuzz_target!(|calls: Vec<Call>| {
    let folder = std::env::temp_dir().join(format!("ioe-fuzz-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder for temporary files");
    let file = std::fs::File::options().read(true).write(true).create(true).truncate(true).open(folder.join("file"));
    let file = file.expect("a temporary file");
    let mut scene = Scene { folder: folder.to_string_lossy().into_owned(), handles: Vec::new(), file };
    for call in calls.iter().take(60) {
        scene.call(call);
    }
    scene.end();
    let _ = std::fs::remove_dir_all(&folder);
});
