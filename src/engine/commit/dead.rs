//! Ranges of sequences that were refused. They are never used again, and readers skip them.
//!
//! There are none in ordinary life, so asking costs one load then.

use crate::base::sync::Mutex;
use crate::base::sync::atomic::{AtomicBool, Ordering};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Dead {
    any: AtomicBool,
    /// First and last of each range, ascending.
    ranges: Mutex<Vec<(u64, u64)>>,
}

impl Dead {
    /// Adds ranges, which lie behind all earlier ones or between them.
    pub(super) fn add(&self, ranges: &[(u64, u64)]) {
        if ranges.is_empty() {
            return;
        }
        let mut all = self.ranges.lock();
        all.extend_from_slice(ranges);
        all.sort_unstable();
        self.any.store(true, Ordering::Release);
    }

    /// Whether a sequence is in one of them.
    pub(super) fn contains(&self, sequence: u64) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let all = self.ranges.lock();
        let behind = all.partition_point(|(first, _)| *first <= sequence);
        behind.checked_sub(1).and_then(|at| all.get(at)).is_some_and(|(_, last)| *last >= sequence)
    }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_is_dead_inside_its_range_only() {
        let dead = Dead::default();
        assert!(!dead.contains(5));
        dead.add(&[(5, 7), (10, 10)]);
        dead.add(&[(8, 8)]);
        let found: Vec<u64> = (0..14).filter(|sequence| dead.contains(*sequence)).collect();
        assert_eq!(found, [5, 6, 7, 8, 10]);
    }
}
