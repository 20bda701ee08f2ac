//! The suites over the exhaustive and the random crashes.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::exhaustive::{Tally, sweep as exhaust};
use super::random::history;

/// How many seeds the suite runs.
const SEEDS: u64 = 20_000;

#[test]
fn every_short_workload_survives_every_crash() {
    let parts = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    let tallies: Vec<Result<Tally, String>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..parts)
            .map(|_| scope.spawn(|| exhaust(next.fetch_add(1, Ordering::Relaxed), parts, 3)))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mut total = Tally::default();
    for tally in tallies {
        let tally = tally.unwrap_or_else(|violation| panic!("{violation}"));
        total.crashes += tally.crashes;
        total.states += tally.states;
    }
    println!("{total:?}");
    assert!(total.crashes > 1000 && total.states > total.crashes, "{total:?}: too little was tried");
}

/// Runs the seeds of a range on all processors; the first violation, with its seed.
fn sweep(from: u64, count: u64) -> Result<(), String> {
    let next = AtomicU64::new(from);
    let end = from + count;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let work = || loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= end {
            return Ok(());
        }
        if let Err(violation) = history(seed) {
            next.store(end, Ordering::Relaxed);
            return Err(format!("seed {seed}: {violation}"));
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or_else(|p| std::panic::resume_unwind(p)))
            .collect()
    })
}

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

#[test]
fn random_schedules_survive_random_crashes() {
    let swept = match from_environment("IOE_SEED") {
        Some(seed) => sweep(seed, 1),
        None => sweep(0, from_environment("IOE_SEEDS").unwrap_or(SEEDS)),
    };
    swept.unwrap_or_else(|violation| panic!("{violation}"));
}
