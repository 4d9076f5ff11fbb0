//! Finds settings of a repository that can name a program.
//!
//! The tables list harmless settings, so an unknown setting of a later git counts as
//! dangerous.

use clash_shell::is_plain_git_setting;

/// Settings without a middle part, in lower case.
#[rustfmt::skip]
const PLAIN: &[&str] = &[
    "core.attributesfile", "core.bigfilethreshold", "core.checkstat", "core.excludesfile",
    "core.logallrefupdates", "core.protecthfs", "core.protectntfs", "core.repositoryformatversion",
    "core.sharedrepository", "core.sparsecheckout", "core.sparsecheckoutcone", "core.splitindex",
    "core.trustctime", "credential.usehttppath", "credential.username", "diff.tool",
    "extensions.compatobjectformat", "extensions.objectformat", "extensions.partialclone",
    "extensions.preciousobjects", "extensions.refstorage", "extensions.relativeworktrees",
    "extensions.worktreeconfig", "gpg.format", "lfs.repositoryformatversion", "lfs.url",
    "merge.log", "merge.renames", "merge.stat", "merge.tool",
];

/// Sections that the checked commands do not read.
const UNUSED: &[&str] = &["alias", "difftool", "gui", "mergetool"];

/// Last parts of settings with a middle part, for example `remote.origin.url`.
#[rustfmt::skip]
const PLAIN_PARTS: &[(&str, &[&str])] = &[
    ("credential", &["usehttppath", "username"]),
    ("lfs", &["access", "locksverify"]),
    ("remote", &["fetch", "followremotehead", "gh-resolved", "mirror", "partialclonefilter",
                 "promisor", "prune", "prunetags", "push", "skipdefaultupdate", "skipfetchall",
                 "tagopt"]),
    ("submodule", &["active", "branch", "fetchrecursesubmodules", "ignore", "path", "shallow"]),
];

/// Settings that are harmless with exactly these values.
#[rustfmt::skip]
const EXACT: &[(&str, &[&str])] = &[
    ("core.fsmonitor", &["", "true", "false"]),
    ("filter.lfs.clean", &["git-lfs clean -- %f"]),
    ("filter.lfs.process", &["git-lfs filter-process", "git-lfs filter-process --skip"]),
    ("filter.lfs.required", &["true", "false"]),
    ("filter.lfs.smudge", &["git-lfs smudge -- %f", "git-lfs smudge --skip -- %f"]),
    ("http.sslverify", &["true"]),
];

/// Credential helpers of git and its packages.
#[rustfmt::skip]
const HELPERS: &[&str] = &[
    "", "cache", "libsecret", "manager", "osxkeychain", "store", "!gh auth git-credential",
    "!/usr/bin/gh auth git-credential", "!/usr/local/bin/gh auth git-credential",
];

/// One setting: `section.middle.name` with section and name in lower case.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct GitSetting {
    pub(super) section: String,
    pub(super) middle: Option<String>,
    pub(super) name: String,
    pub(super) value: String,
}

impl GitSetting {
    /// For example `remote.origin.url`.
    pub(super) fn full_name(&self) -> String {
        match &self.middle {
            Some(middle) => format!("{}.{middle}.{}", self.section, self.name),
            None => format!("{}.{}", self.section, self.name),
        }
    }

    /// True if the setting is on a list of harmless ones. An unknown setting counts as
    /// dangerous.
    fn names_no_program(&self) -> bool {
        let (section, name, value) = (self.section.as_str(), self.name.as_str(), &self.value);
        let full = self.full_name();
        let judged = super::config_change::is_judged_harmless(self);
        if judged || UNUSED.contains(&section) || is_plain_git_setting(&full.to_lowercase()) {
            return true;
        }
        if let Some((_, values)) = EXACT.iter().find(|(known, _)| *known == full) {
            return values.contains(&value.as_str());
        }
        match (section, name) {
            ("credential", "helper") => HELPERS.contains(&value.as_str()),
            ("core", "sshcommand") => is_plain_ssh(value),
            // `ext::program` runs a program.
            ("remote", "url" | "pushurl") | ("submodule", "url") => !value.contains("::"),
            ("url", "insteadof" | "pushinsteadof") => !full.contains("::") && !value.contains("::"),
            ("submodule", "update") => !value.starts_with('!'),
            _ if self.middle.is_none() => PLAIN.contains(&full.as_str()),
            _ => {
                PLAIN_PARTS.iter().any(|(known, names)| *known == section && names.contains(&name))
            }
        }
    }
}

/// True for an ssh command with harmless options only. For example, `ssh -i ~/.ssh/work -o
/// IdentitiesOnly=yes` only chooses a key.
fn is_plain_ssh(value: &str) -> bool {
    let mut words = value.split_ascii_whitespace();
    let plain = |word: &str| {
        !word.starts_with('-')
            && word.chars().all(|c| c.is_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '~'))
    };
    if words.next() != Some("ssh") {
        return false;
    }
    while let Some(word) = words.next() {
        let fine = match word {
            "-4" | "-6" | "-q" | "-v" => true,
            "-i" | "-p" => words.next().is_some_and(plain),
            "-o" => matches!(words.next(), Some("IdentitiesOnly=yes" | "IdentitiesOnly=no")),
            _ => false,
        };
        if !fine {
            return false;
        }
    }
    true
}

/// The last value of `core.hooksPath`, if any. Fails with the name of the first setting that
/// can name a program, or if the text is not certainly understood.
pub(super) fn check_settings(text: &str) -> Result<Option<String>, String> {
    let mut hooks = None;
    for setting in parse_settings(text).ok_or("a line that is no setting")? {
        if setting.section == "core" && setting.middle.is_none() && setting.name == "hookspath" {
            hooks = Some(setting.value);
        } else if !setting.names_no_program() {
            return Err(setting.full_name());
        }
    }
    Ok(hooks)
}

/// As [`check_settings`], for a submodule. `core.worktree` may lead to its own work tree
/// (`../…`); `core.hooksPath` counts as dangerous.
pub(super) fn check_submodule(text: &str) -> Result<(), String> {
    for setting in parse_settings(text).ok_or("a line that is no setting")? {
        let own_tree = setting.full_name() == "core.worktree" && setting.value.starts_with("../");
        if !own_tree && !setting.names_no_program() {
            return Err(setting.full_name());
        }
    }
    Ok(())
}

/// Every value of `section.*.name` and `section.name`. Empty if the text is not valid.
pub(super) fn values(text: &str, section: &str, name: &str) -> Vec<String> {
    let found = parse_settings(text).unwrap_or_default().into_iter();
    found.filter(|it| it.section == section && it.name == name).map(|it| it.value).collect()
}

/// Parses a settings file as git does. `None` if any part is not certainly understood.
pub(super) fn parse_settings(text: &str) -> Option<Vec<GitSetting>> {
    let mut found = Vec::new();
    let (mut section, mut middle) = (String::new(), None);
    let text = text.strip_prefix('\u{feff}').unwrap_or(text).replace("\r\n", "\n");
    let mut rest = text.as_str();
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\n', '\r', '\u{b}', '\u{c}']);
        if rest.is_empty() {
            return Some(found);
        }
        if rest.starts_with(['#', ';']) {
            rest = rest.split_once('\n').map_or("", |(_, after)| after);
        } else if let Some(header) = rest.strip_prefix('[') {
            ((section, middle), rest) = read_header(header)?;
        } else {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '-');
            let (name, after) = rest.split_at(end.unwrap_or(rest.len()));
            if name.is_empty() || section.is_empty() {
                return None;
            }
            let after = after.trim_start_matches([' ', '\t']);
            let (value, after) = match after.strip_prefix('=') {
                Some(value) => read_value(value)?,
                // A name without a value means true.
                None => {
                    let end = after.find('\n').unwrap_or(after.len());
                    let (line, after) = after.split_at(end);
                    if !line.trim().is_empty() && !line.trim_start().starts_with(['#', ';']) {
                        return None;
                    }
                    ("true".to_owned(), after)
                }
            };
            found.push(GitSetting {
                section: section.clone(),
                middle: middle.clone(),
                name: name.to_ascii_lowercase(),
                value,
            });
            rest = after;
        }
    }
}

type SectionHeader = (String, Option<String>);

/// Parses `core]`, `remote "origin"]` or `branch.main]`. Also returns the rest. `None` for
/// any other form.
fn read_header(text: &str) -> Option<(SectionHeader, &str)> {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '-' | '.'))?;
    let (name, rest) = text.split_at(end);
    let name = name.to_ascii_lowercase();
    if let Some(rest) = rest.strip_prefix(']') {
        return Some(match name.split_once('.') {
            Some((section, middle)) => ((section.to_owned(), Some(middle.to_owned())), rest),
            None => ((name, None), rest),
        });
    }
    let mut quoted = rest.trim_start_matches([' ', '\t']).strip_prefix('"')?.chars();
    let mut middle = String::new();
    loop {
        match quoted.next()? {
            '"' => break,
            '\\' => middle.push(quoted.next()?),
            '\n' => return None,
            c => middle.push(c),
        }
    }
    Some(((name, Some(middle)), quoted.as_str().strip_prefix(']')?))
}

/// Parses a value without quotes, escapes and comment. Also returns the rest of the file.
/// `None` for an open quote or an unknown escape.
fn read_value(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut kept = 0;
    let mut quoted = false;
    let mut rest = text.trim_start_matches([' ', '\t']).chars();
    loop {
        match rest.next() {
            None | Some('\n') if quoted => return None,
            None | Some('\n') => break,
            Some('"') => quoted = !quoted,
            Some('\\') => match rest.next()? {
                '\n' => continue,
                'n' => value.push('\n'),
                't' => value.push('\t'),
                'b' => value.push('\u{8}'),
                c @ ('"' | '\\') => value.push(c),
                _ => return None,
            },
            Some('#' | ';') if !quoted => {
                let after = rest.as_str();
                let end = after.find('\n').unwrap_or(after.len());
                value.truncate(kept);
                return Some((value, after.get(end..).unwrap_or_default()));
            }
            Some(c @ (' ' | '\t')) if !quoted => {
                value.push(c);
                continue;
            }
            Some(c) => value.push(c),
        }
        kept = value.len();
    }
    value.truncate(kept);
    Some((value, rest.as_str()))
}
