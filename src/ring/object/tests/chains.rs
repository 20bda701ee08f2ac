//! Queueing: whole chains, the open chain, links, cancelling, bad arguments.

use super::*;
use crate::base::error::code as codes;

#[test]
fn a_chain_stays_open_until_its_last_operation_is_there() {
    on_each_driver(|options| {
        let mut ring = open(options);
        assert_eq!(ring.queue(&[nop(OpFlags::LINK, 1)]).unwrap(), 1);
        ring.submit().unwrap();
        assert_eq!(ring.wait(0, 0).unwrap(), 0);
        assert_eq!(ring.reap(&mut [RingCompletion::EMPTY]).unwrap(), 0);
        // What is whole overtakes nothing and isn't held back.
        assert_eq!(
            ring.queue(&[nop(OpFlags::LINK, 2), nop(OpFlags::empty(), 3), nop(OpFlags::empty(), 4)]).unwrap(),
            3
        );
        assert_eq!(finish_sorted(&mut ring, 4), [(1, 0), (2, 0), (3, 0), (4, 0)]);
    });
}

#[test]
fn a_chain_longer_than_the_ring_is_refused_and_nothing_is_queued() {
    on_each_driver(|options| {
        let mut ring = open(options);
        let mut chain = vec![nop(OpFlags::LINK, 1); 16];
        chain.push(nop(OpFlags::empty(), 2));
        assert_eq!(code(ring.queue(&chain)), codes::TOO_LARGE);
        assert_eq!(ring.queue(&chain[..10]).unwrap(), 10);
        // With what is open it would be too long.
        assert_eq!(code(ring.queue(&chain[..7])), codes::TOO_LARGE);
        assert_eq!(ring.queue(&chain[16..]).unwrap(), 1);
        assert_eq!(finish(&mut ring, 11).len(), 11);
        assert_eq!(ring.in_flight(), 0);
        // The longest one fits exactly, also when the queue isn't empty.
        ring.queue(&[nop(OpFlags::empty(), 3)]).unwrap();
        ring.queue(&chain[1..]).unwrap();
        assert_eq!(finish(&mut ring, 17).len(), 17);
    });
}

#[test]
fn a_bad_operation_leaves_its_whole_call_out() {
    on_each_driver(|options| {
        let mut ring = open(options);
        let bad = RingOp { opcode: 99, ..nop(OpFlags::empty(), 2) };
        let error = ring.queue(&[nop(OpFlags::empty(), 1), bad]).unwrap_err();
        assert_eq!(error.code(), -libc::EINVAL);
        assert!(error.to_string().contains("operation 1 of 2"), "{error}");
        assert_eq!((ring.wait(0, 0).unwrap(), ring.in_flight()), (0, 0));
    });
}

#[test]
fn more_operations_than_entries_wait_inside_and_none_is_lost() {
    on_each_driver(|options| {
        let mut ring = open(options);
        for name in 0..500 {
            ring.queue(&[nop(OpFlags::LINK, name), nop(OpFlags::empty(), name)]).unwrap();
        }
        let items = finish_sorted(&mut ring, 1000);
        assert!(items.chunks(2).enumerate().all(|(name, two)| two == [(name as u64, 0); 2]));
    });
}

#[test]
fn a_short_read_in_a_chain_is_a_result_that_breaks_a_soft_link() {
    on_each_driver(|options| {
        for (link, last) in [(OpFlags::LINK, -libc::ECANCELED), (OpFlags::HARD_LINK, 0)] {
            let tables =
                TableOptions { file_slots: 1, buffer_count: 1, buffer_size: 100, ..Default::default() };
            let mut ring = open_with(options, &tables);
            let buffer = ring.acquire_buffer().unwrap();
            ring.set_file(Some(0), file(b"12345").as_raw_fd()).unwrap();
            ring.read(0, part(buffer.index, 0, 100), 0, link, 1).unwrap();
            ring.fsync(0, true, OpFlags::empty(), 2).unwrap();
            assert_eq!(finish_sorted(&mut ring, 2), [(1, 5), (2, last)]);
        }
    });
}

#[test]
fn read_write_sync_go_in_order_through_one_buffer() {
    on_each_driver(|options| {
        let tables = TableOptions { file_slots: 2, buffer_count: 1, buffer_size: 64, ..Default::default() };
        let mut ring = open_with(options, &tables);
        let buffer = ring.acquire_buffer().unwrap();
        let copy = file(b"");
        ring.set_file(Some(0), file(b"0123456789").as_raw_fd()).unwrap();
        ring.set_file(Some(1), copy.as_raw_fd()).unwrap();
        ring.read(0, part(buffer.index, 8, 10), 0, OpFlags::LINK, 1).unwrap();
        ring.write(1, part(buffer.index, 10, 8), 3, OpFlags::LINK | OpFlags::DSYNC, 2).unwrap();
        ring.fsync(1, false, OpFlags::empty(), 3).unwrap();
        assert_eq!(finish(&mut ring, 3), [(1, 10), (2, 8), (3, 0)]);
        let mut bytes = [0u8; 16];
        assert_eq!(rustix::io::pread(&copy, &mut bytes, 0).unwrap(), 11);
        assert_eq!(&bytes[..11], b"\0\0\x0023456789");
    });
}

#[test]
fn a_link_timeout_ends_its_operation() {
    on_each_driver(|options| {
        let mut ring = open(options);
        let (reader, writer) = pipe();
        let limited = RingOp { flags: OpFlags::RAW_FD | OpFlags::LINK, ..poll(&reader, 1) };
        let limit = |timeout_us| RingOp { timeout_us, ..op(opcode::LINK_TIMEOUT, 2) };
        ring.queue(&[limited.clone(), limit(1000)]).unwrap();
        assert_eq!(finish_sorted(&mut ring, 2), [(1, -libc::ECANCELED), (2, -libc::ETIME)]);
        rustix::io::write(&writer, b"x").unwrap();
        ring.queue(&[limited, limit(NEVER_US)]).unwrap();
        assert_eq!(finish_sorted(&mut ring, 2), [(1, i32::from(libc::POLLIN)), (2, -libc::ECANCELED)]);
    });
}

#[test]
fn a_cancel_reaches_all_of_that_name_and_has_no_completion() {
    on_each_driver(|options| {
        let mut ring = open(options);
        ring.queue(&[never(7), never(7), never(8)]).unwrap();
        ring.submit().unwrap();
        ring.queue(&[never(7)]).unwrap();
        assert_eq!(ring.queue(&[op(opcode::CANCEL, 7)]).unwrap(), 1);
        assert_eq!(finish(&mut ring, 3), [(7, -libc::ECANCELED); 3]);
        assert_eq!(ring.cancel(9).unwrap(), 0);
        assert_eq!(ring.cancel(8).unwrap(), 1);
        assert_eq!(finish(&mut ring, 1), [(8, -libc::ECANCELED)]);
        assert_eq!((ring.wait(0, 0).unwrap(), ring.in_flight()), (0, 0));
    });
}

#[test]
fn what_waits_for_room_can_be_cancelled() {
    on_each_driver(|options| {
        let mut ring = open(options);
        let ops: Vec<RingOp> = (0..100).map(|_| never(1)).collect();
        ring.queue(&ops).unwrap();
        assert_eq!(ring.cancel(1).unwrap(), 100);
        assert_eq!(finish(&mut ring, 100), [(1, -libc::ECANCELED); 100]);
    });
}

#[test]
fn an_operation_of_an_open_chain_can_be_cancelled() {
    on_each_driver(|options| {
        let mut ring = open(options);
        let (reader, _writer) = pipe();
        let first = RingOp { flags: OpFlags::RAW_FD | OpFlags::LINK, ..poll(&reader, 1) };
        ring.queue(&[first]).unwrap();
        assert_eq!(ring.cancel(1).unwrap(), 1);
        assert_eq!(ring.wait(0, 0).unwrap(), 0);
        ring.queue(&[nop(OpFlags::empty(), 2)]).unwrap();
        assert_eq!(finish_sorted(&mut ring, 2), [(1, -libc::ECANCELED), (2, -libc::ECANCELED)]);
    });
}

#[test]
fn a_multishot_poll_completes_again_until_it_is_cancelled() {
    on_each_driver(|options| {
        let mut ring = open(options);
        let (reader, writer) = pipe();
        let flags = OpFlags::RAW_FD | OpFlags::MULTISHOT;
        ring.queue(&[RingOp { flags, ..poll(&reader, 1) }]).unwrap();
        let mut out = [RingCompletion::EMPTY; 4];
        for _ in 0..3 {
            ring.submit().unwrap();
            rustix::io::write(&writer, b"x").unwrap();
            ring.wait(1, -1).unwrap();
            let count = ring.reap(&mut out).unwrap();
            assert!(count > 0);
            for item in &out[..count] {
                assert_eq!((item.user_data, item.flags), (1, completion_flags::MORE));
                assert!(item.result & i32::from(libc::POLLIN) != 0);
            }
            rustix::io::read(&reader, &mut [0u8; 8]).unwrap();
        }
        ring.cancel(1).unwrap();
        assert_eq!(finish(&mut ring, 1), [(1, -libc::ECANCELED)]);
    });
}

#[test]
fn bad_arguments_are_refused_by_name() {
    on_each_driver(|options| {
        let mut ring = open(options);
        let raw = |opcode, flags, slot_or_fd| RingOp { flags, slot_or_fd, ..op(opcode, 1) };
        let cases = [
            (nop(OpFlags::from_bits_retain(1 << 12), 1), "flags"),
            (nop(OpFlags::MULTISHOT, 1), "MULTISHOT"),
            (raw(opcode::POLL, OpFlags::MULTISHOT | OpFlags::LINK, 0), "MULTISHOT"),
            (nop(OpFlags::DSYNC, 1), "DSYNC"),
            (nop(OpFlags::RAW_FD, 1), "RAW_FD"),
            (nop(OpFlags::RAW_POINTER, 1), "RAW_POINTER"),
            (nop(OpFlags::SELECT_BUFFER, 1), "SELECT_BUFFER"),
            (raw(opcode::CANCEL, OpFlags::LINK, 0), "CANCEL"),
            (op(opcode::LINK_TIMEOUT, 1), "LINK_TIMEOUT"),
            (raw(opcode::FSYNC, OpFlags::empty(), -1), "slot -1"),
            (op(opcode::READ, 1), "without memory"),
            (RingOp { memory: part(0, 0, 1), ..op(opcode::READ, 1) }, "buffer 0"),
            (op(10, 1), "opcode 10"),
        ];
        for (asked, text) in cases {
            let error = ring.queue(&[asked]).unwrap_err();
            assert_eq!(error.code(), -libc::EINVAL, "{error}");
            assert!(error.to_string().contains(text), "{error} lacks {text}");
        }
        assert_eq!(code(ring.queue(&[raw(opcode::FSYNC, OpFlags::RAW_FD, -1)])), -libc::EBADF);
        let limits =
            [nop(OpFlags::LINK, 1), raw(opcode::LINK_TIMEOUT, OpFlags::LINK, 0), op(opcode::LINK_TIMEOUT, 1)];
        assert_eq!(code(ring.queue(&limits)), -libc::EINVAL);
        assert_eq!(ring.in_flight(), 0);
    });
}

#[test]
fn a_restricted_ring_refuses_what_is_not_allowed() {
    on_each_driver(|options| {
        let flags = options.flags | SetupFlags::RESTRICT;
        let allowed = Allowed::NOP | Allowed::TIMEOUT;
        let mut ring = open(&RingOptions { flags, allowed, ..options.clone() });
        let error = ring.queue(&[op(opcode::FSYNC, 1)]).unwrap_err();
        assert_eq!(error.code(), -libc::EACCES);
        ring.queue(&[nop(OpFlags::empty(), 1), never(2)]).unwrap();
        assert_eq!(finish(&mut ring, 1), [(1, 0)]);
        ring.cancel(2).unwrap();
        assert_eq!(finish(&mut ring, 1), [(2, -libc::ECANCELED)]);
    });
}
