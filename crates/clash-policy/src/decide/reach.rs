//! Which rule of one tree an action comes to, whatever the layers around it
//! say. For finding rules that nothing comes to.

use crate::action::{Action, Input};
use crate::ir::LayerRef;
use crate::judge::World;
use crate::rule::Subject;
use crate::span::Span;

use super::DecideError;
use super::facts::Facts;
use super::walk;

/// The place of the rule that the keys about `subject` in the group with the
/// number `group` give for an action with a single command, path or host.
pub fn reached(
    layer: &LayerRef<'_>,
    group: usize,
    subject: Subject,
    action: &Action,
    world: &World<'_>,
) -> Result<Option<Span>, DecideError> {
    let Some(group) = layer.groups()?.nth(group) else { return Ok(None) };
    let tool = Facts::tool(action, world);
    let commands = match &action.input {
        Input::Script(script) => clash_shell::commands(script),
        _ => Vec::new(),
    };
    let facts = match &action.input {
        Input::Script(_) => commands.first().map(|c| Facts::command(action, world, c)),
        Input::Files(files) => Some(Facts { file: files.first(), ..tool }),
        Input::Hosts(hosts) => Some(Facts { host: hosts.first().map(|h| h.host.as_str()), ..tool }),
        Input::Fields(fields) => Some(Facts { fields, ..tool }),
    };
    let Some(facts) = facts else { return Ok(None) };
    let found = walk::branch(&group?, subject, &facts, false)?.strictest();
    Ok(found.map(|found| found.rule.span()).transpose()?)
}
