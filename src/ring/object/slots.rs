//! Which file slots of a ring are taken, and by what kind of file.
//!
//! A slot that is chosen for the caller has nothing in flight on its former file: a cancel by slot, or a late
//! completion, could otherwise be taken for the new file's.

use crate::base::{Error, Result};
use crate::ring::op::{Op, Target};

use super::explain::Alignment;

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    taken: bool,
    /// Operations queued or in flight that name it.
    uses: u32,
    /// Of its file, when that is open for direct I/O.
    alignment: Option<Alignment>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Slots {
    slots: Vec<Slot>,
}

impl Slots {
    pub(super) fn new(count: u32) -> Self {
        Slots { slots: vec![Slot::default(); count as usize] }
    }

    pub(super) fn count(&self) -> u32 {
        self.slots.len() as u32
    }

    fn get(&self, slot: u32) -> Result<&Slot> {
        let missing = || match self.slots.len() {
            0 => Error::invalid("the ring has no file slots; open it with file_slots"),
            count => Error::invalid(format!("slot {slot} is not among the ring's {count} file slots")),
        };
        self.slots.get(slot as usize).ok_or_else(missing)
    }

    /// The slot to set: the one that is asked for, or a free one.
    pub(super) fn choose(&self, slot: Option<u32>) -> Result<u32> {
        if let Some(slot) = slot {
            return self.get(slot).map(|_| slot);
        }
        self.get(0)?;
        let free = self.slots.iter().position(|slot| !slot.taken && slot.uses == 0);
        free.map(|slot| slot as u32).ok_or_else(|| {
            Error::Stalled(format!("none of the {} file slots is free; clear one", self.slots.len()).into())
        })
    }

    pub(super) fn check_set(&self, slot: u32) -> Result<()> {
        if self.get(slot)?.taken {
            return Ok(());
        }
        Err(Error::Stale(format!("slot {slot} is empty already").into()))
    }

    pub(super) fn set(&mut self, slot: u32, alignment: Option<Alignment>) {
        if let Some(slot) = self.slots.get_mut(slot as usize) {
            slot.taken = true;
            slot.alignment = alignment;
        }
    }

    pub(super) fn clear(&mut self, slot: u32) {
        if let Some(slot) = self.slots.get_mut(slot as usize) {
            slot.taken = false;
        }
    }

    /// What direct I/O on the slot's file asks for.
    pub(super) fn alignment(&self, slot: u32) -> Option<Alignment> {
        self.slots.get(slot as usize)?.alignment
    }

    pub(super) fn begun(&mut self, op: &Op) {
        if let Some(slot) = self.named_by(op) {
            slot.uses += 1;
        }
    }

    pub(super) fn ended(&mut self, op: &Op, result: i32) {
        if let Some(slot) = self.named_by(op) {
            slot.uses -= 1;
            if matches!(op, Op::CloseSlot { .. }) && result == 0 {
                slot.taken = false;
            }
        }
    }

    fn named_by(&mut self, op: &Op) -> Option<&mut Slot> {
        let slot = match (op, op.target()) {
            (Op::CloseSlot { slot }, _) | (_, Some(Target::Slot(slot))) => *slot,
            _ => return None,
        };
        self.slots.get_mut(slot as usize)
    }
}
