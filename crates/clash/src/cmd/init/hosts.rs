//! The hosts of `clash init`: which of the found hosts a sandbox `X_full_here` reaches, and
//! the lists in the text of a policy.
//!
//! | the host is named by | allowed |
//! |---|---|
//! | the user's or the machine's configuration, caches, installed tools | yes |
//! | a remote of the project's repository | yes, until the policy has a list for git |
//! | another file of the project | only with `--project-hosts` |

use std::collections::BTreeSet;

use clash_policy::{Effect, NetworkAccess, Sandbox};
use clash_syntax::draft::{HostListDraft, KeyDraft};
use clash_syntax::{Expression, ExpressionKind, StatementKind, SyntaxTree};

use super::{InitProject, WantedPolicy};
use crate::cmd::sandbox::plan_all;
use crate::ecosystems::{self, FetchHost, HostOrigin};
use crate::env;
use crate::remedy::Remedy;
use crate::ui::{CommandOutput, Failure};

/// The hosts of the wanted toolchains.
#[derive(Clone, Debug, Default)]
pub(crate) struct LearnedHosts {
    found: Vec<FetchHost>,
    /// Toolchains with a list of hosts in the existing policy.
    listed: BTreeSet<String>,
    /// True if the user allows the hosts that only the project names.
    accepts_project: bool,
    /// The reason why every `X_full` reaches all hosts; empty if nothing but the option says
    /// so.
    unconfined: Option<String>,
    /// True if the policy may have rules about hosts.
    holds: bool,
}

impl LearnedHosts {
    /// Searches the hosts of the wanted toolchains. `accepts_project` is the user's yes to
    /// the project's hosts, `whole` the wish for sandboxes that reach every host.
    pub(super) fn find(
        project: &InitProject,
        wanted: &WantedPolicy,
        accepts_project: bool,
        whole: bool,
    ) -> Result<Self, Failure> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let search: Vec<_> = std::env::split_paths(&path).collect();
        let (root, places) = (&project.root, &project.places);
        let said = |name: &str| env::text(name);
        let mut found = ecosystems::find_hosts(root, places, &wanted.ecosystems, &said, &search);
        if wanted.anywhere {
            // The policy of a project is for every machine.
            found.retain(|host| host.origin == HostOrigin::Project);
        }
        let mut hosts = Self { found, accepts_project, ..Self::default() };
        if !wanted.replace {
            let before = super::read(&project.policy_file(wanted)?)?.unwrap_or_default();
            hosts.listed = lists_in(&before);
        }
        if whole || wanted.anywhere || wanted.learned.is_some() {
            hosts.unconfined = Some(String::new());
        }
        let why = if wanted.anywhere { Some(String::new()) } else { why_not_held(project) };
        hosts.holds = why.is_none();
        hosts.unconfined = hosts.unconfined.or(why);
        Ok(hosts)
    }

    /// True if every machine of the policy can hold rules about hosts.
    pub(super) fn are_held(&self) -> bool {
        self.holds
    }

    /// The hosts for `--json`.
    pub(super) fn all(&self) -> &[FetchHost] {
        &self.found
    }

    pub(super) fn is_allowed(&self, host: &FetchHost) -> bool {
        match host.origin {
            HostOrigin::Registry | HostOrigin::Machine => true,
            HostOrigin::Remote => self.accepts_project || !self.listed.contains(host.ecosystem),
            HostOrigin::Project => self.accepts_project,
        }
    }

    fn of<'a>(&'a self, ecosystem: &'a str) -> impl Iterator<Item = &'a FetchHost> {
        self.found.iter().filter(move |host| host.ecosystem == ecosystem)
    }

    /// True if enough hosts are known to name them in a sandbox.
    pub(super) fn is_confined(&self, ecosystem: &str) -> bool {
        let names_registry = |host: &FetchHost| {
            matches!(host.origin, HostOrigin::Registry | HostOrigin::Remote)
                && self.is_allowed(host)
        };
        self.unconfined.is_none() && self.of(ecosystem).any(names_registry)
    }

    /// The hosts of the confined toolchains that only the project names and that are not
    /// allowed.
    pub(super) fn proposed(&self) -> Vec<&FetchHost> {
        let open = |host: &&FetchHost| !self.is_allowed(host) && self.is_confined(host.ecosystem);
        self.found.iter().filter(open).collect()
    }

    /// The list of a toolchain's hosts; `None` if its `X_full` reaches every host.
    pub(super) fn list_of(&self, ecosystem: &str) -> Option<HostListDraft> {
        if !self.is_confined(ecosystem) {
            return None;
        }
        let allowed: Vec<&FetchHost> =
            self.of(ecosystem).filter(|it| self.is_allowed(it)).collect();
        let mut files: Vec<String> = Vec::new();
        for host in &allowed {
            if !files.contains(&host.file) {
                files.push(host.file.clone());
            }
        }
        files.truncate(4);
        let mut comment = vec![
            format!("Hosts of {ecosystem}, named by {}.", files.join(", ")),
            format!(
                "Other hosts are asked about. Edit the list; `{}` adds new ones.",
                Remedy::Init
            ),
        ];
        let others: Vec<&str> = self
            .of(ecosystem)
            .filter(|it| !self.is_allowed(it))
            .map(|host| host.name.as_str())
            .collect();
        if !others.is_empty() {
            comment.push(format!("Only files of the project name {}.", others.join(", ")));
        }
        let hosts = allowed.iter().map(|host| key(&host.name)).collect();
        Some(HostListDraft { comment, name: format!("{ecosystem}_hosts"), hosts })
    }

    /// A comment with the hosts of a toolchain that has no list.
    pub(super) fn comment_of(&self, ecosystem: &str) -> Option<String> {
        // The installed tools differ by machine, and what they name is no news.
        let of_files = |host: &&FetchHost| host.origin > HostOrigin::Machine;
        let hosts = self.of(ecosystem).filter(of_files);
        let hosts: Vec<&str> = hosts.map(|host| host.name.as_str()).collect();
        let is_told = !hosts.is_empty() && !self.is_confined(ecosystem);
        is_told.then(|| format!("its files name {}", hosts.join(", ")))
    }

    /// Says for each named toolchain which hosts its sandbox `X_full_here` reaches, then the
    /// hosts that are not allowed because only the project names them, then the toolchains
    /// that reach every host and why: this machine cannot hold rules about hosts, or no
    /// registry is known.
    pub(super) fn print(&self, out: &mut CommandOutput, names: &[&str]) -> std::io::Result<()> {
        let mut open = Vec::new();
        for name in names {
            if !self.is_confined(name) {
                open.push(*name);
                continue;
            }
            let allowed = self.of(name).filter(|host| self.is_allowed(host));
            let allowed: Vec<&str> = allowed.map(|host| host.name.as_str()).collect();
            out.line(format!(
                "{name} reaches {}; other hosts are asked about",
                in_short(&allowed)
            ))?;
        }
        let proposed: Vec<String> =
            self.proposed().iter().map(|it| format!("{} ({})", it.name, it.file)).collect();
        let proposed: Vec<&str> = proposed.iter().map(String::as_str).collect();
        if !proposed.is_empty() {
            out.line(format!(
                "not allowed, because only the project names them: {} (`--project-hosts` allows them)",
                in_short(&proposed)
            ))?;
        }
        match &self.unconfined {
            Some(why) if why.is_empty() => {}
            Some(why) => out.line(format!(
                "every X_full reaches every host, because this machine cannot hold rules about \
                 hosts: {why}"
            ))?,
            None if open.is_empty() => {}
            None => out.line(format!(
                "no registry is known for {}: their X_full reaches every host",
                open.join(", ")
            ))?,
        }
        Ok(())
    }

    /// A policy with the allowed hosts added to its lists, and the number of new hosts.
    pub(super) fn refresh(&self, text: &str) -> Result<(String, usize), Failure> {
        let mut text = text.to_owned();
        let mut added = 0;
        for ecosystem in self.listed.iter().filter(|_| self.unconfined.is_none()) {
            let file = SyntaxTree::parse(&text)?;
            let Some((list, items)) = find_list(&file, ecosystem) else { continue };
            let known: BTreeSet<&str> = items.iter().map(|it| file.text(it.span)).collect();
            let missing = self.of(ecosystem).filter(|host| self.is_allowed(host));
            let missing: Vec<String> = missing
                .map(|host| key(&host.name).source("default()"))
                .filter(|source| !known.contains(source.as_str()))
                .collect();
            if missing.is_empty() {
                continue;
            }
            added += missing.len();
            let Some((before, after)) = text.split_at_checked(list.span.start + 1) else {
                continue;
            };
            let lines: String = missing.iter().map(|it| format!("\n    {it},")).collect();
            text = clash_syntax::fmt::format(&format!("{before}{lines}{after}"))?;
        }
        Ok((text, added))
    }
}

/// A host as a key of a policy.
fn key(host: &str) -> KeyDraft {
    match host.strip_prefix("localhost:").and_then(|port| port.parse().ok()) {
        Some(port) => KeyDraft::Localhost(vec![port]),
        None => KeyDraft::text(host),
    }
}

/// The toolchains with a list `X_hosts` in a policy; none if the text cannot be parsed.
fn lists_in(text: &str) -> BTreeSet<String> {
    let Ok(file) = SyntaxTree::parse(text) else { return BTreeSet::new() };
    let names = ecosystems::ECOSYSTEMS.iter().map(|it| it.name);
    names.filter(|name| find_list(&file, name).is_some()).map(str::to_owned).collect()
}

/// The list `X_hosts` of a toolchain, and its entries.
fn find_list<'a>(
    file: &'a SyntaxTree,
    ecosystem: &str,
) -> Option<(&'a Expression, &'a [Expression])> {
    let name = format!("{ecosystem}_hosts");
    file.statements().iter().find_map(|statement| match &statement.kind {
        StatementKind::Assign { target, value, .. } if target.name() == Some(&name) => {
            match &value.kind {
                ExpressionKind::List(items, _) => Some((value, items.as_slice())),
                _ => None,
            }
        }
        _ => None,
    })
}

/// The reason why this machine cannot hold rules about hosts; `None` if it can.
fn why_not_held(project: &InitProject) -> Option<String> {
    let net = NetworkAccess::Hosts { rules: Vec::new(), default: Effect::Ask };
    let probe = Sandbox { net, ..Sandbox::named("hosts") };
    let host = project.dirs.host();
    let planned = plan_all(&project.dirs, &project.root, std::slice::from_ref(&probe), &host);
    planned.into_iter().find_map(|it| it.outcome.err()).map(|refusal| refusal.what)
}

/// The first names, and the number of the others.
fn in_short(names: &[&str]) -> String {
    const MOST: usize = 6;
    let shown = names.iter().take(MOST).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MOST) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
