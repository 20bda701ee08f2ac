//! One frame of the log: 64 bytes of header, a payload and its checksum, padded with zeros to 8 bytes.
//!
//! Pure functions over slices, so that both halves can be tested bit by bit without a file. A frame is made in two
//! halves, because two threads make it: the caller who owns the payload copies and checksums it
//! ([`write_payload`]), the leader who knows the order fills in the header ([`write_header`]) without touching the
//! payload again.
//!
//! Invariants: [`decode_header`] looks at the length only after the header's own checksum was right; nothing read
//! here panics; both checksums cover the frame's place, so a frame that was moved is no frame.
//! What was rejected: one checksum over the whole frame. Its length would have to be trusted before it is checked.
#![deny(clippy::indexing_slicing, clippy::cast_possible_truncation)]

use std::fmt;

use crate::base::checksum::Checksum;
use crate::base::codec::{Reader, Writer};

/// Bytes of a frame before its payload.
pub const HEADER_LEN: usize = 64;
/// A whole frame is at most this long.
pub const MAX_FRAME: usize = 256 * 1024;
/// The longest payload of one frame; with header, checksum and padding it stays below [`MAX_FRAME`].
pub const MAX_PAYLOAD: usize = 262_068;
/// The longest payload of a batch, its frames joined: a value of 1 GiB, and room for what goes with it.
pub const MAX_BATCH: usize = (1 << 30) + (1 << 20);
/// The first four bytes of a frame.
pub const MAGIC: u32 = 0xDEAD_1234;
/// Frames start on a multiple of this inside their group.
pub const ALIGN: usize = 8;

const CHECKSUM_LEN: usize = 4;
/// Where the header's checksum stands.
const HEADER_CHECKSUM_AT: usize = 60;

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A whole batch.
    Full = 1,
    /// The first part of a batch.
    First = 2,
    /// A part of a batch that is neither the first nor the last.
    Middle = 3,
    /// The last part of a batch.
    Last = 4,
    /// The first frame of a segment: what came before.
    Link = 5,
    /// Everything before it is durable.
    Seal = 6,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Kind> {
        [Kind::Full, Kind::First, Kind::Middle, Kind::Last, Kind::Link, Kind::Seal]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }

    /// A part of a batch, or a whole one.
    pub fn is_batch(self) -> bool {
        !matches!(self, Kind::Link | Kind::Seal)
    }
}

/// Where a frame lies; covered by its checksums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The segment's log number.
    pub log_number: u64,
    /// The epoch of this use of the segment's file.
    pub epoch: u64,
    /// The frame's offset in the file.
    pub offset: u64,
}

/// The fields of a frame's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// What the frame is.
    pub kind: Kind,
    /// Bytes of its payload.
    pub payload_len: u32,
    /// How many sequences the batch takes; 0 in link and seal.
    pub count: u32,
    /// Where it lies.
    pub place: Place,
    /// The batch's first sequence; in link and seal the next one to be given.
    pub sequence: u64,
    /// The highest sequence known to be durable when the frame was issued.
    pub durable_through: u64,
    /// The header checksum of the frame before it in this segment; 0 in the first.
    pub previous: u32,
}

/// Why some bytes are not the frame that is expected there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameError {
    /// The file ends before the frame does.
    Short {
        /// Bytes that a frame needs there.
        needed: usize,
        /// Bytes that are there.
        got: usize,
    },
    /// The first four bytes are not the frame's magic.
    NoMagic {
        /// What they are.
        got: u32,
    },
    /// The header's checksum is wrong.
    HeaderChecksum {
        /// The checksum of what is there.
        expected: u32,
        /// The checksum that is stored.
        got: u32,
    },
    /// A sound frame of another segment or of an older use of this file.
    Foreign {
        /// The log number it states.
        log_number: u64,
        /// The epoch it states.
        epoch: u64,
    },
    /// The header's checksum is right, a field of it is not.
    Field {
        /// Which field.
        name: &'static str,
        /// What it must be.
        expected: u64,
        /// What it is.
        got: u64,
    },
    /// The payload's checksum is wrong.
    PayloadChecksum {
        /// The checksum of what is there.
        expected: u32,
        /// The checksum that is stored.
        got: u32,
    },
    /// Bytes behind the payload, or behind the group, that must be zero are not.
    Padding,
}

impl FrameError {
    /// What should have been there, in words.
    pub fn expected(&self) -> String {
        match self {
            FrameError::Short { needed, .. } => format!("{needed} bytes"),
            FrameError::NoMagic { .. } => format!("frame magic {MAGIC:#010x}"),
            FrameError::HeaderChecksum { expected, .. } => format!("header checksum {expected:#010x}"),
            FrameError::Foreign { .. } => "a frame of this use of the segment".to_owned(),
            FrameError::Field { name, expected, .. } => format!("{name} {expected}"),
            FrameError::PayloadChecksum { expected, .. } => format!("payload checksum {expected:#010x}"),
            FrameError::Padding => "zeros".to_owned(),
        }
    }

    /// What was there instead, in words.
    pub fn got(&self) -> String {
        match self {
            FrameError::Short { got, .. } => format!("{got}"),
            FrameError::NoMagic { got }
            | FrameError::HeaderChecksum { got, .. }
            | FrameError::PayloadChecksum { got, .. } => format!("{got:#010x}"),
            FrameError::Foreign { log_number, epoch } => {
                format!("one of log number {log_number}, epoch {epoch:#x}")
            }
            FrameError::Field { got, .. } => format!("{got}"),
            FrameError::Padding => "other bytes".to_owned(),
        }
    }
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {}, got {}", self.expected(), self.got())
    }
}

/// Length of a whole frame with that much payload.
pub fn frame_len(payload_len: usize) -> usize {
    (HEADER_LEN + payload_len + CHECKSUM_LEN).next_multiple_of(ALIGN)
}

fn payload_sum(place: &Place) -> Checksum {
    Checksum::at(&[place.log_number, place.epoch, place.offset])
}

/// The caller's half of a frame: copies the payload (`parts` joined), its checksum and the padding behind it. The
/// header's bytes are left alone.
///
/// # Panics
/// When `frame` is not exactly [`frame_len`] of the payload: the caller sized it for these parts.
pub fn write_payload(frame: &mut [u8], place: &Place, parts: &[&[u8]]) {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    assert_eq!(frame.len(), frame_len(len), "a frame is sized for its payload");
    assert!(len <= MAX_PAYLOAD, "a longer payload is divided into several frames");
    let (_, body) = frame.split_at_mut(HEADER_LEN);
    let rest = body.len() - len - CHECKSUM_LEN;
    let mut out = Writer::new(body);
    let mut sum = payload_sum(place);
    for part in parts {
        out.bytes(part);
        sum = sum.add(part);
    }
    out.u32(sum.value()).bytes([0; ALIGN].split_at(rest).0);
}

/// The leader's half of a frame: its header. Returns the header's checksum, which the next frame of the segment
/// carries as its `previous`.
///
/// # Panics
/// When `frame` is shorter than a header.
pub fn write_header(frame: &mut [u8], header: &Header) -> u32 {
    let (bytes, _) = frame.split_at_mut(HEADER_LEN);
    let mut out = Writer::new(bytes);
    out.u32(MAGIC).u8(header.kind as u8).bytes(&[0; 3]);
    out.u32(header.payload_len).u32(header.count);
    out.u64(header.place.log_number).u64(header.place.epoch);
    out.u64(header.sequence).u64(header.durable_through);
    out.u32(header.previous).u64(0);
    let (covered, stored) = bytes.split_at_mut(HEADER_CHECKSUM_AT);
    let sum = Checksum::at(&[header.place.offset]).add(covered).value();
    stored.copy_from_slice(&sum.to_le_bytes());
    sum
}

/// The header's checksum as it is stored, for the next frame's `previous`; 0 when the bytes are too few.
pub fn stored_checksum(bytes: &[u8]) -> u32 {
    let stored = bytes.get(HEADER_CHECKSUM_AT..HEADER_LEN).and_then(|b| b.first_chunk::<4>());
    stored.map_or(0, |b| u32::from_le_bytes(*b))
}

/// Whether the bytes begin as a frame does.
pub fn has_magic(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC.to_le_bytes())
}

/// Reads and checks a header that should be at `place`.
///
/// # Errors
/// What is wrong with it; [`FrameError::Foreign`] only when its checksum is right for its offset.
pub fn decode_header(bytes: &[u8], place: &Place) -> Result<Header, FrameError> {
    let header = decode_any(bytes, place.offset)?;
    if (header.place.log_number, header.place.epoch) != (place.log_number, place.epoch) {
        let Place { log_number, epoch, .. } = header.place;
        return Err(FrameError::Foreign { log_number, epoch });
    }
    Ok(header)
}

/// As [`decode_header`], whatever segment and use of it the frame states.
///
/// # Errors
/// What is wrong with it.
pub fn decode_any(bytes: &[u8], offset: u64) -> Result<Header, FrameError> {
    let short = FrameError::Short { needed: HEADER_LEN, got: bytes.len() };
    let head = bytes.first_chunk::<HEADER_LEN>().ok_or(short)?;
    let mut fields = Reader::new(head);
    let magic = fields.u32().ok_or(short)?;
    if magic != MAGIC {
        return Err(FrameError::NoMagic { got: magic });
    }
    let (covered, _) = head.split_at(HEADER_CHECKSUM_AT);
    let (expected, got) = (Checksum::at(&[offset]).add(covered).value(), stored_checksum(head));
    if expected != got {
        return Err(FrameError::HeaderChecksum { expected, got });
    }
    let raw = Raw::read(&mut fields).ok_or(short)?;
    raw.checked(offset)
}

/// The header's fields behind the magic, as they stand.
struct Raw {
    kind: u8,
    zero: u64,
    payload_len: u32,
    count: u32,
    log_number: u64,
    epoch: u64,
    sequence: u64,
    durable_through: u64,
    previous: u32,
}

impl Raw {
    fn read(fields: &mut Reader<'_>) -> Option<Raw> {
        let kind = fields.u8()?;
        let mut zero = u64::from(fields.u8()?) | u64::from(fields.u16()?);
        let mut raw = Raw {
            kind,
            zero: 0,
            payload_len: fields.u32()?,
            count: fields.u32()?,
            log_number: fields.u64()?,
            epoch: fields.u64()?,
            sequence: fields.u64()?,
            durable_through: fields.u64()?,
            previous: fields.u32()?,
        };
        zero |= fields.u64()?;
        raw.zero = zero;
        Some(raw)
    }

    fn checked(self, offset: u64) -> Result<Header, FrameError> {
        let wrong = |name, expected: u64, got: u64| Err(FrameError::Field { name, expected, got });
        let Some(kind) = Kind::from_byte(self.kind) else {
            return wrong("a kind of 1 to", Kind::Seal as u64, u64::from(self.kind));
        };
        if self.zero != 0 {
            return wrong("reserved bytes of", 0, self.zero);
        }
        if self.payload_len as usize > MAX_PAYLOAD {
            return wrong("a payload of at most", MAX_PAYLOAD as u64, u64::from(self.payload_len));
        }
        match kind.is_batch() {
            true if self.count == 0 => return wrong("a count of at least", 1, 0),
            false if self.count != 0 => return wrong("a count of", 0, u64::from(self.count)),
            _ => {}
        }
        if self.sequence == 0 || self.sequence.checked_add(u64::from(self.count)).is_none() {
            return wrong("a sequence of at least", 1, self.sequence);
        }
        Ok(Header {
            kind,
            payload_len: self.payload_len,
            count: self.count,
            place: Place { log_number: self.log_number, epoch: self.epoch, offset },
            sequence: self.sequence,
            durable_through: self.durable_through,
            previous: self.previous,
        })
    }
}

impl Header {
    /// Length of the whole frame.
    pub fn frame_len(&self) -> usize {
        frame_len(self.payload_len as usize)
    }

    /// The last sequence of the batch; in link and seal the one before the next to be given.
    pub fn last_sequence(&self) -> u64 {
        self.sequence + u64::from(self.count) - 1
    }
}

/// Checks the payload of a frame whose header was right, and gives it. `frame` starts with the header.
///
/// # Errors
/// A wrong checksum, bytes that are missing, padding that isn't zero.
pub fn decode_payload<'a>(frame: &'a [u8], header: &Header) -> Result<&'a [u8], FrameError> {
    let short = FrameError::Short { needed: header.frame_len(), got: frame.len() };
    let mut rest = Reader::new(frame.get(..header.frame_len()).ok_or(short)?);
    rest.bytes(HEADER_LEN).ok_or(short)?;
    let payload = rest.bytes(header.payload_len as usize).ok_or(short)?;
    let got = rest.u32().ok_or(short)?;
    let expected = payload_sum(&header.place).add(payload).value();
    if expected != got {
        return Err(FrameError::PayloadChecksum { expected, got });
    }
    let padding = rest.bytes(rest.remaining()).ok_or(short)?;
    if padding.iter().any(|byte| *byte != 0) {
        return Err(FrameError::Padding);
    }
    Ok(payload)
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::cast_possible_truncation, reason = "tests take the bytes apart")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PLACE: Place = Place { log_number: 7, epoch: 0xABCD, offset: 12_288 };

    fn header(payload_len: usize) -> Header {
        Header {
            kind: Kind::Full,
            payload_len: payload_len as u32,
            count: 2,
            place: PLACE,
            sequence: 9,
            durable_through: 8,
            previous: 0x1111_2222,
        }
    }

    fn encode(payload: &[u8], header: &Header) -> Vec<u8> {
        let mut frame = vec![0xEE; frame_len(payload.len())];
        write_payload(&mut frame, &header.place, &[payload]);
        write_header(&mut frame, header);
        frame
    }

    #[test]
    fn the_longest_payload_fits_the_longest_frame() {
        assert!(frame_len(MAX_PAYLOAD) <= MAX_FRAME);
        assert_eq!(frame_len(0), 72);
        assert_eq!(frame_len(4), 72);
        assert_eq!(frame_len(5), 80);
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded_again(
            payload in prop::collection::vec(any::<u8>(), 0..5000),
            cut in 0usize..5000, sequence in 1u64..u64::MAX / 2, durable_through: u64, previous: u32,
            kind in prop::sample::select(vec![Kind::Full, Kind::First, Kind::Middle, Kind::Last]),
            log_number: u64, epoch: u64, offset: u64, count in 1u32..,
        ) {
            let place = Place { log_number, epoch, offset };
            let payload_len = payload.len() as u32;
            let header = Header { kind, payload_len, count, place, sequence, durable_through, previous };
            let mut frame = vec![0xEE; frame_len(payload.len())];
            let (head, tail) = payload.split_at(cut.min(payload.len()));
            write_payload(&mut frame, &place, &[head, tail]);
            prop_assert!(frame[..HEADER_LEN].iter().all(|b| *b == 0xEE), "the header is the leader's");
            let sum = write_header(&mut frame, &header);
            prop_assert_eq!(sum, stored_checksum(&frame));
            prop_assert_eq!(decode_header(&frame, &place), Ok(header));
            prop_assert_eq!(decode_payload(&frame, &header), Ok(&payload[..]));
        }
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let payload = b"thirteen byte";
        let sound = encode(payload, &header(payload.len()));
        for bit in 0..sound.len() * 8 {
            let mut frame = sound.clone();
            frame[bit / 8] ^= 1 << (bit % 8);
            let found =
                decode_header(&frame, &PLACE).and_then(|h| decode_payload(&frame, &h).map(<[u8]>::to_vec));
            assert!(found.is_err(), "bit {bit} was flipped and nothing was found");
        }
    }

    #[test]
    fn a_frame_in_the_wrong_place_is_none() {
        let frame = encode(b"x", &header(1));
        let moved = Place { offset: PLACE.offset + 4096, ..PLACE };
        assert!(matches!(decode_header(&frame, &moved), Err(FrameError::HeaderChecksum { .. })));
        let older = Place { epoch: 1, ..PLACE };
        assert_eq!(decode_header(&frame, &older), Err(FrameError::Foreign { log_number: 7, epoch: 0xABCD }));
        let claimed = Header { place: older, ..header(1) };
        assert!(matches!(decode_payload(&frame, &claimed), Err(FrameError::PayloadChecksum { .. })));
    }

    #[test]
    fn a_field_out_of_range_is_refused_although_its_checksum_is_right() {
        let refused = |header: Header| decode_header(&encode(b"", &header), &PLACE);
        assert!(matches!(refused(Header { count: 0, ..header(0) }), Err(FrameError::Field { .. })));
        assert!(matches!(refused(Header { kind: Kind::Seal, ..header(0) }), Err(FrameError::Field { .. })));
        assert!(matches!(refused(Header { sequence: 0, ..header(0) }), Err(FrameError::Field { .. })));
        assert!(matches!(refused(Header { sequence: u64::MAX, ..header(0) }), Err(FrameError::Field { .. })));
        let long = Header { payload_len: MAX_PAYLOAD as u32 + 1, ..header(0) };
        assert!(matches!(refused(long), Err(FrameError::Field { .. })));
    }

    #[test]
    fn every_truncation_is_found() {
        let frame = encode(b"payload", &header(7));
        for len in 0..frame.len() {
            let cut = &frame[..len];
            let found = decode_header(cut, &PLACE).and_then(|h| decode_payload(cut, &h));
            assert!(matches!(found, Err(FrameError::Short { .. })), "{len}");
        }
    }
}
