//! The targets without a fuzzer: over their seeds and over damaged ones.

use clash_fuzz::seeds::{self, TARGETS};

/// A small generator with the same numbers everywhere: a failure can be run again.
struct Random(u64);

impl Random {
    /// A number from 0 to `end` - 1; 0 if `end` is 0.
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end.max(1) as u64) as usize
    }

    /// A seed with some bytes changed, removed, doubled or taken from another.
    fn damaged(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = seeds[self.below(seeds.len())].clone();
        for _ in 0..=self.below(4) {
            let (at, end) = (self.below(bytes.len()), self.below(bytes.len() + 1));
            match self.below(5) {
                0 => bytes.iter_mut().skip(at).take(1).for_each(|b| *b ^= 1 << (end % 8)),
                1 => drop(bytes.drain(at.min(end)..at.max(end).min(at.min(end) + 16))),
                2 => bytes.truncate(end.max(1)),
                3 => {
                    let again: Vec<u8> = bytes.iter().skip(at).take(end % 24).copied().collect();
                    bytes.splice(end.min(bytes.len())..end.min(bytes.len()), again);
                }
                _ => {
                    let other = &seeds[self.below(seeds.len())];
                    let part: Vec<u8> = other.iter().skip(at).take(end % 40).copied().collect();
                    bytes.splice(at.min(bytes.len())..at.min(bytes.len()), part);
                }
            }
        }
        bytes
    }
}

#[test]
fn properties_hold_for_seeds_and_damaged_seeds() {
    let rounds: usize =
        std::env::var("CLASH_FUZZ_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(300);
    for (name, target) in TARGETS {
        let seeds = seeds::seeds_for(name);
        assert!(!seeds.is_empty(), "{name}");
        seeds.iter().for_each(|seed| target(seed));
        let mut random = Random(0x5eed);
        for round in 0..rounds {
            let input = random.damaged(&seeds);
            if std::panic::catch_unwind(|| target(&input)).is_err() {
                panic!("{name}, round {round}: {:?}", String::from_utf8_lossy(&input));
            }
        }
    }
}
