//! What a store says to a path, a directory or a lock file that it can't have: a code, and a sentence saying which.
//!
//! Everything here happens on real file systems. Permissions are tried as uid 65534 and mounts are made in a namespace
//! of the test's own thread, both only where the test runs as root; elsewhere the first needs no change of user and
//! the second says that it was not tried.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]
#![allow(clippy::disallowed_methods, reason = "tests lay out directories by plain system calls")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use iouring_engine::base::error::code;
use iouring_engine::base::{Error, Result};
use iouring_engine::engine::{Options, Store};

/// A directory of its own, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("ioe-open-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        Scratch(path)
    }

    fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn dir(&self, name: &str) -> PathBuf {
        let path = self.join(name);
        fs::create_dir(&path).unwrap();
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn small() -> Options {
    Options { memtable_bytes: 1 << 20, ..Options::default() }
}

fn open(path: &Path) -> Result<Store> {
    Store::open(path, small())
}

/// The refusal of an open, checked for its code and for the words its sentence must have.
fn refused(opened: Result<Store>, code: i32, words: &[&str]) -> Error {
    let error = match opened {
        Ok(_) => panic!("opened, where {code} was expected"),
        Err(error) => error,
    };
    assert_eq!(error.code(), code, "{error}");
    let sentence = error.to_string();
    for word in words {
        assert!(sentence.contains(word), "{sentence:?} says nothing of {word:?}");
    }
    error
}

fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(path).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Runs `body` on a thread of its own without root's rights.
fn as_nobody(body: impl FnOnce() + Send) {
    run_on_thread(|| {
        if rustix::process::geteuid().is_root() {
            rustix::thread::set_thread_groups(&[]).unwrap();
            rustix::thread::set_thread_gid(rustix::fs::Gid::from_raw(65534)).unwrap();
            rustix::thread::set_thread_uid(rustix::fs::Uid::from_raw(65534)).unwrap();
        }
        body();
    });
}

/// Runs `body` on a thread with mounts of its own; says so when that is not allowed here.
fn with_own_mounts(what: &str, body: impl FnOnce() + Send) {
    run_on_thread(|| {
        if unshare_mounts().is_err() || !run("mount", &["--make-rprivate", "/"]) {
            eprintln!("NOT TRIED: {what}: mounting is not allowed here (it needs CAP_SYS_ADMIN)");
            return;
        }
        body();
    });
}

#[allow(unsafe_code, reason = "unsharing has no safe interface")]
fn unshare_mounts() -> rustix::io::Result<()> {
    // SAFETY: only this thread's view of mounts changes; no file descriptor and no memory is touched.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }
}

fn run_on_thread(body: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        if let Err(panic) = scope.spawn(body).join() {
            std::panic::resume_unwind(panic);
        }
    });
}

fn run(program: &str, arguments: &[&str]) -> bool {
    Command::new(program).args(arguments).status().is_ok_and(|status| status.success())
}

#[test]
fn a_file_in_the_directorys_place() {
    let scratch = Scratch::new();
    let file = scratch.join("file");
    fs::write(&file, b"precious").unwrap();
    refused(open(&file), -libc::ENOTDIR, &["is a file where a directory is needed", "file"]);
    refused(open(&file.join("below")), -libc::ENOTDIR, &["is a file where a directory is needed"]);
    assert_eq!(fs::read(&file).unwrap(), b"precious");
}

#[test]
fn a_directory_that_is_somebody_elses() {
    let scratch = Scratch::new();
    let dir = scratch.dir("documents");
    fs::write(dir.join("letter.txt"), b"dear").unwrap();
    refused(open(&dir), -libc::ENOTEMPTY, &["no store", "letter.txt"]);
    assert_eq!(names(&dir), ["letter.txt"], "a refusal changes nothing");
}

#[test]
fn a_directory_of_a_later_version() {
    let scratch = Scratch::new();
    let dir = scratch.dir("later");
    for name in ["CURRENT", "1.wal"] {
        fs::write(dir.join(name), b"").unwrap();
    }
    refused(open(&dir), code::VERSION, &["CURRENT", "later version"]);
    assert_eq!(names(&dir), ["1.wal", "CURRENT"], "a refusal changes nothing");
}

#[test]
fn a_missing_parent_is_named() {
    let scratch = Scratch::new();
    refused(open(&scratch.join("a/b")), -libc::ENOENT, &["parent", "a/b"]);
}

#[test]
fn stores_are_made_and_refused_as_the_options_say() {
    let scratch = Scratch::new();
    let path = scratch.join("store");
    let never = || Options { create_if_missing: false, ..small() };
    let new = || Options { error_if_exists: true, ..small() };
    refused(Store::open(&path, never()), -libc::ENOENT, &["no store", "create_if_missing"]);
    assert!(!path.exists());
    let empty = scratch.dir("empty");
    refused(Store::open(&empty, never()), -libc::ENOENT, &["no store", "create_if_missing"]);
    assert!(names(&empty).is_empty());
    Store::open(&path, new()).unwrap().close().unwrap();
    refused(Store::open(&path, new()), -libc::EEXIST, &["already", "error_if_exists"]);
    Store::open(&path, never()).unwrap().close().unwrap();
    let read_only = Options { read_only: true, ..small() };
    refused(Store::open(&path, read_only), code::UNSUPPORTED, &["read_only", "manifest"]);
}

#[test]
fn a_store_and_its_files_are_private() {
    let scratch = Scratch::new();
    let path = scratch.join("store");
    open(&path).unwrap().close().unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o700);
    for name in names(&path) {
        assert_eq!(mode(&path.join(&name)), 0o600, "{name}");
    }
}

#[test]
fn a_lock_that_is_a_symbolic_link_is_not_followed() {
    let scratch = Scratch::new();
    let dir = scratch.dir("store");
    let target = scratch.join("target");
    symlink(&target, dir.join("LOCK")).unwrap();
    refused(open(&dir), -libc::ELOOP, &["LOCK", "symbolic link"]);
    assert!(!target.exists(), "nothing is made where the link points");
    fs::write(&target, b"precious").unwrap();
    refused(open(&dir), -libc::ELOOP, &["LOCK", "symbolic link"]);
    assert_eq!(fs::read(&target).unwrap(), b"precious");
}

#[test]
fn a_lock_that_is_no_file_is_refused() {
    let scratch = Scratch::new();
    let dir = scratch.dir("directory");
    fs::create_dir(dir.join("LOCK")).unwrap();
    refused(open(&dir), -libc::EISDIR, &["LOCK", "directory"]);
    let dir = scratch.dir("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, dir.join("LOCK"), rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)
        .unwrap();
    refused(open(&dir), -libc::EEXIST, &["LOCK", "not a plain file"]);
}

#[test]
fn without_permission() {
    let scratch = Scratch::new();
    let closed = scratch.dir("closed");
    let readable = scratch.dir("readable");
    let store = scratch.join("store");
    open(&store).unwrap().close().unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
    fs::set_permissions(&readable, fs::Permissions::from_mode(0o555)).unwrap();
    fs::set_permissions(&store, fs::Permissions::from_mode(0o555)).unwrap();
    for name in names(&store) {
        fs::set_permissions(store.join(name), fs::Permissions::from_mode(0o400)).unwrap();
    }
    as_nobody(|| {
        refused(open(&closed), -libc::EACCES, &["no permission", "closed"]);
        refused(open(&readable), -libc::EACCES, &["no permission", "LOCK", "readable"]);
        refused(open(&readable.join("new")), -libc::EACCES, &["no permission", "new"]);
        refused(open(&store), -libc::EACCES, &["no permission", "LOCK", "store"]);
    });
    for path in [&closed, &readable, &store] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
    }
}

#[test]
fn an_ordinary_user_can_use_a_store() {
    let scratch = Scratch::new();
    fs::set_permissions(&scratch.0, fs::Permissions::from_mode(0o777)).unwrap();
    let path = scratch.join("store");
    as_nobody(|| {
        let store = open(&path).unwrap();
        store.put(b"k", b"v").unwrap();
        assert_eq!(store.get(b"k").unwrap(), b"v");
        store.close().unwrap();
    });
}

#[test]
fn a_read_only_file_system() {
    let scratch = Scratch::new();
    let mount = scratch.dir("mount");
    let at = mount.to_str().unwrap().to_owned();
    with_own_mounts("a read-only file system", || {
        assert!(run("mount", &["-t", "tmpfs", "none", &at]));
        open(&mount.join("store")).unwrap().close().unwrap();
        assert!(run("mount", &["-o", "remount,ro", &at]));
        refused(open(&mount.join("store")), -libc::EROFS, &["read-only file system"]);
        refused(open(&mount.join("other")), -libc::EROFS, &["read-only file system"]);
    });
}

#[test]
fn a_full_disk_and_then_space_again() {
    let scratch = Scratch::new();
    let mount = scratch.dir("mount");
    let at = mount.to_str().unwrap().to_owned();
    with_own_mounts("a full disk", || {
        assert!(run("mount", &["-t", "tmpfs", "-o", "size=8m", "none", &at]));
        let fill = || {
            // The keeper may take some of the room meanwhile: full is full.
            let full = fs::write(mount.join("ballast"), vec![1u8; 9 << 20]).unwrap_err();
            assert_eq!(full.raw_os_error(), Some(libc::ENOSPC));
        };
        fill();
        let path = mount.join("store");
        refused(open(&path), -libc::ENOSPC, &["full"]);
        fs::remove_file(mount.join("ballast")).unwrap();
        let store = open(&path).unwrap();
        store.put(b"before", b"1").unwrap();
        fill();
        let refusals = write_until_full(&store);
        assert!(refusals > 0, "the disk was full and no write was refused");
        assert_eq!(store.get(b"before").unwrap(), b"1", "reads go on");
        fs::remove_file(mount.join("ballast")).unwrap();
        store.put(b"after", b"2").unwrap();
        store.close().unwrap();
        let store = open(&path).unwrap();
        assert_eq!(store.get(b"before").unwrap(), b"1");
        assert_eq!(store.get(b"after").unwrap(), b"2");
        store.close().unwrap();
    });
}

/// Puts until puts are refused for want of space; each refusal must be clean.
fn write_until_full(store: &Store) -> u32 {
    let value = vec![7u8; 64 << 10];
    let mut refusals = 0;
    for i in 0..400u32 {
        match store.put(&i.to_be_bytes(), &value) {
            Ok(()) => assert_eq!(store.get(&i.to_be_bytes()).unwrap(), value),
            Err(e) => {
                assert_eq!(e.code(), -libc::ENOSPC, "{e}");
                assert!(
                    matches!(store.get(&i.to_be_bytes()), Err(Error::NotFound)),
                    "a refused put is not there"
                );
                refusals += 1;
                if refusals == 3 {
                    break;
                }
            }
        }
    }
    refusals
}

#[test]
fn opened_twice_in_one_process_is_busy_at_once() {
    let scratch = Scratch::new();
    let path = scratch.join("store");
    let alias = scratch.join("alias");
    let store = open(&path).unwrap();
    symlink(&path, &alias).unwrap();
    for path in [&path, &alias] {
        refused(open(path), code::BUSY, &["in this process"]);
    }
    store.put(b"k", b"v").unwrap();
    store.close().unwrap();
    assert!(matches!(store.put(b"k", b"w"), Err(Error::Closed)));
    assert!(matches!(store.get(b"k"), Err(Error::Closed)));
    let again = open(&alias).unwrap();
    assert_eq!(again.get(b"k").unwrap(), b"v");
    again.close().unwrap();
}

/// Locks LOCK by another opening, as another process would.
fn hold(path: &Path) -> fs::File {
    let file = fs::OpenOptions::new().read(true).write(true).open(path.join("LOCK")).unwrap();
    rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    file
}

#[test]
fn a_lock_held_elsewhere_is_busy_and_a_lingering_one_is_waited_out() {
    let scratch = Scratch::new();
    let path = scratch.join("store");
    open(&path).unwrap().close().unwrap();
    let held = hold(&path);
    refused(open(&path), code::BUSY, &["another process", "LOCK"]);
    // The refusal left nothing behind in this process's own table.
    refused(open(&path), code::BUSY, &["another process", "LOCK"]);
    std::thread::scope(|scope| {
        let opening = scope.spawn(|| open(&path).map(|store| store.close()));
        std::thread::sleep(std::time::Duration::from_millis(300));
        drop(held);
        opening.join().unwrap().unwrap().unwrap();
    });
}

#[test]
fn a_copy_of_the_lock_in_a_forked_child_does_not_keep_the_store() {
    let scratch = Scratch::new();
    let path = scratch.join("store");
    let store = open(&path).unwrap();
    // A duplicate shares the opening, as a forked child's copy does.
    let lock = find_lock(&path);
    store.close().unwrap();
    open(&path).unwrap().close().unwrap();
    drop(lock);
}

/// A duplicate of the descriptor that this process has of LOCK.
fn find_lock(path: &Path) -> std::os::fd::OwnedFd {
    let wanted = fs::canonicalize(path.join("LOCK")).unwrap();
    for entry in fs::read_dir("/proc/self/fd").unwrap() {
        let entry = entry.unwrap();
        if fs::read_link(entry.path()).is_ok_and(|target| target == wanted) {
            let fd: i32 = entry.file_name().to_str().unwrap().parse().unwrap();
            return duplicate(fd);
        }
    }
    panic!("an open store has LOCK open");
}

#[allow(unsafe_code, reason = "a descriptor found in /proc has no owner to borrow from")]
fn duplicate(fd: i32) -> std::os::fd::OwnedFd {
    // SAFETY: the store that owns the descriptor is open until the caller closes it, after this call.
    let borrowed = unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) };
    borrowed.try_clone_to_owned().unwrap()
}
