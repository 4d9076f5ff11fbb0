//! The path of the policy, and the merge with an existing one. Clash overwrites no policy
//! without a question. A merge adds the toolchains without rules in the old policy and keeps
//! every old rule.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use clash_syntax::draft::{KeyDraft, PolicyDraft, RuleDraft, RuleGroup};
use clash_syntax::edit::RuleKey;
use clash_syntax::{Expression, ExpressionKind, StatementKind, SyntaxTree};

use super::draft::ToolchainRules;
use crate::dirs::Dirs;
use crate::ui::Failure;

/// The path of the user's policy: the existing one, or the first possible path.
pub(super) fn user_policy(dirs: &Dirs) -> PathBuf {
    let [first, _] = &dirs.user_policies;
    dirs.user_policies.iter().find(|path| path.exists()).unwrap_or(first).clone()
}

/// The path of the project's own policy. Fails in the home directory, where the policy is the
/// user's own.
pub(super) fn project_policy(dirs: &Dirs, root: &Path) -> Result<PathBuf, Failure> {
    dirs.project_policy(root)
        .ok_or_else(|| Failure::new("the policy in the home directory is the user's own"))
}

/// A policy with the missing toolchains added, and their names; the same text if none is
/// missing. A toolchain is missing if the policy neither loads nor defines its name. Programs
/// that the policy names keep their rules. The new rules are in a new `when` at the end.
/// Several `when` are one tree, in which the more specific or stricter rule wins.
pub(super) fn merged(
    existing: &str,
    toolchains: &[ToolchainRules],
) -> Result<(String, Vec<&'static str>), Failure> {
    let known = KnownWords::read(existing)?;
    let mut more = PolicyDraft::default();
    let mut added = Vec::new();
    for toolchain in toolchains.iter().filter(|it| !known.bound.contains(it.name)) {
        let rules: Vec<RuleDraft> =
            toolchain.group.rules.iter().filter_map(|rule| known.without(rule)).collect();
        if !rules.is_empty() {
            let sandboxes = toolchain.sandboxes.iter();
            more.sandboxes.extend(sandboxes.filter(|it| !known.bound.contains(&it.name)).cloned());
            more.commands.push(RuleGroup { comment: toolchain.group.comment.clone(), rules });
            added.push(toolchain.name);
        }
    }
    if added.is_empty() {
        return Ok((existing.to_owned(), added));
    }
    Ok((more.append_to(existing, &known.bound)?, added))
}

/// The words and names in the text of a policy.
struct KnownWords {
    /// The words in keys.
    words: BTreeSet<String>,
    /// The names that the policy loads or defines.
    bound: BTreeSet<String>,
}

impl KnownWords {
    /// Collects the words and names of a policy's text. Fails if it cannot be parsed.
    fn read(text: &str) -> Result<Self, Failure> {
        let file = SyntaxTree::parse(text)?;
        let mut known = Self { words: BTreeSet::new(), bound: BTreeSet::new() };
        for statement in file.statements() {
            match &statement.kind {
                StatementKind::Load(load) => {
                    known
                        .bound
                        .extend(load.symbols.iter().filter_map(|it| it.bound()).map(str::to_owned));
                }
                StatementKind::Expr(expr) => known.note(expr),
                StatementKind::Assign { target, value, .. } => {
                    known.bound.extend(target.name().map(str::to_owned));
                    known.note(value);
                }
                _ => {}
            }
        }
        Ok(known)
    }

    /// A rule without the programs that the policy names already; `None` if none is left, or
    /// if the rule names no programs.
    fn without(&self, rule: &RuleDraft) -> Option<RuleDraft> {
        let unknown = |word: &&String| !self.words.contains(*word);
        let key = match &rule.key {
            KeyDraft::Words(words) => {
                KeyDraft::Words(words.iter().filter(unknown).cloned().collect())
            }
            KeyDraft::AnyOf(keys) => {
                let unknown = |key: &&RuleKey| match key {
                    RuleKey::Call { name, arg: Some(arg) } if name == "glob" => unknown(&arg),
                    _ => false,
                };
                KeyDraft::AnyOf(keys.iter().filter(unknown).cloned().collect())
            }
            KeyDraft::Localhost(_) | KeyDraft::Rest => return None,
        };
        if matches!(&key, KeyDraft::Words(words) if words.is_empty())
            || matches!(&key, KeyDraft::AnyOf(keys) if keys.is_empty())
        {
            return None;
        }
        Some(RuleDraft { key, ..rule.clone() })
    }

    /// Records the keys of dicts, and the words of older forms such as `exe("git")`.
    fn note(&mut self, expr: &Expression) {
        if let ExpressionKind::Dict(entries, _) = &expr.kind {
            for entry in entries {
                self.note_key(&entry.key);
                self.note(&entry.value);
            }
            return;
        }
        if let ExpressionKind::Call(call) = &expr.kind
            && matches!(call.name(), Some("exe"))
        {
            call.positional().for_each(|argument| self.note_key(argument));
        }
        expr.children().into_iter().for_each(|child| self.note(child));
    }

    /// Records the first word of every text in a key.
    fn note_key(&mut self, key: &Expression) {
        if let Some(text) = key.string() {
            self.words.extend(text.split_whitespace().next().map(str::to_owned));
        }
        key.children().into_iter().for_each(|child| self.note_key(child));
    }
}

/// Keeps the text of a policy in a new file beside it, before clash replaces the policy.
/// Returns its path, for example `policy.star.before-init-1`.
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
    use clash_policy::Effect;
    use clash_syntax::draft::{EffectDraft, RuleBody, SandboxBase, SandboxDraft};

    fn toolchain(name: &'static str, programs: &[&str]) -> ToolchainRules {
        let leaf = |sandbox: &str| RuleBody::Effect(EffectDraft::new(Effect::Allow, Some(sandbox)));
        let safe = leaf(&format!("{name}_safe"));
        let full = RuleDraft::new(&["fetch"], leaf(&format!("{name}_full")));
        let rest = RuleDraft { comment: vec![], key: KeyDraft::Rest, body: safe };
        let rules = vec![RuleDraft::new(programs, RuleBody::Below(vec![full, rest]))];
        ToolchainRules { name, group: RuleGroup { comment: vec![], rules }, sandboxes: vec![] }
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
            },
        })

        when({
            "Bash": {
                "go": {
                    "fetch": allow(sandbox = go_full),
                    glob("**"): allow(sandbox = go_safe),
                },
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
        let own = SandboxDraft {
            comment: vec!["/data/go: cache".into()],
            ..SandboxDraft::new("go_safe_here", SandboxBase::Extends("go_safe".into()))
        };
        let leaf = RuleBody::Effect(EffectDraft::new(Effect::Allow, Some("go_safe_here")));
        let group = RuleGroup { comment: vec![], rules: vec![RuleDraft::new(&["go"], leaf)] };
        let chain = ToolchainRules { name: "go", group, sandboxes: vec![own] };
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
