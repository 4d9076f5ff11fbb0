//! File tools of the agent and links: the hook judges the file that the tool opens.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::support::{Machine, Ran, Who, as_each_user};

const POLICY: &str = r#"
load("@clash//sandboxes.star", "project")
settings(default = ask(), default_sandbox = project)
when({"Bash": allow(), ("Read", "Write", "Edit", "Glob"): allow(sandbox = project)})
"#;

const KEY: &str = "secret-key-material";

/// A machine with the policy, a key, and a harmless file of the same name.
fn with_key(m: Machine) -> Machine {
    let m = m.policy(POLICY);
    m.write(".ssh/id_ed25519", KEY);
    m.write("app/d/id_ed25519", "harmless\ntext\n");
    m
}

fn alarms(m: &Machine) -> usize {
    m.trace().iter().filter(|record| record["event"] == "alarm").count()
}

/// The three ways around a guard that looks at a link's text when it is made.
#[test]
fn a_file_behind_any_link_is_judged_where_it_lies() {
    as_each_user(|m| {
        let m = with_key(m);
        let project = m.project();
        let home = m.home().canonicalize().unwrap();
        let from_root = home.strip_prefix("/").unwrap();
        // A link to the root of the disk.
        symlink("/", project.join("root")).unwrap();
        // `..` behind a link of one's own.
        fs::create_dir_all(project.join("a/b/c")).unwrap();
        symlink("a/b/c", project.join("deep")).unwrap();
        symlink("..", project.join("a/here")).unwrap();
        symlink("a/here/../.ssh", project.join("text")).unwrap();
        // A link made deep and renamed up.
        symlink("../.ssh", project.join("a/up")).unwrap();
        fs::rename(project.join("a/up"), project.join("up")).unwrap();
        for path in [
            format!("root/{}/.ssh/id_ed25519", from_root.display()),
            "text/id_ed25519".to_owned(),
            "up/id_ed25519".to_owned(),
            "a/here/../.ssh/id_ed25519".to_owned(),
            "deep/../../../../.ssh/id_ed25519".to_owned(),
        ] {
            let answer = m.asks("Read", json!({"file_path": project.join(&path)}));
            assert_ne!(answer.effect, "allow", "{path}: {answer:?}");
            let answer = m.asks("Write", json!({"file_path": project.join(&path), "content": ""}));
            assert_ne!(answer.effect, "allow", "{path}: {answer:?}");
        }
        assert_eq!(alarms(&m), 0);
    });
}

fn read_text(content: &str) -> Value {
    json!({"type": "text", "file": {"filePath": "x", "content": content, "numLines": 1}})
}

/// Runs the hook after a call with this response.
fn after(m: &Machine, tool: &str, input: &Value, response: Value) -> Ran {
    let mut message = m.message("PostToolUse", tool, input.clone());
    message["tool_response"] = response;
    m.hook(&message).succeeds()
}

#[test]
fn a_directory_exchanged_after_the_judgement_raises_an_alarm() {
    as_each_user(|m| {
        let m = with_key(m);
        let dir = m.project().join("d");
        let read = json!({"file_path": dir.join("id_ed25519")});
        let judged = || m.asks("Read", read.clone()).is("allow", "");
        judged();
        assert_eq!(after(&m, "Read", &read, read_text("harmless\ntext\n")).stdout, "");
        assert_eq!(alarms(&m), 0);
        // The link still stands there.
        judged();
        fs::rename(&dir, m.project().join("kept")).unwrap();
        symlink(m.home().join(".ssh"), &dir).unwrap();
        after(&m, "Read", &read, read_text(KEY)).says("may have put a link in its way");
        assert_eq!(alarms(&m), 1);
        // Exchanged back before the second look: the text tells.
        fs::remove_file(&dir).unwrap();
        fs::rename(m.project().join("kept"), &dir).unwrap();
        judged();
        after(&m, "Read", &read, read_text(KEY)).says("is not that of");
        assert_eq!(alarms(&m), 2);
        // Another directory of the same name.
        judged();
        fs::rename(&dir, m.project().join("kept")).unwrap();
        m.make_dir(&dir);
        m.write("app/d/id_ed25519", "harmless\ntext\n");
        after(&m, "Read", &read, read_text("harmless\ntext\n")).says("was exchanged");
        assert_eq!(alarms(&m), 3);
    });
}

#[test]
fn everyday_file_tools_raise_no_alarm() {
    as_each_user(|m| {
        let m = with_key(m);
        let path = m.project().join("new/deep/file.txt");
        let write = json!({"file_path": path, "content": "one\r\ntwo\r\n"});
        m.asks("Write", write.clone()).is("allow", "");
        // The tool makes the directories, and replaces files by renaming.
        m.write("app/new/deep/tmp", "one\r\ntwo\r\n");
        fs::rename(m.project().join("new/deep/tmp"), &path).unwrap();
        let made = json!({"type": "create", "filePath": path, "content": "one\r\ntwo\r\n"});
        assert_eq!(after(&m, "Write", &write, made).stdout, "");
        let read = json!({"file_path": path, "offset": 2, "limit": 1});
        m.asks("Read", read.clone()).is("allow", "");
        assert_eq!(after(&m, "Read", &read, read_text("two")).stdout, "");
        let image = json!({"type": "image", "file": {"base64": "AAAA"}});
        m.asks("Read", read.clone()).is("allow", "");
        assert_eq!(after(&m, "Read", &read, image).stdout, "");
        let glob = json!({"pattern": "**/*.txt"});
        m.asks("Glob", glob.clone()).is("allow", "");
        assert_eq!(after(&m, "Glob", &glob, json!({"filenames": []})).stdout, "");
        assert_eq!(alarms(&m), 0);
        m.hook(&m.message("SessionEnd", "", json!({}))).succeeds();
        assert!(!m.state().join("sessions/test-session/judged").exists());
    });
}

/// File tools follow a link with the user's rights, also to files that the command which
/// made the link may not read.
#[test]
fn no_link_leads_to_a_credential() {
    as_each_user(|m| {
        let m = m.policy(
            r#"
sandbox(
    name = "token",
    default = deny(),
    fs = {"$PWD": allow(FULL), "$HOME/.config/gh": allow("r"), "$HOME/notes": allow("r")},
)
"#,
        );
        m.write(".config/gh/hosts.yml", "token");
        m.write("notes/a", "note");
        for tier in [&[][..], &["--simulate", "no-userns"]] {
            let run = |script: &str| {
                let inside = ["token", "--", "sh", "-c", script];
                m.clash(["sandbox", "exec"].iter().chain(tier).chain(&inside).copied())
            };
            run("cat ~/.config/gh/hosts.yml; ln -s ~/notes/a note && rm note").succeeds();
            run("ln -s ~/.config/gh/hosts.yml L").fails();
            run("ln -s ~/.config/gh L").fails();
        }
    });
}

#[test]
fn a_file_tool_completes_no_repository() {
    let m = with_key(Machine::new(Who::Me));
    m.make_dir(m.project().join("frontend/objects"));
    m.make_dir(m.project().join("frontend/refs"));
    let write = |path: &str| {
        let path = m.project().join(path);
        m.asks("Write", json!({"file_path": path, "content": "x"}))
    };
    write("frontend/config").is("allow", "");
    write("frontend/HEAD").is("ask", "git takes the directory for a repository");
    m.write("app/other/commondir", "../x");
    write("other/HEAD").is("ask", "git takes the directory for a repository");
}
