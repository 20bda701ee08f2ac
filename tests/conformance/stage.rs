//! What a case plays on: a driver, an `Io` over it, a directory, and short ways to say common things.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use iouring_engine::base::memory::Buf;
use iouring_engine::base::{Error, Result};
use iouring_engine::ring::Io;
use iouring_engine::ring::driver::{Driver, Kind};
use iouring_engine::ring::fs::How;
use iouring_engine::ring::inline::Inline;
use iouring_engine::ring::op::{File, Link, Op, Target, Timespec};
use iouring_engine::ring::options::{Choice, RingOptions, open_driver};
use iouring_engine::ring::sim::World;

/// How many seeds a case runs with on the simulator.
const SEEDS: u64 = 40;
/// The queue's length, where a case names no other.
const ENTRIES: u32 = 64;
/// An hour: longer than any case takes, so a time-out of it ends by being cancelled only.
pub const LONG_US: u64 = 3_600_000_000;

pub const NEW: How = How { write: true, create: true, exclusive: false, direct: false };
pub const READ: How = How { write: false, create: false, exclusive: false, direct: false };

/// The driver that a case runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    Uring,
    Posix,
    Inline,
    Sim,
}

/// See the module.
pub struct Stage {
    pub io: Io,
    pub dir: File,
    pub path: PathBuf,
    /// The machine, on the simulator.
    pub world: Option<World>,
    which: Which,
    seed: u64,
}

/// Runs a case on a driver.
pub fn run(which: Which, case: fn(&Stage)) {
    let seeds = if which == Which::Sim { SEEDS } else { 1 };
    for seed in 0..seeds {
        match Stage::new(which, seed, ENTRIES) {
            Ok(stage) => case(&stage),
            Err(e) => refused(which, &e),
        }
    }
}

/// A driver that this system doesn't let us have must be io_uring, and must say why.
fn refused(which: Which, e: &Error) {
    assert_eq!(which, Which::Uring, "{which:?}: {e}");
    assert!(matches!(e, Error::Unsupported(_)), "io_uring is refused without a reason: {e}");
    // Written past the test harness, which would keep it from whoever reads a run that passes.
    let _ = writeln!(std::io::stderr(), "conformance: not run over io_uring, which can't be had here: {e}");
}

fn driver(which: Which, entries: u32, world: Option<&World>) -> Result<Driver> {
    let choice = match which {
        Which::Uring => Choice::Uring,
        Which::Posix => Choice::Posix,
        Which::Inline => return Ok(Driver::Inline(Inline::new())),
        Which::Sim => return Ok(world.expect("the simulator has a world").driver()),
    };
    let options = RingOptions { driver: choice, entries, ..RingOptions::default() };
    open_driver(&options).map(|(driver, _)| driver)
}

fn fresh_path() -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("conformance-{}-{number}", std::process::id()))
}

impl Stage {
    fn new(which: Which, seed: u64, entries: u32) -> Result<Self> {
        let world = (which == Which::Sim).then(|| {
            let mut options = iouring_engine::ring::sim::Options::rough(seed);
            options.entries = entries as usize;
            World::new(options)
        });
        let io = Io::new(driver(which, entries, world.as_ref())?);
        let path = fresh_path();
        let dir = io.open_dir(&path, true)?;
        Ok(Stage { io, dir, path, world, which, seed })
    }

    /// Another stage on the same kind of driver, with a queue of this length.
    pub fn with_entries(&self, entries: u32) -> Stage {
        Stage::new(self.which, self.seed, entries).expect("this driver was to be had a moment ago")
    }

    /// Another handle of the same kind, on the same disk.
    pub fn with_same_disk(&self) -> Io {
        Io::new(driver(self.which, ENTRIES, self.world.as_ref()).expect("another driver of this kind"))
    }

    /// No transfer is short by chance from now on: for cases that ask for exact results in chains.
    pub fn calm(&self) -> &Self {
        if let Some(world) = &self.world {
            world.set_rates(0, 0);
        }
        self
    }

    pub fn kind(&self) -> Kind {
        self.io.kind()
    }

    /// Whether operations are under way after their submission, so that time-outs and polls can be waited for.
    pub fn is_queued(&self) -> bool {
        self.kind() != Kind::Inline
    }

    /// Whether descriptors of the system can be polled.
    pub fn has_polls(&self) -> bool {
        matches!(self.kind(), Kind::Uring | Kind::Posix)
    }

    /// A new file, open for reading and writing.
    pub fn file(&self, name: &str) -> File {
        self.io.open_at(&self.dir, name, NEW).expect("a new file in an own directory")
    }

    /// A file that can't be written.
    pub fn read_only(&self, name: &str) -> File {
        drop(self.file(name));
        self.io.open_at(&self.dir, name, READ).expect("a file that was just made")
    }

    pub fn write(&self, file: &File, offset: u64, bytes: &[u8]) {
        let buf = Buf::copied(bytes).expect("memory");
        let (_, count) = self.run(self.io.write(file, buf, offset, false));
        assert_eq!(count.expect("a write"), bytes.len());
    }

    pub fn read(&self, file: &File, offset: u64, len: usize) -> Vec<u8> {
        let (buf, count) = self.run(self.io.read(file, Buf::zeroed(len).expect("memory"), offset));
        buf.as_slice()[..count.expect("a read")].to_vec()
    }

    pub fn run<T>(&self, future: impl Future<Output = T>) -> T {
        self.io.block_on(future).expect("the driver works")
    }

    /// Submits one operation and waits for its result.
    pub fn result(&self, op: Op) -> i32 {
        self.run(self.io.submit(op)).0
    }

    /// Submits a chain and waits for its results.
    pub fn chain(&self, steps: Vec<(Op, Link)>) -> Vec<i32> {
        let pending = self.io.submit_chain(steps).expect("a chain that fits");
        self.run(iouring_engine::ring::io::join(pending)).into_iter().map(|(result, _)| result).collect()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = writeln!(std::io::stderr(), "failed on {:?}, seed {}", self.which, self.seed);
        }
        if self.which != Which::Sim {
            // What can't be removed lies in the build folder, where nobody minds it.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

pub fn write_op(file: &File, offset: u64, bytes: &[u8]) -> Op {
    let (target, buf) = (Target::File(file.clone()), Buf::copied(bytes).expect("memory"));
    Op::Write { target, buf, offset, buffer_index: None, dsync: false }
}

pub fn read_op(file: &File, offset: u64, len: usize) -> Op {
    let (target, buf) = (Target::File(file.clone()), Buf::zeroed(len).expect("memory"));
    Op::Read { target, buf, offset, buffer_index: None }
}

pub fn sync_op(file: &File) -> Op {
    Op::Fsync { target: Target::File(file.clone()), data_only: true }
}

pub fn timeout_op(us: u64) -> Op {
    Op::Timeout { after: Timespec::from_us(us) }
}

pub fn limit_op(us: u64) -> Op {
    Op::LinkTimeout { after: Timespec::from_us(us) }
}
