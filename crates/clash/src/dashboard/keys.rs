//! The meaning of the keys.

use ratatui_crossterm::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::model::{DashboardModel, DashboardPanel};
use crate::questions::LiveAnswer;

/// The keys and their meanings, for the help.
pub(super) const KEYS: &[(&str, &str)] = &[
    ("1 2 3 4, Tab", "another list: actions, rooms, connections, blocks"),
    ("Up Down, k j", "select a line; its story stands below the list"),
    ("PgUp PgDn", "ten lines"),
    ("g, Home", "the newest line"),
    ("o", "answer the question: yes, once"),
    ("s", "answer the question: yes, for this session"),
    ("w", "answer the question: yes, and write a rule into your policy"),
    ("d", "answer the question: no"),
    ("?", "this help; any key closes it"),
    ("q, Esc, Ctrl-C", "close the screen; waiting questions then count as a no"),
];

/// An answer of the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DashboardAnswer {
    Live(LiveAnswer),
    /// Once, and a rule in the user's policy for the next time.
    Rule,
}

/// The effect of a key outside the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum KeyEffect {
    Nothing,
    Close,
    /// The answer to the question with this id.
    Answer(String, DashboardAnswer),
}

/// Carries out a key. An answer is for the oldest question, which the screen shows.
pub(super) fn press(model: &mut DashboardModel, key: KeyEvent) -> KeyEffect {
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    if is_control && matches!(key.code, KeyCode::Char('c' | 'd')) {
        return KeyEffect::Close;
    }
    if model.shows_help {
        model.shows_help = false;
        return KeyEffect::Nothing;
    }
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => return KeyEffect::Close,
        KeyCode::Char('?' | 'h') => model.shows_help = true,
        KeyCode::Char('1') => model.show(DashboardPanel::Actions),
        KeyCode::Char('2') => model.show(DashboardPanel::Rooms),
        KeyCode::Char('3') => model.show(DashboardPanel::Connections),
        KeyCode::Char('4') => model.show(DashboardPanel::Blocks),
        KeyCode::Tab | KeyCode::Right => model.next_panel(1),
        KeyCode::BackTab | KeyCode::Left => model.next_panel(3),
        KeyCode::Up | KeyCode::Char('k') => model.select(-1),
        KeyCode::Down | KeyCode::Char('j') => model.select(1),
        KeyCode::PageUp => model.select(-10),
        KeyCode::PageDown => model.select(10),
        KeyCode::Home | KeyCode::Char('g') => model.selected = 0,
        KeyCode::Char('o') => return answer(model, DashboardAnswer::Live(LiveAnswer::Once)),
        KeyCode::Char('s') => return answer(model, DashboardAnswer::Live(LiveAnswer::Session)),
        KeyCode::Char('d') => return answer(model, DashboardAnswer::Live(LiveAnswer::Deny)),
        KeyCode::Char('w') => return answer(model, DashboardAnswer::Rule),
        _ => {}
    }
    KeyEffect::Nothing
}

fn answer(model: &DashboardModel, answer: DashboardAnswer) -> KeyEffect {
    match model.questions.first() {
        Some(question) => KeyEffect::Answer(question.id.clone(), answer),
        None => KeyEffect::Nothing,
    }
}
