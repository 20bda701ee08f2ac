//! The simulated disk: every file has a volatile image (the page cache) and a durable one, and between them the list
//! of what was changed and not synced, in order.
//!
//! The unit of change is the sector, since a power loss leaves sectors whole and nothing larger; a length and a
//! directory entry are changes of their own. A sync carries over what was changed before the sync *began*. A failed
//! sync forgets those changes, as Linux does: they stay readable, a later sync succeeds, and they are not on the disk.
//! What was rejected: keeping pages as the unit (hides torn blocks), and writing back at random moments (any subset
//! of the unsynced changes can be chosen at the crash instead, which covers every moment).

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use super::content::{Content, PAGE, SECTOR};
use super::random::Random;

/// A file's number on the disk.
pub type Ino = u64;

/// One unsynced change of a file.
#[derive(Debug, Clone)]
pub struct Change {
    /// Its place among all changes of this disk.
    pub seq: u64,
    /// It was written through: it survives whatever is chosen, and stands here only for the order.
    pub through: bool,
    /// What changed.
    pub what: What,
}

/// What an unsynced change of a file is.
#[derive(Debug, Clone)]
pub enum What {
    /// A sector's bytes, in a file that was `len` bytes long then.
    Sector {
        /// Which sector of the file.
        index: u64,
        /// All its bytes.
        bytes: Arc<[u8; SECTOR]>,
        /// The file's length after the write.
        len: u64,
    },
    /// The length.
    Length {
        /// The new one.
        len: u64,
        /// Set outright; else a write grew the file.
        set: bool,
    },
}

/// One unsynced change of a directory.
#[derive(Debug, Clone)]
pub struct NameChange {
    /// Its place among all changes of this disk.
    pub seq: u64,
    /// The name that now leads to `ino`, if any.
    pub add: Option<String>,
    /// The name that no longer leads to `ino`, if any.
    pub remove: Option<String>,
    /// The file.
    pub ino: Ino,
}

/// A file.
#[derive(Debug, Clone, Default)]
pub struct Inode {
    /// What reads see.
    pub volatile: Content,
    /// What a power loss leaves in any case.
    pub durable: Content,
    /// Unsynced changes, oldest first.
    pub pending: VecDeque<Change>,
    /// A sync failed: the images differ in places that no pending change names.
    pub lost: bool,
    /// It is a symbolic link, which nobody may follow.
    pub symlink: bool,
    /// Which pages have their place on the disk.
    allocated: Vec<bool>,
}

/// A directory.
#[derive(Debug, Clone, Default)]
pub struct Directory {
    /// What lookups see.
    pub volatile: BTreeMap<String, Ino>,
    /// What a power loss leaves in any case.
    pub durable: BTreeMap<String, Ino>,
    /// Unsynced changes, oldest first.
    pub pending: VecDeque<NameChange>,
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct Disk {
    /// The files.
    pub inodes: BTreeMap<Ino, Inode>,
    /// The directories, numbered like files.
    pub directories: BTreeMap<Ino, Directory>,
    /// The directories' paths. A directory is durable as soon as it is made.
    pub paths: BTreeMap<PathBuf, Ino>,
    /// How many bytes fit; `None`: any number.
    pub space: Option<u64>,
    used: u64,
    last: u64,
}

impl Change {
    fn apply(&self, content: &mut Content) {
        match &self.what {
            What::Sector { index, bytes, len } => content.put_sector(*index, bytes, *len),
            What::Length { len, set: true } => content.set_len(*len),
            What::Length { len, set: false } => content.set_len(content.len().max(*len)),
        }
    }
}

impl NameChange {
    /// Makes the change, whatever happened before: only what still leads to the file is taken away.
    pub fn apply(&self, names: &mut BTreeMap<String, Ino>) {
        if let Some(name) = self.remove.as_ref().filter(|name| names.get(*name) == Some(&self.ino)) {
            names.remove(name);
        }
        if let Some(name) = &self.add {
            names.insert(name.clone(), self.ino);
        }
    }
}

impl Inode {
    fn allocate(&mut self, page: usize) {
        if self.allocated.len() <= page {
            self.allocated.resize(page + 1, false);
        }
        self.allocated[page] = true;
    }

    fn is_allocated(&self, page: usize) -> bool {
        self.allocated.get(page).copied().unwrap_or(false)
    }

    fn allocated_bytes(&self) -> u64 {
        (self.allocated.iter().filter(|allocated| **allocated).count() * PAGE) as u64
    }

    /// Lets a change survive.
    pub fn apply(&mut self, change: &Change) {
        change.apply(&mut self.durable);
    }

    /// Carries over to the durable image what needs no sync any more.
    fn settle(&mut self, up_to: u64) {
        while let Some(change) = self.pending.front().filter(|c| c.through || c.seq <= up_to) {
            change.apply(&mut self.durable);
            self.pending.pop_front();
        }
    }
}

impl Disk {
    /// The number of the latest change.
    pub fn last(&self) -> u64 {
        self.last
    }

    fn tick(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// A new, empty file that no directory names.
    pub fn make_inode(&mut self) -> Ino {
        let ino = self.tick();
        self.inodes.insert(ino, Inode::default());
        ino
    }

    /// The directory of this path, made when asked.
    pub fn directory(&mut self, path: &std::path::Path, create: bool) -> Option<Ino> {
        if let Some(ino) = self.paths.get(path) {
            return Some(*ino);
        }
        if !create {
            return None;
        }
        let ino = self.tick();
        self.directories.insert(ino, Directory::default());
        self.paths.insert(path.to_owned(), ino);
        Some(ino)
    }

    /// Writes; the count, less than asked when the disk gets full. With `through` it is durable at once.
    ///
    /// # Errors
    /// `ENOSPC` when not a byte fits.
    pub fn write(&mut self, ino: Ino, offset: u64, bytes: &[u8], through: bool) -> Result<usize, i32> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let fits = self.reserve(ino, offset, bytes.len())?;
        let bytes = &bytes[..fits];
        let mut seq = self.last;
        let Some(inode) = self.inodes.get_mut(&ino) else { return Err(libc::EBADF) };
        let mut record = |pending: &mut VecDeque<Change>, what| {
            seq += 1;
            pending.push_back(Change { seq, through, what });
        };
        let end = offset + bytes.len() as u64;
        if end > inode.volatile.len() {
            record(&mut inode.pending, What::Length { len: end, set: false });
        }
        // What is written over with the same bytes is no change, unless the images differ there unseen.
        let always = through || inode.lost;
        let mut changed = Vec::new();
        let (first, last) = (offset / SECTOR as u64, end.div_ceil(SECTOR as u64));
        if always || !inode.volatile.has(offset, bytes) {
            for index in first..last {
                let start = (index * SECTOR as u64).max(offset);
                let stop = ((index + 1) * SECTOR as u64).min(end);
                let part = &bytes[(start - offset) as usize..(stop - offset) as usize];
                if always || !inode.volatile.has(start, part) {
                    changed.push(index);
                }
            }
        }
        inode.volatile.write(offset, bytes);
        let len = inode.volatile.len();
        for index in changed {
            let bytes = Arc::new(inode.volatile.sector(index));
            record(&mut inode.pending, What::Sector { index, bytes, len });
        }
        inode.settle(0);
        self.last = seq;
        Ok(fits)
    }

    /// Finds room for a write; how many of its bytes have a place.
    fn reserve(&mut self, ino: Ino, offset: u64, len: usize) -> Result<usize, i32> {
        let Some(inode) = self.inodes.get_mut(&ino) else { return Err(libc::EBADF) };
        let end = offset + len as u64;
        for page in offset as usize / PAGE..(end as usize).div_ceil(PAGE) {
            if inode.is_allocated(page) {
                continue;
            }
            if self.space.is_some_and(|space| self.used + PAGE as u64 > space) {
                let fits = ((page * PAGE) as u64).saturating_sub(offset) as usize;
                return if fits == 0 { Err(libc::ENOSPC) } else { Ok(fits) };
            }
            inode.allocate(page);
            self.used += PAGE as u64;
        }
        Ok(len)
    }

    /// Bytes that files have their place for.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Sets a file's length.
    pub fn set_len(&mut self, ino: Ino, len: u64) {
        let seq = self.tick();
        let Some(inode) = self.inodes.get_mut(&ino) else { return };
        inode.volatile.set_len(len);
        inode.pending.push_back(Change { seq, through: false, what: What::Length { len, set: true } });
        self.used -= inode.allocated_bytes();
        inode.allocated.truncate((len as usize).div_ceil(PAGE));
        self.used += inode.allocated_bytes();
    }

    /// Changes a directory. The file that loses its last name goes with its last opening, see [`Disk::sweep`].
    pub fn rename(&mut self, dir: Ino, remove: Option<&str>, add: Option<&str>, ino: Ino) {
        let seq = self.tick();
        let Some(directory) = self.directories.get_mut(&dir) else { return };
        let change = NameChange { seq, add: add.map(str::to_owned), remove: remove.map(str::to_owned), ino };
        change.apply(&mut directory.volatile);
        directory.pending.push_back(change);
    }

    /// Makes durable what was changed up to `up_to`, of a file or a directory.
    pub fn sync(&mut self, ino: Ino, up_to: u64) {
        if let Some(inode) = self.inodes.get_mut(&ino) {
            inode.settle(up_to);
        }
        if let Some(directory) = self.directories.get_mut(&ino) {
            while let Some(change) = directory.pending.front().filter(|c| c.seq <= up_to) {
                change.apply(&mut directory.durable);
                directory.pending.pop_front();
            }
        }
    }

    /// A sync that fails: some of the changes may have got through, and none will be tried again. A directory's
    /// changes stay pending, since its journal keeps them.
    pub fn fail_sync(&mut self, ino: Ino, up_to: u64, random: &mut Random) {
        let Some(inode) = self.inodes.get_mut(&ino) else { return };
        let rate = if random.chance(512) { 0 } else { 512 };
        while let Some(change) = inode.pending.front().filter(|c| c.seq <= up_to) {
            if change.through || random.chance(rate) {
                change.apply(&mut inode.durable);
            }
            inode.pending.pop_front();
        }
        inode.lost = true;
    }

    /// Forgets files that have no name, durable, volatile or on the way, and are not in `open`; gives their room
    /// back as soon as no lookup leads to them.
    pub fn sweep(&mut self, open: &dyn Fn(Ino) -> bool) {
        let mut named = Vec::new();
        let mut kept = Vec::new();
        for directory in self.directories.values() {
            named.extend(directory.volatile.values().copied());
            kept.extend(directory.durable.values().copied());
            kept.extend(directory.pending.iter().map(|change| change.ino));
        }
        self.used = 0;
        self.inodes.retain(|ino, inode| {
            let needed = named.contains(ino) || open(*ino);
            if needed {
                self.used += inode.allocated_bytes();
            }
            needed || kept.contains(ino)
        });
    }

    /// The name by which a file can be told in messages.
    pub fn name_of(&self, ino: Ino) -> String {
        let in_directory = |d: &Directory| {
            let all = d.volatile.iter().chain(&d.durable);
            all.filter(|(_, i)| **i == ino).map(|(name, _)| name.clone()).next()
        };
        self.directories.values().find_map(in_directory).unwrap_or_else(|| format!("unnamed file {ino}"))
    }

    /// After a power loss or a restart: what is durable is all there is.
    pub fn forget_volatile(&mut self) {
        for inode in self.inodes.values_mut() {
            inode.volatile = inode.durable.clone();
            inode.pending.clear();
            inode.lost = false;
            inode.allocated = vec![true; (inode.durable.len() as usize).div_ceil(PAGE)];
        }
        for directory in self.directories.values_mut() {
            directory.volatile = directory.durable.clone();
            directory.pending.clear();
        }
        self.sweep(&|_| false);
    }
}
