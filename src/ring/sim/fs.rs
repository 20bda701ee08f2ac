//! PLACEHOLDER: the simulated file system calls; `None` when the handle isn't simulated.
use crate::base::Result;
use crate::ring::fs::{How, Meta};
use crate::ring::io::Io;
use crate::ring::op::File;
use std::path::Path;

#[allow(missing_docs)]
pub fn open_dir(_io: &Io, _path: &Path, _create: bool) -> Option<Result<File>> {
    None
}
#[allow(missing_docs)]
pub fn open_at(_io: &Io, _dir: &File, _name: &str, _how: How) -> Option<Result<File>> {
    None
}
#[allow(missing_docs)]
pub fn list(_io: &Io, _dir: &File) -> Option<Result<Vec<String>>> {
    None
}
#[allow(missing_docs)]
pub fn rename(_io: &Io, _dir: &File, _from: &str, _to: &str) -> Option<Result<()>> {
    None
}
#[allow(missing_docs)]
pub fn unlink(_io: &Io, _dir: &File, _name: &str) -> Option<Result<()>> {
    None
}
#[allow(missing_docs)]
pub fn meta(_io: &Io, _file: &File) -> Option<Result<Meta>> {
    None
}
#[allow(missing_docs)]
pub fn set_len(_io: &Io, _file: &File, _len: u64) -> Option<Result<()>> {
    None
}
#[allow(missing_docs)]
pub fn lock(_io: &Io, _file: &File) -> Option<Result<bool>> {
    None
}
