//! The executor: tasks in a slab, run when one of their operations has completed.
//!
//! There are no wakers (`Waker::noop()`): an operation names its task, and the reactor lists the tasks to run. So a
//! future must wait on operations of its own `Io`, on [`Io::until`](super::io::Io::until), or on
//! [`join`](super::io::join); combinators that rely on wake-ups don't work here, and none are used.
//! Tasks are never dropped while they run: they are cancelled by cancelling their operations.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::reactor::TaskId;

type Boxed = Pin<Box<dyn Future<Output = ()>>>;

/// The tasks of one executor.
#[derive(Default)]
pub(super) struct Tasks {
    places: Vec<Option<Boxed>>,
    free: Vec<TaskId>,
    /// Tasks waiting for a condition.
    pub(super) watching: Vec<TaskId>,
    /// Those of them that are asked again in this pass.
    asking: VecDeque<TaskId>,
    /// Counts whatever could make a condition hold: turns, woken tasks, conditions that held.
    pub(super) progress: u64,
    /// The progress at which the conditions were last asked: without any since, none can hold now.
    asked_at: u64,
    pub(super) current: Option<TaskId>,
    live: usize,
}

impl Tasks {
    /// Reserves a place for a task.
    pub(super) fn reserve(&mut self) -> TaskId {
        self.live += 1;
        self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            (self.places.len() - 1) as TaskId
        })
    }

    /// Gives a place up.
    pub(super) fn release(&mut self, id: TaskId) {
        self.live -= 1;
        self.watching.retain(|watching| *watching != id);
        self.asking.retain(|asking| *asking != id);
        self.free.push(id);
    }

    pub(super) fn put(&mut self, id: TaskId, task: Boxed) {
        self.places[id as usize] = Some(task);
    }

    pub(super) fn take(&mut self, id: TaskId) -> Option<Boxed> {
        self.places.get_mut(id as usize)?.take()
    }

    /// The next task whose condition is worth asking again.
    pub(super) fn next_watching(&mut self) -> Option<TaskId> {
        if self.asking.is_empty() && self.progress != self.asked_at {
            self.asked_at = self.progress;
            self.asking.extend(self.watching.drain(..));
        }
        self.asking.pop_front()
    }

    /// How many tasks there are, `block_on`'s own included.
    pub(super) fn live(&self) -> usize {
        self.live
    }
}

/// Polls once, with a waker that does nothing.
pub(super) fn poll_once<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}
