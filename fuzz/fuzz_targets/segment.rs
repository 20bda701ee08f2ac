//! The decoders of a segment's fixed blocks: header, checkpoint slots, link; and of its file's name. Any bytes, as they
//! are and with their checksum put right. What is accepted must encode to the same bytes.
#![no_main]

use iouring_engine::base::checksum::Checksum;
use iouring_engine::wal::segment::{self, Checkpoint, LinkPayload, SegmentHeader};
use libfuzzer_sys::fuzz_target;

/// The bytes with the checksum of their first 60 put right for a place.
fn sealed(bytes: &[u8], place: u64) -> Option<Vec<u8>> {
    let mut bytes = bytes.get(..64)?.to_vec();
    let sum = Checksum::at(&[place]).add(&bytes[..60]).value();
    bytes[60..].copy_from_slice(&sum.to_le_bytes());
    Some(bytes)
}

fuzz_target!(|input: (u64, u64, String, Vec<u8>)| {
    let (number, epoch, name, bytes) = input;
    if let Some(parsed) = segment::parse_name(&name) {
        assert_eq!(segment::file_name(parsed), name, "a number has one name");
    }
    for bytes in [Some(bytes.clone()), sealed(&bytes, number)].into_iter().flatten() {
        if let Ok(header) = SegmentHeader::decode(&bytes, number) {
            let again = header.encode();
            // Unknown compatible features (bytes 40 to 43) are ignored, and so not kept.
            assert_eq!(again[..40], bytes[..40]);
        }
    }
    for slot in [1u32, 2] {
        for bytes in [Some(bytes.clone()), sealed(&bytes, u64::from(slot) * segment::BLOCK)].into_iter().flatten() {
            if let Some(checkpoint) = Checkpoint::decode(&bytes, slot, number, epoch) {
                assert_eq!((checkpoint.log_number, checkpoint.epoch), (number, epoch));
            }
        }
    }
    if let Some(link) = LinkPayload::decode(&bytes) {
        assert_eq!(link.encode()[..], bytes[..]);
    }
});
