//! Tests of the segment's fixed structures and of making one ready.

use super::*;
use crate::wal::testing::Dir;

#[test]
fn names_are_numbers_in_one_spelling() {
    assert_eq!(parse_name("1.wal"), Some(1));
    assert_eq!(parse_name(&file_name(u64::MAX)), Some(u64::MAX));
    for name in ["0.wal", "01.wal", "+1.wal", ".wal", "1.wal~", "1", "18446744073709551616.wal", "a.wal"] {
        assert_eq!(parse_name(name), None, "{name}");
    }
}

#[test]
fn fixed_structures_are_read_again_and_every_flipped_bit_is_found() {
    let header = SegmentHeader { number: 3, epoch: 77, len: 1 << 20 };
    let bytes = header.encode();
    assert_eq!(SegmentHeader::decode(&bytes, 3), Ok(header));
    assert_eq!(SegmentHeader::decode(&bytes, 4), Err(HeaderError::Foreign { number: 3 }));
    let checkpoint =
        Checkpoint { log_number: 3, epoch: 77, counter: 5, durable_through: 9, durable_offset: 16_384 };
    let slot = checkpoint.encode();
    assert_eq!(Checkpoint::decode(&slot, 1, 3, 77), Some(checkpoint));
    assert_eq!(Checkpoint::decode(&slot, 2, 3, 77), None);
    assert_eq!(Checkpoint::decode(&slot, 1, 3, 78), None);
    for bit in 0..bytes.len() * 8 {
        let (mut a, mut b) = (bytes, slot);
        *a.get_mut(bit / 8).unwrap() ^= 1 << (bit % 8);
        *b.get_mut(bit / 8).unwrap() ^= 1 << (bit % 8);
        assert!(SegmentHeader::decode(&a, 3).is_err(), "bit {bit}");
        assert_eq!(Checkpoint::decode(&b, 1, 3, 77), None, "bit {bit}");
    }
    for len in 0..bytes.len() {
        assert!(SegmentHeader::decode(bytes.get(..len).unwrap(), 3).is_err());
        assert!(Checkpoint::decode(slot.get(..len).unwrap(), 1, 3, 77).is_none());
    }
}

#[test]
fn a_link_is_read_again() {
    let link = LinkPayload {
        predecessor: 2,
        predecessor_epoch: 5,
        predecessor_end: 4 * BLOCK,
        last_sequence: 8,
        last_checksum: 0xFEED,
        first_live: 1,
    };
    assert_eq!(LinkPayload::decode(&link.encode()), Some(link));
    assert_eq!(LinkPayload::decode(&link.encode()[..47]), None);
    assert_eq!(LinkPayload::decode(&LinkPayload { predecessor_end: 5, ..link }.encode()), None);
    let mut block = [0; 4096];
    let sum = link.write_frame(&mut block, 3, 77, 9, 8);
    let place = Place { log_number: 3, epoch: 77, offset: FIRST_GROUP };
    let header = frame::decode_header(&block, &place).unwrap();
    assert_eq!((header.kind, header.frame_len()), (Kind::Link, LINK_FRAME_LEN));
    assert_eq!(frame::stored_checksum(&block), sum);
    assert_eq!(LinkPayload::decode(frame::decode_payload(&block, &header).unwrap()), Some(link));
}

#[test]
fn an_unknown_version_or_feature_is_told_from_damage() {
    let header = SegmentHeader { number: 3, epoch: 77, len: 1 << 20 };
    for at in [8, 12] {
        let mut bytes = header.encode();
        *bytes.get_mut(at).unwrap() = 2;
        seal_fixed(&mut bytes, 3);
        assert!(matches!(SegmentHeader::decode(&bytes, 3), Err(HeaderError::Version(_))));
    }
    // Compatible features are ignored.
    let mut bytes = header.encode();
    *bytes.get_mut(40).unwrap() = 0xFF;
    seal_fixed(&mut bytes, 3);
    assert_eq!(SegmentHeader::decode(&bytes, 3), Ok(header));
}

#[test]
fn a_new_segment_is_zero_behind_its_header() {
    let dir = Dir::new("prepare-new");
    let io = Io::inline();
    let segment =
        io.block_on(prepare(&io, &dir.file, 1, 300_000 / BLOCK * BLOCK, None, true)).unwrap().unwrap();
    let bytes = dir.read("1.wal");
    assert_eq!(bytes.len() as u64, segment.len);
    let header = SegmentHeader::decode(bytes.get(..4096).unwrap(), 1).unwrap();
    assert_eq!((header.epoch, header.len), (segment.epoch, segment.len));
    assert!(bytes.get(64..).unwrap().iter().all(|b| *b == 0));
    let again = io.block_on(prepare(&io, &dir.file, 1, MIN_LEN, None, true)).unwrap();
    assert_eq!(again.err().and_then(|e| e.errno()), Some(libc::EEXIST), "a number is never given twice");
}

#[test]
fn a_recycled_segment_keeps_its_blocks_and_gets_a_new_epoch() {
    let dir = Dir::new("prepare-recycle");
    let io = Io::inline();
    let first = io.block_on(prepare(&io, &dir.file, 1, 8 * BLOCK, None, false)).unwrap().unwrap();
    let mut bytes = dir.read("1.wal");
    bytes.get_mut(4096..).unwrap().fill(7);
    dir.write("1.wal", &bytes);
    for (number, len) in [(2, 8 * BLOCK), (3, 5 * BLOCK), (4, 9 * BLOCK)] {
        let used =
            io.block_on(prepare(&io, &dir.file, number, len, Some(number - 1), false)).unwrap().unwrap();
        assert_ne!(used.epoch, first.epoch);
        assert_eq!(dir.names(), [file_name(number)]);
        let bytes = dir.read(&file_name(number));
        assert_eq!(bytes.len() as u64, len);
        assert_eq!(SegmentHeader::decode(bytes.get(..4096).unwrap(), number).unwrap().epoch, used.epoch);
        assert!(bytes.get(4096..5 * 4096).unwrap().iter().all(|b| *b == 7), "nothing was written again");
    }
    let bytes = dir.read("4.wal");
    assert!(bytes.get(5 * 4096..).unwrap().iter().all(|b| *b == 0), "what was added is zero");
}

#[test]
fn an_odd_length_is_refused() {
    let dir = Dir::new("prepare-odd");
    let io = Io::inline();
    for len in [0, BLOCK * 3, BLOCK * 4 + 1] {
        let refused = io.block_on(prepare(&io, &dir.file, 1, len, None, false)).unwrap();
        assert!(matches!(refused, Err(Error::Invalid(_))));
    }
    assert!(dir.names().is_empty());
}
