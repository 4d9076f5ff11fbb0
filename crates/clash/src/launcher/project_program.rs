//! Programs of the project behind doors, for example `./gradlew` or `node_modules/.bin/eslint`.
//!
//! A command can write these files, so their names prove nothing. Only a rule about the path
//! gives such a program a sandbox of its own: the agent could type the same command, and the
//! rule would allow it. Credentials need more: the script itself must name the command.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clash_policy::decide::DecisionCause;
use clash_sandbox::door::{DoorVisitor, PROJECT_DOOR, PROJECT_DOORS};
use clash_shell::command_line;

use super::LauncherError;
use super::door::RoomDoors;
use super::script_name::{clean, typed_forms};

/// A program of the project on the command line of a visitor.
pub(super) struct ProjectProgram {
    /// The path that the visitor executed.
    pub(super) executed: PathBuf,
    /// The words that the policy judges, with the path as a person would type it.
    pub(super) words: Vec<String>,
}

/// True for the door of all programs of the project.
pub(super) fn is_project_door(door: &Path) -> bool {
    door.parent() == Some(Path::new(PROJECT_DOORS))
        && door.file_name() == Some(OsStr::new(PROJECT_DOOR))
}

/// The first argument of a visitor of that door. A caller that gave one text for the path and
/// the first argument has the path of the door there.
pub(super) fn first_argument(visitor: &DoorVisitor, program: &Path) -> OsString {
    let given = visitor.arguments.first().cloned().unwrap_or_default();
    if Path::new(&given) == visitor.door { program.as_os_str().to_owned() } else { given }
}

impl RoomDoors<'_> {
    /// The program that a visitor of the project's door started. `None` if it is not a file
    /// of the project.
    pub(super) fn project_program(
        &self,
        visitor: &DoorVisitor,
        cwd: &Path,
    ) -> Result<Option<ProjectProgram>, LauncherError> {
        let Some(executed) = visitor.started.clone().map(PathBuf::from) else { return Ok(None) };
        let rest = visitor.arguments.get(1..).unwrap_or_default();
        let project = &self.context.project;
        let full = cwd.join(&executed);
        let is_inside = std::fs::canonicalize(&full).is_ok_and(|real| real.starts_with(project));
        let Some(path) = clean(&full).filter(|_| is_inside) else { return Ok(None) };
        let arguments = || rest.iter().map(|word| word.to_string_lossy().into_owned());
        let mut forms = typed_forms(&path, cwd, project);
        let dotted: Vec<String> = forms.iter().map(|form| format!("./{form}")).collect();
        forms.extend(dotted.into_iter().filter(|form| !form.starts_with("././")));
        let with = |form: &String| std::iter::once(form.clone()).chain(arguments()).collect();
        for form in &forms {
            let words: Vec<String> = with(form);
            let decision = self.decide(&command_line(&words), Some(cwd))?;
            let cause = decision.decisive().map(|part| &part.cause);
            if matches!(cause, Some(DecisionCause::Rule { .. })) {
                return Ok(Some(ProjectProgram { executed, words }));
            }
        }
        let words = forms.first().map(with);
        Ok(words.map(|words| ProjectProgram { executed, words }))
    }
}
