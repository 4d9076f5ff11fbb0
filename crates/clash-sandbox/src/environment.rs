//! Which environment variables reach a sandboxed command by default.
//!
//! Two kinds stay behind: what looks like a secret (by name, or by a value in a
//! well-known key format), because a command that is allowed to use the network
//! could send it away; and what steers a loader, shell or interpreter, because
//! it changes what a judged command really runs. Search paths such as
//! `PYTHONPATH` pass: projects depend on them and the sandbox bounds what they
//! load. The policy's `env` goes before this: of the rules that match a name the
//! longest decides, the stricter of two equally long.
//!
//! Names are compared without regard to case. Where a name is only suspicious,
//! like `*_TOKEN`, the value does not acquit it.

use std::ffi::OsString;

use clash_policy::pattern::glob_matches;
use clash_policy::{Effect, EnvRule};

/// How a line of the table matches a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    Is(&'static str),
    Starts(&'static str),
    Ends(&'static str),
    Has(&'static str),
}

use Name::{Ends, Has, Is, Starts};

const SECRET: &str = "secret by name";
const AGENT: &str = "leads to somebody who acts for the user";
const LOADER: &str = "steers the dynamic loader or libc";
const SHELL: &str = "runs code when a shell starts or prompts";
const INTERPRETER: &str = "runs code when an interpreter starts";
const GIT: &str = "makes git run another program or configuration";
const TOOL: &str = "makes a common tool run another program";

/// Every name that is held back, in upper case, with the reason.
const TABLE: &[(Name, &str)] = &[
    (Is("TOKEN"), SECRET),
    (Ends("_TOKEN"), SECRET),
    (Is("NPM_TOKENS"), SECRET),
    (Is("KEY"), SECRET),
    (Ends("_KEY"), SECRET),
    (Has("SECRETKEY"), SECRET),
    (Is("PASS"), SECRET),
    (Ends("DBPASS"), SECRET),
    (Ends("PGPASS"), SECRET),
    (Is("JWT"), SECRET),
    (Ends("_JWT"), SECRET),
    (Ends("_PAT"), SECRET),
    (Has("_PAT_"), SECRET),
    (Ends("_AUTH"), SECRET),
    (Has("WEBHOOK"), SECRET),
    (Has("_TOKEN_SECRET"), SECRET),
    (Has("AUTHTOKEN"), SECRET),
    (Has("AUTH_TOKEN"), SECRET),
    (Has("ACCESS_TOKEN"), SECRET),
    (Has("REFRESH_TOKEN"), SECRET),
    (Is("SECRET"), SECRET),
    (Starts("SECRET_"), SECRET),
    (Has("_SECRET"), SECRET),
    (Has("CLIENTSECRET"), SECRET),
    (Has("PASSWORD"), SECRET),
    (Has("PASSWD"), SECRET),
    (Has("PASSPHRASE"), SECRET),
    (Ends("_PASS"), SECRET),
    (Is("MYSQL_PWD"), SECRET),
    (Is("PGPASSFILE"), SECRET),
    (Is("API_KEY"), SECRET),
    (Has("_API_KEY"), SECRET),
    (Has("APIKEY"), SECRET),
    (Has("ACCESS_KEY"), SECRET),
    (Has("PRIVATE_KEY"), SECRET),
    (Has("SIGNING_KEY"), SECRET),
    (Has("ENCRYPTION_KEY"), SECRET),
    (Has("MASTER_KEY"), SECRET),
    (Has("DEPLOY_KEY"), SECRET),
    (Has("ACCOUNT_KEY"), SECRET),
    (Has("CREDENTIAL"), SECRET),
    (Has("CONNECTION_STRING"), SECRET),
    (Ends("_PAT"), SECRET),
    (Ends("_COOKIE"), SECRET),
    (Ends("_COOKIES"), SECRET),
    (Ends("__AUTH"), SECRET),
    (Has("_WEBHOOK_URL"), SECRET),
    (Starts("AWS_SESSION"), SECRET),
    (Is("AWS_SECURITY_TOKEN"), SECRET),
    (Starts("AWS_CONTAINER_"), SECRET),
    (Is("AWS_WEB_IDENTITY_TOKEN_FILE"), SECRET),
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

impl Name {
    fn matches(self, name: &str) -> bool {
        match self {
            Is(whole) => name == whole,
            Starts(head) => name.starts_with(head),
            Ends(tail) => name.ends_with(tail),
            // `str::contains` sets up a search each time, which for a hundred
            // short names is most of what scrubbing costs.
            Has(part) => {
                let first = part.as_bytes().first();
                let mut windows = name.as_bytes().windows(part.len());
                windows.any(|window| window.first() == first && window == part.as_bytes())
            }
        }
    }
}

/// Beginnings of keys that services hand out, with the least length such a key
/// has, so that `sk-` in a word does not count.
const KEYS: &[(&str, usize)] = &[
    ("sk-", 20),
    ("sk_live_", 20),
    ("rk_live_", 20),
    ("ghp_", 30),
    ("gho_", 30),
    ("ghu_", 30),
    ("ghs_", 30),
    ("ghr_", 30),
    ("github_pat_", 30),
    ("glpat-", 20),
    ("AKIA", 20),
    ("ASIA", 20),
    ("xoxb-", 20),
    ("xoxp-", 20),
    ("xapp-", 20),
    ("AIza", 30),
    ("ya29.", 20),
    ("npm_", 36),
    ("pypi-", 30),
    ("hf_", 30),
    ("dop_v1_", 30),
    ("SG.", 30),
];

/// Why a variable is held back; `None` means it passes.
pub fn reason(name: &str, value: &str) -> Option<&'static str> {
    let upper = name.to_ascii_uppercase();
    if let Some((_, why)) = TABLE.iter().find(|(pattern, _)| pattern.matches(&upper)) {
        return Some(why);
    }
    if value.contains("-----BEGIN") && value.contains("PRIVATE KEY") {
        return Some("holds a private key");
    }
    if url_with_password(value) {
        return Some("holds a URL with a password");
    }
    let is_key = |text: &str| {
        let ordinary = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
        KEYS.iter().any(|(head, least)| {
            text.len() >= *least && text.starts_with(head) && text.bytes().all(ordinary)
        }) || jwt(text)
    };
    value.split([' ', '=', ',', ';', '"', '\'']).any(is_key).then_some("holds a service's key")
}

/// `scheme://user:password@`, anywhere in the value.
fn url_with_password(value: &str) -> bool {
    value.split("://").skip(1).any(|rest| {
        let authority = rest.split(['/', '?', '#', ' ', ',']).next().unwrap_or_default();
        let user = authority.rsplit_once('@').map_or("", |(user, _)| user);
        user.split_once(':').is_some_and(|(_, password)| !password.is_empty())
    })
}

/// Three base64 parts, the first of which starts with `{"`.
fn jwt(text: &str) -> bool {
    text.starts_with("eyJ") && text.len() > 40 && text.bytes().filter(|b| *b == b'.').count() == 2
}

/// Whether a variable reaches the command by default.
pub fn passes(name: &str, value: &str) -> bool {
    reason(name, value).is_none()
}

/// What the policy's rules say about a name; `ask` is `deny`, as for files.
fn ruled(rules: &[EnvRule], name: &str) -> Option<bool> {
    let matching = rules.iter().filter(|rule| glob_matches(&rule.name, name));
    let rule = matching.max_by_key(|rule| (rule.name.len(), rule.effect))?;
    Some(rule.effect == Effect::Allow)
}

/// Splits an environment into what passes and the names of what does not. A
/// name or value that is not UTF-8 is judged by its readable part.
pub fn scrub(
    vars: impl Iterator<Item = (OsString, OsString)>,
    rules: &[EnvRule],
) -> (Vec<(OsString, OsString)>, Vec<OsString>) {
    let mut kept = Vec::with_capacity(64);
    let mut dropped = Vec::new();
    for (name, value) in vars {
        let text = name.to_string_lossy();
        if ruled(rules, &text).unwrap_or_else(|| passes(&text, &value.to_string_lossy())) {
            kept.push((name, value));
        } else {
            dropped.push(name);
        }
    }
    (kept, dropped)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ordinary_variables_pass() {
        for (name, value) in [
            ("PATH", "/usr/bin:/bin"),
            ("HOME", "/home/u"),
            ("LANG", "C.UTF-8"),
            ("LC_ALL", "C"),
            ("PWD", "/home/u/app"),
            ("OLDPWD", "/home/u"),
            ("SHELL", "/bin/bash"),
            ("TERM", "xterm-256color"),
            ("CARGO_HOME", "/home/u/.cargo"),
            ("KEYBOARD_LAYOUT", "de"),
            ("TOKENIZERS_PARALLELISM", "false"),
            ("CLAUDE_CODE_MAX_OUTPUT_TOKENS", "32000"),
            ("NPM_CONFIG_CACHE", "/home/u/.npm"),
            ("SSL_CERT_FILE", "/etc/ssl/cert.pem"),
            ("GIT_AUTHOR_NAME", "A U Thor"),
            ("GIT_CONFIG_GLOBAL", "/dev/null"),
            ("GIT_EDITOR", "true"),
            ("PYTHONPATH", "src"),
            ("HTTPS_PROXY", "http://proxy.example:3128"),
            ("DATABASE_URL", "postgres://localhost/app"),
            ("KUBECONFIG", "/home/u/.kube/config"),
            ("ENVIRONMENT", "dev"),
            ("COMPASS", "north"),
            ("COOKIECUTTER_CONFIG", "x"),
            ("MONKEY", "yes"),
            ("TASK", "sk-learn"),
            ("REPO", "git@github.com:o/r.git"),
            ("COLORTERM", "truecolor"),
            ("AWS_REGION", "eu-central-1"),
            ("AWS_PROFILE", "dev"),
        ] {
            assert_eq!(reason(name, value), None, "{name}={value}");
        }
    }

    #[test]
    fn secrets_by_name_stay_behind() {
        for name in [
            "GITHUB_TOKEN",
            "STRIPE_KEY",
            "SECRETKEY",
            "DBPASS",
            "PASS",
            "TWILIO_AUTH",
            "SLACK_WEBHOOK",
            "GH_ENTERPRISE_PAT_1",
            "JWT",
            "GH_TOKEN",
            "npm_config_//packages.example/:_authToken",
            "NPM_TOKEN",
            "CLAUDE_CODE_OAUTH_TOKEN",
            "ANTHROPIC_API_KEY",
            "OPENAI_API_KEY",
            "AWS_SECRET_ACCESS_KEY",
            "AWS_ACCESS_KEY_ID",
            "AWS_SESSION_TOKEN",
            "GOOGLE_APPLICATION_CREDENTIALS",
            "PGPASSWORD",
            "MYSQL_PWD",
            "DB_PASSWORD",
            "SECRET_KEY_BASE",
            "STRIPE_SECRET",
            "AZURE_CLIENT_SECRET",
            "SSH_AUTH_SOCK",
            "DBUS_SESSION_BUS_ADDRESS",
            "CLAUDE_CODE_MESSAGING_SOCKET",
            "DOCKER_HOST",
            "github_token",
        ] {
            assert!(!passes(name, "x"), "{name}");
        }
    }

    #[test]
    fn steering_stays_behind() {
        for name in [
            "LD_PRELOAD",
            "LD_LIBRARY_PATH",
            "BASH_ENV",
            "ENV",
            "BASH_FUNC_ls%%",
            "PROMPT_COMMAND",
            "NODE_OPTIONS",
            "PYTHONSTARTUP",
            "PERL5OPT",
            "RUBYOPT",
            "GIT_SSH_COMMAND",
            "GIT_EXEC_PATH",
            "GIT_CONFIG_KEY_0",
            "JAVA_TOOL_OPTIONS",
            "GLIBC_TUNABLES",
        ] {
            assert!(!passes(name, "x"), "{name}");
        }
    }

    #[test]
    fn secrets_by_value_stay_behind_under_any_name() {
        for value in [
            "postgres://app:hunter2@db/app",
            "http://u:p@proxy:3128/",
            "-----BEGIN OPENSSH PRIVATE KEY-----\nabc",
            "sk-ant-api03-abcdefghijklmnop",
            "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
            "AKIAIOSFODNN7EXAMPLE",
            "key=ghp_abcdefghijklmnopqrstuvwxyz0123456789",
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
        ] {
            assert!(!passes("HARMLESS", value), "{value}");
        }
    }

    #[test]
    fn the_policys_longest_rule_decides_before_the_table() {
        let rule =
            |name: &str, effect| EnvRule { name: name.into(), effect, span: Default::default() };
        let rules = [
            rule("AWS_*", Effect::Deny),
            rule("AWS_REGION", Effect::Allow),
            rule("GITHUB_TOKEN", Effect::Allow),
            rule("EDITOR", Effect::Ask),
        ];
        let vars = ["AWS_REGION", "AWS_PROFILE", "GITHUB_TOKEN", "GH_TOKEN", "EDITOR", "LANG"];
        let pairs = vars.iter().map(|name| (OsString::from(name), OsString::from("x")));
        let (kept, dropped) = scrub(pairs, &rules);
        let kept: Vec<_> = kept.iter().map(|(name, _)| name.to_str().unwrap()).collect();
        assert_eq!(kept, ["AWS_REGION", "GITHUB_TOKEN", "LANG"]);
        assert_eq!(dropped, ["AWS_PROFILE", "GH_TOKEN", "EDITOR"]);
    }

    #[test]
    fn the_table_is_written_in_upper_case() {
        for (name, _) in TABLE {
            let (Is(text) | Starts(text) | Ends(text) | Has(text)) = name;
            assert_eq!(*text, text.to_ascii_uppercase());
        }
    }

    proptest! {
        #[test]
        fn scrubbing_keeps_or_names_every_variable(vars in prop::collection::vec(("[A-Z_]{1,12}", ".{0,30}"), 0..20)) {
            let pairs = vars.iter().map(|(n, v)| (OsString::from(n), OsString::from(v)));
            let (kept, dropped) = scrub(pairs, &[]);
            prop_assert_eq!(kept.len() + dropped.len(), vars.len());
            prop_assert!(kept.iter().all(|(n, v)| passes(&n.to_string_lossy(), &v.to_string_lossy())));
        }
    }
}
