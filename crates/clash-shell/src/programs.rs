//! The position of a program's subcommand: which options come before it, and which of
//! them take the next word as their value. In `git -C dir push` it is the fourth word.
//!
//! Data only; a program is one row. Options are given as they are written, `-x` or
//! `--long`. An option in neither list makes the position of the subcommand unsure.

use super::ShellWord;

/// The next word that means something to a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextWord {
    /// It certainly is `words[index]`.
    Sure { index: usize },
    /// There certainly is no further word.
    End,
    /// An unknown word, or an option that may take a value, stands in the way.
    Unsure,
}

/// One row: a program and its options in front of the subcommand.
struct ProgramOptions {
    names: &'static [&'static str],
    /// Options without a value.
    flags: &'static [&'static str],
    /// Options that take the next word, or `--option=value`, `-xvalue`.
    valued: &'static [&'static str],
    /// They may also stand behind the subcommand.
    anywhere: bool,
    /// A word that starts with this is an option (`+nightly`).
    plus: bool,
    /// Flags that may have a value attached (`-j8`).
    attached: &'static [&'static str],
}

const fn program(
    names: &'static [&'static str],
    anywhere: bool,
    flags: &'static [&'static str],
    valued: &'static [&'static str],
) -> ProgramOptions {
    ProgramOptions { names, flags, valued, anywhere, plus: false, attached: &[] }
}

#[rustfmt::skip]
const PROGRAMS: &[ProgramOptions] = &[
    program(&["git"], false,
        &["-P", "--no-pager", "-p", "--paginate", "--bare", "--no-replace-objects", "--no-lazy-fetch", "--no-optional-locks", "--no-advice", "--literal-pathspecs", "--glob-pathspecs", "--noglob-pathspecs", "--icase-pathspecs"],
        &["-C", "-c", "--git-dir", "--work-tree", "--namespace", "--super-prefix", "--config-env", "--attr-source"]),
    ProgramOptions { plus: true, ..program(&["cargo"], false,
        &["-q", "--quiet", "-v", "-vv", "--verbose", "--locked", "--offline", "--frozen"],
        &["--color", "--config", "-Z", "-C"]) },
    program(&["npm", "pnpm"], true,
        &["-g", "--global", "-s", "--silent", "-q", "--quiet", "-d", "--verbose", "--workspaces", "--include-workspace-root", "-r", "--recursive", "--yes", "-y", "--no-audit", "--no-fund", "--if-present"],
        &["--prefix", "-C", "--dir", "-w", "--workspace", "-F", "--filter", "--registry", "--cache", "--userconfig", "--loglevel"]),
    program(&["yarn"], false, &["-s", "--silent", "--offline", "--frozen-lockfile", "--verbose"], &["--cwd", "--cache-folder", "--registry"]),
    program(&["bun"], false, &["--silent", "--bun", "--hot", "--watch"], &["--cwd", "--config", "-c", "--filter", "-F"]),
    program(&["docker", "podman"], false,
        &["-D", "--debug", "--tls", "--tlsverify"],
        &["-H", "--host", "-c", "--context", "--config", "-l", "--log-level", "--tlscacert", "--tlscert", "--tlskey", "--url", "--connection"]),
    program(&["kubectl"], true,
        &["--insecure-skip-tls-verify", "--match-server-version", "--warnings-as-errors"],
        &["-n", "--namespace", "--context", "--cluster", "--user", "--kubeconfig", "-s", "--server", "--token", "--as", "--as-group", "--request-timeout", "-v", "--v", "--cache-dir", "--certificate-authority", "--client-certificate", "--client-key", "--profile"]),
    program(&["gh"], true, &[], &["-R", "--repo", "--hostname"]),
    program(&["terraform", "tofu"], false, &["-no-color"], &["-chdir"]),
    program(&["aws"], true,
        &["--debug", "--no-verify-ssl", "--no-paginate", "--no-sign-request", "--no-cli-pager", "--no-cli-auto-prompt"],
        &["--endpoint-url", "--output", "--query", "--profile", "--region", "--color", "--ca-bundle", "--cli-read-timeout", "--cli-connect-timeout"]),
    program(&["gcloud"], true,
        &["-q", "--quiet", "--no-user-output-enabled"],
        &["--account", "--project", "--configuration", "--format", "--verbosity", "--billing-project", "--impersonate-service-account", "--flags-file"]),
    program(&["az"], true, &["--debug", "--verbose", "--only-show-errors"], &["-o", "--output", "--query", "--subscription"]),
    program(&["go"], false, &[], &["-C"]),
    program(&["composer"], true,
        &["-n", "--no-interaction", "-q", "--quiet", "-v", "-vv", "-vvv", "--verbose", "--ansi", "--no-ansi", "--no-plugins", "--no-scripts", "--no-cache", "--profile"],
        &["-d", "--working-dir"]),
    program(&["mvn"], true,
        &["-q", "--quiet", "-B", "--batch-mode", "-o", "--offline", "-U", "--update-snapshots", "-e", "--errors", "-X", "--debug", "-ntp", "--no-transfer-progress", "-am", "-amd", "-N"],
        &["-f", "--file", "-pl", "--projects", "-P", "--activate-profiles", "-s", "--settings", "-T", "--threads"]),
    // The word behind `-m` is the program that runs.
    program(&["python", "python3"], false,
        &["-m", "-b", "-B", "-d", "-E", "-i", "-I", "-O", "-OO", "-P", "-q", "-s", "-S", "-u", "-v"],
        &["-c", "-W", "-X"]),
    program(&["pip", "pip3"], false,
        &["-v", "--verbose", "-q", "--quiet", "--isolated", "--no-input", "--require-virtualenv", "--no-cache-dir", "--disable-pip-version-check", "--no-color", "--debug"],
        &["--python", "--log", "--proxy", "--retries", "--timeout", "--exists-action", "--trusted-host", "--cert", "--client-cert", "--cache-dir", "--use-feature"]),
    program(&["uv"], false,
        &["-q", "--quiet", "-v", "--verbose", "--offline", "--no-progress", "--no-config", "-n", "--no-cache", "--native-tls"],
        &["--directory", "--project", "--config-file", "--cache-dir", "--color", "--python-preference", "--allow-insecure-host"]),
    program(&["poetry"], false,
        &["-q", "--quiet", "-n", "--no-interaction", "-v", "-vv", "-vvv", "--verbose", "--ansi", "--no-ansi", "--no-plugins", "--no-cache"],
        &["-C", "--directory", "-P", "--project"]),
    program(&["systemctl"], true,
        &["--user", "--system", "--global", "-q", "--quiet", "--no-pager", "--now", "--no-block", "--no-legend", "-a", "--all", "-l", "--full", "--no-ask-password", "-f", "--force", "--runtime", "--failed", "--plain"],
        &["-t", "--type", "--state", "-p", "--property", "-H", "--host", "-M", "--machine", "-n", "--lines", "-o", "--output", "--root", "-s", "--signal", "--job-mode"]),
    ProgramOptions { attached: &["-j", "-l"], ..program(&["make", "gmake"], true,
        &["-s", "--silent", "--quiet", "-k", "--keep-going", "-B", "--always-make", "-n", "--dry-run", "-i", "-r", "-R", "-q", "-t", "-w", "-d", "-e", "-b", "-p", "--no-print-directory", "--print-directory", "-S", "-v", "--version", "-j", "--jobs", "-l"],
        &["-C", "--directory", "-f", "--file", "--makefile", "-I", "--include-dir", "-o", "-W", "--eval"]) },
    program(&["ssh"], false,
        &["-1", "-2", "-4", "-6", "-A", "-a", "-C", "-f", "-G", "-g", "-K", "-k", "-M", "-N", "-n", "-q", "-s", "-T", "-t", "-tt", "-V", "-v", "-vv", "-vvv", "-X", "-x", "-Y", "-y"],
        &["-B", "-b", "-c", "-D", "-E", "-e", "-F", "-I", "-i", "-J", "-L", "-l", "-m", "-O", "-o", "-P", "-p", "-Q", "-R", "-S", "-W", "-w"]),
];

/// The name of a program if it is certainly a program of the system: a bare name, or a path
/// in a directory that only an administrator can write. `None` for `./git` and
/// `/opt/x/git`.
pub fn program_name(word: &str) -> Option<&str> {
    match word.rsplit_once('/') {
        None => Some(word),
        Some(("/bin" | "/usr/bin" | "/sbin" | "/usr/sbin" | "/usr/local/bin", name)) => Some(name),
        Some(_) => None,
    }
}

/// True for the names of shells, for example `bash`. A path is no name.
pub fn is_shell(name: &str) -> bool {
    const SHELLS: [&str; 9] = ["sh", "bash", "rbash", "dash", "ash", "zsh", "ksh", "mksh", "fish"];
    SHELLS.contains(&name)
}

/// The next significant word at or behind `at`: the program for 0, then its subcommand,
/// then the words after it. For the programs of the table, options and their values are
/// skipped. Behind `--` every word is significant.
///
/// It is never sure of a word behind an unknown option, which could take that word as its
/// value, nor of a word behind one that the shell decides, nor of anything if the program
/// itself is unknown or in a directory of its own, as `./git`.
pub fn next_significant(words: &[ShellWord], at: usize) -> NextWord {
    let Some(first) = words.first() else { return NextWord::End };
    let Some(name) = first.known().and_then(program_name) else { return NextWord::Unsure };
    if at == 0 {
        return NextWord::Sure { index: 0 };
    }
    let base = PROGRAMS.iter().find(|program| program.names.contains(&name));
    let mut index = 1;
    let mut subcommand = false;
    let mut plain = false;
    loop {
        let found = index;
        let Some(word) = words.get(index) else { return NextWord::End };
        let Some(text) = word.known() else { return NextWord::Unsure };
        index += 1;
        if !plain {
            if text == "--" {
                plain = true;
                continue;
            }
            let plus =
                base.is_some_and(|program| program.plus) && text.starts_with('+') && found == 1;
            if plus {
                continue;
            }
            if text.len() > 1 && text.starts_with('-') {
                let table = base.filter(|program| program.anywhere || !subcommand);
                match table.and_then(|program| program.option(text)) {
                    Some(values) => index += values,
                    // The word behind this option is in front of `at`, so it does not
                    // matter if the option takes it.
                    None if index < at => {}
                    None => return NextWord::Unsure,
                }
                if index > at
                    && words.get(found + 1..index).is_some_and(|v| v.iter().any(|w| !w.is_one()))
                {
                    return NextWord::Unsure;
                }
                continue;
            }
        }
        subcommand = true;
        if found >= at {
            return NextWord::Sure { index: found };
        }
    }
}

impl ProgramOptions {
    /// How many words behind it the option takes; `None` if it is not known.
    fn option(&self, text: &str) -> Option<usize> {
        if self.flags.contains(&text) {
            return Some(0);
        }
        if self.valued.contains(&text) {
            return Some(1);
        }
        // `--option=value` never takes the next word.
        if let Some((name, _)) = text.split_once('=')
            && (self.valued.contains(&name) || self.flags.contains(&name))
        {
            return Some(0);
        }
        if text.starts_with("--") {
            return None;
        }
        // `-Cdir`, `-j8`
        let short = text.get(..2)?;
        (self.valued.contains(&short) || self.attached.contains(&short)).then_some(0)
    }
}
