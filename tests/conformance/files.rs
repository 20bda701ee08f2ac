//! Reading, writing and syncing files.

use iouring_engine::base::memory::Buf;
use iouring_engine::ring::fs::How;
use iouring_engine::ring::io::join;
use iouring_engine::ring::op::{Op, Target};

use crate::stage::{NEW, Stage, read_op, sync_op, write_op};

/// Bytes that differ from place to place.
fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + seed * 7 + i / 251) as u8).collect()
}

pub fn what_is_written_is_read_back_at_its_offset(stage: &Stage) {
    let file = stage.file("a");
    let mut model = vec![0; 20_000];
    for (seed, (offset, len)) in
        [(0, 1), (1, 511), (4095, 2), (8192, 4096), (100, 9000), (19_999, 1)].into_iter().enumerate()
    {
        let bytes = pattern(seed, len);
        stage.write(&file, offset as u64, &bytes);
        model[offset..offset + len].copy_from_slice(&bytes);
    }
    assert!(stage.read(&file, 0, 20_000) == model);
    assert!(stage.read(&file, 4000, 300) == model[4000..4300]);
}

pub fn a_hole_reads_as_zeros(stage: &Stage) {
    let file = stage.file("a");
    stage.write(&file, 100_000, b"end");
    assert!(stage.read(&file, 0, 100_000).iter().all(|byte| *byte == 0));
    assert_eq!(stage.io.meta(&file).unwrap().len, 100_003);
}

pub fn a_read_is_short_at_the_end_of_the_file_only(stage: &Stage) {
    let file = stage.file("a");
    stage.write(&file, 0, &pattern(1, 5000));
    assert_eq!(stage.read(&file, 0, 5000).len(), 5000);
    assert_eq!(stage.read(&file, 4000, 4096).len(), 1000);
    assert_eq!(stage.read(&file, 5000, 10).len(), 0);
    assert_eq!(stage.read(&file, 1 << 40, 10).len(), 0);
}

pub fn nothing_to_transfer_is_no_error(stage: &Stage) {
    let file = stage.file("a");
    assert_eq!(stage.result(write_op(&file, 10, b"")), 0);
    assert_eq!(stage.result(read_op(&file, 10, 0)), 0);
    assert_eq!(stage.result(Op::Nop), 0);
    assert_eq!(stage.io.meta(&file).unwrap().len, 0);
}

pub fn a_large_transfer_is_whole(stage: &Stage) {
    let file = stage.file("a");
    let bytes = pattern(3, (1 << 20) + 77);
    stage.write(&file, 5, &bytes);
    assert!(stage.read(&file, 5, bytes.len() + 100) == bytes);
}

pub fn a_write_through_and_every_sync_succeed(stage: &Stage) {
    let file = stage.file("a");
    let (_, count) = stage.run(stage.io.write(&file, Buf::copied(b"through").unwrap(), 0, true));
    assert_eq!(count.unwrap(), 7);
    stage.run(stage.io.sync(&file, true)).unwrap();
    stage.run(stage.io.sync(&file, false)).unwrap();
    stage.run(stage.io.sync(&stage.dir, false)).unwrap();
    if let Some(world) = &stage.world {
        assert_eq!(world.read_durable(&stage.path, "a").unwrap(), b"through");
    }
}

pub fn a_direct_file_takes_whole_blocks(stage: &Stage) {
    let file = stage.io.open_at(&stage.dir, "a", How { direct: true, ..NEW }).unwrap();
    let bytes = pattern(4, 16_384);
    stage.write(&file, 4096, &bytes);
    stage.run(stage.io.sync(&file, true)).unwrap();
    assert!(stage.read(&file, 4096, 16_384) == bytes);
    // A whole block asked for at a ragged end gives what there is.
    stage.io.set_len(&file, 10_000).unwrap();
    assert!(stage.read(&file, 8192, 4096) == bytes[4096..4096 + 1808]);
}

pub fn a_file_opened_for_reading_refuses_writes(stage: &Stage) {
    let file = stage.read_only("a");
    assert_eq!(stage.result(write_op(&file, 0, b"no")), -libc::EBADF);
    assert_eq!(stage.result(sync_op(&file)), 0);
    assert_eq!(stage.io.meta(&file).unwrap().len, 0);
}

pub fn a_descriptor_that_is_none_is_refused(stage: &Stage) {
    for fd in [-1, i32::MIN, i32::MAX] {
        let (target, buf) = (Target::Foreign(fd), Buf::zeroed(8).unwrap());
        let op = Op::Read { target, buf, offset: 0, buffer_index: None };
        assert_eq!(stage.result(op), -libc::EBADF, "descriptor {fd}");
        let op = Op::Fsync { target: Target::Foreign(fd), data_only: true };
        assert_eq!(stage.result(op), -libc::EBADF, "descriptor {fd}");
    }
}

pub fn the_memory_comes_back_with_the_completion(stage: &Stage) {
    let file = stage.file("a");
    let buf = Buf::copied(b"mine").unwrap();
    let address = buf.as_ptr();
    let (buf, count) = stage.run(stage.io.write(&file, buf, 0, false));
    assert_eq!((buf.as_ptr(), buf.len(), count.unwrap()), (address, 4, 4));
    let (_, op) = stage.run(stage.io.submit(Op::Read {
        target: Target::File(file),
        buf,
        offset: 0,
        buffer_index: None,
    }));
    let buf = op.into_buf().unwrap();
    assert_eq!((buf.as_ptr(), buf.as_slice()), (address, &b"mine"[..]));
}

pub fn a_transfer_whose_first_result_counts_is_told_so(stage: &Stage) {
    stage.calm();
    let file = stage.file("a");
    assert_eq!(stage.run(stage.io.submit_exact(write_op(&file, 0, &[1; 600]))).0, 600);
    assert_eq!(stage.run(stage.io.submit_exact(read_op(&file, 500, 600))).0, 100);
    // Completed long before anybody waits for it.
    let early = stage.io.submit_exact(read_op(&file, 0, 10));
    stage.result(Op::Nop);
    stage.result(sync_op(&file));
    assert_eq!(stage.run(early).0, 10);
}

pub fn many_in_flight_each_do_their_own(stage: &Stage) {
    let file = stage.file("a");
    let writes = (0..200u64).map(|i| stage.io.submit(write_op(&file, i * 512, &[i as u8; 512]))).collect();
    for (result, _) in stage.run(join(writes)) {
        assert_eq!(result, 512);
    }
    let reads = (0..200u64).map(|i| stage.io.submit(read_op(&file, i * 512, 512))).collect();
    for (i, (result, op)) in stage.run(join(reads)).into_iter().enumerate() {
        assert_eq!(result, 512);
        assert_eq!(op.into_buf().unwrap().as_slice(), [i as u8; 512], "read {i}");
    }
}

pub fn a_full_queue_loses_nothing(stage: &Stage) {
    let stage = stage.with_entries(8);
    let file = stage.file("a");
    let count = if stage.world.is_some() { 600 } else { 3000u64 };
    let pending = (0..count).map(|i| stage.io.submit(write_op(&file, i * 8, &i.to_le_bytes()))).collect();
    let results = stage.run(join(pending));
    assert_eq!(results.len() as u64, count);
    assert!(results.iter().all(|(result, _)| *result == 8));
    let bytes = stage.read(&file, 0, count as usize * 8);
    let numbers = bytes.chunks(8).map(|chunk| u64::from_le_bytes(chunk.try_into().unwrap()));
    assert!(numbers.eq(0..count));
    assert_eq!(stage.io.with_reactor(|r| r.in_driver()), 0);
}
