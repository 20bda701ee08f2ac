//! A file's bytes: sparse, and shared between copies until one of them is written.
//!
//! Tests copy whole disks thousands of times and zero log segments ahead; a page that was never written, or written
//! with zeros only, takes no memory, and a copy costs a pointer per page. Bytes behind the length are always zero.

use std::sync::Arc;

/// Bytes of a page, the unit of sharing.
pub const PAGE: usize = 4096;
/// Bytes of a sector, the unit that a power loss leaves whole.
pub const SECTOR: usize = 512;

type Page = [u8; PAGE];
static ZEROS: Page = [0; PAGE];

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct Content {
    len: u64,
    pages: Vec<Option<Arc<Page>>>,
}

impl Content {
    /// The length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn page(&self, index: usize) -> &Page {
        self.pages.get(index).and_then(Option::as_deref).unwrap_or(&ZEROS)
    }

    fn page_mut(&mut self, index: usize) -> &mut Page {
        if self.pages.len() <= index {
            self.pages.resize(index + 1, None);
        }
        Arc::make_mut(self.pages[index].get_or_insert_with(|| Arc::new(ZEROS)))
    }

    /// Reads at `offset`, up to the end of the file; the count.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> usize {
        let count = self.len.saturating_sub(offset).min(out.len() as u64) as usize;
        for piece in pieces(offset, count) {
            out[piece.at..piece.at + piece.len]
                .copy_from_slice(&self.page(piece.page)[piece.start..piece.start + piece.len]);
        }
        count
    }

    /// Whether these bytes are there already (zeros behind the end of the file).
    pub fn has(&self, offset: u64, bytes: &[u8]) -> bool {
        pieces(offset, bytes.len()).all(|piece| {
            self.page(piece.page)[piece.start..piece.start + piece.len]
                == bytes[piece.at..piece.at + piece.len]
        })
    }

    /// Writes at `offset` and extends the file when it is shorter.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.put(offset, bytes);
        self.len = self.len.max(offset + bytes.len() as u64);
    }

    /// Puts bytes in their place; the length stays.
    fn put(&mut self, offset: u64, bytes: &[u8]) {
        for piece in pieces(offset, bytes.len()) {
            let part = &bytes[piece.at..piece.at + piece.len];
            let hole = self.pages.get(piece.page).is_none_or(Option::is_none);
            if !(hole && part == &ZEROS[..piece.len]) {
                self.page_mut(piece.page)[piece.start..piece.start + piece.len].copy_from_slice(part);
            }
        }
    }

    /// One sector; zeros where there is nothing.
    pub fn sector(&self, index: u64) -> [u8; SECTOR] {
        let start = index as usize * SECTOR;
        let mut sector = [0; SECTOR];
        sector.copy_from_slice(&self.page(start / PAGE)[start % PAGE..start % PAGE + SECTOR]);
        sector
    }

    /// Puts one sector in its place, of a file that was `len` bytes long when the sector was written.
    pub fn put_sector(&mut self, index: u64, bytes: &[u8; SECTOR], len: u64) {
        let start = index * SECTOR as u64;
        let inside = len.saturating_sub(start).min(SECTOR as u64) as usize;
        self.put(start, &bytes[..inside]);
        self.len = self.len.max(start + inside as u64);
    }

    /// Cuts or extends (with zeros).
    pub fn set_len(&mut self, len: u64) {
        if len < self.len {
            let whole = len as usize / PAGE;
            let rest = len as usize % PAGE;
            self.pages.truncate(whole + usize::from(rest > 0));
            if rest > 0 && self.pages.get(whole).is_some_and(Option::is_some) {
                self.page_mut(whole)[rest..].fill(0);
            }
        }
        self.len = len;
    }

    /// All bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len as usize];
        self.read(0, &mut bytes);
        bytes
    }
}

/// A run of bytes inside one page.
struct Piece {
    page: usize,
    /// Where in the page.
    start: usize,
    /// Where in the run that was cut into pieces.
    at: usize,
    len: usize,
}

fn pieces(offset: u64, len: usize) -> impl Iterator<Item = Piece> {
    let mut at = 0;
    std::iter::from_fn(move || {
        if at == len {
            return None;
        }
        let place = offset as usize + at;
        let start = place % PAGE;
        let piece = Piece { page: place / PAGE, start, at, len: (PAGE - start).min(len - at) };
        at += piece.len;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::sim::random::Random;

    #[test]
    fn behaves_as_a_plain_vector() {
        let mut random = Random::new(11);
        let mut content = Content::default();
        let mut model: Vec<u8> = Vec::new();
        for step in 0..2000 {
            let offset = random.below(20_000) as usize;
            let bytes = vec![if random.chance(300) { 0 } else { step as u8 }; random.below(9000) as usize];
            match random.below(4) {
                0 => {
                    content.set_len(offset as u64);
                    model.resize(offset, 0);
                }
                _ if bytes.is_empty() => {}
                _ => {
                    content.write(offset as u64, &bytes);
                    model.resize(model.len().max(offset + bytes.len()), 0);
                    model[offset..offset + bytes.len()].copy_from_slice(&bytes);
                    assert!(content.has(offset as u64, &bytes));
                }
            }
            assert_eq!(content.len(), model.len() as u64, "step {step}");
        }
        assert!(content.to_vec() == model);
    }

    #[test]
    fn zeros_ahead_take_no_memory_and_copies_stay_apart() {
        let mut content = Content::default();
        content.write(0, &vec![0; 1 << 20]);
        assert!(content.pages.iter().all(Option::is_none));
        let copy = content.clone();
        content.write(5000, b"x");
        assert_eq!((copy.to_vec()[5000], content.to_vec()[5000]), (0, b'x'));
    }
}
