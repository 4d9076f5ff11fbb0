//! The output of a command: data on standard output, readable without colour. A reader
//! may close the pipe: the command then continues without output.

mod text;

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::env;

pub(crate) use text::{HomeNames, columns, wrap};

/// Standard output of a command.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    stdout: io::Stdout,
    colour: bool,
    columns: Option<usize>,
    home: HomeNames,
    /// True after the reader has closed the pipe.
    is_closed: bool,
}

/// The meaning of a text, shown as a colour.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TextTone {
    Good,
    Bad,
    Care,
    Faint,
    Strong,
}

impl TextTone {
    fn code(self) -> &'static str {
        match self {
            Self::Good => "32",
            Self::Bad => "31",
            Self::Care => "33",
            Self::Faint => "2",
            Self::Strong => "1",
        }
    }
}

impl CommandOutput {
    /// Standard output, with colours at a terminal unless `NO_COLOR` is set.
    pub(crate) fn new() -> Self {
        let stdout = io::stdout();
        let colour = stdout.is_terminal() && env::text(env::NO_COLOR).is_none();
        let columns = columns(&stdout);
        Self { stdout, colour, columns, home: HomeNames::from_env(), is_closed: false }
    }

    /// An output that drops every line, for a command whose answer is JSON.
    pub(crate) fn silent() -> Self {
        Self { is_closed: true, ..Self::new() }
    }

    /// Prints a line for people: broken at the terminal's width, the home directory as `~`.
    pub(crate) fn line(&mut self, text: impl AsRef<str>) -> io::Result<()> {
        let text = self.home.shorten(text.as_ref());
        let text = match self.columns {
            Some(columns) => wrap(&text, columns),
            None => text.into_owned(),
        };
        self.verbatim(text)
    }

    /// Prints a line unchanged: data, or the text of a file.
    pub(crate) fn verbatim(&mut self, text: impl AsRef<str>) -> io::Result<()> {
        if self.is_closed {
            return Ok(());
        }
        match writeln!(self.stdout, "{}", text.as_ref()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.is_closed = true;
                Ok(())
            }
            written => written,
        }
    }

    /// A change of a file: its path for people, its lines as they stand.
    pub(crate) fn diff(&mut self, text: &str) -> io::Result<()> {
        let (head, body) = text.trim_end().split_once("\n@@").unwrap_or((text, ""));
        if body.is_empty() {
            return self.verbatim(text.trim_end());
        }
        self.line(head)?;
        self.verbatim(format!("@@{body}"))
    }

    /// True if every further line is dropped.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Prints a value on several lines, unchanged.
    pub(crate) fn json(&mut self, value: &serde_json::Value) -> io::Result<()> {
        self.verbatim(format!("{value:#}"))
    }

    /// The text with the codes of a tone, if the terminal shows colours.
    pub(crate) fn tone(&self, tone: TextTone, text: &str) -> String {
        if self.colour {
            format!("\u{1b}[{}m{text}\u{1b}[0m", tone.code())
        } else {
            text.to_owned()
        }
    }
}

/// Names a task on the terminal if it takes more than a second, and removes the line at its
/// end. Prints nothing if standard error is no terminal.
#[derive(Debug)]
pub(crate) struct ProgressLine {
    over: Option<(mpsc::Sender<()>, thread::JoinHandle<()>)>,
}

impl ProgressLine {
    /// Starts a thread that shows the line after a second. Does nothing if standard error is
    /// no terminal.
    pub(crate) fn start(what: &'static str) -> Self {
        if !io::stderr().is_terminal() {
            return Self { over: None };
        }
        let (over, wait) = mpsc::channel::<()>();
        let show = move || {
            let waits = |time| wait.recv_timeout(time) == Err(mpsc::RecvTimeoutError::Timeout);
            let mut seconds = 0;
            while waits(Duration::from_secs(1)) {
                seconds += 1;
                let _ = write!(io::stderr(), "\r{what} … {seconds} s");
            }
            if seconds > 0 {
                let _ = write!(io::stderr(), "\r\u{1b}[K");
            }
        };
        Self { over: Some((over, thread::spawn(show))) }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        if let Some((over, shown)) = self.over.take() {
            drop(over);
            let _ = shown.join();
        }
    }
}

/// Asks the user at the terminal; an answer other than y or yes is a no. Fails if standard
/// input is no terminal.
pub(crate) fn confirm(question: &str) -> Result<bool, Failure> {
    if !io::stdin().is_terminal() {
        return Err(Failure::new("clash cannot ask: standard input is no terminal")
            .hint("`--yes` answers yes"));
    }
    prompt(&format!("{question} [y/N] "));
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

/// Writes a question to standard error. The user types the answer on its last line.
pub(crate) fn prompt(question: &str) {
    let _ = write!(io::stderr(), "{}", for_people(question));
}

/// A text for standard error: broken at the terminal's width, the home directory as `~`.
pub(crate) fn for_people(text: &str) -> String {
    let text = HomeNames::from_env().shorten(text).into_owned();
    match columns(io::stderr()) {
        Some(columns) => wrap(&text, columns),
        None => text,
    }
}

/// True if a user can answer a question about a command: standard input is a terminal, and
/// no agent runs clash.
pub(crate) fn can_ask() -> bool {
    let by_agent =
        env::inside_clash().is_some() || env::text(clash_agents::variables::AI_AGENT).is_some();
    !by_agent && io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// The failure of a command: the event, then a hint for the user.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
    pub(crate) status: u8,
}

impl Failure {
    /// A failure with status 1 and without a hint.
    pub(crate) fn new(message: impl ToString) -> Self {
        Self { message: message.to_string(), hint: None, status: crate::exit::FAILED }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Prints the message and the hint to standard error, and returns the exit status.
    pub(crate) fn report(&self) -> u8 {
        let mut text = format!("clash: {}", self.message);
        if let Some(hint) = &self.hint {
            text.push_str(&format!("\n\nhint: {hint}"));
        }
        let _ = writeln!(io::stderr(), "{}", for_people(&text));
        self.status
    }
}

impl<E: std::error::Error> From<E> for Failure {
    /// The error and its sources in one line, without repetitions.
    fn from(error: E) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            let text = cause.to_string();
            if !message.contains(&text) {
                message.push_str(&format!(": {text}"));
            }
            source = cause.source();
        }
        Self::new(message)
    }
}
