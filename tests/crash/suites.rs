//! The suites over the exhaustive and the random crashes.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::exhaustive::{Tally, sweep as exhaust};
use super::random::history;
use super::{logs, machine};

/// How many seeds the suite runs.
const SEEDS: u64 = 20_000;
/// How many of the log alone.
const LOG_SEEDS: u64 = 2000;

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

#[test]
fn a_released_log_survives_random_crashes() {
    sweep(0, LOG_SEEDS, &logs::history).unwrap_or_else(|violation| panic!("{violation}"));
}

#[test]
fn a_dropped_record_never_comes_back() {
    assert_eq!(logs::a_dropped_record_comes_back(), Ok(false));
}

#[test]
fn half_a_batch_never_counts() {
    assert_eq!(logs::half_a_batch_counts(), Ok(false));
}

#[test]
fn a_dead_process_never_writes_under_a_new_owner() {
    for seed in 0..300 {
        assert_eq!(machine::a_dead_write_lands_late(seed), Ok(false), "seed {seed}");
    }
}

#[test]
fn a_ring_that_is_dropped_in_mid_work_frees_nothing_in_flight() {
    for completions in 0..40 {
        let world = iouring_engine::ring::sim::World::calm(completions);
        assert_eq!(machine::drop_in_mid_work(&world, completions), 0, "after {completions} completions");
    }
}

/// Runs the seeds of a range on all processors; the first violation, with its seed.
fn sweep(from: u64, count: u64, history: &(dyn Fn(u64) -> Result<(), String> + Sync)) -> Result<(), String> {
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
            .try_for_each(|worker| worker.join().unwrap_or_else(|p| std::panic::resume_unwind(p)))
    })
}

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

#[test]
fn random_schedules_survive_random_crashes() {
    let swept = match from_environment("IOE_SEED") {
        Some(seed) => sweep(seed, 1, &history),
        None => sweep(0, from_environment("IOE_SEEDS").unwrap_or(SEEDS), &history),
    };
    swept.unwrap_or_else(|violation| panic!("{violation}"));
}

#[test]
fn seeds_that_once_failed_survive() {
    for seed in [3454, 8760, 94_060] {
        sweep(seed, 1, &history).unwrap_or_else(|violation| panic!("{violation}"));
    }
}
