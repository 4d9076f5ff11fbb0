//! Test support: the decisions of the tools whose settings clash imports, and random
//! actions to decide.
//!
//! The code follows the documentation of those tools word by word, shares nothing with
//! the importers and is slow. Tests compare both sides and show that an import never
//! widens. Only tests use this crate.
//!
//! Commands are lists of plain words. For clash, two commands that differ only in the
//! place of their options are equal. For the other tools they differ. So an allow of
//! clash is right if the other tool allows one of the [`respellings`].
#![forbid(unsafe_code)]

use clash_policy::Effect;

/// One thing an agent wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OracleAction {
    Command(Vec<String>),
    /// Absolute, without `.` and `..`.
    Read(String),
    Edit(String),
    Fetch(String),
    Tool(String),
}

/// Where the paths of rules start.
#[derive(Clone, Copy, Debug)]
pub struct OraclePlaces<'a> {
    pub project: &'a str,
    pub home: &'a str,
    /// The directory `/x` in the settings is relative to.
    pub settings: &'a str,
}

/// The three lists of Claude Code's `permissions`.
#[derive(Clone, Debug, Default)]
pub struct ClaudeLists {
    pub deny: Vec<String>,
    pub ask: Vec<String>,
    pub allow: Vec<String>,
}

impl ClaudeLists {
    /// Deny, then ask, then allow: the first list with a match. None: no rule.
    pub fn decide(&self, action: &OracleAction, places: &OraclePlaces<'_>) -> Option<Effect> {
        let lists =
            [(&self.deny, Effect::Deny), (&self.ask, Effect::Ask), (&self.allow, Effect::Allow)];
        lists
            .into_iter()
            .find(|(rules, _)| rules.iter().any(|rule| claude_rule_matches(rule, action, places)))
            .map(|(_, effect)| effect)
    }

    /// The settings file that holds these lists.
    pub fn settings(&self) -> String {
        serde_json::json!({
            "permissions": {"deny": self.deny, "ask": self.ask, "allow": self.allow}
        })
        .to_string()
    }
}

/// True if a rule matches an action. Other forms than the tests use match nothing.
fn claude_rule_matches(rule: &str, action: &OracleAction, places: &OraclePlaces<'_>) -> bool {
    let (tool, inside) = match rule.split_once('(') {
        Some((tool, rest)) => (tool, rest.strip_suffix(')')),
        None => (rule, None),
    };
    match (action, tool) {
        (OracleAction::Command(words), "Bash") => {
            inside.is_none_or(|inside| command(inside, &words.join(" ")))
        }
        (OracleAction::Read(path), "Read") | (OracleAction::Edit(path), "Edit") => {
            inside.is_none_or(|inside| file(inside, path, places))
        }
        (OracleAction::Fetch(host), "WebFetch") => inside.is_none_or(|inside| {
            let domain = inside.strip_prefix("domain:").unwrap_or(inside);
            match domain.strip_prefix("*.") {
                Some(above) => host.ends_with(&format!(".{above}")),
                None => domain == "*" || domain == host,
            }
        }),
        (OracleAction::Tool(name), tool) if tool.starts_with("mcp__") => {
            spans(tool, name) || name.starts_with(&format!("{tool}__"))
        }
        _ => false,
    }
}

/// True if a pattern of `Bash(…)` matches a command line.
fn command(pattern: &str, text: &str) -> bool {
    let prefix = pattern.strip_suffix(":*").or_else(|| pattern.strip_suffix(" *"));
    match prefix {
        Some(prefix) => spans(prefix, text) || spans(&format!("{prefix} *"), text),
        None => spans(pattern, text),
    }
}

/// True if a pattern matches the whole text: `*` is any text, also across words.
fn spans(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((before, after)) => text.strip_prefix(before).is_some_and(|rest| {
            let starts = rest.char_indices().map(|(at, _)| at).chain([rest.len()]);
            starts.filter_map(|at| rest.get(at..)).any(|rest| spans(after, rest))
        }),
    }
}

/// gitignore patterns: true if the path or a directory above it matches.
fn file(pattern: &str, path: &str, places: &OraclePlaces<'_>) -> bool {
    let (base, rest, anchored) = if let Some(rest) = pattern.strip_prefix("//") {
        ("", rest, true)
    } else if let Some(rest) = pattern.strip_prefix("~/") {
        (places.home, rest, true)
    } else if let Some(rest) = pattern.strip_prefix('/') {
        (places.settings, rest, true)
    } else {
        (places.project, pattern.strip_prefix("./").unwrap_or(pattern), false)
    };
    let Some(inside) = path.strip_prefix(base).and_then(|rest| rest.strip_prefix('/')) else {
        return false;
    };
    let only_below = rest.ends_with('/');
    let rest = rest.trim_end_matches('/');
    let mut wanted: Vec<&str> = rest.split('/').collect();
    if !anchored && wanted.len() == 1 {
        wanted.insert(0, "**");
    }
    let names: Vec<&str> = inside.split('/').collect();
    let longest = if only_below { names.len().saturating_sub(1) } else { names.len() };
    (1..=longest).any(|end| names.get(..end).is_some_and(|names| segments(&wanted, names)))
}

/// True if the names match, one by one; `**` is any number of names.
fn segments(wanted: &[&str], names: &[&str]) -> bool {
    match (wanted.split_first(), names.split_first()) {
        (None, None) => true,
        (Some((&"**", [])), _) => !names.is_empty(),
        (Some((&"**", rest)), None) => segments(rest, names),
        (Some((&"**", rest)), Some((_, fewer))) => segments(rest, names) || segments(wanted, fewer),
        (Some((want, wanted)), Some((name, names))) => spans(want, name) && segments(wanted, names),
        _ => false,
    }
}

/// A `prefix_rule` of codex.
#[derive(Clone, Debug)]
pub struct PrefixRule {
    /// Each word with its alternatives.
    pub pattern: Vec<Vec<String>>,
    pub decision: Effect,
}

/// The effect of the strictest rule whose words are the first words of the command; `None`
/// if no rule matches.
pub fn decide_codex(rules: &[PrefixRule], words: &[String]) -> Option<Effect> {
    let matches = |rule: &&PrefixRule| {
        rule.pattern.len() <= words.len()
            && rule.pattern.iter().zip(words).all(|(any, word)| any.contains(word))
    };
    rules.iter().filter(matches).map(|rule| rule.decision).max()
}

/// The `.rules` file that holds these rules.
pub fn codex_rules(rules: &[PrefixRule]) -> String {
    let decision = |effect| match effect {
        Effect::Allow => "allow",
        Effect::Ask => "prompt",
        Effect::Deny => "forbidden",
    };
    let line = |rule: &PrefixRule| {
        format!(
            "prefix_rule(pattern = {:?}, decision = {:?})\n",
            rule.pattern,
            decision(rule.decision)
        )
    };
    rules.iter().map(line).collect()
}

/// Every command with the same words and options in another order: words keep
/// their order, an option stands anywhere behind the program, with the word
/// after it (as its value) or without; and `-ab` is also `-a -b`.
pub fn respellings(words: &[String]) -> Vec<Vec<String>> {
    let Some((program, rest)) = words.split_first() else { return Vec::new() };
    let split: Vec<String> = rest.iter().flat_map(|word| unbundled(word)).collect();
    let mut all = Vec::new();
    for rest in [rest.to_vec(), split] {
        groupings(&rest, &mut Vec::new(), &mut Vec::new(), &mut |plain, options| {
            interleavings(plain, options, &mut vec![program.clone()], &mut all);
        });
    }
    all.sort();
    all.dedup();
    all
}

/// `-ab` as `-a` and `-b`; other words stay.
fn unbundled(word: &str) -> Vec<String> {
    match word.strip_prefix('-') {
        Some(letters) if letters.len() > 1 && letters.chars().all(|c| c.is_ascii_alphabetic()) => {
            letters.chars().map(|letter| format!("-{letter}")).collect()
        }
        _ => vec![word.to_owned()],
    }
}

type OptionGroups = Vec<Vec<String>>;

/// Calls `found` for every way to give options the word behind them as a value.
fn groupings(
    rest: &[String],
    plain: &mut Vec<String>,
    options: &mut OptionGroups,
    found: &mut dyn FnMut(&[String], &OptionGroups),
) {
    let Some((word, after)) = rest.split_first() else {
        found(plain, options);
        return;
    };
    if !word.starts_with('-') {
        plain.push(word.clone());
        groupings(after, plain, options, found);
        plain.pop();
        return;
    }
    options.push(vec![word.clone()]);
    groupings(after, plain, options, found);
    options.pop();
    if let Some((value, after)) = after.split_first() {
        options.push(vec![word.clone(), value.clone()]);
        groupings(after, plain, options, found);
        options.pop();
    }
}

/// Adds every order in which options stand among the plain words.
fn interleavings(
    plain: &[String],
    options: &OptionGroups,
    so_far: &mut Vec<String>,
    all: &mut Vec<Vec<String>>,
) {
    if plain.is_empty() && options.is_empty() {
        all.push(so_far.clone());
        return;
    }
    let length = so_far.len();
    if let Some((word, rest)) = plain.split_first() {
        so_far.push(word.clone());
        interleavings(rest, options, so_far, all);
        so_far.truncate(length);
    }
    for at in 0..options.len() {
        let mut others = options.clone();
        so_far.extend(others.remove(at));
        interleavings(plain, &others, so_far, all);
        so_far.truncate(length);
    }
}

/// A random generator. The same seed gives the same values.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number from 0 to `bound` - 1; 0 if `bound` is 0.
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap_or_default() % bound.max(1)
    }

    fn pick<'x>(&mut self, from: &[&'x str]) -> &'x str {
        from.get(self.below(from.len())).copied().unwrap_or_default()
    }

    /// A rule of Claude Code's lists.
    pub fn claude_rule(&mut self) -> String {
        match self.below(8) {
            0..4 => {
                let words = self.words(3);
                let ending = self.pick(&["", ":*", " *", "*", " * main", " * --force", " *x"]);
                match self.below(16) {
                    0 => "Bash".to_owned(),
                    1 => format!("Bash(* {})", self.pick(&DICE_OPTIONS)),
                    _ => format!("Bash({}{ending})", words.join(" ")),
                }
            }
            4 | 5 => {
                let tool = self.pick(&["Read", "Edit"]);
                let start = self.pick(&["", "./", "/", "~/", "//home/u/", "**/"]);
                let ending = self.pick(&["", "", "/**", "/*", "*", "/"]);
                format!("{tool}({start}{}{ending})", self.names())
            }
            6 => format!("WebFetch(domain:{})", self.pick(&["a.org", "*.a.org", "x.a.org", "*"])),
            _ => self.pick(&["mcp__s", "mcp__s__get", "mcp__s__*", "mcp__t__put"]).to_owned(),
        }
    }

    /// Random lists of Claude Code's permissions.
    pub fn claude_lists(&mut self) -> ClaudeLists {
        let mut rules = |most| {
            let count = self.below(most);
            (0..count).map(|_| self.claude_rule()).collect()
        };
        ClaudeLists { deny: rules(4), ask: rules(4), allow: rules(6) }
    }

    /// Random rules of Codex.
    pub fn prefix_rules(&mut self) -> Vec<PrefixRule> {
        let decisions = [Effect::Allow, Effect::Ask, Effect::Deny];
        let count = 1 + self.below(6);
        (0..count)
            .map(|_| {
                let word = |dice: &mut Self, first| {
                    let count = 1 + dice.below(2);
                    (0..count).map(|_| dice.word(first)).collect()
                };
                let length = 1 + self.below(3);
                let pattern = (0..length).map(|at| word(self, at == 0)).collect();
                let decision = decisions.get(self.below(3)).copied().unwrap_or(Effect::Deny);
                PrefixRule { pattern, decision }
            })
            .collect()
    }

    /// An action from the same few words, so that rules often match.
    pub fn action(&mut self, places: &OraclePlaces<'_>) -> OracleAction {
        match self.below(8) {
            0..4 => OracleAction::Command(self.words(5)),
            4 | 5 => {
                let start = self.pick(&[places.project, places.project, places.home, "/etc"]);
                let path = format!("{start}/{}", self.names());
                if self.below(2) == 0 { OracleAction::Read(path) } else { OracleAction::Edit(path) }
            }
            6 => OracleAction::Fetch(
                self.pick(&["a.org", "x.a.org", "y.x.a.org", "ba.org"]).to_owned(),
            ),
            _ => OracleAction::Tool(
                self.pick(&["mcp__s__get", "mcp__s__put", "mcp__t__put"]).to_owned(),
            ),
        }
    }

    /// A program and up to `most` further words.
    pub fn words(&mut self, most: usize) -> Vec<String> {
        let count = self.below(most + 1);
        (0..=count).map(|at| self.word(at == 0)).collect()
    }

    /// A program, or a further word.
    fn word(&mut self, program: bool) -> String {
        if program {
            return self.pick(&["git", "npm", "ls", "lsof"]).to_owned();
        }
        match self.below(3) {
            0 => self.pick(&DICE_OPTIONS).to_owned(),
            _ => self.pick(&["push", "run", "test", "tests", "main", "x"]).to_owned(),
        }
    }

    /// A path of one to three names.
    fn names(&mut self) -> String {
        let count = 1 + self.below(3);
        let names: Vec<&str> = (0..count).map(|_| self.pick(&DICE_NAMES)).collect();
        names.join("/")
    }
}

const DICE_OPTIONS: [&str; 5] = ["--force", "-f", "-rf", "--all", "-C"];
const DICE_NAMES: [&str; 5] = ["src", ".env", "a.env", "proj", "secrets"];

#[cfg(test)]
mod tests;
