//! Every set-up flag: it works, or the open says why not.

use super::*;
use crate::base::Error;
use crate::ring::driver::Kind;
use crate::ring::options::Allowed;

fn reads_a_file(driver: &mut Driver) {
    let file = memory_file(b"0123456789");
    let op = read_op(&file, 4, 3);
    assert!(driver.push(&[single(7, &op)]));
    assert_eq!(reap(driver, 1), [Completion::last(token(7), 4)]);
    assert_eq!(op.buf().unwrap().as_slice(), b"3456");
}

#[test]
fn a_ring_without_flags_has_one_issuer_and_deferred_work() {
    let (mut driver, granted) = bound(&options(SetupFlags::empty(), 8));
    assert_eq!(granted.kind, Kind::Uring);
    assert!(granted.flags.contains(SetupFlags::SINGLE_ISSUER | SetupFlags::DEFER_TASKRUN));
    assert_eq!((granted.entries, granted.cq_entries), (8, 32));
    reads_a_file(&mut driver);
}

#[test]
fn every_combination_reads_or_names_what_it_breaks() {
    let all = SetupFlags::TASK_WORK | SetupFlags::SUBMIT_ALL | SetupFlags::CQSIZE;
    let mut works = 0;
    for bits in 0..=all.bits() {
        let Some(flags) = SetupFlags::from_bits(bits).filter(|flags| all.contains(*flags)) else { continue };
        let options = RingOptions { cq_entries: 16, ..options(flags, 4) };
        match (flags.conflict(), open_driver(&options)) {
            (Some(text), Err(Error::Invalid(said))) => assert_eq!(said, text, "{}", flags.names()),
            (None, Ok((mut driver, granted))) => {
                driver.bind().unwrap();
                assert!(granted.flags.contains(flags), "{} became {}", flags.names(), granted.flags.names());
                assert_eq!(granted.cq_entries, 16);
                reads_a_file(&mut driver);
                works += 1;
            }
            (conflict, outcome) => panic!("{}: {conflict:?}, {outcome:?}", flags.names()),
        }
    }
    assert!(works >= 30, "only {works} combinations work");
}

#[test]
fn a_flag_without_its_argument_is_refused_by_name() {
    for (flags, name) in [
        (SetupFlags::SQPOLL | SetupFlags::SQ_AFF, "SQ_AFF"),
        (SetupFlags::ATTACH, "ATTACH"),
        (SetupFlags::CQSIZE, "CQSIZE"),
        (SetupFlags::RESTRICT, "RESTRICT"),
    ] {
        match open_driver(&options(flags, 4)) {
            Err(Error::Invalid(text)) => assert!(text.contains(name), "{text}"),
            other => panic!("{name}: {other:?}"),
        }
    }
    assert!(matches!(open_driver(&options(SetupFlags::empty(), 0)), Err(Error::Invalid(_))));
    let few = RingOptions { cq_entries: 2, ..options(SetupFlags::empty(), 4) };
    assert!(matches!(open_driver(&few), Err(Error::Invalid(_))));
}

#[test]
fn wanted_flags_that_cannot_be_had_are_dropped_with_their_reason() {
    let wanted = SetupFlags::SQPOLL | SetupFlags::SUBMIT_ALL | SetupFlags::ATTACH;
    let options = RingOptions { flags_wanted: wanted, ..options(SetupFlags::DEFAULT, 4) };
    let (mut driver, granted) = bound(&options);
    let dropped: SetupFlags = granted.dropped.iter().map(|d| d.flags).collect();
    assert_eq!(dropped, SetupFlags::SQPOLL | SetupFlags::ATTACH);
    assert!(granted.dropped[0].reason.contains("SQPOLL"), "{:?}", granted.dropped);
    assert!(granted.flags.contains(SetupFlags::SUBMIT_ALL | SetupFlags::DEFAULT));
    reads_a_file(&mut driver);
}

#[test]
fn the_polling_thread_stays_on_its_cpu_or_says_why_not() {
    let flags = SetupFlags::SQPOLL | SetupFlags::SQ_AFF;
    let on = |cpu| RingOptions { sqpoll_cpu: Some(cpu), sqpoll_idle_ms: 1, ..options(flags, 4) };
    let (mut driver, granted) = bound(&on(0));
    assert!(granted.flags.contains(flags));
    reads_a_file(&mut driver);
    // The thread falls asleep after a millisecond and has to be woken.
    std::thread::sleep(std::time::Duration::from_millis(20));
    reads_a_file(&mut driver);
    match open_driver(&on(100_000)) {
        Err(Error::Unsupported(text)) => assert!(text.contains("SQ_AFF") && text.contains("CPU"), "{text}"),
        other => panic!("{other:?}"),
    }
    let wanted = RingOptions { flags: SetupFlags::SQPOLL, flags_wanted: SetupFlags::SQ_AFF, ..on(100_000) };
    let (_, granted) = bound(&wanted);
    assert_eq!(granted.dropped.len(), 1);
    assert_eq!(granted.dropped[0].flags, SetupFlags::SQ_AFF);
}

#[test]
fn a_ring_attaches_to_another_ring_and_to_nothing_else() {
    let (first, _) = bound(&options(SetupFlags::empty(), 4));
    let Driver::Uring(first) = &first else { panic!("it is a uring") };
    let attach = |fd| RingOptions { attach_to: Some(fd), ..options(SetupFlags::ATTACH, 4) };
    let (mut driver, granted) = bound(&attach(first.ring_fd()));
    assert!(granted.flags.contains(SetupFlags::ATTACH));
    reads_a_file(&mut driver);
    match open_driver(&attach(memory_file(b"").raw_fd())) {
        Err(Error::Unsupported(text)) => assert!(text.contains("ATTACH"), "{text}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn napi_is_had_or_says_why_not() {
    match open_driver(&options(SetupFlags::NAPI, 4)) {
        Ok((mut driver, granted)) => {
            assert!(granted.flags.contains(SetupFlags::NAPI));
            driver.bind().unwrap();
            reads_a_file(&mut driver);
        }
        Err(Error::Unsupported(text)) => {
            assert!(text.contains("NAPI"), "{text}");
            let wanted = RingOptions { flags_wanted: SetupFlags::NAPI, ..options(SetupFlags::empty(), 4) };
            let (_, granted) = bound(&wanted);
            assert_eq!(granted.dropped[0].flags, SetupFlags::NAPI);
        }
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn a_polled_ring_refuses_timers_fsync_polls_and_wake_ups() {
    let (mut driver, granted) = bound(&options(SetupFlags::IOPOLL, 4));
    assert!(granted.flags.contains(SetupFlags::IOPOLL));
    let target = Target::File(memory_file(b""));
    let after = crate::ring::op::Timespec::from_us(1);
    for op in [
        Op::Fsync { target: target.clone(), data_only: true },
        Op::Timeout { after },
        Op::LinkTimeout { after },
        Op::Poll { target, events: 1, multishot: false },
    ] {
        assert!(matches!(driver.check(&op), Err(Error::Unsupported(_))), "{op:?}");
    }
    assert!(matches!(driver.notifier(), Err(Error::Unsupported(_))));
    assert!(matches!(driver.watch_mailbox(0), Err(Error::Unsupported(_))));
    assert!(matches!(driver.can_watch(), Err(Error::Unsupported(_))));
    assert_eq!(driver.check(&Op::Nop), Ok(()));
    // A read completes, with its bytes where the device has poll queues, else with the kernel's refusal.
    let file = memory_file(b"0123456789");
    let op = read_op(&file, 4, 3);
    assert!(driver.push(&[single(1, &op)]));
    let completion = reap(&mut driver, 1)[0];
    assert!(completion.result == 4 || completion.result == -libc::EOPNOTSUPP, "{completion:?}");
}

#[test]
fn only_io_uring_has_its_own_flags_so_auto_does_not_fall_back() {
    let posix = RingOptions { driver: Choice::Posix, ..options(SetupFlags::SQPOLL, 4) };
    match open_driver(&RingOptions { driver: Choice::Posix, ..posix }) {
        Err(Error::Unsupported(text)) => assert!(text.contains("SQPOLL"), "{text}"),
        other => panic!("{other:?}"),
    }
    let wanted = RingOptions {
        driver: Choice::Posix,
        flags_wanted: SetupFlags::SQPOLL | SetupFlags::DEFER_TASKRUN | SetupFlags::SINGLE_ISSUER,
        ..options(SetupFlags::empty(), 4)
    };
    let (_, granted) = open_driver(&wanted).unwrap();
    assert_eq!(granted.kind, Kind::Posix);
    assert_eq!(granted.flags, SetupFlags::empty());
    assert_eq!(granted.dropped.len(), 1);
    assert_eq!(granted.allowed, Allowed::empty());
}
