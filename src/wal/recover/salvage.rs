//! Reads what can still be read of a damaged log, in the order of sequences, and changes nothing.
//!
//! Asked for by name only. It goes from segment to segment and, where a frame is bad, on to the next sound frame. What
//! it hands on is whole and checked like any other batch, but batches can be missing between two of them: sequences
//! tell. It never goes behind the end that a successor's link names, because refused writes lie there.

use super::super::frame::{HEADER_LEN, Header, Kind};
use super::super::reader::{self, Next, Source, Stop, Walk};
use super::super::segment::FIRST_GROUP;
use super::replay::Replay;
use super::survey::{Found, Member};
use super::{Deliver, Recovered};
use crate::base::Result;
use crate::ring::io::Io;
use crate::ring::op::File;

pub(super) async fn salvage(
    io: &Io,
    dir: &File,
    all: &[Found],
    deliver: &mut Deliver<'_>,
) -> Result<Recovered> {
    let mut replay = Replay::new(deliver);
    replay.next = 1;
    let members: Vec<Member> = all.iter().filter_map(Found::member).collect();
    let first_live = members.iter().map(|member| member.link.first_live).max().unwrap_or(0);
    for found in all.iter().filter(|found| found.number >= first_live) {
        let successor = members.iter().rfind(|member| member.link.predecessor == found.number);
        let limit =
            successor.map_or(found.file_len, |member| member.link.predecessor_end.min(found.file_len));
        let mut source = Source::open(io, dir, found.number)?;
        segment(&mut source, found, limit, &mut replay).await?;
        replay.forget_open();
    }
    let stats = replay.stats;
    let highest_number = all.last().map_or(0, |found| found.number);
    Ok(Recovered {
        next_sequence: replay.next,
        tail: None,
        live: Vec::new(),
        spare: None,
        unused: Vec::new(),
        highest_number,
        first_live,
        stats,
    })
}

async fn segment(source: &mut Source, found: &Found, limit: u64, replay: &mut Replay<'_, '_>) -> Result<()> {
    let known = found.front.as_ref().ok().map(|front| front.header.epoch);
    // With a damaged header the first frame of this log number tells the epoch.
    let first = next_frame(source, found.number, known, FIRST_GROUP, limit).await?;
    let Some(first) = first else { return Ok(()) };
    replay.stats.segments += 1;
    replay.stats.damages += u64::from(known.is_none());
    let mut walk = Walk::new(found.number, first.place.epoch, limit);
    loop {
        let stopped_at = match walk.step(source).await? {
            Next::Frame(header, checksum) => {
                take(source, &header, checksum, replay).await?;
                continue;
            }
            Next::Stop(_, Stop::Limit) => return Ok(()),
            Next::Stop(offset, _) => offset,
        };
        replay.forget_open();
        let next = next_frame(source, found.number, Some(walk.epoch), stopped_at + 1, limit).await?;
        let Some(next) = next else { return Ok(()) };
        replay.stats.damages += 1;
        replay.stats.damaged_bytes += next.place.offset - stopped_at;
        walk.offset = next.place.offset;
        walk.any_previous = true;
    }
}

async fn next_frame(
    source: &mut Source,
    number: u64,
    epoch: Option<u64>,
    from: u64,
    limit: u64,
) -> Result<Option<Header>> {
    let mut at = from;
    loop {
        let (Some(header), _) = reader::find(source, at).await? else { return Ok(None) };
        if header.place.offset >= limit {
            return Ok(None);
        }
        if header.place.log_number == number && epoch.is_none_or(|epoch| epoch == header.place.epoch) {
            return Ok(Some(header));
        }
        at = header.place.offset + 1;
    }
}

async fn take(
    source: &mut Source,
    header: &Header,
    checksum: u32,
    replay: &mut Replay<'_, '_>,
) -> Result<()> {
    // What a segment says that another has replaced is there twice.
    if !header.kind.is_batch() || header.sequence < replay.next {
        return Ok(());
    }
    if header.sequence > replay.next && matches!(header.kind, Kind::Full | Kind::First) {
        replay.forget_open();
        replay.next = header.sequence;
    }
    let payload = source.at(header.place.offset + HEADER_LEN as u64, header.payload_len as usize).await?;
    if replay.frame(header, checksum, payload)?.is_err() {
        replay.forget_open();
    }
    Ok(())
}
