//! The names under which the policy judges a script that an interpreter runs.
//!
//! The kernel starts `.venv/bin/pytest -q` as `…/python .venv/bin/pytest -q`. The policy may
//! have a rule about the script: about its path, as a person would type it, or about its name.
//! A name proves nothing if commands can write the file. There a rule about the name gives
//! neither credentials nor the network that the interpreter would not have.

use std::path::{Component, Path, PathBuf};

use super::door::RoomDoors;
use super::{LauncherError, sandbox_named};
use clash_policy::decide::{Decision, DecisionCause};
use clash_policy::steering::widening;
use clash_policy::{Effect, JudgeContext, Sandbox};
use clash_sandbox::disk::Disk;
use clash_shell::command_line;

/// Programs that run a script of their first argument.
const INTERPRETERS: [&str; 9] =
    ["bun", "deno", "node", "nodejs", "perl", "php", "pypy", "python", "ruby"];

/// A script on the command line of an interpreter.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InterpretedScript {
    /// The paths by which a person could type it: from the working directory, then from the
    /// project.
    pub(super) typed: Vec<String>,
    pub(super) name: String,
    path: PathBuf,
}

impl InterpretedScript {
    /// The script that these words run in this directory. `None` for other commands.
    pub(super) fn find(words: &[String], cwd: &Path, project: &Path) -> Option<Self> {
        let [interpreter, script, ..] = words else { return None };
        let plain = interpreter.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        if !INTERPRETERS.contains(&plain) || script.starts_with('-') || script.is_empty() {
            return None;
        }
        let path = clean(&cwd.join(script))?;
        let name = path.file_name()?.to_str()?.to_owned();
        Some(Self { typed: typed_forms(&path, cwd, project), name, path })
    }
}

/// The paths by which a person could type a program: from the working directory, then from
/// the project.
pub(super) fn typed_forms(path: &Path, cwd: &Path, project: &Path) -> Vec<String> {
    let mut typed = Vec::new();
    for base in [cwd, project] {
        let Some(below) = path.strip_prefix(base).ok().and_then(Path::to_str) else { continue };
        let text = if below.contains('/') { below.to_owned() } else { format!("./{below}") };
        if !typed.contains(&text) {
            typed.push(text);
        }
    }
    typed
}

/// The path without `.` and `..`. `None` if it leads above the root.
pub(super) fn clean(path: &Path) -> Option<PathBuf> {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if !clean.pop() => return None,
            Component::ParentDir => {}
            part => clean.push(part),
        }
    }
    Some(clean)
}

/// A decision about a script by a rule of its own.
pub(super) struct ScriptDecision {
    pub(super) decision: Decision,
    pub(super) words: Vec<String>,
    /// The name of the door, if the rule is about the name.
    pub(super) door: Option<String>,
}

impl RoomDoors<'_> {
    /// Decides a script by a rule about its path or its name. `None` if the policy has none,
    /// or if such a rule must not apply.
    pub(super) fn decide_script(
        &self,
        words: &[String],
        cwd: &Path,
        interpreter: &Decision,
    ) -> Result<Option<ScriptDecision>, LauncherError> {
        let project = &self.context.project;
        let Some(script) = InterpretedScript::find(words, cwd, project) else { return Ok(None) };
        let by_name = std::iter::once((&script.name, true));
        let by_path = script.typed.iter().map(|path| (path, false));
        for (program, is_name) in by_path.chain(by_name) {
            let arguments = words.iter().skip(2).cloned();
            let words: Vec<String> = std::iter::once(program.clone()).chain(arguments).collect();
            let decision = self.decide(&command_line(&words), Some(cwd))?;
            let is_ruled = |decision: &Decision| {
                let cause = decision.decisive().map(|part| &part.cause);
                matches!(cause, Some(DecisionCause::Rule { .. }))
            };
            if !is_ruled(&decision) {
                continue;
            }
            let applies = !is_name
                || decision.effect == Effect::Deny
                || self.is_protected(&script.path)
                || !self.widens(&decision, interpreter)?;
            if applies {
                let door = is_name.then(|| script.name.clone());
                return Ok(Some(ScriptDecision { decision, words, door }));
            }
        }
        Ok(None)
    }

    /// True if no command can have written the script: it is in a directory of the system or
    /// in one with doors, under each of its names.
    fn is_protected(&self, path: &Path) -> bool {
        let is_known = |path: &Path| {
            let dir = path.parent().unwrap_or(path);
            dir.starts_with("/usr") || self.set.directories.iter().any(|known| known.at == dir)
        };
        let real = std::fs::canonicalize(path);
        let in_real_directory = path.parent().and_then(|dir| std::fs::canonicalize(dir).ok());
        let named = in_real_directory.zip(path.file_name()).map(|(dir, name)| dir.join(name));
        real.is_ok_and(|real| is_known(&real)) && named.is_some_and(|named| is_known(&named))
    }

    /// True if the sandbox of one decision has credentials or a network that the sandbox of
    /// the other lacks.
    fn widens(&self, decision: &Decision, other: &Decision) -> Result<bool, LauncherError> {
        let sandbox = |decision: &Decision| -> Result<Sandbox, LauncherError> {
            match decision.decisive().and_then(|part| part.sandbox.as_deref()) {
                Some(name) => sandbox_named(self.policy, name),
                None => Ok(self.room.clone()),
            }
        };
        let disk = Disk::default();
        let places = self.context.dirs.places_unseen(&self.context.project, &disk);
        let world = JudgeContext { links: &disk, ..JudgeContext::without_disk(&places) };
        Ok(widening(&sandbox(decision)?, &sandbox(other)?, &world).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(words: &[&str], cwd: &str) -> Option<(Vec<String>, String)> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let script = InterpretedScript::find(&words, Path::new(cwd), Path::new("/app"))?;
        Some((script.typed, script.name))
    }

    #[test]
    fn a_script_is_named_by_the_paths_that_a_person_would_type() {
        let typed = |words: &[&str], cwd: &str| find(words, cwd).unwrap().0;
        assert_eq!(typed(&["python3", "/app/.venv/bin/pytest"], "/app"), [".venv/bin/pytest"]);
        assert_eq!(
            typed(&["node", "../node_modules/.bin/eslint", "."], "/app/web"),
            ["node_modules/.bin/eslint"]
        );
        assert_eq!(typed(&["ruby3.1", "x.rb"], "/app/web"), ["./x.rb", "web/x.rb"]);
        assert_eq!(typed(&["node", "/usr/bin/npm"], "/app"), [] as [&str; 0]);
        assert_eq!(find(&["node", "/usr/bin/npm"], "/app").unwrap().1, "npm");
    }

    #[test]
    fn code_and_modules_are_no_scripts() {
        for words in [&["python3", "-c", "x"][..], &["python3"], &["git", "x"], &["node", "-"]] {
            assert_eq!(find(words, "/app"), None, "{words:?}");
        }
    }
}
