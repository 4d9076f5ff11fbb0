//! Answers visits to the doors of a room: decides each by the same policy as the script, and
//! runs the command in its own sandbox.
//!
//! A door only gives a command the rights of the sandbox that its rule names, never those of
//! its caller. A command without a rule of its own, one that its caller steers, and one that
//! the room's sandbox opens no door for run in the room.

use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::hash::RandomState;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clash_policy::decide::{Decision, DecisionCause, SandboxMix, is_steering_alone};
use clash_policy::doors::{opens, ruled_programs};
use clash_policy::judge::judge;
use clash_policy::steering::{self, SandboxWidening};
use clash_policy::{Action, Effect, FileCaps, FileUse, JudgeContext, Sandbox};
use clash_sandbox::disk::Disk;
use clash_sandbox::door::DoorVisitor;
use clash_sandbox::facts::{Facility, HostFacts};
use clash_sandbox::visit::{DoorService, DoorVisit};
use clash_shell::{ShellWord, command_line, program_name};
use rustix::fs::{Mode, OFlags};

use super::context::LaunchContext;
use super::door_launch::DoorLaunch;
use super::named_commands::NamedCommands;
use super::project_program::{ProjectProgram, first_argument, is_project_door};
use super::{LauncherError, sandbox_named};
use crate::decision::{self, DecisionContext, DecisionError, readable_in_a_room};
use crate::doors::{DoorSet, judged_name};
use crate::policy::LoadedPolicy;
use crate::questions::{self, LiveQuestion, MAX_ANSWER_TIME, QuestionKind, QuestionOutcome};
use crate::rights;
use crate::trace::{
    BlockEvidence, BlockKind, BlockedAccess, RefusingPart, TraceEvent, TraceRecord,
};
use crate::{say, temporary};

/// Rooms inside rooms, at most.
const MAX_DOOR_DEPTH: u32 = 16;

/// The doors of one room.
pub(super) struct RoomDoors<'a> {
    pub(super) context: &'a LaunchContext,
    pub(super) policy: &'a LoadedPolicy,
    pub(super) room: &'a Sandbox,
    pub(super) is_default: bool,
    pub(super) set: DoorSet,
    /// The directories with doors in the room. The planner leaves out directories that the
    /// room may change.
    pub(super) places: RefCell<Vec<DoorPlace>>,
    /// Two commands of the script that need doors.
    pub(super) mix: Option<SandboxMix>,
    pub(super) named: NamedCommands,
    pub(super) mode: String,
    pub(super) depth: u32,
    /// True if the room runs `git push` and nothing else. git then starts its own programs
    /// that push, which the policy judges like `git push`.
    pub(super) is_push: bool,
    /// The key of the seals of kept rooms.
    pub(super) seal_key: RandomState,
}

/// A directory with doors, as a room shows it.
#[derive(Clone, Debug)]
pub(super) struct DoorPlace {
    /// The directory from which processes start doors.
    pub(super) seen: PathBuf,
    /// The directory with the programs. Without mounts it is another one.
    pub(super) programs: PathBuf,
}

/// The command that a visitor wants.
#[derive(Clone, Copy)]
struct AskedCommand<'a> {
    /// The words that the policy judges, and the same as one line.
    words: &'a [String],
    line: &'a str,
    /// The line with the callers.
    shown: &'a str,
    /// The program that the rules name.
    name: &'a str,
    /// The working directory on the host, if it is known.
    cwd: Option<&'a Path>,
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
    /// Answers one visit: refuses it, lets the command run in the room, or launches it in its
    /// own sandbox.
    fn open(&self, mut visit: DoorVisit) {
        // The visitor sees that its socket closes, and says so.
        let Ok(visitor) = visit.read() else { return };
        let cwd = self.host_directory(&visitor);
        let Some(VisitedProgram { program, words, is_of_project }) =
            self.visited_program(&visitor, cwd.as_ref().map(|cwd| cwd.path.as_path()))
        else {
            return self.refuse_unknown(&visit, &visitor);
        };
        let program = program.as_path();
        let name = program.file_name().and_then(OsStr::to_str).unwrap_or_default();
        let line = command_line(&words);
        let shown = visitor.callers.iter().map(String::as_str).chain([line.as_str()]);
        let shown = shown.collect::<Vec<_>>().join(" → ");
        let asked = AskedCommand {
            words: &words,
            line: &line,
            shown: &shown,
            name: words.first().map_or(name, String::as_str),
            cwd: cwd.as_ref().map(|cwd| cwd.path.as_path()),
        };
        let answer = self.answer(&asked, &|| visit.has_ended());
        let answer = answer.unwrap_or_else(|error| DoorAnswer::Refused(error.to_string()));
        // A relative path is one from the visitor's working directory, which is not this
        // process's. The launch reports a missing program.
        let file = if is_of_project { real_file(Path::new("/")) } else { real_file(program) };
        match (answer, file) {
            (DoorAnswer::Refused(reason), _) => {
                let _ = self.trace_refusal(&shown, &line, &reason);
                visit.refuse(&visitor, &format!("clash: {reason}\n"));
            }
            (_, Err(error)) => {
                visit.refuse(&visitor, &format!("clash: {}: {error}\n", program.display()));
            }
            (DoorAnswer::Here, Ok(_)) if is_of_project => visit.run_named(program.as_os_str()),
            (DoorAnswer::Here, Ok(file)) => visit.run_here(&file),
            (DoorAnswer::Own(sandbox), Ok(file)) => {
                drop(file);
                let name = match is_of_project {
                    true => first_argument(&visitor, program),
                    false => started_name(&visitor, program, name),
                };
                let Some(cwd) = cwd else { return };
                let launch = DoorLaunch {
                    doors: self,
                    sandbox: &sandbox,
                    program,
                    name,
                    identity: cwd.identity,
                    line: &line,
                    shown: &shown,
                };
                let tag = launch.tag(&visitor);
                let left = launch.run_in_kept_room(&mut visit, visitor, tag, &cwd.path);
                let Some(visitor) = left else { return };
                visit.follow(visitor, &cwd.path, |visitor, offer| {
                    let offer = offer.zip(tag).map(|(offer, tag)| offer.with_tag(tag));
                    launch.run(visitor, offer);
                });
            }
        }
    }
}

/// The program of a visit.
struct VisitedProgram {
    program: PathBuf,
    words: Vec<String>,
    /// True for a program of the project. Its path may be relative.
    is_of_project: bool,
}

impl RoomDoors<'_> {
    /// The program behind the door of a visitor. `None` if there is no such door.
    fn visited_program(&self, visitor: &DoorVisitor, cwd: Option<&Path>) -> Option<VisitedProgram> {
        let program = self.program_behind(&visitor.door)?;
        if is_project_door(&program) {
            let found = self.project_program(visitor, cwd?).ok().flatten()?;
            let ProjectProgram { executed, words } = found;
            return Some(VisitedProgram { program: executed, words, is_of_project: true });
        }
        let name = self.set.name_at(&program)?;
        let words = judged_words(visitor, &program, name);
        Some(VisitedProgram { program, words, is_of_project: false })
    }

    /// Refuses a program that is no door, for example a copy of one.
    fn refuse_unknown(&self, visit: &DoorVisit, visitor: &DoorVisitor) {
        let words = visitor.arguments.iter().map(|word| word.to_string_lossy().into_owned());
        let line = command_line(&words.collect::<Vec<_>>());
        let shown = visitor.callers.iter().map(String::as_str).chain([line.as_str()]);
        let shown = shown.collect::<Vec<_>>().join(" → ");
        let _ = self.trace_refusal(&shown, &line, "there is no door of this name");
        visit.refuse(visitor, "clash: there is no door of this name\n");
    }

    /// Adds the refusal of a command to the trace.
    fn trace_refusal(&self, shown: &str, line: &str, reason: &str) -> Result<(), LauncherError> {
        let Some(session) = &self.context.session else { return Ok(()) };
        let record = TraceRecord {
            what: Some(shown.to_owned()),
            effect: Some(Effect::Deny.to_string()),
            sandbox: Some(self.room.name.clone()),
            reason: Some(reason.to_owned()),
            block: Some(BlockedAccess {
                kind: BlockKind::Command,
                what: line.to_owned(),
                needs: None,
                by: RefusingPart::Broker,
                known: BlockEvidence::Seen,
                program: None,
                grant: say::command_remedy(line, None).map(|remedy| remedy.to_string()),
            }),
            ..self.context.new_record(session, TraceEvent::Block)
        };
        Ok(record.append(session)?)
    }

    /// The program in whose place a door is.
    fn program_behind(&self, door: &Path) -> Option<PathBuf> {
        let (seen, name) = (door.parent()?, door.file_name()?);
        let places = self.places.borrow();
        places.iter().find(|place| place.seen == seen).map(|place| place.programs.join(name))
    }

    /// The doors if this machine can have them. A script that needs doors is refused
    /// otherwise.
    pub(super) fn on_host(&self, host: &HostFacts) -> Result<Option<&Self>, LauncherError> {
        let why = match &host.notify {
            Facility::Missing { why } => why,
            Facility::Works => return Ok(Some(self)),
        };
        match &self.mix {
            Some(mix) => Err(LauncherError::Refused(say::no_doors(mix, why))),
            None => Ok(None),
        }
    }

    /// Decides the command behind a door: in its own sandbox, here in the room, or refused.
    /// Asks the user at once if a rule asks and no earlier answer covers the command. The
    /// `git send-pack` of a push runs in the sandbox of the push.
    fn answer(
        &self,
        asked: &AskedCommand<'_>,
        is_abandoned: &dyn Fn() -> bool,
    ) -> Result<DoorAnswer, LauncherError> {
        let AskedCommand { words, line, name, cwd, .. } = *asked;
        let is_part_of_push =
            matches!(words, [git, verb, ..] if git == "git" && verb == "send-pack") && self.is_push;
        if is_part_of_push && cwd.is_some() {
            return Ok(DoorAnswer::Own(Box::new(self.room.clone())));
        }
        let decision = self.decide(line, cwd)?;
        let home = &self.context.dirs.home;
        let is_permitted = NamedCommands::include(&self.named.permitted, words, home);
        if decision.effect == Effect::Deny && !is_permitted {
            return Ok(DoorAnswer::Refused(say::reason(&decision)));
        }
        let script = cwd.map(|cwd| self.decide_script(words, cwd, &decision)).transpose()?;
        let script = script.flatten();
        let words = script.as_ref().map_or(words, |script| &script.words);
        let door = script.as_ref().map_or(Some(name), |script| script.door.as_deref());
        let decision = script.as_ref().map_or(&decision, |script| &script.decision);
        if decision.effect == Effect::Deny && !is_permitted {
            return Ok(DoorAnswer::Refused(say::reason(decision)));
        }
        let is_steered = decision.parts.iter().any(|part| part.steered.is_some());
        let asks_by_rule = decision.parts.iter().any(|part| {
            part.effect == Effect::Ask && !part.steered.as_deref().is_some_and(is_steering_alone)
        });
        // The user answered a question about a command that nothing steers.
        let is_answered = !is_steered && NamedCommands::include(&self.named.answered, words, home);
        if asks_by_rule
            && !is_answered
            && let Err(refusal) = self.ask_live(asked, decision, is_abandoned)
        {
            return Ok(DoorAnswer::Refused(refusal));
        }
        let ruled = decision.parts.iter().filter(|part| part.cause != DecisionCause::Inert);
        let mut sandboxes = ruled.filter_map(|part| part.sandbox.as_ref());
        let first = sandboxes.next();
        // A command that runs another one, for example `find -exec`, has a sandbox of its own
        // only if both have the same.
        let target = first.filter(|first| sandboxes.all(|other| other == *first));
        let target = target.filter(|target| {
            **target != self.room.name
                && !is_steered
                && cwd.is_some()
                && door.map_or(self.is_default, |door| opens(self.room, self.is_default, door))
        });
        if self.depth >= MAX_DOOR_DEPTH {
            return Ok(DoorAnswer::Refused("too many sandboxes inside each other".to_owned()));
        }
        let target = target.map(|target| sandbox_named(self.policy, target)).transpose()?;
        let is_named = || NamedCommands::include(&self.named.all, words, home);
        let target = target.filter(|target| {
            cwd.is_some_and(|cwd| self.shows(target, cwd))
                && (self.widening(target) != Some(SandboxWidening::Credentials)
                    || words.first().is_some_and(|program| steering::untamed(program).is_none())
                    || is_named())
        });
        match target {
            Some(mut target) => {
                // A yes to the command was a yes to the hosts that it names.
                rights::add_asked_hosts(&mut target, decision);
                Ok(DoorAnswer::Own(Box::new(target)))
            }
            None if !self.is_restricted(name)? => Ok(DoorAnswer::Here),
            // With the program's file, the room could run it with other arguments.
            None if cwd.is_some() => Ok(DoorAnswer::Own(Box::new(self.room.clone()))),
            None => Ok(DoorAnswer::Refused("the working directory is gone".to_owned())),
        }
    }

    /// The credentials or the network that a sandbox adds to the room.
    pub(super) fn widening(&self, sandbox: &Sandbox) -> Option<SandboxWidening> {
        let disk = Disk::default();
        let places = self.context.dirs.places_unseen(&self.context.project, &disk);
        let world = JudgeContext { links: &disk, ..JudgeContext::without_disk(&places) };
        steering::widening(sandbox, self.room, &world)
    }

    /// Decides a command line in a directory. Without a known directory no relative name is
    /// resolved.
    pub(super) fn decide(&self, line: &str, cwd: Option<&Path>) -> Result<Decision, LauncherError> {
        let session = self.context.session.as_ref();
        let agent = session.map_or("terminal", |session| &session.agent);
        let action = Action::script(agent, &self.mode, line);
        let session = session.map(|session| session.dir.as_path());
        let cwd = cwd.unwrap_or(Path::new(""));
        let scene = DecisionContext { project: &self.context.project, session, cwd };
        Ok(decision::decide_by(self.policy, &self.context.dirs, scene, &action)?)
    }

    /// True if a room of the sandbox shows a directory. A command in another one would not
    /// start, for example git in a cache of cargo: it runs in the room of its caller.
    fn shows(&self, sandbox: &Sandbox, cwd: &Path) -> bool {
        let context = self.context;
        let disk = Disk::default();
        let places = context.dirs.places_unseen(&context.project, &disk);
        let is_on_the_way = [&places.project, &places.home, &places.tmp]
            .into_iter()
            .any(|place| place.starts_with(cwd))
            || cwd.starts_with(&places.tmp);
        let baseline = readable_in_a_room();
        let world = JudgeContext {
            links: &disk,
            baseline: &baseline,
            ..JudgeContext::without_disk(&places)
        };
        let file = FileUse { path: cwd.to_path_buf(), needs: FileCaps::READ, caseless: false };
        let judged = || judge(sandbox, &file, &world);
        is_on_the_way || judged().is_ok_and(|verdict| verdict.effect == Effect::Allow)
    }

    /// Asks the user while the command waits. The error has the reason of the refusal, and
    /// the command that would allow it.
    fn ask_live(
        &self,
        asked: &AskedCommand<'_>,
        decision: &Decision,
        is_abandoned: &dyn Fn() -> bool,
    ) -> Result<(), String> {
        let reason = say::reason(decision);
        let session = self.context.session.as_ref();
        let sandbox = decision.decisive().and_then(|part| part.sandbox.clone());
        let sandbox = sandbox.unwrap_or_else(|| self.room.name.clone());
        let remedy = decision
            .decisive()
            .and_then(|part| say::rule_remedy(part, asked.line, Some(sandbox.clone())));
        let question = LiveQuestion {
            kind: QuestionKind::Command,
            subject: asked.line.to_owned(),
            sandbox: sandbox.clone(),
            reason: reason.clone(),
            chain: asked.shown.to_owned(),
            project: self.context.project.clone(),
            directory: asked.cwd.map(Path::to_path_buf).unwrap_or_default(),
            remedy: remedy.as_ref().map(ToString::to_string),
        };
        let dirs = &self.context.dirs;
        let why = match questions::ask(dirs, session, &question, MAX_ANSWER_TIME, is_abandoned) {
            Ok(QuestionOutcome::Allowed) => {
                let effect = Some((Effect::Allow, "answered while it waited"));
                let _ = self.context.trace(TraceEvent::Decision, asked.shown, effect, None);
                return Ok(());
            }
            Ok(outcome) => outcome.why_refused().to_owned(),
            Err(error) => error.to_string(),
        };
        let remedy = remedy.map(|it| format!("; to allow it: `{it}`")).unwrap_or_default();
        Err(format!("{reason}; {why}{remedy}"))
    }

    /// True if a rule refuses some arguments of a program, or asks about them.
    fn is_restricted(&self, name: &str) -> Result<bool, LauncherError> {
        let rules = ruled_programs(self.policy.ir()).map_err(DecisionError::from)?;
        Ok(rules.rules_about(name).is_some_and(|rules| rules.strictest > Effect::Allow))
    }

    /// The path of the visitor's working directory on the host. A room shows the session's
    /// temporary directory under other names.
    fn host_directory(&self, visitor: &DoorVisitor) -> Option<HostDirectory> {
        // The room's own root, and directories of programs with doors, are other directories
        // than the host's. No command can replace them.
        let own = &visitor.working_directory;
        let is_shown = |place: &DoorPlace| place.seen == *own && place.programs == *own;
        if own == Path::new("/") || self.places.borrow().iter().any(is_shown) {
            return Some(HostDirectory { path: own.clone(), identity: None });
        }
        let held = rustix::fs::fstat(&visitor.held_directory).ok()?;
        let identity = (held.st_dev, held.st_ino);
        let is_same = |path: &PathBuf| identity_of(path) == Some(identity);
        let session = self.context.session.as_ref().map(|it| temporary::session_tmp(&it.dir));
        let tmp = [Path::new("/tmp"), Path::new("/var/tmp"), &self.context.dirs.tmp];
        let below = tmp.iter().find_map(|tmp| own.strip_prefix(tmp).ok());
        let inside = session.zip(below).map(|(session, below)| session.join(below));
        let path = std::iter::once(own.clone()).chain(inside).find(is_same)?;
        Some(HostDirectory { path, identity: Some(identity) })
    }
}

/// The visitor's working directory, as the host names it.
pub(super) struct HostDirectory {
    path: PathBuf,
    /// Device and inode, if a command could put another directory in its place.
    identity: Option<(u64, u64)>,
}

pub(super) fn identity_of(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}

/// The name that the command gets. A program with several names, such as git, obeys it, so
/// another name than that of the door is replaced. The policy has judged the door's name.
fn started_name(visitor: &DoorVisitor, program: &Path, name: &str) -> OsString {
    let given = visitor.arguments.first().cloned().unwrap_or_default();
    // Python searches its own program by this name, and would find the door on the search
    // path. A virtual environment would then lead to the door.
    let is_bare = !given.as_encoded_bytes().contains(&b'/');
    let finds_itself = is_bare && name.starts_with("python");
    if visitor.door != program && (finds_itself || Path::new(&given) == visitor.door) {
        return program.as_os_str().to_owned();
    }
    let of_path = Path::new(&given).file_name().map(|name| name.to_string_lossy().into_owned());
    let of_path = of_path.unwrap_or_default();
    let without_version =
        |name: &str| name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.').to_owned();
    let is_same = without_version(of_path.trim_start_matches('-')) == without_version(name);
    if is_same { given } else { program.as_os_str().to_owned() }
}

/// True for a script that is one `git push`.
pub(super) fn is_push(script: &str) -> bool {
    let commands = clash_shell::find_commands(script);
    let [command] = commands.as_slice() else { return false };
    let mut words = command.words.iter().map(ShellWord::known);
    words.next().flatten().and_then(program_name) == Some("git")
        && words.next() == Some(Some("push"))
}

/// The host's program in the place of a door.
pub(super) fn real_file(door: &Path) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(door, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
}

/// The words of the command. A script of the system arrives as its interpreter.
fn judged_words(visitor: &DoorVisitor, program: &Path, name: &str) -> Vec<String> {
    let text = |word: &OsString| word.to_string_lossy().into_owned();
    let name = judged_name(program, name).into_iter().map(str::to_owned);
    name.chain(visitor.arguments.iter().skip(1).map(text)).collect()
}
