//! Locked memory: what a ring takes of it, and what to do when there isn't enough.
//!
//! Without CAP_IPC_LOCK the kernel charges queues and registered buffers to RLIMIT_MEMLOCK, for all processes of a
//! user together.

use rustix::process::{Resource, getrlimit};

/// Bytes of an entry of the submission queue, with its place in the index array.
const SUBMISSION_BYTES: u64 = 64 + 4;
/// Bytes of an entry of the completion queue.
const COMPLETION_BYTES: u64 = 16;
/// The kernel's unit of accounting.
const PAGE: u64 = crate::base::memory::PAGE as u64;

/// Rounded up to whole pages.
pub(super) fn pages(bytes: u64) -> u64 {
    bytes.next_multiple_of(PAGE)
}

/// What the queues of a ring take.
pub(super) fn ring_bytes(entries: u32, cq_entries: u32) -> u64 {
    pages(u64::from(entries) * SUBMISSION_BYTES) + pages(u64::from(cq_entries) * COMPLETION_BYTES)
}

/// Which limit to raise, and how.
pub(super) fn memlock_hint() -> String {
    let limit = match getrlimit(Resource::Memlock).current {
        Some(bytes) => format!("{} KiB", bytes / 1024),
        None => "unlimited".into(),
    };
    format!(
        "the limit of locked memory, RLIMIT_MEMLOCK, is {limit} for all processes of this user together; raise it \
         (ulimit -l in a shell, LimitMEMLOCK= of a service, memlock in limits.conf) or close other rings"
    )
}
