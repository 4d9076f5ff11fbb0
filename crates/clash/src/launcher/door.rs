//! Answers visits to the doors of a room: decides each by the same policy as the script, and
//! runs the command in its own sandbox.
//!
//! A door only gives a command the rights of the sandbox that its rule names, never those of
//! its caller. A command without a rule of its own, one that its caller steers, and one that
//! the room's sandbox opens no door for run in the room.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clash_policy::decide::{Decision, DecisionCause, SandboxMix};
use clash_policy::doors::opens;
use clash_policy::steering::{self, SandboxWidening};
use clash_policy::{Action, Effect, JudgeContext, ProcessLifetime, Sandbox};
use clash_sandbox::disk::Disk;
use clash_sandbox::door::{DoorService, DoorVisit, DoorVisitor};
use clash_sandbox::facts::{Facility, HostFacts, RoomSupport};
use clash_sandbox::launch::CommandOfDoor;
use clash_shell::{ShellWord, command_line, is_steering_variable, program_name};
use rustix::fs::{Mode, OFlags};

use super::context::LaunchContext;
use super::{LauncherError, RequestedCommand, sandbox_named};
use crate::decision::{self, DecisionContext};
use crate::doors::{DoorSet, judged_name};
use crate::policy::LoadedPolicy;
use crate::trace::TraceEvent;
use crate::{env, say, temporary};

/// Rooms inside rooms, at most.
const MAX_DOOR_DEPTH: u32 = 16;

/// Variables that a command behind a door takes from its caller even if the door gives it
/// credentials. They only change how it prints.
const HARMLESS_VARIABLES: [&str; 14] = [
    "CI",
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "COLORTERM",
    "COLUMNS",
    "FORCE_COLOR",
    "LANG",
    "LANGUAGE",
    "LINES",
    "NO_COLOR",
    "PWD",
    "RUST_BACKTRACE",
    "TERM",
    "TZ",
];

/// The questions of the policy that the user has answered with yes for a script.
#[derive(Clone, Debug)]
pub(super) enum AnsweredQuestions {
    /// Those about commands of these words.
    About(Vec<Vec<ShellWord>>),
    /// All: the user wrote the command into settings.
    All,
}

impl AnsweredQuestions {
    /// The commands of a script whose question the user has answered.
    pub(super) fn of_script(script: &str, decision: &Decision) -> Self {
        let commands = clash_shell::find_commands(script);
        let asked = decision.parts.iter().zip(commands);
        let asked = asked.filter(|(part, _)| part.effect == Effect::Ask);
        Self::About(asked.map(|(_, command)| command.words).collect())
    }

    fn include(&self, words: &[String], home: &Path) -> bool {
        match self {
            Self::All => true,
            Self::About(commands) => {
                commands.iter().any(|command| is_expansion(command, words, home))
            }
        }
    }
}

/// True if the shell can have made these words from the words of a script.
fn is_expansion(script: &[ShellWord], words: &[String], home: &Path) -> bool {
    let Some((first, rest)) = script.split_first() else { return words.is_empty() };
    let next = |is_same: &dyn Fn(&str) -> bool| match words.split_first() {
        Some((word, others)) => is_same(word) && is_expansion(rest, others, home),
        None => false,
    };
    match first {
        ShellWord::Known(text) => next(&|word| {
            word == text || program_name(text).is_some_and(|name| program_name(word) == Some(name))
        }),
        ShellWord::Home(below) => {
            next(&|word| word.strip_prefix(&*home.to_string_lossy()) == Some(below))
        }
        ShellWord::Partial(start) => next(&|word| word.starts_with(start.as_str())),
        ShellWord::Unknown => (0..=words.len())
            .any(|count| is_expansion(rest, words.get(count..).unwrap_or(&[]), home)),
    }
}

/// The doors of one room.
pub(super) struct RoomDoors<'a> {
    pub(super) context: &'a LaunchContext,
    pub(super) policy: &'a LoadedPolicy,
    pub(super) room: &'a Sandbox,
    pub(super) is_default: bool,
    pub(super) set: DoorSet,
    /// Two commands of the script that need doors.
    pub(super) mix: Option<SandboxMix>,
    pub(super) answers: AnsweredQuestions,
    pub(super) mode: String,
    pub(super) depth: u32,
}

/// The answer to a visit.
enum DoorAnswer {
    /// The command runs in the room.
    Here,
    Refused(String),
    /// The command runs in this sandbox.
    Own(Box<Sandbox>),
}

impl DoorService for RoomDoors<'_> {
    fn open(&self, visit: DoorVisit) {
        let Ok(visitor) = visit.read() else {
            return visit.refuse(None, "");
        };
        let Some(name) = self.set.name_at(&visitor.door) else {
            return visit.refuse(Some(&visitor), "clash: there is no door of this name\n");
        };
        let words = judged_words(&visitor, name);
        let line = command_line(&words);
        let Some(cwd) = self.host_directory(&visitor) else {
            return visit.refuse(Some(&visitor), "clash: the working directory is gone\n");
        };
        let answer = self.answer(&words, &line, name, &cwd);
        let answer = answer.unwrap_or_else(|error| DoorAnswer::Refused(error.to_string()));
        let shown = visitor.callers.iter().map(String::as_str).chain([line.as_str()]);
        let shown = shown.collect::<Vec<_>>().join(" → ");
        match (answer, real_file(&visitor.door)) {
            (DoorAnswer::Refused(reason), _) => {
                let effect = Some((Effect::Deny, reason.as_str()));
                let _ = self.context.trace(TraceEvent::Decision, &shown, effect, None);
                visit.refuse(Some(&visitor), &format!("clash: {reason}\n"));
            }
            (_, Err(error)) => {
                visit.refuse(
                    Some(&visitor),
                    &format!("clash: {}: {error}\n", visitor.door.display()),
                );
            }
            (DoorAnswer::Here, Ok(file)) => visit.run_here(&file),
            (DoorAnswer::Own(sandbox), Ok(file)) => {
                let launch =
                    DoorLaunch { doors: self, sandbox: &sandbox, line: &line, shown: &shown };
                drop(file);
                visit.follow(visitor, &cwd, |visitor| launch.run(visitor));
            }
        }
    }
}

impl RoomDoors<'_> {
    /// The doors if this machine can have them. A script that needs doors is refused
    /// otherwise.
    pub(super) fn on_host(&self, host: &HostFacts) -> Result<Option<&Self>, LauncherError> {
        let is_detached = self.room.lifetime == Some(ProcessLifetime::Detached);
        let why = match (&host.rooms, &host.notify) {
            (RoomSupport::Impossible { .. }, _) => "this machine has no user namespaces",
            (_, Facility::Missing { why }) => why,
            // No launcher would be left to answer.
            _ if is_detached => "the lifetime of the default sandbox is \"detached\"",
            _ => return Ok(Some(self)),
        };
        match &self.mix {
            Some(mix) => Err(LauncherError::Refused(say::no_doors(mix, why))),
            None => Ok(None),
        }
    }

    fn answer(
        &self,
        words: &[String],
        line: &str,
        name: &str,
        cwd: &Path,
    ) -> Result<DoorAnswer, LauncherError> {
        let agent = self.context.session.as_ref().map_or("terminal", |session| &session.agent);
        let action = Action::script(agent, &self.mode, line);
        let session = self.context.session.as_ref().map(|session| session.dir.as_path());
        let scene = DecisionContext { project: &self.context.project, session, cwd };
        let decision = decision::decide_by(self.policy, &self.context.dirs, scene, &action)?;
        if decision.effect == Effect::Deny {
            return Ok(DoorAnswer::Refused(say::reason(&decision)));
        }
        let part = decision.parts.iter().find(|part| part.cause != DecisionCause::Inert);
        let Some(target) = part.and_then(|part| part.sandbox.clone()) else {
            return Ok(DoorAnswer::Here);
        };
        let is_opened = opens(self.room, self.is_default, name);
        if target == self.room.name || !is_opened {
            return Ok(DoorAnswer::Here);
        }
        let is_answered = decision.effect == Effect::Allow
            || self.answers.include(words, &self.context.dirs.home);
        if !is_answered {
            let is_steered = decision.parts.iter().any(|part| part.steered.is_some());
            // The caller's rights are enough for a command that its caller steers.
            return Ok(match is_steered {
                true => DoorAnswer::Here,
                false => DoorAnswer::Refused(format!(
                    "{}, and clash cannot ask while a script runs",
                    say::reason(&decision)
                )),
            });
        }
        if self.depth >= MAX_DOOR_DEPTH {
            return Ok(DoorAnswer::Refused("too many sandboxes inside each other".to_owned()));
        }
        Ok(DoorAnswer::Own(Box::new(sandbox_named(self.policy, &target)?)))
    }

    /// The path of the visitor's working directory on the host. A room shows the session's
    /// temporary directory under other names.
    fn host_directory(&self, visitor: &DoorVisitor) -> Option<PathBuf> {
        let held = rustix::fs::fstat(&visitor.held_directory).ok()?;
        let is_same = |path: &PathBuf| {
            std::fs::metadata(path)
                .is_ok_and(|meta| (meta.dev(), meta.ino()) == (held.st_dev, held.st_ino))
        };
        let own = &visitor.working_directory;
        let session = self.context.session.as_ref().map(|it| temporary::session_tmp(&it.dir));
        let tmp = [Path::new("/tmp"), Path::new("/var/tmp"), &self.context.dirs.tmp];
        let below = tmp.iter().find_map(|tmp| own.strip_prefix(tmp).ok());
        let inside = session.zip(below).map(|(session, below)| session.join(below));
        std::iter::once(own.clone()).chain(inside).find(is_same)
    }
}

/// The host's program in the place of a door.
pub(super) fn real_file(door: &Path) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(door, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
}

/// The words of the command. A script of the system arrives as its interpreter.
fn judged_words(visitor: &DoorVisitor, name: &str) -> Vec<String> {
    let text = |word: &OsString| word.to_string_lossy().into_owned();
    let name = judged_name(&visitor.door, name).into_iter().map(str::to_owned);
    name.chain(visitor.arguments.iter().skip(1).map(text)).collect()
}

/// A command on its way from a door into its sandbox.
struct DoorLaunch<'a> {
    doors: &'a RoomDoors<'a>,
    sandbox: &'a Sandbox,
    line: &'a str,
    shown: &'a str,
}

impl DoorLaunch<'_> {
    /// Becomes the command. Returns only on failure.
    fn run(&self, visitor: &DoorVisitor) {
        let Some((name, args)) = visitor.arguments.split_first() else { return };
        let door = CommandOfDoor {
            name: name.clone(),
            cwd: visitor.working_directory.clone(),
            descriptors: visitor
                .descriptors
                .iter()
                .map(|(fd, _)| *fd)
                .filter(|fd| *fd > 2)
                .collect(),
        };
        let command = RequestedCommand {
            script: self.line,
            shown: self.shown,
            program: visitor.door.as_os_str(),
            args,
            file: None,
            door: Some(door),
        };
        let environment = self.environment(visitor);
        let Err(error) =
            self.doors.context.confine_behind_door(self.doors, self.sandbox, &command, environment);
        super::report(&error);
    }

    /// The environment of the command before its sandbox removes secrets. A door that gives
    /// credentials takes only harmless variables from its caller, and one that gives the
    /// network takes none that replace a part of a toolchain.
    fn environment(&self, visitor: &DoorVisitor) -> Vec<(OsString, OsString)> {
        let context = self.doors.context;
        let disk = Disk::default();
        let places = context.dirs.places_unseen(&context.project, &disk);
        let world = JudgeContext {
            places: &places,
            cwd: &context.project,
            links: &disk,
            baseline: &[],
            cage: &[],
            lent: None,
        };
        let given = &visitor.environment;
        let session: Vec<(OsString, OsString)> = env::all().collect();
        let is_harmless = |name: &OsStr| {
            let name = name.to_string_lossy();
            HARMLESS_VARIABLES.contains(&&*name) || name.starts_with("LC_")
        };
        let steers = |name: &OsStr| is_steering_variable(&name.to_string_lossy());
        let from_caller: &dyn Fn(&OsStr) -> bool =
            match steering::widening(self.sandbox, self.doors.room, &world) {
                None => return given.clone(),
                Some(SandboxWidening::Credentials) => &is_harmless,
                Some(SandboxWidening::Network) => &|name| !steers(name),
            };
        let kept = session.into_iter().filter(|(name, _)| !from_caller(name));
        kept.chain(given.iter().filter(|(name, _)| from_caller(name)).cloned()).collect()
    }
}
