//! Tries out an installation. The trial runs the hook in the agent's settings with a
//! message about a harmless command, and then runs the command that the answer names.
//!
//! The trial has a session of its own, and removes it afterwards. The decision must be in
//! the trace of that session, so a hook that answers without a decision fails the trial.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::dirs::Dirs;
use crate::session::sessions_dir;
use crate::trace::{self, TraceEvent, TraceRecord};
use crate::{exit, say};
use clash_agents::wiring::HookCommand;
use clash_agents::{Agent, ConfinementMethod, SampleCall};

/// A command without any effect.
pub(crate) const HARMLESS: &str = "true";

/// The time for each program of a trial. The launcher's own guard waits a shorter time.
const TRIAL_LIMIT: Duration = Duration::from_secs(30);

/// The result of a trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TrialOutcome {
    /// The hook allowed the command, and it ran in this sandbox.
    Ran { sandbox: String },
    /// The policy refused the command.
    Refused { reason: String },
    /// There is no proof that commands are confined.
    Failed(String),
}

/// One hook in the settings of an agent, and its launcher.
#[derive(Clone, Debug)]
pub(crate) struct HookEntry {
    pub(crate) hook: HookCommand,
    pub(crate) launcher: Option<PathBuf>,
    /// The variable in which the client names its launcher to the hook.
    pub(crate) prefix_variable: Option<&'static str>,
}

/// Tries one hook, in a session of its own that is removed afterwards.
pub(crate) fn run(dirs: &Dirs, agent: &Agent, entry: &HookEntry, project: &Path) -> TrialOutcome {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let session = format!("clash-trial-{}-{number}", std::process::id());
    let trial = HookTrial { agent, entry, project, session: &session };
    let outcome = trial.outcome(dirs).unwrap_or_else(TrialOutcome::Failed);
    // Also removes the trial from `clash log`.
    let _ = fs::remove_dir_all(sessions_dir(dirs).join(&session));
    outcome
}

/// Runs the hook with a text that is not a message. The hook must block.
pub(crate) fn blocks_junk(entry: &HookEntry, project: &Path) -> Result<(), String> {
    let said = ProgramOutput::run(hook_command(entry, project), "{\"hook_event_name\":")?;
    let cancels = said.document().is_some_and(|answer| answer.get("cancel") == Some(&true.into()));
    let blocks = said.blocks() || cancels;
    blocks.then_some(()).ok_or_else(|| format!("the hook did not block junk: {}", said.status))
}

/// The hook as the agent starts it, in the project.
fn hook_command(entry: &HookEntry, project: &Path) -> Command {
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
    if let (Some(launcher), Some(variable)) = (&entry.launcher, entry.prefix_variable) {
        command.env(variable, launcher);
    }
    command
}

/// One trial and its session.
struct HookTrial<'a> {
    agent: &'a Agent,
    entry: &'a HookEntry,
    project: &'a Path,
    session: &'a str,
}

impl HookTrial<'_> {
    /// Runs the hook, reads its decision from the trace, and runs the command that the answer
    /// names. The error is the reason for a failed trial.
    fn outcome(&self, dirs: &Dirs) -> Result<TrialOutcome, String> {
        let cwd = self.project.to_string_lossy();
        let sample = SampleCall { session: self.session, cwd: &cwd, script: HARMLESS };
        let mut command = hook_command(self.entry, self.project);
        if let Some(variable) = self.agent.abilities.project {
            command.env(variable, self.project);
        }
        let said = ProgramOutput::run(command, &(self.agent.sample)(&sample).to_string())?;
        let record = self.decision(dirs).ok_or_else(|| {
            format!("the hook decided nothing about a harmless command: {}", said.first_line())
        })?;
        let reason = record.reason.unwrap_or_default();
        if record.effect.as_deref() == Some("deny") {
            if record.rule.is_none() {
                return Err(reason);
            }
            let refuses =
                said.refuses() || self.agent.abilities.confines == ConfinementMethod::RewriteAlways;
            return if refuses {
                Ok(TrialOutcome::Refused { reason })
            } else {
                Err(format!("clash refused, and the answer does not: {}", said.first_line()))
            };
        }
        // For some agents the refusal has the line to run.
        if said.refuses() && said.line(self.session).is_none() {
            return Ok(TrialOutcome::Refused { reason });
        }
        let command = self.agents_command(&said).ok_or_else(|| {
            format!("the answer does not name clash's launcher: {}", said.first_line())
        })?;
        let ran = ProgramOutput::run(command, "")?;
        if !ran.status.success() {
            return Err(format!("a harmless command cannot run: {}", ran.first_line()));
        }
        Ok(TrialOutcome::Ran { sandbox: record.sandbox.unwrap_or_default() })
    }

    /// The last decision in the trace of this session; `None` if the hook recorded none.
    fn decision(&self, dirs: &Dirs) -> Option<TraceRecord> {
        let session = sessions_dir(dirs).join(self.session);
        let mut records = trace::read(&session).ok()?.into_iter().map(|(record, _)| record);
        records.rfind(|record| record.event == TraceEvent::Decision)
    }

    /// The command that the agent would start after this answer, in the project and with the
    /// agent's variables. The caller runs it. `None` if the answer names no launcher.
    fn agents_command(&self, said: &ProgramOutput) -> Option<Command> {
        let launched = self.entry.launcher.as_ref().map(Command::new);
        let mut command = match (self.agent.abilities.confines, launched) {
            (ConfinementMethod::ShellPrefix, Some(mut launcher)) => {
                launcher.arg(HARMLESS);
                if let Some(wrapper) = self.agent.extras.shell_wrapper {
                    launcher.env(wrapper.agent_mark.0, wrapper.agent_mark.1);
                }
                launcher
            }
            (ConfinementMethod::Shell, Some(mut launcher)) => {
                launcher.args(["-c", HARMLESS]);
                launcher
            }
            (ConfinementMethod::Shell, None) => return None,
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

/// The exit status and the output of a program.
struct ProgramOutput {
    status: ExitStatus,
    out: String,
    err: String,
}

impl ProgramOutput {
    /// Runs the program with this input to its end, at most [`TRIAL_LIMIT`].
    fn run(mut command: Command, input: &str) -> Result<Self, String> {
        let program = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self::wait(command, input).map_err(|error| format!("cannot run {program}: {error}"))
    }

    /// Gives the input, waits for the end, and collects the output. Kills the program and
    /// fails if it takes longer than [`TRIAL_LIMIT`].
    fn wait(mut command: Command, input: &str) -> io::Result<Self> {
        let mut child = command.spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            // The hook may answer before it has read the whole input.
            let _ = stdin.write_all(input.as_bytes());
        }
        let (out, err) = (spawn_reader(child.stdout.take()), spawn_reader(child.stderr.take()));
        let started = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if started.elapsed() > TRIAL_LIMIT {
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

    /// The output as JSON, if it is that.
    fn document(&self) -> Option<Value> {
        serde_json::from_str(&self.out).ok()
    }

    /// True for the refusal that nearly every agent honours: exit status 2 with only a
    /// message on standard error.
    fn blocks(&self) -> bool {
        let code = self.status.code() == Some(i32::from(exit::BLOCKED));
        code && self.out.is_empty() && !self.err.trim().is_empty()
    }

    /// True if the answer refuses the call, in any of the forms that agents honour.
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
        collect_texts(&self.document().unwrap_or_default(), &mut texts);
        let text = texts.into_iter().find(|text| text.contains(&call))?;
        let line = text.lines().find(|line| line.contains(&call))?;
        // For some agents the line is part of a sentence.
        let told = line.split_once("with exactly this command: ").map(|(_, line)| line);
        Some(told.unwrap_or(line).to_owned())
    }

    /// The first line of the output and the exit status, for a message.
    fn first_line(&self) -> String {
        let text = [&self.err, &self.out].into_iter().find(|text| !text.trim().is_empty());
        match text.and_then(|text| text.trim().lines().next()) {
            Some(line) => format!("{} ({})", say::one_line(line), self.status),
            None => self.status.to_string(),
        }
    }
}

/// Reads a stream to its end in a thread.
fn spawn_reader(from: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut from) = from {
            let _ = from.read_to_end(&mut bytes);
        }
        bytes
    })
}

/// Adds every text in a JSON value.
fn collect_texts(value: &Value, texts: &mut Vec<String>) {
    match value {
        Value::String(text) => texts.push(text.clone()),
        Value::Array(values) => values.iter().for_each(|value| collect_texts(value, texts)),
        Value::Object(members) => members.values().for_each(|value| collect_texts(value, texts)),
        _ => {}
    }
}
