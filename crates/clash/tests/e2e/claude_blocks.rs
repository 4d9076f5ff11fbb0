//! Blocks through the real Claude Code: the words for the model, the row for the user, and the
//! command that grants the access.

use serde_json::Value;

use crate::claude_client::{CLAUDE, bash, installed};
use crate::support::{Who, clash};

/// Five everyday blocks: the model hears the sentence, the user finds the row, and the
/// command in it lets the same action pass.
#[test]
fn each_everyday_block_is_told_logged_and_can_be_granted() {
    let Some(claude) = CLAUDE.here() else { return };
    let m = installed(Who::Me).policy(
        r#"
load("@clash//sandboxes.star", "project")
settings(default = allow(), default_sandbox = project)
when({"Bash": {"date": deny(reason = "no clock")}})
"#,
    );
    m.write(".ssh/id_ed25519", "key\n");
    m.write("app/Makefile", "deploy:\n\tsh -c 'date > when.txt'\n");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        use std::io::{Read, Write};
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
        }
    });
    let outside = m.outside().join("new.txt");
    let blocks = [
        ("cat ~/.ssh/id_ed25519".to_owned(), "does not read `~/.ssh/id_ed25519`"),
        (format!("curl -sSf http://localhost:{port}/"), "does not reach `localhost:"),
        ("make -s deploy".to_owned(), "no clock"),
        (format!("touch {}", outside.display()), "does not change `~/other/new.txt`"),
        ("echo x > .envrc".to_owned(), "does not change `~/app/.envrc`"),
    ];
    for (script, sentence) in blocks {
        let talk = claude.run(&m, &[bash(&script)]);
        assert!(talk.heard.contains(sentence), "{script}: the model did not hear `{sentence}`");
        let rows = m.clash(["log", "--blocked", "--json", "-n", "1"]).succeeds().stdout;
        let row: Value = serde_json::from_str(rows.trim()).unwrap();
        assert_eq!(row["what"], script.as_str(), "{row}");
        let block = &row["blocks"][0];
        assert!(block["reason"].as_str().unwrap().contains(sentence), "{row}");
        let grant = block["block"]["grant"].as_str().unwrap();
        let typed = grant.replacen("clash", &clash().display().to_string(), 1);
        let typed = match typed.split_once(" -- ") {
            Some((before, after)) => format!("{before} --yes -- {after}"),
            None => format!("{typed} --yes"),
        };
        let granted = m.command("sh").args(["-c", &typed]).output().unwrap();
        assert!(granted.status.success(), "{typed}: {granted:?}");
        claude.run(&m, &[bash(&script)]).results[0].ran();
        let rows = m.clash(["log", "--json", "-n", "40"]).succeeds().stdout;
        let mut last = rows.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let last = last.rfind(|row| row["what"] == script.as_str()).unwrap();
        assert_eq!(last["status"], 0, "{last}");
    }
}
