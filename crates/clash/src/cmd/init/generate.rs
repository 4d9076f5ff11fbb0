//! From a typed draft of a policy to its text. Whoever makes policies (what was
//! detected, what was seen in a history) makes a [`Draft`]; only here it becomes
//! Starlark: loads worked out from the sandboxes that are named, comments where
//! they belong, in the one layout.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use clash_policy::Effect;
use clash_syntax::edit::{RuleKey as Quoted, module_of};

/// A policy that is not text yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Draft {
    /// Lines of the comment at the head.
    pub(crate) head: Vec<String>,
    /// What holds where no rule does, and the comment above it.
    pub(crate) settings: Option<Settings>,
    /// Sandboxes of its own, in Starlark: `name = sandbox(…)`.
    pub(crate) sandboxes: Vec<OwnSandbox>,
    /// Rules of the library that are taken as they are, by their module.
    pub(crate) taken: Vec<Taken>,
    /// Rules about commands, below `"Bash"`.
    pub(crate) commands: Vec<Group>,
    /// Rules about other tools; the first word of their keys is the tool.
    pub(crate) tools: Vec<Group>,
    /// What must hold: an effect and a command.
    pub(crate) expectations: Vec<(Effect, String)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) comment: Vec<String>,
    pub(crate) default: Effect,
    pub(crate) sandbox: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnSandbox {
    pub(crate) comment: Vec<String>,
    /// What it is called in the policy.
    pub(crate) name: String,
    /// The whole assignment.
    pub(crate) source: String,
    /// Sandboxes of the library it is made from.
    pub(crate) loads: Vec<String>,
}

/// The rules of a module that has the same name as they: `when(files)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) comment: Vec<String>,
    pub(crate) module: &'static str,
}

/// Rules that belong together, under one comment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) comment: Vec<String>,
    pub(crate) rules: Vec<Rule>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) comment: Vec<String>,
    pub(crate) key: Key,
    pub(crate) then: Then,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    /// A string, or a tuple of alternatives.
    Words(Vec<String>),
    /// `glob("…")`, or a tuple of them.
    Globs(Vec<String>),
    /// `exact("…")`: a host without those below it.
    Hosts(Vec<String>),
    /// `default()` among paths and hosts, `glob("**")` among words.
    Rest,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    Leaf(Leaf),
    Below(Vec<Rule>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Leaf {
    pub(crate) effect: Effect,
    /// `None`: the default sandbox.
    pub(crate) sandbox: Option<String>,
    pub(crate) reason: Option<String>,
}

/// The layout breaks lines longer than this.
const WIDTH: usize = 100;

#[derive(Debug, thiserror::Error)]
pub(crate) enum GenerateError {
    #[error("no module offers the sandbox `{0}`")]
    UnknownSandbox(String),
    #[error("the generated policy does not parse: {0}")]
    Syntax(#[from] clash_syntax::SyntaxError),
}

impl Rule {
    pub(crate) fn new(words: &[&str], then: Then) -> Self {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        Self { comment: Vec::new(), key: Key::Words(words), then }
    }
}

impl Leaf {
    pub(crate) fn new(effect: Effect, sandbox: Option<&str>) -> Self {
        Self { effect, sandbox: sandbox.map(str::to_owned), reason: None }
    }

    /// As it is written in a policy.
    pub(crate) fn source(&self) -> String {
        let sandbox = self.sandbox.as_ref().map(|name| format!("sandbox = {name}"));
        let reason = self.reason.as_ref().map(|text| format!("reason = {}", Quoted::str(text)));
        let args: Vec<String> = sandbox.into_iter().chain(reason).collect();
        format!("{}({})", self.effect, args.join(", "))
    }
}

impl Key {
    /// As it is written in a policy; `rest` is how everything else is called there.
    fn source(&self, rest: &str) -> String {
        let tuple = |items: Vec<String>| match items.as_slice() {
            [one] => one.clone(),
            several => format!("({})", several.join(", ")),
        };
        let quoted = |word: &String| Quoted::str(word).to_string();
        match self {
            Self::Words(words) => tuple(words.iter().map(quoted).collect()),
            Self::Globs(patterns) => {
                tuple(patterns.iter().map(|it| format!("glob({})", quoted(it))).collect())
            }
            Self::Hosts(names) => {
                tuple(names.iter().map(|it| format!("exact({})", quoted(it))).collect())
            }
            Self::Rest => rest.to_owned(),
        }
    }
}

impl Key {
    /// A long tuple as several, in as few lines as may be: each in one line with what
    /// follows, or without it, which the layout then breaks into four.
    fn in_lines(&self, indent: usize, then: &str) -> Vec<Self> {
        let Self::Words(words) = self else { return vec![self.clone()] };
        let beside = packed(words, WIDTH.saturating_sub(indent + then.len() + 3));
        let above = packed(words, WIDTH.saturating_sub(indent + "(): ask(".len()));
        if beside.len() <= above.len() * 4 { beside } else { above }
    }
}

/// Words as tuples that fit.
fn packed(words: &[String], room: usize) -> Vec<Key> {
    let mut lines: Vec<Vec<String>> = Vec::new();
    let mut used = usize::MAX;
    for word in words {
        let width = word.chars().count() + 4;
        match lines.last_mut() {
            Some(line) if used.saturating_add(width) <= room => {
                line.push(word.clone());
                used += width;
            }
            _ => {
                lines.push(vec![word.clone()]);
                used = width;
            }
        }
    }
    lines.into_iter().map(Key::Words).collect()
}

impl Draft {
    /// The policy in the one layout.
    pub(crate) fn text(&self) -> Result<String, GenerateError> {
        let mut out = String::new();
        comment(&mut out, &self.head, "");
        if !self.head.is_empty() {
            out.push('\n');
        }
        out.push_str(&self.load_lines(&BTreeSet::new())?);
        out.push_str(&self.rules_text());
        Ok(clash_syntax::fmt::format(&out)?)
    }

    /// What has to be loaded, but for names that are there already.
    pub(super) fn load_lines(&self, bound: &BTreeSet<String>) -> Result<String, GenerateError> {
        let mut out = String::new();
        for (module, names) in self.loads()? {
            let names: Vec<String> = names
                .into_iter()
                .filter(|it| !bound.contains(it))
                .map(|it| format!("\"{it}\""))
                .collect();
            if !names.is_empty() {
                let _ = writeln!(out, "load(\"{module}\", {})", names.join(", "));
            }
        }
        Ok(out)
    }

    /// Everything but the head and the loads; not in the one layout yet.
    pub(super) fn rules_text(&self) -> String {
        let mut out = String::new();
        for own in &self.sandboxes {
            out.push('\n');
            comment(&mut out, &own.comment, "");
            let _ = writeln!(out, "{}", own.source);
        }
        if let Some(Settings { comment: why, default, sandbox }) = &self.settings {
            out.push('\n');
            comment(&mut out, why, "");
            let _ = writeln!(out, "settings(default = {default}(), default_sandbox = {sandbox})");
        }
        for Taken { comment: why, module } in &self.taken {
            out.push('\n');
            comment(&mut out, why, "");
            let _ = writeln!(out, "when({module})");
        }
        if !self.commands.is_empty() || !self.tools.is_empty() {
            out.push_str("\nwhen({\n");
            if !self.commands.is_empty() {
                out.push_str("    \"Bash\": {\n");
                groups(&mut out, &self.commands, "        ", "glob(\"**\")");
                out.push_str("    },\n");
            }
            groups(&mut out, &self.tools, "    ", "default()");
            out.push_str("})\n");
        }
        for (at, (effect, command)) in self.expectations.iter().enumerate() {
            out.push_str(if at == 0 { "\n" } else { "" });
            let _ = writeln!(out, "expect({effect}, {})", Quoted::str(command));
        }
        out
    }

    /// The modules to load and what from each.
    fn loads(&self) -> Result<BTreeMap<String, Vec<String>>, GenerateError> {
        let mut named = BTreeSet::new();
        if let Some(settings) = &self.settings {
            named.insert(settings.sandbox.clone());
        }
        for group in self.commands.iter().chain(&self.tools) {
            group.rules.iter().for_each(|rule| sandboxes(rule, &mut named));
        }
        for own in &self.sandboxes {
            named.remove(&own.name);
        }
        named.extend(self.sandboxes.iter().flat_map(|own| own.loads.iter().cloned()));
        let mut loads: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for Taken { module, .. } in &self.taken {
            loads.insert(format!("@clash//{module}.star"), vec![(*module).to_owned()]);
        }
        for name in named {
            let unknown = || GenerateError::UnknownSandbox(name.clone());
            let module = module_of(&name).ok_or_else(unknown)?;
            loads.entry(module.to_owned()).or_default().push(name);
        }
        Ok(loads)
    }
}

/// The sandboxes a rule names.
fn sandboxes(rule: &Rule, named: &mut BTreeSet<String>) {
    match &rule.then {
        Then::Leaf(leaf) => named.extend(leaf.sandbox.clone()),
        Then::Below(rules) => rules.iter().for_each(|rule| sandboxes(rule, named)),
    }
}

/// Text from elsewhere cannot end a comment: it stays on its line.
fn comment(out: &mut String, lines: &[String], indent: &str) {
    for line in lines {
        let line: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let _ = writeln!(out, "{}", format!("{indent}# {line}").trim_end());
    }
}

fn groups(out: &mut String, groups: &[Group], indent: &str, rest: &str) {
    for (at, group) in groups.iter().enumerate() {
        if at > 0 && !group.comment.is_empty() {
            out.push('\n');
        }
        comment(out, &group.comment, indent);
        group.rules.iter().for_each(|each| rule(out, each, indent, rest));
    }
}

fn rule(out: &mut String, Rule { comment: why, key, then }: &Rule, indent: &str, rest: &str) {
    comment(out, why, indent);
    match then {
        Then::Leaf(leaf) => {
            let leaf = leaf.source();
            for key in key.in_lines(indent.len(), &leaf) {
                let _ = writeln!(out, "{indent}{}: {leaf},", key.source(rest));
            }
        }
        Then::Below(rules) => {
            let _ = writeln!(out, "{indent}{}: {{", key.source(rest));
            let inner = format!("{indent}    ");
            rules.iter().for_each(|each| rule(out, each, &inner, rest));
            let _ = writeln!(out, "{indent}}},");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allow(sandbox: &str) -> Then {
        Then::Leaf(Leaf::new(Effect::Allow, Some(sandbox)))
    }

    fn asked(sandbox: &str, reason: &str) -> Then {
        let leaf = Leaf::new(Effect::Ask, Some(sandbox));
        Then::Leaf(Leaf { reason: Some(reason.to_owned()), ..leaf })
    }

    #[test]
    fn a_draft_becomes_a_policy_with_its_loads_and_comments() {
        let rest = Rule { comment: Vec::new(), key: Key::Rest, then: allow("git_safe") };
        let push = Rule::new(&["push"], asked("git_full", "others \"see\" it"));
        let draft = Draft {
            head: vec!["Mine.".into()],
            settings: Some(Settings {
                comment: vec!["The rest is asked.".into()],
                default: Effect::Ask,
                sandbox: "project".into(),
            }),
            commands: vec![
                Group {
                    comment: vec!["git (.git)\nrm -rf /".into()],
                    rules: vec![Rule::new(&["git"], Then::Below(vec![push, rest]))],
                },
                Group {
                    comment: vec!["rust".into()],
                    rules: vec![Rule {
                        comment: vec!["seen 3 times".into()],
                        ..Rule::new(&["cargo", "rustc"], allow("rust_full"))
                    }],
                },
            ],
            tools: vec![Group {
                comment: vec![],
                rules: vec![Rule::new(&["Read"], allow("project"))],
            }],
            expectations: vec![(Effect::Ask, "git push".into())],
            ..Draft::default()
        };
        insta::assert_snapshot!(draft.text().unwrap(), @r#"
        # Mine.

        load("@clash//rust.star", "rust_full")
        load("@clash//sandboxes.star", "git_full", "git_safe", "project")

        # The rest is asked.
        settings(default = ask(), default_sandbox = project)

        when({
            "Bash": {
                # git (.git) rm -rf /
                "git": {
                    "push": ask(sandbox = git_full, reason = "others \"see\" it"),
                    glob("**"): allow(sandbox = git_safe),
                },

                # rust
                # seen 3 times
                ("cargo", "rustc"): allow(sandbox = rust_full),
            },
            "Read": allow(sandbox = project),
        })

        expect(ask, "git push")
        "#);
    }

    #[test]
    fn a_sandbox_of_its_own_is_not_loaded_and_what_it_is_made_from_is() {
        let draft = Draft {
            sandboxes: vec![OwnSandbox {
                comment: vec!["npm keeps its cache elsewhere.".into()],
                name: "node_here".into(),
                source: "node_here = sandbox(name = \"node_here\", extends = node_safe)".into(),
                loads: vec!["node_safe".into()],
            }],
            commands: vec![Group {
                comment: vec![],
                rules: vec![Rule::new(&["npm"], allow("node_here"))],
            }],
            ..Draft::default()
        };
        insta::assert_snapshot!(draft.text().unwrap(), @r#"
        load("@clash//node.star", "node_safe")

        # npm keeps its cache elsewhere.
        node_here = sandbox(name = "node_here", extends = node_safe)

        when({
            "Bash": {
                "npm": allow(sandbox = node_here),
            },
        })
        "#);
    }

    #[test]
    fn many_words_are_a_few_lines_and_not_one_line_each() {
        let words: Vec<String> = (0..30).map(|at| format!("program-{at}")).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let rules = vec![Rule::new(&words, allow("project"))];
        let draft = Draft { commands: vec![Group { comment: vec![], rules }], ..Draft::default() };
        let text = draft.text().unwrap();
        assert_eq!(text.lines().filter(|line| line.contains("program-")).count(), 7, "{text}");
        assert!(text.lines().all(|line| line.len() <= WIDTH), "{text}");
    }

    #[test]
    fn what_no_module_offers_is_refused() {
        let commands =
            vec![Group { comment: vec![], rules: vec![Rule::new(&["x"], allow("nowhere"))] }];
        let draft = Draft { commands, ..Draft::default() };
        assert!(
            matches!(draft.text(), Err(GenerateError::UnknownSandbox(name)) if name == "nowhere")
        );
    }
}
