//! What an operation does at the moment at which it happens: the transfer itself, with the faults that were planned
//! for it and those that come by chance.

use super::content::SECTOR;
use super::disk::Ino;
use super::fault::{Class, Effect};
use super::state::{Act, Job, State};
use crate::base::memory::Lent;

impl State {
    /// Does what a job is for, all at once; its result.
    pub fn carry_out(&mut self, job: &Job) -> i32 {
        let class = match job.step.act {
            Act::Answer(result) => return result,
            Act::LinkTimeout { .. } => return -libc::EINVAL,
            Act::CloseSlot { slot } => {
                return self.set_slot(job.ring, slot, None).map_or(-libc::EBADF, |()| 0);
            }
            Act::Timeout { .. } => Class::TIMEOUT,
            Act::Read { .. } => Class::READ,
            Act::Write { .. } => Class::WRITE,
            Act::Sync { .. } => Class::SYNC,
        };
        let handle = job.file.and_then(|id| self.handles.get(&id));
        let handle = handle.map(|handle| (handle.ino, handle.write, handle.direct));
        let disk = &self.disk;
        let effect = self.plan.judge(class, || handle.map(|(ino, ..)| disk.name_of(ino)).unwrap_or_default());
        if class == Class::TIMEOUT {
            return if let Some(Effect::Errno(errno)) = effect { -errno } else { -libc::ETIME };
        }
        let Some((ino, write, direct)) = handle else { return -libc::EBADF };
        match &job.step.act {
            Act::Sync { .. } => self.sync(ino, job.up_to, effect),
            Act::Read { memory, offset, .. } => self.read(ino, direct, *memory, *offset, effect),
            Act::Write { .. } if !write => -libc::EBADF,
            Act::Write { memory, offset, through, .. } => {
                self.write(ino, direct, (*memory, *offset, *through), effect)
            }
            _ => -libc::EINVAL,
        }
    }

    fn sync(&mut self, ino: Ino, up_to: u64, effect: Option<Effect>) -> i32 {
        match effect {
            Some(Effect::Errno(errno)) => {
                if !matches!(errno, libc::EINTR | libc::EAGAIN | libc::ECANCELED) {
                    self.disk.fail_sync(ino, up_to, &mut self.random);
                }
                -errno
            }
            _ => {
                self.disk.sync(ino, up_to);
                0
            }
        }
    }

    /// How many bytes of a transfer are moved, or its error.
    fn judge_len(&mut self, len: usize, direct: bool, effect: Option<Effect>) -> Result<usize, i32> {
        let short = match effect {
            Some(Effect::Errno(errno)) => return Err(errno),
            Some(Effect::ShortByOne) => len.saturating_sub(1),
            Some(Effect::ShortByHalf) => len / 2,
            None if self.random.chance(self.options.interrupt_per_1024) => {
                return Err(if self.random.chance(512) { libc::EINTR } else { libc::EAGAIN });
            }
            None if self.random.chance(self.options.short_per_1024) => self.random.below(len as u64) as usize,
            None => return Ok(len),
        };
        let short = if direct { short / SECTOR * SECTOR } else { short };
        // Planned shortness may move nothing; at random some byte always moves.
        Ok(if short == 0 && effect.is_none() { len } else { short })
    }

    fn read(&mut self, ino: Ino, direct: bool, memory: Lent, offset: u64, effect: Option<Effect>) -> i32 {
        if direct && !self.is_aligned(&memory, offset) {
            return -libc::EINVAL;
        }
        let len = match self.judge_len(memory.len(), direct, effect) {
            Err(errno) => return -errno,
            Ok(len) => len,
        };
        let Some(inode) = self.disk.inodes.get(&ino) else { return -libc::EISDIR };
        let mut bytes = vec![0; len];
        let count = inode.volatile.read(offset, &mut bytes);
        memory.fill(&bytes[..count]);
        count as i32
    }

    fn is_aligned(&self, memory: &Lent, offset: u64) -> bool {
        let align = self.options.direct_align;
        memory.is_aligned(align) && memory.len().is_multiple_of(align) && offset.is_multiple_of(align as u64)
    }

    fn write(
        &mut self,
        ino: Ino,
        direct: bool,
        (memory, offset, through): (Lent, u64, bool),
        effect: Option<Effect>,
    ) -> i32 {
        if direct && !self.is_aligned(&memory, offset) {
            return -libc::EINVAL;
        }
        let (len, error) = match self.judge_len(memory.len(), direct, effect) {
            Ok(len) => (len, None),
            // Some of it may have reached the disk all the same.
            Err(libc::EIO) if self.random.chance(512) => {
                let some = self.random.below(memory.len() as u64 + 1) as usize / SECTOR * SECTOR;
                (some, Some(libc::EIO))
            }
            Err(errno) => return -errno,
        };
        let written = self.disk.write(ino, offset, &memory.copy(len), through && error.is_none());
        match (written, error) {
            (_, Some(errno)) | (Err(errno), None) => -errno,
            (Ok(count), None) => count as i32,
        }
    }
}
