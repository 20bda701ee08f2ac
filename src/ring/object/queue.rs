//! Taking operations: whole chains, the open chain, cancelling.
//!
//! A call takes all of its operations or none: all are checked before the first is queued. An operation with a link
//! opens a chain, which stays here until its last operation is there; submits and reaps leave it alone. Whole chains
//! go to the reactor at once, where they wait for the next submit, wait or reap of whichever object.

use super::RingObject;
use super::buffers::buffer_index;
use super::request::{Memory, OpFlags, RingOp, opcode};
use crate::base::{Error, Result};
use crate::ring::op::{Link, Op};
use crate::ring::reactor::{Sink, Step};

/// An operation of a chain that isn't whole.
#[derive(Debug)]
pub(super) struct Planned {
    op: Op,
    link: Link,
    user_data: u64,
    /// To be cancelled as soon as it is submitted.
    cancelled: bool,
}

impl Planned {
    pub(super) fn uses_buffer(&self, index: u16) -> bool {
        buffer_index(&self.op) == Some(index)
    }
}

/// What a call asks for, checked.
enum Item {
    Operation(Planned),
    Cancel(u64),
}

impl RingObject {
    /// Queues operations: all of them, or none. Returns how many.
    ///
    /// # Errors
    /// `-EINVAL` naming the operation and what is wrong with it, [`Error::TooLarge`] for a chain longer than the
    /// ring's entries, `-EACCES` for what a restricted ring doesn't allow, [`Error::Unsupported`] for what this ring
    /// can't do, [`Error::Stale`] for a buffer that isn't the caller's.
    pub fn queue(&mut self, ops: &[RingOp]) -> Result<usize> {
        let items = self.check(ops)?;
        for item in items {
            match item {
                Item::Cancel(user_data) => drop(self.cancel_now(user_data)),
                Item::Operation(planned) => self.add(planned)?,
            }
        }
        self.signal_leftovers();
        Ok(ops.len())
    }

    fn check(&self, ops: &[RingOp]) -> Result<Vec<Item>> {
        let ready = self.ready.borrow();
        let capacity = self.io.with_reactor(|reactor| reactor.driver().capacity());
        let mut length = self.open.len();
        // Whether the operation before it, in the same chain, can have a time-out.
        let mut limitable = self.open.last().is_some_and(|last| !matches!(last.op, Op::LinkTimeout { .. }));
        let mut items = Vec::with_capacity(ops.len());
        for (index, asked) in ops.iter().enumerate() {
            let named = |e| in_array(e, index, ops.len());
            let Some(op) = asked.to_op(&ready.buffers).map_err(named)? else {
                items.push(Item::Cancel(asked.user_data));
                continue;
            };
            self.permit(&op).map_err(named)?;
            let is_limit = matches!(op, Op::LinkTimeout { .. });
            if is_limit && !limitable {
                let text = "LINK_TIMEOUT limits the operation before it, which must have LINK or HARD_LINK";
                return Err(named(Error::invalid(text)));
            }
            length += 1;
            if length > capacity {
                let text =
                    format!("a chain of more than the ring's {capacity} entries; open the ring with more");
                return Err(named(Error::TooLarge(text.into())));
            }
            let link = asked.link();
            limitable = link != Link::None && !is_limit;
            length = if link == Link::None { 0 } else { length };
            items.push(Item::Operation(Planned { op, link, user_data: asked.user_data, cancelled: false }));
        }
        Ok(items)
    }

    fn permit(&self, op: &Op) -> Result<()> {
        if self.restricted() && !self.granted.allowed.permits(op) {
            let text =
                "the ring was opened with RESTRICT, and this operation is not among its allowed_opcodes";
            return Err(Error::system(libc::EACCES, text));
        }
        self.io.with_reactor(|reactor| reactor.driver().check(op))
    }

    fn add(&mut self, planned: Planned) -> Result<()> {
        self.ready.borrow_mut().begun(&planned.op);
        let last = planned.link == Link::None;
        self.open.push(planned);
        if last { self.submit_open() } else { Ok(()) }
    }

    /// Hands the chain, now whole, to the reactor.
    fn submit_open(&mut self) -> Result<()> {
        let cancelled: Vec<bool> = self.open.iter().map(|planned| planned.cancelled).collect();
        let id = self.id;
        let mut steps: Vec<Step> = self
            .open
            .drain(..)
            .map(|Planned { op, link, user_data, .. }| Step { op, link, sink: Sink::Client(id, user_data) })
            .collect();
        self.io.with_reactor(|reactor| {
            let tokens = match (steps.len(), steps.pop()) {
                (1, Some(Step { op, sink, .. })) => vec![reactor.submit(op, sink)],
                (_, last) => {
                    steps.extend(last);
                    reactor.submit_chain(steps)?
                }
            };
            for (token, _) in tokens.into_iter().zip(cancelled).filter(|(_, cancelled)| *cancelled) {
                reactor.cancel(token);
            }
            Ok(())
        })
    }

    fn cancel_now(&mut self, user_data: u64) -> usize {
        let found = self.io.with_reactor(|reactor| {
            let tokens = reactor.find(self.id, user_data);
            tokens.iter().for_each(|token| reactor.cancel(*token));
            tokens.len()
        });
        let mut open = 0;
        for planned in self.open.iter_mut().filter(|planned| planned.user_data == user_data) {
            planned.cancelled = true;
            open += 1;
        }
        found + open
    }

    /// Asks every operation with this `user_data` to end early: each still completes, with `-ECANCELED` or, when it
    /// was too late, with its result. Returns how many there were.
    ///
    /// # Errors
    /// None so far.
    pub fn cancel(&mut self, user_data: u64) -> Result<usize> {
        let found = self.cancel_now(user_data);
        self.signal_leftovers();
        Ok(found)
    }

    /// Queues a read from a slot into a registered buffer.
    ///
    /// # Errors
    /// As [`RingObject::queue`].
    pub fn read(
        &mut self,
        slot: i32,
        memory: Memory,
        offset: u64,
        flags: OpFlags,
        user_data: u64,
    ) -> Result<usize> {
        let opcode = opcode::READ;
        self.queue(&[RingOp {
            opcode,
            flags,
            slot_or_fd: slot,
            memory,
            offset,
            user_data,
            ..RingOp::default()
        }])
    }

    /// Queues a write from a registered buffer to a slot.
    ///
    /// # Errors
    /// As [`RingObject::queue`].
    pub fn write(
        &mut self,
        slot: i32,
        memory: Memory,
        offset: u64,
        flags: OpFlags,
        user_data: u64,
    ) -> Result<usize> {
        let opcode = opcode::WRITE;
        self.queue(&[RingOp {
            opcode,
            flags,
            slot_or_fd: slot,
            memory,
            offset,
            user_data,
            ..RingOp::default()
        }])
    }

    /// Queues a sync of a slot's file.
    ///
    /// # Errors
    /// As [`RingObject::queue`].
    pub fn fsync(&mut self, slot: i32, data_only: bool, flags: OpFlags, user_data: u64) -> Result<usize> {
        let opcode = if data_only { opcode::FDATASYNC } else { opcode::FSYNC };
        self.queue(&[RingOp { opcode, flags, slot_or_fd: slot, user_data, ..RingOp::default() }])
    }

    /// Queues a time-out.
    ///
    /// # Errors
    /// As [`RingObject::queue`].
    pub fn timeout(&mut self, timeout_us: u64, user_data: u64) -> Result<usize> {
        self.queue(&[RingOp { opcode: opcode::TIMEOUT, timeout_us, user_data, ..RingOp::default() }])
    }
}

/// Says which element of an array was refused.
fn in_array(error: Error, index: usize, len: usize) -> Error {
    if len < 2 {
        return error;
    }
    let place = |detail| format!("operation {index} of {len}: {detail}").into();
    match error {
        Error::System { errno, detail } => Error::System { errno, detail: place(detail) },
        Error::Invalid(detail) => Error::Invalid(place(detail)),
        Error::TooLarge(detail) => Error::TooLarge(place(detail)),
        Error::Stale(detail) => Error::Stale(place(detail)),
        Error::Unsupported(detail) => Error::Unsupported(place(detail)),
        other => other,
    }
}
