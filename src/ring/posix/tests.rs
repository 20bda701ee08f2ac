//! The posix driver by itself: links, cancelling, pipes, slots, and the descriptor. What all drivers promise is in
//! the conformance suite.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use super::*;
use crate::base::memory::Buf;
use crate::ring::driver::Driver;
use crate::ring::op::{Link, Target, Timespec};
use crate::ring::reactor::{Reactor, Sink, Step};

const MANY_US: u64 = 60_000_000;

struct Bench {
    reactor: Reactor,
}

impl Bench {
    fn new() -> Self {
        Bench { reactor: Reactor::new(Driver::Posix(Box::new(Posix::open(64).unwrap()))) }
    }

    fn chain(&mut self, steps: Vec<(Op, Link)>) -> Vec<Token> {
        let steps = steps.into_iter().map(|(op, link)| Step { op, link, sink: Sink::Task(0) }).collect();
        self.reactor.submit_chain(steps).unwrap()
    }

    fn one(&mut self, op: Op) -> Token {
        self.reactor.submit(op, Sink::Task(0))
    }

    fn wait(&mut self, token: Token) -> i32 {
        loop {
            if let Some((result, _)) = self.reactor.take(token) {
                return result;
            }
            self.reactor.woken.clear();
            self.reactor.turn(Wait::Us(MANY_US)).unwrap();
        }
    }

    fn results(&mut self, steps: Vec<(Op, Link)>) -> Vec<i32> {
        let tokens = self.chain(steps);
        tokens.into_iter().map(|token| self.wait(token)).collect()
    }
}

fn pipe() -> (OwnedFd, OwnedFd) {
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap()
}

fn file(content: &[u8]) -> OwnedFd {
    let file = rustix::fs::memfd_create("posix-test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::io::pwrite(&file, content, 0).unwrap();
    file
}

fn foreign(fd: &OwnedFd) -> Target {
    Target::Foreign(fd.as_raw_fd())
}

fn read(target: Target, len: usize) -> Op {
    Op::Read { target, buf: Buf::zeroed(len).unwrap(), offset: 0, buffer_index: None }
}

fn write(target: Target, bytes: &[u8]) -> Op {
    Op::Write { target, buf: Buf::copied(bytes).unwrap(), offset: 0, buffer_index: None, dsync: false }
}

fn poll(target: Target, multishot: bool) -> Op {
    Op::Poll { target, events: libc::POLLIN as u32, multishot }
}

fn after(us: u64) -> Timespec {
    Timespec::from_us(us)
}

fn readable(fd: RawFd) -> bool {
    let mut fds =
        [rustix::event::PollFd::from_borrowed_fd(borrow(fd).unwrap(), rustix::event::PollFlags::IN)];
    let at_once = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut fds, Some(&at_once)).unwrap() > 0
}

#[test]
fn a_short_read_breaks_a_soft_link_and_not_a_hard_one() {
    let mut bench = Bench::new();
    let short = file(b"12345");
    for (link, last) in [(Link::Soft, -libc::ECANCELED), (Link::Hard, 0)] {
        let sync = Op::Fsync { target: foreign(&short), data_only: true };
        let steps = vec![(read(foreign(&short), 100), link), (Op::Nop, Link::Hard), (sync, Link::None)];
        assert_eq!(bench.results(steps), [5, last, last], "{link:?}");
    }
}

#[test]
fn a_broken_chain_stays_broken_behind_a_hard_link() {
    let mut bench = Bench::new();
    let steps = vec![
        (read(Target::Foreign(-1), 10), Link::Soft),
        (Op::Nop, Link::Hard),
        (Op::Nop, Link::Hard),
        (Op::Nop, Link::None),
    ];
    assert_eq!(bench.results(steps), [-libc::EBADF, -libc::ECANCELED, -libc::ECANCELED, -libc::ECANCELED]);
}

#[test]
fn a_read_of_a_pipe_waits_without_a_thread_and_can_be_cancelled() {
    let mut bench = Bench::new();
    let (reader, writer) = pipe();
    // More of them than there are threads.
    let reads: Vec<Token> = (0..40).map(|_| bench.one(read(foreign(&reader), 3))).collect();
    let content = file(b"abc");
    let other = bench.one(read(foreign(&content), 3));
    assert_eq!(bench.wait(other), 3);
    rustix::io::write(&writer, b"xyz").unwrap();
    let mut whole = 0;
    reads[1..].iter().for_each(|token| bench.reactor.cancel(*token));
    for token in &reads[1..] {
        match bench.wait(*token) {
            3 => whole += 1,
            result => assert_eq!(result, -libc::ECANCELED),
        }
    }
    if whole == 0 {
        assert_eq!(bench.wait(reads[0]), 3);
    } else {
        bench.reactor.cancel(reads[0]);
        assert_eq!((whole, bench.wait(reads[0])), (1, -libc::ECANCELED));
    }
}

#[test]
fn writing_to_a_pipe_without_a_reader_is_an_error_and_no_signal() {
    let mut bench = Bench::new();
    let (reader, writer) = pipe();
    drop(reader);
    let token = bench.one(write(foreign(&writer), b"x"));
    assert_eq!(bench.wait(token), -libc::EPIPE);
}

#[test]
fn a_link_timeout_ends_its_step_or_is_cancelled_by_it() {
    let mut bench = Bench::new();
    let (reader, writer) = pipe();
    let limited = |us| {
        vec![
            (read(foreign(&reader), 1), Link::Soft),
            (Op::LinkTimeout { after: after(us) }, Link::Soft),
            (Op::Nop, Link::None),
        ]
    };
    assert_eq!(bench.results(limited(1000)), [-libc::ECANCELED, -libc::ETIME, -libc::ECANCELED]);
    rustix::io::write(&writer, b"x").unwrap();
    assert_eq!(bench.results(limited(MANY_US)), [1, -libc::ECANCELED, 0]);
}

#[test]
fn timers_fire_in_order_and_can_be_cancelled() {
    let mut driver = Posix::open(8).unwrap();
    let ops = [3000, 1000, 2000, MANY_US].map(|us| Op::Timeout { after: after(us) });
    for (index, op) in (0..).zip(&ops) {
        let token = Key { index, generation: 1 };
        assert!(driver.push(&[Entry { token, op, done: 0, link: Link::None }]));
    }
    let mut order = Vec::new();
    while order.len() < 3 {
        driver.enter(Wait::Us(MANY_US)).unwrap();
        while let Some(completion) = driver.next() {
            assert_eq!(completion.result, -libc::ETIME);
            order.push(completion.token.index);
        }
    }
    assert_eq!(order, [1, 2, 0]);
    let token = Key { index: 3, generation: 1 };
    driver.cancel(token);
    assert_eq!(driver.next(), Some(Completion::last(token, -libc::ECANCELED)));
}

#[test]
fn a_multishot_poll_goes_on_until_it_is_cancelled() {
    let mut driver = Posix::open(8).unwrap();
    let (reader, writer) = pipe();
    let op = poll(foreign(&reader), true);
    let token = Key { index: 0, generation: 1 };
    assert!(driver.push(&[Entry { token, op: &op, done: 0, link: Link::None }]));
    for _ in 0..3 {
        rustix::io::write(&writer, b"x").unwrap();
        driver.enter(Wait::Us(MANY_US)).unwrap();
        let completion = driver.next().unwrap();
        assert!(completion.more && completion.result & i32::from(libc::POLLIN) != 0);
    }
    driver.cancel(token);
    assert_eq!(driver.next(), Some(Completion::last(token, -libc::ECANCELED)));
}

#[test]
fn slots_hold_duplicates_and_are_cleared_in_a_chain() {
    let mut bench = Bench::new();
    bench.reactor.make_slots(2).unwrap();
    let content = file(b"abc");
    bench.reactor.set_slot(1, Some(content.as_raw_fd())).unwrap();
    drop(content);
    let slot = || Target::Slot(1);
    let steps = vec![
        (read(slot(), 3), Link::Soft),
        (Op::CloseSlot { slot: 1 }, Link::Soft),
        (read(slot(), 3), Link::Hard),
        (Op::CloseSlot { slot: 1 }, Link::None),
    ];
    assert_eq!(bench.results(steps), [3, 0, -libc::EBADF, -libc::EBADF]);
    assert_eq!(bench.reactor.set_slot(2, None).unwrap_err().code(), -libc::EINVAL);
}

#[test]
fn a_registered_buffer_must_hold_the_operation() {
    let mut bench = Bench::new();
    let content = file(b"abc");
    let mut op = read(foreign(&content), 3);
    if let Op::Read { buffer_index, .. } = &mut op {
        *buffer_index = Some(0);
    }
    let token = bench.one(op);
    assert_eq!(bench.wait(token), -libc::EFAULT);
}

#[test]
fn the_descriptor_is_readable_for_files_polls_timers_and_letters() {
    let mut bench = Bench::new();
    let fd = bench.reactor.notifier().unwrap();
    let mailbox = bench.reactor.mailbox().unwrap();
    bench.reactor.turn(Wait::No).unwrap();
    assert!(!readable(fd));
    let (reader, writer) = pipe();
    let content = file(b"abc");
    let started = [
        bench.one(read(foreign(&content), 3)),
        bench.one(Op::Timeout { after: after(2000) }),
        bench.one(poll(foreign(&reader), false)),
    ];
    bench.reactor.turn(Wait::No).unwrap();
    rustix::io::write(&writer, b"x").unwrap();
    for token in started {
        // Only what the descriptor announces is looked for.
        while bench.reactor.take(token).is_none() {
            assert!(wait_readable(fd), "the descriptor says nothing");
            bench.reactor.turn(Wait::No).unwrap();
        }
    }
    mailbox.nudge();
    assert!(wait_readable(fd));
    bench.reactor.turn(Wait::No).unwrap();
    assert!(bench.reactor.take_nudge());
    assert!(!readable(fd));
}

fn wait_readable(fd: RawFd) -> bool {
    let fd = borrow(fd).unwrap();
    let mut fds = [rustix::event::PollFd::from_borrowed_fd(fd.as_fd(), rustix::event::PollFlags::IN)];
    let long = rustix::event::Timespec { tv_sec: 60, tv_nsec: 0 };
    rustix::event::poll(&mut fds, Some(&long)).unwrap() > 0
}

#[test]
fn dropping_with_everything_under_way_drains() {
    let mut bench = Bench::new();
    let (reader, _writer) = pipe();
    let content = file(&[7; 4096]);
    for _ in 0..100 {
        bench.one(read(foreign(&content), 4096));
        bench.one(read(foreign(&reader), 1));
        bench.one(poll(foreign(&reader), true));
        bench.one(Op::Timeout { after: after(MANY_US) });
    }
    bench.reactor.turn(Wait::No).unwrap();
    drop(bench);
}
