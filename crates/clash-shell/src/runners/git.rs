//! The commands that git runs: aliases, and programs named by options and settings.

use super::super::ShellWord;
use super::{InnerCommand, RunnerCommands};

const SETTING: &str = "a setting of git names a program";

/// Subcommands that are part of git; every other word is an alias or a separate
/// program. Subcommands that reach a remote in a way of their own, for example `svn`,
/// are left out on purpose.
#[rustfmt::skip]
const SUBCOMMANDS: &[&str] = &[
    "add", "am", "annotate", "apply", "archive", "bisect", "blame", "branch", "bundle", "cat-file",
    "check-attr", "check-ignore", "check-mailmap", "check-ref-format", "checkout",
    "checkout-index", "cherry", "cherry-pick", "clean", "clone", "column", "commit",
    "commit-graph", "commit-tree", "config", "count-objects", "describe", "diff", "diff-files",
    "diff-index", "diff-tree", "difftool", "fetch", "fmt-merge-msg", "for-each-ref",
    "format-patch", "fsck", "gc", "get-tar-commit-id", "grep", "hash-object", "help", "index-pack",
    "init", "interpret-trailers", "lfs", "log", "ls-files", "ls-remote", "ls-tree", "mailinfo",
    "maintenance", "merge", "merge-base", "merge-file", "merge-tree", "mktag", "mktree",
    "multi-pack-index", "mv", "name-rev", "notes", "pack-objects", "pack-refs", "patch-id",
    "prune", "pull", "push", "range-diff", "read-tree", "rebase", "reflog", "remote", "repack",
    "replace", "request-pull", "rerere", "reset", "restore", "rev-list", "rev-parse", "revert",
    "rm", "sh-i18n--envsubst", "shortlog", "show", "show-branch", "show-index", "show-ref",
    "sparse-checkout", "stage", "stash", "status", "stripspace", "submodule",
    "submodule--helper", "switch", "symbolic-ref", "tag", "unpack-file",
    "unpack-objects", "update-index", "update-ref", "update-server-info", "upload-archive",
    "upload-pack", "var", "verify-commit",
    "verify-pack", "verify-tag", "version", "whatchanged", "worktree", "write-tree",
];

/// Settings that name no program, by their section or whole name.
#[rustfmt::skip]
const PLAIN_SECTIONS: &[&str] = &[
    "advice", "apply", "blame", "branch", "checkout", "color", "column", "commit", "feature",
    "fetch", "gc", "grep", "help", "index", "log", "pack", "pull", "push", "rebase", "receive",
    "rerere", "safe", "stash", "status", "tag", "transfer", "user", "versionsort", "worktree",
];
#[rustfmt::skip]
const PLAIN_SETTINGS: &[&str] = &[
    "core.abbrev", "core.autocrlf", "core.bare", "core.commentchar", "core.compression",
    "core.eol", "core.filemode", "core.ignorecase", "core.longpaths", "core.precomposeunicode",
    "core.preloadindex", "core.quotepath", "core.safecrlf", "core.symlinks", "core.untrackedcache",
    "core.whitespace", "diff.algorithm", "diff.colormoved", "diff.context", "diff.ignoresubmodules",
    "diff.mnemonicprefix", "diff.noprefix", "diff.renamelimit", "diff.renames", "diff.submodule",
    "format.pretty", "http.lowspeedlimit", "http.lowspeedtime", "http.postbuffer", "http.version",
    "init.defaultbranch", "merge.conflictstyle", "merge.ff", "merge.renamelimit",
    "protocol.version", "submodule.recurse", "tag.gpgsign",
];
/// Settings whose value is a command.
const COMMAND_SETTINGS: &[&str] = &[
    "core.askpass",
    "core.editor",
    "core.pager",
    "core.sshcommand",
    "diff.external",
    "sequence.editor",
    "interactive.difffilter",
];

/// A text that git gives to a shell.
fn command_text(text: &str) -> InnerCommand {
    InnerCommand::Text { text: text.to_owned(), args: None, plain: true }
}

/// A text that git gives to a shell together with its arguments.
fn text_with_arguments(text: &str, args: &[ShellWord]) -> InnerCommand {
    let text = if args.is_empty() { text.to_owned() } else { format!("{text} \"$@\"") };
    InnerCommand::Text { text, args: Some(args.to_vec()), plain: true }
}

/// The commands that git runs, and the directory of `-C`; `None` if there is neither. A
/// subcommand that is not part of git is hidden, and so is a setting that may name a
/// program.
pub(super) fn look_through_git(args: &[ShellWord]) -> Option<RunnerCommands> {
    let mut through = RunnerCommands::new("git");
    let mut aliases: Vec<(String, String)> = Vec::new();
    let mut args = args;
    loop {
        let Some((word, rest)) = args.split_first() else { return unless_empty(through) };
        let Some(option) = word.known() else {
            // The unknown word may be a subcommand or an option.
            return unless_empty(through);
        };
        let value = rest.first();
        let mut taken = 1;
        match option {
            "-c" => {
                taken = 2;
                add_setting(value, &mut through, &mut aliases);
            }
            "-C" => {
                taken = 2;
                through.directory = value.cloned();
            }
            "--git-dir" | "--work-tree" | "--namespace" | "--super-prefix" | "--attr-source" => {
                taken = 2;
            }
            "--config-env" => return Some(through.hidden(SETTING)),
            _ if !option.starts_with('-') => break,
            _ if option.starts_with("--exec-path=") || option.starts_with("--config-env=") => {
                return Some(through.hidden(SETTING));
            }
            _ => {}
        }
        if taken == 2 && !value.is_some_and(ShellWord::is_one) {
            return Some(through.hidden("an option of git is not known"));
        }
        args = rest.get(taken - 1..).unwrap_or_default();
    }
    let (subcommand, rest) = args.split_first()?;
    let name = subcommand.known()?;
    if let Some((_, value)) = aliases.iter().rev().find(|(alias, _)| alias == name) {
        match value.strip_prefix('!') {
            Some(command) => through.inner.push(text_with_arguments(command, rest)),
            None if value.contains(['"', '\'', '\\']) => {
                through = through.hidden("an alias of git is not plain");
            }
            None => {
                let mut words = vec![ShellWord::Known("git".to_owned())];
                words
                    .extend(value.split_ascii_whitespace().map(|w| ShellWord::Known(w.to_owned())));
                words.extend_from_slice(rest);
                through.inner.push(InnerCommand::program(&words));
            }
        }
        return Some(through);
    }
    if let Some(pushed) = pushed_words(name, rest) {
        let git_push = ["git", "push"].map(|word| ShellWord::Known(word.to_owned()));
        let words = git_push.iter().chain(pushed).cloned();
        through.inner.push(InnerCommand::program(&words.collect::<Vec<_>>()));
        return Some(through);
    }
    if SUBCOMMANDS.binary_search(&name).is_err() {
        return Some(through.hidden("git runs an alias or another program"));
    }
    add_subcommand_programs(name, rest, &mut through);
    unless_empty(through)
}

/// The arguments of a subcommand that sends commits to a remote as `git push` does. A rule
/// about `push` holds for it.
fn pushed_words<'a>(name: &str, args: &'a [ShellWord]) -> Option<&'a [ShellWord]> {
    let verbs: &[&str] = match name {
        "send-pack" | "http-push" => return Some(args),
        "subtree" | "lfs" => &["push"],
        "svn" => &["branch", "commit-diff", "dcommit", "set-tree", "tag"],
        "p4" => &["submit"],
        "cvsexportcommit" => return Some(args),
        _ => return None,
    };
    let at = args.iter().position(|word| word.known().is_none_or(|text| verbs.contains(&text)))?;
    args.get(at + 1..)
}

/// `None` if git runs no other command and stays in its directory.
fn unless_empty(through: RunnerCommands) -> Option<RunnerCommands> {
    (!through.inner.is_empty() || through.directory.is_some()).then_some(through)
}

/// Adds `name=value` as given with `-c`: an alias, a command, or a hidden command if the
/// setting is neither plain nor known.
fn add_setting(
    word: Option<&ShellWord>,
    through: &mut RunnerCommands,
    aliases: &mut Vec<(String, String)>,
) {
    let prefix = word.map(ShellWord::prefix).unwrap_or_default();
    let (name, value) = match (prefix.split_once('='), word) {
        (Some((name, value)), Some(ShellWord::Known(_))) => (name, Some(value)),
        (Some((name, _)), _) => (name, None),
        (None, Some(ShellWord::Known(name))) => (name.as_str(), Some("true")),
        (None, _) => return through.inner.push(InnerCommand::Hidden(SETTING)),
    };
    let name = name.to_ascii_lowercase();
    match (name.strip_prefix("alias."), value) {
        (Some(alias), Some(value)) => return aliases.push((alias.to_owned(), value.to_owned())),
        (Some(_), None) => return through.inner.push(InnerCommand::Hidden(SETTING)),
        (None, _) => {}
    }
    if is_plain(&name) {
        return;
    }
    let command = COMMAND_SETTINGS.contains(&name.as_str()) || name.starts_with("pager.");
    match value {
        Some("" | "true" | "false") if command || name == "core.fsmonitor" => {}
        Some(value) if command => through.inner.push(command_text(value)),
        _ => through.inner.push(InnerCommand::Hidden(SETTING)),
    }
}

/// True if a setting of git, in lower case, is on the lists of those that name no program.
/// A name that ends in `hook` never is.
pub(in super::super) fn is_plain(name: &str) -> bool {
    let section = name.split('.').next().unwrap_or_default();
    let plain = PLAIN_SETTINGS.contains(&name) || PLAIN_SECTIONS.contains(&section);
    // `gc.recentObjectsHook`
    plain && !name.ends_with("hook")
}

/// True if a word is a long option or a prefix of it, which git accepts too.
fn is_option(word: &ShellWord, option: &str) -> bool {
    let name = word.prefix().split('=').next().unwrap_or_default();
    name.len() > 2 && name.starts_with("--") && option.starts_with(name)
}

/// Adds the programs that options of a subcommand name.
fn add_subcommand_programs(name: &str, args: &[ShellWord], through: &mut RunnerCommands) {
    const NAMES_PROGRAM: &str = "an option of git names a program";
    let has = |option: &str| args.iter().any(|word| is_option(word, option));
    let short = |letter: char| {
        args.iter().any(|word| {
            let text = word.prefix();
            text.starts_with('-') && !text.starts_with("--") && text.contains(letter)
        })
    };
    let rest_of = |word: &str| {
        let at = args.iter().position(|arg| arg.known() == Some(word))?;
        args.get(at + 1..)
    };
    match name {
        "rebase" if has("--exec") || short('x') => {
            let exact = args.iter().position(|w| matches!(w.known(), Some("--exec" | "-x")));
            let value = exact.and_then(|at| args.get(at + 1)).and_then(ShellWord::known);
            let only =
                args.iter().filter(|w| is_option(w, "--exec") || w.prefix().starts_with("-x"));
            match value {
                Some(text) if only.count() == 1 => through.inner.push(command_text(text)),
                _ => through.inner.push(InnerCommand::Hidden(NAMES_PROGRAM)),
            }
        }
        "bisect" => {
            if let Some(words) = rest_of("run").filter(|words| !words.is_empty()) {
                through.inner.push(InnerCommand::program(words));
                through.inner.push(InnerCommand::Hidden("git runs a text through a shell"));
            }
        }
        "submodule" => {
            if let Some(words) = rest_of("foreach") {
                through.inner.extend(foreach(words));
            }
        }
        "difftool" if has("--extcmd") || short('x') => {
            through.inner.push(InnerCommand::Hidden(NAMES_PROGRAM))
        }
        "grep" if has("--open-files-in-pager") || short('O') => {
            through.inner.push(InnerCommand::Hidden(NAMES_PROGRAM));
        }
        "fetch" | "pull" | "ls-remote" | "clone" | "archive" | "push" | "fetch-pack" | "remote" => {
            let options = ["--upload-pack", "--receive-pack", "--exec"];
            let named = options.iter().any(|option| has(option));
            let clone = name == "clone"
                && (has("--config") || has("--template") || short('u') || short('c'));
            let remote = args.iter().any(|word| word.prefix().contains("::"));
            if named || clone || remote {
                through.inner.push(InnerCommand::Hidden(NAMES_PROGRAM));
            }
        }
        "init" if has("--template") => through.inner.push(InnerCommand::Hidden(NAMES_PROGRAM)),
        "config" => add_config(args, through),
        _ => {}
    }
}

/// The command of `git submodule foreach`. Git gives a first word that is no plain
/// name, such as `'make -j'`, to a shell.
fn foreach(words: &[ShellWord]) -> Option<InnerCommand> {
    let option = |word: &&ShellWord| matches!(word.known(), Some("--recursive" | "-q" | "--quiet"));
    let words: Vec<ShellWord> = words.iter().filter(|word| !option(word)).cloned().collect();
    let (first, rest) = words.split_first()?;
    let is_name = |text: &str| text.chars().all(|c| c.is_alphanumeric() || "./_-".contains(c));
    match first.known() {
        Some(text) if !is_name(text) => Some(text_with_arguments(text, rest)),
        _ => Some(InnerCommand::program(&words)),
    }
}

/// Adds a hidden command if `git config` sets a value that is not plain: it affects every
/// later git command. Reading and removing settings adds nothing.
fn add_config(args: &[ShellWord], through: &mut RunnerCommands) {
    #[rustfmt::skip]
    const READS: &[&str] = &[
        "-l", "--list", "--get", "--get-all", "--get-regexp", "--get-urlmatch", "--unset",
        "--unset-all", "--remove-section", "list", "get", "unset", "--show-origin",
    ];
    if args.iter().any(|word| word.known().is_some_and(|word| READS.contains(&word))) {
        return;
    }
    let operand =
        |word: &&ShellWord| !word.prefix().starts_with('-') && word.known() != Some("set");
    let mut operands = args.iter().filter(operand);
    let name =
        operands.next().map(|word| (word.known().map(str::to_ascii_lowercase), operands.next()));
    match name {
        None | Some((Some(_), None)) => {}
        Some((Some(name), Some(_))) if is_plain(&name) => {}
        _ => through.inner.push(InnerCommand::Hidden(SETTING)),
    }
}
