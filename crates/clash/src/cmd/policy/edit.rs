//! `clash policy allow|ask|deny|remove`: changes a rule in the text of a policy. Clash
//! compiles the new text first, and refuses it if the rule would have no effect.

use std::path::{Path, PathBuf};

use clash_policy::decide::Decision;
use clash_policy::tool::{ToolKind, canonical};
use clash_policy::{Action, Effect};
use clash_syntax::draft::EffectDraft;
use clash_syntax::edit::{self, RuleKey};
use serde_json::{Map, Value};

use super::change::{ChangeOptions, FileChange, carry_out, read};
use super::rule_sandbox::{self, RuleSandbox};
use crate::cmd::dirs_and_project;
use crate::cmd::sandbox::allow::refuse_inside;
use crate::decision::{DecisionContext, decide_by};
use crate::dirs::Dirs;
use crate::held_path::HeldPaths;
use crate::policy::{LoadedPolicy, PolicyFiles, SESSION_POLICY};
use crate::remedy::Remedy;
use crate::session::Session;
use crate::ui::{CommandOutput, Failure};
use crate::{env, exit, say};
use clash_agents::tool_input::{self, CallContext};

/// The rule, named by the words of its action.
#[derive(Debug, clap::Args)]
struct RuleArgs {
    /// The words of the command; for another tool a path, a host, or a field and its value
    ///
    /// Write `--` before words that begin with a dash. A `*` in a word stands for any
    /// characters, the word `**` for any further words.
    #[arg(required_unless_present = "tool")]
    words: Vec<String>,
    /// The tool of the rule
    #[arg(long, value_name = "NAME", default_value = "Bash")]
    tool: String,
    /// The policy to change: user, project or session
    #[arg(long, value_name = "SCOPE", default_value = "user", value_parser = ["user", "project", "session"])]
    scope: String,
    /// The session of `--scope session`; taken from the environment if not given
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// The project; found from the working directory if not given
    #[arg(long, value_name = "DIR")]
    project: Option<PathBuf>,
    /// Also with `--yes`, remove each `expect(ask, …)` that the rule contradicts
    #[arg(long)]
    drop_expectations: bool,
    #[command(flatten)]
    how: ChangeOptions,
}

/// Add a rule to a policy, or change its rule
///
/// Adds the rule beside similar rules, and keeps comments and layout. Clash shows the change
/// first. It refuses the change if the policy would not compile or the rule would have no
/// effect.
#[derive(Debug, clap::Args)]
pub(crate) struct AllowArgs {
    #[command(flatten)]
    rule: RuleArgs,
    /// The sandbox of the action; the default sandbox if not given
    #[arg(long, value_name = "NAME")]
    sandbox: Option<String>,
    /// The reason that clash shows with every decision of the rule
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// Deny an action
///
/// Adds the rule beside similar rules, and keeps comments and layout. Clash shows the change
/// first. It refuses the change if the policy would not compile or the rule would have no
/// effect.
#[derive(Debug, clap::Args)]
pub(crate) struct DenyArgs {
    #[command(flatten)]
    rule: RuleArgs,
    /// The reason that clash shows with every decision of the rule
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// Remove the rule about an action
///
/// Removes the rule and the groups that become empty, and shows the new decision.
#[derive(Debug, clap::Args)]
pub(crate) struct RemoveArgs {
    #[command(flatten)]
    rule: RuleArgs,
}

impl AllowArgs {
    pub(crate) fn run(self, effect: Effect, out: &mut CommandOutput) -> Result<u8, Failure> {
        let wanted = EffectDraft { effect, sandbox: self.sandbox, reason: self.reason };
        self.rule.change(Some(&wanted), out)
    }
}

impl DenyArgs {
    pub(crate) fn run(self, out: &mut CommandOutput) -> Result<u8, Failure> {
        let wanted = EffectDraft { effect: Effect::Deny, sandbox: None, reason: self.reason };
        self.rule.change(Some(&wanted), out)
    }
}

impl RemoveArgs {
    pub(crate) fn run(self, out: &mut CommandOutput) -> Result<u8, Failure> {
        self.rule.change(None, out)
    }
}

/// Allows an action by the words of its rule, for `clash allow`.
pub(in crate::cmd) fn allow_words(
    out: &mut CommandOutput,
    tool: &str,
    words: &[String],
    session: Option<String>,
    project: &Path,
    how: ChangeOptions,
) -> Result<u8, Failure> {
    let scope = if session.is_some() { "session" } else { "user" };
    let rule = RuleArgs {
        words: words.to_vec(),
        tool: tool.to_owned(),
        scope: scope.to_owned(),
        session,
        project: Some(project.to_path_buf()),
        drop_expectations: false,
        how,
    };
    let wanted = EffectDraft { effect: Effect::Allow, sandbox: None, reason: None };
    rule.change(Some(&wanted), out)
}

/// The difference between the decision and the wanted rule; `None` if they agree.
fn unmet(wanted: &EffectDraft, decision: &Decision) -> Option<String> {
    if decision.effect != wanted.effect {
        return Some(format!("it would be {}", decision.effect));
    }
    let found = decision.sandbox.as_ref().map_or("none", |sandbox| sandbox.name.as_str());
    let other = wanted.sandbox.as_ref().filter(|name| *name != found);
    other.map(|name| format!("it would run in sandbox {found} and not in {name}"))
}

impl RuleArgs {
    /// Sets or removes the rule in the text of the policy, compiles the new text, shows it,
    /// and writes it after a yes. Fails, and changes nothing, if the text does not compile or
    /// the rule would not decide its own example.
    fn change(self, wanted: Option<&EffectDraft>, out: &mut CommandOutput) -> Result<u8, Failure> {
        refuse_inside()?;
        let (dirs, project) = dirs_and_project(self.project.clone())?;
        let words = self.words()?;
        let (file, files) = self.find_policy(&dirs, &project)?;
        let before = read(&file)?.unwrap_or_default();
        let mut wanted = wanted.cloned();
        let given = wanted.as_ref().and_then(|wanted| wanted.sandbox.clone());
        let text = match &mut wanted {
            Some(wanted) => {
                let text = self.prepare(wanted, &before, &words, &files, &dirs, &project)?;
                edit::set(&text, &self.rule_path(&words), &wanted.source())?
            }
            None => edit::remove(&before, &self.rule_path(&words))?,
        };
        let text = self.settle_questions(text.source, &words, &file, &files);
        let policy = files
            .with_text(&file, &text)
            .compile()
            .map_err(|error| Failure::new(format!("nothing was changed, because then {error}")))?;
        let decision = self.decide_example(&policy, &words, &dirs, &project)?;
        if let Some(unmet) = wanted.as_ref().and_then(|wanted| unmet(wanted, &decision)) {
            let reason = say::reason(&decision);
            let message = format!("nothing was changed: {unmet} all the same: {reason}");
            return Err(Failure::new(message));
        }
        if !carry_out(out, &dirs, vec![FileChange::replace(&file, text)?], self.how)? {
            return Ok(exit::OK);
        }
        out.line(format!("now {}: {}", decision.effect, say::reason(&decision)))?;
        if let Some(sandbox) = decision.sandbox.as_ref().filter(|_| decision.effect < Effect::Deny)
            && wanted.as_ref().is_some_and(|wanted| wanted.sandbox != given)
        {
            out.line(format!("it runs in sandbox {}", sandbox.name))?;
        }
        if self.scope == "project" && !trusts_project(&dirs, &project)? {
            let trust = Remedy::Trust;
            out.line(format!("the project's policy is not trusted: `{trust}` makes it count"))?;
        }
        Ok(exit::OK)
    }

    /// Chooses the sandbox of an allow or ask about a command, if the user names none. Returns
    /// the text of the policy, with that sandbox if it is new.
    fn prepare(
        &self,
        wanted: &mut EffectDraft,
        before: &str,
        words: &[String],
        files: &PolicyFiles,
        dirs: &Dirs,
        project: &Path,
    ) -> Result<String, Failure> {
        let is_command = canonical(&self.tool).1 == ToolKind::Shell;
        if !is_command || wanted.sandbox.is_some() || wanted.effect == Effect::Deny {
            return Ok(before.to_owned());
        }
        // A policy that does not compile has no decision; the edit may mend it.
        let Ok(policy) = files.compile() else { return Ok(before.to_owned()) };
        let usual = self.decide_example(&policy, &[], dirs, project)?.sandbox;
        let usual = usual.filter(|sandbox| !sandbox.unrestricted).map(|sandbox| sandbox.name);
        let decision = self.decide_example(&policy, words, dirs, project)?;
        let chosen = rule_sandbox::choose(&words.join(" "), &decision, usual.as_deref());
        let (name, text) = match chosen {
            None => return Ok(before.to_owned()),
            // A name that this text cannot use leaves the rule in the default sandbox.
            Some(RuleSandbox::Kept(name)) if edit::names_sandbox(before, &name) => {
                (name, before.to_owned())
            }
            Some(RuleSandbox::Kept(_)) => return Ok(before.to_owned()),
            Some(RuleSandbox::Made(sandbox)) => match edit::define(before, &sandbox) {
                Ok(edited) => (sandbox.name, edited.source),
                Err(_) => return Ok(before.to_owned()),
            },
        };
        wanted.sandbox = Some(name);
        Ok(text)
    }

    /// Removes the expectations of a question that the new rule contradicts, if the text
    /// compiles only without them. Only the user changes policies, and sees the change first.
    fn settle_questions(
        &self,
        text: String,
        words: &[String],
        file: &Path,
        files: &PolicyFiles,
    ) -> String {
        // A script with `--yes` does not look at the change.
        let may = self.drop_expectations || !self.how.yes;
        let is_command = canonical(&self.tool).1 == ToolKind::Shell && !words.is_empty() && may;
        if !is_command || files.clone().with_text(file, &text).compile().is_ok() {
            return text;
        }
        match edit::without_questions(&text, words) {
            Ok(without) if files.clone().with_text(file, &without.source).compile().is_ok() => {
                without.source
            }
            _ => text,
        }
    }

    /// The words of the rule. For commands, a single argument may hold a whole command, and
    /// shell syntax fails.
    fn words(&self) -> Result<Vec<String>, Failure> {
        if canonical(&self.tool).1 != ToolKind::Shell {
            return Ok(self.words.clone());
        }
        const SHELL: &str = "|&;<>()$`\\\"'\n{}!";
        if let Some(word) = self.words.iter().find(|word| word.contains(|c| SHELL.contains(c))) {
            return Err(Failure::new(format!(
                "`{}` needs a shell to be read, and a rule is about plain words",
                say::brief(word)
            ))
            .hint("give the words the command begins with"));
        }
        Ok(self.words.iter().flat_map(|word| word.split_whitespace()).map(str::to_owned).collect())
    }

    /// The policy to change, and all policies in force with it. Fails for the project scope
    /// in the home directory, and for an unknown session.
    fn find_policy(&self, dirs: &Dirs, project: &Path) -> Result<(PathBuf, PolicyFiles), Failure> {
        let files = PolicyFiles::in_force(dirs, project, None);
        Ok(match self.scope.as_str() {
            "project" => {
                let file = dirs.project_policy(project).ok_or_else(|| {
                    Failure::new("the policy in the home directory is the user's own")
                })?;
                (file, files.trusting())
            }
            "session" => {
                let id = self.session.clone().or_else(env::client_session);
                let id = id.ok_or_else(|| {
                    Failure::new("the session is not known: no agent runs this command")
                        .hint(sessions_hint(dirs))
                })?;
                let session = Session::find(dirs, &id)?;
                let file = session.dir.join(SESSION_POLICY);
                let files = PolicyFiles::in_force(dirs, &session.project, None).with_session(&file);
                (file, files)
            }
            _ => {
                let [first, _] = &dirs.user_policies;
                let present = dirs.user_policies.iter().find(|path| path.exists());
                (present.unwrap_or(first).clone(), files)
            }
        })
    }

    /// The keys of the rule: the tool, then one for each word. `*` and `?` make a glob,
    /// except for a host.
    fn rule_path(&self, words: &[String]) -> Vec<RuleKey> {
        let (tool, kind) = canonical(&self.tool);
        let wild = |word: &String| match word.as_str() {
            "**" => RuleKey::wildcard(),
            word if word.contains(['*', '?']) => RuleKey::call("glob", word),
            word => RuleKey::str(word),
        };
        // As a string, a word with a slash would name a program by its directory.
        let argument = |word: &String| match wild(word) {
            RuleKey::Str(text) if text.contains('/') => RuleKey::call("literal", text),
            key => key,
        };
        let key = |(at, word): (usize, &String)| match kind {
            ToolKind::Shell if at > 0 => argument(word),
            ToolKind::File => match wild(word) {
                RuleKey::Str(path) => RuleKey::call("path", path),
                glob => glob,
            },
            ToolKind::Host => RuleKey::str(word),
            ToolKind::Shell | ToolKind::Other => wild(word),
        };
        [RuleKey::str(tool)].into_iter().chain(words.iter().enumerate().map(key)).collect()
    }

    /// The decision about an example action of the rule: its words, with `x` for each
    /// wildcard.
    fn decide_example(
        &self,
        policy: &LoadedPolicy,
        words: &[String],
        dirs: &Dirs,
        project: &Path,
    ) -> Result<Decision, Failure> {
        let filled: Vec<String> =
            words.iter().map(|word| word.replace("**", "*").replace(['*', '?'], "x")).collect();
        let first = filled.first().cloned();
        let mut fields = Map::new();
        let mut put = |name: &str, value: String| fields.insert(name.to_owned(), value.into());
        let (tool, kind) = canonical(&self.tool);
        match (kind, first) {
            (ToolKind::Shell, Some(_)) => put("command", filled.join(" ")),
            (ToolKind::Shell, None) => put("command", "clash-example".to_owned()),
            (ToolKind::File, path) => {
                let places = dirs.places(project, &clash_sandbox::disk::Disk::default());
                let path = path.unwrap_or_else(|| "$PWD/clash-example".to_owned());
                let path = places.expand(&path).unwrap_or_else(|_| path.into());
                let name = if matches!(tool, "Glob" | "Grep") { "path" } else { "file_path" };
                put(name, path.to_string_lossy().into_owned())
            }
            (ToolKind::Host, host) => {
                let host = host.unwrap_or_else(|| "clash-example.test".to_owned());
                let host = host.trim_start_matches("x.");
                put("url", format!("https://{host}/"))
            }
            (ToolKind::Other, Some(name)) => {
                put(&name, filled.get(1).cloned().unwrap_or_else(|| "clash-example".to_owned()))
            }
            (ToolKind::Other, None) => None::<Value>,
        };
        let from = CallContext { cwd: project, home: &dirs.home, paths: &HeldPaths };
        let (tool, input) = tool_input::read_tool_use(tool, &fields, &from)?;
        let (agent, mode) = (clash_agents::DEFAULT_AGENT.to_owned(), "default".to_owned());
        Ok(decide_by(
            policy,
            dirs,
            DecisionContext::outside_sessions(project),
            &Action { agent, tool, mode, input },
        )?)
    }
}

/// True if every policy in force for the project is trusted.
pub(crate) fn trusts_project(dirs: &Dirs, project: &Path) -> Result<bool, Failure> {
    let policy = PolicyFiles::in_force(dirs, project, None).compile()?;
    for layer in policy.ir().layers() {
        if !layer?.trusted()? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A hint with the ids of the three newest sessions, or that there is none.
fn sessions_hint(dirs: &Dirs) -> String {
    const MAX_HINTED_SESSIONS: usize = 3;
    let sessions = crate::cmd::log::traced_sessions(dirs).unwrap_or_default();
    let id = |session: &PathBuf| session.file_name()?.to_str().map(str::to_owned);
    let ids: Vec<String> = sessions.iter().rev().filter_map(id).take(MAX_HINTED_SESSIONS).collect();
    if ids.is_empty() {
        return "no agent has run with clash yet; `--scope user` changes your own policy"
            .to_owned();
    }
    format!("name it with `--session`; the newest first: {}", ids.join(", "))
}
