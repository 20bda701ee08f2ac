//! A ring locked to the operations it uses.

use super::*;
use crate::ring::op::Timespec;
use crate::ring::options::Allowed;

fn restricted(allowed: Allowed) -> (Driver, Granted) {
    let options = RingOptions { allowed, ..options(SetupFlags::RESTRICT, 8) };
    bound(&options)
}

#[test]
fn what_is_not_allowed_completes_with_eacces() {
    let file = memory_file(b"0123456789");
    let target = || Target::File(file.clone());
    let ops = [
        (Allowed::NOP, Op::Nop, 0),
        (Allowed::READ, read_op(&file, 4, 0), 4),
        (
            Allowed::WRITE,
            Op::Write {
                target: target(),
                buf: Buf::copied(b"01").unwrap(),
                offset: 0,
                buffer_index: None,
                dsync: true,
            },
            2,
        ),
        (Allowed::FSYNC, Op::Fsync { target: target(), data_only: false }, 0),
        (Allowed::FDATASYNC, Op::Fsync { target: target(), data_only: true }, 0),
        (Allowed::TIMEOUT, Op::Timeout { after: Timespec::from_us(1) }, -libc::ETIME),
        (
            Allowed::POLL,
            Op::Poll { target: target(), events: libc::POLLIN as u32, multishot: false },
            i32::from(libc::POLLIN),
        ),
    ];
    for (allowed, ..) in &ops {
        let (mut driver, granted) = restricted(*allowed);
        assert!(granted.flags.contains(SetupFlags::RESTRICT));
        assert_eq!(granted.allowed, *allowed);
        for (kind, op, result) in &ops {
            assert!(driver.push(&[single(1, op)]));
            let got = reap(&mut driver, 1)[0].result;
            let wanted = if allowed == kind { *result } else { -libc::EACCES };
            assert_eq!(got, wanted, "{op:?} where {allowed:?} is allowed");
        }
    }
}

#[test]
fn a_restricted_ring_still_has_links_slots_buffers_a_descriptor_and_cancels() {
    let (mut driver, _) = restricted(Allowed::READ | Allowed::TIMEOUT);
    let file = memory_file(b"0123456789");
    driver.make_slots(2).unwrap();
    driver.set_slot(1, Some(file.raw_fd())).unwrap();
    let pool = Buf::zeroed(4096).unwrap();
    driver.register_buffers(&[(pool.as_ptr() as usize, pool.len())]).unwrap();
    driver.notifier().unwrap();
    let read = |buf| Op::Read { target: Target::Slot(1), buf, offset: 2, buffer_index: Some(0) };
    // SAFETY: both reads write the same bytes into memory that outlives them.
    let part = || unsafe { Buf::outside(std::ptr::NonNull::new(pool.as_ptr()).unwrap(), 4) };
    let (first, second) = (read(part()), read(part()));
    assert!(driver.push(&[Entry { link: Link::Soft, ..single(0, &first) }, single(1, &second)]));
    assert!(reap(&mut driver, 2).iter().all(|c| c.result == 4));
    assert_eq!(&pool.as_slice()[..4], b"2345");
    let timer = Op::Timeout { after: Timespec::from_us(3_600_000_000) };
    assert!(driver.push(&[single(2, &timer)]));
    driver.enter(Wait::No).unwrap();
    driver.cancel(token(2));
    assert_eq!(reap(&mut driver, 1)[0].result, -libc::ECANCELED);
    let mailbox = rustix::event::eventfd(1, rustix::event::EventfdFlags::NONBLOCK).unwrap();
    driver.watch_mailbox(std::os::fd::AsRawFd::as_raw_fd(&mailbox)).unwrap();
    driver.enter(Wait::Us(20_000_000)).unwrap();
    assert_eq!(driver.next(), None);
    assert_eq!(
        rustix::io::read(&mailbox, &mut [0u8; 8]),
        Err(rustix::io::Errno::AGAIN),
        "the driver has read it"
    );
}
