//! Counts the actions of histories under the rows of [`crate::known`]. Only actions that
//! ran count: a refused or failed action shows no need.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use clash_policy::{Action, FileCaps, ToolInput};
use clash_shell::{CommandPosition, NextWord, ShellCommand, ShellWord};

use crate::CallOutcome;
use crate::known::{CREDENTIALS, DOCUMENTATION, KNOWN_ROWS, KnownRow, look_up};

/// The number of times, and the last time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeenTimes {
    pub times: u64,
    /// Milliseconds since 1970.
    pub last: Option<u64>,
}

impl SeenTimes {
    /// Counts one more time.
    fn note(&mut self, when: Option<u64>) {
        self.times += 1;
        self.last = self.last.max(when);
    }

    /// Adds the counts; the later time stays.
    pub fn add(&mut self, other: Self) {
        self.times += other.times;
        self.last = self.last.max(other.last);
    }
}

/// The words of a row, and where the row stands in the table.
pub type RowWords = (usize, Vec<&'static str>);

/// The evidence of histories.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryEvidence {
    pub commands: BTreeMap<RowWords, SeenTimes>,
    /// File tools looking at the project.
    pub reads: SeenTimes,
    /// File tools changing the project.
    pub writes: SeenTimes,
    /// Places of [`CREDENTIALS`] that something touched.
    pub credentials: BTreeMap<&'static str, SeenTimes>,
    /// Hosts of [`DOCUMENTATION`].
    pub documentation: BTreeMap<&'static str, SeenTimes>,
    pub left: UnusedCounts,
    /// Actions that ran.
    pub actions: u64,
    pub first: Option<u64>,
    pub last: Option<u64>,
    pub agents: BTreeMap<&'static str, u64>,
}

/// Numbers of actions that no rule is made from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnusedCounts {
    /// Actions that did not run, or of which that is not known.
    pub not_run: u64,
    /// Commands of programs or subcommands that are in no table.
    pub unknown_programs: u64,
    /// Commands that could not be looked into.
    pub opaque: u64,
    /// Files outside the project.
    pub elsewhere: u64,
    /// Hosts that do not only serve documentation.
    pub other_hosts: u64,
    /// Other tools.
    pub other_tools: u64,
}

/// Where an action took place.
#[derive(Clone, Copy, Debug)]
pub struct ActionScene<'a> {
    pub when: Option<u64>,
    pub agent: &'static str,
    pub project: &'a Path,
    pub cwd: &'a Path,
    pub home: &'a Path,
}

impl HistoryEvidence {
    /// Counts an action and each command in it. Of an action that did not run, only an
    /// access to credentials counts; of one without a known outcome, nothing does.
    pub fn note(&mut self, action: &Action, outcome: CallOutcome, scene: &ActionScene<'_>) {
        if outcome != CallOutcome::Ran {
            self.left.not_run += 1;
            // A refused or failed access to credentials still leads to a deny rule.
            if outcome == CallOutcome::Unknown {
                return;
            }
        } else {
            self.actions += 1;
            self.first = [self.first, scene.when].into_iter().flatten().min();
            self.last = self.last.max(scene.when);
            *self.agents.entry(scene.agent).or_default() += 1;
        }
        let ran = outcome == CallOutcome::Ran;
        match &action.input {
            ToolInput::Script(script) => {
                for command in clash_shell::find_commands(script) {
                    self.command(&command, ran, scene);
                }
            }
            ToolInput::Files(files) => {
                for file in files {
                    self.file(&file.path, file.needs, ran, scene);
                }
            }
            ToolInput::Hosts(hosts) if ran && action.tool == "WebFetch" => {
                for host in hosts {
                    let known = DOCUMENTATION.iter().find(|known| **known == host.host);
                    match known {
                        Some(known) => {
                            self.documentation.entry(known).or_default().note(scene.when);
                        }
                        None => self.left.other_hosts += 1,
                    }
                }
            }
            ToolInput::Hosts(_) | ToolInput::Fields(_) => self.left.other_tools += u64::from(ran),
        }
    }

    /// Counts a command under its row, or among the unused ones. A command that touches
    /// credentials, or has an option that its rule asks about, is no evidence for an allow.
    fn command(&mut self, command: &ShellCommand, ran: bool, scene: &ActionScene<'_>) {
        let files = command.redirections.iter().filter_map(|it| it.file());
        let mut touched = false;
        for word in command.words.iter().skip(1).chain(files) {
            if let Some(place) = credential(word, scene) {
                self.credentials.entry(place).or_default().note(scene.when);
                touched = true;
            }
        }
        // A command that touches credentials is no evidence for its program.
        if !ran || touched || clash_shell::is_inert(command) || clash_shell::is_filter(command) {
            return;
        }
        // Its runner is the evidence.
        if command.position.contains(&CommandPosition::Package) {
            return;
        }
        if command.opaque.is_some() {
            self.left.opaque += 1;
            return;
        }
        if command.position.iter().any(|position| matches!(position, CommandPosition::Elsewhere(_)))
        {
            self.left.unknown_programs += 1;
            return;
        }
        let words = significant(command);
        match look_up(&words) {
            Some((at, matched)) => {
                let guarded = KNOWN_ROWS.get(at).is_some_and(|row| has_any(command, row));
                // The rule asks about such an option anyway, so the command is no evidence
                // for the allow.
                if !guarded {
                    self.commands.entry((at, matched)).or_default().note(scene.when);
                }
            }
            None => self.left.unknown_programs += 1,
        }
    }

    /// Counts a use of a file: of credentials, of the project, or elsewhere.
    fn file(&mut self, path: &Path, needs: FileCaps, ran: bool, scene: &ActionScene<'_>) {
        if let Some(place) = credential_at(path, scene.home) {
            self.credentials.entry(place).or_default().note(scene.when);
        } else if !ran {
        } else if !path.starts_with(scene.project) {
            self.left.elsewhere += 1;
        } else if needs.intersects(FileCaps::CHANGE) {
            self.writes.note(scene.when);
        } else {
            self.reads.note(scene.when);
        }
    }

    /// True if the evidence selects no rule.
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
            && self.credentials.is_empty()
            && self.documentation.is_empty()
            && self.reads.times + self.writes.times == 0
    }
}

/// True if a command has one of the options for which its rule asks.
fn has_any(command: &ShellCommand, row: &KnownRow) -> bool {
    let words = command.words.iter().filter_map(ShellWord::known);
    words.into_iter().any(|word| {
        row.unless.iter().any(|option| word == *option || word.starts_with(&format!("{option}=")))
    })
}

/// The program and its subcommands, as far as they are certain, at most three words. A
/// program in a directory of its own is an empty word.
fn significant(command: &ShellCommand) -> Vec<&str> {
    let mut found = Vec::new();
    let mut at = 0;
    while found.len() < 3 {
        let NextWord::Sure { index } = clash_shell::next_significant(&command.words, at) else {
            break;
        };
        let Some(word) = command.words.get(index).and_then(ShellWord::known) else { break };
        found.push(if found.is_empty() {
            clash_shell::program_name(word).unwrap_or("")
        } else {
            word
        });
        at = index + 1;
    }
    found
}

/// The place of credentials that a word of a command leads to, if any.
fn credential(word: &ShellWord, scene: &ActionScene<'_>) -> Option<&'static str> {
    let path = match word {
        ShellWord::Known(text) | ShellWord::Partial(text) => {
            // `--key=path`, `user@path`
            let text = text.rsplit(['=', '@', ',']).next().unwrap_or(text);
            match text.strip_prefix("~/") {
                Some(rest) => scene.home.join(rest),
                None => scene.cwd.join(text),
            }
        }
        ShellWord::Home(rest) => scene.home.join(rest.trim_start_matches('/')),
        ShellWord::Unknown => return None,
    };
    credential_at(&tidied(&path), scene.home)
}

/// The place of credentials that holds a path.
fn credential_at(path: &Path, home: &Path) -> Option<&'static str> {
    CREDENTIALS.iter().copied().find(|place| match place.strip_prefix("$HOME/") {
        Some(rest) => path.starts_with(home.join(rest)),
        None => path.starts_with(place),
    })
}

/// The path without `.` and `..`, by its text alone.
fn tidied(path: &Path) -> PathBuf {
    let mut tidied = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                tidied.pop();
            }
            Component::CurDir => {}
            part => tidied.push(part),
        }
    }
    tidied
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The evidence of scripts that ran in `/work/app/src` with these outcomes.
    fn evidence(scripts: &[(&str, CallOutcome)]) -> HistoryEvidence {
        let mut evidence = HistoryEvidence::default();
        for (script, outcome) in scripts {
            let scene = ActionScene {
                when: Some(1_794_801_180_506),
                agent: "claude",
                project: Path::new("/work/app"),
                cwd: Path::new("/work/app/src"),
                home: Path::new("/home/u"),
            };
            evidence.note(&Action::script("claude", "", script), *outcome, &scene);
        }
        evidence
    }

    fn words(evidence: &HistoryEvidence) -> Vec<String> {
        let all = evidence.commands.iter();
        all.map(|((_, words), times)| format!("{} {}", words.join(" "), times.times)).collect()
    }

    #[test]
    fn commands_count_wherever_they_stand_in_a_script() {
        let found = evidence(&[
            ("cd x && cargo build 2>&1 | tail -5", CallOutcome::Ran),
            ("git -C .. status; timeout 5 cargo build", CallOutcome::Ran),
        ]);
        assert_eq!(words(&found), ["git status 1", "cargo build 2"]);
    }

    #[test]
    fn failed_and_refused_calls_are_no_evidence() {
        let found = evidence(&[
            ("cargo test", CallOutcome::Failed),
            ("git push", CallOutcome::Refused),
            ("make", CallOutcome::Unknown),
        ]);
        assert_eq!(words(&found), [""; 0]);
        assert_eq!(found.left.not_run, 3);
    }

    #[test]
    fn a_command_that_reads_a_key_is_no_evidence() {
        let found = evidence(&[
            ("cat ~/.ssh/id_ed25519", CallOutcome::Ran),
            ("cat ../../../home/u/.aws/credentials", CallOutcome::Ran),
            ("wc < \"$HOME/.netrc\"", CallOutcome::Failed),
        ]);
        assert_eq!(words(&found), [""; 0]);
        let places: Vec<_> = found.credentials.keys().copied().collect();
        assert_eq!(places, ["$HOME/.aws", "$HOME/.netrc", "$HOME/.ssh"]);
    }

    #[test]
    fn a_guarded_option_is_no_evidence_for_the_allow() {
        let found = evidence(&[
            ("git branch -D x", CallOutcome::Ran),
            ("find . -delete", CallOutcome::Ran),
        ]);
        assert_eq!(words(&found), [""; 0]);
    }
}
