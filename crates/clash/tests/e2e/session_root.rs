//! A session stays in the directory in which it began, even if a command replaces the
//! directory.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Answer, Machine, Ran, as_each_user, clash, feed};

const POLICY: &str = r#"
load("@clash//sandboxes.star", "project")
settings(default = ask(), default_sandbox = project)
when({"Bash": allow(), ("Read", "Write"): allow(sandbox = project)})
"#;

const KEY: &str = "secret-key-material";

/// A session in a project of the temporary directory, without a repository.
struct Session {
    m: Machine,
    project: PathBuf,
}

impl Session {
    /// A machine with a policy, a key and a session that has run one command.
    fn begun(m: Machine) -> Self {
        let m = m.policy(POLICY);
        m.write(".ssh/id_ed25519", KEY);
        let project = m.tmp().join("app");
        m.make_dir(&project);
        let session = Self { m, project };
        session.bash("true").is("allow", "");
        session
    }

    /// Clash in the session, from another working directory.
    fn command(&self) -> Command {
        let mut command = self.m.command(clash());
        // The client's own working directory is the old one.
        command.current_dir("/").env("CLAUDE_CODE_SESSION_ID", "test-session");
        command
    }

    /// Runs the hook for an event in the project.
    fn hook(&self, event: &str, tool: &str, input: Value) -> Ran {
        let mut message = self.m.message(event, tool, input);
        message["cwd"] = json!(self.project);
        let mut command = self.command();
        command.args(["hook", "claude"]);
        Ran::from(feed(command, message.to_string().as_bytes()).wait_with_output().unwrap())
    }

    /// The hook's answer before a tool call.
    fn asks(&self, tool: &str, input: Value) -> Answer {
        Answer::of(&self.hook("PreToolUse", tool, input))
    }

    /// The hook's answer before a Bash command, which it does not run.
    fn bash(&self, script: &str) -> Answer {
        self.asks("Bash", json!({"command": script}))
    }

    /// The launcher in front of the agent's shell, without any hook before it.
    fn launch(&self, script: &str) -> Ran {
        let mut command = self.command();
        Ran::of(command.args(["exec", "--", "sh", "-c", script]))
    }

    /// The number of alarms in the record of the session.
    fn alarms(&self) -> usize {
        self.m.trace().iter().filter(|record| record["event"] == "alarm").count()
    }

    /// Checks that hook and launcher refuse everything and that the user is told.
    #[track_caller]
    fn is_over(&self) {
        self.bash("cat id_ed25519").is("deny", "start a new session");
        let file = json!({"file_path": self.project.join("id_ed25519")});
        self.asks("Read", file.clone()).is("deny", "start a new session");
        let ran = self.launch("cat id_ed25519; cat ~/.ssh/id_ed25519").exits(126);
        assert!(ran.stderr.contains("start a new session"), "{ran:?}");
        assert!(!ran.stdout.contains(KEY), "{ran:?}");
        assert_eq!(self.alarms(), 3);
        self.hook("PostToolUse", "Read", file).succeeds().says("start a new session");
        assert_eq!(self.alarms(), 4);
    }

    /// Removes the project, then calls `by` with its path.
    fn replace(&self, by: impl Fn(&Path)) {
        fs::remove_dir_all(&self.project).unwrap();
        by(&self.project);
    }
}

#[test]
fn a_link_in_the_place_of_the_project_opens_nothing() {
    as_each_user(|m| {
        let s = Session::begun(m);
        let ssh = s.m.home().join(".ssh");
        // A command of the session makes the link. If the monitor refuses it, the test makes
        // the link.
        let (tmp, to) = (s.m.tmp(), ssh.display());
        let _ = s.launch(&format!("cd {} && rmdir app && ln -s {to} app", tmp.display()));
        let _ = fs::remove_dir(&s.project);
        let _ = symlink(&ssh, &s.project);
        assert!(s.project.is_symlink());
        s.is_over();
    });
}

#[test]
fn a_session_is_refused_until_its_renamed_project_is_back() {
    as_each_user(|m| {
        let s = Session::begun(m);
        fs::rename(&s.project, s.m.tmp().join("away")).unwrap();
        s.bash("true").is("deny", "cannot be opened");
        s.launch("true").exits(126);
        fs::rename(s.m.tmp().join("away"), &s.project).unwrap();
        s.launch("true").succeeds();
    });
}

#[test]
fn another_directory_in_the_place_of_the_project_is_refused() {
    as_each_user(|m| {
        let s = Session::begun(m);
        s.m.make_dir(s.m.tmp().join("other"));
        let other = s.m.write("../tmp/other/id_ed25519", KEY);
        s.replace(|project| fs::rename(other.parent().unwrap(), project).unwrap());
        s.is_over();
    });
}

#[test]
fn a_link_above_the_project_opens_nothing() {
    as_each_user(|m| {
        let s = Session::begun(m);
        let deep = s.m.home().join("trap/app");
        s.m.make_dir(&deep);
        s.m.write("trap/app/id_ed25519", KEY);
        let tmp = s.m.tmp();
        fs::rename(&tmp, tmp.with_extension("old")).unwrap();
        symlink(s.m.home().join("trap"), &tmp).unwrap();
        s.is_over();
    });
}

/// The user clones the project again and goes on with the session.
#[test]
fn a_session_goes_on_in_a_project_that_was_made_anew() {
    as_each_user(|m| {
        let s = Session::begun(m);
        s.m.make_dir(s.m.tmp().join("clone"));
        s.replace(|project| fs::rename(s.m.tmp().join("clone"), project).unwrap());
        let start = |source: &str| {
            let mut message = s.m.message("SessionStart", "", json!({}));
            message["cwd"] = json!(s.project);
            message["source"] = source.into();
            s.m.hook(&message).succeeds()
        };
        start("compact");
        s.bash("true").is("deny", "start a new session");
        start("resume");
        s.bash("true").is("allow", "");
        s.replace(|project| symlink(s.m.home().join(".ssh"), project).unwrap());
        start("resume").says("start a new session");
        s.bash("true").is("deny", "start a new session");
    });
}

#[test]
fn an_older_session_record_is_completed_unless_a_link_is_there() {
    as_each_user(|m| {
        let s = Session::begun(m);
        let dir = s.m.state().join("sessions/test-session");
        let older = || {
            fs::remove_file(dir.join("root")).unwrap();
            s.m.write(dir.join("project"), s.project.to_str().unwrap());
        };
        older();
        s.bash("true").is("allow", "");
        assert!(dir.join("root").exists());
        older();
        s.replace(|project| symlink(s.m.home().join(".ssh"), project).unwrap());
        s.bash("true").is("deny", "start a new session");
        assert!(!dir.join("root").exists());
        s.launch("cat id_ed25519").exits(126);
        s.m.write(dir.join("root"), "clash root 9\n");
        s.bash("true").is("deny", "start a new session");
        s.launch("true").exits(125);
    });
}

/// The user's own links to projects, which no sandbox can have made.
#[test]
fn a_project_behind_a_link_of_the_user_works() {
    as_each_user(|m| {
        let m = m.policy(POLICY);
        let way = m.home().join("way");
        symlink(m.project(), &way).unwrap();
        let s = Session { m, project: way };
        s.bash("true").is("allow", "");
        s.launch(&format!("echo x > {}/made", s.m.project().display())).succeeds();
        assert!(s.m.project().join("made").exists());
        let file = json!({"file_path": s.project.join("made")});
        s.asks("Read", file).is("allow", "");
    });
}
