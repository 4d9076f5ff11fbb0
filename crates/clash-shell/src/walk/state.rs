//! The state of a script so far: variables, directory, positional parameters.
//!
//! Only certain facts are kept. A value that one branch sets is forgotten where the
//! branches join.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::super::{CommandDirectory, SetVariable, ShellWord};
use crate::variables::is_harmless_variable;

/// The value of a variable, as far as it is certain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum VariableValue {
    Known(String),
    /// Some number: harmless in arithmetic and never split.
    Number,
    Unknown,
}

impl VariableValue {
    pub(super) fn is_numeric(&self) -> bool {
        match self {
            Self::Known(text) => is_number(text),
            Self::Number => true,
            Self::Unknown => false,
        }
    }

    /// The value if one of two holds.
    fn join(a: &Self, b: &Self) -> Self {
        if a == b {
            a.clone()
        } else if a.is_numeric() && b.is_numeric() {
            Self::Number
        } else {
            Self::Unknown
        }
    }
}

/// True for digits, with or without signs before them. The empty text and signs alone count
/// too: bash takes them for 0, or fails.
pub(super) fn is_number(text: &str) -> bool {
    let digits = text.trim_start_matches(['-', '+']);
    digits.bytes().all(|b| b.is_ascii_digit())
}

/// A state to return to.
pub(super) struct StateMark {
    journal: usize,
    cwd: CommandDirectory,
    positional: Option<Rc<[ShellWord]>>,
    steered: Option<&'static str>,
    set: usize,
    exports_all: bool,
    errexit: bool,
}

/// The facts about the shell that are certain at this place of the script.
#[derive(Default)]
pub(super) struct ScriptState {
    variables: HashMap<String, VariableValue>,
    /// Every change with the value before it, so that going back costs only the
    /// changes.
    journal: Vec<(String, Option<VariableValue>)>,
    /// Names whose assignments do more than set a value.
    frozen: HashSet<String>,
    /// Something may have set any variable.
    untracked: bool,
    pub(super) cwd: CommandDirectory,
    pub(super) positional: Option<Rc<[ShellWord]>>,
    /// The script itself has set the positional parameters.
    pub(super) arguments_given: bool,
    /// Why later programs are unknown: the script set a variable such as `PATH`.
    pub(super) steered: Option<&'static str>,
    /// `IFS` may have another value, so words split elsewhere.
    pub(super) split_changed: bool,
    /// `set -e` certainly holds: a `cd` that fails ends the script.
    pub(super) errexit: bool,
    /// Variables that were given a value and are not harmless.
    pub(super) set: Vec<SetVariable>,
    /// `set -a`
    pub(super) exports_all: bool,
}

/// The first variables are listed by name. A script that sets more has also set a
/// variable of unknown name.
const MAX_SET_VARIABLES: usize = 32;

/// The name that stands for every variable.
pub(super) const ANY_VARIABLE: &str = "*";

/// Adds a variable to a list, unless it is harmless or the list has it. After 32 names, one
/// entry `*` stands for all further ones.
pub(super) fn note_variable(
    list: &mut Vec<SetVariable>,
    name: &str,
    value: Option<&str>,
    exported: bool,
) {
    if is_harmless_variable(name, value) {
        return;
    }
    if list.iter().any(|known| known.name == name && (known.exported || !exported)) {
        return;
    }
    let name = if list.len() < MAX_SET_VARIABLES { name } else { ANY_VARIABLE };
    if list.len() <= MAX_SET_VARIABLES {
        list.push(SetVariable { name: name.to_owned(), exported });
    }
}

/// True for names that bash sets itself or does not let a script set.
fn is_special(name: &str) -> bool {
    const SPECIAL_NAMES: &[&str] = &[
        "_",
        "COPROC",
        "DIRSTACK",
        "EPOCHREALTIME",
        "EPOCHSECONDS",
        "EUID",
        "FUNCNAME",
        "GROUPS",
        "HISTCMD",
        "LINENO",
        "MAPFILE",
        "OLDPWD",
        "OPTARG",
        "OPTIND",
        "OPTERR",
        "PIPESTATUS",
        "PPID",
        "PWD",
        "RANDOM",
        "READLINE_LINE",
        "REPLY",
        "SECONDS",
        "SHLVL",
        "SRANDOM",
        "UID",
        "HOSTNAME",
        "HOSTTYPE",
        "MACHTYPE",
        "OSTYPE",
    ];
    SPECIAL_NAMES.contains(&name) || name.starts_with("BASH") || name.starts_with("COMP_")
}

impl ScriptState {
    /// The value of a variable; `None` if the script never set it.
    pub(super) fn get(&self, name: &str) -> Option<&VariableValue> {
        let value = self.variables.get(name)?;
        if self.untracked { Some(&VariableValue::Unknown) } else { Some(value) }
    }

    /// As [`ScriptState::get`], but ignores that unknown code may have set it.
    pub(super) fn class(&self, name: &str) -> Option<&VariableValue> {
        self.variables.get(name)
    }

    /// True if the variable still has its value of the environment.
    pub(super) fn inherited(&self, name: &str) -> bool {
        !self.untracked && !self.variables.contains_key(name)
    }

    /// Sets a variable. A name that bash treats specially, or that is read-only, gets no
    /// certain text.
    pub(super) fn set(&mut self, name: &str, value: VariableValue) {
        let old = self.variables.get(name).cloned();
        let value = if self.frozen.contains(name) || is_special(name) {
            match &old {
                Some(old) if old.is_numeric() && value.is_numeric() => VariableValue::Number,
                _ => VariableValue::Unknown,
            }
        } else {
            value
        };
        if name == "IFS" {
            self.split_changed = true;
        }
        let known = match &value {
            VariableValue::Known(text) => Some(text.as_str()),
            VariableValue::Number | VariableValue::Unknown => None,
        };
        note_variable(&mut self.set, name, known, self.exports_all);
        self.journal.push((name.to_owned(), old));
        self.variables.insert(name.to_owned(), value);
    }

    /// From now on the value of this name is unknown.
    pub(super) fn freeze(&mut self, name: &str) {
        if let Some(value) = self.variables.get(name) {
            let class =
                if value.is_numeric() { VariableValue::Number } else { VariableValue::Unknown };
            self.set(name, class);
        }
        self.frozen.insert(name.to_owned());
    }

    /// From here on any variable may have any value: only names that the script set are
    /// known.
    pub(super) fn untrack(&mut self) {
        self.untracked = true;
        self.export(ANY_VARIABLE, None);
        self.split_changed = true;
        self.positional = None;
        self.cwd = CommandDirectory::Unknown;
    }

    /// Exports a variable to every later program.
    pub(super) fn export(&mut self, name: &str, value: Option<&str>) {
        note_variable(&mut self.set, name, value, true);
    }

    /// The facts that [`Self::back_to`] restores and [`Self::perhaps_since`] compares.
    /// Facts that only make the analysis more careful, such as a changed `IFS`, are not
    /// among them.
    pub(super) fn mark(&self) -> StateMark {
        StateMark {
            journal: self.journal.len(),
            cwd: self.cwd.clone(),
            positional: self.positional.clone(),
            steered: self.steered,
            set: self.set.len(),
            exports_all: self.exports_all,
            errexit: self.errexit,
        }
    }

    /// Drops all changes since the mark: another process made them.
    pub(super) fn back_to(&mut self, mark: StateMark) {
        while self.journal.len() > mark.journal {
            let Some((name, old)) = self.journal.pop() else { break };
            match old {
                Some(value) => self.variables.insert(name, value),
                None => self.variables.remove(&name),
            };
        }
        self.cwd = mark.cwd;
        self.positional = mark.positional;
        self.steered = mark.steered;
        self.set.truncate(mark.set);
        self.exports_all = mark.exports_all;
        self.errexit = mark.errexit;
    }

    /// Restores the directory of the mark.
    pub(super) fn back_to_cwd(&mut self, mark: &StateMark) {
        self.cwd.clone_from(&mark.cwd);
    }

    /// Forgets the value of every variable, and gives their number.
    pub(super) fn forget_all(&mut self) -> usize {
        let names: Vec<String> = self.variables.keys().cloned().collect();
        for name in &names {
            self.set(name, VariableValue::Unknown);
        }
        names.len()
    }

    /// Marks all changes since the mark as uncertain.
    pub(super) fn perhaps_since(&mut self, mark: &StateMark) {
        // The branch may end at any command, so every value in between counts.
        let mut joined: HashMap<String, VariableValue> = HashMap::new();
        for (name, before) in self.journal.get(mark.journal..).unwrap_or_default() {
            let value = match joined.get(name) {
                Some(value) => {
                    VariableValue::join(value, before.as_ref().unwrap_or(&VariableValue::Unknown))
                }
                // Never set: the environment's value, which arithmetic may use.
                None => before.clone().unwrap_or(VariableValue::Number),
            };
            joined.insert(name.clone(), value);
        }
        for (name, value) in joined {
            let now = self.variables.get(&name).unwrap_or(&VariableValue::Unknown);
            let value = VariableValue::join(&value, now);
            self.set(&name, value);
        }
        if self.cwd != mark.cwd {
            self.cwd = CommandDirectory::Unknown;
        }
        self.errexit &= mark.errexit;
        let same = match (&self.positional, &mark.positional) {
            (Some(now), Some(then)) => Rc::ptr_eq(now, then),
            (now, then) => now.is_none() && then.is_none(),
        };
        if !same {
            self.positional = None;
            self.arguments_given = true;
        }
    }

    /// `set -- …`
    pub(super) fn give_arguments(&mut self, words: &[ShellWord]) {
        self.positional = Some(Rc::from(words));
        self.arguments_given = true;
    }
}
