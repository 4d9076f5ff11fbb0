//! The streams of a command: files, texts and pipes.

use super::super::ast::{RedirNode, RedirOperator};
use super::super::{
    CommandPosition, Redirection, RedirectionKind, ShellCommand, ShellWord, all_known,
};
use super::{ScriptWalker, SourceText, StandardInput};

impl ScriptWalker {
    /// The opened files, and the new standard input if it changes. Copies of descriptors
    /// such as `2>&1` are left out.
    pub(super) fn redirections(
        &mut self,
        source: &SourceText,
        redirs: &[RedirNode],
    ) -> (Vec<Redirection>, Option<StandardInput>) {
        let mut all = Vec::with_capacity(redirs.len());
        let mut stdin = None;
        for redir in redirs {
            let target = self.target(source, redir);
            if redir.fd == Some(0) {
                stdin = Some(match redir.kind {
                    RedirOperator::HereDocument => given(&target, ""),
                    RedirOperator::HereString => given(&target, "\n"),
                    _ => StandardInput::Unknown,
                });
            }
            let duplicates = matches!(redir.kind, RedirOperator::DupOut | RedirOperator::DupIn);
            let counted = || self.is_numeric(&redir.target.parts);
            if duplicates && (target.known().is_some_and(is_descriptor) || counted()) {
                continue;
            }
            let direction = match redir.kind {
                RedirOperator::HereDocument => RedirectionKind::HereDocument,
                RedirOperator::HereString => RedirectionKind::HereString,
                RedirOperator::Read | RedirOperator::DupIn => RedirectionKind::Read,
                RedirOperator::Write | RedirOperator::DupOut => RedirectionKind::Write,
                RedirOperator::Append => RedirectionKind::Append,
                RedirOperator::Clobber => RedirectionKind::Clobber,
                RedirOperator::ReadWrite => RedirectionKind::ReadWrite,
            };
            // `>&file` is both outputs.
            let fd = if redir.kind == RedirOperator::DupOut { None } else { redir.fd };
            all.push(Redirection { fd, direction, target });
        }
        (all, stdin)
    }

    /// The file of a redirection, or the text of a here-document. Walks the substitutions
    /// in it.
    fn target(&mut self, source: &SourceText, redir: &RedirNode) -> ShellWord {
        match redir.kind {
            RedirOperator::HereDocument => {
                let body = redir.body.as_ref().and_then(|body| body.get());
                let mut target = ShellWord::Unknown;
                self.inside(CommandPosition::HereDocument, |walker| {
                    target = walker.value(source, body.map_or(&[], Vec::as_slice));
                });
                target
            }
            RedirOperator::HereString => self.value(source, &redir.target.parts),
            _ => match <[ShellWord; 1]>::try_from(self.words(source, &redir.target)) {
                Ok([word]) => word,
                Err(_) => ShellWord::Unknown,
            },
        }
    }
}

/// True if the word behind `>&` or `<&` is a descriptor and no file; `-` closes or
/// moves it.
fn is_descriptor(text: &str) -> bool {
    text.strip_suffix('-').unwrap_or(text).bytes().all(|b| b.is_ascii_digit())
}

/// A text as standard input, with `end` behind it; unknown if the word is not known.
fn given(word: &ShellWord, end: &str) -> StandardInput {
    match word {
        ShellWord::Known(text) => StandardInput::Text(format!("{text}{end}")),
        _ => StandardInput::Unknown,
    }
}

/// The output of a command for the next one in a pipeline, if it is known: `echo` and
/// `printf` of known words, and `cat` of a here-document.
pub(super) fn printed(command: &ShellCommand) -> StandardInput {
    let plain = command.opaque.is_none() && !command.redirections.iter().any(Redirection::writes);
    if !plain {
        return StandardInput::Unknown;
    }
    match all_known(&command.words).as_deref() {
        Some(["echo", words @ ..])
            if words.iter().all(|w| !w.contains('\\') && !w.starts_with('-')) =>
        {
            StandardInput::Text(format!("{}\n", words.join(" ")))
        }
        Some(["printf", text]) if !text.contains(['%', '\\']) => {
            StandardInput::Text((*text).to_owned())
        }
        Some(["printf", "%s" | "%s\\n", text]) => StandardInput::Text((*text).to_owned()),
        Some(["cat"] | ["cat", "-"]) => match command.redirections.as_slice() {
            [one] if one.fd == Some(0) && one.file().is_none() => given(&one.target, ""),
            _ => StandardInput::Unknown,
        },
        _ => StandardInput::Unknown,
    }
}
