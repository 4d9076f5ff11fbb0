//! Draws the screen. Every text comes from commands and files of the agent, so it is shown
//! without characters that steer a terminal.

use clash_history::day_and_time;
use clash_policy::text::is_hidden;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color, Modifier, Style};

use super::keys::KEYS;
use super::model::{DashboardModel, DashboardPanel};
use crate::story::ActionStory;
use crate::ui::HomeNames;

/// The smallest screen.
const MIN_COLUMNS: u16 = 40;
const MIN_ROWS: u16 = 12;
/// Rows below the list: the story of the selected line.
const DETAIL_ROWS: u16 = 6;

/// A pen that moves down the screen, line by line.
struct Pen<'a> {
    buffer: &'a mut Buffer,
    area: Rect,
    row: u16,
    colour: bool,
    home: &'a HomeNames,
}

impl Pen<'_> {
    fn style(&self, colour: Color) -> Style {
        if self.colour { Style::default().fg(colour) } else { Style::default() }
    }

    /// The text with `~` for the home, and without characters that steer a terminal.
    fn plain(&self, text: &str) -> String {
        let plain = |c: char| if is_hidden(c) { ' ' } else { c };
        self.home.shorten(text).chars().map(plain).collect()
    }

    /// Writes one line, cut at the right edge. Nothing below the area.
    fn line(&mut self, text: &str, style: Style) {
        if self.row < self.area.bottom() {
            let width = usize::from(self.area.width);
            let text = self.plain(text);
            self.buffer.set_stringn(self.area.x, self.row, text, width, style);
        }
        self.row = self.row.saturating_add(1);
    }

    /// Writes a text on at most `rows` lines, broken at words. Always takes `rows`.
    fn block(&mut self, text: &str, rows: u16, style: Style) {
        let width = usize::from(self.area.width).max(1);
        let end = self.row.saturating_add(rows);
        let mut line = String::new();
        for word in self.plain(text).split_whitespace() {
            if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
                self.line_before(end, &std::mem::take(&mut line), style);
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        self.line_before(end, &line, style);
        self.row = end;
    }

    fn line_before(&mut self, end: u16, text: &str, style: Style) {
        if self.row < end {
            self.line(text, style);
        }
    }

    fn rule(&mut self) {
        let width = usize::from(self.area.width);
        self.line(&"-".repeat(width), Style::default().add_modifier(Modifier::DIM));
    }
}

/// Draws the whole screen.
pub(super) fn draw(model: &DashboardModel, area: Rect, buffer: &mut Buffer) {
    let mut pen = Pen { buffer, area, row: area.y, colour: model.colour, home: &model.home };
    let strong = Style::default().add_modifier(Modifier::BOLD);
    if area.width < MIN_COLUMNS || area.height < MIN_ROWS {
        pen.line("this terminal is too small: 40x12 at least", strong);
        return;
    }
    if model.shows_help {
        return help(&mut pen, strong);
    }
    pen.line(&head(model), strong);
    question(&mut pen, model);
    tabs(&mut pen, model);
    let rows = area.bottom().saturating_sub(pen.row + DETAIL_ROWS + 2);
    list(&mut pen, model, usize::from(rows));
    pen.rule();
    detail(&mut pen, model);
    pen.row = area.bottom() - 1;
    let keys = "1-4 lists  up/down select  ? help  q close";
    let last = if model.notice.is_empty() { keys.to_owned() } else { model.notice.clone() };
    pen.line(&last, strong);
}

fn help(pen: &mut Pen<'_>, strong: Style) {
    pen.line("clash watch: the keys", strong);
    pen.line("", Style::default());
    for (key, meaning) in KEYS {
        pen.line(&format!("{key:16}{meaning}"), Style::default());
    }
    pen.line("", Style::default());
    pen.block(
        "While this screen is open, a running command can ask you, for example about a host or \
         a command inside a script. Without it such a command is refused at once.",
        4,
        Style::default(),
    );
}

/// The first line: a count of everything.
fn head(model: &DashboardModel) -> String {
    let count = |number: usize, one: &str| match number {
        1 => format!("1 {one}"),
        number => format!("{number} {one}s"),
    };
    format!(
        "clash watch   {}, {}, {}",
        count(model.sessions, "session"),
        count(model.rooms.len(), "room"),
        count(model.questions.len(), "question")
    )
}

/// The oldest question with its keys.
fn question(pen: &mut Pen<'_>, model: &DashboardModel) {
    let Some(waiting) = model.questions.first() else { return };
    let question = &waiting.question;
    let care = pen.style(Color::Yellow).add_modifier(Modifier::BOLD);
    pen.rule();
    pen.block(&format!("? {}", question.subject), 2, care);
    pen.block(&question.reason, 2, Style::default());
    pen.line(&format!("by {}, sandbox {}", question.chain, question.sandbox), Style::default());
    let session = if waiting.session.is_some() { "  s for the session" } else { "" };
    let rule = if question.remedy.is_some() { "  w write a rule" } else { "" };
    pen.line(&format!("o once{session}{rule}  d deny"), care);
    pen.rule();
}

fn tabs(pen: &mut Pen<'_>, model: &DashboardModel) {
    let mut text = String::new();
    for (at, panel) in DashboardPanel::ALL.into_iter().enumerate() {
        let (open, close) = if panel == model.panel { ("[", "]") } else { (" ", " ") };
        let (title, count) = (panel.title(), model.count(panel));
        text.push_str(&format!("{open}{} {title} {count}{close} ", at + 1));
    }
    pen.line(&text, Style::default().add_modifier(Modifier::BOLD));
}

/// The lines around the selected one.
fn list(pen: &mut Pen<'_>, model: &DashboardModel, rows: usize) {
    let end = pen.row + u16::try_from(rows).unwrap_or(u16::MAX);
    let count = model.count(model.panel);
    if count == 0 {
        pen.line(&format!("  no {} yet", model.panel.title()), Style::default());
    }
    let first = model.selected.saturating_sub(rows.saturating_sub(1));
    for at in (first..count).take(rows) {
        let mark = if at == model.selected { "> " } else { "  " };
        let (text, colour) = row(model, at);
        let mut style = colour.map_or_else(Style::default, |colour| pen.style(colour));
        if at == model.selected {
            style = style.add_modifier(Modifier::REVERSED);
        }
        pen.line(&format!("{mark}{text}"), style);
    }
    pen.row = end;
}

fn clock(time: u64) -> String {
    day_and_time(time).split(' ').next_back().unwrap_or_default().to_owned()
}

/// One line of a list, and its colour.
fn row(model: &DashboardModel, at: usize) -> (String, Option<Color>) {
    let line = match model.panel {
        DashboardPanel::Actions => model.actions.get(at).map(action_row),
        DashboardPanel::Rooms => model.rooms.get(at).map(|room| {
            let record = &room.record;
            let ports: Vec<String> = room.ports.iter().map(u16::to_string).collect();
            let ports =
                if ports.is_empty() { String::new() } else { format!(" :{}", ports.join(",")) };
            let processes = room.processes;
            let (id, sandbox, command) = (&record.id, &record.sandbox, &record.command);
            (format!("{id}  {processes} processes{ports}  {sandbox}  {command}"), None)
        }),
        DashboardPanel::Connections => model.connections.get(at).map(|it| {
            let colour = (it.effect == "deny").then_some(Color::Red);
            let (host, port) = (&it.connection.host, it.connection.port);
            (format!("{}  {:6} {}  {host}:{port}", clock(it.time), it.effect, it.program), colour)
        }),
        DashboardPanel::Blocks => model.blocks.get(at).map(|it| {
            (format!("{}  {}  {}", clock(it.time), it.what, it.action), Some(Color::Red))
        }),
    };
    line.unwrap_or_default()
}

fn action_row(story: &ActionStory) -> (String, Option<Color>) {
    let (effect, end) = (&story.effect, story.outcome.word());
    let colour = match () {
        () if story.is_blocked() => Some(Color::Red),
        () if effect == "ask" => Some(Color::Yellow),
        () => None,
    };
    let blocked = if story.blocked_line().is_some() { "!" } else { " " };
    let what = if story.tool == "Bash" {
        story.what.clone()
    } else {
        format!("{} {}", story.tool, story.what)
    };
    (format!("{} {blocked}{effect:5} {end:8} {what}", clock(story.time)), colour)
}

/// The story of the selected line.
fn detail(pen: &mut Pen<'_>, model: &DashboardModel) {
    let plain = Style::default();
    match model.panel {
        DashboardPanel::Actions => {
            let Some(story) = model.actions.get(model.selected) else { return };
            let (id, agent, sandbox) = (story.id(), &story.agent, &story.sandbox);
            let sandbox = if sandbox.is_empty() { "no sandbox" } else { sandbox };
            pen.line(&format!("{id}  {agent}  {sandbox}"), plain);
            pen.block(&story.what, 2, plain);
            match story.blocked_line() {
                Some(line) => {
                    let style = pen.style(Color::Red);
                    pen.block(&format!("{line}: {}", story.blocked_reason()), 3, style);
                }
                None => pen.block(&story.reason, 3, plain),
            }
        }
        DashboardPanel::Rooms => {
            let Some(room) = model.rooms.get(model.selected) else { return };
            pen.block(&room.record.command, 3, plain);
            pen.line(&format!("in {}", room.record.project.display()), plain);
            let stop = crate::remedy::Remedy::Stop { room: room.record.id.clone() };
            pen.line(&format!("to end it: {stop}"), plain);
        }
        DashboardPanel::Connections => {
            let Some(it) = model.connections.get(model.selected) else { return };
            let place = &it.connection;
            let address = place.address.as_deref().unwrap_or("no address");
            pen.line(
                &format!("{} to {}:{} ({address})", it.program, place.host, place.port),
                plain,
            );
            if let (Some(sent), Some(received)) = (place.sent, place.received) {
                pen.line(&format!("{sent} bytes sent, {received} received"), plain);
            }
        }
        DashboardPanel::Blocks => {
            let Some(it) = model.blocks.get(model.selected) else { return };
            pen.block(&it.sentence, 3, plain);
            if let Some(grant) = &it.grant {
                pen.block(&format!("to allow it: {grant}"), 2, plain);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn screen(model: &DashboardModel, width: u16, height: u16) -> String {
        let area = Rect::new(0, 0, width, height);
        let mut buffer = Buffer::empty(area);
        draw(model, area, &mut buffer);
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol().to_owned()).collect::<String>();
        (0..height).map(|y| line(y).trim_end().to_owned() + "\n").collect()
    }

    fn story(what: &str) -> ActionStory {
        let mut story = ActionStory::default();
        what.clone_into(&mut story.what);
        "Bash".clone_into(&mut story.tool);
        "allow".clone_into(&mut story.effect);
        story
    }

    #[test]
    fn a_command_cannot_steer_the_terminal() {
        let text = "ls\u{1b}[2J\u{202e}x\nrm";
        let model = DashboardModel { actions: vec![story(text)], ..DashboardModel::default() };
        let shown = screen(&model, 80, 24);
        assert!(!shown.contains(['\u{1b}', '\u{202e}']), "{shown:?}");
        assert!(shown.contains("ls [2J x rm"), "{shown}");
    }

    #[test]
    fn every_size_draws_and_the_selection_stays_in_view() {
        let actions: Vec<_> = (0..100).map(|at| story(&format!("command-{at}"))).collect();
        let mut model = DashboardModel { actions, ..DashboardModel::default() };
        model.select(90);
        for (width, height) in [(1, 1), (39, 40), (40, 12), (80, 24), (300, 100)] {
            let shown = screen(&model, width, height);
            let fits = width >= MIN_COLUMNS && height >= MIN_ROWS;
            let selected = format!("> 00:00:00  allow          command-{}", model.selected);
            assert_eq!(shown.contains(&selected), fits, "{shown}");
        }
        model.select(1000);
        assert_eq!(model.selected, 99);
    }
}
