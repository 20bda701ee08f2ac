//! File slots and registered buffers.

use super::*;
use crate::base::error::code as codes;
use crate::base::memory::Region;
use crate::base::sync;

fn with_buffers(options: &RingOptions, count: u32) -> RingObject {
    let tables = TableOptions { file_slots: 2, buffer_count: count, buffer_size: 4096, ..Default::default() };
    open_with(options, &tables)
}

fn own_memory(len: usize) -> CallerMemory {
    CallerMemory::part(&Region::new(len).unwrap(), 0, len).unwrap()
}

#[test]
fn slots_are_set_found_and_cleared() {
    on_each_driver(|options| {
        let mut ring = open(options);
        let content = file(b"abc");
        let fd = content.as_raw_fd();
        assert_eq!(ring.set_file(Some(1), fd).unwrap(), 1);
        assert_eq!([0, 2, 3].map(|_| ring.set_file(None, fd).unwrap()), [0, 2, 3]);
        assert_eq!(code(ring.set_file(None, fd)), codes::STALLED);
        assert_eq!(code(ring.set_file(Some(4), fd)), -libc::EINVAL);
        assert_eq!(code(ring.set_file(Some(0), -1)), -libc::EBADF);
        ring.clear_file(2).unwrap();
        assert_eq!(code(ring.clear_file(2)), codes::STALE);
        assert_eq!(code(ring.clear_file(9)), -libc::EINVAL);
        // The slot has a duplicate: the caller's descriptor may go.
        drop(content);
        ring.fsync(1, false, OpFlags::empty(), 1).unwrap();
        ring.fsync(2, false, OpFlags::empty(), 2).unwrap();
        assert_eq!(finish_sorted(&mut ring, 2), [(1, 0), (2, -libc::EBADF)]);
        assert_eq!(ring.set_file(None, file(b"").as_raw_fd()).unwrap(), 2);
    });
}

#[test]
fn a_slot_closed_in_a_chain_is_free_afterwards() {
    on_each_driver(|options| {
        let mut ring = open(options);
        for slot in 0..4 {
            ring.set_file(None, file(b"x").as_raw_fd()).unwrap();
            assert_eq!(ring.info().file_slots, 4, "{slot}");
        }
        let sync = RingOp { flags: OpFlags::LINK, slot_or_fd: 3, ..op(opcode::FSYNC, 1) };
        ring.queue(&[sync, RingOp { slot_or_fd: 3, ..op(opcode::CLOSE_SLOT, 2) }]).unwrap();
        assert_eq!(finish_sorted(&mut ring, 2), [(1, 0), (2, 0)]);
        assert_eq!(ring.set_file(None, file(b"").as_raw_fd()).unwrap(), 3);
    });
}

#[test]
fn a_ring_without_tables_says_so() {
    on_each_driver(|options| {
        let mut ring = open_with(options, &TableOptions::default());
        assert_eq!(code(ring.set_file(None, 0)), -libc::EINVAL);
        assert_eq!(code(ring.acquire_buffer()), codes::STALLED);
        assert_eq!(code(ring.release_buffer(0)), -libc::EINVAL);
        assert_eq!(code(ring.replace_buffer(0, None, 0)), -libc::EINVAL);
        assert_eq!((ring.info().file_slots, ring.info().buffer_count), (0, 0));
    });
}

#[test]
fn absurd_tables_are_refused() {
    on_each_driver(|options| {
        let refused = |tables| RingObject::open(options, &tables).err().map(|e| e.code());
        let tables = TableOptions::default();
        assert_eq!(refused(TableOptions { file_slots: u32::MAX, ..tables.clone() }), Some(codes::TOO_LARGE));
        assert_eq!(
            refused(TableOptions { buffer_count: u32::MAX, ..tables.clone() }),
            Some(codes::TOO_LARGE)
        );
        assert_eq!(refused(TableOptions { buffer_count: 1, ..tables.clone() }), Some(-libc::EINVAL));
        let huge = TableOptions { buffer_count: 2, buffer_size: usize::MAX - 4, ..tables.clone() };
        assert_eq!(refused(huge), Some(codes::TOO_LARGE));
        let nowhere = TableOptions { buffer_count: 1, buffer_size: 64, numa_node: Some(900), ..tables };
        assert_eq!(refused(nowhere), Some(codes::UNSUPPORTED));
    });
}

#[test]
fn buffers_are_handed_out_once_and_taken_back_once() {
    on_each_driver(|options| {
        let mut ring = with_buffers(options, 3);
        let buffers = [0; 3].map(|_| ring.acquire_buffer().unwrap());
        assert_eq!(buffers.map(|buffer| buffer.index), [0, 1, 2]);
        assert!(buffers.iter().all(|b| b.len == 4096 && (b.data as usize).is_multiple_of(4096)));
        assert_eq!(code(ring.acquire_buffer()), codes::STALLED);
        ring.release_buffer(1).unwrap();
        assert_eq!(code(ring.release_buffer(1)), codes::STALE);
        assert_eq!(code(ring.release_buffer(3)), -libc::EINVAL);
        // Nobody has it: no operation may use it.
        assert_eq!(code(ring.read(0, part(1, 0, 1), 0, OpFlags::empty(), 1)), codes::STALE);
        assert_eq!(code(ring.read(0, part(0, 4000, 97), 0, OpFlags::empty(), 1)), -libc::EINVAL);
        assert_eq!(code(ring.read(0, part(0, usize::MAX, 2), 0, OpFlags::empty(), 1)), -libc::EINVAL);
        assert_eq!(ring.acquire_buffer().unwrap().index, 1);
    });
}

#[test]
fn a_completion_names_its_buffer_and_its_memory() {
    on_each_driver(|options| {
        let mut ring = with_buffers(options, 2);
        ring.set_file(Some(0), file(b"abcdef").as_raw_fd()).unwrap();
        ring.acquire_buffer().unwrap();
        let buffer = ring.acquire_buffer().unwrap();
        ring.read(0, part(buffer.index, 100, 3), 2, OpFlags::empty(), 5).unwrap();
        ring.wait(1, -1).unwrap();
        assert_eq!(
            code(ring.queue(&[RingOp { memory: part(9, 0, 1), ..op(opcode::WRITE, 1) }])),
            -libc::EINVAL
        );
        let mut out = [RingCompletion::EMPTY];
        ring.reap(&mut out).unwrap();
        let data = buffer.data.wrapping_add(100);
        assert_eq!(out[0], RingCompletion { user_data: 5, result: 3, flags: 0, data, buffer: 1 });
        ring.release_buffer(1).unwrap();
    });
}

#[test]
fn a_buffer_in_use_is_not_taken_back() {
    on_each_driver(|options| {
        let mut ring = with_buffers(options, 1);
        let (reader, writer) = pipe();
        ring.set_file(Some(0), reader.as_raw_fd()).unwrap();
        let index = ring.acquire_buffer().unwrap().index;
        ring.read(0, part(index, 0, 10), 0, OpFlags::empty(), 1).unwrap();
        assert_eq!(code(ring.release_buffer(index)), codes::BUSY);
        ring.submit().unwrap();
        assert_eq!(code(ring.release_buffer(index)), codes::BUSY);
        rustix::io::write(&writer, b"abc").unwrap();
        assert_eq!(finish(&mut ring, 1), [(1, 3)]);
        ring.release_buffer(index).unwrap();
    });
}

#[test]
fn replacing_waits_for_what_is_in_flight_and_tells_the_old_tag() {
    on_each_driver(|options| {
        let mut ring = with_buffers(options, 2);
        let (reader, writer) = pipe();
        ring.set_file(Some(0), reader.as_raw_fd()).unwrap();
        let index = ring.acquire_buffer().unwrap().index;
        ring.read(0, part(index, 0, 10), 0, OpFlags::empty(), 1).unwrap();
        let thread = sync::spawn("writer", move || {
            rustix::io::write(&writer, b"abc").unwrap();
        });
        let memory = own_memory(8192);
        let address = memory.as_ptr();
        ring.replace_buffer(index, Some(memory), 77).unwrap();
        thread.unwrap().join().unwrap();
        assert_eq!(ring.ready_items(), 1, "the read came before");
        assert_eq!(finish(&mut ring, 1), [(1, 3)]);
        // It is the caller's now: larger, and not to be given back.
        ring.set_file(Some(1), file(&[9; 8192]).as_raw_fd()).unwrap();
        ring.read(1, part(index, 0, 8192), 0, OpFlags::empty(), 2).unwrap();
        assert_eq!(finish(&mut ring, 1), [(2, 8192)]);
        assert_eq!(code(ring.release_buffer(index)), codes::STALE);
        ring.replace_buffer(index, None, 0).unwrap();
        ring.wait(1, -1).unwrap();
        let mut out = [RingCompletion::EMPTY];
        ring.reap(&mut out).unwrap();
        let flags = completion_flags::NOTICE;
        let buffer = i32::from(index);
        assert_eq!(out[0], RingCompletion { user_data: 77, result: 0, flags, data: address, buffer });
        assert_eq!(code(ring.read(1, part(index, 0, 1), 0, OpFlags::empty(), 3)), codes::STALE);
        // A hole can be filled again.
        ring.replace_buffer(index, Some(own_memory(4096)), 0).unwrap();
        ring.read(1, part(index, 0, 4096), 0, OpFlags::empty(), 4).unwrap();
        assert_eq!(finish(&mut ring, 1), [(4, 4096)]);
    });
}

#[test]
fn replacing_a_buffer_of_an_open_chain_is_refused() {
    on_each_driver(|options| {
        let mut ring = with_buffers(options, 1);
        let index = ring.acquire_buffer().unwrap().index;
        ring.read(0, part(index, 0, 10), 0, OpFlags::LINK, 1).unwrap();
        assert_eq!(code(ring.replace_buffer(index, None, 0)), codes::BUSY);
        ring.queue(&[nop(OpFlags::empty(), 2)]).unwrap();
        ring.replace_buffer(index, None, 0).unwrap();
        assert_eq!(finish_sorted(&mut ring, 2), [(1, -libc::EBADF), (2, -libc::ECANCELED)]);
    });
}

#[test]
fn memory_that_is_not_mapped_is_named() {
    on_each_driver(|options| {
        let mut ring = open(options);
        let memory = Memory::Caller(CallerMemory::nowhere(10));
        let content = file(b"0123456789");
        ring.set_file(Some(0), content.as_raw_fd()).unwrap();
        ring.queue(&[RingOp { flags: OpFlags::RAW_POINTER, memory, ..op(opcode::READ, 1) }]).unwrap();
        assert_eq!(finish(&mut ring, 1), [(1, -libc::EFAULT)]);
        let detail = ring.detail().unwrap();
        assert!(detail.contains("reading 10 bytes at offset 0, memory at address 0x40"), "{detail}");
        ring.queue(&[nop(OpFlags::empty(), 2)]).unwrap();
        finish(&mut ring, 1);
        assert_eq!(ring.detail(), None);
    });
}

#[test]
fn direct_reads_that_miss_their_alignment_are_explained() {
    on_each_driver(|options| {
        let path = std::env::temp_dir().join(format!("ring-object-direct-{}", std::process::id()));
        let flags = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::RDWR | rustix::fs::OFlags::DIRECT;
        let opened = rustix::fs::open(&path, flags, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR);
        let _ = rustix::fs::unlink(&path);
        let direct = match opened {
            Ok(file) => file,
            Err(e) => {
                return eprintln!("not tested, direct I/O can't be had in the temporary directory: {e}");
            }
        };
        rustix::fs::ftruncate(&direct, 65536).unwrap();
        let mut ring = with_buffers(options, 1);
        let index = ring.acquire_buffer().unwrap().index;
        ring.set_file(Some(0), direct.as_raw_fd()).unwrap();
        ring.read(0, part(index, 0, 512), 100, OpFlags::empty(), 1).unwrap();
        let items = finish(&mut ring, 1);
        if items == [(1, 512)] {
            return eprintln!("not tested, direct I/O has no alignment in the temporary directory");
        }
        assert_eq!(items, [(1, -libc::EINVAL)]);
        let detail = ring.detail().unwrap();
        assert!(detail.contains("registered buffer 0") && detail.contains("offset"), "{detail}");
    });
}
