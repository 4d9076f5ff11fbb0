//! `cwd()`, `home()`, `tempdir()` and their methods.
//!
//! `cwd()`, `tempdir()` and `.child()` include everything below them. `home()` and
//! `path()` alone allow only the directory itself until `.recurse()`; but a refusal
//! includes everything below.
#![expect(
    unsafe_code,
    reason = "Starlark's derives implement its unsafe marker trait; none is written by hand"
)]
#![expect(unused_qualifications, clippy::panic, reason = "likewise in derived code")]

use std::fmt;

use allocative::Allocative;
use clash_policy::{Effect, FileCaps, FsRule, PathPattern, PolicySpan, WriteTarget};
use starlark::environment::{GlobalsBuilder, Methods, MethodsBuilder};
use starlark::eval::Evaluator;
use starlark::values::none::NoneOr;
use starlark::values::{
    NoSerialize, ProvidesStaticType, StarlarkPagablePanic, StarlarkValue, Value, starlark_value,
};
use starlark::{starlark_module, starlark_simple_value};

use super::endings::endings;
use crate::builders::span_here;
use crate::language_error::{LanguageError, LanguageResult};
use crate::lower;
use crate::value::KeyValue;

/// A path, and its effects once `.allow()`, `.deny()` or `.ask()` was called.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
#[allocative(skip)]
pub(crate) struct PathValue {
    path: String,
    reach: PathReach,
    follow_worktrees: bool,
    said: Vec<(Effect, FileCaps, PolicySpan)>,
}
starlark_simple_value!(PathValue);

/// Which paths at or below a directory are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PathReach {
    Subtree,
    /// The directory alone.
    Itself,
    File,
    Matching(String),
}

starlark::methods_static!(PATH_METHODS = path_methods);

#[starlark_value(type = "path")]
impl<'v> StarlarkValue<'v> for PathValue {
    fn get_methods() -> Option<&'static Methods> {
        Some(PATH_METHODS.methods())
    }
}

impl fmt::Display for PathValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "path(\"{}\")", self.path)
    }
}

impl PathValue {
    /// A path without an effect and without linked worktrees.
    fn new(path: &str, reach: PathReach) -> Self {
        Self { path: path.to_owned(), reach, follow_worktrees: false, said: Vec::new() }
    }

    /// A path inside this one. Fails below a file or a pattern, and after an effect was
    /// given.
    fn below(&self, name: &str, reach: PathReach) -> LanguageResult<Self> {
        if matches!(self.reach, PathReach::File | PathReach::Matching(_)) || !self.said.is_empty() {
            return Err(LanguageError::new(format!("`{name}` cannot be below `{self}`")).near(name));
        }
        Ok(Self::new(&lower::join(&self.path, name)?, reach))
    }

    /// This path with one more effect. No capability is an error.
    fn saying(&self, effect: Effect, caps: FileCaps, span: PolicySpan) -> LanguageResult<Self> {
        if caps.is_empty() {
            return Err(LanguageError::new("no capability is named")
                .hint("leave the arguments out for all, or write read = True"));
        }
        let mut said = self.said.clone();
        said.push((effect, caps, span));
        Ok(Self { said, ..self.clone() })
    }

    /// The form `cwd(read = allow, write = allow)`.
    fn saying_each(
        self,
        each: [(NoneOr<Value<'_>>, FileCaps); 3],
        span: &PolicySpan,
    ) -> LanguageResult<Self> {
        each.into_iter().try_fold(self, |path, (value, caps)| match value {
            NoneOr::None => Ok(path),
            NoneOr::Other(value) => {
                path.saying(lower::loose_effect(value, span)?.effect, caps, span.clone())
            }
        })
    }

    /// The pattern for one effect. An allow of a directory `Itself` leaves out what is
    /// below, and a regular expression must match the whole rest of the path; a deny or ask
    /// is wider.
    fn pattern(&self, effect: Effect) -> LanguageResult<PathPattern> {
        let path = self.path.clone();
        Ok(match &self.reach {
            PathReach::Itself if effect == Effect::Allow => PathPattern::Literal(path),
            PathReach::File => PathPattern::Literal(path),
            PathReach::Subtree | PathReach::Itself => {
                PathPattern::Subpath { path, follow_worktrees: self.follow_worktrees }
            }
            PathReach::Matching(pattern) => {
                // Older versions refused a path if any part of it matched.
                let pattern = match effect {
                    Effect::Allow => pattern.clone(),
                    _ => format!("(?s:.*)(?:{pattern})(?s:.*)"),
                };
                PathPattern::Regex { prefix: path, regex: crate::regex::compile(&pattern)? }
            }
        })
    }

    /// The file rules of this path, one for each effect. No effect is an error.
    pub(crate) fn fs_rules(&self) -> LanguageResult<Vec<FsRule>> {
        if self.said.is_empty() {
            return Err(LanguageError::new(format!("`{}` has no effect", self.path))
                .hint("end it with .allow(), .deny() or .ask()"));
        }
        self.said
            .iter()
            .map(|(effect, caps, span)| {
                let pattern = self.pattern(*effect)?;
                let (effect, caps, span) = (*effect, *caps, span.clone());
                Ok(FsRule { pattern, effect, caps, writes: WriteTarget::InPlace, span })
            })
            .collect()
    }
}

/// In older versions the right to write a file included the right to create it.
const WRITE_AND_CREATE: FileCaps = FileCaps::WRITE.union(FileCaps::CREATE);

/// The capabilities of `.allow(read = True, …)`; all if the policy names none.
fn caps(read: NoneOr<bool>, write: NoneOr<bool>, execute: NoneOr<bool>) -> FileCaps {
    let each = [(read, FileCaps::READ), (write, WRITE_AND_CREATE), (execute, FileCaps::EXECUTE)];
    if each.iter().all(|(said, _)| matches!(said, NoneOr::None)) {
        return FileCaps::ALL;
    }
    let on = each.into_iter().filter(|(said, _)| matches!(said, NoneOr::Other(true)));
    on.fold(FileCaps::NONE, |all, (_, caps)| all.union(caps))
}

/// The path of a value. `path()`, which is also a key, can begin a chain of methods;
/// another value is an error.
fn started(value: Value<'_>) -> LanguageResult<PathValue> {
    if let Some(path) = PathValue::from_value(value) {
        return Ok(path.clone());
    }
    match KeyValue::from_value(value) {
        Some(KeyValue::Subpath { path, follow_worktrees }) => Ok(PathValue {
            follow_worktrees: *follow_worktrees,
            ..PathValue::new(
                &lower::join("", path)?,
                if *follow_worktrees { PathReach::Subtree } else { PathReach::Itself },
            )
        }),
        _ => Err(LanguageError::new(format!("`{}` is no path", value.to_str()))),
    }
}

/// The methods of a path: inner paths and endings.
fn path_methods(builder: &mut MethodsBuilder) {
    directories(builder);
    endings(builder);
}

/// `.allow()`, `.deny()` and `.ask()` of a path.
pub(super) fn end(
    this: Value<'_>,
    effect: Effect,
    [read, write, execute]: [NoneOr<bool>; 3],
    span: PolicySpan,
) -> LanguageResult<PathValue> {
    started(this)?.saying(effect, caps(read, write, execute), span)
}

/// Registers the methods of a directory. Each returns a new path value and records nothing.
#[starlark_module]
pub(super) fn directories(builder: &mut MethodsBuilder) {
    /// The directory with everything below it.
    fn recurse<'v>(this: Value<'v>) -> starlark::Result<PathValue> {
        let path = started(this)?;
        Ok(PathValue { reach: PathReach::Subtree, ..path })
    }

    /// A directory inside this one, with everything below.
    fn child<'v>(
        this: Value<'v>,
        name: &str,
        #[starlark(require = named, default = NoneOr::None)] read: NoneOr<Value<'v>>,
        #[starlark(require = named, default = NoneOr::None)] write: NoneOr<Value<'v>>,
        #[starlark(require = named, default = NoneOr::None)] execute: NoneOr<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<PathValue> {
        let each =
            [(read, FileCaps::READ), (write, WRITE_AND_CREATE), (execute, FileCaps::EXECUTE)];
        Ok(started(this)?.below(name, PathReach::Subtree)?.saying_each(each, &span_here(eval))?)
    }

    /// Exactly this file in the directory.
    fn file<'v>(this: Value<'v>, name: &str) -> starlark::Result<PathValue> {
        Ok(started(this)?.below(name, PathReach::File)?)
    }

    /// Every path below the directory that matches a regular expression: as a whole for an
    /// allow, in any part for a deny or ask.
    fn r#match<'v>(this: Value<'v>, pattern: &str) -> starlark::Result<PathValue> {
        crate::regex::compile(pattern)?;
        let path = started(this)?;
        Ok(PathValue { reach: PathReach::Matching(pattern.to_owned()), ..path })
    }
}

/// Registers the starts of a path as globals.
#[starlark_module]
pub(super) fn names(builder: &mut GlobalsBuilder) {
    /// The project and everything below it (older form; today a path key is
    /// written `subpath("$PWD")`).
    fn cwd<'v>(
        #[starlark(require = named, default = false)] follow_worktrees: bool,
        #[starlark(require = named, default = NoneOr::None)] read: NoneOr<Value<'v>>,
        #[starlark(require = named, default = NoneOr::None)] write: NoneOr<Value<'v>>,
        #[starlark(require = named, default = NoneOr::None)] execute: NoneOr<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<PathValue> {
        let each =
            [(read, FileCaps::READ), (write, WRITE_AND_CREATE), (execute, FileCaps::EXECUTE)];
        let path = PathValue { follow_worktrees, ..PathValue::new("$PWD", PathReach::Subtree) };
        Ok(path.saying_each(each, &span_here(eval))?)
    }

    /// The home directory; with everything below it only after `.recurse()` (older
    /// form; today a path key is written `"$HOME"`).
    fn home() -> starlark::Result<PathValue> {
        Ok(PathValue::new("$HOME", PathReach::Itself))
    }

    /// The temporary directory and everything below it (older form; today a path
    /// key is written `"$TMPDIR"`).
    fn tempdir() -> starlark::Result<PathValue> {
        Ok(PathValue::new("$TMPDIR", PathReach::Subtree))
    }
}
