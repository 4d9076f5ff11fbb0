//! Programs that a policy has rules about, and the doors of a sandbox.
//!
//! A room of a sandbox has a door in the place of each program whose rules differ from the
//! rights of that sandbox. Rules about patterns of names give no doors.

use std::collections::BTreeMap;

use crate::decide::DecideError;
use crate::effect::Effect;
use crate::ir::{EdgeMatcher, IrError, IrImage, NodeRef};
use crate::rule::KeySubject;
use crate::sandbox::Sandbox;

/// The rules of a policy about one program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuledProgram {
    /// The strictest effect of its rules.
    pub strictest: Effect,
    /// The sandboxes that its rules name. Rules without `sandbox = …` add none.
    pub sandboxes: Vec<String>,
}

/// The compiler makes no deeper trees.
const MAX_TREE_DEPTH: usize = 200;

/// The programs that the rules of a policy name literally, from all layers, also untrusted
/// ones. An allow and a deny both count.
pub fn ruled_programs(ir: IrImage<'_>) -> Result<BTreeMap<String, RuledProgram>, DecideError> {
    let mut programs = BTreeMap::new();
    for layer in ir.layers() {
        for group in layer?.groups()? {
            find_programs(&group?.root()?, MAX_TREE_DEPTH, &mut programs)?;
        }
    }
    Ok(programs)
}

/// Adds the programs whose names are literal first words below a node.
fn find_programs(
    node: &NodeRef<'_>,
    depth: usize,
    programs: &mut BTreeMap<String, RuledProgram>,
) -> Result<(), IrError> {
    let below = depth.checked_sub(1).ok_or(IrError::Damaged)?;
    if node.rule()?.is_some() {
        return Ok(());
    }
    for edge in node.literals()?.chain(node.patterns()?) {
        let edge = edge?;
        let next = edge.node()?;
        match (edge.subject, edge.matcher) {
            (KeySubject::Word, EdgeMatcher::Literal) => {
                let known = RuledProgram { strictest: Effect::Allow, sandboxes: Vec::new() };
                let program = programs.entry(edge.text.to_owned()).or_insert(known);
                program.strictest = program.strictest.max(next.strictest()?);
                add_sandboxes(&next, below, &mut program.sandboxes)?;
            }
            (KeySubject::Word, _) => {}
            _ => find_programs(&next, below, programs)?,
        }
    }
    Ok(())
}

/// Adds the sandboxes that rules below a node name, each once.
fn add_sandboxes(
    node: &NodeRef<'_>,
    depth: usize,
    sandboxes: &mut Vec<String>,
) -> Result<(), IrError> {
    let below = depth.checked_sub(1).ok_or(IrError::Damaged)?;
    if let Some(rule) = node.rule()? {
        if let Some(sandbox) = rule.sandbox()? {
            let name = sandbox.name()?;
            if !sandboxes.iter().any(|known| known == name) {
                sandboxes.push(name.to_owned());
            }
        }
        return Ok(());
    }
    for edge in node.literals()?.chain(node.patterns()?) {
        add_sandboxes(&edge?.node()?, below, sandboxes)?;
    }
    Ok(())
}

/// True if a command of this sandbox may start the program in a sandbox of its own.
pub fn opens(sandbox: &Sandbox, is_default: bool, program: &str) -> bool {
    is_default || sandbox.doors.iter().any(|door| door == program)
}

/// True if the room of a sandbox needs a door in the place of a program. A deny holds in
/// every room. A shell never needs one, whatever its rules say: the programs that it starts
/// have doors.
pub fn needs_door(sandbox: &Sandbox, is_default: bool, name: &str, program: &RuledProgram) -> bool {
    let differs = program.strictest > Effect::Allow
        || program.sandboxes.iter().any(|other| *other != sandbox.name);
    let is_denied = program.strictest == Effect::Deny;
    !clash_shell::is_shell(name) && (is_denied || differs && opens(sandbox, is_default, name))
}
