//! The entries of clash in a settings file with hooks in JSON.
//!
//! Most agents write hooks in the same way: `hooks` has a list of groups for every event,
//! and each group has a list of hooks. A [`HookFormat`] has the differences.
//! [`HookEntries`] turns text into text and keeps every byte that clash did not write;
//! [`inspect`] only reads. The caller writes the file.
//!
//! For Claude Code clash also sets `CLAUDE_CODE_SHELL_PREFIX`, through which the client
//! starts its shells. Its hooks are in exec form (`/bin/sh` with `args`): the client runs
//! hooks in shell form through the shell prefix, which is clash itself.
//!
//! Limits: one file at a time. Another settings file can override this one, so the caller
//! must inspect that file too.

mod new_entries;
mod problems;
mod view;

use std::path::{Path, PathBuf};

pub use super::json_edit::JsonError;
use super::json_edit::{ItemRemoval, JsonDocument, JsonNode, JsonSyntax, NewItem};
use super::text_edit::TextEdit;
use super::{HookCommand, SettingsEdit, WiringState};
use crate::{HookEvent, WiringProblem};
use new_entries::{check, env_item, event_item, group, hooks_item, prefix_item};
pub use problems::SettingsError;
use problems::is_ground;
pub(crate) use problems::{SettingsProblem, describe};
pub(crate) use view::calls_clash;
use view::{SettingsView, is_own_prefix, own_line, path_value};

/// The format of an agent's hooks.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HookFormat {
    pub(crate) agent: &'static str,
    /// Event names as the client writes them, their meaning, and whether the event takes a
    /// matcher.
    pub(crate) events: &'static [(&'static str, HookEvent, bool)],
    pub(crate) form: CommandForm,
    /// In the client's own unit. The guard's limit is shorter.
    pub(crate) timeout: u32,
    /// Further members of a hook.
    pub(crate) members: &'static [(&'static str, &'static str)],
    /// True if `env` has the program that the client starts its shells with.
    pub(crate) prefix: bool,
    /// True if the client accepts comments.
    pub(crate) comments: bool,
    /// The paths at which this boolean value switches every hook off.
    pub(crate) off: &'static [(&'static [&'static str], bool)],
    /// The paths of lists with hooks that are switched off, by name or command line.
    pub(crate) off_lists: &'static [&'static [&'static str]],
}

impl HookFormat {
    fn syntax(&self) -> JsonSyntax {
        if self.comments { JsonSyntax::Comments } else { JsonSyntax::Strict }
    }
}

/// The form of a hook's command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandForm {
    /// A shell runs `command`.
    Shell,
    /// `command` is a program, `args` its arguments.
    Exec,
}

/// The entries that clash writes into a settings file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HookEntries {
    pub(crate) format: &'static HookFormat,
    /// The shell line that runs `clash hook AGENT` and turns a failure into a block. It
    /// must call clash by a path that ends in `clash`, and every other program by its full
    /// path: a project can set `PATH` for hooks.
    pub(crate) hook_command: String,
    /// The program that the client starts its shells with. Its name is `clash` or starts
    /// with `clash-`. The path has no ` -`, because the client splits it there.
    pub(crate) prefix: Option<PathBuf>,
}

impl SettingsEdit for HookEntries {
    /// The command lines of clash's hooks before a tool call, as the client runs them.
    fn commands(&self, text: &str) -> Result<Vec<HookCommand>, SettingsError> {
        let judging = |name: &str| {
            let events = self.format.events.iter();
            events
                .into_iter()
                .any(|(known, event, _)| *known == name && *event == HookEvent::BeforeTool)
        };
        let hooks = inspect(text, self.format)?.hooks.into_iter();
        let lines = hooks.filter(|(event, _)| judging(event)).map(|(_, line)| line);
        Ok(lines
            .map(|line| match self.format.form {
                CommandForm::Shell => HookCommand::Shell(line),
                CommandForm::Exec => {
                    HookCommand::Argv(vec![SHELL.to_owned(), "-c".to_owned(), line])
                }
            })
            .collect())
    }

    fn launcher(&self, text: &str) -> Result<Option<PathBuf>, SettingsError> {
        Ok(inspect(text, self.format)?.prefix)
    }

    fn install(&self, text: &str) -> Result<String, SettingsError> {
        install(text, self)
    }

    fn uninstall(&self, text: &str) -> Result<String, SettingsError> {
        uninstall(text, self.format)
    }

    /// Problems are entries of another clash, missing ones, and settings that work against
    /// clash. Settings that the user alone may have are none.
    fn state(&self, text: &str) -> Result<WiringState, SettingsError> {
        let found = inspect(text, self.format)?;
        if found.hooks.is_empty() && found.prefix.is_none() {
            return Ok(WiringState::Absent);
        }
        let install = || format!("clash install --agent {}", self.format.agent);
        let mut wrong: Vec<WiringProblem> = Vec::new();
        for stale in found.stale(self) {
            let what = match stale {
                StaleEntry::Hook { event, found } => format!("the {event} hook runs `{found}`"),
                StaleEntry::Prefix { found } => format!("the shell prefix is {}", found.display()),
            };
            wrong.push(WiringProblem {
                what: format!("{what}, which is not this clash"),
                fix: Some(install()),
            });
        }
        for problem in found.problems.iter().filter(|problem| !problem.is_users_own()) {
            let fix = problem.fix().unwrap_or_else(install);
            wrong.push(WiringProblem { what: describe(problem), fix: Some(fix) });
        }
        Ok(WiringState::Present(wrong))
    }
}

const PREFIX: &str = "CLAUDE_CODE_SHELL_PREFIX";
const SHELL: &str = "/bin/sh";

/// The entries of clash in a settings file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FoundEntries {
    /// Events with a hook of clash and its line, in the order of the format.
    pub(crate) hooks: Vec<(&'static str, String)>,
    /// The shell prefix, if it is clash's.
    pub(crate) prefix: Option<PathBuf>,
    pub(crate) problems: Vec<SettingsProblem>,
}

/// An entry that differs from the one clash would write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StaleEntry {
    Hook { event: &'static str, found: String },
    Prefix { found: PathBuf },
}

impl FoundEntries {
    /// True if every event has a hook of clash, and the prefix is clash's if the format has
    /// one. The hooks may be of another version.
    pub(crate) fn is_complete(&self, format: &HookFormat) -> bool {
        (self.prefix.is_some() || !format.prefix)
            && format.events.iter().all(|(event, ..)| self.has(event))
    }

    fn has(&self, event: &str) -> bool {
        self.hooks.iter().any(|(wired, _)| *wired == event)
    }

    /// Entries with another program than `wiring`, for example an old path.
    pub(crate) fn stale(&self, wiring: &HookEntries) -> Vec<StaleEntry> {
        let hooks = self.hooks.iter().filter(|(_, line)| *line != wiring.hook_command);
        let hooks = hooks.map(|(event, line)| StaleEntry::Hook { event, found: line.clone() });
        let prefix = self.prefix.iter().filter(|prefix| Some(*prefix) != wiring.prefix.as_ref());
        hooks.chain(prefix.map(|prefix| StaleEntry::Prefix { found: prefix.clone() })).collect()
    }
}

/// Adds clash's entries to a settings text, or updates them. A second call changes nothing
/// more. An empty text becomes a new file. A shell prefix of the user, and hooks of another
/// form, are errors.
pub(crate) fn install(text: &str, wiring: &HookEntries) -> Result<String, SettingsError> {
    check(wiring)?;
    let format = wiring.format;
    if text.trim().is_empty() {
        let new = JsonDocument::parse("{}", JsonSyntax::Strict)?;
        let items: Vec<NewItem> =
            env_item(wiring).into_iter().chain([hooks_item(wiring)]).collect();
        let filled = new.apply(new.append(&new.root, &items))?;
        // A new file has nothing of the user: no mark behind the bracket.
        return Ok(format!("{}\n", filled.replacen("{ ", "{", 1)));
    }
    let document = JsonDocument::parse(text, format.syntax())?;
    let view = SettingsView::new(&document, format)?;
    view.require_valid_hooks()?;
    if let Some((value, line)) = view.foreign_prefix()? {
        return Err(SettingsError::ForeignPrefix { value, line });
    }
    let installed = inspect(text, format)?;
    if installed.is_complete(format) && installed.stale(wiring).is_empty() && view.is_single()? {
        return Ok(text.to_owned());
    }
    let without = uninstall(text, format)?;
    let document = JsonDocument::parse(&without, format.syntax())?;
    let view = SettingsView::new(&document, format)?;
    let mut edits = Vec::new();
    let mut new = Vec::new();
    match (view.env, prefix_item(wiring)) {
        (Some(env), Some(prefix)) => edits.extend(document.append(env, &[prefix])),
        _ => new.extend(env_item(wiring)),
    }
    match view.hooks {
        Some(hooks) => {
            let mut events = Vec::new();
            for (event, _, matcher) in format.events {
                match view.get(hooks, event)? {
                    Some(groups) => {
                        let group = NewItem { key: None, value: group(wiring, *matcher) };
                        edits.extend(document.append(groups, &[group]));
                    }
                    None => events.push(event_item(wiring, event, *matcher)),
                }
            }
            if !events.is_empty() {
                edits.extend(document.append(hooks, &events));
            }
        }
        None => new.push(hooks_item(wiring)),
    }
    if !new.is_empty() {
        edits.extend(document.append(&document.root, &new));
    }
    document.apply(edits)
}

/// Removes clash's entries from a settings text. A text without them stays the same; one that
/// clash has made becomes empty. An error if the text is no JSON.
pub(crate) fn uninstall(text: &str, format: &HookFormat) -> Result<String, SettingsError> {
    if text.trim().is_empty() {
        return Ok(text.to_owned());
    }
    let document = JsonDocument::parse(text, format.syntax())?;
    let mut edits = Vec::new();
    let mut gone = Vec::new();
    for (index, member) in document.root.members().iter().enumerate() {
        let inner = match member.key.as_str() {
            "env" if format.prefix => {
                let own =
                    |m: &super::json_edit::JsonMember| m.key == PREFIX && is_own_prefix(&m.value);
                let own = indices(member.value.members(), own);
                document.remove(&member.value, &own)
            }
            "hooks" => remove_hooks(&document, &member.value, format, &mut edits),
            _ => continue,
        };
        keep_or_go(inner, index, &mut edits, &mut gone);
    }
    match document.remove(&document.root, &gone) {
        ItemRemoval::Edits(root) => edits.extend(root),
        ItemRemoval::All => match document.emptied() {
            Some(edit) => edits = vec![edit],
            // Clash made the root, and so the file.
            None => return Ok(String::new()),
        },
    }
    document.apply(edits)
}

/// Removes clash's hooks from all events, with groups and events that hold nothing else.
fn remove_hooks(
    document: &JsonDocument<'_>,
    hooks: &JsonNode,
    format: &HookFormat,
    edits: &mut Vec<TextEdit>,
) -> ItemRemoval {
    let mut events = Vec::new();
    for (index, event) in hooks.members().iter().enumerate() {
        let mut groups = Vec::new();
        for (at, group) in event.value.elements().iter().enumerate() {
            let Ok(Some(list)) = group.get("hooks") else { continue };
            let own = indices(list.elements(), |hook| own_line(hook, format).is_some());
            // A group with no other hook is clash's, in any layout.
            if !own.is_empty() && own.len() == list.elements().len() {
                groups.push(at);
            } else {
                keep_or_go(document.remove(list, &own), at, edits, &mut groups);
            }
        }
        keep_or_go(document.remove(&event.value, &groups), index, edits, &mut events);
    }
    document.remove(hooks, &events)
}

/// Notes edits inside a container, or that the container itself goes.
fn keep_or_go(
    removal: ItemRemoval,
    index: usize,
    edits: &mut Vec<TextEdit>,
    gone: &mut Vec<usize>,
) {
    match removal {
        ItemRemoval::Edits(inner) => edits.extend(inner),
        ItemRemoval::All => gone.push(index),
    }
}

/// The indices of the items that fit.
fn indices<T>(items: &[T], pick: impl Fn(&T) -> bool) -> Vec<usize> {
    items.iter().enumerate().filter(|(_, item)| pick(item)).map(|(index, _)| index).collect()
}

/// Reads the entries of clash in a settings text, and the settings that work against clash.
/// An empty text has neither. A text that is no JSON object is an error.
pub(crate) fn inspect(text: &str, format: &HookFormat) -> Result<FoundEntries, SettingsError> {
    let mut installed = FoundEntries::default();
    if text.trim().is_empty() {
        return Ok(installed);
    }
    let document = JsonDocument::parse(text, format.syntax())?;
    let view = SettingsView::new(&document, format)?;
    installed.problems.extend(view.off_switches()?);
    if let Some((value, line)) = view.foreign_prefix()? {
        installed.problems.push(SettingsProblem::ForeignPrefix { value, line });
    }
    for member in view.env.map(JsonNode::members).unwrap_or_default() {
        if is_ground(&member.key) {
            let line = document.line(member.value.offset());
            installed
                .problems
                .push(SettingsProblem::GroundInEnv { name: member.key.clone(), line });
        }
    }
    installed.prefix = view.prefix()?.filter(|node| is_own_prefix(node)).and_then(path_value);
    for (event, ..) in format.events {
        let groups = view.hooks.and_then(|hooks| hooks.get(event).ok().flatten());
        let mut hooks =
            groups.map(JsonNode::elements).unwrap_or_default().iter().filter_map(|group| {
                let hooks = group.get("hooks").ok().flatten()?.elements();
                hooks.iter().find_map(|hook| own_line(hook, format))
            });
        if let Some(line) = hooks.next() {
            installed.hooks.push((event, line.to_owned()));
        }
    }
    if let Err(error) = view.require_valid_hooks() {
        installed.problems.push(SettingsProblem::Malformed(error));
    }
    if !installed.hooks.is_empty() || installed.prefix.is_some() {
        let names = format.events.iter().map(|(event, ..)| *event);
        let missing: Vec<_> = names.filter(|event| !installed.has(event)).collect();
        if !missing.is_empty() {
            installed.problems.push(SettingsProblem::MissingEvents(missing));
        }
        if installed.prefix.is_none() && format.prefix {
            installed.problems.push(SettingsProblem::MissingPrefix);
        }
    }
    Ok(installed)
}

/// A line about a project's settings file that works against clash, or that clash cannot
/// read. If the home is the project, the user's own file is not meant. `None` if the file
/// does not exist.
pub(crate) fn hostile(file: &Path, users_own: &Path, format: &HookFormat) -> Option<String> {
    use std::io::ErrorKind;
    if file == users_own {
        return None;
    }
    let unreadable = |error: &dyn std::fmt::Display| {
        Some(format!("{}: clash cannot read it and the client may: {error}", file.display()))
    };
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return None;
        }
        Err(error) => return unreadable(&error),
    };
    match inspect(&text, format) {
        Ok(found) => {
            let problem = found.problems.iter().find(|problem| problem.is_hostile())?;
            Some(format!("{}: {}", file.display(), describe(problem)))
        }
        Err(error) => unreadable(&error),
    }
}

#[cfg(test)]
mod tests;
