//! A slab whose keys carry a generation: a stale key never reaches a newer value.
//!
//! Values never move: they live in chunks that are allocated once, because the kernel may hold addresses of
//! fields inside them (a time-out's duration). A freed place is reused last-freed-first, with a new generation.

/// Key of a value in a [`Slab`]: index and generation, also usable as a 64-bit number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Place in the slab.
    pub index: u32,
    /// Use of that place; 0 is never live.
    pub generation: u32,
}

impl Key {
    /// The key that no value ever has.
    pub const NONE: Key = Key { index: u32::MAX, generation: 0 };

    /// The key as one number.
    pub fn to_bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// The key from a number made by [`Key::to_bits`]; any other number is a key that finds nothing.
    #[allow(clippy::cast_possible_truncation, reason = "the two halves are taken apart on purpose")]
    pub fn from_bits(bits: u64) -> Self {
        Key { index: bits as u32, generation: (bits >> 32) as u32 }
    }
}

const CHUNK: usize = 64;
const NO_INDEX: u32 = u32::MAX;

#[derive(Debug)]
struct Place<T> {
    generation: u32,
    next_free: u32,
    value: Option<T>,
}

/// Values under generation-checked keys, at addresses that stay.
#[derive(Debug)]
pub struct Slab<T> {
    chunks: Vec<Box<[Place<T>]>>,
    first_free: u32,
    len: usize,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab::new()
    }
}

impl<T> Slab<T> {
    /// An empty slab; allocates nothing.
    pub fn new() -> Self {
        Slab { chunks: Vec::new(), first_free: NO_INDEX, len: 0 }
    }

    /// How many values are in it.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds no value.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    fn place(&self, index: u32) -> Option<&Place<T>> {
        self.chunks.get(index as usize / CHUNK)?.get(index as usize % CHUNK)
    }

    #[inline]
    fn place_mut(&mut self, index: u32) -> Option<&mut Place<T>> {
        self.chunks.get_mut(index as usize / CHUNK)?.get_mut(index as usize % CHUNK)
    }

    fn grow(&mut self) {
        let base = (self.chunks.len() * CHUNK) as u32;
        assert!(base < NO_INDEX - CHUNK as u32, "a slab holds fewer than 2^32 values");
        let chunk = (0..CHUNK as u32)
            .map(|i| Place {
                generation: 1,
                next_free: if i + 1 == CHUNK as u32 { self.first_free } else { base + i + 1 },
                value: None,
            })
            .collect();
        self.chunks.push(chunk);
        self.first_free = base;
    }

    /// Puts a value in and returns its key.
    pub fn insert(&mut self, value: T) -> Key {
        self.insert_and_get(value).0
    }

    /// As [`Slab::insert`], with the value in its place.
    #[inline]
    pub fn insert_and_get(&mut self, value: T) -> (Key, &mut T) {
        if self.first_free == NO_INDEX {
            self.grow();
        }
        let index = self.first_free;
        self.len += 1;
        let chunk = self.chunks.get_mut(index as usize / CHUNK);
        let place = chunk.and_then(|chunk| chunk.get_mut(index as usize % CHUNK));
        let place = place.expect("a free index is inside a chunk");
        self.first_free = place.next_free;
        (Key { index, generation: place.generation }, place.value.insert(value))
    }

    /// The value under `key`, if it is still there.
    #[inline]
    pub fn get(&self, key: Key) -> Option<&T> {
        self.place(key.index).filter(|p| p.generation == key.generation)?.value.as_ref()
    }

    /// The value under `key`, if it is still there.
    #[inline]
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        self.place_mut(key.index).filter(|p| p.generation == key.generation)?.value.as_mut()
    }

    /// Takes the value under `key` out; its place gets a new generation.
    #[inline]
    pub fn remove(&mut self, key: Key) -> Option<T> {
        let first_free = self.first_free;
        let place = self.place_mut(key.index).filter(|p| p.generation == key.generation)?;
        let value = place.value.take()?;
        // Generation 0 is never live, so that an all-zero key finds nothing.
        place.generation = place.generation.checked_add(1).unwrap_or(1);
        place.next_free = first_free;
        self.first_free = key.index;
        self.len -= 1;
        Some(value)
    }

    /// All values with their keys, in the order of their places.
    pub fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        self.chunks.iter().flatten().enumerate().filter_map(|(index, place)| {
            let key = Key { index: index as u32, generation: place.generation };
            place.value.as_ref().map(|value| (key, value))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_key_finds_nothing_after_reuse() {
        let mut slab = Slab::new();
        let a = slab.insert("a");
        assert_eq!(slab.remove(a), Some("a"));
        let b = slab.insert("b");
        assert_eq!(a.index, b.index);
        assert_eq!(slab.get(a), None);
        assert_eq!(slab.remove(a), None);
        assert_eq!(slab.get(b), Some(&"b"));
        assert_eq!(Key::from_bits(b.to_bits()), b);
    }

    #[test]
    fn values_never_move() {
        let mut slab = Slab::new();
        let first = slab.insert(0u64);
        let address = std::ptr::from_ref(slab.get(first).unwrap());
        for i in 1..1000 {
            slab.insert(i);
        }
        assert!(std::ptr::eq(address, slab.get(first).unwrap()));
        assert_eq!(slab.iter().count(), 1000);
        assert_eq!(slab.len(), 1000);
    }

    #[test]
    fn forged_keys_find_nothing() {
        let mut slab = Slab::new();
        slab.insert(1);
        assert_eq!(slab.get(Key::from_bits(0)), None);
        assert_eq!(slab.get(Key::from_bits(u64::MAX)), None);
        assert_eq!(slab.get(Key::NONE), None);
    }
}
