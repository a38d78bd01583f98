//! The randomness of faults and of numbers' beginnings: a generator whose output is the same on every machine and in every version.

/// SplitMix64: one 64-bit state, one output per step.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(crate) fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in 0..`bound`, 0 for a bound of 0. Always draws once, so that changing one probability leaves
    /// the decisions about everything else where they were.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// True `ppm` times in a million.
    pub(crate) fn chance(&mut self, ppm: u32) -> bool {
        self.below(1_000_000) < u64::from(ppm)
    }
}

/// Flips bit `bit` (taken modulo the length) of a packet.
pub(crate) fn flip(packet: &mut [u8], bit: u64) {
    let bits = packet.len() as u64 * 8;
    if bits == 0 {
        return;
    }
    let bit = bit % bits;
    if let Some(byte) = packet.get_mut((bit / 8) as usize) {
        *byte ^= 1 << (bit % 8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_the_published_one() {
        let mut random = Random::new(1_234_567);
        let first: Vec<u64> = (0..3).map(|_| random.next_u64()).collect();
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn chances_come_out_as_asked() {
        let mut random = Random::new(1);
        let hits = (0..100_000).filter(|_| random.chance(250_000)).count();
        assert!((24_000..26_000).contains(&hits), "{hits}");
        assert!((0..1000).all(|_| !random.chance(0)) && (0..1000).all(|_| random.chance(1_000_000)));
    }

    #[test]
    fn a_flip_changes_one_bit() {
        let mut packet = [0u8; 4];
        flip(&mut packet, 32 + 9);
        assert_eq!(packet, [0, 2, 0, 0]);
        flip(&mut [], 3);
    }
}
