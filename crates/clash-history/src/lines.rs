//! Reads the lines of a history as JSON, up to a longest line.

use std::io::{self, BufRead};

use serde::de::DeserializeOwned;

use crate::ReadTally;

/// Agents keep large results in other files. A longer line holds a picture or is damaged.
pub(crate) const MAX_LINE_BYTES: usize = 8 * 1024 * 1024;

/// Calls `each` with every line that is a `T`, until it breaks. Other lines are counted and
/// skipped, empty ones only skipped.
pub(crate) fn each<T: DeserializeOwned>(
    mut from: impl BufRead,
    tally: &mut ReadTally,
    mut each: impl FnMut(T) -> std::ops::ControlFlow<()>,
) -> io::Result<std::ops::ControlFlow<()>> {
    let mut line = Vec::new();
    loop {
        line.clear();
        match next(&mut from, &mut line)? {
            NextLine::End => return Ok(std::ops::ControlFlow::Continue(())),
            NextLine::TooLong => tally.too_long += 1,
            NextLine::Line if line.trim_ascii().is_empty() => {}
            NextLine::Line => match serde_json::from_slice::<T>(&line) {
                Ok(value) => {
                    if each(value).is_break() {
                        return Ok(std::ops::ControlFlow::Break(()));
                    }
                }
                Err(error) if error.is_data() => tally.foreign += 1,
                Err(_) => tally.broken += 1,
            },
        }
    }
}

enum NextLine {
    Line,
    TooLong,
    End,
}

/// Reads one line without its end. Of a line over [`MAX_LINE_BYTES`], the content is
/// dropped.
fn next(from: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<NextLine> {
    let (mut any, mut too_long) = (false, false);
    loop {
        let buffer = match from.fill_buf() {
            Ok(buffer) => buffer,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if buffer.is_empty() {
            return Ok(match (any, too_long) {
                (false, _) => NextLine::End,
                (true, true) => NextLine::TooLong,
                (true, false) => NextLine::Line,
            });
        }
        any = true;
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let part = buffer.get(..end.unwrap_or(buffer.len())).unwrap_or_default();
        too_long |= line.len() + part.len() > MAX_LINE_BYTES;
        if !too_long {
            line.extend_from_slice(part);
        }
        let used = end.map_or(buffer.len(), |end| end + 1);
        from.consume(used);
        if end.is_some() {
            return Ok(if too_long { NextLine::TooLong } else { NextLine::Line });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::ControlFlow;

    #[test]
    fn torn_foreign_and_endless_lines_take_nothing_with_them() {
        let mut text = b"{\"a\":1}\n{\"a\":\n\n[]\n".to_vec();
        text.extend(std::iter::repeat_n(b'x', MAX_LINE_BYTES + 1));
        text.extend(b"\n{\"a\":2}");
        #[derive(serde::Deserialize)]
        struct SmallLine {
            a: u8,
        }
        let (mut tally, mut found) = (ReadTally::default(), Vec::new());
        let read = each(&text[..], &mut tally, |line: SmallLine| {
            found.push(line.a);
            ControlFlow::Continue(())
        });
        assert!(read.is_ok());
        assert_eq!(found, [1, 2]);
        let expected = ReadTally { broken: 1, foreign: 1, too_long: 1, ..ReadTally::default() };
        assert_eq!(tally, expected);
    }
}
