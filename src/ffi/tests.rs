//! Tests of the boundary as a whole: a panic injected into every export, fork, nested calls, forged handles.
#![allow(clippy::disallowed_methods, reason = "tests make and remove their own directories")]

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{null, null_mut};

use super::engine::*;
use super::last_error::ioe_last_error;
use super::log::*;
use super::ring::*;
use super::ring_types::*;
use super::status::*;
use super::view::*;
use super::wal::*;
use super::wal_types::*;
use super::writebatch::*;

thread_local! {
    static NUMBER: Cell<u32> = const { Cell::new(0) };
    static PANIC_IN: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// Called by the guard in test builds: panics in the function that a test named.
pub(super) fn panic_if_told(name: &'static str) {
    if PANIC_IN.get() == Some(name) {
        PANIC_IN.set(None);
        panic!("injected into {name}");
    }
}

/// A directory of its own for one test, gone afterwards.
struct Dir(std::path::PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ioe-ffi-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap();
        Dir(path)
    }

    /// The name of a store in it.
    fn store(&self, name: &str) -> CString {
        CString::new(self.0.join(name).as_os_str().as_encoded_bytes()).unwrap()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Calls an export.
macro_rules! call {
    ($function:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: the arguments of these tests are valid, or refused before they are used.
        unsafe { $function($($argument),*) }
    }};
}

/// The detail of the last failure.
fn detail() -> String {
    // SAFETY: the function's promise.
    unsafe { CStr::from_ptr(ioe_last_error()) }.to_str().unwrap().to_owned()
}

fn store(dir: &Dir) -> *mut engine_t {
    let path = dir.store("first");
    let mut e = null_mut();
    let mut o = std::mem::MaybeUninit::<engine_options_t>::uninit();
    assert_eq!(call!(engine_options_init(o.as_mut_ptr(), size_of::<engine_options_t>())), 0);
    // SAFETY: filled just now.
    let mut o = unsafe { o.assume_init() };
    // A small log, since these tests open many.
    o.memtable_bytes = 1 << 20;
    let code = call!(engine_open(path.as_ptr(), &o, &mut e));
    assert_eq!(code, 0, "{}", detail());
    e
}

fn batch() -> *mut engine_writebatch_t {
    let mut b = null_mut();
    // SAFETY: all arguments are valid.
    assert_eq!(unsafe { engine_writebatch_create(&mut b) }, 0);
    b
}

fn ring() -> *mut ring_t {
    let mut o = std::mem::MaybeUninit::<ring_options_t>::uninit();
    let mut r = null_mut();
    assert_eq!(call!(ring_options_init(o.as_mut_ptr(), size_of::<ring_options_t>())), 0);
    // SAFETY: filled just now.
    let mut o = unsafe { o.assume_init() };
    (o.file_slots, o.buffer_count, o.buffer_size) = (8, 8, 4096);
    let code = call!(ring_open(&o, &mut r));
    assert_eq!(code, 0, "{}", detail());
    r
}

fn log_in(dir: &Dir, name: &str, ring: *mut ring_t) -> *mut wal_t {
    let mut o = std::mem::MaybeUninit::<wal_options_t>::uninit();
    let mut w = null_mut();
    assert_eq!(call!(wal_options_init(o.as_mut_ptr(), size_of::<wal_options_t>())), 0);
    // SAFETY: filled just now.
    let mut o = unsafe { o.assume_init() };
    (o.ring, o.segment_bytes) = (ring, 64 << 10);
    let path = dir.store(name);
    let code = call!(wal_open(path.as_ptr(), &o, &mut w));
    assert_eq!(code, 0, "{}", detail());
    w
}

/// What the exports are called with in these tests.
struct World {
    w: *mut wal_t,
    dir: Dir,
    e: *mut engine_t,
    r: *mut ring_t,
    b: *mut engine_writebatch_t,
}

/// The handle an export uses, and thus poisons.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Uses {
    Nothing,
    Engine,
    Batch,
    Ring,
    Wal,
}

type Export = (&'static str, Uses, fn(&World) -> c_int);

const NOP: ring_op_t = ring_op_t {
    opcode: IOE_OPCODE_NOP,
    flags: 0,
    slot_or_fd: 0,
    buffer_or_pointer: 0,
    offset_in_buffer: 0,
    len: 0,
    offset: 0,
    into_slot: 0,
    events: 0,
    timeout_us: 0,
    user_data: 0,
};
const NO_BUFFER: ioe_buffer_t = ioe_buffer_t { data: null_mut(), len: 0, index: 0, reserved: 0 };
const KEY: *const c_void = c"key".as_ptr().cast();

/// The exports of the store that pass the guard, each with a call that succeeds.
fn exports() -> Vec<Export> {
    use Uses::{Batch, Engine, Nothing};
    vec![
        ("ioe_set_log", Nothing, |_| void(|| call!(ioe_set_log(None, null_mut(), 0)))),
        ("engine_options_init", Nothing, |_| {
            let mut o = std::mem::MaybeUninit::<engine_options_t>::uninit();
            call!(engine_options_init(o.as_mut_ptr(), size_of::<engine_options_t>()))
        }),
        ("engine_open", Nothing, |w| {
            let mut e = null_mut();
            let path = w.dir.store("second");
            let code = call!(engine_open(path.as_ptr(), null(), &mut e));
            if code == 0 { call!(engine_close(e)) } else { code }
        }),
        ("engine_close", Nothing, |w| {
            // Another one each time: the one whose close panics stays open.
            NUMBER.set(NUMBER.get() + 1);
            let path = w.dir.store(&format!("store {}", NUMBER.get()));
            let mut e = null_mut();
            let code = call!(engine_open(path.as_ptr(), null(), &mut e));
            if code == 0 { call!(engine_close(e)) } else { code }
        }),
        ("engine_put", Engine, |w| call!(engine_put(w.e, KEY, 3, KEY, 3))),
        ("engine_get", Engine, |w| {
            let (mut buffer, mut len) = ([0u8; 8], 8);
            call!(engine_put(w.e, KEY, 3, KEY, 3));
            call!(engine_get(w.e, KEY, 3, buffer.as_mut_ptr().cast(), &mut len))
        }),
        ("engine_delete", Engine, |w| call!(engine_delete(w.e, KEY, 3))),
        ("engine_get_view", Engine, |w| {
            let mut view = EMPTY;
            call!(engine_put(w.e, KEY, 3, KEY, 3));
            let code = call!(engine_get_view(w.e, KEY, 3, &mut view));
            call!(engine_view_release(&mut view));
            code
        }),
        ("engine_view_release", Nothing, |_| void(|| call!(engine_view_release(null_mut())))),
        ("engine_write", Batch, |w| call!(engine_write(w.e, w.b, IOE_DURABLE))),
        ("engine_batch_put", Engine, |w| call!(engine_batch_put(w.e, KEY, 3, KEY, 3))),
        ("engine_flush_batch", Engine, |w| call!(engine_flush_batch(w.e))),
        ("engine_durable_sequence", Engine, |w| call!(engine_durable_sequence(w.e, &mut 0))),
        ("engine_property", Engine, |w| {
            let (mut buffer, mut len) = ([0 as c_char; 1 << 16], 1 << 16);
            call!(engine_property(w.e, c"stats".as_ptr(), buffer.as_mut_ptr(), &mut len))
        }),
        ("engine_writebatch_create", Nothing, |_| {
            let mut b = null_mut();
            let code = call!(engine_writebatch_create(&mut b));
            if code == 0 { call!(engine_writebatch_destroy(b)) } else { code }
        }),
        ("engine_writebatch_put", Batch, |w| call!(engine_writebatch_put(w.b, KEY, 3, KEY, 3))),
        ("engine_writebatch_delete", Batch, |w| call!(engine_writebatch_delete(w.b, KEY, 3))),
        ("engine_writebatch_clear", Batch, |w| call!(engine_writebatch_clear(w.b))),
        ("engine_writebatch_count", Batch, |w| call!(engine_writebatch_count(w.b))),
        ("engine_writebatch_destroy", Nothing, |_| {
            let b = batch();
            call!(engine_writebatch_destroy(b))
        }),
    ]
}

/// Those of the transport.
fn ring_exports() -> Vec<Export> {
    use Uses::{Nothing, Ring};
    vec![
        ("ring_options_init", Nothing, |_| {
            let mut o = std::mem::MaybeUninit::<ring_options_t>::uninit();
            call!(ring_options_init(o.as_mut_ptr(), size_of::<ring_options_t>()))
        }),
        ("ring_open", Nothing, |_| {
            let mut r = null_mut();
            let code = call!(ring_open(null(), &mut r));
            if code == 0 { call!(ring_close(r)) } else { code }
        }),
        ("ring_close", Nothing, |_| call!(ring_close(ring()))),
        ("ring_capabilities", Nothing, |_| {
            let mut out = [0u64; 64];
            out[0] = size_of::<ring_capabilities_t>() as u64;
            call!(ring_capabilities(out.as_mut_ptr().cast()))
        }),
        ("ring_info", Ring, |w| {
            let mut out = [0u64; 64];
            out[0] = size_of::<ring_info_t>() as u64;
            call!(ring_info(w.r, out.as_mut_ptr().cast()))
        }),
        ("ring_fd", Ring, |w| call!(ring_fd(w.r))),
        ("ring_wait", Ring, |w| call!(ring_wait(w.r, 1, 0))),
        ("ring_wake", Ring, |w| call!(ring_wake(w.r))),
        ("ring_file_set", Ring, |w| call!(ring_file_set(w.r, IOE_SLOT_ANY, 2))),
        ("ring_file_clear", Ring, |w| {
            call!(ring_file_set(w.r, 0, 2));
            call!(ring_file_clear(w.r, 0))
        }),
        ("ring_buffer_acquire", Ring, |w| call!(ring_buffer_acquire(w.r, &mut { NO_BUFFER }))),
        ("ring_buffer_release", Ring, |w| {
            let mut buffer = NO_BUFFER;
            call!(ring_buffer_acquire(w.r, &mut buffer));
            call!(ring_buffer_release(w.r, buffer.index))
        }),
        ("ring_buffer_replace", Ring, |w| call!(ring_buffer_replace(w.r, 0, null_mut(), 0, 0))),
        ("ring_queue", Ring, |w| call!(ring_queue(w.r, &NOP, 1))),
        ("ring_read", Ring, |w| {
            let mut buffer = NO_BUFFER;
            call!(ring_buffer_acquire(w.r, &mut buffer));
            call!(ring_read(w.r, 0, buffer.index, 0, 1, 0, 0, 0))
        }),
        ("ring_write", Ring, |w| {
            let mut buffer = NO_BUFFER;
            call!(ring_buffer_acquire(w.r, &mut buffer));
            call!(ring_write(w.r, 0, buffer.index, 0, 1, 0, 0, 0))
        }),
        ("ring_fsync", Ring, |w| call!(ring_fsync(w.r, 0, 1, 0, 0))),
        ("ring_timeout", Ring, |w| call!(ring_timeout(w.r, 1, 0))),
        ("ring_cancel", Ring, |w| call!(ring_cancel(w.r, 12345))),
        ("ring_submit", Ring, |w| call!(ring_submit(w.r))),
        ("ring_reap", Ring, |w| {
            let mut out = std::mem::MaybeUninit::<ring_completion_t>::uninit();
            call!(ring_reap(w.r, out.as_mut_ptr(), 1))
        }),
    ]
}

/// Those of the log on its own.
fn wal_exports() -> Vec<Export> {
    use Uses::{Nothing, Wal};
    vec![
        ("wal_options_init", Nothing, |_| {
            let mut o = std::mem::MaybeUninit::<wal_options_t>::uninit();
            call!(wal_options_init(o.as_mut_ptr(), size_of::<wal_options_t>()))
        }),
        ("wal_recover_options_init", Nothing, |_| {
            let mut o = std::mem::MaybeUninit::<wal_recover_options_t>::uninit();
            call!(wal_recover_options_init(o.as_mut_ptr(), size_of::<wal_recover_options_t>()))
        }),
        ("wal_open", Nothing, |w| {
            let (path, mut log) = (w.dir.store("second log"), null_mut());
            let code = call!(wal_open(path.as_ptr(), null(), &mut log));
            if code == 0 { call!(wal_close(log)) } else { code }
        }),
        ("wal_close", Nothing, |w| {
            NUMBER.set(NUMBER.get() + 1);
            call!(wal_close(log_in(&w.dir, &format!("log {}", NUMBER.get()), null_mut())))
        }),
        ("wal_recover", Nothing, |w| {
            let path = w.dir.store("empty log");
            assert_eq!(call!(wal_close(log_in(&w.dir, "empty log", null_mut()))), 0, "{}", detail());
            call!(wal_recover(path.as_ptr(), null(), None, null_mut(), null_mut()))
        }),
        ("wal_append", Wal, |w| call!(wal_append(w.w, KEY, 3, 0, null_mut()))),
        ("wal_submit", Wal, |w| call!(wal_submit(w.w))),
        ("wal_reap", Wal, |w| {
            let mut out = std::mem::MaybeUninit::<wal_event_t>::uninit();
            call!(wal_reap(w.w, out.as_mut_ptr(), 1, 0, 0))
        }),
        ("wal_fd", Wal, |w| call!(wal_fd(w.w))),
        ("wal_release", Wal, |w| call!(wal_release(w.w, 0))),
    ]
}

fn all_exports() -> Vec<Export> {
    let mut all = exports();
    all.extend(ring_exports());
    all.extend(wal_exports());
    all
}

const EMPTY: engine_view_t = engine_view_t { data: null(), len: 0, pin: [0; 2] };

/// A function without a result: its failure shows in the detail alone.
fn void(call: impl FnOnce()) -> c_int {
    let before = detail();
    call();
    if detail() != before && detail().contains("defect") { IOE_E_INTERNAL } else { 0 }
}

#[test]
fn the_list_above_is_whole() {
    // These three can't fail, and use no handle: they don't pass the guard.
    let unguarded = ["ioe_last_error", "ioe_strerror", "ioe_version"];
    let listed: BTreeSet<&str> = include_str!("../../tests/symbols.txt").lines().collect();
    let tested: BTreeSet<&str> = all_exports().iter().map(|e| e.0).chain(unguarded).collect();
    assert_eq!(listed, tested);
}

#[test]
fn a_panic_in_any_export_is_caught_and_poisons_what_it_used() {
    for (name, uses, call) in all_exports() {
        let dir = Dir::new(&format!("panic-{name}"));
        let e = store(&dir);
        let w = log_in(&dir, "first log", null_mut());
        let world = World { w, dir, e, r: ring(), b: batch() };
        assert!(call(&world) >= 0, "{name} works at first: {}", detail());
        PANIC_IN.set(Some(name));
        assert_eq!(call(&world), IOE_E_INTERNAL, "{name}");
        assert_eq!(PANIC_IN.get(), None, "{name} was reached");
        assert!(
            detail().contains(&format!("injected into {name}")) && detail().contains("tests.rs"),
            "{}",
            detail()
        );
        if uses == Uses::Nothing {
            assert!(call(&world) >= 0, "{name} works again: {}", detail());
        } else {
            assert_eq!(call(&world), IOE_E_INTERNAL, "{name} finds a poisoned handle");
            assert!(detail().contains("poisoned"), "{}", detail());
        }
        // SAFETY: handles may be anything.
        unsafe {
            assert_eq!(engine_writebatch_destroy(world.b), 0, "{name}: a poisoned batch can be freed");
            assert_eq!(engine_writebatch_destroy(world.b), IOE_E_STALE);
            assert_eq!(ring_close(world.r), 0, "{name}: a poisoned ring can be closed: {}", detail());
            assert_eq!(ring_close(world.r), IOE_E_STALE);
            assert_eq!(wal_close(world.w), 0, "{name}: a poisoned log can be closed: {}", detail());
            assert_eq!(wal_close(world.w), IOE_E_STALE);
            assert_eq!(engine_close(world.e), 0, "{name}: a poisoned store can be closed: {}", detail());
            assert_eq!(engine_close(world.e), IOE_E_STALE);
        }
        // Closing gave the directory free.
        let again = store(&world.dir);
        // SAFETY: handles may be anything.
        assert_eq!(unsafe { engine_close(again) }, 0);
    }
}

#[test]
fn null_stale_and_forged_handles_are_told_apart() {
    let b = batch();
    // SAFETY: handles may be anything.
    unsafe {
        assert_eq!(engine_writebatch_count(null()), -libc::EINVAL);
        assert!(detail().contains("engine_writebatch_t is NULL"), "{}", detail());
        assert_eq!(engine_writebatch_destroy(null_mut()), 0);
        assert_eq!(engine_close(null_mut()), 0);
        assert_eq!(engine_writebatch_count(b), 0);
        for forged in
            [1usize, 4, 0x1000_0004, 0xffff_ffff_ffff_ffff, b.addr() + 16, b.addr() | 1 << 63, KEY.addr()]
        {
            assert_eq!(
                engine_writebatch_count(std::ptr::without_provenance(forged)),
                IOE_E_STALE,
                "{forged:#x}"
            );
        }
        // The right place, the wrong type.
        assert_eq!(engine_close(b.cast()), IOE_E_STALE);
        assert_eq!(engine_writebatch_destroy(b), 0);
        assert_eq!(engine_writebatch_destroy(b), IOE_E_STALE);
        assert_eq!(engine_writebatch_count(b), IOE_E_STALE);
        let second = batch();
        assert_ne!(second, b, "no handle is given out twice");
        assert_eq!(engine_writebatch_destroy(second), 0);
    }
}

#[test]
fn a_child_is_told_about_its_parent_s_handles_and_may_make_its_own() {
    let b = batch();
    // SAFETY: the child only calls the library, and ends without running the parent's exit handlers.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: handles may be anything.
        let sound = unsafe {
            engine_writebatch_count(b) == IOE_E_FORKED && engine_writebatch_destroy(b) == IOE_E_FORKED && {
                let mut own = null_mut();
                engine_writebatch_create(&mut own) == 0
                    && engine_writebatch_count(own) == 0
                    && engine_writebatch_count(b) == IOE_E_FORKED
                    && engine_writebatch_destroy(own) == 0
            }
        };
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(!sound)) };
    }
    let mut status = -1;
    // SAFETY: waits for the child made above.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
    // SAFETY: handles may be anything.
    assert_eq!(unsafe { engine_writebatch_destroy(b) }, 0);
}

#[test]
fn bytes_and_sizes_are_checked_before_anything_is_done() {
    let b = batch();
    let mut o = std::mem::MaybeUninit::<[u64; 64]>::new([7; 64]);
    let o = o.as_mut_ptr().cast::<engine_options_t>();
    let size = size_of::<engine_options_t>();
    // SAFETY: the pointers are valid for the lengths that aren't refused.
    unsafe {
        assert_eq!(engine_writebatch_put(b, null(), 1, null(), 0), -libc::EINVAL);
        assert_eq!(engine_writebatch_put(b, KEY, usize::MAX, null(), 0), IOE_E_TOO_LARGE);
        assert_eq!(engine_writebatch_put(b, KEY, 65_536, null(), 0), IOE_E_TOO_LARGE);
        assert_eq!(engine_writebatch_put(b, KEY, 3, KEY, (1 << 30) + 1), IOE_E_TOO_LARGE);
        assert_eq!(engine_writebatch_count(b), 0);
        assert_eq!(engine_writebatch_put(b, null(), 0, std::ptr::without_provenance(1), 0), 0);
        assert_eq!(engine_writebatch_count(b), 1);
        assert_eq!(engine_writebatch_destroy(b), 0);
        assert_eq!(engine_writebatch_create(null_mut()), -libc::EINVAL);
        assert_eq!(engine_writebatch_create(std::ptr::without_provenance_mut(3)), -libc::EINVAL);
        for wrong in [0, 7, 4097, usize::MAX] {
            assert_eq!(engine_options_init(o, wrong), -libc::EINVAL);
        }
        assert_eq!(engine_options_init(null_mut(), size), -libc::EINVAL);
        // Smaller: nothing behind is touched. Larger: what isn't known is zero.
        assert_eq!(engine_options_init(o, 12), 0);
        assert_eq!((o.cast::<u64>().read(), o.cast::<u64>().add(2).read()), (12, 7));
        assert_eq!(engine_options_init(o, size + 16), 0);
        assert_eq!(((*o).size, (*o).memtable_bytes), (size + 16, 64 << 20));
        let behind = o.cast::<u8>().add(size).cast::<[u64; 3]>().read_unaligned();
        assert_eq!(behind, [0, 0, 7]);
        let nowhere = c"/nonexistent/parent/store".as_ptr();
        let mut e = null_mut();
        assert_eq!(engine_open(nowhere, o, &mut e), -libc::ENOENT, "{}", detail());
        o.cast::<u8>().add(size + 3).write(1);
        assert_eq!(engine_open(nowhere, o, &mut e), -libc::EINVAL);
        assert!(detail().contains(&format!("byte {}", size + 3)), "{}", detail());
        assert_eq!(engine_options_init(o, size), 0);
        (*o).durability = 3;
        assert_eq!(engine_open(nowhere, o, &mut e), -libc::EINVAL);
        assert!(detail().contains("durability"), "{}", detail());
        assert!(e.is_null(), "out-parameters stay as they are");
    }
}

#[test]
fn callbacks_may_not_call_the_library_and_nothing_waits_for_ever() {
    static CODE: std::sync::atomic::AtomicI32 = std::sync::atomic::AtomicI32::new(0);
    unsafe extern "C" fn callback(user_data: *mut c_void, _: c_int, message: *const c_char) {
        let mut b = null_mut();
        // SAFETY: all arguments are valid.
        let text = unsafe { CStr::from_ptr(message) }.to_str().unwrap();
        if text.contains("from the test") && user_data.addr() == 5 {
            // SAFETY: all arguments are valid.
            let code = unsafe { engine_writebatch_create(&mut b) };
            CODE.store(code, std::sync::atomic::Ordering::SeqCst);
            // SAFETY: as above; does nothing here.
            unsafe { ioe_set_log(None, null_mut(), 0) };
        }
    }
    // SAFETY: the callback keeps to its rules, but for those that are tested.
    unsafe { ioe_set_log(Some(callback), std::ptr::without_provenance_mut(5), IOE_LOG_INFO) };
    log::info!("from the test");
    assert_eq!(CODE.load(std::sync::atomic::Ordering::SeqCst), -libc::EDEADLK);
    assert!(detail().contains("ioe_set_log was called out of a callback"), "{}", detail());
    CODE.store(0, std::sync::atomic::Ordering::SeqCst);
    // SAFETY: as above.
    unsafe { ioe_set_log(None, null_mut(), 0) };
    log::info!("from the test");
    assert_eq!(CODE.load(std::sync::atomic::Ordering::SeqCst), 0);
}

#[test]
fn a_bound_ring_is_closed_elsewhere_only_after_its_owner_has_ended() {
    let r = ring();
    let address = r.addr();
    let (bound, told) = std::sync::mpsc::channel();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let owner = std::thread::Builder::new().spawn(move || {
        let r = std::ptr::without_provenance_mut(address);
        // A time-out that is in flight when the owner ends.
        assert_eq!(call!(ring_timeout(r, 60_000_000, 1)), 1);
        assert_eq!(call!(ring_submit(r)), 0);
        bound.send(()).unwrap();
        ended.recv().unwrap();
    });
    told.recv().unwrap();
    let closed = |code| {
        assert_eq!(code, IOE_E_WRONG_THREAD);
        assert!(detail().contains("bound to the thread"), "{}", detail());
    };
    closed(call!(ring_submit(r)));
    closed(call!(ring_file_set(r, IOE_SLOT_ANY, 2)));
    closed(call!(ring_close(r)));
    assert_eq!(call!(ring_wake(r)), 0);
    end.send(()).unwrap();
    owner.unwrap().join().unwrap();
    closed(call!(ring_submit(r)));
    assert_eq!(call!(ring_wake(r)), 0);
    assert_eq!(call!(ring_close(r)), 0, "{}", detail());
    assert_eq!(call!(ring_close(r)), IOE_E_STALE);
    assert_eq!(call!(ring_wake(r)), IOE_E_STALE);
}

#[test]
fn a_ring_reads_what_it_wrote_and_explains_what_it_refuses() {
    let r = ring();
    let dir = Dir::new("ring");
    let name = dir.store("file");
    // SAFETY: a C string, and plain flags.
    let fd = unsafe { libc::open(name.as_ptr(), libc::O_RDWR | libc::O_CREAT, 0o600) };
    assert_eq!(call!(ring_file_set(r, 3, fd)), 3);
    let mut buffer = NO_BUFFER;
    assert_eq!(call!(ring_buffer_acquire(r, &mut buffer)), 0);
    assert_eq!(buffer.len, 4096);
    // SAFETY: the buffer is this test's, and no operation is under way on it.
    unsafe { buffer.data.cast::<u8>().write_bytes(7, 4096) };
    let link = c_int::from(IOE_OP_LINK);
    assert_eq!(call!(ring_write(r, 3, buffer.index, 0, 4096, 0, link, 1)), 1);
    assert_eq!(call!(ring_fsync(r, 3, 1, 0, 2)), 1);
    assert_eq!(call!(ring_wait(r, 2, -1)), 2);
    let mut out =
        [ring_completion_t { user_data: 0, result: 0, flags: 0, data: null_mut(), buffer: 0, reserved: 9 };
            4];
    assert_eq!(call!(ring_reap(r, out.as_mut_ptr(), 4)), 2);
    assert_eq!((out[0].user_data, out[0].result, out[0].buffer, out[0].reserved), (1, 4096, buffer.index, 0));
    assert_eq!((out[1].user_data, out[1].result), (2, 0));
    let mut own = [0u8; 16];
    let pointer = ring_op_t {
        opcode: IOE_OPCODE_READ,
        flags: IOE_OP_RAW_FD | IOE_OP_RAW_POINTER,
        slot_or_fd: fd,
        buffer_or_pointer: own.as_mut_ptr() as u64,
        offset_in_buffer: 4,
        len: 8,
        user_data: 3,
        ..NOP
    };
    assert_eq!(call!(ring_queue(r, &pointer, 1)), 1);
    assert_eq!(call!(ring_wait(r, 1, -1)), 1);
    assert_eq!(call!(ring_reap(r, out.as_mut_ptr(), 4)), 1);
    assert_eq!((out[0].user_data, out[0].result), (3, 8));
    assert_eq!(own, [0, 0, 0, 0, 7, 7, 7, 7, 7, 7, 7, 7, 0, 0, 0, 0]);
    let refused = [
        (ring_op_t { buffer_or_pointer: 0, ..pointer }, "address 0x0"),
        (ring_op_t { offset_in_buffer: u64::MAX, ..pointer }, "address"),
        (ring_op_t { flags: pointer.flags | 1 << 15, ..pointer }, "flags"),
        (ring_op_t { opcode: 999, flags: 0, ..pointer }, "opcode"),
    ];
    for (op, word) in refused {
        let two = [NOP, op];
        assert_eq!(call!(ring_queue(r, two.as_ptr(), 2)), -libc::EINVAL, "{word}");
        assert!(detail().contains(word), "{}", detail());
    }
    assert_eq!(call!(ring_wait(r, 1, 0)), 0, "all or none: nothing of those was queued");
    assert_eq!(call!(ring_close(r)), 0);
    // SAFETY: this test's own descriptor.
    unsafe { libc::close(fd) };
}

#[test]
fn a_log_on_a_shared_ring_keeps_the_ring_open_and_goes_with_it_to_its_owner() {
    let (dir, r) = (Dir::new("shared"), ring());
    let w = log_in(&dir, "log", r);
    assert_eq!(call!(ring_close(r)), IOE_E_BUSY);
    assert!(detail().contains("1 wal_t"), "{}", detail());
    let (ring_address, wal_address) = (r.addr(), w.addr());
    // Nothing has bound them: another thread may be the first, and is the owner of both.
    let owner = std::thread::Builder::new().spawn(move || {
        let w = std::ptr::without_provenance_mut(wal_address);
        let mut sequence = 0;
        assert_eq!(call!(wal_append(w, KEY, 3, 9, &mut sequence)), 0, "{}", detail());
        assert_eq!(sequence, 1);
        let mut out = [wal_event_t { user_data: 0, sequence: 0, result: 1, reserved: 1, reserved2: 1 }; 2];
        assert_eq!(call!(wal_reap(w, out.as_mut_ptr(), 2, 1, -1)), 1, "{}", detail());
        assert_eq!((out[0].user_data, out[0].sequence, out[0].result, out[0].reserved), (9, 1, 0, 0));
        let r = std::ptr::without_provenance_mut::<ring_t>(ring_address);
        let elsewhere = std::thread::Builder::new().spawn(move || {
            let (r, w) = (
                std::ptr::without_provenance_mut(ring_address),
                std::ptr::without_provenance_mut(wal_address),
            );
            assert_eq!(call!(wal_append(w, KEY, 3, 9, null_mut())), IOE_E_WRONG_THREAD);
            assert_eq!(call!(wal_close(w)), IOE_E_WRONG_THREAD);
            assert_eq!(call!(ring_submit(r)), IOE_E_WRONG_THREAD);
        });
        elsewhere.unwrap().join().unwrap();
        assert_eq!(call!(ring_wait(r, 0, 0)), 0);
    });
    owner.unwrap().join().unwrap();
    // The owner has ended: anybody closes, the log first.
    assert_eq!(call!(ring_close(r)), IOE_E_BUSY);
    assert_eq!(call!(wal_close(w)), 0, "{}", detail());
    assert_eq!(call!(wal_close(w)), IOE_E_STALE);
    assert_eq!(call!(ring_close(r)), 0, "{}", detail());
}

#[test]
fn a_replay_delivers_what_was_appended_and_stops_when_told() {
    unsafe extern "C" fn count(
        user_data: *mut c_void,
        sequence: u64,
        data: *const c_void,
        len: usize,
    ) -> c_int {
        // SAFETY: the test's own counters, and the record's bytes.
        let (seen, bytes) = unsafe {
            (&mut *user_data.cast::<[u64; 2]>(), std::slice::from_raw_parts(data.cast::<u8>(), len))
        };
        seen[0] += 1;
        c_int::from(bytes != b"key" || sequence != seen[0] || seen[0] == seen[1])
    }
    let dir = Dir::new("replay");
    let w = log_in(&dir, "log", null_mut());
    for number in 1..=5u64 {
        let mut sequence = 0;
        assert_eq!(call!(wal_append(w, KEY, 3, number, &mut sequence)), 0);
        assert_eq!(sequence, number);
    }
    let path = dir.store("log");
    assert_eq!(call!(wal_recover(path.as_ptr(), null(), None, null_mut(), null_mut())), IOE_E_BUSY);
    assert_eq!(call!(wal_close(w)), 0, "{}", detail());
    let mut stats = [0u64; 32];
    let mut seen = [0u64, 0];
    let user_data = std::ptr::from_mut(&mut seen).cast();
    stats[0] = size_of::<wal_recovery_t>() as u64;
    let code = call!(wal_recover(path.as_ptr(), null(), Some(count), user_data, stats.as_mut_ptr().cast()));
    assert_eq!((code, seen[0], stats[1], stats[3], stats[4]), (0, 5, 5, 1, 5), "{}", detail());
    seen = [0, 2];
    stats[1] = 77;
    let code = call!(wal_recover(path.as_ptr(), null(), Some(count), user_data, stats.as_mut_ptr().cast()));
    assert_eq!((code, seen[0], stats[1]), (IOE_E_CANCELLED, 2, 77));
}

#[test]
fn calls_that_race_with_a_close_end_as_usual_or_as_stale() {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    let current = std::sync::Arc::new((AtomicUsize::new(ring().addr()), AtomicUsize::new(0)));
    let started = std::sync::Arc::new(AtomicUsize::new(0));
    let wakers: Vec<_> = (0..3)
        .map(|_| {
            let (current, started) = (current.clone(), started.clone());
            std::thread::Builder::new().spawn(move || {
                let (mut woken, mut stale) = (0, 0);
                while current.1.load(SeqCst) == 0 {
                    match call!(ring_wake(std::ptr::without_provenance_mut(current.0.load(SeqCst)))) {
                        0 => {
                            woken += 1;
                            started.fetch_add(usize::from(woken == 1), SeqCst);
                        }
                        IOE_E_STALE => stale += 1,
                        other => panic!("{other}: {}", detail()),
                    }
                }
                (woken, stale)
            })
        })
        .collect();
    // On a busy machine a thread may begin late; all of them race.
    while started.load(SeqCst) < wakers.len() {
        std::thread::yield_now();
    }
    for _ in 0..200 {
        let next = ring().addr();
        let old = current.0.load(SeqCst);
        assert_eq!(call!(ring_close(std::ptr::without_provenance_mut(old))), 0, "{}", detail());
        assert_eq!(call!(ring_close(std::ptr::without_provenance_mut(old))), IOE_E_STALE);
        current.0.store(next, SeqCst);
    }
    current.1.store(1, SeqCst);
    for waker in wakers {
        let (woken, stale) = waker.unwrap().join().unwrap();
        assert!(woken + stale > 0);
    }
    assert_eq!(call!(ring_close(std::ptr::without_provenance_mut(current.0.load(SeqCst)))), 0);
}
