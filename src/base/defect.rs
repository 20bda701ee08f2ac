//! Planted defects: mistakes that the test suite must catch, switched on one at a time.
//!
//! A test that never fails proves nothing. So the code names, at each place where durability hangs on doing it right,
//! the mistake that could be made there: `if defect::on(Defect::AckBeforeSync) { … }`. A test plants the defect, runs
//! the simulator and demands that the suite finds it. Outside tests [`on`] is the constant `false` and the branch is
//! not compiled in. The switch is the thread's own, because a simulated history runs on one thread and tests run on
//! many. What was rejected: patching copies of the source, which rots unseen.

/// The mistakes that can be planted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Defect {
    /// A write is acknowledged when it has been written, before its sync.
    AckBeforeSync,
    /// A created or renamed file is used without syncing its directory.
    SkipDirectorySync,
    /// A failed sync is tried again and its success believed.
    RetryFailedSync,
    /// Recovery takes frames of another epoch.
    IgnoreEpoch,
    /// A short write is taken for a whole one.
    IgnoreShortWrite,
    /// A buffer is filled anew while its write is under way.
    ReuseBufferEarly,
    /// A group is acknowledged before one ahead of it.
    AckOutOfOrder,
    /// A checkpoint claims what its sync has not made durable yet.
    CheckpointAheadOfSync,
    /// A segment's block 0 is written again while records are in it.
    RewriteHeader,
    /// Recovery goes on appending to a segment whose tail is torn.
    AppendAfterTornTail,
    /// Recovery serves unproven records without making them durable anew.
    TrustUnprovenPages,
    /// The lock file is not registered in the ring that writes.
    LockOutsideRing,
    /// Recovery writes the link of its new segment before the copies it vouches for.
    LinkBeforeCopies,
    /// A refused sequence is shown to readers.
    PublishRefused,
    /// A batch counts though its last frame is missing.
    AcceptHalfBatch,
    /// A segment is removed before the *first live* that excludes it is durable.
    DeleteBeforeFirstLive,
    /// A reactor frees its buffers while their operations are under way.
    FreeInFlight,
}

impl Defect {
    /// All of them, in the order of durability's list.
    pub const ALL: [Defect; 17] = [
        Defect::AckBeforeSync,
        Defect::SkipDirectorySync,
        Defect::RetryFailedSync,
        Defect::IgnoreEpoch,
        Defect::IgnoreShortWrite,
        Defect::ReuseBufferEarly,
        Defect::AckOutOfOrder,
        Defect::CheckpointAheadOfSync,
        Defect::RewriteHeader,
        Defect::AppendAfterTornTail,
        Defect::TrustUnprovenPages,
        Defect::LockOutsideRing,
        Defect::LinkBeforeCopies,
        Defect::PublishRefused,
        Defect::AcceptHalfBatch,
        Defect::DeleteBeforeFirstLive,
        Defect::FreeInFlight,
    ];
}

#[cfg(any(test, feature = "defects"))]
mod switch {
    use super::Defect;
    use std::cell::Cell;

    thread_local! {
        static PLANTED: Cell<Option<Defect>> = const { Cell::new(None) };
    }

    /// Whether this defect is planted on the calling thread.
    pub fn on(defect: Defect) -> bool {
        PLANTED.get() == Some(defect)
    }

    /// Plants a defect on the calling thread until the answer is dropped.
    #[must_use = "the defect is taken out again when this is dropped"]
    pub fn plant(defect: Defect) -> Planted {
        Planted { before: PLANTED.replace(Some(defect)) }
    }

    /// A defect that is planted; dropping it takes the defect out.
    #[derive(Debug)]
    pub struct Planted {
        before: Option<Defect>,
    }

    impl Drop for Planted {
        fn drop(&mut self) {
            PLANTED.set(self.before);
        }
    }
}

#[cfg(any(test, feature = "defects"))]
pub use switch::{Planted, on, plant};

/// Never: defects can be planted in tests only.
#[cfg(not(any(test, feature = "defects")))]
#[inline(always)]
pub const fn on(_defect: Defect) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_planted_defect_is_on_until_dropped_and_on_this_thread_alone() {
        assert!(Defect::ALL.iter().all(|defect| !on(*defect)));
        let planted = plant(Defect::IgnoreEpoch);
        assert!(on(Defect::IgnoreEpoch) && !on(Defect::AckBeforeSync));
        let elsewhere = std::thread::scope(|scope| scope.spawn(|| on(Defect::IgnoreEpoch)).join());
        assert!(!elsewhere.unwrap());
        drop(planted);
        assert!(!on(Defect::IgnoreEpoch));
    }
}
