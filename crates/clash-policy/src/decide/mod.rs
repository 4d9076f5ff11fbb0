//! From an action to a Decision: the effect, the sandbox, and the rules that led there.
//! One implementation serves the hook, the launcher and `explain`.
//!
//! Order of the layers: no layer can relax a deny or ask of a managed policy. Then come
//! the session, a deny of the user, the project, the user, the built-in rules, an allow of
//! a managed policy, and the default. An untrusted project layer can only make a decision
//! stricter.

mod edges;
mod facts;
mod named_hosts;
mod outputs;
mod reach;
mod redirections;
mod stack;
mod walk;

use crate::action::{Action, FileUse, HostUse, ToolInput};
use crate::credentials::credential;
use crate::effect::{Effect, FileCaps};
use crate::ir::{IrError, IrImage, SandboxRef};
use crate::judge::{JudgeContext, PathVerdict, is_caged, judge};
use crate::path::PathError;
use crate::rule::LayerKind;
use crate::sandbox::{ProtectSettings, Sandbox};
use crate::span::PolicySpan;
use crate::steering;
use clash_shell::{CommandPosition, ShellCommand, ShellWord};

use facts::MatchFacts;
pub use reach::reached;
pub(crate) use redirections::directory;
use stack::{DecidingLayers, PartRuling};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecideError {
    #[error(transparent)]
    Ir(#[from] IrError),
    #[error("sandbox `{sandbox}` ({span}): {source}")]
    Path { sandbox: String, span: PolicySpan, source: PathError },
    #[error("the key `{key}` of a rule: {source}")]
    PathKey { key: String, source: PathError },
    #[error("the command can be read in too many ways")]
    TooManyReadings,
}

type DecideResult<T> = Result<T, DecideError>;

/// The answer to an action, with its reasons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    pub effect: Effect,
    /// The sandbox in which a script runs if it is allowed or approved. A deny may have one
    /// too.
    pub sandbox: Option<Sandbox>,
    /// One for each command of a script, each path or each host; one for any other
    /// tool. Then one for each file that a redirection opens and that is not allowed. Never
    /// empty.
    pub parts: Vec<DecisionPart>,
    /// Two commands of a script that belong in different sandboxes. The script then runs in
    /// the default sandbox, and each command with a sandbox of its own behind a door.
    pub mix: Option<SandboxMix>,
}

/// The decision about one command, path or host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecisionPart {
    /// The command, path, host or tool, for people.
    pub what: String,
    pub effect: Effect,
    pub sandbox: Option<String>,
    pub cause: DecisionCause,
    /// Matching rules of other layers that did not prevail.
    pub overruled: Vec<OverruledRule>,
    /// Why the command is opaque.
    pub opaque: Option<&'static str>,
    /// Why the command is steered, in a sandbox that may read credentials or use the
    /// network. An allow then counts as ask.
    pub steered: Option<String>,
    /// Hosts in the command's words about which its sandbox asks. A yes covers them.
    pub asked_hosts: Vec<HostUse>,
    /// The answer of the sandbox about the path of a file tool, or about a host.
    pub judged: Option<SandboxJudgement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecisionCause {
    Rule {
        layer: LayerKind,
        trail: Vec<String>,
        span: PolicySpan,
        reason: Option<String>,
        /// An allow of an untrusted project, counted as ask.
        untrusted: bool,
        /// The rule may or may not match: the shell decides it when the script runs.
        doubtful: bool,
    },
    Default {
        layer: LayerKind,
        span: PolicySpan,
        reason: Option<String>,
    },
    /// The command starts no program, or is a filter.
    Inert,
    /// No rule matches a file that the shell opens, so the sandbox decides.
    Opened,
    /// The path belongs to clash or steers the agent.
    Cage,
}

/// A matching rule of another layer that did not prevail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverruledRule {
    pub layer: LayerKind,
    pub effect: Effect,
    pub trail: Vec<String>,
    pub span: PolicySpan,
}

/// The answer of a sandbox's own rules about a path or host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxJudgement {
    pub effect: Effect,
    /// The capabilities that decided; empty for a host.
    pub caps: FileCaps,
    /// The rule of the sandbox that decided; `None` for its default.
    pub rule: Option<(String, PolicySpan)>,
    /// The secret in the file, if it turned an ask into a deny.
    pub credential: Option<&'static str>,
}

/// Two commands of one script with different sandboxes: the text of each and its
/// sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxMix {
    pub first: (String, String),
    pub second: (String, String),
}

impl Decision {
    /// The first part with the effect of the whole decision, or the first part if only
    /// inert commands have it.
    pub fn decisive(&self) -> Option<&DecisionPart> {
        let strictest = |part: &&DecisionPart| part.effect == self.effect;
        let ruled =
            self.parts.iter().filter(|part| part.cause != DecisionCause::Inert).find(strictest);
        ruled.or(self.parts.first())
    }
}

/// Decides an action against an opened policy. The only reads of the disk are those of
/// `context.links`.
pub fn decide(
    ir: IrImage<'_>,
    action: &Action,
    context: &JudgeContext<'_>,
) -> Result<Decision, DecideError> {
    let decider = Decider { stack: DecidingLayers::read(ir)?, action, context };
    match &action.input {
        ToolInput::Script(script) => decider.decide_script(&clash_shell::find_commands(script)),
        ToolInput::Files(files) => decider.decide_files(files),
        ToolInput::Hosts(hosts) => decider.decide_hosts(hosts),
        ToolInput::Fields(fields) => {
            decider.decide_tool(&MatchFacts { fields, ..decider.tool_facts() })
        }
    }
}

/// The end of a reason why a command is steered that its rule allows.
const STEERED_ALLOW: &str = "; without that it would be allowed";

/// True if a command is asked about only because it is steered.
pub fn is_steering_alone(steered: &str) -> bool {
    steered.ends_with(STEERED_ALLOW)
}

/// The sandbox of commands that no rule gives another one.
pub fn default_sandbox(ir: IrImage<'_>) -> Result<Sandbox, DecideError> {
    Ok(DecidingLayers::read(ir)?.default_sandbox().to_sandbox()?)
}

/// The name of the default sandbox. Decodes nothing else.
pub fn default_sandbox_name(ir: IrImage<'_>) -> Result<&str, DecideError> {
    Ok(DecidingLayers::read(ir)?.default_sandbox().name()?)
}

/// A policy and the action that it decides.
struct Decider<'x, 'a> {
    stack: DecidingLayers<'a>,
    action: &'x Action,
    context: &'x JudgeContext<'x>,
}

impl<'a> Decider<'_, 'a> {
    fn tool_facts(&self) -> MatchFacts<'_> {
        MatchFacts::tool(self.action, self.context)
    }

    /// The ruling of the layers, or the default if no rule matches.
    fn rule_or_default(&self, facts: &MatchFacts<'_>) -> Result<PartRuling<'a>, DecideError> {
        let ruling = self.stack.rule(facts, false, self.stack.default_effect())?;
        Ok(ruling.unwrap_or_else(|| self.stack.by_default()))
    }

    /// A decision with one part, which has the name of the tool.
    fn decide_tool(&self, facts: &MatchFacts<'_>) -> Result<Decision, DecideError> {
        let part = (self.rule_or_default(facts)?, self.action.tool.clone());
        combine(vec![part])
    }

    /// Decides every command of a script. A script whose commands need no decision of their
    /// own runs in the default sandbox.
    fn decide_script(&self, commands: &[ShellCommand]) -> Result<Decision, DecideError> {
        // A command that starts no program needs a decision only if a rule names it. A
        // script of such commands alone (`echo hi`, `cd src`) runs in the default
        // sandbox, and rules about every command (`glob("**")`) count for it.
        let needs_none = |command: &ShellCommand| {
            clash_shell::is_inert(command) || clash_shell::is_filter(command)
        };
        let nothing_else = commands.iter().all(needs_none);
        let mut runner = None;
        let mut parts = Vec::with_capacity(commands.len());
        for command in commands {
            let ruling = if runs_elsewhere(command) {
                self.rule_elsewhere(command)?
            } else if command.position.contains(&CommandPosition::Package) {
                let ruling = self.rule_packaged(command)?;
                // A yes about the program is a yes to its sandbox, in which the runner runs.
                if let (Some(room), Some(at)) = (ruling.sandbox, runner)
                    && let Some((runner, _)) = parts.get_mut(at)
                {
                    let runner: &mut PartRuling<'_> = runner;
                    runner.sandbox = Some(room);
                }
                ruling
            } else {
                runner = Some(parts.len());
                self.rule_command(command, needs_none(command), nothing_else)?
            };
            parts.push((ruling, show_command(command)));
        }
        if parts.iter().all(|(ruling, _)| ruling.sandbox.is_none()) {
            let room = self.stack.by_default().sandbox;
            for (ruling, _) in parts.iter_mut().filter(|(r, _)| r.effect == Effect::Allow) {
                ruling.sandbox = room;
            }
        }
        let mut decision = combine(parts)?;
        if decision.mix.is_some() {
            decision.sandbox = Some(self.stack.default_sandbox().to_sandbox()?);
            leave_to_doors(&mut decision);
        }
        for (part, command) in decision.parts.iter_mut().zip(commands) {
            part.opaque = command.opaque;
        }
        self.add_redirections(decision, commands)
    }

    /// Rules one command of a script. `needs_none`: it is inert or a filter, so without a
    /// rule it is allowed. `nothing_else`: all commands of the script are like that.
    fn rule_command(
        &self,
        command: &ShellCommand,
        needs_none: bool,
        nothing_else: bool,
    ) -> Result<PartRuling<'a>, DecideError> {
        let facts = MatchFacts::command(self.action, self.context, command);
        let nothing = if needs_none { Effect::Allow } else { self.stack.default_effect() };
        let ruling = match self.stack.rule(&facts, needs_none && !nothing_else, nothing)? {
            // It runs in the sandbox of the other commands of the script.
            Some(ruling) if needs_none && !ruling.names_sandbox && !nothing_else => {
                PartRuling { sandbox: None, ..ruling }
            }
            Some(ruling) => ruling,
            None if needs_none => PartRuling::inert(),
            // The script runs in the default sandbox, and its commands meet their own rules
            // at their doors.
            None if self.stack.default_effect() == Effect::Ask
                && clash_shell::activates_environment(command) =>
            {
                let sandbox = Some(self.stack.default_sandbox());
                PartRuling { sandbox, ..PartRuling::inert() }
            }
            None => self.stack.by_default(),
        };
        Ok(named_hosts::unless_asked(command, self.unless_steered(command, ruling)?, self.context)?)
    }

    /// A rule that gives a program more rights than the default sandbox trusts that
    /// program. If the command is steered, the allow becomes an ask.
    fn unless_steered(
        &self,
        command: &ShellCommand,
        ruling: PartRuling<'a>,
    ) -> Result<PartRuling<'a>, DecideError> {
        let (Some(room), DecisionCause::Rule { trail, .. }) = (ruling.sandbox, &ruling.cause)
        else {
            return Ok(ruling);
        };
        // A rule about every command names no program to trust.
        let names_program = trail.iter().skip(1).any(|key| key != "**");
        let default = self.stack.default_sandbox();
        if ruling.effect == Effect::Deny || !names_program || room == default {
            return Ok(ruling);
        }
        let (room, default) = (room.to_sandbox()?, default.to_sandbox()?);
        let steered = steering::widening(&room, &default, self.context)
            .and_then(|widening| steering::steered(command, widening, trail, self.context));
        Ok(match steered {
            Some(why) if ruling.effect == Effect::Allow => {
                let steered = Some(format!("{why}{STEERED_ALLOW}"));
                PartRuling { effect: Effect::Ask, steered, ..ruling }
            }
            Some(why) => PartRuling { steered: Some(why), ..ruling },
            None => ruling,
        })
    }

    /// Rules a command on another machine or in a container. It runs in no room of clash,
    /// and an allow for this machine does not extend to that one. So only a deny or ask
    /// that names the command counts; without one it is allowed, because the command around
    /// it has a rule.
    fn rule_elsewhere(&self, command: &ShellCommand) -> Result<PartRuling<'a>, DecideError> {
        let facts = MatchFacts::command(self.action, self.context, command);
        let ruling = self.stack.rule(&facts, true, Effect::Allow)?;
        Ok(match ruling.filter(|ruling| ruling.effect > Effect::Allow) {
            Some(ruling) => PartRuling { sandbox: None, ..ruling },
            None => PartRuling::inert(),
        })
    }

    /// Rules a program of a package behind a runner such as `npx`. The runner has a rule of its
    /// own, so an allow of the program adds nothing: only a deny or ask that names the program
    /// counts.
    fn rule_packaged(&self, command: &ShellCommand) -> Result<PartRuling<'a>, DecideError> {
        let facts = MatchFacts::command(self.action, self.context, command);
        let ruling = self.stack.rule(&facts, true, Effect::Allow)?;
        Ok(ruling.filter(|it| it.effect > Effect::Allow).unwrap_or_else(PartRuling::inert))
    }

    /// Adds a part for each file that a redirection or an output option of git opens and
    /// that is not allowed. If the name of a written file is unknown, the sandbox loses its
    /// `unprotect` entries.
    fn add_redirections(
        &self,
        mut decision: Decision,
        commands: &[ShellCommand],
    ) -> Result<Decision, DecideError> {
        // The written file is known only to the shell, so the kernel protects every
        // entry of the list.
        if commands.iter().any(|command| redirections::writes_unknown(command, self.context)) {
            decision.sandbox = decision.sandbox.as_ref().map(fully_protected);
        }
        for opened in commands.iter().flat_map(|c| redirections::opened(c, self.context)) {
            let (file, what) = (&opened.file, opened.shown);
            let part = if file.needs.intersects(FileCaps::CHANGE) && is_caged(file, self.context) {
                DecisionPart::new(PartRuling::caged(), what)?
            } else {
                let action = Action { tool: opened.tool.to_owned(), ..self.action.clone() };
                let facts =
                    MatchFacts { file: Some(file), ..MatchFacts::tool(&action, self.context) };
                let default = self.stack.default_effect();
                let ruling = self.stack.rule(&facts, false, default)?;
                let ruling = ruling.unwrap_or_else(PartRuling::opened);
                let own = ruling.sandbox.map(|sandbox| sandbox.to_sandbox()).transpose()?;
                let mut part = DecisionPart::new(ruling, what)?;
                for sandbox in own.iter().chain(&decision.sandbox) {
                    let judged = judge_file(&fully_protected(sandbox), file, self.context)?;
                    if judged.effect > part.effect {
                        part.effect = judged.effect;
                        part.sandbox = Some(sandbox.name.clone());
                        part.judged = Some(judged);
                    }
                }
                part
            };
            if part.effect > Effect::Allow {
                decision.effect = decision.effect.max(part.effect);
                decision.parts.push(part);
            }
        }
        Ok(decision)
    }

    /// Decides every host by the rules, and by the sandbox if the rule names one. Without a
    /// host, as for a search, the rules about the tool decide.
    fn decide_hosts(&self, hosts: &[HostUse]) -> Result<Decision, DecideError> {
        let mut parts = Vec::new();
        let mut judged = Vec::new();
        for HostUse { host, port } in hosts {
            let ruling =
                self.rule_or_default(&MatchFacts { host: Some(host), ..self.tool_facts() })?;
            // A fetch runs in the agent's own process. Only a sandbox that the rule
            // names judges it.
            judged.push(match (&ruling.sandbox, ruling.names_sandbox) {
                (Some(sandbox), true) => Some(judge_host(&sandbox.to_sandbox()?, host, *port)),
                _ => None,
            });
            parts.push((ruling, host.clone()));
        }
        if parts.is_empty() {
            return self.decide_tool(&self.tool_facts());
        }
        Ok(with_judgements(combine(parts)?, judged))
    }

    /// Decides every file: the cage first, then the rules, then the sandbox, which can only
    /// make the answer stricter. Without a file, the rules about the tool decide.
    fn decide_files(&self, files: &[FileUse]) -> Result<Decision, DecideError> {
        let mut parts = Vec::new();
        let mut judged = Vec::new();
        for file in files {
            let what = file.path.display().to_string();
            if file.needs.intersects(FileCaps::CHANGE) && is_caged(file, self.context) {
                parts.push((PartRuling::caged(), what));
                judged.push(None);
                continue;
            }
            let ruling =
                self.rule_or_default(&MatchFacts { file: Some(file), ..self.tool_facts() })?;
            let sandbox = ruling.sandbox.map(|sandbox| sandbox.to_sandbox()).transpose()?;
            let verdict = match sandbox {
                Some(sandbox) => Some(judge_file(&sandbox, file, self.context)?),
                None => None,
            };
            judged.push(verdict.map(|verdict| self.without_credentials(verdict, file, &ruling)));
            parts.push((ruling, what));
        }
        if parts.is_empty() {
            return self.decide_tool(&self.tool_facts());
        }
        Ok(with_judgements(combine(parts)?, judged))
    }

    /// Turns an ask about a credential into a deny: one careless yes would give a key away.
    /// An ask of a rule stays, of the sandbox or with a path key.
    fn without_credentials(
        &self,
        judged: SandboxJudgement,
        file: &FileUse,
        ruling: &PartRuling<'_>,
    ) -> SandboxJudgement {
        let asked = judged.effect == Effect::Ask && judged.rule.is_none();
        if !asked || ruling.names_path || ruling.effect == Effect::Deny {
            return judged;
        }
        match credential(&file.path, &self.context.places.home) {
            None => judged,
            secret => SandboxJudgement { effect: Effect::Deny, credential: secret, ..judged },
        }
    }
}

impl DecisionPart {
    /// One part of a decision, from its ruling. An error if the image is damaged.
    fn new(ruling: PartRuling<'_>, what: String) -> Result<Self, DecideError> {
        let sandbox = ruling.sandbox.map(|sandbox| sandbox.name()).transpose()?;
        Ok(Self {
            what,
            effect: ruling.effect,
            sandbox: sandbox.map(str::to_owned),
            cause: ruling.cause,
            overruled: ruling.overruled,
            opaque: None,
            steered: ruling.steered,
            asked_hosts: ruling.asked_hosts,
            judged: None,
        })
    }
}

/// Takes back the questions about commands that are asked about only because the script does
/// not tell whether they are steered. Each of them is decided again at its door.
fn leave_to_doors(decision: &mut Decision) {
    for part in &mut decision.parts {
        let why = part.steered.as_deref().unwrap_or_default();
        if is_steering_alone(why) && steering::is_settled_by_door(why) {
            part.effect = Effect::Allow;
            part.steered = None;
        }
    }
    let effects = decision.parts.iter().map(|part| part.effect);
    decision.effect = effects.max().unwrap_or(Effect::Deny);
}

/// The text of a command for people. A command inside a wrapper has the text of the
/// wrapper, so its own words are shown.
fn show_command(command: &ShellCommand) -> String {
    if !matches!(
        command.position.last(),
        Some(
            CommandPosition::Wrapper(_) | CommandPosition::Elsewhere(_) | CommandPosition::Package
        )
    ) || command.words.is_empty()
    {
        return command.text.clone();
    }
    let word = |word: &ShellWord| match word {
        ShellWord::Known(text) if text.contains(char::is_whitespace) => format!("'{text}'"),
        ShellWord::Known(text) => text.clone(),
        ShellWord::Home(rest) => format!("~{rest}"),
        ShellWord::Partial(start) => format!("{start}…"),
        ShellWord::Unknown => "…".to_owned(),
    };
    command.words.iter().map(word).collect::<Vec<_>>().join(" ")
}

/// True if a command runs on another machine or in a container, as in `ssh host CMD`.
fn runs_elsewhere(command: &ShellCommand) -> bool {
    command.position.iter().any(|position| matches!(position, CommandPosition::Elsewhere(_)))
}

/// Combines the rulings of all parts: the strictest holds, and without parts a deny. The
/// sandbox is that of the first part that has one. If another part has a different sandbox,
/// the one with fewer `unprotect` entries serves both, or the two are noted as a mix.
fn combine(rulings: Vec<(PartRuling<'_>, String)>) -> Result<Decision, DecideError> {
    let effect = rulings.iter().map(|(r, _)| r.effect).max().unwrap_or(Effect::Deny);
    let mut room: Option<(SandboxRef<'_>, String)> = None;
    let mut mix = None;
    let mut parts = Vec::with_capacity(rulings.len());
    for (ruling, what) in rulings {
        match (ruling.sandbox, &room) {
            (Some(sandbox), None) => room = Some((sandbox, what.clone())),
            (Some(sandbox), Some((first, _)))
                if sandbox != *first && more_protected(sandbox, *first)? =>
            {
                room = Some((sandbox, what.clone()));
            }
            (Some(sandbox), Some((first, first_what)))
                if sandbox != *first
                    && mix.is_none()
                    && effect < Effect::Deny
                    && !more_protected(*first, sandbox)? =>
            {
                mix = Some(SandboxMix {
                    first: (first_what.clone(), first.name()?.to_owned()),
                    second: (what.clone(), sandbox.name()?.to_owned()),
                });
            }
            _ => {}
        }
        parts.push(DecisionPart::new(ruling, what)?);
    }
    let sandbox = room.map(|(sandbox, _)| sandbox.to_sandbox()).transpose()?;
    Ok(Decision { effect, sandbox, parts, mix })
}

/// True if two sandboxes differ only in `unprotect`, and `one` unprotects fewer paths.
/// Then `one` serves the commands of both, because it only narrows rights. A sandbox
/// that unprotects the list of steps of `git rebase` never joins another: without it a
/// rebase would stop halfway.
fn more_protected(one: SandboxRef<'_>, other: SandboxRef<'_>) -> Result<bool, DecideError> {
    let (one, other) = (one.to_sandbox()?, other.to_sandbox()?);
    let rights = |sandbox: &Sandbox| Sandbox {
        name: String::new(),
        doc: String::new(),
        span: PolicySpan::default(),
        protect: ProtectSettings::default(),
        ..sandbox.clone()
    };
    let (mine, theirs) = (&one.protect, &other.protect);
    let steps = |path: &String| path.ends_with("/git-rebase-todo") && !mine.except.contains(path);
    Ok(!theirs.except.iter().any(steps)
        && (mine.standard, &mine.also) == (theirs.standard, &theirs.also)
        && mine.except.len() < theirs.except.len()
        && mine.except.iter().all(|path| theirs.except.contains(path))
        && rights(&one) == rights(&other))
}

/// The sandbox without its `unprotect` entries. An exception is for the program that a
/// rule names, and not for the shell around it.
fn fully_protected(sandbox: &Sandbox) -> Sandbox {
    let mut sandbox = sandbox.clone();
    sandbox.protect.except.clear();
    sandbox
}

/// Adds the answers of sandboxes, which can only make the decision stricter. Files and
/// hosts run in no room, so each has its own sandbox and they never mix.
fn with_judgements(mut decision: Decision, judged: Vec<Option<SandboxJudgement>>) -> Decision {
    decision.mix = None;
    for (part, judged) in decision.parts.iter_mut().zip(judged) {
        if let Some(judged) = &judged {
            part.effect = part.effect.max(judged.effect);
        }
        part.judged = judged;
    }
    decision.effect = decision.parts.iter().map(|p| p.effect).max().unwrap_or(Effect::Deny);
    decision
}

/// The answer of a sandbox about a file. Its rule is the entry of the persistence list if
/// that decided.
fn judge_file(
    sandbox: &Sandbox,
    file: &FileUse,
    context: &JudgeContext<'_>,
) -> Result<SandboxJudgement, DecideError> {
    let PathVerdict { effect, rule, caps, kept } =
        judge(sandbox, file, context).map_err(|source| DecideError::Path {
            sandbox: sandbox.name.clone(),
            span: sandbox.span.clone(),
            source,
        })?;
    let rule = rule.and_then(|index| sandbox.fs.get(index));
    let rule = match kept {
        Some((entry, why)) => Some((format!("protect {entry}: {why}"), sandbox.span.clone())),
        None => rule.map(|rule| (rule.pattern.to_string(), rule.span.clone())),
    };
    Ok(SandboxJudgement { effect, caps, rule, credential: None })
}

/// The answer of a sandbox about a host and port; allow if it is unrestricted.
fn judge_host(sandbox: &Sandbox, host: &str, port: u16) -> SandboxJudgement {
    let (effect, rule) = sandbox.net.judge(host, port);
    let effect = if sandbox.unrestricted { Effect::Allow } else { effect };
    let rule = rule.map(|rule| (rule.to_string(), rule.span.clone()));
    SandboxJudgement { effect, caps: FileCaps::NONE, rule, credential: None }
}

#[cfg(test)]
mod tests;
