//! Variables that steer programs, and variables that certainly do not.

/// Names that change only the output of a program or the amount of its work.
#[rustfmt::skip]
const HARMLESS: &[&str] = &[
    "CARGO_INCREMENTAL", "CARGO_NET_OFFLINE", "CARGO_TARGET_DIR", "CARGO_TERM_COLOR",
    "CGO_ENABLED", "CI", "CLICOLOR", "CLICOLOR_FORCE", "COLORTERM", "COLUMNS", "DEBIAN_FRONTEND",
    "DEBUG", "FORCE_COLOR", "GH_FORCE_TTY", "GH_NO_UPDATE_NOTIFIER", "GH_PROMPT_DISABLED",
    "GH_REPO", "GIT_CURL_VERBOSE", "GIT_LFS_SKIP_SMUDGE", "GIT_MERGE_AUTOEDIT",
    "GIT_OPTIONAL_LOCKS", "GIT_PROGRESS_DELAY", "GIT_TERMINAL_PROMPT", "GOARCH", "GOOS", "HUSKY",
    "LANG", "LANGUAGE", "LINES", "NODE_ENV", "NO_COLOR", "NPM_CONFIG_AUDIT", "NPM_CONFIG_FUND",
    "NPM_CONFIG_LOGLEVEL", "NPM_CONFIG_PROGRESS", "PORT", "PYTHONDONTWRITEBYTECODE",
    "PYTHONUNBUFFERED", "RUST_BACKTRACE", "RUST_LOG", "SKIP", "TERM", "TZ", "VERBOSE",
];
const HARMLESS_STARTS: &[&str] = &["GIT_AUTHOR_", "GIT_COMMITTER_", "LC_"];

/// Values with which a pager, an editor or a browser runs no other program.
const IDLE_PROGRAMS: &[&str] = &["", ":", "cat", "false", "less", "less -R", "more", "true"];

/// Names that replace a program, its settings, its home or its connection.
#[rustfmt::skip]
const STEERING: &[&str] = &[
    "BROWSER", "CARGO", "CARGO_HOME", "CARGO_BUILD_RUSTC", "CARGO_BUILD_RUSTDOC", "CURL_CA_BUNDLE",
    "EDITOR", "ENV", "GOAUTH", "GOENV", "GOPROXY", "GOTOOLCHAIN", "GOTOOLDIR", "HOME", "KUBECONFIG",
    "NODE_EXTRA_CA_CERTS", "PAGER", "PATH", "REQUESTS_CA_BUNDLE", "RUSTC", "RUSTDOC",
    "RUSTUP_HOME", "RUSTUP_TOOLCHAIN", "SHELL", "VISUAL",
];
#[rustfmt::skip]
const STEERING_STARTS: &[&str] = &[
    "BASH", "CARGO_ALIAS_", "CARGO_BUILD_RUSTC_", "CARGO_HTTP_", "CARGO_NET_", "CARGO_REGISTR",
    "DYLD_", "GH_", "GIT_", "HELM_", "KUBE", "LD_", "MAVEN_", "MVN", "NPM_CONFIG_", "RUSTC_",
    "SSH_", "SSL_CERT_", "XDG_",
];
const STEERING_ENDS: &[&str] = &[
    "_ASKPASS",
    "_BROWSER",
    "_COMMAND",
    "_CONFIG",
    "_EDITOR",
    "_LINKER",
    "_OPTIONS",
    "_OPTS",
    "_PAGER",
    "_PROXY",
    "_RUNNER",
    "_USER_HOME",
];

/// True if a variable with this value steers no program, for example `LANG=C` or
/// `PAGER=cat`. `None` is a value that is known only when the script runs. Upper and lower
/// case count as the same.
pub fn is_harmless_variable(name: &str, value: Option<&str>) -> bool {
    let upper = name.to_ascii_uppercase();
    if HARMLESS.contains(&upper.as_str()) || HARMLESS_STARTS.iter().any(|it| upper.starts_with(it))
    {
        return true;
    }
    let Some(value) = value else { return false };
    let idle = ["PAGER", "EDITOR", "VISUAL", "BROWSER"].iter().any(|end| upper.ends_with(end));
    if idle && (IDLE_PROGRAMS.contains(&value) || upper.ends_with("EDITOR") && is_plain_sed(value))
    {
        return true;
    }
    let sets_size = upper.ends_with("_OPTS") || upper.ends_with("_OPTIONS");
    sets_size && value.split_ascii_whitespace().all(is_size)
}

/// True if a variable replaces a toolchain or its settings, for example `RUSTC` or
/// `GIT_DIR`. It steers even programs that run code of the project anyway.
pub fn is_steering_variable(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    STEERING.contains(&upper.as_str())
        || STEERING_STARTS.iter().any(|it| upper.starts_with(it))
        || STEERING_ENDS.iter().any(|it| upper.ends_with(it))
}

/// True if a variable names a program that git starts, or a place of git's settings, for
/// example `GIT_EDITOR`. Such a program runs in the sandbox of git.
pub fn names_program_of_git(name: &str) -> bool {
    #[rustfmt::skip]
    const NAMES: &[&str] = &[
        "BROWSER", "EDITOR", "GIT_EXEC_PATH", "GIT_EXTERNAL_DIFF", "GIT_SSH", "GIT_TEMPLATE_DIR",
        "HOME", "PAGER", "VISUAL", "XDG_CONFIG_HOME",
    ];
    NAMES.contains(&name)
        || name.starts_with("GIT_CONFIG")
        || ["_ASKPASS", "_COMMAND", "_EDITOR", "_PAGER"].iter().any(|end| name.ends_with(end))
}

/// True for an editor that only replaces words: `sed -i 1s/pick/drop/`. Other scripts of sed
/// can run programs and write files.
fn is_plain_sed(value: &str) -> bool {
    let Some(script) = value.strip_prefix("sed -i ") else { return false };
    let script = script.strip_prefix("-e ").unwrap_or(script);
    let quoted = |quote| script.strip_prefix(quote).and_then(|it| it.strip_suffix(quote));
    let script = quoted('\'').or_else(|| quoted('"')).unwrap_or(script);
    let command = script.trim_start_matches(|c: char| c.is_ascii_digit() || c == ',');
    let parts: Vec<&str> = command.split('/').collect();
    let word = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    matches!(parts.as_slice(), ["s", from, to, "" | "g"]
        if word(from.trim_start_matches('^')) && word(to))
}

/// True for options that only limit memory: `-Xmx2g`, `--max-old-space-size=4096`.
fn is_size(word: &str) -> bool {
    let sized = |start: &str| {
        word.strip_prefix(start).is_some_and(|size| {
            let digits = size.trim_end_matches(['k', 'K', 'm', 'M', 'g', 'G']);
            !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
        })
    };
    ["-Xmx", "-Xms", "-Xss", "--max-old-space-size=", "--max_old_space_size="]
        .iter()
        .any(|start| sized(start))
}
