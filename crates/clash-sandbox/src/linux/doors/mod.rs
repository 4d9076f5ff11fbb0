//! The launcher's side of doors: the broker, visitors, and the process that follows a command.

mod broker;
mod follow;
mod visitor;

pub(crate) use broker::{DoorBroker, DoorLine, keep_processes, start_broker};
