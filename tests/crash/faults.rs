//! The n-th operation fails, for every n, once and for ever, in every way: each outcome is one that durability allows.
//!
//! Whatever fails: an answer is success, a clean refusal, or "unknown", after which nothing succeeds any more; what was
//! acknowledged is there after every crash; what was refused never is.

use iouring_engine::engine::Level;
use iouring_engine::ring::sim::fault::{Class, Effect, Fault};
use iouring_engine::ring::sim::{World, crash};

use super::history::{Loss, State};
use super::machine::{Action, Ran, Setup, recover, run};

pub const SEED: u64 = 77;

/// The ways of failing.
const EFFECTS: [Effect; 7] = [
    Effect::Errno(libc::EIO),
    Effect::Errno(libc::ENOSPC),
    Effect::Errno(libc::EINTR),
    Effect::Errno(libc::EAGAIN),
    Effect::Errno(libc::ECANCELED),
    Effect::ShortByOne,
    Effect::ShortByHalf,
];

pub fn script() -> Vec<Action> {
    let both = |level| Action::Batch(vec![(b'a', Some(40)), (b'b', None), (b'c', Some(5000))], level);
    vec![
        Action::Put(b'a', 8),
        both(Level::Durable),
        Action::BatchPut(b'b', 100),
        Action::Delete(b'a'),
        both(Level::Buffered),
        Action::Flush,
        Action::Put(b'b', 9000),
        Action::Put(b'c', 9000),
        Action::Reopen,
        Action::BatchPut(b'c', 8),
        Action::Put(b'a', 20_000),
        Action::Put(b'b', 8),
    ]
}

fn without_reopen() -> Vec<Action> {
    script().into_iter().filter(|action| *action != Action::Reopen).collect()
}

/// One run under one fault, and every crash after it; what was wrong.
fn outcome(setup: Setup, fault: &Fault) -> Result<Ran, String> {
    let world = World::calm(SEED);
    world.add_fault(fault.clone());
    let ran = run(&world, setup, &[without_reopen()], State::new())?;
    if world.faults_fired() == 0 {
        return Err("the fault never came about".into());
    }
    world.clear_faults();
    for (name, after, loss) in [
        ("nothing survives", world.power_loss(&mut crash::nothing()), Loss::Power),
        ("everything survives", world.power_loss(&mut crash::everything()), Loss::Power),
        ("some survives", world.power_loss(&mut crash::by_seed(fault.nth)), Loss::Power),
        ("killed", world.kill(), Loss::Kill),
    ] {
        let found = recover(&after, setup, 1, true).map_err(|e| format!("{name}: {e}"))?;
        ran.history.check(&found, loss).map_err(|e| format!("{name}: {e}"))?;
    }
    Ok(ran)
}

/// How many operations of a class the workload has without a fault.
pub fn count(setup: Setup, class: Class) -> u64 {
    let world = World::calm(SEED);
    let ran = run(&world, setup, &[without_reopen()], State::new());
    assert!(
        ran.is_ok_and(|ran| ran.opening.is_none() && ran.closing.is_none()),
        "the workload runs without a fault"
    );
    world.count(class)
}

/// What must hold beyond safety: what may pass is got over.
fn got_over(class: Class, fault: &Fault, ran: &Ran) -> Result<(), String> {
    let harmless = match fault.effect {
        Effect::ShortByOne | Effect::ShortByHalf => true,
        Effect::Errno(libc::EINTR | libc::EAGAIN) => class == Class::READ || class == Class::WRITE,
        Effect::Errno(libc::ECANCELED) => class == Class::SYNC,
        Effect::Errno(_) => false,
    };
    // A segment that can't be prepared is given up, and the opening with it; nothing depends on it yet.
    let opening = ran.opening.is_some() && class != Class::SYNC;
    let failed = opening || ran.closing.is_some() || ran.history.broken();
    if !fault.for_ever && harmless && failed {
        return Err(format!("a passing fault was not got over: {:?}, {:?}", ran.opening, ran.closing));
    }
    if !fault.for_ever
        && fault.effect == Effect::Errno(libc::ENOSPC)
        && class == Class::WRITE
        && ran.history.broken()
    {
        return Err("a full disk is refused cleanly, it poisons nothing".into());
    }
    Ok(())
}

/// All faults of one class; the first outcome that mustn't be.
pub fn sweep(setup: Setup, class: Class) -> Result<u64, String> {
    let total = count(setup, class);
    let mut tried = 0;
    for effect in EFFECTS {
        if class != Class::READ && class != Class::WRITE && !matches!(effect, Effect::Errno(_)) {
            continue;
        }
        for nth in 1..=total {
            for fault in [Fault::once(class, nth, effect), Fault::for_ever(class, nth, effect)] {
                let judged = outcome(setup, &fault).and_then(|ran| got_over(class, &fault, &ran));
                judged.map_err(|e| format!("{setup:?}, {fault:?}: {e}"))?;
                tried += 1;
            }
        }
    }
    Ok(tried)
}
