//! Links that one command plants do not widen a later command.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::json;

use crate::support::{Machine, Ran, as_each_user};

const POLICY: &str = r#"
load("@clash//sandboxes.star", "project")
node_full = sandbox(
    name = "node_full",
    default = ask(),
    fs = {
        "$PWD": allow(FULL),
        ("$COREPACK_HOME", "$NPM_CONFIG_CACHE", "$XDG_CACHE_HOME/node"): allow(FULL),
    },
)
node_safe = sandbox(
    name = "node_safe",
    default = ask(),
    fs = {
        "$PWD": allow(FULL),
        ("$COREPACK_HOME", "$NPM_CONFIG_CACHE", "$XDG_CACHE_HOME/node"): allow(RO),
        "$NPM_CONFIG_CACHE/_logs": allow(FULL),
    },
)
settings(default = ask(), default_sandbox = project)
sandbox(name = "logs", default = deny(), fs = {"$PWD": allow(FULL), "$NPM_CONFIG_CACHE/_logs": allow(FULL)})
when({
    "Bash": {"npm": allow(sandbox = node_full), "node": allow(sandbox = node_safe)},
    ("Read", "Write"): allow(sandbox = node_safe),
})
"#;

const KEY: &str = "secret-key-material";

/// A machine with the policy, a key and caches of node.
fn with_caches(m: Machine) -> Machine {
    let m = m.policy(POLICY);
    m.write(".ssh/id_ed25519", KEY);
    m.write(".npm/_logs/a.log", "log");
    m.write(".npm/_cacache/x", "cached");
    m.write(".cache/node/corepack/x", "x");
    m
}

/// The same sandbox in a room and without namespaces.
const TIERS: [&[&str]; 2] = [&[], &["--simulate", "no-userns"]];

/// Runs a script in a sandbox, on this kind of host.
fn run(m: &Machine, tier: &[&str], sandbox: &str, script: &str) -> Ran {
    let mut args = vec!["sandbox", "exec"];
    args.extend(tier);
    args.extend([sandbox, "--", "sh", "-c", script]);
    m.clash(args)
}

/// A command plants a link. If the monitor refuses it, the test plants the link: it may be
/// older than clash.
fn plant(m: &Machine, tier: &[&str], at: &str, target: &str) {
    let at = m.home().join(at);
    let shown = at.display();
    let script = format!("rm -rf {shown}; ln -s {target} {shown}");
    let _ = run(m, tier, "node_full", &script);
    let _ = fs::remove_dir_all(&at);
    let _ = fs::remove_file(&at);
    symlink(target, &at).unwrap();
}

/// One command plants a link, and the next one tries to use it.
#[track_caller]
fn opens_nothing(m: &Machine, at: &str, target: &str, then: &str) {
    for tier in TIERS {
        plant(m, tier, at, target);
        for sandbox in ["node_safe", "logs"] {
            let ran = run(m, tier, sandbox, then);
            assert!(!ran.stdout.contains(KEY), "{sandbox}: {ran:?}");
            assert!(!m.home().join(".bash_aliases").exists(), "{sandbox}: {ran:?}");
        }
        let ran = run(m, tier, "node_safe", then).exits(125);
        let ran = ran.says("may have planted the link");
        assert!(ran.stderr.contains("remove it"), "{ran:?}");
    }
}

#[test]
fn a_link_planted_in_a_cache_opens_nothing() {
    as_each_user(|m| {
        let m = with_caches(m);
        let then = "cat ~/.ssh/id_ed25519; echo x > ~/.bash_aliases";
        opens_nothing(&m, ".npm/_logs", "..", then);
    });
}

#[test]
fn a_link_planted_behind_a_variable_opens_nothing() {
    as_each_user(|m| {
        let m = with_caches(m);
        opens_nothing(&m, ".cache/node/corepack", "../..", "cat ~/.ssh/id_ed25519");
    });
}

/// `_cacache` is read-only in `node_safe`, and `_logs` is not.
#[test]
fn a_link_that_stays_in_its_cache_opens_nothing() {
    as_each_user(|m| {
        let m = with_caches(m);
        plant(&m, &[], ".npm/_logs", "_cacache");
        run(&m, &[], "node_safe", "echo evil > ~/.npm/_cacache/x").exits(125);
        assert_eq!(fs::read_to_string(m.home().join(".npm/_cacache/x")).unwrap(), "cached");
    });
}

#[test]
fn file_tools_do_not_use_a_planted_link() {
    as_each_user(|m| {
        let m = with_caches(m);
        let key = m.home().join(".ssh/id_ed25519");
        let read = || m.asks("Read", json!({"file_path": key}));
        read().is("deny", "it holds ssh keys");
        fs::remove_dir_all(m.home().join(".npm/_logs")).unwrap();
        symlink("..", m.home().join(".npm/_logs")).unwrap();
        read().is("deny", "may have planted the link");
        let other = m.home().join("other/x");
        m.asks("Write", json!({"file_path": other, "content": "x"}))
            .is("deny", "may have planted the link");
        // Elsewhere the tools go on working.
        m.asks("Read", json!({"file_path": m.project().join("x")})).is("allow", "");
    });
}

#[test]
fn no_directory_is_made_through_a_planted_link() {
    as_each_user(|m| {
        let m = with_caches(m);
        plant(&m, &[], ".npm/_logs", "../made");
        run(&m, &[], "node_safe", "true").exits(125);
        assert!(!m.home().join("made").exists());
    });
}

/// Disks are often arranged by links that the user has made.
#[test]
fn links_of_the_user_go_on_working() {
    as_each_user(|m| {
        let m = with_caches(m);
        let moved = |name: &str| {
            let (at, to) = (m.home().join(name), m.home().join("data").join(name));
            m.make_dir(to.parent().unwrap());
            fs::rename(&at, &to).unwrap();
            symlink(&to, &at).unwrap();
        };
        moved(".npm");
        moved(".cache");
        for tier in TIERS {
            run(&m, tier, "node_full", "echo y > ~/.npm/_cacache/y; cat ~/.cache/node/corepack/x")
                .succeeds();
            let ran = run(&m, tier, "node_safe", "echo z > ~/.npm/_logs/z; cat ~/.npm/_cacache/y");
            assert_eq!(ran.succeeds().stdout, "y\n");
        }
        m.asks("Read", json!({"file_path": m.home().join(".npm/_cacache/y")})).is("allow", "");
        assert!(Path::new(&m.home().join("data/.npm/_logs/z")).exists());
    });
}

/// Dotfiles: the policy is a link into a directory that may be the project.
#[test]
fn a_policy_behind_a_link_cannot_be_changed() {
    as_each_user(|m| {
        let text = r#"
load("@clash//sandboxes.star", "project", "workspace")
load("more.star", "MORE")
settings(default = ask(), default_sandbox = project)
when({"Bash": allow(sandbox = workspace), ("Read", "Write"): allow(sandbox = project)} | MORE)
"#;
        for (name, text) in [("policy.star", text), ("more.star", "MORE = {}\n")] {
            m.write(format!("app/clash/{name}"), text);
            m.make_dir(m.home().join(".clash"));
            symlink(m.project().join("clash").join(name), m.home().join(".clash").join(name))
                .unwrap();
        }
        for tier in TIERS {
            for name in ["policy.star", "more.star"] {
                let spoil = format!(
                    "echo '# spoilt' >> clash/{name}; rm -f clash/{name}; mv clash moved; \
                     rm -rf ~/.clash; mv ~/.clash ~/moved; true"
                );
                for sandbox in ["project", "workspace"] {
                    run(&m, tier, sandbox, &spoil).succeeds();
                }
                let file = m.project().join("clash").join(name);
                assert!(!fs::read_to_string(&file).unwrap().contains("spoilt"), "{name}");
                let write = json!({"file_path": file, "content": "x"});
                m.asks("Write", write).is("deny", "steers the agent or clash itself");
            }
        }
    });
}

/// A command that replaces the link brings its own records of trust.
#[test]
fn a_link_to_clash_s_own_files_cannot_be_replaced() {
    as_each_user(|m| {
        let m = m.policy(
            r#"
load("@clash//sandboxes.star", "workspace")
settings(default = ask(), default_sandbox = workspace)
"#,
        );
        for name in [".local", ".cache"] {
            m.make_dir(m.home().join("data").join(name));
            symlink(m.home().join("data").join(name), m.home().join(name)).unwrap();
        }
        for tier in TIERS {
            let spoil = "rm -f ~/.local ~/.cache; ln -sfn ~/evil ~/.local; mv ~/.cache ~/gone; \
                         mkdir -p ~/.local/state/clash/trust ~/.cache/clash/policy; \
                         mv ~/data ~/gone; true";
            run(&m, tier, "workspace", spoil).succeeds();
            for name in [".local", ".cache"] {
                let to = fs::read_link(m.home().join(name)).unwrap();
                assert_eq!(to, m.home().join("data").join(name), "{tier:?}");
            }
            assert!(!m.home().join("data/.local/state/clash/trust").exists());
        }
    });
}

/// A rule of one project that leads into another, whose session plants a link.
#[test]
fn a_link_planted_in_another_project_opens_nothing() {
    as_each_user(|m| {
        let m = m.policy(
            r#"
load("@clash//sandboxes.star", "project")
settings(default = ask(), default_sandbox = project)
sandbox(name = "tools", default = deny(), fs = {"$PWD": allow(FULL), "$HOME/tools/lib": allow(RO)})
when({"Bash": allow(), "Read": allow(sandbox = project)})
"#,
        );
        m.write(".ssh/id_ed25519", KEY);
        m.write("tools/lib/x", "x");
        let read = "cat ~/tools/lib/*";
        run(&m, &[], "tools", read).succeeds();
        let moved = m.home().join("tools/old");
        fs::rename(m.home().join("tools/lib"), &moved).unwrap();
        symlink("old", m.home().join("tools/lib")).unwrap();
        // Only the user can have made this link.
        run(&m, &[], "tools", read).succeeds();
        let mut message = m.message("PreToolUse", "Read", json!({"file_path": "x"}));
        message["cwd"] = json!(m.home().join("tools"));
        message["session_id"] = json!("another-session");
        m.hook(&message).succeeds();
        fs::remove_file(m.home().join("tools/lib")).unwrap();
        symlink("../.ssh", m.home().join("tools/lib")).unwrap();
        for tier in TIERS {
            let ran = run(&m, tier, "tools", read).exits(125).says("may have planted the link");
            assert!(!ran.stdout.contains(KEY), "{ran:?}");
        }
    });
}
