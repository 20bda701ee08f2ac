//! Leading: taking the next group to the device, judging the outcome, telling everybody concerned.
//!
//! The leader owns the writer until it puts it back; that is what being the leader means. Should it never come to
//! that (its task was dropped, its code panicked), what is on the device is unknown, and the log is poisoned.

use std::sync::atomic::Ordering;

use super::{Commit, Shared};
use crate::base::defect::{self, Defect};
use crate::base::{Error, Result};
use crate::ring::Io;
use crate::wal::group::{Ground, Group, LeadIn, Start, Want};
use crate::wal::segment::Segment;
use crate::wal::writer::{Outcome, Writer};

/// The leader's hold on the writer.
struct Leading<'a> {
    commit: &'a Commit,
    writer: Option<Box<Writer>>,
}

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        if self.writer.is_some() {
            let text = "the thread that was writing the log gave up";
            self.commit.poison(Error::Internal(text.into()));
        }
    }
}

impl Leading<'_> {
    fn writer(&mut self) -> Result<&mut Writer> {
        let gone = || Error::Internal("a leader without a writer".into());
        self.writer.as_deref_mut().ok_or_else(gone)
    }
}

/// How leading ended.
enum Ended {
    /// There was nothing to do.
    Nothing,
    /// What was written before is durable.
    Synced,
    /// The group is written.
    Done { group: Box<Group>, synced: bool },
    /// The disk is full; the group and those behind it have been refused.
    Refused,
}

/// A group that is the leader's.
struct Taken {
    group: Box<Group>,
    next: Option<Segment>,
    sync: bool,
}

impl Commit {
    /// Leads one group, with the writer that the caller took from the lock. With `sync` it is made durable even if no
    /// member asks for it; when there is no group, what was written before is made durable.
    pub(super) async fn lead(&self, io: &Io, writer: Box<Writer>, sync: bool) {
        let mut leading = Leading { commit: self, writer: Some(writer) };
        self.gather(io).await;
        let taken = self.take_group(io, sync).await;
        let ended = self.lead_group(io, &mut leading, taken, sync).await;
        self.step_down(io, leading, ended);
    }

    async fn lead_group(
        &self,
        io: &Io,
        leading: &mut Leading<'_>,
        taken: Option<Taken>,
        sync: bool,
    ) -> Result<Ended> {
        let Some(Taken { mut group, next, sync }) = taken else {
            if !sync || self.is_poisoned() {
                return Ok(Ended::Nothing);
            }
            return leading.writer()?.sync(io).await.map(|()| Ended::Synced);
        };
        match leading.writer()?.issue(io, &mut group, next, sync).await {
            Outcome::Done { synced } => Ok(Ended::Done { group, synced }),
            // Part of a segment's first group may be readable: two segments would say that they follow the same one.
            Outcome::Refused { appended: true, error, .. } if group.lead_in == LeadIn::Link => Err(error),
            Outcome::Refused { appended, unused, .. } => {
                self.refuse(io, group, unused).await?;
                if appended {
                    // What is readable of the group must be excluded before anybody is told that it was refused.
                    self.exclude(io, leading).await?;
                }
                Ok(Ended::Refused)
            }
            Outcome::Failed(e) => Err(e),
        }
    }

    /// The next group, once all its members have finished; `None` when there is none.
    async fn take_group(&self, io: &Io, sync: bool) -> Option<Taken> {
        loop {
            let seen = self.ready.value();
            {
                let mut shared = self.shared.lock();
                match shared.groups.start() {
                    Start::Nothing | Start::Busy => return None,
                    Start::Copying => {}
                    Start::Go(group) => return Some(self.taken(io, &mut shared, group, sync)),
                }
            }
            self.wait_briefly(io, &self.ready, seen).await;
        }
    }

    fn taken(&self, io: &Io, shared: &mut Shared, group: Box<Group>, sync: bool) -> Taken {
        let next = if group.lead_in == LeadIn::Link { shared.next_segments.pop_front() } else { None };
        let members = shared.groups.filling_members();
        self.arrived.store(members, Ordering::Relaxed);
        if group.members > 0 {
            self.last_members.store(group.members, Ordering::Relaxed);
        }
        if shared.weak_since.is_some() {
            shared.weak_since = shared.groups.has_work().then(|| io.now_us());
        }
        // There is room again.
        self.progress.wake_all();
        let sync = sync || group.want == Want::Sync;
        Taken { group, next, sync }
    }

    /// The disk is full: refuses the group and all behind it.
    async fn refuse(&self, io: &Io, group: Box<Group>, unused: Option<Segment>) -> Result<()> {
        self.shared.lock().groups.begin_refusal();
        loop {
            let seen = self.ready.value();
            if self.shared.lock().groups.all_finished() {
                break;
            }
            self.wait_briefly(io, &self.ready, seen).await;
        }
        let mut shared = self.shared.lock();
        shared.refused_group = shared.groups.last_group();
        shared.refusals += 1;
        let dead = shared.groups.refuse(group)?;
        if !defect::on(Defect::PublishRefused) {
            self.dead.add(&dead);
        }
        // Segments that were never written to are spares again, the oldest first.
        let unused: Vec<Segment> = unused.into_iter().chain(shared.next_segments.drain(..)).collect();
        unused.into_iter().rev().for_each(|segment| shared.spares.put_back(segment));
        shared.weak_since = None;
        self.publish(&shared);
        Ok(())
    }

    /// Makes a new segment's link durable, which says that the last group of the segment before doesn't count.
    async fn exclude(&self, io: &Io, leading: &mut Leading<'_>) -> Result<()> {
        let Taken { mut group, next, .. } = {
            let mut shared = self.shared.lock();
            let needed = shared.groups.kept_need().unwrap_or(crate::wal::segment::BLOCK);
            let len = Ground::len_for(needed);
            let none = || {
                let text = "the disk became full in the middle of a group, and no spare segment was left";
                Error::system(libc::ENOSPC, text)
            };
            let segment = shared.spares.take(len, 0).ok_or_else(none)?;
            self.install(&mut shared, segment)?;
            shared.groups.link_alone()?;
            match shared.groups.start() {
                Start::Go(group) => self.taken(io, &mut shared, group, true),
                _ => return Err(Error::Internal("a fresh segment has a group to begin with".into())),
            }
        };
        match leading.writer()?.issue(io, &mut group, next, true).await {
            Outcome::Done { synced } => {
                let mut shared = self.shared.lock();
                shared.groups.done(group, synced);
                self.publish(&shared);
                Ok(())
            }
            Outcome::Refused { error, .. } | Outcome::Failed(error) => Err(error),
        }
    }

    /// Records how it ended, puts the writer back, and only then wakes those concerned: the first of them that comes
    /// back finds the writer and leads, without anybody else having to be woken for it.
    fn step_down(&self, io: &Io, mut leading: Leading<'_>, ended: Result<Ended>) {
        let now = io.now_us();
        let failure = leading.writer.as_deref().and_then(|writer| writer.failure().cloned());
        let retired = leading.writer.as_deref_mut().map(Writer::take_retired).unwrap_or_default();
        let footprint = leading.writer.as_deref().map(Writer::footprint).unwrap_or_default();
        let mut woken = None;
        let mut everybody = false;
        let heir = {
            let mut shared = self.shared.lock();
            match &ended {
                Ok(Ended::Done { group, .. }) => {
                    woken = Some(group.number);
                    shared.last_write_us = now;
                    shared.totals.count(group, footprint);
                }
                Ok(Ended::Refused) => everybody = true,
                Ok(Ended::Synced) => shared.groups.synced(),
                Ok(Ended::Nothing) | Err(_) => {}
            }
            let error = match ended {
                Ok(Ended::Done { group, synced }) => {
                    shared.groups.done(group, synced);
                    failure
                }
                Ok(_) => failure,
                Err(e) => Some(e),
            };
            retired.into_iter().for_each(|(number, len)| shared.spares.retire(number, len));
            self.publish(&shared);
            if let Some(e) = error {
                everybody = true;
                self.poison_locked(&mut shared, e);
            }
            shared.writer = leading.writer.take();
            shared.groups.next_wanted()
        };
        if everybody {
            self.wake_everybody();
            return;
        }
        if let Some(group) = woken {
            self.word(group).wake_all();
        }
        self.progress.wake_all();
        if let Some(group) = heir {
            self.word(group).wake_one();
        }
    }

    /// What is on the device is unknown: nothing is written any more, and nothing more becomes visible.
    pub(super) fn poison(&self, error: Error) {
        self.poison_locked(&mut self.shared.lock(), error);
        self.wake_everybody();
    }

    fn poison_locked(&self, shared: &mut Shared, error: Error) {
        log::error!("the log is poisoned: {error}");
        shared.groups.poison();
        shared.poison.get_or_insert(error);
        self.poisoned.store(true, Ordering::Release);
    }

    fn wake_everybody(&self) {
        self.words.iter().chain([&self.progress, &self.ready, &self.keeper]).for_each(|word| word.wake_all());
    }
}
