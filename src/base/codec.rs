//! Little-endian decoding and encoding of bytes whose content is not trusted.
//!
//! A [`Reader`] never panics: what is not there is `None`. Lengths read from outside are checked against what is
//! left before anything is taken.
#![deny(clippy::indexing_slicing, clippy::cast_possible_truncation)]

/// Reads little-endian fields from the front of a slice.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A reader over all of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    /// How many bytes are left.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// The next `len` bytes, or `None` when fewer are left.
    pub fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.rest.split_at_checked(len)?;
        self.rest = tail;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, tail) = self.rest.split_first_chunk::<N>()?;
        self.rest = tail;
        Some(*head)
    }

    /// The next byte.
    pub fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[b]| b)
    }

    /// The next two bytes.
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    /// The next four bytes.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// The next eight bytes.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
}

/// Writes little-endian fields into a slice that is known to be long enough.
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl<'a> Writer<'a> {
    /// A writer from the start of `out`.
    pub fn new(out: &'a mut [u8]) -> Self {
        Writer { out, at: 0 }
    }

    /// How many bytes were written.
    pub fn written(&self) -> usize {
        self.at
    }

    /// Appends `bytes`.
    ///
    /// # Panics
    /// When the slice is too short: its size is the caller's own, never read from outside.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        let end = self.at + bytes.len();
        self.out.get_mut(self.at..end).expect("the slice was sized for these fields").copy_from_slice(bytes);
        self.at = end;
        self
    }

    /// Appends one byte.
    pub fn u8(&mut self, value: u8) -> &mut Self {
        self.bytes(&[value])
    }

    /// Appends two bytes.
    pub fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    /// Appends four bytes.
    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    /// Appends eight bytes.
    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let mut bytes = [0u8; 15];
        let mut w = Writer::new(&mut bytes);
        w.u8(1).u16(2).u32(3).u64(4);
        assert_eq!(w.written(), 15);
        let mut r = Reader::new(&bytes);
        assert_eq!((r.u8(), r.u16(), r.u32(), r.u64()), (Some(1), Some(2), Some(3), Some(4)));
        assert_eq!(r.u8(), None);
    }

    #[test]
    fn a_short_slice_gives_none_and_takes_nothing() {
        let mut r = Reader::new(&[1, 2, 3]);
        assert_eq!(r.u32(), None);
        assert_eq!(r.bytes(4), None);
        assert_eq!(r.remaining(), 3);
        assert_eq!(r.bytes(3), Some(&[1u8, 2, 3][..]));
    }
}
