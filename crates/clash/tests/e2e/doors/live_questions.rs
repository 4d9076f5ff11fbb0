//! Questions about commands that only show while a script runs.

use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::support::{Machine, Ran, as_each_user, clash, eventually};

const POLICY: &str = r#"
load("@clash//sandboxes.star", "project")
settings(default = allow(), default_sandbox = project)
secrets = sandbox(
    name = "secrets",
    default = deny(),
    fs = {subpath("$PWD"): allow(FULL), "$HOME/secret": allow("r")},
)
when({"Bash": {"tail": ask(sandbox = secrets)}})
"#;

/// The rule asks about `tail`, which only the Makefile names.
fn machine(m: Machine) -> Machine {
    let m = m.policy(POLICY);
    m.write("secret", "hidden\n");
    m.write("app/Makefile", "all:\n\ttail -n 1 $(HOME)/secret\nwait:\n\ttail -f Makefile\n");
    m
}

/// The command `clash exec -- make TARGET`, without standard input.
fn make(m: &Machine, target: &str) -> Command {
    let mut command = m.command(clash());
    command.args(["exec", "--", "make", "-s", target]).stdin(Stdio::null());
    command
}

/// A listener, which ends with the test.
struct Following(Child);

impl Following {
    /// Starts `clash asks --follow` and waits until it is registered.
    fn start(m: &Machine) -> Self {
        let child = m.command(clash()).args(["asks", "--follow"]).stdout(Stdio::null()).spawn();
        let following = Self(child.unwrap());
        eventually("the listener is registered", || m.state().join("questions/listener").exists());
        // The lock follows the file at once.
        std::thread::sleep(std::time::Duration::from_millis(200));
        following
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The questions that `clash asks` lists.
fn waiting(m: &Machine) -> Vec<Value> {
    let said = m.clash(["asks", "--json"]).succeeds().stdout;
    let value: Value = serde_json::from_str(&said).unwrap();
    value["questions"].as_array().unwrap().clone()
}

/// Waits for a question, answers it with `clash answer`, and gives back the question.
fn answer_the_question(m: &Machine, answer: &str) -> Value {
    eventually("the question waits", || !waiting(m).is_empty());
    let question = waiting(m).remove(0);
    m.clash(["answer", question["id"].as_str().unwrap(), answer]).succeeds();
    question
}

#[test]
fn a_yes_lets_the_waiting_command_run_and_a_no_refuses_it() {
    as_each_user(|m| {
        let m = machine(m);
        let _following = Following::start(&m);
        let run = make(&m, "all").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let question = answer_the_question(&m, "once");
        assert_eq!(question["sandbox"], "secrets", "{question}");
        assert!(question["chain"].as_str().unwrap().starts_with("make → "), "{question}");
        assert!(question["subject"].as_str().unwrap().starts_with("tail -n 1 "), "{question}");
        let output = run.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "hidden\n");
        let run = make(&m, "all").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        answer_the_question(&m, "deny");
        let output = run.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.stdout.is_empty() && said.contains("the answer was no"), "{said}");
        assert_eq!(waiting(&m), [] as [Value; 0]);
    });
}

#[test]
fn without_a_listener_the_refusal_names_the_way_to_allow() {
    as_each_user(|m| {
        let m = machine(m);
        let ran = Ran::of(&mut make(&m, "all")).fails();
        assert!(ran.stderr.contains("`clash watch` does"), "{ran:?}");
        let allow = "`clash policy allow --sandbox secrets -- tail`";
        assert!(ran.stderr.contains(allow), "{ran:?}");
    });
}

#[test]
fn a_signal_ends_a_command_that_waits_for_its_answer() {
    as_each_user(|m| {
        let m = machine(m);
        let _following = Following::start(&m);
        let script = "timeout -s TERM 1 tail -n 1 ~/secret; echo $?";
        m.write("app/x.sh", script);
        let mut command = m.command(clash());
        let ran = Ran::of(command.args(["exec", "--", "sh", "./x.sh"]).stdin(Stdio::null()));
        assert_eq!(ran.stdout, "124\n", "{ran:?}");
        eventually("the question is gone", || waiting(&m).is_empty());
    });
}

#[test]
fn a_room_can_neither_see_nor_answer_questions() {
    as_each_user(|m| {
        let m = machine(m);
        let _following = Following::start(&m);
        let run = make(&m, "all").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        eventually("the question waits", || !waiting(&m).is_empty());
        let id = waiting(&m)[0]["id"].as_str().unwrap().to_owned();
        let questions = m.state().join("questions");
        let script = format!(
            "{clash} answer {id} once; ls {at}; echo '\"once\"' > {at}/{id}.answer",
            clash = clash().display(),
            at = questions.display(),
        );
        let tried = m.inside("project", &script);
        assert!(!tried.stdout.contains(&id), "{tried:?}");
        assert_eq!(waiting(&m).len(), 1, "{tried:?}");
        m.clash(["answer", &id, "deny"]).succeeds();
        let output = run.wait_with_output().unwrap();
        assert!(!output.status.success() && output.stdout.is_empty());
    });
}
