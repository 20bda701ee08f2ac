//! Registered buffers, and memory under operations when their ring goes away.

use super::*;
use crate::base::Error;
use crate::base::memory::{PAGE, Region};
use crate::ring::op::Timespec;
use crate::ring::options::Allowed;
use crate::ring::reactor::{Reactor, Sink};
use crate::ring::uring::Uring;
use std::sync::Arc;

fn address(buf: &Buf) -> (usize, usize) {
    (buf.as_ptr() as usize, buf.len())
}

fn part(region: &Arc<Region>, offset: usize, len: usize) -> Buf {
    // SAFETY: the tests use each range for one operation at a time and look at it only after its completion, or
    // through copies made by `snapshot`.
    unsafe { Buf::part(region, offset, len) }
}

#[test]
fn a_refused_buffer_is_named_with_what_it_missed() {
    let (mut driver, _) = bound(&options(SetupFlags::empty(), 8));
    let good = Buf::zeroed(PAGE).unwrap();
    let unmapped = 0x10_0000_0000usize + 17;
    for (bad, words) in [
        (
            (unmapped, 100),
            vec!["0x1000000011", "100 bytes", "17 bytes behind a multiple of 4096", "not all of that"],
        ),
        ((good.as_ptr() as usize, 0), vec!["0 bytes", "it has no bytes", "aligned to 4096"]),
        ((good.as_ptr() as usize, (1 << 30) + 1), vec!["1 GiB"]),
    ] {
        let error = driver.register_buffers(&[address(&good), (0, 0), bad, address(&good)]).unwrap_err();
        assert!(matches!(error.errno(), Some(libc::EFAULT | libc::EINVAL)), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("buffer 2 at"), "{text}");
        words.iter().for_each(|word| assert!(text.contains(word), "{text:?} lacks {word:?}"));
        assert_eq!(
            driver.set_buffer(0, address(&good)).unwrap_err().code(),
            -libc::EINVAL,
            "there is no table"
        );
    }
    // And nothing is left in the way of a good table.
    driver.register_buffers(&[address(&good)]).unwrap();
    let again = driver.register_buffers(&[address(&good)]).unwrap_err();
    assert_eq!(again.errno(), Some(libc::EBUSY));
    let error = driver.set_buffer(0, (unmapped, 100)).unwrap_err().to_string();
    assert!(error.contains("buffer 0 at 0x1000000011"), "{error}");
}

#[test]
fn a_transfer_uses_its_registered_buffer_and_a_hole_is_none() {
    // READ_FIXED alone would be told apart by a restriction: both are allowed here, so ask the table.
    let (mut driver, _) = bound(&RingOptions { allowed: Allowed::READ, ..options(SetupFlags::RESTRICT, 8) });
    let file = memory_file(b"0123456789");
    let region = Region::new(4 * PAGE).unwrap();
    let whole = region.as_ptr() as usize;
    driver.register_buffers(&[(whole, PAGE), (0, 0), (whole + 2 * PAGE, PAGE)]).unwrap();
    let read = |offset_in_region, index| Op::Read {
        target: Target::File(file.clone()),
        buf: part(&region, offset_in_region, 4),
        offset: 3,
        buffer_index: Some(index),
    };
    for (op, result) in [
        (read(8, 0), 4),
        // Outside the registered buffer: the kernel looked at the table.
        (read(PAGE, 0), -libc::EFAULT),
        (read(PAGE, 1), 4),
        (read(PAGE, 9), 4),
        (read(2 * PAGE, 2), 4),
    ] {
        assert!(driver.push(&[single(1, &op)]));
        assert_eq!(reap(&mut driver, 1)[0].result, result, "{op:?}");
    }
}

#[test]
fn a_replaced_buffer_is_let_go_when_its_last_operation_has_ended() {
    let (mut driver, _) = bound(&options(SetupFlags::empty(), 8));
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let region = Region::new(2 * PAGE).unwrap();
    let first = region.as_ptr() as usize;
    driver.register_buffers(&[(first, PAGE)]).unwrap();
    let pinned = driver.pinned_bytes();
    let target = Target::File(File::from_fd(reader));
    let op = Op::Read { target, buf: part(&region, 0, 4), offset: 0, buffer_index: Some(0) };
    assert!(driver.push(&[single(1, &op)]));
    driver.enter(Wait::No).unwrap();
    driver.set_buffer(0, (first + PAGE, PAGE)).unwrap();
    assert_eq!(driver.pinned_bytes(), pinned);
    let releasing = |driver: &mut Driver| {
        let _ = (driver.enter(Wait::No), driver.next());
        let Driver::Uring(uring) = &*driver else { panic!("it is a uring") };
        uring.buffers_releasing()
    };
    assert_eq!(releasing(&mut driver), 1, "the read still has it");
    rustix::io::write(&writer, b"late").unwrap();
    assert_eq!(reap(&mut driver, 1)[0].result, 4);
    assert_eq!(op.buf().unwrap().as_slice(), b"late");
    let end = driver.now_us() + 20_000_000;
    while releasing(&mut driver) > 0 {
        assert!(driver.now_us() < end, "the kernel keeps the replaced buffer");
    }
    driver.set_buffer(0, (0, 0)).unwrap();
    assert_eq!(driver.pinned_bytes(), pinned - PAGE as u64);
}

/// A file of 64 MiB beside the test program, open for direct I/O, without a name.
fn direct_file() -> File {
    use std::os::unix::fs::OpenOptionsExt;
    let dir = std::env::current_exe().unwrap();
    let path = dir.with_file_name(format!("direct-reads-{}", std::process::id()));
    std::fs::write(&path, vec![0x5a; 64 << 20]).unwrap();
    let file = std::fs::OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    file.sync_all().unwrap();
    File::from_fd(file.into())
}

fn snapshot(region: &Region) -> Vec<u8> {
    // SAFETY: the region's bytes are initialised; a write that races with this copy is what the test looks for.
    unsafe { std::slice::from_raw_parts(region.as_ptr(), region.len()) }.to_vec()
}

#[test]
fn dropping_a_ring_waits_for_direct_reads_of_64_mib() {
    const PIECE: usize = 1 << 20;
    let file = direct_file();
    // A thread that is kept from the processor may find its reads done: such a round shows nothing.
    let (mut shown, mut round) = (0, 0);
    while shown < 3 {
        round += 1;
        assert!(round < 50, "nothing was ever under way at the drop, so nothing was tested");
        let (driver, _) = open_driver(&options(SetupFlags::empty(), 128)).unwrap();
        let mut reactor = Reactor::new(driver);
        let region = Region::new(64 * PIECE).unwrap();
        for n in 0..64 {
            let buf = part(&region, n * PIECE, PIECE);
            let target = Target::File(file.clone());
            let op = Op::Read { target, buf, offset: (n * PIECE) as u64, buffer_index: None };
            reactor.submit(op, Sink::Orphan);
        }
        reactor.turn(Wait::No).unwrap();
        let under_way = reactor.in_driver();
        drop(reactor);
        let after = snapshot(&region);
        assert_eq!(Arc::strong_count(&region), 1, "drained, so the memory was given back");
        std::thread::sleep(std::time::Duration::from_millis(30));
        assert!(after == snapshot(&region), "round {round}: the kernel wrote after the drop");
        shown += usize::from(under_way > 0);
    }
}

/// Moves a value to another thread, as a C caller's handle would be.
struct Carried<T>(T);
// SAFETY: the thread that had the value has ended when the other one uses it.
unsafe impl<T> Send for Carried<T> {}

#[test]
fn a_ring_whose_owner_has_ended_leaks_what_is_in_flight() {
    let region = Region::new(PAGE).unwrap();
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let target = Target::File(File::from_fd(reader));
    let carried = {
        let region = Carried(part(&region, 0, 16));
        let owner = std::thread::spawn(move || {
            let region = region;
            let (driver, _) = open_driver(&options(SetupFlags::empty(), 8)).unwrap();
            let mut reactor = Reactor::new(driver);
            let op = Op::Read { target, buf: region.0, offset: 0, buffer_index: None };
            reactor.submit(op, Sink::Orphan);
            reactor.turn(Wait::No).unwrap();
            Carried(reactor)
        });
        owner.join().unwrap()
    };
    assert_eq!(Arc::strong_count(&region), 2);
    drop(carried);
    assert_eq!(Arc::strong_count(&region), 2, "kept, because the kernel may still write there");
    drop(writer);
}

#[test]
fn another_thread_is_told_that_the_ring_is_not_its_own() {
    let (mut uring, _) = Uring::open(&options(SetupFlags::empty(), 8)).unwrap();
    uring.bind().unwrap();
    let op = Op::Timeout { after: Timespec::from_us(1) };
    assert!(uring.push(&[single(1, &op)]));
    let carried = Carried(uring);
    let other = std::thread::spawn(move || {
        let mut carried = carried;
        let uring = &mut carried.0;
        for error in [
            uring.enter(Wait::No).unwrap_err(),
            uring.notifier().unwrap_err(),
            uring.make_slots(1).unwrap_err(),
            uring.register_buffers(&[(0, 0)]).unwrap_err(),
        ] {
            assert!(matches!(&error, Error::WrongThread(text) if text.contains("thread")), "{error:?}");
        }
        carried
    });
    let mut uring = other.join().unwrap().0;
    uring.enter(Wait::Us(20_000_000)).unwrap();
    assert_eq!(uring.next().unwrap().result, -libc::ETIME);
}

#[test]
fn a_ring_may_be_opened_on_one_thread_and_used_on_another() {
    let (mut uring, _) = Uring::open(&options(SetupFlags::empty(), 8)).unwrap();
    uring.make_slots(1).unwrap();
    uring.notifier().unwrap();
    let carried = Carried(uring);
    let user = std::thread::spawn(move || {
        let mut carried = carried;
        carried.0.bind().unwrap();
        assert!(carried.0.push(&[single(1, &Op::Nop)]));
        carried.0.enter(Wait::Us(20_000_000)).unwrap();
        assert_eq!(carried.0.next(), Some(Completion::last(token(1), 0)));
    });
    user.join().unwrap();
}
