//! `clash run` runs a whole agent in a room of its own.

use std::fs;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::Stdio;

use crate::support::{Machine, Ran, Who, as_each_user, clash, program};

const POLICY: &str = r#"
load("@clash//sandboxes.star", "project", "readonly")
settings(default = ask(), default_sandbox = project)
when({
    "Bash": {
        ("cat", "echo", "env", "ls"): allow(),

        "head": allow(sandbox = readonly),
        "rm": deny(reason = "nothing is deleted here"),
    },
})
"#;

const SECRET: &str = "secret-key-material";

/// A machine with a policy, a secret and an agent that runs its argument as a shell script.
fn with_agent(m: Machine, name: &str) -> Machine {
    let m = m.policy(POLICY);
    m.write(".ssh/id_ed25519", SECRET);
    m.write("other/work.txt", SECRET);
    let agent = m.write(format!("agents/bin/{name}"), "");
    program(agent, "#!/bin/sh\neval \"$1\"\n");
    m
}

/// The same machine with clash installed for the agent.
fn with_asking_agent(m: Machine, name: &str) -> Machine {
    let m = with_agent(m, name);
    m.clash(["install", "--agent", name, "--yes"]).succeeds();
    m
}

/// Runs the agent with `clash run`, with secrets in its environment.
fn run(m: &Machine, name: &str, script: &str) -> Ran {
    let program = m.home().join("agents/bin").join(name);
    let mut command = m.command(clash());
    command.args(["run", "--"]).arg(program).arg(script);
    command.env("ANTHROPIC_API_KEY", "key-of-the-service").env("GITHUB_TOKEN", "token-of-the-user");
    Ran::of(&mut command)
}

/// A script that tries to reach everything that the room of any agent hides.
const LOOK: &str = "cat ~/.ssh/id_ed25519 ~/other/work.txt; ls -A ~ /tmp; echo x > /tmp/x; \
                    echo x > ~/.bashrc; echo done > done.txt; env";

/// Checks that [`LOOK`] found no secret, wrote only in the project, and saw only the variable
/// of the agent's service.
#[track_caller]
fn is_confined(m: &Machine, ran: &Ran) {
    assert!(!ran.stdout.contains(SECRET), "{ran:?}");
    assert!(!ran.stdout.contains("other") && !ran.stdout.contains(".ssh"), "{ran:?}");
    assert!(ran.stdout.contains("key-of-the-service"), "{ran:?}");
    assert!(!ran.stdout.contains("token-of-the-user"), "{ran:?}");
    assert!(!m.home().join(".bashrc").exists());
    assert_eq!(fs::read_to_string(m.project().join("done.txt")).unwrap(), "done\n");
}

#[test]
fn an_agent_without_hooks_is_confined_by_its_room() {
    as_each_user(|m| {
        let m = with_agent(m, "aider");
        let ran = run(&m, "aider", &format!("{LOOK}; echo kept > ~/.aider/state")).succeeds();
        is_confined(&m, &ran);
        assert!(ran.stderr.contains("its actions are not judged, this room is all"), "{ran:?}");
        assert_eq!(fs::read_to_string(m.home().join(".aider/state")).unwrap(), "kept\n");
        // The room shows no files of clash, and no rooms can be made in it.
        let inside = format!("ls {}; unshare -Ur true", m.state().display());
        run(&m, "aider", &inside).fails();
    });
}

#[test]
fn an_agent_with_hooks_sees_no_more_than_one_without() {
    as_each_user(|m| {
        let m = with_asking_agent(m, "claude");
        let ran = run(&m, "claude", LOOK).succeeds();
        is_confined(&m, &ran);
        assert!(ran.stderr.contains("each action is judged and confined"), "{ran:?}");
    });
}

/// The real clients obey these files and do not tell the user.
#[test]
fn an_agent_that_a_project_keeps_from_asking_is_not_started() {
    let off = [
        ("claude", ".claude/settings.local.json", "{\"disableAllHooks\": true}"),
        ("codex", ".codex/config.toml", "[features]\nhooks = false\n"),
        ("gemini", ".gemini/settings.json", "{\"hooksConfig\": {\"enabled\": false}}"),
        ("gemini", ".gemini/settings.json", "{\"hooksConfig\": {\"disabled\": [\"clash\"]}}"),
        ("qwen", ".qwen/settings.json", "{\"disableAllHooks\": true}"),
        ("copilot", ".github/copilot/settings.json", "{\"disableAllHooks\": true}"),
        ("copilot", ".claude/settings.json", "{\"disableAllHooks\": true}"),
        ("opencode", "opencode.json", "{\"shell\": \"/bin/bash\"}"),
    ];
    for (agent, file, text) in off {
        let m = with_asking_agent(Machine::new(Who::Me), agent);
        let start = || run(&m, agent, "echo started > started");
        start().succeeds().says("each action is judged");
        fs::remove_file(m.project().join("started")).unwrap();
        m.write(format!("app/{file}"), text);
        start().exits(1).says("is not started").says(file);
        assert!(!m.project().join("started").exists(), "{agent}");
        let said = m.clash(["status"]).stdout;
        assert!(said.contains("this project works against clash"), "{agent}: {said}");
        m.clash(["doctor"]).exits(1).says(file);
        // Some clients read the file in the working directory instead.
        if agent != "opencode" {
            fs::rename(m.project().join(file), m.project().join("elsewhere")).unwrap();
            m.write("app/.git/HEAD", "ref: refs/heads/main\n");
            m.write(format!("app/sub/{file}"), text);
            let mut command = m.command(clash());
            let own = m.home().join("agents/bin").join(agent);
            command.args(["run", "--"]).arg(own).arg("echo started > started");
            Ran::of(command.current_dir(m.project().join("sub"))).exits(1).says(file);
        }
        // Without clash there are no hooks to switch off.
        m.clash(["uninstall", "--agent", agent]).succeeds();
        start().succeeds().says("its actions are not judged").says("clash install --agent");
    }
}

#[test]
fn an_agent_writes_its_state_and_no_steering_files() {
    as_each_user(|m| {
        let m = with_asking_agent(m, "claude");
        let settings = m.home().join(".claude/settings.json");
        let before = fs::read_to_string(&settings).unwrap();
        m.write(".claude/hooks/own.sh", "true");
        m.write("app/.git/config", "[core]\n");
        m.write("app/.git/hooks/pre-commit", "true");
        let script = "cat ~/.claude/settings.json ~/.clash/policy.star > /dev/null || exit 9
            for file in ~/.claude/settings.json ~/.claude/hooks/own.sh ~/.clash/policy.star \
                        .git/config .git/hooks/pre-commit .git/hooks/post-commit; do
                if echo planted 2>/dev/null >> $file; then echo wrote $file; fi
            done
            mv ~/.claude/settings.json ~/.claude/old && echo moved
            mv .git git && echo moved
            echo line > ~/.claude/history";
        let ran = run(&m, "claude", script).succeeds();
        assert_eq!(ran.stdout, "", "{ran:?}");
        assert_eq!(fs::read_to_string(settings).unwrap(), before);
        assert!(m.home().join(".claude/history").exists());
        assert!(!m.project().join(".git/hooks/post-commit").exists());
    });
}

/// Root gets no rooms inside its room: an action that needs one is refused, and no action
/// runs with the agent's own rights.
#[test]
fn no_action_inside_the_room_has_the_rights_of_the_agent() {
    as_each_user(|m| {
        let m = with_asking_agent(m, "claude");
        let clash = clash().display();
        m.write(".claude/token", "token-of-the-agent");
        let ran = run(&m, "claude", &format!("{clash} exec -- rm done.txt; echo $?")).succeeds();
        assert!(ran.stdout.ends_with("126\n") && ran.stderr.contains("nothing is deleted"));
        // Landlock and seccomp alone enforce this sandbox, with or without a room.
        m.write("app/notes", "notes\n");
        let look =
            format!("{clash} exec -- head notes ~/.claude/token; {clash} exec -- head -c0 x");
        let ran = run(&m, "claude", &look);
        assert!(ran.stdout.contains("notes\n") && !ran.stdout.contains("token-of"), "{ran:?}");
        let inner = "cat ~/.claude/token; echo x > /tmp/y; echo in > in.txt; ls /tmp/[xy]; env";
        m.write("app/inner.sh", inner);
        let outer = "echo outer > /tmp/x";
        let script =
            format!("{outer}; {clash} sandbox exec project -- sh inner.sh; echo $?; ls /tmp/[xy]");
        let ran = run(&m, "claude", &script).succeeds();
        assert!(!ran.stdout.contains("token-of-the-agent"), "{ran:?}");
        if m.who == Who::Nobody {
            let made = fs::read_to_string(m.project().join("in.txt")).unwrap_or_default();
            assert_eq!(made, "in\n", "{ran:?}");
            assert!(!ran.stdout.contains("key-of-the-service"), "{ran:?}");
            assert!(ran.stdout.starts_with("/tmp/y\n"), "{ran:?}");
            assert!(ran.stdout.ends_with("\n0\n/tmp/x\n"), "{ran:?}");
        }
    });
}

/// Monitors inside the agent's room share the record of removed links as well.
#[test]
fn a_room_inside_a_room_records_removed_links() {
    as_each_user(|m| {
        let m = with_asking_agent(m, "claude");
        let clash = clash().display();
        let inner = "ln -s ../.. a/b/l && rm a/b/l";
        let script = format!("mkdir -p a/b; {clash} sandbox exec project -- sh -c '{inner}'");
        let ran = run(&m, "claude", &script);
        if m.who == Who::Nobody {
            ran.succeeds();
            let record = m.state().join("sessions/.former-links");
            assert!(fs::metadata(record).unwrap().len() > 0);
        }
    });
}

/// Two commands of one session, each in a room inside the agent's room.
#[test]
fn actions_inside_a_room_share_the_projects_cache() {
    as_each_user(|m| {
        let m = with_asking_agent(m, "claude");
        let more = "load(\"@clash//rust.star\", \"rust_full\", \"rust_safe\")\n";
        m.write(".clash/policy.star", &format!("{more}{POLICY}"));
        let source = m.write(".cargo/registry/src/x/lib.rs", "original\n");
        m.write("app/patch.sh", "cd ~/.cargo/registry/src/x && echo patched > lib.rs && ls\n");
        let clash = clash().display();
        let script = format!(
            "{clash} sandbox exec rust_full -- sh patch.sh; \
             {clash} sandbox exec rust_safe -- cat $HOME/.cargo/registry/src/x/lib.rs; \
             cat $HOME/.cargo/registry/src/x/lib.rs; echo evil > $HOME/.cargo/registry/src/x/lib.rs"
        );
        let ran = run(&m, "claude", &script);
        assert_eq!(fs::read_to_string(&source).unwrap(), "original\n");
        if m.who == Who::Nobody {
            assert_eq!(ran.stdout, "lib.rs\npatched\noriginal\n", "{ran:?}");
        }
        // An agent without hooks has the project's cache in its own room.
        let m = with_agent(m, "aider");
        let script =
            "echo patched > ~/.cargo/registry/src/x/lib.rs && cat ~/.cargo/registry/src/x/*";
        run(&m, "aider", script).succeeds().says("patched");
        assert_eq!(fs::read_to_string(&source).unwrap(), "original\n");
    });
}

#[test]
fn rooms_inside_a_room_see_registries_without_secrets() {
    as_each_user(|m| {
        let m = with_asking_agent(m, "claude");
        let more = "load(\"@clash//node.star\", \"node_full\")\n";
        m.write(".clash/policy.star", &format!("{more}{POLICY}"));
        m.write(".npmrc", "registry=https://npm.corp/\n//npm.corp/:_authToken=hunter2\n");
        let clash = clash().display();
        let inner = format!("{clash} sandbox exec node_full -- cat $HOME/.npmrc");
        let ran = run(&m, "claude", &format!("cat $HOME/.npmrc; {inner}"));
        let masked = "registry=https://npm.corp/\n//npm.corp/:_authToken=xxxxxxx\n";
        // Root gets no rooms in a room.
        let times = if m.who == Who::Nobody { 2 } else { 1 };
        assert_eq!(ran.stdout, masked.repeat(times), "{ran:?}");
    });
}

#[test]
fn a_new_namespace_does_not_undo_the_room_around_it() {
    as_each_user(|m| {
        let m = with_asking_agent(m, "claude");
        let settings = m.home().join(".claude/settings.json");
        let installed = fs::read_to_string(&settings).unwrap();
        let policy = m.home().join(".clash/policy.star");
        let before = fs::read_to_string(&policy).unwrap();
        let script = "exec 2>/dev/null
            unshare -Urm --propagation private sh -c '
                for mount in $(cut -d\" \" -f5 /proc/self/mountinfo | sort -r); do
                    umount -l $mount
                    mount -o remount,bind,rw $mount
                done
                ls -A ~ / /.covers/* ; cat ~/.ssh/id_ed25519 ~/other/work.txt
                echo planted >> ~/.claude/settings.json; echo planted >> ~/.clash/policy.star
                echo planted > /etc/planted; echo planted > /usr/planted
                echo planted > /proc/sys/kernel/domainname'
            echo planted > /proc/sys/kernel/domainname; echo over";
        let ran = run(&m, "claude", script);
        assert!(ran.stdout.ends_with("over\n"), "{ran:?}");
        assert!(!ran.stdout.contains(SECRET) && !ran.stdout.contains("other"), "{ran:?}");
        assert_eq!(fs::read_to_string(settings).unwrap(), installed);
        assert_eq!(fs::read_to_string(policy).unwrap(), before);
        let name = fs::read_to_string("/proc/sys/kernel/domainname").unwrap();
        assert!(!name.contains("planted"));
        assert!(!["/etc", "/usr"].iter().any(|dir| fs::exists(format!("{dir}/planted")).unwrap()));
    });
}

/// Agents leave servers running that run commands for every client that connects.
#[test]
fn a_daemon_outside_does_nothing_for_an_agent_inside() {
    as_each_user(|m| {
        let m = with_agent(m, "codex");
        let state = m.home().join(".codex");
        m.make_dir(&state);
        let public = tempfile::Builder::new().prefix("clash-daemon-").tempdir_in("/tmp").unwrap();
        fs::set_permissions(public.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let paths = [state.join("daemon.sock"), public.path().join("daemon.sock")];
        let _listening: Vec<UnixListener> = paths
            .iter()
            .map(|path| {
                let listener = UnixListener::bind(path).unwrap();
                fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
                listener
            })
            .collect();
        let name = format!("clash-daemon-{}", std::process::id());
        let abstract_name = SocketAddr::from_abstract_name(&name).unwrap();
        let _abstract = UnixListener::bind_addr(&abstract_name).unwrap();
        let connect = format!(
            "import socket\nfor path in {:?}, {:?}, '\\0{name}':\n    try:\n        \
             socket.socket(socket.AF_UNIX).connect(path)\n        print('connected', path)\n    \
             except OSError:\n        print('refused')\n",
            paths[0], paths[1]
        );
        let client = m.write("app/connect.py", &connect);
        let outside = Ran::of(m.command("python3").arg(&client)).succeeds();
        assert_eq!(outside.stdout.matches("connected").count(), 3, "{outside:?}");
        let inside = run(&m, "codex", "python3 connect.py").succeeds();
        assert_eq!(inside.stdout, "refused\nrefused\nrefused\n");
    });
}

#[test]
fn processes_outside_cannot_be_seen_or_ended() {
    as_each_user(|m| {
        let m = with_agent(m, "aider");
        let mut outside = m.command("sleep").arg("60").stdout(Stdio::null()).spawn().unwrap();
        let script = format!("kill -9 {}; ls /proc | grep -c '^[0-9]'", outside.id());
        let ran = run(&m, "aider", &script).succeeds();
        assert!(ran.stdout.trim().parse::<u32>().unwrap() < 10, "{ran:?}");
        assert!(outside.try_wait().unwrap().is_none(), "the process was ended from inside");
        outside.kill().unwrap();
        outside.wait().unwrap();
    });
}

#[test]
fn the_agent_ends_as_it_would_without_a_room() {
    as_each_user(|m| {
        let m = with_agent(m, "pi");
        run(&m, "pi", "exit 7").exits(7);
        assert_eq!(run(&m, "pi", "kill -TERM $$").signal, Some(15));
    });
}

#[test]
fn run_takes_any_sandbox_except_an_unrestricted_one() {
    let m = with_agent(Machine::new(Who::Me), "aider");
    let agent = m.home().join("agents/bin/aider");
    let agent = agent.to_str().unwrap();
    let named = |name: &str| m.clash(["run", "--sandbox", name, "--", agent, "echo x > made"]);
    named("readonly").fails();
    assert!(!m.project().join("made").exists());
    named("unrestricted").exits(1).says("is unrestricted");
    named("nosuch").exits(125).says("there is no sandbox `nosuch`").says("agent");
    m.clash(["run", "--", "no-such-agent"]).exits(127).says("`no-such-agent` not found");
    m.clash(["run"]).exits(2);
    m.clash(["run", "--help"]).succeeds().says("Run a whole agent in a sandbox");
}

#[test]
fn run_refuses_a_policy_behind_a_link() {
    let m = with_asking_agent(Machine::new(Who::Me), "claude");
    let policy = m.home().join(".clash/policy.star");
    fs::rename(&policy, m.home().join("policy.star")).unwrap();
    std::os::unix::fs::symlink(m.home().join("policy.star"), &policy).unwrap();
    run(&m, "claude", "true").exits(1).says("policy.star is a link");
}
