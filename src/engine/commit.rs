//! The commit path: many threads' writes become groups, one thread at a time leads a group to the device, one wake-up
//! serves the whole group.
//!
//! A write *joins* (short, under the one lock: sequence, log position, place in memory), copies and checksums its
//! own payload, inserts its own entries in the memtable, and *finishes*: it leads if nobody does, else it sleeps until
//! its group has been led. Leading is one piece of code ([`lead`]) for blocked callers, for tasks of the simulator,
//! and for the keeper.
//!
//! Invariants:
//!
//! - `visible` is raised in order only: by a durable write after its sync, by a weaker one as soon as all before it
//!   are inserted. It never passes a sequence that isn't inserted, and once poisoned it stands still.
//! - A sequence that was refused is dead before anything behind it becomes visible.
//! - Whoever holds the writer leads; nobody else touches the device. The lock is never held across I/O.
//! - Waiters sleep on one of a few words, by their group's number, so that a group's wake-up wakes no other group.
//!
//! What was rejected: a commit thread (at depth 1 the hand-over costs more than the sync saves), and several groups
//! in flight (see [`group`](crate::wal::group)).

mod dead;
mod keep;
mod lead;
mod wait;

use std::collections::VecDeque;

use dead::Dead;

use crate::base::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::base::sync::{Mutex, WaitWord};
use crate::base::{Error, Result};
use crate::ring::Io;
use crate::wal::group::{self, Groups, Join, Want};
use crate::wal::segment::Segment;
use crate::wal::spare::Spares;
use crate::wal::writer::{Opened, Writer};

/// Waiters of groups whose numbers differ by less than this never share a word.
const WORDS: usize = 8;

/// What a write waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Level {
    /// On the device.
    #[default]
    Durable,
    /// Handed to the kernel: it survives a killed process.
    Buffered,
    /// In memory; it goes with the next group.
    Volatile,
}

impl Level {
    fn want(self) -> Want {
        match self {
            Level::Durable => Want::Sync,
            Level::Buffered => Want::Write,
            Level::Volatile => Want::Nothing,
        }
    }
}

/// When a group of weaker writes is due, and when the log is sealed.
#[derive(Debug, Clone)]
pub struct Options {
    /// A group of volatile writes is due at so many sequences,
    pub batch_max_entries: u32,
    /// at so many payload bytes,
    pub batch_max_bytes: usize,
    /// and after so many microseconds; 0: at the next [`Commit::maintain`].
    pub batch_max_delay_us: u64,
    /// A seal is written after so many microseconds without a write.
    pub seal_after_us: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            batch_max_entries: 128,
            batch_max_bytes: 256 * 1024,
            batch_max_delay_us: 2000,
            seal_after_us: 10_000,
        }
    }
}

/// A place in the order of writes. Dropping it without [`Commit::finish`] poisons the log: its group could never be
/// written.
#[derive(Debug)]
#[must_use = "a joined write must be finished"]
pub struct Joined<'a> {
    /// The sequence of its first entry.
    pub first_sequence: u64,
    commit: &'a Commit,
    place: group::Joined,
    level: Level,
    finished: bool,
}

impl Drop for Joined<'_> {
    fn drop(&mut self) {
        if !self.finished {
            let text = "a write was given up between joining its group and finishing";
            self.commit.poison(Error::Internal(text.into()));
        }
    }
}

/// When [`Commit::maintain`] wants to be called again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// At this time of [`Io::now_us`].
    At(u64),
    /// When there is news: see [`Commit::park_keeper`].
    Idle,
}

/// What the log has been asked for so far, for the statistics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Groups that were written.
    pub groups: u64,
    /// Batches in them.
    pub batches: u64,
    /// Entries in them.
    pub entries: u64,
    /// Bytes of log they took, in whole blocks.
    pub bytes: u64,
    /// Groups that a full disk refused.
    pub refusals: u64,
    /// Writes that had to wait before they could join a group: for room in it, or for a segment.
    pub stalls: u64,
    /// Segments of the log, as of the last group.
    pub segments: u64,
    /// Bytes of files they take.
    pub segment_bytes: u64,
}

impl Totals {
    fn count(&mut self, group: &group::Group, (segments, segment_bytes): (u64, u64)) {
        self.groups += 1;
        self.batches += u64::from(group.members);
        self.entries += group.entries;
        self.bytes += group.padded_len() as u64;
        (self.segments, self.segment_bytes) = (segments, segment_bytes);
    }
}

/// What the lock guards.
#[derive(Debug)]
struct Shared {
    totals: Totals,
    groups: Groups,
    spares: Spares,
    /// `None` while somebody leads.
    writer: Option<Box<Writer>>,
    /// Segments of groups with links that haven't been issued.
    next_segments: VecDeque<Segment>,
    poison: Option<Error>,
    closed: bool,
    /// Everything is proven by a seal.
    sealed: bool,
    /// When the first volatile write since the last group joined.
    weak_since: Option<u64>,
    last_write_us: u64,
    /// When the keeper comes next.
    keeper_at: u64,
    /// A failed attempt to prepare a spare is not repeated by the keeper before.
    spare_retry: (u64, u64),
    /// How often groups were refused, and the highest number of a group that was.
    refusals: u64,
    refused_group: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Commit {
    shared: Mutex<Shared>,
    visible: AtomicU64,
    durable: AtomicU64,
    /// Members of the group that fills, for the leader's short wait.
    arrived: AtomicU32,
    /// Members of the last group.
    last_members: AtomicU32,
    poisoned: AtomicBool,
    dead: Dead,
    /// Waiters for a group, by its number.
    words: [WaitWord; WORDS],
    /// Waiters for room in a group, for a segment, for any group's end.
    progress: WaitWord,
    /// Waiters for callers to finish copying and inserting.
    ready: WaitWord,
    keeper: WaitWord,
    options: Options,
    way: String,
}

impl Commit {
    /// A commit path over a log that [`Writer::open`] made ready.
    pub fn new(opened: Opened, options: Options) -> Self {
        let Opened { groups, spares, writer } = opened;
        let visible = groups.visible();
        let (segments, segment_bytes) = writer.footprint();
        let totals = Totals { segments, segment_bytes, ..Totals::default() };
        Commit {
            way: writer.choice().to_string(),
            visible: AtomicU64::new(visible),
            durable: AtomicU64::new(visible),
            shared: Mutex::new(Shared {
                totals,
                groups,
                spares,
                writer: Some(Box::new(writer)),
                next_segments: VecDeque::new(),
                poison: None,
                closed: false,
                sealed: true,
                weak_since: None,
                last_write_us: 0,
                keeper_at: u64::MAX,
                spare_retry: (0, 0),
                refusals: 0,
                refused_group: 0,
            }),
            arrived: AtomicU32::new(0),
            last_members: AtomicU32::new(0),
            poisoned: AtomicBool::new(false),
            dead: Dead::default(),
            words: std::array::from_fn(|_| WaitWord::new()),
            progress: WaitWord::new(),
            ready: WaitWord::new(),
            keeper: WaitWord::new(),
            options,
        }
    }

    fn word(&self, group: u64) -> &WaitWord {
        &self.words[group as usize % WORDS]
    }

    /// Fixes sequence, log position and order, and copies the payload (the parts one behind the other) into the
    /// group. `count` sequences are taken, from `first_sequence` on. Waits while there is no room.
    ///
    /// # Errors
    /// `-ENOSPC` when the log can't go on (nothing was taken), [`Error::TooLarge`], [`Error::Poisoned`],
    /// [`Error::Closed`].
    pub async fn join(&self, io: &Io, parts: &[&[u8]], count: u32, level: Level) -> Result<Joined<'_>> {
        let len = parts.iter().map(|part| part.len()).sum();
        loop {
            let seen = self.progress.value();
            let answer = self.try_join(io, len, count, level)?;
            match answer {
                Join::Joined(ticket) => {
                    let first_sequence = ticket.joined.first_sequence;
                    let place = ticket.joined;
                    let joined = Joined { first_sequence, commit: self, place, level, finished: false };
                    ticket.copy(parts);
                    return Ok(joined);
                }
                Join::Full => {
                    self.shared.lock().totals.stalls += 1;
                    let writer = self.shared.lock().writer.take();
                    match writer {
                        Some(writer) => self.lead(io, writer, false).await,
                        None => self.wait(io, &self.progress, seen).await,
                    }
                }
                Join::NoGround { needed } => {
                    self.shared.lock().totals.stalls += 1;
                    self.find_ground(io, needed).await?;
                }
            }
        }
    }

    fn try_join(&self, io: &Io, len: usize, count: u32, level: Level) -> Result<Join> {
        let mut shared = self.shared.lock();
        shared.usable()?;
        if shared.closed {
            return Err(Error::Closed);
        }
        let answer = shared.groups.join(len, count, level.want())?;
        if matches!(answer, Join::Joined(_)) {
            let members = shared.groups.filling_members();
            self.arrived.store(members, Ordering::Relaxed);
            let mut call = std::mem::replace(&mut shared.sealed, false) && shared.keeper_at == u64::MAX;
            if level == Level::Volatile && shared.weak_since.is_none() {
                let now = io.now_us();
                shared.weak_since = Some(now);
                call |= shared.keeper_at > now.saturating_add(self.options.batch_max_delay_us);
            }
            if call {
                // It asks for the exact time itself.
                shared.keeper_at = 0;
                self.keeper.wake_one();
            }
        }
        Ok(answer)
    }

    /// After the caller has inserted its entries in the memtable: waits until the level is reached.
    ///
    /// # Errors
    /// `-ENOSPC`: refused, the sequences are dead. [`Error::Indeterminate`]: the outcome is unknown.
    pub async fn finish(&self, io: &Io, mut joined: Joined<'_>) -> Result<()> {
        joined.finished = true;
        let (place, level) = (joined.place, joined.level);
        drop(joined);
        let mut writer = None;
        let mut outcome = None;
        {
            let mut shared = self.shared.lock();
            if shared.groups.finish(place.record) {
                self.publish(&shared);
                self.ready.wake_all();
            }
            if level != Level::Volatile || self.is_due(&shared) {
                outcome = self.outcome(&shared, &place, level);
                if outcome.is_none() || level == Level::Volatile {
                    writer = shared.writer.take();
                }
            }
        }
        if level == Level::Volatile {
            if let Some(writer) = writer {
                self.lead(io, writer, true).await;
            }
            return self.until_shown(io, &place).await;
        }
        loop {
            if let Some(outcome) = outcome {
                return outcome;
            }
            let seen = self.word(place.group).value();
            if writer.is_none() {
                let mut shared = self.shared.lock();
                outcome = self.outcome(&shared, &place, level);
                if outcome.is_some() {
                    continue;
                }
                writer = shared.writer.take();
            }
            match writer.take() {
                Some(writer) => self.lead(io, writer, level == Level::Durable).await,
                None => self.wait(io, self.word(place.group), seen).await,
            }
            if self.is_durable(&place) {
                return Ok(());
            }
            outcome = self.outcome(&self.shared.lock(), &place, level);
        }
    }

    /// Whether a write is on the device, asked without the lock, for which all members of a group would come at once.
    fn is_durable(&self, place: &group::Joined) -> bool {
        // In this order: a refused sequence is dead before `durable` passes it.
        self.durable() >= place.last_sequence && !self.dead.contains(place.first_sequence)
    }

    /// How a write ended, once it has.
    fn outcome(&self, shared: &Shared, place: &group::Joined, level: Level) -> Option<Result<()>> {
        let refused = || {
            let text = "the disk is full: the write was refused, nothing of it is in the log";
            Some(Err(Error::system(libc::ENOSPC, text)))
        };
        if self.dead.contains(place.first_sequence) {
            return refused();
        }
        let reached = match level {
            Level::Durable => shared.groups.durable(),
            Level::Buffered => shared.groups.written(),
            Level::Volatile => place.last_sequence,
        };
        if reached >= place.last_sequence {
            return Some(Ok(()));
        }
        if let Some(e) = &shared.poison {
            let text =
                format!("the log failed while this write was under way, it may or may not be durable: {e}");
            return Some(Err(Error::Indeterminate(text.into())));
        }
        if place.group <= shared.refused_group && level == Level::Durable {
            return refused();
        }
        if place.group <= shared.refused_group {
            let text =
                "the disk is full: the write is visible and kept, and will be written when there is space";
            return Some(Err(Error::Indeterminate(text.into())));
        }
        None
    }

    /// A weaker write returns when it can be read, which others before it may delay for a moment.
    async fn until_shown(&self, io: &Io, place: &group::Joined) -> Result<()> {
        loop {
            let seen = self.ready.value();
            if self.visible() >= place.last_sequence {
                return Ok(());
            }
            if self.is_poisoned() {
                let text = "the log failed while this write was under way; it is not visible, and may or may not return";
                return Err(Error::Indeterminate(text.into()));
            }
            self.wait(io, &self.ready, seen).await;
        }
    }

    /// Readers see sequences up to this one.
    pub fn visible(&self) -> u64 {
        self.visible.load(Ordering::Acquire)
    }

    /// Sequences up to this one are on the device (dead ones aside).
    pub fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Shows readers what the machine says. Called with the lock, so it never goes back. Visible comes first: callers
    /// who see without the lock that they are durable return, and must find what they wrote.
    fn publish(&self, shared: &Shared) {
        self.visible.store(shared.groups.visible(), Ordering::Release);
        self.durable.store(shared.groups.durable(), Ordering::Release);
    }

    /// Waits until all that has joined so far is durable. An error other than `-ENOSPC` stays.
    ///
    /// # Errors
    /// `-ENOSPC`: what is kept waits for space. [`Error::Indeterminate`] for what was under way when the log failed.
    pub async fn flush(&self, io: &Io) -> Result<()> {
        let (target, refusals) = {
            let mut shared = self.shared.lock();
            shared.usable()?;
            shared.groups.want_sync();
            (shared.groups.last_live(), shared.refusals)
        };
        loop {
            let seen = self.progress.value();
            let (need, writer) = {
                let mut shared = self.shared.lock();
                if shared.groups.durable() >= target.min(shared.groups.last_live()) {
                    return Ok(());
                }
                if let Some(e) = &shared.poison {
                    return Err(Error::Indeterminate(format!("the log failed: {e}").into()));
                }
                if shared.refusals != refusals {
                    return Err(full());
                }
                match shared.groups.kept_need() {
                    None => (None, shared.writer.take()),
                    need => (need, None),
                }
            };
            match (need, writer) {
                (Some(needed), _) => self.find_ground(io, needed).await?,
                (None, Some(writer)) => self.lead(io, writer, true).await,
                (None, None) => self.wait(io, &self.progress, seen).await,
            }
        }
    }

    /// Whether a sequence was refused: readers skip it.
    pub fn is_dead(&self, sequence: u64) -> bool {
        self.dead.contains(sequence)
    }

    /// Whether an earlier failure has poisoned the log.
    pub fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Acquire)
    }

    /// What the log has been asked for so far.
    pub fn totals(&self) -> Totals {
        let shared = self.shared.lock();
        Totals { refusals: shared.refusals, ..shared.totals }
    }

    /// How writes are made durable, and why so; for the statistics.
    pub fn way(&self) -> String {
        self.way.clone()
    }

    /// Records up to this sequence aren't needed in the log any more.
    pub async fn release(&self, io: &Io, up_to_sequence: u64) {
        loop {
            let seen = self.progress.value();
            {
                let mut shared = self.shared.lock();
                let shared = &mut *shared;
                if let Some(writer) = &mut shared.writer {
                    writer.release(up_to_sequence);
                    writer
                        .take_retired()
                        .into_iter()
                        .for_each(|(number, len)| shared.spares.retire(number, len));
                    return;
                }
            }
            self.wait(io, &self.progress, seen).await;
        }
    }

    /// Refuses later joins as closed, flushes, and seals.
    ///
    /// # Errors
    /// As [`Commit::flush`]. It is closed all the same.
    pub async fn close(&self, io: &Io) -> Result<()> {
        self.shared.lock().closed = true;
        let sealed = self.seal(io).await;
        // A segment that somebody is still preparing: its header must not land when the next owner has the directory.
        loop {
            let seen = self.progress.value();
            if !self.shared.lock().spares.is_ordered() {
                return sealed;
            }
            self.wait(io, &self.progress, seen).await;
        }
    }

    async fn seal(&self, io: &Io) -> Result<()> {
        self.flush(io).await?;
        loop {
            let seen = self.progress.value();
            let writer = {
                let mut shared = self.shared.lock();
                shared.usable()?;
                if shared.sealed {
                    return Ok(());
                }
                let writer = shared.writer.take();
                if writer.is_some() {
                    shared.begin_seal()?;
                }
                writer
            };
            match writer {
                Some(writer) => self.lead(io, writer, true).await,
                None => self.wait(io, &self.progress, seen).await,
            }
        }
    }
}

impl Shared {
    /// Refuses once poisoned.
    fn usable(&self) -> Result<()> {
        match &self.poison {
            None => Ok(()),
            Some(e) => {
                let text =
                    format!("an earlier write of the log failed, reopen the store to write again: {e}");
                Err(Error::Poisoned(text.into()))
            }
        }
    }

    /// Makes a group of a seal, if there is anything to seal.
    fn begin_seal(&mut self) -> Result<()> {
        self.sealed = true;
        self.groups.seal().map(drop)
    }
}

/// The error of a full disk.
fn full() -> Error {
    Error::system(
        libc::ENOSPC,
        "the disk is full: what is visible is kept and will be written when there is space",
    )
}

#[cfg(test)]
#[path = "commit/commit_test.rs"]
mod tests;
