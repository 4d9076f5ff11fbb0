//! The two small alphabets of the language: the answer of a rule (`Effect`) and the
//! capabilities of a file rule (`FileCaps`).

use std::fmt;

/// The answer of a rule. Ordered by strictness, so `max` gives the strictest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effect {
    Allow,
    Ask,
    Deny,
}

impl Effect {
    /// As policies and messages write it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// A set of file capabilities, written as letters of `rwcdx` in policies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FileCaps(u8);

impl FileCaps {
    pub const NONE: Self = Self(0);
    pub const READ: Self = Self(1);
    pub const WRITE: Self = Self(2);
    pub const CREATE: Self = Self(4);
    pub const DELETE: Self = Self(8);
    pub const EXECUTE: Self = Self(16);
    pub const ALL: Self = Self(31);
    /// The capabilities that change the disk.
    pub const CHANGE: Self = Self(2 | 4 | 8);

    const LETTERS: [(char, Self); 5] = [
        ('r', Self::READ),
        ('w', Self::WRITE),
        ('c', Self::CREATE),
        ('d', Self::DELETE),
        ('x', Self::EXECUTE),
    ];

    /// Reads `"rwx"`; the error is the first letter that is not a capability.
    pub fn parse(letters: &str) -> Result<Self, char> {
        letters.chars().try_fold(Self::NONE, |caps, letter| {
            let known = Self::LETTERS.iter().find(|(l, _)| *l == letter).ok_or(letter)?;
            Ok(caps.union(known.1))
        })
    }

    pub const fn from_bits(bits: u8) -> Option<Self> {
        if bits <= Self::ALL.0 { Some(Self(bits)) } else { None }
    }

    pub const fn bits(self) -> u8 {
        self.0
    }

    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub const fn intersect(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The five single capabilities.
    pub fn each() -> impl Iterator<Item = Self> {
        Self::LETTERS.iter().map(|(_, cap)| *cap)
    }
}

impl fmt::Display for FileCaps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Self::LETTERS
            .iter()
            .filter(|(_, cap)| self.contains(*cap))
            .try_for_each(|(letter, _)| write!(f, "{letter}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_strictest_effect_is_the_greatest() {
        assert!(Effect::Deny > Effect::Ask && Effect::Ask > Effect::Allow);
    }

    #[test]
    fn letters_round_trip_and_an_unknown_one_is_named() {
        assert_eq!(FileCaps::parse("rwcdx"), Ok(FileCaps::ALL));
        assert_eq!(FileCaps::parse("xr").map(|c| c.to_string()), Ok("rx".to_owned()));
        assert_eq!(FileCaps::parse("rz"), Err('z'));
    }
}
