//! Recovery: finds what of a log counts, hands it on in order, and leaves a log that can be written to.
//!
//! Invariants:
//!
//! - A batch is handed on whole or not at all, in the order of sequences, and only when every byte of it was checked.
//! - Whatever a *proof* says was durable is there, or recovery refuses and says where it isn't. Proofs are a valid
//!   frame's durable-through, a checkpoint, a seal, and the link of a successor.
//! - What no proof covers is made durable anew (copied to a new segment, whose link is written last) before
//!   recovery returns, because pages can be readable that are not on the device. Nothing is ever appended to a
//!   segment whose end is torn.
//! - A crash at any point of recovery leaves a log that recovers to the same records: the segments that the new
//!   link replaces are touched only after the link is durable.
//!
//! What was rejected: cutting the log at the first bad frame whatever comes after it (it turns damage into silent
//! loss), and repairing in place (a torn repair would lose what was sound).

use crate::base::Result;
use crate::ring::io::Io;
use crate::ring::op::File;

use super::segment::Segment;

/// What recovery may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Leaves the log ready for appending; unproven records are made durable anew.
    Write {
        /// Open segments for direct I/O where the file system can.
        direct: bool,
        /// The length of a new segment, if one is needed.
        segment_bytes: u64,
    },
    /// Hands records on and changes nothing.
    ReadOnly,
    /// As [`Mode::ReadOnly`], but goes on behind damage. What was lost is in the statistics.
    Salvage,
}

/// A whole batch, its frames joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its first sequence.
    pub sequence: u64,
    /// How many sequences it takes.
    pub count: u32,
    /// Its payload.
    pub payload: &'a [u8],
}

/// A segment that holds records of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Its log number.
    pub number: u64,
    /// The epoch of this use of its file.
    pub epoch: u64,
    /// Its length in bytes.
    pub len: u64,
    /// Behind its last counting group.
    pub end: u64,
    /// The first sequence that can be in it.
    pub first_sequence: u64,
    /// The last sequence before its end; below `first_sequence` when it holds no records.
    pub last_sequence: u64,
}

/// Where appending goes on: everything before it is durable.
#[derive(Debug, Clone)]
pub struct Tail {
    /// The segment, open for writing.
    pub segment: Segment,
    /// Where its next group goes, a multiple of the block.
    pub offset: u64,
    /// The header checksum of its last frame: the next frame's `previous`.
    pub previous: u32,
    /// The highest counter of its checkpoints; 0 when it has none.
    pub checkpoint_counter: u64,
}

/// What was found, in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecoveryStats {
    /// Batches handed on.
    pub records: u64,
    /// Bytes of their payloads.
    pub bytes: u64,
    /// The first sequence handed on; 0 when there was none.
    pub first_sequence: u64,
    /// The last sequence handed on; 0 when there was none.
    pub last_sequence: u64,
    /// Segments that were read.
    pub segments: u64,
    /// The highest sequence that a proof says is durable.
    pub proven_through: u64,
    /// Batches behind that.
    pub unproven_records: u64,
    /// Bytes of their payloads.
    pub unproven_bytes: u64,
    /// Batches that were made durable anew.
    pub copied_records: u64,
    /// Bytes dropped at the end: parts of a group that never was whole.
    pub torn_bytes: u64,
    /// The log ended with a seal: nothing was under way.
    pub sealed: bool,
    /// Ends that a crash can have left, but damage behind the last proof too: the two can't be told apart.
    pub possible_damage: u64,
    /// Damaged places that salvage went past.
    pub damages: u64,
    /// Bytes that salvage went past.
    pub damaged_bytes: u64,
}

/// What recovery found, and left.
#[derive(Debug)]
pub struct Recovered {
    /// The next sequence to be given.
    pub next_sequence: u64,
    /// Where to append. `None` when the log is empty (the first segment is yet to be made, with a link that has no
    /// predecessor), and after a recovery that changes nothing.
    pub tail: Option<Tail>,
    /// The segments that make up the log, oldest first, the tail's included.
    pub live: Vec<SegmentInfo>,
    /// A segment that is ready and was never written to.
    pub spare: Option<Segment>,
    /// Files that hold nothing that counts: they may be recycled or removed.
    pub unused: Vec<u64>,
    /// The highest number of any file: the next one is higher.
    pub highest_number: u64,
    /// The lowest log number that is still needed.
    pub first_live: u64,
    /// What was found.
    pub stats: RecoveryStats,
}

/// Receives each batch in order; an error ends the recovery with that error.
pub type Deliver<'a> = dyn FnMut(Record<'_>) -> Result<()> + 'a;

/// Recovers the log in `dir`. The caller holds the log's lock.
///
/// # Errors
/// [`Error::Corrupt`](crate::base::Error::Corrupt) with the place; [`Error::Version`](crate::base::Error::Version);
/// what the system says, with file and offset; the error of `deliver`.
pub async fn recover(_io: &Io, _dir: &File, _mode: Mode, _deliver: &mut Deliver<'_>) -> Result<Recovered> {
    Err(crate::base::Error::Unsupported("recovery is being written".into()))
}
