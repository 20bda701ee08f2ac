//! Constants and structs of the log on its own, and how they become the Rust log's.

use std::ffi::{c_int, c_void};

use super::args::Prefixed;
use super::engine::{IOE_DRIVER_AUTO, IOE_SYNC_AUTO};
use super::ring_types::ring_t;
use crate::wal::log::Options;
use crate::wal::recover::RecoveryStats;

/// A write-ahead log.
#[allow(non_camel_case_types, reason = "C's name")]
pub struct wal_t {
    _private: (),
}

/// What a log is opened with; see wal_options_init.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
#[allow(non_camel_case_types, reason = "C's name")]
pub struct wal_options_t {
    /// sizeof(wal_options_t).
    pub size: usize,
    /// The ring to stand on, which then can't be closed before the log; NULL: one of its own.
    pub ring: *mut ring_t,
    /// IOE_DRIVER_... of its own ring; without effect on a shared one.
    pub driver: c_int,
    /// Length of a segment file; a larger record gets a segment of its own size. 64 MiB.
    pub segment_bytes: usize,
    /// A checkpoint is written after so many bytes; 1: with every append; 0: never, which loses nothing. 1 MiB.
    pub checkpoint_every: usize,
    /// IOE_SYNC_...; IOE_SYNC_AUTO is IOE_SYNC_LINKED here, which never blocks the owner.
    pub sync: c_int,
    /// The log is sealed after so many idle milliseconds. 10.
    pub seal_after_ms: u32,
    /// Writes go past the page cache. 1.
    pub direct: c_int,
}

/// How an append ended. Frozen.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
#[allow(non_camel_case_types, reason = "C's name")]
pub struct wal_event_t {
    /// The append's.
    pub user_data: u64,
    /// The record's sequence.
    pub sequence: u64,
    /// 0: the record is durable; -errno (-ENOSPC): refused, nothing of it is in the log; IOE_E_INDETERMINATE: it may
    /// or may not be durable; IOE_E_POISONED: an earlier one failed, this one was never written.
    pub result: i32,
    /// 0.
    pub reserved: i32,
    /// 0.
    pub reserved2: u64,
}

/// How a log is replayed; see wal_recover_options_init.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
#[allow(non_camel_case_types, reason = "C's name")]
pub struct wal_recover_options_t {
    /// sizeof(wal_recover_options_t).
    pub size: usize,
    /// Goes past damage instead of refusing: what is delivered may lack records. 0.
    pub salvage: c_int,
}

/// What a replay found; see wal_recover.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
#[allow(non_camel_case_types, reason = "C's name")]
pub struct wal_recovery_t {
    /// sizeof(wal_recovery_t), set by the caller.
    pub size: usize,
    /// Records delivered.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The first sequence delivered; 0 when there was none.
    pub first_sequence: u64,
    /// The last sequence delivered; 0 when there was none.
    pub last_sequence: u64,
    /// Segments read.
    pub segments: u64,
    /// The highest sequence that the log proves durable.
    pub proven_through: u64,
    /// Records behind that: whole, but perhaps not acknowledged.
    pub unproven_records: u64,
    /// Their bytes.
    pub unproven_bytes: u64,
    /// Bytes dropped at the end: a group that never was whole.
    pub torn_bytes: u64,
    /// 1 when bytes were dropped at the end.
    pub torn: c_int,
    /// 1 when the log ended with a seal: nothing was under way.
    pub sealed: c_int,
    /// Ends that a crash can have left, but damage behind the last proof too: the two can't be told apart.
    pub possible_damage: u64,
    /// Damaged places that a salvage went past.
    pub damages: u64,
    /// Bytes it went past.
    pub damaged_bytes: u64,
}

/// Receives the records of a replay in order; `data` is valid during the callback. Not 0 stops the replay. It must not
/// call the library, throw, or longjmp.
#[allow(non_camel_case_types, reason = "C's name")]
pub type wal_replay_fn = Option<
    unsafe extern "C" fn(user_data: *mut c_void, sequence: u64, data: *const c_void, len: usize) -> c_int,
>;

// SAFETY: `repr(C)`, `size` first, integers and a pointer only.
unsafe impl Prefixed for wal_options_t {
    fn defaults() -> Self {
        let o = Options::default();
        wal_options_t {
            size: size_of::<Self>(),
            ring: std::ptr::null_mut(),
            driver: IOE_DRIVER_AUTO,
            segment_bytes: o.segment_bytes as usize,
            checkpoint_every: o.checkpoint_every as usize,
            sync: IOE_SYNC_AUTO,
            seal_after_ms: (o.seal_after_us / 1000) as u32,
            direct: c_int::from(o.direct),
        }
    }
}

// SAFETY: `repr(C)`, `size` first, integers only.
unsafe impl Prefixed for wal_recover_options_t {
    fn defaults() -> Self {
        wal_recover_options_t { size: size_of::<Self>(), salvage: 0 }
    }
}

// SAFETY: `repr(C)`, `size` first, integers only.
unsafe impl Prefixed for wal_recovery_t {
    fn defaults() -> Self {
        wal_recovery_t::of(&RecoveryStats::default())
    }
}

impl wal_recovery_t {
    pub(super) fn of(stats: &RecoveryStats) -> Self {
        wal_recovery_t {
            size: size_of::<Self>(),
            records: stats.records,
            bytes: stats.bytes,
            first_sequence: stats.first_sequence,
            last_sequence: stats.last_sequence,
            segments: stats.segments,
            proven_through: stats.proven_through,
            unproven_records: stats.unproven_records,
            unproven_bytes: stats.unproven_bytes,
            torn_bytes: stats.torn_bytes,
            torn: c_int::from(stats.torn_bytes != 0),
            sealed: c_int::from(stats.sealed),
            possible_damage: stats.possible_damage,
            damages: stats.damages,
            damaged_bytes: stats.damaged_bytes,
        }
    }
}
