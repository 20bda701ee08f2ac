//! The file of a segment: its header, its checkpoint slots, its link, and how one is made ready.
//!
//! Invariants: a segment's header is durable before its first record is written, and is never written again in that
//! use of the file; by then the file has its whole length in blocks that were written once, so that no append
//! changes the file's metadata. A number names one use of a file: it is never given twice.
//! Why zeros are written and not only allocated: writing into allocated but unwritten extents costs a journal commit
//! at every sync (210–300 µs against 140–160 µs). Why in small pieces: one large write delays the log's own.
#![deny(clippy::indexing_slicing, clippy::cast_possible_truncation)]

use crate::base::checksum::Checksum;
use crate::base::codec::{Reader, Writer};
use crate::base::defect::{self, Defect};
use crate::base::memory::Buf;
use crate::base::{Error, Result};
use crate::ring::fs::How;
use crate::ring::io::Io;
use crate::ring::op::File;

use super::frame::{self, Header, Kind, Place};

/// The unit of every position of a group, in bytes.
pub const BLOCK: u64 = BLOCK_LEN as u64;
/// [`BLOCK`] as a length in memory.
pub const BLOCK_LEN: usize = 4096;
/// Where the first group of a segment lies.
pub const FIRST_GROUP: u64 = 3 * BLOCK;
/// The shortest segment: header, checkpoints, one group of one block.
pub const MIN_LEN: u64 = 4 * BLOCK;
/// Bytes of a link's payload.
pub const LINK_LEN: usize = 48;
/// Bytes of a link's whole frame.
pub const LINK_FRAME_LEN: usize = (frame::HEADER_LEN + LINK_LEN + 4).next_multiple_of(frame::ALIGN);

const MAGIC: [u8; 8] = *b"\x89IOELOG\n";
const VERSION: u32 = 1;
const FIXED_LEN: usize = 64;
const CHECKSUM_AT: usize = 60;
const CHECKPOINT_MAGIC: u32 = 0xC4EC_4B01;
/// Zeros ahead are written in pieces of this many bytes.
const ZERO_PIECE: u64 = 128 * 1024;

/// The name of a segment's file.
pub fn file_name(log_number: u64) -> String {
    format!("{log_number}.wal")
}

/// The log number of a segment's file; `None` for a name that [`file_name`] never makes.
pub fn parse_name(name: &str) -> Option<u64> {
    let number: u64 = name.strip_suffix(".wal")?.parse().ok()?;
    (number > 0 && file_name(number) == name).then_some(number)
}

/// A segment that is ready for records: its header is durable.
#[derive(Debug, Clone)]
pub struct Segment {
    /// Its file, open for writing.
    pub file: File,
    /// Its log number.
    pub number: u64,
    /// The epoch of this use of the file.
    pub epoch: u64,
    /// Its length in bytes, a multiple of [`BLOCK`].
    pub len: u64,
    /// Whether its file is open for direct I/O: asked for, and the file system can.
    pub direct: bool,
}

/// The fields of a segment's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The log number.
    pub number: u64,
    /// The epoch of this use of the file.
    pub epoch: u64,
    /// The segment's length in bytes.
    pub len: u64,
}

/// Why a file has no header that counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeaderError {
    /// Not the header of a segment, or a damaged one.
    Bad {
        /// Where in the file.
        offset: u64,
        /// What should be there.
        expected: String,
        /// What is there.
        got: String,
    },
    /// The sound header of another log number: a file that was renamed to be used again.
    Foreign {
        /// That number.
        number: u64,
    },
    /// A header of a version, or with a feature, that this library doesn't know.
    Version(String),
}

impl SegmentHeader {
    /// The header's bytes; the rest of its block is zero.
    pub fn encode(&self) -> [u8; FIXED_LEN] {
        let mut bytes = [0; FIXED_LEN];
        let mut out = Writer::new(&mut bytes);
        out.bytes(&MAGIC).u32(VERSION).u32(0).u64(self.number).u64(self.epoch).u64(self.len);
        seal_fixed(&mut bytes, self.number);
        bytes
    }

    /// Reads the header of the file that is named by `number`.
    ///
    /// # Errors
    /// Why it doesn't count.
    pub fn decode(bytes: &[u8], number: u64) -> Result<SegmentHeader, HeaderError> {
        let bad = |offset, expected: String, got: String| HeaderError::Bad { offset, expected, got };
        let short = || bad(0, format!("{FIXED_LEN} bytes"), format!("{}", bytes.len()));
        let head = bytes.first_chunk::<FIXED_LEN>().ok_or_else(short)?;
        let mut fields = Reader::new(head);
        let magic = fields.bytes(8).ok_or_else(short)?;
        if magic != MAGIC {
            return Err(bad(0, format!("magic {MAGIC:02x?}"), format!("{magic:02x?}")));
        }
        let raw = RawHeader::read(&mut fields).ok_or_else(short)?;
        let (expected, got) = (fixed_sum(head, number), stored_sum(head));
        // The version is looked at first: a later one may check its header in another way.
        if raw.version != VERSION {
            let text = format!("format version {} (this library knows {VERSION})", raw.version);
            return Err(HeaderError::Version(text));
        }
        if expected != got {
            let foreign = raw.header.number != number && fixed_sum(head, raw.header.number) == got;
            return Err(match foreign {
                true => HeaderError::Foreign { number: raw.header.number },
                false => bad(
                    CHECKSUM_AT as u64,
                    format!("header checksum {expected:#010x}"),
                    format!("{got:#010x}"),
                ),
            });
        }
        if raw.incompatible != 0 {
            return Err(HeaderError::Version(format!("unknown features {:#x}", raw.incompatible)));
        }
        let zeros = bytes.get(FIXED_LEN..).unwrap_or_default().iter().all(|byte| *byte == 0);
        let SegmentHeader { epoch, len, number: stated } = raw.header;
        let sound = zeros
            && raw.zero == 0
            && epoch != 0
            && stated == number
            && len.is_multiple_of(BLOCK)
            && len >= MIN_LEN;
        let text =
            || format!("number {stated}, epoch {epoch:#x}, length {len}, reserved bytes zero: {zeros}");
        if sound { Ok(raw.header) } else { Err(bad(16, "fields in their ranges".to_owned(), text())) }
    }
}

struct RawHeader {
    version: u32,
    incompatible: u32,
    header: SegmentHeader,
    zero: u64,
}

impl RawHeader {
    fn read(fields: &mut Reader<'_>) -> Option<RawHeader> {
        let (version, incompatible) = (fields.u32()?, fields.u32()?);
        let header = SegmentHeader { number: fields.u64()?, epoch: fields.u64()?, len: fields.u64()? };
        let _compatible = fields.u32()?;
        let zero = u64::from(fields.u32()?) | fields.u64()? | u64::from(fields.u32()?);
        Some(RawHeader { version, incompatible, header, zero })
    }
}

fn fixed_sum(bytes: &[u8; FIXED_LEN], place: u64) -> u32 {
    let (covered, _) = bytes.split_at(CHECKSUM_AT);
    Checksum::at(&[place]).add(covered).value()
}

fn stored_sum(bytes: &[u8; FIXED_LEN]) -> u32 {
    bytes.last_chunk::<4>().map_or(0, |b| u32::from_le_bytes(*b))
}

fn seal_fixed(bytes: &mut [u8; FIXED_LEN], place: u64) {
    let sum = fixed_sum(bytes, place);
    if let Some(stored) = bytes.last_chunk_mut::<4>() {
        *stored = sum.to_le_bytes();
    }
}

/// A lower bound of what is durable, kept in one of two slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checkpoint {
    /// The segment's log number.
    pub log_number: u64,
    /// The epoch of this use of the file.
    pub epoch: u64,
    /// From 1, one more at each checkpoint of this segment.
    pub counter: u64,
    /// The highest durable sequence.
    pub durable_through: u64,
    /// Every byte of the segment before it is durable.
    pub durable_offset: u64,
}

impl Checkpoint {
    /// Which slot it goes to: 1 or 2, in turn.
    pub fn slot(&self) -> u32 {
        if self.counter.is_multiple_of(2) { 2 } else { 1 }
    }

    /// Where its slot lies in the file.
    pub fn offset(&self) -> u64 {
        u64::from(self.slot()) * BLOCK
    }

    /// The checkpoint's bytes; the rest of its block is zero.
    pub fn encode(&self) -> [u8; FIXED_LEN] {
        let mut bytes = [0; FIXED_LEN];
        let mut out = Writer::new(&mut bytes);
        out.u32(CHECKPOINT_MAGIC).u32(self.slot()).u64(self.log_number).u64(self.epoch);
        out.u64(self.counter).u64(self.durable_through).u64(self.durable_offset);
        seal_fixed(&mut bytes, self.offset());
        bytes
    }

    /// Reads a slot of a segment; `None` when it holds nothing that counts there.
    pub fn decode(bytes: &[u8], slot: u32, number: u64, epoch: u64) -> Option<Checkpoint> {
        let head = bytes.first_chunk::<FIXED_LEN>()?;
        let mut fields = Reader::new(head);
        let (magic, stated) = (fields.u32()?, fields.u32()?);
        let checkpoint = Checkpoint {
            log_number: fields.u64()?,
            epoch: fields.u64()?,
            counter: fields.u64()?,
            durable_through: fields.u64()?,
            durable_offset: fields.u64()?,
        };
        let zero = fields.u64()? | u64::from(fields.u32()?);
        let sound = magic == CHECKPOINT_MAGIC
            && stored_sum(head) == fixed_sum(head, u64::from(slot) * BLOCK)
            && (stated, zero) == (slot, 0)
            && (checkpoint.log_number, checkpoint.epoch) == (number, epoch);
        sound.then_some(checkpoint)
    }
}

/// The payload of a segment's first frame: what came before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkPayload {
    /// The predecessor's log number; 0 when there is none.
    pub predecessor: u64,
    /// The predecessor's epoch.
    pub predecessor_epoch: u64,
    /// Where the predecessor ends: behind its last counting group, a multiple of [`BLOCK`].
    pub predecessor_end: u64,
    /// The predecessor's last sequence.
    pub last_sequence: u64,
    /// The header checksum of the predecessor's last counting frame.
    pub last_checksum: u32,
    /// The lowest log number that is still needed.
    pub first_live: u64,
}

impl LinkPayload {
    /// The payload's bytes.
    pub fn encode(&self) -> [u8; LINK_LEN] {
        let mut bytes = [0; LINK_LEN];
        let mut out = Writer::new(&mut bytes);
        out.u64(self.predecessor).u64(self.predecessor_epoch).u64(self.predecessor_end);
        out.u64(self.last_sequence).u32(self.last_checksum).u32(0).u64(self.first_live);
        bytes
    }

    /// Reads the payload; `None` when it isn't one.
    pub fn decode(bytes: &[u8]) -> Option<LinkPayload> {
        let mut fields = Reader::new(bytes);
        let (predecessor, predecessor_epoch, predecessor_end) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let (last_sequence, last_checksum, zero) = (fields.u64()?, fields.u32()?, fields.u32()?);
        let first_live = fields.u64()?;
        let link = LinkPayload {
            predecessor,
            predecessor_epoch,
            predecessor_end,
            last_sequence,
            last_checksum,
            first_live,
        };
        let sound = zero == 0
            && fields.remaining() == 0
            && predecessor_end.is_multiple_of(BLOCK)
            && (predecessor == 0 || predecessor_end > FIRST_GROUP);
        sound.then_some(link)
    }

    /// Writes the link's whole frame at the front of `out`, which is for [`FIRST_GROUP`]. Returns its header
    /// checksum.
    ///
    /// # Panics
    /// When `out` is shorter than [`LINK_FRAME_LEN`].
    pub fn write_frame(
        &self,
        out: &mut [u8],
        number: u64,
        epoch: u64,
        sequence: u64,
        durable_through: u64,
    ) -> u32 {
        let place = Place { log_number: number, epoch, offset: FIRST_GROUP };
        let (frame, _) = out.split_at_mut(LINK_FRAME_LEN);
        frame::write_payload(frame, &place, &[&self.encode()]);
        let header = Header {
            kind: Kind::Link,
            payload_len: 48,
            count: 0,
            place,
            sequence,
            durable_through,
            previous: 0,
        };
        frame::write_header(frame, &header)
    }
}

/// Opens a segment's file, for direct I/O if that is asked for and the file system can. Tells whether it is.
///
/// # Errors
/// What the system says, with the name.
pub fn open_file(io: &Io, dir: &File, name: &str, how: How) -> Result<(File, bool)> {
    match io.open_at(dir, name, how) {
        // A file system without direct I/O says so when the file is opened.
        Err(e) if how.direct && e.errno() == Some(libc::EINVAL) => {
            let file = io.open_at(dir, name, How { direct: false, ..how })?;
            Ok((file, false))
        }
        opened => Ok((opened?, how.direct)),
    }
}

/// A block that begins with `bytes`; the rest is zero.
///
/// # Errors
/// When there is no memory.
pub fn block_of(bytes: &[u8]) -> Result<Buf> {
    let mut block = Buf::zeroed(BLOCK_LEN)?;
    Writer::new(block.as_mut_slice()).bytes(bytes);
    Ok(block)
}

/// Makes a segment ready for records: a new file with zeros ahead, or one that is used again (renamed from the
/// number `recycle`, whose records nobody needs any more). Returns once its name and its header are durable.
///
/// # Errors
/// [`Error::Invalid`] for a length that isn't a whole number of blocks, at least four; what the system says. A new
/// file that couldn't be filled (the disk is full) is removed again.
pub async fn prepare(
    io: &Io,
    dir: &File,
    number: u64,
    len: u64,
    recycle: Option<u64>,
    direct: bool,
) -> Result<Segment> {
    if !len.is_multiple_of(BLOCK) || len < MIN_LEN {
        return Err(Error::invalid(format!(
            "a log segment of {len} bytes; it takes whole blocks of {BLOCK}, four or more"
        )));
    }
    let name = file_name(number);
    if let Some(old) = recycle {
        io.rename(dir, &file_name(old), &name)?;
    }
    let how = How { write: true, create: recycle.is_none(), exclusive: recycle.is_none(), direct };
    let (file, direct) = open_file(io, dir, &name, how)?;
    if let Err(e) = fill(io, &file, len).await {
        if recycle.is_none() {
            // Best effort: what is left of it is an unused file, which the next recovery finds and uses.
            let _ = io.unlink(dir, &name);
        }
        return Err(e.context(&name));
    }
    if !defect::on(Defect::SkipDirectorySync) {
        io.sync(dir, false).await.map_err(|e| e.context("the log's directory"))?;
    }
    let epoch = io.random().max(1);
    let header = block_of(&SegmentHeader { number, epoch, len }.encode())?;
    io.write(&file, header, 0, false).await.1.map_err(|e| e.context(&name))?;
    io.sync(&file, true).await.map_err(|e| e.context(&name))?;
    Ok(Segment { file, number, epoch, len, direct })
}

/// Gives the file its whole length in written blocks, durably.
async fn fill(io: &Io, file: &File, len: u64) -> Result<()> {
    let had = io.meta(file)?.len;
    if had > len {
        io.set_len(file, len)?;
    }
    // A length that is no whole number of blocks was cut by somebody; its last block is written again.
    let mut at = had.min(len) / BLOCK * BLOCK;
    if at == len && had == len {
        return Ok(());
    }
    let mut piece = Buf::zeroed(usize::try_from(ZERO_PIECE.min(len)).unwrap_or_default())?;
    while at < len {
        piece.truncate(usize::try_from(len - at).unwrap_or(usize::MAX));
        let written;
        (piece, written) = io.write(file, piece, at, false).await;
        at += written? as u64;
    }
    io.sync(file, false).await
}

/// Removes a segment's file. The caller makes the removal durable, if it must be, by a sync of the directory.
///
/// # Errors
/// What the system says, with the name.
pub fn remove(io: &Io, dir: &File, number: u64) -> Result<()> {
    io.unlink(dir, &file_name(number))
}

#[cfg(test)]
#[path = "segment_test.rs"]
mod tests;
