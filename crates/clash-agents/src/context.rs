//! The paths and variables of one user on one machine, as the caller knows them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The program that an agent starts in front of its own shell.
pub const SHELL_LAUNCHER: &str = "clash-shell";

/// The program that an agent uses as its shell.
pub const AGENTS_SHELL: &str = "clash-sh";

/// Where the user's files and clash's programs are. The caller fills it in; this crate
/// does not look for them itself.
#[derive(Clone, Debug)]
pub struct UserContext {
    pub home: PathBuf,
    /// The temporary directory of the host.
    pub tmp: PathBuf,
    /// clash's state directory. Its programs are in `bin` below it.
    pub state: PathBuf,
    /// The directory that takes the place of `state` in an installation for all users.
    pub machine_state: PathBuf,
    pub user_id: u32,
    /// The value of an environment variable.
    pub variable: fn(&str) -> Option<OsString>,
}

impl UserContext {
    /// An absolute path from a variable. An empty or relative value counts as unset, as
    /// the XDG specification asks.
    pub fn path_variable(&self, name: &str) -> Option<PathBuf> {
        (self.variable)(name).map(PathBuf::from).filter(|path| path.is_absolute())
    }

    /// A text from a variable. An empty value counts as unset.
    pub fn text_variable(&self, name: &str) -> Option<String> {
        (self.variable)(name)?.into_string().ok().filter(|value| !value.is_empty())
    }

    /// A program of clash that agents call. No sandbox can change it.
    pub fn installed(&self, name: &str) -> PathBuf {
        self.state.join("bin").join(name)
    }

    /// The same user, with the programs of an installation for all users.
    pub fn for_machine(&self) -> Self {
        Self { state: self.machine_state.clone(), ..self.clone() }
    }

    /// The program in front of the agent's shell.
    pub fn shell_launcher(&self) -> PathBuf {
        self.installed(SHELL_LAUNCHER)
    }

    /// Clash as the shell that agents are set to.
    pub fn agents_shell(&self) -> PathBuf {
        self.installed(AGENTS_SHELL)
    }

    /// True if this is the program in front of the agent's shell, the user's own or that
    /// of an installation for all users.
    pub fn is_shell_launcher(&self, path: &Path) -> bool {
        path == self.shell_launcher() || path == self.machine_state.join("bin").join(SHELL_LAUNCHER)
    }
}

/// The names in a project's directory behind which clients find settings that may work
/// against clash (`Agent::hostile`).
const SETTINGS_NAMES: [&str; 15] = [
    ".amazonq",
    ".claude",
    ".codex",
    ".factory",
    ".gemini",
    ".github",
    ".kilo",
    ".kilocode",
    ".kiro",
    ".opencode",
    ".qwen",
    "kilo.json",
    "kilo.jsonc",
    "opencode.json",
    "opencode.jsonc",
];

/// False if no client can find settings for a project. Every launch asks, so this takes
/// one system call for each name and reads no file. It does not look at the arguments that a
/// client was started with: the client's hook checks them, and every command that the hook
/// lets through names its agent.
pub fn may_have_settings(project: &Path) -> bool {
    use std::io::ErrorKind::{NotADirectory, NotFound};
    // Clients also read the directories above, up to the root of the repository.
    settings_roots(project).iter().any(|root| {
        SETTINGS_NAMES.iter().any(|name| match root.join(name).symlink_metadata() {
            Ok(_) => true,
            Err(error) => !matches!(error.kind(), NotFound | NotADirectory),
        })
    })
}

/// The directories whose settings clients read for a project: its own, those above it up to
/// the root of the repository, and the main worktree's. Looks for `.git` on the disk.
pub(crate) fn settings_roots(project: &Path) -> Vec<PathBuf> {
    let mut roots = vec![project.to_path_buf()];
    if let Some(root) = project.ancestors().find(|dir| dir.join(".git").exists()) {
        let between = project.ancestors().skip(1).take_while(|dir| dir.starts_with(root));
        roots.extend(between.map(Path::to_path_buf));
        // `gitdir: <main>/.git/worktrees/<name>`
        let link = std::fs::read_to_string(root.join(".git")).unwrap_or_default();
        let own = link.strip_prefix("gitdir:").map(|path| root.join(path.trim()));
        roots.extend(own.and_then(|own| own.ancestors().nth(3).map(Path::to_path_buf)));
    }
    roots
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AGENTS;
    use crate::test_support::imagined_user;

    /// Every file that makes some agent's settings hostile is behind a name of the list,
    /// else a launch would not look at it.
    #[test]
    fn every_hostile_file_is_behind_a_settings_name() {
        let hostile = r#"{"disableAllHooks": true, "shell": "x", "hooksConfig": {"enabled": false},
            "tools": {"disableHooks": true}}"#;
        let names = [
            "",
            "settings.json",
            "settings.local.json",
            "cli-agents/clash.json",
            "agents/clash.json",
            "opencode.json",
            "opencode.jsonc",
            "kilo.json",
            "kilo.jsonc",
            "clash.json",
            "config.toml",
        ];
        let mut found = std::collections::BTreeSet::new();
        for agent in AGENTS {
            for name in names {
                let dir = tempfile::tempdir().unwrap();
                let user = imagined_user(dir.path().join("home"));
                let project = dir.path().join("app");
                std::fs::create_dir(&project).unwrap();
                assert!(!may_have_settings(&project));
                for path in (agent.steers)(&user, &project) {
                    let text = if name == "config.toml" {
                        "[features]\nhooks = false\ncodex_hooks = false\n"
                    } else {
                        hostile
                    };
                    let file = if name.is_empty() { path.clone() } else { path.join(name) };
                    if !file.starts_with(&project)
                        || std::fs::create_dir_all(file.parent().unwrap()).is_err()
                    {
                        continue;
                    }
                    let _ = std::fs::write(&file, text);
                    if (agent.hostile)(&user, &project).is_some() {
                        found.insert(agent.name);
                        assert!(may_have_settings(&project), "{}", file.display());
                    }
                }
            }
        }
        assert!(found.len() >= 9, "{found:?}");
    }
}
