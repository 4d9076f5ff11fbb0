//! Finds the place of a rule, or the place for it, in the trees that a policy writes out.

use super::key::{KeyContext, RuleKey, read};
use crate::lex::ByteSpan;
use crate::splice::{BracketItems, SourceLines};
use crate::tree::{
    ArgumentKind, CallArgument, CallExpression, DictEntry, Expression, ExpressionKind,
    SourceStatement, StatementKind, SyntaxTree,
};

/// The trees of a policy.
pub(super) struct PolicyTrees<'a> {
    pub(super) visible: Vec<WrittenTree<'a>>,
    /// Computed trees, and statements that may compute some.
    pub(super) computed: Vec<ByteSpan>,
}

/// A tree written out at the top level.
pub(super) struct WrittenTree<'a> {
    statement: &'a SourceStatement,
    dict: &'a Expression,
    /// True for `when`, which is nothing but its tree; false for `policy`.
    bare: bool,
    number: usize,
}

/// The way down a tree along the path of a rule, as far as it goes.
pub(super) struct RuleLocation<'a> {
    pub(super) steps: Vec<TreeStep<'a>>,
    /// The number of keys of the path on the way so far.
    pub(super) consumed: usize,
    pub(super) end: LocationEnd<'a>,
    /// The number of further keys that a tuple here matches. The way does not enter it,
    /// because the tuple also stands for other rules.
    near: usize,
    /// True if the way covers the whole path.
    whole: bool,
    bare: bool,
    number: usize,
}

pub(super) enum LocationEnd<'a> {
    /// This dict is the place for the rest of the path.
    Insert(&'a Expression),
    /// The whole path leads to this dict.
    Branch(&'a Expression),
    /// The path, or a part of it, leads to this effect.
    Leaf(&'a Expression),
    /// A computed value, which the editor cannot read.
    Computed(ByteSpan),
}

/// One entry on the way down.
#[derive(Clone)]
pub(super) struct TreeStep<'a> {
    pub(super) dict: &'a Expression,
    pub(super) entries: &'a [DictEntry],
    pub(super) entry: usize,
    /// The alternative of the key that matches, and the number of alternatives.
    pub(super) alternative: ByteSpan,
    pub(super) alternatives: usize,
    pub(super) list: Option<(Option<ByteSpan>, std::rc::Rc<BracketItems>)>,
    /// True if an empty dict here removes its statement.
    pub(super) removable: bool,
}

/// An entry that is exactly the rule.
pub(super) struct ExactRule<'a> {
    pub(super) steps: Vec<TreeStep<'a>>,
    pub(super) statement: &'a SourceStatement,
}

impl ExactRule<'_> {
    /// The alternative of the first key above the rule's own that also stands for other
    /// rules, for example `"a"` of `("a", "b")`.
    pub(super) fn shared(&self) -> Option<ByteSpan> {
        let (_, outer) = self.steps.split_last()?;
        outer.iter().find(|step| step.alternatives > 1).map(|step| step.alternative)
    }
}

impl<'a> PolicyTrees<'a> {
    /// Finds the trees at the top level, and the places that may compute others.
    pub(super) fn find(file: &'a SyntaxTree) -> Self {
        let mut trees = Self { visible: Vec::new(), computed: Vec::new() };
        for statement in file.statements() {
            match &statement.kind {
                StatementKind::Expr(expr) => match expr.call().and_then(tree_of) {
                    Some((dict, bare)) if matches!(dict.kind, ExpressionKind::Dict(..)) => {
                        let number = trees.visible.len();
                        trees.visible.push(WrittenTree { statement, dict, bare, number });
                    }
                    Some((tree, _)) => trees.computed.push(tree.span),
                    None => trees.note_computed(expr),
                },
                _ => trees.note_computed_in(statement),
            }
        }
        trees
    }

    /// Notes the trees inside a statement, at any depth.
    fn note_computed_in(&mut self, statement: &SourceStatement) {
        match &statement.kind {
            StatementKind::Expr(expr) | StatementKind::Return(Some(expr)) => {
                self.note_computed(expr)
            }
            StatementKind::Assign { value, .. } => self.note_computed(value),
            StatementKind::Def { body, .. } | StatementKind::For { body, .. } => {
                body.iter().for_each(|statement| self.note_computed_in(statement));
            }
            StatementKind::If(branches) => {
                let bodies = branches.iter().flat_map(|branch| &branch.body);
                bodies.for_each(|statement| self.note_computed_in(statement));
            }
            _ => {}
        }
    }

    /// Notes the trees inside an expression.
    fn note_computed(&mut self, expr: &Expression) {
        if expr.call().and_then(tree_of).is_some() {
            self.computed.push(expr.span);
        } else {
            expr.children().into_iter().for_each(|child| self.note_computed(child));
        }
    }
}

/// The tree given to `when` or `policy`, by position or as `tree`, and true if it is a
/// `when`. `None` for other calls and without a tree.
fn tree_of(call: &CallExpression) -> Option<(&Expression, bool)> {
    let bare = match call.name()? {
        "when" => true,
        "policy" => false,
        _ => return None,
    };
    let at = usize::from(!bare);
    let positional = |arg: &&CallArgument| arg.kind == ArgumentKind::Positional;
    let given = call.args.iter().filter(positional).nth(at).map(|arg| &arg.value);
    Some((given.or_else(|| call.named("tree"))?, bare))
}

/// True for a call or a bare name such as `allow`.
pub(super) fn is_effect(expr: &Expression) -> bool {
    let name = expr.call().map_or_else(|| expr.name(), |call| call.name());
    matches!(name, Some("allow" | "deny" | "ask" | "cow" | "cache"))
}

/// True for the key `glob("**")`.
pub(super) fn is_wildcard(key: &Expression) -> bool {
    match read(key, KeyContext::Other).alternatives.as_slice() {
        [only] => only.keys.as_slice() == [RuleKey::wildcard()],
        _ => false,
    }
}

/// True for a key for everything not named: `glob("**")` or `default()`.
pub(super) fn is_general(key: &Expression) -> bool {
    is_wildcard(key) || key.call().is_some_and(|call| call.name() == Some("default"))
}

/// The entry with the key `glob("**")`.
pub(super) fn wildcard(dict: &Expression) -> Option<&DictEntry> {
    match &dict.kind {
        ExpressionKind::Dict(entries, _) => entries.iter().find(|entry| is_wildcard(&entry.key)),
        _ => None,
    }
}

/// How keys at this depth of a path are read.
fn context(path: &[RuleKey], depth: usize) -> KeyContext {
    let bash = path.iter().take(depth).any(|key| *key == RuleKey::str("Bash"));
    match depth {
        0 => KeyContext::Root,
        // Below `mode(…)` or `agent(…)` stand tools again.
        _ if matches!(path.get(depth - 1), Some(RuleKey::Call { name, .. })
            if matches!(name.as_str(), "mode" | "agent")) =>
        {
            KeyContext::Root
        }
        _ if bash => KeyContext::Command,
        _ => KeyContext::Other,
    }
}

impl<'a> WrittenTree<'a> {
    /// The way to the rule, or to the place for it, by the most specific keys.
    pub(super) fn find(&self, path: &[RuleKey]) -> RuleLocation<'a> {
        let mut found = RuleLocation {
            steps: Vec::new(),
            consumed: 0,
            end: LocationEnd::Insert(self.dict),
            near: 0,
            whole: false,
            bare: self.bare,
            number: self.number,
        };
        let mut dict = self.dict;
        loop {
            let rest = path.get(found.consumed..).unwrap_or_default();
            let (steps, computed) = self.steps(dict, path, found.consumed);
            let literal = steps.iter().filter(|(step, _)| step.alternatives == 1);
            let literal = literal.max_by_key(|(_, length)| *length);
            let exact = steps.iter().find(|(step, length)| {
                *length == rest.len() && value_of(step).is_some_and(is_effect)
            });
            let Some((step, length)) = literal.or(exact) else {
                found.near = steps.iter().map(|(_, length)| *length).max().unwrap_or(0);
                found.end = computed.map_or(LocationEnd::Insert(dict), LocationEnd::Computed);
                return found;
            };
            let Some(value) = value_of(step) else { return found };
            found.consumed += length;
            found.steps.push(step.clone());
            found.whole = found.consumed == path.len();
            match &value.kind {
                ExpressionKind::Dict(..) if !found.whole => dict = value,
                ExpressionKind::Dict(..) => {
                    found.end = LocationEnd::Branch(value);
                    return found;
                }
                _ => {
                    let leaf = is_effect(value);
                    found.end = if leaf {
                        LocationEnd::Leaf(value)
                    } else {
                        LocationEnd::Computed(value.span)
                    };
                    return found;
                }
            }
        }
    }

    /// The entries of a dict whose keys begin the rest of the path, each with its number
    /// of keys; and the first computed key.
    fn steps(
        &self,
        dict: &'a Expression,
        path: &[RuleKey],
        depth: usize,
    ) -> (Vec<(TreeStep<'a>, usize)>, Option<ByteSpan>) {
        let mut steps = Vec::new();
        let mut computed = None;
        let ExpressionKind::Dict(entries, _) = &dict.kind else { return (steps, computed) };
        let rest = path.get(depth..).unwrap_or_default();
        for (entry, given) in entries.iter().enumerate() {
            let reading = read(&given.key, context(path, depth));
            computed = computed.or(reading.computed);
            let list = reading.list.map(|(whole, items)| (whole, std::rc::Rc::new(items)));
            let alternatives = list.as_ref().map_or(1, |(_, items)| items.spans.len());
            for alternative in reading.alternatives {
                let length = alternative.keys.len();
                if length > 0 && rest.starts_with(&alternative.keys) {
                    let step = TreeStep {
                        dict,
                        entries,
                        entry,
                        alternative: alternative.span,
                        alternatives,
                        list: list.clone(),
                        removable: self.bare,
                    };
                    steps.push((step, length));
                }
            }
        }
        (steps, computed)
    }

    /// Every entry that is exactly the rule.
    pub(super) fn leaves(&self, path: &[RuleKey], into: &mut Vec<ExactRule<'a>>) {
        let mut open = vec![(self.dict, 0, Vec::new())];
        while let Some((dict, depth, above)) = open.pop() {
            for (step, length) in self.steps(dict, path, depth).0 {
                let Some(value) = value_of(&step) else { continue };
                let mut steps: Vec<TreeStep<'a>> = above.clone();
                steps.push(step);
                let done = depth + length == path.len();
                match &value.kind {
                    ExpressionKind::Dict(..) if !done => open.push((value, depth + length, steps)),
                    ExpressionKind::Dict(entries, _) => {
                        let general = entries.iter().position(|entry| is_wildcard(&entry.key));
                        let Some(entry) = general else { continue };
                        let alternative = entries.get(entry).map_or(dict.span, |e| e.key.span);
                        steps.push(TreeStep {
                            dict: value,
                            entries,
                            entry,
                            alternative,
                            alternatives: 1,
                            list: None,
                            removable: false,
                        });
                        into.push(ExactRule { steps, statement: self.statement });
                    }
                    _ if done && is_effect(value) => {
                        into.push(ExactRule { steps, statement: self.statement });
                    }
                    _ => {}
                }
            }
        }
    }
}

/// The value of the entry of a step.
fn value_of<'a>(step: &TreeStep<'a>) -> Option<&'a Expression> {
    step.entries.get(step.entry).map(|entry| &entry.value)
}

impl RuleLocation<'_> {
    /// True if the rule exists here, so that its effect is replaced.
    pub(super) fn is_exact(&self) -> bool {
        match self.end {
            LocationEnd::Leaf(_) => self.whole,
            LocationEnd::Branch(dict) => wildcard(dict).is_some(),
            LocationEnd::Insert(_) | LocationEnd::Computed(_) => false,
        }
    }

    /// True if no entry can be put here.
    pub(super) fn is_closed(&self, place: &SourceLines<'_>) -> bool {
        match self.end {
            LocationEnd::Computed(_) => true,
            // `when({"Bash": {` … `}})`: one more entry would change other lines.
            LocationEnd::Insert(dict) if self.steps.is_empty() => match &dict.kind {
                ExpressionKind::Dict(entries, brackets) => {
                    let spans = entries.iter().map(|entry| entry.span).collect();
                    let items = BracketItems { brackets: *brackets, spans };
                    place.file.text(dict.span).contains('\n') && !place.is_spread(&items)
                }
                _ => true,
            },
            _ => false,
        }
    }

    /// The computed value at which the way ends.
    pub(super) fn computed(&self) -> Option<ByteSpan> {
        match self.end {
            LocationEnd::Computed(span) => Some(span),
            _ => None,
        }
    }

    /// Orders ways: the deepest is best, then a `when`, then the last in the file.
    pub(super) fn score(&self) -> (usize, bool, usize) {
        (self.consumed + self.near, self.bare, self.number)
    }
}
