//! The sandbox of the library in which an imported command can work. Other tools let an
//! allowed command run with all rights of the user, so each of these gives it less.

/// A sandbox and the module that has it.
pub(crate) struct ToolchainSandbox {
    pub(crate) module: &'static str,
    pub(crate) sandbox: &'static str,
}

const TOOLCHAIN_PROGRAMS: &[(&str, &str, &[&str])] = &[
    ("github", "github_full", &["gh"]),
    ("go", "go_full", &["go", "gofmt", "golangci-lint"]),
    ("java", "java_full", &["gradle", "mvn", "sbt"]),
    ("kubernetes", "kubernetes_full", &["helm", "kubectl"]),
    ("node", "node_full", &["bun", "bunx", "deno", "node", "npm", "npx", "pnpm", "yarn"]),
    ("php", "php_full", &["composer", "php"]),
    (
        "python",
        "python_full",
        &["pip", "pip3", "poetry", "pytest", "python", "python3", "ruff", "uv", "uvx"],
    ),
    ("ruby", "ruby_full", &["bundle", "gem", "rake", "ruby"]),
    ("rust", "rust_full", &["cargo", "rustc", "rustfmt"]),
    ("sandboxes", "online", &["curl", "wget"]),
];

/// Commands of git that talk to a remote.
const REMOTE_COMMANDS: &[&str] =
    &["clone", "fetch", "ls-remote", "pull", "push", "remote", "submodule"];

pub(crate) fn sandbox_of(program: &str, next: Option<&str>) -> Option<ToolchainSandbox> {
    if program == "git" {
        let remote = next.is_none_or(|word| REMOTE_COMMANDS.contains(&word));
        let sandbox = if remote { "git_full" } else { "git_safe" };
        return Some(ToolchainSandbox { module: "sandboxes", sandbox });
    }
    let found = TOOLCHAIN_PROGRAMS.iter().find(|(_, _, programs)| programs.contains(&program));
    found.map(|(module, sandbox, _)| ToolchainSandbox { module, sandbox })
}
