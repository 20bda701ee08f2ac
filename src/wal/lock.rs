//! Who has the store or the log open: the file LOCK, held by flock, and a table of those that this process has open.
//!
//! flock frees the lock only when the last descriptor of the opening is gone, so a killed process's write that is
//! still on its way keeps it: a thread inside `pwrite` keeps its descriptors until the call has returned, and a ring
//! keeps LOCK registered as a fixed file. Hence the retries: a lock of a process killed a moment ago may linger.
//! Within one process a second opening is refused at once, by device and inode of the directory, since waiting for
//! oneself is of no use. Closing unlocks by name rather than by closing, because a forked child still has a copy of
//! the descriptor. What was rejected: fcntl locks, which any other close of the file by the process gives up.

use std::collections::BTreeSet;
use std::path::Path;

use crate::base::defect::{self, Defect};
use crate::base::sync::Mutex;
use crate::base::{Error, Result};
use crate::ring::Io;
use crate::ring::driver::Kind;
use crate::ring::fs::How;
use crate::ring::op::File;
use crate::ring::reactor::Held;

/// The file's name.
pub const NAME: &str = "LOCK";
/// How long a lock held by another process is waited for.
pub const PATIENCE_US: u64 = 3_000_000;
/// Between two tries.
const RETRY_US: u64 = 10_000;

/// Directories of the stores this process has open: device and inode.
static OPEN_HERE: Mutex<BTreeSet<(u64, u64)>> = Mutex::new(BTreeSet::new());

/// The lock of an open store; dropping it gives the store free.
#[derive(Debug)]
pub struct Lock {
    file: File,
    held: Option<Held>,
    _entry: Entry,
}

/// A line in the table of this process.
#[derive(Debug)]
struct Entry(Option<(u64, u64)>);

impl Entry {
    fn enter(identity: Option<(u64, u64)>, path: &Path) -> Result<Self> {
        if let Some(identity) = identity
            && !OPEN_HERE.lock().insert(identity)
        {
            let text = format!("{} is open in this process already; close that handle first", path.display());
            return Err(Error::Busy(text.into()));
        }
        Ok(Entry(identity))
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some(identity) = &self.0 {
            OPEN_HERE.lock().remove(identity);
        }
    }
}

impl Lock {
    /// Locks the store in `dir`; waits up to [`PATIENCE_US`] for another process.
    ///
    /// # Errors
    /// [`Error::Busy`] when the store is open elsewhere; what the system says when LOCK can't be opened or made, with
    /// the reason in words.
    pub async fn take(io: &Io, dir: &File, path: &Path) -> Result<Lock> {
        let entry = Entry::enter(io.identity(dir)?, path)?;
        let deadline = io.now_us().saturating_add(PATIENCE_US);
        loop {
            let file = open(io, dir, path)?;
            if io.lock(&file)? {
                // A file that has lost its name meanwhile would guard nothing.
                if io.meta(&file)?.links > 0 {
                    return Ok(Lock { file, held: None, _entry: entry });
                }
                continue;
            }
            if io.now_us() >= deadline {
                return Err(busy(path));
            }
            drop(file);
            io.sleep_us(RETRY_US).await;
        }
    }

    /// As [`Lock::take`] for somebody who only reads: nothing is made, and where there is no LOCK nothing is locked.
    ///
    /// # Errors
    /// As [`Lock::take`].
    pub async fn take_to_read(io: &Io, dir: &File, path: &Path) -> Result<Option<Lock>> {
        let entry = Entry::enter(io.identity(dir)?, path)?;
        let deadline = io.now_us().saturating_add(PATIENCE_US);
        loop {
            let file = match io.open_at(dir, NAME, How::default()) {
                Ok(file) => file,
                Err(e) if e.errno() == Some(libc::ENOENT) => return Ok(None),
                Err(e) => return Err(explain(e, path)),
            };
            if io.lock(&file)? {
                return Ok(Some(Lock { file, held: None, _entry: entry }));
            }
            if io.now_us() >= deadline {
                return Err(busy(path));
            }
            drop(file);
            io.sleep_us(RETRY_US).await;
        }
    }

    /// Holds the lock in the ring behind `io`: the kernel keeps it locked until the last operation of that ring has
    /// ended, even when the process is killed. To be done before the ring writes to the store. A blocking call has no
    /// ring; its thread keeps the lock until the call has returned.
    ///
    /// # Errors
    /// What the driver says.
    pub fn register(&mut self, io: &Io) -> Result<()> {
        if io.kind() == Kind::Inline || defect::on(Defect::LockOutsideRing) {
            return Ok(());
        }
        self.held = Some(io.with_reactor(|reactor| reactor.hold(self.file.raw_fd()))?);
        Ok(())
    }

    /// As [`Lock::register`], for a ring that closes no later than the store: it is never taken out.
    ///
    /// # Errors
    /// What the driver says.
    pub fn register_for_life(&self, io: &Io) -> Result<()> {
        io.with_reactor(|reactor| reactor.hold(self.file.raw_fd())).map(drop)
    }

    /// Takes the lock out of that ring again, in which nothing of its owner is in flight any more.
    ///
    /// # Errors
    /// What the driver says.
    pub fn unregister(&mut self, io: &Io) -> Result<()> {
        self.held.take().map_or(Ok(()), |held| io.with_reactor(|reactor| reactor.let_go(held)))
    }
}

fn busy(path: &Path) -> Error {
    let text = format!(
        "{} is open in another process: its {NAME} stayed locked for {} s; close it there",
        path.display(),
        PATIENCE_US / 1_000_000
    );
    Error::Busy(text.into())
}

impl Drop for Lock {
    fn drop(&mut self) {
        // The store has seen its last write end before it drops this. A failure leaves the lock to the close.
        let _ = crate::ring::fs::unlock(&self.file);
    }
}

fn open(io: &Io, dir: &File, path: &Path) -> Result<File> {
    let how = How { write: true, create: true, ..How::default() };
    let file = io.open_at(dir, NAME, how).map_err(|e| explain(e, path))?;
    if io.meta(&file)?.regular {
        return Ok(file);
    }
    let text = format!("{} in {} is not a plain file; it is not this library's", NAME, path.display());
    Err(Error::system(libc::EEXIST, text))
}

/// The same error, with a sentence that says what stands in the way.
fn explain(error: Error, path: &Path) -> Error {
    let path = path.display();
    let text = match error.errno() {
        Some(libc::ELOOP) => {
            format!("{NAME} in {path} is a symbolic link, which is never followed; remove it")
        }
        Some(libc::EISDIR) => format!("{NAME} in {path} is a directory; it is not this library's"),
        Some(libc::EACCES | libc::EPERM) => format!("no permission to open or make {NAME} in {path}"),
        Some(libc::EROFS) => format!("{path} is on a read-only file system; a store needs to write"),
        Some(libc::ENOSPC | libc::EDQUOT) => format!("the disk is full: {NAME} can't be made in {path}"),
        _ => return error.context(format!("opening {NAME} in {path}")),
    };
    match error.errno() {
        Some(errno) => Error::system(errno, text),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::driver::Wait;
    use crate::ring::sim::World;

    fn take(io: &Io) -> Result<Lock> {
        let dir = io.open_dir("/store".as_ref(), true)?;
        io.block_on(Lock::take(io, &dir, Path::new("/store")))?
    }

    #[test]
    fn a_held_lock_is_waited_for_and_then_busy() {
        let world = World::calm(1);
        let (ours, theirs) = (world.io(), world.io());
        let held = take(&theirs).unwrap();
        let began = world.now_us();
        assert!(matches!(take(&ours), Err(Error::Busy(text)) if text.contains("another process")));
        let waited = world.now_us() - began;
        assert!((PATIENCE_US..PATIENCE_US + 1_000_000).contains(&waited), "waited {waited} us");
        drop(held);
        take(&ours).unwrap();
    }

    #[test]
    fn a_lock_that_lingers_for_a_while_is_got() {
        let world = World::calm(2);
        let (ours, theirs) = (world.io(), world.io());
        let held = take(&theirs).unwrap();
        let freeing = ours.clone();
        let free = ours.spawn(async move {
            freeing.sleep_us(PATIENCE_US / 2).await;
            drop(held);
        });
        take(&ours).unwrap();
        assert!(free.take().is_some(), "the lock was got only after it was given up");
    }

    #[test]
    fn a_lock_without_a_name_is_not_taken_for_the_stores() {
        let world = World::calm(3);
        let (ours, theirs) = (world.io(), world.io());
        let held = take(&theirs).unwrap();
        let dir = theirs.open_dir("/store".as_ref(), false).unwrap();
        theirs.unlink(&dir, NAME).unwrap();
        let new = take(&ours).unwrap();
        assert_eq!(ours.list(&dir).unwrap(), [NAME]);
        drop((held, new));
    }

    #[test]
    fn refusals_say_which() {
        let world = World::calm(4);
        world.plant_symlink("/store".as_ref(), NAME);
        let refused = take(&world.io()).unwrap_err();
        assert_eq!(refused.errno(), Some(libc::ELOOP));
        assert!(refused.to_string().contains("symbolic link"), "{refused}");
        for (errno, words) in [
            (libc::EACCES, "no permission"),
            (libc::EROFS, "read-only file system"),
            (libc::ENOSPC, "disk is full"),
            (libc::EISDIR, "is a directory"),
        ] {
            let explained = explain(Error::system(errno, ""), Path::new("/store"));
            assert_eq!(explained.errno(), Some(errno));
            assert!(
                explained.to_string().contains(words) && explained.to_string().contains("/store"),
                "{explained}"
            );
        }
    }

    #[test]
    fn a_ring_that_writes_keeps_the_lock_over_a_kill_until_its_last_write_has_landed() {
        let seeds = 0..60;
        let lingered = seeds.filter(|seed| lingers(*seed)).count();
        assert!(lingered > 0, "no kill found a write in flight");
    }

    /// Kills a process in the midst of a write; whether the lock lingered. It must not be free before the write lands.
    fn lingers(seed: u64) -> bool {
        let world = World::calm(seed);
        let io = world.io();
        let mut lock = take(&io).unwrap();
        lock.register(&io).unwrap();
        let dir = io.open_dir("/store".as_ref(), false).unwrap();
        let how = How { write: true, create: true, ..How::default() };
        let file = io.open_at(&dir, "1.wal", how).unwrap();
        let buf = crate::base::memory::Buf::copied(b"late").unwrap();
        let writer = io.clone();
        let write = io.spawn(async move { writer.write(&file, buf, 0, false).await.1.is_ok() });
        io.turn(Wait::No).unwrap();
        world.crash();
        drop(write);
        let after = world.kill();
        let next = after.io();
        let began = after.now_us();
        let lock = take(&next).unwrap();
        let first = after.read_raw("/store".as_ref(), "1.wal");
        after.pass_us(10_000_000);
        assert_eq!(
            after.read_raw("/store".as_ref(), "1.wal"),
            first,
            "seed {seed}: a write landed under the new owner"
        );
        drop(lock);
        after.now_us() - began > 10_000_000 + RETRY_US / 2
    }
}
