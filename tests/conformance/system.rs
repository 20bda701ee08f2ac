//! The file system calls: opening, listing, renaming, removing, locking.

use iouring_engine::ring::fs::How;

use crate::stage::{NEW, READ, Stage};

fn errno<T: std::fmt::Debug>(result: iouring_engine::base::Result<T>) -> Option<i32> {
    result.expect_err("it must be refused").errno()
}

pub fn opening_follows_its_flags(stage: &Stage) {
    let open = |name, how| stage.io.open_at(&stage.dir, name, how);
    assert_eq!(errno(open("a", READ)), Some(libc::ENOENT));
    assert_eq!(errno(open("a", How { create: false, ..NEW })), Some(libc::ENOENT));
    let exclusive = How { exclusive: true, ..NEW };
    let file = open("a", exclusive).unwrap();
    assert_eq!(errno(open("a", exclusive)), Some(libc::EEXIST));
    stage.write(&file, 0, b"kept");
    assert_eq!(stage.read(&open("a", NEW).unwrap(), 0, 10), b"kept");
    assert_eq!(stage.read(&open("a", READ).unwrap(), 0, 10), b"kept");
    let meta = stage.io.meta(&file).unwrap();
    assert_eq!((meta.len, meta.regular, meta.links), (4, true, 1));
    assert!(!stage.io.meta(&stage.dir).unwrap().regular);
    assert!(open("", NEW).is_err());
    assert_eq!(errno(open(&"x".repeat(256), NEW)), Some(libc::ENAMETOOLONG));
}

pub fn names_are_listed_in_order(stage: &Stage) {
    assert!(stage.io.list(&stage.dir).unwrap().is_empty());
    for name in ["b", "10.wal", "LOCK", "9.wal", "a"] {
        drop(stage.file(name));
    }
    let expected = ["10.wal", "9.wal", "LOCK", "a", "b"];
    assert_eq!(stage.io.list(&stage.dir).unwrap(), expected);
    assert_eq!(stage.io.list(&stage.dir).unwrap(), expected, "listing twice gives the same");
}

pub fn a_rename_replaces(stage: &Stage) {
    let (old, new) = (stage.file("old"), stage.file("new"));
    stage.write(&old, 0, b"old");
    stage.write(&new, 0, b"new, and longer");
    stage.io.rename(&stage.dir, "old", "new").unwrap();
    assert_eq!(stage.io.list(&stage.dir).unwrap(), ["new"]);
    let file = stage.io.open_at(&stage.dir, "new", READ).unwrap();
    assert_eq!(stage.read(&file, 0, 100), b"old");
    // The replaced file lives as long as it is open.
    assert_eq!(stage.read(&new, 0, 100), b"new, and longer");
    assert_eq!(errno(stage.io.rename(&stage.dir, "old", "x")), Some(libc::ENOENT));
    stage.io.rename(&stage.dir, "new", "new").unwrap();
    assert_eq!(stage.io.list(&stage.dir).unwrap(), ["new"]);
}

pub fn a_removed_name_is_gone_and_its_open_file_lives(stage: &Stage) {
    let file = stage.file("a");
    stage.write(&file, 0, b"still here");
    stage.io.unlink(&stage.dir, "a").unwrap();
    assert!(stage.io.list(&stage.dir).unwrap().is_empty());
    assert_eq!(stage.read(&file, 0, 100), b"still here");
    assert_eq!(stage.io.meta(&file).unwrap().links, 0);
    assert_eq!(errno(stage.io.unlink(&stage.dir, "a")), Some(libc::ENOENT));
    assert!(stage.read(&stage.file("a"), 0, 100).is_empty(), "the same name is another file");
}

pub fn a_length_is_set(stage: &Stage) {
    let file = stage.file("a");
    stage.write(&file, 0, &[7; 10_000]);
    stage.io.set_len(&file, 5000).unwrap();
    stage.io.set_len(&file, 9000).unwrap();
    let bytes = stage.read(&file, 0, 20_000);
    assert_eq!(bytes.len(), 9000);
    assert!(bytes[..5000].iter().all(|byte| *byte == 7) && bytes[5000..].iter().all(|byte| *byte == 0));
    let read_only = stage.io.open_at(&stage.dir, "a", READ).unwrap();
    assert_eq!(errno(stage.io.set_len(&read_only, 1)), Some(libc::EINVAL));
}

pub fn a_lock_excludes_other_openings_until_it_is_closed(stage: &Stage) {
    let (first, second) = (stage.file("LOCK"), stage.file("LOCK"));
    let shared = first.clone();
    assert!(stage.io.lock(&first).unwrap());
    assert!(stage.io.lock(&shared).unwrap(), "it is the same opening");
    assert!(!stage.io.lock(&second).unwrap());
    drop(first);
    assert!(!stage.io.lock(&second).unwrap(), "a clone keeps the opening");
    drop(shared);
    assert!(stage.io.lock(&second).unwrap());
    iouring_engine::ring::fs::unlock(&second).unwrap();
    let third = stage.file("LOCK");
    assert!(stage.io.lock(&third).unwrap());
    assert!(!stage.io.lock(&second).unwrap());
}

pub fn a_symbolic_link_is_refused(stage: &Stage) {
    drop(stage.file("real"));
    match &stage.world {
        Some(world) => world.plant_symlink(&stage.path, "link"),
        None => std::os::unix::fs::symlink("real", stage.path.join("link")).unwrap(),
    }
    assert_eq!(errno(stage.io.open_at(&stage.dir, "link", READ)), Some(libc::ELOOP));
    assert_eq!(errno(stage.io.open_at(&stage.dir, "link", NEW)), Some(libc::ELOOP));
    assert_eq!(stage.io.list(&stage.dir).unwrap(), ["link", "real"]);
    stage.io.unlink(&stage.dir, "link").unwrap();
    assert_eq!(stage.io.list(&stage.dir).unwrap(), ["real"]);
}

pub fn a_directory_is_made_when_asked(stage: &Stage) {
    let path = stage.path.join("below");
    assert_eq!(errno(stage.io.open_dir(&path, false)), Some(libc::ENOENT));
    let below = stage.io.open_dir(&path, true).unwrap();
    drop(stage.io.open_at(&below, "a", NEW).unwrap());
    let again = stage.io.open_dir(&path, true).unwrap();
    assert_eq!(stage.io.list(&again).unwrap(), ["a"]);
    stage.run(stage.io.sync(&again, false)).unwrap();
}
