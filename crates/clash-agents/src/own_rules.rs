//! The client's own rules about commands, which a rewritten command would escape.
//!
//! A client that runs `clash exec …` matches its rules against that text, and would run a
//! command that its user has forbidden. So the hook reads the rules before it rewrites the
//! command: Codex's `*.rules`, Gemini's excluded tools and policy files, Droid's lists of
//! commands. Claude Code sees the original command and needs none of this.
//!
//! Limits: clash reads only rules that forbid or ask, and only about the first words of a
//! command. It does not read regular expressions or rules that need evaluation;
//! `docs/agents.md` says so.

use std::path::{Path, PathBuf};

use clash_policy::Effect;
use clash_shell::ShellWord;
use clash_syntax::{ArgumentKind, LiteralValue, StatementKind, SyntaxTree};
use serde_json::Value;
use toml::de::{DeTable, DeValue};

use super::{Agent, codex, droid, gemini};
use crate::context::UserContext;

/// A rule about commands that begin with these words. Each word has its alternatives.
#[derive(Debug)]
pub(crate) struct ClientRule {
    words: Vec<Vec<String>>,
    effect: Effect,
    file: PathBuf,
}

/// The strictest of the client's own rules that matches a command of the script, and its
/// file. Reads the rules from disk.
pub fn strictest_rule(
    agent: &Agent,
    user: &UserContext,
    project: &Path,
    script: &str,
) -> Option<(Effect, String)> {
    let rules = (agent.extras.command_rules)(user, project);
    if rules.is_empty() {
        return None;
    }
    let commands = clash_shell::find_commands(script);
    let hit = |rule: &&ClientRule| commands.iter().any(|command| rule.begins(&command.words));
    let rule = rules.iter().filter(hit).max_by_key(|rule| rule.effect)?;
    let said: Vec<String> = rule.words.iter().map(|any| any.join("|")).collect();
    Some((rule.effect, format!("`{}` in {}", said.join(" "), rule.file.display())))
}

impl ClientRule {
    /// True if a command begins with the words of the rule. An unknown word can be any
    /// word; a program counts by its file name too.
    fn begins(&self, words: &[ShellWord]) -> bool {
        self.words.len() <= words.len()
            && self.words.iter().zip(words).enumerate().all(|(at, (any, word))| {
                word.known().is_none_or(|known| {
                    let name = if at == 0 { known.rsplit('/').next() } else { None };
                    any.iter().any(|one| one == known || Some(one.as_str()) == name)
                })
            })
    }

    /// A rule from its first words; `None` without words. A `*` at the end of a word is
    /// dropped.
    fn parse(text: &str, effect: Effect, file: &Path) -> Option<Self> {
        let words: Vec<Vec<String>> = text
            .split_whitespace()
            .map(|word| vec![word.trim_end_matches('*').to_owned()])
            .collect();
        let words: Vec<_> = words.into_iter().filter(|any| any != &[String::new()]).collect();
        (!words.is_empty()).then(|| Self { words, effect, file: file.to_path_buf() })
    }
}

/// The files of a directory with this extension, and their texts, in order. Files that
/// cannot be read are left out.
fn files_with_text(dir: &Path, ending: &str) -> Vec<(PathBuf, String)> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok);
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|found| found == ending));
    files.sort();
    let read = |file: PathBuf| Some((file.clone(), lossy_text(&file)?));
    files.into_iter().filter_map(read).collect()
}

/// The text of a file. Clients in JavaScript also obey a file with bytes that are not UTF-8.
fn lossy_text(file: &Path) -> Option<String> {
    Some(String::from_utf8_lossy(&std::fs::read(file).ok()?).into_owned())
}

/// `prefix_rule(pattern = ["git", ["push", "fetch"]], decision = "forbidden")`, of the
/// user, the project and the machine. Rules that allow or are computed are left out.
pub(crate) fn codex_rules(user: &UserContext, project: &Path) -> Vec<ClientRule> {
    let dirs = [codex::home(user), project.join(".codex"), PathBuf::from("/etc/codex")];
    let mut rules = Vec::new();
    for (path, text) in dirs.iter().flat_map(|dir| files_with_text(&dir.join("rules"), "rules")) {
        let Ok(file) = SyntaxTree::parse(&text) else { continue };
        for statement in file.statements() {
            let StatementKind::Expr(expr) = &statement.kind else { continue };
            let clash_syntax::ExpressionKind::Call(call) = &expr.kind else { continue };
            if call.callee.name() != Some("prefix_rule") {
                continue;
            }
            let named = |name: &str| {
                let arg = call.args.iter().find(|arg| match &arg.kind {
                    ArgumentKind::Named(given) => given.text == name,
                    _ => false,
                })?;
                arg.value.literal(&text)
            };
            let effect = match named("decision") {
                Some(LiteralValue::String(word)) if word == "forbidden" => Effect::Deny,
                Some(LiteralValue::String(word)) if word == "prompt" => Effect::Ask,
                _ => continue,
            };
            if let Some(words) = named("pattern").as_ref().and_then(pattern) {
                rules.push(ClientRule { words, effect, file: path.clone() });
            }
        }
    }
    rules
}

/// The words of a pattern with their alternatives; `None` if one is no text.
fn pattern(value: &LiteralValue) -> Option<Vec<Vec<String>>> {
    let LiteralValue::List(items) = value else { return None };
    let one = |item: &LiteralValue| match item {
        LiteralValue::String(word) => Some(vec![word.clone()]),
        LiteralValue::List(any) => any
            .iter()
            .map(|word| match word {
                LiteralValue::String(word) => Some(word.clone()),
                _ => None,
            })
            .collect(),
        _ => None,
    };
    let words: Vec<Vec<String>> = items.iter().map(one).collect::<Option<_>>()?;
    (!words.is_empty()).then_some(words)
}

/// `tools.exclude: ["run_shell_command(rm)"]`, and policy files with `commandPrefix`, of
/// the user, the project and the machine.
pub(crate) fn gemini_rules(user: &UserContext, project: &Path) -> Vec<ClientRule> {
    let dirs = [gemini::home(user), project.join(".gemini"), PathBuf::from("/etc/gemini-cli")];
    let mut rules = Vec::new();
    for dir in &dirs {
        let file = dir.join("settings.json");
        let settings = settings(&file);
        let lists = [settings.pointer("/tools/exclude"), settings.get("excludeTools")];
        for entry in lists.into_iter().flatten().filter_map(Value::as_array).flatten() {
            let inner = entry.as_str().and_then(|text| {
                let rest =
                    text.strip_prefix("run_shell_command(").or(text.strip_prefix("ShellTool("));
                rest?.strip_suffix(')')
            });
            rules.extend(inner.and_then(|text| ClientRule::parse(text, Effect::Deny, &file)));
        }
        for (file, text) in files_with_text(&dir.join("policies"), "toml") {
            rules.extend(gemini_policy(&file, &text));
        }
    }
    rules
}

/// The rules of a policy file that deny or ask and have a `commandPrefix`.
fn gemini_policy(file: &Path, text: &str) -> Vec<ClientRule> {
    let Ok(table) = DeTable::parse(text) else { return Vec::new() };
    let Some(DeValue::Array(found)) = table.get_ref().get("rule").map(|rule| rule.get_ref()) else {
        return Vec::new();
    };
    let mut rules = Vec::new();
    for rule in found.iter() {
        let DeValue::Table(rule) = rule.get_ref() else { continue };
        let text = |key: &str| match rule.get(key)?.get_ref() {
            DeValue::String(text) => Some(vec![text.to_string()]),
            DeValue::Array(items) => Some(
                items
                    .iter()
                    .filter_map(|item| match item.get_ref() {
                        DeValue::String(text) => Some(text.to_string()),
                        _ => None,
                    })
                    .collect(),
            ),
            _ => None,
        };
        let effect = match text("decision").unwrap_or_default().first().map(String::as_str) {
            Some("deny") => Effect::Deny,
            Some("ask_user") => Effect::Ask,
            _ => continue,
        };
        let prefixes = text("commandPrefix").unwrap_or_default();
        rules.extend(prefixes.iter().filter_map(|prefix| ClientRule::parse(prefix, effect, file)));
    }
    rules
}

/// The commands that Droid never runs, and those it always asks about, in the settings of
/// the user and the project.
pub(crate) fn droid_rules(user: &UserContext, project: &Path) -> Vec<ClientRule> {
    let mut rules = Vec::new();
    for dir in [droid::home(user), project.join(".factory")] {
        let file = dir.join("settings.json");
        let settings = settings(&file);
        for (key, effect) in [("commandBlocklist", Effect::Deny), ("commandDenylist", Effect::Ask)]
        {
            let entries = settings.get(key).and_then(Value::as_array).into_iter().flatten();
            rules.extend(
                entries.filter_map(|entry| ClientRule::parse(entry.as_str()?, effect, &file)),
            );
        }
    }
    rules
}

/// A settings file. A client does not obey a file it cannot read, so such a file is empty
/// here.
fn settings(file: &Path) -> Value {
    let text = lossy_text(file).unwrap_or_default();
    serde_json::from_str(&super::wiring::json_edit::blanked(&text)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> ClientRule {
        ClientRule::parse(text, Effect::Deny, Path::new("/f")).unwrap()
    }

    fn hits(rule: &ClientRule, script: &str) -> bool {
        clash_shell::find_commands(script).iter().any(|command| rule.begins(&command.words))
    }

    #[test]
    fn a_rule_is_about_the_words_a_command_begins_with() {
        let push = rule("git push");
        assert!(hits(&push, "git push origin"));
        assert!(hits(&push, "cd x && /usr/bin/git push"));
        assert!(hits(&push, "git $X"));
        assert!(!hits(&push, "git pull"));
        assert!(!hits(&push, "echo git push"));
        assert!(ClientRule::parse("*", Effect::Deny, Path::new("/f")).is_none());
    }

    #[test]
    fn a_policy_of_gemini_is_read() {
        let rules = gemini_policy(
            Path::new("/f"),
            "[[rule]]\ntoolName = \"run_shell_command\"\ncommandPrefix = [\"rm\", \"git push\"]\ndecision = \"deny\"\npriority = 10\n[[rule]]\ndecision = \"allow\"\ncommandPrefix = \"ls\"\n",
        );
        assert_eq!(rules.len(), 2);
        assert!(hits(&rules[1], "git push"));
    }
}
