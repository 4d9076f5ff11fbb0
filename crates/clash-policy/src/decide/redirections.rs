//! The files a script's redirections open. `> ~/.bashrc` is judged like a Write to that
//! path, by the rules about writing and by the sandbox the command runs in, even when the
//! program itself is allowed. Files that options of git name count too. If only the shell
//! knows the name, only the kernel decides.

use std::path::{Path, PathBuf};

use crate::action::FileUse;
use crate::effect::FileCaps;
use crate::judge::JudgeContext;
use crate::path::normalise;
use clash_shell::{CommandDirectory, Redirection, ShellCommand, ShellWord};

use super::outputs::outputs;

/// A file that a command opens, and the file tool whose rules apply.
pub(super) struct OpenedFile {
    pub(super) tool: &'static str,
    pub(super) file: FileUse,
    /// The redirection, for people.
    pub(super) shown: String,
}

/// The files that a command opens by redirections and by options of git, with their real
/// paths. Streams such as `/dev/null` and files with unknown names are left out.
pub(super) fn opened(command: &ShellCommand, context: &JudgeContext<'_>) -> Vec<OpenedFile> {
    let redirected =
        command.redirections.iter().filter_map(|one| opened_by_redirection(one, command, context));
    let written = outputs(command, context).into_iter().flat_map(|output| {
        let paths = output.paths.unwrap_or_default();
        paths.into_iter().filter_map(move |path| opened_by_git(&path, &output.shown, context))
    });
    redirected.chain(written).collect()
}

/// True if a command writes a file whose name is known only when it runs.
pub(super) fn writes_unknown(command: &ShellCommand, context: &JudgeContext<'_>) -> bool {
    let written = command.redirections.iter().filter(|it| it.writes());
    written.filter_map(Redirection::file).any(|to| resolve(to, &command.cwd, context).is_none())
        || outputs(command, context).iter().any(|output| output.paths.is_none())
}

/// `None` for a stream, for an unknown name, and for a redirection without a file.
fn opened_by_redirection(
    redirection: &Redirection,
    command: &ShellCommand,
    context: &JudgeContext<'_>,
) -> Option<OpenedFile> {
    let target = redirection.file()?;
    let path = resolve(target, &command.cwd, context)?;
    if is_stream(&path) {
        return None;
    }
    let writes = redirection.writes();
    let (tool, sign, needs) = if writes {
        ("Write", ">", FileCaps::WRITE.union(FileCaps::CREATE))
    } else {
        ("Read", "<", FileCaps::READ)
    };
    let needs = if writes && redirection.reads() { needs.union(FileCaps::READ) } else { needs };
    let name = match target {
        ShellWord::Home(rest) => format!("~{rest}"),
        other => other.prefix().to_owned(),
    };
    let path = context.links.real(&path);
    let file = FileUse { path, needs, caseless: false };
    Some(OpenedFile { tool, file, shown: format!("{sign} {name}") })
}

/// A file that an option of git names; `None` for a stream.
fn opened_by_git(path: &Path, name: &str, context: &JudgeContext<'_>) -> Option<OpenedFile> {
    let needs = FileCaps::WRITE.union(FileCaps::CREATE);
    let file = FileUse { path: context.links.real(path), needs, caseless: false };
    let shown = format!("> {name}");
    (!is_stream(path)).then_some(OpenedFile { tool: "Write", file, shown })
}

/// The path that a word names in the directory of a command, if both are known.
fn resolve(
    target: &ShellWord,
    cwd: &CommandDirectory,
    context: &JudgeContext<'_>,
) -> Option<PathBuf> {
    resolve_at(target, directory(cwd, context).as_deref(), context)
}

/// The path that a word names. A relative path is below `base`; without one it is unknown. A
/// path that begins with `~/` is below the home. `None` too if the word's value is not known.
/// Links and `..` stay as they are.
pub(super) fn resolve_at(
    target: &ShellWord,
    base: Option<&Path>,
    context: &JudgeContext<'_>,
) -> Option<PathBuf> {
    let home = |rest: &str| context.places.home.join(rest.trim_start_matches('/'));
    match target {
        ShellWord::Known(path) if path.starts_with('/') => Some(PathBuf::from(path)),
        ShellWord::Known(path) => base.map(|base| base.join(path)),
        ShellWord::Home(rest) => Some(home(rest)),
        ShellWord::Partial(_) | ShellWord::Unknown => None,
    }
}

/// The directory a command runs in, if it is known.
pub(crate) fn directory(cwd: &CommandDirectory, context: &JudgeContext<'_>) -> Option<PathBuf> {
    match cwd {
        CommandDirectory::Start => Some(context.cwd.to_path_buf()),
        CommandDirectory::Relative(path) => Some(context.cwd.join(path)),
        CommandDirectory::Absolute(path) => Some(PathBuf::from(path)),
        CommandDirectory::Home(rest) => {
            Some(context.places.home.join(rest.trim_start_matches('/')))
        }
        CommandDirectory::Unknown => None,
    }
}

/// Devices that need no rule: sinks such as `/dev/null`, and the streams that a command
/// already has.
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
