//! Persistence paths: files inside a project that run or steer something later,
//! outside every sandbox. A sandbox that may write the project may still not
//! write these, unless its policy says so.
//!
//! The list names what is loaded without asking by the tools people have, not
//! everything that is run when somebody runs it: a Makefile or a build script is
//! what the agent is there to write.

/// One path below the project, and who acts on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Persistent {
    pub path: &'static str,
    pub why: &'static str,
}

const GIT: &str = "git runs or obeys it";
const EDITOR: &str = "an editor obeys it when the folder is opened";
const AGENT: &str = "an agent obeys it in its next session";
const SHELL: &str = "a shell runs it on entering the directory or at login";
const TOOL: &str = "a build tool obeys it before it runs anything";

const fn each(path: &'static str, why: &'static str) -> Persistent {
    Persistent { path, why }
}

/// The standard list. A directory stands for everything in it.
pub const STANDARD: &[Persistent] = &[
    each(".git/hooks", GIT),
    each(".git/config", GIT),
    each(".git/config.worktree", GIT),
    each(".git/info", GIT),
    each(".git/modules", GIT),
    each(".git/commondir", GIT),
    each(".git/objects/info/alternates", GIT),
    each(".gitmodules", GIT),
    each(".husky", GIT),
    each(".pre-commit-config.yaml", GIT),
    each(".vscode", EDITOR),
    each(".idea", EDITOR),
    each(".zed", EDITOR),
    each(".fleet", EDITOR),
    each(".dir-locals.el", EDITOR),
    each(".exrc", EDITOR),
    each(".nvim.lua", EDITOR),
    each(".vimrc", EDITOR),
    each(".devcontainer", EDITOR),
    each(".claude", AGENT),
    each(".clash", AGENT),
    each(".mcp.json", AGENT),
    each(".codex", AGENT),
    each(".cursor", AGENT),
    each(".gemini", AGENT),
    each(".qwen", AGENT),
    each(".opencode", AGENT),
    each("opencode.json", AGENT),
    each(".windsurf", AGENT),
    each(".aider.conf.yml", AGENT),
    each(".srt-settings.json", AGENT),
    each(".envrc", SHELL),
    each(".bashrc", SHELL),
    each(".bash_profile", SHELL),
    each(".profile", SHELL),
    each(".zshrc", SHELL),
    each(".zshenv", SHELL),
    each(".cargo", TOOL),
    each(".npmrc", TOOL),
    each(".yarnrc", TOOL),
    each(".yarnrc.yml", TOOL),
    each(".pnpmfile.cjs", TOOL),
    each(".mise.toml", TOOL),
    each("mise.toml", TOOL),
    each(".tool-versions", TOOL),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn nothing_is_listed_twice_or_inside_another() {
        for (at, entry) in STANDARD.iter().enumerate() {
            assert!(!entry.path.starts_with('/') && !entry.path.ends_with('/'));
            for other in STANDARD[..at].iter().chain(&STANDARD[at + 1..]) {
                assert!(!Path::new(entry.path).starts_with(other.path), "{}", entry.path);
            }
        }
    }
}
