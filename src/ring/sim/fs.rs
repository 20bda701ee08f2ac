//! The file system calls of a simulated machine. Each answers `None` when it isn't meant: the handle is not over
//! the simulator, or the file not on its disk.
//!
//! A call takes a moment of virtual time, can fail by plan, and, when it changes something, counts as a completion,
//! so that a crash can come between two calls.

use std::path::Path;

use super::fault::{Class, Effect};
use super::state::State;
use super::{Opening, World};
use crate::base::{Error, Result};
use crate::ring::driver::Driver;
use crate::ring::fs::{How, Meta};
use crate::ring::io::Io;
use crate::ring::op::File;

/// The longest file that a write may make, as of the kernel's.
const NAME_MAX: usize = 255;

fn refuse<T>(errno: i32, what: &str) -> Result<T> {
    Err(Error::system(errno, what.to_owned()))
}

fn check_name(name: &str) -> Result<()> {
    match name {
        "" | "." | ".." => refuse(libc::EINVAL, name),
        _ if name.contains(['/', '\0']) => refuse(libc::EINVAL, name),
        _ if name.len() > NAME_MAX => refuse(libc::ENAMETOOLONG, name),
        _ => Ok(()),
    }
}

/// Begins a call: the machine runs, and no planned fault hits it.
fn call(state: &mut State, class: Class, name: &str) -> Result<()> {
    state.alive()?;
    state.now_us += 1 + state.random.below(10);
    while state.next_time().is_some_and(|time| time <= state.now_us) && !state.crashed() {
        state.step();
    }
    state.alive()?;
    state.note(class.bits().into());
    match state.plan.judge(class, || name.to_owned()) {
        Some(Effect::Errno(errno)) => refuse(errno, name),
        _ => Ok(()),
    }
}

fn opened(world: &World, state: &mut State, ino: u64, how: How) -> File {
    let id = state.open(ino, how.write, how.direct);
    File::simulated(Opening { world: world.clone(), id })
}

/// What a call about an open file works on.
fn on<T>(file: &File, body: impl FnOnce(&World, &mut State, u64, u64) -> Result<T>) -> Option<Result<T>> {
    let opening = file.opening()?;
    let mut state = opening.world.state();
    let Some(ino) = state.handles.get(&opening.id).map(|handle| handle.ino) else {
        return Some(refuse(libc::EBADF, "closed"));
    };
    Some(body(&opening.world, &mut state, ino, opening.id))
}

/// As [`Io::open_dir`].
pub(in crate::ring) fn open_dir(io: &Io, path: &Path, create: bool) -> Option<Result<File>> {
    let world = io.with_reactor(|reactor| match reactor.driver() {
        Driver::Sim(sim) => Some(sim.world().clone()),
        _ => None,
    })?;
    let mut state = world.state();
    let state = &mut *state;
    let text = path.display().to_string();
    if let Err(e) = call(state, Class::OPEN, &text) {
        return Some(Err(e));
    }
    let Some(ino) = state.disk.directory(path, create) else {
        return Some(refuse(libc::ENOENT, &text));
    };
    Some(Ok(opened(&world, state, ino, How::default())))
}

/// As [`Io::open_at`].
pub(in crate::ring) fn open_at(_: &Io, dir: &File, name: &str, how: How) -> Option<Result<File>> {
    on(dir, |world, state, dir, _| {
        check_name(name)?;
        call(state, Class::OPEN, name)?;
        let Some(directory) = state.disk.directories.get(&dir) else { return refuse(libc::ENOTDIR, name) };
        let ino = match directory.volatile.get(name).copied() {
            Some(_) if how.create && how.exclusive => return refuse(libc::EEXIST, name),
            Some(ino) if state.disk.inodes.get(&ino).is_some_and(|inode| inode.symlink) => {
                return refuse(libc::ELOOP, name);
            }
            Some(ino) => return Ok(opened(world, state, ino, how)),
            None if !how.create => return refuse(libc::ENOENT, name),
            None => state.disk.make_inode(),
        };
        state.disk.rename(dir, None, Some(name), ino);
        let file = opened(world, state, ino, how);
        state.count();
        Ok(file)
    })
}

/// As [`Io::list`].
pub(in crate::ring) fn list(_: &Io, dir: &File) -> Option<Result<Vec<String>>> {
    on(dir, |_, state, dir, _| {
        call(state, Class::LIST, "")?;
        match state.disk.directories.get(&dir) {
            Some(directory) => Ok(directory.volatile.keys().cloned().collect()),
            None => refuse(libc::ENOTDIR, "listing"),
        }
    })
}

/// As [`Io::rename`].
pub(in crate::ring) fn rename(_: &Io, dir: &File, from: &str, to: &str) -> Option<Result<()>> {
    on(dir, |_, state, dir, _| {
        check_name(from)?;
        check_name(to)?;
        call(state, Class::RENAME, from)?;
        let ino = lookup(state, dir, from)?;
        if from != to {
            state.disk.rename(dir, Some(from), Some(to), ino);
            state.sweep();
        }
        state.count();
        Ok(())
    })
}

/// As [`Io::unlink`].
pub(in crate::ring) fn unlink(_: &Io, dir: &File, name: &str) -> Option<Result<()>> {
    on(dir, |_, state, dir, _| {
        check_name(name)?;
        call(state, Class::UNLINK, name)?;
        let ino = lookup(state, dir, name)?;
        state.disk.rename(dir, Some(name), None, ino);
        state.sweep();
        state.count();
        Ok(())
    })
}

fn lookup(state: &State, dir: u64, name: &str) -> Result<u64> {
    match state.disk.directories.get(&dir).map(|directory| directory.volatile.get(name)) {
        None => refuse(libc::ENOTDIR, name),
        Some(None) => refuse(libc::ENOENT, name),
        Some(Some(ino)) => Ok(*ino),
    }
}

/// As [`Io::meta`].
pub(in crate::ring) fn meta(_: &Io, file: &File) -> Option<Result<Meta>> {
    on(file, |_, state, ino, _| {
        let name = state.disk.name_of(ino);
        call(state, Class::META, &name)?;
        let names = state.disk.directories.values().flat_map(|directory| directory.volatile.values());
        let links = names.filter(|named| **named == ino).count() as u64;
        match state.disk.inodes.get(&ino) {
            Some(inode) => Ok(Meta { len: inode.volatile.len(), regular: true, links }),
            None => Ok(Meta { len: 0, regular: false, links: 1 }),
        }
    })
}

/// As [`Io::set_len`].
pub(in crate::ring) fn set_len(_: &Io, file: &File, len: u64) -> Option<Result<()>> {
    on(file, |_, state, ino, id| {
        let name = state.disk.name_of(ino);
        call(state, Class::SET_LEN, &name)?;
        if !state.handles.get(&id).is_some_and(|handle| handle.write) {
            return refuse(libc::EINVAL, &name);
        }
        state.disk.set_len(ino, len);
        state.count();
        Ok(())
    })
}

/// As [`Io::lock`].
pub(in crate::ring) fn lock(_: &Io, file: &File) -> Option<Result<bool>> {
    on(file, |_, state, ino, id| {
        let name = state.disk.name_of(ino);
        call(state, Class::LOCK, &name)?;
        if state.lingering.iter().any(|(held, _)| *held == ino) {
            return Ok(false);
        }
        Ok(*state.locks.entry(ino).or_insert(id) == id)
    })
}

/// As [`unlock`](crate::ring::fs::unlock): a lock belongs to the opening, whatever slots still use it.
pub(in crate::ring) fn unlock(file: &File) -> Option<Result<()>> {
    on(file, |_, state, ino, id| {
        if state.locks.get(&ino) == Some(&id) {
            state.locks.remove(&ino);
        }
        Ok(())
    })
}
