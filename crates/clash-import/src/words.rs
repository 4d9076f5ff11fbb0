//! Patterns over the words of a command, and the keys that say the same.
//!
//! A key of the policy is compared with the next word of a command; options
//! before it are passed over, and a key that starts with `-` matches an option
//! anywhere in the rest. Two things follow that a text pattern does not have:
//! an allow of `git push` also covers `git -C dir push`, and the order of
//! options does not matter. Both are accepted: program, subcommand and the set
//! of words are the same. A word *behind* an option is not, for it may be the
//! option's value, so an allow that needs one is left out.

use clash_syntax::draft::KeyDraft;

use crate::text::regex_escape;

const WIDER: &str = "it covers every command with this beginning";

/// No user writes patterns with more words.
const MAX_PATTERN_WORDS: usize = 24;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WordPattern {
    /// A whole word, one of these.
    Word(Vec<String>),
    /// A word with wildcards, which may reach over the end of the word.
    Part(Vec<WordPiece>),
    /// `*` between spaces: any number of words.
    Gap,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WordPiece {
    Char(char),
    Star,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatternTail {
    /// Nothing more may follow.
    Exact,
    /// Any words may follow.
    Prefix,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommandPattern {
    pub(crate) tokens: Vec<WordPattern>,
    pub(crate) tail: PatternTail,
    /// The reason why the rest of the pattern is not words. The tokens are the part before
    /// it.
    pub(crate) unread: Option<&'static str>,
}

/// Keys below `"Bash"` (none: the whole tool), and how they differ from the
/// pattern if they do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommandKeys {
    pub(crate) path: Vec<KeyDraft>,
    pub(crate) differs: Option<&'static str>,
}

/// Reads the text between the brackets of `Bash(…)`. A tail `:*`, ` *` or `*` permits further
/// words. The reason why a text cannot be read is in `unread`.
pub(crate) fn read(text: &str) -> CommandPattern {
    let text = text.trim();
    let (body, tail) = if let Some(body) = text.strip_suffix(":*") {
        (body, PatternTail::Prefix)
    } else if text == "*" {
        ("", PatternTail::Prefix)
    } else if let Some(body) = text.strip_suffix(" *") {
        (body, PatternTail::Prefix)
    } else {
        (text, PatternTail::Exact)
    };
    let mut pattern = CommandPattern { tokens: Vec::new(), tail, unread: None };
    if let Err(why) = split(body, &mut pattern.tokens) {
        pattern.unread = Some(why);
    }
    // A star at the very end reaches over everything that follows.
    if let Some(WordPattern::Part(pieces)) = pattern.tokens.last()
        && pieces.last() == Some(&WordPiece::Star)
        && pattern.unread.is_none()
    {
        pattern.tail = PatternTail::Prefix;
    }
    pattern
}

/// Splits text into words as a shell would. Syntax of the shell that is no plain word is an
/// error; the words before it are kept.
fn split(text: &str, tokens: &mut Vec<WordPattern>) -> Result<(), &'static str> {
    let mut word: Option<Vec<WordPiece>> = None;
    let mut quote: Option<char> = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (_, '*') => word.get_or_insert_default().push(WordPiece::Star),
            (None | Some('"'), '\\') => match chars.next() {
                Some(escaped) if quote.is_none() || "\\\"*".contains(escaped) => {
                    word.get_or_insert_default().push(WordPiece::Char(escaped));
                }
                _ => return Err("it holds a backslash whose meaning depends on the shell"),
            },
            (Some('"'), '$' | '`') => return Err("it holds an expansion of the shell"),
            (Some(_), c) => word.get_or_insert_default().push(WordPiece::Char(c)),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, ' ' | '\t') => tokens.extend(word.take().map(token)),
            (None, c) if special(c, word.is_none()) => {
                return Err("it holds syntax of the shell, which is not part of any word");
            }
            (None, c) => word.get_or_insert_default().push(WordPiece::Char(c)),
        }
    }
    if quote.is_some() {
        return Err("it holds a quote that is not closed");
    }
    tokens.extend(word.take().map(token));
    Ok(())
}

/// True for characters that mean something to a shell. `first`: at the start of a word.
fn special(c: char, first: bool) -> bool {
    c.is_control()
        || "$`;&|<>(){}?[!".contains(c)
        || (first && "~#".contains(c))
        || (c.is_whitespace() && c != ' ')
}

/// The pattern of one word.
fn token(pieces: Vec<WordPiece>) -> WordPattern {
    let plain: Option<String> = pieces
        .iter()
        .map(|piece| match piece {
            WordPiece::Char(c) => Some(*c),
            WordPiece::Star => None,
        })
        .collect();
    match plain {
        Some(word) => WordPattern::Word(vec![word]),
        None if pieces.iter().all(|piece| *piece == WordPiece::Star) => WordPattern::Gap,
        None => WordPattern::Part(pieces),
    }
}

/// True for `-x` and `--long`, but not for `-` and `--`.
fn is_option(word: &str) -> bool {
    word.starts_with('-') && word.len() > 1 && word != "--"
}

/// True if one word of a command can be both options: `-rf` is also `-f`.
fn same_option(a: &str, b: &str) -> bool {
    let bundled = |bundle: &str, letter: &str| {
        letter.len() == 2
            && !bundle.starts_with("--")
            && letter.strip_prefix('-').is_some_and(|letter| bundle.contains(letter))
    };
    a == b || (is_option(a) && is_option(b) && (bundled(a, b) || bundled(b, a)))
}

/// True for an option with spaces. Only a plain string is looked for among the options, and
/// one with spaces would be several keys.
fn splits(word: &str) -> bool {
    is_option(word) && word.contains(char::is_whitespace)
}

/// True for words that programs read in different ways: `--`, `-`, `+nightly` and the empty
/// word.
fn is_doubtful(word: &str) -> bool {
    word.is_empty() || word == "-" || word == "--" || word.starts_with('+')
}

/// True for `NAME=value`.
fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty()
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && !name.starts_with(|c: char| c.is_ascii_digit())
    })
}

/// One word as a key. A bare string is split at spaces and `*` in it stands for
/// anything, so a word with either is written as a regular expression.
fn word_key(word: &str) -> KeyDraft {
    let plain = |c: char| c.is_alphanumeric() || "_./:@%,=+^-~".contains(c);
    if is_option(word) || word.chars().all(plain) {
        KeyDraft::text(word)
    } else {
        KeyDraft::regex(regex_escape(word))
    }
}

/// A word with wildcards as a key: a glob if its characters are plain, else a regular
/// expression.
fn part_key(pieces: &[WordPiece]) -> KeyDraft {
    let plain = |c: char| c.is_alphanumeric() || "_./:@%,=+^-".contains(c);
    let safe = pieces.iter().all(|piece| match piece {
        WordPiece::Char(c) => plain(*c),
        WordPiece::Star => true,
    });
    let text: String = pieces
        .iter()
        .map(|piece| match piece {
            WordPiece::Char(c) if safe => c.to_string(),
            WordPiece::Char(c) => regex_escape(&c.to_string()),
            WordPiece::Star if safe => "*".to_owned(),
            WordPiece::Star => ".*".to_owned(),
        })
        .collect();
    if safe { KeyDraft::glob(text) } else { KeyDraft::regex(text) }
}

/// Any one word. Not `*`, which could be read as "all remaining words".
fn some_word() -> KeyDraft {
    KeyDraft::glob("?*".to_owned())
}

/// The keys of an allow. They match no command that the pattern does not match. An error if
/// there are no such keys.
pub(crate) fn allowed(pattern: &CommandPattern) -> Result<CommandKeys, &'static str> {
    if let Some(why) = pattern.unread {
        return Err(why);
    }
    if pattern.tokens.len() > MAX_PATTERN_WORDS {
        return Err("it has too many words");
    }
    let mut keys = CommandKeys { path: Vec::new(), differs: None };
    let mut behind_option = false;
    let mut seen: Vec<&String> = Vec::new();
    let last = pattern.tokens.len().saturating_sub(1);
    for (at, token) in pattern.tokens.iter().enumerate() {
        let key = match token {
            WordPattern::Word(words) => {
                let options = words.iter().any(|word| is_option(word));
                if words.iter().any(|word| is_doubtful(word)) {
                    return Err("programs read this word in different ways");
                }
                if words.iter().any(|word| splits(word)) {
                    return Err("an option with spaces in it cannot be a key");
                }
                if at == 0 && words.iter().any(|word| is_assignment(word)) {
                    return Err("it sets a variable for the command, and no key matches variables");
                }
                if at == 0 && options {
                    return Err("it has no program");
                }
                if behind_option && !words.iter().all(|word| is_option(word)) {
                    return Err("a word behind an option may be the option's value, \
                                and no key ties it to the option");
                }
                if words.iter().any(|word| seen.iter().any(|known| same_option(known, word))) {
                    return Err("one option of a command would match two of these");
                }
                seen.extend(words.iter().filter(|word| is_option(word)));
                behind_option |= options;
                KeyDraft::any_of(words.iter().map(|word| word_key(word)))
            }
            WordPattern::Part(_) | WordPattern::Gap if behind_option => {
                return Err("a word behind an option may be the option's value, \
                            and no key ties it to the option");
            }
            WordPattern::Part(pieces) => {
                if matches!(pieces.first(), Some(WordPiece::Char('-' | '+'))) {
                    return Err("a part of an option cannot be a key");
                }
                let stars = pieces.iter().filter(|piece| **piece == WordPiece::Star).count();
                let at_end = pieces.last() == Some(&WordPiece::Star);
                if !(at == last && at_end && stars == 1) {
                    keys.differs = Some("`*` stands for a part of one word here");
                }
                part_key(pieces)
            }
            WordPattern::Gap => {
                keys.differs = Some("`*` stands for one word here");
                some_word()
            }
        };
        keys.path.push(key);
    }
    if keys.path.is_empty() && pattern.tail == PatternTail::Exact {
        return Err("it names no command");
    }
    if pattern.tail == PatternTail::Exact {
        keys.path.push(KeyDraft::end());
    }
    Ok(keys)
}

/// The keys of a deny or an ask. They match every command that the pattern matches. Without
/// keys, the rule covers every command.
pub(crate) fn restricted(pattern: &CommandPattern) -> CommandKeys {
    let tokens = without_assignments(&pattern.tokens);
    let mut path = Vec::new();
    let mut differs = match (pattern.unread, pattern.tail) {
        (None, PatternTail::Prefix) if tokens.len() == pattern.tokens.len() => None,
        _ => Some(WIDER),
    };
    let mut behind_option = false;
    for (at, token) in tokens.iter().take(MAX_PATTERN_WORDS).enumerate() {
        let key = match token {
            WordPattern::Word(words)
                if words.iter().any(|word| is_doubtful(word) || splits(word))
                    || (at == 0 && words.iter().any(|word| is_option(word)))
                    || (behind_option && !words.iter().all(|word| is_option(word))) =>
            {
                None
            }
            WordPattern::Word(words) => {
                behind_option |= words.iter().any(|word| is_option(word));
                let names = words.iter().flat_map(|word| spellings(word, at == 0));
                Some(KeyDraft::any_of(names.map(|word| word_key(&word))))
            }
            WordPattern::Part(_) | WordPattern::Gap if behind_option => None,
            WordPattern::Part(pieces) => {
                path.extend(head(pieces, at == 0));
                let whole = tokens.len() == at + 1 && star_only_at_end(pieces);
                if !whole || path.len() <= at {
                    differs = Some(WIDER);
                }
                break;
            }
            WordPattern::Gap => {
                // An option is looked for in all of the rest, as the gap would.
                if let Some(option) = later_option(tokens.get(at..).unwrap_or_default()) {
                    path.extend((at == 0).then(some_word));
                    path.push(KeyDraft::text(option));
                }
                None
            }
        };
        let Some(key) = key else {
            differs = Some(WIDER);
            break;
        };
        path.push(key);
    }
    if tokens.len() > MAX_PATTERN_WORDS {
        differs = Some(WIDER);
    }
    if path.is_empty() && !(pattern.tokens.is_empty() && pattern.tail == PatternTail::Prefix) {
        differs = Some("no key expresses this, so the rule covers EVERY command");
    }
    CommandKeys { path, differs }
}

/// The words behind leading `NAME=value` words.
fn without_assignments(tokens: &[WordPattern]) -> &[WordPattern] {
    let leading = |token: &&WordPattern| match token {
        WordPattern::Word(words) => words.iter().all(|word| is_assignment(word)),
        WordPattern::Part(_) | WordPattern::Gap => false,
    };
    tokens.get(tokens.iter().take_while(leading).count()..).unwrap_or_default()
}

/// A word, and for a program with a path also its file name: a program is matched by its
/// name.
fn spellings(word: &str, program: bool) -> Vec<String> {
    let name = word.rsplit('/').next().filter(|name| program && !name.is_empty() && *name != word);
    [word.to_owned()].into_iter().chain(name.map(str::to_owned)).collect()
}

/// True if the only wildcard is at the end.
fn star_only_at_end(pieces: &[WordPiece]) -> bool {
    pieces.iter().position(|piece| *piece == WordPiece::Star)
        == Some(pieces.len().saturating_sub(1))
}

/// The fixed beginning of a word, as a key for every word that starts so. `None` without
/// one, for an option, and for a program with a path.
fn head(pieces: &[WordPiece], program: bool) -> Option<KeyDraft> {
    let fixed = pieces.iter().take_while(|piece| **piece != WordPiece::Star).count();
    let head = pieces.get(..fixed).unwrap_or_default();
    let by_path = program && head.contains(&WordPiece::Char('/'));
    if by_path || head.is_empty() || matches!(head.first(), Some(WordPiece::Char('-' | '+'))) {
        return None;
    }
    let mut pieces = head.to_vec();
    pieces.push(WordPiece::Star);
    Some(part_key(&pieces))
}

/// The first option among these words that can be a key.
fn later_option(tokens: &[WordPattern]) -> Option<&str> {
    tokens.iter().find_map(|token| match token {
        WordPattern::Word(words) => match words.as_slice() {
            [word] if is_option(word) && !splits(word) => Some(word.as_str()),
            _ => None,
        },
        WordPattern::Part(_) | WordPattern::Gap => None,
    })
}

#[cfg(test)]
mod tests;
