//! `clash asks` and `clash answer`: questions of commands that are already running.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::json;

use super::unless_closed;
use crate::dirs::Dirs;
use crate::questions::{self, LiveAnswer, QuestionListener, WaitingQuestion};
use crate::remedy::Remedy;
use crate::ui::{CommandOutput, Failure, TextTone};
use crate::{exit, say};

const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// Show the questions of running commands
///
/// A rule can ask about a command that only shows while a script runs, for example in a
/// Makefile. The command waits for your answer while `clash asks --follow` runs, at most two
/// minutes. Otherwise it is refused at once.
#[derive(Debug, clap::Args)]
pub(crate) struct AsksArgs {
    /// Stay, and print each question when it comes
    #[arg(long)]
    follow: bool,
    /// Print JSON; with `--follow` one object in a line
    #[arg(long)]
    json: bool,
}

/// Answer a question of a running command
///
/// Answers one question that `clash asks` shows. Commands of an agent cannot do this: no
/// sandbox reaches clash's own files.
#[derive(Debug, clap::Args)]
pub(crate) struct AnswerArgs {
    /// The question, as `clash asks` names it
    id: String,
    /// The answer
    #[arg(value_enum)]
    answer: LiveAnswer,
}

impl AsksArgs {
    /// Lists the questions that wait, or follows them (`--follow`). Changes nothing.
    pub(crate) fn run(self, out: &mut CommandOutput) -> Result<u8, Failure> {
        let dirs = Dirs::from_env()?;
        if self.follow {
            return self.follow(out, &dirs);
        }
        let waiting = questions::waiting(&dirs).map_err(Failure::new)?;
        if self.json {
            let all: Vec<_> = waiting.iter().map(to_json).collect();
            return unless_closed(out.json(&json!({"questions": all})));
        }
        if waiting.is_empty() {
            return unless_closed(out.line("no question waits"));
        }
        for question in &waiting {
            show(out, question)?;
        }
        Ok(exit::OK)
    }

    /// Prints each new question until the reader closes the output. Questions wait for an
    /// answer only while such a process runs.
    fn follow(&self, out: &mut CommandOutput, dirs: &Dirs) -> Result<u8, Failure> {
        let _listener = QuestionListener::register(dirs).map_err(Failure::new)?;
        let mut seen: HashSet<String> = HashSet::new();
        loop {
            let waiting = questions::waiting(dirs).map_err(Failure::new)?;
            for question in waiting.iter().filter(|question| !seen.contains(&question.id)) {
                match self.json {
                    true => out.verbatim(to_json(question).to_string())?,
                    false => show(out, question)?,
                }
            }
            if out.is_closed() {
                return Ok(exit::OK);
            }
            seen = waiting.into_iter().map(|question| question.id).collect();
            std::thread::sleep(LOOK_AGAIN_AFTER);
        }
    }
}

impl AnswerArgs {
    /// Answers one waiting question. Fails if it does not wait any more.
    pub(crate) fn run(self, out: &mut CommandOutput) -> Result<u8, Failure> {
        let dirs = Dirs::from_env()?;
        let answered = questions::answer(&dirs, &self.id, self.answer).map_err(|error| {
            Failure::new(error).hint(format!("`{}` shows the questions that wait", Remedy::Asks))
        })?;
        let said = match self.answer {
            LiveAnswer::Once => "allowed once",
            LiveAnswer::Session => "allowed for this session",
            LiveAnswer::Deny => "denied",
        };
        unless_closed(out.line(format!("{said}: {}", say::one_line(&answered.question.subject))))
    }
}

fn to_json(question: &WaitingQuestion) -> serde_json::Value {
    serde_json::to_value(question).unwrap_or_default()
}

/// Everything in a question comes from the command, so it is shown without characters that
/// steer a terminal.
fn show(out: &mut CommandOutput, waiting: &WaitingQuestion) -> std::io::Result<()> {
    let question = &waiting.question;
    let subject = say::one_line(&question.subject);
    let head = format!("{}  {}", waiting.id, out.tone(TextTone::Strong, &subject));
    out.line(head)?;
    out.line(format!("  {}", say::one_line(&question.reason)))?;
    out.line(format!("  started by: {}", say::brief(&question.chain)))?;
    let place = say::one_line(&question.directory.to_string_lossy());
    out.line(format!("  in {place}, sandbox {}", say::one_line(&question.sandbox)))?;
    let answers = [Some("once"), waiting.session.as_ref().map(|_| "session"), Some("deny")];
    answers.into_iter().flatten().try_for_each(|answer| {
        out.line(format!("  {}", Remedy::Answer { id: waiting.id.clone(), answer }))
    })
}
