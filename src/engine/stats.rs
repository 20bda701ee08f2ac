//! What a store has done, as counters, and as the properties of the C API.
//!
//! A counter that every read of every thread changed would cost more than the read (10–41 ns between two threads), so
//! the counters are striped: a thread adds to its own stripe, asking sums them up.

use std::fmt::Write;

use crate::base::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

const STRIPES: usize = 16;

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counter {
    /// Puts, in batches too.
    Puts,
    /// Deletes, in batches too.
    Deletes,
    /// Batches written.
    Writes,
    /// Reads.
    Gets,
    /// Reads that found a value.
    Found,
    /// Bytes of keys and values written.
    BytesWritten,
    /// Bytes of values read.
    BytesRead,
    /// Writes that were refused or failed.
    Failed,
    /// Calls of flush.
    Flushes,
}

impl Counter {
    const ALL: [(Counter, &'static str); 9] = [
        (Counter::Puts, "puts"),
        (Counter::Deletes, "deletes"),
        (Counter::Writes, "writes"),
        (Counter::Gets, "gets"),
        (Counter::Found, "gets_found"),
        (Counter::BytesWritten, "bytes_written"),
        (Counter::BytesRead, "bytes_read"),
        (Counter::Failed, "writes_failed"),
        (Counter::Flushes, "flushes"),
    ];
}

/// One thread's share; apart from the others' by two cache lines, since lines are fetched in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe([AtomicU64; Counter::ALL.len()]);

/// The counters of one store.
#[derive(Debug, Default)]
pub struct Stats([Stripe; STRIPES]);

static NEXT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static MINE: usize = NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES;
}

impl Stats {
    /// All zero.
    pub fn new() -> Self {
        Stats::default()
    }

    /// Adds to a counter.
    pub fn add(&self, counter: Counter, count: u64) {
        // A thread that is ending has no stripe of its own any more.
        let mine = MINE.try_with(|mine| *mine).unwrap_or(0);
        self.0[mine].0[counter as usize].fetch_add(count, Ordering::Relaxed);
    }

    /// What has been counted.
    pub fn sum(&self, counter: Counter) -> u64 {
        self.0.iter().map(|stripe| stripe.0[counter as usize].load(Ordering::Relaxed)).sum()
    }

    /// All counters with their names.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Counter::ALL.iter().map(|(counter, name)| (*name, self.sum(*counter)))
    }
}

/// A list of properties being gathered: name and text.
#[derive(Debug, Default)]
pub struct Properties(Vec<(&'static str, String)>);

impl Properties {
    /// Adds one.
    pub fn add(&mut self, name: &'static str, value: impl ToString) {
        self.0.push((name, value.to_string()));
    }

    /// One by its name.
    pub fn find(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, _)| *n == name).map(|(_, value)| value.as_str())
    }

    /// All, a line each: name, colon, text.
    pub fn text(&self) -> String {
        self.0.iter().fold(String::new(), |mut text, (name, value)| {
            // Writing to a string never fails.
            let _ = writeln!(text, "{name}: {value}");
            text
        })
    }

    /// Those that are numbers, in Prometheus's text format.
    pub fn prometheus(&self) -> String {
        self.0.iter().filter(|(_, value)| value.parse::<f64>().is_ok()).fold(
            String::new(),
            |mut text, (name, value)| {
                // Writing to a string never fails.
                let _ = writeln!(text, "# TYPE iouring_engine_{name} untyped\niouring_engine_{name} {value}");
                text
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_count_apart_and_are_summed_up() {
        let stats = Stats::new();
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| stats.add(Counter::Gets, 5));
            }
        });
        stats.add(Counter::Puts, 1);
        assert_eq!((stats.sum(Counter::Gets), stats.sum(Counter::Puts)), (100, 1));
        let names: Vec<_> = stats.all().map(|(name, _)| name).collect();
        assert_eq!(names.len(), Counter::ALL.len());
        for (index, (counter, _)) in Counter::ALL.iter().enumerate() {
            assert_eq!(*counter as usize, index, "the list is in the order of the counters");
        }
    }

    #[test]
    fn properties_are_listed_found_and_exported() {
        let mut properties = Properties::default();
        properties.add("puts", 3);
        properties.add("sync", "pwrite + fdatasync");
        assert_eq!(properties.text(), "puts: 3\nsync: pwrite + fdatasync\n");
        assert_eq!(properties.find("puts"), Some("3"));
        assert_eq!(properties.find("put"), None);
        assert_eq!(properties.prometheus(), "# TYPE iouring_engine_puts untyped\niouring_engine_puts 3\n");
    }
}
