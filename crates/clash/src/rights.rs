//! One more right: for a sandbox (`clash sandbox allow`), or for one command
//! (`clash request`, `clash allow --once`).

use std::path::{Path, PathBuf};

use clash_policy::decide::Decision;
use clash_policy::rule::SandboxGrant;
use clash_policy::{
    Effect, FileCaps, FsRule, HostPattern, HostUse, NetRule, PathPattern, PolicySpan, Sandbox,
    protect,
};
use serde::{Deserialize, Serialize};

use crate::blocks::shorten;

/// A right that a sandbox lacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ExtraRight {
    Read(PathBuf),
    /// To read, write, create and delete.
    Change(PathBuf),
    /// To read and execute.
    Execute(PathBuf),
    /// A host, with a port after a colon if only that one is meant.
    Host(String),
}

const ANSWER: &str = "the user's answer";

/// The span of rules that no policy has.
fn no_span() -> PolicySpan {
    PolicySpan { file: ANSWER.to_owned(), line: 0, column: 0 }
}

/// True for the span of a rule that a user's answer made.
pub(crate) fn is_answer(span: &PolicySpan) -> bool {
    span.file == ANSWER
}

impl ExtraRight {
    /// The right that the words `r PATH`, `rw PATH`, `rx PATH` or `host NAME` name.
    pub(crate) fn parse(kind: &str, what: &str, cwd: &Path, home: &Path) -> Option<Self> {
        let path = || absolute(what, cwd, home);
        Some(match kind {
            "r" => Self::Read(path()),
            "rw" => Self::Change(path()),
            "rx" => Self::Execute(path()),
            "host" => Self::Host(what.to_owned()),
            _ => return None,
        })
    }

    pub(crate) fn caps(&self) -> FileCaps {
        match self {
            Self::Read(_) => FileCaps::READ,
            Self::Change(_) => FileCaps::READ.union(FileCaps::CHANGE),
            Self::Execute(_) => FileCaps::READ.union(FileCaps::EXECUTE),
            Self::Host(_) => FileCaps::NONE,
        }
    }

    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Self::Read(path) | Self::Change(path) | Self::Execute(path) => Some(path),
            Self::Host(_) => None,
        }
    }

    /// For example `` read `~/.npmrc` ``.
    pub(crate) fn words(&self, home: &Path) -> String {
        let shown = |path: &Path| shorten(path, home);
        match self {
            Self::Read(path) => format!("read `{}`", shown(path)),
            Self::Change(path) => format!("change `{}`", shown(path)),
            Self::Execute(path) => format!("execute `{}`", shown(path)),
            Self::Host(host) => format!("reach `{host}`"),
        }
    }

    /// The right as a grant to a sandbox. A directory on disk is granted with everything in
    /// it, any other path alone. For a protected path, the grant also takes its entry off the
    /// list of protected paths. An error for a path that is not text and for a wrong port.
    pub(crate) fn grant(&self, sandbox: &str, project: &Path) -> Result<SandboxGrant, String> {
        let mut grant = SandboxGrant {
            sandbox: sandbox.to_owned(),
            fs: Vec::new(),
            net: Vec::new(),
            unprotect: Vec::new(),
            span: no_span(),
        };
        match (self, self.path()) {
            (_, Some(path)) => {
                let text = path.to_str().ok_or("the path is not text")?.to_owned();
                let pattern = if path.is_dir() {
                    PathPattern::Subpath { path: text, follow_worktrees: false }
                } else {
                    PathPattern::Literal(text)
                };
                grant.unprotect.extend(self.protected_entry(project));
                // The project is granted anyway; its protected path only leaves the list.
                grant.fs.push(FsRule {
                    pattern,
                    effect: Effect::Allow,
                    caps: self.caps(),
                    writes: clash_policy::WriteTarget::InPlace,
                    span: no_span(),
                });
            }
            (Self::Host(host), _) => {
                let (host, ports) = split_port(host)?;
                let host = host_pattern(&host);
                grant.net.push(NetRule { host, ports, effect: Effect::Allow, span: no_span() });
            }
            _ => {}
        }
        Ok(grant)
    }

    /// The entry of the list of persistence paths that a change of the path needs to leave.
    fn protected_entry(&self, project: &Path) -> Option<String> {
        let Self::Change(path) = self else { return None };
        let below = path.strip_prefix(project).ok()?;
        let settings = clash_policy::ProtectSettings::default();
        let caps = [FileCaps::WRITE, FileCaps::CREATE, FileCaps::DELETE];
        let entry = caps.into_iter().find_map(|caps| protect::kept(&settings, below, 0, caps))?;
        Some(entry.path.to_owned())
    }

    /// The line of a policy that gives the right to a sandbox: one `grant(…)`, with `$PWD` or
    /// `$HOME` where the path is below them. A directory on disk is granted with everything
    /// in it, any other path alone. A protected path is also taken off the list. Writes
    /// nothing.
    pub(crate) fn policy_line(
        &self,
        sandbox: &str,
        project: &Path,
        home: &Path,
    ) -> Result<String, String> {
        let quoted = |text: &str| serde_json::to_string(text).unwrap_or_default();
        let name = quoted(sandbox);
        if let Self::Host(host) = self {
            let (bare, ports) = split_port(host)?;
            let is_local = matches!(host_pattern(&bare), HostPattern::Localhost);
            let entry = match (is_local, ports.as_slice()) {
                (true, []) => "localhost()".to_owned(),
                (true, ports) => format!("localhost(ports = {ports:?})"),
                (false, _) => quoted(host),
            };
            return Ok(format!("grant({name}, net = [{entry}])\n"));
        }
        let path = self.path().ok_or("the right has no path")?;
        let text = path.to_str().ok_or("the path is not text")?;
        let below = |base: &Path, variable: &str| {
            let rest = path.strip_prefix(base).ok()?.to_str()?;
            Some(if rest.is_empty() { variable.to_owned() } else { format!("{variable}/{rest}") })
        };
        let place = below(project, "$PWD").or_else(|| below(home, "$HOME"));
        let key = quoted(&place.unwrap_or_else(|| text.to_owned()));
        let key = if path.is_dir() { key } else { format!("literal({key})") };
        let mut line = format!("grant({name}, fs = {{{key}: allow(\"{}\")}}", self.caps());
        if let Some(entry) = self.protected_entry(project) {
            line.push_str(&format!(", unprotect = [{}]", quoted(&entry)));
        }
        line.push_str(")\n");
        Ok(line)
    }
}

fn split_port(host: &str) -> Result<(String, Vec<u16>), String> {
    let Some((name, port)) = host.rsplit_once(':').filter(|(name, _)| !name.contains(':')) else {
        return Ok((host.to_owned(), Vec::new()));
    };
    let port = port.parse().map_err(|_| format!("`{port}` is no port"))?;
    Ok((name.to_owned(), vec![port]))
}

/// The pattern for one host: `localhost`, exactly one address, or a name with the names below
/// it.
fn host_pattern(host: &str) -> HostPattern {
    if HostPattern::Localhost.matches(host) {
        return HostPattern::Localhost;
    }
    match host.parse() {
        Ok(base) => {
            let bits = if matches!(base, std::net::IpAddr::V4(_)) { 32 } else { 128 };
            HostPattern::Addresses { base, bits }
        }
        Err(_) => HostPattern::Name(host.to_ascii_lowercase()),
    }
}

/// Adds the hosts that the words of approved commands name to the sandbox: exactly these names,
/// without their subdomains.
pub(crate) fn add_asked_hosts(sandbox: &mut Sandbox, decision: &Decision) {
    let hosts = decision.parts.iter().flat_map(|part| &part.asked_hosts);
    let rule = |HostUse { host, port }: &HostUse| NetRule {
        host: match host_pattern(host) {
            HostPattern::Name(name) => HostPattern::Exact(name),
            other => other,
        },
        // Web servers send clients from one of these ports to the other.
        ports: if matches!(port, 80 | 443) { vec![80, 443] } else { vec![*port] },
        effect: Effect::Allow,
        span: no_span(),
    };
    let net: Vec<NetRule> = hosts.map(rule).collect();
    if !net.is_empty() {
        let name = sandbox.name.clone();
        let (fs, unprotect, span) = (Vec::new(), Vec::new(), no_span());
        SandboxGrant { sandbox: name, fs, net, unprotect, span }.add_to(sandbox);
    }
}

/// Adds rights to the sandbox of one command, as grants ([`ExtraRight::grant`]). After an
/// error the sandbox has the rights before the wrong one.
pub(crate) fn add_all(
    sandbox: &mut Sandbox,
    rights: &[ExtraRight],
    project: &Path,
) -> Result<(), String> {
    for right in rights {
        right.grant(&sandbox.name, project)?.add_to(sandbox);
    }
    Ok(())
}

/// An absolute path without `.` and `..`; `~` is the home.
pub(crate) fn absolute(text: &str, cwd: &Path, home: &Path) -> PathBuf {
    let path = match text.strip_prefix("~/") {
        Some(below) => home.join(below),
        None if text == "~" => home.to_path_buf(),
        None => cwd.join(text),
    };
    clash_policy::path::normalise(&path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(kind: &str, what: &str) -> String {
        let (project, home) = (Path::new("/h/u/app"), Path::new("/h/u"));
        let right = ExtraRight::parse(kind, what, project, home).unwrap();
        right.policy_line("project", project, home).unwrap()
    }

    #[test]
    fn a_right_is_one_line_of_a_policy() {
        assert_eq!(
            line("r", "~/.npmrc"),
            "grant(\"project\", fs = {literal(\"$HOME/.npmrc\"): allow(\"r\")})\n"
        );
        assert_eq!(
            line("rw", ".git/hooks/pre-commit"),
            "grant(\"project\", fs = {literal(\"$PWD/.git/hooks/pre-commit\"): allow(\"rwcd\")}, \
             unprotect = [\".git/hooks\"])\n"
        );
        assert_eq!(line("rx", "/"), "grant(\"project\", fs = {\"/\": allow(\"rx\")})\n");
        assert_eq!(line("host", "docs.rs"), "grant(\"project\", net = [\"docs.rs\"])\n");
        assert_eq!(
            line("host", "localhost:8080"),
            "grant(\"project\", net = [localhost(ports = [8080])])\n"
        );
    }
}
