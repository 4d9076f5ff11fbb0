//! Folds the files of an observed command into a short sandbox: many files become the
//! directory that holds them, but never the home directory itself.
//!
//! Some files are not granted: credentials, files that steer other programs, and changes
//! in directories of programs. The proposal names them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::{Component, Path, PathBuf};

use clash_policy::{Effect, FileCaps, PolicyPlaces};
use clash_syntax::draft::{
    FileEffect, FileRuleDraft, HostRuleDraft, KeyDraft, NetDraft, NetRules, SandboxBase,
    SandboxDraft,
};

use crate::known::CREDENTIALS;

/// The resources that a command used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TouchedResources {
    pub files: BTreeMap<PathBuf, FileCaps>,
    /// Directories that it listed.
    pub listed: BTreeSet<PathBuf>,
    pub names: BTreeSet<String>,
    pub addresses: BTreeSet<SocketAddr>,
    pub sockets: BTreeSet<PathBuf>,
    /// Ports that it listens on.
    pub ports: BTreeSet<u16>,
}

/// A sandbox proposed for a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxProposal {
    pub grants: Vec<ProposedGrant>,
    pub withheld: Vec<WithheldGrant>,
    pub net: NetRules,
    /// The hosts that were reached, for people: no rule about hosts is enforced yet.
    pub hosts: Vec<String>,
}

/// A grant of the proposal, and the number of files behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProposedGrant {
    /// The path as policies write it, with its variable.
    pub place: String,
    /// True for the path alone, without the paths below it.
    pub alone: bool,
    pub caps: FileCaps,
    pub files: usize,
}

/// A file or socket that is not granted, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithheldGrant {
    pub what: String,
    pub why: &'static str,
}

const STEERS: &str = "other programs obey it";
const PROGRAMS: &str = "programs lie there, so it stays as it is";
const CREDENTIAL: &str = "holds credentials";
const ELSEWHERE: &str = "belongs to another project or user";
const SOCKET: &str = "the program that listens there has rights of its own";

/// Directories of the home that many programs share. A grant names a directory below.
const SHARED: &[&str] = &[
    ".cache",
    ".config",
    ".local",
    ".local/share",
    ".local/state",
    ".local/lib",
    "Library",
    "Library/Caches",
    "Library/Application Support",
    "snap",
    ".var",
    ".var/app",
];

/// The grants that the command needs for the resources it used, except those that are
/// withheld. Files that the baseline covers, and those of `/proc`, `/sys` and `/dev`, need
/// none.
pub fn propose(
    touched: &TouchedResources,
    places: &PolicyPlaces,
    baseline: &[(&str, FileCaps)],
) -> SandboxProposal {
    let mut grants: BTreeMap<(String, bool), (FileCaps, usize)> = BTreeMap::new();
    let mut withheld: BTreeMap<String, &'static str> = BTreeMap::new();
    let written = written(touched, places);
    for (path, caps) in &touched.files {
        let in_baseline = baseline
            .iter()
            .any(|(base, granted)| granted.contains(*caps) && path.starts_with(base));
        if in_baseline || ["/proc", "/sys", "/dev"].iter().any(|dir| path.starts_with(dir)) {
            continue;
        }
        let made = path.strip_prefix(&places.project).ok().filter(|made| written.contains(*made));
        let (place, alone, caps) = match folded(path, *caps, places) {
            _ if made.is_some() => (format!("$PWD/{}", shown(made)), false, FileCaps::ALL),
            // Landlock rights on a directory hold for every file in it, so writing, creating
            // and deleting are granted together.
            Ok((place, false, caps)) if caps.intersects(FileCaps::CHANGE) => {
                (place, false, caps.union(FileCaps::CHANGE))
            }
            Ok(folded) => folded,
            Err((what, why)) => {
                withheld.insert(what, why);
                continue;
            }
        };
        let known = grants.entry((place, alone)).or_insert((FileCaps::NONE, 0));
        *known = (known.0.union(caps), known.1 + 1);
    }
    for dir in &touched.listed {
        // Listing a directory needs the place that its files are granted by.
        if let Ok((place, false, _)) = folded(&dir.join("any"), FileCaps::READ, places)
            && !baseline.iter().any(|(base, _)| dir.starts_with(base))
        {
            let known = grants.entry((place, false)).or_insert((FileCaps::NONE, 0));
            known.0 = known.0.union(FileCaps::READ);
        }
    }
    for socket in &touched.sockets {
        withheld.insert(format!("the socket {}", socket.display()), SOCKET);
    }
    SandboxProposal {
        grants: covered(grants),
        withheld: withheld.into_iter().map(|(what, why)| WithheldGrant { what, why }).collect(),
        net: net(touched),
        hosts: hosts(touched),
    }
}

/// The top-level names of the project that hold changed files. Only these are granted
/// for changes.
fn written(touched: &TouchedResources, places: &PolicyPlaces) -> BTreeSet<PathBuf> {
    let changed = touched.files.iter().filter(|(_, caps)| caps.intersects(FileCaps::CHANGE));
    let inside = changed.filter_map(|(path, _)| path.strip_prefix(&places.project).ok());
    inside
        .filter(|inside| inside.components().count() > 1)
        .filter_map(|inside| {
            inside.components().next().map(|first| PathBuf::from(first.as_os_str()))
        })
        .collect()
}

/// The path as text; empty without one.
fn shown(path: Option<&Path>) -> String {
    path.map(|path| path.display().to_string()).unwrap_or_default()
}

/// Drops the grants that a grant of a parent directory covers.
fn covered(grants: BTreeMap<(String, bool), (FileCaps, usize)>) -> Vec<ProposedGrant> {
    let mut kept: Vec<ProposedGrant> = Vec::new();
    for ((place, alone), (caps, files)) in grants {
        let above = kept.iter_mut().find(|known| {
            !known.alone && known.caps.contains(caps) && Path::new(&place).starts_with(&known.place)
        });
        match above {
            Some(known) => known.files += files,
            None => kept.push(ProposedGrant { place, alone, caps, files }),
        }
    }
    kept
}

type FoldResult = Result<(String, bool, FileCaps), (String, &'static str)>;

/// The place that stands for a file: a directory, or the file alone. The error is a file
/// that is withheld, with its reason: credentials, other users, and changes in other parts
/// of the home.
fn folded(path: &Path, caps: FileCaps, places: &PolicyPlaces) -> FoldResult {
    if let Some(place) = CREDENTIALS.iter().find(|place| match place.strip_prefix("$HOME/") {
        Some(rest) => path.starts_with(places.home.join(rest)),
        None => path.starts_with(place),
    }) {
        return Err(((*place).to_owned(), CREDENTIAL));
    }
    // Variables for directories that no single toolchain owns.
    let generic = |name: &str| matches!(name, "TRANSCRIPT_DIR" | "GOPATH" | "XDG_CONFIG_HOME");
    let vars = places.vars.iter().filter(|(name, dir)| {
        !generic(name) && path.starts_with(dir) && !places.project.starts_with(dir)
    });
    let var = vars.max_by_key(|(_, dir)| dir.as_os_str().len());
    if let Ok(inside) = path.strip_prefix(&places.project) {
        return Ok(in_project(inside, caps));
    }
    let own = path.starts_with(&places.home) && places.home.starts_with(&places.tmp);
    if path.starts_with(&places.tmp) && !own {
        let caps = if caps.intersects(FileCaps::CHANGE) { FileCaps::ALL } else { caps };
        return Ok(("$TMPDIR".to_owned(), false, caps));
    }
    if let Some((name, dir)) = var {
        let inside = path.strip_prefix(dir).unwrap_or(path);
        return below(&format!("${name}"), inside, 1, caps);
    }
    if let Ok(inside) = path.strip_prefix(&places.home) {
        let names: Vec<String> = names(inside);
        let shared = |count: usize| {
            names.get(..count).is_some_and(|part| SHARED.contains(&part.join("/").as_str()))
        };
        let depth = 1 + (1..=3).take_while(|count| shared(*count)).count();
        let hidden = names.first().is_some_and(|name| name.starts_with('.'));
        if !hidden && names.first().is_some_and(|name| !SHARED.contains(&name.as_str())) {
            return match names.as_slice() {
                [_, _, ..] if caps.intersects(FileCaps::CHANGE) => {
                    Err((format!("changing $HOME/{}", inside.display()), ELSEWHERE))
                }
                _ => Ok((format!("$HOME/{}", inside.display()), true, caps)),
            };
        }
        return below("$HOME", inside, depth, caps);
    }
    let others = ["/home", "/root", "/Users", "/run/user"];
    if others.iter().any(|dir| path.starts_with(dir)) {
        return Err((path.display().to_string(), ELSEWHERE));
    }
    Ok((path.display().to_string(), true, caps))
}

/// The names of a path.
fn names(path: &Path) -> Vec<String> {
    let name = |part: Component<'_>| part.as_os_str().to_string_lossy().into_owned();
    path.components().map(name).collect()
}

/// The place of a file in the project. Reading is granted for the whole project, changing
/// only for the top-level name that holds the file. But a file created or deleted at the
/// top grants changes in the whole project.
fn in_project(inside: &Path, caps: FileCaps) -> (String, bool, FileCaps) {
    let names = names(inside);
    match names.as_slice() {
        [first, _, ..] if caps.intersects(FileCaps::CHANGE) => {
            (format!("$PWD/{first}"), false, FileCaps::ALL)
        }
        [file] if caps == FileCaps::WRITE || caps == FileCaps::READ.union(FileCaps::WRITE) => {
            (format!("$PWD/{file}"), true, caps)
        }
        _ => ("$PWD".to_owned(), false, caps.union(FileCaps::READ)),
    }
}

/// The first `depth` names below a variable, or the file alone if it has no more names. The
/// error is a directory with programs, a file that steers other programs, or a directory
/// that holds too much.
fn below(variable: &str, inside: &Path, depth: usize, caps: FileCaps) -> FoldResult {
    let names = names(inside);
    let changes = caps.intersects(FileCaps::CHANGE);
    let place = |count: usize| {
        let names: Vec<&str> = names.iter().take(count).map(String::as_str).collect();
        if names.is_empty() {
            variable.to_owned()
        } else {
            format!("{variable}/{}", names.join("/"))
        }
    };
    if changes && names.iter().any(|name| name == "bin") {
        return Err((format!("changing {}", place(names.len())), PROGRAMS));
    }
    match names.len() {
        // The directory itself is only looked at.
        0 => Err((place(0), "everything below it would be granted")),
        count if count < depth => Err((place(count), "everything below it would be granted")),
        1 if changes && variable == "$HOME" => Err((format!("changing {}", place(1)), STEERS)),
        count if count == depth => Ok((place(count), true, caps)),
        _ => {
            let caps =
                if changes { FileCaps::ALL.without(FileCaps::EXECUTE).union(caps) } else { caps };
            Ok((place(depth), false, caps))
        }
    }
}

/// The narrowest network that clash enforces: ports of this machine, and the hosts that were
/// reached.
fn net(touched: &TouchedResources) -> NetRules {
    let local: BTreeSet<u16> = loopback(touched, true).map(SocketAddr::port).collect();
    let mut hosts = hosts(touched);
    if !hosts.is_empty() {
        // The gate refuses a name with a private address unless a rule grants the address.
        if !touched.names.is_empty() {
            hosts.extend(remote(touched).filter(|it| is_private(it)).map(|it| it.to_string()));
        }
        hosts.dedup();
        let rule = |key| HostRuleDraft { comment: Vec::new(), key, effect: Effect::Allow };
        let mut rules: Vec<HostRuleDraft> =
            hosts.into_iter().map(|host| rule(KeyDraft::text(host))).collect();
        if !local.is_empty() {
            rules.push(rule(KeyDraft::Localhost(local.into_iter().collect())));
        }
        return NetRules::Hosts { rules, default: Effect::Deny };
    }
    if local.is_empty() {
        return NetRules::Every(Effect::Deny);
    }
    NetRules::Localhost(local.into_iter().collect())
}

/// The hosts that were reached, with their ports: names where some were looked up,
/// otherwise addresses. This machine is none of them.
fn hosts(touched: &TouchedResources) -> Vec<String> {
    let remote: BTreeSet<&SocketAddr> = remote(touched).collect();
    let names: Vec<&String> = touched.names.iter().filter(|name| is_host_name(name)).collect();
    if names.is_empty() {
        return remote.iter().map(ToString::to_string).collect();
    }
    let ports: BTreeSet<u16> = remote.iter().map(|address| address.port()).collect();
    // A name without a port stands for 443 and 80.
    let is_usual = ports.iter().all(|port| matches!(port, 80 | 443));
    let with_ports = |name: &String| match is_usual {
        true => vec![name.clone()],
        false => ports.iter().map(|port| format!("{name}:{port}")).collect(),
    };
    names.into_iter().flat_map(with_ports).collect()
}

/// The servers of other machines. Not the resolver: a room has its own.
fn remote(touched: &TouchedResources) -> impl Iterator<Item = &SocketAddr> {
    const DNS_PORT: u16 = 53;
    let is_resolver = |it: &&SocketAddr| it.port() == DNS_PORT && !touched.names.is_empty();
    loopback(touched, false).filter(move |it| it.port() != 0 && !is_resolver(it))
}

/// True for an address inside a company or a home.
fn is_private(address: &SocketAddr) -> bool {
    match address.ip() {
        IpAddr::V4(ip) => ip.is_private() || ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unique_local() || ip.is_unicast_link_local(),
    }
}

/// True for a name that a rule can have. A program chooses the bytes of its queries.
fn is_host_name(name: &str) -> bool {
    let is_label = |label: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        !label.is_empty() && label.len() < 64 && label.chars().all(plain)
    };
    name.len() < 254 && name.contains('.') && name.split('.').all(is_label)
}

/// The addresses of this machine, or all others.
fn loopback(touched: &TouchedResources, wanted: bool) -> impl Iterator<Item = &SocketAddr> {
    touched.addresses.iter().filter(move |address| address.ip().is_loopback() == wanted)
}

impl SandboxProposal {
    /// The sandbox as policy text, with comments above it: the day, the withheld files, the
    /// hosts. An error if the name is no identifier.
    pub fn source(&self, name: &str, day: &str) -> Result<String, clash_syntax::SyntaxError> {
        let mut head = vec![format!(
            "What one run used, observed on {day}. Look through it before you use it."
        )];
        let withheld = self.withheld.iter();
        head.extend(withheld.map(|it| format!("Not granted: {} ({}).", it.what, it.why)));
        let comment = Vec::new();
        let sandbox = SandboxDraft {
            fs: self.grants.iter().map(ProposedGrant::rule).collect(),
            net: Some(NetDraft { comment, rules: self.net.clone() }),
            ..SandboxDraft::new(name, SandboxBase::Default(Effect::Deny))
        };
        sandbox.text(&head)
    }
}

impl ProposedGrant {
    /// The grant as a file rule. A place that toolchains share gets a cache of the project.
    fn rule(&self) -> FileRuleDraft {
        let files = match self.files {
            0 => "only listed".to_owned(),
            1 => "1 file".to_owned(),
            files => format!("{files} files"),
        };
        let key = match self.alone {
            true => KeyDraft::literal(&*self.place),
            false => KeyDraft::text(&*self.place),
        };
        let effect = match !self.alone && is_shared_cache(&self.place, self.caps) {
            true => FileEffect::Cache,
            false => FileEffect::Caps(Effect::Allow, self.caps.to_string()),
        };
        FileRuleDraft { comment: vec![files], key, effect }
    }
}

/// True if a run changed a place that a toolchain shares between projects.
fn is_shared_cache(place: &str, caps: FileCaps) -> bool {
    const OTHERS: [&str; 6] =
        ["PWD", "HOME", "TMPDIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"];
    let variable = place.strip_prefix('$').and_then(|rest| rest.split('/').next());
    let shared = variable.is_some_and(|name| !OTHERS.contains(&name));
    shared && caps.intersects(FileCaps::CHANGE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A project in `/home/u/app` with three variables.
    fn places() -> PolicyPlaces {
        PolicyPlaces {
            project: "/home/u/app".into(),
            home: "/home/u".into(),
            tmp: "/tmp".into(),
            vars: vec![
                ("CARGO_HOME".into(), "/home/u/.cargo".into()),
                ("XDG_CACHE_HOME".into(), "/home/u/.cache".into()),
                ("XDG_CONFIG_HOME".into(), "/home/u/.config".into()),
            ],
        }
    }

    const BASELINE: &[(&str, FileCaps)] =
        &[("/usr", FileCaps::READ.union(FileCaps::EXECUTE)), ("/etc/passwd", FileCaps::READ)];

    /// The proposal for files with the capabilities that were used.
    fn proposed(files: &[(&str, &str)]) -> SandboxProposal {
        let files =
            files.iter().map(|(path, caps)| (PathBuf::from(path), FileCaps::parse(caps).unwrap()));
        propose(
            &TouchedResources { files: files.collect(), ..TouchedResources::default() },
            &places(),
            BASELINE,
        )
    }

    #[test]
    fn many_files_become_the_directories_that_hold_them() {
        let proposal = proposed(&[
            ("/usr/bin/cargo", "rx"),
            ("/etc/passwd", "r"),
            ("/home/u/app/Cargo.toml", "r"),
            ("/home/u/app/src/main.rs", "r"),
            ("/home/u/app/target/debug/x", "wc"),
            ("/home/u/app/target/debug/y", "d"),
            ("/home/u/.cargo/registry/a/b.rs", "r"),
            ("/home/u/.cargo/registry/a/c.rs", "r"),
            ("/home/u/.cargo/git/db/x", "wc"),
            ("/home/u/.cargo/config.toml", "r"),
            ("/home/u/.cargo/bin/cargo", "rx"),
            ("/home/u/.config/git/ignore", "r"),
            ("/home/u/.gitconfig", "r"),
            ("/tmp/x", "rwc"),
            ("/var/lib/thing", "r"),
        ]);
        insta::assert_snapshot!(proposal.source("learned", "2026-11-16").unwrap(), @r##"
        # What one run used, observed on 2026-11-16. Look through it before you use it.
        learned = sandbox(
            name = "learned",
            default = deny(),
            fs = {
                # 1 file
                "$CARGO_HOME/bin": allow("rx"),
                # 1 file
                literal("$CARGO_HOME/config.toml"): allow("r"),
                # 1 file
                "$CARGO_HOME/git": cache(),
                # 2 files
                "$CARGO_HOME/registry": allow("r"),
                # 1 file
                "$HOME/.config/git": allow("r"),
                # 1 file
                literal("$HOME/.gitconfig"): allow("r"),
                # 2 files
                "$PWD": allow("r"),
                # 2 files
                "$PWD/target": allow("rwcdx"),
                # 1 file
                "$TMPDIR": allow("rwcdx"),
                # 1 file
                literal("/var/lib/thing"): allow("r"),
            },
            net = deny(),
        )
        "##);
    }

    #[test]
    fn credentials_settings_programs_other_files_are_withheld() {
        let proposal = proposed(&[
            ("/home/u/.ssh/id_ed25519", "r"),
            ("/home/u/.bashrc", "rw"),
            ("/home/u/.cargo/bin/cargo", "wc"),
            ("/home/u", "r"),
            ("/home/u/.config", "r"),
            ("/home/u/other/secret", "w"),
            ("/home/v/notes", "r"),
        ]);
        assert_eq!(proposal.grants, []);
        let withheld: Vec<String> =
            proposal.withheld.iter().map(|it| format!("{}: {}", it.what, it.why)).collect();
        insta::assert_snapshot!(withheld.join("\n"), @"
        $HOME: everything below it would be granted
        $HOME/.config: everything below it would be granted
        $HOME/.ssh: holds credentials
        /home/v/notes: belongs to another project or user
        changing $CARGO_HOME/bin/cargo: programs lie there, so it stays as it is
        changing $HOME/.bashrc: other programs obey it
        changing $HOME/other/secret: belongs to another project or user
        ");
    }

    #[test]
    fn the_network_is_none_or_local_ports_or_the_reached_hosts() {
        let touched = |names: &[&str], addresses: &[&str]| {
            net(&TouchedResources {
                names: names.iter().map(|name| (*name).to_owned()).collect(),
                addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
                ..TouchedResources::default()
            })
            .source()
        };
        assert_eq!(touched(&[], &[]), "deny()");
        assert_eq!(touched(&[], &["127.0.0.1:8080", "[::1]:9"]), "localhost(ports = [9, 8080])");
        let rules = |names: &[&str], addresses: &[&str]| {
            let text = touched(names, addresses);
            text.lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            rules(&["a.test"], &["192.0.2.1:443", "192.0.2.53:53"]),
            "{ \"a.test\": allow(), default(): deny(), }"
        );
        assert_eq!(
            rules(&["db.test", "x\"]: allow()"], &["10.0.0.5:5432"]),
            "{ \"db.test:5432\": allow(), \"10.0.0.5:5432\": allow(), default(): deny(), }"
        );
        assert_eq!(
            rules(&[], &["192.0.2.1:443", "127.0.0.1:80"]),
            "{ \"192.0.2.1:443\": allow(), localhost(ports = [80]): allow(), default(): deny(), }"
        );
    }

    #[test]
    fn the_hosts_that_were_reached_are_named() {
        let hosts = |names: &[&str], addresses: &[&str]| {
            hosts(&TouchedResources {
                names: names.iter().map(|name| (*name).to_owned()).collect(),
                addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
                ..TouchedResources::default()
            })
        };
        assert_eq!(hosts(&["a.test"], &["192.0.2.1:22", "127.0.0.1:80"]), ["a.test:22"]);
        assert_eq!(hosts(&[], &["192.0.2.1:443"]), ["192.0.2.1:443"]);
        assert_eq!(hosts(&["a.test"], &[]), ["a.test"]);
    }

    proptest! {
        #[test]
        fn never_the_home_itself_and_never_a_credential(
            files in prop::collection::btree_map(
                prop::sample::select(vec!["/home/u", "/home/u/", "/", "/home", "/home/u/.ssh", "/home/u/.config", "/home/u/.cache", "/home/u/.local/share", "/home/u/app", "/x", "/home/u/.aws"]),
                ("[a-z./\"\\\\\n]{0,20}", 0_u8..32),
                0..12,
            ),
        ) {
            let files: BTreeMap<PathBuf, FileCaps> = files
                .into_iter()
                .map(|(dir, (rest, caps))| {
                    let mut path = PathBuf::from(dir);
                    path.extend(Path::new(&rest).components().filter(|part| matches!(part, Component::Normal(_))));
                    (path, FileCaps::from_bits(caps).unwrap_or(FileCaps::READ))
                })
                .collect();
            let proposal = propose(&TouchedResources { files, ..TouchedResources::default() }, &places(), BASELINE);
            for grant in &proposal.grants {
                let wide = ["$HOME", "/", "/home", "$HOME/.config", "$HOME/.local", "$HOME/.local/share", "$XDG_CACHE_HOME"];
                prop_assert!(grant.alone || !wide.contains(&grant.place.as_str()), "{:?}", grant);
                prop_assert!(!grant.place.starts_with("$HOME/.ssh") && !grant.place.starts_with("$HOME/.aws"));
            }
            let source = proposal.source("learned", "2026-11-16").unwrap();
            prop_assert_eq!(clash_syntax::fmt::format(&source).unwrap(), source);
        }
    }
}
