//! The names that a policy can use without `load()`. `clash policy docs` shows the doc
//! comment of each.

mod effects;
mod keys;
mod rules;
mod sandboxes;

use clash_policy::PolicySpan;
use starlark::environment::GlobalsBuilder;
use starlark::eval::Evaluator;

pub(crate) use keys::texts;
pub(crate) use sandboxes::sandbox_methods;

/// Adds all names, also those of older forms.
pub(crate) fn names(builder: &mut GlobalsBuilder) {
    effects::names(builder);
    keys::names(builder);
    rules::names(builder);
    sandboxes::names(builder);
    crate::older::names(builder);
}

/// The place of the running call.
pub(crate) fn span_here(eval: &Evaluator<'_, '_, '_>) -> PolicySpan {
    eval.call_stack_top_location().map(|place| span_of(&place)).unwrap_or_default()
}

/// A place of the evaluator as file, line and column, both counted from 1.
pub(crate) fn span_of(place: &starlark::codemap::FileSpan) -> PolicySpan {
    let begin = place.resolve_span().begin;
    PolicySpan {
        file: place.filename().to_owned(),
        line: u32::try_from(begin.line + 1).unwrap_or(u32::MAX),
        column: u32::try_from(begin.column + 1).unwrap_or(u32::MAX),
    }
}
