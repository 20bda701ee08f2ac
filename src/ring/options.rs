//! What a ring is asked to be, and what was granted: set-up flags, sizes, the choice of driver.
//!
//! `flags` must be had, else the open fails and says why; `flags_wanted` are taken if they can be had, and
//! [`Granted`] tells which were dropped and for what reason. Combinations that the kernel would refuse with a bare
//! `EINVAL` are refused here by name. A ring that names none of the flags of [`SetupFlags::TASK_WORK`] wants
//! `SINGLE_ISSUER | DEFER_TASKRUN`, the quickest way for a ring with one owner.

use std::os::fd::RawFd;

use super::driver::{Driver, Kind};
use super::op::Op;
use super::posix::Posix;
use super::uring::{Refusal, Uring};
use crate::base::{Error, Result};

bitflags::bitflags! {
    /// The set-up flags of the C API (`IOE_RING_…`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct SetupFlags: u32 {
        /// A kernel thread polls the submission queue.
        const SQPOLL = 1;
        /// That thread stays on one CPU; needs `SQPOLL` and `sqpoll_cpu`.
        const SQ_AFF = 1 << 1;
        /// Completions are polled for: direct I/O on devices with poll queues alone; no timers, no fsync, no polls.
        const IOPOLL = 1 << 2;
        /// Shares the workers (and the `SQPOLL` thread) of the ring `attach_to`.
        const ATTACH = 1 << 3;
        /// The completion queue has `cq_entries`.
        const CQSIZE = 1 << 4;
        /// A submission goes on behind an operation that is refused at once.
        const SUBMIT_ALL = 1 << 5;
        /// Completion work waits for the owner's next system call instead of interrupting it.
        const COOP_TASKRUN = 1 << 6;
        /// The ring tells when such work waits; the library always sets it where it can be had.
        const TASKRUN_FLAG = 1 << 7;
        /// One thread alone submits.
        const SINGLE_ISSUER = 1 << 8;
        /// Completion work waits until the owner asks for completions; needs `SINGLE_ISSUER`.
        const DEFER_TASKRUN = 1 << 9;
        /// Only the operations of `allowed` are accepted, by the kernel itself; others complete with `-EACCES`.
        const RESTRICT = 1 << 10;
        /// Waits poll the network card's queues for a while.
        const NAPI = 1 << 11;
    }
}

impl SetupFlags {
    /// How completion work reaches the owner: naming one of these replaces the default.
    pub const TASK_WORK: SetupFlags = SetupFlags::SQPOLL
        .union(SetupFlags::COOP_TASKRUN)
        .union(SetupFlags::TASKRUN_FLAG)
        .union(SetupFlags::SINGLE_ISSUER)
        .union(SetupFlags::DEFER_TASKRUN);
    /// What a ring wants that names none of those.
    pub const DEFAULT: SetupFlags = SetupFlags::SINGLE_ISSUER.union(SetupFlags::DEFER_TASKRUN);
    /// What only io_uring can give: with one of these in `flags`, AUTO doesn't fall back.
    pub const URING_ONLY: SetupFlags = SetupFlags::SQPOLL
        .union(SetupFlags::SQ_AFF)
        .union(SetupFlags::IOPOLL)
        .union(SetupFlags::ATTACH)
        .union(SetupFlags::NAPI);

    /// The names, as the C header has them without their prefix, joined by `|`.
    pub fn names(self) -> String {
        self.iter_names().map(|(name, _)| name).collect::<Vec<_>>().join("|")
    }

    /// The first rule that this combination breaks, in words.
    pub fn conflict(self) -> Option<&'static str> {
        let both = |a: SetupFlags, b: SetupFlags| self.contains(a) && self.contains(b);
        let lacks = |a: SetupFlags, b: SetupFlags| self.contains(a) && !self.intersects(b);
        let rules = [
            (lacks(Self::SQ_AFF, Self::SQPOLL), "SQ_AFF pins the thread of SQPOLL, which is not asked for"),
            (both(Self::SQPOLL, Self::DEFER_TASKRUN), "DEFER_TASKRUN can't be had with SQPOLL"),
            (both(Self::SQPOLL, Self::COOP_TASKRUN), "COOP_TASKRUN can't be had with SQPOLL"),
            (both(Self::SQPOLL, Self::TASKRUN_FLAG), "TASKRUN_FLAG can't be had with SQPOLL"),
            (lacks(Self::DEFER_TASKRUN, Self::SINGLE_ISSUER), "DEFER_TASKRUN needs SINGLE_ISSUER"),
            (
                lacks(Self::TASKRUN_FLAG, Self::COOP_TASKRUN.union(Self::DEFER_TASKRUN)),
                "TASKRUN_FLAG needs COOP_TASKRUN or DEFER_TASKRUN",
            ),
            (both(Self::IOPOLL, Self::NAPI), "NAPI waits can't be had with IOPOLL"),
        ];
        rules.into_iter().find(|(broken, _)| *broken).map(|(_, text)| text)
    }
}

bitflags::bitflags! {
    /// Operations, for a ring with [`SetupFlags::RESTRICT`]. Whatever is allowed, the ring itself may always poll
    /// (for wake-ups from other threads) and cancel (when it is closed); the library refuses the caller's own
    /// polls all the same when they are not in the set.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct Allowed: u32 {
        /// [`Op::Nop`].
        const NOP = 1;
        /// [`Op::Read`], with registered buffers and without.
        const READ = 1 << 1;
        /// [`Op::Write`], with registered buffers and without.
        const WRITE = 1 << 2;
        /// [`Op::Fsync`] of everything.
        const FSYNC = 1 << 3;
        /// [`Op::Fsync`] of the data only.
        const FDATASYNC = 1 << 4;
        /// [`Op::Timeout`].
        const TIMEOUT = 1 << 5;
        /// [`Op::LinkTimeout`].
        const LINK_TIMEOUT = 1 << 6;
        /// [`Op::Poll`].
        const POLL = 1 << 7;
        /// [`Op::CloseSlot`].
        const CLOSE_SLOT = 1 << 8;
    }
}

impl Allowed {
    /// Whether an operation is in the set.
    pub fn permits(self, op: &Op) -> bool {
        let needed = match op {
            Op::Nop => Allowed::NOP,
            Op::Read { .. } => Allowed::READ,
            Op::Write { .. } => Allowed::WRITE,
            Op::Fsync { data_only: false, .. } => Allowed::FSYNC,
            Op::Fsync { data_only: true, .. } => Allowed::FDATASYNC,
            Op::Timeout { .. } => Allowed::TIMEOUT,
            Op::LinkTimeout { .. } => Allowed::LINK_TIMEOUT,
            Op::Poll { .. } => Allowed::POLL,
            Op::CloseSlot { .. } => Allowed::CLOSE_SLOT,
            Op::External => Allowed::empty(),
        };
        self.contains(needed)
    }
}

/// Which driver is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Choice {
    /// io_uring, or threads and epoll where it is blocked.
    #[default]
    Auto,
    /// io_uring, or an error that says why not.
    Uring,
    /// Threads and epoll.
    Posix,
}

/// What a ring is asked to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RingOptions {
    /// Which driver.
    pub driver: Choice,
    /// Flags that must be had.
    pub flags: SetupFlags,
    /// Flags that are taken if they can be had.
    pub flags_wanted: SetupFlags,
    /// The operations of a ring with `RESTRICT`.
    pub allowed: Allowed,
    /// Entries of the submission queue; rounded up to a power of two, at most 32,768.
    pub entries: u32,
    /// Entries of the completion queue; 0 is four times `entries`.
    pub cq_entries: u32,
    /// The CPU of the `SQPOLL` thread, with `SQ_AFF`.
    pub sqpoll_cpu: Option<u32>,
    /// Idle milliseconds after which the `SQPOLL` thread sleeps; 0 is the kernel's one second.
    pub sqpoll_idle_ms: u32,
    /// The ring of `ATTACH`, by its descriptor ([`Uring::ring_fd`]); used during the open only.
    pub attach_to: Option<RawFd>,
}

/// Entries of a ring that names no number.
pub const ENTRIES: u32 = 256;

/// The most entries of a submission queue: the kernel's own limit, kept by the POSIX driver too.
pub const ENTRIES_MAX: u32 = 32_768;

impl Default for RingOptions {
    fn default() -> Self {
        RingOptions {
            driver: Choice::Auto,
            flags: SetupFlags::empty(),
            flags_wanted: SetupFlags::empty(),
            allowed: Allowed::empty(),
            entries: ENTRIES,
            cq_entries: 0,
            sqpoll_cpu: None,
            sqpoll_idle_ms: 0,
            attach_to: None,
        }
    }
}

impl RingOptions {
    /// Refuses, by name, what can never be had.
    ///
    /// # Errors
    /// `-EINVAL`, naming the flags or the number.
    pub fn check(&self) -> Result<()> {
        if let Some(text) = self.flags.conflict().or_else(|| self.missing(self.flags)) {
            return Err(Error::invalid(text));
        }
        if self.entries == 0 {
            return Err(Error::invalid("entries: a ring has at least one entry"));
        }
        if self.cq_entries != 0 && self.cq_entries < self.entries {
            let text = format!(
                "cq_entries: {} is less than the {} entries of the submission queue",
                self.cq_entries, self.entries
            );
            return Err(Error::invalid(text));
        }
        Ok(())
    }

    /// A flag of `flags` whose own argument is not there, in words.
    pub(super) fn missing(&self, flags: SetupFlags) -> Option<&'static str> {
        let lacks = |flag, there: bool| flags.contains(flag) && !there;
        let rules = [
            (lacks(SetupFlags::SQ_AFF, self.sqpoll_cpu.is_some()), "SQ_AFF needs a CPU in sqpoll_cpu"),
            (lacks(SetupFlags::ATTACH, self.attach_to.is_some()), "ATTACH needs a ring in attach_to"),
            (lacks(SetupFlags::CQSIZE, self.cq_entries != 0), "CQSIZE needs a number in cq_entries"),
            (lacks(SetupFlags::RESTRICT, !self.allowed.is_empty()), "RESTRICT needs allowed_opcodes"),
        ];
        rules.into_iter().find(|(broken, _)| *broken).map(|(_, text)| text)
    }
}

/// A flag that was wanted and not had, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dropped {
    /// Which.
    pub flags: SetupFlags,
    /// Why.
    pub reason: String,
}

/// What a ring came out as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Granted {
    /// The driver.
    pub kind: Kind,
    /// The flags in effect, also those that the library set by itself.
    pub flags: SetupFlags,
    /// The operations that a ring with `RESTRICT` accepts.
    pub allowed: Allowed,
    /// Wanted flags that couldn't be had.
    pub dropped: Vec<Dropped>,
    /// Entries of the submission queue.
    pub entries: u32,
    /// Entries of the completion queue.
    pub cq_entries: u32,
    /// What else came out differently than asked, in words: a smaller queue and the limit to raise, or why the
    /// POSIX driver serves instead of io_uring.
    pub notes: Vec<String>,
}

/// Makes the driver that is asked for.
///
/// # Errors
/// `-EINVAL` for bad combinations, [`Error::Unsupported`] with the reason when a flag or the driver can't be had,
/// `-ENOMEM` naming the limit to raise, else what the system says.
pub fn open_driver(options: &RingOptions) -> Result<(Driver, Granted)> {
    options.check()?;
    match options.driver {
        Choice::Posix => open_posix(options, None),
        Choice::Uring => open_uring(options).map_err(Refusal::into_error),
        Choice::Auto => match open_uring(options) {
            Err(Refusal::Unavailable(e)) if !options.flags.intersects(SetupFlags::URING_ONLY) => {
                open_posix(options, Some(format!("the POSIX driver serves, without io_uring: {e}")))
            }
            other => other.map_err(Refusal::into_error),
        },
    }
}

fn open_uring(options: &RingOptions) -> Result<(Driver, Granted), Refusal> {
    let (uring, granted) = Uring::open(options)?;
    Ok((Driver::Uring(Box::new(uring)), granted))
}

fn open_posix(options: &RingOptions, note: Option<String>) -> Result<(Driver, Granted)> {
    let refused = options.flags & SetupFlags::URING_ONLY;
    if !refused.is_empty() {
        let text = format!("{}: only io_uring has this, not the POSIX driver", refused.names());
        return Err(Error::Unsupported(text.into()));
    }
    let dropped = (options.flags_wanted & SetupFlags::URING_ONLY)
        .iter()
        .map(|flags| Dropped { flags, reason: "only io_uring has this, not the POSIX driver".into() })
        .collect();
    let entries = options.entries.min(ENTRIES_MAX);
    let mut notes: Vec<String> = note.into_iter().collect();
    if entries < options.entries {
        notes.push(format!("{entries} entries, the most a ring has, instead of {}", options.entries));
    }
    let granted = Granted {
        kind: Kind::Posix,
        // The caller's restriction is held by the ring object; the other flags mean nothing to threads.
        flags: (options.flags | options.flags_wanted) & SetupFlags::RESTRICT,
        allowed: options.allowed,
        dropped,
        entries,
        cq_entries: options.cq_entries.max(entries),
        notes,
    };
    Ok((Driver::Posix(Box::new(Posix::open(entries)?)), granted))
}
