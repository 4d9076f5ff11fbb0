//! One key of a node in a flat image.

use super::blob::BlobCodec;
use super::read::{ImageRecord, NodeRef};
use super::write::{ANY, GLOB, HOST, LITERAL, PATH, REGEX, subject_code};
use super::{IrError, IrResult};
use crate::net::HostPattern;
use crate::pattern::glob_matches;
use crate::regex::{self, PolicyRegex};
use crate::rule::{KeyPattern, KeySubject};
use crate::sandbox::PathPattern;

/// One key of a node.
#[derive(Clone, Copy, Debug)]
pub struct EdgeRef<'a> {
    record: ImageRecord<'a>,
    pub subject: KeySubject,
    pub matcher: EdgeMatcher,
    pub text: &'a str,
    extra: &'a [u8],
    /// For literal keys: 0 for a single literal, 1 for an alternative of a tuple.
    pub rank: u32,
    /// The position of the key in the source. The alternatives of a tuple share it.
    pub order: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EdgeMatcher {
    Literal,
    Glob,
    Regex,
    Path,
    Host,
    Any,
}

impl<'a> EdgeRef<'a> {
    /// Reads the key of one record. An unknown subject or matcher is damage.
    pub(super) fn from_record(record: ImageRecord<'a>) -> IrResult<Self> {
        let code = record.word(0)?;
        let subject = KeySubject::ALL.into_iter().find(|s| subject_code(*s) == code);
        let matcher = match record.word(1)? {
            LITERAL => EdgeMatcher::Literal,
            GLOB => EdgeMatcher::Glob,
            REGEX => EdgeMatcher::Regex,
            PATH => EdgeMatcher::Path,
            HOST => EdgeMatcher::Host,
            ANY => EdgeMatcher::Any,
            _ => return Err(IrError::Damaged),
        };
        Ok(Self {
            record,
            subject: subject.ok_or(IrError::Damaged)?,
            matcher,
            text: record.text(2)?,
            extra: record.ir.blob(record.word(7)?, record.word(8)?)?,
            rank: record.word(5)?,
            order: record.word(6)?,
        })
    }

    /// True if the key matches a whole text. Keys about paths and hosts match no text.
    pub fn matches_text(&self, text: &str) -> IrResult<bool> {
        match self.matcher {
            EdgeMatcher::Literal => Ok(self.text == text),
            EdgeMatcher::Glob => Ok(glob_matches(self.text, text)),
            EdgeMatcher::Regex => regex::matches(self.extra, text).ok_or(IrError::Damaged),
            EdgeMatcher::Any => Ok(true),
            EdgeMatcher::Path | EdgeMatcher::Host => Ok(false),
        }
    }

    /// The compiled form of a regular expression.
    pub(crate) fn extra(&self) -> &'a [u8] {
        self.extra
    }

    /// The pattern of a key about paths; an error for other keys.
    pub fn path(&self) -> IrResult<PathPattern> {
        PathPattern::from_blob(self.extra)
    }

    /// The pattern of a key about hosts; an error for other keys.
    pub fn host(&self) -> IrResult<HostPattern> {
        HostPattern::from_blob(self.extra)
    }

    /// The key's pattern in its owned form.
    pub fn pattern(&self) -> IrResult<KeyPattern> {
        let text = || self.text.to_owned();
        Ok(match self.matcher {
            EdgeMatcher::Literal => KeyPattern::Literal(text()),
            EdgeMatcher::Glob => KeyPattern::Glob(text()),
            EdgeMatcher::Regex => {
                KeyPattern::Regex(PolicyRegex { pattern: text(), automaton: self.extra.to_vec() })
            }
            EdgeMatcher::Path => KeyPattern::Path(self.path()?),
            EdgeMatcher::Host => KeyPattern::Host(self.host()?),
            EdgeMatcher::Any => KeyPattern::Any,
        })
    }

    /// The node below the key.
    pub fn node(&self) -> IrResult<NodeRef<'a>> {
        NodeRef::at(self.record.ir, self.record.word(4)?)
    }
}
