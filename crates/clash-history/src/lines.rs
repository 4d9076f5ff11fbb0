//! The lines of a history: of bounded length, read as JSON.

use std::io::{self, BufRead};

use serde::de::DeserializeOwned;

use crate::Tally;

/// Agents keep large results in files of their own; what is longer is a picture
/// or an accident.
pub(crate) const LONGEST: usize = 8 * 1024 * 1024;

/// Calls `each` with every line that is a `T`.
pub(crate) fn each<T: DeserializeOwned>(
    mut from: impl BufRead,
    tally: &mut Tally,
    mut each: impl FnMut(T) -> std::ops::ControlFlow<()>,
) -> io::Result<std::ops::ControlFlow<()>> {
    let mut line = Vec::new();
    loop {
        line.clear();
        match next(&mut from, &mut line)? {
            Next::End => return Ok(std::ops::ControlFlow::Continue(())),
            Next::TooLong => tally.too_long += 1,
            Next::Line if line.trim_ascii().is_empty() => {}
            Next::Line => match serde_json::from_slice::<T>(&line) {
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

enum Next {
    Line,
    TooLong,
    End,
}

fn next(from: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<Next> {
    let (mut any, mut too_long) = (false, false);
    loop {
        let buffer = match from.fill_buf() {
            Ok(buffer) => buffer,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if buffer.is_empty() {
            return Ok(match (any, too_long) {
                (false, _) => Next::End,
                (true, true) => Next::TooLong,
                (true, false) => Next::Line,
            });
        }
        any = true;
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let part = buffer.get(..end.unwrap_or(buffer.len())).unwrap_or_default();
        too_long |= line.len() + part.len() > LONGEST;
        if !too_long {
            line.extend_from_slice(part);
        }
        let used = end.map_or(buffer.len(), |end| end + 1);
        from.consume(used);
        if end.is_some() {
            return Ok(if too_long { Next::TooLong } else { Next::Line });
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
        text.extend(std::iter::repeat_n(b'x', LONGEST + 1));
        text.extend(b"\n{\"a\":2}");
        #[derive(serde::Deserialize)]
        struct Line {
            a: u8,
        }
        let (mut tally, mut found) = (Tally::default(), Vec::new());
        let read = each(&text[..], &mut tally, |line: Line| {
            found.push(line.a);
            ControlFlow::Continue(())
        });
        assert!(read.is_ok());
        assert_eq!(found, [1, 2]);
        let expected = Tally { broken: 1, foreign: 1, too_long: 1, ..Tally::default() };
        assert_eq!(tally, expected);
    }
}
