//! Options that name programs, settings or other roots: one row per program.

use clash_shell::ShellWord;

struct SteeringOptions {
    programs: &'static [&'static str],
    /// As written, `-x` or `--long`. A long one may be shortened or have `=value`.
    options: &'static [&'static str],
    /// A word that is known only when the command runs counts as one of the options.
    strict: bool,
    /// Subcommands that print credentials, or that run or change other programs.
    subcommands: &'static [&'static str],
}

#[rustfmt::skip]
const STEERING_OPTIONS: &[SteeringOptions] = &[
    SteeringOptions {
        programs: &["git"],
        options: &["--git-dir", "--work-tree", "--exec-path", "--config-env", "--upload-pack",
                   "--receive-pack", "--exec", "--template", "--separate-git-dir"],
        strict: true,
        subcommands: &["credential", "credential-cache", "credential-store"],
    },
    SteeringOptions {
        programs: &["gh"],
        options: &["--hostname", "--show-token"],
        strict: false,
        subcommands: &["alias", "auth token", "config", "extension"],
    },
    SteeringOptions {
        programs: &["kubectl", "oc"],
        options: &["--kubeconfig", "--server", "-s", "--certificate-authority", "--client-key",
                   "--client-certificate", "--insecure-skip-tls-verify", "--tls-server-name", "--raw", "--token"],
        strict: true,
        subcommands: &["plugin"],
    },
    SteeringOptions {
        programs: &["helm"],
        options: &["--kubeconfig", "--kube-apiserver", "--kube-ca-file", "--post-renderer",
                   "--registry-config", "--repository-config", "--ca-file", "--cert-file",
                   "--key-file", "--insecure-skip-tls-verify"],
        strict: true,
        subcommands: &["plugin"],
    },
    SteeringOptions { programs: &["ssh"], options: &["-A", "-D", "-E", "-F", "-I", "-i", "-J", "-L", "-M", "-O", "-o", "-R", "-S", "-W", "-w",
                   "-X", "-Y"], strict: true, subcommands: &[] },
    SteeringOptions { programs: &["scp", "sftp"], options: &["-A", "-D", "-F", "-i", "-J", "-o", "-S"], strict: true, subcommands: &[] },
    SteeringOptions { programs: &["rsync"], options: &["-e", "--rsh", "--rsync-path"], strict: true, subcommands: &[] },
    SteeringOptions {
        programs: &["aws"],
        options: &["--endpoint-url", "--ca-bundle", "--no-verify-ssl"],
        strict: true,
        subcommands: &["codeartifact get-authorization-token", "configure", "ecr get-login-password",
                       "eks get-token", "sts assume-role", "sts get-session-token"],
    },
    SteeringOptions { programs: &["gcloud"], options: &["--flags-file"], strict: true, subcommands: &["auth print-access-token", "auth print-identity-token", "config config-helper"] },
    SteeringOptions { programs: &["cargo"], options: &["--config"], strict: false, subcommands: &[] },
    SteeringOptions {
        programs: &["npm", "npx", "pnpm", "yarn"],
        options: &["--userconfig", "--globalconfig", "--script-shell", "--node-options"],
        strict: false,
        subcommands: &[],
    },
    SteeringOptions {
        programs: &["mvn", "mvnw"],
        options: &["-s", "--settings", "-gs", "--global-settings", "-t", "--toolchains"],
        strict: false,
        subcommands: &[],
    },
    SteeringOptions { programs: &["gradle", "gradlew"], options: &["-I", "--init-script"], strict: false, subcommands: &[] },
];

/// Options of ssh that neither name a program or a file nor weaken the check of the host. git
/// uses the first.
const PLAIN_SSH_OPTIONS: &[&str] =
    &["SendEnv=GIT_PROTOCOL", "BatchMode=yes", "StrictHostKeyChecking=yes"];

/// Programs with credentials that run no code of their caller's choice without a steering
/// option or subcommand.
const TAMED: &[&str] =
    &["aws", "gcloud", "gh", "git", "helm", "kubectl", "oc", "scp", "sftp", "ssh"];

/// Programs with credentials that cannot be kept from running code of their caller's choice,
/// and the reason. A command of such a program gets credentials behind a door only if the
/// script itself names the command.
const RUNS_OTHER_CODE: &[(&str, &str)] = &[
    ("cargo", "it runs build scripts"),
    ("docker", "it mounts any file"),
    ("npm", "it runs scripts of packages"),
    ("pip", "it runs the setup of packages"),
    ("psql", "it obeys commands in its input"),
];

/// Why a program gets credentials behind a door only if the script itself names the command.
/// `None` if the tables say which commands are steered.
pub fn untamed(program: &str) -> Option<&'static str> {
    if let Some((_, why)) = RUNS_OTHER_CODE.iter().find(|(name, _)| *name == program) {
        return Some(why);
    }
    let is_tamed = TAMED.contains(&program);
    (!is_tamed).then_some("clash does not know its options")
}

/// Why the words steer the program: a subcommand of its row, or the first option of its row
/// that the rule does not name. In a strict row, a word that is known only when it runs
/// counts too. `None` for programs without a row. Words behind `--` do not count.
pub(super) fn steering_option(
    program: &str,
    words: &[ShellWord],
    named: &[String],
) -> Option<String> {
    let row = STEERING_OPTIONS.iter().find(|row| row.programs.contains(&program))?;
    if let Some(subcommand) = row.subcommands.iter().find(|it| has_subcommand(words, it)) {
        return Some(format!("{program} {subcommand} shows credentials or runs other programs"));
    }
    let mut is_plain_value = false;
    for (at, word) in words.iter().enumerate().skip(1) {
        if std::mem::take(&mut is_plain_value) {
            continue;
        }
        if program == "ssh" && is_plain_ssh_option(word, words.get(at + 1)) {
            is_plain_value = word.known() == Some("-o");
            continue;
        }
        match word {
            ShellWord::Known(text) if text == "--" => return None,
            ShellWord::Known(text) => {
                let found = row.options.iter().find(|option| is_option(text, option));
                if let Some(option) = found.filter(|option| !named.iter().any(|it| it == **option))
                {
                    return Some(format!("the option {option} steers {program}"));
                }
            }
            ShellWord::Home(_) => {}
            ShellWord::Partial(start) if !start.is_empty() && !start.starts_with('-') => {}
            ShellWord::Partial(_) | ShellWord::Unknown if row.strict => {
                return Some("a word of it is known only when it runs".to_owned());
            }
            ShellWord::Partial(_) | ShellWord::Unknown => {}
        }
    }
    None
}

/// True if the first words that are no options are those of the subcommand. Values of two
/// options can stand in front of them.
fn has_subcommand(words: &[ShellWord], subcommand: &str) -> bool {
    let mut wanted = subcommand.split(' ').peekable();
    let known = words.iter().skip(1).filter_map(ShellWord::known);
    let plain = known.filter(|word| !word.starts_with('-'));
    for word in plain.take(subcommand.split(' ').count() + 2) {
        if wanted.peek() == Some(&word) {
            wanted.next();
        }
        if wanted.peek().is_none() {
            return true;
        }
    }
    false
}

/// `-o SendEnv=GIT_PROTOCOL` and its like, in one word or two.
fn is_plain_ssh_option(word: &ShellWord, next: Option<&ShellWord>) -> bool {
    let value = match word.known() {
        Some("-o") => next.and_then(ShellWord::known),
        Some(word) => word.strip_prefix("-o"),
        None => None,
    };
    value.is_some_and(|value| PLAIN_SSH_OPTIONS.contains(&value))
}

/// True if a word is this option: with a value (`-Ffile`, `--config=x`), or abbreviated to
/// at least three letters.
fn is_option(word: &str, option: &str) -> bool {
    if !option.starts_with("--") {
        return word == option || option.len() == 2 && word.starts_with(option);
    }
    let name = word.split('=').next().unwrap_or_default();
    // Programs take `--upload` for `--upload-pack`.
    name == option || name.len() > 4 && name.starts_with("--") && option.starts_with(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steered(script: &str) -> Option<String> {
        let command = clash_shell::find_commands(script).remove(0);
        let program = command.words.first().and_then(ShellWord::known).unwrap().to_owned();
        steering_option(&program, &command.words, &[])
    }

    #[test]
    fn each_option_and_each_subcommand_of_the_tables_steers() {
        for row in STEERING_OPTIONS {
            for program in row.programs {
                for option in row.options {
                    assert!(steered(&format!("{program} {option} x")).is_some(), "{option}");
                    let with_value = format!("{program} a {option}=x b");
                    let is_long = option.starts_with("--");
                    assert!(!is_long || steered(&with_value).is_some(), "{option}");
                }
                for subcommand in row.subcommands {
                    assert!(
                        steered(&format!("{program} {subcommand} x")).is_some(),
                        "{subcommand}"
                    );
                    assert!(steered(&format!("{program} -z v {subcommand}")).is_some());
                }
                assert_eq!(steered(&format!("{program} x y")), None, "{program}");
            }
        }
    }

    #[test]
    fn git_may_start_ssh_with_its_own_option() {
        assert_eq!(steered("ssh -o SendEnv=GIT_PROTOCOL git@host 'git-upload-pack x'"), None);
        assert_eq!(steered("ssh -oBatchMode=yes -p 22 git@host x"), None);
        for script in [
            "ssh -o ProxyCommand=x host",
            "ssh -oProxyCommand=x host",
            "ssh -o SendEnv=GIT_PROTOCOL -o ProxyCommand=x host",
            "ssh -o SendEnv=GIT_PROTOCOL -F x host",
            "ssh -o StrictHostKeyChecking=no host",
        ] {
            assert!(steered(script).is_some(), "{script}");
        }
    }

    #[test]
    fn programs_that_run_other_code_are_not_tamed() {
        for program in TAMED {
            assert_eq!(untamed(program), None, "{program}");
            assert!(STEERING_OPTIONS.iter().any(|row| row.programs.contains(program)));
        }
        for program in ["npm", "cargo", "pip", "docker", "psql", "deploy"] {
            assert!(untamed(program).is_some(), "{program}");
        }
    }
}
