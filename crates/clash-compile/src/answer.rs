//! The lines on standard error, and the products that are JSON.

use std::collections::BTreeMap;
use std::io::{self, Write};

use clash_protocol::report::CompilerEvent;

/// Writes one event; nothing if that fails. One `write` for the whole line: standard error
/// has no buffer, and each further piece would be a system call here and one in `clash`.
pub(crate) fn send_event(event: &CompilerEvent) {
    if let Ok(mut line) = serde_json::to_vec(event) {
        line.push(b'\n');
        let _ = io::stderr().write_all(&line);
    }
}

/// Sends the documentation of everything or of one name. For an unknown name it sends an
/// event and gives `false`.
pub(crate) fn answer_docs(name: Option<&str>) -> io::Result<bool> {
    match clash_lang::docs(name) {
        Ok(docs) => send_product(&serde_json::to_vec(&docs)?),
        Err(unknown) => {
            let message = unknown.to_string();
            send_event(&CompilerEvent::UnknownName { message, nearest: unknown.nearest });
            Ok(false)
        }
    }
}

/// Sends the sources of the library.
pub(crate) fn answer_library() -> io::Result<bool> {
    let modules: BTreeMap<&str, &str> = clash_lang::modules().collect();
    send_product(&serde_json::to_vec(&modules)?)
}

/// Sends the last event and then the product on standard output.
fn send_product(product: &[u8]) -> io::Result<bool> {
    send_event(&CompilerEvent::Answered);
    io::stdout().write_all(product)?;
    Ok(true)
}
