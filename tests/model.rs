//! The store against an ordered map, on real files: whatever is done to both, both answer the same.
#![allow(clippy::disallowed_methods, reason = "tests make their directories by plain system calls")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use iouring_engine::base::Error;
use iouring_engine::base::error::code;
use iouring_engine::engine::batch::{MAX_KEY, MAX_VALUE};
use iouring_engine::engine::options::DriverChoice;
use iouring_engine::engine::{Level, Options, Store, WriteBatch};
use iouring_engine::wal::sync::Wish;
use proptest::prelude::*;

struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("ioe-model-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        Scratch(std::env::temp_dir().join(name))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn open(path: &Path) -> Store {
    let options = Options { memtable_bytes: 1 << 20, ..Options::default() };
    Store::open(path, options).unwrap()
}

fn number(store: &Store, property: &str) -> u64 {
    let text = store.property(property).unwrap();
    text.parse().unwrap_or_else(|_| panic!("{property} is {text:?}"))
}

#[derive(Debug, Clone)]
enum Step {
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    BatchPut(Vec<u8>, Vec<u8>),
    Write(Vec<(Vec<u8>, Option<Vec<u8>>)>, Level),
    Flush,
    Reopen,
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        Just(Vec::new()),
        Just(vec![0]),
        Just(vec![0, 0]),
        Just(vec![0xff; 3]),
        prop::collection::vec(0u8..4, 1..4),
        Just(vec![b'k'; 5000]),
    ]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    let long = |len: usize| any::<u8>().prop_map(move |byte| vec![byte; len]);
    prop_oneof![
        2 => Just(Vec::new()),
        6 => prop::collection::vec(any::<u8>(), 0..40),
        1 => long(4096),
        1 => long(4097),
        1 => long(300_000),
    ]
}

fn level() -> impl Strategy<Value = Level> {
    prop_oneof![Just(Level::Durable), Just(Level::Buffered), Just(Level::Volatile)]
}

fn step() -> impl Strategy<Value = Step> {
    let batch = prop::collection::vec((key(), prop::option::weighted(0.7, value())), 0..6);
    prop_oneof![
        5 => (key(), value()).prop_map(|(k, v)| Step::Put(k, v)),
        3 => key().prop_map(Step::Delete),
        3 => (key(), value()).prop_map(|(k, v)| Step::BatchPut(k, v)),
        3 => (batch, level()).prop_map(|(edits, level)| Step::Write(edits, level)),
        1 => Just(Step::Flush),
        1 => Just(Step::Reopen),
    ]
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn change(model: &mut Model, key: &[u8], value: Option<&Vec<u8>>) {
    match value {
        Some(value) => model.insert(key.to_vec(), value.clone()),
        None => model.remove(key),
    };
}

fn agree(store: &Store, model: &Model, touched: &[Vec<u8>]) {
    for key in touched {
        let got = match store.get(key) {
            Ok(value) => Some(value),
            Err(Error::NotFound) => None,
            Err(e) => panic!("reading {key:?}: {e}"),
        };
        assert!(got.as_ref() == model.get(key), "{key:?} reads as {:?} bytes", got.map(|v| v.len()));
        let view = store.get_view(key).ok();
        assert!(view.as_deref() == model.get(key).map(Vec::as_slice), "the view of {key:?}");
    }
}

fn run(steps: &[Step]) {
    let scratch = Scratch::new();
    let mut store = open(&scratch.0);
    let mut model = Model::new();
    let mut touched: Vec<Vec<u8>> = vec![b"never".to_vec()];
    for step in steps {
        match step {
            Step::Put(key, value) => {
                store.put(key, value).unwrap();
                change(&mut model, key, Some(value));
                touched.push(key.clone());
            }
            Step::BatchPut(key, value) => {
                store.batch_put(key, value).unwrap();
                change(&mut model, key, Some(value));
                touched.push(key.clone());
            }
            Step::Delete(key) => {
                store.delete(key).unwrap();
                change(&mut model, key, None);
                touched.push(key.clone());
            }
            Step::Write(edits, level) => {
                let mut batch = WriteBatch::new();
                for (key, value) in edits {
                    match value {
                        Some(value) => batch.put(key, value).unwrap(),
                        None => batch.delete(key).unwrap(),
                    }
                    change(&mut model, key, value.as_ref());
                    touched.push(key.clone());
                }
                store.write(&batch, *level).unwrap();
            }
            Step::Flush => store.flush_batch().unwrap(),
            Step::Reopen => {
                store.close().unwrap();
                store = open(&scratch.0);
                touched.sort();
                touched.dedup();
            }
        }
        agree(&store, &model, &touched[touched.len().saturating_sub(2)..]);
    }
    agree(&store, &model, &touched);
    store.close().unwrap();
    let store = open(&scratch.0);
    agree(&store, &model, &touched);
    assert_eq!(number(&store, "durable_sequence"), number(&store, "visible_sequence"));
    store.close().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn a_store_agrees_with_an_ordered_map(steps in prop::collection::vec(step(), 1..40)) {
        run(&steps);
    }
}

#[test]
fn every_way_of_making_writes_durable_stores_the_same() {
    for sync in [Wish::Auto, Wish::Syscall, Wish::Dsync, Wish::Linked] {
        for driver in [DriverChoice::Auto, DriverChoice::Posix] {
            let scratch = Scratch::new();
            let options = || Options { memtable_bytes: 1 << 20, sync, driver, ..Options::default() };
            let store = Store::open(&scratch.0, options()).unwrap();
            std::thread::scope(|scope| {
                for thread in 0..4u8 {
                    let store = &store;
                    scope.spawn(move || (0..20u8).for_each(|i| store.put(&[thread, i], &[i; 3000]).unwrap()));
                }
            });
            let way = store.property("sync").unwrap();
            assert!(!way.is_empty() && number(&store, "groups") > 0, "{way}");
            assert_eq!(number(&store, "group_entries"), 80, "{way}");
            let carrier = store.property("driver").unwrap();
            let expected = match (sync, driver) {
                (Wish::Linked, DriverChoice::Posix) => "posix",
                (Wish::Linked, _) => {
                    if carrier == "uring" {
                        "uring"
                    } else {
                        "posix"
                    }
                }
                _ => "inline",
            };
            assert_eq!(carrier, expected, "{way}");
            store.close().unwrap();
            let store = Store::open(&scratch.0, options()).unwrap();
            for thread in 0..4u8 {
                for i in 0..20u8 {
                    assert!(store.get(&[thread, i]).unwrap() == [i; 3000], "{way}: {thread}, {i}");
                }
            }
            store.close().unwrap();
        }
    }
}

#[test]
fn put_delete_put_of_one_key() {
    let put = |v: &[u8]| Step::Put(b"k".to_vec(), v.to_vec());
    let delete = || Step::Delete(b"k".to_vec());
    run(&[put(b"1"), delete(), put(b"2"), Step::Reopen, delete(), Step::Reopen, put(b"3"), put(b"")]);
}

#[test]
fn the_limits_are_exact_and_what_is_over_them_is_not_written() {
    let scratch = Scratch::new();
    let store = open(&scratch.0);
    let longest = vec![b'x'; MAX_KEY];
    store.put(&longest, b"v").unwrap();
    let before = number(&store, "visible_sequence");
    let too_long = vec![b'x'; MAX_KEY + 1];
    let too_large = vec![0u8; MAX_VALUE + 1];
    for refused in [
        store.put(&too_long, b"v"),
        store.delete(&too_long),
        store.batch_put(&too_long, b"v"),
        store.put(b"k", &too_large),
        store.get(&too_long).map(|_| ()),
    ] {
        assert_eq!(refused.unwrap_err().code(), code::TOO_LARGE);
    }
    assert_eq!(number(&store, "visible_sequence"), before);
    store.close().unwrap();
    let store = open(&scratch.0);
    assert_eq!(store.get(&longest).unwrap(), b"v");
    assert_eq!(number(&store, "memtable_entries"), 1);
    store.close().unwrap();
}

#[test]
fn a_value_larger_than_a_segment_is_stored_and_recovered() {
    let scratch = Scratch::new();
    let store = open(&scratch.0);
    let large: Vec<u8> = (0..5_000_000u32).map(|i| (i / 7) as u8).collect();
    store.put(b"large", &large).unwrap();
    store.put(b"small", b"behind it").unwrap();
    store.close().unwrap();
    let store = open(&scratch.0);
    assert!(store.get(b"large").unwrap() == large);
    assert_eq!(store.get(b"small").unwrap(), b"behind it");
    store.close().unwrap();
}

#[test]
fn a_memory_ceiling_refuses_and_writes_nothing() {
    let scratch = Scratch::new();
    let options = Options { memtable_bytes: 1 << 20, memory_limit_bytes: 10_000, ..Options::default() };
    let store = Store::open(&scratch.0, options).unwrap();
    store.put(b"a", &[1; 5000]).unwrap();
    assert_eq!(store.put(b"b", &[1; 5000]).unwrap_err().code(), code::TOO_LARGE);
    assert!(matches!(store.get(b"b"), Err(Error::NotFound)));
    store.put(b"c", b"fits").unwrap();
    store.close().unwrap();
}

#[test]
fn each_level_is_visible_when_it_returns_and_a_flush_makes_it_durable() {
    let scratch = Scratch::new();
    let store = open(&scratch.0);
    for (level, key) in [(Level::Volatile, b"v"), (Level::Buffered, b"b"), (Level::Durable, b"d")] {
        let mut batch = WriteBatch::new();
        batch.put(key, b"1").unwrap();
        store.write(&batch, level).unwrap();
        assert_eq!(store.get(key).unwrap(), b"1", "{level:?}");
    }
    // The durable write was the last one, and levels keep one order.
    assert_eq!(store.durable_sequence().unwrap(), 3);
    store.batch_put(b"x", b"2").unwrap();
    assert_eq!(store.get(b"x").unwrap(), b"2");
    store.flush_batch().unwrap();
    assert_eq!(store.durable_sequence().unwrap(), 4);
    store.close().unwrap();
}

#[test]
fn a_batched_put_becomes_durable_by_itself() {
    let scratch = Scratch::new();
    let store = open(&scratch.0);
    store.batch_put(b"k", b"v").unwrap();
    // Waits for as long as it takes: a keeper that never comes hangs the test.
    while store.durable_sequence().unwrap() < 1 {
        std::thread::yield_now();
    }
    store.close().unwrap();
}

#[test]
fn views_outlive_their_store() {
    let scratch = Scratch::new();
    let store = open(&scratch.0);
    store.put(b"large", &[7; 10_000]).unwrap();
    let view = store.get_view(b"large").unwrap();
    assert!(view.is_shared());
    assert_eq!(number(&store, "pinned_bytes"), 10_000);
    store.put(b"large", b"other").unwrap();
    store.close().unwrap();
    drop(store);
    assert!(view.len() == 10_000 && view.iter().all(|byte| *byte == 7));
}

#[test]
fn properties_are_known_by_name_or_refused() {
    let scratch = Scratch::new();
    let store = open(&scratch.0);
    store.put(b"k", b"vv").unwrap();
    store.delete(b"k").unwrap();
    assert!(matches!(store.get(b"k"), Err(Error::NotFound)));
    let stats = store.property("stats").unwrap();
    for line in stats.lines() {
        let (name, value) = line.split_once(": ").unwrap_or_else(|| panic!("{line:?} is no name and value"));
        assert!(!value.is_empty(), "{name} has no value");
        store.property(name).unwrap();
    }
    for (name, value) in [("puts", 1), ("deletes", 1), ("gets", 1), ("gets_found", 0), ("bytes_written", 4)] {
        assert_eq!(number(&store, name), value, "{name}");
    }
    assert!(store.property("prometheus").unwrap().contains("iouring_engine_puts 1\n"));
    assert!(matches!(store.property("no such"), Err(Error::Invalid(text)) if text.contains("no such")));
    assert!(matches!(store.property(""), Err(Error::Invalid(_))));
    store.close().unwrap();
    assert!(matches!(store.property("stats"), Err(Error::Closed)));
}

#[test]
fn closing_twice_is_harmless_and_dropping_closes() {
    let scratch = Scratch::new();
    let store = open(&scratch.0);
    store.batch_put(b"k", b"v").unwrap();
    drop(store);
    let store = open(&scratch.0);
    assert_eq!(store.get(b"k").unwrap(), b"v");
    store.close().unwrap();
    store.close().unwrap();
    for refused in [store.put(b"k", b""), store.delete(b"k"), store.flush_batch(), store.batch_put(b"k", b"")]
    {
        assert!(matches!(refused, Err(Error::Closed)));
    }
}

#[test]
fn sixteen_threads_write_and_readers_never_see_time_go_back() {
    const WRITERS: u64 = 16;
    const ROUNDS: u64 = 60;
    let scratch = Scratch::new();
    let store = open(&scratch.0);
    let done = AtomicBool::new(false);
    let reads = AtomicU64::new(0);
    let read = |key: &[u8]| match store.get(key) {
        Ok(value) => u64::from_le_bytes(value.try_into().unwrap()),
        Err(Error::NotFound) => 0,
        Err(e) => panic!("{e}"),
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut seen = [0u64; WRITERS as usize];
                while !done.load(Ordering::Relaxed) {
                    for (writer, seen) in seen.iter_mut().enumerate() {
                        let now = read(&[writer as u8]);
                        assert!(now >= *seen, "writer {writer}: {now} after {seen}");
                        *seen = now;
                        reads.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (store, read) = (&store, &read);
                scope.spawn(move || {
                    let key = [writer as u8];
                    for round in 1..=ROUNDS {
                        let value = round.to_le_bytes();
                        match round % 4 {
                            0 => store.batch_put(&key, &value).unwrap(),
                            1 => {
                                let mut batch = WriteBatch::new();
                                batch.delete(&key).unwrap();
                                batch.put(&key, &value).unwrap();
                                store.write(&batch, Level::Buffered).unwrap();
                            }
                            _ => store.put(&key, &value).unwrap(),
                        }
                        assert_eq!(read(&key), round, "a thread sees its own writes");
                    }
                })
            })
            .collect();
        let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        done.store(true, Ordering::Relaxed);
        assert!(ended.into_iter().all(|end| end.is_ok()), "a writer failed");
    });
    assert!(reads.load(Ordering::Relaxed) > 0);
    store.close().unwrap();
    let store = open(&scratch.0);
    for writer in 0..WRITERS {
        let value = store.get(&[writer as u8]).unwrap();
        assert_eq!(value, ROUNDS.to_le_bytes(), "writer {writer}");
    }
    store.close().unwrap();
}
