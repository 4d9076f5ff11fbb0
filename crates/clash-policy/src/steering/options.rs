//! Options that name programs, settings or other roots: one row per program.

use clash_shell::ShellWord;

struct SteeringOptions {
    programs: &'static [&'static str],
    /// As written, `-x` or `--long`. A long one may be shortened or have `=value`.
    options: &'static [&'static str],
    /// A word that is known only when the command runs counts as one of the options.
    strict: bool,
}

#[rustfmt::skip]
const STEERING_OPTIONS: &[SteeringOptions] = &[
    SteeringOptions {
        programs: &["git"],
        options: &["--git-dir", "--work-tree", "--exec-path", "--config-env", "--upload-pack",
                   "--receive-pack", "--exec", "--template", "--separate-git-dir"],
        strict: true,
    },
    SteeringOptions {
        programs: &["kubectl", "oc"],
        options: &["--kubeconfig", "--server", "-s", "--certificate-authority", "--client-key",
                   "--client-certificate", "--insecure-skip-tls-verify", "--tls-server-name"],
        strict: true,
    },
    SteeringOptions {
        programs: &["helm"],
        options: &["--kubeconfig", "--kube-apiserver", "--kube-ca-file", "--post-renderer",
                   "--registry-config", "--repository-config", "--ca-file", "--cert-file",
                   "--key-file", "--insecure-skip-tls-verify"],
        strict: true,
    },
    SteeringOptions { programs: &["ssh"], options: &["-F", "-o", "-I", "-S", "-E", "-i"], strict: true },
    SteeringOptions { programs: &["scp", "sftp"], options: &["-F", "-o", "-S", "-D", "-i"], strict: true },
    SteeringOptions { programs: &["rsync"], options: &["-e", "--rsh", "--rsync-path"], strict: true },
    SteeringOptions {
        programs: &["aws"],
        options: &["--endpoint-url", "--ca-bundle", "--no-verify-ssl"],
        strict: true,
    },
    SteeringOptions { programs: &["gcloud"], options: &["--flags-file"], strict: true },
    SteeringOptions { programs: &["cargo"], options: &["--config"], strict: false },
    SteeringOptions {
        programs: &["npm", "npx", "pnpm", "yarn"],
        options: &["--userconfig", "--globalconfig", "--script-shell", "--node-options"],
        strict: false,
    },
    SteeringOptions {
        programs: &["mvn", "mvnw"],
        options: &["-s", "--settings", "-gs", "--global-settings", "-t", "--toolchains"],
        strict: false,
    },
    SteeringOptions { programs: &["gradle", "gradlew"], options: &["-I", "--init-script"], strict: false },
];

/// Why an option steers the program: the first one of its row that the rule does not name.
/// `None` for programs without a row. Words behind `--` do not count.
pub(super) fn steering_option(
    program: &str,
    words: &[ShellWord],
    named: &[String],
) -> Option<String> {
    let row = STEERING_OPTIONS.iter().find(|row| row.programs.contains(&program))?;
    for word in words.iter().skip(1) {
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
