//! Lays out pieces of text on lines. A group stands on one line if it fits; otherwise
//! it breaks at every line end it allows. A comment breaks every group around it.

/// The widest line, unless a string or comment alone is wider.
pub(crate) const MAX_LINE_COLUMNS: usize = 100;
pub(crate) const INDENT_COLUMNS: usize = 4;

/// A text with possible line ends.
#[derive(Debug)]
pub(crate) enum LayoutDoc {
    /// Text that is never broken or indented. A long string may span lines.
    Text(String),
    /// A possible line end. On one line, the group writes `flat` instead.
    Line {
        flat: &'static str,
        /// Keep an empty line before the new one.
        blank: bool,
    },
    /// A line end in every case.
    Hard {
        blank: bool,
    },
    /// Text that only a broken group writes.
    WhenBroken(&'static str),
    /// A comment, which takes the rest of its line.
    Comment(String),
    Indent(Vec<LayoutDoc>),
    Group {
        docs: Vec<LayoutDoc>,
        broken: bool,
    },
    Concat(Vec<LayoutDoc>),
}

impl LayoutDoc {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// A possible line end that leaves nothing on one line.
    pub(crate) fn soft() -> Self {
        Self::Line { flat: "", blank: false }
    }

    /// Pieces that stand on one line or break together. A comment or hard line end in them
    /// breaks the group.
    pub(crate) fn group(docs: Vec<LayoutDoc>) -> Self {
        let broken = docs.iter().any(Self::forces);
        Self::Group { docs, broken }
    }

    /// True if this piece breaks the group around it.
    fn forces(&self) -> bool {
        match self {
            Self::Hard { .. } | Self::Comment(_) => true,
            Self::Group { broken, .. } => *broken,
            Self::Indent(docs) | Self::Concat(docs) => docs.iter().any(Self::forces),
            Self::Text(_) | Self::Line { .. } | Self::WhenBroken(_) => false,
        }
    }
}

/// Appends the layout of `doc` to `out`. The last line of `out` has the indent `indent`.
pub(crate) fn render(doc: &LayoutDoc, indent: usize, out: &mut String) {
    let mut column = last_width(out);
    let mut stack = vec![(indent, true, doc)];
    while let Some((indent, broken, doc)) = stack.pop() {
        match doc {
            LayoutDoc::Text(text) => {
                out.push_str(text);
                column = if text.contains('\n') { last_width(out) } else { column + width(text) };
            }
            LayoutDoc::Line { flat, .. } if !broken => {
                out.push_str(flat);
                column += flat.len();
            }
            LayoutDoc::Line { blank, .. } | LayoutDoc::Hard { blank } => {
                out.push_str(if *blank { "\n\n" } else { "\n" });
                out.extend(std::iter::repeat_n(' ', indent));
                column = indent;
            }
            LayoutDoc::WhenBroken(text) => {
                if broken {
                    out.push_str(text);
                    column += text.len();
                }
            }
            LayoutDoc::Comment(text) => {
                out.push_str("  ");
                out.push_str(text);
            }
            LayoutDoc::Indent(docs) => {
                stack.extend(docs.iter().rev().map(|doc| (indent + INDENT_COLUMNS, broken, doc)));
            }
            LayoutDoc::Concat(docs) => {
                stack.extend(docs.iter().rev().map(|doc| (indent, broken, doc)))
            }
            LayoutDoc::Group { docs, broken } => {
                let broken =
                    *broken || !fits(docs, MAX_LINE_COLUMNS.saturating_sub(column), &stack);
                stack.extend(docs.iter().rev().map(|doc| (indent, broken, doc)));
            }
        }
    }
}

/// True if `docs` fit on one line together with the text up to the next line end.
fn fits(docs: &[LayoutDoc], room: usize, after: &[(usize, bool, &LayoutDoc)]) -> bool {
    let (mut room, mut followed) = (room, false);
    let mut after = after.iter().rev();
    let mut stack: Vec<(bool, &LayoutDoc)> = docs.iter().rev().map(|doc| (false, doc)).collect();
    loop {
        let own = stack.pop();
        followed |= own.is_none();
        let Some((broken, doc)) = own.or_else(|| after.next().map(|(_, b, d)| (*b, *d))) else {
            return true;
        };
        let used = match doc {
            LayoutDoc::Text(text) => {
                // A long string has its own line ends: each of its lines counts.
                let mut lines = text.split('\n');
                let first = width(lines.next().unwrap_or_default());
                match lines.next_back().map(width) {
                    Some(_) if first > room => return false,
                    Some(last) => {
                        room = MAX_LINE_COLUMNS;
                        last
                    }
                    None => first,
                }
            }
            LayoutDoc::Line { flat, .. } if !broken => flat.len(),
            LayoutDoc::Line { .. } | LayoutDoc::Hard { .. } | LayoutDoc::Comment(_) => return true,
            LayoutDoc::WhenBroken(text) => usize::from(broken) * text.len(),
            LayoutDoc::Indent(docs) | LayoutDoc::Concat(docs) => {
                stack.extend(docs.iter().rev().map(|doc| (broken, doc)));
                0
            }
            // A later group breaks rather than this one.
            LayoutDoc::Group { docs, broken } => {
                stack.extend(docs.iter().rev().map(|doc| (*broken || followed, doc)));
                0
            }
        };
        match room.checked_sub(used) {
            Some(left) => room = left,
            None => return false,
        }
    }
}

/// The number of characters.
fn width(text: &str) -> usize {
    text.chars().count()
}

/// The number of characters of the last line.
fn last_width(out: &str) -> usize {
    width(out.rsplit('\n').next().unwrap_or_default())
}
