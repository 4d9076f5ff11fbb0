//! The `sandbox` block, joined with the permission rules about files and hosts.

use serde_json::Value;

use super::{GatheredRights, on_project};
use crate::draft::{EntryOrigin, ImportDraft};
use crate::json::{self, JsonObject};
use crate::paths::{ImportedPath, PathRoot};
use crate::sandbox::ImportedSandbox;
use crate::srt;
use crate::tree::ImportedRule;
use crate::{ImportResult, SettingsBase, words};
use clash_policy::Effect;

/// Settings that say how the other sandbox works, not what it permits.
const MECHANICS: [&str; 8] = [
    "enabled",
    "enabledPlatforms",
    "failIfUnavailable",
    "allowUnsandboxedCommands",
    "bwrapPath",
    "socatPath",
    "ripgrep",
    "ignoreViolations",
];

/// Adds the sandbox of the block and of the gathered rules. Switched on, it has its own
/// rights; otherwise it extends `project`. An empty one is not added.
pub(super) fn add(
    block: &JsonObject,
    base: SettingsBase<'_>,
    gathered: GatheredRights,
    draft: &mut ImportDraft,
) -> ImportResult<()> {
    let enabled = json::boolean(block, "enabled", "sandbox")?.unwrap_or(false);
    let auto = json::boolean(block, "autoAllowBashIfSandboxed", "sandbox")?.unwrap_or(true);
    let mut sandbox = if enabled { of_its_own() } else { on_project() };
    let options = srt::BlockOptions { at: "sandbox", base, in_force: enabled, asks: true };
    srt::fill(block, &options, &mut sandbox, draft)?;
    deny_everywhere(&gathered, draft);
    join(gathered, enabled, &mut sandbox);
    if enabled && auto {
        let origin = EntryOrigin::new("sandbox.autoAllowBashIfSandboxed", "true");
        draft.command_rule(Effect::Allow, Vec::new(), ImportedRule::noting(origin.to_string()));
    }
    excluded(block, enabled && auto, draft)?;
    for (key, value) in block {
        let known = ["autoAllowBashIfSandboxed", "excludedCommands"].contains(&key.as_str())
            || MECHANICS.contains(&key.as_str())
            || srt::READ_BLOCKS.contains(&key.as_str());
        if !known && !matches!(value, Value::Null | Value::Bool(false)) {
            let origin = EntryOrigin::new(format!("sandbox.{key}"), value.to_string());
            draft.left_out(&origin, None, "a policy has no such setting");
        }
    }
    if !sandbox.is_empty() {
        draft.default_sandbox = Some(sandbox.name.clone());
        draft.sandboxes.push(sandbox);
    }
    Ok(())
}

/// A sandbox that may read everything, and write the project and the temporary directory.
fn of_its_own() -> ImportedSandbox {
    let mut sandbox = ImportedSandbox::named("imported");
    let origin = |what: &str| EntryOrigin::new("sandbox.enabled", what);
    sandbox.read.allow(ImportedPath::all_of(PathRoot::Slash), origin("everything can be read"));
    sandbox
        .write
        .allow(ImportedPath::all_of(PathRoot::Project), origin("the project can be written"));
    sandbox
        .write
        .allow(ImportedPath::all_of(PathRoot::Tmp), origin("temporary files can be written"));
    sandbox
}

/// Denies the paths of the client's file rules to commands in every sandbox.
fn deny_everywhere(gathered: &GatheredRights, draft: &mut ImportDraft) {
    let denied = |(_, effect, _): &&(ImportedPath, Effect, EntryOrigin)| *effect == Effect::Deny;
    for (pattern, _, origin) in gathered.reads.iter().filter(denied) {
        draft.reads.deny(pattern.clone(), true, origin.clone());
        draft.writes.deny(pattern.clone(), true, origin.clone());
    }
    for (pattern, _, origin) in gathered.writes.iter().filter(denied) {
        draft.writes.deny(pattern.clone(), true, origin.clone());
    }
}

/// Adds the gathered rules to the sandbox: they also hold for the files a command opens. An
/// ask adds nothing. With the client's sandbox on, everything is readable anyway, and only
/// then hosts count.
fn join(gathered: GatheredRights, enabled: bool, sandbox: &mut ImportedSandbox) {
    for (pattern, effect, origin) in gathered.reads {
        match effect {
            // A file that could be moved could be read elsewhere.
            Effect::Deny => {
                sandbox.write.deny(pattern.clone(), true, origin.clone());
                sandbox.read.deny(pattern, true, origin);
            }
            Effect::Allow if !enabled => sandbox.read.allow(pattern, origin),
            Effect::Allow | Effect::Ask => {}
        }
    }
    for (pattern, effect, origin) in gathered.writes {
        match effect {
            Effect::Deny => sandbox.write.deny(pattern, true, origin),
            Effect::Allow => {
                if !enabled {
                    sandbox.read.allow(pattern.clone(), origin.clone());
                }
                sandbox.write.allow(pattern, origin);
            }
            Effect::Ask => {}
        }
    }
    if enabled {
        srt::add_hosts(gathered.hosts, sandbox);
    }
}

/// Commands that run outside of the other sandbox: here they stay inside and ask, as they
/// would there without a rule. Unless commands run without a question (`auto`), they are
/// only reported.
fn excluded(block: &JsonObject, auto: bool, draft: &mut ImportDraft) -> ImportResult<()> {
    for (at, text) in json::strings(block, "excludedCommands", "sandbox")? {
        let origin = EntryOrigin::new(at, text);
        let why = "an import lets no command run without its sandbox";
        if !auto {
            draft.left_out(&origin, Some(Effect::Allow), why);
            continue;
        }
        let mut pattern = words::read(text);
        pattern.tail = words::PatternTail::Prefix;
        let keys = words::restricted(&pattern);
        draft.command_rule(Effect::Ask, keys.path, ImportedRule::noting(origin.to_string()));
        draft.stricter(&origin, Some(Effect::Allow), format!("{why}: it asks"));
    }
    Ok(())
}
