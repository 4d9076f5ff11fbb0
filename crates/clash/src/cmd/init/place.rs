//! Where the policy goes, and what becomes of one that is there: it is never
//! overwritten unasked. Merging adds the toolchains it says nothing about and
//! leaves every rule it has.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use clash_syntax::edit::{self, Key as Quoted, module_of};
use clash_syntax::{Expr, ExprKind, File, StatementKind};

use super::draft::Toolchain;
use super::generate::{Key, Leaf, OwnSandbox, Rule, Then};
use crate::dirs::Dirs;
use crate::ui::Failure;

/// The user's policy: the one that is there, or the first place for one.
pub(super) fn user_policy(dirs: &Dirs) -> PathBuf {
    let [first, _] = &dirs.user_policies;
    dirs.user_policies.iter().find(|path| path.exists()).unwrap_or(first).clone()
}

/// A policy with the toolchains it does not know yet, and their names.
pub(super) fn merged(
    existing: &str,
    toolchains: &[Toolchain],
) -> Result<(String, Vec<&'static str>), Failure> {
    let mut text = existing.to_owned();
    let mut added = Vec::new();
    for toolchain in toolchains {
        let known = Known::of(&text)?;
        if known.loads(toolchain.name) {
            continue;
        }
        let mut wanted: Vec<(Vec<Quoted>, Leaf)> = Vec::new();
        for rule in &toolchain.group.rules {
            let Key::Words(programs) = &rule.key else { continue };
            for program in programs.iter().filter(|program| !known.names(program)) {
                let path = vec![Quoted::str("Bash"), Quoted::str(program)];
                leaves(&rule.then, &path, &mut wanted);
            }
        }
        if wanted.is_empty() {
            continue;
        }
        for own in &toolchain.sandboxes {
            text = with_sandbox(&text, own)?;
        }
        for (path, leaf) in wanted {
            text = edit::set(&text, &path, &leaf.source())?.source;
        }
        added.push(toolchain.name);
    }
    Ok((text, added))
}

/// Every path below a rule and where it ends.
fn leaves(then: &Then, path: &[Quoted], wanted: &mut Vec<(Vec<Quoted>, Leaf)>) {
    let below = match then {
        Then::Leaf(leaf) => return wanted.push((path.to_vec(), leaf.clone())),
        Then::Below(rules) => rules,
    };
    for Rule { key, then, .. } in below {
        let keys = match key {
            Key::Words(words) => words.iter().map(Quoted::str).collect(),
            Key::Glob(pattern) => vec![Quoted::call("glob", pattern)],
            Key::Rest => vec![Quoted::wildcard()],
        };
        for key in keys {
            let path: Vec<Quoted> = path.iter().cloned().chain([key]).collect();
            leaves(then, &path, wanted);
        }
    }
}

/// What a policy has something to say about.
struct Known {
    strings: BTreeSet<String>,
    loaded: BTreeSet<String>,
}

impl Known {
    fn of(text: &str) -> Result<Self, Failure> {
        let file = File::parse(text)?;
        let mut known = Self { strings: BTreeSet::new(), loaded: BTreeSet::new() };
        for statement in file.statements() {
            match &statement.kind {
                StatementKind::Load(load) => {
                    known.loaded.extend(
                        load.symbols.iter().filter_map(|it| it.name.string()).map(str::to_owned),
                    );
                }
                StatementKind::Expr(expr) => known.note(expr),
                StatementKind::Assign { value, .. } => known.note(value),
                _ => {}
            }
        }
        Ok(known)
    }

    /// Keys of dicts, and the words of older forms such as `exe("git")`.
    fn note(&mut self, expr: &Expr) {
        if let ExprKind::Dict(entries, _) = &expr.kind {
            for entry in entries {
                self.words(&entry.key);
                self.note(&entry.value);
            }
            return;
        }
        if let ExprKind::Call(call) = &expr.kind
            && matches!(call.name(), Some("exe"))
        {
            call.positional().for_each(|argument| self.words(argument));
        }
        expr.children().into_iter().for_each(|child| self.note(child));
    }

    fn words(&mut self, key: &Expr) {
        if let Some(text) = key.string() {
            self.strings.extend(text.split_whitespace().next().map(str::to_owned));
        }
        key.children().into_iter().for_each(|child| self.words(child));
    }

    fn names(&self, program: &str) -> bool {
        self.strings.contains(program)
    }

    /// Whether it takes the library's rules of a toolchain as they are.
    fn loads(&self, toolchain: &str) -> bool {
        self.loaded.contains(toolchain)
    }
}

/// The policy with one more sandbox, behind its loads.
fn with_sandbox(text: &str, own: &OwnSandbox) -> Result<String, Failure> {
    if text.contains(&format!("\"{}\"", own.name)) {
        return Ok(text.to_owned());
    }
    let file = File::parse(text)?;
    let is_load = |it: &&clash_syntax::Statement| matches!(it.kind, StatementKind::Load(_));
    let end = file.statements().iter().filter(is_load).map(|it| it.span.end).max().unwrap_or(0);
    let known = Known::of(text)?;
    let loads: String = own
        .loads
        .iter()
        .filter(|name| !known.loaded.contains(*name))
        .filter_map(|name| Some(format!("\nload(\"{}\", \"{name}\")", module_of(name)?)))
        .collect();
    let comment: String = own.comment.iter().map(|line| format!("# {line}\n")).collect();
    let (before, after) = text.split_at_checked(end).unwrap_or((text, ""));
    let text = format!("{before}{loads}\n\n{comment}{}\n{after}", own.source);
    Ok(clash_syntax::fmt::format(text.trim_start())?)
}

/// Keeps the text of a policy beside it before it is replaced, under a name that
/// is free.
pub(super) fn keep(file: &Path, text: &str) -> Result<PathBuf, Failure> {
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let numbered = |number: u32| file.with_file_name(format!("{name}.before-init-{number}"));
    let free = (1..1000).map(numbered).find(|path| fs::symlink_metadata(path).is_err());
    let free = free.ok_or_else(|| Failure::new("there are a thousand old policies already"))?;
    crate::dirs::write_private(&free, text.as_bytes())?;
    Ok(free)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::init::generate::Group;
    use clash_policy::Effect;

    fn toolchain(name: &'static str, programs: &[&str]) -> Toolchain {
        let leaf = |sandbox: &str| Then::Leaf(Leaf::new(Effect::Allow, Some(sandbox)));
        let safe = leaf(&format!("{name}_safe"));
        let full = Rule::new(&["fetch"], leaf(&format!("{name}_full")));
        let rest = Rule { comment: vec![], key: Key::Rest, then: safe };
        let rules = vec![Rule::new(programs, Then::Below(vec![full, rest]))];
        Toolchain { name, group: Group { comment: vec![], rules }, sandboxes: vec![] }
    }

    const MINE: &str = "# Mine.\nwhen({\n    \"Bash\": {\n        (\"cargo\", \"x\"): deny(),  # never\n    },\n})\n";

    #[test]
    fn a_merge_adds_what_is_not_there_and_leaves_what_is() {
        let (text, added) =
            merged(MINE, &[toolchain("rust", &["cargo"]), toolchain("go", &["go"])]).unwrap();
        assert_eq!(added, ["go"]);
        insta::assert_snapshot!(text, @r#"
        load("@clash//go.star", "go_full", "go_safe")

        # Mine.
        when({
            "Bash": {
                ("cargo", "x"): deny(),  # never
                "go": {"fetch": allow(sandbox = go_full), glob("**"): allow(sandbox = go_safe)},
            },
        })
        "#);
        let again = merged(&text, &[toolchain("go", &["go"])]).unwrap();
        assert_eq!(again, (text, vec![]));
    }

    #[test]
    fn older_and_loaded_rules_count_as_said() {
        for policy in [
            "load(\"@clash//go.star\", \"go\")\nwhen(go)\n",
            "policy(\"x\", [exe(\"go\").deny()])\n",
            "rules = {\"Bash\": {\"go test\": deny()}}\nwhen(rules)\n",
        ] {
            let (text, added) = merged(policy, &[toolchain("go", &["go"])]).unwrap();
            assert_eq!((text.as_str(), added.len()), (policy, 0));
        }
    }

    #[test]
    fn a_sandbox_for_this_machine_comes_along() {
        let own = OwnSandbox {
            comment: vec!["/data/go: cache".into()],
            name: "go_safe_here".into(),
            source: "go_safe_here = sandbox(name = \"go_safe_here\", extends = go_safe)".into(),
            loads: vec!["go_safe".into()],
        };
        let leaf = Then::Leaf(Leaf::new(Effect::Allow, Some("go_safe_here")));
        let group = Group { comment: vec![], rules: vec![Rule::new(&["go"], leaf)] };
        let chain = Toolchain { name: "go", group, sandboxes: vec![own] };
        let (text, _) = merged(MINE, &[chain]).unwrap();
        assert!(text.contains("load(\"@clash//go.star\", \"go_safe\")"), "{text}");
        assert!(text.contains("# /data/go: cache\ngo_safe_here = sandbox("), "{text}");
        assert!(text.contains("\"go\": allow(sandbox = go_safe_here)"), "{text}");
    }

    #[test]
    fn old_policies_are_kept_under_a_free_name() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("policy.star");
        let (first, second) = (keep(&file, "a").unwrap(), keep(&file, "b").unwrap());
        assert_eq!(fs::read_to_string(&first).unwrap(), "a");
        assert_eq!(fs::read_to_string(&second).unwrap(), "b");
    }
}
