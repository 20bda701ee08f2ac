//! The executor, orphaned operations, the end of a handle, and other threads.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use iouring_engine::ring::driver::{Kind, Wait};
use iouring_engine::ring::io::{Pending, join};
use iouring_engine::ring::mailbox::{Letter, Mailbox};
use iouring_engine::ring::op::Op;
use iouring_engine::ring::{Io, completion::Token};

use crate::stage::{LONG_US, Stage, read_op, timeout_op, write_op};

pub fn tasks_run_side_by_side(stage: &Stage) {
    let file = stage.file("a");
    let ended = Rc::new(Cell::new(0));
    for i in 0..30u64 {
        let (io, file, ended) = (stage.io.clone(), file.clone(), ended.clone());
        drop(stage.io.spawn(async move {
            for round in 0..3u8 {
                let (result, _) = io.submit(write_op(&file, i * 64, &[i as u8 + round; 64])).await;
                assert_eq!(result, 64);
                let (_, op) = io.submit(read_op(&file, i * 64, 64)).await;
                assert_eq!(op.into_buf().unwrap().as_slice(), [i as u8 + round; 64]);
            }
            ended.set(ended.get() + 1);
        }));
    }
    stage.run(stage.io.until(|| ended.get() == 30));
    assert_eq!(stage.io.live_tasks(), 0);
}

pub fn joining_gives_results_in_their_order(stage: &Stage) {
    let file = stage.file("a");
    stage.write(&file, 0, &(0..100).collect::<Vec<u8>>());
    let reads = (0..50).map(|i| stage.io.submit(read_op(&file, i, i as usize + 1))).collect();
    let done = stage.run(join(reads));
    for (i, (result, op)) in done.into_iter().enumerate() {
        assert_eq!((result as usize, op.into_buf().unwrap().as_slice()[0] as usize), (i + 1, i));
    }
    let none: Vec<Pending> = Vec::new();
    assert!(stage.run(join(none)).is_empty());
}

pub fn waiting_for_a_condition_sees_other_tasks(stage: &Stage) {
    let turn = Rc::new(Cell::new(0));
    let log = Rc::new(RefCell::new(Vec::new()));
    for me in 0..4 {
        let (io, turn, log) = (stage.io.clone(), turn.clone(), log.clone());
        drop(stage.io.spawn(async move {
            for round in 0..5 {
                // Backwards, so that nobody's turn comes by the order of the list.
                io.until(|| turn.get() == round * 4 + (3 - me)).await;
                log.borrow_mut().push(me);
                if me == 2 {
                    io.sleep_us(10).await;
                }
                turn.set(turn.get() + 1);
            }
        }));
    }
    stage.run(stage.io.until(|| turn.get() == 20));
    assert_eq!(*log.borrow(), [3, 2, 1, 0].repeat(5));
}

pub fn a_task_s_end_is_awaited(stage: &Stage) {
    let io = stage.io.clone();
    let outer = stage.io.spawn(async move {
        let inner = io.spawn({
            let io = io.clone();
            async move {
                io.sleep_us(500).await;
                20
            }
        });
        let quick = io.spawn(async { 1 });
        inner.wait().await + quick.wait().await
    });
    assert_eq!(outer.take(), None);
    assert_eq!(stage.run(outer.wait()), 21);
}

pub fn a_future_that_is_dropped_leaves_its_operation(stage: &Stage) {
    let file = stage.file("a");
    for i in 0..10u64 {
        drop(stage.io.submit(write_op(&file, i * 5, &[i as u8 + 1; 5])));
    }
    // One that was polled before it was dropped.
    let mut polled = stage.io.submit(write_op(&file, 50, b"polled"));
    let io = stage.io.clone();
    stage.run(async move {
        std::future::poll_fn(|cx| {
            let _ = std::pin::Pin::new(&mut polled).poll(cx);
            std::task::Poll::Ready(())
        })
        .await;
        drop(polled);
        io.submit(Op::Nop).await;
    });
    while stage.io.with_reactor(|r| r.in_driver()) > 0 {
        stage.run(stage.io.sleep_us(50));
    }
    let mut expected: Vec<u8> = (1..=10).flat_map(|i| [i; 5]).collect();
    expected.extend(b"polled");
    assert_eq!(stage.read(&file, 0, 100), expected);
}

pub fn dropping_the_handle_drains_what_is_in_flight(stage: &Stage) {
    let stage = stage.with_entries(16);
    // A write that is short and then cancelled would leave half a block.
    let file = stage.calm().file("a");
    stage.write(&file, 0, &vec![1; 40 * 4096]);
    let other = stage.with_same_disk();
    for i in 0..40u64 {
        drop(other.submit(write_op(&file, i * 4096, &[2; 4096])));
        drop(other.submit(read_op(&file, i * 4096, 4096)));
        if i % 3 == 0 && stage.is_queued() {
            other.turn(Wait::No).unwrap();
        }
    }
    if stage.is_queued() {
        drop(other.submit(timeout_op(LONG_US)));
    }
    drop(other);
    let bytes = stage.read(&file, 0, 40 * 4096);
    for (i, block) in bytes.chunks(4096).enumerate() {
        // Written, or cancelled before it began: nothing is under way any more.
        assert!(block.iter().all(|byte| *byte == block[0]) && (1..=2).contains(&block[0]), "block {i}");
    }
    assert!(stage.kind() != Kind::Inline || bytes.iter().all(|byte| *byte == 2));
    if let Some(world) = &stage.world {
        assert_eq!(world.abandoned(), 0);
    }
    stage.run(stage.io.sleep_us(2000));
    assert!(stage.read(&file, 0, 40 * 4096) == bytes, "a write landed after its handle was dropped");
}

/// An external operation, its name, and the mailbox to finish it through.
fn external(io: &Io) -> (Pending, Token, Arc<Mailbox>) {
    let pending = io.submit(Op::External);
    let token = pending.token();
    (pending, token, io.with_reactor(|r| r.mailbox()).unwrap())
}

pub fn letters_finish_external_operations(stage: &Stage) {
    for result in [0, 7, -libc::EIO] {
        let (pending, token, mailbox) = external(&stage.io);
        let io = stage.io.clone();
        drop(stage.io.spawn(async move {
            io.sleep_us(100).await;
            // A wake-up and a letter for nobody harm nothing.
            mailbox.send(Letter { token: Token::NONE, result: 0 });
            mailbox.send(Letter { token, result });
        }));
        assert_eq!(stage.run(pending).0, result);
    }
    // A letter for an operation of the driver doesn't finish it.
    let file = stage.file("a");
    let pending = stage.io.submit(write_op(&file, 0, b"12345"));
    let mailbox = stage.io.with_reactor(|r| r.mailbox()).unwrap();
    mailbox.send(Letter { token: pending.token(), result: -libc::EIO });
    assert_eq!(stage.run(pending).0, 5);
}

pub fn another_thread_finishes_external_operations(stage: &Stage) {
    if !stage.has_polls() {
        // Nobody can wake a driver that never sleeps.
        let (pending, ..) = external(&stage.io);
        return assert!(stage.io.block_on(pending).is_err());
    }
    for round in 0..300 {
        let (pending, token, mailbox) = external(&stage.io);
        let result = std::thread::scope(|scope| {
            scope.spawn(move || {
                for _ in 0..round % 7 * 50 {
                    std::hint::spin_loop();
                }
                mailbox.send(Letter { token, result: round });
            });
            stage.run(pending).0
        });
        assert_eq!(result, round);
    }
}

pub fn another_thread_wakes_a_turn(stage: &Stage) {
    let mailbox = stage.io.with_reactor(|r| r.mailbox()).unwrap();
    if !stage.has_polls() {
        mailbox.nudge();
        stage.io.turn(Wait::Forever).unwrap();
        return assert!(stage.io.with_reactor(|r| r.take_nudge()));
    }
    for _ in 0..50 {
        std::thread::scope(|scope| {
            scope.spawn(|| mailbox.nudge());
            while !stage.io.with_reactor(|r| r.take_nudge()) {
                stage.io.turn(Wait::Forever).unwrap();
            }
        });
    }
}

pub fn the_clock_never_goes_back(stage: &Stage) {
    let mut last = stage.io.now_us();
    for _ in 0..50 {
        stage.result(Op::Nop);
        let now = stage.io.now_us();
        assert!(now >= last);
        last = now;
    }
    assert_ne!((stage.io.random(), stage.io.random()), (0, 0));
}
