//! Commands that start no program and therefore need no decision.

use super::programs::program_name;
use super::read::is_name;
use super::{ShellCommand, ShellWord};

/// True if a command starts no program: assignments alone, a builtin that does not evaluate
/// its arguments (`echo $x`), or a wrapper whose commands are all in the list (`timeout 5
/// echo hi`). Such a command needs no decision unless a rule names it, because the shell in
/// the room can touch the same files. An opaque command is never inert. Files of
/// redirections do not count here.
pub fn is_inert(command: &ShellCommand) -> bool {
    // These take every word as text.
    const ANY_WORDS: &[&str] = &[
        ":", "bg", "break", "cd", "continue", "dirs", "disown", "echo", "exit", "false", "fg",
        "jobs", "kill", "popd", "pushd", "pwd", "return", "set", "shift", "times", "true", "type",
        "ulimit", "umask",
    ];
    // These evaluate a subscript in a name (`read 'a[$(cmd)]'` runs cmd), so every word
    // must be known to have none.
    const KNOWN_WORDS: &[&str] = &[
        "alias", "declare", "export", "getopts", "hash", "local", "readonly", "shopt", "trap",
        "typeset", "unalias", "unset", "wait",
    ];
    if command.opaque.is_some() {
        return false;
    }
    let Some((first, rest)) = command.words.split_first() else { return true };
    if command.transparent {
        return first.known().and_then(program_name).is_some();
    }
    let Some(program) = first.known() else { return false };
    match program {
        "[" | "test" => compares_only(rest),
        "printf" => prints_only(rest),
        "read" | "mapfile" | "readarray" => reads_only(rest),
        _ if ANY_WORDS.contains(&program) => true,
        _ if KNOWN_WORDS.contains(&program) => rest.iter().all(|word| {
            // A value behind a plain name is only a value.
            let prefix = word.prefix();
            let name = prefix.split_once('=').map_or(prefix, |(name, _)| name);
            let assigns = prefix.contains('=') && is_name(name.trim_end_matches('+'));
            (word.known().is_some() && !name.contains('[')) || (assigns && word.is_one())
        }),
        _ => false,
    }
}

/// True for `source .venv/bin/activate`: the script of a virtual environment, which changes
/// variables of the shell. The path has only plain characters and nothing follows it. The
/// content of the file is not known.
pub fn activates_environment(command: &ShellCommand) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"./_-~".contains(&byte);
    let mut words = command.text.split_ascii_whitespace();
    command.opaque.is_some()
        && matches!(words.next(), Some("source" | "."))
        && words
            .next()
            .is_some_and(|path| path.ends_with("/bin/activate") && path.bytes().all(is_plain))
        && words.next().is_none()
}

/// True if a `test` command evaluates no subscript. Only `-v` and `-R` evaluate. With a
/// fixed number of words the operator is at a known index.
fn compares_only(words: &[ShellWord]) -> bool {
    const BINARY: &[&str] =
        &["=", "==", "!=", "<", ">", "-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-nt", "-ot", "-ef"];
    let words = match words {
        [rest @ .., ShellWord::Known(end)] if end == "]" => rest,
        words => words,
    };
    if words.iter().all(|word| word.known().is_some()) {
        return !words.iter().any(|word| matches!(word.known(), Some("-v" | "-R")));
    }
    if !words.iter().all(ShellWord::is_one) {
        return false;
    }
    let words = match words {
        [ShellWord::Known(not), rest @ ..] if not == "!" => rest,
        words => words,
    };
    words.split(|word| matches!(word.known(), Some("-a" | "-o"))).all(|test| match test {
        [_] => true,
        [ShellWord::Known(operator), _] => !matches!(operator.as_str(), "-v" | "-R"),
        [_, ShellWord::Known(operator), _] => BINARY.contains(&operator.as_str()),
        _ => false,
    })
}

/// True if a `printf` certainly has no option: `-v name` evaluates a subscript in the name.
pub(super) fn prints_only(words: &[ShellWord]) -> bool {
    words.first().is_none_or(|format| {
        let prefix = format.prefix();
        let dashes = format.known() == Some("--");
        dashes || format.known() == Some("-") || (!prefix.is_empty() && !prefix.starts_with('-'))
    })
}

/// True if no name given to `read` or `mapfile` has a subscript. An unknown word is
/// accepted only as the value of an option.
pub(super) fn reads_only(words: &[ShellWord]) -> bool {
    let mut value = false;
    words.iter().all(|word| {
        let was_value = std::mem::take(&mut value);
        match word {
            ShellWord::Known(text) => {
                let option = text.starts_with('-') && text.len() > 1;
                value = option && text.ends_with(['p', 'd', 't', 'n', 'N', 'u', 'i']);
                was_value || !text.contains('[')
            }
            ShellWord::Home(_) | ShellWord::Partial(_) => was_value,
            ShellWord::Unknown => false,
        }
    })
}
