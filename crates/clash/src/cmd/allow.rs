//! `clash allow --last`: grants the access that was refused or asked about last.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use clash_policy::tool::{ToolKind, canonical};

use super::log::{ActionFilter, StoryQuery, find_story, traced_sessions};
use super::policy::change::ChangeOptions;
use super::policy::edit::allow_words;
use super::sandbox::allow::{GrantScope, allow, refuse_inside};
use super::unless_closed;
use crate::dirs::Dirs;
use crate::permit::OncePermit;
use crate::rights::{ExtraRight, absolute};
use crate::session::Session;
use crate::story::ActionStory;
use crate::trace::{BlockKind, TraceEvent, TraceRecord};
use crate::ui::{CommandOutput, Failure, prompt};
use crate::{exit, say};

/// Allow the access that was refused or asked about last
///
/// Grants it once, for the session, or in your policy. Shows the access as a sentence and
/// asks which, unless an option says it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The last action that was refused, in part or as a whole, or asked about
    #[arg(long, required_unless_present = "id")]
    last: bool,
    /// The action, as `clash log` prints its id
    #[arg(conflicts_with = "last")]
    id: Option<String>,
    /// Allow the next attempt of the same action
    #[arg(long, group = "scope")]
    once: bool,
    /// Allow it until the session ends
    #[arg(long, group = "scope")]
    session: bool,
    /// Allow it in your policy
    #[arg(long, group = "scope")]
    policy: bool,
    #[command(flatten)]
    how: ChangeOptions,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AllowedFor {
    Once,
    Session,
    Policy,
}

/// The access that an action lacked.
enum LackingAccess {
    Right {
        sandbox: String,
        right: ExtraRight,
    },
    /// A rule about the tool and the words of its action.
    Rule {
        tool: String,
        words: Vec<String>,
    },
}

impl Args {
    /// Finds the refused action, says what it lacks, asks how long it may have that (unless
    /// an option says so), grants it, and records this in the trace. Refused inside a
    /// sandbox.
    pub(crate) fn run(self, out: &mut CommandOutput) -> Result<u8, Failure> {
        refuse_inside()?;
        let dirs = Dirs::from_env()?;
        let sessions = traced_sessions(&dirs)?;
        let story = match &self.id {
            Some(id) => find_story(&sessions, id)?,
            None => last_refused(&sessions)?,
        };
        let session = Session::open_named(&dirs, &story.session)?;
        let lacking = lacking(&story, &session.project, &dirs.home)?;
        out.line(sentence(&story, &lacking, &dirs.home))?;
        let how_long = match (self.once, self.session, self.policy) {
            (true, ..) => AllowedFor::Once,
            (_, true, _) => AllowedFor::Session,
            (_, _, true) => AllowedFor::Policy,
            _ => match ask(self.how)? {
                Some(how_long) => how_long,
                None => return Err(Failure::new("nothing was changed")),
            },
        };
        let status = grant(out, &dirs, &session, &story, &lacking, how_long, self.how)?;
        let record = TraceRecord {
            call: Some(story.call.clone()).filter(|call| !call.is_empty()),
            what: Some(sentence(&story, &lacking, &dirs.home)),
            effect: Some("allow".to_owned()),
            reason: Some(format!("the user allowed it: {how_long:?}").to_lowercase()),
            ..TraceRecord::new(&session, TraceEvent::Grant)
        };
        record.append(&session)?;
        Ok(status)
    }
}

/// The latest action that was denied, blocked or asked about, among the last 200 of each of
/// the five newest sessions. It stops at the newest session that has one.
fn last_refused(sessions: &[PathBuf]) -> Result<ActionStory, Failure> {
    let mut found: Option<ActionStory> = None;
    let filter = ActionFilter::default();
    for session in sessions.iter().rev().take(5) {
        let mut query = StoryQuery { filter: &filter, last: Some(200), parsed: 0 };
        query.run(std::slice::from_ref(session), &mut |story| {
            let is_open = story.is_blocked() || story.effect == "ask";
            let is_later = found.as_ref().is_none_or(|known| story.time >= known.time);
            if is_open && !story.tool.is_empty() && is_later {
                found = Some(story.clone());
            }
            Ok(())
        })?;
        if found.is_some() {
            break;
        }
    }
    found.ok_or_else(|| Failure::new("no action was refused or asked about yet"))
}

/// The access that an action lacks. If the action ran, it is the right behind the last block
/// that the trace has a record of; an error if no command can grant it, for example a
/// protected path. Otherwise it is a rule for the action itself.
fn lacking(story: &ActionStory, project: &Path, home: &Path) -> Result<LackingAccess, Failure> {
    if story.effect != "deny"
        && let Some((record, block)) =
            story.blocks.iter().rev().find_map(|it| Some((it, it.block.as_ref()?)))
    {
        let sandbox = record.sandbox.clone().unwrap_or_default();
        let path = || absolute(&block.what, project, home);
        if block.grant.is_none() && block.kind != BlockKind::Command {
            let reason = record.reason.as_deref().unwrap_or_default();
            return Err(Failure::new(format!("no command can allow this: {reason}")));
        }
        let right = match (block.kind, block.needs.as_deref()) {
            (BlockKind::Host, _) => ExtraRight::Host(block.what.clone()),
            (BlockKind::Command, _) => {
                let words = block.what.split_whitespace().map(str::to_owned).collect();
                return Ok(LackingAccess::Rule { tool: "Bash".to_owned(), words });
            }
            (_, Some("read")) => ExtraRight::Read(path()),
            (_, Some("execute")) => ExtraRight::Execute(path()),
            _ => ExtraRight::Change(path()),
        };
        return Ok(LackingAccess::Right { sandbox, right });
    }
    let (tool, kind) = canonical(&story.tool);
    let words = match kind {
        ToolKind::Shell => story.what.split_whitespace().map(str::to_owned).collect(),
        ToolKind::File | ToolKind::Host => vec![story.what.clone()],
        ToolKind::Other => Vec::new(),
    };
    Ok(LackingAccess::Rule { tool: tool.to_owned(), words })
}

/// The lacking access in one sentence, for the user and for the trace.
fn sentence(story: &ActionStory, lacking: &LackingAccess, home: &Path) -> String {
    let what = say::brief(&story.what);
    match lacking {
        LackingAccess::Right { sandbox, right } => {
            format!("`{what}` in sandbox {sandbox} wants to {}", right.words(home))
        }
        LackingAccess::Rule { tool, words } if tool == "Bash" => {
            format!("the agent wants to run `{}`", say::brief(&words.join(" ")))
        }
        LackingAccess::Rule { tool, .. } => format!("the agent wants to use {tool} on `{what}`"),
    }
}

/// Asks how long it shall be allowed. `None` for not at all.
fn ask(how: ChangeOptions) -> Result<Option<AllowedFor>, Failure> {
    if how.yes || !io::stdin().is_terminal() {
        return Err(Failure::new("say for how long")
            .hint("`--once`, `--session` or `--policy`, with `--yes`"));
    }
    prompt("Allow it [o]nce, for the [s]ession, in the [p]olicy, or [N]ot? ");
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(match answer.trim().to_ascii_lowercase().as_str() {
        "o" | "once" => Some(AllowedFor::Once),
        "s" | "session" => Some(AllowedFor::Session),
        "p" | "policy" => Some(AllowedFor::Policy),
        _ => None,
    })
}

/// Gives the access. Once: leaves a slip in the session for the next run of the same script;
/// only a command can have one. For the session or longer: changes the policy of the session
/// or of the user, with the usual preview and question. Returns the exit status.
fn grant(
    out: &mut CommandOutput,
    dirs: &Dirs,
    session: &Session,
    story: &ActionStory,
    lacking: &LackingAccess,
    how_long: AllowedFor,
    how: ChangeOptions,
) -> Result<u8, Failure> {
    if how_long == AllowedFor::Once {
        let rights = match lacking {
            LackingAccess::Right { right, .. } => vec![right.clone()],
            LackingAccess::Rule { .. } => Vec::new(),
        };
        let (_, kind) = canonical(&story.tool);
        if kind != ToolKind::Shell {
            return Err(Failure::new("only a command can be allowed once")
                .hint("`--session` allows it until the session ends"));
        }
        OncePermit { script: story.what.clone(), rights }.leave(session)?;
        unless_closed(out.line("the next attempt of the same command has this right"))?;
        return Ok(exit::OK);
    }
    let scope = match how_long {
        AllowedFor::Session => GrantScope::Session(session.dir.clone()),
        _ => GrantScope::User,
    };
    match lacking {
        LackingAccess::Right { sandbox, right } => {
            allow(out, dirs, &session.project, sandbox, right, &scope, how)
        }
        LackingAccess::Rule { tool, words } => {
            let id = matches!(scope, GrantScope::Session(_)).then(|| session.name.clone());
            allow_words(out, tool, words, id, &session.project, how)
        }
    }
}
