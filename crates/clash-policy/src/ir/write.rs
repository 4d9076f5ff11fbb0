//! From the owned form of a policy to its flat image.

use std::collections::HashMap;

use super::blob::BlobCodec;
use super::{HEADER, IMAGE_VERSION, ImageSection, MAGIC, SourceFile, checksum};
use crate::effect::Effect;
use crate::rule::{KeyPattern, KeySubject, Layer, MatchBranch, MatchNode, OnViolation, PolicyRule};
use crate::span::PolicySpan;

/// Lays out a stack of layers, highest precedence first. `build` identifies the program
/// that will read it. The rules of `everywhere()` are left out:
/// [`crate::rule::add_to_every_sandbox`] must have moved them before.
pub fn encode(layers: &[Layer], inputs: &[SourceFile], build: u64) -> Vec<u8> {
    let mut image = ImageWriter::default();
    inputs.iter().for_each(|input| image.input(input));
    for layer in layers {
        image.layer(layer);
    }
    image.finish(build)
}

/// The number of an effect in the image; 0 means none.
pub(super) fn effect_code(effect: Effect) -> u32 {
    match effect {
        Effect::Allow => 1,
        Effect::Ask => 2,
        Effect::Deny => 3,
    }
}

pub(super) fn subject_code(subject: KeySubject) -> u32 {
    KeySubject::ALL.iter().position(|s| *s == subject).map_or(0, |at| at as u32)
}

pub(super) const LITERAL: u32 = 0;
pub(super) const GLOB: u32 = 1;
pub(super) const ANY: u32 = 2;
pub(super) const REGEX: u32 = 3;
pub(super) const PATH: u32 = 4;
pub(super) const HOST: u32 = 5;

/// The number of an advice in the image; 0 means none.
pub(super) fn violation_code(on: OnViolation) -> u32 {
    OnViolation::ALL.iter().position(|known| *known == on).map_or(0, |at| at as u32 + 1)
}

/// The sections of an image while they grow. Equal strings are stored once.
#[derive(Default)]
struct ImageWriter {
    records: [Vec<u32>; 8],
    strings: Vec<u8>,
    interned: HashMap<Vec<u8>, [u32; 2]>,
}

/// An edge before it has an index.
struct EdgeRecord {
    subject: u32,
    matcher: u32,
    text: String,
    /// The automaton or the structure of the pattern.
    extra: Vec<u8>,
    rank: u32,
    node: u32,
    order: u32,
}

impl ImageWriter {
    /// The words of a section; not for the strings, which are kept apart.
    fn section(&mut self, section: ImageSection) -> &mut Vec<u32> {
        #[expect(
            clippy::indexing_slicing,
            reason = "eight record sections, Strings is never asked for"
        )]
        &mut self.records[section as usize]
    }

    /// Appends a record and gives its index.
    fn push(&mut self, section: ImageSection, words: &[u32]) -> u32 {
        debug_assert_eq!(words.len(), section.words());
        let at = self.count(section);
        self.section(section).extend_from_slice(words);
        at
    }

    fn count(&mut self, section: ImageSection) -> u32 {
        (self.section(section).len() / section.words()) as u32
    }

    fn text(&mut self, text: &str) -> [u32; 2] {
        self.bytes(text.as_bytes())
    }

    /// Stores bytes among the strings, each once, and gives their offset and length.
    fn bytes(&mut self, bytes: &[u8]) -> [u32; 2] {
        if let Some(known) = self.interned.get(bytes) {
            return *known;
        }
        let place = [self.strings.len() as u32, bytes.len() as u32];
        self.strings.extend_from_slice(bytes);
        self.interned.insert(bytes.to_vec(), place);
        place
    }

    fn span(&mut self, span: &PolicySpan) -> [u32; 4] {
        let [at, len] = self.text(&span.file);
        [at, len, span.line, span.column]
    }

    fn input(&mut self, input: &SourceFile) {
        let [at, len] = self.text(&input.path);
        let stamp = input
            .stamp
            .map_or([0; 5], |s| [s.device, s.inode, s.size, s.modified_ns, s.changed_ns]);
        let mut words = vec![at, len, u32::from(input.stamp.is_some())];
        words.extend(stamp.iter().flat_map(|n| [*n as u32, (*n >> 32) as u32]));
        self.push(ImageSection::Inputs, &words);
    }

    /// Appends a layer. A rule that names a sandbox that is not in the layer gets none; the
    /// compiler refuses such rules.
    fn layer(&mut self, layer: &Layer) {
        let first = self.count(ImageSection::Sandboxes);
        for sandbox in &layer.sandboxes {
            let [name, name_len] = self.text(&sandbox.name);
            let [blob, blob_len] = self.bytes(&sandbox.to_blob());
            self.push(ImageSection::Sandboxes, &[name, name_len, blob, blob_len]);
        }
        let sandbox_code = |name: &Option<String>| {
            name.as_ref()
                .and_then(|name| layer.sandboxes.iter().position(|s| s.name == *name))
                .map_or(0, |at| first + at as u32 + 1)
        };
        let roots: Vec<u32> =
            layer.groups.iter().map(|group| self.tree(&group.branches, &sandbox_code)).collect();
        let first_group = self.count(ImageSection::Groups);
        for (group, root) in layer.groups.iter().zip(roots) {
            let [name, name_len] = self.text(&group.name);
            let [doc, doc_len] = self.text(&group.doc);
            self.push(ImageSection::Groups, &[name, name_len, doc, doc_len, root]);
        }
        let settings = &layer.settings;
        let default = match &settings.default {
            Some(rule) => self.rule(rule, &sandbox_code) + 1,
            None => 0,
        };
        let [origin, origin_len] = self.text(&layer.origin);
        let words = [
            layer.kind as u32,
            u32::from(layer.trusted),
            origin,
            origin_len,
            default,
            sandbox_code(&settings.default_sandbox),
            settings.on_sandbox_violation.map_or(0, violation_code),
            settings.harness_defaults.map_or(0, |on| u32::from(on) + 1),
            first_group,
            layer.groups.len() as u32,
            first,
            layer.sandboxes.len() as u32,
        ];
        self.push(ImageSection::Layers, &words);
    }

    /// Appends a tree, leaves first, and gives the index of its root. Literal keys are
    /// sorted for binary search, then come the patterns, most specific first.
    fn tree(
        &mut self,
        branches: &[MatchBranch],
        sandbox_code: &dyn Fn(&Option<String>) -> u32,
    ) -> u32 {
        let mut edges = Vec::new();
        for (order, branch) in branches.iter().enumerate() {
            let node = match &branch.then {
                MatchNode::Tree(below) => self.tree(below, sandbox_code),
                MatchNode::Rule(rule) => self.leaf(rule, sandbox_code),
            };
            let several = u32::from(branch.key.patterns.len() > 1);
            edges.extend(branch.key.patterns.iter().map(|pattern| {
                let (matcher, rank, extra) = match pattern {
                    KeyPattern::Literal(_) => (LITERAL, several, Vec::new()),
                    KeyPattern::Glob(text) => (GLOB, glob_prefix(text), Vec::new()),
                    KeyPattern::Regex(regex) => {
                        (REGEX, regex_prefix(&regex.pattern), regex.automaton.clone())
                    }
                    KeyPattern::Path(path) => (PATH, 0, path.to_blob()),
                    KeyPattern::Host(host) => (HOST, 0, host.to_blob()),
                    KeyPattern::Any => (ANY, 0, Vec::new()),
                };
                let text = match pattern {
                    KeyPattern::Any => String::new(),
                    KeyPattern::Regex(regex) => regex.pattern.clone(),
                    other => other.to_string(),
                };
                let subject = subject_code(branch.key.subject);
                EdgeRecord { subject, matcher, text, extra, rank, node, order: order as u32 }
            }));
        }
        let (mut exact, mut patterns): (Vec<_>, Vec<_>) =
            edges.into_iter().partition(|edge| edge.matcher == LITERAL);
        exact.sort_by(|a, b| {
            (a.subject, &a.text, a.rank, a.order).cmp(&(b.subject, &b.text, b.rank, b.order))
        });
        // Longest literal prefix first, `**` last, then source order.
        patterns.sort_by_key(|edge| (edge.matcher == ANY, u32::MAX - edge.rank, edge.order));
        let start = self.count(ImageSection::Edges);
        for edge in exact.iter().chain(&patterns) {
            let [at, len] = self.text(&edge.text);
            let [extra, extra_len] = self.bytes(&edge.extra);
            let EdgeRecord { subject, matcher, node, rank, order, .. } = *edge;
            let words = [subject, matcher, at, len, node, rank, order, extra, extra_len];
            self.push(ImageSection::Edges, &words);
        }
        let middle = start + exact.len() as u32;
        let strictest = exact.iter().chain(&patterns).map(|edge| self.strictest(edge.node)).max();
        let doubts = self.count(ImageSection::Doubts);
        let words = self.doubts(&exact, start, KeySubject::Word);
        let options = self.doubts(&exact, start, KeySubject::Option);
        let words = [
            start,
            exact.len() as u32,
            middle,
            patterns.len() as u32,
            0,
            strictest.unwrap_or(effect_code(Effect::Allow)),
            doubts,
            words[0],
            words[1],
            options[0],
            options[1],
        ];
        self.push(ImageSection::Nodes, &words)
    }

    /// The code of the strictest effect below a node.
    fn strictest(&mut self, node: u32) -> u32 {
        let at = node as usize * ImageSection::Nodes.words() + 5;
        self.section(ImageSection::Nodes).get(at).copied().unwrap_or(0)
    }

    /// Records the literal keys about a subject that have a deny or ask below them,
    /// then those with a deny, each in order. A lookup of an unknown word visits only
    /// these. One alternative of a tuple stands for all. Returns the two counts.
    fn doubts(&mut self, exact: &[EdgeRecord], start: u32, subject: KeySubject) -> [u32; 2] {
        let about = |(_, edge): &(u32, &EdgeRecord)| edge.subject == subject_code(subject);
        let mut edges: Vec<_> = (start..).zip(exact).filter(about).collect();
        edges.sort_by_key(|(at, edge)| (edge.rank, edge.order, *at));
        edges.dedup_by_key(|(_, edge)| edge.order);
        [Effect::Ask, Effect::Deny].map(|least| {
            let mut count = 0;
            for (at, edge) in &edges {
                if self.strictest(edge.node) >= effect_code(least) {
                    self.push(ImageSection::Doubts, &[*at]);
                    count += 1;
                }
            }
            count
        })
    }

    /// Appends a rule and its node, and gives the index of the node.
    fn leaf(&mut self, rule: &PolicyRule, sandbox_code: &dyn Fn(&Option<String>) -> u32) -> u32 {
        let effect = effect_code(rule.effect);
        let rule = self.rule(rule, sandbox_code);
        self.push(ImageSection::Nodes, &[0, 0, 0, 0, rule + 1, effect, 0, 0, 0, 0, 0])
    }

    /// Writes the record of a rule, and returns its number.
    fn rule(&mut self, rule: &PolicyRule, sandbox_code: &dyn Fn(&Option<String>) -> u32) -> u32 {
        let [reason, reason_len] = self.text(rule.reason.as_deref().unwrap_or_default());
        let mut words = vec![
            effect_code(rule.effect),
            sandbox_code(&rule.sandbox),
            u32::from(rule.reason.is_some()),
            reason,
            reason_len,
        ];
        words.extend(self.span(&rule.span));
        self.push(ImageSection::Rules, &words)
    }

    /// Puts header, section table, records and strings together.
    fn finish(self, build: u64) -> Vec<u8> {
        let mut body = Vec::new();
        let mut table = Vec::new();
        let base = HEADER + ImageSection::ALL.len() * 8;
        for (section, words) in ImageSection::ALL.iter().zip(&self.records) {
            table.extend([(base + body.len()) as u32, (words.len() / section.words()) as u32]);
            body.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        }
        table.extend([(base + body.len()) as u32, self.strings.len() as u32]);
        body.extend(&self.strings);

        let mut checked = build.to_le_bytes().to_vec();
        checked.extend(table.iter().flat_map(|word| word.to_le_bytes()));
        checked.extend(body);
        let length = (HEADER - 8 + checked.len()) as u32;
        let mut out = MAGIC.to_vec();
        out.extend(IMAGE_VERSION.to_le_bytes());
        out.extend(length.to_le_bytes());
        out.extend(checksum(&checked).to_le_bytes());
        out.extend(checked);
        out
    }
}

/// The length of the plain text of a glob before its first wildcard.
fn glob_prefix(glob: &str) -> u32 {
    glob.find(['*', '?']).unwrap_or(glob.len()) as u32
}

/// The length of the plain text at the start of a regular expression. A quantifier also
/// covers the character before it.
fn regex_prefix(pattern: &str) -> u32 {
    const SPECIAL: &[char] = &['.', '[', '(', '\\', '|', '^', '$', '*', '+', '?', '{'];
    let at = pattern.find(SPECIAL).unwrap_or(pattern.len());
    let quantified = pattern.get(at..).is_some_and(|rest| rest.starts_with(['*', '+', '?', '{']));
    at.saturating_sub(usize::from(quantified)) as u32
}
