//! Submit, wait, reap, the descriptor, waking, several objects on one ring.

use std::mem::MaybeUninit;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

use super::*;
use crate::base::sync;
use crate::ring::client::{Client, Outbox};
use crate::ring::completion::Completion;
use crate::ring::op::Op;
use crate::ring::posix::files::borrow;
use crate::ring::reactor::Sink;

/// A host's loop: an epoll that watches one descriptor.
struct Host(OwnedFd);

impl Host {
    fn new(fd: RawFd, flags: EventFlags) -> Self {
        let epoll = epoll::create(CreateFlags::CLOEXEC).unwrap();
        epoll::add(&epoll, borrow(fd).unwrap(), EventData::new_u64(0), flags).unwrap();
        Host(epoll)
    }

    fn wait(&self, seconds: i64) -> bool {
        let mut space = [MaybeUninit::<Event>::uninit()];
        let timeout = Timespec { tv_sec: seconds, tv_nsec: 0 };
        let (found, _) = epoll::wait(&self.0, &mut space, Some(&timeout)).unwrap();
        !found.is_empty()
    }

    fn is_readable(&self) -> bool {
        self.wait(0)
    }

    /// What a host does between its events: it sleeps. No test waits that long in vain.
    fn sleep(&self) {
        assert!(self.wait(60), "the descriptor said nothing");
    }
}

fn with_trigger(test: impl Fn(&RingOptions, EventFlags)) {
    on_each_driver(|options| {
        test(options, EventFlags::IN);
        test(options, EventFlags::IN | EventFlags::ET);
    });
}

#[test]
fn a_timeout_is_reaped_under_its_name() {
    on_each_driver(|options| {
        let mut ring = open(options);
        ring.timeout(1, 7).unwrap();
        assert_eq!(finish(&mut ring, 1), [(7, -libc::ETIME)]);
    });
}

#[test]
fn reaping_four_of_ten_leaves_the_descriptor_readable() {
    with_trigger(|options, trigger| {
        let mut ring = open(options);
        let host = Host::new(ring.fd().unwrap(), trigger);
        assert!(!host.is_readable());
        ring.queue(&vec![nop(OpFlags::empty(), 1); 10]).unwrap();
        let mut out = [RingCompletion::EMPTY; 4];
        let mut reaped = 0;
        while reaped < 10 {
            host.sleep();
            reaped += ring.reap(&mut out).unwrap();
        }
        assert_eq!(ring.reap(&mut out).unwrap(), 0);
        assert!(!host.is_readable());
    });
}

#[test]
fn work_that_was_queued_and_not_submitted_leaves_with_the_next_reap() {
    with_trigger(|options, trigger| {
        let mut ring = open(options);
        let host = Host::new(ring.fd().unwrap(), trigger);
        let (reader, writer) = pipe();
        ring.queue(&[poll(&reader, 1)]).unwrap();
        // It says so itself: a reap would make progress.
        assert!(host.is_readable());
        assert_eq!(ring.reap(&mut [RingCompletion::EMPTY]).unwrap(), 0);
        assert!(!host.is_readable());
        rustix::io::write(&writer, b"x").unwrap();
        host.sleep();
        assert_eq!(finish(&mut ring, 1).len(), 1);
    });
}

#[test]
fn a_host_that_only_watches_the_descriptor_gets_everything() {
    with_trigger(|options, trigger| {
        let tables = TableOptions { file_slots: 1, buffer_count: 8, buffer_size: 4096, ..Default::default() };
        let mut ring = open_with(options, &tables);
        let host = Host::new(ring.fd().unwrap(), trigger);
        ring.set_file(Some(0), file(&[7; 4096]).as_raw_fd()).unwrap();
        let (mut queued, mut done, mut out) = (0, 0, [RingCompletion::EMPTY; 3]);
        while done < 600 {
            while queued < done + 24 && queued < 600 {
                let asked = match (queued % 3, ring.acquire_buffer()) {
                    (0, Ok(buffer)) => RingOp { memory: part(buffer.index, 0, 4096), ..op(opcode::READ, 1) },
                    (1, _) => RingOp { timeout_us: queued % 200, ..op(opcode::TIMEOUT, 2) },
                    _ => nop(OpFlags::empty(), 3),
                };
                if asked.opcode != opcode::READ {
                    release_all(&mut ring);
                }
                ring.queue(&[asked]).unwrap();
                queued += 1;
            }
            ring.submit().unwrap();
            host.sleep();
            // One reap for an event, never more: what is left must say so.
            let count = ring.reap(&mut out).unwrap();
            for item in &out[..count] {
                let expected = [4096, -libc::ETIME, 0][item.user_data as usize - 1];
                assert_eq!(item.result, expected);
                done += 1;
            }
        }
    });
}

/// Gives back every buffer that no operation uses.
fn release_all(ring: &mut RingObject) {
    for index in 0..ring.info().buffer_count as u16 {
        let _ = ring.release_buffer(index);
    }
}

#[test]
fn a_wait_counts_what_is_ready_and_ends_with_its_time() {
    on_each_driver(|options| {
        let mut ring = open(options);
        assert_eq!(ring.wait(1, 1).unwrap(), 0);
        ring.queue(&[nop(OpFlags::empty(), 1), nop(OpFlags::empty(), 2), never(3)]).unwrap();
        assert_eq!(ring.wait(2, -1).unwrap(), 2);
        assert_eq!(ring.wait(3, 1).unwrap(), 2);
        assert_eq!(ring.wait(0, -1).unwrap(), 2);
        assert_eq!(code(ring.wait(1, -2)), -libc::EINVAL);
    });
}

#[test]
fn another_thread_wakes_a_wait() {
    on_each_driver(|options| {
        let mut ring = open(options);
        let waker = ring.waker().unwrap();
        for _ in 0..50 {
            let waker = waker.clone();
            let thread = sync::spawn("waker", move || waker.wake()).unwrap();
            assert_eq!(ring.wait(1, -1).unwrap(), 0);
            thread.join().unwrap();
        }
        // Many are one, and a wake-up before the wait isn't lost.
        (0..5).for_each(|_| waker.wake());
        assert_eq!(ring.wait(1, -1).unwrap(), 0);
        assert_eq!(ring.wait(1, 1).unwrap(), 0);
        drop(ring);
        waker.wake();
    });
}

#[test]
fn another_thread_makes_the_descriptor_readable() {
    with_trigger(|options, trigger| {
        let mut ring = open(options);
        let host = Host::new(ring.fd().unwrap(), trigger);
        let waker = ring.waker().unwrap();
        for _ in 0..20 {
            let waker = waker.clone();
            let thread = sync::spawn("waker", move || waker.wake()).unwrap();
            host.sleep();
            thread.join().unwrap();
            assert_eq!(ring.reap(&mut [RingCompletion::EMPTY]).unwrap(), 0);
        }
    });
}

/// Another object on the ring.
#[derive(Default)]
struct Other {
    completions: usize,
}

impl Client for Other {
    fn complete(&mut self, outbox: &mut Outbox, _: u64, _: Completion, _: Option<Op>) {
        self.completions += 1;
        outbox.ready += 1;
    }
}

#[test]
fn objects_on_one_ring_share_waits_and_the_descriptor_but_not_completions() {
    with_trigger(|options, trigger| {
        let mut ring = open(options);
        let host = Host::new(ring.fd().unwrap(), trigger);
        let other = Rc::new(RefCell::new(Other::default()));
        let io = ring.io().clone();
        let id = io.with_reactor(|reactor| {
            let id = reactor.add_client(other.clone());
            reactor.submit(Op::Nop, Sink::Client(id, 0));
            id
        });
        // This object's wait ends by the other's item, and its reap doesn't touch it.
        assert_eq!(ring.wait(1, -1).unwrap(), 1);
        assert_eq!(ring.reap(&mut [RingCompletion::EMPTY]).unwrap(), 0);
        assert_eq!((ring.wait(1, 0).unwrap(), other.borrow().completions), (1, 1));
        assert!(host.is_readable(), "the other's item is still there");
        io.with_reactor(|reactor| reactor.remove_client(id, 1));
        assert_eq!(ring.wait(0, 0).unwrap(), 0);
        assert!(!host.is_readable());
    });
}

#[test]
fn a_ring_can_be_closed_with_everything_under_way() {
    on_each_driver(|options| {
        let tables =
            TableOptions { file_slots: 1, buffer_count: 4, buffer_size: 1 << 16, ..Default::default() };
        let mut ring = open_with(options, &tables);
        let (reader, _writer) = pipe();
        ring.set_file(Some(0), file(&[1; 1 << 16]).as_raw_fd()).unwrap();
        for _ in 0..50 {
            ring.queue(&[never(1), poll(&reader, 2), nop(OpFlags::LINK, 3), never(3)]).unwrap();
        }
        for _ in 0..4 {
            let index = ring.acquire_buffer().unwrap().index;
            ring.read(0, part(index, 0, 1 << 16), 0, OpFlags::empty(), 4).unwrap();
        }
        ring.submit().unwrap();
        ring.queue(&[nop(OpFlags::LINK, 5)]).unwrap();
        ring.close();
    });
}

#[test]
fn the_descriptor_is_the_same_at_every_call() {
    on_each_driver(|options| {
        let mut ring = open(options);
        let fd = ring.fd().unwrap();
        ring.timeout(1, 1).unwrap();
        finish(&mut ring, 1);
        assert_eq!(ring.fd().unwrap(), fd);
    });
}
