//! The store in the simulator: crashed everywhere, refused everything, and with every planted defect.
//!
//! | file | its one purpose |
//! | --- | --- |
//! | `history` | what was asked and answered, and which states may follow from it |
//! | `machine` | runs workloads on a simulated machine, and recovers what a crash left |
//! | `exhaustive` | all workloads of up to three operations, every crash, every subset of sectors |
//! | `random` | seeded schedules of several clients, crashed again and again |
//! | `logs` | the log alone, as it is released and its segments are used again |
//! | `faults` | the n-th operation fails |
//! | `suites`, `fault_suites` | the tests over them |
//!
//! tests/defects.rs plants defects and demands that these suites catch them.
//!
//! A failure prints the seed (or the workload and the crash) that brings it about again.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]
#![allow(clippy::disallowed_methods, reason = "the test itself counts its threads and reads its environment")]

mod exhaustive;
mod fault_suites;
mod faults;
mod history;
mod logs;
mod machine;
mod random;
mod suites;
