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
        ("AUTHOR", "A U Thor"),
        ("AUTH_URL", "https://auth.example"),
        ("AUTH0_DOMAIN", "x.auth0.com"),
        ("NEXTAUTH_URL", "http://localhost:3000"),
        ("POSTGRES_HOST_AUTH_METHOD", "trust"),
        ("USE_OAUTH", "true"),
        ("MAX_TOKENS", "4096"),
        ("MAX_THINKING_TOKENS", "1024"),
        ("XDG_SESSION_TYPE", "wayland"),
        ("XDG_SESSION_ID", "3"),
        ("DESKTOP_SESSION", "gnome"),
        ("GDMSESSION", "ubuntu"),
        ("KDE_FULL_SESSION", "true"),
        ("TERM_SESSION_ID", "w0t0p0:1F"),
        ("CLAUDE_CODE_SESSION_ID", "0b1c"),
        ("CLASH_SESSION", "abc"),
        ("INIT_CWD", "/home/u/app"),
        ("GPG_TTY", "/dev/pts/0"),
        ("KEYMAP", "us"),
        ("HOTKEY", "ctrl"),
        ("DOCKER_CONFIG", "/home/u/.docker"),
        ("LS_COLORS", "rs=0:di=01;34:ln=01;36:*.tar=01;31"),
        ("GREP_COLORS", "ms=01;31:mc=01;31"),
        ("TSCONFIG", "{\"compilerOptions\": {\"strict\": true}}"),
        ("npm_package_name", "sk-learn"),
        ("BUILD_URL", "https://ci.example/job/basic auth/1"),
        ("MOTTO", "Basic things first"),
        ("PASSENGER_COUNT", "3"),
    ] {
        assert_eq!(reason_to_hold_back(name, value), None, "{name}={value}");
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
        "SSHPASS",
        "BW_SESSION",
        "OP_SESSION_my",
        "DOCKER_AUTH_CONFIG",
        "DB_PWD",
        "DBPWD",
        "SECRETS_JSON",
        "APITOKEN",
        "GHTOKEN",
        "AUTHORIZATION",
        "BASICAUTH",
        "COMPOSER_AUTH",
        "AppSecret",
        "ClientSecret",
        "ConnectionStrings__Default",
        "DEPLOY_TOKENS",
        "CI_JOB_TOKEN_VALUE",
        "DB_CREDS",
        "SESSION_STRING",
        "LICENSEKEY",
        "SSHKEY",
        "NPM_CONFIG__AUTH",
        "TELEGRAM_SESSION",
        "WALLET_MNEMONIC",
        "PROXYPASS",
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
        "WSL_INTEROP",
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
        "GOCSPX-abcdefghijklmnopqrstuvwx12",
        "abc8Q~abcdefghijklmnopqrstuvwxyz0123456",
        "https://ghp_abcdefghijklmnopqrstuvwxyz0123456789@github.com/o/r",
        "https://h/x?key=ghp_abcdefghijklmnopqrstuvwxyz0123456789&y=1",
        "Bearer abcdefghijklmnopqrstuvwxyz",
        "Authorization: Basic dXNlcjpwYXNzd29yZDEyMw==",
        "{\"db_password\": \"hunter2\"}",
        "{\"a\": 1, \"clientSecret\" : \"x\"}",
        "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=abc==",
        "Server=db;Uid=app;Pwd=hunter2;",
        "whsec_abcdefghijklmnopqrstuv",
        "hvs.abcdefghijklmnopqrstuvwxyz0123",
        "key=ghp_abcdefghijklmnopqrstuvwxyz0123456789",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
    ] {
        assert!(!passes("HARMLESS", value), "{value}");
    }
}

#[test]
fn the_policys_longest_rule_decides_before_the_table() {
    let rule = |name: &str, effect| EnvRule { name: name.into(), effect, span: Default::default() };
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
