//! Who has the store open: the file LOCK, held by flock, and a table of the stores that this process has open.
//!
//! flock frees the lock only when the last descriptor of the opening is gone, so a killed process's write that is
//! still on its way keeps it: a thread inside `pwrite` keeps its descriptors until the call has returned, and a ring
//! keeps LOCK registered as a fixed file. Hence the retries: a lock of a process killed a moment ago may linger.
//! Within one process a second opening is refused at once, by device and inode of the directory, since waiting for
//! oneself is of no use. Closing unlocks by name rather than by closing, because a forked child still has a copy of
//! the descriptor. What was rejected: fcntl locks, which any other close of the file by the process gives up.

use std::collections::BTreeSet;
use std::path::Path;

use crate::base::sync::Mutex;
use crate::base::{Error, Result};
use crate::ring::Io;
use crate::ring::fs::How;
use crate::ring::op::File;

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
                    return Ok(Lock { file, _entry: entry });
                }
                continue;
            }
            if io.now_us() >= deadline {
                let text = format!(
                    "{} is open in another process: its {NAME} stayed locked for {} s; close it there",
                    path.display(),
                    PATIENCE_US / 1_000_000
                );
                return Err(Error::Busy(text.into()));
            }
            drop(file);
            io.sleep_us(RETRY_US).await;
        }
    }

    /// The open file, to be registered in every ring that writes to the store.
    pub fn file(&self) -> &File {
        &self.file
    }
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
