//! `clash watch` in a real terminal of 80 columns and 24 rows.

use std::path::PathBuf;
use std::process::Command;

use serde_json::json;

use crate::support::{Machine, Ran, as_each_user, clash, eventually, skipped};

/// A terminal of tmux, which ends with the test.
struct Terminal {
    socket: PathBuf,
    machine: Machine,
}

impl Terminal {
    /// Starts a shell in a new terminal. `None` without tmux.
    fn open(machine: Machine, variables: &[&str]) -> Option<Self> {
        if Command::new("tmux").arg("-V").output().is_err() {
            skipped("the screen of clash watch: tmux");
            return None;
        }
        let socket = machine.home().join("tmux");
        let terminal = Self { socket, machine };
        let mut start = terminal.tmux(&["new-session", "-d", "-x", "80", "-y", "24"]);
        start.arg("env").args(variables).arg("sh");
        Ran::of(&mut start).succeeds();
        Some(terminal)
    }

    fn tmux(&self, args: &[&str]) -> Command {
        let mut tmux = self.machine.command("tmux");
        tmux.env("SHELL", "/bin/sh").arg("-S").arg(&self.socket).args(args);
        tmux
    }

    fn press(&self, key: &str) {
        Ran::of(&mut self.tmux(&["send-keys", key])).succeeds();
    }

    fn type_line(&self, line: &str) {
        Ran::of(&mut self.tmux(&["send-keys", "-l", line])).succeeds();
        self.press("Enter");
    }

    /// The present screen; with `codes` also its colours.
    fn screen(&self, codes: bool) -> String {
        let mut args = vec!["capture-pane", "-p"];
        args.extend(codes.then_some("-e"));
        Ran::of(&mut self.tmux(&args)).succeeds().stdout
    }

    fn shows(&self, text: &str) {
        eventually(&format!("the screen shows {text}"), || self.screen(false).contains(text));
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.tmux(&["kill-server"]).output();
    }
}

/// A home with the policy of `clash init --quick`, and three actions of an agent.
fn machine(m: Machine) -> Machine {
    m.write("notes.txt", "notes\n");
    m.write("app/build/out.o", "x\n");
    Ran::of(m.command("git").args(["init", "-q", "."])).succeeds();
    m.clash(["init", "--quick", "--yes"]).succeeds();
    m.bash("git push origin main").is("ask", "needs your approval");
    let mut message = m.message("PreToolUse", "Bash", json!({"command": "cat ~/notes.txt"}));
    message["tool_use_id"] = json!("toolu_2");
    m.hook(&message);
    m
}

#[test]
fn the_screen_shows_actions_and_answers_questions() {
    as_each_user(|m| {
        let Some(terminal) = Terminal::open(machine(m), &["NO_COLOR=1"]) else { return };
        let m = &terminal.machine;
        terminal.type_line(&format!("{} watch", clash().display()));
        terminal.shows("1 session, 0 rooms, 0 questions");
        terminal.shows("git push origin main");
        terminal.shows("!allow          cat ~/notes.txt");
        // A question of a running command, answered with a rule.
        let hidden = ["exec", "--", "awk", "BEGIN { exit system(\"rm -r build\") }"];
        let mut running = m.command(clash()).args(hidden).spawn().unwrap();
        terminal.shows("? rm -r build");
        terminal.shows("by awk → sh → rm -r build, sandbox project");
        terminal.press("w");
        terminal.shows("now allow: `rm -r` is allowed");
        assert!(running.wait().unwrap().success());
        assert!(!m.project().join("build").exists());
        m.bash("rm -r src").is("allow", "");
        // The blocks, with the command that allows one.
        terminal.press("4");
        terminal.shows("sandbox project does not read `~/notes.txt`");
        terminal.shows("to allow it: clash sandbox allow project r ~/notes.txt");
        terminal.press("?");
        terminal.shows("answer the question: yes, once");
        let coloured = terminal.screen(true);
        assert!(!["[31m", "[33m"].iter().any(|code| coloured.contains(code)), "{coloured:?}");
        // The terminal is as before.
        terminal.press("x");
        terminal.press("q");
        terminal.type_line("stty -a | grep -o ' echo ' && echo is back");
        terminal.shows("is back");
        assert!(!terminal.screen(false).contains("clash watch   "));
    });
}

/// A no of the user refuses, and a closed screen is a no.
#[test]
fn a_denied_question_and_a_closed_screen_refuse() {
    let Some(terminal) = Terminal::open(machine(Machine::new(crate::support::Who::Me)), &[]) else {
        return;
    };
    let m = &terminal.machine;
    terminal.type_line(&format!("{} watch", clash().display()));
    for key in ["d", "q"] {
        let hidden = ["exec", "--", "awk", "BEGIN { exit system(\"rm -r build\") }"];
        let mut running = m.command(clash()).args(hidden).spawn().unwrap();
        terminal.shows("? rm -r build");
        terminal.press(key);
        assert!(!running.wait().unwrap().success());
        assert!(m.project().join("build").exists());
    }
}

#[test]
fn without_a_screen_there_is_a_hint() {
    let m = machine(Machine::new(crate::support::Who::Me));
    m.clash(["watch"]).fails().says("no screen to draw on").says("`clash log --follow`");
    let Some(terminal) = Terminal::open(m, &["TERM=dumb"]) else { return };
    terminal.type_line(&format!("{} watch", clash().display()));
    terminal.shows("the terminal `dumb` cannot move its cursor");
}
