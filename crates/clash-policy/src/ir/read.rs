//! Lookups in a flat image without decoding it.

use super::blob::BlobCodec;
use super::read_edge::EdgeRef;
use super::{
    HEADER, IMAGE_VERSION, ImageSection, IrError, IrResult, MAGIC, SourceFile, SourceStamp,
    checksum,
};
use crate::effect::Effect;
use crate::rule::{
    KeySubject, Layer, LayerGroup, LayerKind, LayerSettings, MatchBranch, MatchKey, MatchNode,
    OnViolation, PolicyRule,
};
use crate::sandbox::Sandbox;
use crate::span::PolicySpan;

/// An opened image.
#[derive(Clone, Copy, Debug)]
pub struct IrImage<'a> {
    bytes: &'a [u8],
}

/// The bytes of an image whose header and checksum were verified.
#[derive(Debug)]
pub struct CheckedImage<B>(B);

impl<B: AsRef<[u8]>> CheckedImage<B> {
    /// As [`IrImage::open`].
    pub fn new(bytes: B, build: u64) -> IrResult<Self> {
        IrImage::open(bytes.as_ref(), build)?;
        Ok(Self(bytes))
    }

    pub fn ir(&self) -> IrImage<'_> {
        IrImage { bytes: self.0.as_ref() }
    }

    pub fn bytes(&self) -> &[u8] {
        self.0.as_ref()
    }
}

/// One fixed-size record.
#[derive(Clone, Copy, Debug)]
pub(super) struct ImageRecord<'a> {
    pub(super) ir: IrImage<'a>,
    bytes: &'a [u8],
}

impl<'a> IrImage<'a> {
    /// The checksum of the image. Equal images have equal checksums; different ones differ
    /// except by chance. It is no defence against forgery.
    pub fn digest(self) -> IrResult<u64> {
        self.long(16)
    }

    /// Fails unless magic, build, version, length and checksum are right. The records are
    /// checked when they are read.
    pub fn open(bytes: &'a [u8], build: u64) -> IrResult<Self> {
        let ir = Self { bytes };
        if bytes.get(..MAGIC.len()) != Some(MAGIC.as_slice()) {
            return Err(IrError::NotIr);
        }
        if ir.word(8)? != IMAGE_VERSION || ir.long(24)? != build {
            return Err(IrError::OtherVersion);
        }
        let checked = bytes.get(24..).ok_or(IrError::Damaged)?;
        if ir.word(12)? as usize != bytes.len() || ir.long(16)? != checksum(checked) {
            return Err(IrError::Damaged);
        }
        Ok(ir)
    }

    /// The number at an offset in the file.
    fn word(&self, at: usize) -> IrResult<u32> {
        let bytes = self.bytes.get(at..).and_then(|rest| rest.first_chunk::<4>());
        bytes.map(|b| u32::from_le_bytes(*b)).ok_or(IrError::Damaged)
    }

    fn long(&self, at: usize) -> IrResult<u64> {
        let bytes = self.bytes.get(at..).and_then(|rest| rest.first_chunk::<8>());
        bytes.map(|b| u64::from_le_bytes(*b)).ok_or(IrError::Damaged)
    }

    /// The offset of a section and the number of its records.
    fn section_place(&self, section: ImageSection) -> IrResult<(usize, u32)> {
        let at = HEADER + section as usize * 8;
        Ok((self.word(at)? as usize, self.word(at + 4)?))
    }

    /// One record; an index outside the section is damage.
    fn record(&self, section: ImageSection, index: u32) -> IrResult<ImageRecord<'a>> {
        let (start, count) = self.section_place(section)?;
        if index >= count {
            return Err(IrError::Damaged);
        }
        let size = section.words() * 4;
        let at = start + index as usize * size;
        let bytes = self.bytes.get(at..at + size).ok_or(IrError::Damaged)?;
        Ok(ImageRecord { ir: *self, bytes })
    }

    pub(super) fn blob(&self, at: u32, len: u32) -> IrResult<&'a [u8]> {
        let (start, _) = self.section_place(ImageSection::Strings)?;
        let from = start + at as usize;
        self.bytes.get(from..from + len as usize).ok_or(IrError::Damaged)
    }

    fn text(&self, at: u32, len: u32) -> IrResult<&'a str> {
        std::str::from_utf8(self.blob(at, len)?).map_err(|_| IrError::Damaged)
    }

    /// Every record of a section; none if the section table is cut off.
    fn all(self, section: ImageSection) -> impl Iterator<Item = IrResult<ImageRecord<'a>>> {
        let count = self.section_place(section).map_or(0, |(_, count)| count);
        (0..count).map(move |index| self.record(section, index))
    }

    /// The source files of the policy.
    pub fn inputs(self) -> impl Iterator<Item = IrResult<SourceFileRef<'a>>> {
        self.all(ImageSection::Inputs).map(|record| record.map(SourceFileRef))
    }

    /// The layers, highest precedence first.
    pub fn layers(self) -> impl Iterator<Item = IrResult<LayerRef<'a>>> {
        self.all(ImageSection::Layers).map(|record| record.map(LayerRef))
    }

    /// The whole layer stack in its owned form.
    pub fn to_layers(self) -> IrResult<Vec<Layer>> {
        self.layers().map(|layer| layer?.to_layer()).collect()
    }
}

impl<'a> ImageRecord<'a> {
    /// The number at an index of the record.
    pub(super) fn word(&self, index: usize) -> IrResult<u32> {
        let bytes = self.bytes.get(index * 4..).and_then(|rest| rest.first_chunk::<4>());
        bytes.map(|b| u32::from_le_bytes(*b)).ok_or(IrError::Damaged)
    }

    fn long(&self, index: usize) -> IrResult<u64> {
        Ok(u64::from(self.word(index)?) | u64::from(self.word(index + 1)?) << 32)
    }

    pub(super) fn text(&self, index: usize) -> IrResult<&'a str> {
        self.ir.text(self.word(index)?, self.word(index + 1)?)
    }

    /// The effect at an index; `None` for the number 0.
    fn effect(&self, index: usize) -> IrResult<Option<Effect>> {
        match self.word(index)? {
            0 => Ok(None),
            1 => Ok(Some(Effect::Allow)),
            2 => Ok(Some(Effect::Ask)),
            3 => Ok(Some(Effect::Deny)),
            _ => Err(IrError::Damaged),
        }
    }

    fn span(&self, index: usize) -> IrResult<PolicySpan> {
        Ok(PolicySpan {
            file: self.text(index)?.to_owned(),
            line: self.word(index + 2)?,
            column: self.word(index + 3)?,
        })
    }

    /// The sandbox at an index: 0 for none, otherwise the index of its record plus one.
    fn sandbox(&self, index: usize) -> IrResult<Option<SandboxRef<'a>>> {
        let code = self.word(index)?;
        code.checked_sub(1).map(|at| SandboxRef::at(self.ir, at)).transpose()
    }

    /// The rule at an index: 0 for none, otherwise the index of its record plus one.
    fn rule(&self, index: usize) -> IrResult<Option<RuleRef<'a>>> {
        let code = self.word(index)?;
        code.checked_sub(1)
            .map(|at| self.ir.record(ImageSection::Rules, at).map(RuleRef))
            .transpose()
    }

    /// The records of another section that belong to this one: the first index and the
    /// count.
    fn owned(
        &self,
        section: ImageSection,
        index: usize,
    ) -> IrResult<impl Iterator<Item = IrResult<Self>>> {
        let (ir, start, count) = (self.ir, self.word(index)?, self.word(index + 1)?);
        Ok((start..start.saturating_add(count)).map(move |at| ir.record(section, at)))
    }
}

/// A source file of the image.
#[derive(Clone, Copy, Debug)]
pub struct SourceFileRef<'a>(ImageRecord<'a>);

impl<'a> SourceFileRef<'a> {
    pub fn path(&self) -> IrResult<&'a str> {
        self.0.text(0)
    }

    /// The state of the file when the policy was compiled. `None` if the file did not exist.
    pub fn stamp(&self) -> IrResult<Option<SourceStamp>> {
        if self.0.word(2)? == 0 {
            return Ok(None);
        }
        Ok(Some(SourceStamp {
            device: self.0.long(3)?,
            inode: self.0.long(5)?,
            size: self.0.long(7)?,
            modified_ns: self.0.long(9)?,
            changed_ns: self.0.long(11)?,
        }))
    }

    pub fn to_input(&self) -> IrResult<SourceFile> {
        Ok(SourceFile { path: self.path()?.to_owned(), stamp: self.stamp()? })
    }
}

/// A layer of the image.
#[derive(Clone, Copy, Debug)]
pub struct LayerRef<'a>(ImageRecord<'a>);

impl<'a> LayerRef<'a> {
    pub fn kind(&self) -> IrResult<LayerKind> {
        LayerKind::ALL.get(self.0.word(0)? as usize).copied().ok_or(IrError::Damaged)
    }

    pub fn trusted(&self) -> IrResult<bool> {
        Ok(self.0.word(1)? != 0)
    }

    pub fn origin(&self) -> IrResult<&'a str> {
        self.0.text(2)
    }

    pub fn default(&self) -> IrResult<Option<RuleRef<'a>>> {
        self.0.rule(4)
    }

    pub fn default_sandbox(&self) -> IrResult<Option<SandboxRef<'a>>> {
        self.0.sandbox(5)
    }

    pub fn on_sandbox_violation(&self) -> IrResult<Option<OnViolation>> {
        let code = self.0.word(6)? as usize;
        let known = |at: usize| OnViolation::ALL.get(at).copied().ok_or(IrError::Damaged);
        code.checked_sub(1).map(known).transpose()
    }

    pub fn harness_defaults(&self) -> IrResult<Option<bool>> {
        match self.0.word(7)? {
            0 => Ok(None),
            1 => Ok(Some(false)),
            2 => Ok(Some(true)),
            _ => Err(IrError::Damaged),
        }
    }

    pub fn groups(&self) -> IrResult<impl Iterator<Item = IrResult<GroupRef<'a>>>> {
        Ok(self.0.owned(ImageSection::Groups, 8)?.map(|record| record.map(GroupRef)))
    }

    /// The sandboxes the layer defines or loads.
    pub fn sandboxes(&self) -> IrResult<impl Iterator<Item = IrResult<SandboxRef<'a>>>> {
        let (ir, start, count) = (self.0.ir, self.0.word(10)?, self.0.word(11)?);
        Ok((start..start.saturating_add(count)).map(move |index| SandboxRef::at(ir, index)))
    }

    /// The whole layer in its owned form. `everywhere` and `grants` are empty: the compiler
    /// has already put them into groups and sandboxes.
    fn to_layer(self) -> IrResult<Layer> {
        let default_sandbox = self.default_sandbox()?.map(|s| s.name()).transpose()?;
        Ok(Layer {
            kind: self.kind()?,
            origin: self.origin()?.to_owned(),
            trusted: self.trusted()?,
            settings: LayerSettings {
                default: self.default()?.map(|rule| rule.to_rule()).transpose()?,
                default_sandbox: default_sandbox.map(str::to_owned),
                on_sandbox_violation: self.on_sandbox_violation()?,
                harness_defaults: self.harness_defaults()?,
                everywhere: Vec::new(),
                grants: Vec::new(),
            },
            groups: self.groups()?.map(|group| group?.to_group()).collect::<IrResult<_>>()?,
            sandboxes: self.sandboxes()?.map(|s| s?.to_sandbox()).collect::<IrResult<_>>()?,
        })
    }
}

/// A group of rules of the image.
#[derive(Clone, Copy, Debug)]
pub struct GroupRef<'a>(ImageRecord<'a>);

impl<'a> GroupRef<'a> {
    pub fn name(&self) -> IrResult<&'a str> {
        self.0.text(0)
    }

    pub fn root(&self) -> IrResult<NodeRef<'a>> {
        NodeRef::at(self.0.ir, self.0.word(4)?)
    }

    fn to_group(self) -> IrResult<LayerGroup> {
        Ok(LayerGroup {
            name: self.name()?.to_owned(),
            doc: self.0.text(2)?.to_owned(),
            branches: self.root()?.to_branches(MAX_IMAGE_DEPTH)?,
        })
    }
}

/// The compiler makes no deeper trees.
const MAX_IMAGE_DEPTH: usize = 200;

/// A node of a match tree: a rule, or keys with nodes below them.
#[derive(Clone, Copy, Debug)]
pub struct NodeRef<'a>(ImageRecord<'a>);

impl<'a> NodeRef<'a> {
    pub(super) fn at(ir: IrImage<'a>, index: u32) -> IrResult<Self> {
        ir.record(ImageSection::Nodes, index).map(Self)
    }

    /// The rule of a leaf; `None` for a node with keys.
    pub fn rule(&self) -> IrResult<Option<RuleRef<'a>>> {
        self.0.rule(4)
    }

    /// The tree below in source order; the alternatives of a tuple are one key, in the
    /// order of the image. A tree deeper than `depth` is damage.
    fn to_branches(self, depth: usize) -> IrResult<Vec<MatchBranch>> {
        let below = depth.checked_sub(1).ok_or(IrError::Damaged)?;
        let mut edges =
            self.literals()?.chain(self.patterns()?).collect::<IrResult<Vec<EdgeRef<'a>>>>()?;
        edges.sort_by_key(|edge| edge.order);
        let mut branches: Vec<(u32, MatchBranch)> = Vec::new();
        for edge in edges {
            let pattern = edge.pattern()?;
            match branches.last_mut() {
                Some((order, branch)) if *order == edge.order => branch.key.patterns.push(pattern),
                _ => {
                    let node = edge.node()?;
                    let then = match node.rule()? {
                        Some(rule) => MatchNode::Rule(rule.to_rule()?),
                        None => MatchNode::Tree(node.to_branches(below)?),
                    };
                    let key = MatchKey { subject: edge.subject, patterns: vec![pattern] };
                    branches.push((edge.order, MatchBranch { key, then }));
                }
            }
        }
        Ok(branches.into_iter().map(|(_, branch)| branch).collect())
    }

    fn edge(&self, index: u32) -> IrResult<EdgeRef<'a>> {
        EdgeRef::from_record(self.0.ir.record(ImageSection::Edges, index)?)
    }

    /// The literal keys equal to `text`, found by binary search.
    pub fn exact(&self, subject: KeySubject, text: &str) -> IrResult<Vec<EdgeRef<'a>>> {
        let (start, count) = (self.0.word(0)?, self.0.word(1)?);
        let mut low = self.lower_bound(subject, text)?;
        let mut found = Vec::new();
        while low < count {
            let edge = self.edge(start.saturating_add(low))?;
            if (edge.subject, edge.text) != (subject, text) {
                break;
            }
            found.push(edge);
            low += 1;
        }
        Ok(found)
    }

    /// Keys with wildcards, most specific first.
    pub fn patterns(&self) -> IrResult<impl Iterator<Item = IrResult<EdgeRef<'a>>>> {
        let (node, start, count) = (*self, self.0.word(2)?, self.0.word(3)?);
        Ok((start..start.saturating_add(count)).map(move |index| node.edge(index)))
    }

    /// Every literal key.
    pub fn literals(&self) -> IrResult<impl Iterator<Item = IrResult<EdgeRef<'a>>>> {
        let (node, start, count) = (*self, self.0.word(0)?, self.0.word(1)?);
        Ok((start..start.saturating_add(count)).map(move |index| node.edge(index)))
    }

    /// The literal keys about a subject that begin with `start`.
    pub fn starting(
        &self,
        subject: KeySubject,
        start: &str,
    ) -> IrResult<impl Iterator<Item = IrResult<EdgeRef<'a>>>> {
        let (node, first, count) = (*self, self.0.word(0)?, self.0.word(1)?);
        let low = self.lower_bound(subject, start)?;
        let begins = move |edge: &IrResult<EdgeRef<'a>>| {
            edge.as_ref().map_or(true, |e| e.subject == subject && e.text.starts_with(start))
        };
        Ok((low..count).map(move |at| node.edge(first.saturating_add(at))).take_while(begins))
    }

    /// The index of the first literal key that is not before (`subject`, `text`).
    fn lower_bound(&self, subject: KeySubject, text: &str) -> IrResult<u32> {
        let (start, count) = (self.0.word(0)?, self.0.word(1)?);
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = low + (high - low) / 2;
            let edge = self.edge(start.saturating_add(middle))?;
            if (edge.subject, edge.text) < (subject, text) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// The strictest effect of the rules below.
    pub fn strictest(&self) -> IrResult<Effect> {
        self.0.effect(5)?.ok_or(IrError::Damaged)
    }

    /// The next literal key about words or options that has a rule at least as strict as
    /// `least` below it, in order behind the key `place`. `least` is ask or deny. One
    /// alternative of a tuple stands for all.
    pub fn next_doubt(
        &self,
        subject: KeySubject,
        least: Effect,
        place: Option<(u32, u32)>,
    ) -> IrResult<Option<EdgeRef<'a>>> {
        let counts = [self.0.word(7)?, self.0.word(8)?, self.0.word(9)?, self.0.word(10)?];
        let list =
            usize::from(subject == KeySubject::Option) * 2 + usize::from(least == Effect::Deny);
        let start = counts.iter().take(list).fold(self.0.word(6)?, |a, b| a.saturating_add(*b));
        let count = counts.get(list).copied().unwrap_or(0);
        let edge = |at: u32| {
            let record = self.0.ir.record(ImageSection::Doubts, start.saturating_add(at))?;
            self.edge(record.word(0)?)
        };
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = low + (high - low) / 2;
            let one = edge(middle)?;
            if place.is_some_and(|place| (one.rank, one.order) <= place) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        if low < count { edge(low).map(Some) } else { Ok(None) }
    }
}

/// A rule of the image.
#[derive(Clone, Copy, Debug)]
pub struct RuleRef<'a>(ImageRecord<'a>);

impl<'a> RuleRef<'a> {
    pub fn effect(&self) -> IrResult<Effect> {
        self.0.effect(0)?.ok_or(IrError::Damaged)
    }

    pub fn sandbox(&self) -> IrResult<Option<SandboxRef<'a>>> {
        self.0.sandbox(1)
    }

    pub fn reason(&self) -> IrResult<Option<&'a str>> {
        if self.0.word(2)? == 0 { Ok(None) } else { self.0.text(3).map(Some) }
    }

    pub fn span(&self) -> IrResult<PolicySpan> {
        self.0.span(5)
    }

    pub fn to_rule(self) -> IrResult<PolicyRule> {
        let sandbox = self.sandbox()?.map(|s| s.name()).transpose()?;
        Ok(PolicyRule {
            effect: self.effect()?,
            sandbox: sandbox.map(str::to_owned),
            reason: self.reason()?.map(str::to_owned),
            span: self.span()?,
        })
    }
}

/// A sandbox of the image. Two are equal if they are the same record of one image.
#[derive(Clone, Copy)]
pub struct SandboxRef<'a> {
    record: ImageRecord<'a>,
    index: u32,
}

impl PartialEq for SandboxRef<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.index == other.index
    }
}

impl std::fmt::Debug for SandboxRef<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SandboxRef({})", self.index)
    }
}

impl<'a> SandboxRef<'a> {
    fn at(ir: IrImage<'a>, index: u32) -> IrResult<Self> {
        Ok(Self { record: ir.record(ImageSection::Sandboxes, index)?, index })
    }

    pub fn name(&self) -> IrResult<&'a str> {
        self.record.text(0)
    }

    pub fn to_sandbox(&self) -> IrResult<Sandbox> {
        let record = &self.record;
        Sandbox::from_blob(record.ir.blob(record.word(2)?, record.word(3)?)?)
    }
}
