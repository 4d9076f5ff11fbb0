//! `clash stop`: ends rooms whose processes go on in the background.

use super::unless_closed;
use crate::dirs::Dirs;
use crate::exit;
use crate::remedy::Remedy;
use crate::rooms::{self, RoomRecord};
use crate::session::name_of;
use crate::ui::{CommandOutput, Failure};

/// End rooms whose processes go on in the background
///
/// Asks the processes of a room to end (SIGTERM), and kills them two seconds later. Returns
/// when all are gone. `clash ps` lists the rooms.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("which").required(true))]
pub(crate) struct Args {
    /// The rooms, as `clash ps` names them
    #[arg(value_name = "ROOM", group = "which")]
    rooms: Vec<String>,
    /// All rooms
    #[arg(long, group = "which")]
    all: bool,
    /// The rooms of this session
    #[arg(long, value_name = "SESSION", group = "which")]
    session: Option<String>,
}

impl Args {
    /// Ends the rooms that the ids, the session or `--all` name, and waits for their end. An
    /// error if an id names no room that runs; the other rooms have ended then.
    pub(crate) fn run(self, out: &mut CommandOutput) -> Result<u8, Failure> {
        let dirs = Dirs::from_env()?;
        let is_session = |record: &RoomRecord| match (&self.session, &record.session) {
            (Some(wanted), Some(name)) => wanted == name || name_of(wanted) == *name,
            _ => false,
        };
        let stopped = rooms::stop(&dirs, |record| {
            self.all || self.rooms.contains(&record.id) || is_session(record)
        });
        for record in &stopped {
            unless_closed(out.line(format!("{} has ended", record.id)))?;
        }
        let is_stopped = |id: &&String| stopped.iter().any(|record| record.id == **id);
        match self.rooms.iter().find(|id| !is_stopped(id)) {
            Some(id) => Err(Failure {
                hint: Some(format!("`{}` lists the rooms that run", Remedy::Ps)),
                ..Failure::new(format!("there is no room `{id}`"))
            }),
            None => Ok(exit::OK),
        }
    }
}
