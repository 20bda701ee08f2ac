//! The two queues: whole chains, links, overflow, entries written whole, continuing behind what is done.

use super::*;
use crate::ring::op::Timespec;

const CANCELED: i32 = -libc::ECANCELED;

fn nop(n: u32, link: Link) -> Entry<'static> {
    Entry { link, ..single(n, &Op::Nop) }
}

fn write_op(file: &File, bytes: &[u8], offset: u64, dsync: bool) -> Op {
    let buf = Buf::copied(bytes).unwrap();
    Op::Write { target: Target::File(file.clone()), buf, offset, buffer_index: None, dsync }
}

fn contents(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    let count = rustix::io::pread(file.os(), &mut bytes[..], 0).unwrap();
    bytes.truncate(count);
    bytes
}

fn result_of(completions: &[Completion], n: u32) -> i32 {
    completions.iter().find(|c| c.token == token(n)).unwrap().result
}

#[test]
fn a_chain_longer_than_what_is_left_waits_whole() {
    for flags in [SetupFlags::empty(), SetupFlags::SQPOLL, SetupFlags::COOP_TASKRUN] {
        let (mut driver, _) = bound(&options(flags, 4));
        assert_eq!(driver.capacity(), 4);
        assert!(driver.push(&[nop(0, Link::None)]));
        let chain: Vec<_> = (1..=4).map(|n| nop(n, Link::Soft)).collect();
        assert!(!driver.push(&chain), "four don't fit beside one");
        assert!(driver.more());
        driver.enter(Wait::No).unwrap();
        // The refused chain left no trace, and now there is room for all of it.
        assert!(driver.push(&chain), "{}", flags.names());
        let completions = reap(&mut driver, 5);
        assert!(completions.iter().all(|c| c.result == 0 && !c.more));
        assert_eq!(driver.next(), None);
    }
}

#[test]
fn the_last_link_of_a_chain_does_not_tie_in_the_next_chain() {
    let (mut driver, _) = bound(&options(SetupFlags::empty(), 8));
    let bad = Op::Fsync { target: Target::Foreign(-1), data_only: true };
    let fails = Entry { link: Link::Soft, ..single(0, &bad) };
    assert!(driver.push(&[fails]));
    assert!(driver.push(&[nop(1, Link::None)]));
    let completions = reap(&mut driver, 2);
    assert_eq!(result_of(&completions, 0), -libc::EBADF);
    assert_eq!(result_of(&completions, 1), 0);
}

#[test]
fn a_soft_link_breaks_where_a_hard_link_holds() {
    let (mut driver, _) = bound(&options(SetupFlags::empty(), 8));
    let file = memory_file(b"abc");
    for (link, then) in [(Link::Soft, CANCELED), (Link::Hard, 0)] {
        // Short at end of file, which breaks a soft link as an error does.
        let short = read_op(&file, 16, 0);
        let sync = Op::Fsync { target: Target::File(file.clone()), data_only: true };
        assert!(driver.push(&[Entry { link, ..single(0, &short) }, single(1, &sync)]));
        let completions = reap(&mut driver, 2);
        assert_eq!((result_of(&completions, 0), result_of(&completions, 1)), (3, then), "{link:?}");
    }
}

#[test]
fn a_transfer_goes_on_behind_what_is_done() {
    let (mut driver, _) = bound(&options(SetupFlags::empty(), 8));
    let file = memory_file(b"0123456789");
    let op = read_op(&file, 6, 2);
    assert!(driver.push(&[Entry { done: 2, ..single(0, &op) }]));
    assert_eq!(reap(&mut driver, 1)[0].result, 4);
    assert_eq!(op.buf().unwrap().as_slice(), b"\0\x004567");
    let op = write_op(&file, b"ABCDEF", 2, true);
    assert!(driver.push(&[Entry { done: 3, ..single(0, &op) }]));
    assert_eq!(reap(&mut driver, 1)[0].result, 3);
    assert_eq!(contents(&file), b"01234DEF89");
}

#[test]
fn a_place_in_the_queue_keeps_nothing_of_its_earlier_use() {
    let (mut driver, _) = bound(&options(SetupFlags::empty(), 1));
    let file = memory_file(b"0123456789");
    driver.make_slots(2).unwrap();
    driver.set_slot(1, Some(file.raw_fd())).unwrap();
    // One entry, so each of these takes the place of the one before.
    let mut n = 1000;
    for _ in 0..3 {
        let slot =
            Op::Read { target: Target::Slot(1), buf: Buf::zeroed(3).unwrap(), offset: 7, buffer_index: None };
        let fsync = Op::Fsync { target: Target::File(file.clone()), data_only: true };
        let plain = read_op(&file, 5, 0);
        let write = write_op(&file, b"0", 0, true);
        for (op, result) in [(&slot, 3), (&Op::Nop, 0), (&fsync, 0), (&plain, 5), (&write, 1)] {
            assert!(driver.push(&[single(n, op)]));
            assert_eq!(reap(&mut driver, 1), [Completion::last(token(n), result)]);
            n += 1;
        }
    }
}

#[test]
fn completions_that_overflow_are_all_there_and_counted() {
    for flags in
        [SetupFlags::empty(), SetupFlags::SQPOLL, SetupFlags::COOP_TASKRUN, SetupFlags::SINGLE_ISSUER]
    {
        let (mut driver, _) = bound(&RingOptions { cq_entries: 4, ..options(flags, 4) });
        let mut pushed = 0;
        // Fifteen queues full, and nothing reaped meanwhile.
        while pushed < 60 {
            if driver.push(&[nop(pushed, Link::None)]) {
                pushed += 1;
            } else {
                driver.enter(Wait::No).unwrap();
            }
        }
        let mut names: Vec<u32> = reap(&mut driver, 60).iter().map(|c| c.token.index).collect();
        names.sort_unstable();
        assert!(names.into_iter().eq(0..60), "{}", flags.names());
        assert_eq!(driver.next(), None);
        let Driver::Uring(uring) = &driver else { panic!("it is a uring") };
        assert!(uring.overflows() > 0, "{}", flags.names());
        assert!(!driver.more());
    }
}

#[test]
fn a_timeout_ends_with_etime_and_a_cancelled_one_at_once() {
    let (mut driver, _) = bound(&options(SetupFlags::empty(), 8));
    let short = Op::Timeout { after: Timespec::from_us(2_000) };
    let long = Op::Timeout { after: Timespec::from_us(3_600_000_000) };
    assert!(driver.push(&[single(0, &short)]));
    assert!(driver.push(&[single(1, &long)]));
    assert_eq!(reap(&mut driver, 1), [Completion::last(token(0), -libc::ETIME)]);
    driver.cancel(token(1));
    // Unknown: ignored.
    driver.cancel(token(77));
    assert_eq!(reap(&mut driver, 1), [Completion::last(token(1), CANCELED)]);
    driver.enter(Wait::No).unwrap();
    assert_eq!(driver.next(), None, "the cancel itself completes for nobody");
}

#[test]
fn more_cancels_than_the_queue_has_entries_all_arrive() {
    let (mut driver, _) = bound(&options(SetupFlags::empty(), 4));
    let ops: Vec<Op> = (0..64).map(|_| Op::Timeout { after: Timespec::from_us(3_600_000_000) }).collect();
    for (n, op) in ops.iter().enumerate() {
        while !driver.push(&[single(n as u32, op)]) {
            driver.enter(Wait::No).unwrap();
        }
    }
    driver.enter(Wait::No).unwrap();
    (0..64).for_each(|n| driver.cancel(token(n)));
    assert!(reap(&mut driver, 64).iter().all(|c| c.result == CANCELED));
}

#[test]
fn a_link_timeout_cancels_what_takes_too_long() {
    let (mut driver, _) = bound(&options(SetupFlags::empty(), 8));
    let (reader, _writer) = rustix::pipe::pipe().unwrap();
    let poll = Op::Poll {
        target: Target::File(File::from_fd(reader)),
        events: libc::POLLIN as u32,
        multishot: false,
    };
    let limit = Op::LinkTimeout { after: Timespec::from_us(2_000) };
    assert!(driver.push(&[Entry { link: Link::Soft, ..single(0, &poll) }, single(1, &limit)]));
    let completions = reap(&mut driver, 2);
    assert_eq!((result_of(&completions, 0), result_of(&completions, 1)), (CANCELED, -libc::ETIME));
}

#[test]
fn a_multishot_poll_goes_on_until_it_is_cancelled() {
    let (mut driver, _) = bound(&options(SetupFlags::empty(), 8));
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let target = Target::File(File::from_fd(reader));
    let poll = Op::Poll { target, events: libc::POLLIN as u32, multishot: true };
    assert!(driver.push(&[single(0, &poll)]));
    driver.enter(Wait::No).unwrap();
    for _ in 0..3 {
        rustix::io::write(&writer, b"x").unwrap();
        let completion = reap(&mut driver, 1)[0];
        assert!(completion.more && completion.result & i32::from(libc::POLLIN) != 0, "{completion:?}");
    }
    driver.cancel(token(0));
    assert_eq!(reap(&mut driver, 1), [Completion::last(token(0), CANCELED)]);
}

#[test]
fn a_slot_is_cleared_in_its_place_in_a_chain() {
    let (mut driver, _) = bound(&options(SetupFlags::empty(), 8));
    let file = memory_file(b"0123456789");
    driver.make_slots(4).unwrap();
    driver.set_slot(2, Some(file.raw_fd())).unwrap();
    let read =
        || Op::Read { target: Target::Slot(2), buf: Buf::zeroed(4).unwrap(), offset: 0, buffer_index: None };
    let (before, close, after) = (read(), Op::CloseSlot { slot: 2 }, read());
    assert!(driver.push(&[
        Entry { link: Link::Soft, ..single(0, &before) },
        Entry { link: Link::Hard, ..single(1, &close) },
        single(2, &after),
    ]));
    let completions = reap(&mut driver, 3);
    let results = [0, 1, 2].map(|n| result_of(&completions, n));
    assert_eq!(results, [4, 0, -libc::EBADF]);
    // And it can be filled again.
    driver.set_slot(2, Some(file.raw_fd())).unwrap();
    assert!(driver.push(&[single(3, &after)]));
    assert_eq!(reap(&mut driver, 1)[0].result, 4);
    assert!(driver.set_slot(4, Some(file.raw_fd())).is_err(), "there are four slots");
    assert_eq!(driver.set_slot(0, Some(9999)).unwrap_err().errno(), Some(libc::EBADF));
}

#[test]
fn a_wait_ends_at_its_time_and_without_operations() {
    for flags in [SetupFlags::empty(), SetupFlags::SQPOLL, SetupFlags::COOP_TASKRUN] {
        let (mut driver, _) = bound(&options(flags, 8));
        let start = driver.now_us();
        driver.enter(Wait::Us(3_000)).unwrap();
        assert!(driver.now_us() - start >= 3_000);
        assert_eq!(driver.next(), None);
        // The wait that also submits tells the end of its time from a signal.
        let op = Op::Timeout { after: Timespec::from_us(3_600_000_000) };
        assert!(driver.push(&[single(0, &op)]));
        driver.enter(Wait::Us(3_000)).unwrap();
        driver.cancel(token(0));
        assert_eq!(reap(&mut driver, 1)[0].result, CANCELED);
    }
}
