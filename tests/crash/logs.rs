//! The log under the store, released as it goes, so that segments are recycled and removed: which the store doesn't do
//! while it has no tables.
//!
//! Of each sequence the test keeps the payloads that may stand there: what was acknowledged, or what was under way at
//! the crash. Recovery hands on every acknowledged record that wasn't released, and nothing else than these.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;

use iouring_engine::base::Result;
use iouring_engine::engine::Level;
use iouring_engine::engine::commit::{self, Commit};
use iouring_engine::ring::Io;
use iouring_engine::ring::op::File;
use iouring_engine::ring::sim::World;
use iouring_engine::ring::sim::crash::{self, Kind};
use iouring_engine::ring::sim::random::Random;
use iouring_engine::wal::recover::{Mode, Recovered, recover};
use iouring_engine::wal::sync::Wish;
use iouring_engine::wal::writer::{self, Writer};

const SEGMENT: u64 = 6 * 4096;

/// What may be in the log.
#[derive(Debug, Default, Clone)]
struct Records {
    /// By sequence: the payloads that may stand there.
    may: BTreeMap<u64, Vec<Vec<u8>>>,
    acknowledged: u64,
    released: u64,
}

impl Records {
    /// Holds what recovery found against what may be; from then on that is what is there.
    fn settle(&mut self, found: &BTreeMap<u64, Vec<u8>>) -> std::result::Result<(), String> {
        for (sequence, payload) in found {
            if !self.may.get(sequence).is_some_and(|may| may.contains(payload)) {
                let text = String::from_utf8_lossy(&payload[..payload.len().min(24)]).into_owned();
                return Err(format!(
                    "sequence {sequence} is {text:?}, which was never written or was dropped before"
                ));
            }
        }
        for sequence in self.released + 1..=self.acknowledged {
            if !found.contains_key(&sequence) {
                return Err(format!(
                    "sequence {sequence} is gone: {} was acknowledged, {} released",
                    self.acknowledged, self.released
                ));
            }
        }
        let last = found.keys().next_back().copied().unwrap_or(0).max(self.acknowledged);
        self.may.retain(|sequence, _| *sequence <= last);
        for (sequence, payload) in found {
            self.may.insert(*sequence, vec![payload.clone()]);
        }
        self.acknowledged = last;
        Ok(())
    }
}

async fn recovered(io: &Io, mode: Mode) -> Result<(File, Recovered, BTreeMap<u64, Vec<u8>>)> {
    let dir = io.open_dir(Path::new("/log"), true)?;
    let mut found = BTreeMap::new();
    let recovered = recover(io, &dir, mode, &mut |record| {
        found.insert(record.sequence, record.payload.to_vec());
        Ok(())
    })
    .await?;
    Ok((dir, recovered, found))
}

fn commit(io: &Io, dir: &File, recovered: Recovered) -> Result<Commit> {
    let how = writer::Options {
        segment_bytes: SEGMENT,
        direct: false,
        sync: Wish::Syscall,
        may_block: true,
        checkpoint_every: 0,
        ring: None,
    };
    Ok(Commit::new(Writer::open(io, dir, recovered, how)?, commit::Options::default()))
}

const WRITE: Mode = Mode::Write { direct: false, segment_bytes: SEGMENT };

async fn live(
    io: &Io,
    world: &World,
    random: &RefCell<Random>,
    records: &RefCell<Records>,
) -> std::result::Result<(), String> {
    let draw = |end: u64| random.borrow_mut().below(end);
    let (dir, recovered, found) = recovered(io, WRITE).await.map_err(|e| format!("recovery refused: {e}"))?;
    records.borrow_mut().settle(&found)?;
    let commit = commit(io, &dir, recovered).map_err(|e| e.to_string())?;
    for _ in 0..draw(40) {
        let mut payload = format!("{} ", world.now_us()).into_bytes();
        payload.resize(payload.len() + draw(if draw(4) == 0 { 9000 } else { 300 }) as usize, b'.');
        let joined = commit.join(io, &[&payload], 1, Level::Durable).await.map_err(|e| e.to_string())?;
        let sequence = joined.first_sequence;
        records.borrow_mut().may.entry(sequence).or_default().push(payload);
        commit.finish(io, joined).await.map_err(|e| format!("writing {sequence}: {e}"))?;
        if world.crashed() {
            return Ok(());
        }
        records.borrow_mut().acknowledged = sequence;
        if draw(3) == 0 {
            let up_to = sequence.saturating_sub(draw(4));
            {
                let mut records = records.borrow_mut();
                records.released = records.released.max(up_to);
            }
            commit.release(io, up_to).await;
        }
        if draw(2) == 0 {
            commit.maintain(io).await.map_err(|e| format!("maintaining: {e}"))?;
        }
    }
    Ok(())
}

/// One seed's history; what was wrong with it.
pub fn history(seed: u64) -> std::result::Result<(), String> {
    let random = RefCell::new(Random::new(seed));
    let records = RefCell::new(Records::default());
    let mut world = World::seeded(seed);
    for life in 0..4 {
        world.crash_at(40 + random.borrow_mut().below(200));
        let io = world.io();
        let lived = io.block_on(live(&io, &world, &random, &records));
        io.abandon_tasks();
        drop(io);
        match lived {
            Ok(Err(violation)) if !world.crashed() => return Err(format!("life {life}: {violation}")),
            _ => {}
        }
        world = match random.borrow_mut().below(3) {
            0 => world.kill(),
            _ => world.power_loss(&mut crash::by_seed(seed ^ life)),
        };
    }
    let io = world.io();
    let last = io.block_on(recovered(&io, WRITE)).map_err(|e| e.to_string())?;
    let (_, _, found) = last.map_err(|e| format!("the last recovery refused: {e}"))?;
    records.borrow_mut().settle(&found).map_err(|e| format!("at the end: {e}"))
}

/// Two records go in one group, of which a power loss keeps only the second. Recovery drops both; the first is then
/// written once more, byte for byte: the second must not come back behind it.
pub fn a_dropped_record_comes_back() -> std::result::Result<bool, String> {
    // A frame of this payload fills a block.
    let first = vec![b'1'; 4096 - 64 - 4];
    let put = |world: &World, payloads: &[&[u8]]| {
        let io = world.io();
        let done = io.block_on(async {
            let (dir, recovered, found) = recovered(&io, WRITE).await?;
            let commit = commit(&io, &dir, recovered)?;
            for payload in payloads {
                let joined = commit.join(&io, &[payload], 1, Level::Volatile).await?;
                commit.finish(&io, joined).await?;
            }
            commit.flush(&io).await?;
            Result::Ok(found)
        });
        done.and_then(|done| done).map_err(|e| e.to_string())
    };
    let world = World::calm(5);
    put(&world, &[b"proven"])?;
    let torn = torn_group(&world, &first).ok_or("no crash left the group's second record alone")?;
    put(&torn, &[&first])?;
    let io = torn.io();
    let last = io.block_on(recovered(&io, WRITE)).map_err(|e| e.to_string())?;
    let (_, _, found) = last.map_err(|e| e.to_string())?;
    Ok(found.values().any(|payload| payload == b"second"))
}

/// The machine after a power loss that kept of a group of two only what is behind its first block.
fn torn_group(world: &World, first: &[u8]) -> Option<World> {
    for at in 1..60 {
        let world = world.fork(7);
        world.crash_at(at);
        let io = world.io();
        let _ = io.block_on(async {
            let (dir, recovered, _) = recovered(&io, WRITE).await?;
            let commit = commit(&io, &dir, recovered)?;
            for payload in [first, b"second"] {
                let joined = commit.join(&io, &[payload], 1, Level::Volatile).await?;
                commit.finish(&io, joined).await?;
            }
            commit.flush(&io).await
        });
        let sectors: Vec<_> = world.pending().into_iter().filter(|p| p.kind == Kind::Sector).collect();
        // The first record's block, and the sector of the second.
        if let [begin, .., end] = &sectors[..]
            && sectors.len() == 9
            && end.offset == begin.offset + 4096
        {
            return Some(world.power_loss(&mut |p| p.kind == Kind::Sector && p.offset == end.offset));
        }
    }
    None
}

/// A batch of several frames is cut by a power loss behind its first frame, wherever the crash is. Whether recovery
/// ever hands on a part of it.
pub fn half_a_batch_counts() -> std::result::Result<bool, String> {
    let payload: Vec<u8> = (0..400_000u32).map(|i| (i / 3) as u8).collect();
    for at in 1..80 {
        let world = World::calm(8);
        world.crash_at(at);
        let io = world.io();
        let _ = io.block_on(async {
            let (dir, recovered, _) = recovered(&io, WRITE).await?;
            let commit = commit(&io, &dir, recovered)?;
            let joined = commit.join(&io, &[&payload], 1, Level::Durable).await?;
            commit.finish(&io, joined).await
        });
        world.crash();
        let first_frame = 3 * 4096 + (256 << 10) + 4096;
        let after = world.power_loss(&mut |p| p.kind == Kind::Sector && p.offset < first_frame);
        let io = after.io();
        let last = io.block_on(recovered(&io, WRITE)).and_then(|last| last).map_err(|e| e.to_string())?;
        if last.2.values().any(|found| *found != payload) {
            return Ok(true);
        }
    }
    Ok(false)
}
