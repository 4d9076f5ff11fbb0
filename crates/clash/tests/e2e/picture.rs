//! The picture of the README shows a real session: this test runs the commands in the
//! sandbox and compares their output with `docs/session.svg`.
//!
//! `CLASH_UPDATE_PICTURE=1 cargo test -p clash --test e2e picture` draws it anew.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::support::{Machine, Ran, Who, clash};

const COLUMNS: usize = 80;
const CELL_WIDTH: f32 = 8.4;
const LINE_HEIGHT: usize = 20;
const MARGIN: usize = 20;

/// The commands in the picture. The policy is the one of the README.
const COMMANDS: [&str; 4] = [
    "clash exec -- git status --short",
    "clash sandbox exec project -- cat ~/.ssh/id_ed25519",
    "clash sandbox exec project -- sh -c 'echo \"exit 0\" > .git/hooks/pre-push'",
    "clash explain \"git push --force origin main\"",
];

fn repository_file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// The first policy of the README.
fn readme_policy() -> String {
    let readme = std::fs::read_to_string(repository_file("README.md")).unwrap();
    let (_, rest) = readme.split_once("```star policy\n").unwrap();
    rest.split_once("```").unwrap().0.to_owned()
}

/// The lines of the session as an 80-column terminal breaks them. `true` marks a command.
fn session_lines() -> Vec<(bool, String)> {
    let machine = Machine::new(Who::Me).policy(&readme_policy());
    machine.write(".ssh/id_ed25519", "a private key");
    machine.write("app/notes.txt", "remember the milk\n");
    Ran::of(machine.command("git").args(["init", "-q"])).succeeds();
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", clash().parent().unwrap().display());
    let home = machine.home().display().to_string();
    let mut lines = Vec::new();
    for command in COMMANDS {
        lines.push((true, command.to_owned()));
        let script = format!("{{ {command}\n}} 2>&1");
        let ran = Ran::of(machine.command("sh").env("PATH", &path).args(["-c", &script]));
        let shown = ran.stdout.replace(&home, "~");
        lines.extend(shown.trim_end().lines().flat_map(wrapped).map(|line| (false, line)));
    }
    lines
}

/// A line as a terminal of [`COLUMNS`] columns breaks it.
fn wrapped(line: &str) -> Vec<String> {
    let characters: Vec<char> = line.chars().collect();
    if characters.is_empty() {
        return vec![String::new()];
    }
    characters.chunks(COLUMNS).map(|chunk| chunk.iter().collect()).collect()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The lines as an SVG picture.
fn draw_svg(lines: &[(bool, String)]) -> String {
    let width = (COLUMNS as f32 * CELL_WIDTH) as usize + 2 * MARGIN;
    let height = lines.len() * LINE_HEIGHT + 2 * MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace\" \
         font-size=\"14\">\n<title>Four commands and what clash lets them do</title>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#16181d\"/>\n"
    );
    for (index, (is_command, line)) in lines.iter().enumerate() {
        let y = MARGIN + index * LINE_HEIGHT + 14;
        let (colour, prompt) = if *is_command { ("#8bd5a0", "$ ") } else { ("#d7dae0", "") };
        writeln!(
            svg,
            "<text x=\"{MARGIN}\" y=\"{y}\" fill=\"{colour}\" xml:space=\"preserve\">{prompt}{}</text>",
            escaped(line)
        )
        .unwrap();
    }
    svg + "</svg>\n"
}

#[test]
fn picture_of_the_readme_shows_a_real_session() {
    let file = repository_file("docs/session.svg");
    let picture = draw_svg(&session_lines());
    if std::env::var_os("CLASH_UPDATE_PICTURE").is_some() {
        std::fs::write(&file, &picture).unwrap();
    }
    assert_eq!(
        picture,
        std::fs::read_to_string(&file).unwrap_or_default(),
        "docs/session.svg is out of date: run the test with CLASH_UPDATE_PICTURE=1"
    );
}
