//! CRC32C (Castagnoli), the checksum of every block and frame on disk.
//!
//! Every checksum also covers the *place* of its bytes (file number, epoch, offset), so that a block that is
//! right but in the wrong place is found: a [`Checksum`] is fed the place first and the content after it.

/// A running CRC32C.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checksum(u32);

impl Checksum {
    /// A checksum of nothing yet.
    pub fn new() -> Self {
        Checksum(0)
    }

    /// A checksum that starts with the place of the bytes: the fields as little-endian 64-bit numbers.
    pub fn at(place: &[u64]) -> Self {
        place.iter().fold(Checksum::new(), |sum, field| sum.add(&field.to_le_bytes()))
    }

    /// The checksum continued over `bytes`.
    #[must_use]
    pub fn add(self, bytes: &[u8]) -> Self {
        Checksum(crc32c::crc32c_append(self.0, bytes))
    }

    /// The value to store.
    pub fn value(self) -> u32 {
        self.0
    }
}

impl Default for Checksum {
    fn default() -> Self {
        Checksum::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_standard_check_value() {
        // RFC 3720, appendix B.4: the CRC32C of "123456789".
        assert_eq!(Checksum::new().add(b"123456789").value(), 0xe306_9283);
    }

    #[test]
    fn the_place_counts() {
        assert_ne!(Checksum::at(&[1, 2]).add(b"x"), Checksum::at(&[1, 3]).add(b"x"));
        assert_eq!(Checksum::at(&[]).add(b"ab"), Checksum::new().add(b"a").add(b"b"));
    }
}
