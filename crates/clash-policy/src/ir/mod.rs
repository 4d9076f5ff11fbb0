//! The flat IR: a compiled layer stack as one file that is read in place.
//!
//! A hook call reads the file and looks up what it needs; nothing is decoded up
//! front, so the cost does not grow with the policy. Every access is checked
//! against the bounds, and the whole file against a checksum when it is opened:
//! a damaged cache is an error and never a different decision.
//!
//! Layout, little endian, all offsets in bytes from the start of the file:
//!
//! ```text
//! magic[8]  version u32  length u32  checksum u64  build u64
//! sections × (offset u32, count u32)
//! records of fixed size per section, made of u32 words
//! string bytes
//! ```
//!
//! Strings are (offset into the string bytes, length); what is only ever read
//! whole (a sandbox, a pattern with structure) is a blob among them. The format
//! is private to one build of clash: `build` names it, and another build
//! compiles anew. docs/formats.md shows what it holds as JSON.

mod blob;
mod read;
mod write;

pub use read::{
    CheckedImage, EdgeMatcher, EdgeRef, GroupRef, IrImage, LayerRef, NodeRef, RuleRef, SandboxRef,
    SourceFileRef,
};
pub use write::encode;

/// Raised with every change of the layout or of what a field means.
pub const VERSION: u32 = 5;

const MAGIC: &[u8; 8] = b"clashIR\0";
const HEADER: usize = 32;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IrError {
    #[error("not a compiled policy")]
    NotIr,
    #[error("compiled by another version of clash")]
    OtherVersion,
    #[error("the compiled policy is damaged")]
    Damaged,
}

type IrResult<T> = Result<T, IrError>;

/// The state of a file that went into a compiled policy; any difference makes
/// the cached form stale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    pub path: String,
    /// `None`: there was no such file, and if one appears the policy changes.
    pub stamp: Option<SourceStamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceStamp {
    pub device: u64,
    pub inode: u64,
    pub size: u64,
    pub modified_ns: u64,
    pub changed_ns: u64,
}

/// Sections in file order, with the words in one record.
#[derive(Clone, Copy)]
enum ImageSection {
    Inputs,
    Layers,
    Groups,
    Nodes,
    Edges,
    Doubts,
    Rules,
    Sandboxes,
    Strings,
}

impl ImageSection {
    const ALL: [Self; 9] = [
        Self::Inputs,
        Self::Layers,
        Self::Groups,
        Self::Nodes,
        Self::Edges,
        Self::Doubts,
        Self::Rules,
        Self::Sandboxes,
        Self::Strings,
    ];

    const fn words(self) -> usize {
        match self {
            Self::Inputs => 13,
            Self::Layers => 12,
            Self::Groups => 5,
            Self::Nodes => 11,
            Self::Doubts => 1,
            Self::Edges => 9,
            Self::Rules => 9,
            Self::Sandboxes => 4,
            Self::Strings => 0,
        }
    }
}

/// Detects damage, not malice: the cache is out of reach of every sandbox. It runs
/// over the whole file at every hook call, so four sums are made side by side,
/// eight bytes a step each; none waits for another.
fn checksum(bytes: &[u8]) -> u64 {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    // One to one for every sum and every value, so that no change is lost.
    let step = |sum: u64, value: u64| (sum ^ value).wrapping_mul(MULTIPLIER).rotate_left(29);
    let (blocks, tail) = bytes.as_chunks::<32>();
    let mut sums = [bytes.len() as u64, 1, 2, 3];
    for block in blocks {
        let (words, _) = block.as_chunks::<8>();
        for (sum, word) in sums.iter_mut().zip(words) {
            *sum = step(*sum, u64::from_le_bytes(*word));
        }
    }
    let sum = sums.into_iter().fold(0, step);
    tail.iter().fold(sum, |sum, byte| step(sum, u64::from(*byte)))
}

/// Gives damaged bytes a header that says they are whole, so that a fuzzer gets
/// past it to what reads them.
#[doc(hidden)]
pub fn reseal(bytes: &mut [u8], build: u64) {
    let Some((header, _)) = bytes.split_first_chunk_mut::<HEADER>() else { return };
    let (fixed, end) = header.split_at_mut(HEADER - 8);
    end.copy_from_slice(&build.to_le_bytes());
    fixed.fill(0);
    let length = bytes.len() as u32;
    let sum = bytes.get(HEADER - 8..).map_or(0, checksum);
    let mut whole = MAGIC.to_vec();
    whole.extend(VERSION.to_le_bytes());
    whole.extend(length.to_le_bytes());
    whole.extend(sum.to_le_bytes());
    bytes.iter_mut().zip(whole).for_each(|(byte, right)| *byte = right);
}

#[cfg(test)]
mod tests;
