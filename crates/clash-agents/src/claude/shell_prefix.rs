//! Reads the one argument that Claude Code gives to `CLAUDE_CODE_SHELL_PREFIX`.
//!
//! The client wraps the agent's command before it calls its shell prefix:
//!
//! ```text
//! source ~/.claude/shell-snapshots/snapshot-bash-….sh 2>/dev/null || true
//!   && export X='…'⏎:          only with session environment files
//!   && { \builtin shopt -u extglob || … ; } >/dev/null 2>&1 || true
//!   && { \builtin unalias -- 'which'; … } …
//!   && eval 'the command' < /dev/null
//!   && pwd -P >| /tmp/claude-1a2b-cwd
//! ```
//!
//! The policy must judge the command and not the wrapper, so this module takes the wrapper
//! off. It reads fixed text from left to right. Every step before the `eval` is listed
//! below, the command is one quoted word in the client's spelling, and nothing may follow
//! the line that stores the directory. The module never searches, so a command cannot
//! contain a text that passes for the wrapper. If one byte differs, the result is `None`
//! and the launcher judges the whole string.
//!
//! The wrapper is the same for bash and zsh. Seen with 2.1.197 and 2.1.325; the steps
//! marked (read) come from the text of the 2.1.325 client. The result is also `None` for
//! three forms that this module does not know: the client's own sandbox, its remote
//! sessions and its credential scrub.
//!
//! The module does not know who calls. Hook commands and MCP servers also go through the
//! prefix, without the wrapper, and a project can write both. The launcher must use a
//! [`WrappedCommand`] only if `AI_AGENT` ends in `_agent`; a project cannot set that
//! variable.

use std::path::{Component, Path, PathBuf};

use clash_shell::shell_quoted;

use crate::shell_wrapper::WrappedCommand;

/// Takes the wrapper off. `None`: the string is not the wrapper, so the launcher must judge
/// the whole string.
///
/// Session environment must only assign variables.
pub(super) fn parse(shell_string: &str) -> Option<WrappedCommand> {
    read(shell_string, None)
}

/// Like [`parse`], for a session whose environment files do more than assign variables.
/// Their texts, trimmed and joined by newlines, must be in the string unchanged.
pub(super) fn parse_with_session_env(
    shell_string: &str,
    session_env: &str,
) -> Option<WrappedCommand> {
    read(shell_string, Some(session_env.trim()))
}

/// Between two steps of the wrapper.
const AND: &str = " && ";

const SNAPSHOT_ENDS: &str = " 2>/dev/null || true";

/// (read) The client does not run some commands with an old bash.
const TOO_OLD: [&str; 2] = [
    r#"{ case "${BASH_VERSINFO-}" in '2'|'3') \builtin printf '%s\n' '__CLAUDE_CODE_DID_NOT_RUN_BASH_TOO_OLD='"${BASH_VERSION-}" >&2; \builtin exit 126; \exit 126;; esac; }"#,
    r#"{ case "${BASH_VERSINFO-}" in '2'|'3'|'4') \builtin printf '%s\n' '__CLAUDE_CODE_DID_NOT_RUN_BASH_TOO_OLD='"${BASH_VERSION-}" >&2; \builtin exit 126; \exit 126;; esac; }"#,
];

/// (read) The client adds this step when it turns off the automatic installs of Bun.
const BUN_OPTIONS: &str = concat!(
    r#"{ \builtin test -n "${__CLAUDE_CC_BUN_OPTIONS-}" && \builtin export BUN_OPTIONS="$__CLAUDE_CC_BUN_OPTIONS" && \builtin unset -v __CLAUDE_CC_BUN_OPTIONS || { \builtin printf '%s\n' "#,
    "'Claude Code did not run this command: it could not set BUN_OPTIONS, which turns off automatic package installs in Bun. ",
    "A read-only BUN_OPTIONS, or a CLAUDE_CODE_SHELL_PREFIX that drops the environment, can cause this.' >&2; ",
    r"\builtin exit 126; }; }"
);

/// The newest spelling comes first; the second is (read), the last is from 2.1.197.
const GLOBS: [&str; 3] = [
    r"{ \builtin shopt -u extglob || \builtin setopt NO_EXTENDED_GLOB NO_BARE_GLOB_QUAL NO_BRACE_CCL NO_MAGIC_EQUAL_SUBST; } >/dev/null 2>&1 || true",
    r"{ \builtin shopt -u extglob || \builtin setopt NO_EXTENDED_GLOB NO_BARE_GLOB_QUAL NO_BRACE_CCL NO_MAGIC_EQUAL_SUBST NO_EQUALS; } >/dev/null 2>&1 || true",
    "{ shopt -u extglob || setopt NO_EXTENDED_GLOB NO_BARE_GLOB_QUAL; } >/dev/null 2>&1 || true",
];

const FORGET: [&str; 2] = [
    r"{ \builtin unalias -- 'which'; \builtin unset -f -- 'which'; } >/dev/null 2>&1 || true",
    r"{ \builtin unalias -- 'unsetenv'; \builtin unset -f -- 'unsetenv'; } >/dev/null 2>&1 || true",
];

/// (read) On macOS the client adds this before a `git grep`.
const GIT_GREP: &str = concat!(
    r#"function git { 'local' _cc_skip= _cc_word; for _cc_word in ${1+"$@"}; do "#,
    r#"if [ -n "$_cc_skip" ]; then _cc_skip=; continue; fi; case "$_cc_word" in "#,
    "-C|-c|--attr-source|--shallow-file|--git-dir|--separate-git-dir|--work-tree|--namespace|--super-prefix|--config-env) ",
    r#"_cc_skip=1 ;; -*) ;; grep) '/usr/bin/env' LC_ALL=C 'git' ${1+"$@"}; 'return' ;; *) break ;; esac; done; "#,
    r#"'command' 'git' ${1+"$@"}; }"#
);

/// Reads the whole string; see the steps above. `session_env` is the text of the session's
/// environment files, if the caller could read them. `None` if any byte differs from the
/// client's wrapper.
fn read(shell_string: &str, session_env: Option<&str>) -> Option<WrappedCommand> {
    let mut rest = WrapperReader(shell_string);
    let mut sources = Vec::new();

    let _ = rest.step_of(&TOO_OLD);
    if rest.eat("source ") {
        let path = PathBuf::from(rest.word()?);
        if !is_snapshot(&path) || !rest.eat(SNAPSHOT_ENDS) || !rest.eat(AND) {
            return None;
        }
        sources.push(path);
    }
    let env = match session_env {
        Some(text) if !text.is_empty() && rest.eat(text) => {
            if !rest.eat("\n:") || !rest.eat(AND) {
                return None;
            }
            Some(text.to_owned())
        }
        _ => rest.assignments(),
    };
    let _ = rest.step(BUN_OPTIONS);
    if !rest.step_of(&GLOBS) {
        return None;
    }
    for step in FORGET {
        let _ = rest.step(step);
    }
    if rest.0.starts_with("{ 'eval' '") && !rest.step(&git_grep()) {
        return None;
    }

    if !rest.eat("eval ") {
        return None;
    }
    let script = rest.word()?;
    let _ = rest.eat(" < /dev/null");
    if !rest.eat(AND) || !rest.eat("pwd -P >| ") {
        return None;
    }
    let cwd_file = PathBuf::from(rest.word()?);
    if !rest.0.is_empty() || !is_cwd_file(&cwd_file) {
        return None;
    }
    Some(WrappedCommand { script, cwd_file: Some(cwd_file), sources, session_env: env })
}

/// The step with [`GIT_GREP`], quoted as the client does.
fn git_grep() -> String {
    let function = shell_quoted(GIT_GREP);
    let body = format!(
        "if ! 'typeset' -f 'git' >/dev/null 2>&1 && ! 'alias' 'git' >/dev/null 2>&1 && \
         ( 'eval' {function} ) >/dev/null 2>&1; then 'eval' {function}; fi"
    );
    format!("{{ 'eval' {} 2>/dev/null || 'true'; }}", shell_quoted(&body))
}

/// The unread part of the string.
struct WrapperReader<'a>(&'a str);

impl<'a> WrapperReader<'a> {
    /// Reads a text, or nothing.
    fn eat(&mut self, text: &str) -> bool {
        match self.0.strip_prefix(text) {
            Some(rest) => {
                self.0 = rest;
                true
            }
            None => false,
        }
    }

    /// Reads a whole step and the separator behind it, or nothing.
    fn step(&mut self, text: &str) -> bool {
        match self.0.strip_prefix(text).and_then(|rest| rest.strip_prefix(AND)) {
            Some(rest) => {
                self.0 = rest;
                true
            }
            None => false,
        }
    }

    /// Reads the first of these steps that comes next, or nothing.
    fn step_of(&mut self, texts: &[&str]) -> bool {
        texts.iter().any(|text| self.step(text))
    }

    /// Reads one word in the spelling of the client's quoting, and in no other.
    fn word(&mut self) -> Option<String> {
        let mut word = String::new();
        let mut rest = self.0;
        if let Some(mut inside) = rest.strip_prefix('\'') {
            loop {
                let (text, after) = inside.split_once('\'')?;
                word.push_str(text);
                match after.strip_prefix(r#""'"'"#) {
                    Some(more) => {
                        word.push('\'');
                        inside = more;
                    }
                    None => {
                        rest = after;
                        break;
                    }
                }
            }
        } else {
            let end = rest.find(|c| !is_plain(c)).unwrap_or(rest.len());
            let (text, after) = rest.split_at_checked(end)?;
            word.push_str(text);
            rest = after;
        }
        // INVARIANT: the bytes read are exactly those the client writes for this word.
        if self.0.strip_prefix(quote(&word).as_str()) != Some(rest) {
            return None;
        }
        self.0 = rest;
        Some(word)
    }

    /// Reads session environment of assignments only, up to the client's `:`.
    ///
    /// Reads nothing if one line is something else.
    fn assignments(&mut self) -> Option<String> {
        let all = self.0;
        let mut lines = WrapperReader(all);
        loop {
            if lines.eat(":") {
                break;
            }
            lines.assignment()?;
            if !lines.eat("\n") {
                return None;
            }
        }
        let rest = lines.0.strip_prefix(AND)?;
        let env = all.strip_suffix(lines.0)?.strip_suffix("\n:")?;
        self.0 = rest;
        Some(env.to_owned())
    }

    /// Reads one line that assigns, exports or unsets a variable, a comment, or an empty
    /// line.
    fn assignment(&mut self) -> Option<()> {
        if self.0.starts_with('\n') {
            return Some(());
        }
        if self.0.starts_with('#') {
            return self.take(|c| c != '\n').map(drop);
        }
        if self.eat("unset ") {
            return self.name();
        }
        let exported = self.eat("export ") || self.eat("declare -x ");
        self.name()?;
        if !self.eat("=") {
            return exported.then_some(());
        }
        self.value()?;
        let _ = self.eat(";");
        Some(())
    }

    /// Reads the name of a variable.
    fn name(&mut self) -> Option<()> {
        let name = self.take(|c| c.is_ascii_alphanumeric() || c == '_')?;
        (!name.starts_with(|c: char| c.is_ascii_digit())).then_some(())
    }

    /// Reads a value without substitutions; it may name variables.
    fn value(&mut self) -> Option<()> {
        loop {
            if self.eat("'") {
                self.0 = self.0.split_once('\'')?.1;
            } else if self.eat("$'") {
                self.quoted('\'', false)?;
            } else if self.eat("\"") {
                self.quoted('"', true)?;
            } else if self.eat("$") {
                self.variable()?;
            } else if self.take(|c| is_plain(c) || c == '%' || c == '~').is_none() {
                return Some(());
            }
        }
    }

    /// Reads up to the closing quote. With `expands`, `$` may only name a variable.
    fn quoted(&mut self, close: char, expands: bool) -> Option<()> {
        loop {
            let mut chars = self.0.chars();
            let next = chars.next()?;
            self.0 = chars.as_str();
            match next {
                c if c == close => return Some(()),
                '\\' => {
                    chars.next()?;
                    self.0 = chars.as_str();
                }
                '$' if expands => self.variable()?,
                '`' if expands => return None,
                _ => {}
            }
        }
    }

    /// Reads `NAME` or `{NAME}` behind a `$`.
    fn variable(&mut self) -> Option<()> {
        let braced = self.eat("{");
        self.name()?;
        (!braced || self.eat("}")).then_some(())
    }

    /// Reads one or more of these characters.
    fn take(&mut self, fits: impl Fn(char) -> bool) -> Option<&'a str> {
        let end = self.0.find(|c| !fits(c)).unwrap_or(self.0.len());
        let (text, rest) = self.0.split_at_checked(end)?;
        self.0 = rest;
        (!text.is_empty()).then_some(text)
    }
}

/// Quotes as the client does: without quotes if possible, else `'…'` with `'"'"'`.
fn quote(word: &str) -> String {
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r#"'"'"'"#))
}

/// True for characters that the client does not quote.
fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_./:=@+,-".contains(c)
}

/// True for `…/shell-snapshots/snapshot-<shell>-<ms>-<random>[-<session>].sh`, in any
/// directory.
fn is_snapshot(path: &Path) -> bool {
    let Some(name) = clean_name(path) else { return false };
    let in_place = path.parent().and_then(Path::file_name).is_some_and(|d| d == "shell-snapshots");
    let Some(name) = name.strip_prefix("snapshot-").and_then(|n| n.strip_suffix(".sh")) else {
        return false;
    };
    let mut parts = name.splitn(4, '-');
    let shell = parts.next().is_some_and(|s| ["bash", "zsh", "sh"].contains(&s));
    let time = parts.next().is_some_and(|t| is_run(t, 20, |c| c.is_ascii_digit()));
    let random = parts
        .next()
        .is_some_and(|r| is_run(r, 6, |c| c.is_ascii_lowercase() || c.is_ascii_digit()));
    let session =
        parts.next().is_none_or(|s| is_run(s, 64, |c| c.is_ascii_alphanumeric() || c == '-'));
    in_place && shell && time && random && session
}

/// True for `…/claude-<4 hex>[-msg_…][-toolu_…]-cwd`, in any directory.
fn is_cwd_file(path: &Path) -> bool {
    let Some(id) = clean_name(path)
        .and_then(|n| n.strip_prefix("claude-"))
        .and_then(|n| n.strip_suffix("-cwd"))
    else {
        return false;
    };
    let (hex, attribution) = id.split_once('-').map_or((id, None), |(h, a)| (h, Some(a)));
    let is_hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    hex.len() == 4
        && hex.chars().all(is_hex)
        && attribution.is_none_or(|a| {
            (a.starts_with("msg_") || a.starts_with("toolu_"))
                && is_run(a, 140, |c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
        })
}

/// True for one to `most` characters that fit.
fn is_run(text: &str, most: usize, fits: impl Fn(char) -> bool) -> bool {
    !text.is_empty() && text.len() <= most && text.chars().all(fits)
}

/// The file name of an absolute path; `None` if the path has `.`, `..` or a double slash.
fn clean_name(path: &Path) -> Option<&str> {
    let plain = path.components().all(|c| matches!(c, Component::RootDir | Component::Normal(_)));
    let rebuilt: PathBuf = path.components().collect();
    if !path.is_absolute() || !plain || rebuilt.as_os_str() != path.as_os_str() {
        return None;
    }
    path.file_name()?.to_str()
}

#[cfg(test)]
mod tests;
