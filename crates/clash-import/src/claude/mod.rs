//! Claude Code's `settings.json`: `permissions` and `sandbox`.
//!
//! The client tries its rules in the order deny, ask, allow, however long they are. A rule
//! about files also holds for the sandbox of commands. The policy knows the mode of every
//! action, so the permissions of a mode are imported for that mode only. Modes that permit
//! everything are not imported.

mod rules;
mod sandbox;

use clash_syntax::draft::KeyDraft;

use crate::draft::{EntryOrigin, ImportDraft};
use crate::json::{self, JsonObject};
use crate::paths::{ImportedPath, PathRoot};
use crate::sandbox::{ImportedNet, ImportedSandbox};
use crate::tree::ImportedRule;
use crate::{ImportResult, SettingsBase};
use clash_policy::Effect;

const EDITORS: [&str; 4] = ["Edit", "Write", "MultiEdit", "NotebookEdit"];
const READERS: [&str; 3] = ["Read", "Glob", "Grep"];

/// The rights that permission rules add to the sandbox.
#[derive(Debug, Default)]
struct GatheredRights {
    reads: Vec<(ImportedPath, Effect, EntryOrigin)>,
    writes: Vec<(ImportedPath, Effect, EntryOrigin)>,
    hosts: Vec<(String, Effect, EntryOrigin)>,
}

/// Reads a whole file. A value of another type than the client expects is an error: nothing
/// is imported.
pub(crate) fn read(content: &str, base: SettingsBase<'_>) -> ImportResult<ImportDraft> {
    let settings = json::parse(content)?;
    let mut draft = ImportDraft::default();
    let mut gathered = GatheredRights::default();
    let empty = JsonObject::new();
    let permissions = json::object(&settings, "permissions", "")?.unwrap_or(&empty);
    let block = json::object(&settings, "sandbox", "")?.unwrap_or(&empty);
    draft.by_toolchain = !json::boolean(block, "enabled", "sandbox")?.unwrap_or(false);
    let asks_are_denied = modes(permissions, &mut draft)?;
    for (key, effect) in [("deny", Effect::Deny), ("ask", Effect::Ask), ("allow", Effect::Allow)] {
        for (at, text) in json::strings(permissions, key, "permissions")? {
            let origin = EntryOrigin::new(at, text);
            let effect = match effect {
                Effect::Ask if asks_are_denied => Effect::Deny,
                effect => effect,
            };
            rules::add(&origin, effect, base, &mut draft, &mut gathered);
        }
    }
    for (at, text) in json::strings(permissions, "additionalDirectories", "permissions")? {
        let why = "only rules give tools a directory: add Read and Edit rules for it";
        draft.left_out(&EntryOrigin::new(at, text), Some(Effect::Allow), why);
    }
    report_unknown_keys(permissions, &mut draft);
    sandbox::add(block, base, gathered, &mut draft)?;
    if settings.contains_key("autoMode") {
        let why = "a policy has no rules for a classifier";
        draft.left_out(&EntryOrigin::new("autoMode", "{…}"), None, why);
    }
    Ok(draft)
}

/// Reports the permission settings that clash does not know.
fn report_unknown_keys(permissions: &JsonObject, draft: &mut ImportDraft) {
    const KNOWN: [&str; 7] = [
        "allow",
        "ask",
        "deny",
        "defaultMode",
        "additionalDirectories",
        "disableBypassPermissionsMode",
        "disableAutoMode",
    ];
    for key in permissions.keys().filter(|key| !KNOWN.contains(&key.as_str())) {
        let origin = EntryOrigin::new("permissions", key.as_str());
        draft.left_out(&origin, None, "this setting is not known");
    }
}

/// Imports the modes. Returns true if every ask has to become a deny.
fn modes(permissions: &JsonObject, draft: &mut ImportDraft) -> ImportResult<bool> {
    let mut asks_are_denied = false;
    if let Some(mode) = json::string(permissions, "defaultMode", "permissions")? {
        let origin = EntryOrigin::new("permissions.defaultMode", mode);
        match mode {
            // A mode that permits no more than asking needs no rule.
            "default" | "manual" | "plan" => {}
            "acceptEdits" => accept_edits(&origin, draft),
            "dontAsk" => {
                asks_are_denied = true;
                draft.deny_by_default = true;
                draft.stricter(
                    &origin,
                    None,
                    "clash denies every action that would ask, in every mode",
                );
            }
            _ => {
                let why =
                    "clash does not import a mode that allows actions without a rule: they ask";
                draft.left_out(&origin, Some(Effect::Allow), why);
            }
        }
    }
    let switches =
        [("disableBypassPermissionsMode", "bypassPermissions"), ("disableAutoMode", "auto")];
    for (key, mode) in switches {
        if let Some(value) = json::string(permissions, key, "permissions")? {
            let origin = EntryOrigin::new(format!("permissions.{key}"), value);
            if value == "disable" {
                let leaf = ImportedRule::noting(origin.to_string());
                draft.rule(Effect::Deny, &[KeyDraft::mode(mode.to_owned())], leaf);
            } else {
                draft.left_out(&origin, Some(Effect::Deny), "the only known value is `disable`");
            }
        }
    }
    Ok(asks_are_denied)
}

/// Adds the rules of the mode `acceptEdits`: edits in the project, with a question about
/// files that steer later commands.
fn accept_edits(origin: &EntryOrigin, draft: &mut ImportDraft) {
    let mode = KeyDraft::mode("acceptEdits".to_owned());
    let project = KeyDraft::text(ImportedPath::all_of(PathRoot::Project).text());
    let leaf = || ImportedRule::noting(origin.to_string());
    draft.rule(Effect::Allow, &[mode.clone(), KeyDraft::names(&EDITORS), project], leaf());
    // In that mode the client still asks about files that steer later commands.
    for name in [".git", ".claude", ".vscode", ".idea", ".husky"] {
        let path = KeyDraft::text(ImportedPath::below(PathRoot::Project, &[name]).text());
        draft.rule(Effect::Ask, &[mode.clone(), KeyDraft::names(&EDITORS), path], leaf());
    }
}

/// A sandbox that extends the library's `project` by the rules.
fn on_project() -> ImportedSandbox {
    let mut sandbox = ImportedSandbox::named("imported");
    sandbox.on_project = true;
    sandbox.net = ImportedNet::Unsaid;
    let inherited = [PathRoot::Project, PathRoot::Tmp].map(ImportedPath::all_of);
    sandbox.read.inherited = inherited.to_vec();
    sandbox.write.inherited = inherited.to_vec();
    sandbox
}

#[cfg(test)]
mod tests;
