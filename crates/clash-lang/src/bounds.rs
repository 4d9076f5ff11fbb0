//! The limits of a policy's evaluation: steps, processor time, memory.
//!
//! The evaluator checks its own limits only every thousand steps. A list that doubles
//! in a loop outruns them. So this module checks them before every statement, and then
//! also knows the line. A single expression can still ask for any amount of memory:
//! for that the process of `clash-compile` has a limit of its own.

use std::cell::RefCell;
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use clash_policy::PolicySpan;
use rustix::time::{ClockId, clock_gettime};
use starlark::codemap::{FileSpan, FileSpanRef};
use starlark::eval::{BeforeStmtFunc, BeforeStmtFuncDyn, Evaluator};

use crate::builders::span_of;
use crate::language_error::LanguageError;

/// The steps of a policy. A tick is about one round of a loop or one call.
const MAX_TICKS: u64 = 200_000;
const MAX_HEAP_BYTES: usize = 64 << 20;
/// Processor time, so that a busy machine refuses no policy.
const MAX_CPU_TIME: Duration = Duration::from_millis(800);

thread_local! {
    /// The statement that this thread evaluates.
    static CURRENT_STATEMENT: RefCell<Option<FileSpan>> = const { RefCell::new(None) };
}

/// The statement that any thread began last. A thread that ends the process reports it.
static LATEST_STATEMENT: Mutex<Option<FileSpan>> = Mutex::new(None);

/// The statement that any thread began last.
pub fn latest() -> Option<PolicySpan> {
    LATEST_STATEMENT.lock().ok().and_then(|latest| latest.as_ref().map(span_of))
}

/// The statement that this thread evaluates, or evaluated last. For failures that end
/// the process, for example a lack of memory.
pub fn evaluating() -> Option<PolicySpan> {
    CURRENT_STATEMENT.with_borrow(|here| here.as_ref().map(span_of))
}

/// Forgets the statement of the policy before. Call it before each policy.
pub(crate) fn forget() {
    CURRENT_STATEMENT.set(None);
}

/// The function that [`before_statements`] was given.
static STATEMENT_LISTENER: OnceLock<fn(&PolicySpan)> = OnceLock::new();

/// Calls `listener` before each of the first 64 statements of every file of a policy, but
/// not of the library. If one of them asks for more memory than there is, the process ends
/// without another word. Only the first listener of a process counts.
pub fn before_statements(listener: fn(&PolicySpan)) {
    let _ = STATEMENT_LISTENER.set(listener);
}

/// Later statements are not announced: a policy that gets this far is no single huge
/// expression.
const MAX_ANNOUNCED_STATEMENTS: usize = 64;

/// Runs before every statement of one file: records it, announces it, and ends the
/// evaluation if a limit is exceeded.
struct StatementWatch {
    started: Duration,
    seen: usize,
}

/// The processor time that this thread has used.
fn used_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

impl<'e> BeforeStmtFuncDyn<'e> for StatementWatch {
    fn call<'v>(
        &mut self,
        span: FileSpanRef<'_>,
        _continued: bool,
        eval: &mut Evaluator<'v, '_, 'e>,
    ) -> starlark::Result<()> {
        let span = span.to_file_span();
        if let Ok(mut latest) = LATEST_STATEMENT.lock() {
            *latest = Some(span.clone());
        }
        self.seen += 1;
        if let Some(listener) =
            STATEMENT_LISTENER.get().filter(|_| self.seen <= MAX_ANNOUNCED_STATEMENTS)
            && !span.filename().starts_with('@')
        {
            listener(&span_of(&span));
        }
        CURRENT_STATEMENT.set(Some(span));
        let late = used_time().saturating_sub(self.started) > MAX_CPU_TIME;
        if late || eval.get_total_tick_count() > MAX_TICKS {
            return Err(too_long().into());
        }
        check_size(eval)
    }
}

/// Fails if the policy uses too much memory. Call it after the last statement too.
pub(crate) fn check_size(eval: &Evaluator<'_, '_, '_>) -> starlark::Result<()> {
    if eval.heap().allocated_bytes() > MAX_HEAP_BYTES { Err(too_big().into()) } else { Ok(()) }
}

fn too_long() -> LanguageError {
    LanguageError::new("the policy takes too long to evaluate")
        .hint("a policy is a short program: look for a loop that does not end")
}

fn too_big() -> LanguageError {
    LanguageError::new("the policy needs too much memory to evaluate")
        .hint("look for a list or string that grows in a loop")
}

/// Gives the evaluator all limits. Each file has them anew.
pub(crate) fn set_limits(eval: &mut Evaluator<'_, '_, '_>) -> starlark::Result<()> {
    let limits =
        eval.set_max_tick_count(MAX_TICKS).and_then(|()| eval.set_max_heap_size(MAX_HEAP_BYTES));
    limits.map_err(starlark::Error::new_other)?;
    let watch = StatementWatch { started: used_time(), seen: 0 };
    eval.before_stmt_for_dap(BeforeStmtFunc::from_dyn(Box::new(watch)));
    Ok(())
}

/// The evaluator's own error about a limit or about too deep calls, in the words of this
/// module; `None` for any other error.
pub(crate) fn exceeded(message: &str) -> Option<LanguageError> {
    let message = message.to_lowercase();
    if message.contains("tick") && message.contains("limit") {
        return Some(too_long());
    }
    if message.contains("heap") && message.contains("limit") {
        return Some(too_big());
    }
    let recursion = message.contains("call stack") || message.contains("recursion");
    (recursion || message.contains("stack overflow")).then(|| {
        LanguageError::new("the policy calls itself too deeply")
            .hint("a policy is a short program: look for a function that calls itself")
    })
}
