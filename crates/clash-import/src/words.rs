//! Patterns over the words of a command, and the keys that say the same.
//!
//! A key of the policy is compared with the next word of a command; options
//! before it are passed over, and a key that starts with `-` matches an option
//! anywhere in the rest. Two things follow that a text pattern does not have:
//! an allow of `git push` also covers `git -C dir push`, and the order of
//! options does not matter. Both are accepted: program, subcommand and the set
//! of words are the same. A word *behind* an option is not, for it may be the
//! option's value, so an allow that needs one is left out.

use crate::text::regex_escape;
use crate::tree::Key;

const WIDER: &str = "it covers every command that begins so";

/// More words than this are never written by hand.
const MOST_WORDS: usize = 24;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// A whole word, one of these.
    Word(Vec<String>),
    /// A word with wildcards, which may reach over the end of the word.
    Part(Vec<Piece>),
    /// `*` between spaces: any number of words.
    Gap,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Char(char),
    Star,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tail {
    /// Nothing more may follow.
    Exact,
    /// Any words may follow.
    Prefix,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    pub(crate) tokens: Vec<Token>,
    pub(crate) tail: Tail,
    /// Why the rest of the pattern is not words; the tokens are what came before.
    pub(crate) unread: Option<&'static str>,
}

/// Keys below `"Bash"` (none: the whole tool), and how they differ from the
/// pattern if they do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    pub(crate) path: Vec<Key>,
    pub(crate) differs: Option<&'static str>,
}

/// Reads the text between the brackets of `Bash(…)`.
pub(crate) fn read(text: &str) -> Pattern {
    let text = text.trim();
    let (body, tail) = if let Some(body) = text.strip_suffix(":*") {
        (body, Tail::Prefix)
    } else if text == "*" {
        ("", Tail::Prefix)
    } else if let Some(body) = text.strip_suffix(" *") {
        (body, Tail::Prefix)
    } else {
        (text, Tail::Exact)
    };
    let mut pattern = Pattern { tokens: Vec::new(), tail, unread: None };
    if let Err(why) = split(body, &mut pattern.tokens) {
        pattern.unread = Some(why);
    }
    // A star at the very end reaches over everything that follows.
    if let Some(Token::Part(pieces)) = pattern.tokens.last()
        && pieces.last() == Some(&Piece::Star)
        && pattern.unread.is_none()
    {
        pattern.tail = Tail::Prefix;
    }
    pattern
}

/// Splits text into words as a shell would, as long as it is plain words.
fn split(text: &str, tokens: &mut Vec<Token>) -> Result<(), &'static str> {
    let mut word: Option<Vec<Piece>> = None;
    let mut quote: Option<char> = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (_, '*') => word.get_or_insert_default().push(Piece::Star),
            (None | Some('"'), '\\') => match chars.next() {
                Some(escaped) if quote.is_none() || "\\\"*".contains(escaped) => {
                    word.get_or_insert_default().push(Piece::Char(escaped));
                }
                _ => return Err("it holds a backslash whose meaning depends on the shell"),
            },
            (Some('"'), '$' | '`') => return Err("it holds an expansion of the shell"),
            (Some(_), c) => word.get_or_insert_default().push(Piece::Char(c)),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, ' ' | '\t') => tokens.extend(word.take().map(token)),
            (None, c) if special(c, word.is_none()) => {
                return Err("it holds syntax of the shell, which is not part of any word");
            }
            (None, c) => word.get_or_insert_default().push(Piece::Char(c)),
        }
    }
    if quote.is_some() {
        return Err("it holds a quote that is not closed");
    }
    tokens.extend(word.take().map(token));
    Ok(())
}

fn special(c: char, first: bool) -> bool {
    c.is_control()
        || "$`;&|<>(){}?[!".contains(c)
        || (first && "~#".contains(c))
        || (c.is_whitespace() && c != ' ')
}

fn token(pieces: Vec<Piece>) -> Token {
    let plain: Option<String> = pieces
        .iter()
        .map(|piece| match piece {
            Piece::Char(c) => Some(*c),
            Piece::Star => None,
        })
        .collect();
    match plain {
        Some(word) => Token::Word(vec![word]),
        None if pieces.iter().all(|piece| *piece == Piece::Star) => Token::Gap,
        None => Token::Part(pieces),
    }
}

fn is_option(word: &str) -> bool {
    word.starts_with('-') && word.len() > 1 && word != "--"
}

/// Whether one word of a command can be both options: `-rf` is also `-f`.
fn same_option(a: &str, b: &str) -> bool {
    let bundled = |bundle: &str, letter: &str| {
        letter.len() == 2
            && !bundle.starts_with("--")
            && letter.strip_prefix('-').is_some_and(|letter| bundle.contains(letter))
    };
    a == b || (is_option(a) && is_option(b) && (bundled(a, b) || bundled(b, a)))
}

/// Only a plain string is looked for among the options, and one with spaces
/// would be several keys.
fn splits(word: &str) -> bool {
    is_option(word) && word.contains(char::is_whitespace)
}

/// `--`, `-`, `+nightly` and the empty word are read differently from program
/// to program.
fn is_doubtful(word: &str) -> bool {
    word.is_empty() || word == "-" || word == "--" || word.starts_with('+')
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty()
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && !name.starts_with(|c: char| c.is_ascii_digit())
    })
}

/// One word as a key. A bare string is split at spaces and `*` in it stands for
/// anything, so a word with either is written as a regular expression.
fn word_key(word: &str) -> Key {
    let plain = |c: char| c.is_alphanumeric() || "_./:@%,=+^-~".contains(c);
    if is_option(word) || word.chars().all(plain) {
        Key::text(word)
    } else {
        Key::Regex(regex_escape(word))
    }
}

fn part_key(pieces: &[Piece]) -> Key {
    let plain = |c: char| c.is_alphanumeric() || "_./:@%,=+^-".contains(c);
    let safe = pieces.iter().all(|piece| match piece {
        Piece::Char(c) => plain(*c),
        Piece::Star => true,
    });
    let text: String = pieces
        .iter()
        .map(|piece| match piece {
            Piece::Char(c) if safe => c.to_string(),
            Piece::Char(c) => regex_escape(&c.to_string()),
            Piece::Star if safe => "*".to_owned(),
            Piece::Star => ".*".to_owned(),
        })
        .collect();
    if safe { Key::Glob(text) } else { Key::Regex(text) }
}

/// One word, whichever. Not `*`, which could be taken for "whatever remains".
fn some_word() -> Key {
    Key::Glob("?*".to_owned())
}

/// The keys of an allow: they match at most what the pattern matches.
pub(crate) fn allowed(pattern: &Pattern) -> Result<Keys, &'static str> {
    if let Some(why) = pattern.unread {
        return Err(why);
    }
    if pattern.tokens.len() > MOST_WORDS {
        return Err("it has too many words");
    }
    let mut keys = Keys { path: Vec::new(), differs: None };
    let mut behind_option = false;
    let mut seen: Vec<&String> = Vec::new();
    let last = pattern.tokens.len().saturating_sub(1);
    for (at, token) in pattern.tokens.iter().enumerate() {
        let key = match token {
            Token::Word(words) => {
                let options = words.iter().any(|word| is_option(word));
                if words.iter().any(|word| is_doubtful(word)) {
                    return Err("programs read this word in different ways");
                }
                if words.iter().any(|word| splits(word)) {
                    return Err("an option with spaces in it cannot be a key");
                }
                if at == 0 && words.iter().any(|word| is_assignment(word)) {
                    return Err("it sets a variable for the command, which no key can ask for");
                }
                if at == 0 && options {
                    return Err("it has no program");
                }
                if behind_option && !words.iter().all(|word| is_option(word)) {
                    return Err("a word behind an option may be the option's value, \
                                and no key ties it to the option");
                }
                if words.iter().any(|word| seen.iter().any(|known| same_option(known, word))) {
                    return Err("one option of a command would answer for two of these");
                }
                seen.extend(words.iter().filter(|word| is_option(word)));
                behind_option |= options;
                Key::any_of(words.iter().map(|word| word_key(word)))
            }
            Token::Part(_) | Token::Gap if behind_option => {
                return Err("a word behind an option may be the option's value, \
                            and no key ties it to the option");
            }
            Token::Part(pieces) => {
                if matches!(pieces.first(), Some(Piece::Char('-' | '+'))) {
                    return Err("a part of an option cannot be a key");
                }
                let stars = pieces.iter().filter(|piece| **piece == Piece::Star).count();
                let at_end = pieces.last() == Some(&Piece::Star);
                if !(at == last && at_end && stars == 1) {
                    keys.differs = Some("`*` stands for a part of one word here");
                }
                part_key(pieces)
            }
            Token::Gap => {
                keys.differs = Some("`*` stands for one word here");
                some_word()
            }
        };
        keys.path.push(key);
    }
    if keys.path.is_empty() && pattern.tail == Tail::Exact {
        return Err("it names no command");
    }
    if pattern.tail == Tail::Exact {
        keys.path.push(Key::End);
    }
    Ok(keys)
}

/// The keys of a deny or an ask: they match at least what the pattern matches.
pub(crate) fn restricted(pattern: &Pattern) -> Keys {
    let tokens = without_assignments(&pattern.tokens);
    let mut path = Vec::new();
    let mut differs = match (pattern.unread, pattern.tail) {
        (None, Tail::Prefix) if tokens.len() == pattern.tokens.len() => None,
        _ => Some(WIDER),
    };
    let mut behind_option = false;
    for (at, token) in tokens.iter().take(MOST_WORDS).enumerate() {
        let key = match token {
            Token::Word(words)
                if words.iter().any(|word| is_doubtful(word) || splits(word))
                    || (at == 0 && words.iter().any(|word| is_option(word)))
                    || (behind_option && !words.iter().all(|word| is_option(word))) =>
            {
                None
            }
            Token::Word(words) => {
                behind_option |= words.iter().any(|word| is_option(word));
                let names = words.iter().flat_map(|word| spellings(word, at == 0));
                Some(Key::any_of(names.map(|word| word_key(&word))))
            }
            Token::Part(_) | Token::Gap if behind_option => None,
            Token::Part(pieces) => {
                path.extend(head(pieces, at == 0));
                let whole = tokens.len() == at + 1 && star_only_at_end(pieces);
                if !whole || path.len() <= at {
                    differs = Some(WIDER);
                }
                break;
            }
            Token::Gap => {
                // An option is looked for in all of the rest, as the gap would.
                if let Some(option) = later_option(tokens.get(at..).unwrap_or_default()) {
                    path.extend((at == 0).then(some_word));
                    path.push(Key::text(option));
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
    if tokens.len() > MOST_WORDS {
        differs = Some(WIDER);
    }
    if path.is_empty() && !(pattern.tokens.is_empty() && pattern.tail == Tail::Prefix) {
        differs = Some("no key says this, so it covers EVERY command");
    }
    Keys { path, differs }
}

fn without_assignments(tokens: &[Token]) -> &[Token] {
    let leading = |token: &&Token| match token {
        Token::Word(words) => words.iter().all(|word| is_assignment(word)),
        Token::Part(_) | Token::Gap => false,
    };
    tokens.get(tokens.iter().take_while(leading).count()..).unwrap_or_default()
}

/// A program is matched by its name, so a path to one is denied by both.
fn spellings(word: &str, program: bool) -> Vec<String> {
    let name = word.rsplit('/').next().filter(|name| program && !name.is_empty() && *name != word);
    [word.to_owned()].into_iter().chain(name.map(str::to_owned)).collect()
}

fn star_only_at_end(pieces: &[Piece]) -> bool {
    pieces.iter().position(|piece| *piece == Piece::Star) == Some(pieces.len().saturating_sub(1))
}

/// The fixed beginning of a word, as a key for every word that starts so.
fn head(pieces: &[Piece], program: bool) -> Option<Key> {
    let fixed = pieces.iter().take_while(|piece| **piece != Piece::Star).count();
    let head = pieces.get(..fixed).unwrap_or_default();
    let by_path = program && head.contains(&Piece::Char('/'));
    if by_path || head.is_empty() || matches!(head.first(), Some(Piece::Char('-' | '+'))) {
        return None;
    }
    let mut pieces = head.to_vec();
    pieces.push(Piece::Star);
    Some(part_key(&pieces))
}

fn later_option(tokens: &[Token]) -> Option<&str> {
    tokens.iter().find_map(|token| match token {
        Token::Word(words) => match words.as_slice() {
            [word] if is_option(word) && !splits(word) => Some(word.as_str()),
            _ => None,
        },
        Token::Part(_) | Token::Gap => None,
    })
}

#[cfg(test)]
mod tests;
