//! Only this crate names agents: the program `clash` uses their descriptions.

use std::path::{Path, PathBuf};

/// Parts of names that no other word of the program has.
const AGENT_NAMES: [&str; 12] = [
    "amazon", "claude", "cline", "codex", "copilot", "cursor", "droid", "gemini", "kilo", "kiro",
    "opencode", "qwen",
];

/// Lines that name an agent for another reason, by the end of the file's path and a part
/// of the line.
const EXCEPTIONS: [(&str, &str); 6] = [
    // The cursor of the terminal.
    ("dashboard/mod.rs", "cursor"),
    // The language has a function `claude_settings()`, and the compiler gets its directories.
    ("policy.rs", "claude_settings"),
    ("policy.rs", "ClaudeSettingsDirs"),
    // Examples and lists in messages to the user.
    ("history.rs", "clash reads its own traces and the histories of"),
    ("cmd/log/mod.rs", "`clash install --agent claude` puts clash between"),
    ("cmd/install/mod.rs", "that no command of clash can start in (Codex)"),
];

/// Collects the Rust files below a directory; none if it does not exist.
fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for path in std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The lines of a source file up to its tests, without comments.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate().take_while(|(_, line)| line.trim() != "#[cfg(test)]");
    lines.filter(|(_, line)| !line.trim_start().starts_with("//")).map(|(at, line)| (at + 1, line))
}

#[test]
fn the_code_of_the_program_names_no_agent() {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../clash/src");
    let mut files = Vec::new();
    sources(&program, &mut files);
    assert!(files.len() > 50, "{files:?}");
    let mut named = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let place = file.strip_prefix(&program).unwrap();
        for (at, line) in code(&text) {
            let lower = line.to_lowercase();
            let is_known =
                EXCEPTIONS.iter().any(|(end, part)| place.ends_with(end) && line.contains(part));
            let names = AGENT_NAMES.iter().any(|name| lower.contains(name));
            if names && !is_known {
                named.push(format!("{}:{at}: {}", place.display(), line.trim()));
            }
        }
    }
    assert!(named.is_empty(), "agents are named in\n{}", named.join("\n"));
}
