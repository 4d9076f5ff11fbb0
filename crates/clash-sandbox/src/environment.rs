//! Selects the environment variables that a sandboxed command gets by default.
//!
//! Two kinds are held back. First, variables that look like a secret, by name or by a value
//! in a well-known key format: a command with network access could send it away. Second,
//! variables that steer a loader, shell or interpreter, because they change the program
//! that a judged command really runs. Search paths such as `PYTHONPATH` pass: projects need
//! them, and the sandbox limits the files they load. The policy's `env` comes first: of the
//! rules that match a name, the longest decides, and of two equally long ones the stricter.
//!
//! Names are compared without case. A suspicious name, for example `*_TOKEN`, is held back
//! unless the value is a switch (`1`, `true`) or, for tokens, a short number: `MAX_TOKENS=4096`.

use std::ffi::{OsStr, OsString};

use clash_policy::pattern::glob_matches;
use clash_policy::{Effect, EnvRule};
use clash_shell::is_harmless_variable;

/// The form in which a line of the table matches a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NamePattern {
    Is(&'static str),
    Starts(&'static str),
    Ends(&'static str),
    Has(&'static str),
}

use NamePattern::{Ends, Has, Is, Starts};

const SECRET: &str = "secret by name";
const AGENT: &str = "leads to a program that acts for the user";
const LOADER: &str = "steers the dynamic loader or libc";
const SHELL: &str = "runs code when a shell starts or prompts";
const INTERPRETER: &str = "runs code when an interpreter starts";
const GIT: &str = "makes git run another program or configuration";
const TOOL: &str = "makes a common tool run another program";

/// Names that are held back, in upper case, with the reason.
const TABLE: &[(NamePattern, &str)] = &[
    (Ends("TOKEN"), SECRET),
    (Ends("TOKENS"), SECRET),
    (Has("TOKEN_"), SECRET),
    (Has("SECRET"), SECRET),
    (Has("PASSWORD"), SECRET),
    (Has("PASSWD"), SECRET),
    (Has("PASSPHRASE"), SECRET),
    (Has("PASSCODE"), SECRET),
    (Has("PASSKEY"), SECRET),
    (Ends("PASS"), SECRET),
    (Ends("PWD"), SECRET),
    (Ends("PSWD"), SECRET),
    (Is("PGPASSFILE"), SECRET),
    (Is("KEY"), SECRET),
    (Ends("_KEY"), SECRET),
    (Ends("_KEYS"), SECRET),
    (Has("API_KEY"), SECRET),
    (Has("APIKEY"), SECRET),
    (Has("ACCESS_KEY"), SECRET),
    (Has("ACCESSKEY"), SECRET),
    (Has("ACCOUNT_KEY"), SECRET),
    (Ends("ACCOUNTKEY"), SECRET),
    (Ends("AUTHKEY"), SECRET),
    (Has("DEPLOY_KEY"), SECRET),
    (Ends("DEPLOYKEY"), SECRET),
    (Has("ENCRYPTION_KEY"), SECRET),
    (Ends("ENCRYPTIONKEY"), SECRET),
    (Ends("LICENSEKEY"), SECRET),
    (Has("MASTER_KEY"), SECRET),
    (Ends("MASTERKEY"), SECRET),
    (Has("PRIVATE_KEY"), SECRET),
    (Has("PRIVATEKEY"), SECRET),
    (Ends("SERVICEKEY"), SECRET),
    (Has("SIGNING_KEY"), SECRET),
    (Ends("SIGNINGKEY"), SECRET),
    (Ends("SSHKEY"), SECRET),
    (Ends("JWT"), SECRET),
    (Ends("_PAT"), SECRET),
    (Has("_PAT_"), SECRET),
    (Ends("_OTP"), SECRET),
    (Has("TOTP"), SECRET),
    (Ends("_SALT"), SECRET),
    (Has("MNEMONIC"), SECRET),
    (Has("SEED_PHRASE"), SECRET),
    (Ends("AUTH"), SECRET),
    (Has("AUTH_CODE"), SECRET),
    (Has("AUTH_CONFIG"), SECRET),
    (Has("AUTH_DATA"), SECRET),
    (Has("AUTH_HEADER"), SECRET),
    (Has("AUTH_JSON"), SECRET),
    (Ends("AUTHORIZATION"), SECRET),
    (Has("AUTHORIZATION_HEADER"), SECRET),
    (Has("BEARER"), SECRET),
    (Has("WEBHOOK"), SECRET),
    (Has("CREDENTIAL"), SECRET),
    (Ends("CREDS"), SECRET),
    (Has("CREDS_"), SECRET),
    (Has("CONNECTION_STRING"), SECRET),
    (Has("CONNECTIONSTRING"), SECRET),
    (Has("CONN_STR"), SECRET),
    (Has("CONNSTR"), SECRET),
    (Ends("COOKIE"), SECRET),
    (Ends("COOKIES"), SECRET),
    (Ends("_SAS"), SECRET),
    (Ends("SESSION"), SECRET),
    (Starts("OP_SESSION"), SECRET),
    (Has("SESSION_STRING"), SECRET),
    (Has("DOCKERCONFIG"), SECRET),
    (Has("DOCKER_CONFIG_JSON"), SECRET),
    (Has("KUBECONFIG_DATA"), SECRET),
    (Has("KUBE_CONFIG_DATA"), SECRET),
    (Starts("AWS_SESSION"), SECRET),
    (Starts("AWS_CONTAINER_"), SECRET),
    (Is("SSLKEYLOGFILE"), SECRET),
    (Is("SSH_AUTH_SOCK"), AGENT),
    (Is("SSH_AGENT_PID"), AGENT),
    (Is("GPG_AGENT_INFO"), AGENT),
    (Is("GNOME_KEYRING_CONTROL"), AGENT),
    (Starts("DBUS_"), AGENT),
    (Is("XAUTHORITY"), AGENT),
    (Starts("CLAUDE_CODE_MESSAGING_"), AGENT),
    (Is("CLAUDE_CODE_SSE_PORT"), AGENT),
    (Starts("ACTIONS_ID_"), AGENT),
    (Starts("ACTIONS_RUNTIME_"), AGENT),
    (Is("DOCKER_HOST"), AGENT),
    (Is("CONTAINER_HOST"), AGENT),
    (Is("CONTAINERD_ADDRESS"), AGENT),
    (Starts("VSCODE_IPC_"), AGENT),
    (Starts("VSCODE_GIT_"), AGENT),
    // Names the socket through which Linux programs start Windows programs.
    (Is("WSL_INTEROP"), AGENT),
    (Is("TMUX"), AGENT),
    (Is("STY"), AGENT),
    (Is("NVIM"), AGENT),
    (Is("NVIM_LISTEN_ADDRESS"), AGENT),
    (Is("KITTY_LISTEN_ON"), AGENT),
    (Is("NOTIFY_SOCKET"), AGENT),
    (Starts("LD_"), LOADER),
    (Starts("DYLD_"), LOADER),
    (Is("GLIBC_TUNABLES"), LOADER),
    (Is("GCONV_PATH"), LOADER),
    (Is("NLSPATH"), LOADER),
    (Is("HOSTALIASES"), LOADER),
    (Is("LOCALDOMAIN"), LOADER),
    (Is("RES_OPTIONS"), LOADER),
    (Is("RESOLV_HOST_CONF"), LOADER),
    (Is("OPENSSL_CONF"), LOADER),
    (Is("OPENSSL_ENGINES"), LOADER),
    (Is("OPENSSL_MODULES"), LOADER),
    (Is("GTK_MODULES"), LOADER),
    (Is("GIO_EXTRA_MODULES"), LOADER),
    (Is("BASH_ENV"), SHELL),
    (Is("ENV"), SHELL),
    (Starts("BASH_FUNC_"), SHELL),
    (Is("BASHOPTS"), SHELL),
    (Is("SHELLOPTS"), SHELL),
    (Is("PROMPT_COMMAND"), SHELL),
    (Is("PS4"), SHELL),
    (Is("ZDOTDIR"), SHELL),
    (Is("NODE_OPTIONS"), INTERPRETER),
    (Is("NODE_REPL_EXTERNAL_MODULE"), INTERPRETER),
    (Is("BUN_OPTIONS"), INTERPRETER),
    (Is("PYTHONSTARTUP"), INTERPRETER),
    (Is("PYTHONINSPECT"), INTERPRETER),
    (Is("PYTHONHOME"), INTERPRETER),
    (Is("PYTHONEXECUTABLE"), INTERPRETER),
    (Is("PYTHONBREAKPOINT"), INTERPRETER),
    (Is("PERL5OPT"), INTERPRETER),
    (Is("PERL5DB"), INTERPRETER),
    (Is("RUBYOPT"), INTERPRETER),
    (Is("JAVA_TOOL_OPTIONS"), INTERPRETER),
    (Is("_JAVA_OPTIONS"), INTERPRETER),
    (Is("JDK_JAVA_OPTIONS"), INTERPRETER),
    (Is("DOTNET_STARTUP_HOOKS"), INTERPRETER),
    (Starts("CORECLR_PROFILER"), INTERPRETER),
    (Starts("COR_PROFILER"), INTERPRETER),
    (Starts("LUA_INIT"), INTERPRETER),
    (Is("PHPRC"), INTERPRETER),
    (Is("PHP_INI_SCAN_DIR"), INTERPRETER),
    (Starts("R_PROFILE"), INTERPRETER),
    (Is("ERL_FLAGS"), INTERPRETER),
    (Is("ERL_AFLAGS"), INTERPRETER),
    (Is("ERL_ZFLAGS"), INTERPRETER),
    (Starts("GIT_SSH"), GIT),
    (Is("GIT_EXEC_PATH"), GIT),
    (Is("GIT_EXTERNAL_DIFF"), GIT),
    (Is("GIT_PROXY_COMMAND"), GIT),
    (Is("GIT_PAGER"), GIT),
    (Is("GIT_ASKPASS"), GIT),
    (Is("GIT_TEMPLATE_DIR"), GIT),
    (Is("GIT_CONFIG"), GIT),
    (Is("GIT_CONFIG_COUNT"), GIT),
    (Is("GIT_CONFIG_PARAMETERS"), GIT),
    (Is("GIT_CONFIG_SYSTEM"), GIT),
    (Starts("GIT_CONFIG_KEY_"), GIT),
    (Starts("GIT_CONFIG_VALUE_"), GIT),
    (Is("SSH_ASKPASS"), TOOL),
    (Is("SUDO_ASKPASS"), TOOL),
    (Is("LESSOPEN"), TOOL),
    (Is("LESSCLOSE"), TOOL),
];

/// Names that match a line about secrets, but are none.
#[rustfmt::skip]
const NO_SECRETS: &[&str] = &[
    "BYOBU_SESSION", "BYPASS", "CLASH_SESSION", "COMPASS", "DESKTOP_SESSION", "GDMSESSION",
    "GNOME_SHELL_SESSION", "KDE_FULL_SESSION", "MULTIPASS", "OLDPWD", "PWD",
    "SCREEN_SESSION", "SURPASS", "TMUX_SESSION", "WT_SESSION", "ZELLIJ_SESSION",
];

impl NamePattern {
    /// True if the name, in upper case, fits the pattern.
    fn matches(self, name: &str) -> bool {
        match self {
            Is(whole) => name == whole,
            Starts(head) => name.starts_with(head),
            Ends(tail) => name.ends_with(tail),
            // `str::contains` sets up a search each time, which would take most of the time
            // for a hundred short names.
            Has(part) => {
                let first = part.as_bytes().first();
                let mut windows = name.as_bytes().windows(part.len());
                windows.any(|window| window.first() == first && window == part.as_bytes())
            }
        }
    }
}

/// Prefixes of keys that services issue, with the least length of such a key, so that `sk-`
/// in a word does not count.
#[rustfmt::skip]
const KEYS: &[(&str, usize)] = &[
    ("AGE-SECRET-KEY-", 30), ("AIza", 30), ("AKIA", 20), ("ASIA", 20), ("ATATT3", 30),
    ("ATBB", 30), ("ATCTT3", 30), ("EAACEdEose0cBA", 30), ("GOCSPX-", 28), ("SG.", 30),
    ("dapi", 34), ("dckr_pat_", 25), ("dop_v1_", 30), ("dp.pt.", 30), ("figd_", 30),
    ("gho_", 30), ("ghp_", 30), ("ghr_", 30), ("ghs_", 30), ("ghu_", 30), ("github_pat_", 30),
    ("glcbt-", 20), ("gldt-", 20), ("gloas-", 20), ("glpat-", 20), ("glptt-", 20), ("glrt-", 20),
    ("glsoat-", 20), ("gsk_", 30), ("hf_", 30), ("hvb.", 30), ("hvs.", 30), ("lin_api_", 30),
    ("nfp_", 30), ("npm_", 36), ("ntn_", 30), ("pplx-", 30), ("pul-", 30), ("pypi-", 30),
    ("r8_", 30), ("rk_live_", 20), ("rk_test_", 20), ("rubygems_", 30), ("sbp_", 30),
    ("secret_", 40), ("shpat_", 30), ("shpca_", 30), ("shpss_", 30), ("sk-", 20),
    ("sk_live_", 20), ("sk_test_", 20), ("sntrys_", 30), ("sq0atp-", 20), ("sq0csp-", 20),
    ("tskey-", 20), ("whsec_", 20), ("xai-", 30), ("xapp-", 20), ("xoxa-", 20), ("xoxb-", 20),
    ("xoxe-", 20), ("xoxp-", 20), ("xoxr-", 20), ("xoxs-", 20), ("ya29.", 20),
];

/// The reason to hold a variable back, by its name or else by its value; `None` if it passes.
/// Ignores the policy's rules.
pub fn reason_to_hold_back(name: &str, value: &str) -> Option<&'static str> {
    by_name(name, value).or_else(|| by_value(value))
}

/// The reason to hold a variable back because of its name. A secret by name passes if it is
/// in [`NO_SECRETS`], if its value is a switch, or if it counts tokens (`MAX_TOKENS=4096`).
fn by_name(name: &str, value: &str) -> Option<&'static str> {
    let upper = name.to_ascii_uppercase();
    let (_, why) = TABLE.iter().find(|(pattern, _)| pattern.matches(&upper))?;
    let acquitted = *why == SECRET
        && (NO_SECRETS.contains(&upper.as_str())
            || is_switch(value)
            || is_token_count(&upper, value));
    (!acquitted).then_some(*why)
}

/// True for a value such as `true` in `USE_OAUTH=true`.
fn is_switch(value: &str) -> bool {
    const SWITCHES: &[&str] = &["0", "1", "false", "no", "none", "off", "on", "true", "yes"];
    SWITCHES.iter().any(|switch| value.eq_ignore_ascii_case(switch))
}

/// True for a number of tokens, for example `MAX_OUTPUT_TOKENS=32000`.
fn is_token_count(upper: &str, value: &str) -> bool {
    upper.contains("TOKEN") && value.len() < 10 && value.bytes().all(|byte| byte.is_ascii_digit())
}

/// The reason to hold a variable back because of its value: a private key, a URL with a
/// password, a header, a bundle of secrets, or a service's key anywhere in it.
fn by_value(value: &str) -> Option<&'static str> {
    if value.contains("-----BEGIN") && value.contains("PRIVATE KEY") {
        return Some("holds a private key");
    }
    if has_url_with_password(value) {
        return Some("holds a URL with a password");
    }
    if is_header(value) {
        return Some("has a header that authenticates the user");
    }
    if names_secrets(value) {
        return Some("holds secrets by name");
    }
    let is_key = |text: &str| {
        let ordinary = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
        KEYS.iter().any(|(head, least)| {
            text.len() >= *least && text.starts_with(head) && text.bytes().all(ordinary)
        }) || is_jwt(text)
            || is_azure_client_secret(text)
    };
    let between = |c: char| {
        c.is_ascii_whitespace()
            || matches!(c, '=' | ',' | ';' | '"' | '\'' | ':' | '@' | '/' | '&' | '?')
    };
    value.split(between).any(is_key).then_some("holds a service's key")
}

/// True for `Bearer …`, `Basic …` and `Token …` with at least 16 characters after it, with or
/// without `Authorization:`.
fn is_header(value: &str) -> bool {
    ["bearer ", "basic ", "token "].iter().any(|scheme| {
        let start = value.get(..scheme.len());
        let first = start.filter(|start| start.eq_ignore_ascii_case(scheme));
        let inside = value.to_ascii_lowercase().find(&format!("authorization: {scheme}"));
        let end = first.map(|_| scheme.len()).or(inside.map(|at| at + 15 + scheme.len()));
        let rest = end.and_then(|end| value.get(end..)).map(str::trim);
        rest.is_some_and(|rest| rest.len() >= 16 && !rest.contains(' '))
    })
}

/// True for a JSON text that names a secret, such as `{"db_password": "…"}`, or a connection
/// string such as `AccountKey=…;EndpointSuffix=…`. An empty value does not count.
fn names_secrets(value: &str) -> bool {
    let is_secret = |name: &str, value: &str| {
        // In a connection string `Pwd` is a password, not a directory.
        let password = name.eq_ignore_ascii_case("pwd");
        let secret = password || name.len() < 80 && by_name(name, value) == Some(SECRET);
        !value.is_empty() && secret
    };
    let plain = |text: &str| {
        !text.is_empty()
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
    };
    if value.trim_start().starts_with(['{', '[']) {
        let pieces: Vec<&str> = value.split('"').collect();
        return pieces.windows(4).any(|window| match window {
            [_, name, between, held] => between.trim() == ":" && is_secret(name, held),
            _ => false,
        });
    }
    let fields = value.split(';').filter_map(|field| field.split_once('='));
    value.contains(';')
        && fields
            .map(|(name, held)| (name.trim(), held))
            .any(|(name, held)| plain(name) && is_secret(name, held))
}

/// Client secrets of Azure have `8Q~` after three characters.
fn is_azure_client_secret(text: &str) -> bool {
    let ordinary = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'~');
    (34..=44).contains(&text.len())
        && matches!(text.get(3..6), Some("7Q~" | "8Q~"))
        && text.bytes().all(ordinary)
}

/// `scheme://user:password@`, anywhere in the value.
fn has_url_with_password(value: &str) -> bool {
    value.split("://").skip(1).any(|rest| {
        let authority = rest.split(['/', '?', '#', ' ', ',']).next().unwrap_or_default();
        let user = authority.rsplit_once('@').map_or("", |(user, _)| user);
        user.split_once(':').is_some_and(|(_, password)| !password.is_empty())
    })
}

/// Three base64 parts, the first of which starts with `{"`.
fn is_jwt(text: &str) -> bool {
    text.starts_with("eyJ") && text.len() > 40 && text.bytes().filter(|b| *b == b'.').count() == 2
}

/// True if a variable reaches the command by default.
pub fn passes(name: &str, value: &str) -> bool {
    reason_to_hold_back(name, value).is_none()
}

/// The policy's decision about a name: true if it passes, `None` if no rule matches. The
/// longest pattern decides. `ask` counts as `deny`, as for files.
fn passes_by_rules(rules: &[EnvRule], name: &str) -> Option<bool> {
    let matching = rules.iter().filter(|rule| glob_matches(&rule.name, name));
    let rule = matching.max_by_key(|rule| (rule.name.len(), rule.effect))?;
    Some(rule.effect == Effect::Allow)
}

/// Splits an environment into the variables that pass and the names of the others. A name
/// or value that is not UTF-8 is judged by its valid part.
pub fn scrub(
    vars: impl Iterator<Item = (OsString, OsString)>,
    rules: &[EnvRule],
) -> (Vec<(OsString, OsString)>, Vec<OsString>) {
    let mut kept = Vec::with_capacity(64);
    let mut dropped = Vec::new();
    for (name, value) in vars {
        let text = name.to_string_lossy();
        if passes_by_rules(rules, &text).unwrap_or_else(|| passes(&text, &value.to_string_lossy()))
        {
            kept.push((name, value));
        } else {
            dropped.push(name);
        }
    }
    (kept, dropped)
}

/// True if a variable names a program, or settings of a program, that has credentials, for
/// example `GIT_EDITOR`, and the value is not known as harmless. The session's own value may
/// come from a shell that an agent has written to.
pub fn names_program(name: &OsStr, value: &OsStr) -> bool {
    #[rustfmt::skip]
    const PROGRAM_VARIABLES: &[&str] = &[
        "BROWSER", "EDITOR", "GH_BROWSER", "GH_EDITOR", "GH_PAGER", "GH_PATH", "GIT_COMMON_DIR",
        "GIT_DIR", "GIT_EDITOR", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_SEQUENCE_EDITOR",
        "GIT_WORK_TREE", "HELM_BIN", "HELM_PLUGINS", "KUBECTL_EXTERNAL_DIFF", "KUBE_EDITOR", "PAGER",
        "VISUAL",
    ];
    let (name, value) = (name.to_string_lossy(), value.to_string_lossy());
    PROGRAM_VARIABLES.contains(&&*name) && !is_harmless_variable(&name, Some(&value))
}

#[cfg(test)]
mod tests;
