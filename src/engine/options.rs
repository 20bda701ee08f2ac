//! What a store is opened with.
//!
//! The fields are those of the C API's `engine_options_t`, in its units. Those about tables are kept for the time when
//! there are tables, and have no effect before.

use super::commit::Level;
use crate::base::{Error, Result};
use crate::wal::sync::Wish;

/// By what the store's files are read and written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DriverChoice {
    /// io_uring where it can be had, else the POSIX driver.
    #[default]
    Auto,
    /// io_uring or nothing.
    Uring,
    /// Threads and system calls.
    Posix,
}

/// How table blocks are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// LZ4.
    Lz4,
    /// Zstandard.
    Zstd,
}

/// See the module.
#[derive(Debug, Clone)]
pub struct Options {
    /// By what the files are read and written.
    pub driver: DriverChoice,
    /// How a write is made durable.
    pub sync: Wish,
    /// The level of put and delete.
    pub durability: Level,
    /// Size of the memtable, in bytes; sets the size of log segments too.
    pub memtable_bytes: u64,
    /// Size of the cache of table blocks; no effect until there are tables.
    pub block_cache_bytes: u64,
    /// Ceiling of the store's memory in bytes; 0: none.
    pub memory_limit_bytes: u64,
    /// Log bytes beyond which the memtable is flushed; 0: four memtables. No effect until there are tables.
    pub log_bytes_max: u64,
    /// Size of table blocks on disk; no effect until there are tables.
    pub block_bytes: u32,
    /// Bits per key of the tables' filters; no effect until there are tables.
    pub bloom_bits_per_key: u32,
    /// Compression of table blocks; no effect until there are tables.
    pub compression: Compression,
    /// Tables are read past the page cache; no effect until there are tables.
    pub direct_reads: bool,
    /// Opened for reading only.
    pub read_only: bool,
    /// A store is made where there is none.
    pub create_if_missing: bool,
    /// Refused where there is a store already.
    pub error_if_exists: bool,
    /// A group of batched puts is due at so many entries,
    pub batch_max_entries: u32,
    /// at so many bytes,
    pub batch_max_bytes: u64,
    /// and after so many milliseconds.
    pub batch_max_delay_ms: u32,
    /// The log is sealed after so many milliseconds without a write.
    pub seal_after_ms: u32,
    /// Length of a log segment; 0: by the memtable. For tests that want many small ones.
    pub segment_bytes: u64,
    /// A checkpoint is written after so many bytes of log; 1: after every group, 0: never. Frames carry the same
    /// knowledge, so it is seldom needed.
    pub checkpoint_every: u64,
    /// Threads for compaction; no effect until there are tables.
    pub background_threads: u32,
    /// NUMA node of the store's memory; -1: any. No effect until there are tables.
    pub numa_node: i32,
}

/// Size of a log segment when the memtable is large; smaller memtables make smaller segments.
const SEGMENT_MAX: u64 = 64 << 20;
/// The smallest segment worth its header and its link.
const SEGMENT_MIN: u64 = 256 << 10;
/// A block of the log.
const BLOCK: u64 = 4096;

impl Default for Options {
    fn default() -> Self {
        Options {
            driver: DriverChoice::Auto,
            sync: Wish::Auto,
            durability: Level::Durable,
            memtable_bytes: 64 << 20,
            block_cache_bytes: 64 << 20,
            memory_limit_bytes: 0,
            log_bytes_max: 0,
            block_bytes: 4096,
            bloom_bits_per_key: 10,
            compression: Compression::None,
            direct_reads: false,
            read_only: false,
            create_if_missing: true,
            error_if_exists: false,
            batch_max_entries: 128,
            batch_max_bytes: 256 << 10,
            batch_max_delay_ms: 10,
            seal_after_ms: 10,
            segment_bytes: 0,
            checkpoint_every: 4 << 20,
            background_threads: 1,
            numa_node: -1,
        }
    }
}

impl Options {
    /// Whether a store can be opened so.
    ///
    /// # Errors
    /// [`Error::Unsupported`] or [`Error::Invalid`], with the reason.
    pub fn check(&self) -> Result<()> {
        if self.read_only {
            let text = "read_only needs the manifest, which this version doesn't write yet: \
                        opening a log makes its tail durable, which is a write";
            return Err(Error::Unsupported(text.into()));
        }
        if self.compression != Compression::None {
            return Err(Error::Unsupported(
                "compression is of tables, which this version doesn't write yet".into(),
            ));
        }
        if self.memtable_bytes < SEGMENT_MIN {
            let text = format!("memtable_bytes {}: at least {SEGMENT_MIN} are needed", self.memtable_bytes);
            return Err(Error::invalid(text));
        }
        if !self.segment_bytes.is_multiple_of(BLOCK) {
            return Err(Error::invalid(format!(
                "segment_bytes {}: not a multiple of {BLOCK}",
                self.segment_bytes
            )));
        }
        if self.batch_max_entries == 0 || self.batch_max_bytes == 0 {
            return Err(Error::invalid("batch_max_entries and batch_max_bytes are at least 1"));
        }
        Ok(())
    }

    /// Length of the log's segments: a quarter of the memtable, within bounds, in whole blocks.
    pub fn segment_bytes(&self) -> u64 {
        if self.segment_bytes > 0 {
            return self.segment_bytes;
        }
        (self.memtable_bytes / 4).clamp(SEGMENT_MIN, SEGMENT_MAX) / BLOCK * BLOCK
    }

    /// Whether the log goes past the page cache: a weaker default level gains from the cache.
    pub fn direct_log(&self) -> bool {
        self.durability == Level::Durable
    }

    /// Bytes that views may hold: a quarter of the memory ceiling.
    pub fn pinned_max(&self) -> u64 {
        if self.memory_limit_bytes == 0 { u64::MAX } else { self.memory_limit_bytes / 4 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_can_be_opened() {
        let options = Options::default();
        assert!(options.check().is_ok());
        assert_eq!(options.segment_bytes(), 16 << 20);
        assert!(options.direct_log());
    }

    #[test]
    fn what_can_not_be_says_why() {
        let refused = |change: fn(&mut Options)| {
            let mut options = Options::default();
            change(&mut options);
            options.check().unwrap_err()
        };
        assert!(matches!(refused(|o| o.read_only = true), Error::Unsupported(t) if t.contains("manifest")));
        assert!(matches!(refused(|o| o.compression = Compression::Lz4), Error::Unsupported(_)));
        assert!(matches!(refused(|o| o.memtable_bytes = 1), Error::Invalid(_)));
        assert!(matches!(refused(|o| o.batch_max_entries = 0), Error::Invalid(_)));
    }

    #[test]
    fn segments_are_whole_blocks_within_bounds() {
        for memtable_bytes in [SEGMENT_MIN, 5_000_001, 1 << 30, u64::MAX] {
            let bytes = Options { memtable_bytes, ..Options::default() }.segment_bytes();
            assert!(bytes.is_multiple_of(BLOCK) && (SEGMENT_MIN..=SEGMENT_MAX).contains(&bytes), "{bytes}");
        }
    }
}
