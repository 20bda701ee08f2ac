//! Time-outs, cancelling, and time-outs that limit an operation of a chain.
//!
//! Nothing here depends on how long anything takes: what must end ends by an event, what must not has an hour.

use std::cell::RefCell;
use std::rc::Rc;

use iouring_engine::base::slab::Key;
use iouring_engine::ring::driver::{Kind, Wait};
use iouring_engine::ring::io::join;
use iouring_engine::ring::op::{Link, Op};

use crate::stage::{LONG_US, Stage, limit_op, read_op, timeout_op, write_op};

const CANCELLED: i32 = -libc::ECANCELED;

pub fn a_time_out_ends_with_etime_and_not_early(stage: &Stage) {
    for us in [0, 1, 1500, 12_000] {
        let before = stage.io.now_us();
        assert_eq!(stage.result(timeout_op(us)), -libc::ETIME);
        assert!(stage.io.now_us() >= before + us, "{us} µs were over early");
    }
    stage.run(stage.io.sleep_us(10));
}

pub fn the_shorter_time_out_ends_first(stage: &Stage) {
    let order = Rc::new(RefCell::new(Vec::new()));
    let mut times = vec![300_000, 2000, 100_000];
    if !stage.is_queued() {
        // There each is over before the next begins.
        times = vec![100, 2000, 3000];
    }
    for us in &times {
        let (us, pending, order) = (*us, stage.io.submit(timeout_op(*us)), order.clone());
        drop(stage.io.spawn(async move {
            assert_eq!(pending.await.0, -libc::ETIME);
            order.borrow_mut().push(us);
        }));
    }
    stage.run(stage.io.until(|| order.borrow().len() == 3));
    times.sort_unstable();
    assert_eq!(*order.borrow(), times);
}

pub fn a_cancelled_time_out_ends_with_ecanceled(stage: &Stage) {
    if !stage.is_queued() {
        // It is over before it could be cancelled.
        let pending = stage.io.submit(timeout_op(1));
        stage.io.with_reactor(|r| r.cancel(pending.token()));
        return assert_eq!(stage.run(pending).0, -libc::ETIME);
    }
    // Not started yet, and started.
    for turns in [0, 3] {
        let pending = stage.io.submit(timeout_op(LONG_US));
        for _ in 0..turns {
            stage.io.turn(Wait::No).unwrap();
        }
        stage.io.with_reactor(|r| r.cancel(pending.token()));
        assert_eq!(stage.run(pending).0, CANCELLED, "after {turns} turns");
    }
}

pub fn cancelling_what_is_over_or_unknown_changes_nothing(stage: &Stage) {
    let pending = stage.io.submit(Op::Nop);
    let token = pending.token();
    assert_eq!(stage.run(pending).0, 0);
    stage.io.with_reactor(|r| {
        r.cancel(token);
        r.cancel(Key::NONE);
        r.cancel(Key::from_bits(0));
    });
    assert_eq!(stage.result(Op::Nop), 0);
    assert_eq!(stage.io.with_reactor(|r| r.in_driver()), 0);
}

pub fn cancelling_one_leaves_the_others(stage: &Stage) {
    if !stage.is_queued() {
        return a_cancelled_time_out_ends_with_ecanceled(stage);
    }
    let mut pending: Vec<_> = (0..5).map(|_| stage.io.submit(timeout_op(LONG_US))).collect();
    stage.io.turn(Wait::No).unwrap();
    let third = pending.remove(2);
    stage.io.with_reactor(|r| r.cancel(third.token()));
    assert_eq!(stage.run(third).0, CANCELLED);
    assert_eq!(stage.io.with_reactor(|r| r.in_driver()), 4);
    for pending in &pending {
        stage.io.with_reactor(|r| r.cancel(pending.token()));
    }
    assert!(stage.run(join(pending)).iter().all(|(result, _)| *result == CANCELLED));
}

pub fn a_cancelled_file_operation_still_completes(stage: &Stage) {
    stage.calm();
    let file = stage.file("a");
    for round in 0..20u8 {
        let pending = stage.io.submit(write_op(&file, u64::from(round) * 10, &[round + 1; 10]));
        if round % 2 == 0 {
            stage.io.turn(Wait::No).unwrap();
        }
        stage.io.with_reactor(|r| r.cancel(pending.token()));
        let result = stage.run(pending).0;
        let written = stage.read(&file, u64::from(round) * 10, 10);
        match result {
            10 => assert_eq!(written, [round + 1; 10]),
            CANCELLED => {
                assert!(written.iter().all(|byte| *byte == 0), "cancelled, and written all the same")
            }
            other => panic!("a cancelled write ended with {other}"),
        }
    }
}

pub fn a_cancelled_head_ends_its_soft_chain(stage: &Stage) {
    if !stage.is_queued() {
        let results = stage.chain(vec![(timeout_op(1), Link::Soft), (Op::Nop, Link::None)]);
        return assert_eq!(results, [-libc::ETIME, CANCELLED]);
    }
    let chain = vec![(timeout_op(LONG_US), Link::Soft), (Op::Nop, Link::Soft), (Op::Nop, Link::None)];
    let pending = stage.io.submit_chain(chain).unwrap();
    stage.io.turn(Wait::No).unwrap();
    stage.io.with_reactor(|r| r.cancel(pending[0].token()));
    let results: Vec<i32> = stage.run(join(pending)).into_iter().map(|(result, _)| result).collect();
    assert_eq!(results, [CANCELLED; 3]);
}

pub fn an_operation_that_waits_for_room_can_be_cancelled(stage: &Stage) {
    let stage = stage.with_entries(4);
    let file = stage.calm().file("a");
    let mut pending: Vec<_> = (0..20u64).map(|i| stage.io.submit(write_op(&file, i, &[1]))).collect();
    let last = pending.pop().unwrap();
    stage.io.with_reactor(|r| r.cancel(last.token()));
    let expected = if stage.is_queued() { CANCELLED } else { 1 };
    assert_eq!(stage.run(last).0, expected);
    assert!(stage.run(join(pending)).iter().all(|(result, _)| *result == 1));
    let len = stage.io.meta(&file).unwrap().len;
    assert_eq!(len, if stage.is_queued() { 19 } else { 20 });
}

pub fn a_link_time_out_ends_what_takes_longer(stage: &Stage) {
    if !stage.is_queued() {
        // Nothing is under way there that could be ended.
        let results = stage.chain(vec![(Op::Nop, Link::Soft), (limit_op(1), Link::None)]);
        return assert_eq!(results, [0, -libc::EOPNOTSUPP]);
    }
    let results = stage.chain(vec![(timeout_op(LONG_US), Link::Soft), (limit_op(2000), Link::None)]);
    assert_eq!(results, [CANCELLED, -libc::ETIME]);
}

pub fn a_link_time_out_ends_with_its_operation(stage: &Stage) {
    let file = stage.calm().file("a");
    stage.write(&file, 0, &[1; 10]);
    let results = stage.chain(vec![(read_op(&file, 0, 10), Link::Soft), (limit_op(LONG_US), Link::None)]);
    let limit = if stage.is_queued() { CANCELLED } else { -libc::EOPNOTSUPP };
    assert_eq!(results, [10, limit]);
}

pub fn a_chain_goes_on_behind_a_link_time_out(stage: &Stage) {
    let file = stage.calm().file("a");
    let chain = |head: Op, us: u64| {
        vec![
            (head, Link::Soft),
            (limit_op(us), Link::Soft),
            (write_op(&file, 0, b"x"), Link::Soft),
            (read_op(&file, 0, 1), Link::None),
        ]
    };
    let results = stage.chain(chain(Op::Nop, LONG_US));
    if !stage.is_queued() {
        return assert_eq!(results, [0, -libc::EOPNOTSUPP, CANCELLED, CANCELLED]);
    }
    assert_eq!(results, [0, CANCELLED, 1, 1]);
    let results = stage.chain(chain(timeout_op(LONG_US), 500));
    assert_eq!(results, [CANCELLED, -libc::ETIME, CANCELLED, CANCELLED]);
}

pub fn a_link_time_out_without_an_operation_is_refused(stage: &Stage) {
    let errno = if stage.is_queued() { libc::EINVAL } else { libc::EOPNOTSUPP };
    assert_eq!(stage.result(limit_op(1)), -errno);
}

pub fn a_turn_waits_no_longer_than_told(stage: &Stage) {
    if stage.kind() == Kind::Inline {
        // A wait for something that nobody will finish is an error there.
        assert!(stage.io.turn(Wait::Forever).is_err());
    }
    let before = stage.io.now_us();
    match stage.io.turn(Wait::Us(2000)) {
        Err(e) => assert_eq!(e.errno(), Some(libc::EINTR), "{e}"),
        Ok(()) => assert!(stage.kind() == Kind::Inline || stage.io.now_us() >= before + 2000),
    }
    stage.io.turn(Wait::No).unwrap();
}
