//! What evaluating a policy may use up. The evaluator looks at its own limits
//! only every thousand steps, which a list doubled in a loop outruns, so they are
//! looked at before every statement; that also tells the line. A single
//! expression can still ask for any amount of memory: the process that compiles
//! has a limit of its own for that.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use clash_policy::Span;
use starlark::codemap::{FileSpan, FileSpanRef};
use starlark::eval::{BeforeStmtFunc, BeforeStmtFuncDyn, Evaluator};

use crate::builders::span_of;
use crate::mistake::Mistake;

/// A policy is short; these stop one that is not meant to end. A tick is about
/// one loop round or call.
const MAX_TICKS: u64 = 400_000;
const MAX_HEAP: usize = 64 << 20;
/// Only looked at after many ticks, so that a busy machine refuses no policy.
const MAX_TIME: Duration = Duration::from_millis(600);
const MANY_TICKS: u64 = 50_000;

/// The statement that is being evaluated.
#[derive(Clone, Debug, Default)]
pub(crate) struct Here(Rc<RefCell<Option<FileSpan>>>);

impl Here {
    pub(crate) fn span(&self) -> Option<Span> {
        self.0.borrow().as_ref().map(span_of)
    }
}

struct Watch {
    here: Here,
    started: Instant,
}

impl<'e> BeforeStmtFuncDyn<'e> for Watch {
    fn call<'v>(
        &mut self,
        span: FileSpanRef<'_>,
        _continued: bool,
        eval: &mut Evaluator<'v, '_, 'e>,
    ) -> starlark::Result<()> {
        self.here.0.replace(Some(span.to_file_span()));
        if eval.heap().allocated_bytes() > MAX_HEAP {
            return Err(too_big().into());
        }
        let ticks = eval.get_total_tick_count();
        if ticks > MAX_TICKS || (ticks > MANY_TICKS && self.started.elapsed() > MAX_TIME) {
            return Err(too_long().into());
        }
        Ok(())
    }
}

fn too_long() -> Mistake {
    Mistake::new("the policy takes too long to evaluate")
        .hint("a policy is a short program: look for a loop that does not end")
}

fn too_big() -> Mistake {
    Mistake::new("the policy needs too much memory to evaluate")
        .hint("look for a list or string that grows in a loop")
}

pub(crate) fn set<'a, 'e>(eval: &mut Evaluator<'_, 'a, 'e>, here: &Here) -> starlark::Result<()> {
    let limits = eval.set_max_tick_count(MAX_TICKS).and_then(|()| eval.set_max_heap_size(MAX_HEAP));
    limits.map_err(starlark::Error::new_other)?;
    let started = Instant::now();
    // A loop with nothing in it has no statement to stop at.
    eval.set_check_cancelled(Box::new(move || started.elapsed() > MAX_TIME));
    let watch = Watch { here: here.clone(), started };
    eval.before_stmt_for_dap(BeforeStmtFunc::from_dyn(Box::new(watch)));
    Ok(())
}

/// The same in our words, when the evaluator itself noticed.
pub(crate) fn exceeded(message: &str) -> Option<Mistake> {
    let message = message.to_lowercase();
    let cancelled = message.contains("cancelled");
    if cancelled || message.contains("tick") && message.contains("limit") {
        return Some(too_long());
    }
    if message.contains("heap") && message.contains("limit") {
        return Some(too_big());
    }
    let recursion = message.contains("call stack") || message.contains("recursion");
    (recursion || message.contains("stack overflow")).then(|| {
        Mistake::new("the policy calls itself too deeply")
            .hint("a policy is a short program: look for a function that calls itself")
    })
}
