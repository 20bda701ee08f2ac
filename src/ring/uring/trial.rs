//! Tiny rings, made to see what the kernel allows, and the reasons in words.
//!
//! Nothing is remembered: a limit or a sysctl can change while the process runs, and a trial costs some tens of
//! microseconds.

use std::os::fd::AsRawFd;

use io_uring::{IoUring, Probe, types};

use super::super::options::SetupFlags;
use super::limits;
use super::setup::Plan;

/// Entries of a trial ring: it fits into what is left of almost any limit.
pub(super) const ENTRIES: u32 = 2;

/// A refused flag, in words.
pub(super) fn reason(flags: SetupFlags, errno: i32) -> String {
    let error = std::io::Error::from_raw_os_error(errno);
    let since = match flags {
        f if f.contains(SetupFlags::SQ_AFF) && !f.contains(SetupFlags::SQPOLL) => {
            return format!("the kernel refused that CPU for the polling thread ({error})");
        }
        f if f.contains(SetupFlags::ATTACH) => {
            return format!(
                "attach_to is no ring that this one can share with ({error}): both need SQPOLL, or neither"
            );
        }
        f if f.contains(SetupFlags::SQPOLL) && errno == libc::EPERM => {
            return "before Linux 5.13 the polling thread needs CAP_SYS_NICE".into();
        }
        f if f.contains(SetupFlags::SINGLE_ISSUER) => "6.0",
        f if f.contains(SetupFlags::DEFER_TASKRUN) => "6.1",
        f if f.intersects(SetupFlags::COOP_TASKRUN.union(SetupFlags::TASKRUN_FLAG)) => "5.19",
        f if f.contains(SetupFlags::SUBMIT_ALL) => "5.18",
        _ => "5.1",
    };
    format!("the kernel refused it ({error}); it came with Linux {since}")
}

/// Why there is no io_uring at all, when that is what the number means.
pub(super) fn unavailable(errno: i32) -> Option<String> {
    match errno {
        libc::ENOSYS => Some(blocked(errno, None, false)),
        libc::EPERM => Some(blocked(errno, disabled_sysctl(), under_seccomp())),
        _ => None,
    }
}

/// The named reason behind `ENOSYS` or `EPERM`.
fn blocked(errno: i32, sysctl: Option<u8>, seccomp: bool) -> String {
    match (errno, sysctl) {
        (libc::ENOSYS, _) => {
            "this kernel has no io_uring, or a filter hides it (ENOSYS); it came with Linux 5.1".into()
        }
        (_, Some(2)) => {
            "io_uring is switched off for all processes (EPERM): sysctl kernel.io_uring_disabled is 2; \
                         set it to 0 to allow it"
                .into()
        }
        (_, Some(1)) => {
            "io_uring is switched off for this process (EPERM): sysctl kernel.io_uring_disabled is 1; \
                         set it to 0, or join the group of kernel.io_uring_group"
                .into()
        }
        _ if seccomp => {
            "a seccomp filter forbids io_uring (EPERM), as the default profiles of container runtimes do; \
                         start the container with a profile that allows io_uring_setup, _enter and _register"
                .into()
        }
        _ => "io_uring is forbidden by a security module (EPERM)".into(),
    }
}

fn disabled_sysctl() -> Option<u8> {
    let text = read_small(c"/proc/sys/kernel/io_uring_disabled")?;
    text.trim().parse().ok()
}

fn under_seccomp() -> bool {
    // Of this thread: a filter may hold for one thread alone.
    let status = read_small(c"/proc/thread-self/status").unwrap_or_default();
    status.lines().any(|line| line.starts_with("Seccomp:") && line.trim_end().ends_with('2'))
}

/// The beginning of a small file of the system; nothing when it can't be read.
fn read_small(path: &std::ffi::CStr) -> Option<String> {
    use rustix::fs::{Mode, OFlags, open};
    let fd = open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut bytes = [0u8; 4096];
    let count = rustix::io::read(&fd, &mut bytes[..]).ok()?;
    Some(String::from_utf8_lossy(&bytes[..count]).into_owned())
}

/// A trial ring with these flags, or why not.
pub(in crate::ring) fn ring(flags: SetupFlags, attach_to: Option<&Trial>) -> Result<Trial, String> {
    let plan = Plan {
        flags,
        entries: ENTRIES,
        cq_entries: ENTRIES,
        cpu: 0,
        idle_ms: 1,
        attach_to: attach_to.map_or(-1, |trial| trial.0.as_raw_fd()),
    };
    plan.build().map(Trial).map_err(|e| {
        let errno = e.raw_os_error().unwrap_or(libc::EIO);
        match unavailable(errno) {
            Some(reason) => reason,
            None if errno == libc::ENOMEM => limits::memlock_hint(),
            None => reason(flags, errno),
        }
    })
}

/// A tiny ring.
pub(in crate::ring) struct Trial(IoUring);

impl Trial {
    /// Which operations the kernel knows.
    pub(in crate::ring) fn operations(&self) -> Result<Probe, String> {
        let mut probe = Probe::new();
        self.0
            .submitter()
            .register_probe(&mut probe)
            .map_err(|e| format!("the kernel refused to tell ({e})"))?;
        Ok(probe)
    }

    /// Waits that poll the network card.
    pub(in crate::ring) fn napi(&self) -> Result<(), String> {
        let mut napi = types::Napi::new().set_busy_poll_timeout(1);
        let registered = self.0.submitter().register_napi(&mut napi);
        registered.map_err(|e| format!("the kernel refused it ({e}); it came with Linux 6.9"))
    }

    /// A table of file slots without files.
    pub(in crate::ring) fn sparse_slots(&self) -> Result<(), String> {
        let made = self.0.submitter().register_files_sparse(1);
        made.map_err(|e| format!("the kernel refused it ({e}); it came with Linux 5.19"))
    }

    /// A table of registered buffers that can change while the ring runs.
    pub(in crate::ring) fn sparse_buffers(&self) -> Result<(), String> {
        let made = self.0.submitter().register_buffers_sparse(1);
        made.map_err(|e| format!("the kernel refused it ({e}); it came with Linux 5.19"))
    }

    /// An allow-list of operations. The ring is locked by it.
    pub(in crate::ring) fn restrictions(&self) -> Result<(), String> {
        let mut list = [io_uring::register::Restriction::sqe_op(io_uring::opcode::Nop::CODE)];
        let registered = self.0.submitter().register_restrictions(&mut list);
        registered.map_err(|e| format!("the kernel refused it ({e}); it came with Linux 5.10"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_of_being_blocked_has_its_own_reason() {
        let text = |errno, sysctl, seccomp| blocked(errno, sysctl, seccomp);
        assert!(text(libc::ENOSYS, None, false).contains("ENOSYS"));
        assert!(text(libc::EPERM, Some(2), true).contains("io_uring_disabled is 2"));
        assert!(text(libc::EPERM, Some(1), false).contains("io_uring_group"));
        assert!(text(libc::EPERM, Some(0), true).contains("seccomp"));
        assert!(text(libc::EPERM, None, false).contains("security module"));
        assert_eq!(unavailable(libc::EINVAL), None);
    }
}
