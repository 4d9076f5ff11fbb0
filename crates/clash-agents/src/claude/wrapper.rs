//! Claude Code's shells, which it starts through `clash-shell`.

use std::path::{Path, PathBuf};

use super::{home, shell_prefix};
use crate::context::UserContext;
use crate::shell_wrapper::{ShellWrapper, WrappedCommand};
use crate::variables;

pub(super) static WRAPPER: ShellWrapper = ShellWrapper {
    prefix_variable: variables::CLAUDE_CODE_SHELL_PREFIX,
    agent_mark: (variables::AI_AGENT, "trial_agent"),
    is_agent_command: |user| {
        user.text_variable(variables::AI_AGENT).is_some_and(|agent| agent.ends_with("_agent"))
    },
    own_sandbox: |user| {
        user.text_variable(variables::SANDBOX_RUNTIME).map(|_| {
            "Claude Code's own sandbox is around this command, where clash cannot do its work: \
             switch `sandbox` off in its settings, clash confines every command"
        })
    },
    unwrap,
    client_program,
    background_outputs,
};

/// Takes the client's lines off. `None` if the string is not the wrapper, or if one of its
/// files lies in another place than the client's.
fn unwrap(user: &UserContext, session: Option<&str>, string: &str) -> Option<WrappedCommand> {
    let with_env = || shell_prefix::parse_with_session_env(string, &session_env(user, session));
    let command = shell_prefix::parse(string).or_else(with_env)?;
    is_in_place(&command, user).then_some(command)
}

/// True if the wrapper's files lie where the client keeps them.
fn is_in_place(command: &WrappedCommand, user: &UserContext) -> bool {
    let in_dir = |path: &PathBuf, dir: &Path| path.parent() == Some(dir);
    let snapshots = home(user).join("shell-snapshots");
    let temporary = [user.tmp.as_path(), Path::new("/tmp")];
    command.sources.iter().all(|path| in_dir(path, &snapshots))
        && command.cwd_file.iter().all(|path| temporary.iter().any(|dir| in_dir(path, dir)))
}

/// The lines that the client copies in front of every command of the session. Reads the
/// client's files; those that cannot be read are left out.
fn session_env(user: &UserContext, session: Option<&str>) -> String {
    let dir = session.map(|id| home(user).join("session-env").join(id));
    let entries = dir.and_then(|dir| std::fs::read_dir(dir).ok()).into_iter().flatten();
    let mut files: Vec<PathBuf> =
        entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    files.sort();
    let first = user.path_variable(variables::CLAUDE_ENV_FILE);
    let texts =
        first.into_iter().chain(files).filter_map(|path| std::fs::read_to_string(path).ok());
    texts.map(|text| text.trim().to_owned()).collect::<Vec<_>>().join("\n")
}

/// The client's program: its snapshots replace `grep`, `rg` and `find` by it. A command may
/// have set the variable, so only an executable file counts, by its real path.
fn client_program(user: &UserContext) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let path = user.path_variable(variables::CLAUDE_CODE_EXECPATH)?.canonicalize().ok()?;
    let meta = std::fs::metadata(&path).ok()?;
    (meta.is_file() && meta.permissions().mode() & 0o111 != 0).then_some(path)
}

/// `$TMPDIR/claude-UID/PROJECT/SESSION/tasks`, if it is a directory.
fn background_outputs(user: &UserContext, project: &Path, session: &str) -> Option<PathBuf> {
    let own = user.tmp.join(format!("claude-{}", user.user_id));
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let project: String = project.to_str()?.chars().map(plain).collect();
    let outputs = own.join(project).join(session).join("tasks");
    outputs.is_dir().then_some(outputs)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRING: &str = r"source /home/u/.claude/shell-snapshots/snapshot-bash-1-abc123.sh 2>/dev/null || true && { \builtin shopt -u extglob || \builtin setopt NO_EXTENDED_GLOB NO_BARE_GLOB_QUAL NO_BRACE_CCL NO_MAGIC_EQUAL_SUBST; } >/dev/null 2>&1 || true && eval ls && pwd -P >| /tmp/claude-1a2b-cwd";

    /// A user with this home directory and without environment variables.
    fn user(home: &str) -> UserContext {
        UserContext {
            home: home.into(),
            tmp: "/var/tmp".into(),
            state: "/s".into(),
            machine_state: "/m".into(),
            user_id: 1,
            variable: |_| None,
        }
    }

    #[test]
    fn only_files_of_the_client_are_unwrapped() {
        let command = unwrap(&user("/home/u"), None, STRING).unwrap();
        assert_eq!(command.script, "ls");
        assert_eq!(unwrap(&user("/home/other"), None, STRING), None);
        let elsewhere = STRING.replace(">| /tmp/", ">| /etc/");
        assert_eq!(unwrap(&user("/home/u"), None, &elsewhere), None);
    }
}
