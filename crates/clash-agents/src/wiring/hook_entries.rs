//! Clash's entries in a settings file that holds hooks as JSON.
//!
//! Most agents write hooks the same way: `hooks` holds a list of groups for every
//! event, each with a list of hooks. A [`Shape`] says what differs. [`Wiring`]
//! turns text into text and keeps every byte that is not clash's; [`inspect`]
//! reads. [`crate::replace_file`] puts the result on disk.
//!
//! For Claude Code a second thing is wired: `CLAUDE_CODE_SHELL_PREFIX`, through
//! which it starts its shells. Its hooks are in exec form (`/bin/sh` with
//! `args`), because the client runs shell-form hooks through the shell prefix,
//! which here is clash itself.
//!
//! Limits: one file at a time. Whether another settings file overrides this one
//! is for the caller to ask, by inspecting that file too.

mod problems;

use std::path::{Path, PathBuf};

pub use super::json_edit::JsonError;
use super::json_edit::{Document, Edit, Item, JsonSyntax, Kind, New, Node, Removal, Twice};
use super::{HookCommand, SettingsEdit, State};
use crate::{Event, Problem as Wrong};
pub use problems::SettingsError;
use problems::is_ground;
pub(crate) use problems::{Problem, describe};

/// How an agent writes its hooks.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) agent: &'static str,
    /// Names as the client writes them, and whether the event takes a matcher.
    pub(crate) events: &'static [(&'static str, Event, bool)],
    pub(crate) form: Form,
    /// In the client's own unit; the guard's own limit is shorter.
    pub(crate) timeout: u32,
    /// What else a hook says.
    pub(crate) members: &'static [(&'static str, &'static str)],
    /// Whether `env` takes the program the client starts its shells with.
    pub(crate) prefix: bool,
    /// Whether the client takes comments.
    pub(crate) comments: bool,
    /// Where a truth value switches every hook off, and which.
    pub(crate) off: &'static [(&'static [&'static str], bool)],
    /// Lists of hooks that are switched off, by name or command line.
    pub(crate) off_lists: &'static [&'static [&'static str]],
}

impl Shape {
    fn syntax(&self) -> JsonSyntax {
        if self.comments { JsonSyntax::Comments } else { JsonSyntax::Strict }
    }
}

/// How the command line of a hook is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// `command` is run by a shell.
    Shell,
    /// `command` is a program, `args` its arguments.
    Exec,
}

/// What to put into the settings file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wiring {
    pub(crate) shape: &'static Shape,
    /// Shell line that runs `clash hook AGENT` and turns its failure into a
    /// block. Must call clash by a path that ends in `clash`, and every other
    /// program by its full path: a project may set `PATH` for hooks.
    pub(crate) hook_command: String,
    /// The program the client starts its shells with; its name is `clash` or
    /// starts with `clash-`. No ` -` in it: the client splits there.
    pub(crate) prefix: Option<PathBuf>,
}

impl SettingsEdit for Wiring {
    fn commands(&self, text: &str) -> Result<Vec<HookCommand>, SettingsError> {
        let judging = |name: &str| {
            let events = self.shape.events.iter();
            events
                .into_iter()
                .any(|(known, event, _)| *known == name && *event == Event::BeforeTool)
        };
        let hooks = inspect(text, self.shape)?.hooks.into_iter();
        let lines = hooks.filter(|(event, _)| judging(event)).map(|(_, line)| line);
        Ok(lines
            .map(|line| match self.shape.form {
                Form::Shell => HookCommand::Shell(line),
                Form::Exec => HookCommand::Argv(vec![SHELL.to_owned(), "-c".to_owned(), line]),
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

    fn state(&self, text: &str) -> Result<State, SettingsError> {
        let found = inspect(text, self.shape)?;
        if found.hooks.is_empty() && found.prefix.is_none() {
            return Ok(State::Absent);
        }
        let install = || format!("clash install --agent {}", self.shape.agent);
        let mut wrong: Vec<Wrong> = Vec::new();
        for stale in found.stale(self) {
            let what = match stale {
                Stale::Hook { event, found } => format!("the {event} hook runs `{found}`"),
                Stale::Prefix { found } => format!("the shell prefix is {}", found.display()),
            };
            wrong.push(Wrong {
                what: format!("{what}, which is not this clash"),
                fix: Some(install()),
            });
        }
        for problem in found.problems.iter().filter(|problem| !problem.is_users_own()) {
            let fix = problem.fix().unwrap_or_else(install);
            wrong.push(Wrong { what: describe(problem), fix: Some(fix) });
        }
        Ok(State::Present(wrong))
    }
}

const PREFIX: &str = "CLAUDE_CODE_SHELL_PREFIX";
const SHELL: &str = "/bin/sh";

/// What a settings file has of clash.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Installed {
    /// Events with a hook of clash, and the line it runs, in the order of the shape.
    pub(crate) hooks: Vec<(&'static str, String)>,
    /// The shell prefix, if it is clash's.
    pub(crate) prefix: Option<PathBuf>,
    pub(crate) problems: Vec<Problem>,
}

/// How an installation differs from the one that should be there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stale {
    Hook { event: &'static str, found: String },
    Prefix { found: PathBuf },
}

impl Installed {
    pub(crate) fn is_complete(&self, shape: &Shape) -> bool {
        (self.prefix.is_some() || !shape.prefix)
            && shape.events.iter().all(|(event, ..)| self.has(event))
    }

    fn has(&self, event: &str) -> bool {
        self.hooks.iter().any(|(wired, _)| *wired == event)
    }

    /// Entries that run something else than `wiring` says, say an old path.
    pub(crate) fn stale(&self, wiring: &Wiring) -> Vec<Stale> {
        let hooks = self.hooks.iter().filter(|(_, line)| *line != wiring.hook_command);
        let hooks = hooks.map(|(event, line)| Stale::Hook { event, found: line.clone() });
        let prefix = self.prefix.iter().filter(|prefix| Some(*prefix) != wiring.prefix.as_ref());
        hooks.chain(prefix.map(|prefix| Stale::Prefix { found: prefix.clone() })).collect()
    }
}

/// Adds clash's entries to a settings text, or brings them up to date.
///
/// Doing it twice changes nothing more. An empty text becomes a new file.
pub(crate) fn install(text: &str, wiring: &Wiring) -> Result<String, SettingsError> {
    check(wiring)?;
    let shape = wiring.shape;
    if text.trim().is_empty() {
        let new = Document::parse("{}", JsonSyntax::Strict)?;
        let items: Vec<Item> = env_item(wiring).into_iter().chain([hooks_item(wiring)]).collect();
        let filled = new.apply(new.append(&new.root, &items));
        // Nothing of the user's to keep: no mark behind the bracket.
        return Ok(format!("{}\n", filled.replacen("{ ", "{", 1)));
    }
    let document = Document::parse(text, shape.syntax())?;
    let view = View::of(&document, shape)?;
    view.must_be_valid()?;
    if let Some((value, line)) = view.foreign_prefix()? {
        return Err(SettingsError::ForeignPrefix { value, line });
    }
    let installed = inspect(text, shape)?;
    if installed.is_complete(shape) && installed.stale(wiring).is_empty() && view.is_single()? {
        return Ok(text.to_owned());
    }
    let without = uninstall(text, shape)?;
    let document = Document::parse(&without, shape.syntax())?;
    let view = View::of(&document, shape)?;
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
                        let group = Item { key: None, value: group(wiring, *matcher) };
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

/// Takes clash's entries out of a settings text; without any, gives it back.
pub(crate) fn uninstall(text: &str, shape: &Shape) -> Result<String, SettingsError> {
    if text.trim().is_empty() {
        return Ok(text.to_owned());
    }
    let document = Document::parse(text, shape.syntax())?;
    let mut edits = Vec::new();
    let mut gone = Vec::new();
    for (index, member) in document.root.members().iter().enumerate() {
        let inner = match member.key.as_str() {
            "env" if shape.prefix => {
                let own = |m: &super::json_edit::Member| m.key == PREFIX && is_own_prefix(&m.value);
                let own = indices(member.value.members(), own);
                document.remove(&member.value, &own)
            }
            "hooks" => remove_hooks(&document, &member.value, shape, &mut edits),
            _ => continue,
        };
        keep_or_go(inner, index, &mut edits, &mut gone);
    }
    match document.remove(&document.root, &gone) {
        Removal::Edits(root) => edits.extend(root),
        Removal::All => match document.emptied() {
            Some(edit) => edits = vec![edit],
            // The root was ours, and with it the file.
            None => return Ok(String::new()),
        },
    }
    Ok(document.apply(edits))
}

fn remove_hooks(
    document: &Document<'_>,
    hooks: &Node,
    shape: &Shape,
    edits: &mut Vec<Edit>,
) -> Removal {
    let mut events = Vec::new();
    for (index, event) in hooks.members().iter().enumerate() {
        let mut groups = Vec::new();
        for (at, group) in event.value.elements().iter().enumerate() {
            let Ok(Some(list)) = group.get("hooks") else { continue };
            let own = indices(list.elements(), |hook| own_line(hook, shape).is_some());
            // A group whose every hook is ours is ours, however it is laid out.
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

fn keep_or_go(removal: Removal, index: usize, edits: &mut Vec<Edit>, gone: &mut Vec<usize>) {
    match removal {
        Removal::Edits(inner) => edits.extend(inner),
        Removal::All => gone.push(index),
    }
}

fn indices<T>(items: &[T], pick: impl Fn(&T) -> bool) -> Vec<usize> {
    items.iter().enumerate().filter(|(_, item)| pick(item)).map(|(index, _)| index).collect()
}

/// Reads what a settings text has of clash, and what works against it.
pub(crate) fn inspect(text: &str, shape: &Shape) -> Result<Installed, SettingsError> {
    let mut installed = Installed::default();
    if text.trim().is_empty() {
        return Ok(installed);
    }
    let document = Document::parse(text, shape.syntax())?;
    let view = View::of(&document, shape)?;
    installed.problems.extend(view.off_switches()?);
    if let Some((value, line)) = view.foreign_prefix()? {
        installed.problems.push(Problem::ForeignPrefix { value, line });
    }
    for member in view.env.map(Node::members).unwrap_or_default() {
        if is_ground(&member.key) {
            let line = document.line(member.value.offset());
            installed.problems.push(Problem::GroundInEnv { name: member.key.clone(), line });
        }
    }
    installed.prefix = view.prefix()?.filter(|node| is_own_prefix(node)).and_then(path);
    for (event, ..) in shape.events {
        let groups = view.hooks.and_then(|hooks| hooks.get(event).ok().flatten());
        let mut hooks = groups.map(Node::elements).unwrap_or_default().iter().filter_map(|group| {
            let hooks = group.get("hooks").ok().flatten()?.elements();
            hooks.iter().find_map(|hook| own_line(hook, shape))
        });
        if let Some(line) = hooks.next() {
            installed.hooks.push((event, line.to_owned()));
        }
    }
    if let Err(error) = view.must_be_valid() {
        installed.problems.push(Problem::Malformed(error));
    }
    if !installed.hooks.is_empty() || installed.prefix.is_some() {
        let names = shape.events.iter().map(|(event, ..)| *event);
        let missing: Vec<_> = names.filter(|event| !installed.has(event)).collect();
        if !missing.is_empty() {
            installed.problems.push(Problem::MissingEvents(missing));
        }
        if installed.prefix.is_none() && shape.prefix {
            installed.problems.push(Problem::MissingPrefix);
        }
    }
    Ok(installed)
}

/// What a project's settings file does against clash. Where the home is the
/// project, the user's own file is among them and not meant.
pub(crate) fn hostile(file: &Path, users_own: &Path, shape: &Shape) -> Option<String> {
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

/// The parts of a settings document that matter here.
struct View<'a> {
    document: &'a Document<'a>,
    shape: &'a Shape,
    env: Option<&'a Node>,
    hooks: Option<&'a Node>,
}

impl<'a> View<'a> {
    fn of(document: &'a Document<'a>, shape: &'a Shape) -> Result<Self, SettingsError> {
        let mut view = Self { document, shape, env: None, hooks: None };
        view.must(&document.root, Node::is_object, "settings", "an object")?;
        if shape.prefix {
            view.env = view.get(&document.root, "env")?;
        }
        view.hooks = view.get(&document.root, "hooks")?;
        for (node, what) in [(view.env, "env"), (view.hooks, "hooks")] {
            if let Some(node) = node {
                view.must(node, Node::is_object, what, "an object")?;
            }
        }
        Ok(view)
    }

    fn get(&self, node: &'a Node, key: &str) -> Result<Option<&'a Node>, SettingsError> {
        node.get(key).map_err(|Twice { offset }| SettingsError::DuplicateKey {
            what: key.to_owned(),
            line: self.document.line(offset),
        })
    }

    fn must(
        &self,
        node: &Node,
        fits: impl Fn(&Node) -> bool,
        what: &str,
        expected: &'static str,
    ) -> Result<(), SettingsError> {
        if fits(node) {
            return Ok(());
        }
        let line = self.document.line(node.offset());
        Err(SettingsError::WrongType { what: what.to_owned(), expected, line })
    }

    /// Every event is a list of groups with a list of hooks.
    fn must_be_valid(&self) -> Result<(), SettingsError> {
        for event in self.hooks.map(Node::members).unwrap_or_default() {
            let key = event.key.as_str();
            if let Some(hooks) = self.hooks {
                self.get(hooks, key)?;
            }
            self.must(&event.value, Node::is_array, &format!("hooks.{key}"), "an array")?;
            for group in event.value.elements() {
                self.must(group, Node::is_object, &format!("hooks.{key}[]"), "an object")?;
                let what = format!("hooks.{key}[].hooks");
                match self.get(group, "hooks")? {
                    Some(hooks) => self.must(hooks, Node::is_array, &what, "an array")?,
                    None => self.must(group, |_| false, &what, "there")?,
                }
            }
        }
        Ok(())
    }

    /// Whatever keeps clash's hooks from running.
    fn off_switches(&self) -> Result<Vec<Problem>, SettingsError> {
        let mut found = Vec::new();
        for (path, off) in self.shape.off {
            let value = if *off { Kind::True } else { Kind::False };
            if let Some(node) = self.at(path)?.filter(|node| node.kind == value) {
                found.push(self.disabled(path, node));
            }
        }
        for path in self.shape.off_lists {
            let names = self.at(path)?.map(Node::elements).unwrap_or_default();
            let ours = |node: &&Node| node.as_str().is_some_and(|name| name.contains("clash"));
            found.extend(names.iter().find(ours).map(|node| self.disabled(path, node)));
        }
        Ok(found)
    }

    fn disabled(&self, path: &[&str], node: &Node) -> Problem {
        Problem::HooksDisabled { key: path.join("."), line: self.document.line(node.offset()) }
    }

    fn at(&self, path: &[&str]) -> Result<Option<&'a Node>, SettingsError> {
        let mut node = Some(&self.document.root);
        for key in path {
            node = match node {
                Some(node) => self.get(node, key)?,
                None => None,
            };
        }
        Ok(node)
    }

    fn prefix(&self) -> Result<Option<&'a Node>, SettingsError> {
        self.env.map_or(Ok(None), |env| self.get(env, PREFIX))
    }

    fn foreign_prefix(&self) -> Result<Option<(String, usize)>, SettingsError> {
        let Some(node) = self.prefix()? else { return Ok(None) };
        self.must(node, |node| node.as_str().is_some(), PREFIX, "a string")?;
        let value = node.as_str().unwrap_or_default().to_owned();
        Ok((!is_own_prefix(node)).then(|| (value, self.document.line(node.offset()))))
    }

    /// No event has two hooks of clash.
    fn is_single(&self) -> Result<bool, SettingsError> {
        for event in self.hooks.map(Node::members).unwrap_or_default() {
            let mut own = 0;
            for group in event.value.elements() {
                let hooks = self.get(group, "hooks")?.map(Node::elements).unwrap_or_default();
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
fn own_line<'a>(hook: &'a Node, shape: &Shape) -> Option<&'a str> {
    let text = |key| hook.get(key).ok().flatten().and_then(Node::as_str);
    if text("type") != Some("command") {
        return None;
    }
    let line = match shape.form {
        Form::Shell => text("command")?,
        Form::Exec => {
            let [option, line] = hook.get("args").ok().flatten()?.elements() else { return None };
            let ours = text("command") == Some(SHELL) && option.as_str() == Some("-c");
            line.as_str().filter(|_| ours)?
        }
    };
    calls_clash(line, shape.agent).then_some(line)
}

/// `…/clash hook AGENT` with the path bare or quoted, not a longer word.
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

fn is_own_prefix(node: &Node) -> bool {
    node.as_str().is_some_and(|value| is_own_path(Path::new(value)))
}

fn is_own_path(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let split = path.to_str().is_none_or(|path| path.contains(" -"));
    path.is_absolute() && !split && (name == "clash" || name.starts_with("clash-"))
}

fn path(node: &Node) -> Option<PathBuf> {
    node.as_str().map(PathBuf::from)
}

/// Nothing is written that would not be found again.
fn check(wiring: &Wiring) -> Result<(), SettingsError> {
    if !calls_clash(&wiring.hook_command, wiring.shape.agent) {
        return Err(SettingsError::UnknownHookCommand(wiring.hook_command.clone()));
    }
    match &wiring.prefix {
        Some(prefix) if !is_own_path(prefix) => Err(SettingsError::UnknownPrefix(prefix.clone())),
        _ => Ok(()),
    }
}

fn prefix_item(wiring: &Wiring) -> Option<Item> {
    let path = wiring.prefix.as_ref()?.to_string_lossy().into_owned();
    Some(Item { key: Some(PREFIX), value: New::String(path) })
}

fn env_item(wiring: &Wiring) -> Option<Item> {
    let prefix = prefix_item(wiring)?;
    Some(Item { key: Some("env"), value: New::Object(vec![(PREFIX, prefix.value)]) })
}

fn hooks_item(wiring: &Wiring) -> Item {
    let events = wiring.shape.events.iter();
    let events =
        events.map(|(event, _, matcher)| (*event, New::Array(vec![group(wiring, *matcher)])));
    Item { key: Some("hooks"), value: New::Object(events.collect()) }
}

fn event_item(wiring: &Wiring, event: &'static str, matcher: bool) -> Item {
    Item { key: Some(event), value: New::Array(vec![group(wiring, matcher)]) }
}

fn group(wiring: &Wiring, matcher: bool) -> New {
    let text = |text: &str| New::String(text.to_owned());
    let mut hook = vec![("type", text("command"))];
    match wiring.shape.form {
        Form::Shell => hook.push(("command", text(&wiring.hook_command))),
        Form::Exec => hook.extend([
            ("command", text(SHELL)),
            ("args", New::Array(vec![text("-c"), text(&wiring.hook_command)])),
        ]),
    }
    hook.push(("timeout", New::Number(wiring.shape.timeout)));
    hook.extend(wiring.shape.members.iter().map(|(key, value)| (*key, text(value))));
    let mut members = vec![("hooks", New::Array(vec![New::Object(hook)]))];
    if matcher {
        members.insert(0, ("matcher", text("*")));
    }
    New::Object(members)
}

#[cfg(test)]
mod tests;
