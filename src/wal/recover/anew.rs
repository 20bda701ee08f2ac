//! Leaves a log that can be appended to, everything in it durable.
//!
//! Either the log ended with a seal and nothing is unproven: appending goes on behind it. Or a new segment takes
//! over from the last place before which everything is proven, and what was behind that place is copied into it. The
//! order is what makes a crash harmless: copies, sync, link, sync. Before the link the new segment doesn't count, and
//! the old one still holds everything; after it the old one's rest doesn't count.
//!
//! When not even the last segment's link is proven, the new segment takes that segment's place altogether, and names
//! its predecessor. Only files that no durable link can name are recycled before the new link is durable.

use super::super::frame::{self, HEADER_LEN, Header, Kind, Place};
use super::super::reader::{Next, Source, Stop, Walk};
use super::super::segment::{
    self, BLOCK, BLOCK_LEN, FIRST_GROUP, LINK_FRAME_LEN, LinkPayload, Segment, SegmentHeader,
};
use super::replay::Cut;
use super::survey::Member;
use super::{End, Log, Other, Recovered, SegmentInfo, Tail, complaint};
use crate::base::Result;
use crate::base::defect::{self, Defect};
use crate::base::memory::Buf;
use crate::ring::fs::How;
use crate::ring::io::Io;

/// Copies are written in pieces of at most this many bytes.
const PIECE: usize = 1 << 20;

/// Fills in what `recovered` says about writing, and writes what is needed for it.
pub(super) async fn leave_writable(
    log: &Log<'_, '_>,
    end: Option<End>,
    others: &[Other],
    recovered: &mut Recovered,
    direct: bool,
    segment_bytes: u64,
) -> Result<()> {
    let mut spares: Vec<SegmentHeader> = others.iter().filter_map(|other| other.ready).collect();
    if let (Some(head), Some(end)) = (log.chain.last().copied(), end) {
        let clean = !(end.torn || end.short) && log.replay.sealed && log.replay.unproven().0 == 0;
        let tail = if clean || (end.torn && defect::on(Defect::AppendAfterTornTail)) {
            go_on(log, &head, direct, clean).await?
        } else {
            let plan = Plan::new(log, &head, &end);
            let needed = FIRST_GROUP + 3 * BLOCK + plan.bytes(log);
            let segment = match spares.iter().position(|spare| spare.len >= needed) {
                Some(index) => open_spare(log, &spares.remove(index), direct).await?,
                None => {
                    // A spare that is too short may be what was used: then it is one no more.
                    let (segment, used) =
                        make(log, others, recovered, direct, segment_bytes.max(needed)).await?;
                    spares.retain(|spare| Some(spare.number) != used);
                    segment
                }
            };
            plan.perform(log, &head, segment, recovered).await?
        };
        recovered.unused.retain(|number| *number != tail.segment.number);
        // Numbers only grow along the log: what has been passed is no spare any more.
        spares.retain(|spare| spare.number > tail.segment.number);
        recovered.tail = Some(tail);
    }
    if let Some(spare) = spares.first() {
        recovered.unused.retain(|number| *number != spare.number);
        recovered.spare = Some(open_spare(log, spare, direct).await?);
    }
    Ok(())
}

fn open_segment(log: &Log<'_, '_>, header: &SegmentHeader, direct: bool) -> Result<Segment> {
    let how = How { write: true, direct, ..How::default() };
    let (file, direct) = segment::open_file(log.io, log.dir, &segment::file_name(header.number), how)?;
    let SegmentHeader { number, epoch, len } = *header;
    Ok(Segment { file, number, epoch, len, direct })
}

/// A spare. Its header is written once more, byte for byte: a killed process can have left it readable and not on the
/// device, and records must never stand behind a header that isn't there.
async fn open_spare(log: &Log<'_, '_>, header: &SegmentHeader, direct: bool) -> Result<Segment> {
    let segment = open_segment(log, header, direct)?;
    write(log.io, &segment, segment::block_of(&header.encode())?, 0).await?;
    sync(log.io, &segment).await?;
    Ok(segment)
}

/// A new segment, from a file that never held a durable link if there is one (its number is told): a full disk can do
/// that.
async fn make(
    log: &Log<'_, '_>,
    others: &[Other],
    recovered: &mut Recovered,
    direct: bool,
    len: u64,
) -> Result<(Segment, Option<u64>)> {
    let recycle =
        others.iter().find(|other| other.ready.is_none()).or(others.first()).map(|other| other.number);
    let number = recovered.highest_number + 1;
    let segment = segment::prepare(log.io, log.dir, number, len, recycle, direct).await?;
    recovered.highest_number = number;
    recovered.unused.retain(|number| Some(*number) != recycle);
    Ok((segment, recycle))
}

async fn write(io: &Io, segment: &Segment, buf: Buf, offset: u64) -> Result<()> {
    let written = io.write(&segment.file, buf, offset, false).await.1;
    written
        .map(|_| ())
        .map_err(|e| e.context(format!("{} at offset {offset}", segment::file_name(segment.number))))
}

async fn sync(io: &Io, segment: &Segment) -> Result<()> {
    io.sync(&segment.file, true)
        .await
        .map_err(|e| e.context(format!("syncing {}", segment::file_name(segment.number))))
}

/// Appending goes on behind the seal, which is written once more, byte for byte: it can be readable and not on the
/// device, and what is appended hangs on it.
async fn go_on(log: &Log<'_, '_>, head: &Member, direct: bool, sealed: bool) -> Result<Tail> {
    let segment = open_segment(log, &head.header, direct)?;
    let offset = log.replay.end.next_multiple_of(BLOCK);
    if sealed {
        let seal = offset - BLOCK;
        let mut source = Source::open(log.io, log.dir, head.number)?;
        let block = segment::block_of(source.at(seal, BLOCK_LEN).await?)?;
        write(log.io, &segment, block, seal).await?;
        sync(log.io, &segment).await?;
    }
    if defect::on(Defect::RewriteHeader) {
        let header = SegmentHeader { epoch: head.header.epoch ^ 1, ..head.header };
        write(log.io, &segment, segment::block_of(&header.encode())?, 0).await?;
    }
    let checkpoint_counter = head.checkpoint.map_or(0, |checkpoint| checkpoint.counter);
    Ok(Tail { segment, offset, previous: log.replay.checksum, checkpoint_counter })
}

/// From where a new segment takes over.
struct Plan {
    /// Where the old last segment ends from now on; `None` when it is replaced altogether.
    cut: Option<Cut>,
    link: LinkPayload,
    sequence: u64,
}

impl Plan {
    fn new(log: &Log<'_, '_>, head: &Member, end: &End) -> Plan {
        let replay = &log.replay;
        let whole = !replay.is_open() && end.offset == replay.end.next_multiple_of(BLOCK);
        let last = Cut { offset: end.offset, previous: replay.checksum, next: replay.next };
        let cut = replay.proven_cut(whole.then_some(last));
        let Some(at) = cut else {
            return Plan { cut, link: head.link, sequence: head.link_header.sequence };
        };
        let link = LinkPayload {
            predecessor: head.number,
            predecessor_epoch: head.header.epoch,
            predecessor_end: at.offset,
            last_sequence: at.next - 1,
            last_checksum: at.previous,
            first_live: head.link.first_live,
        };
        Plan { cut, link, sequence: at.next }
    }

    /// An upper bound of what is copied: frames only get closer together.
    fn bytes(&self, log: &Log<'_, '_>) -> u64 {
        log.replay.end.saturating_sub(self.cut.map_or(FIRST_GROUP, |cut| cut.offset)).next_multiple_of(BLOCK)
    }

    async fn perform(
        &self,
        log: &Log<'_, '_>,
        head: &Member,
        segment: Segment,
        recovered: &mut Recovered,
    ) -> Result<Tail> {
        let io = log.io;
        let proven = log.replay.proven.min(self.sequence - 1);
        let mut block = [0; LINK_FRAME_LEN];
        let checksum =
            self.link.write_frame(&mut block, segment.number, segment.epoch, self.sequence, proven);
        let block = segment::block_of(&block)?;
        let early = defect::on(Defect::LinkBeforeCopies);
        let block = match early {
            true => {
                write(io, &segment, block, FIRST_GROUP).await?;
                sync(io, &segment).await?;
                None
            }
            false => Some(block),
        };
        if !early {
            // The file may have been used before. A power loss can keep the link's own sector of its block and not the
            // others, so these are zero before the link is written: what stood there would end the log in front of
            // the copies.
            write(io, &segment, segment::block_of(&[])?, FIRST_GROUP).await?;
        }
        let mut copies = Copies::new(io, &segment, checksum, proven)?;
        self.copy(log, head, &mut copies).await?;
        let (offset, previous, records) = copies.finish().await?;
        sync(io, &segment).await?;
        if let Some(block) = block {
            write(io, &segment, block, FIRST_GROUP).await?;
            sync(io, &segment).await?;
        }
        recovered.stats.copied_records = records;
        self.tell(log, head, &segment, offset, recovered);
        seal(log, segment, offset, previous).await
    }

    /// Copies the frames of all batches behind the cut.
    async fn copy(&self, log: &Log<'_, '_>, head: &Member, copies: &mut Copies<'_>) -> Result<()> {
        let mut source = Source::open(log.io, log.dir, head.number)?;
        let mut walk = Walk::new(head.number, head.header.epoch, head.header.len);
        if let Some(cut) = self.cut {
            (walk.offset, walk.previous) = (cut.offset, cut.previous);
        }
        while walk.offset < log.replay.end {
            match walk.step(&mut source).await? {
                Next::Frame(header, _) if header.kind.is_batch() => {
                    let at = header.place.offset + HEADER_LEN as u64;
                    copies.frame(&header, source.at(at, header.payload_len as usize).await?).await?;
                }
                Next::Frame(..) => {}
                Next::Stop(_, Stop::Limit) => break,
                Next::Stop(offset, stop) => {
                    // It was sound a moment ago, and nobody else may write here.
                    let (expected, got) = complaint(stop);
                    return Err(source.corrupt(offset, expected, got));
                }
            }
        }
        Ok(())
    }

    fn tell(&self, log: &Log<'_, '_>, head: &Member, segment: &Segment, end: u64, recovered: &mut Recovered) {
        match (self.cut, recovered.live.last_mut()) {
            (Some(cut), Some(last)) => {
                last.end = cut.offset;
                last.last_sequence = cut.next - 1;
            }
            _ => {
                recovered.live.pop();
                recovered.unused.push(head.number);
                recovered.unused.sort_unstable();
            }
        }
        recovered.live.push(SegmentInfo {
            number: segment.number,
            epoch: segment.epoch,
            len: segment.len,
            end,
            first_sequence: self.sequence,
            last_sequence: log.replay.next - 1,
        });
    }
}

/// Ends the new segment with a seal, so that the next recovery finds all of it proven.
async fn seal(log: &Log<'_, '_>, segment: Segment, offset: u64, previous: u32) -> Result<Tail> {
    let place = Place { log_number: segment.number, epoch: segment.epoch, offset };
    let sequence = log.replay.next;
    let header = Header {
        kind: Kind::Seal,
        payload_len: 0,
        count: 0,
        place,
        sequence,
        durable_through: sequence - 1,
        previous,
    };
    let mut block = Buf::zeroed(BLOCK_LEN)?;
    let (frame, _) = block.as_mut_slice().split_at_mut(frame::frame_len(0));
    frame::write_payload(frame, &place, &[]);
    let previous = frame::write_header(frame, &header);
    write(log.io, &segment, block, offset).await?;
    sync(log.io, &segment).await?;
    Ok(Tail { segment, offset: offset + BLOCK, previous, checkpoint_counter: 0 })
}

/// Writes copies of frames one behind the other, from the second group on.
struct Copies<'a> {
    io: &'a Io,
    segment: &'a Segment,
    buf: Buf,
    filled: usize,
    /// Where the buffer's first byte goes, a multiple of the block.
    base: u64,
    previous: u32,
    /// The old proof: it stays what it was.
    proven: u64,
    records: u64,
}

impl<'a> Copies<'a> {
    fn new(io: &'a Io, segment: &'a Segment, previous: u32, proven: u64) -> Result<Self> {
        let buf = Buf::zeroed(PIECE)?;
        let base = FIRST_GROUP + BLOCK;
        Ok(Copies { io, segment, buf, filled: 0, base, previous, proven, records: 0 })
    }

    async fn frame(&mut self, header: &Header, payload: &[u8]) -> Result<()> {
        let len = header.frame_len();
        if self.filled + len > PIECE {
            self.flush(self.filled / BLOCK_LEN * BLOCK_LEN).await?;
        }
        let Segment { number: log_number, epoch, .. } = *self.segment;
        let place = Place { log_number, epoch, offset: self.base + self.filled as u64 };
        let frame = &mut self.buf.as_mut_slice()[self.filled..self.filled + len];
        frame::write_payload(frame, &place, &[payload]);
        let header = Header { place, durable_through: self.proven, previous: self.previous, ..*header };
        self.previous = frame::write_header(frame, &header);
        self.filled += len;
        self.records += u64::from(matches!(header.kind, Kind::Full | Kind::Last));
        Ok(())
    }

    async fn flush(&mut self, len: usize) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        let bytes = Buf::copied(&self.buf.as_slice()[..len])?;
        write(self.io, self.segment, bytes, self.base).await?;
        self.base += len as u64;
        let rest = self.filled.saturating_sub(len);
        let bytes = self.buf.as_mut_slice();
        bytes.copy_within(len..len + rest, 0);
        bytes[rest..].fill(0);
        self.filled = rest;
        Ok(())
    }

    /// Where the next group goes, the last frame's checksum, and how many batches were copied.
    async fn finish(mut self) -> Result<(u64, u32, u64)> {
        self.flush(self.filled.next_multiple_of(BLOCK_LEN)).await?;
        Ok((self.base, self.previous, self.records))
    }
}
