//! How a caller waits: asleep on a word when its thread may block, by the executor's turns when it is a task.

use super::Commit;
use crate::base::sync::{WaitWord, thread};
use crate::ring::Io;
use crate::ring::driver::Kind;

/// How long the leader waits for as many callers as the last group had. Woken together, they come back within this
/// time; waiting for them made groups larger and 16 threads a quarter faster.
const GATHER_US: u64 = 40;
/// Looks at a condition that other threads are about to bring about, before sleeping for it.
const LOOKS: u32 = 64;

impl Commit {
    /// Waits until `word` has another value than `seen`, or longer than that for no reason.
    pub(super) async fn wait(&self, io: &Io, word: &WaitWord, seen: u32) {
        if io.kind() == Kind::Inline {
            word.wait(seen, None);
        } else {
            io.until(|| word.value() != seen).await;
        }
    }

    /// As [`Commit::wait`], for something that takes other threads a moment only.
    pub(super) async fn wait_briefly(&self, io: &Io, word: &WaitWord, seen: u32) {
        if io.kind() == Kind::Inline && !cfg!(feature = "shuttle") {
            for _ in 0..LOOKS {
                if word.value() != seen {
                    return;
                }
                thread::yield_now();
            }
        }
        self.wait(io, word, seen).await;
    }

    /// The leader's short wait for callers who are about to come: as many as the last group had.
    pub(super) async fn gather(&self, io: &Io) {
        use crate::base::sync::atomic::Ordering::Relaxed;
        let expected = self.last_members.load(Relaxed);
        if expected <= 1 {
            return;
        }
        let there = || self.arrived.load(Relaxed) >= expected;
        if io.kind() != Kind::Inline {
            if !there() {
                io.sleep_us(GATHER_US).await;
            }
            return;
        }
        if cfg!(feature = "shuttle") {
            // No clock there: schedules are explored, not times.
            thread::yield_now();
            return;
        }
        let deadline = io.now_us() + GATHER_US;
        while !there() && io.now_us() < deadline {
            thread::yield_now();
        }
    }
}
