//! Seeded schedules: up to three clients and the keeper, in random order, on a machine with short and interrupted
//! transfers; crashed at a random completion by power loss or kill, recovered, gone on with, and crashed again. In a
//! fifth of them recovery itself crashes.
//!
//! `IOE_SEED=n cargo test --test crash random` runs one seed alone; `IOE_SEEDS=n` runs so many.

use iouring_engine::engine::Level;
use iouring_engine::ring::sim::random::Random;
use iouring_engine::ring::sim::{World, crash};
use iouring_engine::wal::sync::Wish;

use super::history::{Loss, State};
use super::machine::{Action, NAMES, Setup, recover, run};

/// The most clients there are; each finds its keys again in a later life.
const CLIENTS: usize = 3;

fn len(random: &mut Random) -> usize {
    match random.below(64) {
        0..=41 => random.below(64) as usize,
        42..=55 => random.below(5000) as usize,
        56..=60 => 12_000 + random.below(9000) as usize,
        61..=62 => 60_000 + random.below(1000) as usize,
        // More than one frame holds.
        _ => 262_000 + random.below(400_000) as usize,
    }
}

fn action(random: &mut Random, alone: bool) -> Action {
    let name = NAMES[random.below(NAMES.len() as u64) as usize];
    match random.below(if alone { 24 } else { 23 }) {
        0..=7 => Action::Put(name, len(random)),
        8..=11 => Action::Delete(name),
        12..=15 => {
            let entry = |random: &mut Random, name| (name, random.chance(700).then(|| len(random)));
            let entries = NAMES.iter().map(|name| entry(random, *name)).collect();
            let level = [Level::Durable, Level::Buffered, Level::Volatile][random.below(3) as usize];
            Action::Batch(entries, level)
        }
        16..=19 => Action::BatchPut(name, len(random)),
        20..=21 => Action::Flush,
        22 => Action::Pause(1 << random.below(16)),
        _ => Action::Reopen,
    }
}

fn scripts(random: &mut Random) -> Vec<Vec<Action>> {
    let clients = 1 + random.below(CLIENTS as u64) as usize;
    let script = |random: &mut Random| {
        let len = 1 + random.below(8);
        (0..len).map(|_| action(random, clients == 1)).collect()
    };
    (0..CLIENTS).map(|client| if client < clients { script(random) } else { Vec::new() }).collect()
}

fn setup(random: &mut Random) -> Setup {
    Setup {
        sync: [Wish::Syscall, Wish::Linked, Wish::Dsync, Wish::Auto][random.below(4) as usize],
        segment_bytes: 4096 * (5 + random.below(12)),
        checkpoint_every: [0, 1, 8192, 4 << 20][random.below(4) as usize],
        keeper: random.chance(512),
    }
}

fn next_world(world: &World, loss: Loss, random: &mut Random) -> World {
    match loss {
        Loss::Power => world.power_loss(&mut crash::by_seed(random.number())),
        Loss::Kill => world.kill(),
    }
}

fn loss(random: &mut Random) -> Loss {
    if random.chance(640) { Loss::Power } else { Loss::Kill }
}

/// One seed's history; what was wrong with it.
pub fn history(seed: u64) -> Result<(), String> {
    let mut random = Random::new(seed);
    let mut world = if random.chance(512) { World::calm(seed) } else { World::seeded(seed) };
    let mut base = State::new();
    let crash_in_recovery = seed.is_multiple_of(5);
    for life in 0..1 + random.below(3) {
        let setup = setup(&mut random);
        let scripts = scripts(&mut random);
        if random.chance(960) {
            // Counted from the machine's start, which is its first completion.
            let scale = 2 + random.below(7);
            world.crash_at(1 + random.below(1 << scale));
        }
        let tell = |e: String| format!("life {life}, {setup:?}, scripts {scripts:?}: {e}");
        let ran = run(&world, setup, &scripts, base.clone()).map_err(tell)?;
        if let Some(error) = ran.opening.or(ran.closing) {
            return Err(tell(format!("opening or closing failed: {error}")));
        }
        let mut loss = loss(&mut random);
        world = next_world(&world, loss, &mut random);
        while crash_in_recovery && random.chance(768) {
            world.crash_at(1 + random.below(24));
            let recovered = recover(&world, setup, CLIENTS, false);
            if !world.crashed() {
                let found = recovered.map_err(tell)?;
                ran.history.check(&found, loss).map_err(tell)?;
            }
            let next = self::loss(&mut random);
            // What a kill left in the page cache may be gone after a later power loss.
            loss = if next == Loss::Power { Loss::Power } else { loss };
            world = next_world(&world, next, &mut random);
        }
        let found = recover(&world, setup, CLIENTS, random.chance(512)).map_err(tell)?;
        ran.history.check(&found, loss).map_err(tell)?;
        // What was read must be there from now on, whatever happens.
        world = next_world(&world, self::loss(&mut random), &mut random);
        let again = recover(&world, setup, CLIENTS, true).map_err(tell)?;
        if again != found {
            return Err(tell(format!("recovery showed {found:?}, and after another crash {again:?}")));
        }
        world = world.fork(random.number());
        base = again;
    }
    Ok(())
}
