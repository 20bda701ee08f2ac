//! Runs workloads on a simulated machine, and recovers what a crash left.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::path::Path;
use std::rc::Rc;

use iouring_engine::base::{Error, Result};
use iouring_engine::engine::batch::{Edit, WriteBatch};
use iouring_engine::engine::core::Core;
use iouring_engine::engine::{Level, Options, keeper};
use iouring_engine::ring::Io;
use iouring_engine::ring::driver::Wait;
use iouring_engine::ring::sim::World;
use iouring_engine::wal::sync::Wish;

use super::history::{Edits, History, State, key};

/// Where the store is.
pub const PATH: &str = "/store";
/// Names of the keys that each client has.
pub const NAMES: [u8; 3] = *b"abc";

/// One thing that a client does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Puts a value of so many bytes at the default level.
    Put(u8, usize),
    /// Deletes.
    Delete(u8),
    /// Writes a batch: names with the length of their value, none for a delete.
    Batch(Vec<(u8, Option<usize>)>, Level),
    /// Puts with the next group.
    BatchPut(u8, usize),
    /// Flushes.
    Flush,
    /// Closes and opens again.
    Reopen,
    /// Waits so many microseconds.
    Pause(u64),
}

/// How a machine's store is set up.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    /// How writes are made durable.
    pub sync: Wish,
    /// Length of the log's segments.
    pub segment_bytes: u64,
    /// A checkpoint of the log after so many bytes; 1: after every group, 0: never.
    pub checkpoint_every: u64,
    /// Whether a keeper runs beside the clients.
    pub keeper: bool,
}

impl Setup {
    /// The smallest segments, no keeper.
    pub const SMALL: Setup =
        Setup { sync: Wish::Syscall, segment_bytes: 5 * 4096, checkpoint_every: 1, keeper: false };

    fn options(&self) -> Options {
        let Setup { sync, segment_bytes, checkpoint_every, .. } = *self;
        Options { sync, segment_bytes, checkpoint_every, ..Options::default() }
    }
}

/// What clients share.
#[derive(Clone)]
struct Shared {
    io: Io,
    world: World,
    setup: Setup,
    history: Rc<RefCell<History>>,
    violation: Rc<RefCell<Option<String>>>,
    last_began: Rc<Cell<u64>>,
    stop: Rc<Cell<bool>>,
    /// The keeper is in the midst of a step.
    keeping: Rc<Cell<bool>>,
}

/// A workload that has run, or crashed.
pub struct Ran {
    /// How many completions there had been when its last action began.
    pub last_began: u64,
    /// What was asked and answered.
    pub history: History,
    /// The error of the opening, if it failed (and not by a crash).
    pub opening: Option<Error>,
    /// The error of the closing, if it failed (and not by a crash).
    pub closing: Option<Error>,
}

/// Opens the store.
pub async fn open(io: &Io, setup: &Setup) -> Result<Rc<Core>> {
    Core::open(io, Path::new(PATH), setup.options()).await.map(Rc::new)
}

/// Closes it.
pub async fn close(io: &Io, core: &Rc<Core>) -> Result<()> {
    core.begin_close();
    core.finish_close(io).await
}

/// All keys of so many clients.
pub fn read_all(core: &Core, clients: usize) -> std::result::Result<State, String> {
    let mut state = State::new();
    for client in 0..clients {
        for name in NAMES {
            let key = key(client, name);
            match core.get_with(&key, <[u8]>::to_vec) {
                Ok(value) => drop(state.insert(key, value)),
                Err(Error::NotFound) => {}
                Err(e) => return Err(format!("reading {key:?}: {e}")),
            }
        }
    }
    Ok(state)
}

/// Runs one script per client on one store, from opening to closing (unless a script ends in a crash). The answer is
/// a violation, if there was one.
pub fn run(
    world: &World,
    setup: Setup,
    scripts: &[Vec<Action>],
    base: State,
) -> std::result::Result<Ran, String> {
    let io = world.io();
    let shared = Shared {
        io: io.clone(),
        world: world.clone(),
        setup,
        history: Rc::new(RefCell::new(History::new(scripts.len(), base))),
        violation: Rc::default(),
        last_began: Rc::default(),
        stop: Rc::default(),
        keeping: Rc::default(),
    };
    let driven = io.block_on(drive(shared.clone(), scripts.to_vec()));
    io.abandon_tasks();
    drop(io);
    if let Some(violation) = shared.violation.borrow_mut().take() {
        return Err(violation);
    }
    let history = shared.history.borrow().clone();
    let last_began = shared.last_began.get();
    match driven {
        // The machine has crashed: whatever was answered after that is nobody's.
        _ if world.crashed() => Ok(Ran { last_began, history, opening: None, closing: None }),
        Ok((opening, closing)) => Ok(Ran { last_began, history, opening, closing }),
        Err(e) => Err(format!("the driver failed: {e}\n{}", history.show_all())),
    }
}

async fn drive(shared: Shared, scripts: Vec<Vec<Action>>) -> (Option<Error>, Option<Error>) {
    let core = match open(&shared.io, &shared.setup).await {
        Ok(core) => core,
        Err(e) => return (Some(e), None),
    };
    let store = Rc::new(RefCell::new(core));
    let clients: Vec<_> = scripts
        .into_iter()
        .enumerate()
        .map(|(client, script)| shared.io.spawn(be_client(shared.clone(), store.clone(), client, script)))
        .collect();
    let keeper = shared.setup.keeper.then(|| shared.io.spawn(be_keeper(shared.clone(), store.clone())));
    for client in clients {
        client.wait().await;
    }
    shared.stop.set(true);
    if let Some(keeper) = keeper {
        keeper.wait().await;
    }
    let core = store.borrow().clone();
    let covered = shared.history.borrow().flush_begins();
    match close(&shared.io, &core).await {
        Ok(()) => {
            shared.history.borrow_mut().flush_ends(&covered);
            (None, None)
        }
        Err(e) => (None, Some(e)),
    }
}

async fn be_keeper(shared: Shared, store: Rc<RefCell<Rc<Core>>>) {
    while !shared.stop.get() {
        let core = store.borrow().clone();
        if !core.is_closed() {
            shared.keeping.set(true);
            keeper::step(&core, &shared.io).await;
            shared.keeping.set(false);
        }
        shared.io.sleep_us(100 + shared.io.random() % 4000).await;
    }
}

async fn be_client(shared: Shared, store: Rc<RefCell<Rc<Core>>>, client: usize, script: Vec<Action>) {
    for (index, action) in script.iter().enumerate() {
        shared.last_began.set(shared.world.completions());
        let acted = act(&shared, &store, client, index, action).await;
        if shared.world.crashed() {
            return;
        }
        let seen = acted.and_then(|()| look(&shared, &store.borrow(), client));
        if let Err(violation) = seen {
            shared.violation.borrow_mut().get_or_insert(format!("client {client}, {action:?}: {violation}"));
            return;
        }
    }
}

/// What a client reads is what it wrote.
fn look(shared: &Shared, core: &Core, client: usize) -> std::result::Result<(), String> {
    let Some(expected) = shared.history.borrow().visible(client) else { return Ok(()) };
    for name in NAMES {
        let key = key(client, name);
        let got = match core.get_with(&key, <[u8]>::to_vec) {
            Ok(value) => Some(value),
            Err(Error::NotFound) => None,
            Err(Error::Closed) => return Ok(()),
            Err(e) => return Err(format!("reading {}: {e}", name as char)),
        };
        if got.as_ref() != expected.get(&key) {
            let show =
                |v: Option<&Vec<u8>>| v.map(|v| String::from_utf8_lossy(&v[..v.len().min(16)]).into_owned());
            return Err(format!(
                "{} reads as {:?}, not as {:?}",
                name as char,
                show(got.as_ref()),
                show(expected.get(&key))
            ));
        }
    }
    Ok(())
}

/// A value that tells who wrote it and when, of so many bytes.
fn value(client: usize, index: usize, name: u8, epoch: u64, len: usize) -> Vec<u8> {
    let mut value = format!("{client}.{index}{}@{epoch} ", name as char).into_bytes();
    value.resize(len.max(value.len()), b'.');
    value
}

async fn act(
    shared: &Shared,
    store: &Rc<RefCell<Rc<Core>>>,
    client: usize,
    index: usize,
    action: &Action,
) -> std::result::Result<(), String> {
    let epoch = shared.world.now_us();
    let make = |name: u8, len: usize| value(client, index, name, epoch, len);
    let core = store.borrow().clone();
    match action {
        Action::Put(name, len) => {
            let edits = vec![(key(client, *name), Some(make(*name, *len)))];
            write(shared, &core, client, edits, Level::Durable, false).await
        }
        Action::Delete(name) => {
            let edits = vec![(key(client, *name), None)];
            write(shared, &core, client, edits, Level::Durable, false).await
        }
        Action::BatchPut(name, len) => {
            let edits = vec![(key(client, *name), Some(make(*name, *len)))];
            write(shared, &core, client, edits, Level::Volatile, false).await
        }
        Action::Batch(entries, level) => {
            let edit =
                |(name, len): &(u8, Option<usize>)| (key(client, *name), len.map(|len| make(*name, len)));
            write(shared, &core, client, entries.iter().map(edit).collect(), *level, true).await
        }
        Action::Flush => {
            let covered = shared.history.borrow().flush_begins();
            let flushed = core.flush(&shared.io).await;
            if flushed.is_ok() {
                shared.history.borrow_mut().flush_ends(&covered);
            }
            Ok(())
        }
        Action::Reopen => reopen(shared, store, core).await,
        Action::Pause(us) => {
            shared.io.sleep_us(*us).await;
            Ok(())
        }
    }
}

async fn write(
    shared: &Shared,
    core: &Rc<Core>,
    client: usize,
    edits: Edits,
    level: Level,
    batch: bool,
) -> std::result::Result<(), String> {
    let index = shared.history.borrow_mut().begin(client, edits.clone(), level);
    let answer = if batch {
        let mut batch = WriteBatch::new();
        for (key, value) in &edits {
            let added = match value {
                Some(value) => batch.put(key, value),
                None => batch.delete(key),
            };
            added.map_err(|e| e.to_string())?;
        }
        core.write(&shared.io, &batch, level).await
    } else {
        let (key, value) = &edits[0];
        let edit = match value {
            Some(value) => Edit::Put { key, value },
            None => Edit::Delete { key },
        };
        core.apply(&shared.io, edit, level).await
    };
    if shared.world.crashed() {
        return Ok(());
    }
    shared.history.borrow_mut().end(client, index, &answer, core.commit().is_poisoned())
}

async fn reopen(
    shared: &Shared,
    store: &Rc<RefCell<Rc<Core>>>,
    core: Rc<Core>,
) -> std::result::Result<(), String> {
    let covered = shared.history.borrow().flush_begins();
    // Closing stops the keeper first.
    core.begin_close();
    shared.io.until(|| !shared.keeping.get()).await;
    let closed = close(&shared.io, &core).await;
    if closed.is_ok() {
        shared.history.borrow_mut().flush_ends(&covered);
    }
    drop(core);
    let opened = open(&shared.io, &shared.setup).await.map_err(|e| format!("reopening: {e}"))?;
    *store.borrow_mut() = opened;
    closed.map_err(|e| format!("closing: {e}"))
}

/// Opens the store of a machine that starts after a crash, reads all there is, and leaves it open or closes it.
pub fn recover(
    world: &World,
    setup: Setup,
    clients: usize,
    and_close: bool,
) -> std::result::Result<State, String> {
    let io = world.io();
    let recovered = io.block_on(async {
        let core = open(&io, &setup).await.map_err(|e| format!("recovery refused: {e}"))?;
        let state = read_all(&core, clients)?;
        if and_close {
            close(&io, &core).await.map_err(|e| format!("closing after recovery: {e}"))?;
        }
        Ok(state)
    });
    recovered.map_err(|e| format!("the driver failed in recovery: {e}"))?
}

/// Opens a store, begins a put, and drops everything after so many completions, without a crash. How many operations
/// were then under way in memory that is free.
pub fn drop_in_mid_work(world: &World, completions: u64) -> u64 {
    let io = world.io();
    {
        let mut work = std::pin::pin!(async {
            let core = open(&io, &Setup::SMALL).await?;
            core.apply(&io, Edit::Put { key: b"k", value: &[7; 3000] }, Level::Durable).await
        });
        let ended = io.block_on(std::future::poll_fn(|cx| {
            use std::task::Poll;
            match work.as_mut().poll(cx) {
                Poll::Pending if world.completions() < completions => Poll::Pending,
                _ => Poll::Ready(()),
            }
        }));
        assert!(ended.is_ok(), "nothing fails here");
        // What was asked for last starts.
        assert!(io.turn(Wait::No).is_ok(), "nothing fails here");
    }
    drop(io);
    world.abandoned()
}

/// Kills a process somewhere in a workload and opens its store anew. Whether a write of the dead process then changed
/// a file under the new owner.
pub fn a_dead_write_lands_late(seed: u64) -> std::result::Result<bool, String> {
    let world = World::calm(seed);
    world.crash_at(10 + seed % 30);
    // While one operation completes, another must be on its way: a group beside the keeper's spare.
    let setup = Setup { keeper: true, ..Setup::SMALL };
    let script =
        [Action::Put(b'a', 5000), Action::Pause(50), Action::Put(b'b', 9000), Action::Put(b'c', 100)];
    run(&world, setup, &[script.to_vec(), script.to_vec()], State::new())?;
    let after = world.kill();
    recover(&after, setup, 2, false)?;
    let files = || {
        let names = after.names(Path::new(PATH));
        names.into_iter().map(|name| after.read_raw(Path::new(PATH), &name)).collect::<Vec<_>>()
    };
    let before = files();
    after.pass_us(60_000_000);
    Ok(files() != before)
}
