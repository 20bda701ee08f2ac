//! The registered buffers of a ring: whose they are, and what is in flight on them.
//!
//! A buffer of the pool is free or acquired; one that the caller put in place of it is the caller's; a hole is
//! nobody's. An operation may name any but free ones and holes. A buffer is not given back, and not replaced, while
//! an operation uses it, since the kernel may be writing to it.

use crate::base::memory::{Buf, CallerMemory, PAGE, Region};
use crate::base::{Error, Result};
use crate::ring::driver::Driver;
use crate::ring::op::Op;

use super::TableOptions;

/// The most registered buffers of a ring: the kernel's own limit.
const BUFFERS_MAX: u32 = 1 << 14;
/// Buffers smaller than a page begin on a multiple of this: no two share a cache line.
const LINE: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    Acquired,
    Caller,
    Hole,
}

#[derive(Debug)]
struct Buffer {
    memory: Option<CallerMemory>,
    state: State,
    /// Operations queued or in flight.
    uses: u32,
    /// What to tell when it is replaced.
    tag: u64,
}

/// A buffer that was handed out (`ioe_buffer_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AcquiredBuffer {
    /// Its first byte.
    pub data: *mut u8,
    /// How many bytes it has.
    pub len: usize,
    /// Its name.
    pub index: u16,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    buffers: Vec<Buffer>,
    /// Free ones; the last given back is the next handed out, since it is still in the processor's cache.
    free: Vec<u16>,
}

impl Buffers {
    /// Makes and registers the buffers. When the memlock limit has no room for all, half as many are tried, and so
    /// on; `notes` tells.
    pub(super) fn register(
        driver: &mut Driver,
        tables: &TableOptions,
        notes: &mut Vec<String>,
    ) -> Result<Self> {
        let mut count = tables.buffer_count;
        if count == 0 {
            return Ok(Buffers::default());
        }
        if count > BUFFERS_MAX {
            let text = format!("buffer_count: {count} is more than the {BUFFERS_MAX} of a ring");
            return Err(Error::TooLarge(text.into()));
        }
        if tables.buffer_size == 0 {
            return Err(Error::invalid("buffer_size: registered buffers have at least one byte"));
        }
        loop {
            match Buffers::register_count(driver, tables, count) {
                Ok(buffers) => return Ok(buffers),
                Err(e) if e.errno() == Some(libc::ENOMEM) && count > 1 => {
                    count /= 2;
                    let note = format!("{count} registered buffers instead of {}: {e}", tables.buffer_count);
                    notes.retain(|note| !note.contains("registered buffers instead of"));
                    notes.push(note);
                }
                Err(e) => return Err(e),
            }
        }
    }

    fn register_count(driver: &mut Driver, tables: &TableOptions, count: u32) -> Result<Self> {
        let size = tables.buffer_size;
        let unit = if size < PAGE { LINE } else { PAGE };
        let stride = size.checked_next_multiple_of(unit);
        let total = stride.and_then(|stride| stride.checked_mul(count as usize));
        let (Some(stride), Some(total)) = (stride, total) else {
            return Err(Error::TooLarge(format!("buffer_size: {count} buffers of {size} bytes").into()));
        };
        let region = Region::new(total)?;
        if let Some(node) = tables.numa_node {
            region.bind_to_node(node)?;
        }
        if tables.huge_pages {
            region.advise_huge();
        }
        let parts: Vec<CallerMemory> =
            (0..count as usize).filter_map(|i| CallerMemory::part(&region, i * stride, size)).collect();
        let places: Vec<(usize, usize)> = parts.iter().map(|part| (part.as_ptr() as usize, size)).collect();
        driver.register_buffers(&places)?;
        let buffer = |memory| Buffer { memory: Some(memory), state: State::Free, uses: 0, tag: 0 };
        // The first one is handed out first.
        Ok(Buffers {
            buffers: parts.into_iter().map(buffer).collect(),
            free: (0..count as u16).rev().collect(),
        })
    }

    pub(super) fn count(&self) -> u32 {
        self.buffers.len() as u32
    }

    fn get(&self, index: u16) -> Result<&Buffer> {
        let missing = || {
            Error::invalid(format!(
                "buffer {index} is not among the {} registered buffers",
                self.buffers.len()
            ))
        };
        self.buffers.get(usize::from(index)).ok_or_else(missing)
    }

    pub(super) fn acquire(&mut self) -> Result<AcquiredBuffer> {
        let stalled =
            || Error::Stalled("no registered buffer is free; release one, or open the ring with more".into());
        let index = self.free.pop().ok_or_else(stalled)?;
        let buffer = &mut self.buffers[usize::from(index)];
        buffer.state = State::Acquired;
        let (data, len) = buffer.memory.as_ref().map_or((std::ptr::null_mut(), 0), |m| (m.as_ptr(), m.len()));
        Ok(AcquiredBuffer { data, len, index })
    }

    pub(super) fn release(&mut self, index: u16) -> Result<()> {
        let buffer = self.get(index)?;
        if buffer.state != State::Acquired {
            return Err(Error::Stale(
                format!("buffer {index} was not acquired, or is released already").into(),
            ));
        }
        if buffer.uses > 0 {
            let text = format!("buffer {index}: {} operations use it; reap them first", buffer.uses);
            return Err(Error::Busy(text.into()));
        }
        self.buffers[usize::from(index)].state = State::Free;
        self.free.push(index);
        Ok(())
    }

    /// A part of a buffer for an operation.
    pub(super) fn part(&self, index: u16, offset: usize, len: usize) -> Result<Buf> {
        let buffer = self.get(index)?;
        let memory = match (&buffer.memory, buffer.state) {
            (Some(memory), State::Acquired | State::Caller) => memory,
            (_, State::Hole) => {
                return Err(Error::Stale(format!("buffer {index} is not registered any more").into()));
            }
            _ => return Err(Error::Stale(format!("buffer {index} is not acquired").into())),
        };
        memory.buf(offset, len).ok_or_else(|| {
            let size = memory.len();
            Error::invalid(format!("{len} bytes at {offset} of buffer {index} are beyond its {size} bytes"))
        })
    }

    /// An operation was queued.
    pub(super) fn begun(&mut self, op: &Op) {
        if let Some(buffer) = self.used_by(op) {
            buffer.uses += 1;
        }
    }

    /// It has ended.
    pub(super) fn ended(&mut self, op: &Op) {
        if let Some(buffer) = self.used_by(op) {
            buffer.uses -= 1;
        }
    }

    fn used_by(&mut self, op: &Op) -> Option<&mut Buffer> {
        self.buffers.get_mut(usize::from(buffer_index(op)?))
    }

    pub(super) fn in_use(&self, index: u16) -> bool {
        self.get(index).is_ok_and(|buffer| buffer.uses > 0)
    }

    pub(super) fn check_replace(&self, index: u16, memory: Option<&CallerMemory>) -> Result<()> {
        self.get(index)?;
        if memory.is_some_and(CallerMemory::is_empty) {
            return Err(Error::invalid(format!("buffer {index}: no memory of 0 bytes can be registered")));
        }
        Ok(())
    }

    /// The driver has replaced it. Returns the old memory and its tag, if that is to be told.
    pub(super) fn replace(
        &mut self,
        index: u16,
        memory: Option<CallerMemory>,
        tag: u64,
    ) -> Option<(*mut u8, u64)> {
        self.free.retain(|free| *free != index);
        let state = if memory.is_some() { State::Caller } else { State::Hole };
        let buffer = self.buffers.get_mut(usize::from(index))?;
        let old = std::mem::replace(buffer, Buffer { memory, state, uses: 0, tag });
        let pointer = old.memory.map_or(std::ptr::null_mut(), |memory| memory.as_ptr());
        (old.tag != 0).then_some((pointer, old.tag))
    }
}

/// The registered buffer that an operation uses.
pub(super) fn buffer_index(op: &Op) -> Option<u16> {
    match op {
        Op::Read { buffer_index, .. } | Op::Write { buffer_index, .. } => *buffer_index,
        _ => None,
    }
}
