//! How a write is made durable: the three ways, the rule that chooses among them, and what the rule rests on.
//!
//! Measured (4 KiB into blocks written before, depth 1, a drive with a volatile cache and no FUA): pwrite and
//! fdatasync 140–158 µs, RWF_DSYNC 175–190 µs, a chain on a ring 173–284 µs, because the ring's sync runs on a worker
//! thread. So a caller that may block uses system calls, one that may not uses the chain. On a drive with FUA one
//! write with RWF_DSYNC replaces write and flush; on a write-through drive there is nothing to flush.
//! What was rejected: measuring at open (noisy, and it writes), and asking for the file system's name.

use crate::ring::Io;
use crate::ring::op::File;

/// How a write is to be made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Wish {
    /// By the rule.
    #[default]
    Auto,
    /// A chain write → fdatasync on a ring.
    Linked,
    /// One write with RWF_DSYNC.
    Dsync,
    /// pwrite, then fdatasync.
    Syscall,
}

/// How a write is made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// A chain write → fdatasync on a ring.
    Linked,
    /// One write with RWF_DSYNC.
    Dsync,
    /// pwrite, then fdatasync.
    Syscall,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Way::Linked => "linked",
            Way::Dsync => "dsync",
            Way::Syscall => "syscall",
        }
    }
}

/// A way, and why it was chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// The way.
    pub way: Way,
    /// Why.
    pub reason: String,
}

impl std::fmt::Display for Choice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.way.name(), self.reason)
    }
}

/// What the kernel says of the drive under a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Drive {
    /// It has forced unit access.
    pub fua: Option<bool>,
    /// Its cache is volatile, so that durable writes need a flush.
    pub write_back: Option<bool>,
}

impl Drive {
    /// The drive that holds `file`.
    pub fn of(io: &Io, file: &File) -> Self {
        Drive {
            fua: io.queue_attribute(file, "fua").map(|text| text == "1"),
            write_back: io.queue_attribute(file, "write_cache").map(|text| text == "write back"),
        }
    }
}

/// The rule. `direct`: the log is written past the page cache; `may_block`: whoever writes it may wait in a system
/// call.
pub fn choose(wish: Wish, drive: Drive, direct: bool, may_block: bool) -> Choice {
    let forced = |way| Choice { way, reason: "asked for".to_owned() };
    match wish {
        Wish::Linked => return forced(Way::Linked),
        Wish::Dsync => return forced(Way::Dsync),
        Wish::Syscall => return forced(Way::Syscall),
        Wish::Auto => {}
    }
    let chosen = |way, reason: &str| Choice { way, reason: reason.to_owned() };
    match (direct, drive) {
        (true, Drive { write_back: Some(false), .. }) => chosen(Way::Dsync, "the drive writes through"),
        (true, Drive { fua: Some(true), .. }) => chosen(Way::Dsync, "the drive has FUA"),
        (_, drive) => {
            let why = match drive {
                _ if !direct => "the log goes through the page cache",
                Drive { fua: None, write_back: None } => "the drive is unknown",
                _ => "the drive has a volatile cache and no FUA",
            };
            let (way, caller) = match may_block {
                true => (Way::Syscall, "the writer may block"),
                false => (Way::Linked, "the writer may not block"),
            };
            chosen(way, &format!("{why}; {caller}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNKNOWN: Drive = Drive { fua: None, write_back: None };
    const CACHE: Drive = Drive { fua: Some(false), write_back: Some(true) };
    const FUA: Drive = Drive { fua: Some(true), write_back: Some(true) };
    const THROUGH: Drive = Drive { fua: Some(false), write_back: Some(false) };

    #[test]
    fn a_drive_that_needs_no_flush_gets_dsync() {
        for may_block in [false, true] {
            assert_eq!(choose(Wish::Auto, FUA, true, may_block).way, Way::Dsync);
            assert_eq!(choose(Wish::Auto, THROUGH, true, may_block).way, Way::Dsync);
        }
    }

    #[test]
    fn else_the_caller_decides() {
        for drive in [UNKNOWN, CACHE] {
            assert_eq!(choose(Wish::Auto, drive, true, true).way, Way::Syscall);
            assert_eq!(choose(Wish::Auto, drive, true, false).way, Way::Linked);
        }
        // RWF_DSYNC through the page cache would flush what others wrote to the same pages first.
        assert_eq!(choose(Wish::Auto, FUA, false, true).way, Way::Syscall);
    }

    #[test]
    fn a_wish_is_followed_and_reported() {
        for (wish, way) in
            [(Wish::Linked, Way::Linked), (Wish::Dsync, Way::Dsync), (Wish::Syscall, Way::Syscall)]
        {
            assert_eq!(choose(wish, FUA, true, true), Choice { way, reason: "asked for".to_owned() });
        }
        assert_eq!(choose(Wish::Dsync, CACHE, true, true).to_string(), "dsync (asked for)");
    }
}
