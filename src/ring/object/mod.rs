//! The ring as an object of the C API (`ring_t`): how it is opened and driven.
//!
//! | file | its one purpose |
//! | --- | --- |
//! | [`request`] | an operation as the C caller describes it, checked and turned into an [`Op`](super::op::Op) |
//! | [`queue`] | taking operations: chains, the open chain, cancelling |
//! | [`ready`] | the list of completions that its owner reaps |
//! | [`slots`] | which file slots are taken |
//! | [`buffers`] | the registered buffers: whose they are, what is in flight on them |
//! | [`explain`] | the sentence behind a completion's `-EINVAL` or `-EFAULT` |
//!
//! Several objects may stand on one ring ([`RingObject::io`]). Each drives the whole ring; each completion goes to
//! its own object's list; [`RingObject::wait`] counts the items of all of them.
//!
//! Which thread may call is the C boundary's business (it compares the owner before it touches the object). Open,
//! the descriptor, slots, buffers and queueing bind nothing; submitting, waiting and reaping make the caller the owner.
//! [`RingObject::replace_buffer`] drives the ring, and thus binds, only when something is in flight.

mod buffers;
mod explain;
mod queue;
mod ready;
pub mod request;
mod slots;

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::sync::Arc;

use self::buffers::Buffers;
use self::queue::Planned;
use self::ready::Ready;
use self::slots::Slots;
use super::client::ClientId;
use super::driver::{Driver, Kind, Wait};
use super::io::Io;
use super::mailbox::Mailbox;
use super::options::{Granted, RingOptions, SetupFlags, open_driver};
use super::posix::files::borrow;
use crate::base::memory::CallerMemory;
use crate::base::{Error, Result};

pub use self::buffers::AcquiredBuffer;
pub use self::ready::{RingCompletion, completion_flags};
pub use self::request::{Memory, OpFlags, RingOp, opcode};

/// The most file slots of a ring: the kernel's own limit.
pub const SLOTS_MAX: u32 = 1 << 15;

/// What a ring has beside its queues.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TableOptions {
    /// File slots, all empty; 0 for none.
    pub file_slots: u32,
    /// Registered buffers; 0 for none.
    pub buffer_count: u32,
    /// Bytes of each.
    pub buffer_size: usize,
    /// Asks for huge pages behind the buffers; the system may have none.
    pub huge_pages: bool,
    /// The NUMA node whose memory the buffers are.
    pub numa_node: Option<u32>,
}

/// What a ring came out as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RingInfo {
    /// Driver, flags and queue sizes, and what was dropped or came out smaller, in words.
    pub granted: Granted,
    /// File slots.
    pub file_slots: u32,
    /// Registered buffers.
    pub buffer_count: u32,
    /// Bytes of each, as the ring made them.
    pub buffer_size: usize,
    /// Bytes of memory that count against the memlock limit.
    pub pinned_bytes: u64,
}

/// Wakes a ring's owner out of a wait; for any thread, and valid after the ring is gone.
#[derive(Debug, Clone)]
pub struct Waker(Arc<Mailbox>);

impl Waker {
    /// The owner's wait returns, or its next one; the descriptor becomes readable. Many at once are one.
    pub fn wake(&self) {
        self.0.nudge();
    }
}

/// See the module.
pub struct RingObject {
    io: Io,
    id: ClientId,
    ready: Rc<RefCell<Ready>>,
    granted: Granted,
    buffer_size: usize,
    /// The chain whose last operation isn't there yet.
    open: Vec<Planned>,
    waker: Result<Waker>,
}

impl RingObject {
    /// Opens a ring.
    ///
    /// # Errors
    /// What [`open_driver`] says, and what the system says about the tables, naming the limit to raise.
    pub fn open(options: &RingOptions, tables: &TableOptions) -> Result<Self> {
        let (driver, granted) = open_driver(options)?;
        RingObject::over(driver, granted, tables)
    }

    fn over(driver: Driver, mut granted: Granted, tables: &TableOptions) -> Result<Self> {
        if tables.file_slots > SLOTS_MAX {
            let text = format!("file_slots: {} is more than the {SLOTS_MAX} of a ring", tables.file_slots);
            return Err(Error::TooLarge(text.into()));
        }
        let io = Io::new(driver);
        let buffers = io.with_reactor(|reactor| {
            if tables.file_slots > 0 {
                reactor.make_slots(tables.file_slots)?;
            }
            Buffers::register(reactor.driver(), tables, &mut granted.notes)
        })?;
        let ready = Rc::new(RefCell::new(Ready::new(Slots::new(tables.file_slots), buffers)));
        let id = io.with_reactor(|reactor| reactor.add_client(ready.clone()));
        let waker = io.with_reactor(|reactor| {
            reactor.driver().can_watch()?;
            reactor.mailbox().map(Waker)
        });
        let buffer_size = tables.buffer_size;
        Ok(RingObject { io, id, ready, granted, buffer_size, open: Vec::new(), waker })
    }

    /// The handle under it, for other objects that share this ring.
    pub fn io(&self) -> &Io {
        &self.io
    }

    /// What it came out as.
    pub fn info(&self) -> RingInfo {
        let ready = self.ready.borrow();
        RingInfo {
            granted: self.granted.clone(),
            file_slots: ready.slots.count(),
            buffer_count: ready.buffers.count(),
            buffer_size: self.buffer_size,
            pinned_bytes: self.io.with_reactor(|reactor| reactor.driver().pinned_bytes()),
        }
    }

    /// The ring's own descriptor, for the `attach_to` of another one. Nobody reads, polls or closes it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on the POSIX driver.
    pub fn attach_fd(&self) -> Result<RawFd> {
        self.io.with_reactor(|reactor| match reactor.driver() {
            Driver::Uring(driver) => Ok(driver.ring_fd()),
            _ => Err(Error::Unsupported("ATTACH: the ring to attach to is not one of io_uring".into())),
        })
    }

    /// The one descriptor to watch, made by the first call; the same for every object on this ring. It is readable
    /// while a reap would deliver something or make progress.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with `IOPOLL`, else what the system says.
    pub fn fd(&mut self) -> Result<RawFd> {
        self.io.with_reactor(|reactor| reactor.notifier())
    }

    /// What wakes this ring from another thread.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with `IOPOLL`.
    pub fn waker(&self) -> Result<Waker> {
        self.waker.clone()
    }

    /// Submits what is queued.
    ///
    /// # Errors
    /// What the driver says when it has failed as a whole.
    pub fn submit(&mut self) -> Result<()> {
        let turned = self.turn(Wait::No);
        self.signal_leftovers();
        turned
    }

    /// Submits, then waits until `min_complete` items are ready over all objects of the ring, for at most
    /// `timeout_ms` (-1: for ever, 0: not at all). Returns how many are ready; fewer when the time is up or another
    /// thread has woken the ring.
    ///
    /// # Errors
    /// `-EINTR` when a signal came and nothing is ready, else what the driver says when it has failed as a whole.
    pub fn wait(&mut self, min_complete: usize, timeout_ms: i32) -> Result<usize> {
        let deadline = match timeout_ms {
            ..-1 => return Err(Error::invalid("timeout_ms: -1 waits for ever, 0 doesn't wait")),
            -1 => None,
            ms => Some(self.io.now_us().saturating_add(ms as u64 * 1000)),
        };
        let waited = self.wait_until(min_complete, deadline);
        self.signal_leftovers();
        let ready = self.ready_items();
        match waited {
            Err(e) if ready == 0 => Err(e),
            _ => Ok(ready),
        }
    }

    fn wait_until(&mut self, min_complete: usize, deadline: Option<u64>) -> Result<()> {
        loop {
            let wait = match deadline.map(|at| at.saturating_sub(self.io.now_us())) {
                _ if self.ready_items() >= min_complete => Wait::No,
                None => Wait::Forever,
                Some(0) => Wait::No,
                Some(us) => Wait::Us(us),
            };
            // One call submits and waits; it returns at once when something was there already.
            self.io.turn(wait)?;
            let nudged = self.io.with_reactor(|reactor| reactor.take_nudge());
            let over = wait == Wait::No && deadline.is_some();
            if nudged || over || self.ready_items() >= min_complete {
                return Ok(());
            }
        }
    }

    /// Submits what is queued and hands out completions that are ready, as many as `out` takes; never blocks.
    ///
    /// # Errors
    /// What the driver says when it has failed as a whole and nothing is ready.
    pub fn reap(&mut self, out: &mut [RingCompletion]) -> Result<usize> {
        let turned = self.turn(Wait::No);
        // Whoever was to be woken is here.
        self.io.with_reactor(|reactor| reactor.take_nudge());
        let count = self.ready.borrow_mut().take(out);
        self.io.with_reactor(|reactor| reactor.reaped(count));
        self.signal_leftovers();
        match turned {
            Err(e) if count == 0 => Err(e),
            _ => Ok(count),
        }
    }

    /// The sentence behind the last completion with `-EINVAL` or `-EFAULT` that the last [`RingObject::reap`] handed
    /// out, if it handed one out.
    pub fn detail(&self) -> Option<String> {
        self.ready.borrow().detail.clone()
    }

    /// Items ready over all objects of the ring.
    pub fn ready_items(&self) -> usize {
        self.io.with_reactor(|reactor| reactor.ready())
    }

    /// Whether a thread has driven it: that thread is its owner.
    pub fn is_bound(&self) -> bool {
        self.io.with_reactor(|reactor| reactor.is_bound())
    }

    /// Operations of this object that are under way or wait for room; the open chain isn't counted.
    pub fn in_flight(&self) -> usize {
        self.io.with_reactor(|reactor| reactor.in_flight_of(self.id))
    }

    fn turn(&mut self, wait: Wait) -> Result<()> {
        match self.io.turn(wait) {
            // Only a wait can be interrupted in a way that concerns the caller.
            Err(e) if wait == Wait::No && e.errno() == Some(libc::EINTR) => Ok(()),
            other => other,
        }
    }

    fn signal_leftovers(&mut self) {
        self.io.with_reactor(|reactor| reactor.signal_leftovers());
    }

    /// Puts a duplicate of a descriptor into a slot (`None`: any free one) and returns the slot. The caller still
    /// closes its own.
    ///
    /// # Errors
    /// `-EINVAL` for a slot that isn't there, [`Error::Stalled`] when none is free, `-EBADF`, what the system says.
    pub fn set_file(&mut self, slot: Option<u32>, fd: RawFd) -> Result<u32> {
        if fd < 0 {
            // To io_uring -1 means: empty the slot.
            return Err(Error::system(libc::EBADF, format!("{fd} is no open descriptor")));
        }
        let slot = self.ready.borrow().slots.choose(slot)?;
        // Asked first: the kernel empties the slot before it finds that there is nothing to put into it, and takes
        // -1 for a wish to do just that.
        let open = borrow(fd).is_some_and(|fd| rustix::io::fcntl_getfd(fd).is_ok());
        if !open {
            return Err(Error::system(libc::EBADF, format!("putting descriptor {fd} into slot {slot}")));
        }
        self.io.with_reactor(|reactor| reactor.set_slot(slot, Some(fd)))?;
        self.ready.borrow_mut().slots.set(slot, explain::alignment(fd));
        Ok(slot)
    }

    /// Empties a slot. What is in flight on its file goes on.
    ///
    /// # Errors
    /// `-EINVAL` for a slot that isn't there, [`Error::Stale`] when it is empty already.
    pub fn clear_file(&mut self, slot: u32) -> Result<()> {
        self.ready.borrow().slots.check_set(slot)?;
        self.io.with_reactor(|reactor| reactor.set_slot(slot, None))?;
        self.ready.borrow_mut().slots.clear(slot);
        Ok(())
    }

    /// Hands a registered buffer out, to be filled and used in operations.
    ///
    /// # Errors
    /// [`Error::Stalled`] when none is free.
    pub fn acquire_buffer(&mut self) -> Result<AcquiredBuffer> {
        self.ready.borrow_mut().buffers.acquire()
    }

    /// Gives it back.
    ///
    /// # Errors
    /// `-EINVAL` for a buffer that isn't there, [`Error::Stale`] when it wasn't handed out, [`Error::Busy`] while
    /// an operation uses it.
    pub fn release_buffer(&mut self, index: u16) -> Result<()> {
        self.ready.borrow_mut().buffers.release(index)
    }

    /// Replaces a registered buffer by memory of the caller, or unregisters it (`None`), after waiting for what is
    /// in flight on it. When the new one is replaced in its turn, and `tag` isn't 0, a completion with that
    /// `user_data` says that the memory is the caller's alone again.
    ///
    /// # Errors
    /// `-EINVAL` for a buffer that isn't there, [`Error::Busy`] when the open chain uses it, `-EINTR`, what the
    /// driver says about the memory; nothing has changed then.
    pub fn replace_buffer(&mut self, index: u16, memory: Option<CallerMemory>, tag: u64) -> Result<()> {
        self.ready.borrow().buffers.check_replace(index, memory.as_ref())?;
        if self.open.iter().any(|planned| planned.uses_buffer(index)) {
            let text =
                format!("buffer {index} is used by a chain that is still open; queue the chain's end first");
            return Err(Error::Busy(text.into()));
        }
        while self.ready.borrow().buffers.in_use(index) {
            self.io.turn(Wait::Forever)?;
        }
        let place = memory.as_ref().map_or((0, 0), |memory| (memory.as_ptr() as usize, memory.len()));
        self.io.with_reactor(|reactor| reactor.driver().set_buffer(index, place))?;
        let told = self.ready.borrow_mut().replaced(index, memory, tag);
        self.io.with_reactor(|reactor| reactor.made_ready(told));
        self.signal_leftovers();
        Ok(())
    }

    /// Closes it: what is in flight is cancelled and waited for, or its memory is leaked. Waits for nothing when
    /// other objects still stand on the ring.
    pub fn close(self) {}

    fn restricted(&self) -> bool {
        self.granted.flags.contains(SetupFlags::RESTRICT)
    }

    /// Which driver it has.
    pub fn kind(&self) -> Kind {
        self.granted.kind
    }
}

impl Drop for RingObject {
    fn drop(&mut self) {
        let unreaped = self.ready.borrow().len();
        self.io.with_reactor(|reactor| reactor.remove_client(self.id, unreaped));
    }
}
