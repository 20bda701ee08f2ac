//! The commit path under shuttle: every schedule of its locks, atomics and waits that the seed chooses.
//!
//! `cargo test --features shuttle --test shuttle_commit`; `SHUTTLE_SCHEDULES` says how many schedules (default 1,000, the
//! long run is 100,000). A failure prints the schedule, to be replayed with `shuttle::replay`. The device is a real
//! file in memory: what is explored is the order of the threads, not of the I/O.
#![cfg(feature = "shuttle")]
#![allow(clippy::disallowed_methods, reason = "tests look at files from outside")]

use std::path::{Path, PathBuf};

use iouring_engine::base::Error;
use iouring_engine::base::sync::{Arc, thread};
use iouring_engine::engine::commit::{Commit, Level, Options};
use iouring_engine::ring::Io;
use iouring_engine::ring::driver::Driver;
use iouring_engine::ring::inline::Inline;
use iouring_engine::wal::recover::{Recovered, RecoveryStats};
use iouring_engine::wal::sync::Wish;
use iouring_engine::wal::writer::{self, Writer};

fn schedules() -> usize {
    std::env::var("SHUTTLE_SCHEDULES").ok().and_then(|text| text.parse().ok()).unwrap_or(1000)
}

/// A handle of its own for each thread: shuttle's threads are one thread to `thread_local!`.
fn io() -> Io {
    Io::new(Driver::Inline(Inline::new()))
}

fn directory(name: &str) -> PathBuf {
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    parent.join(format!("ioe-shuttle-{name}-{}", std::process::id()))
}

fn open(path: &Path) -> Commit {
    let _ = std::fs::remove_dir_all(path);
    let io = io();
    let dir = io.open_dir(path, true).expect("the directory can be made");
    let recovered = Recovered {
        next_sequence: 1,
        tail: None,
        live: Vec::new(),
        spare: None,
        unused: Vec::new(),
        highest_number: 0,
        first_live: 0,
        stats: RecoveryStats::default(),
    };
    let how = writer::Options {
        segment_bytes: 32 * 1024,
        direct: false,
        sync: Wish::Syscall,
        may_block: true,
        checkpoint_every: 0,
        ring: None,
    };
    let opened = Writer::open(&io, &dir, recovered, how).expect("an empty log opens");
    Commit::new(opened, Options { batch_max_delay_us: 0, seal_after_us: 0, ..Options::default() })
}

fn put(commit: &Commit, io: &Io, payload: &[u8], level: Level) -> u64 {
    let sequence = io
        .block_on(async {
            let joined = commit.join(io, &[payload], 1, level).await.expect("nothing fails here");
            let sequence = joined.first_sequence;
            commit.finish(io, joined).await.expect("nothing fails here");
            sequence
        })
        .expect("the inline driver doesn't fail");
    assert!(commit.visible() >= sequence, "a write is visible when it returns");
    if level == Level::Durable {
        assert!(commit.durable() >= sequence, "a durable write is durable when it returns");
    }
    sequence
}

fn explore(name: &'static str, body: fn(&Arc<Commit>)) {
    let path = directory(name);
    let again = path.clone();
    shuttle::check_random(
        move || {
            let commit = Arc::new(open(&again));
            body(&commit);
        },
        schedules(),
    );
    let _ = std::fs::remove_dir_all(&path);
}

fn writers(commit: &Arc<Commit>, levels: &'static [&'static [Level]]) -> Vec<thread::JoinHandle<()>> {
    levels
        .iter()
        .map(|levels| {
            let commit = commit.clone();
            thread::spawn(move || {
                let io = io();
                let mut last = 0;
                for level in *levels {
                    let sequence = put(&commit, &io, b"payload", *level);
                    assert!(sequence > last, "sequences grow");
                    last = sequence;
                }
            })
        })
        .collect()
}

#[test]
fn every_durable_writer_is_woken() {
    const D: Level = Level::Durable;
    explore("durable", |commit| {
        let threads = writers(commit, &[&[D, D], &[D, D], &[D, D]]);
        threads.into_iter().for_each(|thread| thread.join().expect("a writer ends well"));
        assert_eq!((commit.visible(), commit.durable()), (6, 6));
    });
}

#[test]
fn mixed_levels_flush_and_close() {
    const D: Level = Level::Durable;
    const B: Level = Level::Buffered;
    const V: Level = Level::Volatile;
    explore("mixed", |commit| {
        let threads = writers(commit, &[&[V, D], &[B, V], &[V, V]]);
        let io = io();
        io.block_on(commit.flush(&io)).expect("inline").expect("nothing fails here");
        threads.into_iter().for_each(|thread| thread.join().expect("a writer ends well"));
        assert_eq!(commit.visible(), 6);
        io.block_on(commit.close(&io)).expect("inline").expect("nothing fails here");
        assert_eq!(commit.durable(), 6);
    });
}

#[test]
fn the_keeper_and_writers_never_wait_for_each_other_for_ever() {
    const D: Level = Level::Durable;
    const V: Level = Level::Volatile;
    explore("keeper", |commit| {
        let threads = writers(commit, &[&[V, D], &[D, V]]);
        let keeper = {
            let commit = commit.clone();
            thread::spawn(move || {
                let io = io();
                for _ in 0..3 {
                    io.block_on(commit.maintain(&io)).expect("inline").expect("nothing fails here");
                    thread::yield_now();
                }
            })
        };
        threads.into_iter().for_each(|thread| thread.join().expect("a writer ends well"));
        keeper.join().expect("the keeper ends well");
        assert_eq!(commit.visible(), 4);
    });
}

#[test]
fn segments_change_under_writers() {
    const D: Level = Level::Durable;
    explore("segments", |commit| {
        let threads = writers(commit, &[&[D, D, D, D], &[D, D, D, D]]);
        threads.into_iter().for_each(|thread| thread.join().expect("a writer ends well"));
        assert_eq!((commit.visible(), commit.durable()), (8, 8));
    });
}

#[test]
fn a_writer_that_gives_up_leaves_nobody_asleep() {
    explore("given-up", |commit| {
        let threads: Vec<_> = (0..3)
            .map(|number| {
                let commit = commit.clone();
                thread::spawn(move || {
                    let io = io();
                    let outcome = io.block_on(async {
                        let joined = commit.join(&io, &[b"payload"], 1, Level::Durable).await?;
                        if number == 0 {
                            drop(joined);
                            return Ok(());
                        }
                        commit.finish(&io, joined).await
                    });
                    let outcome = outcome.expect("the inline driver doesn't fail");
                    let told = matches!(outcome, Ok(()) | Err(Error::Indeterminate(_) | Error::Poisoned(_)));
                    assert!(told, "{outcome:?}");
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("a writer ends well"));
        assert!(commit.is_poisoned());
    });
}
