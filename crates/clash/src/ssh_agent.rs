//! Lends a room an agent of ssh, so that git reaches its remotes without a private key in
//! the room.
//!
//! The user's own agent is lent if it has keys. Otherwise the launcher starts an
//! agent for the life of the room and loads the user's keys that need no
//! passphrase. A filter stands between the room and either agent: it lets the room
//! list keys and sign. The filter waits for the end of a pipe that the launcher and
//! its room hold. `ssh-agent COMMAND` ends with its command, which is the filter. So
//! both end with the room, even if the launcher is killed.

pub(crate) mod filter;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use clash_policy::steering::SSH_AGENT_SOCKET;
use clash_policy::{Effect, Sandbox};

use crate::dirs::Dirs;
use crate::env;

/// An agent of ssh that a room may use.
#[derive(Debug)]
pub(crate) struct LentAgent {
    pub(crate) socket: PathBuf,
    /// The filter. Its standard input is the pipe, which stays open until this process
    /// ends.
    _filter: Child,
}

/// A key stays this long in an agent that the launcher has started.
const KEY_SECONDS: &str = "3600";

/// Keys that ssh tries by itself.
const KEYS: &[&str] = &["id_ed25519", "id_ecdsa", "id_rsa"];

/// True if the sandbox allows `SSH_AUTH_SOCK`, and the script or git's settings name an
/// address of ssh.
pub(crate) fn is_wanted(sandbox: &Sandbox, script: &str, project: &Path, dirs: &Dirs) -> bool {
    let lends = |name: &str| name == SSH_AGENT_SOCKET;
    sandbox.env.iter().any(|rule| rule.effect == Effect::Allow && lends(&rule.name))
        && (script.split_whitespace().any(is_ssh_address)
            || git_settings(project, dirs).iter().any(|text| names_ssh(text)))
}

/// The text of the project's and the user's settings of git, as far as they can be read.
fn git_settings(project: &Path, dirs: &Dirs) -> Vec<String> {
    let own = project.join(".git");
    let common = fs::read_to_string(&own).ok().and_then(|text| {
        let own = project.join(text.strip_prefix("gitdir:")?.trim());
        Some(own.parent()?.parent()?.join("config"))
    });
    let files = [common.unwrap_or_else(|| own.join("config")), dirs.home.join(".gitconfig")];
    files.iter().filter_map(|path| fs::read_to_string(path).ok()).collect()
}

/// True if a `url` setting, or the target of an `insteadOf`, is an address of ssh.
fn names_ssh(text: &str) -> bool {
    text.lines().any(|line| {
        let line = line.trim();
        let rewrites = line.to_ascii_lowercase().starts_with("[url ");
        let value =
            line.split_once('=').filter(|(name, _)| name.to_ascii_lowercase().contains("url"));
        value.is_some_and(|(_, value)| is_ssh_address(value.trim()))
            || rewrites && line.split('"').nth(1).is_some_and(is_ssh_address)
    })
}

/// True for `ssh://host/path`, `git+ssh://…`, `user@host:path` or `host:path`, also in
/// quotes.
fn is_ssh_address(word: &str) -> bool {
    let word = word.trim_matches(['"', '\'']);
    if word.starts_with("ssh://") || word.starts_with("git+ssh://") {
        return true;
    }
    let Some((host, path)) = word.split_once(':') else { return false };
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '@');
    !path.starts_with("//") && !host.is_empty() && host.chars().all(plain) && !path.starts_with(':')
}

/// Finds or starts the agent to lend, behind a filter. Starts processes that end with this
/// one. The error is a sentence for the user.
pub(crate) fn lend(dirs: &Dirs) -> Result<LentAgent, String> {
    if let Some(socket) = env::path(SSH_AGENT_SOCKET).filter(|path| is_socket(path))
        && run_quietly(Command::new("ssh-add").arg("-l"), &socket)
    {
        let (lent, _) = start_filter(|own| {
            let mut filter = Command::new(own);
            filter.env(SSH_AGENT_SOCKET, &socket);
            filter
        })
        .map_err(|error| format!("cannot start the filter of the agent: {error}"))?;
        return Ok(lent);
    }
    let keys = find_keys(dirs);
    if keys.is_empty() {
        return Err("there is no key in ~/.ssh and no agent has one".to_owned());
    }
    let (lent, agent) = start_filter(|own| {
        let mut agent = Command::new("ssh-agent");
        agent.arg(own);
        agent
    })
    .map_err(|error| format!("cannot start ssh-agent: {error}"))?;
    let loaded = |key: &PathBuf| {
        run_quietly(Command::new("ssh-add").args(["-q", "-t", KEY_SECONDS]).arg(key), &agent)
    };
    if keys.iter().filter(|key| loaded(key)).count() == 0 {
        return Err("every key in ~/.ssh needs a passphrase: run `ssh-add` once".to_owned());
    }
    Ok(lent)
}

/// The sandbox without the host's temporary directory, which may show sockets of other
/// programs. The room of such a sandbox has a temporary directory of its own.
pub(crate) fn without_shared_tmp(sandbox: &Sandbox) -> Sandbox {
    let mut sandbox = sandbox.clone();
    sandbox.fs.retain(|rule| rule.pattern.fixed() != "$TMPDIR");
    sandbox
}

/// True if a script names a temporary directory, by path or by `TMPDIR`.
pub(crate) fn mentions_tmp(script: &str, tmp: &Path) -> bool {
    let tmp = tmp.to_string_lossy();
    script.contains("/tmp") || script.contains("TMPDIR") || script.contains(&*tmp)
}

fn is_socket(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.file_type().is_socket())
}

/// Runs a program of ssh with this agent, without input, output or a question for a
/// passphrase. True if it succeeds.
fn run_quietly(command: &mut Command, socket: &Path) -> bool {
    command
        .env(SSH_AGENT_SOCKET, socket)
        .env("SSH_ASKPASS_REQUIRE", "never")
        .env_remove("DISPLAY")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// Starts a filter that ends when this process and its room have ended. `command` gets the
/// path of this program. Returns the lent agent and the socket of the agent behind it.
fn start_filter(command: impl FnOnce(&Path) -> Command) -> std::io::Result<(LentAgent, PathBuf)> {
    use std::os::unix::process::CommandExt;
    let mut child = command(&std::env::current_exe()?)
        .arg(filter::VERB)
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut lines = child.stdout.take().map(BufReader::new).into_iter().flat_map(BufRead::lines);
    let mut socket = || {
        let path = lines.next().transpose()?.map(PathBuf::from).filter(|path| is_socket(path));
        path.ok_or_else(|| std::io::Error::from(std::io::ErrorKind::NotFound))
    };
    let (socket, agent) = (socket()?, socket()?);
    Ok((LentAgent { socket, _filter: child }, agent))
}

/// The existing private keys that ssh would try: the default ones and those of
/// `~/.ssh/config`.
fn find_keys(dirs: &Dirs) -> Vec<PathBuf> {
    let ssh = dirs.home.join(".ssh");
    let mut keys: Vec<PathBuf> = KEYS.iter().map(|name| ssh.join(name)).collect();
    let config = fs::read_to_string(ssh.join("config")).unwrap_or_default();
    for line in config.lines() {
        let mut words = line.split_whitespace();
        let named = words.next().is_some_and(|word| word.eq_ignore_ascii_case("IdentityFile"));
        if let Some(value) = words.next().filter(|_| named) {
            let value = value.trim_matches('"');
            keys.push(match value.strip_prefix("~/") {
                Some(below) => dirs.home.join(below),
                None => PathBuf::from(value),
            });
        }
    }
    keys.retain(|key| key.is_file());
    keys.dedup();
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_ssh_are_told_from_others() {
        for address in ["git@github.com:o/r.git", "ssh://host/r", "host:r", "'me@h:x'"] {
            assert!(is_ssh_address(address), "{address}");
        }
        for other in ["https://github.com/o/r", "origin", "./a:b", "HEAD~1", "ext::sh", "a/b:c"] {
            assert!(!is_ssh_address(other), "{other}");
        }
        assert!(names_ssh("[remote \"origin\"]\n\turl = git@github.com:o/r.git\n"));
        assert!(names_ssh("[url \"git@github.com:\"]\n\tinsteadOf = https://github.com/\n"));
        assert!(!names_ssh("[remote \"origin\"]\n\turl = https://github.com/o/r\n\tfetch = a:b\n"));
    }
}
