//! Whether a directory holds a store, may become one, or is somebody else's.
//!
//! A directory that holds other files and no store is refused before anything is made in it: a mistyped path must
//! not scatter a log among somebody's documents. A directory with files of a later version is refused as such.

use std::path::Path;

use super::options::Options;
use crate::base::{Error, Result};
use crate::ring::Io;
use crate::ring::op::File;
use crate::wal::lock;
use crate::wal::segment;

/// Names that a file system makes by itself.
const NOT_COUNTED: [&str; 1] = ["lost+found"];

/// Opens the store's directory, making it when it may be made.
///
/// # Errors
/// What the system says, with the reason in words; refusals as the module says.
pub async fn open(io: &Io, path: &Path, options: &Options) -> Result<File> {
    match io.open_dir(path, false) {
        Err(e) if e.errno() == Some(libc::ENOENT) => {
            if !options.create_if_missing {
                let text = format!("no store in {}, and create_if_missing is 0", path.display());
                return Err(Error::system(libc::ENOENT, text));
            }
            make(io, path).await
        }
        Err(e) => Err(explain(e, path)),
        Ok(dir) => {
            let holds = look(io, &dir, path)?;
            if !holds && !options.create_if_missing {
                let text = format!("no store in {}, and create_if_missing is 0", path.display());
                return Err(Error::system(libc::ENOENT, text));
            }
            Ok(dir)
        }
    }
}

/// Once the lock is held: whether there is a store, which may be refused.
///
/// # Errors
/// `-EEXIST` as the options say; refusals as the module says.
pub fn check(io: &Io, dir: &File, path: &Path, options: &Options) -> Result<()> {
    if look(io, dir, path)? && options.error_if_exists {
        let text = format!("{} holds a store already, and error_if_exists is set", path.display());
        return Err(Error::system(libc::EEXIST, text));
    }
    Ok(())
}

async fn make(io: &Io, path: &Path) -> Result<File> {
    let dir = io.open_dir(path, true).map_err(|e| explain(e, path))?;
    // The new name is durable only when its parent directory is.
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    match io.open_dir(parent, false) {
        Ok(parent) => io.sync(&parent, false).await.map_err(|e| explain(e, path))?,
        // It may be written but not read: then nobody can sync it. The simulator has no parents.
        Err(e) if matches!(e.errno(), Some(libc::EACCES | libc::ENOENT)) => {}
        Err(e) => return Err(explain(e, parent)),
    }
    Ok(dir)
}

/// Whether the directory holds a store; refuses what isn't this version's.
fn look(io: &Io, dir: &File, path: &Path) -> Result<bool> {
    let names = io.list(dir).map_err(|e| explain(e, path))?;
    let later = names.iter().find(|name| *name == "CURRENT" || name.starts_with("MANIFEST-"));
    if let Some(name) = later {
        let text = format!(
            "{} holds {name}, which this version doesn't know: a store of a later version, or of another library",
            path.display()
        );
        return Err(Error::Version(text.into()));
    }
    let log = |name: &String| segment::parse_name(name).is_some();
    if names.iter().any(log) {
        return Ok(true);
    }
    let foreign = names.iter().find(|name| *name != lock::NAME && !NOT_COUNTED.contains(&name.as_str()));
    match foreign {
        None => Ok(false),
        Some(name) => {
            let text = format!(
                "{} holds no store but other files ({name}, for one); name an empty or a new directory",
                path.display()
            );
            Err(Error::system(libc::ENOTEMPTY, text))
        }
    }
}

/// The same error, with a sentence that says what stands in the way.
fn explain(error: Error, path: &Path) -> Error {
    let path = path.display();
    let Some(errno) = error.errno() else { return error };
    let text = match errno {
        libc::ENOTDIR => format!("{path}, or a part of this path, is a file where a directory is needed"),
        libc::EACCES | libc::EPERM => format!("no permission to open or make the directory {path}"),
        libc::EROFS => format!("{path} is on a read-only file system; a store needs to write"),
        libc::ENOSPC | libc::EDQUOT => format!("the disk is full: the directory {path} can't be made"),
        libc::ENOENT => format!("the parent directory of {path} doesn't exist; make it first"),
        _ => return error.context(format!("opening the directory {path}")),
    };
    Error::system(errno, text)
}
