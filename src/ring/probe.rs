//! What this kernel allows, feature by feature, or the reason why not.
//!
//! Asked anew at every call, by making tiny rings (some hundreds of microseconds in all): limits and sysctls change
//! while a process runs. Kernel versions are never compared; the kernel is asked.

use io_uring::opcode;

use super::options::SetupFlags;
use super::uring::trial;

/// What a caller may want to know of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Feature {
    /// io_uring itself.
    IoUring,
    /// `SQPOLL`.
    Sqpoll,
    /// `SQ_AFF`.
    SqAff,
    /// `IOPOLL`; whether a device has poll queues shows with its first read.
    Iopoll,
    /// `ATTACH`.
    Attach,
    /// `CQSIZE`.
    CqSize,
    /// `SUBMIT_ALL`.
    SubmitAll,
    /// `COOP_TASKRUN`.
    CoopTaskrun,
    /// `TASKRUN_FLAG`.
    TaskrunFlag,
    /// `SINGLE_ISSUER`.
    SingleIssuer,
    /// `DEFER_TASKRUN`.
    DeferTaskrun,
    /// `RESTRICT`.
    Restrict,
    /// `NAPI`.
    Napi,
    /// File slots in a sparse table.
    FileSlots,
    /// Registered buffers that can be replaced one by one.
    RegisteredBuffers,
    /// Operations in a chain with a time limit.
    LinkTimeout,
    /// Polls that complete again and again.
    MultishotPoll,
    /// Zero-copy sends.
    SendZeroCopy,
}

/// All features, in the order of [`Capabilities::all`].
pub const FEATURES: [Feature; 18] = [
    Feature::IoUring,
    Feature::Sqpoll,
    Feature::SqAff,
    Feature::Iopoll,
    Feature::Attach,
    Feature::CqSize,
    Feature::SubmitAll,
    Feature::CoopTaskrun,
    Feature::TaskrunFlag,
    Feature::SingleIssuer,
    Feature::DeferTaskrun,
    Feature::Restrict,
    Feature::Napi,
    Feature::FileSlots,
    Feature::RegisteredBuffers,
    Feature::LinkTimeout,
    Feature::MultishotPoll,
    Feature::SendZeroCopy,
];

/// Usable, or the reason why not.
pub type Usable = Result<(), String>;

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities(Vec<(Feature, Usable)>);

impl Capabilities {
    /// Asks the kernel.
    pub fn probe() -> Self {
        match trial::ring(SetupFlags::empty(), None) {
            Err(reason) => Capabilities(FEATURES.into_iter().map(|f| (f, Err(reason.clone()))).collect()),
            Ok(plain) => Capabilities(FEATURES.into_iter().map(|f| (f, usable(f, &plain))).collect()),
        }
    }

    /// Every feature with what was found.
    pub fn all(&self) -> &[(Feature, Usable)] {
        &self.0
    }

    /// One of them.
    pub fn of(&self, feature: Feature) -> Usable {
        match self.0.iter().find(|(found, _)| *found == feature) {
            Some((_, usable)) => usable.clone(),
            None => Err("this library doesn't know that feature".into()),
        }
    }
}

fn usable(feature: Feature, plain: &trial::Trial) -> Usable {
    let with = |flags| trial::ring(flags, None).map(drop);
    match feature {
        // The trial ring has been made, with a completion queue of its own size.
        Feature::IoUring | Feature::CqSize => Ok(()),
        Feature::Sqpoll => with(SetupFlags::SQPOLL),
        Feature::SqAff => with(SetupFlags::SQPOLL | SetupFlags::SQ_AFF),
        Feature::Iopoll => with(SetupFlags::IOPOLL),
        Feature::Attach => trial::ring(SetupFlags::ATTACH, Some(plain)).map(drop),
        Feature::SubmitAll => with(SetupFlags::SUBMIT_ALL),
        Feature::CoopTaskrun => with(SetupFlags::COOP_TASKRUN),
        Feature::TaskrunFlag => with(SetupFlags::COOP_TASKRUN | SetupFlags::TASKRUN_FLAG),
        Feature::SingleIssuer => with(SetupFlags::SINGLE_ISSUER),
        Feature::DeferTaskrun => with(SetupFlags::SINGLE_ISSUER | SetupFlags::DEFER_TASKRUN),
        // It locks the ring it is tried on.
        Feature::Restrict => trial::ring(SetupFlags::empty(), None)?.restrictions(),
        Feature::Napi => plain.napi(),
        Feature::FileSlots => plain.sparse_slots(),
        Feature::RegisteredBuffers => plain.sparse_buffers(),
        Feature::LinkTimeout => operation(plain, opcode::LinkTimeout::CODE, "5.5"),
        // The flag has no probe of its own; this operation came later than it (5.13).
        Feature::MultishotPoll => {
            operation(plain, opcode::MkDirAt::CODE, "5.15, which multishot polls precede")
        }
        Feature::SendZeroCopy => operation(plain, opcode::SendZc::CODE, "6.0"),
    }
}

fn operation(plain: &trial::Trial, code: u8, since: &str) -> Usable {
    if plain.operations()?.is_supported(code) {
        return Ok(());
    }
    Err(format!("this kernel doesn't know the operation; it came with Linux {since}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_feature_is_usable_or_says_why_not() {
        let found = Capabilities::probe();
        assert_eq!(found.all().len(), FEATURES.len());
        for feature in FEATURES {
            match found.of(feature) {
                Ok(()) => {}
                Err(reason) => assert!(reason.len() > 20, "{feature:?}: {reason:?} is no reason"),
            }
        }
        // What a default ring needs goes together with io_uring itself on any kernel since 6.1.
        if found.of(Feature::DeferTaskrun).is_ok() {
            assert_eq!(found.of(Feature::SingleIssuer), Ok(()));
            assert_eq!(found.of(Feature::FileSlots), Ok(()));
        }
    }
}
