//! A write batch, and the bytes of one in the log (the payload of FORMAT.md).
//!
//! A [`WriteBatch`] *is* its payload: what it gathers is what the log stores, so writing it copies nothing together.
//! Limits are checked when an entry is put in, never when it is written. Decoding trusts nothing: the payload's
//! checksum was right, but a defect of an older version would have a right checksum too.
#![deny(clippy::indexing_slicing, clippy::cast_possible_truncation)]

use crate::base::codec::Reader;
use crate::base::{Error, Result};

/// The longest key, in bytes.
pub const MAX_KEY: usize = 65_535;
/// The longest value, in bytes: 1 GiB.
pub const MAX_VALUE: usize = 1 << 30;
/// The longest batch, in bytes of payload: 4 GiB. It would be written as one segment, and held in memory twice.
pub const MAX_BATCH: usize = 1 << 32;
/// Bytes in front of an entry's key.
pub const ENTRY_HEADER: usize = 8;

const PUT: u8 = 1;
const DELETE: u8 = 2;

/// One change of one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Edit<'a> {
    /// The key has this value from now on.
    Put {
        /// Which key.
        key: &'a [u8],
        /// Its value.
        value: &'a [u8],
    },
    /// The key is gone from now on.
    Delete {
        /// Which key.
        key: &'a [u8],
    },
}

impl<'a> Edit<'a> {
    /// Which key it is about.
    pub fn key(&self) -> &'a [u8] {
        match self {
            Edit::Put { key, .. } | Edit::Delete { key } => key,
        }
    }

    /// The value; none in a delete.
    pub fn value(&self) -> Option<&'a [u8]> {
        match self {
            Edit::Put { value, .. } => Some(value),
            Edit::Delete { .. } => None,
        }
    }

    /// The entry's header; key and value follow it in the payload.
    ///
    /// # Errors
    /// [`Error::TooLarge`] for a key or value over its limit.
    pub fn header(&self) -> Result<[u8; ENTRY_HEADER]> {
        let (key, value) = (self.key(), self.value().unwrap_or(&[]));
        let Ok(key_len) = u16::try_from(key.len()) else {
            let text = format!("a key of {} bytes: keys have at most {MAX_KEY}", key.len());
            return Err(Error::TooLarge(text.into()));
        };
        let value_len = u32::try_from(value.len()).ok().filter(|_| value.len() <= MAX_VALUE);
        let Some(value_len) = value_len else {
            let text = format!("a value of {} bytes: values have at most {MAX_VALUE} (1 GiB)", value.len());
            return Err(Error::TooLarge(text.into()));
        };
        let kind = if self.value().is_some() { PUT } else { DELETE };
        let [k0, k1] = key_len.to_le_bytes();
        let [v0, v1, v2, v3] = value_len.to_le_bytes();
        Ok([kind, 0, k0, k1, v0, v1, v2, v3])
    }
}

/// What is wrong with a payload, and where in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Byte offset in the payload.
    pub offset: usize,
    /// What a sound payload has there.
    pub expected: &'static str,
    /// What was found.
    pub got: String,
}

/// Calls `visit` with every entry of a payload, in order.
///
/// # Errors
/// Where the payload departs from its format; entries before that have been visited.
pub fn decode<'a>(
    payload: &'a [u8],
    count: u32,
    mut visit: impl FnMut(Edit<'a>) -> Result<()>,
) -> Result<Result<(), Damage>> {
    let mut reader = Reader::new(payload);
    for _ in 0..count {
        let offset = payload.len() - reader.remaining();
        match entry(&mut reader) {
            Ok(edit) => visit(edit)?,
            Err((expected, got)) => return Ok(Err(Damage { offset, expected, got })),
        }
    }
    if reader.remaining() > 0 {
        let offset = payload.len() - reader.remaining();
        let got = format!("{} bytes more", reader.remaining());
        return Ok(Err(Damage { offset, expected: "the end of the batch", got }));
    }
    Ok(Ok(()))
}

fn entry<'a>(reader: &mut Reader<'a>) -> Result<Edit<'a>, (&'static str, String)> {
    let left = reader.remaining();
    let short = |_: ()| ("a whole entry", format!("{left} bytes"));
    let kind = reader.u8().ok_or(()).map_err(short)?;
    let reserved = reader.u8().ok_or(()).map_err(short)?;
    let key_len = reader.u16().ok_or(()).map_err(short)?;
    let value_len = reader.u32().ok_or(()).map_err(short)?;
    if reserved != 0 {
        return Err(("zero behind the entry's kind", reserved.to_string()));
    }
    let key = reader.bytes(usize::from(key_len)).ok_or(()).map_err(short)?;
    // A length that doesn't fit memory is longer than what is left, too.
    let value_len = usize::try_from(value_len).unwrap_or(usize::MAX);
    match kind {
        PUT if value_len <= MAX_VALUE => {
            let value = reader.bytes(value_len).ok_or(()).map_err(short)?;
            Ok(Edit::Put { key, value })
        }
        PUT => Err(("a value of at most 1 GiB", format!("{value_len} bytes"))),
        DELETE if value_len == 0 => Ok(Edit::Delete { key }),
        DELETE => Err(("no value in a delete", format!("{value_len} bytes"))),
        other => Err(("an entry's kind, 1 or 2", other.to_string())),
    }
}

/// Changes that are written together: all of them or none. Used by one thread at a time.
#[derive(Debug, Clone, Default)]
pub struct WriteBatch {
    payload: Vec<u8>,
    count: u32,
}

impl WriteBatch {
    /// An empty one.
    pub fn new() -> Self {
        WriteBatch::default()
    }

    /// Adds a put.
    ///
    /// # Errors
    /// [`Error::TooLarge`] for a key, value or batch over its limit, `-ENOMEM`; the batch is then as it was.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.push(Edit::Put { key, value })
    }

    /// Adds a delete.
    ///
    /// # Errors
    /// As [`WriteBatch::put`].
    pub fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.push(Edit::Delete { key })
    }

    /// Adds a change.
    ///
    /// # Errors
    /// As [`WriteBatch::put`].
    pub fn push(&mut self, edit: Edit<'_>) -> Result<()> {
        let header = edit.header()?;
        let (key, value) = (edit.key(), edit.value().unwrap_or(&[]));
        let more = ENTRY_HEADER + key.len() + value.len();
        if self.payload.len() + more > MAX_BATCH || self.count == u32::MAX {
            let text = format!("a batch of more than {MAX_BATCH} bytes or {} entries", u32::MAX);
            return Err(Error::TooLarge(text.into()));
        }
        if self.payload.try_reserve(more).is_err() {
            return Err(Error::system(libc::ENOMEM, format!("growing a batch by {more} bytes")));
        }
        for part in [&header[..], key, value] {
            self.payload.extend_from_slice(part);
        }
        self.count += 1;
        Ok(())
    }

    /// Takes all changes out again; keeps the memory for the next ones.
    pub fn clear(&mut self) {
        self.payload.clear();
        self.count = 0;
    }

    /// How many changes it has.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many bytes it will take in the log, without the frames around it.
    pub fn byte_len(&self) -> usize {
        self.payload.len()
    }

    /// Its bytes in the log.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, reason = "a test may panic")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(payload: &[u8], count: u32) -> Result<Vec<Edit<'_>>, Damage> {
        let mut edits = Vec::new();
        decode(payload, count, |edit| {
            edits.push(edit);
            Ok(())
        })
        .expect("the visitor never fails")
        .map(|()| edits)
    }

    #[test]
    fn the_bytes_are_those_of_the_format() {
        let mut batch = WriteBatch::new();
        batch.put(b"k", b"vw").unwrap();
        batch.delete(b"").unwrap();
        assert_eq!(batch.payload(), b"\x01\x00\x01\x00\x02\x00\x00\x00kvw\x02\x00\x00\x00\x00\x00\x00\x00");
        assert_eq!((batch.count(), batch.byte_len()), (2, 19));
        batch.clear();
        assert!(batch.is_empty() && batch.payload().is_empty());
    }

    #[test]
    fn limits_are_exact_and_a_refused_entry_changes_nothing() {
        let mut batch = WriteBatch::new();
        batch.put(&vec![7; MAX_KEY], b"").unwrap();
        let before = batch.payload().to_vec();
        assert!(matches!(batch.put(&vec![7; MAX_KEY + 1], b""), Err(Error::TooLarge(_))));
        assert!(matches!(batch.delete(&vec![7; MAX_KEY + 1]), Err(Error::TooLarge(_))));
        assert!(matches!(batch.put(b"k", &vec![0; MAX_VALUE + 1]), Err(Error::TooLarge(_))));
        assert_eq!((batch.payload(), batch.count()), (&before[..], 1));
    }

    #[test]
    fn damage_is_named_with_its_place() {
        let mut batch = WriteBatch::new();
        batch.put(b"a", b"1").unwrap();
        batch.delete(b"b").unwrap();
        let sound = batch.payload().to_vec();
        let cases: [(usize, u8, usize, &str); 5] = [
            (0, 9, 0, "an entry's kind, 1 or 2"),
            (1, 1, 0, "zero behind the entry's kind"),
            (14, 1, 10, "no value in a delete"),
            (12, 2, 10, "a whole entry"),
            (12, 0, 18, "the end of the batch"),
        ];
        for (at, byte, offset, expected) in cases {
            let mut bytes = sound.clone();
            bytes[at] = byte;
            let damage = all(&bytes, 2).unwrap_err();
            assert_eq!((damage.offset, damage.expected), (offset, expected), "byte {at} = {byte}");
        }
        assert!(all(&sound, 3).is_err());
        assert!(all(&sound, 1).is_err());
    }

    proptest! {
        #[test]
        fn what_is_gathered_is_decoded(edits in prop::collection::vec(
            (prop::collection::vec(any::<u8>(), 0..40), prop::option::of(prop::collection::vec(any::<u8>(), 0..90))), 0..30,
        )) {
            let mut batch = WriteBatch::new();
            for (key, value) in &edits {
                match value {
                    Some(value) => batch.put(key, value).unwrap(),
                    None => batch.delete(key).unwrap(),
                }
            }
            let read = all(batch.payload(), batch.count()).unwrap();
            prop_assert_eq!(read.len(), edits.len());
            for (read, (key, value)) in read.iter().zip(&edits) {
                prop_assert_eq!(read.key(), &key[..]);
                prop_assert_eq!(read.value(), value.as_deref());
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), count in 0u32..9) {
            let _ = all(&bytes, count);
        }

        #[test]
        fn a_payload_cut_anywhere_is_damage(len in 0usize..40, cut in 1usize..40) {
            let mut batch = WriteBatch::new();
            batch.put(b"key", &vec![3; len]).unwrap();
            let cut = cut.min(batch.byte_len());
            prop_assert!(all(&batch.payload()[..batch.byte_len() - cut], 1).is_err());
        }
    }
}
