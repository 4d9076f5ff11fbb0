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
            Token::Duplication => {}
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
    for command in &commands {
        steers(command)?;
    }
    Ok(commands)
}

/// What makes a name or a word mean something else for the rest of the script.
fn steers(command: &Command) -> Result<(), &'static str> {
    const RUNNERS: &[&str] = &[
        ".",
        "alias",
        "builtin",
        "command",
        "coproc",
        "declare",
        "enable",
        "eval",
        "exec",
        "hash",
        "local",
        "mapfile",
        "readarray",
        "readonly",
        "set",
        "shopt",
        "source",
        "trap",
        "typeset",
        "unalias",
    ];
    let program = command.words.first().and_then(Word::known).unwrap_or_default();
    if RUNNERS.contains(&program) {
        return Err("it changes what later words mean or run");
    }
    let exported = command.words.iter().filter(|_| program == "export").filter_map(Word::known);
    let names = exported.map(|word| word.split('=').next().unwrap_or(word));
    if names.chain(command.assignments.iter().map(String::as_str)).any(is_steering) {
        return Err("it sets a variable that changes what programs run");
    }
    Ok(())
}

fn is_steering(name: &str) -> bool {
    const NAMES: &[&str] = &["CDPATH", "ENV", "IFS", "PATH", "PROMPT_COMMAND", "PS4", "SHELLOPTS"];
    const STARTS: &[&str] = &["BASH", "DYLD_", "GIT_", "LD_"];
    NAMES.contains(&name) || STARTS.iter().any(|start| name.starts_with(start))
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

/// Whether a command starts no program: a builtin that cannot evaluate what it
/// is given. Without a rule of its own it needs no decision of its own either:
/// what it touches, the room's shell touches.
pub fn is_inert(command: &Command) -> bool {
    // Take whatever the shell makes of their words as text.
    const ANY_WORDS: &[&str] =
        &[":", "cd", "echo", "exit", "false", "popd", "pushd", "pwd", "true"];
    // Evaluate a subscript in a name, so only words that are known to have none.
    const KNOWN_WORDS: &[&str] = &[
        "[", "export", "printf", "read", "shift", "test", "type", "ulimit", "umask", "unset",
        "wait",
    ];
    if command.opaque.is_some() {
        return false;
    }
    let Some((first, rest)) = command.words.split_first() else { return true };
    let Some(program) = first.known() else { return false };
    let harmless = |word: &Word| word.known().is_some_and(|word| !word.contains('['));
    ANY_WORDS.contains(&program) || (KNOWN_WORDS.contains(&program) && rest.iter().all(harmless))
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
            "eval 'git push'",
            ". ./push.sh",
            "trap 'git push' EXIT",
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
    fn builtins_are_inert_only_where_they_evaluate_nothing() {
        let inert = |script: &str| is_inert(&commands(script)[0]);
        for script in ["echo $x", "cd $dir", "[ -f x ]", "test -n y", "export A=1", "X=1", ": > f"]
        {
            assert!(inert(script), "{script}");
        }
        for script in [
            "printf -v 'a[$(evil)]' x",
            "test -v 'a[$(evil)]'",
            "[ -v $x ]",
            "read 'a[$(evil)]'",
            "unset $x",
            "eval x",
            "ls",
            "$x",
        ] {
            assert!(!inert(script), "{script}");
        }
    }

    /// Found by fuzzing against bash, which runs `evil` in each of these.
    #[test]
    fn no_spelling_hides_a_command() {
        for script in [
            "echo $${; evil #}",
            "echo \"$\\\n(evil)\"",
            "!\\\n evil",
            "ti\\\nme evil",
            "A\\\n=1 evil",
            "2\\\n>x evil",
            "a='b[$(evil)]'; x=abc; echo ${x:a}",
            "a='b[$(evil)]'; echo ${!a}",
            "PS4='$(evil)'; set -x; ls",
            "PATH=. ls",
            "export PATH=.; ls",
            "alias ls=evil\nls",
            "echo ${ evil; }",
        ] {
            let found = commands(script);
            let seen = found.iter().any(|c| {
                c.opaque.is_some() || c.words.iter().any(|w| w.known().is_some_and(|w| w == "evil"))
            });
            let whole = found.iter().all(|c| c.opaque.is_none());
            assert!(seen, "{script}: {found:?}");
            // `$$` is a parameter: what follows the semicolon is seen as it is.
            assert!(!whole || script.contains("$${"), "{script}: {found:?}");
        }
        let joined = commands("a+=1 evil");
        assert_eq!(joined[0].words, [Word::Known("evil".into())]);
        assert_eq!(shown("cargo build \\\n  --release"), "cargo|build|--release");
    }

    #[test]
    fn very_many_redirections_are_no_deep_recursion() {
        let script = format!("ls{}", " >&1".repeat(50_000));
        assert_eq!(commands(&script).len(), 1);
    }

    proptest! {
        #[test]
        fn any_text_is_analysed_without_panic(script in "[a-z$(){}<>|&;'\"`\\\\\n #=*?~-]{0,60}") {
            prop_assert!(!commands(&script).is_empty());
        }
    }
}
