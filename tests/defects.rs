//! Every planted defect is caught by the crash and fault suites: a suite that finds nothing proves nothing.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]
#![cfg(feature = "defects")]
#![allow(clippy::disallowed_methods, reason = "the crash suites' own exemption")]

#[path = "crash/exhaustive.rs"]
mod exhaustive;
#[path = "crash/faults.rs"]
mod faults;
#[path = "crash/history.rs"]
mod history;
#[path = "crash/logs.rs"]
mod logs;
#[path = "crash/machine.rs"]
mod machine;
#[path = "crash/random.rs"]
mod random;

use std::sync::atomic::{AtomicUsize, Ordering};

use iouring_engine::base::defect::{self, Defect};
use iouring_engine::ring::sim::World;
use iouring_engine::ring::sim::fault::Class;

use machine::Setup;

/// How many random schedules are tried before the other suites.
const SEEDS: u64 = 600;

/// What catches a defect, if anything does.
fn catch(defect: Defect) -> Option<String> {
    let planted = defect::plant(defect);
    let caught = comes_back()
        .then(|| "a dropped record came back".to_owned())
        .or_else(|| half_counts().then(|| "half a batch counted".to_owned()))
        .or_else(|| lands_late().then(|| "a dead process wrote under a new owner".to_owned()))
        .or_else(|| freed().then(|| "memory was freed in flight".to_owned()))
        .or_else(|| {
            let violation =
                |seed| random::history(seed).err().map(|e| format!("random schedule {seed}: {e}"));
            (0..SEEDS).find_map(violation)
        })
        .or_else(|| (0..SEEDS).find_map(|seed| logs::history(seed).err().map(|e| format!("log {seed}: {e}"))))
        .or_else(|| faults::sweep(Setup::SMALL, Class::WRITE).err())
        .or_else(|| faults::sweep(Setup::SMALL, Class::SYNC).err())
        .or_else(|| exhaustive::sweep(0, 1, 2).err());
    drop(planted);
    caught
}

fn comes_back() -> bool {
    logs::a_dropped_record_comes_back() != Ok(false)
}

fn half_counts() -> bool {
    logs::half_a_batch_counts() != Ok(false)
}

fn lands_late() -> bool {
    (0..300).any(|seed| machine::a_dead_write_lands_late(seed) != Ok(false))
}

fn freed() -> bool {
    (0..40).any(|completions| machine::drop_in_mid_work(&World::calm(completions), completions) > 0)
}

#[test]
fn nothing_is_caught_where_nothing_is_planted() {
    for seed in 0..50 {
        random::history(seed)
            .and_then(|()| logs::history(seed))
            .unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    }
    assert!(!comes_back() && !half_counts() && !lands_late() && !freed());
    for class in [Class::WRITE, Class::SYNC] {
        faults::sweep(Setup::SMALL, class).unwrap_or_else(|e| panic!("{e}"));
    }
}

#[test]
fn every_planted_defect_is_caught() {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut missed = Vec::new();
        while let Some(defect) = Defect::ALL.get(next.fetch_add(1, Ordering::Relaxed)) {
            match std::panic::catch_unwind(|| catch(*defect)) {
                Ok(Some(how)) => println!("{defect:?}: {}", how.lines().next().unwrap_or_default()),
                Ok(None) => missed.push(*defect),
                Err(_) => println!("{defect:?}: an assertion"),
            }
        }
        missed
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let missed: Vec<Defect> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    assert!(missed.is_empty(), "not caught: {missed:?}");
}
