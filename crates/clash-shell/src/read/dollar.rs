//! Expansions that begin with `$` or a backtick: parameters, substitutions, arithmetic.

use super::super::ast::{ExpansionOperation, ParameterExpansion, SubstitutionBody, WordPart};
use super::words::push_quoted;
use super::{ParseOutcome, ScriptParser, UNCLOSED, is_meta, parse};

const ODD_EXPANSION: &str = "it holds an expansion that is not understood";

impl ScriptParser<'_> {
    /// An expansion that begins with `$`. A `$` that begins none is text. `quoted`: it
    /// stands inside double quotes.
    pub(super) fn dollar(&mut self, parts: &mut Vec<WordPart>, quoted: bool) -> ParseOutcome<()> {
        self.at += 1;
        let b = self.peek();
        match b {
            b'(' => {
                self.at += 1;
                if self.peek() == b'(' {
                    self.at += 1;
                    parts.push(WordPart::Arith { parts: self.arithmetic()? });
                } else {
                    parts.push(WordPart::Command {
                        body: SubstitutionBody::Here(self.nested_list()?),
                        quoted,
                    });
                }
            }
            b'{' => {
                self.at += 1;
                let part = self.braces(quoted)?;
                parts.push(part);
            }
            b'[' => return Err("it holds arithmetic in square brackets"),
            b'\'' if !quoted => {
                self.bash_only = true;
                self.at += 1;
                self.escaped_string(parts)?;
            }
            b'"' if !quoted => {
                self.bash_only = true;
                self.at += 1;
                self.double_quoted(parts)?;
            }
            b'@' | b'*' | b'#' | b'?' | b'-' | b'$' | b'!' | b'0'..=b'9' => {
                let name = char::from(b).to_string();
                self.at += 1;
                parts.push(WordPart::Param { name, quoted });
            }
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => {
                let name = self.name();
                parts.push(WordPart::Param { name, quoted });
            }
            _ => push_quoted(parts, "$"),
        }
        Ok(())
    }

    /// The text between `${` and `}`.
    fn braces(&mut self, quoted: bool) -> ParseOutcome<WordPart> {
        self.enter()?;
        let first = self.peek();
        let mut prefix = 0;
        if matches!(first, b'#' | b'!') && self.byte(self.joined(self.at + 1)) != b'}' {
            prefix = first;
            self.at += 1;
        }
        let name = match self.peek() {
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => self.name(),
            b'0'..=b'9' => self.run(|b| b.is_ascii_digit()).to_owned(),
            b @ (b'@' | b'*' | b'#' | b'?' | b'-' | b'$' | b'!') => {
                self.at += 1;
                char::from(b).to_string()
            }
            _ => return Err(ODD_EXPANSION),
        };
        let mut subscript = None;
        if self.peek() == b'[' {
            self.bash_only = true;
            self.at += 1;
            subscript = Some(self.subscript()?);
        }
        let operation = match (prefix, self.peek()) {
            (0, b'}') => ExpansionOperation::None,
            (b'#', b'}') => ExpansionOperation::Length,
            (b'!', b'}') if subscript.is_some() => ExpansionOperation::Names,
            (b'!', b'}') => ExpansionOperation::Indirect,
            (b'!', b'@' | b'*') => {
                self.at += 1;
                if self.peek() != b'}' {
                    return Err("it evaluates the value of a variable");
                }
                ExpansionOperation::Names
            }
            (0, _) => self.operation(quoted)?,
            _ => return Err(ODD_EXPANSION),
        };
        if self.peek() != b'}' {
            return Err(ODD_EXPANSION);
        }
        self.at += 1;
        self.leave();
        if subscript.is_none() && matches!(operation, ExpansionOperation::None) {
            return Ok(WordPart::Param { name, quoted });
        }
        Ok(WordPart::Expansion(Box::new(ParameterExpansion { name, quoted, subscript, operation })))
    }

    /// The operator behind the name, with its word.
    fn operation(&mut self, quoted: bool) -> ParseOutcome<ExpansionOperation> {
        let first = self.peek();
        self.at += 1;
        let colon = first == b':';
        let operator = match self.peek() {
            b @ (b'-' | b'=' | b'?' | b'+') if colon => {
                self.at += 1;
                b
            }
            _ => first,
        };
        self.bash_only |= matches!(operator, b':' | b'/' | b'^' | b',' | b'@');
        Ok(match operator {
            b'-' | b'+' | b'?' => ExpansionOperation::Default {
                test: operator,
                empty_too: colon,
                word: self.brace_word(quoted, false)?,
            },
            b'=' => ExpansionOperation::Assign { word: self.brace_word(quoted, false)? },
            b':' => ExpansionOperation::Slice(self.brace_word(true, true)?),
            b'#' | b'%' | b'/' | b'^' | b',' => {
                ExpansionOperation::Edit(self.brace_word(quoted, true)?)
            }
            b'@' => {
                let which = self.peek();
                self.at += 1;
                ExpansionOperation::Transform(which)
            }
            _ => return Err(ODD_EXPANSION),
        })
    }

    /// The word of an expansion, up to its closing brace, which stays. `pattern`: a single
    /// quote quotes even inside double quotes.
    fn brace_word(&mut self, quoted: bool, pattern: bool) -> ParseOutcome<Vec<WordPart>> {
        let mut parts = Vec::new();
        loop {
            match self.peek() {
                0 => return Err(UNCLOSED),
                b'}' => return Ok(parts),
                b'{' => return Err("it holds braces in an expansion"),
                // It quotes or not depending on the mode of bash.
                b'\'' if quoted && !pattern => {
                    return Err("it holds a quote inside a quoted expansion");
                }
                b'\\' if quoted => {
                    // With or without the backslash, the character starts no expansion.
                    self.at += 1;
                    push_quoted(&mut parts, self.character().ok_or(UNCLOSED)?);
                }
                b'$' => self.dollar(&mut parts, quoted)?,
                b'`' => self.backticks(&mut parts, quoted)?,
                b'<' | b'>' if self.sees_process() => {
                    return Err("it holds a process substitution inside an expansion");
                }
                b if is_meta(b) => self.literal(&mut parts),
                _ => self.piece(&mut parts)?,
            }
        }
    }

    /// A substitution between backticks, parsed as a text of its own.
    pub(super) fn backticks(
        &mut self,
        parts: &mut Vec<WordPart>,
        quoted: bool,
    ) -> ParseOutcome<()> {
        self.at += 1;
        let start = self.at;
        let mut escaped = false;
        loop {
            match self.byte(self.at) {
                0 => return Err(UNCLOSED),
                b'`' => break,
                b'\\' => {
                    escaped = true;
                    self.at += 2;
                }
                _ => self.at += 1,
            }
        }
        let end = self.at;
        if !self.pending.is_empty() && self.slice(start, end).contains('\n') {
            return Err("a substitution stands between a here-document and its text");
        }
        self.enter()?;
        let body = if escaped {
            let text = unescape_backticks(self.slice(start, end), quoted);
            let script = parse(&text, self.depth + 1)?;
            self.bash_only |= script.bash_only;
            SubstitutionBody::Unescaped(Box::new(script))
        } else {
            let mut inner = self.within(start, end);
            let list = inner.whole()?;
            self.bash_only |= inner.bash_only;
            SubstitutionBody::Here(list)
        };
        self.leave();
        self.at = end + 1;
        parts.push(WordPart::Command { body, quoted });
        Ok(())
    }

    /// `$((…))`, `((…))`: up to both closing parentheses.
    pub(super) fn arithmetic(&mut self) -> ParseOutcome<Vec<WordPart>> {
        self.bash_only = true;
        let mut parts = Vec::new();
        let mut open = 0usize;
        self.enter()?;
        loop {
            match self.peek() {
                0 => return Err(UNCLOSED),
                b')' if open > 0 => {
                    open -= 1;
                    self.literal(&mut parts);
                }
                b')' => {
                    if !self.eat("))") {
                        return Err("it could be arithmetic or a subshell");
                    }
                    self.leave();
                    return Ok(parts);
                }
                b'(' => {
                    open += 1;
                    self.literal(&mut parts);
                }
                _ => self.arithmetic_piece(&mut parts)?,
            }
        }
    }

    /// One piece of arithmetic. Single quotes, backslashes, braces, and a `#` other than in
    /// `16#ff`, are errors.
    fn arithmetic_piece(&mut self, parts: &mut Vec<WordPart>) -> ParseOutcome<()> {
        match self.peek() {
            b'\'' | b'\\' | b'#' => {
                // A base (`16#ff`) is the only use of these that is analysed.
                let base = self.byte(self.at) == b'#'
                    && self.at.checked_sub(1).is_some_and(|at| self.byte(at).is_ascii_digit());
                if !base {
                    return Err("its arithmetic holds quotes");
                }
                self.literal(parts);
                Ok(())
            }
            b'"' => {
                self.at += 1;
                self.double_quoted(parts)
            }
            b'$' => self.dollar(parts, true),
            b'`' => self.backticks(parts, true),
            b'{' | b'}' => Err("its arithmetic holds braces"),
            _ => {
                self.plain(parts, |b| {
                    !matches!(b, b'(' | b')' | b'\'' | b'\\' | b'#' | b'"' | b'$' | b'`')
                        && !matches!(b, b'[' | b']' | b'{' | b'}')
                });
                Ok(())
            }
        }
    }

    /// A subscript from behind its opening bracket through the closing one.
    pub(super) fn subscript(&mut self) -> ParseOutcome<Vec<WordPart>> {
        let mut parts = Vec::new();
        let mut open = 0usize;
        self.enter()?;
        loop {
            match self.peek() {
                0 => return Err(UNCLOSED),
                b'[' => {
                    open += 1;
                    self.literal(&mut parts);
                }
                b']' if open == 0 => {
                    self.at += 1;
                    self.leave();
                    return Ok(parts);
                }
                b']' => {
                    open -= 1;
                    self.literal(&mut parts);
                }
                b' ' | b'\t' => self.literal(&mut parts),
                b if is_meta(b) => return Err("a subscript holds an operator"),
                _ => self.piece(&mut parts)?,
            }
        }
    }
}

/// The text between backticks as the inner shell reads it: without the backslash before
/// `$`, a backtick or a backslash, and before a double quote if the substitution is quoted.
fn unescape_backticks(text: &str, quoted: bool) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let dropped = c == '\\'
            && chars.peek().is_some_and(|n| matches!(n, '$' | '`' | '\\') || (quoted && *n == '"'));
        if dropped {
            plain.extend(chars.next());
        } else {
            plain.push(c);
        }
    }
    plain
}
