//! The postures of `clash init`: the actions that each runs, asks about and blocks.

use std::path::PathBuf;

use serde_json::json;

use crate::init::init;
use crate::support::{Machine, Who, as_each_user};

/// The hook's answer to a Bash command: `allow`, `ask` or `deny`.
fn effect(m: &Machine, command: &str) -> String {
    m.bash(command).effect
}

const PUBLISHING: &[&str] = &[
    "git push",
    "git push origin main",
    "git -C . push",
    "bash -c 'git push'",
    "cargo publish",
    "cargo +nightly publish",
    "npm publish",
    "npm --prefix web publish",
    "uv publish",
    "python3 -m twine upload dist/x",
    "twine upload dist/x",
    "docker push x",
];

/// A machine with a policy for several toolchains.
fn with_posture(who: Who, posture: &str) -> Machine {
    let m = Machine::new(who);
    m.write("app/.git/HEAD", "ref: refs/heads/main\n");
    m.make_dir(m.project().join(".git/hooks"));
    m.write(".ssh/id_ed25519", SECRET);
    let some = ["rust", "python", "node", "docker", "git"];
    let named = some.into_iter().flat_map(|name| ["--ecosystem", name]);
    let args: Vec<&str> = ["--quick", "--posture", posture].into_iter().chain(named).collect();
    init(&m, &args).succeeds();
    m
}

pub(crate) const SECRET: &str = "secret-key-material";

#[test]
fn strict_asks_about_push_publishing_and_writes_outside() {
    let m = with_posture(Who::Me, "strict").settled();
    for command in PUBLISHING {
        assert_ne!(effect(&m, command), "allow", "{command}");
    }
    for command in [
        "git fetch",
        "npm install",
        "npx cowsay",
        "pip install x",
        "cargo add x",
        "curl https://x.test",
        "ssh host",
        "unknown-program",
        "rm -rf src",
        "echo x > ~/other/x",
        "echo x >> /etc/hosts",
    ] {
        assert_ne!(effect(&m, command), "allow", "{command}");
    }
    for command in ["cargo test", "npm test", "npm run build", "pytest", "git commit -m x", "ls"] {
        assert_eq!(effect(&m, command), "allow", "{command}");
    }
    let write = |path: PathBuf| m.asks("Write", json!({"file_path": path, "content": "x"})).effect;
    assert_eq!(write(m.project().join("new.rs")), "allow");
    for outside in [m.outside().join("x"), m.home().join(".bashrc"), "/etc/cron.d/x".into()] {
        assert_ne!(write(outside.clone()), "allow", "{}", outside.display());
    }
    let read = |path: PathBuf| m.asks("Read", json!({"file_path": path})).effect;
    assert_eq!(read(m.project().join("Cargo.toml")), "allow");
    m.write("app/web/.env", "TOKEN=x");
    assert_eq!(read(m.project().join("web/.env")), "ask");
}

#[test]
fn moderate_installs_without_asking_and_asks_before_a_push() {
    let m = with_posture(Who::Me, "moderate").settled();
    for command in PUBLISHING {
        assert_ne!(effect(&m, command), "allow", "{command}");
    }
    for command in [
        "cargo add x",
        "npm install",
        "pip install x",
        "git fetch",
        "cargo build",
        ".venv/bin/pip install x",
    ] {
        assert_eq!(effect(&m, command), "allow", "{command}");
    }
    assert_eq!(effect(&m, "unknown-program"), "ask");
}

#[test]
fn permissive_protects_credentials_hooks_and_clash_itself() {
    let m = with_posture(Who::Me, "permissive").settled();
    for command in PUBLISHING.iter().filter(|command| !command.contains("git")) {
        assert_ne!(effect(&m, command), "allow", "{command}");
    }
    for command in ["git push --force", "git push origin +main", "docker run -v /:/host x"] {
        assert_eq!(effect(&m, command), "ask", "{command}");
    }
    assert_eq!(effect(&m, "git push origin main"), "allow");
    assert_eq!(effect(&m, "unknown-program"), "allow");
    for (tool, path) in [
        ("Read", ".ssh/id_ed25519"),
        ("Write", ".bashrc"),
        ("Write", ".config/clash/policy.star"),
        ("Edit", ".claude/settings.json"),
        ("Write", ".local/state/clash/x"),
    ] {
        let input = json!({"file_path": m.home().join(path), "content": "x"});
        assert_ne!(m.asks(tool, input).effect, "allow", "{tool} {path}");
    }
}

#[test]
fn the_kernel_enforces_the_strict_and_the_permissive_posture() {
    as_each_user(|m| {
        let who = m.who;
        drop(m);
        for posture in ["strict", "permissive"] {
            let m = with_posture(who, posture);
            let run = |script: &str| m.clash(["exec", "--", "sed", "-n", script, "/dev/null"]);
            // sed's `w` writes and `r` reads a file of its own accord.
            run("1p").succeeds();
            let home = m.home().display().to_string();
            for path in [".ssh/id_ed25519", "other/x", ".config/clash/policy.star"] {
                let ran = m.clash(["exec", "--", "cat", &format!("{home}/{path}")]).fails();
                assert!(!ran.stdout.contains(SECRET), "{ran:?}");
            }
            for path in [
                format!("{home}/other/x"),
                format!("{home}/.bashrc"),
                format!("{home}/.config/clash/policy.star"),
                format!("{home}/.local/state/clash/x"),
                format!("{}/.git/hooks/pre-commit", m.project().display()),
            ] {
                m.clash(["exec", "--", "touch", &path]).fails();
            }
            m.clash(["exec", "--", "touch", "inside"]).succeeds();
        }
    });
}

/// The strict and the moderate posture ask about commands that cannot be undone; the
/// permissive posture runs them: docs/ecosystems.md.
#[test]
fn like_commands_are_treated_alike() {
    const UNDONE: &[&str] = &[
        "rm -rf build",
        "find . -delete",
        "rsync -a --delete a/ b",
        "rsync a b --delete-after",
        "shred f",
        "git clean -fd",
        "git reset --hard",
        "git checkout -- .",
        "git checkout .",
        "git checkout HEAD -- f",
        "git checkout -f main",
        "git switch --discard-changes main",
        "git restore .",
        "git restore f",
        "git restore --staged --worktree f",
        "git restore -SW f",
        "git stash drop",
        "git stash clear",
        "git worktree remove --force w",
        "git rm -f f",
    ];
    const KEPT: &[&str] = &[
        "rm f",
        "rmdir d",
        "mv src /tmp/x",
        "truncate -s 0 f",
        "echo x > f",
        "cp a f",
        "rsync -a a/ b",
        "git rm f",
        "git reset f",
        "git checkout main",
        "git switch main",
        "git restore --staged f",
        "git stash pop",
        "git worktree remove w",
        "git branch -D b",
    ];
    for posture in ["strict", "moderate", "permissive"] {
        let m = with_posture(Who::Me, posture);
        let wanted = if posture == "permissive" { "allow" } else { "ask" };
        for command in UNDONE {
            assert_eq!(effect(&m, command), wanted, "{posture}: {command}");
        }
        for command in KEPT {
            assert_eq!(effect(&m, command), "allow", "{posture}: {command}");
        }
    }
}

/// The permissive posture removes files that its sandbox may write, as its text says.
#[test]
fn permissive_removes_directories_of_the_project_unasked() {
    as_each_user(|m| {
        m.write("app/src/main.rs", "");
        m.write("app/.git/HEAD", "ref: refs/heads/main\n");
        m.write("app/.git/config", "[core]\n");
        init(&m, &["--quick", "--posture", "permissive"]).succeeds();
        m.clash(["exec", "--", "rm", "-rf", ".git", "src"]);
        assert!(!m.project().join("src").exists());
        assert!(m.project().join(".git/config").exists());
    });
}
