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

mod anew;
mod replay;
mod salvage;
mod survey;

use crate::base::{Error, Result};
use crate::ring::io::Io;
use crate::ring::op::File;

use super::frame::{HEADER_LEN, Kind};
use super::reader::{self, Evidence, Next, Source, Stop, Walk};
use super::segment::{self, BLOCK, FIRST_GROUP, Segment, SegmentHeader};
use replay::Replay;
use survey::{Found, Member};

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
/// [`Error::Corrupt`] with the place; [`Error::Version`]; what the system says, with file and offset; the error of
/// `deliver`.
pub async fn recover(io: &Io, dir: &File, mode: Mode, deliver: &mut Deliver<'_>) -> Result<Recovered> {
    let all = survey::survey(io, dir).await?;
    if mode == Mode::Salvage {
        return salvage::salvage(io, dir, &all, deliver).await;
    }
    let chain = survey::chain(&all)?;
    let mut log = Log { io, dir, all, chain, replay: Replay::new(deliver) };
    let end = log.read().await?;
    let others = log.others().await?;
    let end = log.judge(end, &others)?;
    let mut recovered = log.describe(&others);
    if let Mode::Write { direct, segment_bytes } = mode {
        anew::leave_writable(&log, end, &others, &mut recovered, direct, segment_bytes).await?;
    }
    Ok(recovered)
}

/// A log while it is recovered.
struct Log<'a, 'd> {
    io: &'a Io,
    dir: &'a File,
    all: Vec<Found>,
    chain: Vec<Member>,
    replay: Replay<'a, 'd>,
}

/// How the last segment of the chain ends.
#[derive(Debug, Clone, Copy)]
struct End {
    /// Where the walk stopped.
    offset: u64,
    stop: Stop,
    /// What is behind it.
    evidence: Evidence,
    /// Parts of a group that never was whole lie behind the last batch.
    torn: bool,
    /// The file is shorter than its header says: somebody cut it.
    short: bool,
}

/// A file behind the chain's head.
#[derive(Debug, Clone, Copy)]
struct Other {
    number: u64,
    evidence: Evidence,
    /// Its header is sound and nothing was ever written behind it.
    ready: Option<SegmentHeader>,
    /// The highest sequence that its frames and checkpoints say is durable.
    proof: u64,
}

impl Log<'_, '_> {
    /// Hands on the records of the whole chain. The end is `None` when there is no chain.
    async fn read(&mut self) -> Result<Option<End>> {
        let mut end = None;
        for index in 0..self.chain.len() {
            let member = self.chain[index];
            let successor = self.chain.get(index + 1).copied();
            end = self.segment(&member, successor).await?;
        }
        Ok(end)
    }

    async fn segment(&mut self, member: &Member, successor: Option<Member>) -> Result<Option<End>> {
        let mut source = Source::open(self.io, self.dir, member.number)?;
        let limit = successor.map_or(member.header.len, |successor| successor.link.predecessor_end);
        let mut walk = Walk::new(member.number, member.header.epoch, limit);
        self.replay.stats.segments += 1;
        let (offset, stop) = self.walk(&mut source, &mut walk).await?;
        let Some(successor) = successor else {
            self.replay.accept_half()?;
            let from = offset.max(walk.offset);
            let evidence = reader::scan(&mut source, member.number, Some(member.header.epoch), from).await?;
            let short = source.len() < member.header.len;
            return Ok(Some(End { offset, stop, evidence, torn: false, short }));
        };
        self.check_end(&source, offset, stop, &successor)?;
        // A link is written only when what it names is durable.
        self.replay.prove(successor.link.last_sequence);
        Ok(None)
    }

    async fn walk(&mut self, source: &mut Source, walk: &mut Walk) -> Result<(u64, Stop)> {
        loop {
            let (header, checksum) = match walk.step(source).await? {
                Next::Frame(header, checksum) => (header, checksum),
                Next::Stop(offset, stop) => return Ok((offset, stop)),
            };
            let offset = header.place.offset;
            let taken = if offset == FIRST_GROUP && header.kind == Kind::Link {
                self.replay.link(&header, checksum, true)
            } else {
                let payload = source.at(offset + HEADER_LEN as u64, header.payload_len as usize).await?;
                self.replay.frame(&header, checksum, payload)?
            };
            if let Err(error) = taken {
                return Ok((offset, Stop::Bad(error)));
            }
        }
    }

    /// A segment with a successor must reach exactly to the end that the successor names.
    fn check_end(&self, source: &Source, offset: u64, stop: Stop, successor: &Member) -> Result<()> {
        let replay = &self.replay;
        let link = successor.link;
        let by = segment::file_name(successor.number);
        if stop != Stop::Limit || replay.is_open() {
            let (expected, got) = complaint(stop);
            let expected =
                format!("{expected} ({by} says that the segment goes on to offset {})", link.predecessor_end);
            return Err(source.corrupt(offset, expected, got));
        }
        if replay.checksum != link.last_checksum {
            let expected = format!("a last frame with checksum {:#010x}, as {by} says", link.last_checksum);
            return Err(source.corrupt(replay.end, expected, format!("{:#010x}", replay.checksum)));
        }
        if !(replay.last_batch..replay.next).contains(&link.last_sequence) {
            let expected = format!("a last sequence of {}, as {by} says", link.last_sequence);
            return Err(source.corrupt(replay.end, expected, format!("{}", replay.last_batch)));
        }
        Ok(())
    }

    /// The files behind the chain's head: what they prove, and whether they are spares.
    async fn others(&mut self) -> Result<Vec<Other>> {
        let head = self.chain.last().map_or(0, |head| head.number);
        let mut others = Vec::new();
        for found in self.all.iter().filter(|found| found.number > head) {
            let mut source = Source::open(self.io, self.dir, found.number)?;
            let front = found.front.as_ref().ok();
            let epoch = front.map(|front| front.header.epoch);
            let evidence = reader::scan(&mut source, found.number, epoch, FIRST_GROUP).await?;
            if let (None, true) = (front, evidence.frames > 0) {
                // A header is durable before the first frame is written: it was there, and is damaged.
                let (offset, expected, got) = found.complaint();
                let expected = format!("{expected} (there are frames of this log number behind it)");
                return Err(source.corrupt(offset, expected, got));
            }
            let checkpoint = front.and_then(|front| front.checkpoint);
            let proof = evidence.durable_through.max(checkpoint.map_or(0, |c| c.durable_through));
            let whole = front.filter(|front| front.header.len <= found.file_len);
            let ready =
                whole.filter(|_| evidence.frames == 0 && checkpoint.is_none()).map(|front| front.header);
            others.push(Other { number: found.number, evidence, ready, proof });
        }
        Ok(others)
    }

    /// End of log, torn tail or damage: a proof that reaches beyond what was read decides.
    fn judge(&mut self, end: Option<End>, others: &[Other]) -> Result<Option<End>> {
        let covered = self.replay.next.saturating_sub(1);
        let checkpoint = self.chain.last().and_then(|head| head.checkpoint);
        let name = self.chain.last().map_or_else(String::new, |head| segment::file_name(head.number));
        let mut judged = None;
        if let Some(mut end) = end {
            let proof = self.replay.proven.max(end.evidence.durable_through);
            let proof = proof.max(checkpoint.map_or(0, |checkpoint| checkpoint.durable_through));
            let reach = checkpoint.map_or(0, |checkpoint| checkpoint.durable_offset);
            if proof > covered || reach > self.replay.end.next_multiple_of(BLOCK) {
                let (expected, got) = complaint(end.stop);
                let what =
                    if proof > covered { format!("sequence {proof}") } else { format!("offset {reach}") };
                let expected = format!("{expected} (the log says that it was durable up to {what})");
                return Err(Error::corrupt(name, end.offset, expected, got));
            }
            end.torn = matches!(end.stop, Stop::Bad(_)) || self.replay.is_open() || end.evidence.frames > 0;
            self.count_end(&end);
            self.replay.proven_offset = self.replay.proven_offset.max(reach);
            self.replay.prove(proof);
            judged = Some(end);
        }
        for other in others {
            if other.proof > covered {
                let found = self.all.iter().find(|found| found.number == other.number);
                let (offset, expected, got) = found.map(Found::complaint).unwrap_or_default();
                let expected =
                    format!("{expected} (the log says that it was durable up to sequence {})", other.proof);
                return Err(Error::corrupt(segment::file_name(other.number), offset, expected, got));
            }
            self.replay.prove(other.proof);
            if other.evidence.frames > 0 {
                self.replay.stats.torn_bytes += other.evidence.end - FIRST_GROUP;
                self.replay.stats.possible_damage += 1;
            }
        }
        Ok(judged)
    }

    fn count_end(&mut self, end: &End) {
        let replay = &mut self.replay;
        replay.stats.sealed = replay.sealed && !end.torn;
        if end.torn {
            let torn_end = end.evidence.end.max((end.offset + 1).next_multiple_of(BLOCK));
            replay.stats.torn_bytes += torn_end - replay.end;
        }
        let strange = end.stop == Stop::NoFrame && end.evidence.nonzero && !end.evidence.recycled;
        replay.stats.possible_damage += u64::from(end.torn || end.short || strange);
    }

    fn describe(&mut self, others: &[Other]) -> Recovered {
        let replay = &mut self.replay;
        (replay.stats.unproven_records, replay.stats.unproven_bytes) = replay.unproven();
        replay.stats.proven_through = replay.proven;
        let highest_number = self.all.last().map_or(0, |found| found.number);
        let mut live: Vec<SegmentInfo> = Vec::with_capacity(self.chain.len());
        for member in &self.chain {
            if let Some(before) = live.last_mut() {
                before.end = member.link.predecessor_end;
                before.last_sequence = member.link.last_sequence;
            }
            live.push(SegmentInfo {
                number: member.number,
                epoch: member.header.epoch,
                len: member.header.len,
                end: replay.end.next_multiple_of(BLOCK),
                first_sequence: member.link_header.sequence,
                last_sequence: replay.next - 1,
            });
        }
        let is_live = |number: u64| live.iter().any(|info| info.number == number);
        let unused = self.all.iter().map(|found| found.number).filter(|number| !is_live(*number)).collect();
        let spare = others.iter().filter(|other| other.ready.is_some()).map(|other| other.number).next();
        Recovered {
            next_sequence: replay.next.max(1),
            tail: None,
            unused,
            spare: None,
            highest_number,
            first_live: self
                .chain
                .last()
                .map_or(spare.unwrap_or(highest_number + 1), |head| head.link.first_live),
            stats: replay.stats,
            live,
        }
    }
}

/// What a stop says was expected, and what was there.
fn complaint(stop: Stop) -> (String, String) {
    match stop {
        Stop::Limit => ("the rest of a batch".to_owned(), "the segment's end".to_owned()),
        Stop::NoFrame => ("a frame".to_owned(), "none".to_owned()),
        Stop::Foreign(error) | Stop::Bad(error) => (error.expected(), error.got()),
    }
}

#[cfg(test)]
mod damage_tests;
#[cfg(test)]
mod tests;
