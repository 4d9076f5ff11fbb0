//! `clash ps`: the rooms whose processes go on in the background.

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use super::unless_closed;
use crate::dirs::Dirs;
use crate::rooms::{self, RunningRoom};
use crate::ui::{CommandOutput, Failure};

/// List the rooms whose processes go on in the background
///
/// A process that a command leaves in the background goes on in its room, with the same
/// rights. It ends by itself, with the session of its agent, or by `clash stop ROOM`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(crate) fn run(self, out: &mut CommandOutput) -> Result<u8, Failure> {
        let rooms = rooms::list(&Dirs::from_env()?);
        if self.json {
            return unless_closed(out.json(&Value::Array(rooms.iter().map(as_json).collect())));
        }
        unless_closed(print(out, &rooms))
    }
}

/// Prints the rooms as a table whose columns are as wide as their longest cell.
fn print(out: &mut CommandOutput, rooms: &[RunningRoom]) -> std::io::Result<()> {
    if rooms.is_empty() {
        return out.line("no room runs in the background");
    }
    let head = ["ROOM", "SESSION", "SANDBOX", "AGE", "PROCESSES", "PORTS", "COMMAND"];
    let rows: Vec<[String; 7]> =
        std::iter::once(head.map(str::to_owned)).chain(rooms.iter().map(row)).collect();
    for row in &rows {
        let cells = row.iter().enumerate().map(|(at, cell)| {
            let width = rows.iter().map(|row| row.get(at).map_or(0, |it| it.chars().count())).max();
            match at + 1 == row.len() {
                true => cell.clone(),
                false => format!("{cell:0$}  ", width.unwrap_or_default()),
            }
        });
        out.verbatim(cells.collect::<String>())?;
    }
    Ok(())
}

/// The cells of one room. The command is one line of at most 60 characters, without control
/// characters.
fn row(room: &RunningRoom) -> [String; 7] {
    let record = &room.record;
    let ports: Vec<String> = room.ports.iter().map(u16::to_string).collect();
    let or_dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    let command = record.command.lines().collect::<Vec<_>>().join("; ");
    let command: String = command.chars().filter(|c| !c.is_control()).take(60).collect();
    [
        record.id.clone(),
        record.session.clone().map_or_else(|| "-".to_owned(), |id| id.chars().take(12).collect()),
        record.sandbox.clone(),
        brief_age(age(record.started)),
        room.processes.to_string(),
        or_dash(ports.join(",")),
        command,
    ]
}

fn age(started: u64) -> Duration {
    let started = SystemTime::UNIX_EPOCH + Duration::from_millis(started);
    started.elapsed().unwrap_or_default()
}

/// For example `42s`, `7m`, `3h`, `2d`.
fn brief_age(age: Duration) -> String {
    let seconds = age.as_secs();
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// The fields of `--json` for one room.
fn as_json(room: &RunningRoom) -> Value {
    let record = &room.record;
    json!({
        "id": record.id,
        "session": record.session,
        "sandbox": record.sandbox,
        "command": record.command,
        "project": record.project,
        "started": record.started,
        "age_seconds": age(record.started).as_secs(),
        "processes": room.processes,
        "ports": room.ports,
        "keeper": record.keeper,
    })
}
