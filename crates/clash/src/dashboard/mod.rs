//! The screen of `clash watch`: the actions of running sessions as they happen, rooms,
//! connections and blocks, and the questions that wait for an answer.
//!
//! [`model`] is the state without a terminal, [`feed`] reads it from clash's files, [`draw`]
//! makes the screen from it, and [`keys`] says what a key does. Only this file touches the
//! terminal. While the screen is open, commands of agents can ask.

mod draw;
mod feed;
mod keys;
mod model;

use std::io::{self, IsTerminal, Stdout};
use std::time::Duration;

use ratatui_core::terminal::Terminal;
use ratatui_crossterm::CrosstermBackend;
use ratatui_crossterm::crossterm::event::{Event, KeyEventKind, poll, read};
use ratatui_crossterm::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui_crossterm::crossterm::{cursor, execute};

use crate::dirs::Dirs;
use crate::questions::QuestionListener;
use crate::remedy::Remedy;
use crate::ui::{Failure, HomeNames};
use crate::{env, exit};
use feed::DashboardFeed;
use keys::{KeyEffect, press};
use model::DashboardModel;

/// The time after which the files are read again.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(250);

/// The whole program `clash-watch`. Returns the exit status.
pub(crate) fn main() -> u8 {
    match show() {
        Ok(()) => exit::OK,
        Err(failure) => failure.report(),
    }
}

/// Fails if the terminal cannot show a screen.
fn check_terminal() -> Result<(), Failure> {
    let term = env::text(env::TERM).unwrap_or_default();
    let why = match () {
        () if !io::stdin().is_terminal() || !io::stdout().is_terminal() => {
            "standard input and output are no terminal".to_owned()
        }
        () if matches!(term.as_str(), "" | "dumb" | "unknown") => {
            format!("the terminal `{term}` cannot move its cursor")
        }
        () => return Ok(()),
    };
    let follow = Remedy::LogFollow;
    Err(Failure::new(format!("there is no screen to draw on: {why}"))
        .hint(format!("`{follow}` shows the same actions line by line")))
}

/// Shows the screen until the user closes it.
fn show() -> Result<(), Failure> {
    check_terminal()?;
    let dirs = Dirs::from_env()?;
    let _listener = QuestionListener::register(&dirs).map_err(Failure::new)?;
    let mut model = DashboardModel {
        colour: env::text(env::NO_COLOR).is_none(),
        home: HomeNames::from_env(),
        ..Default::default()
    };
    let mut feed = DashboardFeed::new(dirs.clone());
    feed.refresh(&mut model);
    let mut screen = OpenScreen::open()?;
    loop {
        screen.terminal.draw(|frame| draw::draw(&model, frame.area(), frame.buffer_mut()))?;
        if !poll(LOOK_AGAIN_AFTER)? {
            feed.refresh(&mut model);
            continue;
        }
        let Event::Key(key) = read()? else { continue };
        if key.kind != KeyEventKind::Press {
            continue;
        }
        match press(&mut model, key) {
            KeyEffect::Close => return Ok(()),
            KeyEffect::Answer(id, answer) => feed.answer(&mut model, &id, answer),
            KeyEffect::Nothing => {}
        }
        feed.refresh(&mut model);
    }
}

/// The terminal in raw mode, on its second screen, until this value is dropped.
struct OpenScreen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl OpenScreen {
    fn open() -> io::Result<Self> {
        enable_raw_mode()?;
        // The guard comes first: a failure below must restore the terminal too.
        let terminal = Terminal::new(CrosstermBackend::new(io::stdout()))?;
        let screen = Self { terminal };
        execute!(io::stdout(), EnterAlternateScreen, cursor::Hide)?;
        Ok(screen)
    }
}

impl Drop for OpenScreen {
    fn drop(&mut self) {
        let _ = execute!(io::stdout(), LeaveAlternateScreen, cursor::Show);
        let _ = disable_raw_mode();
    }
}
