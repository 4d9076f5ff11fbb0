//! The programs and places that a learned policy may name, each with its effect.
//!
//! A learned policy names no other program, so no word from a history gets into a policy.
//!
//! Commands that look, build or test inside a sandbox without network are *allowed*, for
//! example `cargo test`. Commands that destroy, publish, fetch or run given code are
//! *asked* about, for example `git push`. Commands that print credentials are *denied*,
//! for example `gh auth token`. A program that runs arbitrary code is never allowed,
//! however often a history shows it.

use clash_policy::Effect;

/// The sandbox a rule names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KnownSandbox {
    /// `project` of `@clash//sandboxes.star`.
    Project,
    /// `X_safe` of `@clash//X.star`.
    Safe(&'static str),
    /// `X_full` of `@clash//X.star`.
    Full(&'static str),
    /// The default of the settings.
    Default,
}

use KnownSandbox::{Default, Full, Project, Safe};

/// The effect of a learned policy on some commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownRow {
    pub programs: &'static [&'static str],
    /// Any of these words behind the program; empty for any words.
    pub second: &'static [&'static str],
    /// Any of these words behind the second word.
    pub third: &'static [&'static str],
    pub effect: Effect,
    pub room: KnownSandbox,
    pub why: &'static str,
    /// Options that turn an allow into an ask.
    pub unless: &'static [&'static str],
}

const RUNS: &str = "runs any code it is given";
const FETCH: &str = "fetches code and runs it";
const PUBLISH: &str = "cannot be taken back once it is out";
const DESTROY: &str = "destroys what was not saved";
const REMOTE: &str = "changes what others use";
const ENGINE: &str = "the engine has the rights of root";
const SHOWS: &str = "shows credentials";

/// An allow in the sandbox `project`.
const fn row(programs: &'static [&'static str], second: &'static [&'static str]) -> KnownRow {
    let (third, unless): (&[&str], &[&str]) = (&[], &[]);
    KnownRow { programs, second, third, effect: Effect::Allow, room: Project, why: "", unless }
}

/// An allow in a sandbox without network.
const fn safe(
    module: &'static str,
    programs: &'static [&'static str],
    second: &'static [&'static str],
) -> KnownRow {
    KnownRow { room: Safe(module), ..row(programs, second) }
}

/// A question with its reason.
const fn ask(
    room: KnownSandbox,
    programs: &'static [&'static str],
    second: &'static [&'static str],
    why: &'static str,
) -> KnownRow {
    KnownRow { room, effect: Effect::Ask, why, ..row(programs, second) }
}

/// A deny of commands that show credentials.
const fn deny(
    programs: &'static [&'static str],
    second: &'static [&'static str],
    third: &'static [&'static str],
) -> KnownRow {
    KnownRow { effect: Effect::Deny, room: Default, why: SHOWS, third, ..row(programs, second) }
}

#[rustfmt::skip]
pub const KNOWN_ROWS: &[KnownRow] = &[
    row(&["ls", "cat", "head", "tail", "wc", "grep", "egrep", "fgrep", "diff", "cmp", "stat", "file", "du", "df", "tree",
        "sort", "uniq", "cut", "tr", "nl", "tac", "rev", "column", "comm", "paste", "jq", "date", "which", "basename",
        "dirname", "realpath", "readlink", "md5sum", "sha1sum", "sha256sum", "cksum", "od", "xxd", "hexdump", "strings",
        "uname", "whoami", "id", "hostname", "nproc", "free", "uptime", "ps", "mkdir", "touch", "cp", "mv", "sleep", "seq"], &[]),
    KnownRow { unless: &["--pre", "--pre-glob", "--hostname-bin"], ..row(&["rg"], &[]) },
    KnownRow { unless: &["-delete", "-exec", "-execdir", "-ok", "-okdir", "-fls", "-fprint", "-fprint0", "-fprintf"], ..row(&["find"], &[]) },
    ask(Project, &["rm", "rmdir", "unlink", "shred", "truncate", "dd"], &[], DESTROY),

    safe("git", &["git"], &["add", "blame", "cat-file", "check-ignore", "cherry-pick", "commit", "describe", "diff", "for-each-ref", "grep",
        "log", "ls-files", "ls-tree", "merge", "merge-base", "mv", "name-rev", "rev-list", "rev-parse", "revert", "shortlog", "show",
        "show-ref", "status", "whatchanged"]),
    KnownRow { unless: &["-D", "-d", "--delete", "-f", "--force", "-M"], ..safe("git", &["git"], &["branch"]) },
    KnownRow { unless: &["-f", "--force", "--discard-changes", "-C"], ..safe("git", &["git"], &["switch"]) },
    KnownRow { unless: &["-d", "--delete", "-f", "--force"], ..safe("git", &["git"], &["tag"]) },
    ask(Safe("git"), &["git"], &["checkout", "clean", "gc", "rebase", "reset", "restore", "rm", "stash", "filter-branch", "update-ref", "worktree"], DESTROY),
    ask(Full("git"), &["git"], &["push"], PUBLISH),
    ask(Full("git"), &["git"], &["clone", "fetch", "pull", "ls-remote", "submodule"], FETCH),
    deny(&["git"], &["credential"], &[]),

    safe("rust", &["cargo"], &["bench", "build", "check", "clippy", "doc", "fmt", "locate-project", "metadata", "nextest", "pkgid", "run", "test", "tree", "b", "c", "t", "r"]),
    safe("rust", &["rustc", "rustfmt", "rustdoc"], &[]),
    ask(Full("rust"), &["cargo"], &["add", "fetch", "install", "remove", "search", "update", "vendor"], FETCH),
    ask(Full("rust"), &["cargo"], &["publish", "yank", "owner"], PUBLISH),
    ask(Full("rust"), &["rustup"], &[], FETCH),
    deny(&["cargo"], &["login"], &[]),

    safe("go", &["go"], &["build", "doc", "fmt", "list", "run", "test", "version", "vet"]),
    safe("go", &["gofmt", "golangci-lint", "staticcheck"], &[]),
    ask(Full("go"), &["go"], &["get", "install", "mod", "work"], FETCH),
    ask(Project, &["go"], &["generate", "tool"], RUNS),

    safe("node", &["npm", "yarn", "pnpm"], &["ls", "list", "run", "run-script", "start", "test", "why", "build", "lint"]),
    safe("node", &["tsc", "eslint", "prettier", "jest", "vitest", "mocha", "vite", "webpack", "rollup", "esbuild", "biome"], &[]),
    safe("node", &["bun"], &["test", "build"]),
    safe("node", &["deno"], &["check", "fmt", "lint", "test"]),
    ask(Full("node"), &["npm", "yarn", "pnpm", "bun"], &["add", "ci", "i", "install", "remove", "uninstall", "update", "upgrade", "audit", "outdated", "dedupe", "rebuild", "init", "create"], FETCH),
    ask(Full("node"), &["npm", "yarn", "pnpm", "bun"], &["publish", "unpublish", "deprecate", "dist-tag"], PUBLISH),
    deny(&["npm", "yarn", "pnpm"], &["token", "login", "adduser"], &[]),
    ask(Project, &["npm", "pnpm", "yarn"], &["exec", "dlx", "x"], RUNS),
    ask(Project, &["bun"], &["run", "x"], RUNS),
    ask(Project, &["deno"], &["run", "eval", "task"], RUNS),

    safe("python", &["pytest", "ruff", "mypy", "pyright", "black", "isort", "flake8", "pylint", "coverage"], &[]),
    safe("python", &["pip", "pip3"], &["check", "freeze", "list", "show"]),
    safe("python", &["uv"], &["tree", "version"]),
    ask(Full("python"), &["pip", "pip3"], &["download", "install", "uninstall", "wheel"], FETCH),
    ask(Full("python"), &["uv"], &["add", "lock", "pip", "python", "remove", "sync", "tool", "venv"], FETCH),
    ask(Full("python"), &["poetry", "pipenv", "pdm"], &["add", "install", "lock", "remove", "sync", "update"], FETCH),
    ask(Full("python"), &["uv", "poetry", "pdm"], &["publish"], PUBLISH),
    ask(Full("python"), &["twine"], &[], PUBLISH),
    ask(Project, &["uv", "poetry", "pipenv", "pdm"], &["run", "shell"], RUNS),
    ask(Project, &["tox", "nox"], &[], RUNS),

    safe("ruby", &["rspec", "rubocop", "standardrb"], &[]),
    safe("ruby", &["bundle"], &["check", "list", "show"]),
    safe("ruby", &["gem"], &["list"]),
    ask(Full("ruby"), &["bundle"], &["add", "install", "update"], FETCH),
    ask(Full("ruby"), &["gem"], &["install", "uninstall", "update"], FETCH),
    ask(Full("ruby"), &["gem"], &["push", "yank"], PUBLISH),
    deny(&["gem"], &["signin"], &[]),
    ask(Project, &["bundle"], &["exec"], RUNS),

    safe("java", &["javac", "kotlinc"], &[]),
    safe("java", &["mvn"], &["clean", "compile", "install", "package", "test", "validate", "verify"]),
    safe("java", &["gradle"], &["assemble", "build", "check", "classes", "clean", "compileJava", "jar", "tasks", "test"]),
    ask(Full("java"), &["mvn"], &["deploy", "release:perform", "release:prepare"], PUBLISH),
    ask(Full("java"), &["gradle"], &["publish"], PUBLISH),

    safe("dotnet", &["dotnet"], &["build", "clean", "format", "list", "run", "test"]),
    ask(Full("dotnet"), &["dotnet"], &["add", "restore", "tool", "workload"], FETCH),
    ask(Full("dotnet"), &["dotnet"], &["nuget"], PUBLISH),

    safe("swift", &["swift"], &["build", "test"]),
    ask(Full("swift"), &["swift"], &["package"], FETCH),

    safe("make", &["make", "gmake", "cmake", "ctest", "ninja", "meson", "just", "task"], &[]),

    ask(Full("docker"), &["docker", "podman", "docker-compose"], &[], ENGINE),
    deny(&["docker", "podman"], &["login"], &[]),

    ask(Default, &["kubectl"], &["apply", "create", "delete", "drain", "edit", "exec", "patch", "replace", "rollout", "scale", "set"], REMOTE),
    deny(&["kubectl"], &["get"], &["secret", "secrets"]),
    deny(&["kubectl"], &["config"], &["view"]),
    ask(Default, &["helm"], &["install", "rollback", "uninstall", "upgrade"], REMOTE),
    ask(Default, &["terraform", "tofu", "terragrunt", "pulumi"], &["apply", "destroy", "import", "state", "taint", "up"], REMOTE),
    deny(&["terraform", "tofu"], &["login", "output"], &[]),
    ask(Default, &["gh"], &["api", "gist", "issue", "pr", "release", "repo", "run", "workflow", "secret"], REMOTE),
    deny(&["gh"], &["auth"], &["token", "login"]),
    ask(Default, &["aws", "gcloud", "az", "fly", "flyctl", "vercel", "netlify", "wrangler", "heroku"], &[], REMOTE),
    deny(&["aws"], &["configure", "sso", "secretsmanager", "ssm", "sts"], &[]),
    deny(&["gcloud"], &["auth", "secrets"], &[]),
    deny(&["az"], &["login", "keyvault"], &[]),
    ask(Default, &["systemctl", "service", "launchctl", "crontab", "kill", "pkill", "killall", "shutdown", "reboot", "mkfs", "mount", "umount"], &[], REMOTE),

    deny(&["pass", "op", "bw", "vault", "secret-tool", "security", "ssh-add", "gpg", "gpg2", "chamber", "doppler", "age", "sops"], &[], &[]),

    ask(Project, &["python", "python2", "python3", "python3.10", "python3.11", "python3.12", "python3.13", "python3.14", "pypy", "pypy3", "ipython",
        "node", "nodejs", "ts-node", "tsx", "npx", "bunx", "uvx", "pipx", "ruby", "irb", "perl", "php", "lua", "luajit", "tclsh", "Rscript", "julia",
        "elixir", "iex", "erl", "escript", "ghci", "runghc", "java", "jshell", "scala", "groovy", "osascript", "pwsh", "rake", "rails",
        "bash", "sh", "zsh", "dash", "ksh", "fish", "csh", "tcsh", "busybox", "awk", "gawk", "mawk", "nawk", "sed", "gsed", "fd", "parallel",
        "env", "xargs", "watch", "expect", "script", "screen", "tmux", "vim", "vi", "nvim", "emacs", "ed", "ex", "gdb", "lldb", "strace", "ltrace",
        "sqlite3", "psql", "mysql", "tar", "zip", "rsync", "socat", "nc", "ncat"], &[], RUNS),
];

/// The index of the row that matches most of the significant words of a command, and the
/// matching words; the first of equal rows. `None` if no row matches its program.
pub fn look_up(words: &[&str]) -> Option<(usize, Vec<&'static str>)> {
    let mut best: Option<(usize, Vec<&'static str>)> = None;
    for (place, row) in KNOWN_ROWS.iter().enumerate() {
        let mut matched = Vec::new();
        for (at, choices) in [row.programs, row.second, row.third].into_iter().enumerate() {
            if choices.is_empty() {
                break;
            }
            let word = words.get(at);
            match choices.iter().find(|choice| Some(*choice) == word) {
                Some(choice) => matched.push(*choice),
                None => {
                    matched.clear();
                    break;
                }
            }
        }
        if matched.len() > best.as_ref().map_or(0, |(_, words)| words.len()) {
            best = Some((place, matched));
        }
    }
    best
}

/// Places of credentials, as policies write them. A directory stands for everything in
/// it.
pub const CREDENTIALS: &[&str] = &[
    "$HOME/.ssh",
    "$HOME/.gnupg",
    "$HOME/.aws",
    "$HOME/.azure",
    "$HOME/.config/gcloud",
    "$HOME/.config/gh",
    "$HOME/.config/op",
    "$HOME/.kube",
    "$HOME/.docker/config.json",
    "$HOME/.netrc",
    "$HOME/.git-credentials",
    "$HOME/.npmrc",
    "$HOME/.pypirc",
    "$HOME/.pgpass",
    "$HOME/.my.cnf",
    "$HOME/.vault-token",
    "$HOME/.password-store",
    "$HOME/.cargo/credentials.toml",
    "$HOME/.cargo/credentials",
    "$HOME/.gem/credentials",
    "$HOME/.m2/settings.xml",
    "$HOME/.local/share/keyrings",
    "$HOME/.mozilla",
    "$HOME/.codex/auth.json",
    "$HOME/.claude/.credentials.json",
    "$HOME/.bash_history",
    "$HOME/.zsh_history",
    "$HOME/Library/Keychains",
    "/etc/shadow",
];

/// Hosts that only serve documentation.
pub const DOCUMENTATION: &[&str] = &[
    "docs.rs",
    "doc.rust-lang.org",
    "rust-lang.github.io",
    "docs.python.org",
    "peps.python.org",
    "developer.mozilla.org",
    "nodejs.org",
    "www.typescriptlang.org",
    "react.dev",
    "pkg.go.dev",
    "go.dev",
    "docs.oracle.com",
    "ruby-doc.org",
    "docs.ruby-lang.org",
    "learn.microsoft.com",
    "www.php.net",
    "hexdocs.pm",
    "en.cppreference.com",
    "man7.org",
    "docs.kernel.org",
    "www.kernel.org",
    "git-scm.com",
    "www.postgresql.org",
    "www.sqlite.org",
    "docs.docker.com",
    "kubernetes.io",
    "developer.hashicorp.com",
    "www.rfc-editor.org",
    "en.wikipedia.org",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_row_with_most_matching_words_counts() {
        let effect = |words: &[&str]| look_up(words).map(|(at, _)| KNOWN_ROWS[at].effect);
        assert_eq!(effect(&["git", "status"]), Some(Effect::Allow));
        assert_eq!(effect(&["git", "push"]), Some(Effect::Ask));
        assert_eq!(effect(&["git", "frobnicate"]), None);
        assert_eq!(effect(&["gh", "auth", "token"]), Some(Effect::Deny));
        assert_eq!(effect(&["gh", "auth", "status"]), None);
        assert_eq!(effect(&["aws", "s3"]), Some(Effect::Ask));
        assert_eq!(effect(&["aws", "sts"]), Some(Effect::Deny));
        assert_eq!(effect(&["hunter2"]), None);
        assert_eq!(effect(&[]), None);
    }

    #[test]
    fn no_words_are_in_two_rows() {
        let mut all = Vec::new();
        let none = [""];
        for row in KNOWN_ROWS {
            for program in row.programs {
                for second in if row.second.is_empty() { &none } else { row.second } {
                    for third in if row.third.is_empty() { &none } else { row.third } {
                        all.push((program, second, third));
                    }
                }
            }
        }
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn nothing_that_runs_any_code_is_allowed() {
        let runners = [
            "python", "python3", "node", "ruby", "perl", "php", "bash", "sh", "zsh", "fish", "env",
            "xargs", "awk", "sed", "npx", "uvx", "java", "lua", "deno", "bun", "busybox", "ssh",
            "sudo", "eval", "exec", "source", "nohup", "timeout", "watch", "parallel",
        ];
        for program in runners {
            let found = look_up(&[program]);
            assert!(found.is_none_or(|(at, _)| KNOWN_ROWS[at].effect > Effect::Allow), "{program}");
        }
    }

    #[test]
    fn nothing_allowed_has_a_network() {
        for row in KNOWN_ROWS.iter().filter(|row| row.effect == Effect::Allow) {
            assert!(matches!(row.room, Project | Safe(_)), "{row:?}");
        }
    }
}
