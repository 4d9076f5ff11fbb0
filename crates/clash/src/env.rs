//! Every environment variable clash looks at, once, with what it means.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The user's home directory; without it clash does nothing.
pub(crate) const HOME: &str = "HOME";
/// Where policies live (`clash/policy.star` below it); default `~/.config`.
pub(crate) const XDG_CONFIG_HOME: &str = "XDG_CONFIG_HOME";
/// Where sessions and traces live; default `~/.local/state`.
pub(crate) const XDG_STATE_HOME: &str = "XDG_STATE_HOME";
/// Where compiled policies live; default `~/.cache`.
pub(crate) const XDG_CACHE_HOME: &str = "XDG_CACHE_HOME";
/// Where OpenCode keeps its history; default `~/.local/share`.
pub(crate) const XDG_DATA_HOME: &str = "XDG_DATA_HOME";
/// `$TMPDIR` in policies; default `/tmp`.
pub(crate) const TMPDIR: &str = "TMPDIR";
/// Shell that runs an agent's scripts; default `/bin/bash`, then `/bin/sh`.
pub(crate) const SHELL: &str = "SHELL";
/// Where programs are looked for.
pub(crate) const PATH: &str = "PATH";
/// Switches colour off in what people read.
pub(crate) const NO_COLOR: &str = "NO_COLOR";

/// Set by clash's own plugins for the commands of an agent: the session.
pub(crate) const CLASH_SESSION: &str = "CLASH_SESSION";
/// Set by clash for every command it confines: the name of its sandbox.
pub(crate) const CLASH_SANDBOX: &str = "CLASH_SANDBOX";

/// Where Claude Code keeps its settings; default `~/.claude`.
pub(crate) const CLAUDE_CONFIG_DIR: &str = "CLAUDE_CONFIG_DIR";
/// Where Codex keeps its settings and history; default `~/.codex`.
pub(crate) const CODEX_HOME: &str = "CODEX_HOME";
/// Set by Claude Code for hooks and servers: the project of the session.
pub(crate) const CLAUDE_PROJECT_DIR: &str = "CLAUDE_PROJECT_DIR";
/// Set by Claude Code for everything it starts: the session.
pub(crate) const CLAUDE_CODE_SESSION_ID: &str = "CLAUDE_CODE_SESSION_ID";
/// A file of shell lines Claude Code runs before every command, if the user has one.
pub(crate) const CLAUDE_ENV_FILE: &str = "CLAUDE_ENV_FILE";
/// The launcher Claude Code puts in front of its shell.
pub(crate) const CLAUDE_CODE_SHELL_PREFIX: &str = "CLAUDE_CODE_SHELL_PREFIX";

/// Whose `.gemini` Gemini CLI reads instead of the home's.
pub(crate) const GEMINI_CLI_HOME: &str = "GEMINI_CLI_HOME";
/// Set by Gemini CLI for hooks: the project of the session.
pub(crate) const GEMINI_PROJECT_DIR: &str = "GEMINI_PROJECT_DIR";

/// Where Qwen Code keeps its settings; default `~/.qwen`.
pub(crate) const QWEN_HOME: &str = "QWEN_HOME";
/// Set by Qwen Code for hooks: the project of the session.
pub(crate) const QWEN_PROJECT_DIR: &str = "QWEN_PROJECT_DIR";
/// Whose `.factory` Droid reads instead of the home's.
pub(crate) const FACTORY_HOME_OVERRIDE: &str = "FACTORY_HOME_OVERRIDE";
/// Set by Droid for hooks: the project of the session.
pub(crate) const FACTORY_PROJECT_DIR: &str = "FACTORY_PROJECT_DIR";

/// The client's own program, which its shell functions `grep`, `rg` and `find` run.
pub(crate) const CLAUDE_CODE_EXECPATH: &str = "CLAUDE_CODE_EXECPATH";
/// Set by Claude Code: ends in `_agent` for commands of the agent, in `_harness`
/// for what settings start (hooks, servers). A project cannot change it.
pub(crate) const AI_AGENT: &str = "AI_AGENT";

/// Set by Claude Code for commands in its own sandbox.
pub(crate) const SANDBOX_RUNTIME: &str = "SANDBOX_RUNTIME";

/// An absolute path from the environment; empty and relative values count as
/// unset, as the XDG specification asks.
pub(crate) fn path(name: &str) -> Option<PathBuf> {
    env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute())
}

pub(crate) fn text(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// The sandbox this process was put into by clash, if the kernel bears that out.
pub(crate) fn inside_clash() -> Option<String> {
    text(CLASH_SANDBOX).filter(|_| is_bound())
}

#[cfg(target_os = "linux")]
fn is_bound() -> bool {
    rustix::thread::no_new_privs().is_ok_and(|set| set)
}

/// Nothing is put into a sandbox elsewhere yet.
#[cfg(not(target_os = "linux"))]
fn is_bound() -> bool {
    false
}

pub(crate) fn all() -> impl Iterator<Item = (OsString, OsString)> {
    env::vars_os()
}

/// The directories programs are looked for in.
pub(crate) fn path_list() -> Vec<PathBuf> {
    env::var_os(PATH).map(|list| env::split_paths(&list).collect()).unwrap_or_default()
}

/// Writes the real path of the home where values name it through a link: `HOME`, the
/// directories of `PATH`, `CARGO_HOME` and their like.
pub(crate) fn name_home(env: &mut [(OsString, OsString)], written: &Path, real: &Path) {
    for (_, value) in env {
        let named = |path: PathBuf| match path.strip_prefix(written) {
            Ok(below) if below.as_os_str().is_empty() => real.to_path_buf(),
            Ok(below) => real.join(below),
            Err(_) => path,
        };
        let begins = written.as_os_str().as_encoded_bytes();
        let mentions = value.as_encoded_bytes().windows(begins.len()).any(|part| part == begins);
        if mentions && let Ok(joined) = env::join_paths(env::split_paths(&value).map(named)) {
            *value = joined;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_name_the_home_by_its_real_path() {
        let mut env = vec![
            ("HOME".into(), "/home/link".into()),
            ("PATH".into(), "/usr/bin:/home/link/.cargo/bin:/home/linked/bin".into()),
            ("NOTE".into(), "a: b::c".into()),
        ];
        name_home(&mut env, Path::new("/home/link"), Path::new("/data/u"));
        let value = |at: usize| env[at].1.to_str().unwrap();
        assert_eq!(value(0), "/data/u");
        assert_eq!(value(1), "/usr/bin:/data/u/.cargo/bin:/home/linked/bin");
        assert_eq!(value(2), "a: b::c");
    }
}
