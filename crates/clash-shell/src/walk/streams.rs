//! What the streams of a command are joined to: files, texts and pipes.

use super::super::ast::{Redir, RedirKind};
use super::super::{Command, Direction, Position, Redirection, Word, all_known};
use super::{Source, Stdin, Walker};

impl Walker {
    /// The files that are opened, and what standard input becomes if it changes.
    pub(super) fn redirections(
        &mut self,
        source: &Source,
        redirs: &[Redir],
    ) -> (Vec<Redirection>, Option<Stdin>) {
        let mut all = Vec::with_capacity(redirs.len());
        let mut stdin = None;
        for redir in redirs {
            let target = self.target(source, redir);
            if redir.fd == Some(0) {
                stdin = Some(match redir.kind {
                    RedirKind::HereDocument => given(&target, ""),
                    RedirKind::HereString => given(&target, "\n"),
                    _ => Stdin::Unknown,
                });
            }
            let duplicates = matches!(redir.kind, RedirKind::DupOut | RedirKind::DupIn);
            let counted = || self.is_numeric(&redir.target.parts);
            if duplicates && (target.known().is_some_and(is_descriptor) || counted()) {
                continue;
            }
            let direction = match redir.kind {
                RedirKind::HereDocument => Direction::HereDocument,
                RedirKind::HereString => Direction::HereString,
                RedirKind::Read | RedirKind::DupIn => Direction::Read,
                RedirKind::Write | RedirKind::DupOut => Direction::Write,
                RedirKind::Append => Direction::Append,
                RedirKind::Clobber => Direction::Clobber,
                RedirKind::ReadWrite => Direction::ReadWrite,
            };
            // `>&file` is both outputs.
            let fd = if redir.kind == RedirKind::DupOut { None } else { redir.fd };
            all.push(Redirection { fd, direction, target });
        }
        (all, stdin)
    }

    fn target(&mut self, source: &Source, redir: &Redir) -> Word {
        match redir.kind {
            RedirKind::HereDocument => {
                let body = redir.body.as_ref().and_then(|body| body.get());
                let mut target = Word::Unknown;
                self.inside(Position::HereDocument, |walker| {
                    target = walker.value(source, body.map_or(&[], Vec::as_slice));
                });
                target
            }
            RedirKind::HereString => self.value(source, &redir.target.parts),
            _ => match <[Word; 1]>::try_from(self.words(source, &redir.target)) {
                Ok([word]) => word,
                Err(_) => Word::Unknown,
            },
        }
    }
}

/// What stands behind `>&` or `<&` if it is no file; `-` closes or moves.
fn is_descriptor(text: &str) -> bool {
    text.strip_suffix('-').unwrap_or(text).bytes().all(|b| b.is_ascii_digit())
}

fn given(word: &Word, end: &str) -> Stdin {
    match word {
        Word::Known(text) => Stdin::Text(format!("{text}{end}")),
        _ => Stdin::Unknown,
    }
}

/// What a command writes for the next one in a pipeline, if it is known.
pub(super) fn printed(command: &Command) -> Stdin {
    let plain = command.opaque.is_none() && !command.redirections.iter().any(Redirection::writes);
    if !plain {
        return Stdin::Unknown;
    }
    match all_known(&command.words).as_deref() {
        Some(["echo", words @ ..])
            if words.iter().all(|w| !w.contains('\\') && !w.starts_with('-')) =>
        {
            Stdin::Text(format!("{}\n", words.join(" ")))
        }
        Some(["printf", text]) if !text.contains(['%', '\\']) => Stdin::Text((*text).to_owned()),
        Some(["printf", "%s" | "%s\\n", text]) => Stdin::Text((*text).to_owned()),
        Some(["cat"] | ["cat", "-"]) => match command.redirections.as_slice() {
            [one] if one.fd == Some(0) && one.file().is_none() => given(&one.target, ""),
            _ => Stdin::Unknown,
        },
        _ => Stdin::Unknown,
    }
}
