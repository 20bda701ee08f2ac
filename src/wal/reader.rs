//! Reads a segment: a window over its file, and the walk from frame to frame.
//!
//! Invariants: no more than one piece is read at a time, however long a file says it is; a length is compared with
//! what is left before it is used; a frame is given out only when header, payload, padding, place, predecessor and
//! alignment are right. A read error is an error with file and offset, never an end.
//! Why direct I/O: after a crash or a failed sync the page cache can show what is not on the device. What was
//! rejected: mapping the file, where a read error is a signal.
#![deny(clippy::indexing_slicing, clippy::cast_possible_truncation)]

use crate::base::defect::{self, Defect};
use crate::base::memory::Buf;
use crate::base::{Error, Result};
use crate::ring::fs::How;
use crate::ring::io::Io;
use crate::ring::op::File;

use super::frame::{self, FrameError, HEADER_LEN, Header, MAX_FRAME, Place};
use super::segment::{self, BLOCK, BLOCK_LEN, FIRST_GROUP};

/// Bytes read at a time.
pub const PIECE: usize = 1 << 20;
const _: () = assert!(PIECE >= MAX_FRAME + 2 * BLOCK_LEN, "any frame lies in one piece, wherever it starts");

/// A file of the log, seen through a window of one piece.
pub struct Source {
    io: Io,
    file: File,
    name: String,
    len: u64,
    window: Buf,
    start: u64,
    valid: usize,
}

impl Source {
    /// Opens a segment's file for reading.
    ///
    /// # Errors
    /// What the system says, with the name; [`Error::Invalid`] when it is no plain file.
    pub fn open(io: &Io, dir: &File, number: u64) -> Result<Source> {
        let name = segment::file_name(number);
        let (file, _) = segment::open_file(io, dir, &name, How { direct: true, ..How::default() })?;
        let meta = io.meta(&file).map_err(|e| e.context(&name))?;
        if !meta.regular {
            return Err(Error::invalid(format!("{name} is no plain file; this is not a log's directory")));
        }
        let piece = usize::try_from(meta.len).unwrap_or(PIECE).clamp(1, PIECE);
        let window = Buf::zeroed(piece.next_multiple_of(BLOCK_LEN))?;
        Ok(Source { io: io.clone(), file, name, len: meta.len, window, start: 0, valid: 0 })
    }

    /// The file's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file's length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the file has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes from `offset` on: `len` of them, or fewer where the file ends.
    ///
    /// # Errors
    /// What the system says, with name and offset.
    ///
    /// # Panics
    /// When more is asked for than any frame can need: the library's own lengths, checked before.
    pub async fn at(&mut self, offset: u64, len: usize) -> Result<&[u8]> {
        assert!(len <= PIECE - BLOCK_LEN, "a piece holds what is asked for");
        let end = offset.saturating_add(len as u64).min(self.len);
        let held = self.start..=self.start + self.valid as u64;
        if !(held.contains(&offset) && held.contains(&end)) && offset < end {
            self.fill(offset / BLOCK * BLOCK).await?;
        }
        let from = usize::try_from(offset.saturating_sub(self.start)).unwrap_or(usize::MAX);
        let to = usize::try_from(end.saturating_sub(self.start)).unwrap_or(0).min(self.valid);
        Ok(self.window.as_slice().get(from..to).unwrap_or_default())
    }

    async fn fill(&mut self, start: u64) -> Result<()> {
        let window = std::mem::replace(&mut self.window, Buf::empty());
        let (window, read) = self.io.read(&self.file, window, start).await;
        self.window = window;
        self.valid = 0;
        let read = read.map_err(|e| e.context(format!("{} at offset {start}", self.name)))?;
        self.start = start;
        self.valid = read.min(usize::try_from(self.len - start).unwrap_or(usize::MAX));
        Ok(())
    }

    /// An error about bytes of this file.
    pub fn corrupt(&self, offset: u64, expected: impl Into<String>, got: impl Into<String>) -> Error {
        Error::corrupt(self.name.clone(), offset, expected, got)
    }
}

/// Why a walk ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// At its limit, whole.
    Limit,
    /// No frame begins here: zeros, or bytes of an older use of the file, or what was a frame.
    NoFrame,
    /// A sound frame of another segment or of an older use.
    Foreign(FrameError),
    /// Not the frame that must be here.
    Bad(FrameError),
}

/// What a walk comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// A sound frame, and its header's checksum. Its payload is behind its header.
    Frame(Header, u32),
    /// The end of the walk, at this offset.
    Stop(u64, Stop),
}

/// A walk over a segment's frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Walk {
    /// The segment's log number.
    pub number: u64,
    /// Its epoch.
    pub epoch: u64,
    /// Where the next frame is looked for.
    pub offset: u64,
    /// The header checksum of the frame before.
    pub previous: u32,
    /// Frames lie before this offset.
    pub limit: u64,
    /// Takes any `previous`: salvage has just gone past something.
    pub any_previous: bool,
}

impl Walk {
    /// A walk over a whole segment.
    pub fn new(number: u64, epoch: u64, limit: u64) -> Walk {
        Walk { number, epoch, offset: FIRST_GROUP, previous: 0, limit, any_previous: false }
    }

    /// The next frame, or why there is none.
    ///
    /// # Errors
    /// What the system says to a read.
    pub async fn step(&mut self, source: &mut Source) -> Result<Next> {
        if !self.offset.is_multiple_of(BLOCK)
            && let Some(stop) = self.rest_of_block(source).await?
        {
            return Ok(Next::Stop(self.offset, stop));
        }
        if self.offset >= self.limit {
            return Ok(Next::Stop(self.offset, Stop::Limit));
        }
        let offset = self.offset;
        Ok(match self.frame(source).await? {
            Ok((header, checksum)) => {
                self.offset += header.frame_len() as u64;
                self.previous = checksum;
                self.any_previous = false;
                Next::Frame(header, checksum)
            }
            Err(FrameError::NoMagic { .. }) => Next::Stop(offset, Stop::NoFrame),
            Err(error @ FrameError::Foreign { .. }) => Next::Stop(offset, Stop::Foreign(error)),
            // Where the file ends early nothing begins: only a proof can tell that something was there.
            Err(FrameError::Short { got: 0, .. }) => Next::Stop(offset, Stop::NoFrame),
            Err(error) => Next::Stop(offset, Stop::Bad(error)),
        })
    }

    /// Behind a frame: either the next frame of its group begins here, or the rest of the block is zero and the next
    /// group is looked for on the next block.
    async fn rest_of_block(&mut self, source: &mut Source) -> Result<Option<Stop>> {
        let block_end = self.offset.next_multiple_of(BLOCK);
        let len = usize::try_from(block_end - self.offset).unwrap_or_default();
        let rest = source.at(self.offset, len).await?;
        if frame::has_magic(rest) {
            return Ok(None);
        }
        if rest.iter().any(|byte| *byte != 0) {
            return Ok(Some(Stop::Bad(FrameError::Padding)));
        }
        self.offset = block_end;
        Ok(None)
    }

    async fn frame(&self, source: &mut Source) -> Result<Result<(Header, u32), FrameError>> {
        let place = Place { log_number: self.number, epoch: self.epoch, offset: self.offset };
        let head = source.at(self.offset, HEADER_LEN).await?;
        let any_epoch = defect::on(Defect::IgnoreEpoch);
        let decoded = match any_epoch {
            true => frame::decode_any(head, self.offset),
            false => frame::decode_header(head, &place),
        };
        let checksum = frame::stored_checksum(head);
        let header = match decoded {
            Ok(header) => header,
            Err(error) => return Ok(Err(error)),
        };
        let foreign = header.place != place;
        if header.previous != self.previous && !self.any_previous && !foreign {
            let (expected, got) = (u64::from(self.previous), u64::from(header.previous));
            return Ok(Err(FrameError::Field { name: "the previous frame's checksum", expected, got }));
        }
        let (needed, left) = (header.frame_len() as u64, self.limit - self.offset);
        if needed > left {
            return Ok(Err(FrameError::Field {
                name: "an end of the frame before",
                expected: left,
                got: needed,
            }));
        }
        let bytes = source.at(self.offset, header.frame_len()).await?;
        Ok(frame::decode_payload(bytes, &header).map(|_| (header, checksum)))
    }
}

/// What the rest of a file tells about the log, whatever stands before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Evidence {
    /// The highest durable-through of any frame of this use of the file.
    pub durable_through: u64,
    /// Frames of this use of the file.
    pub frames: u64,
    /// Behind the last of them.
    pub end: u64,
    /// There are frames of another use: the file was recycled.
    pub recycled: bool,
    /// There are bytes that are not zero.
    pub nonzero: bool,
}

/// Looks for frames at every place where one could be, from `from` to the file's end. Headers suffice: their own
/// checksum covers their durable-through. With `epoch` unknown every frame that states the log number counts.
///
/// # Errors
/// What the system says to a read.
pub async fn scan(source: &mut Source, number: u64, epoch: Option<u64>, from: u64) -> Result<Evidence> {
    let mut found = Evidence::default();
    let mut at = from;
    loop {
        let (header, nonzero) = find(source, at).await?;
        found.nonzero |= nonzero;
        let Some(header) = header else { return Ok(found) };
        at = header.place.offset + 1;
        found.nonzero = true;
        let own = header.place.log_number == number && epoch.is_none_or(|epoch| header.place.epoch == epoch);
        if own || defect::on(Defect::IgnoreEpoch) {
            found.frames += 1;
            found.durable_through = found.durable_through.max(header.durable_through);
            found.end = found.end.max(header.place.offset + header.frame_len() as u64);
        } else {
            found.recycled = true;
        }
    }
}

/// The first sound header at or behind `from`, of whatever use of the file; and whether there were bytes before it
/// that are not zero.
///
/// # Errors
/// What the system says to a read.
pub async fn find(source: &mut Source, from: u64) -> Result<(Option<Header>, bool)> {
    const STEP: usize = PIECE / 2;
    let mut nonzero = false;
    let mut at = from.next_multiple_of(frame::ALIGN as u64);
    while at < source.len() {
        let bytes = source.at(at, STEP + HEADER_LEN).await?;
        if bytes.is_empty() {
            break;
        }
        let words = bytes.chunks_exact(frame::ALIGN).take(STEP / frame::ALIGN).enumerate();
        for (index, _) in words.filter(|(_, word)| frame::has_magic(word)) {
            let begin = index * frame::ALIGN;
            let (before, rest) = bytes.split_at(begin);
            if let Ok(header) = frame::decode_any(rest, at + begin as u64) {
                nonzero |= before.iter().any(|byte| *byte != 0);
                return Ok((Some(header), nonzero));
            }
        }
        nonzero |= bytes.iter().any(|byte| *byte != 0);
        at += STEP as u64;
    }
    Ok((None, nonzero))
}
