//! Hash maps with a fixed seed, so that one simulator seed is one history.
//!
//! The keys are the library's own small numbers, never chosen by an attacker, so a fixed seed is safe.
#![allow(clippy::disallowed_types, reason = "the one place that gives std's maps a fixed hasher")]

use std::hash::{BuildHasherDefault, DefaultHasher};

/// A hash map with a fixed hasher.
pub type Map<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<DefaultHasher>>;
/// A hash set with a fixed hasher.
pub type Set<K> = std::collections::HashSet<K, BuildHasherDefault<DefaultHasher>>;
