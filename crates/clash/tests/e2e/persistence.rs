//! Files that run or steer programs later, in the usual sandboxes. Commands and the agent's
//! file tools cannot change them under any of their names, but can remove a directory that
//! contains them as a whole.

use std::os::unix::fs::symlink;

use serde_json::json;

use crate::support::{Machine, Ran, as_each_user, skipped};

/// Runs a script of the user's own, outside every sandbox.
fn bare(m: &Machine, script: &str) -> Ran {
    let config = ["user.name=a", "user.email=a@b", "init.defaultBranch=main"];
    let mut command = m.command("sh");
    command.args(["-c", script]).env("GIT_CONFIG_COUNT", config.len().to_string());
    for (at, setting) in config.iter().enumerate() {
        let (key, value) = setting.split_once('=').unwrap();
        command.env(format!("GIT_CONFIG_KEY_{at}"), key);
        command.env(format!("GIT_CONFIG_VALUE_{at}"), value);
    }
    Ran::of(&mut command).succeeds()
}

/// True if a program is installed. Prints otherwise that the case is skipped.
fn has(program: &str) -> bool {
    let found = std::path::Path::new("/usr/bin").join(program).exists();
    if !found {
        skipped(&format!("what {program} leaves and removes, because it is not there"));
    }
    found
}

#[test]
fn commands_and_tools_cannot_change_a_protected_links_target() {
    as_each_user(|m| {
        let m = m.policy(
            "load(\"@clash//sandboxes.star\", \"project\")
settings(default = allow(), default_sandbox = project)
",
        );
        m.write("app/env/dev.sh", "old");
        m.write("app/tools/hooks/x", "old");
        m.make_dir(m.project().join(".git"));
        symlink("env/dev.sh", m.project().join(".envrc")).unwrap();
        symlink("../tools/hooks", m.project().join(".git/hooks")).unwrap();
        for file in ["env/dev.sh", ".envrc", "tools/hooks/x", "tools/hooks/pre-commit"] {
            m.inside("project", &format!("echo x > {file}")).fails();
            let input = json!({"file_path": m.project().join(file), "content": "x"});
            m.asks("Write", input).is("ask", "");
        }
        let input = json!({"file_path": m.project().join("env/other"), "content": "x"});
        m.asks("Write", input).is("allow", "");
        m.inside("project", "echo x > env/other; echo x > tools/other").succeeds();
        assert_eq!(std::fs::read_to_string(m.project().join("env/dev.sh")).unwrap(), "old");
    });
}

#[test]
fn a_virtual_environment_is_thrown_away_whole_and_not_changed() {
    if !has("python3") {
        return;
    }
    as_each_user(|m| {
        bare(&m, "/usr/bin/python3 -m venv --without-pip .venv");
        for attack in [
            "echo x >> .venv/bin/activate",
            "rm .venv/bin/activate && echo x > .venv/bin/activate",
            "echo x > .venv/bin/activate",
        ] {
            m.inside("project", attack).fails();
        }
        let input = json!({"file_path": m.project().join(".venv/bin/activate"), "content": "x"});
        m.asks("Write", input).is("ask", "");
        m.inside("project", "rm -rf .venv").succeeds();
        assert!(!m.project().join(".venv").exists());
        m.inside("project", "/usr/bin/python3 -m venv --without-pip .venv").succeeds();
        m.inside("project", ". .venv/bin/activate && python -c pass").succeeds();
    });
}

/// `venv` writes the same text again. Any other text is refused with an error.
#[test]
fn an_activation_script_is_written_again_only_unchanged() {
    if !has("python3") {
        return;
    }
    as_each_user(|m| {
        bare(&m, "/usr/bin/python3 -m venv --without-pip .venv");
        let script = m.project().join(".venv/bin/activate");
        let text = std::fs::read(&script).unwrap();
        m.inside("project", "/usr/bin/python3 -m venv --without-pip .venv").succeeds();
        let open = "import os; f = open('.venv/bin/activate', 'wb')";
        for attack in [
            // Not a word of the refusal reaches the program, so the launcher says it.
            format!("{open}; f.write(b'evil\\n')"),
            format!("{open}; f.write(b'evil\\n'); f.close(); os._exit(0)"),
            format!("{open}; f.close()"),
            format!("{open}; os.link(f'/proc/self/fd/{{f.fileno()}}', '.venv/bin/activate.sh')"),
            format!("{open}; f.write(b'evil'); f.flush(); os.chmod('.venv/bin/activate', 0o644)"),
            "open('.venv/bin/activate', 'ab').write(b'evil')".into(),
            "open('.venv/bin/activate', 'r+b').write(b'evil')".into(),
            "import os; os.truncate('.venv/bin/activate', 0)".into(),
            "import os; os.chmod('.venv/bin/activate', 0o755)".into(),
            "import os; os.link('.venv/bin/activate', 'x'); open('x', 'wb').write(b'evil')".into(),
            "import os; open('x', 'w').write('evil'); os.replace('x', '.venv/bin/activate')".into(),
        ] {
            let ran = m.inside("project", &format!("/usr/bin/python3 -c \"{attack}\"")).fails();
            assert!(!ran.stderr.is_empty(), "{attack}");
            assert_eq!(std::fs::read(&script).unwrap(), text, "{attack}");
            let _ = std::fs::remove_file(m.project().join("x"));
        }
        let evil = format!("/usr/bin/python3 -c \"{open}; f.write(b'evil')\"");
        m.inside("project", &evil).fails().says("activate");
    });
}

#[test]
fn git_clean_removes_its_files_and_names_protected_ones() {
    if !has("git") {
        return;
    }
    as_each_user(|m| {
        let made = "git init -q . && mkdir -p .venv/bin build .vscode &&
            echo 1 > .venv/bin/activate && echo 1 > build/x && echo 1 > .vscode/settings.json";
        bare(&m, made);
        m.inside("git_safe", "git clean -fdx").fails().says(".vscode");
        let left = bare(&m, "ls -A").stdout;
        assert_eq!(left, ".git\n.vscode\n");
        m.inside("git_safe", "git clean -fdxe .vscode").succeeds();
    });
}

#[test]
fn a_worktree_comes_with_all_its_files_and_goes_again() {
    if !has("git") {
        return;
    }
    as_each_user(|m| {
        let made = "git init -q . && mkdir .vscode && echo 1 > .vscode/x && echo 1 > .npmrc &&
            echo '* text' > .gitattributes && git add -A && git commit -qm x &&
            mkdir .claude && echo /worktrees > .claude/.gitignore && git add -A && git commit -qm y";
        bare(&m, made);
        m.inside("git_safe", "git worktree add -q .claude/worktrees/one").succeeds();
        let one = m.project().join(".claude/worktrees/one");
        assert!(one.join(".vscode/x").exists() && one.join(".npmrc").exists());
        m.inside("project", "echo x > .claude/worktrees/one/.vscode/x").fails();
        m.inside("git_safe", "echo x > .claude/worktrees/one/.npmrc").fails();
        m.inside("project", "git worktree remove .claude/worktrees/one").fails();
        bare(&m, "git -C .claude/worktrees/one checkout -q .");
        m.inside("git_safe", "git worktree remove .claude/worktrees/one").succeeds();
        assert!(!one.exists());
        assert_eq!(bare(&m, "git worktree list").stdout.lines().count(), 1);
        assert_eq!(bare(&m, "git status --porcelain").stdout, "");
    });
}

/// The takeover of a project's repository that needs no protected path.
#[test]
fn the_projects_repository_cannot_be_put_out_of_the_way() {
    if !has("git") {
        return;
    }
    as_each_user(|m| {
        bare(
            &m,
            "git init -q . && git config user.name a && git config user.email a@b &&
             echo 1 > f && git add -A && git commit -qm x",
        );
        for sandbox in ["project", "git_safe"] {
            m.inside(sandbox, "cp -r .git/objects .git/refs .git/index .git/HEAD .").fails();
            bare(&m, "rm -rf objects refs index HEAD");
            for attack in ["mv .git/HEAD .git/X", "rm .git/HEAD", "echo x > .git/HEAD"] {
                m.inside(sandbox, attack).fails();
            }
        }
        assert_eq!(bare(&m, "git rev-parse --git-dir").stdout, ".git\n");
        m.inside(
            "project",
            "mkdir .git/rebase-merge; echo exec x > .git/rebase-merge/git-rebase-todo",
        )
        .fails();
        bare(&m, "rm -rf .git/rebase-merge; echo 2 > f; git commit -qam y");
        m.inside(
            "git_rebase_safe",
            "git switch -qc side && git rebase -q --root && git switch -q main",
        )
        .succeeds();
        let rebase = "GIT_SEQUENCE_EDITOR='sed -i 1s/pick/drop/' git rebase -qi HEAD~1";
        for sandbox in ["git_safe", "git_checkout_safe"] {
            m.inside(sandbox, rebase).fails();
            bare(&m, "git rebase --abort");
        }
        m.inside("git_rebase_safe", rebase).succeeds();
        m.inside("git_safe", "git init -q --bare b.git && git push -q b.git main").succeeds();
    });
}

#[test]
fn no_link_of_a_command_leads_the_file_tools_out() {
    as_each_user(|m| {
        m.write("app/src/x", "1");
        for attack in ["ln -s / L", "ln -s .. L", "ln -s src/../.. L", "ln -s ../.ssh L"] {
            for sandbox in ["project", "git_safe"] {
                m.inside(sandbox, attack).fails();
                assert!(m.project().join("L").symlink_metadata().is_err(), "{attack}");
            }
        }
        m.inside("project", "ln -s src/x L && cat L").succeeds();
    });
}
