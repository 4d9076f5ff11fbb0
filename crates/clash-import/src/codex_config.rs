//! codex `config.toml`: permission profiles, and the older `sandbox_mode`.
//!
//! Every profile becomes a sandbox; the one in `default_permissions` becomes the
//! default. Which commands run at all is not part of a profile, so everything
//! asks unless `approval_policy` says that commands run in the sandbox unasked.

use toml::de::{DeTable, DeValue};

use crate::draft::{EntryOrigin, ImportDraft};
use crate::hosts::ImportedHost;
use crate::json::{MAX_LIST_ENTRIES, shape};
use crate::paths::{self, ImportedPath, PathRoot, RuleSide};
use crate::sandbox::{HostRules, ImportedNet, ImportedSandbox};
use crate::tree::ImportedRule;
use crate::{ImportError, ImportResult, SettingsBase};
use clash_policy::Effect;

/// Profiles that extend one another; a longer chain is a circle.
const MAX_PROFILE_CHAIN: usize = 8;

/// True if a text is TOML with a key that only codex's settings have.
pub(crate) fn recognises(content: &str) -> bool {
    const KEYS: [&str; 5] = [
        "permissions",
        "default_permissions",
        "sandbox_mode",
        "sandbox_workspace_write",
        "approval_policy",
    ];
    DeTable::parse(content)
        .is_ok_and(|table| KEYS.iter().any(|key| table.get_ref().contains_key(*key)))
}

/// Reads a whole file. A value of another type than codex expects is an error: nothing is
/// imported.
pub(crate) fn read(content: &str) -> ImportResult<ImportDraft> {
    let table = DeTable::parse(content).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        let line = content.get(..at).unwrap_or_default().matches('\n').count() + 1;
        ImportError::Toml { line, message: error.message().to_owned() }
    })?;
    let root = table.get_ref();
    let mut reader = ConfigReader { draft: ImportDraft::default() };
    let empty = DeTable::new();
    let profiles = child(root, "permissions", "")?.unwrap_or(&empty);
    if profiles.len() > 64 {
        return Err(ImportError::TooMany { what: "profiles", limit: 64 });
    }
    let chosen = text(root, "default_permissions", "")?;
    for (name, value) in profiles.iter() {
        let name = name.get_ref().as_ref();
        if value.get_ref().as_table().is_none() {
            return Err(shape(format!("permissions.{name}"), "a table"));
        }
        let mut sandbox = ImportedSandbox::named(&reader.sandbox_name(name));
        sandbox.net = ImportedNet::Deny;
        reader.profile(profiles, name, &mut sandbox, MAX_PROFILE_CHAIN)?;
        if chosen == Some(name) {
            reader.draft.default_sandbox = Some(sandbox.name.clone());
        }
        reader.draft.sandboxes.push(sandbox);
    }
    match chosen {
        Some(name) if reader.draft.default_sandbox.is_none() => {
            let mut sandbox = ImportedSandbox::named("imported");
            sandbox.net = ImportedNet::Deny;
            let origin = EntryOrigin::new("default_permissions", name);
            if reader.built_in(name, &origin, &mut sandbox) {
                reader.draft.default_sandbox = Some(sandbox.name.clone());
                reader.draft.sandboxes.push(sandbox);
            }
        }
        Some(_) => {}
        None => reader.legacy(root)?,
    }
    reader.approval(root)?;
    Ok(reader.draft)
}

/// The settings read so far.
struct ConfigReader {
    draft: ImportDraft,
}

impl ConfigReader {
    /// A name for the profile's sandbox that is also a valid variable.
    fn sandbox_name(&self, profile: &str) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
        let stem: String = profile.chars().take(40).map(plain).collect();
        let taken =
            |name: &String| self.draft.sandboxes.iter().any(|sandbox| sandbox.name == *name);
        let first = format!("codex_{stem}");
        let others = (2..=65).map(|number| format!("codex_{stem}_{number}"));
        std::iter::once(first).chain(others).find(|name| !taken(name)).unwrap_or_default()
    }

    /// Adds the rights of a profile to a sandbox, after those of the profile that it
    /// extends. A profile that does not exist is reported as a lost restriction.
    fn profile(
        &mut self,
        profiles: &DeTable<'_>,
        name: &str,
        sandbox: &mut ImportedSandbox,
        left: usize,
    ) -> ImportResult<()> {
        let at = format!("permissions.{name}");
        let Some(profile) = child(profiles, name, "permissions")? else {
            let why = "there is no such profile, so clash does not know its restrictions";
            self.draft.left_out(&EntryOrigin::new("permissions", name), Some(Effect::Deny), why);
            return Ok(());
        };
        if let Some(parent) = text(profile, "extends", &at)? {
            let origin = EntryOrigin::new(format!("{at}.extends"), parent);
            if left == 0 {
                return Err(shape(origin.at, "a profile that does not extend itself"));
            }
            if parent.starts_with(':') {
                self.built_in(parent, &origin, sandbox);
            } else {
                self.profile(profiles, parent, sandbox, left - 1)?;
            }
        }
        for (key, value) in profile.iter() {
            let key = key.get_ref().as_ref();
            match key {
                "extends" => {}
                "description" => {
                    sandbox.doc = text(profile, "description", &at)?.unwrap_or_default().to_owned();
                }
                "filesystem" => {
                    let files = child(profile, key, &at)?;
                    self.filesystem(files, &format!("{at}.filesystem"), sandbox)?;
                }
                "network" => {
                    let net = child(profile, key, &at)?;
                    self.network(net, &format!("{at}.network"), sandbox)?;
                }
                "workspace_roots" => {
                    let roots = child(profile, key, &at)?;
                    for (path, on) in roots.into_iter().flat_map(|roots| roots.iter()) {
                        let origin =
                            EntryOrigin::new(format!("{at}.{key}"), path.get_ref().as_ref());
                        if on.get_ref().as_bool() != Some(false) {
                            let why = "a further root does not get the rights of the project";
                            self.draft.left_out(&origin, Some(Effect::Allow), why);
                        }
                    }
                }
                _ => {
                    let origin =
                        EntryOrigin::new(format!("{at}.{key}"), value.get_ref().type_str());
                    self.draft.left_out(&origin, None, "this setting is not known");
                }
            }
        }
        Ok(())
    }

    /// Adds the rights of one of codex's own profiles. False for a name that clash cannot
    /// import, which is reported.
    fn built_in(
        &mut self,
        name: &str,
        origin: &EntryOrigin,
        sandbox: &mut ImportedSandbox,
    ) -> bool {
        match name {
            ":read-only" => read_only(origin, sandbox),
            ":workspace" => {
                read_only(origin, sandbox);
                let tmp = ImportedPath::below(PathRoot::Slash, &["tmp"]);
                writable(&[ImportedPath::all_of(PathRoot::Tmp), tmp], origin, sandbox);
            }
            _ => {
                let why = "clash cannot import this profile";
                self.draft.left_out(origin, Some(Effect::Allow), why);
                return false;
            }
        }
        true
    }

    /// Adds the paths of a profile, also those scoped below another path. Another form of
    /// value is an error.
    fn filesystem(
        &mut self,
        files: Option<&DeTable<'_>>,
        at: &str,
        sandbox: &mut ImportedSandbox,
    ) -> ImportResult<()> {
        let Some(files) = files else { return Ok(()) };
        if files.len() > MAX_LIST_ENTRIES {
            return Err(ImportError::TooMany { what: "paths", limit: MAX_LIST_ENTRIES });
        }
        for (path, value) in files.iter() {
            let path = path.get_ref().as_ref();
            let at = format!("{at}.{path}");
            match value.get_ref() {
                _ if path == "glob_scan_max_depth" => {}
                DeValue::String(access) => self.access(path, "", access, &at, sandbox)?,
                DeValue::Table(scoped) if scoped.len() <= MAX_LIST_ENTRIES => {
                    for (below, access) in scoped.iter() {
                        let below = below.get_ref().as_ref();
                        let at = format!("{at}.{below}");
                        let access = access.get_ref().as_str();
                        let access = access.ok_or_else(|| shape(&*at, "an access"))?;
                        self.access(path, below, access, &at, sandbox)?;
                    }
                }
                _ => return Err(shape(at, "\"read\", \"write\", \"deny\" or a table of paths")),
            }
        }
        Ok(())
    }

    /// Adds one path. `write` includes reading; `read` takes writing away inside a writable
    /// directory. A path that no pattern expresses is reported.
    fn access(
        &mut self,
        path: &str,
        below: &str,
        access: &str,
        at: &str,
        sandbox: &mut ImportedSandbox,
    ) -> ImportResult<()> {
        let origin = EntryOrigin::new(at, access);
        let (effect, side) = match access {
            "read" | "write" => (Effect::Allow, RuleSide::Allow),
            "deny" | "none" => (Effect::Deny, RuleSide::Restrict),
            _ => return Err(shape(at, "\"read\", \"write\" or \"deny\"")),
        };
        let start = match path {
            ":root" => "/",
            ":tmpdir" => "$TMPDIR",
            ":slash_tmp" => "/tmp",
            ":workspace_roots" | ":project_roots" => "$PWD",
            // The system is readable anyway.
            ":minimal" if access == "read" => return Ok(()),
            _ if path.starts_with(':') => {
                self.draft.left_out(&origin, Some(effect), "this place is not known");
                return Ok(());
            }
            path => path,
        };
        let whole = format!("{}/{below}", start.trim_end_matches('/'));
        let converted = match paths::in_list(&whole, SettingsBase::Project, side) {
            Ok(converted) => converted,
            Err(why) => {
                self.draft.left_out(&origin, Some(effect), why);
                return Ok(());
            }
        };
        if let Some(how) = converted.differs {
            self.draft.stricter(&origin, Some(effect), how);
        }
        let pattern = converted.pattern;
        match access {
            "write" => {
                sandbox.read.allow(pattern.clone(), origin.clone());
                sandbox.write.allow(pattern, origin);
            }
            "read" => {
                // Inside a writable directory this takes writing away.
                if pattern != ImportedPath::all_of(PathRoot::Slash) {
                    sandbox.write.deny(pattern.clone(), false, origin.clone());
                }
                sandbox.read.allow(pattern, origin);
            }
            _ => {
                sandbox.read.deny(pattern.clone(), false, origin.clone());
                sandbox.write.deny(pattern, false, origin);
            }
        }
        Ok(())
    }

    /// Adds the hosts of a profile. Switched off, it has no network; switched on without
    /// hosts, clash opens none. A decision other than allow and deny is an error.
    fn network(
        &mut self,
        net: Option<&DeTable<'_>>,
        at: &str,
        sandbox: &mut ImportedSandbox,
    ) -> ImportResult<()> {
        let Some(net) = net else { return Ok(()) };
        let enabled = boolean(net, "enabled", at)?.unwrap_or(false);
        let limited = text(net, "mode", at)? == Some("limited");
        let mut hosts =
            HostRules { rules: Vec::new(), addresses: Vec::new(), default: Effect::Deny };
        let domains = child(net, "domains", at)?;
        if domains.is_some_and(|domains| domains.len() > MAX_LIST_ENTRIES) {
            return Err(ImportError::TooMany { what: "domains", limit: MAX_LIST_ENTRIES });
        }
        for (name, decision) in domains.into_iter().flat_map(|domains| domains.iter()) {
            let name = name.get_ref().as_ref();
            let at = format!("{at}.domains.{name}");
            let decision = decision.get_ref().as_str();
            let effect = match decision {
                Some("allow") => Effect::Allow,
                Some("deny" | "none") => Effect::Deny,
                _ => return Err(shape(at, "\"allow\" or \"deny\"")),
            };
            let origin = EntryOrigin::new(at, decision.unwrap_or_default());
            match ImportedHost::read(name) {
                _ if effect == Effect::Allow && limited => {
                    let why = "it allows only reading, and no rule about a host can say that";
                    self.draft.left_out(&origin, Some(effect), why);
                }
                Ok(host) if effect == Effect::Deny || !host.allowed(&[]).is_empty() => {
                    hosts.rules.push((host, effect, origin));
                }
                Ok(_) => {
                    let why = "it opens every host, or this machine with every port";
                    self.draft.left_out(&origin, Some(effect), why);
                }
                // What no rule allows is denied anyway.
                Err(why) if effect == Effect::Deny => self.draft.left_out(&origin, None, why),
                Err(why) => self.draft.left_out(&origin, Some(effect), why),
            }
        }
        sandbox.net = if enabled { ImportedNet::Hosts(hosts) } else { ImportedNet::Deny };
        if enabled && domains.is_none() {
            let why = "it names no hosts, so clash opens none";
            let origin = EntryOrigin::new(format!("{at}.enabled"), "true");
            self.draft.left_out(&origin, Some(Effect::Allow), why);
        }
        for (key, value) in net.iter() {
            let key = key.get_ref().as_ref();
            if ["enabled", "mode", "domains", "enable_socks5"].contains(&key)
                || value.get_ref().as_bool() == Some(false)
            {
                continue;
            }
            let origin = EntryOrigin::new(format!("{at}.{key}"), value.get_ref().type_str());
            // Hooks on the traffic take something away as well as adding to it.
            let effect = if key == "mitm" { Effect::Deny } else { Effect::Allow };
            let why = "a policy has no such setting";
            self.draft.left_out(&origin, Some(effect), why);
        }
        Ok(())
    }

    /// The older `sandbox_mode` as the sandbox `imported`. A mode without a sandbox is left
    /// out.
    fn legacy(&mut self, root: &DeTable<'_>) -> ImportResult<()> {
        let Some(mode) = text(root, "sandbox_mode", "")? else { return Ok(()) };
        let origin = EntryOrigin::new("sandbox_mode", mode);
        let mut sandbox = ImportedSandbox::named("imported");
        sandbox.net = ImportedNet::Deny;
        match mode {
            "read-only" => read_only(&origin, &mut sandbox),
            "workspace-write" => self.workspace_write(root, &origin, &mut sandbox)?,
            "danger-full-access" => {
                let why = "clash does not import a mode without a sandbox";
                self.draft.left_out(&origin, Some(Effect::Allow), why);
                return Ok(());
            }
            _ => return Err(shape("sandbox_mode", "a mode that is known")),
        }
        self.draft.default_sandbox = Some(sandbox.name.clone());
        self.draft.sandboxes.push(sandbox);
        Ok(())
    }

    /// The mode `workspace-write`: the project, the temporary directories and further
    /// roots. Roots that are no list of texts are an error.
    fn workspace_write(
        &mut self,
        root: &DeTable<'_>,
        origin: &EntryOrigin,
        sandbox: &mut ImportedSandbox,
    ) -> ImportResult<()> {
        const AT: &str = "sandbox_workspace_write";
        let empty = DeTable::new();
        let given = child(root, AT, "")?.unwrap_or(&empty);
        let mut roots = Vec::new();
        if boolean(given, "exclude_tmpdir_env_var", AT)? != Some(true) {
            roots.push(ImportedPath::all_of(PathRoot::Tmp));
        }
        if boolean(given, "exclude_slash_tmp", AT)? != Some(true) {
            roots.push(ImportedPath::below(PathRoot::Slash, &["tmp"]));
        }
        read_only(origin, sandbox);
        writable(&roots, origin, sandbox);
        if boolean(given, "network_access", AT)? == Some(true) {
            sandbox.net = ImportedNet::Allow;
        }
        let listed = match given.get("writable_roots").map(|value| value.get_ref()) {
            None => return Ok(()),
            Some(DeValue::Array(items)) if items.len() <= MAX_LIST_ENTRIES => items,
            Some(_) => return Err(shape(format!("{AT}.writable_roots"), "a list of paths")),
        };
        for (index, item) in listed.iter().enumerate() {
            let at = format!("{AT}.writable_roots[{index}]");
            let path = item.get_ref().as_str().ok_or_else(|| shape(&*at, "a string"))?;
            let origin = EntryOrigin::new(at, path);
            match paths::in_list(path, SettingsBase::Project, RuleSide::Allow) {
                Ok(converted) => sandbox.write.allow(converted.pattern, origin),
                Err(why) => self.draft.left_out(&origin, Some(Effect::Allow), why),
            }
        }
        Ok(())
    }

    /// Reads `approval_policy`: commands run without a question only if it says so and
    /// there is an imported sandbox for them.
    fn approval(&mut self, root: &DeTable<'_>) -> ImportResult<()> {
        let policy = match root.get("approval_policy").map(|value| value.get_ref()) {
            None => return Ok(()),
            Some(DeValue::String(policy)) => policy.as_ref(),
            Some(_) => "{…}",
        };
        let origin = EntryOrigin::new("approval_policy", policy);
        let unasked = ["on-request", "on-failure", "never"].contains(&policy);
        if unasked && self.draft.default_sandbox.is_some() {
            let leaf = ImportedRule::noting(origin.to_string());
            self.draft.command_rule(Effect::Allow, Vec::new(), leaf);
        } else if policy != "untrusted" {
            let why = "commands run without a question only in an imported sandbox: they ask";
            self.draft.left_out(&origin, Some(Effect::Allow), why);
        }
        Ok(())
    }
}

/// Lets the sandbox read everything.
fn read_only(origin: &EntryOrigin, sandbox: &mut ImportedSandbox) {
    sandbox.read.allow(ImportedPath::all_of(PathRoot::Slash), origin.clone());
}

/// Makes the project and these roots writable, except for the files that steer git and
/// the agent.
fn writable(roots: &[ImportedPath], origin: &EntryOrigin, sandbox: &mut ImportedSandbox) {
    sandbox.write.allow(ImportedPath::all_of(PathRoot::Project), origin.clone());
    for root in roots {
        sandbox.write.allow(root.clone(), origin.clone());
    }
    for name in [".git", ".codex", ".agents"] {
        sandbox.write.deny(ImportedPath::below(PathRoot::Project, &[name]), true, origin.clone());
    }
}

/// The place of a key for messages.
fn place(at: &str, key: &str) -> String {
    if at.is_empty() { key.to_owned() } else { format!("{at}.{key}") }
}

/// A table below `key`; `None` if it is missing, an error if it is something else.
fn child<'t, 'i>(
    table: &'t DeTable<'i>,
    key: &str,
    at: &str,
) -> ImportResult<Option<&'t DeTable<'i>>> {
    match table.get(key).map(|value| value.get_ref()) {
        None => Ok(None),
        Some(DeValue::Table(table)) => Ok(Some(table)),
        Some(_) => Err(shape(place(at, key), "a table")),
    }
}

/// A text below `key`; `None` if it is missing, an error if it is something else.
fn text<'t>(table: &'t DeTable<'_>, key: &str, at: &str) -> ImportResult<Option<&'t str>> {
    match table.get(key).map(|value| value.get_ref()) {
        None => Ok(None),
        Some(DeValue::String(text)) => Ok(Some(text.as_ref())),
        Some(_) => Err(shape(place(at, key), "a string")),
    }
}

/// A truth value below `key`; `None` if it is missing, an error if it is something else.
fn boolean(table: &DeTable<'_>, key: &str, at: &str) -> ImportResult<Option<bool>> {
    match table.get(key).map(|value| value.get_ref()) {
        None => Ok(None),
        Some(DeValue::Boolean(value)) => Ok(Some(*value)),
        Some(_) => Err(shape(place(at, key), "true or false")),
    }
}

#[cfg(test)]
mod tests;
