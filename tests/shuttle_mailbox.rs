//! The mailbox under explored schedules: no letter is lost, doubled or out of order, and nobody sleeps through one.
//!
//! `cargo test --features shuttle --test shuttle_mailbox`; SHUTTLE_SCHEDULES says how many schedules each test tries.
#![cfg(feature = "shuttle")]

use iouring_engine::base::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use iouring_engine::base::sync::{Arc, thread};
use iouring_engine::ring::completion::Token;
use iouring_engine::ring::mailbox::{Letter, Mailbox};

const SENDERS: i32 = 3;
const LETTERS: i32 = 3;

fn explore(body: impl Fn() + Send + Sync + 'static) {
    let schedules =
        std::env::var("SHUTTLE_SCHEDULES").ok().map(|n| n.parse().expect("SHUTTLE_SCHEDULES is a number"));
    let schedules = schedules.unwrap_or(2_000);
    let body = std::sync::Arc::new(body);
    let random = body.clone();
    // Both print the schedule that failed.
    shuttle::check_random(move || random(), schedules / 2);
    shuttle::check_pct(move || body(), schedules.div_ceil(2), 3);
}

/// Sleeps as an owner does: until the eventfd is rung. When every sender has ended and it wasn't, nobody ever will.
fn sleep(mailbox: &Mailbox, ended: &AtomicUsize, senders: usize) {
    while !mailbox.take_ring() {
        let over = ended.load(SeqCst) == senders;
        assert!(!over || mailbox.take_ring(), "asleep, and nobody is left to ring");
        if over {
            return;
        }
        thread::yield_now();
    }
}

#[test]
fn an_owner_that_sleeps_between_letters_gets_each_once_in_its_senders_order() {
    explore(|| {
        let mailbox = Arc::new(Mailbox::new().expect("an eventfd can be had"));
        let ended = Arc::new(AtomicUsize::new(0));
        for sender in 0..SENDERS {
            let (mailbox, ended) = (mailbox.clone(), ended.clone());
            thread::spawn(move || {
                (0..LETTERS)
                    .for_each(|i| mailbox.send(Letter { token: Token::NONE, result: sender * 100 + i }));
                ended.fetch_add(1, SeqCst);
            });
        }
        let mut next = [0, 100, 200];
        let mut count = 0;
        loop {
            for Letter { result, .. } in mailbox.take() {
                let place = &mut next[result as usize / 100];
                assert_eq!(*place, result, "out of order, lost or twice");
                *place += 1;
                count += 1;
            }
            if count == SENDERS * LETTERS {
                break;
            }
            if mailbox.fall_asleep() {
                sleep(&mailbox, &ended, SENDERS as usize);
            }
            mailbox.wake_up();
        }
        assert!(mailbox.take().is_empty());
    });
}

#[test]
fn an_owner_that_stays_asleep_for_its_host_is_rung_for_whatever_comes() {
    // As when a host watches the descriptor: the owner doesn't wake itself before it looks.
    explore(|| {
        let mailbox = Arc::new(Mailbox::new().expect("an eventfd can be had"));
        let ended = Arc::new(AtomicUsize::new(0));
        for sender in 0..SENDERS {
            let (mailbox, ended) = (mailbox.clone(), ended.clone());
            thread::spawn(move || {
                if sender == 0 {
                    mailbox.nudge()
                } else {
                    mailbox.send(Letter { token: Token::NONE, result: 0 })
                }
                ended.fetch_add(1, SeqCst);
            });
        }
        let (mut letters, mut nudges) = (0, 0);
        while letters + nudges < SENDERS as usize {
            if mailbox.fall_asleep() {
                sleep(&mailbox, &ended, SENDERS as usize);
            }
            letters += mailbox.take().len();
            nudges += usize::from(mailbox.take_nudge());
        }
        assert_eq!((letters, nudges), (SENDERS as usize - 1, 1));
    });
}
