//! A model of a terminal shows the effect of the filter's output on earlier text.

use super::*;
use proptest::prelude::*;

fn filtered(output: &[u8]) -> String {
    let mut to = Vec::new();
    ScreenFilter::new(24).filter(output, &mut to);
    String::from_utf8_lossy(&to).into_owned()
}

#[test]
fn ordinary_output_is_untouched() {
    for text in [
        "plain text\r\n\ttabs\x08\x07",
        "\x1b[1;31mred\x1b[0m \x1b[38;5;8mgrey\x1b[m \x1b[48;2;8;8;8mrgb\x1b[39;49m",
        "grüße 漢字 🦀\r\n",
        "progress 10%\r\x1b[Kprogress 20%\r\x1b[2K",
        "one\r\ntwo\r\n\x1b[2A\x1b[2Kagain",
        "\x1b(0lqk\x1b(B",
        "\x1b[?25lhidden cursor\x1b[?25h",
        "\x1b[?1049h\x1b[1;1H\x1b[2Jeditor\x1b[24;1H\x1b[5A\x1b[3;10r\x1b[6n",
        "\x1b[6n\x1b[c\x1b[>c",
    ] {
        assert_eq!(filtered(text.as_bytes()), text);
    }
}

#[test]
fn what_steers_the_terminal_is_left_out() {
    for (attack, rest) in [
        ("a\x1b]52;c;ZXZpbA==\x07b", "ab"),
        ("a\x1b]52;c;ZXZpbA==\x1b\\b", "ab"),
        ("a\x1b]0;title\x07\x1b[21tb", "ab"),
        ("a\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\b", "alinkb"),
        ("a\x1bP$q\"p\x1b\\b", "ab"),
        ("a\x1b_apc\x1b\\\x1b^pm\x1b\\\x1bXsos\x1b\\\x1bktitle\x1b\\b", "ab"),
        ("a\x05b", "ab"),
        ("a\x1b[5ib", "ab"),
        ("a\x1bcb", "ab"),
        ("a\x1b#8b", "ab"),
        ("a\x1b%@b", "ab"),
        ("a\x1b[3Jb", "ab"),
        ("a\x1b[8mhidden\x1b[0mb", "ahidden\x1b[0mb"),
        ("a\x1b[1;8;31mb", "a\x1b[1;31mb"),
        ("a\x1b[?3hb\x1b[?9999hc", "abc"),
        ("a\x1b[1;1*yb", "ab"),
        ("a\u{9b}21tb\u{9d}52;c;x\u{9c}", "a21tb52;c;x"),
        ("a\u{202e}b\u{2066}c", "abc"),
        ("a\x1b[1\x1b]0;x\x07b", "ab"),
        ("a\x1b]0;x\x18b", "ab"),
        ("a\x1b8b\x1b[ub", "abb"),
    ] {
        assert_eq!(filtered(attack.as_bytes()), rest, "{attack:?}");
    }
    assert_eq!(filtered(b"a\x9b21tb"), "a?21tb");
    assert_eq!(filtered(b"a\xe0\x82\x9b21tb").chars().filter(|c| *c == '?').count(), 2);
}

#[test]
fn the_lines_above_the_command_cannot_be_reached() {
    assert_eq!(filtered(b"real\x1b[1A\x1b[2K\x1b[8mhidden\x1b[0m"), "real\x1b[2Khidden\x1b[0m");
    assert_eq!(filtered(b"a\nb\x1b[5Ac\x1b[Ad"), "a\nb\x1b[1Acd");
    assert_eq!(filtered(b"a\x1bMb"), "ab");
    let whole = filtered(b"a\x1b[2J\x1b[H");
    assert_eq!(whole, format!("a\x1b[24;1H{}\x1b[2J\x1b[H", "\n".repeat(24)));
}

#[test]
fn what_a_command_switched_is_switched_back() {
    let mut screen = ScreenFilter::new(24);
    let mut to = Vec::new();
    screen.filter(
        b"\x1b[?1049h\x1b[?25l\x1b[?1000h\x1b[?2004h\x1b[?2004l\x1b[31m\x1b[5 q\x1b]52",
        &mut to,
    );
    to.clear();
    screen.restore_modes(&mut to);
    let left = String::from_utf8(to).unwrap();
    assert_eq!(left, "\x1b[?6l\x1b[r\x1b[?1049l\x1b[?25h\x1b[?1000l\x1b[0 q\x1b[m");
    let mut to = Vec::new();
    ScreenFilter::new(24).restore_modes(&mut to);
    assert!(to.is_empty(), "nothing was switched");
}

#[test]
fn character_sets_the_keypad_and_inserting_are_put_back() {
    for output in ["\x0e", "\x1b(0", "\x1b)0", "\x1b=", "\x1b[4h"] {
        let (mut screen, mut to) = (ScreenFilter::new(24), Vec::new());
        screen.filter(output.as_bytes(), &mut to);
        assert_eq!(to, output.as_bytes());
        to.clear();
        screen.restore_modes(&mut to);
        assert_eq!(to, b"\x1b[4l\x1b(B\x1b)B\x0f\x1b>", "{output:?}");
    }
}

#[test]
fn a_resize_invalidates_the_saved_cursor() {
    let (mut screen, mut to) = (ScreenFilter::new(24), Vec::new());
    screen.filter(b"\n\n\x1b7", &mut to);
    screen.resize(50);
    to.clear();
    screen.filter(b"\x1b8\x1b[2A", &mut to);
    assert!(to.is_empty(), "{to:?}");
}

/// The part of a terminal that moves the cursor, erases and scrolls.
struct TerminalModel {
    /// All lines; the last `ROWS` of them are on the screen.
    lines: Vec<char>,
    row: usize,
    margins: (usize, usize),
    saved: usize,
    main: Option<(Vec<char>, usize)>,
}

const ROWS: usize = 6;
/// Lines from before the command.
const OLD: char = 'o';
const BLANK: char = ' ';

impl TerminalModel {
    fn new(old: usize) -> Self {
        let mut lines = vec![OLD; old];
        lines.extend(std::iter::repeat_n(BLANK, ROWS));
        let row = old.min(ROWS - 1);
        lines.truncate(old.max(ROWS - 1) + 1);
        Self { lines, row, margins: (0, ROWS - 1), saved: 0, main: None }
    }

    fn top(&self) -> usize {
        self.lines.len() - ROWS
    }

    fn on(&mut self, row: usize) -> &mut char {
        let at = self.top() + row;
        &mut self.lines[at]
    }

    /// The number of lines from before the command that are still whole.
    fn old(&self) -> usize {
        let lines = self.main.as_ref().map_or(&self.lines, |(lines, _)| lines);
        lines.iter().filter(|line| **line == OLD).count()
    }

    fn scroll(&mut self, up: bool) {
        let (first, last) = self.margins;
        if up && first == 0 && last == ROWS - 1 {
            self.lines.push(BLANK);
            if self.main.is_some() {
                self.lines.remove(0);
            }
            return;
        }
        let top = self.top();
        let (gone, new) = if up { (first, last) } else { (last, first) };
        self.lines.remove(top + gone);
        self.lines.insert(top + new, BLANK);
    }

    fn down(&mut self) {
        match self.row {
            row if row == self.margins.1 => self.scroll(true),
            row => self.row = (row + 1).min(ROWS - 1),
        }
    }

    /// Carries out the filter's output.
    fn feed(&mut self, output: &[u8]) {
        let mut bytes = output.iter().copied().peekable();
        while let Some(byte) = bytes.next() {
            match byte {
                b'\n' => self.down(),
                0x20..0x7f => *self.on(self.row) = 'n',
                0x1b => match bytes.next() {
                    Some(b'7') => self.saved = self.row,
                    Some(b'8') => self.row = self.saved,
                    Some(b'D' | b'E') => self.down(),
                    Some(b'M') if self.row == self.margins.0 => self.scroll(false),
                    Some(b'M') => self.row = self.row.saturating_sub(1),
                    Some(b'[') => {
                        let mut held = String::new();
                        let kind = loop {
                            match bytes.next() {
                                Some(byte @ 0x40..) => break byte,
                                Some(byte) => held.push(byte as char),
                                None => return,
                            }
                        };
                        self.sequence(&held, kind);
                    }
                    _ => {}
                },
                _ => {}
            }
        }
    }

    /// Carries out a control sequence.
    fn sequence(&mut self, held: &str, kind: u8) {
        let mut numbers = held.split(';').map(parse_number);
        let first = numbers.next().unwrap_or(0) as usize;
        let second = numbers.next().unwrap_or(0) as usize;
        match kind {
            b'A' | b'F' => self.row = self.row.saturating_sub(first.max(1)),
            b'B' | b'E' | b'e' => self.row = (self.row + first.max(1)).min(ROWS - 1),
            b'H' | b'f' | b'd' => self.row = first.clamp(1, ROWS) - 1,
            b'J' => {
                let rows = match first {
                    0 => self.row..ROWS,
                    1 => 0..self.row + 1,
                    _ => 0..ROWS,
                };
                rows.for_each(|row| *self.on(row) = BLANK);
            }
            b'K' => *self.on(self.row) = BLANK,
            b'S' => self.scroll(true),
            b'T' => self.scroll(false),
            b'r' => {
                let last = if second == 0 { ROWS } else { second.min(ROWS) };
                if first.max(1) < last {
                    (self.margins, self.row) = ((first.max(1) - 1, last - 1), 0);
                }
            }
            b'h' if held == "?1049" && self.main.is_none() => {
                self.main = Some((std::mem::replace(&mut self.lines, vec![BLANK; ROWS]), self.row));
                self.saved = self.row;
            }
            b'l' if held == "?1049" => {
                if let Some((lines, row)) = self.main.take() {
                    (self.lines, self.row) = (lines, row);
                }
            }
            _ => {}
        }
    }
}

/// A piece of output: text, line ends, movements, erasing, saved cursors, modes, or random
/// bytes.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let count = 0..9u32;
    prop_oneof![
        3 => Just(b"x".to_vec()),
        3 => Just(b"\n".to_vec()),
        2 => (count.clone(), prop::sample::select(b"ABEFHJKLMSTdefr".to_vec()))
            .prop_map(|(n, kind)| format!("\x1b[{n}{}", kind as char).into_bytes()),
        1 => (count.clone(), count).prop_map(|(a, b)| format!("\x1b[{a};{b}r").into_bytes()),
        2 => prop::sample::select(vec!["\x1b7", "\x1b8", "\x1bM", "\x1bD", "\x1b[s", "\x1b[u"])
            .prop_map(|text| text.as_bytes().to_vec()),
        1 => prop::sample::select(vec![
            "\x1b[?1049h", "\x1b[?1049l", "\x1b[?47h", "\x1b[?47l", "\x1b[?1048h", "\x1b[?1048l",
            "\x1b[?6h", "\x1b[!p", "\x1bc", "\x1b[3J",
        ]).prop_map(|text| text.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..4),
    ]
}

proptest! {
    /// The model has one saved cursor, as the simplest terminal.
    #[test]
    fn what_was_on_the_screen_stays(
        old in 0..12usize, pieces in prop::collection::vec(piece(), 0..60)
    ) {
        let output = pieces.concat();
        let mut to = Vec::new();
        let mut screen = ScreenFilter::new(ROWS as u16);
        screen.filter(&output, &mut to);
        let mut model = TerminalModel::new(old);
        model.feed(&to);
        prop_assert_eq!(model.old(), old, "{:?}", String::from_utf8_lossy(&to));
    }

    #[test]
    fn where_output_is_cut_makes_no_difference(
        pieces in prop::collection::vec(piece(), 0..20), at in any::<prop::sample::Index>()
    ) {
        let output = pieces.concat();
        let (first, second) = output.split_at(if output.is_empty() { 0 } else { at.index(output.len()) });
        let (mut whole, mut cut) = (Vec::new(), Vec::new());
        ScreenFilter::new(24).filter(&output, &mut whole);
        let mut screen = ScreenFilter::new(24);
        screen.filter(first, &mut cut);
        screen.filter(second, &mut cut);
        prop_assert_eq!(whole, cut);
    }

    #[test]
    fn no_string_and_no_eight_bit_control_gets_through(output: Vec<u8>) {
        let mut to = Vec::new();
        ScreenFilter::new(24).filter(&output, &mut to);
        for pair in to.windows(2) {
            prop_assert!(pair[0] != 0x1b || !b"]PX^_kc".contains(&pair[1]), "{:?}", to);
            prop_assert!(pair[0] != 0xc2 || !(0x80..0xa0).contains(&pair[1]), "{:?}", to);
        }
    }
}
