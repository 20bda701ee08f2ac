//! The memtable: every version of every key that is in the log and in no table.
//!
//! A concurrent skip list that is only ever inserted into, ordered by key and, within a key, newest first. A reader
//! looks up (key, the sequence it may see) and takes the first entry at or behind that place whose sequence isn't
//! dead (refused by the log). It takes no lock and allocates nothing. An entry is made, with all its memory, before
//! its sequence is known, because nothing may fail between joining a group and inserting.
//!
//! Key and value of an entry are one allocation. The list is behind a private trait: Miri refuses crossbeam's list,
//! and shuttle can't see into it, so both get an ordinary map behind a lock. What was rejected: removing or replacing
//! entries of the list (open bugs in crossbeam-skiplist 0.1.3), and an escaped byte string as key (a copy per lookup).

use std::borrow::Borrow;
use std::cmp::Ordering as Order;
use std::sync::Arc;

use super::batch::Edit;
use super::view::{Pins, View};
use crate::base::sync::atomic::{AtomicU64, Ordering};
use crate::base::{Error, Result};

/// What an entry costs beyond its key and value: a list node of average height, and the shared bytes' header.
const OVERHEAD: u64 = 96;
/// Allocations from here on are tried first, so that a refusal is an error and no abort.
const TRY_FROM: usize = 1 << 20;

/// One version of a key.
#[derive(Debug)]
struct Entry {
    bytes: Arc<[u8]>,
    key_len: usize,
    deleted: bool,
    /// `!sequence`, so that newer versions come first.
    inverted: u64,
}

/// A place in the order: what an entry and a lookup have in common.
trait Place {
    fn key(&self) -> &[u8];
    fn inverted(&self) -> u64;
}

impl Place for Entry {
    fn key(&self) -> &[u8] {
        self.bytes.get(..self.key_len).unwrap_or(&[])
    }

    fn inverted(&self) -> u64 {
        self.inverted
    }
}

struct Lookup<'a> {
    key: &'a [u8],
    inverted: u64,
}

impl Place for Lookup<'_> {
    fn key(&self) -> &[u8] {
        self.key
    }

    fn inverted(&self) -> u64 {
        self.inverted
    }
}

impl Ord for dyn Place + '_ {
    fn cmp(&self, other: &Self) -> Order {
        self.key().cmp(other.key()).then_with(|| self.inverted().cmp(&other.inverted()))
    }
}

impl PartialOrd for dyn Place + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Order> {
        Some(self.cmp(other))
    }
}

impl PartialEq for dyn Place + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Order::Equal
    }
}

impl Eq for dyn Place + '_ {}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Order {
        (self as &dyn Place).cmp(other as &dyn Place)
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Order> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Order::Equal
    }
}

impl Eq for Entry {}

impl<'a> Borrow<dyn Place + 'a> for Entry {
    fn borrow(&self) -> &(dyn Place + 'a) {
        self
    }
}

/// An ordered set that many threads read and insert into at once.
trait Ordered: Default + Send + Sync {
    fn insert(&self, entry: Entry);
    /// Shows the entries from `from` on, until `visit` says false.
    fn visit_from(&self, from: &Lookup<'_>, visit: &mut dyn FnMut(&Entry) -> bool);
}

#[cfg(not(any(miri, feature = "shuttle")))]
mod list {
    use std::ops::Bound;

    use crossbeam_skiplist::SkipMap;

    use super::{Entry, Lookup, Ordered, Place};

    #[derive(Default)]
    pub(super) struct List(SkipMap<Entry, ()>);

    impl Ordered for List {
        fn insert(&self, entry: Entry) {
            self.0.insert(entry, ());
        }

        fn visit_from(&self, from: &Lookup<'_>, visit: &mut dyn FnMut(&Entry) -> bool) {
            let mut next = self.0.lower_bound(Bound::Included(from as &dyn Place));
            while let Some(entry) = next {
                if !visit(entry.key()) {
                    return;
                }
                next = entry.next();
            }
        }
    }
}

#[cfg(any(test, miri, feature = "shuttle"))]
mod tree {
    use std::collections::BTreeMap;
    use std::ops::Bound;

    use super::{Entry, Lookup, Ordered, Place};
    use crate::base::sync::Mutex;

    #[derive(Default)]
    pub(super) struct Tree(Mutex<BTreeMap<Entry, ()>>);

    impl Ordered for Tree {
        fn insert(&self, entry: Entry) {
            self.0.lock().insert(entry, ());
        }

        fn visit_from(&self, from: &Lookup<'_>, visit: &mut dyn FnMut(&Entry) -> bool) {
            let map = self.0.lock();
            let from: Bound<&dyn Place> = Bound::Included(from);
            for entry in map.range::<dyn Place, _>((from, Bound::Unbounded)) {
                if !visit(entry.0) {
                    return;
                }
            }
        }
    }
}

#[cfg(not(any(miri, feature = "shuttle")))]
type Chosen = list::List;
#[cfg(any(miri, feature = "shuttle"))]
type Chosen = tree::Tree;

/// The memtable; see the module.
pub struct Memtable(Table<Chosen>);

#[derive(Default)]
struct Table<M> {
    map: M,
    entries: AtomicU64,
    bytes: AtomicU64,
}

/// An entry with all its memory, but without its sequence.
#[derive(Debug)]
pub struct Prepared {
    bytes: Arc<[u8]>,
    key_len: usize,
    deleted: bool,
}

impl Prepared {
    /// Copies a change's key and value.
    ///
    /// # Errors
    /// `-ENOMEM` when the system has no memory for them.
    pub fn new(edit: &Edit<'_>) -> Result<Self> {
        let (key, value) = (edit.key(), edit.value().unwrap_or(&[]));
        let len = key.len() + value.len();
        if len >= TRY_FROM && Vec::<u8>::new().try_reserve_exact(len).is_err() {
            return Err(Error::system(libc::ENOMEM, format!("a memtable entry of {len} bytes")));
        }
        // One allocation: of an iterator with a trusted length, then filled in place.
        let mut bytes: Arc<[u8]> = std::iter::repeat_n(0u8, len).collect();
        if let Some((k, v)) = Arc::get_mut(&mut bytes).and_then(|all| all.split_at_mut_checked(key.len())) {
            k.copy_from_slice(key);
            v.copy_from_slice(value);
        }
        Ok(Prepared { bytes, key_len: key.len(), deleted: edit.value().is_none() })
    }

    /// What it will cost in memory.
    pub fn memory(&self) -> u64 {
        self.bytes.len() as u64 + OVERHEAD
    }
}

/// What a lookup found.
pub struct Found<'a> {
    bytes: &'a Arc<[u8]>,
    key_len: usize,
    deleted: bool,
}

impl Found<'_> {
    /// The value; none when the key is deleted.
    pub fn value(&self) -> Option<&[u8]> {
        if self.deleted { None } else { Some(self.bytes.get(self.key_len..).unwrap_or(&[])) }
    }

    /// The value to be kept; none when the key is deleted.
    pub fn view(&self, pins: &Arc<Pins>) -> Option<View> {
        if self.deleted { None } else { Some(View::of(self.bytes, self.key_len, pins)) }
    }
}

impl Default for Memtable {
    fn default() -> Self {
        Memtable::new()
    }
}

impl Memtable {
    /// An empty one.
    pub fn new() -> Self {
        Memtable(Table::default())
    }

    /// Inserts an entry under its sequence. Can't fail.
    pub fn insert(&self, sequence: u64, prepared: Prepared) {
        self.0.insert(sequence, prepared);
    }

    /// Shows `visit` the newest version of a key at or before `visible` that isn't dead. `None` when there is none.
    pub fn get<T>(
        &self,
        key: &[u8],
        visible: u64,
        is_dead: impl Fn(u64) -> bool,
        visit: impl FnOnce(Found<'_>) -> T,
    ) -> Option<T> {
        self.0.get(key, visible, is_dead, visit)
    }

    /// How many versions it holds.
    pub fn entries(&self) -> u64 {
        self.0.entries.load(Ordering::Relaxed)
    }

    /// Bytes of memory they take, about.
    pub fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }
}

impl<M: Ordered> Table<M> {
    fn insert(&self, sequence: u64, prepared: Prepared) {
        self.entries.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(prepared.memory(), Ordering::Relaxed);
        let Prepared { bytes, key_len, deleted } = prepared;
        self.map.insert(Entry { bytes, key_len, deleted, inverted: !sequence });
    }

    fn get<T>(
        &self,
        key: &[u8],
        visible: u64,
        is_dead: impl Fn(u64) -> bool,
        visit: impl FnOnce(Found<'_>) -> T,
    ) -> Option<T> {
        let mut visit = Some(visit);
        let mut found = None;
        self.map.visit_from(&Lookup { key, inverted: !visible }, &mut |entry| {
            if entry.key() != key {
                return false;
            }
            if is_dead(!entry.inverted) {
                return true;
            }
            if let Some(visit) = visit.take() {
                found = Some(visit(Found {
                    bytes: &entry.bytes,
                    key_len: entry.key_len,
                    deleted: entry.deleted,
                }));
            }
            false
        });
        found
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn put(key: &[u8], value: &[u8]) -> Prepared {
        Prepared::new(&Edit::Put { key, value }).unwrap()
    }

    fn delete(key: &[u8]) -> Prepared {
        Prepared::new(&Edit::Delete { key }).unwrap()
    }

    fn get<M: Ordered>(table: &Table<M>, key: &[u8], visible: u64, dead: &[u64]) -> Option<Option<Vec<u8>>> {
        table.get(key, visible, |s| dead.contains(&s), |found| found.value().map(<[u8]>::to_vec))
    }

    fn versions_are_seen_at_their_sequence<M: Ordered>() {
        let table = Table::<M>::default();
        table.insert(3, put(b"k", b"three"));
        table.insert(1, put(b"k", b"one"));
        table.insert(2, delete(b"k"));
        table.insert(4, put(b"k\0", b"another key"));
        table.insert(5, put(b"", b""));
        assert_eq!(get(&table, b"k", 0, &[]), None);
        assert_eq!(get(&table, b"k", 1, &[]), Some(Some(b"one".to_vec())));
        assert_eq!(get(&table, b"k", 2, &[]), Some(None));
        assert_eq!(get(&table, b"k", u64::MAX, &[]), Some(Some(b"three".to_vec())));
        assert_eq!(get(&table, b"k", 9, &[3]), Some(None), "a dead version is skipped");
        assert_eq!(get(&table, b"k", 9, &[1, 2, 3]), None);
        assert_eq!(get(&table, b"", 9, &[]), Some(Some(Vec::new())));
        assert_eq!(get(&table, b"k\0", 9, &[]), Some(Some(b"another key".to_vec())));
        assert_eq!(get(&table, b"l", 9, &[]), None);
    }

    #[cfg(not(any(miri, feature = "shuttle")))]
    #[test]
    fn versions_are_seen_at_their_sequence_in_the_list() {
        versions_are_seen_at_their_sequence::<list::List>();
    }

    #[test]
    fn versions_are_seen_at_their_sequence_in_the_tree() {
        versions_are_seen_at_their_sequence::<tree::Tree>();
    }

    #[test]
    fn what_it_holds_is_counted() {
        let table = Memtable::new();
        table.insert(1, put(b"key", b"value"));
        table.insert(2, delete(b"key"));
        assert_eq!((table.entries(), table.bytes()), (2, 8 + 3 + 2 * OVERHEAD));
    }

    #[test]
    fn many_threads_insert_and_read() {
        let table = Memtable::new();
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let table = &table;
                scope.spawn(move || {
                    for i in 0..500u64 {
                        let sequence = 1 + i * 4 + thread;
                        table.insert(sequence, put(&i.to_be_bytes(), &sequence.to_be_bytes()));
                        let seen = table.get(
                            &i.to_be_bytes(),
                            sequence,
                            |_| false,
                            |f| f.value().map(<[u8]>::to_vec),
                        );
                        assert_eq!(seen.flatten(), Some(sequence.to_be_bytes().to_vec()));
                    }
                });
            }
        });
        assert_eq!(table.entries(), 2000);
    }

    proptest! {
        #[test]
        fn it_agrees_with_an_ordered_map(steps in prop::collection::vec((0u8..6, prop::option::of(0u8..9)), 1..60)) {
            let table = Memtable::new();
            let mut model: BTreeMap<(u8, u64), Option<u8>> = BTreeMap::new();
            for (sequence, (key, value)) in (1u64..).zip(&steps) {
                let entry = match value {
                    Some(v) => put(&[*key], &[*v]),
                    None => delete(&[*key]),
                };
                table.insert(sequence, entry);
                model.insert((*key, sequence), *value);
            }
            for key in 0..6u8 {
                for visible in 0..=steps.len() as u64 {
                    let expected = model.range((key, 0)..=(key, visible)).next_back().map(|(_, v)| v.map(|v| vec![v]));
                    let got = table.get(&[key], visible, |_| false, |f| f.value().map(<[u8]>::to_vec));
                    prop_assert_eq!(got, expected);
                }
            }
        }
    }
}
