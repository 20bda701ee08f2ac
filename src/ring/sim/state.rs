//! The simulated machine: its clock, its disk, its open files, and the one list of what will happen when.
//!
//! Every operation that was started stands in `events` under a random virtual time, and happens, whole, at that
//! time: a read fills its memory then, a write takes its bytes then. Several drivers ("rings") share the machine;
//! whoever enters carries out everybody's events in the order of their times. So a history depends on the seed and
//! on the order of calls alone, and `history` sums it up in one number.

use std::collections::{BTreeMap, VecDeque};

use super::crash::{Landing, Wreck};
use super::disk::{Disk, Ino};
use super::fault::Plan;
use super::random::{Random, mix};
use super::world::Options;
use crate::base::memory::Lent;
use crate::base::slab::{Key, Slab};
use crate::base::{Error, Result};
use crate::ring::completion::{Completion, Token};
use crate::ring::op::Link;

/// The file that a step is about.
#[derive(Debug, Clone, Copy)]
pub enum Place {
    /// An opening.
    Opening(u64),
    /// A slot of the ring's table, looked up when the step starts.
    Slot(u32),
}

/// What a step does.
#[derive(Debug, Clone)]
pub enum Act {
    /// Nothing, with this result.
    Answer(i32),
    /// Reads into the memory.
    Read { place: Place, memory: Lent, offset: u64 },
    /// Writes from the memory.
    Write { place: Place, memory: Lent, offset: u64, through: bool },
    /// Makes durable.
    Sync { place: Place },
    /// Waits.
    Timeout { us: u64 },
    /// Limits the step before it.
    LinkTimeout { us: u64 },
    /// Clears a slot.
    CloseSlot { slot: u32 },
}

/// One operation of a chain.
#[derive(Debug, Clone)]
pub struct Step {
    /// Its name in its ring.
    pub token: Token,
    /// What it does.
    pub act: Act,
    /// How it holds back the next one.
    pub link: Link,
}

/// A step that was started.
#[derive(Debug)]
pub struct Job {
    pub ring: usize,
    pub step: Step,
    /// The opening it uses.
    pub file: Option<u64>,
    /// The steps of its chain that wait for it.
    rest: VecDeque<Step>,
    /// A sync covers the changes up to this one.
    pub up_to: u64,
    when: When,
    /// Of an operation: the link time-out that runs with it. Of a link time-out: the operation.
    partner: Option<Key>,
}

/// A moment, and a random number that orders what happens at the same one.
pub type When = (u64, u64);

/// What happens at a moment.
#[derive(Debug)]
pub enum Event {
    /// A job's end.
    Job(Key),
    /// A write of a killed process reaches the disk.
    Landing(Landing),
}

/// One opening of a file or directory.
#[derive(Debug)]
pub struct Handle {
    pub ino: Ino,
    pub write: bool,
    pub direct: bool,
    /// The `File`, slots and running operations that use it.
    uses: u32,
}

/// What the machine knows of one driver.
#[derive(Debug, Default)]
pub struct Ring {
    /// Names it in wrecks; never used again.
    pub group: u64,
    pub queued: Vec<VecDeque<Step>>,
    pub queued_len: usize,
    pub cancels: Vec<Token>,
    pub done: VecDeque<Completion>,
    pub slots: Vec<Option<u64>>,
}

/// See the module.
#[derive(Debug)]
pub struct State {
    pub options: Options,
    pub random: Random,
    pub now_us: u64,
    pub disk: Disk,
    pub handles: BTreeMap<u64, Handle>,
    last_handle: u64,
    pub locks: BTreeMap<Ino, u64>,
    /// Locks that a killed process's rings still hold: the file, and the ring.
    pub lingering: Vec<(Ino, u64)>,
    pub rings: Vec<Ring>,
    pub last_group: u64,
    pub jobs: Slab<Job>,
    pub events: BTreeMap<When, Event>,
    pub plan: Plan,
    pub completions: u64,
    pub crash_at: Option<u64>,
    pub wreck: Option<Wreck>,
    pub abandoned: u64,
    pub history: u64,
}

impl State {
    /// A machine with this disk.
    pub fn new(options: Options, disk: Disk, now_us: u64) -> Self {
        State {
            random: Random::new(options.seed),
            history: mix(options.seed),
            options,
            now_us,
            disk,
            handles: BTreeMap::new(),
            last_handle: 0,
            locks: BTreeMap::new(),
            lingering: Vec::new(),
            rings: Vec::new(),
            last_group: 0,
            jobs: Slab::new(),
            events: BTreeMap::new(),
            plan: Plan::default(),
            completions: 0,
            crash_at: None,
            wreck: None,
            abandoned: 0,
        }
    }

    /// Whether the machine has crashed.
    pub fn crashed(&self) -> bool {
        self.wreck.is_some()
    }

    /// The error of every call after the crash.
    pub fn alive(&self) -> Result<()> {
        if self.crashed() {
            return Err(Error::system(libc::EIO, "the simulated machine has crashed"));
        }
        Ok(())
    }

    /// Notes a number in the history.
    pub fn note(&mut self, number: u64) {
        self.history = mix(self.history.rotate_left(5) ^ number);
    }

    /// Something ended (a completion, a file system call that changed something): crashes if its time has come.
    pub fn count(&mut self) {
        self.completions += 1;
        if self.crash_at == Some(self.completions) {
            self.crash();
        }
    }

    /// A new opening, used once.
    pub fn open(&mut self, ino: Ino, write: bool, direct: bool) -> u64 {
        self.last_handle += 1;
        self.handles.insert(self.last_handle, Handle { ino, write, direct, uses: 1 });
        self.last_handle
    }

    /// One more use of an opening.
    pub fn hold(&mut self, id: u64) {
        if let Some(handle) = self.handles.get_mut(&id) {
            handle.uses += 1;
        }
    }

    /// One use less; the last one closes it.
    pub fn release(&mut self, id: u64) {
        let Some(handle) = self.handles.get_mut(&id) else { return };
        handle.uses -= 1;
        if handle.uses > 0 {
            return;
        }
        let ino = handle.ino;
        self.handles.remove(&id);
        if self.locks.get(&ino) == Some(&id) {
            self.locks.remove(&ino);
        }
        self.sweep();
    }

    /// Lets the disk forget files that nobody can reach.
    pub fn sweep(&mut self) {
        let handles = &self.handles;
        self.disk.sweep(&|ino| handles.values().any(|handle| handle.ino == ino));
    }

    /// Starts what a ring has pushed, then does what it asked to cancel.
    pub fn start_queued(&mut self, ring: usize) {
        self.rings[ring].queued_len = 0;
        for chain in std::mem::take(&mut self.rings[ring].queued) {
            self.start(ring, chain);
        }
        for token in std::mem::take(&mut self.rings[ring].cancels) {
            self.cancel(ring, token);
        }
    }

    fn start(&mut self, ring: usize, mut chain: VecDeque<Step>) {
        let Some(mut step) = chain.pop_front() else { return };
        let file = match step.act {
            Act::Read { place, .. } | Act::Write { place, .. } | Act::Sync { place } => match place {
                Place::Opening(id) => Some(id),
                Place::Slot(slot) => self.rings[ring].slots.get(slot as usize).copied().flatten(),
            },
            _ => None,
        };
        if let Some(id) = file {
            self.hold(id);
        }
        if let Act::Read { memory, .. } = &step.act {
            // Who looks at the memory before the completion sees rubbish.
            memory.fill(&vec![0xA5; memory.len()]);
        }
        let limited = matches!(chain.front(), Some(Step { act: Act::LinkTimeout { .. }, .. }));
        let limit = if limited { chain.pop_front() } else { None };
        let after = self.delay(&step.act);
        let limit = limit.map(|limit| {
            // The rest of the chain hangs on the operation, not on its limit.
            let us = if let Act::LinkTimeout { us } = limit.act { us } else { 0 };
            step.link = if limit.link == Link::None { Link::None } else { step.link };
            self.schedule(ring, limit, None, VecDeque::new(), us)
        });
        let job = self.schedule(ring, step, file, chain, after);
        if let (Some(limit), Some(place)) = (limit, self.jobs.get_mut(job)) {
            place.partner = Some(limit);
            if let Some(place) = self.jobs.get_mut(limit) {
                place.partner = Some(job);
            }
        }
    }

    fn schedule(
        &mut self,
        ring: usize,
        step: Step,
        file: Option<u64>,
        rest: VecDeque<Step>,
        after: u64,
    ) -> Key {
        let when = (self.now_us.saturating_add(after), self.random.number());
        let up_to = self.disk.last();
        let job = self.jobs.insert(Job { ring, step, file, rest, up_to, when, partner: None });
        self.events.insert(when, Event::Job(job));
        job
    }

    /// How long a step takes: mostly what a fast disk needs, sometimes twenty times that.
    fn delay(&mut self, act: &Act) -> u64 {
        let most = match act {
            Act::Timeout { us } | Act::LinkTimeout { us } => return *us,
            Act::Answer(_) | Act::CloseSlot { .. } => 4,
            Act::Read { .. } => 100,
            Act::Write { .. } => 200,
            Act::Sync { .. } => 400,
        };
        let slow = if self.random.chance(32) { 20 } else { 1 };
        (1 + self.random.below(most)) * slow
    }

    /// The next event's time.
    pub fn next_time(&self) -> Option<u64> {
        self.events.keys().next().map(|when| when.0)
    }

    /// Carries out the next event.
    pub fn step(&mut self) {
        let Some((when, event)) = self.events.pop_first() else { return };
        self.now_us = self.now_us.max(when.0);
        match event {
            Event::Landing(landing) => self.land(landing),
            Event::Job(key) => self.end(key, None),
        }
    }

    /// Ends a job: with `forced`, or with what carrying it out gives.
    fn end(&mut self, key: Key, forced: Option<i32>) {
        let Some(job) = self.jobs.remove(key) else { return };
        if let Act::LinkTimeout { .. } = job.step.act {
            let result = forced.unwrap_or_else(|| self.limit_reached(&job));
            return self.complete(job.ring, job.step.token, result);
        }
        let result = forced.unwrap_or_else(|| self.carry_out(&job));
        if let Some(file) = job.file {
            self.release(file);
        }
        let whole = match &job.step.act {
            Act::Read { memory, .. } | Act::Write { memory, .. } => result == memory.len() as i32,
            _ => result >= 0,
        };
        self.complete(job.ring, job.step.token, result);
        if let Some(limit) = job.partner.and_then(|partner| self.jobs.remove(partner)) {
            self.events.remove(&limit.when);
            self.complete(limit.ring, limit.step.token, -libc::ECANCELED);
        }
        if job.step.link == Link::Soft && !whole {
            for step in job.rest {
                self.complete(job.ring, step.token, -libc::ECANCELED);
            }
        } else if !self.crashed() {
            self.start(job.ring, job.rest);
        }
    }

    fn limit_reached(&mut self, limit: &Job) -> i32 {
        let Some(partner) = limit.partner else { return -libc::EINVAL };
        if self.can_cancel(partner) {
            self.unschedule(partner);
            if let Some(job) = self.jobs.get_mut(partner) {
                job.partner = None;
            }
            self.end(partner, Some(-libc::ECANCELED));
            -libc::ETIME
        } else {
            if let Some(job) = self.jobs.get_mut(partner) {
                job.partner = None;
            }
            -libc::EALREADY
        }
    }

    fn can_cancel(&mut self, key: Key) -> bool {
        match self.jobs.get(key).map(|job| &job.step.act) {
            None => false,
            Some(Act::Timeout { .. } | Act::LinkTimeout { .. }) => true,
            // A file operation may still wait for its worker, but mostly it is running.
            Some(_) => self.random.chance(256),
        }
    }

    fn unschedule(&mut self, key: Key) {
        if let Some(job) = self.jobs.get(key) {
            self.events.remove(&job.when);
        }
    }

    fn cancel(&mut self, ring: usize, token: Token) {
        let found = self.jobs.iter().find(|(_, job)| job.ring == ring && job.step.token == token);
        let Some(key) = found.map(|(key, _)| key) else { return };
        if self.can_cancel(key) {
            self.unschedule(key);
            self.end(key, Some(-libc::ECANCELED));
        }
    }

    fn complete(&mut self, ring: usize, token: Token, result: i32) {
        if self.crashed() {
            return;
        }
        self.note(token.to_bits() ^ (ring as u64) << 56);
        self.note(self.now_us);
        self.note(result as u64);
        self.rings[ring].done.push_back(Completion::last(token, result));
        self.count();
    }

    /// Puts an opening into a slot, or clears it.
    pub fn set_slot(&mut self, ring: usize, slot: u32, opening: Option<u64>) -> Result<()> {
        let Some(place) = self.rings[ring].slots.get_mut(slot as usize) else {
            return Err(Error::invalid(format!("slot {slot} is not in the file table")));
        };
        let old = std::mem::replace(place, opening);
        if let Some(id) = opening {
            self.hold(id);
        }
        if let Some(id) = old {
            self.release(id);
        }
        Ok(())
    }

    /// A driver is dropped: what it has started goes on without it, what it lent is looked at no more.
    pub fn close_ring(&mut self, ring: usize) {
        let keys: Vec<Key> =
            self.jobs.iter().filter(|(_, job)| job.ring == ring).map(|(key, _)| key).collect();
        for key in keys {
            self.abandoned += 1;
            self.unschedule(key);
            let landing = self.jobs.get(key).and_then(|job| Some((job.when, self.landing(job)?)));
            if let Some((when, landing)) = landing {
                self.events.insert(when, Event::Landing(landing));
            }
            if let Some(file) = self.jobs.remove(key).and_then(|job| job.file) {
                self.release(file);
            }
        }
        let slots = std::mem::take(&mut self.rings[ring].slots);
        slots.into_iter().flatten().for_each(|id| self.release(id));
    }
}
