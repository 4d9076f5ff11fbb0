//! Tries out an installation: runs the command in the agent's settings with a
//! harmless command, as the agent would, and then runs what the answer says.
//!
//! The trial has a session of its own, which is removed afterwards. Its trace says
//! what was decided, so a hook that answers without deciding is found out.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::agents::wiring::HookCommand;
use crate::agents::{Agent, Confines, Sample};
use crate::dirs::Dirs;
use crate::session::sessions_dir;
use crate::trace::{self, Event, Record};
use crate::{env, exit, say};

/// It does nothing, wherever it runs.
pub(crate) const HARMLESS: &str = "true";

/// Longer than the guard waits.
const LIMIT: Duration = Duration::from_secs(30);

/// What a trial showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The command was let through and ran in this sandbox.
    Ran { sandbox: String },
    /// The command was judged and refused by the policy.
    Refused { reason: String },
    /// There is no proof that commands are confined.
    Failed(String),
}

/// What the settings of an agent say about calling clash.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) hook: HookCommand,
    pub(crate) launcher: Option<PathBuf>,
}

pub(crate) fn run(dirs: &Dirs, agent: &Agent, entry: &Entry, project: &Path) -> Outcome {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let session = format!("clash-trial-{}-{number}", std::process::id());
    let trial = Trial { agent, entry, project, session: &session };
    let outcome = trial.outcome(dirs).unwrap_or_else(Outcome::Failed);
    // Nothing of it is left, in the log neither.
    let _ = fs::remove_dir_all(sessions_dir(dirs).join(&session));
    outcome
}

/// Runs the hook with a text that is no message: it must block.
pub(crate) fn blocks_junk(entry: &Entry, project: &Path) -> Result<(), String> {
    let said = Said::of(hook(entry, project), "{\"hook_event_name\":")?;
    let cancels = said.document().is_some_and(|answer| answer.get("cancel") == Some(&true.into()));
    let blocks = said.blocks() || cancels;
    blocks.then_some(()).ok_or_else(|| format!("the hook did not block junk: {}", said.status))
}

fn hook(entry: &Entry, project: &Path) -> Command {
    let mut command = match &entry.hook {
        HookCommand::Shell(line) => {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", line]);
            command
        }
        HookCommand::Argv(words) => {
            let mut words = words.iter();
            let mut command = Command::new(words.next().map(String::as_str).unwrap_or_default());
            command.args(words);
            command
        }
    };
    command.current_dir(project);
    if let Some(launcher) = &entry.launcher {
        command.env(env::CLAUDE_CODE_SHELL_PREFIX, launcher);
    }
    command
}

struct Trial<'a> {
    agent: &'a Agent,
    entry: &'a Entry,
    project: &'a Path,
    session: &'a str,
}

impl Trial<'_> {
    fn outcome(&self, dirs: &Dirs) -> Result<Outcome, String> {
        let cwd = self.project.to_string_lossy();
        let sample = Sample { session: self.session, cwd: &cwd, script: HARMLESS };
        let mut command = hook(self.entry, self.project);
        if let Some(variable) = self.agent.abilities.project {
            command.env(variable, self.project);
        }
        let said = Said::of(command, &(self.agent.sample)(&sample).to_string())?;
        let record = self.decision(dirs).ok_or_else(|| {
            format!("the hook decided nothing about a harmless command: {}", said.in_short())
        })?;
        let reason = record.reason.unwrap_or_default();
        if record.effect.as_deref() == Some("deny") {
            if record.rule.is_none() {
                return Err(reason);
            }
            let refuses =
                said.refuses() || self.agent.abilities.confines == Confines::RewriteAlways;
            return if refuses {
                Ok(Outcome::Refused { reason })
            } else {
                Err(format!("clash refused, and the answer does not: {}", said.in_short()))
            };
        }
        // Some agents are told the line to run in a refusal.
        if said.refuses() && said.line(self.session).is_none() {
            return Ok(Outcome::Refused { reason });
        }
        let command = self.confined(&said).ok_or_else(|| {
            format!("the answer does not name clash's launcher: {}", said.in_short())
        })?;
        let ran = Said::of(command, "")?;
        if !ran.status.success() {
            return Err(format!("a harmless command cannot run: {}", ran.in_short()));
        }
        Ok(Outcome::Ran { sandbox: record.sandbox.unwrap_or_default() })
    }

    /// What the trace of this session says was decided.
    fn decision(&self, dirs: &Dirs) -> Option<Record> {
        let file = trace::file_of(&sessions_dir(dirs).join(self.session));
        let mut records = trace::read(&file).ok()?.into_iter().map(|(record, _)| record);
        records.rfind(|record| record.event == Event::Decision)
    }

    /// The command that the agent starts after this answer.
    fn confined(&self, said: &Said) -> Option<Command> {
        let launched = self.entry.launcher.as_ref().map(Command::new);
        let mut command = match (self.agent.abilities.confines, launched) {
            (Confines::ShellPrefix, Some(mut launcher)) => {
                launcher.arg(HARMLESS).env(env::AI_AGENT, "trial_agent");
                launcher
            }
            (Confines::Shell, Some(mut launcher)) => {
                launcher.args(["-c", HARMLESS]);
                launcher
            }
            (Confines::Shell, None) => return None,
            _ => {
                let mut shell = Command::new("/bin/sh");
                shell.args(["-c", &said.line(self.session)?]);
                shell
            }
        };
        command.current_dir(self.project);
        if let Some(variable) = self.agent.abilities.session {
            command.env(variable, self.session);
        }
        Some(command)
    }
}

/// What a program left.
struct Said {
    status: ExitStatus,
    out: String,
    err: String,
}

impl Said {
    fn of(mut command: Command, input: &str) -> Result<Self, String> {
        let program = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self::wait(command, input).map_err(|error| format!("cannot run {program}: {error}"))
    }

    fn wait(mut command: Command, input: &str) -> io::Result<Self> {
        let mut child = command.spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            // The hook may have answered before it has read everything.
            let _ = stdin.write_all(input.as_bytes());
        }
        let (out, err) = (reader(child.stdout.take()), reader(child.stderr.take()));
        let started = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if started.elapsed() > LIMIT {
                child.kill()?;
                child.wait()?;
                return Err(io::Error::other("it did not answer in time"));
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let text = |handle: std::thread::JoinHandle<Vec<u8>>| {
            String::from_utf8_lossy(&handle.join().unwrap_or_default()).into_owned()
        };
        Ok(Self { status, out: text(out), err: text(err) })
    }

    fn document(&self) -> Option<Value> {
        serde_json::from_str(&self.out).ok()
    }

    /// The refusal that nearly every agent honours.
    fn blocks(&self) -> bool {
        let code = self.status.code() == Some(i32::from(exit::BLOCKED));
        code && self.out.is_empty() && !self.err.trim().is_empty()
    }

    fn refuses(&self) -> bool {
        const PLACES: [&str; 4] = [
            "/hookSpecificOutput/permissionDecision",
            "/permissionDecision",
            "/permission",
            "/decision",
        ];
        let document = self.document().unwrap_or_default();
        let says = |place: &&str| document.pointer(place).and_then(Value::as_str);
        let word = PLACES.iter().find_map(says);
        self.blocks() || word == Some("deny") || document.get("cancel") == Some(&true.into())
    }

    /// The line in the answer that starts the launcher with this session's slip.
    fn line(&self, session: &str) -> Option<String> {
        let call = format!(" exec --approval {session}.");
        let mut texts = vec![self.err.clone()];
        collect(&self.document().unwrap_or_default(), &mut texts);
        let text = texts.into_iter().find(|text| text.contains(&call))?;
        let line = text.lines().find(|line| line.contains(&call))?;
        // Some agents are told the line in a sentence.
        let told = line.split_once("with exactly this command: ").map(|(_, line)| line);
        Some(told.unwrap_or(line).to_owned())
    }

    fn in_short(&self) -> String {
        let text = [&self.err, &self.out].into_iter().find(|text| !text.trim().is_empty());
        match text.and_then(|text| text.trim().lines().next()) {
            Some(line) => format!("{} ({})", say::brief(line), self.status),
            None => self.status.to_string(),
        }
    }
}

fn reader(from: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut from) = from {
            let _ = from.read_to_end(&mut bytes);
        }
        bytes
    })
}

fn collect(value: &Value, texts: &mut Vec<String>) {
    match value {
        Value::String(text) => texts.push(text.clone()),
        Value::Array(values) => values.iter().for_each(|value| collect(value, texts)),
        Value::Object(members) => members.values().for_each(|value| collect(value, texts)),
        _ => {}
    }
}
