//! The file table, registered buffers, clients, and the one descriptor to watch.
#![allow(unsafe_code, reason = "parts of a registered region are taken as a pool takes them")]

use std::cell::RefCell;
use std::rc::Rc;

use iouring_engine::base::Error;
use iouring_engine::base::memory::{Buf, PAGE, Region};
use iouring_engine::ring::client::{Client, Outbox};
use iouring_engine::ring::completion::Completion;
use iouring_engine::ring::driver::{Kind, Wait};
use iouring_engine::ring::op::{Link, Op, Target};
use iouring_engine::ring::reactor::Sink;
use rustix::event::{PollFd, PollFlags};

use crate::stage::{Stage, timeout_op, write_op};

/// Makes a table of four slots; false, after asserting the refusal, where there is none.
fn has_slots(stage: &Stage) -> bool {
    let made = stage.io.with_reactor(|r| r.make_slots(4));
    if stage.kind() == Kind::Inline {
        assert!(matches!(made, Err(Error::Unsupported(_))));
        return false;
    }
    made.unwrap();
    true
}

fn on_slot(slot: u32, offset: u64, bytes: &[u8]) -> Op {
    let buf = Buf::copied(bytes).unwrap();
    Op::Write { target: Target::Slot(slot), buf, offset, buffer_index: None, dsync: false }
}

pub fn an_operation_names_a_slot(stage: &Stage) {
    if !has_slots(stage) {
        return;
    }
    let file = stage.file("a");
    stage.io.with_reactor(|r| r.set_slot(3, Some(file.raw_fd()))).unwrap();
    // Long enough to be short now and then in the simulator: the reactor finishes it.
    assert_eq!(stage.result(on_slot(3, 10, &[5; 50_000])), 50_000);
    assert!(stage.read(&file, 10, 60_000) == vec![5; 50_000]);
    assert_eq!(stage.result(Op::Fsync { target: Target::Slot(3), data_only: true }), 0);
    // The slot keeps the file open by itself.
    drop(file);
    let (target, buf) = (Target::Slot(3), Buf::zeroed(100).unwrap());
    let (result, op) = stage.run(stage.io.submit(Op::Read { target, buf, offset: 10, buffer_index: None }));
    assert_eq!((result, op.into_buf().unwrap().as_slice()), (100, &[5; 100][..]));
}

pub fn an_empty_slot_and_one_outside_are_refused(stage: &Stage) {
    if !has_slots(stage) {
        assert_eq!(stage.result(on_slot(0, 0, b"x")), -libc::EBADF);
        return;
    }
    let file = stage.file("a");
    for slot in [0, 3, 4, u32::MAX] {
        assert_eq!(stage.result(on_slot(slot, 0, b"x")), -libc::EBADF, "slot {slot}");
    }
    assert!(stage.io.with_reactor(|r| r.set_slot(4, Some(file.raw_fd()))).is_err());
    stage.io.with_reactor(|r| r.set_slot(1, Some(file.raw_fd()))).unwrap();
    stage.io.with_reactor(|r| r.set_slot(1, None)).unwrap();
    assert_eq!(stage.result(on_slot(1, 0, b"x")), -libc::EBADF);
}

pub fn a_slot_is_cleared_in_its_place_in_a_chain(stage: &Stage) {
    if !has_slots(stage) {
        return;
    }
    let file = stage.calm().file("a");
    stage.io.with_reactor(|r| r.set_slot(2, Some(file.raw_fd()))).unwrap();
    let results = stage.chain(vec![
        (on_slot(2, 0, b"before"), Link::Soft),
        (Op::CloseSlot { slot: 2 }, Link::Soft),
        (on_slot(2, 0, b"after"), Link::None),
    ]);
    assert_eq!(results, [6, 0, -libc::EBADF]);
    assert_eq!(stage.read(&file, 0, 10), b"before");
}

pub fn a_replaced_slot_leaves_what_is_under_way(stage: &Stage) {
    if !has_slots(stage) {
        return;
    }
    if let Some(world) = &stage.world {
        world.set_rates(200, 0);
    }
    let (first, second) = (stage.file("a"), stage.file("b"));
    stage.io.with_reactor(|r| r.set_slot(0, Some(first.raw_fd()))).unwrap();
    let pending = stage.io.submit(on_slot(0, 0, b"to the first"));
    stage.io.turn(Wait::No).unwrap();
    stage.io.with_reactor(|r| r.set_slot(0, Some(second.raw_fd()))).unwrap();
    // The simulator may have made it short; the rest must not go to the other file.
    let count = stage.run(pending).0 as usize;
    assert!(count == 12 || stage.world.is_some() && count < 12, "{count}");
    assert_eq!(stage.read(&first, 0, 100), b"to the first"[..count]);
    assert!(stage.read(&second, 0, 100).is_empty());
    assert_eq!(stage.result(on_slot(0, 0, b"to the second")), 13);
    assert_eq!(stage.read(&second, 0, 100), b"to the second");
}

pub fn a_registered_buffer_is_read_and_written(stage: &Stage) {
    let file = stage.file("a");
    let region = Region::new(2 * PAGE).unwrap();
    let address = region.as_ptr() as usize;
    let registered = stage.io.with_reactor(|r| r.driver().register_buffers(&[(0, 0), (address, 2 * PAGE)]));
    registered.unwrap();
    // SAFETY: the two parts of the region don't overlap, and nobody else uses it.
    let (mut from, to) = unsafe { (Buf::part(&region, 0, 3000), Buf::part(&region, PAGE, 3000)) };
    from.as_mut_slice().fill(9);
    let target = Target::File(file.clone());
    let op = Op::Write { target: target.clone(), buf: from, offset: 7, buffer_index: Some(1), dsync: false };
    assert_eq!(stage.result(op), 3000);
    let op = Op::Read { target, buf: to, offset: 7, buffer_index: Some(1) };
    let (result, op) = stage.run(stage.io.submit(op));
    assert_eq!((result, op.into_buf().unwrap().as_slice()), (3000, &[9; 3000][..]));
    stage.io.with_reactor(|r| r.driver().set_buffer(1, (0, 0))).unwrap();
}

#[derive(Default)]
struct Taken(Vec<(u64, i32, usize)>);

impl Client for Taken {
    fn complete(&mut self, outbox: &mut Outbox, user_data: u64, completion: Completion, op: Option<Op>) {
        let len = op.and_then(Op::into_buf).map_or(0, |buf| buf.len());
        self.0.push((user_data, completion.result, len));
        outbox.ready += 1;
        if user_data == 1 {
            outbox.chains.push(vec![(Op::Nop, Link::Soft, 2), (Op::Nop, Link::None, 3)]);
        }
    }
}

pub fn a_client_is_told_with_the_memory(stage: &Stage) {
    let file = stage.file("a");
    let taken = Rc::new(RefCell::new(Taken::default()));
    let client = stage.io.with_reactor(|r| {
        let client = r.add_client(taken.clone());
        r.submit(write_op(&file, 0, &[1; 800]), Sink::Client(client, 1));
        assert_eq!(r.in_flight_of(client), 1);
        client
    });
    while taken.borrow().0.len() < 3 {
        if let Err(e) = stage.io.turn(Wait::Us(1_000_000)) {
            assert_eq!(e.errno(), Some(libc::EINTR), "{e}");
        }
    }
    assert_eq!(taken.borrow().0, [(1, 800, 800), (2, 0, 0), (3, 0, 0)]);
    stage.io.with_reactor(|r| {
        assert_eq!(r.ready(), 3);
        r.remove_client(client, 3);
        assert_eq!(r.ready(), 0);
    });
}

pub fn the_descriptor_becomes_readable(stage: &Stage) {
    let fd = stage.io.with_reactor(|r| r.notifier());
    if !stage.has_polls() {
        return assert!(matches!(fd, Err(Error::Unsupported(_))));
    }
    let fd = fd.unwrap();
    assert_eq!(stage.io.with_reactor(|r| r.notifier()).unwrap(), fd, "it is one descriptor");
    for _ in 0..3 {
        let pending = stage.io.submit(timeout_op(3000));
        let mut turns = 0;
        while stage.io.with_reactor(|r| r.in_driver()) > 0 {
            // SAFETY: the reactor keeps the descriptor open as long as the stage lives.
            let borrowed = unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) };
            let mut polled = [PollFd::new(&borrowed, PollFlags::IN)];
            if turns > 0 {
                // What was submitted makes it readable when it completes; a lost signal would wait here for ever.
                rustix::event::poll(&mut polled, None).unwrap();
            }
            stage.io.turn(Wait::No).unwrap();
            turns += 1;
        }
        assert_eq!(stage.run(pending).0, -libc::ETIME);
    }
}
