//! The store's logic, as `async fn`s over any [`Io`]: over the inline handle for blocking calls, over the simulator
//! in tests.
//!
//! A write checks, copies and encodes first; then it joins a group (which fixes its sequence), inserts, and waits for
//! its level. Between joining and inserting nothing can fail. A read asks which sequence is visible and looks up.

use std::path::Path;
use std::sync::Arc;

use super::batch::{self, Edit, WriteBatch};
use super::commit::{self, Commit, Level};
use super::directory;
use super::memtable::{Found, Memtable, Prepared};
use super::options::{DriverChoice, Options};
use super::stats::{Counter, Properties, Stats};
use super::view::{Pins, View};
use crate::base::sync::Mutex;
use crate::base::sync::atomic::{AtomicBool, Ordering};
use crate::base::{Error, Result};
use crate::ring::Io;
use crate::ring::driver::Kind;
use crate::ring::options::{Choice, RingOptions, SetupFlags, open_driver};
use crate::ring::uring::passed::Passed;
use crate::wal::lock::Lock;
use crate::wal::recover::{Mode, Record, RecoveryStats, recover};
use crate::wal::sync::Wish;
use crate::wal::writer::{self, Writer};

/// Entries of the ring for chains: one chain of three is on its way at a time.
const CHAIN_ENTRIES: u32 = 8;

/// An open store; see the module.
pub struct Core {
    commit: Commit,
    memtable: Memtable,
    stats: Stats,
    recovery: RecoveryStats,
    /// What carries the log's writes.
    driver: &'static str,
    pins: Arc<Pins>,
    options: Options,
    closed: AtomicBool,
    /// Given up last of all, when nothing can be in flight any more.
    lock: Mutex<Option<Lock>>,
}

impl Core {
    /// Opens a store: takes its lock, recovers its log into the memtable, and is ready to write.
    ///
    /// # Errors
    /// See [`Store::open`](super::store::Store::open).
    pub async fn open(io: &Io, path: &Path, options: Options) -> Result<Core> {
        options.check()?;
        let dir = directory::open(io, path, &options).await?;
        let mut lock = Lock::take(io, &dir, path).await?;
        directory::check(io, &dir, path, &options)?;
        lock.register(io)?;
        let memtable = Memtable::new();
        let mode = Mode::Write { direct: options.direct_log(), segment_bytes: options.segment_bytes() };
        let recovered = recover(io, &dir, mode, &mut |record| replay(&memtable, record)).await?;
        let recovery = recovered.stats;
        report(path, &recovery);
        let ring = chain_ring(io, &lock, &options)?;
        let driver = ring.as_ref().map_or_else(|| driver_name(io.kind()), |(_, kind)| driver_name(*kind));
        let how = writer::Options {
            segment_bytes: options.segment_bytes(),
            direct: options.direct_log(),
            sync: options.sync,
            may_block: true,
            checkpoint_every: options.checkpoint_every,
            ring: ring.map(|(ring, _)| ring),
        };
        let fresh = recovered.live.is_empty();
        let commit = Commit::new(Writer::open(io, &dir, recovered, how)?, commit_options(&options));
        if fresh {
            commit.begin(io).await.map_err(|e| explain_first(e, path, &options))?;
        }
        Ok(Core {
            commit,
            driver,
            memtable,
            recovery,
            stats: Stats::new(),
            pins: Pins::new(options.pinned_max()),
            options,
            closed: AtomicBool::new(false),
            lock: Mutex::new(Some(lock)),
        })
    }

    /// The commit path, for the keeper.
    pub fn commit(&self) -> &Commit {
        &self.commit
    }

    /// What it was opened with.
    pub fn options(&self) -> &Options {
        &self.options
    }

    fn ready(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) { Err(Error::Closed) } else { Ok(()) }
    }

    /// Refuses what the memory ceiling has no room for: without tables nothing ever leaves the memtable.
    fn room(&self, more: u64) -> Result<()> {
        let limit = self.options.memory_limit_bytes;
        let held = self.memtable.bytes().saturating_add(more);
        if limit == 0 || held <= limit {
            return Ok(());
        }
        let text = format!("memory_limit_bytes is {limit}: the memtable would hold {held}; raise the limit");
        Err(Error::TooLarge(text.into()))
    }

    /// One change at a level.
    ///
    /// # Errors
    /// See [`Store::put`](super::store::Store::put).
    pub async fn apply(&self, io: &Io, edit: Edit<'_>, level: Level) -> Result<()> {
        self.ready()?;
        let header = edit.header()?;
        let prepared = Prepared::new(&edit)?;
        self.room(prepared.memory())?;
        let value = edit.value().unwrap_or(&[]);
        let parts = [&header[..], edit.key(), value];
        let done = self.commit_entries(io, &parts, std::iter::once(prepared), 1, level).await;
        self.count(&done, &edit);
        done
    }

    /// A whole batch at a level.
    ///
    /// # Errors
    /// See [`Store::write`](super::store::Store::write).
    pub async fn write(&self, io: &Io, batch: &WriteBatch, level: Level) -> Result<()> {
        self.ready()?;
        if batch.is_empty() {
            return Ok(());
        }
        let entries = prepare(batch)?;
        self.room(entries.iter().map(Prepared::memory).sum())?;
        let parts = [batch.payload()];
        let done = self.commit_entries(io, &parts, entries.into_iter(), batch.count(), level).await;
        self.stats.add(Counter::Writes, 1);
        // The batch was just decoded by `prepare`; this pass only counts.
        let counted = batch::decode(batch.payload(), batch.count(), |edit| {
            self.count(&done, &edit);
            Ok(())
        });
        debug_assert!(matches!(counted, Ok(Ok(()))), "a batch decodes as it was encoded");
        done
    }

    async fn commit_entries(
        &self,
        io: &Io,
        parts: &[&[u8]],
        entries: impl Iterator<Item = Prepared>,
        count: u32,
        level: Level,
    ) -> Result<()> {
        let joined = self.commit.join(io, parts, count, level).await?;
        for (sequence, entry) in (joined.first_sequence..).zip(entries) {
            self.memtable.insert(sequence, entry);
        }
        self.commit.finish(io, joined).await
    }

    fn count(&self, done: &Result<()>, edit: &Edit<'_>) {
        if done.is_err() {
            return self.stats.add(Counter::Failed, 1);
        }
        let value = edit.value();
        self.stats.add(if value.is_some() { Counter::Puts } else { Counter::Deletes }, 1);
        let bytes = edit.key().len() + value.map_or(0, <[u8]>::len);
        self.stats.add(Counter::BytesWritten, bytes as u64);
    }

    /// Shows `visit` a key's value.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::TooLarge`] for a key that can't exist; [`Error::Closed`].
    pub fn get_with<T>(&self, key: &[u8], visit: impl FnOnce(&[u8]) -> T) -> Result<T> {
        self.look_up(key, |found| {
            let value = found.value()?;
            self.stats.add(Counter::BytesRead, value.len() as u64);
            Some(visit(value))
        })
    }

    /// A key's value to keep: copied up to 4 KiB, shared when larger.
    ///
    /// # Errors
    /// As [`Core::get_with`].
    pub fn get_view(&self, key: &[u8]) -> Result<View> {
        self.look_up(key, |found| {
            let view = found.view(&self.pins)?;
            self.stats.add(Counter::BytesRead, view.len() as u64);
            Some(view)
        })
    }

    fn look_up<T>(&self, key: &[u8], visit: impl FnOnce(Found<'_>) -> Option<T>) -> Result<T> {
        self.ready()?;
        Edit::Delete { key }.header()?;
        self.stats.add(Counter::Gets, 1);
        let visible = self.commit.visible();
        let found =
            self.memtable.get(key, visible, |sequence| self.commit.is_dead(sequence), visit).flatten();
        if found.is_some() {
            self.stats.add(Counter::Found, 1);
        }
        found.ok_or(Error::NotFound)
    }

    /// Waits until all that was written before is durable.
    ///
    /// # Errors
    /// See [`Store::flush_batch`](super::store::Store::flush_batch).
    pub async fn flush(&self, io: &Io) -> Result<()> {
        self.ready()?;
        self.stats.add(Counter::Flushes, 1);
        self.commit.flush(io).await
    }

    /// Sequences up to this one are on the device.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub fn durable_sequence(&self) -> Result<u64> {
        self.ready().map(|()| self.commit.durable())
    }

    /// A property by name: one of the lines of `stats`, or `stats` itself, or `prometheus`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a name that isn't known.
    pub fn property(&self, name: &str) -> Result<String> {
        self.ready()?;
        let properties = self.properties();
        match name {
            "stats" => Ok(properties.text()),
            "prometheus" => Ok(properties.prometheus()),
            _ => properties.find(name).map(str::to_owned).ok_or_else(|| {
                Error::invalid(format!("no property is named {name:?}; \"stats\" lists all there are"))
            }),
        }
    }

    fn properties(&self) -> Properties {
        let mut list = Properties::default();
        for (name, count) in self.stats.all() {
            list.add(name, count);
        }
        list.add("memtable_entries", self.memtable.entries());
        list.add("memtable_bytes", self.memtable.bytes());
        list.add("pinned_bytes", self.pins.bytes());
        list.add("visible_sequence", self.commit.visible());
        list.add("durable_sequence", self.commit.durable());
        list.add("poisoned", u8::from(self.commit.is_poisoned()));
        list.add("sync", self.commit.way());
        list.add("driver", self.driver);
        let t = self.commit.totals();
        for (name, count) in [
            ("groups", t.groups),
            ("group_batches", t.batches),
            ("group_entries", t.entries),
            ("log_bytes_written", t.bytes),
            ("log_refusals", t.refusals),
            ("log_segments", t.segments),
            ("log_bytes", t.segment_bytes),
            ("stalls", t.stalls),
        ] {
            list.add(name, count);
        }
        let mean = if t.groups == 0 { 0.0 } else { t.entries as f64 / t.groups as f64 };
        list.add("entries_per_group", format!("{mean:.2}"));
        let r = &self.recovery;
        for (name, count) in [
            ("recovery_records", r.records),
            ("recovery_bytes", r.bytes),
            ("recovery_segments", r.segments),
            ("recovery_first_sequence", r.first_sequence),
            ("recovery_last_sequence", r.last_sequence),
            ("recovery_proven_through", r.proven_through),
            ("recovery_unproven_records", r.unproven_records),
            ("recovery_unproven_bytes", r.unproven_bytes),
            ("recovery_copied_records", r.copied_records),
            ("recovery_torn_bytes", r.torn_bytes),
            ("recovery_possible_damage", r.possible_damage),
            ("recovery_sealed", u64::from(r.sealed)),
        ] {
            list.add(name, count);
        }
        list
    }

    /// Whether closing has begun.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// From now on every call is refused. False when that was so already.
    pub fn begin_close(&self) -> bool {
        !self.closed.swap(true, Ordering::AcqRel)
    }

    /// Makes everything durable, seals the log, and gives the lock back: the last thing that is done.
    ///
    /// # Errors
    /// What stood in the way of making it durable; the store is closed all the same.
    pub async fn finish_close(&self, io: &Io) -> Result<()> {
        let closed = self.commit.close(io).await;
        let lock = self.lock.lock().take();
        let unregistered = lock.map_or(Ok(()), |mut lock| lock.unregister(io));
        closed.and(unregistered)
    }
}

fn commit_options(options: &Options) -> commit::Options {
    commit::Options {
        batch_max_entries: options.batch_max_entries,
        batch_max_bytes: usize::try_from(options.batch_max_bytes).unwrap_or(usize::MAX),
        batch_max_delay_us: u64::from(options.batch_max_delay_ms) * 1000,
        seal_after_us: u64::from(options.seal_after_ms) * 1000,
    }
}

/// Puts a batch of the log into the memtable.
fn replay(memtable: &Memtable, record: Record<'_>) -> Result<()> {
    let mut sequence = record.sequence;
    let decoded = batch::decode(record.payload, record.count, |edit| {
        memtable.insert(sequence, Prepared::new(&edit)?);
        sequence += 1;
        Ok(())
    })?;
    decoded.map_err(|damage| {
        // Its checksums were right, so it was written like this.
        let file = format!("the log's batch of sequence {}", record.sequence);
        Error::corrupt(file, damage.offset as u64, damage.expected, damage.got)
    })
}

/// The error of a store whose first segment can't be made.
fn explain_first(error: Error, path: &Path, options: &Options) -> Error {
    let (path, bytes) = (path.display(), options.segment_bytes());
    match error.errno() {
        Some(errno @ (libc::ENOSPC | libc::EDQUOT)) => Error::system(
            errno,
            format!("the disk is full: {path} has no room for a log segment of {bytes} bytes"),
        ),
        _ => error.context(format!("making the log in {path}")),
    }
}

/// The ring for chains, where chains are asked for and callers have no ring: one ring, passed from leader to leader.
/// Where io_uring is demanded for a store that needs no ring, whether it could be had.
fn chain_ring(io: &Io, lock: &Lock, options: &Options) -> Result<Option<(Passed, Kind)>> {
    let linked = options.sync == Wish::Linked;
    if io.kind() != Kind::Inline || !(linked || options.driver == DriverChoice::Uring) {
        return Ok(None);
    }
    let driver = match options.driver {
        DriverChoice::Auto => Choice::Auto,
        DriverChoice::Uring => Choice::Uring,
        DriverChoice::Posix => Choice::Posix,
    };
    let flags_wanted = SetupFlags::COOP_TASKRUN;
    let asked = RingOptions { driver, flags_wanted, entries: CHAIN_ENTRIES, ..RingOptions::default() };
    let (driver, granted) = open_driver(&asked)?;
    if !linked {
        return Ok(None);
    }
    let mut ring = Passed::new(driver);
    ring.with(|io| lock.register_for_life(io))??;
    Ok(Some((ring, granted.kind)))
}

fn driver_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Uring => "uring",
        Kind::Posix => "posix",
        Kind::Inline => "inline",
        Kind::Sim => "sim",
    }
}

fn report(path: &Path, found: &RecoveryStats) {
    let path = path.display();
    log::info!("{path}: recovered {} batches, {} bytes", found.records, found.bytes);
    if found.unproven_records + found.torn_bytes + found.possible_damage > 0 {
        log::warn!(
            "{path}: the log was not closed: {} batches were made durable anew, {} torn bytes dropped, {} ends can't \
             be told from damage",
            found.unproven_records,
            found.torn_bytes,
            found.possible_damage
        );
    }
}

/// All entries of a batch, with their memory.
fn prepare(batch: &WriteBatch) -> Result<Vec<Prepared>> {
    let mut entries = Vec::new();
    entries
        .try_reserve_exact(batch.count() as usize)
        .map_err(|_| Error::system(libc::ENOMEM, format!("{} memtable entries", batch.count())))?;
    let decoded = batch::decode(batch.payload(), batch.count(), |edit| {
        entries.push(Prepared::new(&edit)?);
        Ok(())
    })?;
    decoded.map_err(|damage| Error::Internal(format!("a batch was damaged in memory: {damage:?}").into()))?;
    Ok(entries)
}
