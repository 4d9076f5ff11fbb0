//! The grammar above commands: lists, chains and pipelines, and the reserved
//! words that begin and end them.

use super::super::ast::{AndOrList, CommandList, ListOperator, PipelineNode, ScriptNode};
use super::{ParseOutcome, ScriptParser, is_meta};

pub(super) const UNEXPECTED: &str = "a word or operator stands where none is expected";
pub(super) const NOT_CLOSED: &str = "a compound command is not closed";

pub(in super::super) const RESERVED: &[&str] = &[
    "!", "{", "}", "[[", "case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for",
    "function", "if", "select", "then", "time", "until", "while", "in",
];

impl ScriptParser<'_> {
    /// A list that goes on to the end of the text.
    pub(super) fn whole(&mut self) -> ParseOutcome<CommandList> {
        let list = self.list()?;
        if self.at < self.text.len() {
            return Err(UNEXPECTED);
        }
        if !self.pending.is_empty() {
            return Err("a here-document is not closed");
        }
        Ok(list)
    }

    /// Blanks, comments and newlines, with the here-documents after them.
    pub(super) fn newlines(&mut self) -> ParseOutcome<()> {
        loop {
            self.blanks();
            if self.peek() != b'\n' {
                return Ok(());
            }
            self.at += 1;
            self.read_heredocs()?;
        }
    }

    /// The reserved word at the current position, with the position behind it.
    pub(super) fn reserved(&mut self) -> Option<(&'static str, usize)> {
        let first = self.peek();
        if !(first.is_ascii_lowercase() || matches!(first, b'!' | b'{' | b'}' | b'[')) {
            return None;
        }
        let start = self.at;
        let likely = RESERVED.iter().filter(|word| word.as_bytes().first() == Some(&first));
        let found = likely.into_iter().find_map(|word| {
            self.at = start;
            (self.eat(word) && self.ends_word()).then_some((*word, self.at))
        });
        self.at = start;
        found
    }

    /// True at the end of the text and before a byte that ends a word.
    pub(super) fn ends_word(&mut self) -> bool {
        let b = self.peek();
        b == 0 || is_meta(b)
    }

    /// Skips newlines and this reserved word; an error if another word comes next.
    pub(super) fn takes(&mut self, word: &str) -> ParseOutcome<()> {
        self.newlines()?;
        match self.reserved() {
            Some((found, end)) if found == word => {
                self.at = end;
                Ok(())
            }
            _ => Err(NOT_CLOSED),
        }
    }

    /// True if no further command of this list follows: at the end of the text, before `)`,
    /// `;;`, `;&`, `}` and words such as `then` or `done`.
    fn at_list_end(&mut self) -> bool {
        if matches!(self.peek(), 0 | b')') || self.sees(";;") || self.sees(";&") {
            return true;
        }
        let end = ["then", "do", "done", "fi", "elif", "else", "esac", "}"];
        self.reserved().is_some_and(|(word, _)| end.contains(&word))
    }

    /// Commands up to the end of a list, which stays. May be empty.
    pub(super) fn list(&mut self) -> ParseOutcome<CommandList> {
        let mut chains = Vec::new();
        loop {
            self.newlines()?;
            if self.at_list_end() {
                break;
            }
            let mut chain = self.chain()?;
            self.blanks();
            let b = self.peek();
            let (ends, goes_on) = match b {
                b';' if self.sees(";;") || self.sees(";&") => (true, false),
                b';' => (false, true),
                b'&' if self.sees("&&") => return Err(UNEXPECTED),
                b'&' => {
                    chain.background = true;
                    (false, true)
                }
                b'\n' => (false, false),
                _ => (true, false),
            };
            chains.push(chain);
            if goes_on {
                self.at += 1;
            } else if ends {
                break;
            }
        }
        Ok(CommandList { chains })
    }

    /// Pipelines joined by `&&` and `||`.
    fn chain(&mut self) -> ParseOutcome<AndOrList> {
        let mut links = vec![(ListOperator::First, self.pipeline()?)];
        loop {
            self.blanks();
            let join = if self.eat("&&") {
                ListOperator::And
            } else if self.eat("||") {
                ListOperator::Or
            } else {
                return Ok(AndOrList { links, background: false });
            };
            self.newlines()?;
            links.push((join, self.pipeline()?));
        }
    }

    /// Commands joined by `|` or `|&`, with `!` and `time` in front.
    fn pipeline(&mut self) -> ParseOutcome<PipelineNode> {
        if self.prefixes()? && (self.at_list_end() || matches!(self.peek(), b'\n' | b';')) {
            return Ok(PipelineNode::default());
        }
        let mut nodes = vec![self.command()?];
        loop {
            self.blanks();
            if self.sees("||") || !self.eat("|") {
                return Ok(PipelineNode { nodes });
            }
            if self.eat("&") {
                self.bash_only = true;
            }
            self.newlines()?;
            nodes.push(self.command()?);
        }
    }

    /// Skips `!` and `time` in front of a pipeline. True if there were any.
    fn prefixes(&mut self) -> ParseOutcome<bool> {
        let mut any = false;
        loop {
            self.blanks();
            match self.reserved() {
                Some(("!", end)) => {
                    self.at = end;
                    // With `extglob` it is a pattern.
                    if self.peek() == b'(' {
                        return Err("it could be a pattern or a subshell");
                    }
                }
                Some(("time", end)) => {
                    self.bash_only = true;
                    self.at = end;
                    for option in ["-p", "--"] {
                        self.blanks();
                        let start = self.at;
                        if !(self.eat(option) && self.ends_word()) {
                            self.at = start;
                        }
                    }
                }
                _ => return Ok(any),
            }
            any = true;
        }
    }

    /// One compound or simple command.
    fn command(&mut self) -> ParseOutcome<ScriptNode> {
        self.enter()?;
        self.blanks();
        let node = match self.compound()? {
            Some(node) => node,
            None => self.simple()?,
        };
        self.leave();
        Ok(node)
    }
}
