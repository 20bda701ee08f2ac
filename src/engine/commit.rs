//! The commit path: many threads join a group, one of them leads it to the device, one wake serves all.

use crate::base::{Error, Result};
use crate::ring::Io;
use crate::wal::writer::Writer;

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

/// A place in the order of writes. Dropping it without [`Commit::finish`] poisons the log.
#[derive(Debug)]
#[must_use = "a joined write must be finished"]
pub struct Joined {
    /// The sequence of its first entry.
    pub first_sequence: u64,
}

/// When [`Commit::maintain`] wants to be called again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// At this time of [`Io::now_us`].
    At(u64),
    /// When there is news: see [`Commit::park_keeper`].
    Idle,
}

/// See the module.
#[derive(Debug)]
pub struct Commit {}

fn soon<T>() -> Result<T> {
    Err(Error::Unsupported("the commit path is being written".into()))
}

impl Commit {
    /// A commit path over a writer.
    pub fn new(_writer: Writer, _options: Options) -> Self {
        Commit {}
    }

    /// Fixes sequence, log position and order, and copies the payload (the parts one behind the other) into the
    /// group. `count` sequences are taken, from `first_sequence` on. Waits while there is no room.
    ///
    /// # Errors
    /// `-ENOSPC` when the log can't go on (nothing was taken), [`Error::TooLarge`], [`Error::Poisoned`].
    pub async fn join(&self, _io: &Io, _parts: &[&[u8]], _count: u32, _level: Level) -> Result<Joined> {
        soon()
    }

    /// After the caller has inserted its entries in the memtable: waits until the level is reached.
    ///
    /// # Errors
    /// `-ENOSPC`: refused, the sequences are dead. [`Error::Indeterminate`]: the outcome is unknown.
    pub async fn finish(&self, _io: &Io, _joined: Joined) -> Result<()> {
        soon()
    }

    /// Readers see sequences up to this one.
    pub fn visible(&self) -> u64 {
        0
    }

    /// Sequences up to this one are on the device (dead ones aside).
    pub fn durable(&self) -> u64 {
        0
    }

    /// Waits until all that has joined so far is durable. An error other than `-ENOSPC` stays.
    ///
    /// # Errors
    /// As [`Commit::finish`].
    pub async fn flush(&self, _io: &Io) -> Result<()> {
        soon()
    }

    /// Whether a sequence was refused: readers skip it.
    pub fn is_dead(&self, _sequence: u64) -> bool {
        false
    }

    /// The keeper's work: prepares the spare segment, leads a due group, writes the idle seal.
    ///
    /// # Errors
    /// What stands in the way of going on; the keeper comes again all the same.
    pub async fn maintain(&self, _io: &Io) -> Result<Next> {
        soon()
    }

    /// The keeper thread sleeps here until `next` or until there is news. Blocking; not for simulated keepers.
    pub fn park_keeper(&self, _io: &Io, _next: Next) {}

    /// Ends [`Commit::park_keeper`] early.
    pub fn wake_keeper(&self) {}

    /// Whether an earlier failure has poisoned the log.
    pub fn is_poisoned(&self) -> bool {
        false
    }

    /// How writes are made durable, and why so; for the statistics.
    pub fn way(&self) -> String {
        String::new()
    }

    /// Flushes, seals, and ends: later joins are refused as closed.
    ///
    /// # Errors
    /// As [`Commit::flush`].
    pub async fn close(&self, _io: &Io) -> Result<()> {
        soon()
    }
}
