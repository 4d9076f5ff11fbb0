//! `srt-settings.json`, and the files of tools that share its shape: fence
//! (`command`), greywall (`extends`, `ssh`, `defaultDenyRead`), and the
//! `sandbox` block of Claude Code.
//!
//! Reading is open unless denied, and an `allowRead` opens a part of a denied
//! directory again; writing is closed unless allowed, and a `denyWrite` wins
//! over every `allowWrite`. A host is one host.

use serde_json::Value;

use crate::draft::{EntryOrigin, ImportDraft};
use crate::hosts::{ImportedHost, ImportedName};
use crate::json::{self, JsonObject};
use crate::paths::{self, ConvertedPath, ImportedPath, PathRoot, RuleSide};
use crate::sandbox::{HostRules, ImportedNet, ImportedSandbox};
use crate::tree::ImportedRule;
use crate::{ImportResult, SettingsBase, words};
use clash_policy::Effect;

/// The blocks that [`fill`] reads.
pub(crate) const READ_BLOCKS: [&str; 3] = ["filesystem", "network", "credentials"];

#[derive(Debug)]
pub(crate) struct BlockOptions<'a> {
    /// Where the block stands in the file.
    pub(crate) at: &'a str,
    pub(crate) base: SettingsBase<'a>,
    /// Switched on: otherwise only its restrictions count.
    pub(crate) in_force: bool,
    /// Hosts that no list names are asked about.
    pub(crate) asks: bool,
}

/// Reads a whole file. Its sandbox is the default one; settings that clash does not know
/// are reported.
pub(crate) fn read(content: &str) -> ImportResult<ImportDraft> {
    let settings = json::parse(content)?;
    let mut draft = ImportDraft::default();
    let mut sandbox = ImportedSandbox::named("imported");
    let files = json::object(&settings, "filesystem", "")?;
    let closed = match files {
        Some(files) => json::boolean(files, "defaultDenyRead", "filesystem")?.unwrap_or(false),
        None => false,
    };
    if !closed {
        let origin = EntryOrigin::new("filesystem", "everything can be read unless denied");
        sandbox.read.allow(ImportedPath::all_of(PathRoot::Slash), origin);
    }
    let options = BlockOptions { at: "", base: SettingsBase::Project, in_force: true, asks: false };
    fill(&settings, &options, &mut sandbox, &mut draft)?;
    commands(&settings, &mut draft)?;
    for (key, value) in &settings {
        let (effect, why) = match key.as_str() {
            "filesystem" | "network" | "credentials" | "command" | "$schema" => continue,
            "extends" => {
                (Some(Effect::Deny), "clash does not know the restrictions of the other file")
            }
            "ssh" => (Some(Effect::Deny), "a policy has no rules for commands on other machines"),
            "ignoreViolations" => (None, "clash reports violations and ignores none"),
            _ if matches!(value, Value::Null | Value::Bool(false)) => continue,
            _ => (None, "a policy has no such setting"),
        };
        draft.left_out(&EntryOrigin::new(key.as_str(), value.to_string()), effect, why);
    }
    draft.default_sandbox = Some(sandbox.name.clone());
    draft.sandboxes.push(sandbox);
    Ok(draft)
}

/// Adds the file, network and credential lists of a block to a sandbox.
pub(crate) fn fill(
    block: &JsonObject,
    options: &BlockOptions<'_>,
    sandbox: &mut ImportedSandbox,
    draft: &mut ImportDraft,
) -> ImportResult<()> {
    if let Some(files) = json::object(block, "filesystem", options.at)? {
        filesystem(files, options, sandbox, draft)?;
    }
    network(json::object(block, "network", options.at)?, options, sandbox, draft)?;
    if let Some(given) = json::object(block, "credentials", options.at)? {
        credentials(given, options, sandbox, draft)?;
    }
    Ok(())
}

/// Adds the file lists of a block. Allows of a block that is not switched on are left out;
/// its denies count.
fn filesystem(
    files: &JsonObject,
    options: &BlockOptions<'_>,
    sandbox: &mut ImportedSandbox,
    draft: &mut ImportDraft,
) -> ImportResult<()> {
    let at = json::join(options.at, "filesystem");
    for (key, effect) in [
        ("allowRead", Effect::Allow),
        ("allowWrite", Effect::Allow),
        ("denyRead", Effect::Deny),
        ("denyWrite", Effect::Deny),
    ] {
        for (at, text) in json::strings(files, key, &at)? {
            let origin = EntryOrigin::new(at, text);
            if effect == Effect::Allow && !options.in_force {
                draft.left_out(&origin, Some(effect), "the sandbox is not switched on");
                continue;
            }
            let Some(pattern) = listed(&origin, effect, options.base, draft) else { continue };
            match key {
                "allowRead" => sandbox.read.allow(pattern, origin),
                "allowWrite" => sandbox.write.allow(pattern, origin),
                "denyRead" => deny_read(pattern, false, origin, sandbox),
                _ => sandbox.write.deny(pattern, true, origin),
            }
        }
    }
    for (key, value) in files {
        let (effect, why) = match key.as_str() {
            "allowRead" | "allowWrite" | "denyRead" | "denyWrite" | "defaultDenyRead" => continue,
            _ if matches!(value, Value::Null | Value::Bool(false)) => continue,
            "disabled" => (Some(Effect::Allow), "file rules are not switched off by an import"),
            "allowManagedReadPathsOnly" => {
                (Some(Effect::Deny), "which lists are managed is not known here")
            }
            _ => (None, "a policy has no such setting"),
        };
        draft.left_out(&EntryOrigin::new(json::join(&at, key), value.to_string()), effect, why);
    }
    Ok(())
}

/// Denies reading and writing: a file that could be moved could be read elsewhere.
fn deny_read(
    pattern: ImportedPath,
    absolute: bool,
    origin: EntryOrigin,
    sandbox: &mut ImportedSandbox,
) {
    sandbox.write.deny(pattern.clone(), absolute, origin.clone());
    sandbox.read.deny(pattern, absolute, origin);
}

/// The pattern of a path in a list. A path that no pattern expresses is reported.
fn listed(
    origin: &EntryOrigin,
    effect: Effect,
    base: SettingsBase<'_>,
    draft: &mut ImportDraft,
) -> Option<ImportedPath> {
    let side = if effect == Effect::Allow { RuleSide::Allow } else { RuleSide::Restrict };
    match paths::in_list(&origin.what, base, side) {
        Ok(ConvertedPath { pattern, differs }) => {
            if let Some(how) = differs {
                draft.stricter(origin, Some(effect), how);
            }
            Some(pattern)
        }
        Err(why) => {
            draft.left_out(origin, Some(effect), why);
            None
        }
    }
}

/// Adds the host lists of a block. A block that is not switched on leaves the network of
/// the sandbox as it is.
fn network(
    given: Option<&JsonObject>,
    options: &BlockOptions<'_>,
    sandbox: &mut ImportedSandbox,
    draft: &mut ImportDraft,
) -> ImportResult<()> {
    let at = json::join(options.at, "network");
    let empty = JsonObject::new();
    let given = given.unwrap_or(&empty);
    let strict = json::boolean(given, "strictAllowlist", &at)?.unwrap_or(false);
    let managed = json::boolean(given, "allowManagedDomainsOnly", &at)?.unwrap_or(false);
    let default = if options.asks && !strict && !managed { Effect::Ask } else { Effect::Deny };
    let mut hosts = HostRules { rules: Vec::new(), addresses: Vec::new(), default };
    for (key, effect) in [("deniedDomains", Effect::Deny), ("allowedDomains", Effect::Allow)] {
        for (at, text) in json::strings(given, key, &at)? {
            let origin = EntryOrigin::new(at, text);
            if !options.in_force || (effect == Effect::Allow && managed) {
                draft.left_out(&origin, Some(effect), "the sandbox does not put it in force");
                continue;
            }
            host(text, effect, origin, &mut hosts, draft);
        }
    }
    for (at, text) in json::strings(given, "deniedResolvedAddresses", &at)? {
        let origin = EntryOrigin::new(at, text);
        let plain = |c: char| c.is_ascii_hexdigit() || ".:/".contains(c);
        if options.in_force && !text.is_empty() && text.chars().all(plain) {
            hosts.addresses.push((text.to_owned(), origin));
        } else {
            draft.left_out(&origin, Some(Effect::Deny), "it is not a range of addresses");
        }
    }
    if options.in_force {
        sandbox.net = ImportedNet::Hosts(hosts);
    }
    for (key, value) in given {
        let (effect, why) = match key.as_str() {
            "allowedDomains" | "deniedDomains" | "deniedResolvedAddresses" => continue,
            "strictAllowlist" | "allowManagedDomainsOnly" | "deniedDomainReasons" => continue,
            _ if matches!(value, Value::Null | Value::Bool(false)) => continue,
            _ if value.as_array().is_some_and(Vec::is_empty) => continue,
            "allowUnixSockets" | "allowAllUnixSockets" | "allowMachLookup" => {
                (Some(Effect::Allow), "sockets of other programs are not opened by an import")
            }
            "allowLocalBinding" => {
                (Some(Effect::Allow), "ports are published one by one: serve = [3000]")
            }
            _ => (None, "clash has no proxy to set up"),
        };
        draft.left_out(&EntryOrigin::new(json::join(&at, key), value.to_string()), effect, why);
    }
    Ok(())
}

/// Adds one host. A deny of every host becomes the default. A host that no key expresses, and
/// an allow of every host, are reported; a lost deny counts only if the default does not deny
/// anyway.
fn host(
    text: &str,
    effect: Effect,
    origin: EntryOrigin,
    hosts: &mut HostRules,
    draft: &mut ImportDraft,
) {
    let read = ImportedHost::read(text);
    let all = |host: &ImportedHost| host.name == ImportedName::All && host.port.is_none();
    match read {
        Ok(host) if effect == Effect::Allow && host.allowed(&[]).is_empty() => {
            let why = "it opens every host, or this machine with every port";
            draft.left_out(&origin, Some(effect), why);
        }
        Ok(host) => {
            if effect == Effect::Deny && all(&host) {
                hosts.default = Effect::Deny;
            }
            hosts.rules.push((host, effect, origin));
        }
        // The default denies every host that no rule allows, so nothing is lost.
        Err(why) if effect == Effect::Deny && hosts.default == Effect::Deny => {
            draft.left_out(&origin, None, format!("{why}; what is not allowed is denied anyway"));
        }
        Err(why) => draft.left_out(&origin, Some(effect), why),
    }
}

/// Hosts that rules of the agent name, for a sandbox that has host rules.
pub(crate) fn add_hosts(given: Vec<(String, Effect, EntryOrigin)>, sandbox: &mut ImportedSandbox) {
    let ImportedNet::Hosts(hosts) = &mut sandbox.net else { return };
    for (name, effect, origin) in given {
        if let Ok(host) = ImportedHost::read(&name) {
            hosts.rules.push((host, effect, origin));
        }
    }
}

/// Denies the files and variables of credentials, also where the other tool puts a
/// stand-in.
fn credentials(
    given: &JsonObject,
    options: &BlockOptions<'_>,
    sandbox: &mut ImportedSandbox,
    draft: &mut ImportDraft,
) -> ImportResult<()> {
    let at = json::join(options.at, "credentials");
    for (key, name) in [("files", "path"), ("envVars", "name")] {
        for (index, item) in json::list(given, key, &at)?.iter().enumerate() {
            let at = format!("{at}.{key}[{index}]");
            let item = item.as_object().ok_or_else(|| json::shape(&*at, "an object"))?;
            let what = json::string(item, name, &at)?;
            let what = what.ok_or_else(|| json::shape(json::join(&at, name), "a string"))?;
            let origin = EntryOrigin::new(&*at, what);
            if json::string(item, "mode", &at)? != Some("deny") {
                let why = "no stand-in is put in its place: it is denied";
                draft.stricter(&origin, Some(Effect::Deny), why);
            }
            if key == "envVars" {
                sandbox.env.push((what.to_owned(), Effect::Deny, origin));
            } else if let Some(pattern) = listed(&origin, Effect::Deny, options.base, draft) {
                deny_read(pattern, true, origin, sandbox);
            }
        }
    }
    for (key, value) in given {
        let known = ["files", "envVars"].contains(&key.as_str());
        if !known && !matches!(value, Value::Null | Value::Bool(false)) {
            let origin = EntryOrigin::new(json::join(&at, key), value.to_string());
            draft.left_out(&origin, None, "credentials are not put into traffic");
        }
    }
    Ok(())
}

/// Adds the denied commands of fence, by their first words.
fn commands(settings: &JsonObject, draft: &mut ImportDraft) -> ImportResult<()> {
    let Some(given) = json::object(settings, "command", "")? else { return Ok(()) };
    for (at, text) in json::strings(given, "deny", "command")? {
        let origin = EntryOrigin::new(at, text);
        let mut pattern = words::read(text);
        pattern.tail = words::PatternTail::Prefix;
        let keys = words::restricted(&pattern);
        if let Some(how) = keys.differs {
            draft.stricter(&origin, Some(Effect::Deny), how);
        }
        draft.command_rule(Effect::Deny, keys.path, ImportedRule::noting(origin.to_string()));
    }
    for (at, text) in json::strings(given, "allow", "command")? {
        let why = "it takes back a deny, which then stays";
        draft.left_out(&EntryOrigin::new(at, text), Some(Effect::Allow), why);
    }
    if json::boolean(given, "useDefaults", "command")? != Some(false) {
        let why = "the commands fence denies by itself are not part of the file";
        draft.left_out(&EntryOrigin::new("command.useDefaults", "true"), Some(Effect::Deny), why);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
