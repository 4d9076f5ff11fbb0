//! `clash init --from-trace`: a policy made from the past actions of agents.

use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;

use clash_history::ReadTally;
use clash_history::evidence::{ActionScene, HistoryEvidence};

use crate::cmd::policy::backtest::{BacktestCounts, count_decisions};
use crate::dirs::Dirs;
use crate::exit;
use crate::history::{not_understood, replay, selected_histories};
use crate::policy::PolicyFiles;
use crate::ui::{CommandOutput, Failure};

/// A policy made from histories.
#[derive(Debug)]
pub(crate) struct LearnedPolicy {
    /// The text of the policy.
    pub(crate) source: String,
    pub(crate) evidence: HistoryEvidence,
    pub(crate) tally: ReadTally,
    /// The decisions of the policy about the actions it was made from.
    pub(crate) counts: BacktestCounts,
}

/// Makes a policy from the chosen histories, compiles it, and counts its decisions about the
/// same actions. Writes nothing. Fails if no action is of use.
pub(crate) fn learn(dirs: &Dirs, here: &Path, what: &str) -> Result<LearnedPolicy, Failure> {
    let histories = selected_histories(dirs, Some(what))?;
    let mut evidence = HistoryEvidence::default();
    let mut strange = 0;
    let tally = replay(dirs, here, &histories, None, |past| {
        let scene = ActionScene {
            when: past.seen.when,
            agent: past.seen.agent,
            project: &past.project,
            cwd: &past.cwd,
            home: &dirs.home,
        };
        match past.action() {
            Ok(action) => evidence.note(&action, past.seen.outcome, &scene),
            Err(_) => strange += 1,
        }
        ControlFlow::Continue(())
    });
    evidence.left.other_tools += strange;
    if evidence.is_empty() {
        let seen = evidence.actions + evidence.left.not_run;
        return Err(Failure::new(format!(
            "{seen} actions were read and none of them says anything"
        ))
        .hint("only what ran, of programs clash knows, is learned from"));
    }
    let source = super::learned::draft(&evidence).text()?;
    // Any path will do, because the policy loads no file beside it.
    let place = dirs.user_policies[0].clone();
    let compiled = PolicyFiles::single(&place).with_text(&place, &source).compile()?;
    let counts = count_decisions(dirs, here, &compiled, &histories);
    Ok(LearnedPolicy { source, evidence, tally, counts })
}

/// Prints the policy on standard output, and its evidence on standard error. Writes no file.
pub(super) fn run(
    out: &mut CommandOutput,
    dirs: &Dirs,
    here: &Path,
    what: &str,
) -> Result<u8, Failure> {
    let LearnedPolicy { source, evidence, tally, counts } = learn(dirs, here, what)?;
    out.verbatim(source.trim_end())?;
    let mut stderr = std::io::stderr();
    let _ = writeln!(stderr, "learned from {} actions that ran; {counts}", evidence.actions);
    if let Some(text) = not_understood(&tally) {
        let _ = writeln!(stderr, "{text}");
    }
    Ok(exit::OK)
}
