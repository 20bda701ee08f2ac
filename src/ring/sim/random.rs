//! The simulator's own random numbers: splitmix64, small and the same on every machine and with every dependency.
//!
//! A history is a function of its seed for ever, so that a seed that once failed can be kept; a library's generator
//! may change its sequence with a version.

/// A seeded generator.
#[derive(Debug, Clone)]
pub struct Random(u64);

/// One step of splitmix64's output function: spreads the bits of a number over all 64.
pub fn mix(number: u64) -> u64 {
    let mut z = number;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Random {
    /// The sequence of this seed.
    pub fn new(seed: u64) -> Self {
        Random(mix(seed ^ 0x5851_f42d_4c95_7f2d))
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `end`; 0 when `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { self.number() % end }
    }

    /// True `per_1024` times out of 1024. A rate of 0 takes no number, so that switching a fault off leaves the
    /// rest of a history as it was.
    pub fn chance(&mut self, per_1024: u32) -> bool {
        per_1024 > 0 && self.below(1024) < u64::from(per_1024)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_one_sequence_and_seeds_differ() {
        let draw = |seed| {
            let mut random = Random::new(seed);
            (0..8).map(|_| random.number()).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn chances_come_about_as_often_as_asked() {
        let mut random = Random::new(3);
        let hits = (0..10_240).filter(|_| random.chance(256)).count();
        assert!((2300..2820).contains(&hits), "{hits} of 10240 at a rate of one in four");
        assert!(!random.chance(0));
    }
}
