//! Puts bytes into a segment's file and makes them durable: the I/O of one group, and the verdict on it.
//!
//! Every result is judged: a short write is gone on with from its last whole block, a sync that was cancelled because
//! of it is done again standing alone, and only then is the group whole. No progress is an error. A full disk is told
//! apart from every other failure, because it alone leaves the file as it was; and so is whether anything of the
//! group may be in the file.
//!
//! What was rejected: leaving short writes to the reactor. It goes on as well, but then an error doesn't tell how
//! much went before it.

use crate::base::defect::{self, Defect};
use crate::base::memory::Buf;
use crate::base::{Error, Result};
use crate::ring::Io;
use crate::ring::io::{Pending, join};
use crate::ring::op::{File, Link, Op, Target};

use super::segment::BLOCK;

/// Larger groups are written in pieces, so that one write doesn't hold up everybody else's.
const PIECE: usize = 1 << 20;
/// How often a write that was interrupted, or that went on by less than a block, is tried again.
const RETRIES: u32 = 16;

/// A checkpoint to write behind the sync.
#[derive(Debug)]
pub(super) struct Mark {
    pub(super) block: Buf,
    pub(super) offset: u64,
}

/// How to put a group.
#[derive(Debug)]
pub(super) struct Plan {
    /// Make it durable.
    pub(super) sync: bool,
    /// By RWF_DSYNC: nothing else in the file waits for a sync.
    pub(super) dsync: bool,
    /// By a chain.
    pub(super) chain: bool,
    /// Then write this.
    pub(super) mark: Option<Mark>,
}

/// What else happened while a group was put.
#[derive(Debug)]
pub(super) struct Put {
    /// The checkpoint behind it failed.
    pub(super) mark_failed: Option<Error>,
}

/// Why a group wasn't put.
#[derive(Debug)]
pub(super) enum Stop {
    /// The disk is full; `appended`: not all of it was refused.
    Refused { error: Error, appended: bool },
    /// Its outcome is unknown.
    Failed(Error),
}

/// Bytes on their way into a file.
struct Transfer<'a> {
    io: &'a Io,
    file: &'a File,
    /// Where the bytes that are left go.
    offset: u64,
    appended: bool,
    tries: u32,
}

/// What one write brought.
enum Step {
    /// All of it is written.
    Whole,
    /// Write these bytes (again).
    Rest(Buf),
}

impl Transfer<'_> {
    fn target(&self) -> Target {
        Target::File(self.file.clone())
    }

    fn write(&self, buf: Buf, dsync: bool) -> Op {
        Op::Write { target: self.target(), buf, offset: self.offset, buffer_index: None, dsync }
    }

    /// Judges one write.
    fn judge(&mut self, result: i32, op: Op) -> Result<Step, Stop> {
        let mut buf = op.into_buf().unwrap_or_else(Buf::empty);
        let len = buf.len();
        if result > 0 {
            self.appended = true;
        }
        let count = match result {
            0 if len > 0 => return Err(self.stop(libc::EIO, "the write made no progress")),
            0.. => result as usize,
            _ if [libc::EINTR, libc::EAGAIN, libc::ECANCELED].contains(&-result) => 0,
            _ => return Err(self.stop(-result, "writing the log")),
        };
        if count >= len || (count > 0 && defect::on(Defect::IgnoreShortWrite)) {
            self.offset += len as u64;
            self.tries = 0;
            return Ok(Step::Whole);
        }
        // Direct I/O goes on at a block only; the same bytes at the same place may be written twice.
        let blocks = count / BLOCK as usize * BLOCK as usize;
        if blocks == 0 {
            self.tries += 1;
            if self.tries > RETRIES {
                let errno = if result < 0 { -result } else { libc::EIO };
                return Err(self.stop(errno, "the write made no progress"));
            }
        }
        self.offset += blocks as u64;
        Ok(Step::Rest(buf.split_off(blocks)))
    }

    fn stop(&self, errno: i32, what: &str) -> Stop {
        let error = Error::system(errno, format!("{what} at offset {}", self.offset));
        match errno {
            libc::ENOSPC | libc::EDQUOT => Stop::Refused { error, appended: self.appended },
            _ => Stop::Failed(error),
        }
    }

    async fn write_whole(&mut self, mut buf: Buf, dsync: bool) -> Result<(), Stop> {
        loop {
            let (result, op) = self.io.submit_exact(self.write(buf, dsync)).await;
            match self.judge(result, op)? {
                Step::Whole => return Ok(()),
                Step::Rest(rest) => buf = rest,
            }
        }
    }

    /// The chain write → fdatasync → checkpoint. The checkpoint is given back when it wasn't written.
    async fn chain(&mut self, buf: Buf, mark: Option<Mark>) -> Result<(Option<Mark>, Put), Stop> {
        let mark_offset = mark.as_ref().map(|mark| mark.offset);
        let behind = if mark.is_some() { Link::Soft } else { Link::None };
        let mut steps = vec![
            (self.write(buf, false), Link::Soft),
            (Op::Fsync { target: self.target(), data_only: true }, behind),
        ];
        if let Some(Mark { block, offset }) = mark {
            let target = self.target();
            steps.push((
                Op::Write { target, buf: block, offset, buffer_index: None, dsync: false },
                Link::None,
            ));
        }
        let pending: Vec<Pending> = self.io.submit_chain(steps).map_err(Stop::Failed)?;
        let mut results = join(pending).await.into_iter();
        let lost =
            || Stop::Failed(Error::Internal("a chain gave fewer results than it has operations".into()));
        let (wrote, op) = results.next().ok_or_else(lost)?;
        let (synced, _) = results.next().ok_or_else(lost)?;
        let marked = results.next();
        let mut alone = synced == -libc::ECANCELED;
        if let Step::Rest(rest) = self.judge(wrote, op)? {
            self.write_whole(rest, false).await?;
            alone = true;
        } else if synced < 0 && !alone {
            self.failed_sync(synced).await?;
        }
        if alone {
            sync(self.io, self.file).await.map_err(Stop::Failed)?;
        }
        Ok(match marked.zip(mark_offset) {
            Some(((result, op), offset)) if result == -libc::ECANCELED => {
                let block = op.into_buf().unwrap_or_else(Buf::empty);
                (Some(Mark { block, offset }), Put { mark_failed: None })
            }
            Some(((result, _), _)) => (None, Put { mark_failed: mark_failure(result) }),
            None => (None, Put { mark_failed: None }),
        })
    }

    async fn failed_sync(&self, result: i32) -> Result<(), Stop> {
        if defect::on(Defect::RetryFailedSync) {
            return sync_once(self.io, self.file).await.map_err(Stop::Failed);
        }
        Err(Stop::Failed(sync_error(result)))
    }
}

/// Writes `bytes` at `offset`, and what the plan says.
pub(super) async fn put(io: &Io, file: &File, mut bytes: Buf, offset: u64, plan: Plan) -> Result<Put, Stop> {
    let Plan { sync: wanted, dsync, chain, mut mark } = plan;
    let lying = defect::on(Defect::AckBeforeSync);
    let mut put = Put { mark_failed: None };
    if defect::on(Defect::CheckpointAheadOfSync) {
        put.mark_failed = write_mark(io, file, mark.take()).await;
    }
    let mut transfer = Transfer { io, file, offset, appended: false, tries: 0 };
    while bytes.len() > PIECE {
        let rest = bytes.split_off(PIECE);
        transfer.write_whole(bytes, dsync && wanted).await?;
        bytes = rest;
    }
    if wanted && chain && !dsync && !lying {
        (mark, put) = transfer.chain(bytes, mark).await?;
    } else {
        transfer.write_whole(bytes, dsync && wanted && !lying).await?;
        if wanted && !dsync && !lying {
            sync(io, file).await.map_err(Stop::Failed)?;
        }
    }
    if mark.is_some() {
        put.mark_failed = write_mark(io, file, mark).await;
    }
    Ok(put)
}

/// A checkpoint is a lower bound: without it nothing is lost. But a device that refuses it can't be written to.
fn mark_failure(result: i32) -> Option<Error> {
    let harmless = result >= 0 || [libc::ENOSPC, libc::EDQUOT, libc::EINTR, libc::EAGAIN].contains(&-result);
    (!harmless).then(|| Error::system(-result, "writing a checkpoint of the log"))
}

async fn write_mark(io: &Io, file: &File, mark: Option<Mark>) -> Option<Error> {
    let Mark { block, offset } = mark?;
    let (_, written) = io.write(file, block, offset, false).await;
    written.err().and_then(|e| mark_failure(e.errno().map_or(-libc::EIO, |errno| -errno)))
}

/// Makes a file's bytes durable. A sync that was cancelled didn't happen and is done once more; any other failure is
/// final.
pub(super) async fn sync(io: &Io, file: &File) -> Result<()> {
    match sync_once(io, file).await {
        Err(e) if e.errno() == Some(libc::ECANCELED) => sync_once(io, file).await,
        Err(_) if defect::on(Defect::RetryFailedSync) => sync_once(io, file).await,
        other => other,
    }
}

async fn sync_once(io: &Io, file: &File) -> Result<()> {
    let (result, _) = io.submit(Op::Fsync { target: Target::File(file.clone()), data_only: true }).await;
    if result < 0 { Err(sync_error(result)) } else { Ok(()) }
}

fn sync_error(result: i32) -> Error {
    Error::system(-result, "making the log durable")
}
