//! Making the ring: flags that must be had, flags that are wanted, too little locked memory.
//!
//! A refusal by the kernel is a bare number; here it becomes the flag that was refused and the reason. Which flag it
//! was is found by trial: a tiny ring without it is made, and if that works, it was the one.

use std::os::fd::RawFd;

use io_uring::{IoUring, types};

use super::super::driver::Kind;
use super::super::options::{Dropped, ENTRIES_MAX, Granted, RingOptions, SetupFlags};
use super::enter::Door;
use super::{Uring, limits, trial};
use crate::base::{Error, Result};

/// Completion entries for each submission entry, unless a number is given: a multishot request ends when the queue
/// is full, so it should not get full.
const CQ_RATIO: u32 = 4;
/// How long a wait with `NAPI` polls the network card.
const NAPI_US: u32 = 50;

/// Why there is no ring.
#[derive(Debug)]
pub enum Refusal {
    /// io_uring can't be had here; another driver may serve.
    Unavailable(Error),
    /// What was asked for can't be had.
    Refused(Error),
}

impl Refusal {
    /// The error in it.
    pub fn into_error(self) -> Error {
        match self {
            Refusal::Unavailable(e) | Refusal::Refused(e) => e,
        }
    }
}

/// The order in which flags are suspected and dropped: the newest ones and those with most conditions first.
const SUSPECTS: [SetupFlags; 9] = [
    SetupFlags::SQ_AFF,
    SetupFlags::ATTACH,
    SetupFlags::IOPOLL,
    SetupFlags::DEFER_TASKRUN,
    SetupFlags::SINGLE_ISSUER.union(SetupFlags::DEFER_TASKRUN),
    SetupFlags::TASKRUN_FLAG,
    SetupFlags::COOP_TASKRUN,
    SetupFlags::SUBMIT_ALL,
    SetupFlags::SQPOLL.union(SetupFlags::SQ_AFF),
];

/// What the kernel is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    pub(super) flags: SetupFlags,
    pub(super) entries: u32,
    pub(super) cq_entries: u32,
    pub(super) cpu: u32,
    pub(super) idle_ms: u32,
    pub(super) attach_to: RawFd,
}

impl Plan {
    fn new(options: &RingOptions, flags: SetupFlags) -> Self {
        let entries = options.entries.min(ENTRIES_MAX);
        Plan {
            flags,
            entries,
            cq_entries: if options.cq_entries > 0 { options.cq_entries } else { entries * CQ_RATIO },
            cpu: options.sqpoll_cpu.unwrap_or(0),
            idle_ms: options.sqpoll_idle_ms,
            attach_to: options.attach_to.unwrap_or(-1),
        }
    }

    /// Makes the ring: disabled, closed on exec, not mapped in forked children.
    pub(super) fn build(&self) -> std::io::Result<IoUring> {
        let mut builder = IoUring::builder();
        builder.dontfork().setup_clamp().setup_r_disabled().setup_cqsize(self.cq_entries);
        let has = |flag| self.flags.contains(flag);
        if has(SetupFlags::SQPOLL) {
            builder.setup_sqpoll(self.idle_ms);
        }
        if has(SetupFlags::SQ_AFF) {
            builder.setup_sqpoll_cpu(self.cpu);
        }
        if has(SetupFlags::IOPOLL) {
            builder.setup_iopoll();
        }
        if has(SetupFlags::ATTACH) {
            builder.setup_attach_wq(self.attach_to);
        }
        if has(SetupFlags::SUBMIT_ALL) {
            builder.setup_submit_all();
        }
        if has(SetupFlags::COOP_TASKRUN) {
            builder.setup_coop_taskrun();
        }
        if has(SetupFlags::TASKRUN_FLAG) {
            builder.setup_taskrun_flag();
        }
        if has(SetupFlags::SINGLE_ISSUER) {
            builder.setup_single_issuer();
        }
        if has(SetupFlags::DEFER_TASKRUN) {
            builder.setup_defer_taskrun();
        }
        builder.build(self.entries)
    }

    fn without(&self, flags: SetupFlags) -> Plan {
        let mut plan = Plan { flags: self.flags - flags, ..*self };
        if !plan.flags.intersects(SetupFlags::COOP_TASKRUN.union(SetupFlags::DEFER_TASKRUN)) {
            plan.flags.remove(SetupFlags::TASKRUN_FLAG);
        }
        plan
    }

    /// Whether a tiny ring of this plan can be made.
    fn works(&self) -> bool {
        Plan { entries: trial::ENTRIES, cq_entries: trial::ENTRIES, ..*self }.build().is_ok()
    }

    /// The flags without which the kernel would have made the ring.
    fn culprit(&self) -> Option<SetupFlags> {
        let suspects = SUSPECTS.into_iter().map(|suspect| suspect & self.flags);
        suspects.filter(|suspect| !suspect.is_empty()).find(|suspect| self.without(*suspect).works())
    }

    fn halve(&mut self) -> bool {
        if self.entries <= 1 {
            return false;
        }
        self.entries /= 2;
        self.cq_entries = (self.cq_entries / 2).max(self.entries);
        true
    }
}

/// The flags to try, and the wanted ones that are out by the rules.
pub(super) fn choose(options: &RingOptions) -> (SetupFlags, Vec<Dropped>) {
    let mut wanted = options.flags_wanted - options.flags;
    if !(options.flags | wanted).intersects(SetupFlags::TASK_WORK) {
        wanted |= SetupFlags::DEFAULT;
    }
    let mut flags = options.flags;
    let mut dropped = Vec::new();
    for flag in wanted.iter() {
        let with = flags | flag;
        match with.conflict().or_else(|| options.missing(with)) {
            None => flags = with,
            Some(reason) => dropped.push(Dropped { flags: flag, reason: reason.into() }),
        }
    }
    if flags.intersects(SetupFlags::COOP_TASKRUN.union(SetupFlags::DEFER_TASKRUN)) {
        flags |= SetupFlags::TASKRUN_FLAG;
    }
    (flags, dropped)
}

impl Uring {
    /// Makes a ring as asked for, not bound to a thread yet.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub fn open(options: &RingOptions) -> Result<(Uring, Granted), Refusal> {
        let (flags, mut dropped) = choose(options);
        let mut plan = Plan::new(options, flags);
        let ring = build(&mut plan, options.flags, &mut dropped)?;
        let params = ring.params();
        for (have, feature) in [
            (params.is_feature_nodrop(), "keeping overflowed completions (Linux 5.5)"),
            (params.is_feature_submit_stable(), "stable submissions (Linux 5.5)"),
            (params.is_feature_ext_arg(), "waiting with a time limit (Linux 5.11)"),
        ] {
            if !have {
                let text = format!("this kernel's io_uring lacks {feature}");
                return Err(Refusal::Unavailable(Error::Unsupported(text.into())));
            }
        }
        let mut uring = Uring::over(ring, plan.flags);
        uring.set_napi(options, &mut plan, &mut dropped)?;
        if plan.flags.contains(SetupFlags::RESTRICT)
            && let Err(e) = uring.restrict(options.allowed)
        {
            let reason = format!("this kernel refused restrictions ({e}); they came with Linux 5.10");
            give_up(SetupFlags::RESTRICT, reason, options.flags, &mut plan, &mut dropped)?;
        }
        let granted = uring.granted(options, plan.flags, dropped);
        Ok((uring, granted))
    }

    fn over(ring: IoUring, flags: SetupFlags) -> Self {
        let sqpoll = flags.contains(SetupFlags::SQPOLL);
        let staged = Vec::with_capacity(if sqpoll { ring.params().sq_entries() as usize } else { 0 });
        Uring {
            door: Door::descriptor(&ring),
            ring,
            sqpoll,
            iopoll: flags.contains(SetupFlags::IOPOLL),
            owner: None,
            staged,
            chores: Vec::new(),
            refused: 0,
            polled: 0,
            starved: 0,
            overflows: 0,
            notifier: None,
            deferred: flags.contains(SetupFlags::DEFER_TASKRUN),
            wary: false,
            renewal_due: false,
            mailbox: None,
            buffers: Vec::new(),
            releasing: 0,
            allowed: None,
        }
    }

    fn set_napi(
        &mut self,
        options: &RingOptions,
        plan: &mut Plan,
        dropped: &mut Vec<Dropped>,
    ) -> Result<(), Refusal> {
        if !plan.flags.contains(SetupFlags::NAPI) {
            return Ok(());
        }
        let mut napi = types::Napi::new().set_busy_poll_timeout(NAPI_US);
        match self.ring.submitter().register_napi(&mut napi) {
            Ok(()) => Ok(()),
            Err(e) => {
                let reason = format!("this kernel refused NAPI polling ({e}); it came with Linux 6.9");
                give_up(SetupFlags::NAPI, reason, options.flags, plan, dropped)
            }
        }
    }

    fn granted(&self, options: &RingOptions, flags: SetupFlags, dropped: Vec<Dropped>) -> Granted {
        let params = self.ring.params();
        let (entries, cq_entries) = (params.sq_entries(), params.cq_entries());
        let mut notes = Vec::new();
        if entries < options.entries.min(ENTRIES_MAX) {
            let asked = options.entries;
            notes.push(format!("{entries} entries instead of {asked}: {}", limits::memlock_hint()));
        } else if options.entries > ENTRIES_MAX {
            notes.push(format!("{entries} entries instead of {}: the kernel's limit", options.entries));
        }
        Granted {
            kind: Kind::Uring,
            flags,
            allowed: self.allowed.unwrap_or_default(),
            dropped,
            entries,
            cq_entries,
            notes,
        }
    }
}

/// A flag can't be had: an error when it is a must, else a line of the report.
fn give_up(
    flags: SetupFlags,
    reason: String,
    must: SetupFlags,
    plan: &mut Plan,
    dropped: &mut Vec<Dropped>,
) -> Result<(), Refusal> {
    if must.intersects(flags) {
        return Err(Refusal::Refused(Error::Unsupported(
            format!("{}: {reason}", (flags & must).names()).into(),
        )));
    }
    *plan = plan.without(flags);
    dropped.push(Dropped { flags, reason });
    Ok(())
}

/// Makes the ring, dropping what is only wanted, and halving when locked memory is short.
fn build(plan: &mut Plan, must: SetupFlags, dropped: &mut Vec<Dropped>) -> Result<IoUring, Refusal> {
    loop {
        let e = match plan.build() {
            Ok(ring) => return Ok(ring),
            Err(e) => e,
        };
        let errno = e.raw_os_error().unwrap_or(libc::EIO);
        if errno == libc::ENOMEM {
            if plan.halve() {
                continue;
            }
            let text = format!("not even a ring of one entry: {}", limits::memlock_hint());
            return Err(Refusal::Unavailable(Error::system(libc::ENOMEM, text)));
        }
        if matches!(errno, libc::EMFILE | libc::ENFILE | libc::EAGAIN) {
            return Err(Refusal::Refused(Error::system(errno, "making an io_uring")));
        }
        if let Some(reason) = trial::unavailable(errno) {
            return Err(Refusal::Unavailable(Error::Unsupported(reason.into())));
        }
        let culprit = plan.culprit().unwrap_or(plan.flags - must);
        if culprit.is_empty() {
            return Err(Refusal::Refused(Error::from(e).context("making an io_uring")));
        }
        give_up(culprit, trial::reason(culprit, errno), must, plan, dropped)?;
    }
}
