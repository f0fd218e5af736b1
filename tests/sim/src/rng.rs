//! Dice of one schedule: equal seeds give equal worlds.

/// splitmix64.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        // Neighbouring seeds shall not give neighbouring worlds.
        Self(seed.wrapping_mul(0xD134_2543_DE82_EF95).wrapping_add(0x2545_F491_4F6C_DD1D))
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// In `0..limit`; 0 if `limit` is 0.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        let limit = limit.max(1) as u64;
        usize::try_from(self.number() % limit).unwrap_or(0)
    }

    /// True once in `times`.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn pick<T: Clone>(&mut self, items: &[T]) -> Option<T> {
        if items.is_empty() { None } else { Some(items[self.below(items.len())].clone()) }
    }
}
