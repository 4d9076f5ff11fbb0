//! The rule of one tree that an action matches, without the other layers. A lint uses
//! it to find rules that no action can reach.

use crate::action::{Action, ToolInput};
use crate::ir::LayerRef;
use crate::judge::JudgeContext;
use crate::rule::KeySubject;
use crate::span::PolicySpan;

use super::DecideError;
use super::facts::MatchFacts;
use super::walk;

/// The place of the rule that an action matches in one group, below its root keys about
/// `subject`: a doubtful rule if there is one. Of several commands, paths or hosts only the
/// first counts. `None` if no rule matches or the group does not exist.
pub fn reached(
    layer: &LayerRef<'_>,
    group: usize,
    subject: KeySubject,
    action: &Action,
    context: &JudgeContext<'_>,
) -> Result<Option<PolicySpan>, DecideError> {
    let Some(group) = layer.groups()?.nth(group) else { return Ok(None) };
    let tool = MatchFacts::tool(action, context);
    let commands = match &action.input {
        ToolInput::Script(script) => clash_shell::find_commands(script),
        _ => Vec::new(),
    };
    let facts = match &action.input {
        ToolInput::Script(_) => commands.first().map(|c| MatchFacts::command(action, context, c)),
        ToolInput::Files(files) => Some(MatchFacts { file: files.first(), ..tool }),
        ToolInput::Hosts(hosts) => {
            Some(MatchFacts { host: hosts.first().map(|h| h.host.as_str()), ..tool })
        }
        ToolInput::Fields(fields) => Some(MatchFacts { fields, ..tool }),
    };
    let Some(facts) = facts else { return Ok(None) };
    let found = walk::branch(&group?, subject, &facts, false)?.strictest();
    Ok(found.map(|found| found.rule.span()).transpose()?)
}
