//! One hook call, from standard input to the answer. Read this first.
//!
//! Whatever goes wrong here ends in a block: a deny in the agent's own words
//! where its question was understood, and otherwise exit status 2 with the
//! reason on standard error, which blocks any event. A hook that cannot write
//! its trace does not allow either: what is not on record does not happen.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use clash_policy::decide::{Cause, Decision};
use clash_policy::path::Links;
use clash_policy::{Action, Effect, Input, protect, tool};
use serde_json::{Map, Value};

use crate::agents::{
    self, Agent, Answer, Asks, Confines, Event, Message, MessageError, Reply, claude,
};
use crate::approval::{Approval, ApprovalError, OWN_SANDBOX};
use crate::decision::{self, DecisionError, Scene};
use crate::dirs::{Dirs, NoHome};
use crate::held_path::HeldPaths;
use crate::policy::LoadedPolicy;
use crate::session::{Session, SessionError};
use crate::temporary::{self, Meant, Names};
use crate::tool_input::{self, CallContext, ToolError};
use crate::trace::{self, Record, TraceError};
use crate::{env, exit, judged, say, tell, watch};
use clash_agents::shell_quoted;

/// No agent sends more; what does is not looked at.
const MAX_INPUT: u64 = 1 << 20;

/// The kernel takes no longer word than 128 KiB, and the launcher's line has
/// quotes around it.
const MAX_SCRIPT: usize = 100 << 10;

#[derive(Debug, thiserror::Error)]
pub(crate) enum HookError {
    #[error("usage: clash hook AGENT; known are {}", known())]
    Usage,
    #[error("cannot read the message: {0}")]
    Read(std::io::Error),
    #[error("the message is larger than 1 MiB")]
    TooLarge,
    #[error(transparent)]
    Message(#[from] MessageError),
    #[error(transparent)]
    Tool(#[from] ToolError),
    #[error(transparent)]
    NoHome(#[from] NoHome),
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error(transparent)]
    Decision(#[from] DecisionError),
    #[error(transparent)]
    Approval(#[from] ApprovalError),
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error("nothing can be confined in this project: {0}")]
    HostileSettings(String),
    #[error(
        "the path leads elsewhere than a moment ago: a command in the background may be setting \
         a trap"
    )]
    Moves,
    #[error("the command is longer than 100 KiB: write it into a file and run that")]
    TooLong,
    #[error("the command calls clash itself: give the plain command, clash puts it in its sandbox")]
    CallsLauncher,
    #[error("cannot find out where clash itself is: {0}")]
    OwnPath(std::io::Error),
    #[error("cannot make the session's temporary directory: {0}")]
    Temporary(std::io::Error),
}

fn known() -> String {
    let names: Vec<&str> = agents::AGENTS.iter().map(|agent| agent.name).collect();
    names.join(", ")
}

/// Answers one hook call; the value is the exit status.
pub(crate) fn main(args: &[OsString]) -> u8 {
    let (agent, event, message) = match receive(args) {
        Ok(received) => received,
        Err(error) => return blocked(&format!("clash: blocked: {error}")),
    };
    let answer = handle(agent, event, &message)
        .unwrap_or_else(|error| Answer::Deny { reason: format!("clash: {error}") });
    let answer = match answer {
        Answer::Deny { reason } if event == Event::BeforeTool => refusal(agent, &message, reason),
        answer => answer,
    };
    match (agent.reply)(event, answer) {
        Reply { blocks: Some(reason), .. } => blocked(&reason),
        Reply { document: Some(document), .. } => match send(&document) {
            Ok(()) => exit::OK,
            Err(_) => exit::BLOCKED,
        },
        Reply { document: None, blocks: None } => exit::OK,
    }
}

/// A refusal, or the command that says it where the client would stop at one.
fn refusal(agent: &Agent, message: &Message, reason: String) -> Answer {
    let instead = || {
        let home = Dirs::from_env().ok()?.home;
        let is_command = matches!(
            agent.action(message, &home, &HeldPaths),
            Ok(Some(Action { input: Input::Script(_), .. })) | Err(ToolError::SeveralCommands)
        );
        let says = agent.abilities.confines == Confines::RewriteAlways && is_command;
        says.then(|| (agent.rewrite)(message, &format!("{SAYS} {}{ENDS}", shell_quoted(&reason))))?
    };
    match instead() {
        Some(input) => Answer::Allow { reason, updated_input: Some(input) },
        None => Answer::Deny { reason },
    }
}

/// A call of a file tool with other paths.
struct Moved {
    action: Action,
    input: Sent,
}

/// The input that a file tool gets.
enum Sent {
    AsGiven,
    Moved(Map<String, Value>),
    /// The client cannot be given another: the model has to use the other path.
    Refused,
}

/// Tells a client that cannot be given another path to use it itself.
fn use_instead(action: &Action) -> String {
    let paths = match &action.input {
        Input::Files(files) => {
            files.iter().map(|file| file.path.display().to_string()).collect::<Vec<_>>().join(", ")
        }
        _ => String::new(),
    };
    format!(
        "clash: /tmp is a directory of this session here; use {paths} instead, which commands find in /tmp"
    )
}

/// The command that says a refusal, around the reason.
const SAYS: &str = "printf '%s\\n'";
const ENDS: &str = " >&2; exit 126";

/// Without a text some clients do not take the status for a refusal.
fn blocked(reason: &str) -> u8 {
    let _ = writeln!(std::io::stderr(), "{reason}");
    exit::BLOCKED
}

fn send(reply: &Value) -> std::io::Result<()> {
    let mut text = reply.to_string();
    text.push('\n');
    let mut stdout = std::io::stdout();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// The agent, its message and what it is about. A further argument (the event)
/// is accepted for those who write it into their settings; the message is what
/// counts.
fn receive(args: &[OsString]) -> Result<(&'static Agent, Event, Message), HookError> {
    let agent = args.first().and_then(|name| name.to_str()).and_then(agents::named);
    let agent = agent.filter(|_| args.len() <= 2).ok_or(HookError::Usage)?;
    let mut input = Vec::new();
    std::io::stdin().take(MAX_INPUT + 1).read_to_end(&mut input).map_err(HookError::Read)?;
    if input.len() as u64 > MAX_INPUT {
        return Err(HookError::TooLarge);
    }
    let (event, message) = (agent.parse)(&input)?;
    Ok((agent, event, message))
}

fn handle(agent: &'static Agent, event: Event, message: &Message) -> Result<Answer, HookError> {
    let dirs = Dirs::from_env()?;
    let mut session =
        Session::enter(&dirs, &message.session, agent.name, &project(agent, message)?)?;
    let goes_on = matches!(message.source.as_str(), "clear" | "compact");
    if event == Event::SessionStart && !goes_on {
        session.resume()?;
    }
    let session = session;
    let dirs = dirs.in_session(&session.dir);
    let call = Call { agent, dirs: &dirs, session: &session, message };
    match event {
        Event::BeforeTool => call.in_its_project().and_then(|()| call.before()).or_else(|error| {
            // On record like any other denial, unless that is what failed.
            let record = Record {
                what: Some(message.command().unwrap_or(&message.tool).to_owned()),
                effect: Some(Effect::Deny.to_string()),
                reason: Some(error.to_string()),
                ..call.about(trace::Event::Decision)
            };
            record.append(&session)?;
            if matches!(error, HookError::Moves | HookError::Tool(ToolError::Moves { .. })) {
                call.raise(error.to_string())?;
            }
            Err(error)
        }),
        Event::Question => call.in_its_project().and_then(|()| call.question()),
        Event::AfterTool | Event::AfterFailure => call.after(event),
        Event::SessionStart => call.start(),
        Event::SessionEnd => {
            Approval::discard_all(&session);
            // The session's /tmp stays for a while: the user may resume the session, and a
            // command may have moved files of the project there.
            judged::discard_all(&session);
            Record::new(&session, trace::Event::SessionEnd).append(&session)?;
            Ok(Answer::Silent)
        }
        Event::SettingsChange => Ok(on_settings_change(&dirs, message)),
    }
}

/// Only asked when the session is new: afterwards its record counts.
fn project(agent: &Agent, message: &Message) -> Result<PathBuf, MessageError> {
    let here = || Some(PathBuf::from(&message.cwd)).filter(|cwd| cwd.is_absolute());
    let told = agent.abilities.project.and_then(env::path);
    told.or_else(here).ok_or(MessageError::Missing("cwd"))
}

/// One call of a hook and what it is about.
struct Call<'a> {
    agent: &'static Agent,
    dirs: &'a Dirs,
    session: &'a Session,
    message: &'a Message,
}

impl Call<'_> {
    /// Fails, with an alarm, unless the project is the directory in which the session
    /// began.
    fn in_its_project(&self) -> Result<(), HookError> {
        self.session.check_root().or_else(|error| {
            let reason = Some(error.to_string());
            Record { reason, ..self.about(trace::Event::Alarm) }.append(self.session)?;
            Err(SessionError::from(error).into())
        })
    }

    fn decide(&self, action: &Action) -> Result<Decision, HookError> {
        let scene = Scene {
            project: &self.session.project,
            session: Some(&self.session.dir),
            cwd: Path::new(&self.message.cwd),
        };
        Ok(decision::decide(self.dirs, scene, action)?)
    }

    fn before(&self) -> Result<Answer, HookError> {
        let Some(action) = self.agent.action(self.message, &self.dirs.home, &HeldPaths)? else {
            return Ok(Answer::Silent);
        };
        // Not only for commands: a skill may start some of its own.
        if let Some(problem) = (self.agent.hostile)(&self.dirs.for_agents(), &self.session.project)
        {
            return Err(HookError::HostileSettings(problem));
        }
        if let Input::Script(script) = &action.input {
            if let Some(answer) = self.as_instructed(script)? {
                return Ok(answer);
            }
            if calls_launcher(script) {
                return Err(HookError::CallsLauncher);
            }
        } else {
            // A tool may run commands no hook sees; a question that was answered
            // no must not turn into a yes there.
            Approval::discard_asked(self.session);
        }
        let mut decision = self.decide(&action)?;
        let (mut action, mut sent, mut moved) = (action, Sent::AsGiven, false);
        if decision.effect != Effect::Allow
            && let Some(other) = self.in_session_tmp(&action)?
        {
            decision = self.decide(&other.action)?;
            (action, sent, moved) = (other.action, other.input, true);
        }
        let mut reason = say::reason(&decision);
        if let Some((effect, rule)) =
            self.own_rule(&action).filter(|(own, _)| *own > decision.effect)
        {
            reason = format!("{} has a rule of its own, {rule}", self.agent.title);
            decision.effect = effect;
        }
        if let Some(way_on) = say::way_on(&decision, self.dirs) {
            reason = format!("{reason}; {way_on}");
        }
        let asks = self.can_ask();
        if decision.effect == Effect::Ask && !asks {
            reason = format!(
                "{reason}; {} cannot ask here, so it is not done: tell the user and stop",
                self.agent.title
            );
        }
        self.record(&action, &decision, &reason).append(self.session)?;
        let reason = format!("clash: {reason}");
        let updated_input = match (&action.input, decision.effect) {
            (_, Effect::Deny) => return Ok(Answer::Deny { reason }),
            (_, Effect::Ask) if !asks => return Ok(Answer::Deny { reason }),
            (Input::Script(script), _) => match self.noted(&decision).launch(script, &decision)? {
                Launch::Itself => None,
                Launch::Rewritten(input) => Some(input),
                Launch::Instructed(line) => {
                    return Ok(Answer::Deny {
                        reason: format!(
                            "clash: run it in its sandbox, with exactly this command: {line}"
                        ),
                    });
                }
            },
            (Input::Files(files), _) => {
                let input = match sent {
                    Sent::AsGiven => None,
                    Sent::Moved(input) => Some(input),
                    Sent::Refused => return Ok(Answer::Deny { reason: use_instead(&action) }),
                };
                // A path below /tmp is judged as another one. Commands cannot put a link in
                // its way: the monitor judges their links, and the host's /tmp is not theirs.
                if !moved {
                    self.still_there(&action)?;
                    judged::note(self.session, self.message, files)?;
                }
                input
            }
            _ => None,
        };
        Ok(match decision.effect {
            Effect::Allow => Answer::Allow { reason, updated_input },
            Effect::Ask | Effect::Deny => Answer::Ask { reason, updated_input },
        })
    }

    /// Fails if the paths lead elsewhere than when they were judged.
    fn still_there(&self, action: &Action) -> Result<(), HookError> {
        let now = self.agent.action(self.message, &self.dirs.home, &HeldPaths);
        if now.as_ref().is_ok_and(|now| now.as_ref().is_some_and(|now| now.input == action.input)) {
            return Ok(());
        }
        Err(HookError::Moves)
    }

    /// Notes the files that the command's sandbox, other than most, may write.
    fn noted(&self, decision: &Decision) -> &Self {
        let excepts = |path: &String| path != protect::REPOSITORY;
        if decision.sandbox.iter().any(|sandbox| sandbox.protect.except.iter().any(excepts)) {
            watch::remember_carried(self.session);
        }
        self
    }

    /// The call of a file tool that is about /tmp, moved to the session's directory.
    fn in_session_tmp(&self, action: &Action) -> Result<Option<Moved>, HookError> {
        let Input::Files(_) = &action.input else { return Ok(None) };
        let project = &self.session.project;
        let planned = temporary::of_session(&self.session.dir);
        let session = clash_sandbox::disk::Disk::default().real(&planned);
        let names = Names { dirs: self.dirs, project, session: &session };
        match temporary::meant(&names, self.session, &action.input) {
            None => Ok(None),
            Some(Meant::ClientsOwn(input)) => {
                let action = Action { input, ..action.clone() };
                Ok(Some(Moved { action, input: Sent::AsGiven }))
            }
            Some(Meant::InSession) => {
                temporary::hold(&self.session.dir).map_err(HookError::Temporary)?;
                let needs = tool::needs(&action.tool);
                let from = CallContext {
                    cwd: Path::new(&self.message.cwd),
                    home: &self.dirs.home,
                    paths: &HeldPaths,
                };
                let input = tool_input::with_paths(&self.message.input, &from, |path| {
                    names.meaning_to_tools(path, needs)
                });
                let message = Message { input: input.clone(), ..self.message.clone() };
                let Some(mut action) = self.agent.action(&message, &self.dirs.home, &HeldPaths)?
                else {
                    return Ok(None);
                };
                // The paths of a patch, for example, are not in fields of their own.
                let kept = temporary::meant(&names, self.session, &action.input).is_some();
                // Only those: a link in the session's directory may lead to the host's /tmp, and
                // the tool would open the file there.
                if let (true, Input::Files(files)) = (kept, &mut action.input) {
                    for file in files {
                        file.path = names.meaning(&file.path).unwrap_or(file.path.clone());
                    }
                }
                let rewritten = !kept && self.agent.abilities.moves_files;
                let input = if rewritten { Sent::Moved(input) } else { Sent::Refused };
                Ok(Some(Moved { action, input }))
            }
        }
    }

    /// What the client's own rules say, where they will not see the command.
    fn own_rule(&self, action: &Action) -> Option<(Effect, String)> {
        let Input::Script(script) = &action.input else { return None };
        agents::own_rules::strictest(
            self.agent,
            &self.dirs.for_agents(),
            &self.session.project,
            script,
        )
    }

    fn can_ask(&self) -> bool {
        match self.agent.abilities.asks {
            Asks::Yes => true,
            Asks::Attended => agents::attended::is_attended(self.agent.abilities.program),
            Asks::No => false,
        }
    }

    /// Leaves the approval for the launcher, and finds out how it gets in front
    /// of the command.
    fn launch(&self, script: &str, decision: &Decision) -> Result<Launch, HookError> {
        if script.len() > MAX_SCRIPT {
            return Err(HookError::TooLong);
        }
        let sandbox = decision.sandbox.as_ref().map(|s| s.name.clone()).unwrap_or_default();
        let approval = Approval {
            script: script.to_owned(),
            sandbox,
            call: self.message.call.clone(),
            asked: decision.effect == Effect::Ask,
            mode: self.message.mode.clone(),
        };
        let slip = approval.leave(self.session)?;
        let has_prefix = env::path(env::CLAUDE_CODE_SHELL_PREFIX)
            .is_some_and(|prefix| self.dirs.for_agents().is_shell_launcher(&prefix));
        let confines = self.agent.abilities.confines;
        if confines == Confines::Shell || (confines == Confines::ShellPrefix && has_prefix) {
            return Ok(Launch::Itself);
        }
        let own = std::env::current_exe().map_err(HookError::OwnPath)?;
        let line = Wrapped { session: &self.session.id, slip: &slip }.line(&own, script);
        if confines == Confines::Instruct {
            return Ok(Launch::Instructed(line));
        }
        Ok((self.agent.rewrite)(self.message, &line)
            .map_or_else(|| Launch::Instructed(line), Launch::Rewritten))
    }

    /// The line clash told the model to run, with its approval still lying
    /// there: the launcher decides the rest.
    fn as_instructed(&self, script: &str) -> Result<Option<Answer>, HookError> {
        if self.agent.abilities.confines != Confines::Instruct {
            return Ok(None);
        }
        let own = std::env::current_exe().map_err(HookError::OwnPath)?;
        let Some((wrapped, inner)) = Wrapped::read(script, &own) else { return Ok(None) };
        if wrapped.session != self.session.id {
            return Ok(None);
        }
        let Some(slip) = Approval::look(self.session, wrapped.slip, &inner) else {
            return Ok(None);
        };
        Ok(Some(if slip.asked {
            let reason = format!(
                "clash: `{}` needs your approval, to run in sandbox {}",
                say::brief(&inner),
                slip.sandbox
            );
            Answer::Ask { reason, updated_input: None }
        } else {
            let reason = format!("clash: it runs in sandbox {}", slip.sandbox);
            Answer::Allow { reason, updated_input: None }
        }))
    }

    /// The client is about to ask the user itself: decided rules answer for them.
    fn question(&self) -> Result<Answer, HookError> {
        let Some(action) = self.agent.action(self.message, &self.dirs.home, &HeldPaths)? else {
            return Ok(Answer::Silent);
        };
        // What is asked about may be what the hook made of the command.
        if let (Input::Script(script), Ok(own)) = (&action.input, std::env::current_exe())
            && Wrapped::read(script, &own).is_some()
        {
            return Ok(Answer::Silent);
        }
        let decision = self.decide(&action)?;
        let reason = say::reason(&decision);
        self.record(&action, &decision, &reason).append(self.session)?;
        Ok(match decision.effect {
            Effect::Deny => Answer::Deny { reason: format!("clash: {reason}") },
            // An allow was said before this question; the client asks for a
            // reason of its own, which is the user's to answer.
            Effect::Allow | Effect::Ask => Answer::Silent,
        })
    }

    fn record(&self, action: &Action, decision: &Decision, reason: &str) -> Record {
        let what = match &action.input {
            Input::Script(script) => script.clone(),
            Input::Files(files) => {
                let paths = files.iter().map(|file| file.path.display().to_string());
                paths.collect::<Vec<_>>().join(", ")
            }
            Input::Hosts(hosts) if !hosts.is_empty() => {
                let hosts = hosts.iter().map(|host| host.host.as_str());
                hosts.collect::<Vec<_>>().join(", ")
            }
            Input::Hosts(_) | Input::Fields(_) => action.tool.clone(),
        };
        let rule = match decision.decisive().map(|part| &part.cause) {
            Some(Cause::Rule { span, .. } | Cause::Default { span, .. }) => Some(span.to_string()),
            _ => None,
        };
        Record {
            what: Some(what),
            effect: Some(decision.effect.to_string()),
            sandbox: decision.sandbox.as_ref().map(|sandbox| sandbox.name.clone()),
            rule,
            reason: Some(reason.to_owned()),
            ..self.about(trace::Event::Decision)
        }
    }

    /// A record that says which call of which tool it is about.
    fn about(&self, event: trace::Event) -> Record {
        let said = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        Record {
            agent: Some(self.agent.name.to_owned()),
            call: said(&self.message.call),
            tool: said(&self.message.tool),
            ..Record::new(self.session, event)
        }
    }

    /// Records how the tool call ended, and checks that a command that was let
    /// through really went through the launcher.
    fn after(&self, event: Event) -> Result<Answer, HookError> {
        let record = Record {
            ok: Some(event == Event::AfterTool),
            reason: self.message.error.clone(),
            duration_ms: self.message.duration_ms,
            ..self.about(trace::Event::Exit)
        };
        record.append(self.session)?;
        if let Err(error) = self.in_its_project() {
            return Ok(Answer::Note(format!("clash: {error}")));
        }
        let action = self.agent.action(self.message, &self.dirs.home, &HeldPaths);
        let script = match action {
            Ok(Some(Action { input: Input::Script(script), .. })) => script,
            Ok(Some(Action { input: Input::Files(files), .. })) => {
                let Some(text) = judged::difference(self.session, self.message, &files) else {
                    return Ok(Answer::Silent);
                };
                return self.raise(format!("clash: {text}; look at what runs in the background"));
            }
            // A path that moves while it is looked at was judged to be still.
            Err(error @ ToolError::Moves { .. }) => return self.raise(format!("clash: {error}")),
            _ => return Ok(Answer::Silent),
        };
        // Nothing of the model's has run: it was a refusal.
        let quoted = script.strip_prefix(SAYS).and_then(|rest| rest.strip_suffix(ENDS));
        let is_one_word = |text: &str| {
            let inner = text.trim().strip_prefix('\'').and_then(|text| text.strip_suffix('\''));
            inner.is_some_and(|inner| shell_quoted(&inner.replace(r"'\''", "'")) == text.trim())
        };
        if self.agent.abilities.confines == Confines::RewriteAlways
            && quoted.is_some_and(is_one_word)
        {
            return Ok(Answer::Silent);
        }
        let Some(text) = self.alarm(&script)? else {
            return Ok(self.blocked(&script).map_or(Answer::Silent, Answer::Context));
        };
        self.raise(text)
    }

    /// Puts an alarm on record and tells the user.
    fn raise(&self, text: String) -> Result<Answer, HookError> {
        let alarm = Record { reason: Some(text.clone()), ..self.about(trace::Event::Alarm) };
        alarm.append(self.session)?;
        Ok(Answer::Note(text))
    }

    /// What the sandbox kept from a command, for the model. It is only a help:
    /// whatever goes wrong here leaves it unsaid.
    fn blocked(&self, ran: &str) -> Option<String> {
        let failed = self.message.error.as_deref().unwrap_or_default();
        let output = format!("{}\n{failed}", self.message.output);
        if !tell::is_suspicious(&output) {
            return None;
        }
        let own = std::env::current_exe().ok()?;
        let inner = Wrapped::read(ran, &own).map(|(_, inner)| inner);
        let action =
            Action::script(self.agent.name, &self.message.mode, inner.as_deref().unwrap_or(ran));
        let sandbox = self.decide(&action).ok()?.sandbox?;
        let (project, cwd) = (&self.session.project, Path::new(&self.message.cwd));
        let place = tell::Place { dirs: self.dirs, project, cwd, sandbox: &sandbox };
        let policy = LoadedPolicy::load(self.dirs, project, Some(&self.session.dir)).ok()?;
        let on = policy.ir().layers().find_map(|layer| layer.ok()?.on_sandbox_violation().ok()?);
        tell::after_command(&place, &output, on)
    }

    /// What the user has to know after a command, if anything.
    fn alarm(&self, ran: &str) -> Result<Option<String>, HookError> {
        if !self.went_through_launcher(ran)? {
            if self.is_in_own_sandbox(ran) {
                let title = self.agent.title;
                return Ok(Some(format!(
                    "clash: nothing ran: no command of clash can start in the sandbox of {title} \
                     itself; run `clash doctor`"
                )));
            }
            let text = "clash: this command did not run in its sandbox: another hook or setting \
                        replaced it, or it never started; run `clash doctor`";
            return Ok(Some(text.to_owned()));
        }
        if let Some(problem) = (self.agent.hostile)(&self.dirs.for_agents(), &self.session.project)
        {
            return Ok(Some(format!(
                "clash: settings in this project work against clash: {problem}; \
                 remove that before the next session"
            )));
        }
        let changed: Vec<String> = watch::changed(self.dirs, self.session)
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        let carried: Vec<String> = watch::carried_changed(self.session)
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        if changed.is_empty() && !carried.is_empty() {
            return Ok(Some(format!(
                "clash: git changed {}, which agents or build servers obey: look at it before \
                 you start a session or push",
                carried.join(", ")
            )));
        }
        Ok((!changed.is_empty()).then(|| {
            format!(
                "clash: {} changed during this command and will be obeyed by the next session: \
                 look at it before you start one",
                changed.join(", ")
            )
        }))
    }

    /// True if the launcher was started as decided, and refused because of a sandbox
    /// that the agent brings along.
    fn is_in_own_sandbox(&self, ran: &str) -> bool {
        let own = std::env::current_exe().unwrap_or_default();
        let is_ours = Wrapped::read(ran, &own).is_some();
        let error = self.message.error.as_deref().unwrap_or_default();
        let refused =
            [self.message.output.as_str(), error].iter().any(|text| text.contains(OWN_SANDBOX));
        is_ours && refused
    }

    /// Whether the command that ran is the one that was decided, as far as the
    /// client shows it.
    fn went_through_launcher(&self, ran: &str) -> Result<bool, HookError> {
        // What goes on in the background may not have begun yet.
        let in_background = self.message.tool == "Monitor"
            || self.message.input.get("run_in_background") == Some(&Value::Bool(true));
        if matches!(self.agent.abilities.confines, Confines::ShellPrefix | Confines::Shell) {
            let left = || Approval::left_over(self.session, &self.message.call);
            return Ok(in_background || !left()?);
        }
        let own = std::env::current_exe().map_err(HookError::OwnPath)?;
        let Some((wrapped, _)) = Wrapped::read(ran, &own) else { return Ok(false) };
        let ours = wrapped.session == self.session.id;
        Ok(ours && (in_background || !Approval::is_left(self.session, wrapped.slip)))
    }

    fn start(&self) -> Result<Answer, HookError> {
        let record = Record {
            agent: Some(self.agent.name.to_owned()),
            what: Some(self.session.project.display().to_string()),
            ..Record::new(self.session, trace::Event::SessionStart)
        };
        record.append(self.session)?;
        if let Err(error) = self.in_its_project() {
            return Ok(Answer::Note(format!("clash: every action is denied: {error}")));
        }
        watch::remember(self.dirs, self.session);
        temporary::sweep(self.dirs);
        Ok(match LoadedPolicy::load(self.dirs, &self.session.project, Some(&self.session.dir)) {
            Ok(policy) => {
                let tmp = temporary::of_session(&self.session.dir);
                tell::at_start(&policy, self.agent, &tmp).map_or(Answer::Silent, Answer::Context)
            }
            Err(error) => Answer::Note(format!("clash: every action is denied: {error}")),
        })
    }
}

/// A model that has seen how clash wraps a command may try it itself.
fn calls_launcher(script: &str) -> bool {
    script.contains("--approval")
        && clash_shell::commands(script).iter().any(|command| {
            let words = || command.words.iter().map(|word| word.known());
            let program = words().next().flatten().and_then(|word| word.rsplit('/').next());
            program == Some("clash") && words().any(|word| word == Some("--approval"))
        })
}

/// How a command gets into its sandbox.
enum Launch {
    /// The client does it.
    Itself,
    Rewritten(Map<String, Value>),
    Instructed(String),
}

/// The launcher's line around a command: short, because users see it when they
/// are asked, and always the same, because it is recognised again afterwards.
struct Wrapped<'a> {
    session: &'a str,
    slip: &'a str,
}

impl<'a> Wrapped<'a> {
    fn line(&self, own: &Path, script: &str) -> String {
        let own = shell_quoted(&own.to_string_lossy());
        let Self { session, slip } = self;
        format!("{own} exec --approval {session}.{slip} -- {}", shell_quoted(script))
    }

    /// The line taken apart, and the command in it; nothing but the very line.
    fn read(text: &'a str, own: &Path) -> Option<(Self, String)> {
        let text = text.trim();
        let rest = text.strip_prefix(&shell_quoted(&own.to_string_lossy()))?;
        let (id, quoted) = rest.strip_prefix(" exec --approval ")?.split_once(" -- ")?;
        let (session, slip) = id.split_once('.')?;
        let inner = quoted.strip_prefix('\'')?.strip_suffix('\'')?.replace(r"'\''", "'");
        let this = Self { session, slip };
        (this.line(own, &inner) == text).then_some((this, inner))
    }
}

/// Settings changed while the session runs. A project's come into force with the
/// next session, because a command of this one may have written them (a hook in
/// them would run outside every sandbox); the user's own unless they switch clash
/// off.
fn on_settings_change(dirs: &Dirs, message: &Message) -> Answer {
    match message.source.as_str() {
        "policy_settings" | "skills" => Answer::Silent,
        "user_settings" => match claude::off_switch(&dirs.claude.join("settings.json")) {
            Some(what) => Answer::Deny { reason: format!("clash: the user's settings: {what}") },
            None => Answer::Silent,
        },
        _ => Answer::Deny {
            reason: "clash: settings of a project come into force with the next session".to_owned(),
        },
    }
}
