//! The frame decoder: any bytes, as they are and with their checksums put right, so that what lies behind the
//! checksums is reached too. It must give a header or an error, and what it accepts must encode to the same bytes.
#![no_main]

use iouring_engine::base::checksum::Checksum;
use iouring_engine::wal::frame::{self, HEADER_LEN};
use libfuzzer_sys::fuzz_target;

fn decode(bytes: &[u8], offset: u64) {
    let Ok(header) = frame::decode_any(bytes, offset) else { return };
    assert!(frame::decode_header(bytes, &header.place).is_ok());
    let mut again = bytes.to_vec();
    frame::write_header(&mut again, &header);
    assert_eq!(again, bytes, "an accepted header has one encoding");
    if let Ok(payload) = frame::decode_payload(bytes, &header) {
        assert_eq!(payload.len(), header.payload_len as usize);
        let mut again = vec![0; header.frame_len()];
        again[..HEADER_LEN].copy_from_slice(&bytes[..HEADER_LEN]);
        frame::write_payload(&mut again, &header.place, &[payload]);
        assert_eq!(&again[..HEADER_LEN + payload.len() + 4], &bytes[..HEADER_LEN + payload.len() + 4]);
    }
}

fuzz_target!(|input: (u32, Vec<u8>)| {
    let (block, mut bytes) = input;
    let offset = u64::from(block) * 8;
    decode(&bytes, offset);
    if bytes.len() < HEADER_LEN {
        return;
    }
    bytes[..4].copy_from_slice(&0xDEAD_1234u32.to_le_bytes());
    let len = u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]) as usize;
    if let Some(end) = HEADER_LEN.checked_add(len).filter(|end| end + 4 <= bytes.len()) {
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let sum = Checksum::at(&[number(16), number(24), offset]).add(&bytes[HEADER_LEN..end]).value();
        bytes[end..end + 4].copy_from_slice(&sum.to_le_bytes());
    }
    let sum = Checksum::at(&[offset]).add(&bytes[..60]).value();
    bytes[60..64].copy_from_slice(&sum.to_le_bytes());
    decode(&bytes, offset);
});
