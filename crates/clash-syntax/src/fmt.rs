//! The formatter. One style and no options: four spaces, a hundred columns,
//! double quotes, one entry per line with a comma after the last wherever a
//! bracket does not fit on its line or was already written that way.
//!
//! Only spaces, line ends, optional commas, the quotes of plain strings and the order of
//! loaded names change. If the style has no line for a comment, the expression around it
//! stays as written.

use crate::error::SyntaxError;
use crate::layout::{INDENT_COLUMNS, render};
use crate::lex::{ByteSpan, TokenKind};
use crate::tree::{IfBranch, SourceStatement, StatementKind, SyntaxTree};

mod expr;

/// The source in the one style. Formatting twice changes nothing more.
pub fn format(source: &str) -> Result<String, SyntaxError> {
    let file = SyntaxTree::parse(source)?;
    let mut formatter = SourceFormatter::new(&file);
    let end = formatter.block(file.statements(), BlockLayout { indent: 0, from: 0, outer: None });
    formatter.comments_up_to(source.len(), end, 0);
    let mut out = formatter.out;
    if !out.is_empty() {
        out.push('\n');
    }
    Ok(out)
}

struct SourceFormatter<'a> {
    file: &'a SyntaxTree,
    comments: Vec<FoundComment>,
    /// The number of comments that are written so far.
    placed: usize,
    /// The number of open brackets. A line may only break inside a bracket.
    brackets: usize,
    out: String,
    /// True after a top-level `def`.
    after_def: bool,
    /// True after the line that opens a block.
    opened: bool,
}

struct FoundComment {
    span: ByteSpan,
    /// True if the comment has a line of its own.
    alone: bool,
}

#[derive(Clone, Copy)]
struct BlockLayout {
    indent: usize,
    /// The end of the text before the first statement.
    from: usize,
    /// The source column of the statement this block belongs to.
    outer: Option<usize>,
}

impl<'a> SourceFormatter<'a> {
    fn new(file: &'a SyntaxTree) -> Self {
        let mut comments = Vec::new();
        let mut alone = true;
        for token in file.tokens() {
            match token.kind {
                TokenKind::Comment => comments.push(FoundComment { span: token.span, alone }),
                TokenKind::Break | TokenKind::Newline => alone = true,
                TokenKind::Space | TokenKind::Indent | TokenKind::Dedent => {}
                _ => alone = false,
            }
        }
        Self {
            file,
            comments,
            placed: 0,
            brackets: 0,
            out: String::new(),
            after_def: false,
            opened: false,
        }
    }

    // Statements.

    /// Writes the statements and returns the source offset written up to.
    fn block(&mut self, statements: &[SourceStatement], block: BlockLayout) -> usize {
        let mut end = block.from;
        let mut same_line = false;
        for statement in statements {
            if same_line {
                self.out.push(' ');
            } else {
                self.lead(statement, end, block);
            }
            end = self.statement(statement, block.indent);
            if statement.semicolon {
                self.out.push(';');
            }
            same_line = statement.semicolon && self.continues(end);
            if !same_line {
                end = self.trail(end);
            }
            let is_def = matches!(statement.kind, StatementKind::Def { .. });
            self.after_def = is_def && block.outer.is_none();
        }
        match block.outer {
            Some(column) => self.comments_in_block(end, block.indent, column),
            None => end,
        }
    }

    /// True if another statement follows on the line that ends at `end`.
    fn continues(&self, end: usize) -> bool {
        let from = self.file.tokens().partition_point(|token| token.span.start < end);
        let rest = self.file.tokens().get(from..).unwrap_or_default();
        let next =
            rest.iter().find(|token| !token.kind.is_trivia() && self.file.text(token.span) != ";");
        next.is_some_and(|token| token.kind != TokenKind::Newline)
    }

    /// Writes the comments before a statement, and begins its line.
    fn lead(&mut self, statement: &SourceStatement, end: usize, block: BlockLayout) {
        let start = statement.span.start;
        let comments = self.between(end, start);
        // Comments that stand right above a `def` belong to it.
        let mut attached = comments.end;
        while attached > comments.start && !self.blank_before(self.start_of(attached, start)) {
            attached -= 1;
        }
        let is_def = matches!(statement.kind, StatementKind::Def { .. }) && block.outer.is_none();
        for at in comments.clone() {
            let apart = is_def && at == attached;
            self.comment_line(at, block.indent, apart);
        }
        self.new_line(block.indent, self.blank_before(start), is_def && attached == comments.end);
    }

    /// The start of a comment by its number; `otherwise` if there is none or it comes
    /// later.
    fn start_of(&self, comment: usize, otherwise: usize) -> usize {
        self.comments.get(comment).map_or(otherwise, |c| c.span.start.min(otherwise))
    }

    /// Writes a comment on a line of its own.
    fn comment_line(&mut self, at: usize, indent: usize, apart: bool) {
        let Some(span) = self.comments.get(at).map(|comment| comment.span) else { return };
        self.new_line(indent, self.blank_before(span.start), apart);
        let text = self.file.text(span).trim_end();
        self.out.push_str(text);
        self.placed += 1;
    }

    /// Begins a line. An empty line of the source stays, except right behind the head of a
    /// block. With `apart`, and behind a top-level `def`, it writes two empty lines.
    fn new_line(&mut self, indent: usize, blank: bool, apart: bool) {
        let apart = apart || std::mem::take(&mut self.after_def);
        let opened = std::mem::take(&mut self.opened);
        if !self.out.is_empty() {
            self.out.push_str(match (apart, blank) {
                (true, _) => "\n\n\n",
                (false, true) if !opened => "\n\n",
                _ => "\n",
            });
        }
        self.out.extend(std::iter::repeat_n(' ', indent));
    }

    /// Writes the comment behind a statement, on its line, and returns the source offset
    /// behind it.
    fn trail(&mut self, end: usize) -> usize {
        let next = self.comments.partition_point(|comment| comment.span.start < end);
        let Some(comment) = self.comments.get(next) else { return end };
        let between = ByteSpan::new(end, comment.span.start).text_in(self.file.source());
        if comment.alone || !between.trim_matches([' ', '\t', ';']).is_empty() {
            return end;
        }
        let span = comment.span;
        self.out.push_str("  ");
        self.out.push_str(self.file.text(span).trim_end());
        self.placed += 1;
        span.end
    }

    /// Writes comments below the last statement of a block that are indented with it, and
    /// returns the source offset behind them.
    fn comments_in_block(&mut self, end: usize, indent: usize, outer: usize) -> usize {
        let mut end = end;
        let mut at = self.comments.partition_point(|comment| comment.span.start < end);
        while let Some(comment) = self.comments.get(at) {
            let span = comment.span;
            let between = ByteSpan::new(end, span.start).text_in(self.file.source());
            if !between.trim_matches([' ', '\t', '\r', '\n', ';', '\\']).is_empty()
                || self.column(span.start) <= outer
            {
                break;
            }
            self.comment_line(at, indent, false);
            end = span.end;
            at += 1;
        }
        end
    }

    /// Writes the comments between two offsets, each on its own line.
    fn comments_up_to(&mut self, stop: usize, from: usize, indent: usize) {
        for at in self.between(from, stop) {
            self.comment_line(at, indent, false);
        }
    }

    /// Writes one statement and returns where in the source it ends.
    fn statement(&mut self, statement: &SourceStatement, indent: usize) -> usize {
        let column = self.column(statement.span.start);
        let inside =
            |from| BlockLayout { indent: indent + INDENT_COLUMNS, from, outer: Some(column) };
        match &statement.kind {
            StatementKind::Def { name, params, brackets, body } => {
                self.out.push_str("def ");
                self.out.push_str(&name.text);
                let doc = self.params(params, *brackets);
                render(&doc, indent, &mut self.out);
                let from = self.open_block(brackets.inner.end + 1);
                self.block(body, inside(from))
            }
            StatementKind::For { target, iterable, body } => {
                self.out.push_str("for ");
                self.write(target.span, indent, |f| f.expr(target));
                self.out.push_str(" in ");
                self.write(iterable.span, indent, |f| f.expr(iterable));
                let from = self.open_block(iterable.span.end);
                self.block(body, inside(from))
            }
            StatementKind::If(branches) => {
                let mut end = statement.span.start;
                for branch in branches {
                    end = self.branch(branch, end, indent, column);
                }
                end
            }
            _ => {
                self.write(statement.span, indent, |f| f.simple(statement));
                statement.span.end
            }
        }
    }

    /// Writes one branch of an `if` and returns where in the source it ends.
    fn branch(&mut self, branch: &IfBranch, end: usize, indent: usize, column: usize) -> usize {
        if branch.keyword.start > end {
            self.comments_up_to(branch.keyword.start, end, indent);
            self.new_line(indent, false, false);
        }
        self.out.push_str(self.file.text(branch.keyword));
        let mut head = branch.keyword.end;
        if let Some(condition) = &branch.condition {
            self.out.push(' ');
            self.write(condition.span, indent, |f| f.expr(condition));
            head = condition.span.end;
        }
        let from = self.open_block(head);
        let block = BlockLayout { indent: indent + INDENT_COLUMNS, from, outer: Some(column) };
        self.block(&branch.body, block)
    }

    /// Writes the colon after a head that ended at `head`, and the comment there. Returns
    /// the source offset behind them.
    fn open_block(&mut self, head: usize) -> usize {
        self.out.push(':');
        let colon = self.file.source().get(head..).and_then(|rest| rest.find(':'));
        let end = self.trail(head + colon.map_or(0, |at| at + 1));
        self.opened = true;
        end
    }

    /// Writes a range of the source in its layout.
    fn write(
        &mut self,
        span: ByteSpan,
        indent: usize,
        build: impl FnOnce(&mut Self) -> crate::layout::LayoutDoc,
    ) {
        let doc = self.item(span, build);
        render(&doc, indent, &mut self.out);
    }

    // Places in the source.

    /// The comments that begin in a range, by number.
    fn between(&self, from: usize, to: usize) -> std::ops::Range<usize> {
        let first = self.comments.partition_point(|comment| comment.span.start < from);
        let end = self.comments.partition_point(|comment| comment.span.start < to);
        first..end.max(first)
    }

    /// True if an empty line stands right before an offset.
    fn blank_before(&self, at: usize) -> bool {
        let before = self.file.source().get(..at).unwrap_or_default().bytes().rev();
        let spaces = before.take_while(|b| b.is_ascii_whitespace());
        spaces.filter(|b| *b == b'\n').nth(1).is_some()
    }

    /// The column of an offset in the source, from zero.
    fn column(&self, at: usize) -> usize {
        let before = self.file.source().get(..at).unwrap_or_default();
        before.rsplit('\n').next().unwrap_or_default().chars().count()
    }
}
