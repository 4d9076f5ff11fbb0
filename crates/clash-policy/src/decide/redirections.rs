//! The files a script's redirections open. `> ~/.bashrc` is judged like a Write
//! to that path, by the rules about writing and by the sandbox the command runs
//! in, even when the program itself is allowed. Where the shell decides the name,
//! the kernel alone has the say.

use std::path::{Path, PathBuf};

use crate::action::FileUse;
use crate::effect::Caps;
use crate::judge::World;
use crate::path::normalise;
use clash_shell::{Command, Cwd, Redirection, Word};

use super::outputs::outputs;

/// A file that a command opens, and the tool whose rules are about that.
pub(super) struct Opened {
    pub(super) tool: &'static str,
    pub(super) file: FileUse,
    /// As it stands in the script.
    pub(super) shown: String,
}

pub(super) fn opened(command: &Command, world: &World<'_>) -> Vec<Opened> {
    let redirected = command.redirections.iter().filter_map(|one| open(one, command, world));
    let written = outputs(command, world).into_iter().flat_map(|output| {
        let paths = output.paths.unwrap_or_default();
        paths.into_iter().filter_map(move |path| write(&path, &output.shown, world))
    });
    redirected.chain(written).collect()
}

/// Whether a command writes a file whose name is known only when it runs.
pub(super) fn writes_unknown(command: &Command, world: &World<'_>) -> bool {
    let written = command.redirections.iter().filter(|it| it.writes());
    written.filter_map(Redirection::file).any(|to| resolve(to, &command.cwd, world).is_none())
        || outputs(command, world).iter().any(|output| output.paths.is_none())
}

fn open(redirection: &Redirection, command: &Command, world: &World<'_>) -> Option<Opened> {
    let target = redirection.file()?;
    let path = resolve(target, &command.cwd, world)?;
    if is_stream(&path) {
        return None;
    }
    let writes = redirection.writes();
    let (tool, sign, needs) = if writes {
        ("Write", ">", Caps::WRITE.union(Caps::CREATE))
    } else {
        ("Read", "<", Caps::READ)
    };
    let needs = if writes && redirection.reads() { needs.union(Caps::READ) } else { needs };
    let name = match target {
        Word::Home(rest) => format!("~{rest}"),
        other => other.prefix().to_owned(),
    };
    let path = world.links.real(&path);
    let file = FileUse { path, needs, caseless: false };
    Some(Opened { tool, file, shown: format!("{sign} {name}") })
}

/// A file that an option of git names.
fn write(path: &Path, name: &str, world: &World<'_>) -> Option<Opened> {
    let needs = Caps::WRITE.union(Caps::CREATE);
    let file = FileUse { path: world.links.real(path), needs, caseless: false };
    let shown = format!("> {name}");
    (!is_stream(path)).then_some(Opened { tool: "Write", file, shown })
}

fn resolve(target: &Word, cwd: &Cwd, world: &World<'_>) -> Option<PathBuf> {
    resolve_at(target, directory(cwd, world).as_deref(), world)
}

/// The path that a word names in a directory, if both are known.
pub(super) fn resolve_at(target: &Word, base: Option<&Path>, world: &World<'_>) -> Option<PathBuf> {
    let home = |rest: &str| world.places.home.join(rest.trim_start_matches('/'));
    match target {
        Word::Known(path) if path.starts_with('/') => Some(PathBuf::from(path)),
        Word::Known(path) => base.map(|base| base.join(path)),
        Word::Home(rest) => Some(home(rest)),
        Word::Partial(_) | Word::Unknown => None,
    }
}

/// The directory a command runs in, if the script tells.
pub(crate) fn directory(cwd: &Cwd, world: &World<'_>) -> Option<PathBuf> {
    match cwd {
        Cwd::Start => Some(world.cwd.to_path_buf()),
        Cwd::Relative(path) => Some(world.cwd.join(path)),
        Cwd::Absolute(path) => Some(PathBuf::from(path)),
        Cwd::Home(rest) => Some(world.places.home.join(rest.trim_start_matches('/'))),
        Cwd::Unknown => None,
    }
}

/// Devices that are no files: where output goes to be dropped, and the streams a
/// command has anyway.
fn is_stream(path: &Path) -> bool {
    const STREAMS: &[&str] = &[
        "/dev/full",
        "/dev/null",
        "/dev/random",
        "/dev/stderr",
        "/dev/stdin",
        "/dev/stdout",
        "/dev/tty",
        "/dev/urandom",
        "/dev/zero",
    ];
    let path = normalise(path);
    STREAMS.iter().any(|stream| path == Path::new(stream)) || path.starts_with("/dev/fd")
}
