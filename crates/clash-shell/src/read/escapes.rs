//! `$'…'`: text in which a backslash spells a byte.

use super::super::ast::WordPart;
use super::words::push_quoted;
use super::{ParseOutcome, ScriptParser, UNCLOSED};

const ODD_ESCAPE: &str = "it holds an escape that is not understood";

impl ScriptParser<'_> {
    /// The text up to the closing quote, with all escapes as bytes. It must be UTF-8.
    pub(super) fn escaped_string(&mut self, parts: &mut Vec<WordPart>) -> ParseOutcome<()> {
        let mut bytes = Vec::new();
        loop {
            match self.byte(self.at) {
                0 => return Err(UNCLOSED),
                b'\'' => break,
                b'\\' => {
                    self.at += 1;
                    self.escape(&mut bytes)?;
                }
                b => {
                    bytes.push(b);
                    self.at += 1;
                }
            }
        }
        self.at += 1;
        let text = String::from_utf8(bytes).map_err(|_| "an escape gives no text")?;
        push_quoted(parts, &text);
        Ok(())
    }

    /// The byte or character behind a backslash. A zero byte and an unknown letter are
    /// errors.
    fn escape(&mut self, bytes: &mut Vec<u8>) -> ParseOutcome<()> {
        let b = self.byte(self.at);
        self.at += 1;
        let simple = match b {
            b'a' => 7,
            b'b' => 8,
            b'e' | b'E' => 27,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'v' => 11,
            b'\\' | b'\'' | b'"' | b'?' => b,
            b'0'..=b'7' => {
                self.at -= 1;
                let value = self.digits(8, 3);
                return match u8::try_from(value & 0xff) {
                    Ok(0) | Err(_) => Err(ODD_ESCAPE),
                    Ok(byte) => {
                        bytes.push(byte);
                        Ok(())
                    }
                };
            }
            b'x' | b'u' | b'U' => {
                let most = match b {
                    b'x' => 2,
                    b'u' => 4,
                    _ => 8,
                };
                let value = self.digits(16, most);
                if b == b'x' {
                    bytes.push(u8::try_from(value).ok().filter(|v| *v != 0).ok_or(ODD_ESCAPE)?);
                } else {
                    let c = char::from_u32(value).filter(|c| *c != '\0').ok_or(ODD_ESCAPE)?;
                    bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                }
                return Ok(());
            }
            _ => return Err(ODD_ESCAPE),
        };
        bytes.push(simple);
        Ok(())
    }

    /// A number of at most `most` digits; 0 if there is none.
    fn digits(&mut self, radix: u32, most: usize) -> u32 {
        let mut value = 0u32;
        for _ in 0..most {
            let Some(digit) = char::from(self.byte(self.at)).to_digit(radix) else { break };
            value = value.wrapping_mul(radix) + digit;
            self.at += 1;
        }
        value
    }
}
