//! Reads the hosts of addresses in text: `https://npm.example:8443/x`, `git@host:path`. Takes
//! only the host and its port: no user names, passwords and paths.

use std::collections::BTreeMap;

use clash_policy::net::is_git_host;

/// The hosts of the addresses in a line, as a policy writes them. `aliases` are the short
/// names of the user's ssh configuration.
pub(super) fn hosts_in_line(line: &str, aliases: &BTreeMap<String, String>) -> Vec<String> {
    let mut hosts = Vec::new();
    let mut before: Option<&str> = None;
    for part in line.split("://") {
        if let Some(before) = before {
            let start = before.rfind(|c: char| !c.is_ascii_alphanumeric()).map_or(0, |at| at + 1);
            let scheme = before.get(start..).unwrap_or_default();
            hosts.extend(parse_host(scheme, part, aliases));
        }
        before = Some(part);
    }
    // git's own form: user@host:path
    if hosts.is_empty()
        && !line.contains("://")
        && let Some((_, rest)) = line.split_once('@')
        && let Some((name, _)) = rest.split_once(':')
    {
        hosts.extend(parse_host("ssh", name, aliases));
    }
    hosts
}

/// The host at the start of the text after `://`, in lower case, with its port unless the
/// port is usual for the scheme. `None` without a dot in it, and for unusual characters.
/// `localhost` needs a port. `0.0.0.0` is no host: Maven's settings block addresses with it.
fn parse_host(scheme: &str, rest: &str, aliases: &BTreeMap<String, String>) -> Option<String> {
    let authority =
        rest.split(|c: char| c.is_whitespace() || "/?#\"'<>,|)]}\\;".contains(c)).next()?;
    let host = authority.rsplit('@').next()?;
    let (name, port) = host.split_once(':').unwrap_or((host, ""));
    let mut name = name.to_ascii_lowercase();
    if name == "0.0.0.0" {
        return None;
    }
    if let Some(real) = aliases.get(&name).filter(|_| scheme == "ssh") {
        name.clone_from(real);
    }
    let port = match (scheme, port.parse::<u16>().ok()) {
        ("ssh", None | Some(22)) if is_git_host(&name) => None,
        ("ssh", port) => Some(port.unwrap_or(22)),
        ("git", port) => Some(port.unwrap_or(9418)),
        (_, Some(80 | 443)) => None,
        (_, port) => port,
    };
    let port = port.filter(|port| *port > 0);
    if name == "localhost" || name.parse::<std::net::Ipv4Addr>().is_ok_and(|it| it.is_loopback()) {
        return port.map(|port| format!("localhost:{port}"));
    }
    let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '.');
    let labels = name.split('.').all(|label| {
        !label.is_empty() && label.len() < 64 && !label.starts_with('-') && !label.ends_with('-')
    });
    let is_name = plain && labels && name.contains('.') && name.len() < 254;
    is_name.then(|| port.map_or(name.clone(), |port| format!("{name}:{port}")))
}

/// The real names of the short names in a configuration of ssh: `Host work` with
/// `HostName git.example`. Only names without patterns.
pub(super) fn ssh_aliases(text: &str) -> BTreeMap<String, String> {
    let mut aliases = BTreeMap::new();
    let mut names: Vec<String> = Vec::new();
    for line in text.lines().take(10_000) {
        let mut words =
            line.split(|c: char| c.is_whitespace() || c == '=').filter(|it| !it.is_empty());
        match words.next().map(str::to_ascii_lowercase).as_deref() {
            Some("host") => names = words.map(str::to_ascii_lowercase).collect(),
            Some("match") => names.clear(),
            Some("hostname") => {
                let Some(real) = words.next().map(str::to_ascii_lowercase) else { continue };
                for name in names.iter().filter(|name| !name.contains(['*', '?', '!'])) {
                    aliases.entry(name.clone()).or_insert_with(|| real.clone());
                }
            }
            _ => {}
        }
    }
    aliases
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hosts(line: &str) -> Vec<String> {
        hosts_in_line(line, &BTreeMap::new())
    }

    #[test]
    fn a_port_is_kept_unless_it_is_usual() {
        for (line, host) in [
            ("https://a.example:443/x", "a.example"),
            ("http://a.example:8081", "a.example:8081"),
            ("registry=http://localhost:4873/", "localhost:4873"),
            ("http://127.0.0.1:4873/", "localhost:4873"),
            ("http://10.1.2.3:8081/", "10.1.2.3:8081"),
            ("ssh://git@forge.example:22/x", "forge.example"),
            ("ssh://git@code.example:2222/x", "code.example:2222"),
            ("url = git@code.example:me/app.git", "code.example:22"),
            ("url = git@github.test:me/app.git", "github.test"),
            ("url = git://code.example/x", "code.example:9418"),
            ("sparse+https://m.example/", "m.example"),
            ("GOPROXY=https://p.example|direct", "p.example"),
        ] {
            assert_eq!(hosts(line), [host], "{line}");
        }
    }

    #[test]
    fn a_short_name_of_ssh_is_resolved() {
        let text = "Host *\n HostName no.example\nHost work w2\n  HostName=Git.Example\nMatch all\n hostname x.example\n";
        let aliases = ssh_aliases(text);
        assert_eq!(hosts_in_line("url = git@work:me/app.git", &aliases), ["git.example"]);
        assert_eq!(hosts_in_line("https://work/x", &aliases), Vec::<String>::new());
        assert_eq!(aliases.len(), 2);
    }

    #[test]
    fn texts_without_a_host_give_none() {
        for text in [
            "https://",
            "https://localhost/x",
            "http://0.0.0.0/",
            "https://-\u{7f}.x",
            "file:///etc/passwd",
            "https://a..",
            "x@y",
        ] {
            assert_eq!(hosts(text), Vec::<String>::new(), "{text}");
        }
        assert_eq!(
            hosts("a https://A.example:8443/x and http://b.example"),
            ["a.example:8443", "b.example"]
        );
    }

    proptest! {
        #[test]
        fn of_an_address_only_the_host_is_taken(
            before in "[a-z =\"'+]{0,10}",
            scheme in "(https|http|ssh|git\\+https|sparse\\+https)",
            user in "(|[A-Z0-9]{6,12}@|[A-Z0-9]{6,12}:[A-Z0-9%!$]{6,12}@)",
            host in "[a-z0-9]{1,8}(\\.([a-z0-9][a-z0-9-]{0,7})?[a-z]){1,3}",
            port in "(|:[0-9]{2,4})",
            path in "(|/|/[A-Z0-9@:]{0,12}|\\?[A-Z]{3,6}|\"|'|,)",
        ) {
            let line = format!("{before}{scheme}://{user}{host}{port}{path}");
            let found = hosts(&line);
            let name = |found: &String| found.split(':').next().unwrap_or_default().to_owned();
            prop_assert_eq!(found.iter().map(name).collect::<Vec<_>>(), [host], "{}", line);
        }

        #[test]
        fn of_any_line_only_names_of_hosts_are_taken(line: String) {
            for name in hosts(&line) {
                let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.:".contains(c);
                prop_assert!(name.chars().all(plain), "{}", name);
            }
        }
    }
}
