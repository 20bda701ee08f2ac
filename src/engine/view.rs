//! A value handed out without holding up anything: a copy when it is small, a share of the memtable's own bytes when
//! it is large.
//!
//! Up to 4 KiB a copy is cheaper than two changes of a counter that other readers of the same value change too. A
//! large value is shared; how many bytes are shared is counted, and beyond a quarter of the memory ceiling views
//! copy, so that forgotten views can't hold more than that. A view outlives its store.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::base::sync::atomic::{AtomicU64, Ordering};

/// Values up to this length are copied.
pub const COPY_MAX: usize = 4096;

/// Bytes that views hold, and how many they may.
#[derive(Debug)]
pub struct Pins {
    bytes: AtomicU64,
    max: u64,
}

impl Pins {
    /// None held; at most `max` bytes will be.
    pub fn new(max: u64) -> Arc<Self> {
        Arc::new(Pins { bytes: AtomicU64::new(0), max })
    }

    /// Bytes held by views now.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: u64) -> bool {
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let fits = before.saturating_add(bytes) <= self.max;
        if !fits {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        fits
    }
}

/// A value; any thread may drop it.
pub struct View(Kept);

enum Kept {
    Copy(Box<[u8]>),
    Share { bytes: Arc<[u8]>, from: usize, pins: Arc<Pins> },
}

impl View {
    /// The bytes behind `from`, copied or shared.
    pub(super) fn of(bytes: &Arc<[u8]>, from: usize, pins: &Arc<Pins>) -> Self {
        let value = bytes.get(from..).unwrap_or(&[]);
        if value.len() <= COPY_MAX || !pins.take(value.len() as u64) {
            return View(Kept::Copy(value.into()));
        }
        View(Kept::Share { bytes: bytes.clone(), from, pins: pins.clone() })
    }

    /// Whether it shares the store's bytes.
    pub fn is_shared(&self) -> bool {
        matches!(self.0, Kept::Share { .. })
    }
}

impl Deref for View {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Kept::Copy(bytes) => bytes,
            Kept::Share { bytes, from, .. } => bytes.get(*from..).unwrap_or(&[]),
        }
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").field("len", &self.len()).field("shared", &self.is_shared()).finish()
    }
}

impl Drop for View {
    fn drop(&mut self) {
        let len = self.len() as u64;
        if let Kept::Share { pins, .. } = &self.0 {
            pins.bytes.fetch_sub(len, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_values_are_copied_and_large_ones_shared_and_counted() {
        let pins = Pins::new(u64::MAX);
        let bytes: Arc<[u8]> = vec![5u8; COPY_MAX + 4].into();
        let small = View::of(&bytes, 4, &pins);
        assert!(!small.is_shared() && pins.bytes() == 0);
        let large = View::of(&bytes, 3, &pins);
        assert!(large.is_shared());
        assert_eq!((large.len() as u64, pins.bytes()), (COPY_MAX as u64 + 1, COPY_MAX as u64 + 1));
        drop(bytes);
        assert!(large.iter().all(|b| *b == 5));
        drop(large);
        assert_eq!(pins.bytes(), 0);
    }

    #[test]
    fn beyond_the_ceiling_views_copy() {
        let pins = Pins::new(10_000);
        let bytes: Arc<[u8]> = vec![1u8; 6000].into();
        let first = View::of(&bytes, 0, &pins);
        let second = View::of(&bytes, 0, &pins);
        assert!(first.is_shared() && !second.is_shared());
        assert_eq!(pins.bytes(), 6000);
        assert_eq!(*first, *second);
    }
}
