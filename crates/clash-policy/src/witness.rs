//! Witnesses: example actions for the cases that a policy distinguishes. For every key
//! of every tree one action matches it and one nearly matches, and some actions match
//! no key. Two policies that agree on all witnesses may still differ. Where they differ
//! on one, it is an example.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;

use clash_shell::quoted_argument;
use regex_automata::dfa::Automaton;
use regex_automata::dfa::sparse::DFA;
use regex_automata::{Anchored, Input as Search};

use crate::action::{Action, FileUse, HostUse, InputField, ToolInput};
use crate::net::{HostPattern, NetworkAccess};
use crate::path::PolicyPlaces;
use crate::pattern::{glob_matches, path_glob_matches};
use crate::regex::PolicyRegex;
use crate::rule::{KeyPattern, KeySubject, Layer, MatchBranch, MatchNode, ONLY_HOST};
use crate::sandbox::{PathPattern, Sandbox};
use crate::tool::{self, ToolKind};

/// Stands for anything that a policy does not name.
const UNNAMED: &str = "clash-example";
const UNNAMED_HOST: &str = "clash-example.test";
const UNNAMED_PATHS: [&str; 6] = [
    "$PWD/clash-example",
    "$PWD/.git/config",
    "$HOME/clash-example",
    "$HOME/.ssh/id_ed25519",
    "$TMPDIR/clash-example",
    "/etc/passwd",
];
/// The last one is opaque.
const UNNAMED_SCRIPTS: [&str; 2] = [UNNAMED, "eval \"$CLASH_EXAMPLE\""];

/// An action and how to show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyWitness {
    pub action: Action,
    /// The path, host or command, with the variables of a policy.
    pub shown: String,
}

/// No policy needs more. Beyond this, tuples have multiplied each other.
const MAX_WITNESSES: usize = 50_000;

/// The witnesses of policies, each once. `false`: the list is not complete.
pub fn actions<'l>(
    layers: impl Iterator<Item = &'l Layer> + Clone,
    places: &PolicyPlaces,
) -> (Vec<PolicyWitness>, bool) {
    let groups = layers.flat_map(|layer| &layer.groups);
    let mut named = NamedLiterals::default();
    groups.clone().for_each(|group| named.add_literals(&group.branches));
    groups.clone().for_each(|group| named.add_options(&group.branches, &[]));
    let mut found = WitnessSearch { places, named, seen: BTreeSet::new(), witnesses: Vec::new() };
    found.emit(&WitnessDraft::default());
    groups.for_each(|group| found.walk(&group.branches, &WitnessDraft::default()));
    let complete = found.witnesses.len() < MAX_WITNESSES;
    (found.witnesses, complete)
}

/// The literals of all policies: a pattern of one policy may match a literal of
/// another.
#[derive(Default)]
struct NamedLiterals {
    literals: BTreeSet<String>,
    /// By program: the options of all keys below it. They may come behind any word of
    /// the command.
    options: BTreeMap<String, BTreeSet<String>>,
}

impl NamedLiterals {
    /// Texts per pattern and options per program. Beyond this, only a key of its own
    /// gives a witness.
    const MAX_NAMED_TEXTS: usize = 30;

    /// Adds the literals of all keys in these trees.
    fn add_literals(&mut self, branches: &[MatchBranch]) {
        for MatchBranch { key, then } in branches {
            self.literals.extend(key.patterns.iter().filter_map(|pattern| match pattern {
                KeyPattern::Literal(text) => Some(text.clone()),
                _ => None,
            }));
            if let MatchNode::Tree(tree) = then {
                self.add_literals(tree);
            }
        }
    }

    /// Texts that a pattern matches or nearly matches, among them literals of other keys.
    fn texts(&self, pattern: &KeyPattern) -> Vec<String> {
        let covers = |text: &&String| match pattern {
            KeyPattern::Glob(glob) => glob_matches(glob, text),
            KeyPattern::Regex(regex) => regex.matches(text) == Some(true),
            _ => false,
        };
        let named = self.literals.iter().filter(covers).take(Self::MAX_NAMED_TEXTS).cloned();
        texts(pattern).into_iter().chain(named).collect()
    }

    /// Adds the options of all keys in these trees, by the programs above them. Options
    /// above any program are stored under an empty name.
    fn add_options(&mut self, branches: &[MatchBranch], programs: &[String]) {
        for MatchBranch { key, then } in branches {
            let texts: Vec<String> = key.patterns.iter().flat_map(|it| self.texts(it)).collect();
            let mut below = programs.to_vec();
            match key.subject {
                KeySubject::Option => {
                    let programs = if programs.is_empty() { &[String::new()] } else { programs };
                    for program in programs {
                        let known = self.options.entry(program.clone()).or_default();
                        let room = Self::MAX_NAMED_TEXTS.saturating_sub(known.len());
                        known.extend(texts.iter().take(room).cloned());
                    }
                }
                KeySubject::Word if programs.is_empty() => below = texts,
                _ => {}
            }
            if let MatchNode::Tree(tree) = then {
                self.add_options(tree, &below);
            }
        }
    }

    /// Options that a command may have besides its own.
    fn further_options(&self, draft: &WitnessDraft) -> Vec<String> {
        let program = draft.words.iter().find(|(_, option)| !option).map(|(word, _)| word.as_str());
        let programs = [program, Some("")].into_iter().flatten();
        let known = programs.filter_map(|program| self.options.get(program)).flatten();
        known.filter(|option| !draft.has_word(option)).cloned().collect()
    }
}

/// An action, as far as the keys of a tree describe it.
#[derive(Clone, Debug, Default)]
struct WitnessDraft {
    tool: Option<String>,
    mode: Option<String>,
    agent: Option<String>,
    /// Words of a command; true for an option.
    words: Vec<(String, bool)>,
    host: Option<String>,
    path: Option<String>,
    fields: Vec<(String, Option<String>)>,
}

impl WitnessDraft {
    fn has_word(&self, text: &str) -> bool {
        self.words.iter().any(|(word, _)| word == text)
    }
}

struct WitnessSearch<'a> {
    places: &'a PolicyPlaces,
    named: NamedLiterals,
    seen: BTreeSet<String>,
    witnesses: Vec<PolicyWitness>,
}

impl WitnessSearch<'_> {
    /// Adds the witnesses for every key of these trees. `above` is the draft of the keys
    /// above them. Stops at [`MAX_WITNESSES`].
    fn walk(&mut self, branches: &[MatchBranch], above: &WitnessDraft) {
        for MatchBranch { key, then } in branches {
            let patterns = key.patterns.iter();
            let drafts: Vec<WitnessDraft> =
                patterns.flat_map(|it| drafts(above, key.subject, it, &self.named)).collect();
            for draft in drafts {
                if self.witnesses.len() >= MAX_WITNESSES {
                    return;
                }
                self.emit(&draft);
                for option in self.named.further_options(&draft) {
                    let mut with = draft.clone();
                    with.words.push((option, true));
                    self.emit(&with);
                }
                if let MatchNode::Tree(below) = then {
                    self.walk(below, &draft);
                }
            }
        }
    }

    /// Adds the actions of a draft, with examples for its open parts.
    fn emit(&mut self, draft: &WitnessDraft) {
        let Some(tool) = &draft.tool else {
            for tool in ["Bash", "Read", "Write", "WebFetch", "clash_example_tool"] {
                self.emit(&WitnessDraft { tool: Some(tool.to_owned()), ..draft.clone() });
            }
            return;
        };
        match tool::canonical(tool).1 {
            ToolKind::Shell if draft.words.is_empty() => {
                UNNAMED_SCRIPTS
                    .iter()
                    .for_each(|script| self.add_script(draft, (*script).to_owned()));
            }
            ToolKind::Shell => {
                for words in word_orders(&draft.words) {
                    self.add_script(draft, words.clone());
                    self.add_script(draft, format!("{words} {UNNAMED}"));
                }
            }
            ToolKind::File => match &draft.path {
                Some(path) => self.add_file(draft, path),
                None => UNNAMED_PATHS.iter().for_each(|path| self.add_file(draft, path)),
            },
            ToolKind::Host => {
                let host = draft.host.clone().unwrap_or_else(|| UNNAMED_HOST.to_owned());
                let hosts = ToolInput::Hosts(vec![HostUse { host: host.clone(), port: 443 }]);
                self.add(draft, hosts, host);
            }
            ToolKind::Other => {
                let field = |(name, value): &(String, Option<String>)| InputField {
                    name: name.clone(),
                    values: vec![value.clone().unwrap_or_else(|| UNNAMED.to_owned())],
                };
                let fields: Vec<InputField> = draft.fields.iter().map(field).collect();
                let texts: Vec<String> = fields
                    .iter()
                    .map(|field| format!("{}={}", field.name, field.values.join(",")))
                    .collect();
                self.add(draft, ToolInput::Fields(fields), texts.join(" "));
            }
        }
    }

    fn add_script(&mut self, draft: &WitnessDraft, script: String) {
        self.add(draft, ToolInput::Script(script.clone()), script);
    }

    fn add_file(&mut self, draft: &WitnessDraft, path: &str) {
        // A path that cannot be expanded gives no action.
        let Ok(expanded) = self.places.expand(path) else { return };
        let needs = tool::needs(draft.tool.as_deref().unwrap_or_default());
        let file = FileUse { path: expanded, needs, caseless: false };
        self.add(draft, ToolInput::Files(vec![file]), path.to_owned());
    }

    /// Adds an action, unless one with the same text is already there. Without a key about
    /// agent or mode, the agent is `claude` and the mode `default`.
    fn add(&mut self, draft: &WitnessDraft, input: ToolInput, shown: String) {
        let (agent, mode) = (draft.agent.as_deref(), draft.mode.as_deref());
        let tool = draft.tool.clone().unwrap_or_default();
        let mut text = format!("{tool} {shown}").trim_end().to_owned();
        if let Some(mode) = mode {
            text.push_str(&format!(" (mode {mode})"));
        }
        if let Some(agent) = agent {
            text.push_str(&format!(" (agent {agent})"));
        }
        if self.seen.insert(text.clone()) {
            let agent = agent.unwrap_or("claude").to_owned();
            let mode = mode.unwrap_or("default").to_owned();
            let action = Action { agent, tool, mode, input };
            self.witnesses.push(PolicyWitness { action, shown: text });
        }
    }
}

/// The drafts for which one more key matches or nearly matches.
fn drafts(
    above: &WitnessDraft,
    subject: KeySubject,
    pattern: &KeyPattern,
    named: &NamedLiterals,
) -> Vec<WitnessDraft> {
    let one = |change: &dyn Fn(&mut WitnessDraft, String)| {
        let change = |text: String| {
            let mut draft = above.clone();
            change(&mut draft, text);
            draft
        };
        named.texts(pattern).into_iter().map(change).collect::<Vec<WitnessDraft>>()
    };
    match (subject, pattern) {
        (KeySubject::End, _) | (_, KeyPattern::Any) => vec![above.clone()],
        (KeySubject::Tool, _) => one(&|draft, text| draft.tool = Some(text)),
        (KeySubject::Mode, _) => one(&|draft, text| draft.mode = Some(text)),
        (KeySubject::Agent, _) => one(&|draft, text| draft.agent = Some(text)),
        (KeySubject::Word, _) => one(&|draft, text| draft.words.push((text, false))),
        (KeySubject::Option, _) => one(&|draft, text| draft.words.push((text, true))),
        (KeySubject::Host, _) => one(&|draft, text| draft.host = Some(text)),
        (KeySubject::Path, _) => one(&|draft, text| draft.path = Some(text)),
        (KeySubject::Field, _) => one(&|draft, text| draft.fields.push((text, None))),
        (KeySubject::Value, _) => one(&|draft, text| {
            if let Some((_, value)) = draft.fields.last_mut() {
                *value = Some(text);
            }
        })
        .into_iter()
        .chain([above.clone()])
        .collect(),
    }
}

/// Texts that a pattern matches, and some that it nearly matches (`sub.x` for exactly `x`);
/// empty if there is no simple one.
fn texts(pattern: &KeyPattern) -> Vec<String> {
    match pattern {
        KeyPattern::Literal(text) => match text.strip_prefix(ONLY_HOST) {
            Some(host) if !host.is_empty() => vec![host.to_owned(), format!("sub.{host}")],
            _ => name_texts(text),
        },
        KeyPattern::Glob(glob) => {
            let filled = glob.replace("**", "*").replace(['*', '?'], "x");
            glob_matches(glob, &filled).then_some(filled).into_iter().collect()
        }
        KeyPattern::Regex(regex) => example(regex).into_iter().collect(),
        KeyPattern::Path(path) => path_texts(path),
        KeyPattern::Host(host) => host_texts(host),
        KeyPattern::Any => Vec::new(),
    }
}

/// The name itself; for `*.name` a subdomain and the name.
fn name_texts(name: &str) -> Vec<String> {
    match name.strip_prefix("*.") {
        Some(domain) => vec![format!("sub.{domain}"), domain.to_owned()],
        None => vec![name.to_owned()],
    }
}

/// Hosts inside and just outside a pattern; for a range of addresses only its first one.
fn host_texts(host: &HostPattern) -> Vec<String> {
    match host {
        HostPattern::Name(name) if name.starts_with("*.") => name_texts(name),
        HostPattern::Name(name) | HostPattern::Exact(name) => {
            vec![name.clone(), format!("sub.{name}")]
        }
        HostPattern::Addresses { base, .. } => vec![base.to_string()],
        HostPattern::Localhost => vec!["localhost".to_owned()],
    }
}

/// Paths inside a pattern, and for some patterns one just outside, with their variables.
fn path_texts(pattern: &PathPattern) -> Vec<String> {
    let below = |base: &str, rest: &str| format!("{}/{rest}", base.trim_end_matches('/'));
    match pattern {
        PathPattern::Subpath { path, .. } | PathPattern::Literal(path) => {
            vec![path.clone(), below(path, UNNAMED)]
        }
        PathPattern::Children(path) => {
            vec![below(path, UNNAMED), below(path, &format!("{UNNAMED}/{UNNAMED}"))]
        }
        PathPattern::Glob { prefix, pattern } => {
            let filled = pattern.replace("**", "x").replace(['*', '?'], "x");
            let matches = path_glob_matches(pattern, &filled);
            matches.then(|| below(prefix, &filled)).into_iter().collect()
        }
        PathPattern::Regex { prefix, regex } => {
            let text = example(regex).into_iter();
            text.map(|text| below(prefix, text.trim_start_matches('/'))).collect()
        }
    }
}

/// A shortest text that the expression matches, found in its automaton. `None` if every
/// such text needs characters other than printable ASCII, if the automaton is damaged, or
/// if the search reaches 10,000 states.
pub fn example(regex: &PolicyRegex) -> Option<String> {
    const MAX_AUTOMATON_STATES: usize = 10_000;
    let (automaton, _) = DFA::from_bytes(&regex.automaton).ok()?;
    let start = automaton.start_state_forward(&Search::new("").anchored(Anchored::Yes)).ok()?;
    let letters = (b'a'..=b'z').chain(b'0'..=b'9');
    let alphabet: Vec<u8> = letters.chain((b' '..=b'~').filter(|b| !b.is_ascii_digit())).collect();
    // For each state: the state and the byte that led to it first.
    let mut reached = HashMap::from([(start, None)]);
    let mut waiting = std::collections::VecDeque::from([start]);
    while let Some(state) = waiting.pop_front() {
        if automaton.is_match_state(automaton.next_eoi_state(state)) {
            let mut text = Vec::new();
            let mut at = state;
            while let Some(Some((before, byte))) = reached.get(&at) {
                text.push(*byte);
                at = *before;
            }
            text.reverse();
            return String::from_utf8(text).ok();
        }
        for byte in &alphabet {
            let next = automaton.next_state(state, *byte);
            if automaton.is_dead_state(next) || reached.contains_key(&next) {
                continue;
            }
            if reached.len() >= MAX_AUTOMATON_STATES {
                return None;
            }
            reached.insert(next, Some((state, *byte)));
            waiting.push_back(next);
        }
    }
    None
}

/// The words as command lines: in the order of the keys; with the options last, because an
/// option in between may take the next word as its value; and with an unknown option before
/// the last word.
fn word_orders(words: &[(String, bool)]) -> Vec<String> {
    let (options, plain): (Vec<_>, Vec<_>) = words.iter().cloned().partition(|(_, option)| *option);
    let mut orders = vec![words.to_vec(), [plain.clone(), options].concat()];
    if let [before @ .., last] = plain.as_slice()
        && !before.is_empty()
    {
        let unnamed = (format!("--{UNNAMED}"), true);
        orders.push([before, &[unnamed, last.clone()]].concat());
    }
    orders.into_iter().map(join_words).collect()
}

/// The command line of the words, quoted. The program comes first: the first word that is
/// no option.
fn join_words(mut words: Vec<(String, bool)>) -> String {
    let program = words.iter().position(|(_, option)| !option).map(|at| words.remove(at));
    words.insert(0, program.unwrap_or((UNNAMED.to_owned(), false)));
    words.iter().map(|(word, _)| quoted_argument(word)).collect::<Vec<String>>().join(" ")
}

/// Paths that sandboxes distinguish, as a policy writes them and expanded, each once. Paths
/// that cannot be expanded are left out.
pub fn paths(sandboxes: &[&Sandbox], places: &PolicyPlaces) -> Vec<(String, PathBuf)> {
    let rules = sandboxes.iter().flat_map(|sandbox| &sandbox.fs);
    let named = rules.flat_map(|rule| path_texts(&rule.pattern));
    let mut seen = BTreeSet::new();
    let all = UNNAMED_PATHS.iter().map(|path| (*path).to_owned()).chain(named);
    all.filter_map(|path| places.expand(&path).ok().map(|expanded| (path, expanded)))
        .filter(|(_, expanded)| seen.insert(expanded.clone()))
        .collect()
}

/// Hosts and ports that sandboxes distinguish.
pub fn hosts(sandboxes: &[&Sandbox]) -> Vec<(String, u16)> {
    let mut found =
        BTreeSet::from([(UNNAMED_HOST.to_owned(), 443), ("localhost".to_owned(), 8080)]);
    for sandbox in sandboxes {
        let NetworkAccess::Hosts { rules, .. } = &sandbox.net else { continue };
        for rule in rules {
            let ports = rule.ports.iter().copied().chain([443, 8080]);
            let ports: Vec<u16> = ports.collect();
            for host in host_texts(&rule.host) {
                found.extend(ports.iter().map(|port| (host.clone(), *port)));
            }
        }
    }
    found.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effect::Effect;
    use crate::rule::{LayerGroup, LayerKind, LayerSettings, MatchKey, PolicyRule};
    use crate::span::PolicySpan;

    fn leaf() -> MatchNode {
        let span = PolicySpan::default();
        MatchNode::Rule(PolicyRule { effect: Effect::Allow, sandbox: None, reason: None, span })
    }

    fn branch(subject: KeySubject, pattern: KeyPattern, then: MatchNode) -> MatchBranch {
        MatchBranch { key: MatchKey { subject, patterns: vec![pattern] }, then }
    }

    fn shown(branches: Vec<MatchBranch>) -> Vec<String> {
        let layer = Layer {
            kind: LayerKind::User,
            origin: String::new(),
            trusted: true,
            settings: LayerSettings::default(),
            groups: vec![LayerGroup { branches, ..LayerGroup::default() }],
            sandboxes: Vec::new(),
        };
        let (all, complete) = actions([layer].iter(), &PolicyPlaces::imagined());
        assert!(complete);
        all.into_iter().map(|witness| witness.shown).collect()
    }

    fn literal(text: &str) -> KeyPattern {
        KeyPattern::Literal(text.to_owned())
    }

    #[test]
    fn every_key_has_a_witness_with_and_without_more_words() {
        let force = branch(KeySubject::Option, literal("--force"), leaf());
        let push = branch(KeySubject::Word, literal("push"), MatchNode::Tree(vec![force]));
        let git = branch(KeySubject::Word, literal("git"), MatchNode::Tree(vec![push]));
        let all =
            shown(vec![branch(KeySubject::Tool, literal("Bash"), MatchNode::Tree(vec![git]))]);
        for expected in [
            "Bash clash-example",
            "Bash git",
            "Bash git clash-example",
            "Bash git push",
            "Bash git push --force",
            "Bash git push --force clash-example",
            "Read /etc/passwd",
            "WebFetch clash-example.test",
            "clash_example_tool",
        ] {
            assert!(all.iter().any(|text| text == expected), "{expected} in {all:#?}");
        }
    }

    #[test]
    fn modes_fields_hosts_and_paths_are_filled_in() {
        let value = branch(KeySubject::Value, KeyPattern::Glob("drop *".into()), leaf());
        let sql = branch(KeySubject::Field, literal("sql"), MatchNode::Tree(vec![value]));
        let path = PathPattern::Glob { prefix: "$HOME".into(), pattern: "**/*.pem".into() };
        let all = shown(vec![
            branch(KeySubject::Tool, KeyPattern::Glob("mcp__*".into()), MatchNode::Tree(vec![sql])),
            branch(
                KeySubject::Tool,
                literal("Read"),
                MatchNode::Tree(vec![branch(KeySubject::Path, KeyPattern::Path(path), leaf())]),
            ),
            branch(
                KeySubject::Tool,
                literal("WebFetch"),
                MatchNode::Tree(vec![branch(KeySubject::Host, literal("=docs.rs"), leaf())]),
            ),
            branch(KeySubject::Mode, literal("plan"), leaf()),
        ]);
        for expected in [
            "mcp__x sql=drop x",
            "mcp__x sql=clash-example",
            "Read $HOME/x/x.pem",
            "WebFetch docs.rs",
            "WebFetch sub.docs.rs",
            "Bash clash-example (mode plan)",
        ] {
            assert!(all.iter().any(|text| text == expected), "{expected} in {all:#?}");
        }
    }
}
