//! Foresees blocks: accesses that the words of a command name and its sandbox refuses.
//!
//! Only informs: the kernel enforces. So it looks only at programs whose arguments are
//! certainly files or addresses, and only at files that are there.

use std::path::{Path, PathBuf};

use clash_policy::decide::Decision;
use clash_policy::judge::judge;
use clash_policy::{Effect, FileCaps, FileUse, JudgeContext, Sandbox};
use clash_sandbox::disk::Disk;
use clash_shell::{CommandDirectory, ShellCommand, ShellWord, find_commands, program_name};

use crate::blocks::{BlockFacts, file_block, host_block};
use crate::dirs::Dirs;
use crate::temporary::TmpNames;

/// Programs that read the files they name.
const READERS: &[&str] = &[
    "awk",
    "base64",
    "bat",
    "cat",
    "cksum",
    "cmp",
    "cut",
    "diff",
    "egrep",
    "fgrep",
    "file",
    "grep",
    "head",
    "hexdump",
    "jq",
    "less",
    "md5sum",
    "more",
    "nl",
    "od",
    "rg",
    "sed",
    "sha1sum",
    "sha256sum",
    "sort",
    "source",
    "strings",
    "tac",
    "tail",
    "uniq",
    "wc",
    "xxd",
    "zcat",
    "ls",
];

/// Programs that change the files they name.
const WRITERS: &[&str] =
    &["chmod", "chown", "mkdir", "rm", "rmdir", "shred", "tee", "touch", "truncate", "unlink"];

/// Programs that read all files they name but the last, which they change.
const COPIERS: &[&str] = &["cp", "mv", "install", "rsync"];

/// Programs that fetch the addresses they name.
const FETCHERS: &[&str] = &["curl", "wget", "http", "https", "xh"];

/// The machine and the place of a command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ForeseenAt<'a> {
    pub(crate) dirs: &'a Dirs,
    pub(crate) project: &'a Path,
    pub(crate) cwd: &'a Path,
}

/// The blocks that the words of a script show, each once. A command is judged by its own
/// sandbox if it has one, and otherwise by the script's. None for a denied script.
/// `sandbox_of` gives a sandbox by its name.
pub(crate) fn foreseen(
    at: ForeseenAt<'_>,
    script: &str,
    decision: &Decision,
    sandbox_of: &dyn Fn(&str) -> Option<Sandbox>,
) -> Vec<BlockFacts> {
    let Some(room) = decision.sandbox.as_ref().filter(|_| decision.effect < Effect::Deny) else {
        return Vec::new();
    };
    let mut found: Vec<BlockFacts> = Vec::new();
    for (command, part) in find_commands(script).iter().zip(&decision.parts) {
        let uses = uses_of(&at, command);
        if uses.is_empty() {
            continue;
        }
        let own = part.sandbox.as_ref().filter(|name| **name != room.name);
        let own = own.and_then(|name| sandbox_of(name));
        let sandbox = own.as_ref().unwrap_or(room);
        let blocks = uses.into_iter().filter_map(|one| one.block(&at, sandbox));
        for block in blocks {
            if !found.contains(&block) {
                found.push(block);
            }
        }
    }
    found
}

/// A use that a command's words show.
enum ShownUse {
    File(PathBuf, FileCaps),
    Host(String, u16),
}

impl ShownUse {
    /// The block that this use of a file or host will meet in the sandbox. `None` if it is
    /// permitted, and in cases of doubt: a missing file that is only read, a path below /tmp
    /// that the room shows as another directory. Reads file names and links, changes nothing.
    fn block(self, at: &ForeseenAt<'_>, sandbox: &Sandbox) -> Option<BlockFacts> {
        use clash_policy::LinkResolver;
        if sandbox.unrestricted {
            return None;
        }
        let (path, needs) = match self {
            Self::Host(host, port) => {
                let (effect, _) = sandbox.net.judge(&host, port);
                let is_local = host == "localhost" || host.starts_with("127.");
                let shown = if is_local { format!("{host}:{port}") } else { host };
                return (effect != Effect::Allow).then(|| host_block(sandbox, &shown));
            }
            Self::File(path, needs) => (path, needs),
        };
        let is_there = |path: &Path| std::fs::symlink_metadata(path).is_ok();
        let could_be = is_there(&path) || path.parent().is_some_and(is_there);
        if !could_be || !needs.intersects(FileCaps::CHANGE) && !is_there(&path) {
            return None;
        }
        let disk = Disk::default();
        let places = at.dirs.places_unseen(at.project, &disk);
        let baseline = crate::decision::readable_in_a_room();
        let cage = at.dirs.cage(at.project, &disk);
        let lent = at.dirs.session_tmp.as_ref().map(|_| places.tmp.as_path());
        // A room shows the session's directory as /tmp.
        let names = lent.map(|session| TmpNames { dirs: at.dirs, project: at.project, session });
        if names.is_some_and(|names| names.meaning(&path).is_some()) {
            return None;
        }
        let world = JudgeContext {
            places: &places,
            cwd: at.cwd,
            links: &disk,
            baseline: &baseline,
            cage: &cage,
            lent,
        };
        let real = disk.real(&path);
        let file = FileUse { path: real.clone(), needs, caseless: false };
        let verdict = judge(sandbox, &file, &world).ok()?;
        let is_caged =
            needs.intersects(FileCaps::CHANGE) && cage.iter().any(|own| real.starts_with(own));
        let is_refused = verdict.effect != Effect::Allow || is_caged;
        is_refused.then(|| file_block(sandbox, &path, needs, at.project, &at.dirs.home))
    }
}

/// The hosts and ports that the words of a command line name: the addresses of programs that
/// fetch, and every address with a scheme.
pub(crate) fn hosts_named(line: &str) -> Vec<(String, u16)> {
    let mut found = Vec::new();
    for command in find_commands(line) {
        let Some((program, words)) = command.words.split_first() else { continue };
        let fetches =
            program.known().and_then(program_name).is_some_and(|it| FETCHERS.contains(&it));
        let words = words.iter().filter_map(|word| word.known());
        let words = words.filter(|word| !word.starts_with('-'));
        for place in words.filter(|word| fetches || word.contains("://")).filter_map(host_of) {
            if !found.contains(&place) {
                found.push(place);
            }
        }
    }
    found
}

/// The files and hosts that the words of a command name. Empty for every program that is in
/// none of the four tables. Options are skipped with their first word only.
fn uses_of(at: &ForeseenAt<'_>, command: &ShellCommand) -> Vec<ShownUse> {
    let Some((program, words)) = command.words.split_first() else { return Vec::new() };
    let Some(program) = program.known().and_then(program_name) else { return Vec::new() };
    let operands: Vec<&ShellWord> =
        words.iter().filter(|word| !word.prefix().starts_with('-')).collect();
    if FETCHERS.contains(&program) {
        let hosts = operands.iter().filter_map(|word| host_of(word.known()?));
        return hosts.map(|(host, port)| ShownUse::Host(host, port)).collect();
    }
    let change = FileCaps::WRITE.union(FileCaps::CREATE);
    let file = |word: &ShellWord, needs| Some(ShownUse::File(path_of(at, command, word)?, needs));
    let is_copier = COPIERS.contains(&program);
    let needs = |index: usize| match () {
        () if READERS.contains(&program) => Some(FileCaps::READ),
        () if WRITERS.contains(&program) => Some(change),
        () if is_copier && index + 1 == operands.len() && index > 0 => Some(change),
        () if is_copier => Some(FileCaps::READ),
        () => None,
    };
    let uses = operands.iter().enumerate();
    uses.filter_map(|(index, word)| file(word, needs(index)?)).collect()
}

/// The path of a word that names a file for certain.
fn path_of(at: &ForeseenAt<'_>, command: &ShellCommand, word: &ShellWord) -> Option<PathBuf> {
    let path = match word {
        ShellWord::Home(below) => {
            let below = below.trim_start_matches('/');
            return Some(clash_policy::path::normalise(&at.dirs.home.join(below)));
        }
        ShellWord::Known(text) if text.contains('/') => Path::new(text),
        _ => return None,
    };
    if path.is_absolute() {
        return Some(clash_policy::path::normalise(path));
    }
    let dir = match &command.cwd {
        CommandDirectory::Start => at.cwd.to_path_buf(),
        CommandDirectory::Relative(below) => at.cwd.join(below),
        CommandDirectory::Absolute(dir) => PathBuf::from(dir),
        CommandDirectory::Home(below) => at.dirs.home.join(below.trim_start_matches('/')),
        CommandDirectory::Unknown => return None,
    };
    Some(clash_policy::path::normalise(&dir.join(path)))
}

/// The host and port of an address, also without a scheme.
fn host_of(word: &str) -> Option<(String, u16)> {
    let (scheme, rest) = word.split_once("://").unwrap_or(("http", word));
    let place = rest.split(['/', '?', '#']).next()?;
    let place = place.rsplit_once('@').map_or(place, |(_, place)| place);
    let (host, port) = match place.rsplit_once(':') {
        Some((host, port)) => (host, port.parse().ok()?),
        None => (place, if scheme == "https" { 443 } else { 80 }),
    };
    let is_host = |host: &str| {
        host == "localhost"
            || host.contains('.')
                && host.chars().all(|c| c.is_ascii_alphanumeric() || "-.".contains(c))
    };
    is_host(host).then(|| (host.to_ascii_lowercase(), port))
}
