//! Opening, listing, renaming, locking: file system calls that are made at once, not queued.
//!
//! They are rare, take microseconds, and io_uring would only hand them to a worker thread. Making a change
//! *durable* is an operation ([`Io::sync`] on the file or the directory), and takes its place in the simulator's
//! schedule. Names are single components; nothing read from a file becomes a path.

use std::os::fd::{BorrowedFd, RawFd};
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags};

use super::io::Io;
use super::op::File;
use super::posix::files::borrow;
use super::sim;
use crate::base::{Error, Result};

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct How {
    /// For writing too.
    pub write: bool,
    /// Made when it isn't there (mode 0600).
    pub create: bool,
    /// With `create`: refused (`-EEXIST`) when it is there.
    pub exclusive: bool,
    /// Past the page cache (O_DIRECT).
    pub direct: bool,
}

/// What is known of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meta {
    /// Length in bytes.
    pub len: u64,
    /// A plain file.
    pub regular: bool,
    /// How many names it has.
    pub links: u64,
}

impl Io {
    /// Opens a directory, making it first (mode 0700, and its missing parents' own default) when asked.
    ///
    /// # Errors
    /// What the system says, with the path.
    pub fn open_dir(&self, path: &Path, create: bool) -> Result<File> {
        if let Some(result) = sim::fs::open_dir(self, path, create) {
            return result;
        }
        let at = |e: rustix::io::Errno| Error::from(e).context(path.display());
        if create {
            match rustix::fs::mkdir(path, Mode::RWXU) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(e) => return Err(at(e)),
            }
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open(path, flags, Mode::empty()).map(File::from_fd).map_err(at)
    }

    /// Opens a file of a directory.
    ///
    /// # Errors
    /// What the system says, with the name; a symbolic link is refused (`-ELOOP`).
    pub fn open_at(&self, dir: &File, name: &str, how: How) -> Result<File> {
        if let Some(result) = sim::fs::open_at(self, dir, name, how) {
            return result;
        }
        let mut flags = OFlags::CLOEXEC | OFlags::NOFOLLOW;
        flags |= if how.write { OFlags::RDWR } else { OFlags::RDONLY };
        flags.set(OFlags::CREATE, how.create);
        flags.set(OFlags::EXCL, how.exclusive);
        flags.set(OFlags::DIRECT, how.direct);
        rustix::fs::openat(dir.os(), name, flags, Mode::RUSR | Mode::WUSR)
            .map(File::from_fd)
            .map_err(|e| Error::from(e).context(name))
    }

    /// The names in a directory, sorted, without `.` and `..`.
    ///
    /// # Errors
    /// What the system says.
    pub fn list(&self, dir: &File) -> Result<Vec<String>> {
        if let Some(result) = sim::fs::list(self, dir) {
            return result;
        }
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(dir.os())? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// Renames within a directory, replacing what has the new name.
    ///
    /// # Errors
    /// What the system says, with both names.
    pub fn rename(&self, dir: &File, from: &str, to: &str) -> Result<()> {
        if let Some(result) = sim::fs::rename(self, dir, from, to) {
            return result;
        }
        rustix::fs::renameat(dir.os(), from, dir.os(), to)
            .map_err(|e| Error::from(e).context(format!("renaming {from} to {to}")))
    }

    /// Removes a name from a directory.
    ///
    /// # Errors
    /// What the system says, with the name.
    pub fn unlink(&self, dir: &File, name: &str) -> Result<()> {
        if let Some(result) = sim::fs::unlink(self, dir, name) {
            return result;
        }
        rustix::fs::unlinkat(dir.os(), name, AtFlags::empty()).map_err(|e| Error::from(e).context(name))
    }

    /// What is known of an open file.
    ///
    /// # Errors
    /// What the system says.
    pub fn meta(&self, file: &File) -> Result<Meta> {
        if let Some(result) = sim::fs::meta(self, file) {
            return result;
        }
        let stat = rustix::fs::fstat(file.os())?;
        let regular = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file();
        Ok(Meta { len: stat.st_size as u64, regular, links: stat.st_nlink as u64 })
    }

    /// The attribute `name` of the request queue of the block device that holds a file (`fua`, `write_cache`), as the
    /// kernel shows it; `None` where there is no such device or attribute, and for a simulated file.
    pub fn queue_attribute(&self, file: &File, name: &str) -> Option<String> {
        if file.opening().is_some() {
            return None;
        }
        let device = rustix::fs::fstat(file.os()).ok()?.st_dev;
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        // A partition's queue is its disk's, one folder up.
        ["queue", "../queue"].into_iter().find_map(|queue| {
            let path = format!("/sys/dev/block/{major}:{minor}/{queue}/{name}");
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            let fd = rustix::fs::open(path, flags, Mode::empty()).ok()?;
            let mut bytes = [0u8; 64];
            let len = rustix::io::read(&fd, &mut bytes).ok()?;
            Some(String::from_utf8_lossy(bytes.get(..len)?).trim().to_owned())
        })
    }

    /// Sets a file's length.
    ///
    /// # Errors
    /// What the system says.
    pub fn set_len(&self, file: &File, len: u64) -> Result<()> {
        if let Some(result) = sim::fs::set_len(self, file, len) {
            return result;
        }
        rustix::fs::ftruncate(file.os(), len).map_err(Error::from)
    }

    /// What tells this file or directory from any other of the system: device and inode. None when simulated.
    ///
    /// # Errors
    /// What the system says.
    pub fn identity(&self, file: &File) -> Result<Option<(u64, u64)>> {
        if file.opening().is_some() {
            return Ok(None);
        }
        let stat = rustix::fs::fstat(file.os())?;
        Ok(Some((stat.st_dev, stat.st_ino)))
    }

    /// Takes the exclusive lock of a file without waiting; false when another opening of it has the lock. It is
    /// given back when the file is closed, or by the process's end.
    ///
    /// # Errors
    /// What the system says.
    pub fn lock(&self, file: &File) -> Result<bool> {
        if let Some(result) = sim::fs::lock(self, file) {
            return result;
        }
        match rustix::fs::flock(file.os(), rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
            Err(e) => Err(Error::from(e).context("locking")),
        }
    }
}

/// Gives the exclusive lock of a file back, although a forked child may still hold a copy of the descriptor.
///
/// # Errors
/// What the system says.
pub fn unlock(file: &File) -> Result<()> {
    if let Some(result) = sim::fs::unlock(file) {
        return result;
    }
    rustix::fs::flock(file.os(), rustix::fs::FlockOperation::Unlock).map_err(Error::from)
}

/// Whether a descriptor has a position, so that a short transfer has a rest.
pub(super) fn is_seekable(fd: RawFd) -> bool {
    if sim::is_simulated(fd) {
        return true;
    }
    let stat = borrow(fd).and_then(|fd: BorrowedFd<'_>| rustix::fs::fstat(fd).ok());
    stat.is_some_and(|stat| {
        let kind = rustix::fs::FileType::from_raw_mode(stat.st_mode);
        kind.is_file() || kind.is_block_device()
    })
}
