//! Phase `connect`: leaves the host's network, if the plan denies it, and opens the ports that
//! the room reaches. The kernel takes long to make a network, so this phase comes late.

use super::helper;
use super::phases::{LaunchResult, ParentContext};
use super::prepare::GrantFilling;
use crate::linux::ports::PortCrossing;

/// Connects the room's network: its own loopback, the gate and the shared ports. Then waits
/// until all grants are in the ruleset, and lets the helper end.
pub(super) fn connect(
    parent: &ParentContext<'_>,
    ports: Option<&PortCrossing>,
    filling: &GrantFilling<'_>,
) -> LaunchResult<()> {
    if let Some(room) = parent.room
        && room.own_network
    {
        let gate = helper::own_network(parent.helper, room.ports.gate.as_ref())?;
        if let Some(ports) = ports {
            if let Some(sockets) = &gate {
                ports.open_gate(sockets)?;
            }
            ports.listen(&room.ports)?;
        }
    }
    filling.finish()?;
    if let Some(helper) = parent.helper {
        helper.let_go();
    }
    Ok(())
}
