//! The environment variables that clash reads, each with its meaning.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The user's home directory. Without it clash does nothing.
pub(crate) const HOME: &str = "HOME";
/// The directory of sessions and traces; default `~/.local/state`.
pub(crate) const XDG_STATE_HOME: &str = "XDG_STATE_HOME";
/// The directory of compiled policies; default `~/.cache`.
pub(crate) const XDG_CACHE_HOME: &str = "XDG_CACHE_HOME";
/// `$TMPDIR` in policies; default `/tmp`.
pub(crate) const TMPDIR: &str = "TMPDIR";
/// The shell that runs an agent's scripts; default `/bin/bash`, then `/bin/sh`.
pub(crate) const SHELL: &str = "SHELL";
/// The directories of programs.
pub(crate) const PATH: &str = "PATH";
/// The directory of git's own programs.
pub(crate) const GIT_EXEC_PATH: &str = "GIT_EXEC_PATH";
/// Switches colour off in the output.
pub(crate) const NO_COLOR: &str = "NO_COLOR";
/// The kind of the terminal.
pub(crate) const TERM: &str = "TERM";

/// How wide lines for people are; default the terminal's width, in a pipe no limit.
pub(crate) const COLUMNS: &str = "COLUMNS";

/// The launcher sets it for every command: the name of its sandbox.
pub(crate) const CLASH_SANDBOX: &str = "CLASH_SANDBOX";

pub(crate) use clash_agents::variables::{CLASH_SESSION, XDG_CONFIG_HOME};

/// The value of a variable, for the descriptions of agents.
pub(crate) fn raw(name: &str) -> Option<OsString> {
    env::var_os(name)
}

/// An absolute path from a variable. An empty or relative value counts as unset, as the
/// XDG specification asks.
pub(crate) fn path(name: &str) -> Option<PathBuf> {
    env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute())
}

/// A variable as text. One that is empty or not UTF-8 counts as unset.
pub(crate) fn text(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// The session of the client that started this process through `clash-shell`.
pub(crate) fn client_session() -> Option<String> {
    let (agent, _) = clash_agents::agent_with_shell_wrapper()?;
    text(agent.abilities.session?)
}

/// The sandbox of clash that this process runs in. A variable alone proves nothing, so
/// the process must also have no_new_privs.
pub(crate) fn inside_clash() -> Option<String> {
    text(CLASH_SANDBOX).filter(|_| has_no_new_privs())
}

#[cfg(target_os = "linux")]
fn has_no_new_privs() -> bool {
    rustix::thread::no_new_privs().is_ok_and(|set| set)
}

/// Clash has no sandboxes on other systems yet.
#[cfg(not(target_os = "linux"))]
fn has_no_new_privs() -> bool {
    false
}

/// All variables of this process.
pub(crate) fn all() -> impl Iterator<Item = (OsString, OsString)> {
    env::vars_os()
}

/// The directories of `PATH`.
pub(crate) fn path_list() -> Vec<PathBuf> {
    env::var_os(PATH).map(|list| env::split_paths(&list).collect()).unwrap_or_default()
}

/// Replaces the home by its real path in all values, for example in `HOME`, `PATH` and
/// `CARGO_HOME`. Only whole paths in a list with colons are replaced.
pub(crate) fn use_real_home(env: &mut [(OsString, OsString)], written: &Path, real: &Path) {
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
        use_real_home(&mut env, Path::new("/home/link"), Path::new("/data/u"));
        let value = |at: usize| env[at].1.to_str().unwrap();
        assert_eq!(value(0), "/data/u");
        assert_eq!(value(1), "/usr/bin:/data/u/.cargo/bin:/home/linked/bin");
        assert_eq!(value(2), "a: b::c");
    }
}
