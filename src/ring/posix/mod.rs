//! The driver without io_uring: threads for files, epoll for polls, a timerfd for time-outs.
//!
//! It takes over where io_uring is blocked, and is the honest baseline to measure against; so it keeps io_uring's
//! semantics, links included. Invariants:
//!
//! - The driver's state belongs to one thread. Its workers see plain calls and send results by a [`Mailbox`].
//! - A chain has one current step; only that one is under way (or, as a run of calls, is with one worker).
//! - The descriptor for hosts is the driver's epoll: the results' eventfd, the timerfd, the reactor's mailbox and
//!   every polled file are in it, so it is readable exactly while `enter` could make progress. Inside a host's
//!   epoll each new event is an edge too.
//! - A host that sleeps on the descriptor is woken by results because the results' mailbox is *asleep* whenever the
//!   driver has been found empty.
pub mod files;

mod chain;
mod polls;
mod pool;
mod timers;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;

use self::chain::{Action, Chain, Phase, Place, Step};
use self::files::borrow;
use self::polls::{Armed, Polls, source};
use self::pool::{Handle, NOT_READY, Pool, Task};
use self::timers::Timers;
use super::completion::{Completion, Token};
use super::driver::{Entry, Wait};
use super::mailbox::{Letter, Mailbox};
use super::op::Op;
use crate::base::map::Map;
use crate::base::slab::{Key, Slab};
use crate::base::{Error, Result, sync};

/// The posix driver.
#[derive(Debug)]
pub struct Posix {
    entries: usize,
    polls: Polls,
    timers: Timers,
    results: sync::Arc<Mailbox>,
    pool: Pool,
    chains: Slab<Chain>,
    /// Of each operation: its chain and its place in it.
    places: Map<Token, (Key, usize)>,
    /// Chains pushed and not started, and how many operations they have.
    staged: VecDeque<Key>,
    staged_operations: usize,
    done: VecDeque<Completion>,
    slots: Option<Vec<Option<Arc<OwnedFd>>>>,
    buffers: Vec<(usize, usize)>,
    mailbox: Option<RawFd>,
    has_notifier: bool,
    /// The epoll was asked in this turn, and had no more.
    looked: bool,
    /// Something that the reactor waits for has happened, though it is no completion (its mailbox).
    nudged: bool,
    events: Vec<(u64, u32)>,
}

impl Posix {
    /// A driver whose chains, and whose queue between two `enter`s, have at most `entries` operations.
    ///
    /// # Errors
    /// When the system has no descriptor left: it needs three.
    pub fn open(entries: u32) -> Result<Self> {
        let results = sync::Arc::new(Mailbox::new()?);
        let polls = Polls::new()?;
        let timers = Timers::new()?;
        let eventfd =
            borrow(results.raw_fd()).ok_or_else(|| Error::Internal("an eventfd is no descriptor".into()))?;
        polls.watch(eventfd, source::RESULTS)?;
        polls.watch(timers.timerfd(), source::TIMER)?;
        Ok(Posix {
            entries: entries.max(1) as usize,
            polls,
            timers,
            pool: Pool::new(results.clone()),
            results,
            chains: Slab::new(),
            places: Map::default(),
            staged: VecDeque::new(),
            staged_operations: 0,
            done: VecDeque::new(),
            slots: None,
            buffers: Vec::new(),
            mailbox: None,
            has_notifier: false,
            looked: true,
            nudged: false,
            events: Vec::new(),
        })
    }

    /// Nothing to bind: its kernel objects work on every thread, and the ring object keeps the thread rule.
    pub fn bind(&mut self) -> Result<()> {
        Ok(())
    }

    /// The longest chain.
    pub fn capacity(&self) -> usize {
        self.entries
    }

    /// Takes a whole chain, if there is room until the next `enter`.
    pub fn push(&mut self, chain: &[Entry<'_>]) -> bool {
        if self.staged_operations + chain.len() > self.entries {
            return false;
        }
        let steps = chain.iter().map(|entry| Step::new(entry, self.refusal(entry))).collect();
        let key = self.chains.insert(Chain::new(steps));
        for (index, entry) in chain.iter().enumerate() {
            self.places.insert(entry.token, (key, index));
        }
        self.staged.push_back(key);
        self.staged_operations += chain.len();
        true
    }

    /// The errno of an operation outside its registered buffer: what the kernel answers for it.
    fn refusal(&self, entry: &Entry<'_>) -> Option<i32> {
        let (Op::Read { buf, buffer_index: Some(index), .. }
        | Op::Write { buf, buffer_index: Some(index), .. }) = entry.op
        else {
            return None;
        };
        let start = buf.as_ptr() as usize;
        let inside = self.buffers.get(usize::from(*index)).is_some_and(|&(address, len)| {
            address != 0 && start >= address && start - address <= len && buf.len() <= len - (start - address)
        });
        (!inside).then_some(libc::EFAULT)
    }

    /// Starts what was pushed and waits; see [`Driver::enter`](super::driver::Driver::enter).
    pub fn enter(&mut self, wait: Wait) -> Result<()> {
        self.staged_operations = 0;
        while let Some(key) = self.staged.pop_front() {
            self.advance(key);
        }
        let deadline = match wait {
            Wait::No => Some(0),
            Wait::Us(us) => Some(files::now_us().saturating_add(us)),
            Wait::Forever => None,
        };
        self.nudged = false;
        loop {
            self.collect();
            let blocking =
                self.done.is_empty() && !self.nudged && deadline.is_none_or(|at| at > files::now_us());
            if !blocking && (self.looked || !self.watching()) {
                return Ok(());
            }
            if blocking && !self.results.fall_asleep() {
                continue;
            }
            let timeout =
                if blocking { deadline.map(|at| at.saturating_sub(files::now_us())) } else { Some(0) };
            let more = self.polls.wait(timeout, &mut self.events);
            if !self.has_notifier {
                self.results.wake_up();
            }
            match more {
                Ok(more) => self.looked = !more,
                Err(e) if e.errno() == Some(libc::EINTR) && !self.done.is_empty() => return Ok(()),
                Err(e) => return Err(e),
            }
            self.take_events();
        }
    }

    /// Whether epoll could know something that isn't seen without asking it.
    fn watching(&self) -> bool {
        self.has_notifier || !self.polls.is_empty()
    }

    fn take_events(&mut self) {
        let mut events = std::mem::take(&mut self.events);
        for (key, flags) in events.drain(..) {
            match key {
                source::RESULTS => {
                    self.results.take_ring();
                }
                source::TIMER => self.timers.acknowledge(),
                source::MAILBOX => {
                    self.nudged = true;
                    if let Some(fd) = self.mailbox.and_then(borrow) {
                        // Another's eventfd; nothing to read means that it was read meanwhile.
                        let _ = rustix::io::read(fd, &mut [0u8; 8]);
                    }
                }
                token => self.poll_fired(Token::from_bits(token), flags),
            }
        }
        self.events = events;
    }

    /// Takes the results and time-outs that have come.
    fn collect(&mut self) {
        for Letter { token, result } in self.results.take() {
            self.call_ended(token, result);
        }
        if !self.timers.is_empty() {
            let now = files::now_us();
            while let Some(token) = self.timers.expired(now) {
                self.timer_fired(token);
            }
        }
        self.timers.arm();
    }

    /// The next completion.
    pub fn next(&mut self) -> Option<Completion> {
        if self.done.is_empty() {
            self.collect();
            // A host may go to sleep on the descriptor now: from here on results ring.
            while self.has_notifier && self.done.is_empty() && !self.results.fall_asleep() {
                self.collect();
            }
        }
        self.done.pop_front()
    }

    /// Chains not started, completions that nobody has taken (a cancel brings them forth at once), or an epoll that
    /// wasn't asked in this turn.
    pub fn more(&self) -> bool {
        !self.staged.is_empty() || !self.done.is_empty() || (!self.looked && self.watching())
    }

    fn place(&self, token: Token) -> Option<(Key, usize)> {
        self.places.get(&token).copied()
    }

    /// Starts the current step of a chain, and the ones after it as long as they end at once.
    fn advance(&mut self, key: Key) {
        loop {
            let now = files::now_us();
            let Some(chain) = self.chains.get_mut(key) else { return };
            let Some(step) = chain.current() else {
                self.chains.remove(key);
                return;
            };
            let token = step.token;
            if chain.broken || step.cancelled {
                self.end_step(key, -libc::ECANCELED);
                continue;
            }
            let link_timeout = chain.link_timeout();
            let result = match step.action {
                Action::Answer(result) => Some(result),
                // Without a step before it that it could watch.
                Action::LinkTimeout(_) => Some(-libc::EINVAL),
                Action::CloseSlot(slot) => Some(self.close_slot(slot)),
                Action::Timeout(us) => {
                    chain.phase = Phase::Timer;
                    self.timers.insert(token, now.saturating_add(us).saturating_add(1));
                    None
                }
                Action::Poll { place, events, multishot } => {
                    self.start_poll(key, token, place, events, multishot)
                }
                Action::Call(..) => self.start_calls(key),
            };
            match (result, link_timeout) {
                (Some(result), _) => self.end_step(key, result),
                (None, Some((timer, us))) => {
                    self.timers.insert(timer, now.saturating_add(us).saturating_add(1));
                    return;
                }
                (None, None) => return,
            }
        }
    }

    fn handle(&self, place: Place) -> Result<Handle, i32> {
        match place {
            Place::File(fd) => Ok(Handle::File(fd)),
            Place::Foreign(fd) => Ok(Handle::Foreign(fd)),
            Place::Slot(slot) => {
                let file = self.slots.as_ref().and_then(|slots| slots.get(slot as usize)?.clone());
                file.map(Handle::Slot).ok_or(-libc::EBADF)
            }
        }
    }

    fn start_poll(
        &mut self,
        key: Key,
        token: Token,
        place: Place,
        events: u32,
        multishot: bool,
    ) -> Option<i32> {
        let handle = match self.handle(place) {
            Ok(handle) => handle,
            Err(errno) => return Some(errno),
        };
        match self.polls.arm(token, handle.raw_fd(), events, multishot) {
            Armed::Ready(events) => Some(events as i32),
            Armed::Refused(errno) => Some(errno),
            Armed::Watching => {
                self.set_phase(key, Phase::Poll);
                self.looked = false;
                None
            }
        }
    }

    fn set_phase(&mut self, key: Key, phase: Phase) {
        if let Some(chain) = self.chains.get_mut(key) {
            chain.phase = phase;
        }
    }

    /// Sends the run of calls that starts at the current step to the threads.
    fn start_calls(&mut self, key: Key) -> Option<i32> {
        let chain = self.chains.get(key)?;
        let mut job = Vec::new();
        for step in &chain.steps[chain.at..chain.run_end()] {
            let Action::Call(call, place) = step.action else { break };
            match self.handle(place) {
                Ok(handle) => job.push(Task { token: step.token, call, handle, link: step.link }),
                Err(errno) if job.is_empty() => return Some(errno),
                // The run ends before it; it answers in its turn.
                Err(_) => break,
            }
        }
        let end = chain.at + job.len();
        self.set_phase(key, Phase::Pool { end });
        self.pool.send(job);
        None
    }

    /// Completes the current step of a chain, and its link time-out with it.
    fn end_step(&mut self, key: Key, result: i32) {
        let Some(chain) = self.chains.get_mut(key) else { return };
        let Some(step) = chain.current() else { return };
        let token = step.token;
        self.places.remove(&token);
        self.done.push_back(Completion::last(token, result));
        if let Some((timer, _)) = chain.link_timeout() {
            // Its step was in time, or never started.
            self.timers.remove(timer);
            chain.steps[chain.at + 1].over = true;
            self.places.remove(&timer);
            self.done.push_back(Completion::last(timer, -libc::ECANCELED));
        }
        // A run of calls goes on with the same worker.
        match chain.phase {
            Phase::Pool { end } if chain.at + 1 < end => {}
            _ => chain.phase = Phase::Idle,
        }
        chain.end_step(result);
    }

    /// A worker has finished a call.
    fn call_ended(&mut self, token: Token, result: i32) {
        let Some((key, _)) = self.place(token) else { return };
        if result == NOT_READY {
            return self.park(key, token);
        }
        self.end_step(key, result);
        let Some(chain) = self.chains.get_mut(key) else { return };
        if chain.broken {
            // By the same rule the worker has stopped there.
            chain.phase = Phase::Idle;
        }
        if chain.phase == Phase::Idle {
            self.advance(key);
        }
    }

    /// The call would have blocked: it is tried again when its file is ready.
    fn park(&mut self, key: Key, token: Token) {
        let found = self.chains.get(key).and_then(Chain::current).map(|step| step.action);
        let Some(Action::Call(call, place)) = found else { return };
        let armed = match self.handle(place) {
            Ok(handle) => self.polls.arm(token, handle.raw_fd(), call.readiness(), false),
            Err(errno) => Armed::Refused(errno),
        };
        match armed {
            Armed::Watching => {
                self.set_phase(key, Phase::Parked);
                self.looked = false;
            }
            Armed::Ready(_) => self.end_and_advance(key, -libc::EAGAIN),
            Armed::Refused(errno) => self.end_and_advance(key, errno),
        }
    }

    fn end_and_advance(&mut self, key: Key, result: i32) {
        self.set_phase(key, Phase::Idle);
        self.end_step(key, result);
        self.advance(key);
    }

    fn poll_fired(&mut self, token: Token, flags: u32) {
        let Some((key, _)) = self.place(token) else { return };
        let Some(chain) = self.chains.get(key) else { return };
        let multishot =
            matches!(chain.current(), Some(Step { action: Action::Poll { multishot: true, .. }, .. }));
        match chain.phase {
            Phase::Poll if multishot => {
                self.done.push_back(Completion { more: true, ..Completion::last(token, flags as i32) });
            }
            Phase::Poll => {
                self.polls.remove(token);
                self.end_and_advance(key, flags as i32);
            }
            Phase::Parked => {
                self.polls.remove(token);
                if let Some(result) = self.start_calls(key) {
                    self.end_and_advance(key, result);
                }
            }
            Phase::Idle | Phase::Pool { .. } | Phase::Timer => {}
        }
    }

    fn timer_fired(&mut self, token: Token) {
        let Some((key, index)) = self.place(token) else { return };
        let Some(chain) = self.chains.get_mut(key) else { return };
        if index == chain.at {
            return self.end_and_advance(key, -libc::ETIME);
        }
        // A link time-out: the step before it is under way.
        chain.steps[index].over = true;
        self.places.remove(&token);
        let ended = self.stop_current(key);
        // As the kernel says it: in time, or too late for an operation that can't be stopped any more.
        self.done.push_back(Completion::last(token, if ended { -libc::ETIME } else { -libc::EALREADY }));
        if ended {
            self.end_and_advance(key, -libc::ECANCELED);
        }
    }

    /// Stops the current step where it is, if that can be done.
    fn stop_current(&mut self, key: Key) -> bool {
        let Some(chain) = self.chains.get(key) else { return false };
        let Some(token) = chain.current().map(|step| step.token) else { return false };
        match chain.phase {
            Phase::Idle => false,
            Phase::Pool { .. } => self.pool.take_back(token),
            Phase::Timer => self.timers.remove(token),
            Phase::Poll | Phase::Parked => self.polls.remove(token),
        }
    }

    /// Asks an operation to end early.
    pub fn cancel(&mut self, token: Token) {
        let Some((key, index)) = self.place(token) else { return };
        let Some(chain) = self.chains.get_mut(key) else { return };
        if index > chain.at {
            if chain.link_timeout().is_some_and(|(timer, _)| timer == token) && self.timers.remove(token) {
                chain.steps[index].over = true;
                self.places.remove(&token);
                self.done.push_back(Completion::last(token, -libc::ECANCELED));
                return;
            }
            chain.steps[index].cancelled = true;
            // In a job that no thread has yet: the job is made anew, without it.
            let at = chain.current().map_or(Token::NONE, |step| step.token);
            if matches!(chain.phase, Phase::Pool { end } if index < end) && self.pool.take_back(at) {
                self.set_phase(key, Phase::Idle);
                self.advance(key);
            }
        } else if chain.phase == Phase::Idle {
            chain.steps[index].cancelled = true;
        } else if self.stop_current(key) {
            self.end_and_advance(key, -libc::ECANCELED);
        }
    }

    /// The driver's epoll, for a host to watch.
    pub fn notifier(&mut self) -> Result<RawFd> {
        self.has_notifier = true;
        if !self.results.fall_asleep() {
            self.results.ring();
        }
        Ok(self.polls.raw_fd())
    }

    /// A new turn: the epoll is asked once more in it.
    pub fn clear_notifier(&mut self) {
        self.looked = false;
    }

    /// Makes the epoll readable.
    pub fn signal_notifier(&mut self) {
        if self.has_notifier {
            self.results.ring();
        }
    }

    /// Watches the reactor's mailbox.
    pub fn watch_mailbox(&mut self, fd: RawFd) -> Result<()> {
        let borrowed = borrow(fd).ok_or_else(|| Error::Internal("a mailbox without a descriptor".into()))?;
        self.polls.watch(borrowed, source::MAILBOX)?;
        self.mailbox = Some(fd);
        Ok(())
    }

    /// Makes the table of slots.
    pub fn make_slots(&mut self, count: u32) -> Result<()> {
        self.slots = Some(vec![None; count as usize]);
        Ok(())
    }

    /// Puts a duplicate into a slot, or clears it.
    pub fn set_slot(&mut self, slot: u32, fd: Option<RawFd>) -> Result<()> {
        let place = self.slots.as_mut().and_then(|slots| slots.get_mut(slot as usize));
        let place = place.ok_or_else(|| Error::invalid(format!("slot {slot} is not in the file table")))?;
        *place = match fd {
            None => None,
            Some(fd) => {
                let bad = || Error::system(libc::EBADF, format!("putting descriptor {fd} into slot {slot}"));
                let borrowed = borrow(fd).ok_or_else(bad)?;
                let copy = rustix::io::fcntl_dupfd_cloexec(borrowed, 0).map_err(|e| {
                    Error::from(e).context(format!("putting descriptor {fd} into slot {slot}"))
                })?;
                Some(Arc::new(copy))
            }
        };
        Ok(())
    }

    fn close_slot(&mut self, slot: u32) -> i32 {
        let Some(slots) = &mut self.slots else { return -libc::ENXIO };
        match slots.get_mut(slot as usize) {
            None => -libc::EINVAL,
            Some(place) => place.take().map_or(-libc::EBADF, |_| 0),
        }
    }

    /// Remembers where the buffers are: operations outside them are refused, as the kernel does.
    pub fn register_buffers(&mut self, buffers: &[(usize, usize)]) -> Result<()> {
        self.buffers = buffers.to_vec();
        Ok(())
    }

    /// Replaces one.
    pub fn set_buffer(&mut self, index: u16, buffer: (usize, usize)) -> Result<()> {
        let place = self.buffers.get_mut(usize::from(index));
        *place.ok_or_else(|| Error::invalid(format!("buffer {index} is not in the table")))? = buffer;
        Ok(())
    }

    /// The monotonic clock.
    pub fn now_us(&self) -> u64 {
        files::now_us()
    }

    /// From the system.
    pub fn random(&mut self) -> u64 {
        files::random()
    }

    /// None: nothing is pinned.
    pub fn pinned_bytes(&self) -> u64 {
        0
    }
}
