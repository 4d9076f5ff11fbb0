//! The registries of the user inside the sandboxes of the library, without the tokens.

use serde_json::json;

use crate::support::{Machine, Ran, Who, as_each_user, clash};

const POLICY: &str = r#"
load("@clash//node.star", "node", "node_full")
load("@clash//python.star", "python_full")
load("@clash//rust.star", "rust_safe")
load("@clash//go.star", "go_full")
load("@clash//java.star", "java_safe")
load("@clash//ruby.star", "ruby_full")
load("@clash//dotnet.star", "dotnet_full")
load("@clash//php.star", "php_full")
settings(default = allow(), default_sandbox = node_full)
when(node)
"#;

/// A settings file, the sandbox of its tool, a part that stays, and the secret.
const FILES: &[(&str, &str, &str, &str, &str)] = &[
    (
        "node_full",
        ".npmrc",
        "registry=https://npm.corp/\n//npm.corp/:_authToken=§\n",
        "registry=https://npm.corp/",
        "_authToken=xx",
    ),
    (
        "node_full",
        ".yarnrc.yml",
        "npmRegistryServer: \"https://npm.corp\"\nnpmAuthToken: \"§\"\n",
        "https://npm.corp",
        "npmAuthToken: \"xx",
    ),
    (
        "python_full",
        ".config/pip/pip.conf",
        "[global]\nindex-url = https://bob:§@pypi.corp/simple\n",
        "@pypi.corp/simple",
        "https://xxx:xx",
    ),
    (
        "python_full",
        ".pip/pip.conf",
        "[global]\nindex-url = https://§@pypi.corp/simple\n",
        "@pypi.corp/simple",
        "https://xx",
    ),
    (
        "python_full",
        ".config/uv/uv.toml",
        "[[index]]\nurl = \"https://bob:§@pypi.corp/simple\"\n",
        "@pypi.corp/simple",
        "xxx:xx",
    ),
    (
        "python_full",
        ".netrc",
        "machine pypi.corp login bob password §\n",
        "machine pypi.corp login xxx",
        "password xx",
    ),
    (
        "rust_safe",
        ".cargo/config.toml",
        "[registries.corp]\nindex = \"sparse+https://cargo.corp/\"\ntoken = \"§\"\n",
        "https://cargo.corp/",
        "token = \"xx",
    ),
    (
        "go_full",
        ".config/go/env",
        "GOPROXY=https://bob:§@go.corp\nGOFLAGS=-mod=mod\n",
        "GOFLAGS=-mod=mod",
        "https://xxx:xx",
    ),
    (
        "java_safe",
        ".m2/settings.xml",
        "<settings><mirrors><mirror><url>https://m.corp</url></mirror></mirrors><servers><server><id>c</id><password>§</password></server></servers></settings>",
        "https://m.corp",
        "<id>c</id><password>xx",
    ),
    (
        "java_safe",
        ".gradle/gradle.properties",
        "repo=https://m.corp\nnexusPassword=§\n",
        "repo=https://m.corp",
        "nexusPassword=xx",
    ),
    (
        "ruby_full",
        ".gemrc",
        ":sources:\n- https://bob:§@gems.corp/\n",
        "@gems.corp/",
        "https://xxx:xx",
    ),
    (
        "ruby_full",
        ".bundle/config",
        "---\nBUNDLE_PATH: \"v\"\nBUNDLE_GEMS__CORP: \"bob:§\"\n",
        "BUNDLE_PATH: \"v\"",
        "BUNDLE_GEMS__CORP: \"xxx",
    ),
    (
        "dotnet_full",
        ".nuget/NuGet/NuGet.Config",
        "<configuration><packageSources><add key=\"c\" value=\"https://n.corp\"/></packageSources><packageSourceCredentials><c><add key=\"ClearTextPassword\" value=\"§\"/></c></packageSourceCredentials></configuration>",
        "https://n.corp",
        "value=\"xx",
    ),
    (
        "php_full",
        ".config/composer/config.json",
        "{\"repositories\": [{\"url\": \"https://bob:§@c.corp/\"}]}",
        "@c.corp/",
        "https://xxx:xx",
    ),
];
const SECRET: &str = "hunter2-Zq9";

fn write_settings(m: &Machine) {
    for (_, file, text, _, _) in FILES {
        m.write(file, &text.replace('§', SECRET));
    }
}

#[test]
fn tools_see_their_registry_without_its_secret() {
    as_each_user(|m| {
        let m = m.policy(POLICY);
        write_settings(&m);
        for host in [&[][..], &["--simulate", "no-userns"]] {
            for (sandbox, file, _, stays, masked) in FILES {
                let args = ["sandbox", "exec", sandbox].into_iter().chain(host.iter().copied());
                let shown = m.clash(args.chain(["--", "sh", "-c", &format!("cat ~/{file}")]));
                assert_eq!(shown.code, Some(0), "{sandbox} {file} {host:?}: {shown:?}");
                assert!(!shown.stdout.contains(SECRET), "{file}: {shown:?}");
                assert!(shown.stdout.contains(stays), "{file}: {shown:?}");
                assert!(shown.stdout.contains(masked), "{file}: {shown:?}");
            }
        }
        // Another tool's sandbox shows none of it, and no copy is left on the disk.
        let other = m.clash(["sandbox", "exec", "rust_safe", "--", "sh", "-c", "cat ~/.npmrc"]);
        assert!(other.code != Some(0) && other.stdout.is_empty(), "{other:?}");
        m.clash(["sandbox", "show", "node_full"]).says("masked r, without secrets  $HOME/.npmrc");
        m.clash(["sandbox", "plan", "node_full"]).says("tokens and passwords are replaced");
        m.clash(["sandbox", "test", "node_full"]).exits(0);
    });
}

#[test]
fn a_missing_password_names_the_file_and_the_grant() {
    as_each_user(|m| {
        let m = m.policy(POLICY);
        write_settings(&m);
        let script = "echo 'npm error code E401' >&2; exit 1";
        let mut before = m.message("PreToolUse", "Bash", json!({"command": script}));
        before["tool_use_id"] = json!("a");
        let answer = crate::support::Answer::of(&m.hook(&before));
        let line = answer.updated.as_ref().unwrap()["command"].as_str().unwrap().to_owned();
        let mut shell = m.command("bash");
        shell.env("CLAUDE_CODE_SESSION_ID", "test-session").args(["-c", &line]);
        let ran = Ran::of(&mut shell);
        let mut after = m.message("PostToolUseFailure", "Bash", json!({"command": line}));
        after["tool_use_id"] = json!("a");
        after["error"] = json!(format!("Exit code 1\n{}", ran.stderr));
        let told = m.hook(&after).stdout;
        assert!(told.contains("copy without tokens and passwords"), "{told}");
        assert!(told.contains("clash sandbox allow node_full r ~/.npmrc"), "{told}");
        // The printed command, as a user types it.
        let grant = format!("{} sandbox allow node_full r ~/.npmrc --yes", clash().display());
        Ran::of(m.command("sh").args(["-c", &grant])).succeeds();
        let shown = m.clash([
            "sandbox",
            "exec",
            "node_full",
            "--",
            "sh",
            "-c",
            "cat ~/.npmrc ~/.yarnrc.yml",
        ]);
        assert!(shown.stdout.contains(&format!("_authToken={SECRET}")), "{shown:?}");
        assert!(!shown.stdout.contains(&format!("npmAuthToken: \"{SECRET}")), "{shown:?}");
    });
}

#[test]
fn file_tools_never_read_a_masked_file() {
    let m = Machine::new(Who::Me).policy(POLICY);
    write_settings(&m);
    let path = m.home().join(".npmrc").display().to_string();
    let message = m.message("PreToolUse", "Read", json!({"file_path": path}));
    let answer = crate::support::Answer::of(&m.hook(&message));
    assert_eq!(answer.effect, "deny", "{answer:?}");
}

#[test]
fn only_known_settings_files_can_be_masked() {
    let compile = |text: &str| {
        let m = Machine::new(Who::Me).policy(text);
        m.clash(["policy", "check"])
    };
    let rule = |key: &str| {
        format!(
            "settings(default_sandbox = sandbox(name = \"s\", default = deny(), fs = {{{key}: masked()}}))"
        )
    };
    compile(&rule("\"$HOME/.npmrc\"")).exits(0);
    compile(&rule("\"$HOME/.ssh/id_rsa\"")).fails();
    compile(&rule("glob(\"$HOME/**/.npmrc\")")).fails();
    compile("everywhere(fs = {\"$HOME/.npmrc\": masked()})").fails();
}
