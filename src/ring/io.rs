//! The handle that `async fn`s use: submit an operation, await its end.
//!
//! One `Io` belongs to one thread. The same `async fn` serves a blocking call ([`Io::block_on`] over the inline
//! driver, where nothing ever suspends) and a queued one (a task on a ring).

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};

use super::completion::Token;
use super::driver::{Driver, Kind, Wait};
use super::inline::Inline;
use super::op::{File, Link, Op, Target, Timespec};
use super::reactor::{Reactor, Sink, Step};
use super::task::{Tasks, poll_once};
use crate::base::memory::Buf;
use crate::base::{Error, Result};

/// See the module. Cloning is cheap and gives a handle to the same reactor.
#[derive(Clone)]
pub struct Io(Rc<Shared>);

struct Shared {
    reactor: RefCell<Reactor>,
    tasks: RefCell<Tasks>,
}

thread_local! {
    static INLINE: Io = Io::new(Driver::Inline(Inline::new()));
}

/// How a read or write ended: its memory, and the byte count.
pub type Transfer = (Buf, Result<usize>);

impl Io {
    /// A handle to a new reactor over `driver`.
    pub fn new(driver: Driver) -> Self {
        let tasks = RefCell::new(Tasks::default());
        Io(Rc::new(Shared { reactor: RefCell::new(Reactor::new(driver)), tasks }))
    }

    /// The calling thread's own inline handle: for blocking calls on any thread.
    pub fn inline() -> Self {
        INLINE.with(Io::clone)
    }

    /// The reactor, for set-up and for clients. Not to be held across an await or another call of this handle.
    pub fn with_reactor<T>(&self, body: impl FnOnce(&mut Reactor) -> T) -> T {
        body(&mut self.0.reactor.borrow_mut())
    }

    /// Which driver it stands on.
    pub fn kind(&self) -> Kind {
        self.with_reactor(|r| r.kind())
    }

    /// Microseconds of a clock that never goes back.
    pub fn now_us(&self) -> u64 {
        self.with_reactor(|r| r.driver().now_us())
    }

    /// A number nobody can foretell.
    pub fn random(&self) -> u64 {
        self.with_reactor(|r| r.driver().random())
    }

    /// Submits one operation; the future gives its result and the operation back. Dropping the future leaves the
    /// operation under way, orphaned.
    pub fn submit(&self, op: Op) -> Pending {
        let token = self.with_reactor(|r| r.submit(op, Sink::Unclaimed));
        Pending { io: self.clone(), token: Some(token) }
    }

    /// As [`Io::submit`], but a short or interrupted transfer is a result, as in a chain.
    pub fn submit_exact(&self, op: Op) -> Pending {
        let token = self.with_reactor(|r| r.submit_exact(op, Sink::Unclaimed));
        Pending { io: self.clone(), token: Some(token) }
    }

    /// Submits a chain, whole or not at all; the futures are in the order of the steps.
    ///
    /// # Errors
    /// [`Error::TooLarge`] when it can never fit.
    pub fn submit_chain(&self, steps: Vec<(Op, Link)>) -> Result<Vec<Pending>> {
        let steps = steps.into_iter().map(|(op, link)| Step { op, link, sink: Sink::Unclaimed }).collect();
        let tokens = self.with_reactor(|r| r.submit_chain(steps))?;
        Ok(tokens.into_iter().map(|token| Pending { io: self.clone(), token: Some(token) }).collect())
    }

    /// Reads into `buf` at `offset`. Less than `buf.len()` at end of file only.
    pub async fn read(&self, file: &File, buf: Buf, offset: u64) -> Transfer {
        let target = Target::File(file.clone());
        transfer(self.submit(Op::Read { target, buf, offset, buffer_index: None }).await)
    }

    /// Writes all of `buf` at `offset`; with `dsync` it is durable when this returns.
    pub async fn write(&self, file: &File, buf: Buf, offset: u64, dsync: bool) -> Transfer {
        let target = Target::File(file.clone());
        let len = buf.len();
        match transfer(self.submit(Op::Write { target, buf, offset, buffer_index: None, dsync }).await) {
            // The reactor goes on after a short write; a write that makes no progress at all ends here.
            (buf, Ok(count)) if count < len => {
                let text = format!("a write of {len} bytes at offset {offset} stopped after {count}");
                (buf, Err(Error::system(libc::EIO, text)))
            }
            other => other,
        }
    }

    /// Makes a file's bytes (`data_only`), or a file or directory whole, durable.
    pub async fn sync(&self, file: &File, data_only: bool) -> Result<()> {
        let target = Target::File(file.clone());
        let (result, _) = self.submit(Op::Fsync { target, data_only }).await;
        check(result).map(|_| ())
    }

    /// Waits for a while.
    pub async fn sleep_us(&self, us: u64) {
        self.submit(Op::Timeout { after: Timespec::from_us(us) }).await;
    }

    /// Waits until a condition holds that other tasks of this executor (or other threads) bring about. It is asked
    /// again at every turn: for the simulator and for tests, not for hot paths.
    pub async fn until(&self, mut condition: impl FnMut() -> bool) {
        std::future::poll_fn(|_| {
            let holds = condition();
            let mut tasks = self.0.tasks.borrow_mut();
            if holds {
                tasks.progress += 1;
                return Poll::Ready(());
            }
            if let Some(current) = tasks.current {
                tasks.watching.push(current);
            }
            Poll::Pending
        })
        .await;
    }

    /// Starts a task; it runs while somebody drives this handle.
    pub fn spawn<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> Join<T> {
        let result = Rc::new(Cell::new(None));
        let place = result.clone();
        let mut tasks = self.0.tasks.borrow_mut();
        let id = tasks.reserve();
        tasks.put(id, Box::pin(async move { place.set(Some(future.await)) }));
        self.0.reactor.borrow_mut().woken.push_back(id);
        Join { io: self.clone(), result }
    }

    /// Whether nobody else has a clone of this handle.
    pub fn is_sole_handle(&self) -> bool {
        Rc::strong_count(&self.0) == 1
    }

    /// Drops the tasks that have not ended, once the driver has failed as a whole and nothing can wake them: they hold
    /// this handle, and it them. Their operations are kept by the reactor.
    pub fn abandon_tasks(&self) {
        let tasks = std::mem::take(&mut *self.0.tasks.borrow_mut());
        drop(tasks);
    }

    /// How many tasks have not ended.
    pub fn live_tasks(&self) -> usize {
        self.0.tasks.borrow().live()
    }

    /// Runs `future` to its end on this thread, and other tasks of this handle meanwhile.
    ///
    /// # Errors
    /// When the driver has failed as a whole; the future is dropped then, its operations are kept by the reactor.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> Result<T> {
        let mut future = pin!(future);
        let id = self.0.tasks.borrow_mut().reserve();
        let outcome = loop {
            if let Poll::Ready(value) = self.poll_as(id, future.as_mut()) {
                break Ok(value);
            }
            match self.run_until_woken(id) {
                Ok(()) => {}
                Err(e) => break Err(e),
            }
        };
        self.0.tasks.borrow_mut().release(id);
        outcome
    }

    fn run_until_woken(&self, id: u32) -> Result<()> {
        loop {
            if self.run_tasks(Some(id)) {
                return Ok(());
            }
            match self.with_reactor(|r| r.turn(Wait::Forever)) {
                Err(e) if e.errno() != Some(libc::EINTR) => return Err(e),
                _ => self.0.tasks.borrow_mut().progress += 1,
            }
        }
    }

    /// One turn: submits, waits as told, delivers completions, runs the tasks that can go on.
    ///
    /// # Errors
    /// As [`Reactor::turn`].
    pub fn turn(&self, wait: Wait) -> Result<()> {
        self.run_tasks(None);
        let turned = self.with_reactor(|r| r.turn(wait));
        self.0.tasks.borrow_mut().progress += 1;
        self.run_tasks(None);
        turned
    }

    /// Runs the tasks that can go on; true as soon as `me`, which its caller polls, is among them.
    fn run_tasks(&self, me: Option<u32>) -> bool {
        loop {
            let woken = self.0.reactor.borrow_mut().woken.pop_front();
            let next = {
                let mut tasks = self.0.tasks.borrow_mut();
                // Whatever a task did may be what another one watches for.
                tasks.progress += u64::from(woken.is_some());
                woken.or_else(|| tasks.next_watching())
            };
            let Some(id) = next else { return false };
            if Some(id) == me {
                return true;
            }
            let task = self.0.tasks.borrow_mut().take(id);
            let Some(mut task) = task else { continue };
            match self.poll_as(id, task.as_mut()) {
                Poll::Ready(()) => self.0.tasks.borrow_mut().release(id),
                Poll::Pending => self.0.tasks.borrow_mut().put(id, task),
            }
        }
    }

    fn poll_as<F: Future + ?Sized>(&self, id: u32, future: Pin<&mut F>) -> Poll<F::Output> {
        let outer = self.0.tasks.borrow_mut().current.replace(id);
        let polled = poll_once(future);
        self.0.tasks.borrow_mut().current = outer;
        polled
    }
}

/// An operation under way. Awaiting it gives its result (a count or `-errno`) and the operation with its memory.
pub struct Pending {
    io: Io,
    token: Option<Token>,
}

impl Pending {
    /// Its name, to cancel it by.
    pub fn token(&self) -> Token {
        self.token.unwrap_or(Token::NONE)
    }
}

impl Future for Pending {
    type Output = (i32, Op);

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(token) = self.token else { panic!("an operation is awaited once") };
        let current = self.io.0.tasks.borrow().current;
        let mut reactor = self.io.0.reactor.borrow_mut();
        if let Some(current) = current {
            reactor.set_task(token, current);
        }
        if reactor.kind() == Kind::Inline {
            // Everything is done already: take it up without a turn of the executor.
            let turned = reactor.turn(Wait::No);
            debug_assert!(turned.is_ok(), "an inline turn can't fail");
        }
        let taken = reactor.take(token);
        drop(reactor);
        match taken {
            Some(done) => {
                self.token = None;
                Poll::Ready(done)
            }
            None => Poll::Pending,
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(token) = self.token {
            self.io.0.reactor.borrow_mut().orphan(token);
        }
    }
}

/// A task's end, to be awaited or asked about.
pub struct Join<T> {
    io: Io,
    result: Rc<Cell<Option<T>>>,
}

impl<T> Join<T> {
    /// The task's result, once it has ended.
    pub fn take(&self) -> Option<T> {
        self.result.take()
    }

    /// Waits for the task's end.
    pub async fn wait(self) -> T {
        let mut value = None;
        let result = &self.result;
        self.io
            .until(|| {
                value = result.take();
                value.is_some()
            })
            .await;
        value.expect("the condition just held")
    }
}

/// Waits for all of `futures`, each a part of the calling task; results in their order.
pub async fn join<F: Future + Unpin>(mut futures: Vec<F>) -> Vec<F::Output> {
    let mut results: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    std::future::poll_fn(|cx| {
        let mut pending = false;
        for (future, result) in futures.iter_mut().zip(&mut results) {
            if result.is_none() {
                match Pin::new(future).poll(cx) {
                    Poll::Ready(value) => *result = Some(value),
                    Poll::Pending => pending = true,
                }
            }
        }
        if pending { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    results.into_iter().flatten().collect()
}

/// A count, or the system's error.
pub fn check(result: i32) -> Result<usize> {
    if result < 0 { Err(Error::system(-result, "")) } else { Ok(result as usize) }
}

fn transfer((result, op): (i32, Op)) -> Transfer {
    let buf = op.into_buf().unwrap_or_else(Buf::empty);
    (buf, check(result))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_brought_about_by_another_task_is_seen() {
        let io = Io::inline();
        let flag = Rc::new(Cell::new(0));
        let (one, two) = (flag.clone(), flag.clone());
        let tasks = io.clone();
        let first = io.spawn(async move {
            tasks.until(|| one.get() == 1).await;
            one.set(2);
        });
        let tasks = io.clone();
        io.spawn(async move {
            tasks.sleep_us(1).await;
            two.set(1);
        });
        io.block_on(async {
            io.until(|| flag.get() == 2).await;
            first.wait().await;
        })
        .unwrap();
        assert_eq!((flag.get(), io.live_tasks()), (2, 0));
    }

    #[test]
    fn a_condition_that_nobody_can_bring_about_is_an_error_not_a_loop() {
        let io = Io::inline();
        assert!(matches!(io.block_on(io.until(|| false)), Err(Error::Internal(_))));
    }

    #[test]
    fn results_wait_for_futures_that_are_polled_late() {
        let io = Io::inline();
        let late = io.submit(Op::Nop);
        let done = io.block_on(async {
            io.sleep_us(1).await;
            late.await
        });
        assert_eq!(done.unwrap().0, 0);
    }

    #[test]
    fn joined_operations_end_in_their_order() {
        let io = Io::inline();
        let all = (0..3).map(|_| io.submit(Op::Timeout { after: Timespec::from_us(1) })).collect();
        let results = io.block_on(join(all)).unwrap();
        assert_eq!(results.iter().map(|(result, _)| *result).collect::<Vec<_>>(), [-libc::ETIME; 3]);
    }
}
