//! Files that options of git name for its output. Git writes any text there
//! (`git log --format=… --output=F`), so they count like redirections.

use std::path::PathBuf;

use crate::judge::JudgeContext;
use clash_shell::{ShellCommand, ShellWord};

use super::redirections::{directory, resolve_at};

/// Options that name a file or a directory for the output. Git accepts every prefix of
/// them too.
const LONG_OUTPUT_OPTIONS: &[&str] = &["output", "output-directory", "export-marks"];

/// Subcommands in which `-o` names the output.
const SHORT_OUTPUT_SUBCOMMANDS: &[&str] =
    &["archive", "bugreport", "diagnose", "format-patch", "index-pack", "mailsplit"];

/// Subcommands without such options. For these, an unknown word names no output.
const SUBCOMMANDS_WITHOUT_OUTPUT: &[&str] = &[
    "add",
    "branch",
    "checkout",
    "cherry-pick",
    "clone",
    "commit",
    "fetch",
    "init",
    "merge",
    "pull",
    "push",
    "rebase",
    "remote",
    "reset",
    "restore",
    "revert",
    "rm",
    "sparse-checkout",
    "submodule",
    "switch",
    "tag",
    "worktree",
];

/// A file that git writes: the word of the script, and its possible paths. `None` if the
/// name is known only when the command runs.
pub(super) struct GitOutput {
    pub(super) shown: String,
    pub(super) paths: Option<Vec<PathBuf>>,
}

/// The files that options and trace variables of a git command name; none for other
/// programs.
pub(super) fn outputs(command: &ShellCommand, context: &JudgeContext<'_>) -> Vec<GitOutput> {
    if !command.words.first().and_then(ShellWord::known).is_some_and(is_git) {
        return Vec::new();
    }
    let args = command.words.get(1..).unwrap_or_default();
    let (base, name, args) = split_git_words(args, directory(&command.cwd, context), context);
    let mut outputs = Vec::new();
    for word in output_words(name, args).into_iter().chain(traces(command)) {
        let paths = match (&word, name) {
            (word, "bisect" | "stash") => resolve_at(word, base.as_deref(), context)
                .map(|_| paths_above(word, base.as_deref(), context)),
            (word, _) => resolve_at(word, base.as_deref(), context).map(|path| vec![path]),
        };
        outputs.push(GitOutput { shown: shown(&word), paths });
    }
    outputs
}

fn is_git(program: &str) -> bool {
    program == "git" || program.ends_with("/git")
}

/// The word for people; only the known part of an unknown word.
fn shown(word: &ShellWord) -> String {
    match word {
        ShellWord::Home(rest) => format!("~{rest}"),
        other => other.prefix().to_owned(),
    }
}

/// The possible paths of an output: these subcommands run git again in the top
/// directory of the repository, which is one of the directories above.
fn paths_above(
    word: &ShellWord,
    base: Option<&std::path::Path>,
    context: &JudgeContext<'_>,
) -> Vec<PathBuf> {
    let project = &context.places.project;
    let above = base.into_iter().flat_map(std::path::Path::ancestors);
    let inside = above.take_while(|dir| dir.starts_with(project));
    let found = inside.chain(base).filter_map(|dir| resolve_at(word, Some(dir), context));
    found.collect()
}

/// The directory in which git works, its subcommand and the words behind that. The
/// directory is `None` and the subcommand empty if the script does not tell them.
fn split_git_words<'c>(
    mut args: &'c [ShellWord],
    mut base: Option<PathBuf>,
    context: &JudgeContext<'_>,
) -> (Option<PathBuf>, &'c str, &'c [ShellWord]) {
    while let Some((word, rest)) = args.split_first() {
        let taken = match word.known() {
            Some("-C") => {
                let to = rest.first();
                base = to.and_then(|to| resolve_at(to, base.as_deref(), context));
                1
            }
            Some("-c" | "--git-dir" | "--work-tree" | "--namespace" | "--attr-source") => 1,
            Some(option) if option.starts_with('-') => 0,
            Some(name) => return (base, name, rest),
            None => return (base, "", args),
        };
        args = rest.get(taken..).unwrap_or_default();
    }
    (base, "", args)
}

/// The words that name an output. `ShellWord::Unknown` stands for one that may be there.
fn output_words(name: &str, args: &[ShellWord]) -> Vec<ShellWord> {
    let hides = !SUBCOMMANDS_WITHOUT_OUTPUT.contains(&name)
        && (name != "stash" || is_stash_listing(args.first()))
        && args.iter().any(|word| word.known().is_none() && may_be_option(word));
    let mut found = if hides { vec![ShellWord::Unknown] } else { Vec::new() };
    let next = |at: usize| args.get(at + 1).cloned();
    for (at, word) in args.iter().enumerate() {
        let text = word.prefix();
        if let Some(long) = text.strip_prefix("--") {
            let (option, value) = match long.split_once('=') {
                Some((option, value)) => (option, Some(value)),
                None => (long, None),
            };
            let is_output =
                !option.is_empty() && LONG_OUTPUT_OPTIONS.iter().any(|it| it.starts_with(option));
            let is_prefix = name == "checkout-index" && "prefix".starts_with(option);
            if is_output || is_prefix {
                found.extend(value.map_or_else(|| next(at), |value| Some(alike(word, value))));
            }
        } else if let Some(short) = text.strip_prefix('-')
            && SHORT_OUTPUT_SUBCOMMANDS.contains(&name)
            && let Some((_, value)) = short.split_once('o')
        {
            let glued = !value.is_empty() || word.known().is_none();
            found.extend(if glued { Some(alike(word, value)) } else { next(at) });
        } else if name == "bundle" && at > 0 {
            found.push(word.clone());
        }
    }
    found.retain(|word| word.known() != Some("-"));
    found
}

/// Files that variables such as `GIT_TRACE` name: git writes its arguments there.
fn traces(command: &ShellCommand) -> impl Iterator<Item = ShellWord> {
    let traced = command.environment.iter().filter(|it| it.name.starts_with("GIT_TRACE"));
    let value = |name: &str| {
        let mut own = command.assignments.iter().rev();
        own.find(|it| it.name == name).map_or(ShellWord::Unknown, |it| it.value.clone())
    };
    let values = traced.map(move |it| value(&it.name));
    // Values other than absolute paths switch tracing on and off.
    values.filter(|value| value.known().is_none_or(|text| text.starts_with('/')))
}

/// True for `git stash list` and `git stash show`, which take the options of `git log`, and
/// if the word may be one of them.
fn is_stash_listing(first: Option<&ShellWord>) -> bool {
    match first {
        Some(ShellWord::Known(first)) => matches!(first.as_str(), "list" | "show"),
        Some(ShellWord::Unknown | ShellWord::Partial(_)) => true,
        Some(ShellWord::Home(_)) | None => false,
    }
}

/// True if an unknown word may be an option that names an output.
fn may_be_option(word: &ShellWord) -> bool {
    match word {
        ShellWord::Unknown => true,
        ShellWord::Partial(start) => start.is_empty() || start == "-" || start == "--",
        ShellWord::Known(_) | ShellWord::Home(_) => false,
    }
}

/// `text` is a part of `word`: known if the word is known.
fn alike(word: &ShellWord, text: &str) -> ShellWord {
    match word {
        ShellWord::Known(_) => ShellWord::Known(text.to_owned()),
        _ => ShellWord::Partial(text.to_owned()),
    }
}
