//! Looking at a simulated disk, and damaging it, behind the library's back.
//!
//! Damage changes what is durable and what is read, and leaves nothing pending: it is what a bad disk, or somebody
//! with an editor, leaves between two openings.

use std::path::Path;

use super::content::{Content, SECTOR};
use super::disk::{Ino, Inode};
use super::state::State;
use super::world::World;

/// What is done to a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Damage {
    /// Flips one bit, counted from the lowest bit of the first byte.
    FlipBit(u64),
    /// Zeroes one sector of 512 bytes.
    ZeroSector(u64),
    /// Exchanges two sectors of 512 bytes.
    SwapSectors(u64, u64),
    /// Cuts (or extends with zeros) to this length.
    SetLen(u64),
    /// Writes these bytes at this offset.
    Overwrite(u64, Vec<u8>),
}

impl Damage {
    fn apply(&self, content: &mut Content) {
        let len = content.len();
        match self {
            Damage::FlipBit(bit) => {
                let mut byte = [0];
                if content.read(bit / 8, &mut byte) == 1 {
                    content.write(bit / 8, &[byte[0] ^ 1 << (bit % 8)]);
                }
            }
            Damage::ZeroSector(index) => content.put_sector(*index, &[0; SECTOR], len),
            Damage::SwapSectors(a, b) => {
                let (first, second) = (content.sector(*a), content.sector(*b));
                content.put_sector(*a, &second, len);
                content.put_sector(*b, &first, len);
            }
            Damage::SetLen(len) => content.set_len(*len),
            Damage::Overwrite(offset, bytes) => content.write(*offset, bytes),
        }
    }
}

fn find(state: &State, dir: &Path, name: &str) -> Option<Ino> {
    let dir = state.disk.paths.get(dir)?;
    state.disk.directories.get(dir)?.volatile.get(name).copied()
}

impl World {
    /// The names in a directory, sorted; none when there is no such directory.
    pub fn names(&self, dir: &Path) -> Vec<String> {
        let state = self.state();
        let directory = state.disk.paths.get(dir).and_then(|ino| state.disk.directories.get(ino));
        directory.map(|directory| directory.volatile.keys().cloned().collect()).unwrap_or_default()
    }

    /// A file's bytes as reads see them.
    pub fn read_raw(&self, dir: &Path, name: &str) -> Option<Vec<u8>> {
        let state = self.state();
        let inode = state.disk.inodes.get(&find(&state, dir, name)?)?;
        Some(inode.volatile.to_vec())
    }

    /// A file's bytes as they are durable.
    pub fn read_durable(&self, dir: &Path, name: &str) -> Option<Vec<u8>> {
        let state = self.state();
        let inode = state.disk.inodes.get(&find(&state, dir, name)?)?;
        Some(inode.durable.to_vec())
    }

    /// Damages a file; false when there is none of that name.
    pub fn damage(&self, dir: &Path, name: &str, damage: &Damage) -> bool {
        let mut state = self.state();
        let ino = find(&state, dir, name);
        let Some(inode) = ino.and_then(|ino| state.disk.inodes.get_mut(&ino)) else { return false };
        damage.apply(&mut inode.volatile);
        inode.durable = inode.volatile.clone();
        inode.pending.clear();
        true
    }

    /// Puts a durable file, and its directory, where it wasn't, or replaces it.
    pub fn plant(&self, dir: &Path, name: &str, bytes: &[u8]) {
        let mut content = Content::default();
        content.write(0, bytes);
        self.plant_inode(dir, name, |inode| {
            inode.volatile = content.clone();
            inode.durable = content;
        });
    }

    /// Puts a symbolic link, which nobody may follow, into a directory.
    pub fn plant_symlink(&self, dir: &Path, name: &str) {
        self.plant_inode(dir, name, |inode| inode.symlink = true);
    }

    fn plant_inode(&self, dir: &Path, name: &str, fill: impl FnOnce(&mut Inode)) {
        let mut state = self.state();
        let ino = state.disk.make_inode();
        if let Some(inode) = state.disk.inodes.get_mut(&ino) {
            fill(inode);
        }
        let dir = state.disk.directory(dir, true);
        if let Some(directory) = dir.and_then(|dir| state.disk.directories.get_mut(&dir)) {
            directory.pending.retain(|change| change.add.as_deref() != Some(name));
            directory.volatile.insert(name.to_owned(), ino);
            directory.durable.insert(name.to_owned(), ino);
        }
    }
}
