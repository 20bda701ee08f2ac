//! A simulated machine, as tests hold it: make drivers on it, plan its faults, crash it, look at what is left.
//!
//! ```
//! use iouring_engine::ring::sim::{World, crash};
//!
//! let world = World::seeded(7);
//! let io = world.io();
//! let dir = io.open_dir("/store".as_ref(), true).unwrap();
//! world.crash_at(20);
//! // … a workload over `io`; from the 20th completion on every call fails …
//! let after = world.power_loss(&mut crash::by_seed(7));
//! let survivor = after.io();
//! # let _ = (dir, survivor);
//! ```
//!
//! A world is made of copies that share: [`World::power_loss`], [`World::kill`] and [`World::fork`] cost a few
//! microseconds, so that one run can be crashed in every way it can crash.

use std::fmt;

use super::Sim;
use super::disk::Disk;
use super::fault::{Class, Fault};
use super::state::{Ring, State};
use crate::base::sync::{Arc, Mutex, MutexGuard};
use crate::base::{Error, Result};
use crate::ring::driver::{Driver, Wait};
use crate::ring::io::Io;

/// How a machine behaves.
#[derive(Debug, Clone)]
pub struct Options {
    /// One seed is one history.
    pub seed: u64,
    /// The queue length of its drivers.
    pub entries: usize,
    /// How many transfers of 1024 are short.
    pub short_per_1024: u32,
    /// How many transfers, and waits, of 1024 end with EINTR or EAGAIN.
    pub interrupt_per_1024: u32,
    /// What direct I/O asks of address, length and position.
    pub direct_align: usize,
}

impl Options {
    /// Whole transfers, never interrupted; times and order are still random.
    pub fn calm(seed: u64) -> Self {
        Options { seed, entries: 64, short_per_1024: 0, interrupt_per_1024: 0, direct_align: 512 }
    }

    /// Some transfers short, some interrupted.
    pub fn rough(seed: u64) -> Self {
        Options { short_per_1024: 32, interrupt_per_1024: 16, ..Options::calm(seed) }
    }
}

/// See the module. A clone is the same machine.
#[derive(Clone)]
pub struct World(Arc<Mutex<State>>);

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("World")
    }
}

impl World {
    /// A machine with an empty disk.
    pub fn new(options: Options) -> Self {
        World::from_state(State::new(options, Disk::default(), 1_000_000))
    }

    /// A machine with an empty disk and [`Options::calm`].
    pub fn calm(seed: u64) -> Self {
        World::new(Options::calm(seed))
    }

    /// A machine with an empty disk, of [`Options::rough`].
    pub fn seeded(seed: u64) -> Self {
        World::new(Options::rough(seed))
    }

    pub(super) fn from_state(state: State) -> Self {
        World(Arc::new(Mutex::new(state)))
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    pub(super) fn is(&self, other: &World) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// A driver on this machine; there may be several, for what would be several threads.
    pub fn driver(&self) -> Driver {
        let mut state = self.state();
        state.last_group += 1;
        let ring = Ring { group: state.last_group, ..Ring::default() };
        state.rings.push(ring);
        let index = state.rings.len() - 1;
        Driver::Sim(Sim::new(self.clone(), index))
    }

    /// A handle over a new driver.
    pub fn io(&self) -> Io {
        Io::new(self.driver())
    }

    /// A new machine with the same disk, page cache and unsynced changes included, and a seed of its own. Nothing
    /// is open or in flight on it.
    pub fn fork(&self, seed: u64) -> World {
        let state = self.state();
        let options = Options { seed, ..state.options.clone() };
        let mut fork = State::new(options, state.disk.clone(), state.now_us);
        fork.last_group = state.last_group;
        fork.sweep();
        World::from_state(fork)
    }

    /// Changes the rates of short and interrupted transfers.
    pub fn set_rates(&self, short_per_1024: u32, interrupt_per_1024: u32) {
        let mut state = self.state();
        state.options.short_per_1024 = short_per_1024;
        state.options.interrupt_per_1024 = interrupt_per_1024;
    }

    /// Crashes right after so many completions, counted from the machine's start. Changing file system calls
    /// (making, renaming, removing, setting a length) count as completions too.
    pub fn crash_at(&self, completion: u64) {
        let mut state = self.state();
        state.crash_at = Some(completion);
        if state.completions >= completion {
            state.crash();
        }
    }

    /// Crashes now.
    pub fn crash(&self) {
        self.state().crash();
    }

    /// Whether it has crashed.
    pub fn crashed(&self) -> bool {
        self.state().crashed()
    }

    /// How many completions there were, see [`World::crash_at`].
    pub fn completions(&self) -> u64 {
        self.state().completions
    }

    /// Plans a fault; it counts from now on.
    pub fn add_fault(&self, fault: Fault) {
        self.state().plan.add(fault);
    }

    /// Takes all planned faults out.
    pub fn clear_faults(&self) {
        self.state().plan.clear();
    }

    /// How many operations and calls of these classes there were.
    pub fn count(&self, class: Class) -> u64 {
        self.state().plan.count(class)
    }

    /// How many operations went wrong by plan.
    pub fn faults_fired(&self) -> u64 {
        self.state().plan.fired()
    }

    /// Limits the disk to so many bytes of file pages; `None`: no limit. More lets writes succeed again.
    pub fn set_space(&self, bytes: Option<u64>) {
        self.state().disk.space = bytes;
    }

    /// Bytes of pages in use.
    pub fn used_space(&self) -> u64 {
        self.state().disk.used()
    }

    /// The virtual clock.
    pub fn now_us(&self) -> u64 {
        self.state().now_us
    }

    /// Lets time pass, and happen what is due.
    pub fn pass_us(&self, us: u64) {
        let mut state = self.state();
        let until = state.now_us.saturating_add(us);
        while !state.crashed() && state.next_time().is_some_and(|time| time <= until) {
            state.step();
        }
        state.now_us = until;
    }

    /// Runs several handles of this machine, each what would be a thread, in an order that the seed chooses, until
    /// `done` holds. What each does must be tasks of its own ([`Io::spawn`]).
    ///
    /// # Errors
    /// [`Error::Internal`] when nothing happens any more and `done` doesn't hold; the machine's crash.
    pub fn drive(&self, handles: &[Io], mut done: impl FnMut() -> bool) -> Result<()> {
        let mut idle = 0;
        while !done() {
            let (pick, before) = {
                let mut state = self.state();
                (state.random.below(handles.len() as u64) as usize, state.history)
            };
            let Some(io) = handles.get(pick) else {
                return Err(Error::invalid("nothing to drive"));
            };
            io.turn(Wait::No)?;
            let state = self.state();
            idle = if state.history == before && state.next_time().is_none() { idle + 1 } else { 0 };
            // Every handle has had many turns: letters and conditions would have moved something.
            if idle > 64 * handles.len() {
                let text = "simulated threads wait for something that nobody will do";
                return Err(Error::Internal(text.into()));
            }
        }
        Ok(())
    }

    /// One number for everything that happened: equal for equal seeds and calls.
    pub fn history(&self) -> u64 {
        self.state().history
    }

    /// How many operations were under way when their driver was dropped: memory freed too early, unless the machine
    /// had crashed before.
    pub fn abandoned(&self) -> u64 {
        self.state().abandoned
    }

    /// How many files are open.
    pub fn open_files(&self) -> usize {
        self.state().handles.len()
    }
}
