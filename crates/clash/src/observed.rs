//! Reads the output of a command that ended, and finds the accesses that its sandbox refused.
//!
//! The kernel tells a command only `EACCES` or `ENOENT`, and the command puts that into words
//! of its own. An error message about a path is a block only if the sandbox does not grant
//! the path, and if the file is there: a missing file was not hidden. So a failing test or a
//! missing file is no block. What this module finds is inferred.

use std::path::{Path, PathBuf};

use clash_policy::judge::judge;
use clash_policy::mask::{MAX_MASKED_BYTES, MaskSyntax, mask};
use clash_policy::{
    Effect, FileCaps, FileUse, FsRule, JudgeContext, NetworkAccess, Sandbox, WriteTarget,
};
use clash_sandbox::disk::Disk;

use crate::blocks::{BlockFacts, file_block, host_block, mask_block};
use crate::dirs::Dirs;
use crate::trace::BlockKind;

/// Only the last lines are read: an error message is at the end of the output.
const MAX_OUTPUT_LINES: usize = 200;

/// Blocks of one command that are told.
const MAX_FOUND: usize = 5;

/// Words of an error about a file, in lower case. The first three can also mean that the
/// file may be read and not changed.
const REFUSALS: [&str; 8] = [
    "permission denied",
    "operation not permitted",
    "read-only file system",
    "eacces",
    "eperm",
    "erofs",
    "no such file",
    "enoent",
];

/// From this one on the file is hidden.
const FIRST_HIDDEN: usize = 6;

/// The message of programs that create more files than the sandbox's limit.
const QUOTA: &str = "disk quota exceeded";

/// Words of a server that asks for a password, in lower case.
const UNAUTHORIZED: [&str; 13] = [
    "e401",
    "e403",
    "401 ",
    "401:",
    "403 forbidden",
    "403 client error",
    "got 401",
    "got 403",
    "unauthorized",
    "not authorized",
    "authentication is required",
    "authentication required",
    "bad username or password",
];

const NETWORK: [&str; 9] = [
    "could not resolve host",
    "temporary failure in name resolution",
    "name or service not known",
    "temporary failure resolving",
    "network is unreachable",
    "getaddrinfo enotfound",
    "getaddrinfo eai_again",
    "nodename nor servname provided",
    "no address associated with hostname",
];

/// True if the output has an error message that a sandbox can cause.
pub(crate) fn is_suspicious(output: &str) -> bool {
    let lower = output.to_ascii_lowercase();
    let mut said =
        REFUSALS.iter().chain(&UNAUTHORIZED).chain(&NETWORK).chain([&QUOTA, &"connection refused"]);
    said.any(|said| lower.contains(said))
}

/// The project, working directory and sandbox of a command that ended.
#[derive(Debug)]
pub(crate) struct EndedCommand<'a> {
    pub(crate) dirs: &'a Dirs,
    pub(crate) project: &'a Path,
    pub(crate) cwd: &'a Path,
    pub(crate) sandbox: &'a Sandbox,
    pub(crate) script: &'a str,
    /// True if it ended with an error.
    pub(crate) failed: bool,
}

/// The blocks that the output shows, the last one first.
pub(crate) fn blocks_in(place: &EndedCommand<'_>, output: &str) -> Vec<BlockFacts> {
    if place.sandbox.unrestricted {
        return Vec::new();
    }
    let mut found: Vec<BlockFacts> = Vec::new();
    for line in output.lines().rev().take(MAX_OUTPUT_LINES) {
        let block = blocked_link(place.sandbox, line)
            .or_else(|| blocked_path(place, line))
            .or_else(|| blocked_network(place.sandbox, line))
            .or_else(|| blocked_files(place.sandbox, line));
        let masked =
            if block.is_none() && place.failed { masked_secrets(place, line) } else { Vec::new() };
        for block in block.into_iter().chain(masked) {
            if !found.contains(&block) {
                found.push(block);
            }
        }
        if found.len() >= MAX_FOUND {
            break;
        }
    }
    found
}

/// The settings files with secrets of which the command saw copies, if a line is about a
/// server that asks for a password.
fn masked_secrets(place: &EndedCommand<'_>, line: &str) -> Vec<BlockFacts> {
    let lower = line.to_ascii_lowercase();
    if !UNAUTHORIZED.iter().any(|said| lower.contains(said)) {
        return Vec::new();
    }
    let disk = Disk::default();
    let places = place.dirs.places_unseen(place.project, &disk);
    let masks = place.sandbox.fs.iter().filter(|rule| rule.writes == WriteTarget::Masked);
    let hidden = masks.filter_map(|rule| {
        let path = places.expand(rule.pattern.fixed()).ok()?;
        let syntax = MaskSyntax::of_path(rule.pattern.fixed())?;
        let is_small = std::fs::metadata(&path)
            .is_ok_and(|meta| meta.is_file() && meta.len() <= MAX_MASKED_BYTES as u64);
        let text = is_small.then(|| std::fs::read(&path).ok()).flatten()?;
        // A file without a secret is not the cause.
        let has_secret = mask(syntax, &text).map_or(true, |masked| masked != text);
        has_secret.then(|| mask_block(place.sandbox, rule, &path, &place.dirs.home))
    });
    hidden.collect()
}

/// A block of the limit of files, if the line speaks of a quota and the sandbox has such a
/// limit.
fn blocked_files(sandbox: &Sandbox, line: &str) -> Option<BlockFacts> {
    let is_quota = line.to_ascii_lowercase().contains(QUOTA);
    let most = sandbox.limits.most_files().filter(|_| is_quota)?;
    Some(BlockFacts {
        kind: BlockKind::Limit,
        what: "files".to_owned(),
        needs: String::new(),
        sandbox: sandbox.name.clone(),
        rule: sandbox.span.to_string(),
        why: format!("a command may create {most} files and directories"),
        nearby: String::new(),
        grant: None,
        request: None,
        is_by_rule: false,
    })
}

/// A block of the first path in the line that the sandbox refuses. The path may stand before
/// or behind the words of refusal, or anywhere if it is absolute. After `ENOENT`, a missing
/// file counts only if the command wanted to make it.
fn blocked_path(place: &EndedCommand<'_>, line: &str) -> Option<BlockFacts> {
    let lower = line.to_ascii_lowercase();
    let (at, refusal) = REFUSALS.iter().enumerate().find_map(|(at, said)| {
        let start = lower.find(said)?;
        Some((at, (start, said.len())))
    })?;
    let is_hidden = at >= FIRST_HIDDEN;
    let before = line.get(..refusal.0).unwrap_or_default();
    let after = line.get(refusal.0 + refusal.1..).unwrap_or_default();
    let named = line.split([' ', ':', '\'', '"', ',', '(', ')']);
    let absolute = named.filter(|word| word.starts_with('/') && word.len() > 1);
    let paths = last_path(before).into_iter().chain(first_path(after));
    let mut paths = paths.chain(absolute.map(PathBuf::from));
    let makes = is_hidden && (says_create(&lower) || writes(place.script));
    paths.find_map(|path| judged(place, &place.cwd.join(path), is_hidden, makes))
}

/// True if an error message is about a new file.
fn says_create(lower: &str) -> bool {
    ["creat", "cannot touch", "cannot make", "cannot move", "mkdir"]
        .iter()
        .any(|word| lower.contains(word))
}

/// True if a script may make files, as far as its words show.
fn writes(script: &str) -> bool {
    ["'w'", "\"w\"", "'a'", "'x'", "write", ">", "touch", "mkdir", "tee ", "cp ", "mv ", "install"]
        .iter()
        .any(|word| script.contains(word))
}

/// The block of a path that an error message names. `None` if the sandbox grants the access,
/// if the file is missing and the command did not want to make it, and if the file's own mode
/// refuses the user. `is_hidden`: the message was `ENOENT`, so a readable path is no block.
fn judged(
    place: &EndedCommand<'_>,
    path: &Path,
    is_hidden: bool,
    makes: bool,
) -> Option<BlockFacts> {
    // A file that does not exist was not hidden. A new file needs a directory.
    let exists = std::fs::symlink_metadata(path).is_ok();
    if is_hidden && !exists && !(makes && could_be_made(path)) {
        return None;
    }
    // The owner of the file refuses it, not the sandbox.
    if exists && !is_reachable(path) {
        return None;
    }
    let facts = |needs| file_block(place.sandbox, path, needs, place.project, &place.dirs.home);
    if !granted(place, path, FileCaps::READ)? {
        // Nothing was hidden that is not there; but nothing can be made there either.
        return Some(facts(if exists { FileCaps::READ } else { FileCaps::CREATE }));
    }
    let change = FileCaps::WRITE.union(FileCaps::CREATE).union(FileCaps::DELETE);
    if is_hidden || granted(place, path, change)? {
        return None;
    }
    let mut block = facts(change);
    if let Some(fetch) = filled_by(place, path) {
        block.why = format!(
            "all projects share this cache, so commands only read it; you fill it with `{fetch}` \
             in a terminal"
        );
        block.grant = None;
        block.request = None;
    } else {
        block.why.push_str(instead(path));
    }
    Some(block)
}

/// True if the user could make this file: its directory is there.
fn could_be_made(path: &Path) -> bool {
    path.parent().is_some_and(Path::is_dir)
}

/// True if the user's own rights reach the file. Otherwise the file's mode refuses it.
fn is_reachable(path: &Path) -> bool {
    rustix::fs::access(path, rustix::fs::Access::READ_OK).is_ok()
        || rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok()
}

/// A block of a link that the command could not make, in the words of git or `ln`. Git leaves
/// such a link out of the work tree and goes on, so that `commit -a` would delete it; then
/// the reason says so.
fn blocked_link(sandbox: &Sandbox, line: &str) -> Option<BlockFacts> {
    let (before, _) = line.split_once("Permission denied")?;
    let by_git = before.contains("unable to create symlink ");
    if !by_git && !before.contains("create symbolic link ") {
        return None;
    }
    let path = last_path(before)?;
    let shown = crate::say::brief(&path.to_string_lossy());
    let mut why = "it would lead out of the files that it may read".to_owned();
    if by_git {
        why.push_str(&format!(
            "; git has left `{shown}` out, and `git commit -a` would delete it for good: name the \
             files to commit, and the user makes the link with `git checkout -- {shown}` in a \
             terminal"
        ));
    }
    Some(BlockFacts {
        kind: BlockKind::Link,
        what: shown,
        needs: String::new(),
        sandbox: sandbox.name.clone(),
        rule: sandbox.span.to_string(),
        why,
        nearby: String::new(),
        grant: None,
        request: None,
        is_by_rule: false,
    })
}

/// The advice for a tool that overwrites a protected file which it created itself.
fn instead(path: &Path) -> &'static str {
    let name = path.file_name().map(|name| name.to_string_lossy().to_ascii_lowercase());
    match name {
        Some(name) if name == "activate" || name.starts_with("activate.") => {
            ": create the whole environment again, with the option `--clear`"
        }
        _ => "",
    }
}

/// The command with which the user fills a shared cache. The module of the library whose
/// rule names the cache determines it.
fn filled_by(place: &EndedCommand<'_>, path: &Path) -> Option<&'static str> {
    use clash_policy::LinkResolver;
    let disk = Disk::default();
    let places = place.dirs.places(place.project, &disk);
    let path = disk.real(path);
    let is_around = |rule: &&FsRule| {
        let dir = places.expand(rule.pattern.fixed()).map(|dir| disk.real(&dir));
        rule.writes == WriteTarget::Project && dir.is_ok_and(|dir| path.starts_with(dir))
    };
    let module = &place.sandbox.fs.iter().find(is_around)?.span.file;
    let module = module.strip_prefix("@clash//")?.strip_suffix(".star")?;
    FETCHES.iter().find(|(name, _)| *name == module).map(|(_, command)| *command)
}

const FETCHES: [(&str, &str); 11] = [
    ("bazel", "bazel fetch //..."),
    ("dotnet", "dotnet restore"),
    ("elixir", "mix deps.get"),
    ("go", "go mod download"),
    ("haskell", "cabal build --only-download"),
    ("java", "mvn dependency:go-offline"),
    ("node", "npm ci --ignore-scripts"),
    ("php", "composer install --no-scripts --no-plugins"),
    ("ruby", "bundle cache"),
    ("rust", "cargo fetch"),
    ("terraform", "terraform init"),
];

/// True if the sandbox grants these rights on the path. `None` if the judge fails.
fn granted(place: &EndedCommand<'_>, path: &Path, needs: FileCaps) -> Option<bool> {
    use clash_policy::LinkResolver;
    let disk = Disk::default();
    let places = place.dirs.places_unseen(place.project, &disk);
    let baseline = crate::decision::readable_in_a_room();
    let cage = place.dirs.cage(place.project, &disk);
    let world = JudgeContext {
        places: &places,
        cwd: place.cwd,
        links: &disk,
        baseline: &baseline,
        cage: &cage,
        lent: None,
    };
    let path = disk.real(path);
    let caged =
        needs.intersects(FileCaps::CHANGE) && cage.iter().any(|caged| path.starts_with(caged));
    let file = FileUse { path, needs, caseless: false };
    let verdict = judge(place.sandbox, &file, &world).ok()?;
    Some(verdict.effect == Effect::Allow && !caged)
}

/// The path at the end of an error message, for example `cat: /x/y: ` or
/// `cannot open '/x/y': `.
fn last_path(before: &str) -> Option<PathBuf> {
    // `[Errno 13]`, `Error: `
    let text = before.trim_end_matches([' ', ':']);
    let text = text.strip_suffix(']').map_or(text, |text| {
        text.rsplit_once('[').map_or(text, |(text, _)| text.trim_end_matches([' ', ':']))
    });
    let quotes = [('\'', '\''), ('"', '"'), ('‘', '’'), ('`', '\'')];
    let inside = quotes.iter().find_map(|(open, close)| {
        let inner = text.strip_suffix(*close)?;
        inner.rsplit_once(*open).map(|(_, path)| path)
    });
    let path = inside.or_else(|| text.rsplit([' ', '(']).next())?.trim();
    let is_path = !path.is_empty() && !path.ends_with(':') && path.len() < 4096;
    is_path.then(|| PathBuf::from(path))
}

/// The path behind an error message, for example `: '/x/y'` or `, open '/x/y'`.
fn first_path(after: &str) -> Option<PathBuf> {
    let quotes = [('\'', '\''), ('"', '"'), ('‘', '’')];
    let quoted = quotes.iter().find_map(|(open, close)| {
        let (_, rest) = after.split_once(*open)?;
        rest.split_once(*close).map(|(path, _)| path)
    });
    let bare = || {
        let rest = after.strip_prefix(": ")?;
        rest.split_whitespace().next().filter(|word| word.contains('/'))
    };
    let path = quoted.or_else(bare)?;
    (!path.is_empty() && path.len() < 4096).then(|| PathBuf::from(path))
}

/// A block of the network, if the line speaks of a failed lookup or connection and the
/// sandbox does not allow the host. Without `http://` in the line it is port 443.
fn blocked_network(sandbox: &Sandbox, line: &str) -> Option<BlockFacts> {
    if sandbox.net == NetworkAccess::Allow {
        return None;
    }
    let lower = line.to_ascii_lowercase();
    if lower.contains("connection refused") || lower.contains("failed to connect") {
        return blocked_localhost(sandbox, &lower);
    }
    let (_, after) = NETWORK.iter().find_map(|said| lower.split_once(said))?;
    let host = host_in(after).or_else(|| host_in(&lower)).unwrap_or_default();
    let port = if lower.contains("http://") { 80 } else { 443 };
    let is_granted = !host.is_empty() && sandbox.net.judge(&host, port).0 == Effect::Allow;
    (!is_granted).then(|| host_block(sandbox, &host))
}

/// A service of this machine that a room cannot reach. A port on which no program listens
/// refuses connections for that reason.
fn blocked_localhost(sandbox: &Sandbox, line: &str) -> Option<BlockFacts> {
    let is_local = ["localhost", "127.0.0.1", "::1"].iter().any(|name| line.contains(name));
    let words = line.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok());
    let port = words.filter(|_| is_local).find(|port: &u16| *port > 1 && listens(*port))?;
    let is_granted = sandbox.net.judge("localhost", port).0 == Effect::Allow;
    (!is_granted).then(|| host_block(sandbox, &format!("localhost:{port}")))
}

/// True if a program of this machine listens on a port.
fn listens(port: u16) -> bool {
    const LISTEN: &str = "0A";
    let wanted = format!(":{port:04X}");
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|table| {
        std::fs::read_to_string(table).unwrap_or_default().lines().any(|line| {
            let mut words = line.split_whitespace().skip(1);
            let is_port = words.next().is_some_and(|local| local.ends_with(&wanted));
            is_port && words.nth(1) == Some(LISTEN)
        })
    })
}

/// A host name in a text: letters, digits, dots and dashes with at least one dot. The name of
/// an error, such as `urllib.error.URLError`, is none.
fn host_in(text: &str) -> Option<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '-';
    let words = text.split(|c: char| !is_part(c)).map(|word| word.trim_matches(['.', '-']));
    let is_host = |word: &&str| {
        word.contains('.')
            && word.rsplit('.').next().is_some_and(|last| {
                last.len() >= 2 && last.bytes().all(|byte| byte.is_ascii_alphabetic())
            })
            && !["error", "exception"].iter().any(|kind| word.to_ascii_lowercase().ends_with(kind))
    };
    words.into_iter().find(is_host).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_an_error_message_is_found() {
        let path = |text: &str| last_path(text).map(|path| path.display().to_string());
        assert_eq!(path("cat: /x/y: ").as_deref(), Some("/x/y"));
        assert_eq!(path("cp: cannot create regular file '/x y/z': ").as_deref(), Some("/x y/z"));
        assert_eq!(path("/bin/bash: line 1: out.txt: ").as_deref(), Some("out.txt"));
        assert_eq!(path("error: could not open ‘a b’: ").as_deref(), Some("a b"));
        assert_eq!(path(""), None);
        let path = |text: &str| first_path(text).map(|path| path.display().to_string());
        assert_eq!(path(": '/x/y'").as_deref(), Some("/x/y"));
        assert_eq!(path(", open '/x/y'").as_deref(), Some("/x/y"));
        assert_eq!(path(" (os error 13)"), None);
    }

    #[test]
    fn the_name_of_an_error_is_no_host() {
        let text = "urllib.error.URLError: <urlopen error [Errno -2] Name or service not known>";
        assert_eq!(host_in(text), None);
        assert_eq!(host_in("requests.ConnectionError: to a.example").as_deref(), Some("a.example"));
    }

    #[test]
    fn a_link_that_git_leaves_out_is_told_with_its_remedy() {
        let sandbox = Sandbox::named("s");
        let told = |line: &str| blocked_link(&sandbox, line).map(|block| block.sentence());
        let by_git = told("error: unable to create symlink conf/out: Permission denied").unwrap();
        assert!(by_git.contains("the link `conf/out`: it would lead out"), "{by_git}");
        assert!(by_git.contains("`git commit -a` would delete it"), "{by_git}");
        assert!(by_git.contains("`git checkout -- conf/out` in a terminal"), "{by_git}");
        let by_ln = told("ln: failed to create symbolic link 'L': Permission denied");
        assert!(by_ln.is_some_and(|told| told.ends_with("may read")));
        assert_eq!(told("ln: failed to create symbolic link 'L': File exists"), None);
        assert_eq!(told("cat: x: Permission denied"), None);
    }

    #[test]
    fn the_host_of_an_error_message_is_found() {
        let mut sandbox = Sandbox::named("s");
        let line = "curl: (6) Could not resolve host: docs.rs";
        assert_eq!(blocked_network(&sandbox, line).unwrap().what, "docs.rs");
        let line = "Error: getaddrinfo ENOTFOUND registry.npmjs.org";
        assert_eq!(blocked_network(&sandbox, line).unwrap().what, "registry.npmjs.org");
        sandbox.net = NetworkAccess::Allow;
        assert_eq!(blocked_network(&sandbox, line), None);
    }
}
