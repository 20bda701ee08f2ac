//! The descriptor for the host's loop, and waking from another thread, under every way of running completion work.

use super::*;
use crate::base::sync::atomic::{AtomicBool, Ordering};
use crate::ring::op::Timespec;
use rustix::event::{EventfdFlags, PollFd, PollFlags, epoll, eventfd, poll};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;

const MODES: [SetupFlags; 5] = [
    SetupFlags::empty(),
    SetupFlags::SINGLE_ISSUER,
    SetupFlags::COOP_TASKRUN,
    SetupFlags::COOP_TASKRUN.union(SetupFlags::TASKRUN_FLAG),
    SetupFlags::SQPOLL,
];

fn borrowed(fd: RawFd) -> BorrowedFd<'static> {
    // SAFETY: the tests use it while the driver that owns it lives.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

fn readable(fd: RawFd, ms: i64) -> bool {
    let fd = borrowed(fd);
    let timeout = rustix::event::Timespec { tv_sec: ms / 1000, tv_nsec: ms % 1000 * 1_000_000 };
    loop {
        // A plain ring's completion work interrupts the host's wait now and then.
        match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)) {
            Err(rustix::io::Errno::INTR) => {}
            other => return other.unwrap() == 1,
        }
    }
}

/// One turn in the order that the reactor keeps: read the descriptor, take what is there, enter while there is more.
fn turn(driver: &mut Driver) -> Vec<Completion> {
    driver.clear_notifier();
    let mut out: Vec<_> = std::iter::from_fn(|| driver.next()).collect();
    while driver.more() {
        driver.enter(Wait::No).unwrap();
        out.extend(std::iter::from_fn(|| driver.next()));
    }
    out
}

#[test]
fn the_descriptor_is_readable_when_a_completion_can_be_had_and_not_before() {
    for flags in MODES {
        let (mut driver, _) = bound(&options(flags, 8));
        let fd = driver.notifier().unwrap();
        assert_eq!(driver.notifier().unwrap(), fd, "one descriptor for good");
        let never = Op::Timeout { after: Timespec::from_us(3_600_000_000) };
        assert!(driver.push(&[single(0, &never)]));
        assert_eq!(turn(&mut driver), []);
        assert!(!readable(fd, 0), "{}: nothing has happened yet", flags.names());
        let soon = Op::Timeout { after: Timespec::from_us(30_000) };
        assert!(driver.push(&[single(1, &soon)]));
        let mut ended = turn(&mut driver);
        if ended.is_empty() {
            assert!(readable(fd, 10_000), "{}: the timer ended", flags.names());
            ended = turn(&mut driver);
        }
        assert_eq!(ended, [Completion::last(token(1), -libc::ETIME)], "{}", flags.names());
        turn(&mut driver);
        assert!(!readable(fd, 0), "{}: all has been taken", flags.names());
        driver.cancel(token(0));
        assert_eq!(reap(&mut driver, 1)[0].token, token(0));
    }
}

#[test]
fn nothing_is_stranded_between_reading_the_descriptor_and_draining() {
    for flags in MODES {
        let (mut driver, _) = bound(&options(flags, 64));
        let fd = driver.notifier().unwrap();
        let epoll_fd = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let edge = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&epoll_fd, borrowed(fd), epoll::EventData::new_u64(0), edge).unwrap();
        // Timers that end at moments of their own, so that some end inside a turn.
        let ops: Vec<Op> = (0..300u64).map(|n| Op::Timeout { after: Timespec::from_us(n * 37) }).collect();
        let mut done = 0;
        let mut waiting = ops.iter().enumerate().peekable();
        let end = driver.now_us() + 20_000_000;
        while done < ops.len() {
            assert!(driver.now_us() < end, "{}: stranded after {done}", flags.names());
            while waiting.next_if(|(n, op)| driver.push(&[single(*n as u32, op)])).is_some() {}
            done += turn(&mut driver).len();
            if done < ops.len() && waiting.peek().is_none() {
                let mut events = [epoll::Event { flags: edge, data: epoll::EventData::new_u64(0) }; 4];
                let wait = rustix::event::Timespec { tv_sec: 5, tv_nsec: 0 };
                match epoll::wait(&epoll_fd, &mut events[..], Some(&wait)) {
                    Err(rustix::io::Errno::INTR) => {}
                    other => assert_eq!(other, Ok(1), "{}: stranded after {done}", flags.names()),
                }
            }
        }
    }
}

#[test]
fn signalling_makes_an_edge_each_time() {
    let (mut driver, _) = bound(&options(SetupFlags::empty(), 8));
    driver.signal_notifier();
    let fd = driver.notifier().unwrap();
    assert!(!readable(fd, 0), "there was none to signal");
    for _ in 0..3 {
        driver.signal_notifier();
        assert!(readable(fd, 0));
    }
    driver.clear_notifier();
    assert!(!readable(fd, 0));
}

#[test]
fn a_write_to_the_mailbox_ends_a_wait_and_makes_the_descriptor_readable() {
    for flags in MODES {
        let (mut driver, _) = bound(&options(flags, 8));
        let mailbox = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap());
        driver.watch_mailbox(mailbox.as_raw_fd()).unwrap();
        let fd = driver.notifier().unwrap();
        for round in 0..3 {
            let written = Arc::new(AtomicBool::new(false));
            let sender = {
                let (mailbox, written) = (mailbox.clone(), written.clone());
                std::thread::spawn(move || {
                    std::thread::sleep(std::time::Duration::from_millis(5));
                    written.store(true, Ordering::SeqCst);
                    rustix::io::write(mailbox.as_fd(), &1u64.to_ne_bytes()).unwrap();
                })
            };
            // The driver takes the completion of its own poll and shows nothing of it.
            while !written.load(Ordering::SeqCst) {
                driver.enter(Wait::Us(20_000_000)).unwrap();
                assert_eq!(driver.next(), None);
            }
            sender.join().unwrap();
            driver.enter(Wait::Us(1_000)).unwrap();
            turn(&mut driver);
            assert!(
                !readable(mailbox.as_raw_fd(), 0),
                "{}, round {round}: the driver reads it",
                flags.names()
            );
            turn(&mut driver);
            rustix::io::write(mailbox.as_fd(), &1u64.to_ne_bytes()).unwrap();
            assert!(readable(fd, 10_000), "{}, round {round}", flags.names());
            turn(&mut driver);
        }
    }
}

#[test]
fn operations_ended_by_writes_to_eventfds_are_announced_each_time() {
    for flags in MODES {
        let (mut driver, _) = bound(&options(flags, 8));
        let fd = driver.notifier().unwrap();
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        let target = || Target::Foreign(eventfd.as_raw_fd());
        for round in 0..6 {
            let buf = Buf::zeroed(8).unwrap();
            let op = match round % 2 {
                0 => Op::Poll { target: target(), events: libc::POLLIN as u32, multishot: false },
                _ => Op::Read { target: target(), buf, offset: 0, buffer_index: None },
            };
            // The read needs what the poll leaves.
            let _ = rustix::io::read(&eventfd, &mut [0u8; 8]);
            rustix::fs::fcntl_setfl(&eventfd, rustix::fs::OFlags::empty()).unwrap();
            assert!(driver.push(&[single(round, &op)]));
            assert_eq!(turn(&mut driver), []);
            std::thread::sleep(std::time::Duration::from_millis(20));
            turn(&mut driver);
            rustix::io::write(&eventfd, &1u64.to_ne_bytes()).unwrap();
            assert!(readable(fd, 5_000), "{}: round {round} was not announced", flags.names());
            let mut completions = turn(&mut driver);
            completions.extend(reap(&mut driver, 1 - completions.len()));
            assert_eq!(completions[0].token, token(round), "{}", flags.names());
            turn(&mut driver);
            rustix::fs::fcntl_setfl(&eventfd, rustix::fs::OFlags::NONBLOCK).unwrap();
        }
    }
}

#[test]
fn a_signal_ends_a_wait_that_also_submits() {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: the handler does nothing, and no other test uses this signal.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR2, &action, std::ptr::null_mut()), 0);
    }
    let (mut driver, _) = bound(&options(SetupFlags::empty(), 8));
    // SAFETY: the calling thread.
    let me = unsafe { libc::pthread_self() } as usize;
    let waiting = Arc::new(AtomicBool::new(true));
    let sender = {
        let waiting = waiting.clone();
        std::thread::spawn(move || {
            while waiting.load(Ordering::SeqCst) {
                std::thread::sleep(std::time::Duration::from_millis(2));
                // SAFETY: the thread waits for this one's end below.
                unsafe { libc::pthread_kill(me as libc::pthread_t, libc::SIGUSR2) };
            }
        })
    };
    let op = Op::Timeout { after: Timespec::from_us(3_600_000_000) };
    for (n, wait) in [(0, Wait::Forever), (1, Wait::Us(60_000_000))] {
        assert!(driver.push(&[single(n, &op)]));
        assert_eq!(driver.enter(wait).unwrap_err().errno(), Some(libc::EINTR), "{wait:?}");
        assert_eq!(driver.enter(wait).unwrap_err().errno(), Some(libc::EINTR), "{wait:?}");
    }
    waiting.store(false, Ordering::SeqCst);
    sender.join().unwrap();
    driver.cancel(token(0));
    driver.cancel(token(1));
    assert!(reap(&mut driver, 2).iter().all(|c| c.result == -libc::ECANCELED));
}
