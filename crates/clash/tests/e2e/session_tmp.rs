//! `$TMPDIR` is the session's own directory. Commands and file tools of the session share
//! it; the host and other sessions do not.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::{Machine, Ran, Who, as_each_user, clash};

const POLICY: &str = r#"
load("@clash//sandboxes.star", "project")
load("@clash//python.star", "python_safe")
settings(default = ask(), default_sandbox = project)
when({
    "Bash": {"python3": allow(sandbox = python_safe), glob("**"): allow(sandbox = project)},
    ("Read", "Write", "Edit", "Glob", "Grep"): allow(sandbox = project),
})
"#;

/// A file in the host's /tmp, removed when this value is dropped.
struct HostFile(PathBuf);

impl HostFile {
    /// Writes a file with a name that no other test uses.
    fn new(name: &str, text: &str) -> Self {
        let unique = format!("{name}-{}-{:?}", std::process::id(), std::thread::current().id());
        let plain: String = unique.chars().filter(|c| *c != '(' && *c != ')').collect();
        let path = Path::new("/tmp").join(plain);
        fs::write(&path, text).unwrap();
        Self(path)
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.0).unwrap()
    }
}

impl Drop for HostFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// The hook's answer to a tool call in this session.
fn asks(m: &Machine, session: &str, tool: &str, input: Value) -> Value {
    let mut message = m.message("PreToolUse", tool, input);
    message["session_id"] = session.into();
    let ran = m.hook(&message);
    let document: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{ran:?}"));
    document["hookSpecificOutput"].clone()
}

/// Runs a script as the client does after its hook.
fn bash(m: &Machine, session: &str, script: &str) -> Ran {
    let answer = asks(m, session, "Bash", json!({"command": script}));
    let line = answer["updatedInput"]["command"].as_str().unwrap_or_else(|| panic!("{answer}"));
    let mut shell = m.command("sh");
    Ran::of(shell.env("CLAUDE_CODE_SESSION_ID", session).args(["-c", line]))
}

/// The path that the hook gives to a file tool instead.
fn moved(m: &Machine, session: &str, tool: &str, path: &Path) -> PathBuf {
    let answer = asks(m, session, tool, json!({"file_path": path, "content": ""}));
    assert_eq!(answer["permissionDecision"], "allow", "{answer}");
    PathBuf::from(
        answer["updatedInput"]["file_path"].as_str().unwrap_or_else(|| panic!("{answer}")),
    )
}

/// The session's own temporary directory on the host.
fn of_session(m: &Machine, session: &str) -> PathBuf {
    m.state().join("sessions").join(session).join("tmp")
}

#[test]
fn commands_of_a_session_share_tmp_under_all_its_names() {
    as_each_user(|m| {
        let m = m.policy(POLICY);
        bash(&m, "one", "echo first > /tmp/clash-test-a").succeeds();
        let own = of_session(&m, "one");
        let script = format!(
            "cat /tmp/clash-test-a /var/tmp/clash-test-a $TMPDIR/clash-test-a {}/clash-test-a {}/clash-test-a; mkfifo /tmp/pipe",
            m.tmp().display(),
            own.display()
        );
        let ran = bash(&m, "one", &script).succeeds();
        assert_eq!(ran.stdout, "first\n".repeat(5));
        // Another sandbox of the session shows it too.
        let read = "python3 -c 'print(open(\"/tmp/clash-test-a\").read())'";
        assert_eq!(bash(&m, "one", read).succeeds().stdout.trim(), "first");
        // The project is in the host's /tmp and stays where it is.
        bash(&m, "one", "echo x > made.txt").succeeds();
        assert!(m.project().join("made.txt").exists());
        assert!(!Path::new("/tmp/clash-test-a").exists());
        let mode = fs::metadata(&own).unwrap();
        assert_eq!(std::os::unix::fs::MetadataExt::mode(&mode) & 0o777, 0o700);
    });
}

#[test]
fn file_tools_and_commands_mean_the_same_tmp() {
    as_each_user(|m| {
        let m = m.policy(POLICY);
        let real = moved(&m, "one", "Write", Path::new("/tmp/w"));
        assert_eq!(real, of_session(&m, "one").join("w"));
        fs::write(&real, "written").unwrap();
        assert_eq!(bash(&m, "one", "cat /tmp/w").succeeds().stdout, "written");
        bash(&m, "one", "echo said > /tmp/b").succeeds();
        let read = moved(&m, "one", "Read", Path::new("/tmp/b"));
        assert_eq!(fs::read_to_string(read).unwrap(), "said\n");
        // The path that the hook gave is accepted as it is.
        let answer = asks(&m, "one", "Read", json!({"file_path": real}));
        assert_eq!(answer["permissionDecision"], "allow", "{answer}");
        let all = asks(&m, "one", "Glob", json!({"pattern": "/tmp/*.txt"}));
        let pattern = of_session(&m, "one").join("*.txt").display().to_string();
        assert_eq!(all["updatedInput"]["pattern"], pattern, "{all}");
    });
}

#[test]
fn the_hosts_tmp_is_neither_seen_nor_changed() {
    as_each_user(|m| {
        let m = m.policy(POLICY);
        let object = HostFile::new("ccXYZ.s", "assembly of a build outside");
        let path = object.0.display().to_string();
        let search = "python3 -c 'import glob; print(glob.glob(\"/tmp/cc*\") + glob.glob(\"/var/tmp/cc*\"))'";
        assert_eq!(bash(&m, "one", search).succeeds().stdout.trim(), "[]");
        bash(&m, "one", &format!("cat {path}")).fails();
        bash(&m, "one", &format!("rm {path}")).fails();
        // The room has another file under this name.
        bash(&m, "one", &format!("echo evil > {path}")).succeeds();
        assert_eq!(object.text(), "assembly of a build outside");
        assert_ne!(moved(&m, "one", "Write", &object.0), object.0);
        // A link into the host's /tmp does not help either.
        bash(&m, "one", &format!("ln -s {path} l; cat l; echo evil > l"));
        assert_eq!(object.text(), "assembly of a build outside");
        // A read of a file that only the host has is judged like any other read.
        let host = HostFile::new("of-the-user", "");
        let answer = asks(&m, "one", "Read", json!({"file_path": host.0}));
        assert_ne!(answer["permissionDecision"], "allow", "{answer}");
    });
}

#[test]
fn sessions_do_not_see_each_others_tmp() {
    as_each_user(|m| {
        let m = m.policy(POLICY);
        bash(&m, "one", "echo secret > /tmp/of-one; echo x > made.txt").succeeds();
        assert_eq!(bash(&m, "two", "ls /tmp").succeeds().stdout.matches("of-one").count(), 0);
        let other = of_session(&m, "one").join("of-one");
        bash(&m, "two", &format!("cat {}", other.display())).fails();
        bash(&m, "two", &format!("cp made.txt {}", other.display())).fails();
        for tool in ["Read", "Write"] {
            let input = json!({"file_path": other, "content": ""});
            let answer = asks(&m, "two", tool, input);
            assert_ne!(answer["permissionDecision"], "allow", "{tool}: {answer}");
        }
        // The rest of the session's state stays closed to its own commands, too.
        let state = of_session(&m, "one").parent().unwrap().display().to_string();
        for script in ["cat S/project", "cp made.txt S/project", "mv S/tmp S/t", "ls S/approvals/"]
        {
            bash(&m, "one", &script.replace('S', &state)).fails();
        }
        assert!(of_session(&m, "one").is_dir());
    });
}

#[test]
fn tmp_stays_at_the_end_of_a_session() {
    as_each_user(|m| {
        let m = m.policy(POLICY);
        bash(&m, "one", "echo x > /tmp/a; mkdir -m 0 /tmp/closed").succeeds();
        let line = asks(&m, "one", "Bash", json!({"command": "echo up; read line"}));
        let line = line["updatedInput"]["command"].as_str().unwrap().to_owned();
        let mut shell = m.command("sh");
        shell.env("CLAUDE_CODE_SESSION_ID", "one").args(["-c", &line]);
        shell.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut running = shell.spawn().unwrap();
        let mut first = [0; 3];
        std::io::Read::read_exact(running.stdout.as_mut().unwrap(), &mut first).unwrap();
        let mut end = m.message("SessionEnd", "", json!({}));
        end["session_id"] = "one".into();
        m.hook(&end).succeeds();
        assert!(of_session(&m, "one").join("a").exists());
        drop(running.stdin.take());
        running.wait().unwrap();
        m.hook(&end).succeeds();
        // The user may resume the session, and a command may have moved a file there.
        assert!(of_session(&m, "one").join("a").exists());
    });
}

#[test]
fn the_sweep_removes_tmp_of_a_session_unused_for_nine_days() {
    let m = Machine::new(Who::Me).policy(POLICY);
    for session in ["old", "new"] {
        bash(&m, session, "echo x > /tmp/a; mkdir -m 0 /tmp/closed").succeeds();
        symlink("/", of_session(&m, session).join("link")).unwrap();
    }
    let dir = m.state().join("sessions/old");
    fs::create_dir(dir.join("tmp.removed-1")).unwrap();
    let past = std::time::SystemTime::now() - std::time::Duration::from_secs(9 * 24 * 3600);
    for path in [dir.join("trace.jsonl"), dir.clone()] {
        fs::File::open(path).unwrap().set_modified(past).unwrap();
    }
    let mut start = m.message("SessionStart", "", json!({}));
    start["session_id"] = "third".into();
    m.hook(&start).succeeds();
    assert!(!dir.join("tmp").exists() && !dir.join("tmp.removed-1").exists());
    assert!(of_session(&m, "new").join("a").exists());
}

#[test]
fn without_a_session_tmp_is_the_commands_own() {
    as_each_user(|m| {
        let m = m.policy(POLICY);
        let host = HostFile::new("of-the-user", "kept");
        let path = host.0.display();
        let script = format!(
            "echo x > $TMPDIR/a && echo y > /tmp/clash-test-b && ! cat {path} && ls -A /tmp"
        );
        m.inside("project", &script).succeeds();
        m.inside("project", "! cat /tmp/clash-test-b").succeeds();
        assert_eq!(fs::read_dir(m.tmp()).unwrap().count(), 0);
        assert!(!Path::new("/tmp/clash-test-b").exists());
    });
}

#[test]
fn the_literal_tmp_of_a_policy_is_the_hosts() {
    let text = POLICY.replace(
        "settings(",
        "host_tmp = sandbox(name = \"host_tmp\", fs = {\"$PWD\": allow(FULL), \"/tmp\": allow(FULL)})\nsettings(",
    );
    let text = text.replace(
        "glob(\"**\"): allow(sandbox = project)",
        "glob(\"**\"): allow(sandbox = host_tmp)",
    );
    let m = Machine::new(Who::Me).policy(&text);
    let host = HostFile::new("granted", "");
    bash(&m, "one", &format!("echo x > {}", host.0.display())).succeeds();
    assert_eq!(host.text(), "x\n");
}

#[test]
fn a_client_whose_input_cannot_be_changed_is_told_the_path() {
    let m = Machine::new(Who::Me).policy(POLICY);
    let message = json!({
        "session_id": "one", "cwd": m.project(), "hook_event_name": "PreToolUse",
        "tool_name": "write_file", "permission_mode": "default",
        "tool_input": {"file_path": "/tmp/x", "content": ""}, "tool_use_id": "1",
    });
    let mut hook = m.command(clash());
    hook.args(["hook", "qwen"]);
    let child = crate::support::feed(hook, message.to_string().as_bytes());
    let ran = Ran::from(child.wait_with_output().unwrap());
    let said = format!("{}{}", ran.stdout, ran.stderr);
    let path = of_session(&m, "one").join("x").display().to_string();
    assert!(said.contains(&path), "{said}");
}

/// Outside the room /tmp is the host's, and file tools open the link there.
#[test]
fn a_link_to_tmp_leads_to_the_sessions_directory_outside() {
    as_each_user(|m| {
        let m = m.policy(POLICY);
        let host = HostFile::new("behind-a-link", "kept");
        let at = host.0.display();
        bash(&m, "one", &format!("echo own > /tmp/x; ln -s /tmp/x L; ln -s {at} /tmp/abs; cat L"))
            .succeeds();
        let session = fs::canonicalize(of_session(&m, "one")).unwrap();
        for link in [m.project().join("L"), session.join("abs")] {
            let target = fs::read_link(&link).unwrap();
            assert!(target.starts_with(&session), "{link:?} -> {target:?}");
        }
        bash(&m, "one", "ln -s ../../../../../../tmp/x climbs").fails();
    });
}
