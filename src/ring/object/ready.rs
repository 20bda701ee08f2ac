//! The list of completions that a ring's owner reaps; the ring object's sink.

use std::collections::VecDeque;

use crate::base::memory::CallerMemory;
use crate::ring::client::{Client, Outbox};
use crate::ring::completion::Completion;
use crate::ring::op::Op;

use super::buffers::{Buffers, buffer_index};
use super::explain;
use super::slots::Slots;

/// Flags of a completion (`IOE_CQE_…`).
pub mod completion_flags {
    /// The operation goes on: more completions of it follow.
    pub const MORE: u32 = 1;
    /// Not a result, but news that memory is the caller's again.
    pub const NOTICE: u32 = 2;
    /// The memory was copied, not sent from where it lay.
    pub const COPIED: u32 = 4;
    /// The kernel chose the buffer.
    pub const BUFFER: u32 = 8;
}

/// A completion as the C caller sees it (`ring_completion_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingCompletion {
    /// The caller's name for the operation.
    pub user_data: u64,
    /// A count or events, or `-errno`.
    pub result: i32,
    /// See [`completion_flags`].
    pub flags: u32,
    /// The first byte of a read's or write's memory; else null.
    pub data: *mut u8,
    /// The registered or chosen buffer; -1 for none.
    pub buffer: i32,
}

impl RingCompletion {
    /// A place to reap into.
    pub const EMPTY: RingCompletion =
        RingCompletion { user_data: 0, result: 0, flags: 0, data: std::ptr::null_mut(), buffer: -1 };
}

/// See the module.
#[derive(Debug)]
pub(super) struct Ready {
    items: VecDeque<(RingCompletion, Option<String>)>,
    pub(super) slots: Slots,
    pub(super) buffers: Buffers,
    /// The sentence behind a completion of the last reap.
    pub(super) detail: Option<String>,
}

impl Ready {
    pub(super) fn new(slots: Slots, buffers: Buffers) -> Self {
        Ready { items: VecDeque::new(), slots, buffers, detail: None }
    }

    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// Hands out the oldest.
    pub(super) fn take(&mut self, out: &mut [RingCompletion]) -> usize {
        self.detail = None;
        let count = out.len().min(self.items.len());
        for (place, (item, detail)) in out.iter_mut().zip(self.items.drain(..count)) {
            *place = item;
            self.detail = detail.or(self.detail.take());
        }
        count
    }

    /// An operation was queued.
    pub(super) fn begun(&mut self, op: &Op) {
        self.slots.begun(op);
        self.buffers.begun(op);
    }

    /// The driver has replaced a buffer; the answer is how many items that made ready.
    pub(super) fn replaced(&mut self, index: u16, memory: Option<CallerMemory>, tag: u64) -> usize {
        let Some((data, tag)) = self.buffers.replace(index, memory, tag) else { return 0 };
        let flags = completion_flags::NOTICE;
        let item = RingCompletion { user_data: tag, result: 0, flags, data, buffer: i32::from(index) };
        self.items.push_back((item, None));
        1
    }
}

impl Client for Ready {
    fn complete(&mut self, outbox: &mut Outbox, user_data: u64, completion: Completion, op: Option<Op>) {
        let mut item = RingCompletion { user_data, result: completion.result, ..RingCompletion::EMPTY };
        let mut detail = None;
        for (said, flag) in [
            (completion.more, completion_flags::MORE),
            (completion.notice, completion_flags::NOTICE),
            (completion.buffer.is_some(), completion_flags::BUFFER),
        ] {
            item.flags |= if said { flag } else { 0 };
        }
        if let Some(op) = op {
            item.buffer = completion.buffer.or(buffer_index(&op)).map_or(-1, i32::from);
            item.data = op.buf().map_or(std::ptr::null_mut(), |buf| buf.as_ptr());
            if matches!(-completion.result, libc::EINVAL | libc::EFAULT) {
                detail = explain::refusal(&op, completion.result, &self.slots);
            }
            self.slots.ended(&op, completion.result);
            self.buffers.ended(&op);
        }
        self.items.push_back((item, detail));
        outbox.ready += 1;
    }
}
