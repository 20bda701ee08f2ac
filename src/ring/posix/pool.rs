//! The threads that make file calls for the posix driver.
//!
//! A [`Job`] is a run of file operations of one chain, performed in order by one thread, which stops where a link
//! breaks; the driver judges the same results by the same rule and cancels the rest. Results go back through a
//! [`Mailbox`], so the owner pays no system call for them while it is awake.
//!
//! Threads are made when a job finds none idle, up to a limit, and joined on drop. When one is still inside a
//! system call then (the reactor could not drain, and has leaked the memory), it is left alone instead: joining
//! could wait for ever, and all it touches is the leaked memory and the shared state here.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use super::files::{Call, breaks_link};
use crate::base::Result;
use crate::base::sync::{Arc, Condvar, Mutex, spawn, thread};
use crate::ring::completion::Token;
use crate::ring::fs::is_seekable;
use crate::ring::mailbox::{Letter, Mailbox};
use crate::ring::op::Link;

/// The most threads of one ring: what keeps a drive's queue filled without a crowd on the processors.
const MAX_THREADS: usize = 16;

/// The result that says: the file isn't ready, the driver is to watch it and send the job again.
pub(super) const NOT_READY: i32 = i32::MIN;

/// A looked-up target.
#[derive(Debug, Clone)]
pub(super) enum Handle {
    /// A file of the library, kept open by the operation: it never blocks for ever.
    File(RawFd),
    /// A descriptor that a C caller keeps open.
    Foreign(RawFd),
    /// A slot's descriptor, which stays open for this use when the slot is changed.
    Slot(std::sync::Arc<OwnedFd>),
}

impl Handle {
    pub(super) fn raw_fd(&self) -> RawFd {
        match self {
            Handle::File(fd) | Handle::Foreign(fd) => *fd,
            Handle::Slot(fd) => fd.as_raw_fd(),
        }
    }

    fn may_block_for_ever(&self) -> bool {
        !matches!(self, Handle::File(_)) && !is_seekable(self.raw_fd())
    }
}

/// One operation of a job.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) token: Token,
    pub(super) call: Call,
    pub(super) handle: Handle,
    pub(super) link: Link,
}

impl Task {
    /// Performs it; true when the job ends here.
    fn run(&self, results: &Mailbox) -> bool {
        let fd = self.handle.raw_fd();
        let result = if self.handle.may_block_for_ever() {
            self.call.attempt(fd).unwrap_or(NOT_READY)
        } else {
            self.call.perform(fd)
        };
        results.send(Letter { token: self.token, result });
        result == NOT_READY || breaks_link(self.link, self.call.expected(), result)
    }
}

/// A run of operations.
pub(super) type Job = Vec<Task>;

#[derive(Debug, Default)]
struct State {
    jobs: VecDeque<Job>,
    idle: usize,
    running: usize,
    stop: bool,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    results: Arc<Mailbox>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Pool {
    /// A pool without threads, whose results go to `results`.
    pub(super) fn new(results: Arc<Mailbox>) -> Self {
        let state = Mutex::new(State::default());
        Pool { shared: Arc::new(Shared { state, changed: Condvar::new(), results }), threads: Vec::new() }
    }

    /// Hands a job over. When not even one thread can be made, the caller performs it at once.
    pub(super) fn send(&mut self, job: Job) {
        let mut state = self.shared.state.lock();
        state.jobs.push_back(job);
        let short = state.jobs.len() > state.idle && self.threads.len() < MAX_THREADS;
        drop(state);
        if short {
            match self.grow() {
                Ok(thread) => self.threads.push(thread),
                Err(_) if !self.threads.is_empty() => {}
                Err(_) => return self.run_here(),
            }
        }
        self.shared.changed.notify_one();
    }

    fn grow(&self) -> Result<thread::JoinHandle<()>> {
        let shared = self.shared.clone();
        spawn("ioe-posix", move || work(&shared))
    }

    fn run_here(&self) {
        let job = self.shared.state.lock().jobs.pop_front();
        for task in job.iter().flatten() {
            if task.run(&self.shared.results) {
                break;
            }
        }
    }

    /// Takes the job that begins with this operation back; false when a thread has it already.
    pub(super) fn take_back(&mut self, first: Token) -> bool {
        let mut state = self.shared.state.lock();
        let place = state.jobs.iter().position(|job| job.first().is_some_and(|task| task.token == first));
        place.and_then(|place| state.jobs.remove(place)).is_some()
    }
}

fn work(shared: &Shared) {
    let mut state = shared.state.lock();
    while !state.stop {
        let Some(job) = state.jobs.pop_front() else {
            state.idle += 1;
            state = shared.changed.wait(state);
            state.idle -= 1;
            continue;
        };
        state.running += 1;
        drop(state);
        for task in &job {
            if task.run(&shared.results) {
                break;
            }
        }
        drop(job);
        state = shared.state.lock();
        state.running -= 1;
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.stop = true;
        state.jobs.clear();
        let busy = state.running > 0;
        drop(state);
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..).filter(|_| !busy) {
            // A worker has nothing that could panic, and nothing to say when it has ended.
            let _ = thread.join();
        }
    }
}
