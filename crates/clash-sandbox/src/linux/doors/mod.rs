//! The launcher's side of doors: the broker, visitors, the process that follows a command, and
//! rooms that are kept for further commands.

mod broker;
mod condition;
mod follow;
mod kept;
mod request;
mod visit;
mod visitor;

pub(crate) use broker::{DoorBroker, DoorLine, keep_processes, start_broker};
pub(crate) use condition::RoomCondition;
pub use kept::{KeepOffer, KeptRoom};
pub(crate) use kept::{KeptPlace, KeptRooms};
pub(crate) use request::RoomRequest;
pub use visit::{DoorService, DoorVisit};
