//! `clash-compile` compiles a stack of policy files into one image.
//!
//! It is a program of its own for two reasons. Starlark registers about 400 items
//! before `main`, which takes 0.1 ms; most hook calls compile nothing and must not pay
//! for that. And a policy is code that may have come with a repository: its evaluation
//! may hit a limit and end this process, but never the hook that waits for the answer.
//!
//! `clash` calls it with the protocol of the crate `clash-protocol`: one request on
//! standard input, events on standard error, the product on standard output. The exit
//! status is 0 if there is a product, 1 if there is none, 2 if the request is wrong.

mod answer;
mod limits;
mod sources;
mod stack;

use std::io::{self, Write};
use std::process::ExitCode;

use clash_protocol::report::CompilerEvent;
use clash_protocol::request::CompilerRequest;

use crate::answer::{answer_docs, answer_library, send_event};
use crate::stack::LayerStack;

/// The allocator of musl returns every larger block to the kernel as soon as it is
/// free. That took half of the time of a compilation.
#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

/// The exit status of a call that is not by the protocol.
const BAD_REQUEST: u8 = 2;

/// Answers one request. Runs nothing of a policy before its own limits are set. Without
/// `--protocol=` it only says that `clash` calls it.
fn main() -> ExitCode {
    limits::report_panics();
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    if !args.iter().any(|arg| arg.to_string_lossy().starts_with("--protocol=")) {
        let _ = writeln!(io::stderr(), "clash starts clash-compile; it has no use of its own");
        return ExitCode::from(BAD_REQUEST);
    }
    // First, so that a clash of another version recognises this compiler.
    send_event(&CompilerEvent::started());
    let request = match read_request() {
        Ok(request) => request,
        Err(error) => {
            send_event(&CompilerEvent::BadRequest { message: error.to_string() });
            return ExitCode::from(BAD_REQUEST);
        }
    };
    limits::limit_process(&request);
    clash_lang::before_statements(|span| {
        send_event(&CompilerEvent::Evaluating { place: span.to_string() });
    });
    let done = match request {
        CompilerRequest::Compile(request) => LayerStack::compile(request).send(),
        CompilerRequest::Docs { name } => answer_docs(name.as_deref()),
        CompilerRequest::Library => answer_library(),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) | Err(_) => ExitCode::FAILURE,
    }
}

/// Reads standard input up to its end.
fn read_request() -> io::Result<CompilerRequest> {
    Ok(serde_json::from_str(&io::read_to_string(io::stdin())?)?)
}
