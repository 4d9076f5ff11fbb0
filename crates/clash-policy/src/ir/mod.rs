//! The flat IR: a compiled layer stack as one file that is read in place.
//!
//! A hook call reads the file and looks up single records. It decodes nothing in
//! advance, so the cost does not grow with the policy. Every access is checked against
//! the bounds, and the whole file against a checksum when it is opened: a damaged cache
//! is an error and never a different decision.
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
//! Strings are (offset into the string bytes, length). A sandbox and a pattern with
//! structure are always read whole; they are blobs among the strings. The format is
//! private to one build of clash: `build` names it, and another build compiles anew.
//! docs/formats.md shows the contents as JSON.

mod blob;
mod read;
mod read_edge;
mod write;

pub use read::{
    CheckedImage, GroupRef, IrImage, LayerRef, NodeRef, RuleRef, SandboxRef, SourceFileRef,
};
pub use read_edge::{EdgeMatcher, EdgeRef};
pub use write::encode;

/// Raised with every change of the layout or of the meaning of a field.
pub const IMAGE_VERSION: u32 = 7;

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

/// A source file of a compiled policy. Any difference in its state makes the cached
/// image stale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    pub path: String,
    /// `None`: the file did not exist. If it appears, the image is stale.
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

    /// The number of words of one record of a section.
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

/// Detects damage, not malice: no sandbox can reach the cache. It runs over the whole
/// file at every hook call, so it makes four independent sums, each eight bytes a step.
fn checksum(bytes: &[u8]) -> u64 {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    // Each step is one-to-one, so that no change is lost.
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

/// Gives damaged bytes a valid header, so that a fuzzer reaches the code behind the checks.
/// Bytes shorter than a header stay as they are.
#[doc(hidden)]
pub fn reseal(bytes: &mut [u8], build: u64) {
    let Some((header, _)) = bytes.split_first_chunk_mut::<HEADER>() else { return };
    let (fixed, end) = header.split_at_mut(HEADER - 8);
    end.copy_from_slice(&build.to_le_bytes());
    fixed.fill(0);
    let length = bytes.len() as u32;
    let sum = bytes.get(HEADER - 8..).map_or(0, checksum);
    let mut whole = MAGIC.to_vec();
    whole.extend(IMAGE_VERSION.to_le_bytes());
    whole.extend(length.to_le_bytes());
    whole.extend(sum.to_le_bytes());
    bytes.iter_mut().zip(whole).for_each(|(byte, right)| *byte = right);
}

#[cfg(test)]
mod tests;
