//! Tests of the boundary as a whole: a panic injected into every export, fork, nested calls, forged handles.
#![allow(clippy::disallowed_methods, reason = "tests make and remove their own directories")]

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{null, null_mut};

use super::engine::*;
use super::last_error::ioe_last_error;
use super::log::*;
use super::status::*;
use super::view::*;
use super::writebatch::*;

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
    // SAFETY: all arguments are valid.
    let code = unsafe { engine_open(path.as_ptr(), null(), &mut e) };
    assert_eq!(code, 0, "{}", detail());
    e
}

fn batch() -> *mut engine_writebatch_t {
    let mut b = null_mut();
    // SAFETY: all arguments are valid.
    assert_eq!(unsafe { engine_writebatch_create(&mut b) }, 0);
    b
}

/// What the exports are called with in these tests.
struct World {
    dir: Dir,
    e: *mut engine_t,
    b: *mut engine_writebatch_t,
}

/// The handle an export uses, and thus poisons.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Uses {
    Nothing,
    Engine,
    Batch,
}

type Export = (&'static str, Uses, fn(&World) -> c_int);

const KEY: *const c_void = c"key".as_ptr().cast();

/// Every export that passes the guard, with a call that succeeds.
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
            let path = w.dir.store("third");
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
    let tested: BTreeSet<&str> = exports().iter().map(|e| e.0).chain(unguarded).collect();
    assert_eq!(listed, tested);
}

#[test]
fn a_panic_in_any_export_is_caught_and_poisons_what_it_used() {
    for (name, uses, call) in exports() {
        let dir = Dir::new(&format!("panic-{name}"));
        let e = store(&dir);
        let world = World { dir, e, b: batch() };
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
