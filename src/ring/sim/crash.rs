//! Crashes: what a machine leaves behind, and the machine that starts from it.
//!
//! A crash stops the clock and takes note of the writes in flight ([`Landing`]s) and of the locks held. From there
//! two worlds can follow, any number of times:
//!
//! - **power loss**: what was synced is there; of the unsynced changes, and of the sectors of writes in flight, those
//!   that the test chooses;
//! - **kill**: the page cache is whole; the writes in flight land at later times, or never. A lock is free at once,
//!   unless its file is registered in the ring whose writes are in flight.

use super::disk::{Change, Disk, Ino, What};
use super::random::{Random, mix};
use super::state::{Act, Event, Job, State};
use super::world::World;

/// A write in flight whose process is gone.
#[derive(Debug, Clone)]
pub struct Landing {
    /// Of which ring.
    pub group: u64,
    ino: Ino,
    offset: u64,
    bytes: Vec<u8>,
}

/// What a crash leaves besides the disk.
#[derive(Debug, Clone, Default)]
pub struct Wreck {
    landings: Vec<Landing>,
    /// Locked files, each with the rings that hold it.
    locks: Vec<(Ino, u64)>,
}

/// What kind of change a [`Pending`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A sector of 512 bytes.
    Sector,
    /// A file's length.
    Length,
    /// A directory entry.
    Name,
}

/// An unsynced change, which a power loss keeps or drops.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    /// Its place among all pending changes of sectors and lengths, or among those of names, oldest first.
    pub index: usize,
    /// How many pending changes there are of its sort (sectors and lengths, or names).
    pub count: usize,
    /// What kind of change.
    pub kind: Kind,
    /// The name of the file.
    pub file: String,
    /// Where in the file; the length, for a length.
    pub offset: u64,
}

impl State {
    /// The write that a job has in flight.
    pub fn landing(&self, job: &Job) -> Option<Landing> {
        let Act::Write { memory, offset, .. } = &job.step.act else { return None };
        let handle = job.file.and_then(|id| self.handles.get(&id)).filter(|handle| handle.write)?;
        let group = self.rings[job.ring].group;
        Some(Landing { group, ino: handle.ino, offset: *offset, bytes: memory.copy(memory.len()) })
    }

    /// Stops everything, and takes note of what is in flight.
    pub fn crash(&mut self) {
        if self.crashed() {
            return;
        }
        let mut wreck = Wreck::default();
        for event in std::mem::take(&mut self.events).into_values() {
            match event {
                Event::Landing(landing) => wreck.landings.push(landing),
                Event::Job(key) => {
                    wreck.landings.extend(self.jobs.get(key).and_then(|job| self.landing(job)));
                }
            }
        }
        self.jobs = crate::base::slab::Slab::new();
        let flying = |group: u64| wreck.landings.iter().any(|landing| landing.group == group);
        for (ino, id) in &self.locks {
            let holders = self.rings.iter().filter(|ring| ring.slots.contains(&Some(*id)));
            wreck.locks.extend(holders.map(|ring| (*ino, ring.group)).filter(|(_, group)| flying(*group)));
        }
        wreck.locks.extend(self.lingering.iter().filter(|(_, group)| flying(*group)));
        self.note(0xdead);
        self.wreck = Some(wreck);
    }

    /// A write of a killed process reaches the page cache.
    pub fn land(&mut self, landing: Landing) {
        // A full disk refuses it, and there is nobody to tell.
        let _ = self.disk.write(landing.ino, landing.offset, &landing.bytes, false);
        self.note(landing.offset ^ 0x1a4d);
        self.let_go(landing.group);
    }

    /// Frees the locks of a ring that has nothing in flight any more.
    fn let_go(&mut self, group: u64) {
        let flying = self.events.values().any(|e| matches!(e, Event::Landing(other) if other.group == group));
        if !flying {
            self.lingering.retain(|(_, holder)| *holder != group);
        }
    }

    /// The disk as a power loss finds it: writes in flight may have reached any sector.
    fn disk_in_flight(&self) -> Disk {
        let mut disk = self.disk.clone();
        for landing in self.wreck.iter().flat_map(|wreck| &wreck.landings) {
            // As in `land`.
            let _ = disk.write(landing.ino, landing.offset, &landing.bytes, false);
        }
        disk
    }

    fn successor(&self, disk: Disk, salt: u64) -> State {
        let mut options = self.options.clone();
        options.seed = mix(options.seed ^ mix(self.completions + 1) ^ salt);
        let mut state = State::new(options, disk, self.now_us);
        state.last_group = self.last_group;
        state
    }
}

/// The pending changes of a disk, in order, each with what it belongs to.
fn pending(disk: &Disk) -> Vec<(u64, Ino, Pending)> {
    let mut all = Vec::new();
    for (ino, inode) in &disk.inodes {
        for Change { seq, what, .. } in inode.pending.iter().filter(|change| !change.through) {
            let (kind, offset) = match what {
                What::Sector { index, .. } => (Kind::Sector, index * 512),
                What::Length { len, .. } => (Kind::Length, *len),
            };
            all.push((*seq, *ino, Pending { index: 0, count: 0, kind, file: disk.name_of(*ino), offset }));
        }
    }
    for (ino, directory) in &disk.directories {
        for change in &directory.pending {
            let file = change.add.as_ref().or(change.remove.as_ref()).cloned().unwrap_or_default();
            all.push((change.seq, *ino, Pending { index: 0, count: 0, kind: Kind::Name, file, offset: 0 }));
        }
    }
    all.sort_by_key(|(seq, ..)| *seq);
    let names = all.iter().filter(|(.., p)| p.kind == Kind::Name).count();
    let (mut name, mut data) = (0, 0);
    let total = all.len();
    for (.., pending) in &mut all {
        let (next, count) =
            if pending.kind == Kind::Name { (&mut name, names) } else { (&mut data, total - names) };
        (pending.index, pending.count) = (*next, count);
        *next += 1;
    }
    all
}

impl World {
    /// What a power loss now could keep or drop, oldest first. Writes in flight are in it.
    pub fn pending(&self) -> Vec<Pending> {
        pending(&self.state().disk_in_flight()).into_iter().map(|(.., pending)| pending).collect()
    }

    /// How many sectors and lengths a power loss now could keep or drop.
    pub fn pending_sectors(&self) -> usize {
        self.pending().iter().filter(|pending| pending.kind != Kind::Name).count()
    }

    /// The machine after a power loss: of the unsynced changes there are those for which `survives` says so. This
    /// machine crashes, if it hasn't, and may be asked again.
    pub fn power_loss(&self, survives: &mut dyn FnMut(&Pending) -> bool) -> World {
        let mut state = self.state();
        state.crash();
        let mut disk = state.disk_in_flight();
        let mut chosen: Vec<u64> = Vec::new();
        chosen.extend(pending(&disk).iter().filter(|(.., pending)| survives(pending)).map(|(seq, ..)| *seq));
        let mut salt = 1;
        for seq in &chosen {
            salt = mix(salt ^ seq);
        }
        for inode in disk.inodes.values_mut() {
            for change in std::mem::take(&mut inode.pending) {
                if change.through || chosen.binary_search(&change.seq).is_ok() {
                    inode.apply(&change);
                }
            }
        }
        for directory in disk.directories.values_mut() {
            for change in std::mem::take(&mut directory.pending) {
                if chosen.binary_search(&change.seq).is_ok() {
                    change.apply(&mut directory.durable);
                }
            }
        }
        disk.forget_volatile();
        World::from_state(state.successor(disk, salt))
    }

    /// The machine after its process was killed: the page cache is whole, writes in flight land later. This
    /// machine's process is gone, and it may be asked again.
    pub fn kill(&self) -> World {
        let mut state = self.state();
        state.crash();
        let wreck = state.wreck.clone().unwrap_or_default();
        let mut next = state.successor(state.disk.clone(), 2);
        next.lingering = wreck.locks;
        for landing in wreck.landings {
            if next.random.chance(768) {
                let scale = next.random.below(17);
                let after = next.random.below(1 << scale);
                let when = (next.now_us + after, next.random.number());
                next.events.insert(when, Event::Landing(landing));
            }
        }
        let groups: Vec<u64> = next.lingering.iter().map(|(_, group)| *group).collect();
        groups.into_iter().for_each(|group| next.let_go(group));
        next.sweep();
        World::from_state(next)
    }
}

/// Chooses nothing: everything unsynced is lost.
pub fn nothing() -> impl FnMut(&Pending) -> bool {
    |_| false
}

/// Chooses everything: the disk had written all there was.
pub fn everything() -> impl FnMut(&Pending) -> bool {
    |_| true
}

/// How many of the last pending sectors a mask chooses from.
pub const MASKED: usize = 10;

/// The masks for so many pending sectors: every subset of the last [`MASKED`].
pub fn masks(pending: usize) -> std::ops::Range<u64> {
    0..1 << pending.min(MASKED)
}

/// Chooses sectors and lengths by the bits of `mask`: bit 0 is the oldest of the last [`MASKED`]. Those before them
/// survive; names don't.
pub fn by_mask(mask: u64) -> impl FnMut(&Pending) -> bool {
    move |pending| {
        let first = pending.count.saturating_sub(MASKED);
        let masked = pending.index.checked_sub(first).is_none_or(|bit| mask >> bit & 1 == 1);
        pending.kind != Kind::Name && masked
    }
}

/// Chooses sectors by `choose`, and the first `names` directory changes.
pub fn with_names(names: usize, mut choose: impl FnMut(&Pending) -> bool) -> impl FnMut(&Pending) -> bool {
    move |pending| match pending.kind {
        Kind::Name => pending.index < names,
        _ => choose(pending),
    }
}

/// Chooses by a seed: sectors at a random rate (none, all, or in between), and of the names none, a random first
/// part, or any subset.
pub fn by_seed(seed: u64) -> impl FnMut(&Pending) -> bool {
    let mut random = Random::new(seed);
    let sectors = [0, 128, 512, 896, 1024][random.below(5) as usize];
    let names = random.below(3);
    let first = random.number();
    move |pending| match pending.kind {
        Kind::Name if names == 0 => false,
        Kind::Name if names == 1 => (pending.index as u64) < first % (pending.count as u64 + 1),
        Kind::Name => random.chance(512),
        _ => random.chance(sectors),
    }
}
