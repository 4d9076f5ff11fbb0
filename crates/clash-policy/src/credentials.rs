//! Files that hold keys, tokens or passwords, by their usual names.
//!
//! A sandbox with `default = ask()` has the agent's file tools ask about a path that no
//! rule names. For these files one careless yes would give the key away, so they are
//! denied instead, in every posture. A rule that names the file lifts that: for example
//! `"$HOME/.npmrc": allow("r")`. Commands need no such list: the kernel blocks every
//! path that no rule grants. Commands in a sandbox that grants one of them must not be
//! steered (`steering.rs`).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::path::is_below;

/// Below the home directory. A directory stands for everything in it.
const IN_HOME: &[(&str, &[&str])] = &[
    ("ssh keys", &[".ssh"]),
    ("encryption keys", &[".gnupg", ".age", ".config/sops", ".config/age"]),
    (
        "passwords",
        &[
            ".netrc",
            "_netrc",
            ".pgpass",
            ".my.cnf",
            ".mylogin.cnf",
            ".smbcredentials",
            ".vnc/passwd",
            ".password-store",
            ".local/share/keyrings",
            ".local/share/kwalletd",
            ".config/op",
            ".config/1Password",
            ".config/Bitwarden",
            ".config/keepassxc",
            "Library/Keychains",
        ],
    ),
    (
        "tokens of a cloud",
        &[
            ".aws",
            ".azure",
            ".oci",
            ".kube",
            ".boto",
            ".s3cfg",
            ".databrickscfg",
            ".snowsql/config",
            ".fly/config.yml",
            ".vault-token",
            ".terraformrc",
            ".terraform.d/credentials.tfrc.json",
            ".docker/config.json",
            ".config/containers/auth.json",
            ".config/doctl",
            ".config/gcloud",
            ".config/helm/registry",
            ".config/heroku",
            ".config/hcloud",
            ".config/netlify",
            ".config/rclone",
            ".config/stripe",
            ".local/share/com.vercel.cli",
        ],
    ),
    (
        "tokens of a code host or registry",
        &[
            ".git-credentials",
            ".config/git/credentials",
            ".config/gh",
            ".config/glab-cli",
            ".config/hub",
            ".npmrc",
            ".yarnrc.yml",
            ".pypirc",
            ".cargo/credentials",
            ".cargo/credentials.toml",
            ".composer/auth.json",
            ".config/composer/auth.json",
            ".gem/credentials",
            ".gradle/gradle.properties",
            ".hex/hex.config",
            ".m2/settings.xml",
            ".m2/settings-security.xml",
            ".nuget/NuGet/NuGet.Config",
            ".subversion/auth",
        ],
    ),
    (
        "the tokens of an agent",
        &[
            ".claude/.credentials.json",
            ".claude.json",
            ".codex/auth.json",
            ".gemini/oauth_creds.json",
            ".qwen/oauth_creds.json",
            ".config/github-copilot",
            ".copilot/config.json",
            ".factory/auth.json",
            ".local/share/opencode/auth.json",
            ".local/share/kilo/auth.json",
        ],
    ),
    (
        "the passwords and cookies of a browser or mail program",
        &[
            ".mozilla",
            ".thunderbird",
            ".config/google-chrome",
            ".config/chromium",
            ".config/BraveSoftware",
            ".config/microsoft-edge",
            ".config/vivaldi",
        ],
    ),
    (
        "the keys of a wallet",
        &[".bitcoin", ".electrum", ".ethereum/keystore", ".config/solana", ".config/Exodus"],
    ),
    (
        "what was typed into a shell",
        &[
            ".bash_history",
            ".zsh_history",
            ".local/share/fish/fish_history",
            ".psql_history",
            ".mysql_history",
            ".python_history",
            ".node_repl_history",
            ".rediscli_history",
        ],
    ),
];

const ELSEWHERE: &[(&str, &[&str])] =
    &[("passwords", &["/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/etc/sudoers.d"])];

/// The files of `~/.ssh` without a secret.
const OPEN_IN_SSH: &[&str] = &["config", "config.d", "known_hosts", "known_hosts.old"];

/// Paths relative to the home directory with a credential in them. A directory stands for
/// everything in it.
pub fn in_home() -> impl Iterator<Item = &'static str> {
    let keys = [".ssh/id_ecdsa", ".ssh/id_ed25519", ".ssh/id_rsa"];
    IN_HOME.iter().flat_map(|(_, names)| names.iter().copied()).chain(keys)
}

/// The kind of secret that a file holds, by its real path. `None` for every other file,
/// also for files of `~/.ssh` without a secret, for example `config` and `*.pub`. Names
/// below the home count in upper and lower case, because some volumes do not tell them
/// apart.
pub fn credential(path: &Path, home: &Path) -> Option<&'static str> {
    if let Ok(below) = path.strip_prefix(home) {
        return IN_HOME.iter().find_map(|(secret, names)| {
            let named = names.iter().any(|name| begins_with(below, Path::new(name)));
            (named && !is_open(below)).then_some(*secret)
        });
    }
    let holds = |names: &[&str]| names.iter().any(|name| is_below(path, Path::new(name)));
    ELSEWHERE.iter().find_map(|(secret, names)| holds(names).then_some(*secret))
}

/// True for a file of `~/.ssh` without a secret. `below` is relative to the home.
fn is_open(below: &Path) -> bool {
    let mut names = below.iter();
    let in_ssh = names.next().is_some_and(|name| name.eq_ignore_ascii_case(".ssh"));
    let Some(second) = names.next().filter(|_| in_ssh) else { return false };
    OPEN_IN_SSH.iter().any(|open| second == *open)
        || (names.next().is_none() && second.as_bytes().ends_with(b".pub"))
}

/// True if the first names of a path are those of `prefix`, in upper or lower case.
fn begins_with(path: &Path, prefix: &Path) -> bool {
    let mut names = path.iter();
    prefix.iter().all(|part: &OsStr| names.next().is_some_and(|it| it.eq_ignore_ascii_case(part)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(path: &str) -> Option<&'static str> {
        credential(Path::new(path), Path::new("/home/u"))
    }

    #[test]
    fn keys_and_tokens_are_known_by_their_places() {
        for path in [
            "/home/u/.ssh/id_ed25519",
            "/home/u/.ssh",
            "/home/u/.SSH/id_rsa",
            "/home/u/.ssh/keys/work.pub",
            "/home/u/.aws/credentials",
            "/home/u/.config/gh/hosts.yml",
            "/home/u/.npmrc",
            "/home/u/.bash_history",
            "/etc/shadow",
        ] {
            assert!(secret(path).is_some(), "{path}");
        }
    }

    #[test]
    fn files_without_a_secret_stay_a_question() {
        for path in [
            "/home/u/.ssh/config",
            "/home/u/.ssh/id_ed25519.pub",
            "/home/u/.ssh/known_hosts",
            "/home/u/.sshx/key",
            "/home/u/notes.txt",
            "/home/v/.ssh/id_rsa",
            "/home/u/.docker/daemon.json",
            "/etc/passwd",
        ] {
            assert_eq!(secret(path), None, "{path}");
        }
    }
}
