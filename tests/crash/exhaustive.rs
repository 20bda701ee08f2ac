//! All workloads of up to three operations, a crash at each completion, and of the sectors that are pending there
//! every subset (of the last ten, when there are more), together with every prefix of the pending names.
//!
//! A crash inside a workload's first operations is the same as that of the shorter workload, so each workload is
//! crashed only from where its last operation begins. States that are equal byte for byte are checked once.

use std::path::Path;

use iouring_engine::base::checksum::Checksum;
use iouring_engine::base::map::Set;
use iouring_engine::engine::Level;
use iouring_engine::ring::sim::World;
use iouring_engine::ring::sim::crash::{self, Kind};

use super::history::{History, Loss, State};
use super::machine::{Action, PATH, Setup, recover, run};

/// The operations that workloads are made of.
fn alphabet() -> Vec<Action> {
    let batch = vec![(b'a', Some(8)), (b'b', Some(8)), (b'c', None)];
    vec![
        Action::Put(b'a', 8),
        Action::Delete(b'a'),
        Action::Batch(batch, Level::Durable),
        Action::BatchPut(b'b', 8),
        Action::Flush,
        Action::Reopen,
    ]
}

/// All workloads of one to three operations.
fn workloads() -> Vec<Vec<Action>> {
    let alphabet = alphabet();
    let mut all: Vec<Vec<Action>> = vec![Vec::new()];
    let mut last = 0;
    for _ in 0..3 {
        let end = all.len();
        for shorter in last..end {
            for action in &alphabet {
                let longer = all[shorter].iter().chain([action]).cloned().collect();
                all.push(longer);
            }
        }
        last = end;
    }
    all.remove(0);
    all
}

/// How many completions there are without a crash when a workload's last operation begins, and at its end, the final
/// close included.
fn completions(workload: &[Action]) -> (u64, u64) {
    let world = World::calm(SEED);
    let ran = run(&world, Setup::SMALL, &[workload.to_vec()], State::new());
    let ran = ran.unwrap_or_else(|e| panic!("{workload:?}: {e}"));
    (ran.last_began, world.completions())
}

const SEED: u64 = 20;

/// One number for what is on a disk after a power loss.
fn digest(world: &World) -> (u32, u64) {
    let dir = Path::new(PATH);
    let mut sum = Checksum::new();
    let mut len = 0;
    for name in world.names(dir) {
        let bytes = world.read_durable(dir, &name).unwrap_or_default();
        sum = sum.add(name.as_bytes()).add(&bytes);
        len = len * 31 + bytes.len() as u64;
    }
    (sum.value(), len)
}

/// What was checked.
#[derive(Debug, Default, Clone, Copy)]
pub struct Tally {
    pub crashes: u64,
    pub states: u64,
}

/// Crashes a workload at one completion in every way; says what is wrong with the first bad one.
fn crash_everywhere(workload: &[Action], at: u64, tally: &mut Tally) -> Result<(), String> {
    let world = World::calm(SEED);
    world.crash_at(at);
    let ran = run(&world, Setup::SMALL, &[workload.to_vec()], State::new())?;
    world.crash();
    tally.crashes += 1;
    let pending = world.pending();
    let names = pending.iter().filter(|p| p.kind == Kind::Name).count();
    let sectors = pending.len() - names;
    let mut seen = Set::default();
    for names in 0..=names {
        for mask in crash::masks(sectors) {
            let after = world.power_loss(&mut crash::with_names(names, crash::by_mask(mask)));
            if seen.insert(digest(&after)) {
                tally.states += 1;
                recovers(&after, &ran.history, Loss::Power, u64::from(mask % 8 != 0))
                    .map_err(|e| format!("power loss, mask {mask:#b} of {sectors}, {names} names: {e}"))?;
            }
        }
    }
    tally.states += 1;
    recovers(&world.kill(), &ran.history, Loss::Kill, 0).map_err(|e| format!("kill: {e}"))
}

/// Recovery gives a state that may follow; and, with `again` 0, the same one after one more power loss, since what
/// has been read must not vanish.
fn recovers(after: &World, history: &History, loss: Loss, again: u64) -> Result<(), String> {
    let found = recover(after, Setup::SMALL, 1, false)?;
    history.check(&found, loss)?;
    if again == 0 {
        let once_more = after.power_loss(&mut crash::nothing());
        let second = recover(&once_more, Setup::SMALL, 1, true)?;
        if second != found {
            return Err(format!(
                "what recovery showed was gone after another power loss: {found:?}, {second:?}"
            ));
        }
    }
    Ok(())
}

/// Runs all workloads whose index is `part` modulo `parts`; the first violation ends it.
pub fn sweep(part: usize, parts: usize, longest: usize) -> Result<Tally, String> {
    let mut tally = Tally::default();
    for (index, workload) in workloads().iter().enumerate() {
        if index % parts != part || workload.len() > longest {
            continue;
        }
        let (began, ended) = completions(workload);
        let from = if workload.len() == 1 { 0 } else { began };
        for at in from..=ended {
            crash_everywhere(workload, at, &mut tally)
                .map_err(|e| format!("workload {workload:?}, crash at completion {at}: {e}"))?;
        }
    }
    Ok(tally)
}
