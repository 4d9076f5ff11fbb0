//! String literals: their quotes and prefixes, and their values.

/// The prefix and the quotes that open a string literal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QuoteStyle {
    pub(crate) mark: char,
    pub(crate) triple: bool,
    pub(crate) raw: bool,
    pub(crate) bytes: bool,
    pub(crate) format: bool,
    /// Length of prefix and quotes.
    pub(crate) opening: usize,
}

impl QuoteStyle {
    /// The opening of a string literal at an offset; `None` if none begins there.
    pub(crate) fn at(source: &str, at: usize) -> Option<Self> {
        let bytes = source.as_bytes().get(at..)?;
        let prefix = bytes.iter().take(3).position(|b| matches!(b, b'"' | b'\''))?;
        let (raw, of_bytes, format) = match bytes.get(..prefix)? {
            b"" => (false, false, false),
            b"r" => (true, false, false),
            b"b" => (false, true, false),
            b"f" => (false, false, true),
            b"br" | b"rb" => (true, true, false),
            b"fr" | b"rf" => (true, false, true),
            _ => return None,
        };
        let mark = *bytes.get(prefix)?;
        let triple = bytes.get(prefix..prefix + 3) == Some(&[mark; 3]);
        let opening = prefix + if triple { 3 } else { 1 };
        Some(Self { mark: mark.into(), triple, raw, bytes: of_bytes, format, opening })
    }

    /// The number of quotes that close it.
    pub(crate) fn length(self) -> usize {
        if self.triple { 3 } else { 1 }
    }

    /// True if the closing quotes stand at an offset.
    pub(crate) fn closes(self, source: &str, at: usize) -> bool {
        let rest = source.as_bytes().get(at..).unwrap_or_default();
        rest.len() >= self.length()
            && rest.iter().take(self.length()).all(|&b| char::from(b) == self.mark)
    }
}

/// The value of a string literal, read as the evaluator reads it: carriage returns vanish,
/// unknown escapes stay, and a raw string drops the backslash before a quote. `None` for an
/// escape that is cut off or names no character.
pub(crate) fn decode(inside: &str, raw: bool) -> Option<String> {
    let mut value = String::with_capacity(inside.len());
    let mut rest = inside.chars().filter(|c| *c != '\r').peekable();
    while let Some(c) = rest.next() {
        if c != '\\' {
            value.push(c);
            continue;
        }
        let escaped = rest.next()?;
        if raw {
            if !matches!(escaped, '"' | '\'') {
                value.push('\\');
            }
            value.push(escaped);
            continue;
        }
        let mut code = |radix: u32, least: usize, most: usize, mut sum: u32| {
            let mut seen = 0;
            while seen < most
                && let Some(digit) = rest.peek().and_then(|c| c.to_digit(radix))
            {
                sum = sum.checked_mul(radix)?.checked_add(digit)?;
                rest.next();
                seen += 1;
            }
            (seen >= least).then_some(())?;
            char::from_u32(sum)
        };
        match escaped {
            'n' => value.push('\n'),
            'r' => value.push('\r'),
            't' => value.push('\t'),
            'a' => value.push('\x07'),
            'b' => value.push('\x08'),
            'f' => value.push('\x0c'),
            'v' => value.push('\x0b'),
            '\n' => {}
            'x' => value.push(code(16, 2, 2, 0)?),
            'u' => value.push(code(16, 4, 4, 0)?),
            'U' => value.push(code(16, 8, 8, 0)?),
            '0'..='7' => value.push(code(8, 0, 2, escaped.to_digit(8)?)?),
            '"' | '\'' | '\\' => value.push(escaped),
            other => value.extend(['\\', other]),
        }
    }
    Some(value)
}
