//! Scripts with the commands they run, as `shell_corpus.txt` lists them.
//!
//! A case is a script, a line of three dashes, and one line for each command; four
//! equal signs end it. In a script `␍` stands for a carriage return. A line shows the
//! words (`?`: any words, `x…`: one word that begins with x, `~/x`: in the home),
//! `NAME=value`, files with their direction, `@` and the directory, and in brackets the
//! constructs around it. `!` is an opaque command, `=` a wrapper that needs no rule of
//! its own, `*` runs code of the project.

use clash_shell::{CommandDirectory, CommandPosition, RedirectionKind, ShellCommand, ShellWord};

/// A word as the corpus writes it.
fn word(word: &ShellWord) -> String {
    match word {
        ShellWord::Known(text) if text.is_empty() || text.contains([' ', '\n', '\t']) => {
            format!("{text:?}")
        }
        ShellWord::Known(text) => {
            text.escape_debug().to_string().replace("\\'", "'").replace("\\\"", "\"")
        }
        ShellWord::Home(rest) => format!("~{rest}"),
        ShellWord::Partial(start) => format!("{}…", start.replace('\n', "\\n")),
        ShellWord::Unknown => "?".to_owned(),
    }
}

/// A construct around a command as the corpus writes it.
fn position(position: &CommandPosition) -> String {
    match position {
        CommandPosition::Wrapper(by) => (*by).to_owned(),
        CommandPosition::Package => "package".to_owned(),
        CommandPosition::Elsewhere(by) => format!("elsewhere:{by}"),
        other => format!("{other:?}").to_lowercase(),
    }
}

/// One command as a line of the corpus.
fn shown(command: &ShellCommand) -> String {
    let mut parts = Vec::new();
    if let Some(why) = command.opaque {
        parts.push(format!("! {why}:"));
    }
    if command.transparent {
        parts.push("=".to_owned());
    }
    if command.runs_project_code {
        parts.push("*".to_owned());
    }
    parts.extend(command.assignments.iter().map(|a| format!("{}={}", a.name, word(&a.value))));
    parts.extend(command.words.iter().map(word));
    for redirection in &command.redirections {
        let sign = match redirection.direction {
            RedirectionKind::Read => "<",
            RedirectionKind::Write => ">",
            RedirectionKind::Append => ">>",
            RedirectionKind::Clobber => ">|",
            RedirectionKind::ReadWrite => "<>",
            RedirectionKind::HereDocument => "<<",
            RedirectionKind::HereString => "<<<",
        };
        let usual = if redirection.writes() && sign != "<>" { Some(1) } else { Some(0) };
        let fd = match redirection.fd {
            fd if fd == usual => String::new(),
            Some(fd) => fd.to_string(),
            None => "&".to_owned(),
        };
        parts.push(format!("{fd}{sign}{}", word(&redirection.target)));
    }
    match &command.cwd {
        CommandDirectory::Start => {}
        CommandDirectory::Relative(path) | CommandDirectory::Absolute(path) => {
            parts.push(format!("@{path}"))
        }
        CommandDirectory::Home(path) => parts.push(format!("@~{path}")),
        CommandDirectory::Unknown => parts.push("@?".to_owned()),
    }
    if !command.position.is_empty() {
        let way: Vec<String> = command.position.iter().map(position).collect();
        parts.push(format!("[{}]", way.join(" ")));
    }
    if parts.is_empty() { "-".to_owned() } else { parts.join(" ") }
}

/// The commands of a script as lines of the corpus.
fn analysed(script: &str) -> String {
    clash_shell::find_commands(script).iter().map(shown).collect::<Vec<_>>().join("\n")
}

#[test]
fn every_script_of_the_corpus_gives_its_commands() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/shell_corpus.txt");
    let corpus = std::fs::read_to_string(path).unwrap();
    let mut failures = Vec::new();
    let mut cases = 0;
    let mut written = String::new();
    for case in corpus.split("====\n").filter(|case| !case.trim().is_empty()) {
        let (script, expected) =
            case.split_once("\n---\n").unwrap_or_else(|| panic!("no answer: {case}"));
        let found = analysed(&script.replace('␍', "\r"));
        cases += 1;
        if found != expected.trim_end() {
            failures.push(format!(
                "{script}\n--- expected\n{}\n--- found\n{found}\n",
                expected.trim_end()
            ));
        }
        written.push_str(&format!("{script}\n---\n{found}\n====\n"));
    }
    // Writes the present result, so that a diff shows every change.
    if std::env::var_os("CLASH_WRITE_CORPUS").is_some() {
        std::fs::write(path, written).unwrap();
    }
    assert!(failures.is_empty(), "{} of {cases} differ\n{}", failures.len(), failures.join("\n"));
    assert!(cases >= 300, "only {cases} scripts");
}
