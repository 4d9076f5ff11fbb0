//! The messages that `clash-compile` sends back.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::path_text;
use crate::trust::PolicySource;

/// One line on the compiler's standard error.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum CompilerEvent {
    /// The first line of every answer. Its form must never change, so that each version
    /// of clash recognises the compiler of another version.
    Started { protocol: u32, version: String },
    /// The compiler begins with a file, for example `/p/policy.star`, or with a statement
    /// of it, for example `/p/policy.star:3:1`. If the kernel kills the compiler, the last
    /// of these events says where.
    Evaluating { place: String },
    /// The compiler could not read the request.
    BadRequest { message: String },
    /// A policy used up the compiler's time. The compiler ends itself.
    TimeLimit { place: Option<String> },
    /// A policy used up the compiler's memory. The compiler ends itself.
    MemoryLimit { place: Option<String> },
    /// The compiler has a bug.
    Panicked { place: Option<String>, message: String },
    /// The answer to [`crate::request::CompilerRequest::Compile`]. Without mistakes, the
    /// product follows.
    Compiled(CompileReport),
    /// The name in [`crate::request::CompilerRequest::Docs`] is unknown.
    UnknownName { message: String, nearest: Option<String> },
    /// The answer to every other request. The product follows.
    Answered,
}

impl CompilerEvent {
    /// The event that this version of the compiler begins with.
    #[must_use]
    pub fn started() -> Self {
        let version = crate::CLASH_VERSION.to_owned();
        Self::Started { protocol: crate::PROTOCOL_VERSION, version }
    }
}

/// The findings about a stack of layers.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct CompileReport {
    /// With a mistake there is no image.
    pub mistakes: Vec<PolicyFinding>,
    pub warnings: Vec<PolicyFinding>,
    /// The project's own policy, if there is one.
    pub project: Option<ProjectPolicy>,
    /// Calls of `expect()` that hold.
    pub expectations: usize,
}

/// The [`PolicyFinding::kind`] of a policy that does not compile.
pub const MISTAKE_KIND: &str = "mistake";
/// The [`PolicyFinding::kind`] of a policy file that the compiler cannot read.
pub const UNREADABLE_KIND: &str = "unreadable";

/// A mistake or a probable mistake in a policy.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct PolicyFinding {
    /// A short name for scripts, for example `unreachable`.
    pub kind: String,
    /// The word of the layer, for example `user`; empty if the finding is about no layer.
    pub layer: String,
    pub message: String,
    pub file: String,
    /// Counted from one; zero if the finding is about no line.
    pub line: u32,
    pub column: u32,
    pub hint: Option<String>,
    /// Place, message, source line and hint as users read them.
    pub text: String,
}

/// The files of a project's own policy.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct ProjectPolicy {
    /// The project's directory, with every link resolved.
    #[serde(with = "path_text")]
    pub project: PathBuf,
    pub digest: String,
    pub sources: Vec<PolicySource>,
}

/// The builders of the language and the modules of its library.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct LanguageDocs {
    pub builders: Vec<BuilderDoc>,
    pub modules: Vec<ModuleDoc>,
}

/// A name that a policy can use without `load()`.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct BuilderDoc {
    pub name: String,
    /// The form of a call, for example `when(tree)`; for a constant its value, for
    /// example `FULL = "rwcdx"`.
    pub signature: String,
    pub doc: String,
}

/// A module of the library.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct ModuleDoc {
    /// The name that `load()` takes, for example `@clash//rust.star`.
    pub name: String,
    pub doc: String,
    pub sandboxes: Vec<SandboxDoc>,
    /// Every name that the module exports, its sandboxes included.
    pub exports: Vec<String>,
}

/// A sandbox of a module.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct SandboxDoc {
    pub name: String,
    pub doc: String,
    /// One line for each rule about files, for the default and for the network.
    pub grants: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_event_keeps_its_form() {
        let line = r#"{"event":"started","protocol":7,"version":"9.9.9"}"#;
        let event = CompilerEvent::Started { protocol: 7, version: "9.9.9".to_owned() };
        assert_eq!(serde_json::from_str::<CompilerEvent>(line).unwrap(), event);
        assert_eq!(serde_json::to_string(&event).unwrap(), line);
    }

    #[test]
    fn every_event_comes_back_as_it_was_sent() {
        let place = Some("/p/policy.star:2:1".to_owned());
        let finding = PolicyFinding { line: 2, text: "a\nb".to_owned(), ..Default::default() };
        let source = PolicySource { path: "x".to_owned(), text: "y".to_owned() };
        let project =
            ProjectPolicy { project: "/p".into(), digest: "d".to_owned(), sources: vec![source] };
        for event in [
            CompilerEvent::started(),
            CompilerEvent::Evaluating { place: "/p".to_owned() },
            CompilerEvent::BadRequest { message: "m".to_owned() },
            CompilerEvent::TimeLimit { place: place.clone() },
            CompilerEvent::MemoryLimit { place: None },
            CompilerEvent::Panicked { place, message: "m".to_owned() },
            CompilerEvent::Compiled(CompileReport {
                mistakes: vec![finding.clone()],
                warnings: vec![finding],
                project: Some(project),
                expectations: 2,
            }),
            CompilerEvent::UnknownName { message: "m".to_owned(), nearest: None },
            CompilerEvent::Answered,
        ] {
            let line = serde_json::to_string(&event).unwrap();
            assert!(!line.contains('\n'), "{line}");
            assert_eq!(serde_json::from_str::<CompilerEvent>(&line).unwrap(), event, "{line}");
        }
    }
}
