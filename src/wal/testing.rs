//! What the log's tests share: a directory that is gone afterwards.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests look at the files from outside"
)]

use std::path::PathBuf;

use crate::ring::io::Io;
use crate::ring::op::File;

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
