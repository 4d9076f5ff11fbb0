//! The library sandbox in which an imported command can work. Other tools run an
//! allowed command with all rights of the user, so each of these grants less.

/// Sandboxes, each with the programs that run in it.
const TOOLCHAIN_PROGRAMS: &[(&str, &[&str])] = &[
    ("github_full", &["gh"]),
    ("go_full", &["go", "gofmt", "golangci-lint"]),
    ("java_full", &["gradle", "mvn", "sbt"]),
    ("kubernetes_full", &["helm", "kubectl"]),
    ("node_full", &["bun", "bunx", "deno", "node", "npm", "npx", "pnpm", "yarn"]),
    ("php_full", &["composer", "php"]),
    ("python_full", &["pip", "pip3", "poetry", "pytest", "python", "python3", "ruff", "uv", "uvx"]),
    ("ruby_full", &["bundle", "gem", "rake", "ruby"]),
    ("rust_full", &["cargo", "rustc", "rustfmt"]),
    ("online", &["curl", "wget"]),
];

/// Commands of git that talk to a remote.
const REMOTE_COMMANDS: &[&str] =
    &["clone", "fetch", "ls-remote", "pull", "push", "remote", "submodule"];

/// The sandbox of a program, whose next word may tell more. `None` for other programs. Git
/// without a next word gets the sandbox with the network.
pub(crate) fn sandbox_of(program: &str, next: Option<&str>) -> Option<&'static str> {
    if program == "git" {
        let remote = next.is_none_or(|word| REMOTE_COMMANDS.contains(&word));
        return Some(if remote { "git_full" } else { "git_safe" });
    }
    let found = TOOLCHAIN_PROGRAMS.iter().find(|(_, programs)| programs.contains(&program));
    found.map(|(sandbox, _)| *sandbox)
}
