//! An idle store wakes nobody: its one thread sleeps until there is something to do.
//!
//! A file of its own, since the thread is found by its name and other tests have stores too.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(
    clippy::disallowed_methods,
    reason = "tests read /proc and make their directories by plain system calls"
)]

use std::fs;

use iouring_engine::engine::{Options, Store};

/// How often the store's thread has gone to sleep, by the kernel's count; none while it has no name yet.
fn count_sleeps() -> Option<u64> {
    for task in fs::read_dir("/proc/self/task").unwrap() {
        let path = task.unwrap().path();
        if fs::read_to_string(path.join("comm")).is_ok_and(|name| name.trim() == "ioe-keeper") {
            let status = fs::read_to_string(path.join("status")).unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            return Some(line.unwrap().trim().parse().unwrap());
        }
    }
    None
}

fn sleeps_of_the_keeper() -> u64 {
    count_sleeps().expect("an open store has a keeper")
}

/// Waits, however long it takes, until the keeper has slept through a pause; panics when it never does.
fn falls_asleep() -> u64 {
    let mut before = None;
    for _ in 0..100 {
        std::thread::sleep(std::time::Duration::from_millis(200));
        let after = count_sleeps();
        if let Some(count) = after.filter(|_| after == before) {
            return count;
        }
        before = after;
    }
    panic!("the keeper woke in every one of 100 pauses");
}

#[test]
fn a_store_that_nobody_uses_wakes_nobody_and_one_that_is_used_wakes_its_keeper() {
    let path = std::env::temp_dir().join(format!("ioe-idle-{}", std::process::id()));
    let store = Store::open(&path, Options { memtable_bytes: 1 << 20, ..Options::default() }).unwrap();
    falls_asleep();
    store.put(b"k", b"v").unwrap();
    // The seal is written after a while of idleness.
    let asleep = falls_asleep();
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert_eq!(sleeps_of_the_keeper(), asleep, "an idle store woke up");
    store.batch_put(b"k", b"w").unwrap();
    while store.durable_sequence().unwrap() < 2 {
        std::thread::yield_now();
    }
    assert!(sleeps_of_the_keeper() > asleep);
    store.close().unwrap();
    drop(store);
    fs::remove_dir_all(&path).unwrap();
}
