//! What a shell script will run, found without running it.
//!
//! This first analysis knows lists and pipelines of simple commands. Whatever
//! else a script holds (substitutions, compound commands, here-documents,
//! functions) makes the whole script one *opaque* command, which no rule about
//! a particular program matches. Being fooled here costs a question or a
//! refusal, never a right: the kernel enforces the sandbox whatever was read.

mod lex;

use lex::{Lexer, Token};

/// One program run inside a script.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Command {
    pub words: Vec<Word>,
    /// Names given a value in front of the program (`FOO=1 make`).
    pub assignments: Vec<String>,
    pub redirections: Vec<Redirection>,
    /// Why nothing is known about what this runs.
    pub opaque: Option<&'static str>,
    /// The command as it stands in the script.
    pub text: String,
}

/// A word as far as it is known before the shell expands it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    Known(String),
    /// The shell will decide: a variable, a glob, a brace or tilde expansion.
    Unknown,
}

impl Word {
    pub fn known(&self) -> Option<&str> {
        match self {
            Self::Known(text) => Some(text),
            Self::Unknown => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirection {
    pub target: Word,
    pub writes: bool,
}

/// Scripts longer than this are not looked into.
const MAX_SCRIPT: usize = 256 * 1024;

/// The commands of a script, in order. Never empty: an empty script is one
/// command without words.
pub fn commands(script: &str) -> Vec<Command> {
    if script.len() > MAX_SCRIPT {
        return vec![opaque(script, "the script is too long to analyse")];
    }
    split(script).unwrap_or_else(|why| vec![opaque(script, why)])
}

fn opaque(script: &str, why: &'static str) -> Command {
    Command { opaque: Some(why), text: script.trim().to_owned(), ..Command::default() }
}

/// Words that start a compound command or change what the next word means, in
/// the place of a program.
const RESERVED: &[&str] = &[
    "!", "{", "}", "[[", "]]", "case", "coproc", "do", "done", "elif", "else", "esac", "fi", "for",
    "function", "if", "in", "select", "then", "time", "until", "while",
];

fn split(script: &str) -> Result<Vec<Command>, &'static str> {
    let mut commands = Vec::new();
    let mut current = Command::default();
    let mut start = 0;
    let mut lexer = Lexer::new(script);
    while let Some(token) = lexer.next_token()? {
        match token {
            Token::Word { value, assignment, quoted } => {
                if let Some(name) = assignment.filter(|_| current.words.is_empty()) {
                    current.assignments.push(name);
                    continue;
                }
                let first = current.words.is_empty() && !quoted;
                if first && value.known().is_some_and(|word| RESERVED.contains(&word)) {
                    return Err("it holds a compound command");
                }
                current.words.push(value);
            }
            Token::Redirection(redirection) => current.redirections.push(redirection),
            Token::Separator => {
                finish(&mut commands, &mut current, script, start, lexer.token_start());
                start = lexer.position();
            }
        }
    }
    finish(&mut commands, &mut current, script, start, script.len());
    if commands.is_empty() {
        commands.push(Command::default());
    }
    Ok(commands)
}

fn finish(
    commands: &mut Vec<Command>,
    current: &mut Command,
    script: &str,
    start: usize,
    end: usize,
) {
    let mut command = std::mem::take(current);
    let nothing = command.words.is_empty()
        && command.assignments.is_empty()
        && command.redirections.is_empty();
    if nothing {
        return;
    }
    command.text = script.get(start..end).unwrap_or_default().trim().to_owned();
    commands.push(command);
}

/// Builtins that start no program. Without a rule of their own they need no
/// decision of their own either: what they touch, the room's shell touches.
pub fn is_inert_builtin(program: &str) -> bool {
    const INERT: &[&str] = &[
        ":", "[", "cd", "echo", "exit", "export", "false", "popd", "printf", "pushd", "pwd",
        "read", "set", "shift", "test", "true", "type", "ulimit", "umask", "unset", "wait",
    ];
    INERT.binary_search(&program).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(script: &str) -> String {
        let one = |c: &Command| match c.opaque {
            Some(why) => format!("opaque: {why}"),
            None => {
                let words: Vec<_> = c.words.iter().map(|w| w.known().unwrap_or("?")).collect();
                let files: Vec<_> = c
                    .redirections
                    .iter()
                    .map(|r| {
                        format!(
                            "{}{}",
                            if r.writes { ">" } else { "<" },
                            r.target.known().unwrap_or("?")
                        )
                    })
                    .collect();
                format!("{} {}", words.join("|"), files.join(" ")).trim().to_owned()
            }
        };
        commands(script).iter().map(one).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn lists_and_pipelines_are_split() {
        insta::assert_snapshot!(
            shown("cd app && FOO=1 npm test 2>&1 | tail -20; git status & ls\n# note\npwd"),
            @r"
        cd|app
        npm|test
        tail|-20
        git|status
        ls
        pwd
        "
        );
    }

    #[test]
    fn quotes_are_taken_off_and_what_the_shell_decides_is_unknown() {
        insta::assert_snapshot!(shown(r#"g''it "pu"sh 'a b' \$x "it is $y" *.rs ~/x {a,b} $Z"#), @"git|push|a b|$x|?|?|?|?|?");
    }

    #[test]
    fn redirections_keep_their_file_and_direction() {
        insta::assert_snapshot!(shown("sort < in.txt > \"out file\" 2>>err.log"), @"sort <in.txt >out file >err.log");
    }

    #[test]
    fn what_is_not_understood_is_opaque_and_never_half_understood() {
        for script in [
            "echo $(git push)",
            "echo `git push`",
            "if true; then git push; fi",
            "f() { git push; }; f",
            "(cd x && git push)",
            "cat <<EOF\n$(git push)\nEOF",
            "diff <(git push) x",
            "! git push",
            "echo 'open",
            "x=$(git push)",
            "echo $((1+1))",
            "[[ -f x ]] && git push",
            "cat <<< \"$(git push)\"",
            "{ git push; }",
            "a[$(git push)]=1",
        ] {
            let found = commands(script);
            assert!(found.iter().any(|c| c.opaque.is_some()), "{script}: {found:?}");
        }
    }

    #[test]
    fn a_quoted_reserved_word_is_a_program() {
        assert_eq!(shown("'if' x"), "if|x");
    }

    #[test]
    fn inert_builtins_are_sorted_for_the_search() {
        assert!(is_inert_builtin(":") && is_inert_builtin("wait") && is_inert_builtin("echo"));
        assert!(!is_inert_builtin("eval") && !is_inert_builtin("source"));
    }

    proptest! {
        #[test]
        fn any_text_is_analysed_without_panic(script in "[a-z$(){}<>|&;'\"`\\\\\n #=*?~-]{0,60}") {
            prop_assert!(!commands(&script).is_empty());
        }
    }
}
