//! Compound commands, functions and coprocesses.

use std::rc::Rc;

use super::super::ast::{CommandList, CompoundCommand, RawWord, ScriptNode, WordPart};
use super::grammar::{NOT_CLOSED, UNEXPECTED};
use super::words::WordPlace;
use super::{ParseOutcome, ScriptParser, is_name};

impl ScriptParser<'_> {
    /// A compound command with its redirections. `None` if a simple command begins here.
    pub(super) fn compound(&mut self) -> ParseOutcome<Option<ScriptNode>> {
        self.enter()?;
        let node = self.compound_here()?;
        self.leave();
        Ok(node)
    }

    /// As [`Self::compound`], without the check of the depth.
    fn compound_here(&mut self) -> ParseOutcome<Option<ScriptNode>> {
        self.peek();
        let start = self.at;
        let kind = if self.eat("(") {
            self.parenthesis()?
        } else {
            let Some((word, end)) = self.reserved() else { return Ok(None) };
            self.at = end;
            self.bash_only |= matches!(word, "select" | "[[" | "function" | "coproc");
            match word {
                "{" => {
                    let list = self.list()?;
                    self.takes("}")?;
                    CompoundCommand::Group(list)
                }
                "if" => self.if_command()?,
                "while" | "until" => {
                    let condition = self.list()?;
                    CompoundCommand::Loop { condition, body: self.do_done()? }
                }
                "for" | "select" => self.for_command()?,
                "case" => self.case_command()?,
                "[[" => CompoundCommand::Test(self.test_command()?),
                "function" => return self.function_keyword().map(Some),
                "coproc" => return self.coproc().map(Some),
                // Reserved only inside `for` and `case`.
                "in" => {
                    self.at = start;
                    return Ok(None);
                }
                _ => return Err(UNEXPECTED),
            }
        };
        let mut redirs = Vec::new();
        loop {
            self.blanks();
            match self.redirection()? {
                Some(redir) => redirs.push(redir),
                None => {
                    return Ok(Some(ScriptNode::Compound { kind, redirs, start, end: self.at }));
                }
            }
        }
    }

    /// `((…))`, or a subshell up to its closing parenthesis.
    fn parenthesis(&mut self) -> ParseOutcome<CompoundCommand> {
        if self.eat("(") {
            return Ok(CompoundCommand::Arith(self.arithmetic()?));
        }
        let list = self.list()?;
        self.newlines()?;
        if !self.eat(")") {
            return Err(NOT_CLOSED);
        }
        Ok(CompoundCommand::Subshell(list))
    }

    /// The rest of `if`, up to `fi`.
    fn if_command(&mut self) -> ParseOutcome<CompoundCommand> {
        let mut arms = Vec::new();
        loop {
            let condition = self.list()?;
            self.takes("then")?;
            arms.push((condition, self.list()?));
            self.newlines()?;
            match self.reserved() {
                Some(("elif", end)) => self.at = end,
                Some(("else", end)) => {
                    self.at = end;
                    let otherwise = Some(self.list()?);
                    self.takes("fi")?;
                    return Ok(CompoundCommand::If { arms, otherwise });
                }
                Some(("fi", end)) => {
                    self.at = end;
                    return Ok(CompoundCommand::If { arms, otherwise: None });
                }
                _ => return Err(NOT_CLOSED),
            }
        }
    }

    /// The body of a loop, with `do` and `done`.
    fn do_done(&mut self) -> ParseOutcome<CommandList> {
        self.takes("do")?;
        let body = self.list()?;
        self.takes("done")?;
        Ok(body)
    }

    /// The rest of `for` or `select`, also `for ((…))`.
    fn for_command(&mut self) -> ParseOutcome<CompoundCommand> {
        self.blanks();
        if self.eat("((") {
            let head = self.arithmetic()?;
            self.blanks();
            self.eat(";");
            let body = self.do_done()?;
            return Ok(CompoundCommand::ArithFor { head, body });
        }
        let name = self.word(WordPlace::Argument)?;
        let name = name.bare().filter(|n| is_name(n)).ok_or(UNEXPECTED)?.to_owned();
        self.newlines()?;
        let words = match self.reserved() {
            Some(("in", end)) => {
                self.at = end;
                Some(self.for_words()?)
            }
            _ => {
                self.eat(";");
                None
            }
        };
        let body = self.do_done()?;
        Ok(CompoundCommand::For { name, words, body })
    }

    /// The words behind `in`, with the `;` behind them.
    fn for_words(&mut self) -> ParseOutcome<Vec<RawWord>> {
        let mut words = Vec::new();
        loop {
            self.blanks();
            match self.peek() {
                b';' => {
                    self.at += 1;
                    return Ok(words);
                }
                b'\n' => return Ok(words),
                _ => words.push(self.word(WordPlace::Argument)?),
            }
        }
    }

    /// The rest of `case`, up to `esac`. `;&` and `;;&` count as bash only, and end an arm as
    /// `;;` does.
    fn case_command(&mut self) -> ParseOutcome<CompoundCommand> {
        self.blanks();
        let word = self.word(WordPlace::Argument)?;
        self.takes("in")?;
        let mut arms = Vec::new();
        loop {
            self.newlines()?;
            if let Some(("esac", end)) = self.reserved() {
                self.at = end;
                return Ok(CompoundCommand::Case { word, arms });
            }
            if self.eat("(") {
                self.blanks();
            }
            let patterns = self.patterns()?;
            let body = self.list()?;
            arms.push((patterns, body));
            self.newlines()?;
            if self.eat(";;") {
                if self.eat("&") {
                    self.bash_only = true;
                }
            } else if self.eat(";&") {
                self.bash_only = true;
            } else if !matches!(self.reserved(), Some(("esac", _))) {
                return Err(NOT_CLOSED);
            }
        }
    }

    /// The patterns of an arm of `case`, with the closing parenthesis.
    fn patterns(&mut self) -> ParseOutcome<Vec<RawWord>> {
        let mut patterns = Vec::new();
        loop {
            self.blanks();
            patterns.push(self.word(WordPlace::Pattern)?);
            self.blanks();
            if self.eat(")") {
                return Ok(patterns);
            }
            if !self.eat("|") {
                return Err(UNEXPECTED);
            }
        }
    }

    /// The words of `[[ … ]]`. Operators are quoted words, so that nothing expands them.
    fn test_command(&mut self) -> ParseOutcome<Vec<RawWord>> {
        let mut words: Vec<RawWord> = Vec::new();
        let mut open = 0usize;
        loop {
            self.newlines()?;
            let start = self.at;
            let regex = words.last().and_then(RawWord::bare) == Some("=~");
            let operator = ["&&", "||", "(", ")", "<", ">"].into_iter().find(|operator| {
                let process = matches!(*operator, "<" | ">") && self.sees_process();
                !(process || (regex && *operator == "(")) && self.eat(operator)
            });
            if let Some(operator) = operator {
                match operator {
                    "(" => open += 1,
                    ")" => open = open.checked_sub(1).ok_or(UNEXPECTED)?,
                    _ => {}
                }
                let parts = vec![WordPart::Quoted(operator.to_owned())];
                words.push(RawWord { parts, start, end: self.at });
                continue;
            }
            if matches!(self.peek(), b';' | b'&' | b'|') && !regex {
                return Err(UNEXPECTED);
            }
            let word = self.word(if regex { WordPlace::Regex } else { WordPlace::Pattern })?;
            if word.bare() == Some("]]") {
                return if open == 0 { Ok(words) } else { Err(UNEXPECTED) };
            }
            words.push(word);
        }
    }

    /// `function name`, with or without parentheses.
    fn function_keyword(&mut self) -> ParseOutcome<ScriptNode> {
        self.blanks();
        let name = self.word(WordPlace::Program)?;
        self.blanks();
        if self.eat("(") {
            self.blanks();
            if !self.eat(")") {
                return Err(UNEXPECTED);
            }
        }
        self.function(&name)
    }

    /// The body of a function whose name has been read.
    pub(super) fn function(&mut self, name: &RawWord) -> ParseOutcome<ScriptNode> {
        let name = name.bare().ok_or("the name of a function is not plain")?.to_owned();
        self.newlines()?;
        match self.compound()? {
            Some(body @ ScriptNode::Compound { .. }) => {
                Ok(ScriptNode::Function { name, body: Rc::new(body) })
            }
            _ => Err("the body of a function is no compound command"),
        }
    }

    /// The command of `coproc`, with its name if it has one.
    fn coproc(&mut self) -> ParseOutcome<ScriptNode> {
        self.blanks();
        let start = self.at;
        let mut name = "COPROC".to_owned();
        if self.reserved().is_none() && self.peek() != b'(' {
            let first = self.word(WordPlace::Program)?;
            self.blanks();
            match (first.bare(), self.peek() == b'(' || self.reserved().is_some()) {
                (Some(given), true) if is_name(given) => name = given.to_owned(),
                (_, true) => return Err(UNEXPECTED),
                (_, false) => {
                    self.at = start;
                    return Ok(ScriptNode::Coproc { name, body: Box::new(self.simple()?) });
                }
            }
        }
        match self.compound()? {
            Some(body) => Ok(ScriptNode::Coproc { name, body: Box::new(body) }),
            None => Err(UNEXPECTED),
        }
    }
}
