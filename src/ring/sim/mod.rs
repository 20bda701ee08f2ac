//! The simulator: a driver over a machine that exists in memory only, where time is a number, every order can
//! happen, and a crash leaves what a crash may leave. For tests; always compiled, never reachable from the C ABI.
//!
//! | file | its one purpose |
//! | --- | --- |
//! | [`world`] | the machine as a test holds it |
//! | `mod` | the driver: a ring of that machine |
//! | `state` | what is scheduled, open and locked |
//! | `carry` | what an operation does when it happens |
//! | [`fs`] | opening, listing, renaming, locking |
//! | [`disk`], [`content`] | durable and volatile images, unsynced sectors and names |
//! | [`fault`] | the n-th operation fails |
//! | [`crash`] | power loss and kill |
//! | [`damage`] | looking at files and damaging them behind the library's back |
//! | [`random`] | one seed, one history |
//!
//! Invariants: one seed and one sequence of calls give one history; nothing here reads a real clock, waits, or
//! draws a random number that doesn't come from the seed. Waiting for what can never happen is an error at once, so
//! a test of a lost wake-up fails instead of hanging.

mod carry;
pub mod content;
pub mod crash;
pub mod damage;
pub mod disk;
pub mod fault;
pub mod fs;
pub mod random;
mod state;
pub mod world;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::os::fd::RawFd;

use self::state::{Act, Place, State, Step};
pub use self::world::{Options, World};
use super::completion::{Completion, Token};
use super::driver::{Entry, Wait};
use super::op::{Link, Op, Target};
use crate::base::{Error, Result};

/// One opening of a simulated file; dropping it closes.
#[derive(Debug)]
pub struct Opening {
    world: World,
    id: u64,
}

/// Descriptors of simulated files: this one minus the opening's number. The kernel refuses every negative
/// descriptor, and gives no meaning to one below -4096.
const DESCRIPTORS: RawFd = -(1 << 30);

/// Whether a descriptor is a simulated file's.
pub(super) fn is_simulated(fd: RawFd) -> bool {
    fd < DESCRIPTORS
}

fn opening_of(fd: RawFd) -> Option<u64> {
    is_simulated(fd).then(|| (i64::from(DESCRIPTORS) - i64::from(fd)) as u64)
}

impl Opening {
    /// See [`super::op::File::raw_fd`].
    pub(super) fn raw_fd(&self) -> RawFd {
        DESCRIPTORS - self.id as RawFd
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        self.world.state().release(self.id);
    }
}

/// The driver, see the module.
#[derive(Debug)]
pub struct Sim {
    world: World,
    ring: usize,
}

impl Sim {
    pub(super) fn new(world: World, ring: usize) -> Self {
        Sim { world, ring }
    }

    /// The machine.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Any thread will do.
    pub fn bind(&mut self) -> Result<()> {
        Ok(())
    }

    /// The length of the queue.
    pub fn capacity(&self) -> usize {
        self.world.state().options.entries
    }

    /// Takes a chain, if the queue has room for it.
    pub fn push(&mut self, chain: &[Entry<'_>]) -> bool {
        let mut state = self.world.state();
        if state.rings[self.ring].queued_len + chain.len() > state.options.entries {
            return false;
        }
        let ring = &mut state.rings[self.ring];
        ring.queued_len += chain.len();
        let mut steps = VecDeque::new();
        for entry in chain {
            steps.push_back(Step { token: entry.token, act: act(&self.world, entry), link: entry.link });
            if entry.link == Link::None {
                ring.queued.push(std::mem::take(&mut steps));
            }
        }
        // A chain that ends with a link ends all the same.
        if !steps.is_empty() {
            ring.queued.push(steps);
        }
        true
    }

    /// Lets virtual time pass until a completion of this ring can be had, at most as `wait` says.
    pub fn enter(&mut self, wait: Wait) -> Result<()> {
        let mut state = self.world.state();
        let state = &mut *state;
        if !state.crashed() {
            state.start_queued(self.ring);
        }
        if !state.rings[self.ring].done.is_empty() {
            return Ok(());
        }
        state.alive()?;
        let rate = if wait == Wait::No { 0 } else { state.options.interrupt_per_1024 };
        if state.random.chance(rate) {
            return Err(Error::system(libc::EINTR, "the simulated wait"));
        }
        let until = match wait {
            Wait::No => state.now_us + state.random.below(8),
            Wait::Us(us) => state.now_us.saturating_add(us),
            Wait::Forever => u64::MAX,
        };
        self.run(state, until);
        if state.rings[self.ring].done.is_empty() {
            state.alive()?;
            if wait == Wait::Forever {
                let text = "a simulated wait for something that nobody will finish";
                return Err(Error::Internal(text.into()));
            }
            state.now_us = state.now_us.max(until);
        }
        Ok(())
    }

    fn run(&self, state: &mut State, until: u64) {
        let mut until = until;
        while !state.crashed() && state.next_time().is_some_and(|time| time <= until) {
            state.step();
            if !state.rings[self.ring].done.is_empty() {
                // Mostly one completion at a time, sometimes what else is due soon.
                let more = if state.random.chance(256) { 1 + state.random.below(60) } else { 0 };
                if more == 0 {
                    return;
                }
                until = until.min(state.now_us + more);
            }
        }
    }

    /// The next completion. Looking in vain costs a moment of time, so that who only looks gets on too.
    pub fn next(&mut self) -> Option<Completion> {
        let mut state = self.world.state();
        let next = state.rings[self.ring].done.pop_front();
        state.now_us += u64::from(next.is_none());
        next
    }

    /// Whether something is queued or due.
    pub fn more(&self) -> bool {
        let state = self.world.state();
        let ring = &state.rings[self.ring];
        let queued = !ring.queued.is_empty() || !ring.cancels.is_empty();
        !state.crashed() && (queued || state.next_time().is_some_and(|time| time <= state.now_us))
    }

    /// Takes effect when the ring is next entered.
    pub fn cancel(&mut self, token: Token) {
        self.world.state().rings[self.ring].cancels.push(token);
    }

    /// There is nothing that an epoll could watch.
    pub fn notifier(&mut self) -> Result<RawFd> {
        Err(Error::Unsupported("the simulator has no descriptor to watch".into()))
    }

    /// There is none.
    pub fn clear_notifier(&mut self) {}

    /// There is none.
    pub fn signal_notifier(&mut self) {}

    /// Letters come from tasks of the same thread, which the reactor sees before it waits.
    pub fn watch_mailbox(&mut self, _fd: RawFd) -> Result<()> {
        Ok(())
    }

    /// Makes the table of slots.
    pub fn make_slots(&mut self, count: u32) -> Result<()> {
        self.world.state().rings[self.ring].slots = vec![None; count as usize];
        Ok(())
    }

    /// Puts a simulated file into a slot: the slot keeps it open, and keeps its lock while a killed process's
    /// writes are in flight.
    pub fn set_slot(&mut self, slot: u32, fd: Option<RawFd>) -> Result<()> {
        let mut state = self.world.state();
        let opening = match fd.map(opening_of) {
            None => None,
            Some(Some(id)) if state.handles.contains_key(&id) => Some(id),
            Some(_) => return Err(Error::system(libc::EBADF, "not a file of the simulated disk")),
        };
        state.set_slot(self.ring, slot, opening)
    }

    /// Nothing needs registering.
    pub fn register_buffers(&mut self, _buffers: &[(usize, usize)]) -> Result<()> {
        Ok(())
    }

    /// Nothing needs registering.
    pub fn set_buffer(&mut self, _index: u16, _buffer: (usize, usize)) -> Result<()> {
        Ok(())
    }

    /// The virtual clock.
    pub fn now_us(&self) -> u64 {
        self.world.now_us()
    }

    /// From the seed.
    pub fn random(&mut self) -> u64 {
        self.world.state().random.number()
    }

    /// None.
    pub fn pinned_bytes(&self) -> u64 {
        0
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        self.world.state().close_ring(self.ring);
    }
}

fn act(world: &World, entry: &Entry<'_>) -> Act {
    let place = entry.op.target().and_then(|target| match target {
        Target::Slot(slot) => Some(Place::Slot(*slot)),
        Target::Foreign(fd) => opening_of(*fd).map(Place::Opening),
        Target::File(file) => {
            let opening = file.opening().filter(|opening| opening.world.is(world));
            opening.map(|opening| Place::Opening(opening.id))
        }
    });
    let done = entry.done as u64;
    match (entry.op, place) {
        (Op::Nop, _) => Act::Answer(0),
        (Op::Timeout { after }, _) => Act::Timeout { us: after.as_us() },
        (Op::LinkTimeout { after }, _) => Act::LinkTimeout { us: after.as_us() },
        (Op::CloseSlot { slot }, _) => Act::CloseSlot { slot: *slot },
        (Op::Read { buf, offset, .. }, Some(place)) => {
            Act::Read { place, memory: buf.lend(entry.done), offset: offset.wrapping_add(done) }
        }
        (Op::Write { buf, offset, dsync, .. }, Some(place)) => {
            let memory = buf.lend(entry.done);
            Act::Write { place, memory, offset: offset.wrapping_add(done), through: *dsync }
        }
        (Op::Fsync { .. }, Some(place)) => Act::Sync { place },
        (Op::Read { .. } | Op::Write { .. } | Op::Fsync { .. }, None) => Act::Answer(-libc::EBADF),
        _ => Act::Answer(-libc::EOPNOTSUPP),
    }
}
