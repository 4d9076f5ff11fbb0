//! Filters a command's output for the user's terminal.
//!
//! A terminal is a programmable device that the user trusts. It has the clipboard. It
//! answers questions by typing into the program that reads it. It shows earlier text, for
//! example the question whether this command may run. So the filter passes only output from
//! a list of harmless sequences, and drops all other output. The list:
//!
//! - text, tabs, line ends, the bell, colours, character sets, cursor shapes;
//! - movement and erasing inside the command's own lines. The cursor stops at the line on
//!   which the command began. If a program addresses the whole screen, the filter first
//!   scrolls everything into the scrollback, out of reach. The alternate screen belongs to
//!   the program;
//! - the modes in [`MODES`], each restored when the command has ended;
//! - the questions for the cursor position and the terminal type, whose answers the command
//!   cannot choose.
//!
//! The filter drops all strings (OSC: clipboard, title, links, notifications; DCS, APC, PM,
//! SOS), title and window reports, the answerback, printing, erasing the scrollback, full
//! resets, concealed text, the eight-bit controls in either encoding, and characters that
//! reverse the direction of text.
//!
//! The filter does not keep the screen. It keeps one lower bound: the number of lines
//! between the command's first line and the cursor. A wrapped line counts as one, so a
//! program that redraws several wrapped lines may be stopped early.

use clash_policy::text::is_direction_override;

/// Modes that a command may switch, and their default.
const MODES: [(u16, bool); 13] = [
    (1, false),    // cursor keys
    (7, true),     // wrap at the margin
    (12, false),   // blinking cursor
    (25, true),    // the cursor is seen
    (66, false),   // keypad
    (1000, false), // mouse, and how it is told
    (1002, false),
    (1003, false),
    (1004, false),
    (1006, false),
    (1015, false),
    (2004, false), // bracketed paste
    (2026, false), // synchronised output
];

/// Enters and leaves the alternate screen, without margins that were set there.
const AWAY: &[u8] = b"\x1b[?1049h";
const BACK: &[u8] = b"\x1b[?6l\x1b[r\x1b[?1049l";

/// Resets insert mode, both character sets and the keypad.
const AT_REST: &[u8] = b"\x1b[4l\x1b(B\x1b)B\x0f\x1b>";

/// Real programs send no longer sequence.
const MAX_SEQUENCE_BYTES: usize = 128;

const ESC: u8 = 0x1b;
const CAN: u8 = 0x18;
const SUB: u8 = 0x1a;

/// The position in the output: in text or inside a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SequenceState {
    Text,
    /// Inside a character of several bytes, of which this number is missing.
    Character(usize),
    Escape,
    /// `ESC` and intermediate bytes.
    Designation,
    Control,
    /// A control sequence beyond the maximum length.
    Overlong,
    /// A string. Some kinds also end with `BEL`.
    String {
        bell: bool,
    },
    /// `ESC` inside a string.
    StringEnd,
}

/// The filter and its knowledge of the screen.
#[derive(Debug)]
pub(crate) struct ScreenFilter {
    state: SequenceState,
    /// The bytes of the present sequence.
    held: Vec<u8>,
    rows: u16,
    /// The least number of lines between the command's first line and the cursor.
    below: u32,
    /// True if everything on the screen comes from the command.
    whole: bool,
    /// `below` at the last save of the cursor.
    saved: Option<u32>,
    alternate: bool,
    /// True if margins may be set. A line end inside margins may scroll instead of moving
    /// the cursor.
    margins: bool,
    /// Modes that differ from their default.
    changed: Vec<u16>,
    styled: bool,
    cursor: bool,
    /// True if character sets, the keypad or insert mode may differ from their default.
    switched: bool,
}

impl ScreenFilter {
    /// A filter for a terminal with so many rows. The cursor is on the command's first line.
    pub(crate) fn new(rows: u16) -> Self {
        Self {
            state: SequenceState::Text,
            held: Vec::with_capacity(MAX_SEQUENCE_BYTES),
            rows,
            below: 0,
            whole: false,
            saved: None,
            alternate: false,
            margins: false,
            changed: Vec::new(),
            styled: false,
            cursor: false,
            switched: false,
        }
    }

    /// The window has a new size. Lines may have come back from the scrollback.
    pub(crate) fn resize(&mut self, rows: u16) {
        if rows != self.rows {
            (self.rows, self.whole, self.below, self.saved) = (rows, false, 0, None);
        }
    }

    /// Appends the harmless part of the output to `to`. A sequence may continue in the next
    /// call.
    pub(crate) fn filter(&mut self, output: &[u8], to: &mut Vec<u8>) {
        for byte in output {
            self.take_byte(*byte, to);
        }
    }

    /// Appends the sequences that restore everything that the command switched, and starts
    /// anew. Appends nothing if nothing was switched.
    pub(crate) fn restore_modes(&mut self, to: &mut Vec<u8>) {
        if self.alternate {
            to.extend(BACK);
        }
        if self.margins {
            to.extend(b"\x1b7\x1b[?6l\x1b[r\x1b8");
        }
        for mode in std::mem::take(&mut self.changed) {
            let at_rest = MODES.iter().any(|(known, on)| *known == mode && *on);
            to.extend(format!("\x1b[?{mode}{}", if at_rest { 'h' } else { 'l' }).bytes());
        }
        if self.cursor {
            to.extend(b"\x1b[0 q");
        }
        if self.styled {
            to.extend(b"\x1b[m");
        }
        if self.switched {
            to.extend(AT_REST);
        }
        *self = Self::new(self.rows);
    }

    /// Handles one byte, by the present state, and appends the bytes that may pass to `to`.
    /// Control characters act also in the middle of a sequence, as in a terminal.
    fn take_byte(&mut self, byte: u8, to: &mut Vec<u8>) {
        match self.state {
            SequenceState::Text => self.take_text(byte, to),
            SequenceState::Character(missing) => self.take_character(byte, missing, to),
            SequenceState::String { bell } => match byte {
                0x07 if bell => self.state = SequenceState::Text,
                CAN | SUB => self.state = SequenceState::Text,
                ESC => self.state = SequenceState::StringEnd,
                _ => {}
            },
            SequenceState::StringEnd => {
                self.state = SequenceState::Text;
                if byte != b'\\' {
                    self.state = SequenceState::Escape;
                    self.take_byte(byte, to);
                }
            }
            // Control characters act also in the middle of a sequence.
            _ if byte < 0x20 => match byte {
                ESC => self.begin_sequence(SequenceState::Escape),
                CAN | SUB => self.state = SequenceState::Text,
                _ => self.take_control(byte, to),
            },
            _ if byte >= 0x7f => self.state = SequenceState::Text,
            SequenceState::Escape => self.take_escape(byte, to),
            SequenceState::Designation => self.take_designation(byte, to),
            SequenceState::Control => {
                self.held.push(byte);
                if byte >= 0x40 {
                    self.state = SequenceState::Text;
                    let held = std::mem::take(&mut self.held);
                    self.take_sequence(&held, to);
                    self.held = held;
                } else if self.held.len() >= MAX_SEQUENCE_BYTES {
                    self.state = SequenceState::Overlong;
                }
            }
            SequenceState::Overlong => {
                if byte >= 0x40 {
                    self.state = SequenceState::Text;
                }
            }
        }
    }

    fn begin_sequence(&mut self, state: SequenceState) {
        self.state = state;
        self.held.clear();
    }

    /// Handles a byte outside sequences. A single byte in 0x80 to 0x9f becomes `?`, because some
    /// terminals take it for an eight-bit control.
    fn take_text(&mut self, byte: u8, to: &mut Vec<u8>) {
        match byte {
            ESC => self.begin_sequence(SequenceState::Escape),
            0x00..0x20 => self.take_control(byte, to),
            0x7f => {}
            0x80..0xa0 => to.push(b'?'),
            0xc2..0xf5 => {
                let missing = 1 + usize::from(byte >= 0xe0) + usize::from(byte >= 0xf0);
                self.begin_sequence(SequenceState::Character(missing));
                self.held.push(byte);
            }
            _ => to.push(byte),
        }
    }

    /// Handles a further byte of a UTF-8 character. Passes the whole character when it is
    /// complete, drops misleading ones, and passes broken ones without eight-bit controls.
    fn take_character(&mut self, byte: u8, missing: usize, to: &mut Vec<u8>) {
        let continues = (0x80..0xc0).contains(&byte);
        if continues {
            self.held.push(byte);
            if missing > 1 {
                self.state = SequenceState::Character(missing - 1);
                return;
            }
        }
        self.state = SequenceState::Text;
        match std::str::from_utf8(&self.held) {
            Ok(text) if text.chars().any(is_misleading) => {}
            Ok(text) => to.extend(text.bytes()),
            Err(_) => {
                let plain = |byte: &u8| if (0x80..0xa0).contains(byte) { b'?' } else { *byte };
                to.extend(self.held.iter().map(plain));
            }
        }
        if !continues {
            self.take_text(byte, to);
        }
    }

    /// Passes harmless control characters and drops the others. Counts line ends.
    fn take_control(&mut self, byte: u8, to: &mut Vec<u8>) {
        match byte {
            0x07..=0x09 | 0x0d | 0x0f => to.push(byte),
            0x0e => self.pass_switch(&[byte], to),
            // Most terminals take the vertical tab and the form feed for a line end, others
            // do not.
            0x0a..=0x0c => {
                self.count_line();
                to.push(b'\n');
            }
            _ => {}
        }
    }

    /// Counts a line below the command's first one. Not on the alternate screen or inside
    /// margins, where a line end may scroll.
    fn count_line(&mut self) {
        if !self.alternate && !self.margins {
            self.below = self.below.saturating_add(1);
        }
    }

    /// The number of lines, of `wanted`, by which the cursor may go up: no further than the
    /// command's first line. Any number if the whole screen is the command's.
    fn limit_upward(&mut self, wanted: u32) -> u32 {
        if self.alternate || self.whole {
            return wanted;
        }
        let most = wanted.min(self.below);
        self.below -= most;
        most
    }

    /// Handles the byte after `ESC`: begins a longer sequence or a dropped string, or passes
    /// one of the harmless short sequences. Drops every other.
    fn take_escape(&mut self, byte: u8, to: &mut Vec<u8>) {
        self.state = SequenceState::Text;
        match byte {
            b'[' => self.begin_sequence(SequenceState::Control),
            b']' => self.state = SequenceState::String { bell: true },
            b'P' | b'X' | b'^' | b'_' | b'k' => self.state = SequenceState::String { bell: false },
            b'7' => self.save_cursor(to),
            b'8' => self.restore_cursor(to),
            b'D' | b'E' => {
                self.count_line();
                to.extend([ESC, byte]);
            }
            b'M' if self.limit_upward(1) > 0 => to.extend(b"\x1bM"),
            b'=' => self.pass_switch(&[ESC, byte], to),
            b'>' | b'H' => to.extend([ESC, byte]),
            0x20..0x30 => {
                self.begin_sequence(SequenceState::Designation);
                self.held.push(byte);
            }
            _ => {}
        }
    }

    /// Passes the choice of a character set, line drawing and back, and drops other sequences
    /// with intermediate bytes.
    fn take_designation(&mut self, byte: u8, to: &mut Vec<u8>) {
        if byte < 0x30 {
            self.held.push(byte);
            if self.held.len() >= MAX_SEQUENCE_BYTES {
                self.state = SequenceState::Text;
            }
            return;
        }
        self.state = SequenceState::Text;
        if let ([set @ (b'(' | b')')], b'0' | b'A' | b'B') = (self.held.as_slice(), byte) {
            self.pass_switch(&[ESC, *set, byte], to);
        }
    }

    /// Passes a sequence that [`Self::restore_modes`] has to undo.
    fn pass_switch(&mut self, sequence: &[u8], to: &mut Vec<u8>) {
        self.switched = true;
        to.extend(sequence);
    }

    /// Saves the cursor and its line. Nothing on the alternate screen, which may share the
    /// only saved cursor.
    fn save_cursor(&mut self, to: &mut Vec<u8>) {
        if !self.alternate {
            self.saved = Some(self.below);
            to.extend(b"\x1b7");
        }
    }

    /// Restores a cursor that was saved on this screen. Otherwise nothing: an older position
    /// may lie above the command.
    fn restore_cursor(&mut self, to: &mut Vec<u8>) {
        if let (false, Some(below)) = (self.alternate, self.saved) {
            self.below = below;
            to.extend(b"\x1b8");
        }
    }

    /// Scrolls everything older than the command into the scrollback. Afterwards the whole
    /// screen is the command's.
    fn take_whole_screen(&mut self, to: &mut Vec<u8>) {
        if self.alternate || self.whole {
            return;
        }
        to.extend(format!("\x1b[{};1H", self.rows.max(1)).bytes());
        to.extend(std::iter::repeat_n(b'\n', usize::from(self.rows.max(1))));
        (self.whole, self.saved) = (true, None);
    }

    /// Handles a complete control sequence, without its `ESC [`. Passes those on the list,
    /// some in a changed form, and drops all others.
    fn take_sequence(&mut self, held: &[u8], to: &mut Vec<u8>) {
        let Some((kind, rest)) = held.split_last() else { return };
        let (prefix, rest) = match rest.split_first() {
            Some((mark @ b'<'..=b'?', rest)) => (Some(*mark), rest),
            _ => (None, rest),
        };
        let digits = rest.iter().take_while(|byte| **byte >= 0x30).count();
        let (Some(digits), Some(between)) = (rest.get(..digits), rest.get(digits..)) else {
            return;
        };
        if digits.iter().any(|byte| *byte > b';') {
            return;
        }
        let Ok(digits) = std::str::from_utf8(digits) else { return };
        let mut send = |prefix: &str, parameters: &str, between: &str| {
            to.extend(format!("\x1b[{prefix}{parameters}{between}{}", *kind as char).bytes());
        };
        let one = || parse_number(digits.split(';').next().unwrap_or_default());
        let several = digits.contains([';', ':']);
        match (prefix, between, kind) {
            (None, b"", b'A' | b'F') if !several => {
                let most = self.limit_upward(one().max(1));
                if most > 0 {
                    send("", &most.to_string(), "");
                }
            }
            (
                None,
                b"",
                b'B' | b'C' | b'D' | b'E' | b'G' | b'I' | b'K' | b'L' | b'M' | b'P' | b'X' | b'Z'
                | b'@' | b'`' | b'a' | b'b' | b'e' | b'g',
            ) => send("", digits, ""),
            (None, b"", b'J') if !several && one() == 0 => send("", "", ""),
            (None, b"", b'J') if !several && one() <= 2 => {
                self.take_whole_screen(to);
                to.extend(format!("\x1b[{}J", one()).bytes());
            }
            (None, b"", b'H' | b'f' | b'd' | b'r') => {
                self.take_whole_screen(to);
                self.margins |= *kind == b'r' && !self.alternate;
                to.extend(format!("\x1b[{digits}{}", *kind as char).bytes());
            }
            (None, b"", b'S' | b'T') if !several => {
                self.take_whole_screen(to);
                to.extend(format!("\x1b[{digits}{}", *kind as char).bytes());
            }
            (None, b"", b's') if digits.is_empty() => self.save_cursor(to),
            (None, b"", b'u') if digits.is_empty() => self.restore_cursor(to),
            (None, b"", b'm') => {
                if let Some(style) = self.plain_style(digits) {
                    send("", &style, "");
                }
            }
            (None, b"", b'h' | b'l') if digits == "4" => {
                self.switched = true;
                send("", digits, "");
            }
            (Some(b'?'), b"", b'h' | b'l') => self.set_modes(digits, *kind == b'h', to),
            (None, b"", b'n') if matches!(digits, "5" | "6") => send("", digits, ""),
            (None, b"", b'c') if one() == 0 => send("", "", ""),
            (Some(b'>'), b"", b'c') if one() == 0 => send(">", "", ""),
            (Some(b'?'), b"$", b'p') => send("?", digits, "$"),
            (None, b" ", b'q') => {
                self.cursor = one() != 0;
                send("", digits, " ");
            }
            (None, b"!", b'p') => {
                self.saved = None;
                send("", "", "!");
            }
            _ => {}
        }
    }

    /// The colours and weights of a style without concealed text (8). `None` if nothing is
    /// left.
    fn plain_style(&mut self, digits: &str) -> Option<String> {
        let mut kept: Vec<&str> = Vec::new();
        let mut words = digits.split(';');
        while let Some(word) = words.next() {
            let value = parse_number(word.split(':').next().unwrap_or_default());
            if value == 8 {
                continue;
            }
            self.styled = value != 0;
            kept.push(word);
            if matches!(word, "38" | "48" | "58") {
                // The numbers of a colour are no styles.
                let Some(space) = words.next() else { break };
                kept.push(space);
                kept.extend(words.by_ref().take(if space == "2" { 3 } else { 1 }));
            }
        }
        (!kept.is_empty()).then(|| kept.join(";"))
    }

    /// Switches the modes of the list and the alternate screen, and remembers those that
    /// differ from their default. Drops all others.
    fn set_modes(&mut self, digits: &str, on: bool, to: &mut Vec<u8>) {
        for word in digits.split(';') {
            let mode = u16::try_from(parse_number(word)).unwrap_or(0);
            match mode {
                // One way into the alternate screen, which saves the cursor.
                47 | 1047 | 1049 if on != self.alternate => {
                    (self.alternate, self.saved) = (on, None);
                    to.extend(if on { AWAY } else { BACK });
                }
                1048 if on => self.save_cursor(to),
                1048 => self.restore_cursor(to),
                // Origin mode: where lines are counted from.
                6 => {
                    self.take_whole_screen(to);
                    self.margins |= on && !self.alternate;
                    to.extend(if on { b"\x1b[?6h" } else { b"\x1b[?6l" });
                }
                _ => {
                    let Some((_, at_rest)) = MODES.iter().find(|(known, _)| *known == mode) else {
                        continue;
                    };
                    self.changed.retain(|changed| *changed != mode);
                    if on != *at_rest {
                        self.changed.push(mode);
                    }
                    to.extend(format!("\x1b[?{mode}{}", if on { 'h' } else { 'l' }).bytes());
                }
            }
        }
    }
}

/// A missing or too large number counts as 0.
fn parse_number(digits: &str) -> u32 {
    digits.parse().unwrap_or(0)
}

/// Eight-bit controls, and characters that reverse the direction of text.
fn is_misleading(c: char) -> bool {
    matches!(c, '\u{80}'..='\u{9f}') || is_direction_override(c)
}

#[cfg(test)]
mod tests;
