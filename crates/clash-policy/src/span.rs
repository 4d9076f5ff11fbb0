//! Places in the source of a policy.

use std::fmt;

/// A place in a policy file; lines and columns count from one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PolicySpan {
    pub file: String,
    pub line: u32,
    pub column: u32,
}

impl fmt::Display for PolicySpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 {
            return f.write_str(&self.file);
        }
        write!(f, "{}:{}", self.file, self.line)
    }
}
