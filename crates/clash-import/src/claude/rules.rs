//! One permission rule: `Tool`, `Tool(specifier)`, `mcp__server__tool`.

use super::{EDITORS, GatheredRights, READERS};
use clash_syntax::draft::KeyDraft;

use crate::SettingsBase;
use crate::draft::{EntryOrigin, ImportDraft};
use crate::hosts::{ImportedHost, ImportedName};
use crate::paths::{self, RuleSide};
use crate::tree::ImportedRule;
use crate::words;
use clash_policy::Effect;

/// Tools of the client that need no specifier to be meant.
const KNOWN_TOOLS: [&str; 34] = [
    "Agent",
    "Artifact",
    "AskUserQuestion",
    "Bash",
    "BashOutput",
    "Cd",
    "Edit",
    "EnterPlanMode",
    "EnterWorktree",
    "ExitPlanMode",
    "Glob",
    "Grep",
    "KillShell",
    "LS",
    "LSP",
    "ListMcpResources",
    "Monitor",
    "MultiEdit",
    "NotebookEdit",
    "NotebookRead",
    "PowerShell",
    "Read",
    "ReadMcpResource",
    "Skill",
    "SlashCommand",
    "Task",
    "TaskOutput",
    "TodoWrite",
    "ToolSearch",
    "WebFetch",
    "WebSearch",
    "Workflow",
    "Write",
    "ExitWorktree",
];

/// Adds a rule to the draft, or reports why not. Rules about paths and hosts are gathered
/// for the sandbox too.
pub(super) fn add(
    origin: &EntryOrigin,
    effect: Effect,
    base: SettingsBase<'_>,
    draft: &mut ImportDraft,
    gathered: &mut GatheredRights,
) {
    let Some((tool, specifier)) = split(&origin.what) else {
        let why = "it is not `Tool` or `Tool(…)`";
        draft.left_out(origin, Some(effect), why);
        return;
    };
    let mut rule = ClaudeRule { origin, effect, draft, gathered };
    match (tool, specifier) {
        (tool, None) if tool.starts_with("mcp__") => rule.mcp(tool),
        (tool, Some(_)) if tool.starts_with("mcp__") => {
            rule.whole(tool, "clash cannot read a rule about the input of this tool");
        }
        (tool, None) => rule.tool(tool),
        ("Bash", Some(text)) => rule.command(text),
        ("WebFetch", Some(text)) => rule.host(text),
        (tool, Some(text)) if READERS.contains(&tool) || EDITORS.contains(&tool) => {
            rule.path(tool, text, base);
        }
        (tool, Some(_)) => {
            rule.whole(tool, "clash cannot read a rule about the input of this tool")
        }
    }
}

/// The tool and the text between the brackets. `(*)` counts as no text. `None` for other
/// forms.
fn split(text: &str) -> Option<(&str, Option<&str>)> {
    let text = text.trim();
    let (tool, specifier) = match text.split_once('(') {
        None => (text, None),
        Some((tool, rest)) => (tool, Some(rest.strip_suffix(')')?)),
    };
    let named = |c: char| c.is_ascii_alphanumeric() || "_-*".contains(c);
    let mcp = tool.starts_with("mcp__");
    let well = !tool.is_empty() && tool.chars().all(|c| named(c) || (mcp && ".:/@ ".contains(c)));
    let specifier = specifier.filter(|text| !matches!(text.trim(), "*" | "**"));
    if specifier.is_some_and(|text| text.trim().is_empty()) {
        return None;
    }
    (well && !tool.starts_with(['-', '*'])).then_some((tool, specifier))
}

/// One rule on its way into the draft.
struct ClaudeRule<'r> {
    origin: &'r EntryOrigin,
    effect: Effect,
    draft: &'r mut ImportDraft,
    gathered: &'r mut GatheredRights,
}

impl ClaudeRule<'_> {
    fn is_allow(&self) -> bool {
        self.effect == Effect::Allow
    }

    fn put(&mut self, path: &[KeyDraft]) {
        self.draft.rule(self.effect, path, ImportedRule::noting(self.origin.to_string()));
    }

    fn left_out(&mut self, why: &str) {
        self.draft.left_out(self.origin, Some(self.effect), why);
    }

    fn stricter(&mut self, why: &str) {
        self.draft.stricter(self.origin, Some(self.effect), why);
    }

    /// A rule about a tool's input that no key expresses: an allow stays out, a deny or an
    /// ask covers the whole tool.
    fn whole(&mut self, tool: &str, why: &str) {
        if self.is_allow() {
            self.left_out(why);
        } else {
            self.stricter(&format!("{why}, so it covers the whole tool"));
            let key = self.tool_key(tool);
            self.put(&[key]);
        }
    }

    /// Rules about reading and editing hold for every tool that does it.
    fn tool_key(&self, tool: &str) -> KeyDraft {
        match tool {
            "Read" => KeyDraft::names(&READERS),
            "Edit" => KeyDraft::names(&EDITORS),
            _ if self.is_allow() => KeyDraft::text(tool),
            _ if READERS.contains(&tool) => KeyDraft::names(&READERS),
            _ if EDITORS.contains(&tool) => KeyDraft::names(&EDITORS),
            _ if tool.contains('*') => KeyDraft::glob(tool.to_owned()),
            _ => KeyDraft::text(tool),
        }
    }

    /// A rule about a whole tool. An allow of a tool that clash does not know is left out.
    fn tool(&mut self, tool: &str) {
        if self.is_allow() && !KNOWN_TOOLS.contains(&tool) {
            self.left_out("clash knows no tool of this name");
            return;
        }
        let key = self.tool_key(tool);
        self.put(&[key]);
    }

    /// A rule about a tool of a server, or about all tools of one.
    fn mcp(&mut self, name: &str) {
        let bare = name.strip_prefix("mcp__").unwrap_or(name);
        let (server, tool) = match bare.split_once("__") {
            Some((server, tool)) => (server, Some(tool)),
            None => (bare, None),
        };
        if self.is_allow() && (server.is_empty() || server.contains('*')) {
            return self.left_out("it allows tools of servers that it does not name");
        }
        if name.contains('*') {
            return self.put(&[KeyDraft::glob(name.to_owned())]);
        }
        self.put(&[KeyDraft::text(name)]);
        // A server by its name is all of its tools.
        if tool.is_none() {
            self.put(&[KeyDraft::glob(format!("{name}__*"))]);
        }
    }

    /// A rule about commands. If no keys express it, an allow is left out; a deny or an ask
    /// becomes wider.
    fn command(&mut self, text: &str) {
        let pattern = words::read(text);
        let keys = if self.is_allow() {
            match words::allowed(&pattern) {
                Ok(keys) if keys.path.is_empty() => return self.left_out("it names no command"),
                Ok(keys) => keys,
                Err(why) => return self.left_out(why),
            }
        } else {
            words::restricted(&pattern)
        };
        if let Some(how) = keys.differs {
            self.stricter(how);
        }
        let rule = ImportedRule::noting(self.origin.to_string());
        self.draft.command_rule(self.effect, keys.path, rule);
    }

    /// A rule about the host of a fetch. Other forms than `domain:…` cover the whole tool,
    /// or are left out as an allow.
    fn host(&mut self, text: &str) {
        let Some(domain) = text.strip_prefix("domain:") else {
            return self.whole("WebFetch", "clash reads only `domain:…` here");
        };
        let host = match ImportedHost::read(domain) {
            Ok(host) if host.port.is_some() => Err("a port is not part of a fetched host"),
            other => other,
        };
        let keys = match &host {
            Err(why) => return self.whole("WebFetch", why),
            Ok(ImportedHost { name: ImportedName::All, .. }) => {
                return self.put(&[KeyDraft::text("WebFetch")]);
            }
            Ok(ImportedHost { name: ImportedName::Localhost, .. }) => {
                vec![KeyDraft::exact(domain.trim().to_owned())]
            }
            Ok(host) if self.is_allow() => host.allowed(&[]),
            Ok(host) => host.restricted(),
        };
        for key in keys {
            self.put(&[KeyDraft::text("WebFetch"), key]);
        }
        self.gathered.hosts.push((domain.to_owned(), self.effect, self.origin.clone()));
    }

    /// A rule about a path, for the tool and for the sandbox. If no key expresses the path,
    /// an allow is left out, and a deny or an ask covers the whole tool. A negation is left
    /// out: taking nothing back is the stricter reading.
    fn path(&mut self, tool: &str, text: &str, base: SettingsBase<'_>) {
        let side = if self.is_allow() { RuleSide::Allow } else { RuleSide::Restrict };
        let converted = match paths::in_rule(text, base, side) {
            Ok(converted) => converted,
            Err(why) if self.is_allow() => return self.left_out(why),
            // Taking nothing back is the stricter reading.
            Err(why) if text.contains('!') => return self.draft.left_out(self.origin, None, why),
            Err(why) => return self.whole(tool, why),
        };
        if let Some(how) = converted.differs {
            self.stricter(how);
        }
        let pattern = converted.pattern;
        let key = self.tool_key(tool);
        self.put(&[key, if self.is_allow() { pattern.strict_key() } else { pattern.key() }]);
        let (origin, effect) = (self.origin.clone(), self.effect);
        if READERS.contains(&tool) {
            self.gathered.reads.push((pattern, effect, origin));
        } else {
            self.gathered.writes.push((pattern, effect, origin));
        }
    }
}
