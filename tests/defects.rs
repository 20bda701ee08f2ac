//! Every planted defect is caught by the crash and fault suites: a suite that finds nothing proves nothing.
#![cfg(feature = "defects")]
#![allow(clippy::disallowed_methods, reason = "the crash suites' own exemption")]

#[path = "crash/exhaustive.rs"]
mod exhaustive;
#[path = "crash/faults.rs"]
mod faults;
#[path = "crash/history.rs"]
mod history;
#[path = "crash/machine.rs"]
mod machine;
#[path = "crash/random.rs"]
mod random;

use iouring_engine::base::defect::{self, Defect};
use iouring_engine::ring::sim::fault::Class;

use machine::Setup;

/// What catches a defect, if anything does.
fn catch(defect: Defect) -> Option<String> {
    let planted = defect::plant(defect);
    let caught = (0..3000)
        .find_map(|seed| random::history(seed).err().map(|e| format!("random schedule {seed}: {e}")))
        .or_else(|| faults::sweep(Setup::SMALL, Class::WRITE).err())
        .or_else(|| faults::sweep(Setup::SMALL, Class::SYNC).err())
        .or_else(|| exhaustive::sweep(0, 1, 2).err());
    drop(planted);
    caught
}

#[test]
fn every_planted_defect_is_caught() {
    let mut missed = Vec::new();
    for defect in Defect::ALL {
        match std::panic::catch_unwind(|| catch(defect)) {
            Ok(Some(how)) => println!("{defect:?}: {}", how.lines().next().unwrap_or_default()),
            Ok(None) => missed.push(defect),
            Err(_) => println!("{defect:?}: an assertion"),
        }
    }
    assert!(missed.is_empty(), "not caught: {missed:?}");
}
