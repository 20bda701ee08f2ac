//! A chain of the posix driver: its steps, how far it has got, and what its links say.
//!
//! A single operation is a chain of one. Consecutive file operations go to the threads as one job; time-outs and
//! polls are steps of the driver itself. A link time-out belongs to the step before it: it starts and ends with it.

use std::os::fd::RawFd;

use super::files::{Call, breaks_link};
use crate::ring::completion::Token;
use crate::ring::driver::Entry;
use crate::ring::op::{Link, Op, Target};

/// Where a step's file is, looked up when the step starts (an earlier step may have closed the slot).
#[derive(Debug, Clone, Copy)]
pub(super) enum Place {
    File(RawFd),
    Foreign(RawFd),
    Slot(u32),
}

/// What a step does.
#[derive(Debug, Clone, Copy)]
pub(super) enum Action {
    /// Ends at once with this result.
    Answer(i32),
    /// A call for the threads.
    Call(Call, Place),
    /// A time-out.
    Timeout(u64),
    /// A time-out of the step before.
    LinkTimeout(u64),
    /// A poll.
    Poll { place: Place, events: u32, multishot: bool },
    /// Clears a slot.
    CloseSlot(u32),
}

/// How the step that a chain has got to is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Not started.
    Idle,
    /// With the threads, as part of a job that ends before this step.
    Pool { end: usize },
    /// In the set of timers.
    Timer,
    /// Watched by epoll, as a poll.
    Poll,
    /// Watched by epoll until its call would not block.
    Parked,
}

/// One operation.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) token: Token,
    pub(super) action: Action,
    pub(super) link: Link,
    /// To end with `-ECANCELED` instead of starting.
    pub(super) cancelled: bool,
    /// It has had its completion already (a link time-out that fired).
    pub(super) over: bool,
}

impl Step {
    /// The step that an entry means. `refused` is the errno of an operation that must not start.
    pub(super) fn new(entry: &Entry<'_>, refused: Option<i32>) -> Self {
        let action = refused.map_or_else(|| action(entry), |errno| Action::Answer(-errno));
        Step { token: entry.token, action, link: entry.link, cancelled: false, over: false }
    }

    fn expected(&self) -> Option<usize> {
        match &self.action {
            Action::Call(call, _) => call.expected(),
            _ => None,
        }
    }
}

fn action(entry: &Entry<'_>) -> Action {
    let place = match entry.op.target() {
        Some(Target::File(file)) => Place::File(file.raw_fd()),
        Some(Target::Foreign(fd)) => Place::Foreign(*fd),
        Some(Target::Slot(slot)) => Place::Slot(*slot),
        None => Place::Foreign(-1),
    };
    match entry.op {
        Op::Nop => Action::Answer(0),
        Op::Timeout { after } => Action::Timeout(after.as_us()),
        Op::LinkTimeout { after } => Action::LinkTimeout(after.as_us()),
        Op::Poll { events, multishot, .. } => Action::Poll { place, events: *events, multishot: *multishot },
        Op::CloseSlot { slot } => Action::CloseSlot(*slot),
        op => Call::of(op, entry.done)
            .map_or(Action::Answer(-libc::EOPNOTSUPP), |call| Action::Call(call, place)),
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Chain {
    pub(super) steps: Vec<Step>,
    /// The first step that is not over.
    pub(super) at: usize,
    pub(super) phase: Phase,
    /// A link broke: what is left is cancelled.
    pub(super) broken: bool,
}

impl Chain {
    pub(super) fn new(steps: Vec<Step>) -> Self {
        Chain { steps, at: 0, phase: Phase::Idle, broken: false }
    }

    /// The step it has got to.
    pub(super) fn current(&self) -> Option<&Step> {
        self.steps.get(self.at)
    }

    /// The current step's link time-out: its token and its microseconds.
    pub(super) fn link_timeout(&self) -> Option<(Token, u64)> {
        self.link_timeout_of(self.at)
    }

    fn link_timeout_of(&self, index: usize) -> Option<(Token, u64)> {
        let linked = self.steps.get(index).is_some_and(|step| step.link != Link::None);
        match self.steps.get(index + 1) {
            Some(Step { token, action: Action::LinkTimeout(us), over: false, cancelled: false, .. })
                if linked =>
            {
                Some((*token, *us))
            }
            _ => None,
        }
    }

    /// The end of the run of calls that starts at the current step and may go to one thread.
    pub(super) fn run_end(&self) -> usize {
        let mut end = self.at + 1;
        if self.link_timeout().is_some() {
            return end;
        }
        while let Some(Step { action: Action::Call(..), cancelled: false, .. }) = self.steps.get(end) {
            // A step with a link time-out goes alone: the time starts when the step starts.
            if self.link_timeout_of(end).is_some() {
                break;
            }
            end += 1;
        }
        end
    }

    /// Ends the current step: judges its link and moves on, past a link time-out that is over already.
    pub(super) fn end_step(&mut self, result: i32) {
        if let Some(step) = self.steps.get(self.at) {
            // How a link time-out ended says nothing about the step that it watched.
            let judged = !matches!(step.action, Action::LinkTimeout(_)) || result == -libc::EINVAL;
            self.broken |= judged && breaks_link(step.link, step.expected(), result);
        }
        self.at += 1;
        while self.current().is_some_and(|step| step.over) {
            self.at += 1;
        }
    }
}
