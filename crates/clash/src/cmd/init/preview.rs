//! Shows a proposed policy before it is written.

use clash_protocol::report::PolicyFinding;

use super::{InitProject, PlacementAction, PolicyProposal, summary};
use crate::cmd::policy::backtest::{self, BacktestCounts};
use crate::history;
use crate::policy::LoadedPolicy;
use crate::ui::{CommandOutput, Failure, TextTone};

/// Prints the change, in whole or in short, with warnings and the decisions about past
/// actions.
pub(super) fn print_preview(
    out: &mut CommandOutput,
    project: &InitProject,
    proposal: &PolicyProposal,
    whole: bool,
) -> Result<(), Failure> {
    out.line("")?;
    if whole {
        print_changes(out, proposal)?;
    } else {
        print_in_short(out, proposal)?;
    }
    for PolicyFinding { text, .. } in &proposal.warnings {
        out.line(format!("{}: {text}", out.tone(TextTone::Care, "warning")))?;
    }
    if let Some(counts) = count_past_decisions(project, &proposal.policy) {
        out.line("")?;
        out.line(counts.to_string())?;
    }
    Ok(())
}

/// Clash shows changes of more lines only on request.
const MOST_CHANGED_LINES: usize = 12;

/// Prints a small merge as a diff, and everything else as a summary of the policy.
fn print_in_short(out: &mut CommandOutput, proposal: &PolicyProposal) -> Result<(), Failure> {
    let changed = proposal.changes.iter().filter(|change| change.before.is_some());
    let diffs: usize = changed.map(|change| change.diff().lines().count()).sum();
    if proposal.how == PlacementAction::Merge && diffs <= MOST_CHANGED_LINES {
        return Ok(print_changes(out, proposal)?);
    }
    out.line("The policy in short:")?;
    let rows = summary::rows(&proposal.policy)?;
    let wide = rows.iter().map(|(what, _)| what.len()).max().unwrap_or_default();
    for (what, which) in rows {
        out.line(format!("  {what:<wide$}  {which}"))?;
    }
    Ok(())
}

/// The decisions of the policy about the past actions on this machine; `None` if there are
/// none.
fn count_past_decisions(project: &InitProject, policy: &LoadedPolicy) -> Option<BacktestCounts> {
    let histories = clash_history::all_histories(&history::roots(&project.dirs));
    let counts = backtest::count_decisions(&project.dirs, &project.root, policy, &histories);
    (counts.all() > 0).then_some(counts)
}

/// Prints a new file in whole and every other change as a diff.
pub(super) fn print_changes(
    out: &mut CommandOutput,
    proposal: &PolicyProposal,
) -> std::io::Result<()> {
    for change in &proposal.changes {
        match (&change.before, &change.after) {
            (None, Some(text)) => {
                out.line(out.tone(TextTone::Strong, &format!("{}:", change.file.display())))?;
                text.lines().try_for_each(|line| out.verbatim(format!("  {line}").trim_end()))?;
            }
            _ => out.diff(&change.diff())?,
        }
    }
    Ok(())
}
