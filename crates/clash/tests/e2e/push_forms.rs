//! A hundred ways to write `git push`. The policy denies `git push`, lets other git commands
//! work in the project, and allows everything else without the network. Each form must be
//! refused, asked about, or run without reaching the remote. The test runs the allowed
//! forms and then looks at the remote.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::support::{Machine, Ran, Who, as_each_user, clash, test_file};

const POLICY: &str = r#"
load("@clash//sandboxes.star", "git_safe", "project")
settings(default = allow(), default_sandbox = project)
when({"Bash": {"git": {"push": deny(), glob("**"): allow(sandbox = git_safe)}, "sudo": deny()}})
"#;

/// The forms of the list, one a line.
fn forms() -> Vec<String> {
    let text = std::fs::read_to_string(test_file("shell/push-forms.txt")).unwrap();
    text.lines().filter(|l| !l.trim().is_empty()).map(|l| l.replace("\\n", "\n")).collect()
}

/// A project with commits that were never pushed, and its remote.
struct Repository<'m> {
    m: &'m Machine,
    remote: PathBuf,
}

impl<'m> Repository<'m> {
    /// Makes the remote and the project, with scripts that push.
    fn new(m: &'m Machine) -> Self {
        Self::at(m, m.outside().join("remote.git"))
    }

    fn at(m: &'m Machine, remote: PathBuf) -> Self {
        let repository = Self { m, remote };
        let script = format!(
            "set -e; git init -q --bare -b main {remote}; git init -q -b main; \
             git config user.name t; git config user.email t@example.com; \
             git remote add origin {remote}; git config push.default current; \
             printf 'pp:\\n\\tgit push origin main\\n' > Makefile; \
             printf '#!/bin/sh\\ngit push origin main\\n' > x.sh; chmod +x x.sh; \
             cp x.sh script.sh; git add -A; git commit -q -m one; \
             git config branch.main.remote origin; \
             git config branch.main.merge refs/heads/main",
            remote = repository.remote.display()
        );
        repository.outside(&script).succeeds();
        repository
    }

    /// Runs a script outside every sandbox, as the developer's own shell does.
    fn outside(&self, script: &str) -> Ran {
        Ran::of(self.m.command("bash").args(["-c", script]))
    }

    /// True if the remote has a reference.
    fn pushed(&self) -> bool {
        let refs = format!("git --git-dir={} for-each-ref", self.remote.display());
        !self.outside(&refs).stdout.is_empty()
    }

    /// Empties the remote and removes files of earlier forms.
    fn reset(&self) {
        let remote = self.remote.display();
        let script = format!(
            "rm -rf {remote} g test kill; git init -q --bare -b main {remote}; \
             git config --unset alias.p"
        );
        self.outside(&script);
    }
}

/// A sample of every twentieth form.
#[test]
fn most_of_the_forms_push_without_clash() {
    let forms = forms();
    let m = Machine::new(Who::Me).policy(POLICY);
    let repository = Repository::new(&m);
    let pushing = |form: &&String| {
        repository.reset();
        let script = format!("timeout 5 bash -c {}", clash_shell::shell_quoted(form));
        repository.outside(&script);
        repository.pushed()
    };
    // The test below proves something only if these forms reach the remote without clash.
    let sample: Vec<&String> = forms.iter().step_by(20).filter(pushing).collect();
    assert!(sample.len() >= 4, "{sample:?}");
}

#[test]
fn no_form_of_push_reaches_the_remote() {
    as_each_user(|m| no_form_pushes(m.policy(POLICY)));
}

#[test]
fn no_form_of_push_reaches_the_remote_without_rooms() {
    no_form_pushes(Machine::new(Who::Me).policy(POLICY).without_rooms());
}

/// Runs every form that the hook allows, and checks that the remote stays empty. At least 80
/// forms must be refused or asked about.
fn no_form_pushes(m: Machine) {
    let forms = forms();
    assert!(forms.len() >= 100);
    let repository = Repository::new(&m);
    let mut refused = 0;
    for form in &forms {
        let answer = m.bash(form);
        if answer.effect != "allow" {
            refused += 1;
            continue;
        }
        let command = answer.updated.as_ref().and_then(|input| input["command"].as_str());
        let command = command.unwrap_or_else(|| panic!("`{form}` is not wrapped: {answer:?}"));
        let mut run: Command = m.command("timeout");
        run.env("CLAUDE_CODE_SESSION_ID", "test-session").args(["5", "bash", "-c", command]);
        let ran = Ran::of(&mut run);
        assert!(!repository.pushed(), "`{form}` pushed: {ran:?}");
        repository.reset();
    }
    assert!(refused >= 80, "only {refused} of {} forms are refused or asked", forms.len());
}

/// The remote is a directory that every command may write, so only the deny stops a push.
const OPEN_REMOTE: &str = r#"
load("@clash//sandboxes.star", "project")
open_remote = sandbox(
    name = "open_remote",
    extends = project,
    fs = {"$HOME/remote.git": allow(FULL)},
    unprotect = [".git"],
)
settings(default = allow(), default_sandbox = open_remote)
when({"Bash": {"git": {"push": deny(reason = "no push"), glob("**"): allow()}}})
"#;

#[test]
fn no_script_in_a_file_pushes() {
    let text = std::fs::read_to_string(test_file("shell/push-from-files.txt")).unwrap();
    as_each_user(|m| {
        let m = m.policy(OPEN_REMOTE);
        let remote = m.home().join("remote.git");
        let repository = Repository::at(&m, remote.clone());
        let mut refused = 0;
        for form in text.lines() {
            m.write("app/x.sh", &format!("{form}\n"));
            let mut run = m.command("timeout");
            run.args(["20".as_ref(), clash().as_os_str()]);
            run.env("R", &remote).args(["exec", "--", "bash", "./x.sh"]);
            let ran = Ran::of(&mut run);
            refused += usize::from(ran.stderr.contains("no push"));
            assert!(!repository.pushed(), "`{form}` pushed: {ran:?}");
            repository.outside("git rebase --abort; git bisect reset; git checkout -qf main");
        }
        assert!(refused >= 70, "only {refused} of {} forms reached a door", text.lines().count());
    });
}

#[test]
fn an_attempt_to_push_is_in_the_trace_with_its_chain() {
    as_each_user(|m| {
        let m = m.policy(OPEN_REMOTE);
        let repository = Repository::at(&m, m.home().join("remote.git"));
        // `cp` copies the door.
        m.write(
            "app/Makefile",
            "pp:\n\tgit push origin main\n\ncopy:\n\tcp /usr/bin/git g; ./g push\n",
        );
        let answer = m.bash("make -k pp copy");
        let command = answer.updated.as_ref().and_then(|input| input["command"].as_str()).unwrap();
        let mut run: Command = m.command("bash");
        Ran::of(run.env("CLAUDE_CODE_SESSION_ID", "test-session").args(["-c", command]));
        assert!(!repository.pushed());
        let chain = |record: &Value| {
            let what = record["what"].as_str().unwrap_or_default();
            what.contains("make → ") && what.contains("git push origin main")
        };
        assert!(m.trace().iter().any(chain), "{:?}", m.trace());
        let copy = |record: &Value| {
            let what = record["what"].as_str().unwrap_or_default();
            what.contains("make → ") && what.ends_with("./g push")
        };
        assert!(m.trace().iter().any(copy), "{:?}", m.trace());
    });
}

#[test]
fn redirections_are_judged_like_writes() {
    let m = Machine::new(Who::Me).policy(
        r#"
load("@clash//sandboxes.star", "project")
settings(default = allow(), default_sandbox = project)
when({"Write": {glob("$PWD/**/*.lock"): deny(reason = "lock"), default(): allow()}})
"#,
    );
    m.bash("echo x > notes.txt").is("allow", "");
    m.bash("make 2>&1 > /dev/null").is("allow", "");
    m.bash("echo x > ~/.bashrc").is("ask", "does not grant");
    m.bash("cd / && echo x >> etc/passwd").is("ask", "does not grant");
    m.bash("cat < ~/.ssh/id").is("ask", "does not grant");
    m.bash("echo x > web/a.lock").is("deny", "lock");
    m.bash("cd web && echo x > a.lock").is("deny", "lock");
    m.bash("echo {} > .claude/settings.json").is("deny", "steers the agent");
    m.bash("git log > $OUT").is("allow", "");
}

#[test]
fn a_script_is_explained_command_by_command() {
    let m = Machine::new(Who::Me).policy(POLICY);
    let script = "cd web && timeout 9 npm test 2>&1 | tail -3; git commit -m \"$(cat <<'EOF'\nit's\nEOF\n)\"";
    let ran = m.clash(["explain", "bash", script, "--json"]).succeeds();
    let value: Value = serde_json::from_str(&ran.stdout).unwrap();
    let whats: Vec<&str> =
        value["parts"].as_array().unwrap().iter().map(|p| p["what"].as_str().unwrap()).collect();
    assert!(
        whats.contains(&"npm test") || whats.iter().any(|w| w.contains("npm test")),
        "{whats:?}"
    );
    assert!(whats.iter().any(|what| what.starts_with("git commit")), "{whats:?}");
}
