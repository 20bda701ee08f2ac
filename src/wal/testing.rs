//! What the log's tests share: a directory that is gone afterwards, a simulated one, and a log made by hand.
//!
//! The log by hand is made without the writer, byte by byte from `docs/FORMAT.md`, so that a mistake that writer and
//! reader share is found.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests look at the files from outside"
)]

use std::path::{Path, PathBuf};

use super::frame::{self, Header, Kind, Place, frame_len};
use super::recover::{Mode, Recovered, recover};
use super::segment::{BLOCK, BLOCK_LEN, Checkpoint, FIRST_GROUP, LinkPayload, SegmentHeader, file_name};
use crate::base::Result;
use crate::base::defect::{Defect, plant};
use crate::ring::io::Io;
use crate::ring::op::File;
use crate::ring::sim::World;

/// A directory of its own for one test.
pub struct Dir {
    path: PathBuf,
    /// It, opened.
    pub file: File,
}

impl Dir {
    /// Makes it; `name` is the test's own.
    pub fn new(name: &str) -> Dir {
        let path = std::env::temp_dir().join(format!("ioe-wal-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        let file = Io::inline().open_dir(&path, true).unwrap();
        Dir { path, file }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A whole file.
    pub fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path.join(name)).unwrap()
    }

    /// Replaces a whole file.
    pub fn write(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.path.join(name), bytes).unwrap();
    }

    /// All names, sorted.
    pub fn names(&self) -> Vec<String> {
        Io::inline().list(&self.file).unwrap()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// The simulated log's directory.
pub fn log_dir() -> &'static Path {
    Path::new("/log")
}

/// A batch that recovery handed on.
pub type Handed = (u64, u32, Vec<u8>);

/// Recovers the simulated log; what it handed on, and what it said.
pub fn recover_sim(world: &World, mode: Mode) -> (Vec<Handed>, Result<Recovered>) {
    let io = world.io();
    let mut handed = Vec::new();
    let recovered = io.open_dir(log_dir(), true).and_then(|dir| {
        let mut deliver = |record: super::recover::Record<'_>| {
            handed.push((record.sequence, record.count, record.payload.to_vec()));
            Ok(())
        };
        io.block_on(async { recover(&io, &dir, mode, &mut deliver).await })?
    });
    (handed, recovered)
}

/// For writing, with small segments.
pub const WRITE: Mode = Mode::Write { direct: true, segment_bytes: 16 * BLOCK };

/// A segment made by hand.
#[derive(Clone)]
pub struct Builder {
    /// Its log number.
    pub number: u64,
    /// Its epoch.
    pub epoch: u64,
    /// The whole file.
    pub bytes: Vec<u8>,
    /// Where the next frame goes.
    pub offset: usize,
    /// The last frame's header checksum.
    pub previous: u32,
    /// The next sequence.
    pub next: u64,
    /// What the next frames say is durable.
    pub durable: u64,
}

impl Builder {
    /// A segment with header and link; its first sequence is `next`.
    pub fn new(number: u64, epoch: u64, blocks: u64, link: LinkPayload, next: u64) -> Builder {
        Builder::over(vec![0; (blocks * BLOCK) as usize], number, epoch, link, next)
    }

    /// As [`Builder::new`], over what a file held before.
    pub fn over(bytes: Vec<u8>, number: u64, epoch: u64, link: LinkPayload, next: u64) -> Builder {
        let mut segment = Builder { number, epoch, bytes, offset: 0, previous: 0, next, durable: next - 1 };
        segment.header();
        let payload = link.encode();
        segment.offset = FIRST_GROUP as usize;
        segment.bytes[segment.offset..][..BLOCK_LEN].fill(0);
        segment.frame(Kind::Link, 0, &payload);
        segment
    }

    fn header(&mut self) {
        let header = SegmentHeader { number: self.number, epoch: self.epoch, len: self.bytes.len() as u64 };
        self.bytes[..BLOCK_LEN].fill(0);
        self.bytes[..64].copy_from_slice(&header.encode());
    }

    /// A header alone: what a spare is.
    pub fn spare(number: u64, epoch: u64, blocks: u64) -> Builder {
        let bytes = vec![0; (blocks * BLOCK) as usize];
        let mut segment = Builder { number, epoch, bytes, offset: 0, previous: 0, next: 0, durable: 0 };
        segment.header();
        segment
    }

    /// One frame at the current place, zeros around it.
    pub fn frame(&mut self, kind: Kind, count: u32, payload: &[u8]) {
        let len = frame_len(payload.len());
        let end = (self.offset + len).next_multiple_of(BLOCK_LEN);
        self.bytes[self.offset..end].fill(0);
        let place = Place { log_number: self.number, epoch: self.epoch, offset: self.offset as u64 };
        let header = Header {
            kind,
            payload_len: payload.len() as u32,
            count,
            place,
            sequence: self.next,
            durable_through: self.durable,
            previous: self.previous,
        };
        let frame = &mut self.bytes[self.offset..][..len];
        frame::write_payload(frame, &place, &[payload]);
        self.previous = frame::write_header(frame, &header);
        self.offset += len;
    }

    /// The next group starts on a block.
    pub fn next_group(&mut self) -> &mut Self {
        self.offset = self.offset.next_multiple_of(BLOCK_LEN);
        self
    }

    /// A group of batches of one frame each, acknowledged afterwards.
    pub fn group(&mut self, batches: &[&[u8]]) -> &mut Self {
        for payload in batches {
            self.frame(Kind::Full, 1, payload);
            self.next += 1;
        }
        self.durable = self.next - 1;
        self.next_group()
    }

    /// A batch of several frames in a group of its own, acknowledged afterwards.
    pub fn long(&mut self, count: u32, parts: &[&[u8]]) -> &mut Self {
        for (index, part) in parts.iter().enumerate() {
            let kind = match index {
                0 => Kind::First,
                _ if index + 1 == parts.len() => Kind::Last,
                _ => Kind::Middle,
            };
            self.frame(kind, count, part);
        }
        self.next += u64::from(count);
        self.durable = self.next - 1;
        self.next_group()
    }

    /// A seal.
    pub fn seal(&mut self) -> &mut Self {
        self.next_group();
        self.frame(Kind::Seal, 0, &[]);
        self.next_group()
    }

    /// A checkpoint of all before it.
    pub fn checkpoint(&mut self, counter: u64) -> &mut Self {
        let checkpoint = Checkpoint {
            log_number: self.number,
            epoch: self.epoch,
            counter,
            durable_through: self.durable,
            durable_offset: self.offset as u64,
        };
        let at = checkpoint.offset() as usize;
        self.bytes[at..][..BLOCK_LEN].fill(0);
        self.bytes[at..at + 64].copy_from_slice(&checkpoint.encode());
        self
    }

    /// The link that names this segment, as it ends here, as the predecessor.
    pub fn link(&self) -> LinkPayload {
        LinkPayload {
            predecessor: self.number,
            predecessor_epoch: self.epoch,
            predecessor_end: self.offset.next_multiple_of(BLOCK_LEN) as u64,
            last_sequence: self.next - 1,
            last_checksum: self.previous,
            first_live: 1,
        }
    }

    /// Puts the file on the simulated disk.
    pub fn plant(&self, world: &World) -> &Self {
        world.plant(log_dir(), &file_name(self.number), &self.bytes);
        self
    }
}

/// The check passes, and fails with the defect planted.
pub fn caught(defect: Defect, check: impl Fn()) {
    check();
    let _planted = plant(defect);
    let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(check)).is_err();
    assert!(failed, "{defect:?} went unnoticed");
}

/// The link of a log's first segment.
pub fn no_predecessor() -> LinkPayload {
    LinkPayload { first_live: 1, ..LinkPayload::default() }
}
