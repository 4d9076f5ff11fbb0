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

mod problems;

use std::path::{Path, PathBuf};

pub use super::json_edit::JsonError;
use super::json_edit::{
    DuplicateKeyAt, ItemRemoval, JsonDocument, JsonKind, JsonNode, JsonSyntax, NewItem, NewValue,
};
use super::text_edit::TextEdit;
use super::{HookCommand, SettingsEdit, WiringState};
use crate::{HookEvent, WiringProblem};
pub use problems::SettingsError;
use problems::is_ground;
pub(crate) use problems::{SettingsProblem, describe};

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
    pub(crate) shape: &'static HookFormat,
    /// The shell line that runs `clash hook AGENT` and turns a failure into a block. It
    /// must call clash by a path that ends in `clash`, and every other program by its full
    /// path: a project can set `PATH` for hooks.
    pub(crate) hook_command: String,
    /// The program that the client starts its shells with. Its name is `clash` or starts
    /// with `clash-`. The path has no ` -`, because the client splits it there.
    pub(crate) prefix: Option<PathBuf>,
}

impl SettingsEdit for HookEntries {
    fn commands(&self, text: &str) -> Result<Vec<HookCommand>, SettingsError> {
        let judging = |name: &str| {
            let events = self.shape.events.iter();
            events
                .into_iter()
                .any(|(known, event, _)| *known == name && *event == HookEvent::BeforeTool)
        };
        let hooks = inspect(text, self.shape)?.hooks.into_iter();
        let lines = hooks.filter(|(event, _)| judging(event)).map(|(_, line)| line);
        Ok(lines
            .map(|line| match self.shape.form {
                CommandForm::Shell => HookCommand::Shell(line),
                CommandForm::Exec => {
                    HookCommand::Argv(vec![SHELL.to_owned(), "-c".to_owned(), line])
                }
            })
            .collect())
    }

    fn launcher(&self, text: &str) -> Result<Option<PathBuf>, SettingsError> {
        Ok(inspect(text, self.shape)?.prefix)
    }

    fn install(&self, text: &str) -> Result<String, SettingsError> {
        install(text, self)
    }

    fn uninstall(&self, text: &str) -> Result<String, SettingsError> {
        uninstall(text, self.shape)
    }

    fn state(&self, text: &str) -> Result<WiringState, SettingsError> {
        let found = inspect(text, self.shape)?;
        if found.hooks.is_empty() && found.prefix.is_none() {
            return Ok(WiringState::Absent);
        }
        let install = || format!("clash install --agent {}", self.shape.agent);
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
    pub(crate) fn is_complete(&self, shape: &HookFormat) -> bool {
        (self.prefix.is_some() || !shape.prefix)
            && shape.events.iter().all(|(event, ..)| self.has(event))
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

/// Adds clash's entries to a settings text, or updates them.
///
/// A second call changes nothing more. An empty text becomes a new file.
pub(crate) fn install(text: &str, wiring: &HookEntries) -> Result<String, SettingsError> {
    check(wiring)?;
    let shape = wiring.shape;
    if text.trim().is_empty() {
        let new = JsonDocument::parse("{}", JsonSyntax::Strict)?;
        let items: Vec<NewItem> =
            env_item(wiring).into_iter().chain([hooks_item(wiring)]).collect();
        let filled = new.apply(new.append(&new.root, &items));
        // A new file has nothing of the user: no mark behind the bracket.
        return Ok(format!("{}\n", filled.replacen("{ ", "{", 1)));
    }
    let document = JsonDocument::parse(text, shape.syntax())?;
    let view = SettingsView::of(&document, shape)?;
    view.must_be_valid()?;
    if let Some((value, line)) = view.foreign_prefix()? {
        return Err(SettingsError::ForeignPrefix { value, line });
    }
    let installed = inspect(text, shape)?;
    if installed.is_complete(shape) && installed.stale(wiring).is_empty() && view.is_single()? {
        return Ok(text.to_owned());
    }
    let without = uninstall(text, shape)?;
    let document = JsonDocument::parse(&without, shape.syntax())?;
    let view = SettingsView::of(&document, shape)?;
    let mut edits = Vec::new();
    let mut new = Vec::new();
    match (view.env, prefix_item(wiring)) {
        (Some(env), Some(prefix)) => edits.extend(document.append(env, &[prefix])),
        _ => new.extend(env_item(wiring)),
    }
    match view.hooks {
        Some(hooks) => {
            let mut events = Vec::new();
            for (event, _, matcher) in shape.events {
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
    Ok(document.apply(edits))
}

/// Removes clash's entries from a settings text. A text without them stays the same.
pub(crate) fn uninstall(text: &str, shape: &HookFormat) -> Result<String, SettingsError> {
    if text.trim().is_empty() {
        return Ok(text.to_owned());
    }
    let document = JsonDocument::parse(text, shape.syntax())?;
    let mut edits = Vec::new();
    let mut gone = Vec::new();
    for (index, member) in document.root.members().iter().enumerate() {
        let inner = match member.key.as_str() {
            "env" if shape.prefix => {
                let own =
                    |m: &super::json_edit::JsonMember| m.key == PREFIX && is_own_prefix(&m.value);
                let own = indices(member.value.members(), own);
                document.remove(&member.value, &own)
            }
            "hooks" => remove_hooks(&document, &member.value, shape, &mut edits),
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
    Ok(document.apply(edits))
}

fn remove_hooks(
    document: &JsonDocument<'_>,
    hooks: &JsonNode,
    shape: &HookFormat,
    edits: &mut Vec<TextEdit>,
) -> ItemRemoval {
    let mut events = Vec::new();
    for (index, event) in hooks.members().iter().enumerate() {
        let mut groups = Vec::new();
        for (at, group) in event.value.elements().iter().enumerate() {
            let Ok(Some(list)) = group.get("hooks") else { continue };
            let own = indices(list.elements(), |hook| own_line(hook, shape).is_some());
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

fn indices<T>(items: &[T], pick: impl Fn(&T) -> bool) -> Vec<usize> {
    items.iter().enumerate().filter(|(_, item)| pick(item)).map(|(index, _)| index).collect()
}

/// Reads the entries of clash in a settings text, and the settings that work against clash.
pub(crate) fn inspect(text: &str, shape: &HookFormat) -> Result<FoundEntries, SettingsError> {
    let mut installed = FoundEntries::default();
    if text.trim().is_empty() {
        return Ok(installed);
    }
    let document = JsonDocument::parse(text, shape.syntax())?;
    let view = SettingsView::of(&document, shape)?;
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
    installed.prefix = view.prefix()?.filter(|node| is_own_prefix(node)).and_then(path);
    for (event, ..) in shape.events {
        let groups = view.hooks.and_then(|hooks| hooks.get(event).ok().flatten());
        let mut hooks =
            groups.map(JsonNode::elements).unwrap_or_default().iter().filter_map(|group| {
                let hooks = group.get("hooks").ok().flatten()?.elements();
                hooks.iter().find_map(|hook| own_line(hook, shape))
            });
        if let Some(line) = hooks.next() {
            installed.hooks.push((event, line.to_owned()));
        }
    }
    if let Err(error) = view.must_be_valid() {
        installed.problems.push(SettingsProblem::Malformed(error));
    }
    if !installed.hooks.is_empty() || installed.prefix.is_some() {
        let names = shape.events.iter().map(|(event, ..)| *event);
        let missing: Vec<_> = names.filter(|event| !installed.has(event)).collect();
        if !missing.is_empty() {
            installed.problems.push(SettingsProblem::MissingEvents(missing));
        }
        if installed.prefix.is_none() && shape.prefix {
            installed.problems.push(SettingsProblem::MissingPrefix);
        }
    }
    Ok(installed)
}

/// A line about a project's settings file that works against clash. If the home is the
/// project, the user's own file is not meant.
pub(crate) fn hostile(file: &Path, users_own: &Path, shape: &HookFormat) -> Option<String> {
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
    match inspect(&text, shape) {
        Ok(found) => {
            let problem = found.problems.iter().find(|problem| problem.is_hostile())?;
            Some(format!("{}: {}", file.display(), describe(problem)))
        }
        Err(error) => unreadable(&error),
    }
}

/// The parts of a settings document that clash reads.
struct SettingsView<'a> {
    document: &'a JsonDocument<'a>,
    shape: &'a HookFormat,
    env: Option<&'a JsonNode>,
    hooks: Option<&'a JsonNode>,
}

impl<'a> SettingsView<'a> {
    fn of(document: &'a JsonDocument<'a>, shape: &'a HookFormat) -> Result<Self, SettingsError> {
        let mut view = Self { document, shape, env: None, hooks: None };
        view.must(&document.root, JsonNode::is_object, "settings", "an object")?;
        if shape.prefix {
            view.env = view.get(&document.root, "env")?;
        }
        view.hooks = view.get(&document.root, "hooks")?;
        for (node, what) in [(view.env, "env"), (view.hooks, "hooks")] {
            if let Some(node) = node {
                view.must(node, JsonNode::is_object, what, "an object")?;
            }
        }
        Ok(view)
    }

    fn get(&self, node: &'a JsonNode, key: &str) -> Result<Option<&'a JsonNode>, SettingsError> {
        node.get(key).map_err(|DuplicateKeyAt { offset }| SettingsError::DuplicateKey {
            what: key.to_owned(),
            line: self.document.line(offset),
        })
    }

    fn must(
        &self,
        node: &JsonNode,
        fits: impl Fn(&JsonNode) -> bool,
        what: &str,
        expected: &'static str,
    ) -> Result<(), SettingsError> {
        if fits(node) {
            return Ok(());
        }
        let line = self.document.line(node.offset());
        Err(SettingsError::WrongType { what: what.to_owned(), expected, line })
    }

    /// Checks that every event is a list of groups with a list of hooks.
    fn must_be_valid(&self) -> Result<(), SettingsError> {
        for event in self.hooks.map(JsonNode::members).unwrap_or_default() {
            let key = event.key.as_str();
            if let Some(hooks) = self.hooks {
                self.get(hooks, key)?;
            }
            self.must(&event.value, JsonNode::is_array, &format!("hooks.{key}"), "an array")?;
            for group in event.value.elements() {
                self.must(group, JsonNode::is_object, &format!("hooks.{key}[]"), "an object")?;
                let what = format!("hooks.{key}[].hooks");
                match self.get(group, "hooks")? {
                    Some(hooks) => self.must(hooks, JsonNode::is_array, &what, "an array")?,
                    None => self.must(group, |_| false, &what, "there")?,
                }
            }
        }
        Ok(())
    }

    /// The settings that switch clash's hooks off.
    fn off_switches(&self) -> Result<Vec<SettingsProblem>, SettingsError> {
        let mut found = Vec::new();
        for (path, off) in self.shape.off {
            let value = if *off { JsonKind::True } else { JsonKind::False };
            if let Some(node) = self.at(path)?.filter(|node| node.kind == value) {
                found.push(self.disabled(path, node));
            }
        }
        for path in self.shape.off_lists {
            let names = self.at(path)?.map(JsonNode::elements).unwrap_or_default();
            let ours = |node: &&JsonNode| node.as_str().is_some_and(|name| name.contains("clash"));
            found.extend(names.iter().find(ours).map(|node| self.disabled(path, node)));
        }
        Ok(found)
    }

    fn disabled(&self, path: &[&str], node: &JsonNode) -> SettingsProblem {
        SettingsProblem::HooksDisabled {
            key: path.join("."),
            line: self.document.line(node.offset()),
        }
    }

    fn at(&self, path: &[&str]) -> Result<Option<&'a JsonNode>, SettingsError> {
        let mut node = Some(&self.document.root);
        for key in path {
            node = match node {
                Some(node) => self.get(node, key)?,
                None => None,
            };
        }
        Ok(node)
    }

    fn prefix(&self) -> Result<Option<&'a JsonNode>, SettingsError> {
        self.env.map_or(Ok(None), |env| self.get(env, PREFIX))
    }

    fn foreign_prefix(&self) -> Result<Option<(String, usize)>, SettingsError> {
        let Some(node) = self.prefix()? else { return Ok(None) };
        self.must(node, |node| node.as_str().is_some(), PREFIX, "a string")?;
        let value = node.as_str().unwrap_or_default().to_owned();
        Ok((!is_own_prefix(node)).then(|| (value, self.document.line(node.offset()))))
    }

    /// True if no event has two hooks of clash.
    fn is_single(&self) -> Result<bool, SettingsError> {
        for event in self.hooks.map(JsonNode::members).unwrap_or_default() {
            let mut own = 0;
            for group in event.value.elements() {
                let hooks = self.get(group, "hooks")?.map(JsonNode::elements).unwrap_or_default();
                own += hooks.iter().filter(|hook| own_line(hook, self.shape).is_some()).count();
            }
            if own > 1 {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The shell line of a hook entry that clash wrote.
fn own_line<'a>(hook: &'a JsonNode, shape: &HookFormat) -> Option<&'a str> {
    let text = |key| hook.get(key).ok().flatten().and_then(JsonNode::as_str);
    if text("type") != Some("command") {
        return None;
    }
    let line = match shape.form {
        CommandForm::Shell => text("command")?,
        CommandForm::Exec => {
            let [option, line] = hook.get("args").ok().flatten()?.elements() else { return None };
            let ours = text("command") == Some(SHELL) && option.as_str() == Some("-c");
            line.as_str().filter(|_| ours)?
        }
    };
    calls_clash(line, shape.agent).then_some(line)
}

/// True if the line has `…/clash hook AGENT`, the path bare or quoted, and not as part of a
/// longer word.
pub(crate) fn calls_clash(line: &str, agent: &str) -> bool {
    ["", "'", "\""].iter().any(|quote| {
        let call = format!("clash{quote} hook {agent}");
        line.match_indices(&call).any(|(at, found)| {
            let before = line.get(..at).unwrap_or_default();
            let after = line.get(at + found.len()..).unwrap_or_default();
            before.ends_with('/') && (after.is_empty() || after.starts_with([' ', ')', ';']))
        })
    })
}

fn is_own_prefix(node: &JsonNode) -> bool {
    node.as_str().is_some_and(|value| is_own_path(Path::new(value)))
}

fn is_own_path(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let split = path.to_str().is_none_or(|path| path.contains(" -"));
    path.is_absolute() && !split && (name == "clash" || name.starts_with("clash-"))
}

fn path(node: &JsonNode) -> Option<PathBuf> {
    node.as_str().map(PathBuf::from)
}

/// Checks that clash will recognise its own entries later.
fn check(wiring: &HookEntries) -> Result<(), SettingsError> {
    if !calls_clash(&wiring.hook_command, wiring.shape.agent) {
        return Err(SettingsError::UnknownHookCommand(wiring.hook_command.clone()));
    }
    match &wiring.prefix {
        Some(prefix) if !is_own_path(prefix) => Err(SettingsError::UnknownPrefix(prefix.clone())),
        _ => Ok(()),
    }
}

fn prefix_item(wiring: &HookEntries) -> Option<NewItem> {
    let path = wiring.prefix.as_ref()?.to_string_lossy().into_owned();
    Some(NewItem { key: Some(PREFIX), value: NewValue::String(path) })
}

fn env_item(wiring: &HookEntries) -> Option<NewItem> {
    let prefix = prefix_item(wiring)?;
    Some(NewItem { key: Some("env"), value: NewValue::Object(vec![(PREFIX, prefix.value)]) })
}

fn hooks_item(wiring: &HookEntries) -> NewItem {
    let events = wiring.shape.events.iter();
    let events =
        events.map(|(event, _, matcher)| (*event, NewValue::Array(vec![group(wiring, *matcher)])));
    NewItem { key: Some("hooks"), value: NewValue::Object(events.collect()) }
}

fn event_item(wiring: &HookEntries, event: &'static str, matcher: bool) -> NewItem {
    NewItem { key: Some(event), value: NewValue::Array(vec![group(wiring, matcher)]) }
}

fn group(wiring: &HookEntries, matcher: bool) -> NewValue {
    let text = |text: &str| NewValue::String(text.to_owned());
    let mut hook = vec![("type", text("command"))];
    match wiring.shape.form {
        CommandForm::Shell => hook.push(("command", text(&wiring.hook_command))),
        CommandForm::Exec => hook.extend([
            ("command", text(SHELL)),
            ("args", NewValue::Array(vec![text("-c"), text(&wiring.hook_command)])),
        ]),
    }
    hook.push(("timeout", NewValue::Number(wiring.shape.timeout)));
    hook.extend(wiring.shape.members.iter().map(|(key, value)| (*key, text(value))));
    let mut members = vec![("hooks", NewValue::Array(vec![NewValue::Object(hook)]))];
    if matcher {
        members.insert(0, ("matcher", text("*")));
    }
    NewValue::Object(members)
}

#[cfg(test)]
mod tests;
