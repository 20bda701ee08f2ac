//! What is registered with the ring: file slots, buffers, restrictions, the ring's own descriptor.
//!
//! Both tables are made sparse and filled by updates, so that one slot or buffer can change while the ring runs.
//! Buffers carry a tag: the kernel posts it when it has let a replaced buffer go.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use io_uring::register::Restriction;
use io_uring::{opcode, squeue};
use rustix::io::Errno;
use rustix::io_uring::{
    IoringEnterFlags, IoringRegisterOp, io_uring_ptr, io_uring_register, io_uring_rsrc_update,
    io_uring_rsrc_update2,
};

use super::super::options::Allowed;
use super::enter::{Door, Owner};
use super::{BUFFER_GONE, Uring, limits};
use crate::base::memory::PAGE;
use crate::base::{Error, Result};

/// The kernel's limit of one registered buffer.
const BUFFER_MAX: usize = 1 << 30;

impl Uring {
    /// Makes the calling thread the owner: enables the ring, and registers its descriptor with the thread.
    ///
    /// # Errors
    /// What the system says.
    pub fn bind(&mut self) -> Result<()> {
        let enabled = self.ring.submitter().register_enable_rings();
        enabled.map_err(|e| self.register_error("enabling the ring", &e))?;
        self.owner = Some(Owner::me());
        // The kernel numbers registered rings per thread: a ring that other threads use as well keeps its descriptor.
        if self.ring.params().is_setup_single_issuer() {
            self.register_door();
        }
        Ok(())
    }

    /// Spares each call the look-up of the descriptor. A thread has sixteen of these; without one all works too.
    fn register_door(&mut self) {
        let mut update = io_uring_rsrc_update::default();
        update.offset = u32::MAX;
        update.data = io_uring_ptr::new(self.ring.as_raw_fd() as usize as *mut _);
        if self.register(IoringRegisterOp::RegisterRingFds, (&raw mut update).cast(), 1) == Ok(1) {
            self.door = Door { number: update.offset as RawFd, flags: IoringEnterFlags::REGISTERED_RING };
        }
    }

    /// The reverse; called on the owner's thread.
    pub(super) fn give_back_door(&mut self) {
        if !self.door.flags.contains(IoringEnterFlags::REGISTERED_RING) {
            return;
        }
        let mut update = io_uring_rsrc_update::default();
        update.offset = self.door.number as u32;
        // It can fail only when it isn't registered, and then there is nothing to give back.
        let _ = self.register(IoringRegisterOp::UnregisterRingFds, (&raw mut update).cast(), 1);
        self.door = Door::descriptor(&self.ring);
    }

    fn register(&self, op: IoringRegisterOp, arg: *mut std::ffi::c_void, count: u32) -> Result<u32, Errno> {
        // SAFETY: the descriptor is the ring's, open as long as the driver.
        let fd = unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) };
        // SAFETY: the callers pass what the operation asks for, alive and writable for the call.
        unsafe { io_uring_register(fd, op, arg, count) }
    }

    pub(super) fn register_error(&self, what: &str, e: &std::io::Error) -> Error {
        match e.raw_os_error() {
            Some(libc::EEXIST) => self.wrong_thread(),
            Some(libc::ENOMEM) => Error::system(libc::ENOMEM, format!("{what}: {}", limits::memlock_hint())),
            Some(libc::EACCES) if self.allowed.is_some() => {
                Error::system(libc::EACCES, format!("{what}: the ring was opened with RESTRICT"))
            }
            errno => Error::system(errno.unwrap_or(libc::EIO), what.to_owned()),
        }
    }

    /// Makes a table of empty file slots.
    ///
    /// # Errors
    /// `-EMFILE` beyond RLIMIT_NOFILE, else what the system says.
    pub fn make_slots(&mut self, count: u32) -> Result<()> {
        let submitter = self.ring.submitter();
        let mut made = submitter.register_files_sparse(count);
        if made.as_ref().is_err_and(|e| e.raw_os_error() == Some(libc::EINVAL)) && count > 0 {
            // Kernels before 5.19 know no sparse tables, but tables of -1.
            made = submitter.register_files(&vec![-1; count as usize]);
        }
        made.map_err(|e| match e.raw_os_error() {
            Some(libc::EMFILE) => {
                let text =
                    format!("a table of {count} file slots is more than RLIMIT_NOFILE allows (ulimit -n)");
                Error::system(libc::EMFILE, text)
            }
            Some(libc::EBUSY) => Error::system(libc::EBUSY, "the ring has a table of file slots already"),
            _ => self.register_error(&format!("a table of {count} file slots"), &e),
        })
    }

    /// Puts a file into a slot, or clears it.
    ///
    /// # Errors
    /// `-EBADF` for a descriptor that isn't open, `-EINVAL` for a slot that isn't there, else what the system says.
    pub fn set_slot(&mut self, slot: u32, fd: Option<RawFd>) -> Result<()> {
        let update = self.ring.submitter().register_files_update(slot, &[fd.unwrap_or(-1)]);
        let what = || format!("putting descriptor {} into file slot {slot}", fd.unwrap_or(-1));
        update.map(drop).map_err(|e| match e.raw_os_error() {
            Some(libc::ENXIO) => Error::invalid("the ring has no table of file slots"),
            _ => self.register_error(&what(), &e),
        })
    }

    /// Makes the table of registered buffers.
    ///
    /// # Errors
    /// Naming the buffer that was refused, with its address, its length and what it missed.
    pub fn register_buffers(&mut self, buffers: &[(usize, usize)]) -> Result<()> {
        let count = buffers.len() as u32;
        self.ring.submitter().register_buffers_sparse(count).map_err(|e| match e.raw_os_error() {
            Some(libc::EBUSY) => Error::system(libc::EBUSY, "the ring has registered buffers already"),
            Some(libc::EINVAL) => {
                let text = format!(
                    "a table of {count} registered buffers: the kernel takes 1 to 16,384 (since 5.19)"
                );
                Error::system(libc::EINVAL, text)
            }
            _ => self.register_error(&format!("a table of {count} registered buffers"), &e),
        })?;
        self.buffers = vec![0; buffers.len()];
        let mut done = 0;
        while done < buffers.len() {
            match self.update_buffers(done, &buffers[done..]) {
                Ok(count) => done += count,
                Err(e) => {
                    let error = self.buffer_error(done, buffers[done], e);
                    // Without its whole table the ring has none.
                    let _ = self.ring.submitter().unregister_buffers();
                    self.buffers.clear();
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Replaces one registered buffer, or unregisters it (address 0).
    ///
    /// # Errors
    /// As [`Uring::register_buffers`].
    pub fn set_buffer(&mut self, index: u16, buffer: (usize, usize)) -> Result<()> {
        let place = usize::from(index);
        if place >= self.buffers.len() {
            let text =
                format!("buffer {index} is not in the table of {} registered buffers", self.buffers.len());
            return Err(Error::invalid(text));
        }
        let replaced = self.buffers[place] > 0;
        self.update_buffers(place, &[buffer]).map_err(|e| self.buffer_error(place, buffer, e))?;
        self.releasing += usize::from(replaced);
        Ok(())
    }

    /// Registers some from `first` on; the answer is how many came to be registered.
    fn update_buffers(&mut self, first: usize, buffers: &[(usize, usize)]) -> Result<usize, Errno> {
        let entries: Vec<libc::iovec> = buffers
            .iter()
            .map(|&(address, len)| libc::iovec {
                iov_base: std::ptr::with_exposed_provenance_mut(address),
                // A hole has no length, whatever was said.
                iov_len: if address == 0 { 0 } else { len },
            })
            .collect();
        let tag = |entry: &libc::iovec| if entry.iov_base.is_null() { 0 } else { BUFFER_GONE };
        let tags: Vec<u64> = entries.iter().map(tag).collect();
        let mut update = io_uring_rsrc_update2::default();
        update.offset = first as u32;
        update.data = io_uring_ptr::new(entries.as_ptr().cast_mut().cast());
        update.tags = io_uring_ptr::new(tags.as_ptr().cast_mut().cast());
        update.nr = entries.len() as u32;
        let size = size_of::<io_uring_rsrc_update2>() as u32;
        let count = self.register(IoringRegisterOp::RegisterBuffersUpdate, (&raw mut update).cast(), size)?;
        for (place, entry) in self.buffers[first..].iter_mut().zip(&entries).take(count as usize) {
            *place = entry.iov_len;
        }
        Ok(count as usize)
    }

    fn buffer_error(&self, index: usize, (address, len): (usize, usize), e: Errno) -> Error {
        if e == Errno::EXIST {
            return self.wrong_thread();
        }
        let cause = match e {
            Errno::FAULT | Errno::INVAL if len == 0 => "it has no bytes".into(),
            Errno::FAULT | Errno::INVAL if len > BUFFER_MAX => "the kernel takes at most 1 GiB in one".into(),
            Errno::FAULT => "not all of that memory is mapped, readable and writable".into(),
            Errno::OPNOTSUPP => "memory of a mapped file can't be registered; use anonymous memory".into(),
            Errno::NOMEM => limits::memlock_hint(),
            e => format!("the kernel refused it ({e})"),
        };
        let missed = address % PAGE;
        let alignment = match missed {
            0 => format!("aligned to {PAGE}"),
            _ => format!("{missed} bytes behind a multiple of {PAGE}, which direct I/O asks for"),
        };
        let text = format!("registered buffer {index} at {address:#x}, {len} bytes, {alignment}: {cause}");
        Error::system(e.raw_os_error(), text)
    }

    /// Locks the ring, still disabled, to what it may be used for.
    pub(super) fn restrict(&mut self, allowed: Allowed) -> std::io::Result<()> {
        let mut list: Vec<Restriction> = opcodes(allowed).into_iter().map(Restriction::sqe_op).collect();
        let links = squeue::Flags::IO_LINK | squeue::Flags::IO_HARDLINK;
        #[allow(
            deprecated,
            reason = "the flag is set by the crate's own `Fixed`, and named for this list alone"
        )]
        let flags = links | squeue::Flags::FIXED_FILE | squeue::Flags::BUFFER_SELECT;
        list.push(Restriction::sqe_flags_allowed(flags.bits()));
        // What the driver registers after the ring is enabled.
        let registers = [
            IoringRegisterOp::RegisterEventfd,
            IoringRegisterOp::UnregisterEventfd,
            IoringRegisterOp::RegisterFiles2,
            IoringRegisterOp::RegisterFiles,
            IoringRegisterOp::RegisterFilesUpdate,
            IoringRegisterOp::RegisterBuffers2,
            IoringRegisterOp::RegisterBuffersUpdate,
            IoringRegisterOp::UnregisterBuffers,
            IoringRegisterOp::RegisterRingFds,
            IoringRegisterOp::UnregisterRingFds,
        ];
        list.extend(registers.into_iter().map(|op| Restriction::register_op(op as u8)));
        self.ring.submitter().register_restrictions(&mut list)?;
        self.allowed = Some(allowed);
        Ok(())
    }
}

/// The kernel's operations behind what a caller allows, and those that the ring needs for itself.
fn opcodes(allowed: Allowed) -> Vec<u8> {
    let table: [(Allowed, &[u8]); 8] = [
        (Allowed::NOP, &[opcode::Nop::CODE]),
        (Allowed::READ, &[opcode::Read::CODE, opcode::ReadFixed::CODE]),
        (Allowed::WRITE, &[opcode::Write::CODE, opcode::WriteFixed::CODE]),
        (Allowed::FSYNC.union(Allowed::FDATASYNC), &[opcode::Fsync::CODE]),
        (Allowed::TIMEOUT, &[opcode::Timeout::CODE]),
        (Allowed::LINK_TIMEOUT, &[opcode::LinkTimeout::CODE]),
        (Allowed::CLOSE_SLOT, &[opcode::Close::CODE]),
        // For wake-ups, and for closing.
        (Allowed::all(), &[opcode::PollAdd::CODE, opcode::AsyncCancel::CODE]),
    ];
    let wanted = table.into_iter().filter(|(flag, _)| allowed.intersects(*flag));
    wanted.flat_map(|(_, codes)| codes.iter().copied()).collect()
}
