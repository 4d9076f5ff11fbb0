//! The doors of a sandbox: directories with the program `clash-door` under the names of
//! other programs.
//!
//! A launch only looks the directories up. clash makes them anew if the policy, the
//! search path, the content of a directory on it, or `clash-door` itself has changed. They
//! are in the state directory, where no sandbox can change them.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clash_policy::decide::DecideError;
use clash_policy::doors::{RuledProgram, needs_door, ruled_programs};
use clash_policy::fnv::fnv_hash;
use clash_policy::judge::judge;
use clash_policy::steering::{self, SandboxWidening};
use clash_policy::{Effect, FileCaps, FileUse, JudgeContext, Sandbox};
use clash_sandbox::disk::Disk;
use clash_sandbox::door::{DoorDirectory, PROJECT_DOOR, PROJECT_DOORS};

use crate::decision::readable_in_a_room;
use crate::dirs::{Dirs, create_private, write_private};
use crate::env;
use crate::policy::LoadedPolicy;

/// Directories whose programs get doors even if the search path does not name them.
const SYSTEM_DIRECTORIES: [&str; 5] = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"];

/// The directories of git's own programs, from a directory with `git`.
const GIT_CORE: [&str; 2] = ["../libexec/git-core", "../lib/git-core"];

/// Directories of doors that no list names are removed after this time.
const MAX_UNUSED_TIME: Duration = Duration::from_secs(7 * 24 * 60 * 60);

#[derive(Debug, thiserror::Error)]
pub(crate) enum DoorError {
    #[error(transparent)]
    Policy(#[from] DecideError),
    #[error("the program {} is missing, through which commands run in sandboxes of their own", path.display())]
    Missing { path: PathBuf },
    #[error("cannot make the doors of a sandbox in {}: {source}", path.display())]
    Make { path: PathBuf, source: io::Error },
}

/// The doors of one sandbox.
#[derive(Debug, Default)]
pub(crate) struct DoorSet {
    pub(crate) directories: Vec<DoorDirectory>,
}

impl DoorSet {
    /// The doors of a sandbox on this machine, as its list names them. Makes them anew if the
    /// list is missing or out of date, and only then decodes the policy's sandboxes and looks at
    /// the disk. Fails if the program `clash-door` is missing.
    pub(crate) fn prepare(
        dirs: &Dirs,
        policy: &LoadedPolicy,
        sandbox: &Sandbox,
        is_default: bool,
        project: &Path,
    ) -> Result<Self, DoorError> {
        let all = dirs.doors();
        let list = all.join(list_name(policy, sandbox, is_default));
        if let Some(known) = Self::read(&list) {
            return Ok(known);
        }
        let ruled = ruled_programs(policy.ir())?;
        let is_restricted = |name: &str| {
            ruled.rules_about(name).is_some_and(|rules| rules.strictest > Effect::Allow)
        };
        let sandboxes = policy.owned_sandboxes().map_err(DecideError::from)?;
        let disk = Disk::default();
        let places = dirs.places_unseen(project, &disk);
        let baseline = readable_in_a_room();
        let world = &JudgeContext {
            links: &disk,
            baseline: &baseline,
            ..JudgeContext::without_disk(&places)
        };
        let executable = |path: &Path, rules: &RuledProgram| {
            let named = sandboxes.iter().filter(|other| rules.sandboxes.contains(&other.name));
            std::iter::once(sandbox).chain(named).any(|sandbox| can_execute(sandbox, path, world))
        };
        let names_in = |place: &Path| -> Vec<String> {
            let names = match ruled.has_patterns() {
                true => names_of_files(place),
                false => ruled.named.keys().cloned().collect(),
            };
            let has_door = |name: &String| {
                ruled.rules_about(name).is_some_and(|rules| {
                    needs_door(sandbox, is_default, name, &rules)
                        && executable(&place.join(name), &rules)
                })
            };
            names.into_iter().filter(has_door).collect()
        };
        let git_is_restricted = is_restricted("git");
        let is_line = |path: &String| !path.contains(['\t', '\n']);
        let paths = ruled.door_paths(sandbox, is_default).into_iter().filter(is_line).collect();
        let draft = DoorDraft {
            all: &all,
            list: &list,
            home: &dirs.home,
            git_is_restricted,
            names_in: &names_in,
            paths,
        };
        draft.make().map_err(|source| match door_program() {
            program if !program.exists() => DoorError::Missing { path: program },
            _ => DoorError::Make { path: all.clone(), source },
        })
    }

    /// The name of the program at a path that has a door.
    pub(crate) fn name_at(&self, path: &Path) -> Option<&str> {
        let (parent, name) = (path.parent()?, path.file_name()?.to_str()?);
        let directory = self.directories.iter().find(|directory| directory.at == parent)?;
        directory.names.iter().find(|known| *known == name).map(String::as_str)
    }

    /// Puts each directory of doors on the search path, in front of the directory that it
    /// belongs to. The same for git, which prefers its own programs.
    pub(crate) fn put_on_path(&self, variables: &mut [(OsString, OsString)]) {
        let Some((_, path)) = variables.iter_mut().find(|(name, _)| name == env::PATH) else {
            return;
        };
        let mut with_doors: Vec<PathBuf> = Vec::new();
        for place in std::env::split_paths(&*path) {
            let real = fs::canonicalize(&place).unwrap_or_default();
            let doors = self.directories.iter().find(|directory| directory.at == real);
            with_doors.extend(doors.map(|directory| directory.on_path.clone()));
            with_doors.push(place);
        }
        if let Ok(joined) = std::env::join_paths(with_doors) {
            *path = joined;
        }
    }

    /// The directory with doors that git takes for the directory of its own programs.
    pub(crate) fn git_core(&self) -> Option<&Path> {
        let of_git = |directory: &&DoorDirectory| is_git_core(&directory.at);
        self.directories.iter().find(of_git).map(|directory| directory.on_path.as_path())
    }

    /// Reads a list. `None` if there is none, or if a path that it was made from has changed.
    fn read(list: &Path) -> Option<Self> {
        let unchanged = |path: &str, stamp: &str| path_stamp(Path::new(path)) == stamp;
        Self::parse(list, &fs::read_to_string(list).ok()?, unchanged)
    }

    /// The doors of a list with this text. `None` if the text is not a list, or if `is_valid`
    /// refuses a path with its stamp.
    fn parse(list: &Path, text: &str, is_valid: impl Fn(&str, &str) -> bool) -> Option<Self> {
        let mut set = Self::default();
        for line in text.lines() {
            let mut words = line.split('\t');
            match words.next()? {
                STAMPED => {
                    let (stamp, path) = (words.next()?, words.next()?);
                    if !is_valid(path, stamp) {
                        return None;
                    }
                }
                DOORS => {
                    let doors = list.with_file_name(words.next()?);
                    let at = PathBuf::from(words.next()?);
                    let names = words.map(str::to_owned).collect();
                    let on_path = doors_on_path(&doors, &at);
                    let paths = Vec::new();
                    set.directories.push(DoorDirectory { at, doors, on_path, names, paths });
                }
                PATHS => {
                    let directory = set.directories.last_mut()?;
                    directory.paths = words.map(str::to_owned).collect();
                }
                _ => return None,
            }
        }
        Some(set)
    }
}

/// The first words of the lines of a list.
const STAMPED: &str = "stamp";
const DOORS: &str = "doors";
/// The paths of the project whose door is in the directory of the line before.
const PATHS: &str = "paths";

/// Doors that are about to be made.
struct DoorDraft<'a> {
    all: &'a Path,
    list: &'a Path,
    home: &'a Path,
    git_is_restricted: bool,
    names_in: &'a dyn Fn(&Path) -> Vec<String>,
    /// As [`DoorDirectory::paths`].
    paths: Vec<String>,
}

impl DoorDraft<'_> {
    /// Makes the doors in a new directory, and then the list, which names the directory. If a
    /// program directory changes meanwhile, these doors serve this launch, and the stamps of
    /// the list let the next launch make new ones.
    fn make(self) -> io::Result<DoorSet> {
        create_private(self.all)?;
        remove_unused(self.all);
        let program = door_program();
        let mut list = format!("{STAMPED}\t{}\t{}\n", path_stamp(&program), program.display());
        let own = format!("{:x}.{}", fnv_hash(now().as_bytes()), std::process::id());
        create_private(&self.all.join(&own))?;
        let mut known: Vec<PathBuf> = Vec::new();
        for path in search_directories(self.home) {
            let is_text = path.to_str().is_some_and(|text| !text.contains(['\t', '\n']));
            if !is_text {
                continue;
            }
            let _ = writeln!(list, "{STAMPED}\t{}\t{}", path_stamp(&path), path.display());
            let Ok(place) = fs::canonicalize(&path) else { continue };
            if known.contains(&place) {
                continue;
            }
            let found = programs(&place, &(self.names_in)(&place), self.git_is_restricted);
            if let Some(first) = found.first() {
                let below = format!("{own}/{}", known.len());
                let doors = self.all.join(&below);
                let on_path = doors_on_path(&doors, &place);
                for doors in if on_path == doors { vec![&doors] } else { vec![&doors, &on_path] } {
                    fs::create_dir(doors)?;
                    fs::set_permissions(doors, fs::Permissions::from_mode(0o755))?;
                    for name in &found {
                        link(&program, &doors.join(name), &doors.join(first))?;
                    }
                }
                if on_path != doors {
                    link_others(&place, &on_path)?;
                }
                let place = place.display();
                let _ = writeln!(list, "{DOORS}\t{below}\t{place}\t{}", found.join("\t"));
            }
            known.push(place);
        }
        if !self.paths.is_empty() {
            let below = format!("{own}/project");
            let doors = self.all.join(&below);
            fs::create_dir(&doors)?;
            fs::set_permissions(&doors, fs::Permissions::from_mode(0o755))?;
            let door = doors.join(PROJECT_DOOR);
            link(&program, &door, &door)?;
            let _ = writeln!(list, "{DOORS}\t{below}\t{PROJECT_DOORS}\t{PROJECT_DOOR}");
            let _ = writeln!(list, "{PATHS}\t{}", self.paths.join("\t"));
        }
        write_private(self.list, list.as_bytes())?;
        DoorSet::parse(self.list, &list, |_, _| true)
            .ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

/// The directory of doors for the search path. That of git's own programs is another one,
/// because git finds all of its programs there.
fn doors_on_path(doors: &Path, place: &Path) -> PathBuf {
    if is_git_core(place) { doors.with_extension("complete") } else { doors.to_path_buf() }
}

/// Links to the programs of a directory that have no doors.
fn link_others(place: &Path, doors: &Path) -> io::Result<()> {
    for entry in fs::read_dir(place)?.flatten() {
        let at = doors.join(entry.file_name());
        if fs::symlink_metadata(&at).is_err() {
            std::os::unix::fs::symlink(entry.path(), at)?;
        }
    }
    Ok(())
}

/// Takes the doors of an outer command off the search path.
pub(crate) fn take_off_path(dirs: &Dirs, variables: &mut Vec<(OsString, OsString)>) {
    let all = dirs.doors();
    variables
        .retain(|(name, value)| name != env::GIT_EXEC_PATH || !Path::new(value).starts_with(&all));
    for (_, path) in variables.iter_mut().filter(|(name, _)| name == env::PATH) {
        let others = std::env::split_paths(&*path).filter(|place| !place.starts_with(&all));
        if let Ok(joined) = std::env::join_paths(others.collect::<Vec<_>>()) {
            *path = joined;
        }
    }
}

/// Removes old directories of doors that no list names.
fn remove_unused(all: &Path) {
    let entries: Vec<PathBuf> =
        fs::read_dir(all).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    let lists = entries.iter().filter(|path| path.is_file());
    let lists: Vec<String> = lists.filter_map(|path| fs::read_to_string(path).ok()).collect();
    for dir in entries.iter().filter(|path| path.is_dir()) {
        let name = dir.file_name().map(|name| format!("\t{}/", name.to_string_lossy()));
        let is_named = name.is_some_and(|name| lists.iter().any(|list| list.contains(&name)));
        let age = fs::metadata(dir).and_then(|meta| meta.modified()).map(|time| time.elapsed());
        let is_old = matches!(age, Ok(Ok(age)) if age > MAX_UNUSED_TIME);
        if is_old && !is_named {
            let _ = fs::remove_dir_all(dir);
        }
    }
}

fn now() -> String {
    format!("{:?}", std::time::SystemTime::now())
}

/// True if a sandbox may execute a program. A door to a program that no sandbox of its rules
/// may execute would hide another program of its name behind it on the search path.
fn can_execute(sandbox: &Sandbox, path: &Path, world: &JudgeContext<'_>) -> bool {
    let file = FileUse { path: path.to_path_buf(), needs: FileCaps::EXECUTE, caseless: false };
    judge(sandbox, &file, world).is_ok_and(|verdict| verdict.effect == Effect::Allow)
}

/// Gives `clash-door` another name: by a hard link, or by one copy for each directory. Inside
/// an agent's room, no hard link leads to another directory.
fn link(program: &Path, to: &Path, first: &Path) -> io::Result<()> {
    if fs::hard_link(program, to).is_ok() {
        return Ok(());
    }
    if to == first { fs::copy(program, to).map(drop) } else { fs::hard_link(first, to) }
}

/// The programs of these names in a directory. In the directory of git's own programs, also
/// all other names of git, for example `git-push`, if rules restrict git.
fn programs(place: &Path, names: &[String], git_is_restricted: bool) -> Vec<String> {
    let is_program = |name: &&String| {
        let found = fs::metadata(place.join(name));
        found.is_ok_and(|meta| meta.is_file() && meta.mode() & 0o111 != 0)
    };
    let mut found: Vec<String> = names.iter().filter(is_program).cloned().collect();
    if is_git_core(place) {
        if !git_is_restricted || !found.iter().any(|name| name == "git") {
            return Vec::new();
        }
        let entries = fs::read_dir(place).into_iter().flatten().flatten();
        let others = entries.filter_map(|entry| entry.file_name().into_string().ok());
        found.extend(others.filter(|name| is_git_builtin(place, name)));
    }
    found
}

fn is_git_core(dir: &Path) -> bool {
    dir.file_name().is_some_and(|name| name == "git-core")
}

/// True if `git-push` and its like are git itself under another name.
fn is_git_builtin(dir: &Path, name: &str) -> bool {
    let identity = |name: &str| fs::metadata(dir.join(name)).map(|meta| (meta.dev(), meta.ino()));
    // A program of its own that pushes.
    name == "git-http-push"
        || name.starts_with("git-")
            && matches!((identity("git"), identity(name)), (Ok(a), Ok(b)) if a == b)
}

/// The names of the files of a directory.
fn names_of_files(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// The directories of the search path, of the system, and of toolchains in the home. They may
/// not exist.
fn search_directories(home: &Path) -> Vec<PathBuf> {
    let mut places: Vec<PathBuf> = Vec::new();
    let named = env::path_list().into_iter().chain(SYSTEM_DIRECTORIES.map(PathBuf::from));
    for path in named.chain(toolchain_directories(home)) {
        let of_git = GIT_CORE.map(|below| path.join(below));
        // Of git's directories, only those that exist.
        let of_git = of_git.into_iter().filter(|path| path.is_dir());
        for place in std::iter::once(path.clone()).chain(of_git) {
            if place.is_absolute() && !places.contains(&place) {
                places.push(place);
            }
        }
    }
    places
}

/// The programs of version managers, below the home; `*` stands for all versions. The
/// interpreter of a virtual environment is one of them, although the search path may name
/// only the version manager.
const TOOLCHAINS: [&str; 11] = [
    ".asdf/installs/*/*/bin",
    ".cargo/bin",
    ".local/share/fnm/node-versions/*/installation/bin",
    ".local/share/mise/installs/*/*/bin",
    ".local/share/uv/python/*/bin",
    ".nvm/versions/node/*/bin",
    ".pyenv/versions/*/bin",
    ".rbenv/versions/*/bin",
    ".rustup/toolchains/*/bin",
    ".sdkman/candidates/*/*/bin",
    ".volta/bin",
];

/// Directories of toolchains, at most. clash looks at each when a command starts.
const MAX_TOOLCHAINS: usize = 64;

/// The directories with programs of version managers, and the directories of versions, which
/// change if a version is added.
fn toolchain_directories(home: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for pattern in TOOLCHAINS {
        let mut places = vec![home.to_path_buf()];
        for part in pattern.split('/') {
            let mut next = Vec::new();
            for place in places {
                if part != "*" {
                    next.push(place.join(part));
                    continue;
                }
                next.extend(names_of_files(&place).iter().map(|name| place.join(name)));
                found.push(place);
            }
            places = next;
        }
        found.extend(places.into_iter().filter(|place| place.is_dir()));
    }
    found.truncate(MAX_TOOLCHAINS);
    found
}

/// The state of a path. It changes if a directory gets another entry.
fn path_stamp(path: &Path) -> String {
    match fs::metadata(path) {
        Ok(meta) => {
            let (seconds, nanoseconds) = (meta.mtime(), meta.mtime_nsec());
            format!("{}:{}:{}:{seconds}:{nanoseconds}", meta.dev(), meta.ino(), meta.size())
        }
        Err(_) => "-".to_owned(),
    }
}

/// The name of the list of a sandbox.
fn list_name(policy: &LoadedPolicy, sandbox: &Sandbox, is_default: bool) -> String {
    let mut text = format!("{:?} {} {is_default}", policy.ir().digest(), sandbox.name);
    let _ = write!(text, " {:?} {:?} {:?}", sandbox.doors, env::path_list(), door_program());
    format!("{:016x}", fnv_hash(text.as_bytes()))
}

/// The program `clash-door`, beside this one.
pub(crate) fn door_program() -> PathBuf {
    let beside = |own: PathBuf| own.with_file_name("clash-door");
    std::env::current_exe().map(beside).unwrap_or_default()
}

/// A door that a sandbox names, and a sandbox behind it.
#[derive(Debug)]
pub(crate) struct NamedDoor {
    pub(crate) program: String,
    pub(crate) room: Sandbox,
    pub(crate) behind: String,
    /// The rights that the sandbox behind the door adds.
    pub(crate) widening: Option<SandboxWidening>,
}

/// The doors that the sandboxes of a policy name.
pub(crate) fn named_doors(
    dirs: &Dirs,
    policy: &LoadedPolicy,
) -> Result<Vec<NamedDoor>, DecideError> {
    let ruled = ruled_programs(policy.ir())?;
    let sandboxes = policy.owned_sandboxes()?;
    let disk = Disk::default();
    // The rights of a sandbox to credentials do not depend on the project.
    let places = dirs.places_unseen(Path::new("/"), &disk);
    let world = JudgeContext { links: &disk, ..JudgeContext::without_disk(&places) };
    let mut doors = Vec::new();
    for room in &sandboxes {
        for program in &room.doors {
            let Some(rules) = ruled.rules_about(program) else { continue };
            for behind in sandboxes.iter().filter(|it| rules.sandboxes.contains(&it.name)) {
                doors.push(NamedDoor {
                    program: program.clone(),
                    room: room.clone(),
                    behind: behind.name.clone(),
                    widening: steering::widening(behind, room, &world),
                });
            }
        }
    }
    Ok(doors)
}

/// The words that the policy judges: `git-push x` is `git push x`.
pub(crate) fn judged_name<'a>(at: &Path, name: &'a str) -> Vec<&'a str> {
    match name.strip_prefix("git-").filter(|_| at.parent().is_some_and(is_git_core)) {
        Some(subcommand) => vec!["git", subcommand],
        None => vec![name],
    }
}
