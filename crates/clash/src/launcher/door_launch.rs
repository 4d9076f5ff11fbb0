//! A command behind a door on its way into its sandbox: in a kept room or in a new one, with
//! the part of its caller's environment that it may have.

use std::ffi::{OsStr, OsString};
use std::hash::BuildHasher;
use std::path::Path;

use clash_policy::Sandbox;
use clash_policy::steering::SandboxWidening;
use clash_sandbox::door::DoorVisitor;
use clash_sandbox::launch::CommandOfDoor;
use clash_sandbox::visit::{DoorVisit, KeepOffer};
use clash_shell::{is_harmless_variable, is_steering_variable, names_program_of_git};

use super::door::{RoomDoors, identity_of, is_push};
use super::{LauncherError, RequestedCommand};
use crate::env;

/// Variables that a command behind a door takes from its caller even if the door gives it
/// credentials. They only change how it prints.
const HARMLESS_VARIABLES: [&str; 13] = [
    "CI",
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "COLORTERM",
    "COLUMNS",
    "FORCE_COLOR",
    "LANG",
    "LINES",
    "NO_COLOR",
    "PWD",
    "RUST_BACKTRACE",
    "TERM",
    "TZ",
];

/// A command on its way from a door into its sandbox.
pub(super) struct DoorLaunch<'a> {
    pub(super) doors: &'a RoomDoors<'a>,
    pub(super) sandbox: &'a Sandbox,
    pub(super) program: &'a Path,
    pub(super) name: OsString,
    /// As [`HostDirectory::identity`](super::door::HostDirectory::identity).
    pub(super) identity: Option<(u64, u64)>,
    pub(super) line: &'a str,
    pub(super) shown: &'a str,
}

impl DoorLaunch<'_> {
    /// The kept rooms that the command could use; `None` if it needs a room of its own. The
    /// seal of a room then tells whether the rest is the same too.
    pub(super) fn tag(&self, visitor: &DoorVisitor) -> Option<u64> {
        let has_own = || self.doors.context.has_own_parts(self.sandbox, self.line);
        if !visitor.may_share_room() || self.sandbox.unrestricted || has_own() {
            return None;
        }
        let same = (&self.sandbox.name, is_push(self.line), visitor.limits());
        Some(self.doors.seal_key.hash_one(same))
    }

    /// Runs the command in a kept room with this tag. Gives the visitor back if there is none:
    /// then nothing of the command has run. A room whose plan differs by now is ended.
    pub(super) fn run_in_kept_room(
        &self,
        visit: &mut DoorVisit,
        visitor: DoorVisitor,
        tag: Option<u64>,
        cwd: &Path,
    ) -> Option<DoorVisitor> {
        let room = tag.and_then(|tag| visit.claim_room(tag));
        let Some(room) = room.filter(|_| self.is_in(cwd)) else { return Some(visitor) };
        let Some(command) = self.command(&visitor) else { return Some(visitor) };
        let (doors, environment) = (self.doors, self.environment(&visitor));
        let context = doors.context;
        let prepared =
            context.prepare_for_kept_room(doors, self.sandbox, &command, environment, room.seal());
        match prepared {
            Ok(Some(command)) => visit.run_in(room, visitor, &command),
            // A new room reports the error.
            Ok(None) | Err(_) => {
                room.retire();
                Some(visitor)
            }
        }
    }

    /// True if this directory is still the visitor's working directory.
    fn is_in(&self, cwd: &Path) -> bool {
        self.identity.is_none() || identity_of(cwd) == self.identity
    }

    fn command<'b>(&'b self, visitor: &'b DoorVisitor) -> Option<RequestedCommand<'b>> {
        let (_, args) = visitor.arguments.split_first()?;
        let door = CommandOfDoor {
            name: self.name.clone(),
            cwd: visitor.working_directory.clone(),
            descriptors: visitor
                .descriptors
                .iter()
                .map(|(fd, _)| *fd)
                .filter(|fd| *fd > 2)
                .collect(),
        };
        Some(RequestedCommand {
            script: self.line,
            shown: self.shown,
            program: self.program.as_os_str(),
            args,
            file: None,
            door: Some(door),
            may_detach: true,
        })
    }

    /// Becomes the command. Returns only on failure.
    pub(super) fn run(&self, visitor: &DoorVisitor, keep: Option<KeepOffer>) {
        let Some(command) = self.command(visitor) else { return };
        let error = if !self.is_in(Path::new(".")) {
            LauncherError::Refused("the working directory was replaced".to_owned())
        } else {
            let environment = self.environment(visitor);
            let (doors, sandbox) = (self.doors, self.sandbox);
            let Err(error) =
                doors.context.confine_behind_door(doors, sandbox, &command, environment, keep);
            error
        };
        super::report(&error);
    }

    /// The environment of the command before its sandbox removes secrets. A door that gives
    /// credentials takes only harmless variables from its caller, and one that gives the
    /// network takes none that replace a part of a toolchain.
    fn environment(&self, visitor: &DoorVisitor) -> Vec<(OsString, OsString)> {
        let widening = self.doors.widening(self.sandbox);
        let given = &visitor.environment;
        let session: Vec<(OsString, OsString)> = env::all().collect();
        // A value with a slash names a file, for example a time zone or a translation.
        let is_harmless = |name: &OsStr, value: &OsStr| {
            let name = name.to_string_lossy();
            let is_known = HARMLESS_VARIABLES.contains(&&*name) || name.starts_with("LC_");
            is_known && (name == "PWD" || !value.as_encoded_bytes().contains(&b'/'))
        };
        let steers = |name: &OsStr| is_steering_variable(&name.to_string_lossy());
        let from_caller: &dyn Fn(&OsStr, &OsStr) -> bool = match widening {
            None => return given.clone(),
            Some(SandboxWidening::Credentials) => &is_harmless,
            Some(SandboxWidening::Network) => &|name, _| !steers(name),
            Some(SandboxWidening::Repositories) => &|name, value| {
                let (name, value) = (name.to_string_lossy(), value.to_string_lossy());
                !names_program_of_git(&name) || is_harmless_variable(&name, Some(&value))
            },
        };
        let taken: Vec<(OsString, OsString)> =
            given.iter().filter(|(name, value)| from_caller(name, value)).cloned().collect();
        let is_taken = |name: &OsString| taken.iter().any(|(other, _)| other == name);
        let mut all: Vec<(OsString, OsString)> =
            session.into_iter().filter(|(name, _)| !is_taken(name)).collect();
        all.extend(taken);
        if widening == Some(SandboxWidening::Credentials) {
            all.extend(self.pinned_repository());
        }
        all
    }

    /// Variables that make git use the project's own repository. Otherwise the caller could
    /// rename directories until git finds another repository above its working directory.
    fn pinned_repository(&self) -> Vec<(OsString, OsString)> {
        let project = &self.doors.context.project;
        let repository = project.join(".git");
        let mut words = clash_shell::find_commands(self.line).into_iter().flat_map(|it| it.words);
        let is_git = words.next().is_some_and(|word| word.known() == Some("git"));
        let makes_one = words.any(|word| matches!(word.known(), Some("clone" | "init")));
        if !is_git || makes_one || !repository.is_dir() {
            return Vec::new();
        }
        vec![("GIT_DIR".into(), repository.into()), ("GIT_WORK_TREE".into(), project.into())]
    }
}
