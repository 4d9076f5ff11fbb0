//! The hosts that the words of a command name. They only turn an allow into a question before
//! the command: the gate judges every connection, also of hosts that no word names.

use std::net::IpAddr;

use clash_shell::{ShellCommand, ShellWord};

use crate::action::HostUse;
use crate::effect::Effect;
use crate::ir::IrError;
use crate::judge::JudgeContext;
use crate::net::{HostPattern, NetworkAccess};
use crate::sandbox::Sandbox;

use super::DecisionPart;
use super::stack::PartRuling;

/// Programs whose words without an option are addresses.
const FETCHERS: [&str; 4] = ["curl", "wget", "http", "https"];

/// Options of fetchers with a value in the next word.
const VALUE_OPTIONS: &[&str] = &[
    "-A",
    "-C",
    "-D",
    "-E",
    "-F",
    "-H",
    "-O",
    "-P",
    "-T",
    "-U",
    "-X",
    "-Y",
    "-b",
    "-c",
    "-d",
    "-e",
    "-m",
    "-o",
    "-r",
    "-t",
    "-u",
    "-w",
    "-y",
    "-z",
    "--cacert",
    "--cert",
    "--connect-timeout",
    "--cookie",
    "--cookie-jar",
    "--data",
    "--data-binary",
    "--data-raw",
    "--data-urlencode",
    "--form",
    "--header",
    "--json",
    "--key",
    "--limit-rate",
    "--max-time",
    "--output",
    "--output-document",
    "--post-data",
    "--range",
    "--referer",
    "--request",
    "--retry",
    "--retry-delay",
    "--timeout",
    "--tries",
    "--upload-file",
    "--user",
    "--user-agent",
    "--write-out",
];

/// Options of fetchers that lead to another host than the address names.
const LEADING_OPTIONS: &[&str] = &[
    "-K",
    "-x",
    "--config",
    "--connect-to",
    "--dns-servers",
    "--doh-url",
    "--input-file",
    "-i",
    "--preproxy",
    "--proxy",
    "--resolve",
    "--socks4",
    "--socks4a",
    "--socks5",
    "--socks5-hostname",
    "--unix-socket",
    "--abstract-unix-socket",
];

/// The hosts in the words of a command.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct NamedHosts {
    pub(super) hosts: Vec<HostUse>,
    /// The command fetches, and its words do not name every host.
    pub(super) is_uncertain: bool,
}

impl NamedHosts {
    /// Reads the words of a command. Of git's subcommands, only those that connect count.
    /// Without an address, git's are those of the project's remote.
    pub(super) fn read(command: &ShellCommand, context: &JudgeContext<'_>) -> Self {
        let mut named = Self::default();
        let mut words = command.words.iter();
        let program = words.next().and_then(ShellWord::known).unwrap_or_default();
        let program = program.rsplit('/').next().unwrap_or_default();
        let is_fetcher = FETCHERS.contains(&program);
        if program == "git" && !words.clone().filter_map(ShellWord::known).any(connects) {
            return named;
        }
        let mut before = "";
        for word in words {
            let (text, is_whole) = match word {
                ShellWord::Known(text) => (text.as_str(), true),
                ShellWord::Partial(text) => (text.as_str(), false),
                ShellWord::Home(_) => ("", true),
                ShellWord::Unknown => ("", false),
            };
            let option = text.split('=').next().unwrap_or_default();
            named.is_uncertain |= is_fetcher && LEADING_OPTIONS.contains(&option) && option != "-i"
                || program == "wget" && option == "-i";
            let is_value =
                VALUE_OPTIONS.contains(&before) && !(program == "curl" && before == "-O");
            let found = match address(text, is_whole) {
                None if is_fetcher && !is_value && !text.starts_with('-') && !text.is_empty() => {
                    bare_address(text, is_whole)
                }
                None if program == "git" && !text.starts_with('-') => git_address(text),
                found => found,
            };
            let is_plain = is_value || text.starts_with('-');
            named.is_uncertain |= is_fetcher && found.is_none() && !(is_plain && is_whole);
            named.hosts.extend(found.filter(|_| !is_value));
            before = if is_whole { text } else { "" };
        }
        if program == "git" && named.hosts.is_empty() {
            let words: Vec<&str> = command.words.iter().filter_map(ShellWord::known).collect();
            // In another directory, another repository counts; submodules have remotes of
            // their own.
            if !words.contains(&"-C") && !words.contains(&"submodule") {
                let addresses = context.links.remote_addresses(&context.places.project, &words);
                let hosts = addresses.iter().filter_map(|it| address(it, true).or(git_address(it)));
                named.hosts.extend(hosts);
            }
        }
        named.hosts.dedup();
        named.is_uncertain |= is_fetcher && named.hosts.is_empty();
        named
    }

    /// The hosts that a sandbox asks about. A served port of the session's own servers
    /// counts as allowed. The second value is true if the sandbox asks about hosts that the
    /// words do not tell.
    pub(super) fn asked_by(self, sandbox: &Sandbox) -> (Vec<HostUse>, bool) {
        let default = match &sandbox.net {
            NetworkAccess::Ask => Effect::Ask,
            NetworkAccess::Hosts { default, .. } => *default,
            NetworkAccess::Allow | NetworkAccess::Deny => return (Vec::new(), false),
        };
        let asks = |it: &HostUse| {
            let is_served =
                HostPattern::Localhost.matches(&it.host) && sandbox.serve.contains(&it.port);
            !is_served && sandbox.net.judge(&it.host, it.port).0 == Effect::Ask
        };
        let hosts = self.hosts.into_iter().filter(asks).collect();
        (hosts, self.is_uncertain && default == Effect::Ask)
    }
}

/// Turns an allow into an ask if the command names hosts about which its sandbox asks, or
/// fetches from hosts that its words do not tell. Notes the asked hosts.
pub(super) fn unless_asked<'a>(
    command: &ShellCommand,
    ruling: PartRuling<'a>,
    context: &JudgeContext<'_>,
) -> Result<PartRuling<'a>, IrError> {
    let Some(sandbox) = ruling.sandbox.filter(|_| ruling.effect < Effect::Deny) else {
        return Ok(ruling);
    };
    let named = NamedHosts::read(command, context);
    if named == NamedHosts::default() {
        return Ok(ruling);
    }
    let (asked_hosts, is_uncertain) = named.asked_by(&sandbox.to_sandbox()?);
    let asks = is_uncertain || !asked_hosts.is_empty();
    let effect = if asks { Effect::Ask } else { ruling.effect };
    Ok(PartRuling { effect, asked_hosts, ..ruling })
}

impl DecisionPart {
    /// The asked hosts in words, for example `docs.rs, a.test:8443`; `None` without one.
    pub fn shown_hosts(&self) -> Option<String> {
        (!self.asked_hosts.is_empty()).then(|| shown(&self.asked_hosts))
    }

    /// The first of these hosts, with its port unless that is usual.
    pub fn asked_host(&self) -> Option<String> {
        self.asked_hosts.get(..1).map(shown)
    }
}

/// Hosts for people: a usual port is left out.
fn shown(hosts: &[HostUse]) -> String {
    let each = |HostUse { host, port }: &HostUse| match port {
        80 | 443 => host.clone(),
        port => format!("{host}:{port}"),
    };
    hosts.iter().map(each).collect::<Vec<_>>().join(", ")
}

/// Subcommands of git that connect to a remote.
fn connects(word: &str) -> bool {
    ["clone", "fetch", "ls-remote", "pull", "push", "submodule"].contains(&word)
}

/// The host of an address with a scheme, also behind an option: `--url=https://a.test/`.
fn address(text: &str, is_whole: bool) -> Option<HostUse> {
    let (before, rest) = text.split_once("://")?;
    let start = before.rfind(|c: char| !c.is_ascii_alphanumeric()).map_or(0, |at| at + 1);
    let port = match before.get(start..)?.to_ascii_lowercase().as_str() {
        "http" | "ws" => 80,
        "https" | "wss" => 443,
        "ssh" => 22,
        "git" => 9418,
        "ftp" => 21,
        _ => return None,
    };
    host_and_port(rest, port, is_whole)
}

/// The host of an address without a scheme: `localhost:3000/x`, `a.test`.
fn bare_address(text: &str, is_whole: bool) -> Option<HostUse> {
    let found = host_and_port(text, 80, is_whole)?;
    let is_address = found.host.parse::<IpAddr>().is_ok();
    (found.host == "localhost" || is_address || found.host.contains('.')).then_some(found)
}

/// The host of git's own form: `git@a.test:me/app.git`.
fn git_address(text: &str) -> Option<HostUse> {
    let (user, rest) = text.split_once('@')?;
    let (host, _) = rest.split_once(':')?;
    let is_plain = !user.is_empty() && !user.contains(['/', ':']);
    host_and_port(host, 22, true).filter(|it| is_plain && it.host.contains('.'))
}

/// The host at the start of a text. `None` for unusual characters, and if the text may go on
/// inside the host.
fn host_and_port(text: &str, port: u16, is_whole: bool) -> Option<HostUse> {
    let end = text.find(['/', '?', '#']);
    if end.is_none() && !is_whole {
        return None;
    }
    let authority = text.get(..end.unwrap_or(text.len()))?;
    let host = authority.rsplit('@').next()?;
    let (name, given) = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((name, rest)) => (name, rest.strip_prefix(':')),
        None => host.split_once(':').map_or((host, None), |(name, port)| (name, Some(port))),
    };
    let port = given.map_or(Some(port), |given| given.parse().ok())?;
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    let is_host =
        name.parse::<IpAddr>().is_ok() || (!name.is_empty() && name.chars().all(is_plain));
    is_host.then_some(HostUse { host: name, port })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::PolicyPlaces;

    fn named(script: &str) -> (String, bool) {
        let commands = clash_shell::find_commands(script);
        let places = PolicyPlaces::new("/p".into(), "/h".into(), "/t".into(), |_| None);
        let found = NamedHosts::read(&commands[0], &JudgeContext::without_disk(&places));
        (shown(&found.hosts), found.is_uncertain)
    }

    #[test]
    fn words_name_hosts() {
        for (script, hosts) in [
            ("curl https://a.test/x", "a.test"),
            ("curl -sS -o out.html -H 'Host: x.test' http://a.test:8080/", "a.test:8080"),
            ("curl -w '%{http_code}' -o /dev/null localhost:3000", "localhost:3000"),
            ("curl -sf http://127.0.0.1:8080/health", "127.0.0.1:8080"),
            ("curl -O https://a.test/f http://b.test", "a.test, b.test"),
            ("curl http://user@a.test:443@evil.test/", "evil.test"),
            ("curl 'http://[::1]:5173/'", "::1:5173"),
            ("curl \"http://localhost:3000/$X\"", "localhost:3000"),
            ("wget -O f a.test/f", "a.test"),
            ("git clone git@code.test:me/app.git", "code.test:22"),
            ("git clone --depth 1 https://code.test/app", "code.test"),
            ("git remote add o https://code.test/app", ""),
            ("npm install --registry=https://npm.test/ x", "npm.test"),
            ("cargo build", ""),
        ] {
            assert_eq!(named(script), (hosts.to_owned(), false), "{script}");
        }
    }

    #[test]
    fn words_that_hide_a_host_are_uncertain() {
        for script in [
            "curl $URL",
            "curl http://localhost:3000$X",
            "curl -K config localhost:3000",
            "curl --proxy http://evil.test localhost:3000",
            "curl --resolve localhost:3000:10.0.0.1 localhost:3000",
            "curl --connect-to=::evil.test: localhost:3000",
            "curl $X localhost:3000",
            "wget -i list http://localhost:3000",
            "curl",
            "curl file",
        ] {
            assert!(named(script).1, "{script}");
        }
        assert!(!named("cargo fetch $X").1);
    }
}
