//! Words, redirections and separators of a shell script. Anything beyond them
//! is an error, which makes the script opaque.

use super::{Redirection, Word};

pub(super) enum Token {
    Word {
        value: Word,
        assignment: Option<String>,
        quoted: bool,
    },
    Redirection(Redirection),
    /// A descriptor made the same as another, or closed.
    Duplication,
    Separator,
}

pub(super) struct Lexer<'a> {
    text: &'a str,
    at: usize,
    token_start: usize,
}

const HERE_DOCUMENT: &str = "it holds a here-document";
const SUBSTITUTION: &str = "it holds a substitution";
/// Joined lines can make any token out of two halves (`$\⏎(`, `ti\⏎me`); between
/// words they are passed over.
const CONTINUATION: &str = "a word goes on in the next line";

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0, token_start: 0 }
    }

    pub(super) fn position(&self) -> usize {
        self.at
    }

    pub(super) fn token_start(&self) -> usize {
        self.token_start
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn bump(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn eat(&mut self, text: &str) -> bool {
        let found = self.rest().starts_with(text);
        if found {
            self.at += text.len();
        }
        found
    }

    pub(super) fn next_token(&mut self) -> Result<Option<Token>, &'static str> {
        self.skip_blanks();
        self.token_start = self.at;
        let Some(c) = self.peek() else { return Ok(None) };
        match c {
            '#' => {
                let comment = self.rest().find('\n').unwrap_or(self.rest().len());
                self.at += comment;
                Ok(Some(Token::Separator))
            }
            '&' if self.eat("&>>") || self.eat("&>") => {
                self.redirection_target(true, false).map(Some)
            }
            '\n' | ';' | '&' | '|' => {
                if self.eat(";;") {
                    return Err("it holds a compound command");
                }
                let _ = self.eat("&&") || self.eat("||") || self.eat("|&") || self.bump().is_some();
                Ok(Some(Token::Separator))
            }
            '(' | ')' => Err("it holds a subshell or a function"),
            '<' | '>' => self.redirection().map(Some),
            '0'..='9' if self.number_before_redirection() => self.redirection().map(Some),
            _ => self.word().map(Some),
        }
    }

    fn skip_blanks(&mut self) {
        while self.eat(" ") || self.eat("\t") || self.eat("\\\n") {}
    }

    fn number_before_redirection(&mut self) -> bool {
        let digits = self.rest().bytes().take_while(u8::is_ascii_digit).count();
        let found = matches!(self.rest().as_bytes().get(digits), Some(b'<' | b'>'));
        if found {
            self.at += digits;
        }
        found
    }

    fn redirection(&mut self) -> Result<Token, &'static str> {
        if self.eat("<<") {
            return Err(HERE_DOCUMENT);
        }
        if self.rest().starts_with("<(") || self.rest().starts_with(">(") {
            return Err(SUBSTITUTION);
        }
        if self.eat(">&") {
            return self.redirection_target(true, true);
        }
        if self.eat("<&") {
            return self.redirection_target(false, true);
        }
        let writes = self.eat("<>") || self.eat(">>") || self.eat(">|") || self.eat(">");
        if !writes {
            self.eat("<");
        }
        self.redirection_target(writes, false)
    }

    fn redirection_target(
        &mut self,
        writes: bool,
        duplicates: bool,
    ) -> Result<Token, &'static str> {
        self.skip_blanks();
        match self.peek() {
            None | Some('\n' | ';' | '&' | '|' | '<' | '>' | '(' | ')') => {
                Err("a redirection has no target")
            }
            Some(_) => match self.word()? {
                // `2>&1`, `>&-`: a descriptor and no file.
                Token::Word { value: Word::Known(fd), .. }
                    if duplicates && fd.bytes().all(|b| b.is_ascii_digit() || b == b'-') =>
                {
                    Ok(Token::Duplication)
                }
                Token::Word { value, .. } => {
                    Ok(Token::Redirection(Redirection { target: value, writes }))
                }
                other => Ok(other),
            },
        }
    }

    fn word(&mut self) -> Result<Token, &'static str> {
        let mut text = String::new();
        let mut known = true;
        let mut quoted = false;
        let mut assignment = None;
        while let Some(c) = self.peek() {
            match c {
                ' ' | '\t' | '\n' | ';' | '&' | '|' | '<' | '>' | ')' => break,
                '(' => return Err("it holds a subshell or a function"),
                '`' => return Err(SUBSTITUTION),
                '\'' => {
                    quoted = true;
                    self.single_quoted(&mut text)?;
                }
                '"' => {
                    quoted = true;
                    known &= self.double_quoted(&mut text)?;
                }
                '\\' => {
                    self.bump();
                    quoted = true;
                    match self.bump() {
                        Some('\n') => return Err(CONTINUATION),
                        Some(escaped) => text.push(escaped),
                        None => return Err("it ends in a backslash"),
                    }
                }
                '$' => {
                    self.dollar()?;
                    known = false;
                }
                '=' | '+'
                    if assignment.is_none() && !quoted && is_name(&text) && self.assigns() =>
                {
                    assignment = Some(text.clone());
                    let _ = self.eat("+");
                    let _ = self.eat("=");
                    text.push('=');
                }
                '*' | '?' | '[' | '{' | '}' | '~' | '^' => {
                    if c == '[' && !text.is_empty() {
                        // `a[i]=1` evaluates its index.
                        return Err("it holds an array subscript or a pattern");
                    }
                    self.bump();
                    text.push(c);
                    known &= is_plain_alone(c, &text, self.peek());
                }
                _ => {
                    self.bump();
                    text.push(c);
                }
            }
        }
        let value = if known { Word::Known(text) } else { Word::Unknown };
        Ok(Token::Word { value, assignment, quoted })
    }

    fn single_quoted(&mut self, text: &mut String) -> Result<(), &'static str> {
        self.bump();
        loop {
            match self.bump() {
                None => return Err("a quote is not closed"),
                Some('\'') => return Ok(()),
                Some(c) => text.push(c),
            }
        }
    }

    /// Whether everything inside was known.
    fn double_quoted(&mut self, text: &mut String) -> Result<bool, &'static str> {
        self.bump();
        let mut known = true;
        loop {
            match self.peek() {
                None => return Err("a quote is not closed"),
                Some('"') => {
                    self.bump();
                    return Ok(known);
                }
                Some('`') => return Err(SUBSTITUTION),
                Some('$') => {
                    self.dollar()?;
                    known = false;
                }
                Some('\\') => {
                    self.bump();
                    match self.bump() {
                        Some('\n') => return Err(CONTINUATION),
                        Some(c @ ('$' | '`' | '"' | '\\')) => text.push(c),
                        Some(c) => {
                            text.push('\\');
                            text.push(c);
                        }
                        None => return Err("a quote is not closed"),
                    }
                }
                Some(c) => {
                    self.bump();
                    text.push(c);
                }
            }
        }
    }

    /// A `$` and what belongs to it; only plain parameters are passed over.
    /// Everything else between braces may evaluate what it finds.
    fn dollar(&mut self) -> Result<(), &'static str> {
        self.bump();
        match self.peek() {
            Some('(' | '[') => Err(SUBSTITUTION),
            Some('\'' | '"') => Err("it holds a translated or escaped string"),
            Some('{') => {
                self.bump();
                let end = self.rest().find('}').ok_or("a parameter is not closed")?;
                let name = self.rest().get(..end).unwrap_or_default();
                let positional = name.len() == 1 && name.bytes().all(|b| b.is_ascii_digit());
                if !is_name(name) && !positional {
                    return Err(SUBSTITUTION);
                }
                self.at += end + 1;
                Ok(())
            }
            // One character belongs to it, whatever would follow.
            Some('$' | '@' | '*' | '#' | '?' | '!' | '-' | '0'..='9') => {
                self.bump();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Whether an assignment's `=` or `+=` stands here.
    fn assigns(&self) -> bool {
        self.rest().starts_with('=') || self.rest().starts_with("+=")
    }
}

fn is_name(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// `[` is the test command, `{` and `}` alone are reserved words, `^` and `~`
/// mean something only in places; everything else here expands.
fn is_plain_alone(c: char, text: &str, next: Option<char>) -> bool {
    let ends = next.is_none_or(|n| n.is_ascii_whitespace());
    match c {
        '[' | '{' | '}' => text.chars().count() == 1 && ends,
        '~' | '^' => text.chars().count() > 1,
        _ => false,
    }
}
