//! A list that any thread adds to without a lock and one call takes whole.
//!
//! Nodes are linked newest first by one exchange each; taking swaps the head away, so the classic trouble of
//! lock-free stacks (a head that was taken and came back) can't arise: nobody ever takes a single node.
#![allow(unsafe_code, reason = "the links between nodes are raw pointers, made and freed here alone")]

use std::fmt;
use std::ptr;

use super::sync::atomic::{AtomicPtr, Ordering};

struct Node<T> {
    value: T,
    next: *mut Node<T>,
}

/// See the module.
pub struct List<T> {
    newest: AtomicPtr<Node<T>>,
}

impl<T> List<T> {
    /// An empty list.
    pub fn new() -> Self {
        List { newest: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Whether there is nothing in it at this moment.
    pub fn is_empty(&self) -> bool {
        self.newest.load(Ordering::Acquire).is_null()
    }

    /// Adds a value. Any thread.
    pub fn push(&self, value: T) {
        let node = Box::into_raw(Box::new(Node { value, next: ptr::null_mut() }));
        let mut newest = self.newest.load(Ordering::Relaxed);
        loop {
            // SAFETY: the node was just made and is published only by the exchange below, so nobody else has it.
            unsafe { (*node).next = newest };
            match self.newest.compare_exchange_weak(newest, node, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(other) => newest = other,
            }
        }
    }

    /// Takes all values, oldest first.
    pub fn take(&self) -> Vec<T> {
        let mut values = Vec::new();
        if self.newest.load(Ordering::Relaxed).is_null() {
            return values;
        }
        let mut next = self.newest.swap(ptr::null_mut(), Ordering::Acquire);
        while !next.is_null() {
            // SAFETY: `push` made the pointer from a box and published it once; the exchange above gave the whole
            // list to this call alone, and each node is turned back exactly once.
            let node = *unsafe { Box::from_raw(next) };
            values.push(node.value);
            next = node.next;
        }
        values.reverse();
        values
    }
}

// SAFETY: the list owns its values like a vector does, and hands each out once.
unsafe impl<T: Send> Send for List<T> {}
// SAFETY: sharing it lets other threads put values in and take them out, which moves them; none is shared.
unsafe impl<T: Send> Sync for List<T> {}

impl<T> Default for List<T> {
    fn default() -> Self {
        List::new()
    }
}

impl<T> fmt::Debug for List<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("List").field("is_empty", &self.is_empty()).finish()
    }
}

impl<T> Drop for List<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}
