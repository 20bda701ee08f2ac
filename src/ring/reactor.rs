//! The reactor: owns every operation in flight, and hands each completion to its sink.
//!
//! It is the one place where the kernel's memory contract is kept. An [`Op`] goes into the slab when it is
//! submitted and comes out with its last completion, never before; its memory and its descriptor live that long.
//! Dropping the reactor cancels and drains; when that is impossible (the owner thread has ended, the driver has
//! failed) the memory is leaked, because the kernel may still write to it.
//!
//! It also finishes short transfers (outside chains), makes operations wait while the driver's queue is full, and
//! counts what is ready for the owners of its clients, since one wait serves all of them.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use super::client::{Client, ClientId, Outbox};
use super::completion::{Completion, Token};
use super::driver::{Driver, Entry, Kind, Wait};
use super::mailbox::{Letter, Mailbox};
use super::op::{Link, Op, Target};
use crate::base::defect::{self, Defect};
use crate::base::slab::Slab;
use crate::base::{Error, Result};

/// Index of a task in the executor.
pub(super) type TaskId = u32;

/// Who is told of a completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sink {
    /// A task: the result waits in the slab until the task takes it.
    Task(u32),
    /// A client, with its own name for the operation.
    Client(ClientId, u64),
    /// A future that hasn't been polled yet: the result waits in the slab.
    Unclaimed,
    /// Nobody: whoever waited is gone, the operation is kept until its last completion all the same.
    Orphan,
}

#[derive(Debug)]
struct Flight {
    op: Op,
    sink: Sink,
    /// Bytes of a transfer that are done.
    done: usize,
    /// Short transfers are results: in a chain, where the caller asked for it, on a slot that was replaced.
    chained: bool,
    /// The result, once it is over and its task hasn't taken it.
    result: Option<i32>,
}

/// One operation of a chain to submit.
#[derive(Debug)]
pub struct Step {
    /// What to do.
    pub op: Op,
    /// How it holds back the next step; the last one's is [`Link::None`].
    pub link: Link,
    /// Who is told.
    pub sink: Sink,
}

/// How often a transfer that the system interrupted (`EINTR`, `EAGAIN`) is tried again before it is an error.
const RETRIES: u32 = 16;
/// How long dropping waits for what is in flight before it leaks instead.
const DRAIN_US: u64 = 10_000_000;

/// How many files the library itself can hold in one ring.
const HELD_MAX: u32 = 4;

/// A file that [`Reactor::hold`] keeps open.
#[derive(Debug)]
#[must_use = "it stays open until it is let go"]
pub struct Held(usize);

/// See the module.
pub struct Reactor {
    driver: Driver,
    bound: bool,
    flights: Slab<Flight>,
    /// Chains that had no room in the driver, oldest first.
    waiting: VecDeque<Vec<(Token, Link)>>,
    /// Operations that the driver has and not completed.
    in_driver: usize,
    clients: Vec<Option<Rc<RefCell<dyn Client>>>>,
    /// Items ready for the owners of clients.
    ready: usize,
    /// Tasks whose operation has completed.
    pub(super) woken: VecDeque<TaskId>,
    mailbox: Option<Arc<Mailbox>>,
    watched: bool,
    has_notifier: bool,
    /// Another thread wants whoever waits here to return.
    nudged: bool,
    retries: u32,
    /// Of each file slot: whether its file has positions.
    seekable_slots: Vec<bool>,
    /// Slots behind those, for files that the library itself holds in the ring; whether each is taken.
    held: Vec<bool>,
}

impl Reactor {
    /// A reactor over a driver; nothing is bound to a thread yet.
    pub fn new(driver: Driver) -> Self {
        Reactor {
            driver,
            bound: false,
            flights: Slab::new(),
            waiting: VecDeque::new(),
            in_driver: 0,
            clients: Vec::new(),
            ready: 0,
            woken: VecDeque::new(),
            mailbox: None,
            watched: false,
            has_notifier: false,
            nudged: false,
            retries: 0,
            seekable_slots: Vec::new(),
            held: Vec::new(),
        }
    }

    /// The driver, for set-up (slots, buffers) and questions.
    pub fn driver(&mut self) -> &mut Driver {
        &mut self.driver
    }

    /// Which driver it has.
    pub fn kind(&self) -> Kind {
        self.driver.kind()
    }

    /// Binds it to the calling thread, at the first call.
    pub fn bind(&mut self) -> Result<()> {
        if !self.bound {
            self.driver.bind()?;
            self.bound = true;
        }
        Ok(())
    }

    /// Whether it is bound to a thread.
    pub fn is_bound(&self) -> bool {
        self.bound
    }

    /// Makes the driver's table of file slots, all empty.
    ///
    /// # Errors
    /// What the driver says.
    pub fn make_slots(&mut self, count: u32) -> Result<()> {
        let held = match self.driver.make_slots(count + HELD_MAX) {
            Ok(()) => HELD_MAX,
            // The system counts slots as descriptors: what was asked for may still be had.
            Err(e) if e.errno() == Some(libc::EMFILE) && count > 0 => {
                self.driver.make_slots(count)?;
                0
            }
            Err(e) => return Err(e),
        };
        self.seekable_slots = vec![false; count as usize];
        self.held = vec![false; held as usize];
        Ok(())
    }

    /// Keeps a file open in the ring itself, in a slot that nobody else sees, until [`Reactor::let_go`]: even when
    /// the process is killed it stays open until the last operation of this ring has ended.
    ///
    /// # Errors
    /// [`Error::TooLarge`] when the ring holds as many as it can, else what the driver says.
    pub fn hold(&mut self, fd: std::os::fd::RawFd) -> Result<Held> {
        if self.seekable_slots.is_empty() && self.held.is_empty() {
            self.make_slots(0)?;
        }
        let Some(free) = self.held.iter().position(|taken| !taken) else {
            let text = format!("a ring serves at most {HELD_MAX} logs and stores; open another ring");
            return Err(Error::TooLarge(text.into()));
        };
        self.driver.set_slot(self.seekable_slots.len() as u32 + free as u32, Some(fd))?;
        self.held[free] = true;
        Ok(Held(free))
    }

    /// Lets a file go that [`Reactor::hold`] keeps open.
    ///
    /// # Errors
    /// What the driver says.
    pub fn let_go(&mut self, held: Held) -> Result<()> {
        self.held[held.0] = false;
        self.driver.set_slot(self.seekable_slots.len() as u32 + held.0 as u32, None)
    }

    /// Puts a duplicate of a descriptor into a slot, or clears it. What is in flight goes on on the old file; when it
    /// is short it ends short, since its rest would go to the new one.
    ///
    /// # Errors
    /// `-EINVAL` for a slot that isn't there, else what the driver says.
    pub fn set_slot(&mut self, slot: u32, fd: Option<std::os::fd::RawFd>) -> Result<()> {
        let Some(seekable) = self.seekable_slots.get_mut(slot as usize) else {
            return Err(Error::invalid(format!("slot {slot} is not in the file table")));
        };
        self.driver.set_slot(slot, fd)?;
        *seekable = fd.is_some_and(super::fs::is_seekable);
        let on_slot =
            |flight: &Flight| matches!(flight.op.target(), Some(Target::Slot(used)) if *used == slot);
        let flying: Vec<Token> =
            self.flights.iter().filter(|(_, flight)| on_slot(flight)).map(|(token, _)| token).collect();
        for token in flying {
            if let Some(flight) = self.flights.get_mut(token) {
                flight.chained = true;
            }
        }
        Ok(())
    }

    /// Adds a sink that is a machine.
    pub fn add_client(&mut self, client: Rc<RefCell<dyn Client>>) -> ClientId {
        let free = self.clients.iter().position(Option::is_none);
        let index = free.unwrap_or_else(|| {
            self.clients.push(None);
            self.clients.len() - 1
        });
        self.clients[index] = Some(client);
        ClientId(index as u32)
    }

    /// Takes a client away; what it has in flight becomes orphaned, its unreaped items are no longer counted.
    pub fn remove_client(&mut self, id: ClientId, unreaped: usize) {
        self.clients[id.0 as usize] = None;
        self.ready -= unreaped;
        let keys: Vec<Token> = self.flights_of(id).collect();
        for key in keys {
            if let Some(flight) = self.flights.get_mut(key) {
                flight.sink = Sink::Orphan;
            }
        }
    }

    fn flights_of(&self, id: ClientId) -> impl Iterator<Item = Token> {
        self.flights
            .iter()
            .filter(move |(_, f)| matches!(f.sink, Sink::Client(owner, _) if owner == id))
            .map(|(key, _)| key)
    }

    /// The operations of a client that are under way under `user_data`.
    pub fn find(&self, id: ClientId, user_data: u64) -> Vec<Token> {
        let wanted = Sink::Client(id, user_data);
        self.flights.iter().filter(|(_, f)| f.sink == wanted).map(|(key, _)| key).collect()
    }

    /// How many operations of a client are under way.
    pub fn in_flight_of(&self, id: ClientId) -> usize {
        self.flights_of(id).count()
    }

    /// Whether an operation under way uses this registered buffer.
    pub fn buffer_in_flight(&self, index: u16) -> bool {
        self.flights.iter().any(|(_, f)| {
            matches!(&f.op, Op::Read { buffer_index: Some(i), .. } | Op::Write { buffer_index: Some(i), .. } if *i == index)
        })
    }

    /// Submits one operation. It leaves with the next turn; while the driver is full it waits here.
    pub fn submit(&mut self, op: Op, sink: Sink) -> Token {
        let flight = Flight { op, sink, done: 0, chained: false, result: None };
        let (token, flight) = self.flights.insert_and_get(flight);
        if matches!(flight.op, Op::External) {
            return token;
        }
        self.in_driver += 1;
        let entry = Entry { token, op: &flight.op, done: 0, link: Link::None };
        if !self.waiting.is_empty() || !self.driver.push(&[entry]) {
            self.waiting.push_back(vec![(token, Link::None)]);
        }
        token
    }

    /// As [`Reactor::submit`], but a transfer's first result is its last, as in a chain: short or interrupted is what
    /// the caller is told, because it must know how much went.
    pub fn submit_exact(&mut self, op: Op, sink: Sink) -> Token {
        let token = self.submit(op, sink);
        if let Some(flight) = self.flights.get_mut(token) {
            flight.chained = true;
        }
        token
    }

    fn push_one(&mut self, token: Token) -> bool {
        let Some(flight) = self.flights.get(token) else { return true };
        let entry = Entry { token, op: &flight.op, done: flight.done, link: Link::None };
        self.driver.push(&[entry])
    }

    /// Submits a chain: all of it or nothing.
    ///
    /// # Errors
    /// [`Error::TooLarge`] when the chain can never fit the driver's queue; nothing was submitted.
    pub fn submit_chain(&mut self, steps: Vec<Step>) -> Result<Vec<Token>> {
        let capacity = self.driver.capacity();
        if steps.len() > capacity {
            let text = format!(
                "a chain of {} operations is longer than the queue's {capacity} entries; open the ring with more entries",
                steps.len()
            );
            return Err(Error::TooLarge(text.into()));
        }
        let chained = steps.len() > 1;
        let chain: Vec<(Token, Link)> = steps
            .into_iter()
            .map(|Step { op, link, sink }| {
                (self.flights.insert(Flight { op, sink, done: 0, chained, result: None }), link)
            })
            .collect();
        self.in_driver += chain.len();
        let tokens = chain.iter().map(|(token, _)| *token).collect();
        if !self.waiting.is_empty() || !self.push_chain(&chain) {
            self.waiting.push_back(chain);
        }
        Ok(tokens)
    }

    fn push_chain(&mut self, chain: &[(Token, Link)]) -> bool {
        let entries: Vec<Entry<'_>> = chain
            .iter()
            .filter_map(|&(token, link)| {
                let flight = self.flights.get(token)?;
                Some(Entry { token, op: &flight.op, done: flight.done, link })
            })
            .collect();
        self.driver.push(&entries)
    }

    fn push_waiting(&mut self) {
        while let Some(chain) = self.waiting.pop_front() {
            if !self.push_chain(&chain) {
                self.waiting.push_front(chain);
                break;
            }
        }
    }

    /// Asks an operation to end early; it still completes.
    pub fn cancel(&mut self, token: Token) {
        let Some(flight) = self.flights.get(token) else { return };
        if matches!(flight.op, Op::External) {
            return;
        }
        // An operation that still waits here ends with its whole chain: a part of a chain is never submitted.
        let waiting = self.waiting.iter().position(|chain| chain.iter().any(|(t, _)| *t == token));
        match waiting.and_then(|index| self.waiting.remove(index)) {
            None => self.driver.cancel(token),
            Some(chain) => {
                for (token, _) in chain {
                    self.finish(Completion::last(token, -libc::ECANCELED));
                }
            }
        }
    }

    /// Nobody waits for this operation any more; it is kept until it is over.
    pub(super) fn orphan(&mut self, token: Token) {
        let over = match self.flights.get_mut(token) {
            Some(flight) => {
                flight.sink = Sink::Orphan;
                flight.result.is_some()
            }
            None => false,
        };
        if over {
            self.flights.remove(token);
        }
    }

    /// Takes the result of a task's operation, once it is over.
    pub(super) fn take(&mut self, token: Token) -> Option<(i32, Op)> {
        let result = self.flights.get(token)?.result?;
        self.flights.remove(token).map(|flight| (result, flight.op))
    }

    /// Whose task is told of this operation from now on.
    pub(super) fn set_task(&mut self, token: Token, task: TaskId) {
        if let Some(flight) = self.flights.get_mut(token) {
            flight.sink = Sink::Task(task);
        }
    }

    /// The mailbox for other threads, made at the first call.
    pub fn mailbox(&mut self) -> Result<Arc<Mailbox>> {
        if self.mailbox.is_none() {
            self.driver.can_watch()?;
            self.mailbox = Some(Arc::new(Mailbox::new()?));
        }
        match &self.mailbox {
            Some(mailbox) => Ok(mailbox.clone()),
            None => Err(Error::Internal("the mailbox was just made".into())),
        }
    }

    fn watch_mailbox(&mut self) -> Result<()> {
        if let (false, Some(mailbox)) = (self.watched, &self.mailbox) {
            self.driver.watch_mailbox(mailbox.raw_fd())?;
            self.watched = true;
        }
        Ok(())
    }

    /// The one descriptor to watch.
    pub fn notifier(&mut self) -> Result<std::os::fd::RawFd> {
        let fd = self.driver.notifier()?;
        self.has_notifier = true;
        match (&self.mailbox, self.kind()) {
            // Here the watch is in force at once, bound or not.
            (_, Kind::Posix) => self.watch_mailbox()?,
            (Some(mailbox), Kind::Uring) if !self.watched => {
                let notifier =
                    super::posix::files::borrow(fd).ok_or_else(|| Error::system(libc::EBADF, ""))?;
                mailbox.ring_also(rustix::io::fcntl_dupfd_cloexec(notifier, 0)?);
            }
            _ => {}
        }
        self.rest();
        self.signal_leftovers();
        Ok(fd)
    }

    /// Items ready for the owners of clients, over all clients.
    pub fn ready(&self) -> usize {
        self.ready
    }

    /// The owner of a client has made so many items ready by itself, without an operation.
    pub fn made_ready(&mut self, count: usize) {
        self.ready += count;
    }

    /// The owner of a client has reaped so many items.
    pub fn reaped(&mut self, count: usize) {
        self.ready -= count;
    }

    /// Operations the driver has, or will get.
    pub fn in_driver(&self) -> usize {
        self.in_driver
    }

    /// One turn: submits what is queued, waits as told when nothing has happened yet, and delivers all completions
    /// that can be had. Delivering may make tasks runnable; running them is the executor's work.
    ///
    /// # Errors
    /// `-EINTR` when a signal ended the wait and nothing was delivered; any other error is the driver's end.
    pub fn turn(&mut self, wait: Wait) -> Result<()> {
        self.bind()?;
        self.watch_mailbox()?;
        // Read first, drain after: a completion that arrives in between signals anew.
        self.driver.clear_notifier();
        let mut progress = self.deliver() + self.letters();
        self.push_waiting();
        progress += self.make_room()?;
        let idle = progress == 0 && self.woken.is_empty();
        let wait = if idle && self.may_sleep() { wait } else { Wait::No };
        let needed = wait != Wait::No || self.driver.more() || self.driver.must_poll();
        let entered = if needed { self.driver.enter(wait) } else { Ok(()) };
        if let Some(mailbox) = &self.mailbox {
            mailbox.wake_up();
        }
        loop {
            progress += self.deliver() + self.letters();
            self.push_waiting();
            if !self.driver.more() || entered.is_err() {
                break;
            }
            self.driver.enter(Wait::No)?;
        }
        self.rest();
        match entered {
            Err(e) if e.errno() == Some(libc::EINTR) && progress > 0 => Ok(()),
            other => other,
        }
    }

    /// The end of a turn. A host that watches the descriptor may sleep from now on without telling, so letters must
    /// ring.
    fn rest(&mut self) {
        if self.has_notifier && !self.may_sleep() {
            self.driver.signal_notifier();
        }
    }

    /// Whether another thread has nudged this ring since the last question.
    pub fn take_nudge(&mut self) -> bool {
        std::mem::take(&mut self.nudged)
    }

    /// While chains wait for room: starts what the driver has, so that no sleep begins before everything has been
    /// started that can be. A driver that is full with operations under way makes room with a completion.
    fn make_room(&mut self) -> Result<usize> {
        let mut progress = 0;
        while !self.waiting.is_empty() {
            let before = self.waiting.len();
            self.driver.enter(Wait::No)?;
            progress += self.deliver();
            self.push_waiting();
            if self.waiting.len() >= before {
                break;
            }
        }
        Ok(progress)
    }

    fn may_sleep(&self) -> bool {
        self.mailbox.as_ref().is_none_or(|mailbox| mailbox.fall_asleep())
    }

    /// After a call that may leave something behind: makes the descriptor readable again if it does.
    pub fn signal_leftovers(&mut self) {
        let left = self.ready > 0 || !self.waiting.is_empty() || !self.woken.is_empty() || self.driver.more();
        if self.has_notifier && left {
            self.driver.signal_notifier();
        }
    }

    fn deliver(&mut self) -> usize {
        let mut count = 0;
        while let Some(completion) = self.driver.next() {
            count += 1;
            self.complete(completion);
        }
        count
    }

    fn letters(&mut self) -> usize {
        let letters = self.mailbox.as_ref().map(|mailbox| mailbox.take()).unwrap_or_default();
        for Letter { token, result } in &letters {
            let external = self.flights.get(*token).is_some_and(|f| matches!(f.op, Op::External));
            if external {
                self.settle(Completion::last(*token, *result));
            }
        }
        let nudged = self.mailbox.as_ref().is_some_and(|mailbox| mailbox.take_nudge());
        self.nudged |= nudged;
        letters.len() + usize::from(nudged)
    }

    #[inline]
    fn complete(&mut self, completion: Completion) {
        let Some(flight) = self.flights.get_mut(completion.token) else { return };
        let whole =
            flight.done == 0 && flight.op.buf().is_none_or(|buf| completion.result as usize == buf.len());
        if whole {
            // Most completions: nothing to add up, nothing to go on with.
            return if completion.more { self.settle(completion) } else { self.finish(completion) };
        }
        if !completion.more
            && !flight.chained
            && goes_on(flight, completion.result, &mut self.retries, &self.seekable_slots)
        {
            if !self.push_one(completion.token) {
                self.waiting.push_back(vec![(completion.token, Link::None)]);
            }
            return;
        }
        let result = total(flight, completion.result);
        let completion = Completion { result, ..completion };
        if completion.more { self.settle(completion) } else { self.finish(completion) }
    }

    #[inline]
    fn finish(&mut self, completion: Completion) {
        self.in_driver -= 1;
        self.settle(completion);
    }

    /// Hands a completion to its sink.
    #[inline]
    fn settle(&mut self, completion: Completion) {
        let Some(flight) = self.flights.get_mut(completion.token) else { return };
        match flight.sink {
            Sink::Task(task) => {
                flight.result = Some(completion.result);
                self.woken.push_back(task);
            }
            Sink::Unclaimed => flight.result = Some(completion.result),
            Sink::Client(id, user_data) if completion.more => self.tell(id, user_data, completion, None),
            Sink::Client(id, user_data) => {
                let op = self.flights.remove(completion.token).map(|flight| flight.op);
                self.tell(id, user_data, completion, op);
            }
            Sink::Orphan if completion.more => {}
            Sink::Orphan => drop(self.flights.remove(completion.token)),
        }
    }

    #[inline]
    fn tell(&mut self, id: ClientId, user_data: u64, completion: Completion, op: Option<Op>) {
        let Some(Some(client)) = self.clients.get(id.0 as usize) else { return };
        let mut outbox = Outbox::default();
        client.borrow_mut().complete(&mut outbox, user_data, completion, op);
        self.ready += outbox.ready;
        if !outbox.chains.is_empty() {
            self.submit_for(id, outbox.chains);
        }
    }

    fn submit_for(&mut self, id: ClientId, chains: Vec<Vec<(Op, Link, u64)>>) {
        for chain in chains {
            let steps = chain
                .into_iter()
                .map(|(op, link, user_data)| Step { op, link, sink: Sink::Client(id, user_data) })
                .collect();
            // A client's chains are a handful of operations, and a queue holds more than that.
            let submitted = self.submit_chain(steps);
            assert!(submitted.is_ok(), "a client submitted a chain longer than any queue");
        }
    }

    fn drain(&mut self) -> bool {
        let tokens: Vec<Token> = self.flights.iter().map(|(token, _)| token).collect();
        for token in tokens {
            self.orphan(token);
            self.cancel(token);
        }
        let deadline = self.driver.now_us() + DRAIN_US;
        while self.in_driver > 0 {
            let now = self.driver.now_us();
            match self.turn(Wait::Us(deadline.saturating_sub(now))) {
                Err(e) if e.errno() != Some(libc::EINTR) => return false,
                _ if now >= deadline => return false,
                _ => {}
            }
        }
        true
    }
}

/// Whether a transfer that ended early goes on: it was interrupted, or it is short and not at the end of its file.
fn goes_on(flight: &mut Flight, result: i32, retries: &mut u32, seekable_slots: &[bool]) -> bool {
    let Some(len) = flight.op.buf().map(|buf| buf.len()) else { return false };
    if result == -libc::EINTR || result == -libc::EAGAIN {
        *retries += 1;
        return *retries <= RETRIES && has_end(&flight.op, seekable_slots);
    }
    *retries = 0;
    if result <= 0 || flight.done + result as usize >= len || !has_end(&flight.op, seekable_slots) {
        return false;
    }
    flight.done += result as usize;
    true
}

/// What the caller is told: all bytes of a transfer. An error after some bytes is told the next time, except
/// for writes, where the caller must know that the rest didn't go.
fn total(flight: &Flight, result: i32) -> i32 {
    if flight.done == 0 || (result < 0 && matches!(flight.op, Op::Write { .. })) {
        return result;
    }
    flight.done as i32 + result.max(0)
}

/// Whether the target is a file in which a position means something, so that a short transfer has a rest.
/// A pipe or a socket gives what it has.
fn has_end(op: &Op, seekable_slots: &[bool]) -> bool {
    match op.target() {
        Some(Target::File(_)) => true,
        Some(Target::Foreign(fd)) => super::fs::is_seekable(*fd),
        Some(Target::Slot(slot)) => seekable_slots.get(*slot as usize).copied().unwrap_or(false),
        None => false,
    }
}

impl Drop for Reactor {
    fn drop(&mut self) {
        if self.in_driver == 0 || defect::on(Defect::FreeInFlight) || self.drain() {
            return;
        }
        // A simulated machine that has crashed touches no memory any more, and tests crash it often.
        let kernel = matches!(self.kind(), Kind::Uring | Kind::Posix);
        if !kernel {
            return;
        }
        // The kernel may still write into these buffers: they are never given back.
        std::mem::forget(std::mem::take(&mut self.flights));
    }
}
