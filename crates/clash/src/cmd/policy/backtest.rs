//! `clash policy backtest`: decides the past actions of agents by a policy.
//!
//! Clash decides as the hook does, on this machine in its present state. It decides equal
//! calls once.

use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use clash_history::secret::redact;
use clash_history::{HistoryFile, ReadTally, day};
use clash_policy::Effect;
use clash_policy::decide::{Decision, DecisionCause};
use serde_json::{Value, json};

use super::files;
use crate::cmd::{dirs_and_project, unless_closed};
use crate::decision::ProjectJudge;
use crate::dirs::Dirs;
use crate::history::{PastAction, not_understood, parse_since, replay, selected_histories};
use crate::policy::LoadedPolicy;
use crate::say;
use crate::ui::{CommandOutput, Failure, TextTone};

/// Decide the past actions of agents by a policy
///
/// Clash reads its own traces and the histories of Claude Code, Codex, Gemini CLI and
/// OpenCode. It decides every action as the hook does, and counts the actions that run
/// without asking, that ask and that are denied, with the rules behind them. It runs no
/// action. In examples it hides texts that look like secrets.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only the last hours, days or weeks, for example 12h, 30d, 2w
    #[arg(long, value_name = "TIME", value_parser = parse_since)]
    since: Option<u64>,
    /// Use this policy alone; the policies in force if not given
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Show the decisions that this other policy changes
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// `latest`, a history, or a directory with histories; all histories of this machine
    /// if not given
    #[arg(long, value_name = "HISTORY")]
    from: Option<String>,
    /// Only actions in this project
    #[arg(long)]
    here: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The project; found from the working directory if not given
    #[arg(long, value_name = "DIR")]
    project: Option<PathBuf>,
}

impl Args {
    /// Decides every past action by the policy and, if given, by the other one. Prints the
    /// counts. Runs no action.
    pub(crate) fn run(self, out: &mut CommandOutput) -> Result<u8, Failure> {
        let (dirs, here) = dirs_and_project(self.project.clone())?;
        let policy = files(self.policy.as_deref(), self.project.clone())?.compile()?;
        let against = self
            .against
            .as_deref()
            .map(|file| super::single_file(file)?.compile().map_err(Failure::from));
        let against = against.transpose()?;
        let histories = selected_histories(&dirs, self.from.as_deref())?;
        let mut test = Backtest::new(&dirs, &policy, against.as_ref());
        let tally = replay(&dirs, &here, &histories, self.since, |past| {
            if !self.here || past.project == here {
                test.note(past);
            }
            ControlFlow::Continue(())
        });
        let found = test.found;
        unless_closed(if self.json {
            out.json(&found.into_json(&tally))
        } else {
            found.print(out, &tally, against.is_some())
        })
    }
}

/// Counts the decisions of a policy about the past actions in these histories. All
/// histories of this machine: `clash_history::all_histories(&history::roots(dirs))`.
pub(in crate::cmd) fn count_decisions(
    dirs: &Dirs,
    here: &Path,
    policy: &LoadedPolicy,
    histories: &[HistoryFile],
) -> BacktestCounts {
    let mut test = Backtest::new(dirs, policy, None);
    let _ = replay(dirs, here, histories, None, |past| {
        test.note(past);
        ControlFlow::Continue(())
    });
    test.found.counts
}

/// The number of actions for each decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::cmd) struct BacktestCounts {
    pub(in crate::cmd) allowed: u64,
    pub(in crate::cmd) asked: u64,
    pub(in crate::cmd) denied: u64,
}

impl BacktestCounts {
    pub(in crate::cmd) fn all(self) -> u64 {
        self.allowed + self.asked + self.denied
    }

    fn add(&mut self, effect: Effect) {
        match effect {
            Effect::Allow => self.allowed += 1,
            Effect::Ask => self.asked += 1,
            Effect::Deny => self.denied += 1,
        }
    }
}

impl fmt::Display for BacktestCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is = |count: u64| if count == 1 { "is" } else { "are" };
        let verb = |count: u64, one, many| if count == 1 { one } else { many };
        write!(
            f,
            "of your last {} actions {} {} without asking, {} {}, {} {} denied",
            self.all(),
            self.allowed,
            verb(self.allowed, "runs", "run"),
            self.asked,
            verb(self.asked, "asks", "ask"),
            self.denied,
            is(self.denied),
        )
    }
}

/// The decision about one action, and its cause.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct BacktestVerdict {
    effect: Effect,
    sandbox: Option<String>,
    cause: String,
}

impl BacktestVerdict {
    fn new(decision: &Decision) -> Self {
        let sandbox = decision.sandbox.as_ref().map(|sandbox| sandbox.name.clone());
        Self { effect: decision.effect, sandbox, cause: describe_cause(decision) }
    }

    /// The hook's answer if it cannot decide.
    fn failed(error: &dyn fmt::Display) -> Self {
        Self { effect: Effect::Deny, sandbox: None, cause: error.to_string() }
    }
}

/// The rule behind a decision, or another cause.
fn describe_cause(decision: &Decision) -> String {
    let Some(part) = decision.decisive() else { return "nothing was decided".to_owned() };
    let judged =
        part.judged.as_ref().filter(|it| it.effect == part.effect && it.effect > Effect::Allow);
    if let (Some(judged), Some(sandbox)) = (judged, &part.sandbox) {
        return match &judged.rule {
            Some((pattern, span)) => format!("{pattern} of sandbox {sandbox} ({span})"),
            None => format!("sandbox {sandbox} does not grant it"),
        };
    }
    match &part.cause {
        DecisionCause::Rule { span, untrusted, .. } => {
            let why = if *untrusted { " (not trusted)" } else { "" };
            format!("{span}{why}")
        }
        DecisionCause::Default { span, .. } if span.file.starts_with('@') => {
            "no rule matches".to_owned()
        }
        DecisionCause::Default { span, .. } => format!("no rule matches ({span})"),
        DecisionCause::Inert => "it needs no rule".to_owned(),
        DecisionCause::Opened => "a file it opens".to_owned(),
        DecisionCause::Cage => "it steers the agent or clash itself".to_owned(),
    }
}

/// The number of equal decisions, with one example.
#[derive(Debug, Default)]
struct CauseGroup {
    times: u64,
    example: String,
}

/// The counts, and the causes of asks and denials.
#[derive(Debug, Default)]
struct BacktestFindings {
    counts: BacktestCounts,
    agents: HashMap<&'static str, u64>,
    first: Option<u64>,
    last: Option<u64>,
    /// The actions that ask or are denied, by cause.
    causes: HashMap<(Effect, String), CauseGroup>,
    changes: HashMap<(BacktestVerdict, BacktestVerdict), CauseGroup>,
}

/// A run over past actions. Equal calls are decided once.
struct Backtest<'a> {
    dirs: &'a Dirs,
    policy: &'a LoadedPolicy,
    against: Option<&'a LoadedPolicy>,
    grounds: HashMap<PathBuf, ProjectJudge>,
    /// The verdicts about calls decided already: equal calls in one place are decided alike.
    known: HashMap<u64, (BacktestVerdict, Option<BacktestVerdict>)>,
    found: BacktestFindings,
}

impl<'a> Backtest<'a> {
    fn new(dirs: &'a Dirs, policy: &'a LoadedPolicy, against: Option<&'a LoadedPolicy>) -> Self {
        let (grounds, known) = (HashMap::new(), HashMap::new());
        Self { dirs, policy, against, grounds, known, found: BacktestFindings::default() }
    }

    /// Decides one past action by the policy and the other one, and counts it.
    fn note(&mut self, past: &PastAction) {
        let (verdict, other) = self.verdicts(past);
        let found = &mut self.found;
        found.counts.add(verdict.effect);
        *found.agents.entry(past.seen.agent).or_default() += 1;
        found.first = [found.first, past.seen.when].into_iter().flatten().min();
        found.last = found.last.max(past.seen.when);
        if verdict.effect > Effect::Allow {
            let group = found.causes.entry((verdict.effect, verdict.cause.clone())).or_default();
            group.note(past);
        }
        if let Some(other) = other
            && (other.effect, &other.sandbox) != (verdict.effect, &verdict.sandbox)
        {
            found.changes.entry((verdict, other)).or_default().note(past);
        }
    }

    /// The verdicts of both policies. An action that cannot be read or decided counts as
    /// denied, as the hook does.
    fn verdicts(&mut self, past: &PastAction) -> (BacktestVerdict, Option<BacktestVerdict>) {
        let mut hash = DefaultHasher::new();
        (&past.seen.agent, &past.seen.tool, &past.cwd, &past.project).hash(&mut hash);
        for (name, value) in &past.seen.input {
            name.hash(&mut hash);
            value.hash(&mut hash);
        }
        let hash = hash.finish();
        if let Some(known) = self.known.get(&hash) {
            return known.clone();
        }
        let decided = match past.action() {
            Ok(action) => {
                let grounds = self.grounds.entry(past.project.clone());
                let grounds =
                    grounds.or_insert_with(|| ProjectJudge::new(self.dirs, &past.project));
                let decide = |policy| match grounds.decide(policy, &past.cwd, &action) {
                    Ok(decision) => BacktestVerdict::new(&decision),
                    Err(error) => BacktestVerdict::failed(&error),
                };
                (decide(self.policy), self.against.map(decide))
            }
            Err(error) => {
                let verdict = BacktestVerdict::failed(&error);
                (verdict.clone(), self.against.map(|_| verdict))
            }
        };
        self.known.insert(hash, decided.clone());
        decided
    }
}

impl CauseGroup {
    fn note(&mut self, past: &PastAction) {
        self.times += 1;
        if self.example.is_empty() {
            self.example = example(past);
        }
    }
}

/// The call as a user writes it, without possible secrets.
fn example(past: &PastAction) -> String {
    let input = &past.seen.input;
    let fields =
        ["command", "file_path", "notebook_path", "path", "absolute_path", "url", "pattern"];
    let text = fields.into_iter().find_map(|name| input.get(name).and_then(Value::as_str));
    match text {
        Some(text) if input.contains_key("command") => say::brief(&redact(text)),
        Some(text) => say::brief(&format!("{} {}", past.seen.tool, redact(text))),
        None => say::brief(&past.seen.tool),
    }
}

/// Sorts the groups, the most frequent first.
fn by_times<K: Ord>(groups: HashMap<K, CauseGroup>) -> Vec<(K, CauseGroup)> {
    let mut groups: Vec<(K, CauseGroup)> = groups.into_iter().collect();
    groups.sort_by(|a, b| (b.1.times, &a.0).cmp(&(a.1.times, &b.0)));
    groups
}

impl BacktestFindings {
    /// Prints the counts, the most frequent causes, and the changes if two policies were
    /// compared.
    fn print(self, out: &mut CommandOutput, tally: &ReadTally, compared: bool) -> io::Result<()> {
        const MAX_SHOWN_CAUSES: usize = 20;
        let mut agents: Vec<&str> = self.agents.keys().copied().collect();
        agents.sort_unstable();
        let span = match (self.first, self.last) {
            (Some(first), Some(last)) => format!(", {} to {}", day(first), day(last)),
            _ => String::new(),
        };
        let BacktestCounts { allowed, asked, denied } = self.counts;
        out.line(format!("{} actions of {}{span}", self.counts.all(), agents.join(", ")))?;
        for (count, what, tone) in [
            (allowed, "run without asking", TextTone::Good),
            (asked, "ask", TextTone::Care),
            (denied, "are denied", TextTone::Bad),
        ] {
            out.line(format!("  {count:>6}  {}", out.tone(tone, what)))?;
        }
        for (effect, title) in
            [(Effect::Ask, "why they ask"), (Effect::Deny, "why they are denied")]
        {
            let causes = self.causes.iter().filter(|((it, _), _)| *it == effect);
            let mut causes: Vec<(&String, &CauseGroup)> =
                causes.map(|((_, cause), group)| (cause, group)).collect();
            causes.sort_by(|a, b| (b.1.times, a.0).cmp(&(a.1.times, b.0)));
            if !causes.is_empty() {
                out.line(format!("\n{title}"))?;
            }
            for (cause, group) in causes.iter().take(MAX_SHOWN_CAUSES) {
                let CauseGroup { times, example } = group;
                out.line(format!("  {times:>6}  {}: {example}", say::brief(cause)))?;
            }
            if causes.len() > MAX_SHOWN_CAUSES {
                out.line(format!("          and {} more", causes.len() - MAX_SHOWN_CAUSES))?;
            }
        }
        if compared {
            out.line("\nwhat the other policy changes")?;
            if self.changes.is_empty() {
                out.line("  nothing")?;
            }
            let by = |it: &BacktestVerdict| (it.effect, it.sandbox.clone(), it.cause.clone());
            let changes =
                self.changes.into_iter().map(|((old, new), group)| ((by(&old), by(&new)), group));
            for (((old, old_box, _), (new, new_box, cause)), group) in
                by_times(changes.collect()).into_iter().take(MAX_SHOWN_CAUSES)
            {
                let into = |sandbox: Option<String>| {
                    sandbox.map_or(String::new(), |it| format!(" in {it}"))
                };
                let (old, new) =
                    (format!("{old}{}", into(old_box)), format!("{new}{}", into(new_box)));
                let (times, cause) = (group.times, say::brief(&cause));
                out.line(format!("  {times:>6}  {old} → {new} by {cause}: {}", group.example))?;
            }
        }
        match not_understood(tally) {
            Some(text) => out.line(format!("\n{text}")),
            None => Ok(()),
        }
    }

    /// All counts, causes and changes, without a limit on their number.
    fn into_json(self, tally: &ReadTally) -> Value {
        let BacktestCounts { allowed, asked, denied } = self.counts;
        let causes: Vec<Value> = by_times(self.causes)
            .into_iter()
            .map(|((effect, cause), group)| {
                json!({"effect": effect.word(), "cause": cause, "times": group.times, "example": group.example})
            })
            .collect();
        let by = |it: &BacktestVerdict| (it.effect, it.sandbox.clone(), it.cause.clone());
        let shown = |(effect, sandbox, cause): (Effect, Option<String>, String)| json!({"effect": effect.word(), "sandbox": sandbox, "cause": cause});
        let changes =
            self.changes.into_iter().map(|((old, new), group)| ((by(&old), by(&new)), group));
        let changes: Vec<Value> = by_times(changes.collect())
            .into_iter()
            .map(|((old, new), group)| {
                json!({"old": shown(old), "new": shown(new), "times": group.times, "example": group.example})
            })
            .collect();
        json!({
            "actions": allowed + asked + denied, "allowed": allowed, "asked": asked, "denied": denied,
            "agents": self.agents, "first": self.first, "last": self.last,
            "causes": causes, "changes": changes,
            "passed_over": {
                "broken": tally.broken, "too_long": tally.too_long,
                "foreign": tally.foreign, "unreadable": tally.unreadable,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_a_sentence() {
        let counts = BacktestCounts { allowed: 391, asked: 17, denied: 4 };
        assert_eq!(
            counts.to_string(),
            "of your last 412 actions 391 run without asking, 17 ask, 4 are denied"
        );
        let one = BacktestCounts { allowed: 1, asked: 1, denied: 1 };
        assert_eq!(
            one.to_string(),
            "of your last 3 actions 1 runs without asking, 1 asks, 1 is denied"
        );
    }
}
