//! Here-documents: announced by `<<`, read after the next newline.

use std::cell::OnceCell;
use std::rc::Rc;

use super::super::ast::WordPart;
use super::{ParseOutcome, ScriptParser};

/// A here-document whose `<<` is read and whose text is not.
pub(super) struct PendingHereDocument {
    pub(super) delimiter: String,
    pub(super) quoted: bool,
    pub(super) strip_tabs: bool,
    /// The position of its `<<`.
    pub(super) at: usize,
    pub(super) body: Rc<OnceCell<Vec<WordPart>>>,
}

impl ScriptParser<'_> {
    /// Reads the texts of the pending here-documents. Called right behind a
    /// newline.
    pub(super) fn read_heredocs(&mut self) -> ParseOutcome<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let newline = self.at - 1;
        for pending in std::mem::take(&mut self.pending) {
            // If a quoted newline comes before the newline that ends the line, shells
            // disagree on the start of the text.
            let line = self.slice(pending.at, newline).replace("\\\n", "");
            if line.contains('\n') {
                return Err("a newline stands between a here-document and its text");
            }
            let start = self.at;
            let (end, next) = self.heredoc_end(&pending, start)?;
            let parts = if pending.quoted {
                vec![WordPart::Quoted(stripped(self.slice(start, end), pending.strip_tabs))]
            } else {
                let mut inner = self.within(start, end);
                inner.enter()?;
                let mut parts = inner.here_text(end)?;
                self.bash_only |= inner.bash_only;
                if pending.strip_tabs {
                    for part in &mut parts {
                        if let WordPart::Quoted(text) = part {
                            *text = stripped(text, true);
                        }
                    }
                }
                parts
            };
            let _ = pending.body.set(parts);
            self.at = next;
        }
        Ok(())
    }

    /// The end of the text and the position at which the script continues.
    fn heredoc_end(
        &self,
        pending: &PendingHereDocument,
        start: usize,
    ) -> ParseOutcome<(usize, usize)> {
        let mut at = start;
        while at < self.text.len() {
            let line_start = at;
            let mut line = String::new();
            loop {
                let rest = self.text.get(at..).unwrap_or_default();
                let len = rest.find('\n').unwrap_or(rest.len());
                let piece = rest.get(..len).unwrap_or_default();
                at += len + 1;
                let joins = !pending.quoted
                    && piece.bytes().rev().take_while(|b| *b == b'\\').count() % 2 == 1
                    && at <= self.text.len();
                line.push_str(if joins {
                    piece.strip_suffix('\\').unwrap_or(piece)
                } else {
                    piece
                });
                if !joins {
                    break;
                }
            }
            let shown = if pending.strip_tabs { line.trim_start_matches('\t') } else { &line };
            if shown == pending.delimiter {
                return Ok((line_start, at.min(self.text.len())));
            }
            // Inside a substitution some versions of bash end the text here.
            if shown.starts_with(&pending.delimiter)
                && shown.contains([')', '`'])
                && !pending.delimiter.is_empty()
            {
                return Err("a here-document ends in an unclear place");
            }
        }
        Err("a here-document is not closed")
    }
}

/// The text, without the tabs at the start of each line if `tabs` is true.
fn stripped(text: &str, tabs: bool) -> String {
    if !tabs {
        return text.to_owned();
    }
    text.split_inclusive('\n').map(|line| line.trim_start_matches('\t')).collect()
}
