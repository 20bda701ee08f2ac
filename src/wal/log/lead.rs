//! The tasks of a log: leading groups to the device, keeping segments ready, sealing when idle.
//!
//! A task runs while its log's ring is driven by anybody, and ends when it has nothing to do; the flags in the state
//! say which of them run, so that there is never more than one of each. Only the leading task has the writer.

use std::cell::RefCell;
use std::rc::Rc;

use super::state::{State, Step};
use crate::base::Result;
use crate::ring::Io;
use crate::ring::op::{Op, Timespec};
use crate::wal::group::Group;
use crate::wal::spare;
use crate::wal::writer::{Outcome, Writer};

type Shared = Rc<RefCell<State>>;

/// Issues groups until there is none. The state's `leading` is set by whoever starts it.
pub(super) async fn lead(io: Io, log: Shared) {
    let writer = log.borrow_mut().writer.take();
    let Some(mut writer) = writer else { return };
    loop {
        let step = log.borrow_mut().next_step();
        match step {
            Step::Issue(mut group, next) => {
                writer.release(log.borrow().released);
                let outcome = writer.issue(&io, &mut group, next, true).await;
                if let Err(e) = settle(&io, &log, &mut writer, group, outcome).await {
                    log.borrow_mut().poison_with(e);
                }
            }
            Step::Make(len) => make(&io, &log, len).await,
            Step::Rest => break,
        }
        report(&io, &log);
        start_keeper(&io, &log);
    }
    {
        let mut state = log.borrow_mut();
        state.writer = Some(writer);
        state.leading = false;
        state.last_write_us = io.now_us();
    }
    report(&io, &log);
    start_keeper(&io, &log);
    start_idle(&io, &log);
}

/// Tells the reactor of new events, which its waits count.
fn report(io: &Io, log: &Shared) {
    let untold = log.borrow_mut().take_untold();
    io.with_reactor(|reactor| reactor.made_ready(untold));
}

/// Acts on how a group ended. An error poisons.
async fn settle(
    io: &Io,
    log: &Shared,
    writer: &mut Writer,
    group: Box<Group>,
    outcome: Outcome,
) -> Result<()> {
    match outcome {
        Outcome::Done { synced } => {
            let retired = writer.take_retired();
            {
                let mut state = log.borrow_mut();
                state.groups.done(group, synced);
                state.acknowledge();
                retired.into_iter().for_each(|(number, len)| state.spares.retire(number, len));
            }
            writer.failure().cloned().map_or(Ok(()), Err)
        }
        Outcome::Refused { error, appended, unused } => {
            let refused = log.borrow_mut().refuse(group, unused)?;
            // What is readable of the group must be excluded before anybody is told that it was refused.
            if appended && let Err(e) = exclude(io, log, writer).await {
                log.borrow_mut().put_back(refused);
                return Err(e);
            }
            log.borrow_mut().tell_refused(refused, &error);
            Ok(())
        }
        Outcome::Failed(e) => Err(e),
    }
}

async fn exclude(io: &Io, log: &Shared, writer: &mut Writer) -> Result<()> {
    let (mut group, next) = log.borrow_mut().excluding()?;
    match writer.issue(io, &mut group, next, true).await {
        Outcome::Done { synced } => {
            log.borrow_mut().groups.done(group, synced);
            Ok(())
        }
        Outcome::Refused { error, .. } | Outcome::Failed(error) => Err(error),
    }
}

/// A segment for records that wait; when there can be none they are refused.
async fn make(io: &Io, log: &Shared, len: u64) {
    let order = log.borrow_mut().spares.order(len);
    let Some(order) = order else {
        // The keeper is preparing one already.
        return io.until(|| !log.borrow().spares.is_ordered()).await;
    };
    let prepared = order.prepare(io).await;
    let supplied = log.borrow_mut().spares.supply(prepared);
    if let Err(e) = supplied {
        log::warn!("no log segment could be prepared: {e}");
        log.borrow_mut().refuse_pending(&e);
    }
}

fn start_keeper(io: &Io, log: &Shared) {
    let now = io.now_us();
    {
        let mut state = log.borrow_mut();
        let wanted = state.wants_spare(now) || state.spares.has_doomed();
        if !wanted || state.keeping || state.closing {
            return;
        }
        state.keeping = true;
    }
    io.spawn(keep(io.clone(), log.clone()));
}

/// Prepares spares and removes files that nobody needs.
async fn keep(io: Io, log: Shared) {
    loop {
        let doomed = log.borrow_mut().spares.next_doomed();
        let Some((dir, number)) = doomed else { break };
        if let Err(e) = spare::remove(&io, &dir, number) {
            // The next recovery finds the file and gives it back as unused.
            log::warn!("a log segment that is no longer needed stays: {e}");
        }
    }
    loop {
        let now = io.now_us();
        let order = {
            let mut state = log.borrow_mut();
            let wanted = state.wants_spare(now) && !state.closing;
            let len = state.spares.segment_bytes();
            if wanted { state.spares.order(len) } else { None }
        };
        let Some(order) = order else { break };
        let prepared = order.prepare(&io).await;
        let supplied = log.borrow_mut().spares.supply(prepared);
        if let Err(e) = supplied {
            log::warn!("the log has no spare segment: {e}");
            log.borrow_mut().put_off_spare(now);
        }
    }
    log.borrow_mut().keeping = false;
}

fn start_idle(io: &Io, log: &Shared) {
    {
        let mut state = log.borrow_mut();
        if state.sealed || state.idling || state.closing || state.poison().is_some() {
            return;
        }
        state.idling = true;
    }
    io.spawn(idle(io.clone(), log.clone()));
}

/// Seals the log once nothing has been written for a while, so that a later recovery can tell damage from a torn tail.
async fn idle(io: Io, log: Shared) {
    while let Some(us) = until_seal(&io, &log) {
        if us == 0 {
            let sealing = log.borrow_mut().begin_seal();
            if !sealing {
                break;
            }
            // Records that join meanwhile are led too, and want a seal of their own.
            lead(io.clone(), log.clone()).await;
            continue;
        }
        let sleep = io.submit(Op::Timeout { after: Timespec::from_us(us) });
        log.borrow_mut().timer = Some(sleep.token());
        sleep.await;
        log.borrow_mut().timer = None;
    }
    log.borrow_mut().idling = false;
}

/// Microseconds until a seal is due; `None` when none will be.
fn until_seal(io: &Io, log: &Shared) -> Option<u64> {
    let state = log.borrow();
    if state.sealed || state.closing || state.poison().is_some() {
        return None;
    }
    let since = if state.is_busy() { io.now_us() } else { state.last_write_us };
    Some(since.saturating_add(state.seal_after_us.max(1)).saturating_sub(io.now_us()))
}
