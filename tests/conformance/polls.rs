//! Polls of descriptors: on the drivers that wait in the kernel; the others refuse them.

use std::cell::RefCell;
use std::rc::Rc;

use iouring_engine::ring::client::{Client, Outbox};
use iouring_engine::ring::completion::Completion;
use iouring_engine::ring::driver::Wait;
use iouring_engine::ring::op::{File, Link, Op, Target};
use iouring_engine::ring::reactor::Sink;
use rustix::event::EventfdFlags;

use crate::stage::{LONG_US, Stage, limit_op};

const POLLIN: i32 = libc::POLLIN as i32;

/// An eventfd that has nothing to read.
fn event() -> File {
    File::from_fd(rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap())
}

fn raise(event: &File) {
    rustix::io::write(event.os(), &1u64.to_ne_bytes()).unwrap();
}

fn lower(event: &File) {
    rustix::io::read(event.os(), &mut [0u8; 8]).unwrap();
}

fn poll_op(event: &File, multishot: bool) -> Op {
    Op::Poll { target: Target::File(event.clone()), events: libc::POLLIN as u32, multishot }
}

/// Asserts the refusal of drivers that have no polls; true when this is one.
fn refused(stage: &Stage) -> bool {
    if stage.has_polls() {
        return false;
    }
    for multishot in [false, true] {
        assert_eq!(stage.result(poll_op(&event(), multishot)), -libc::EOPNOTSUPP);
    }
    true
}

pub fn a_poll_waits_for_its_event(stage: &Stage) {
    if refused(stage) {
        return;
    }
    let event = event();
    let pending = stage.io.submit(poll_op(&event, false));
    stage.io.turn(Wait::No).unwrap();
    assert_eq!(stage.io.with_reactor(|r| r.in_driver()), 1, "nothing has happened yet");
    raise(&event);
    assert_eq!(stage.run(pending).0 & POLLIN, POLLIN);
}

pub fn a_poll_of_what_is_ready_ends_at_once(stage: &Stage) {
    if refused(stage) {
        return;
    }
    let event = event();
    raise(&event);
    for _ in 0..3 {
        assert_eq!(stage.result(poll_op(&event, false)) & POLLIN, POLLIN);
    }
}

pub fn a_poll_is_cancelled(stage: &Stage) {
    if refused(stage) {
        return;
    }
    let event = event();
    for turns in [0, 2] {
        let pending = stage.io.submit(poll_op(&event, false));
        for _ in 0..turns {
            stage.io.turn(Wait::No).unwrap();
        }
        stage.io.with_reactor(|r| r.cancel(pending.token()));
        assert_eq!(stage.run(pending).0, -libc::ECANCELED, "after {turns} turns");
    }
    raise(&event);
    assert_eq!(stage.result(poll_op(&event, false)) & POLLIN, POLLIN);
}

#[derive(Default)]
struct Log(Vec<Completion>);

impl Client for Log {
    fn complete(&mut self, _: &mut Outbox, user_data: u64, completion: Completion, op: Option<Op>) {
        assert_eq!(user_data, 77);
        assert_eq!(op.is_some(), !completion.more, "the operation comes back with its last completion");
        self.0.push(completion);
    }
}

pub fn a_multishot_poll_completes_again_and_again(stage: &Stage) {
    if refused(stage) {
        return;
    }
    let event = event();
    let log = Rc::new(RefCell::new(Log::default()));
    let token = stage.io.with_reactor(|r| {
        let client = r.add_client(log.clone());
        r.submit(poll_op(&event, true), Sink::Client(client, 77))
    });
    stage.io.turn(Wait::No).unwrap();
    for count in 1..=3 {
        raise(&event);
        while log.borrow().0.len() < count {
            stage.io.turn(Wait::Forever).unwrap();
        }
        lower(&event);
        let last = *log.borrow().0.last().unwrap();
        assert!(last.more && last.result & POLLIN == POLLIN, "{last:?}");
    }
    stage.io.with_reactor(|r| r.cancel(token));
    while stage.io.with_reactor(|r| r.in_driver()) > 0 {
        stage.io.turn(Wait::Forever).unwrap();
    }
    let last = *log.borrow().0.last().unwrap();
    assert_eq!((last.more, last.result), (false, -libc::ECANCELED));
}

pub fn a_poll_can_be_limited(stage: &Stage) {
    if refused(stage) {
        return;
    }
    let event = event();
    let limited = |us| vec![(poll_op(&event, false), Link::Soft), (limit_op(us), Link::None)];
    assert_eq!(stage.chain(limited(2000)), [-libc::ECANCELED, -libc::ETIME]);
    raise(&event);
    let results = stage.chain(limited(LONG_US));
    assert_eq!((results[0] & POLLIN, results[1]), (POLLIN, -libc::ECANCELED));
}
