use crate::ImportFormat;
use crate::tests::text_of;

#[test]
fn srt_settings_become_a_sandbox() {
    let text = text_of(
        ImportFormat::Srt,
        r#"{"network": {"allowedDomains": ["github.com", "localhost:3000", "*"], "deniedDomains": ["*:22", "x*y"],
                        "deniedResolvedAddresses": ["10.0.0.0/8"], "allowLocalBinding": true},
            "filesystem": {"denyRead": ["~/.ssh"], "allowRead": [], "allowWrite": [".", "/tmp", "./src"],
                           "denyWrite": [".env", "**/*.pem", "k[12].txt"]},
            "credentials": {"files": [{"path": "~/.aws/credentials", "mode": "mask"}],
                            "envVars": [{"name": "TOKEN", "mode": "deny"}]},
            "allowPty": true}"#,
    );
    insta::assert_snapshot!(text, @r###"
    # Imported from file (sandbox runtime settings).
    #
    # Left out:
    #   network.deniedDomains[1]: `x*y`: it is not a host name with `*.` at most in front; what is not allowed is denied anyway
    #   network.allowedDomains[2]: `*`: it opens every host, or this machine with every port
    #   network.allowLocalBinding: `true`: ports are published one by one: serve = [3000]
    #   allowPty: `true`: a policy has no such setting
    #
    # Stricter than the original:
    #   filesystem.denyWrite[2]: `k[12].txt`: `[…]` or an escaped wildcard covers any character
    #   credentials.files[0]: `~/.aws/credentials`: no stand-in is put in its place: it is denied

    imported = sandbox(
        name = "imported",
        default = deny(),
        fs = {
            # filesystem: everything can be read unless denied
            "/": allow("rx"),
            # filesystem.denyRead[0]: ~/.ssh
            "$HOME/.ssh": deny(),
            # credentials.files[0]: ~/.aws/credentials
            "$HOME/.aws/credentials": deny(),
            # filesystem.allowWrite[0]: .
            "$PWD": allow("wcd"),
            # filesystem.allowWrite[1]: /tmp
            "/tmp": allow("wcd"),
            # filesystem.allowWrite[2]: ./src
            "$PWD/src": allow("wcd"),
            # filesystem.denyWrite[1]: **/*.pem
            (glob("$PWD/src/**/*.pem"), glob("$PWD/src/**/*.pem/**")): deny("wcd"),
            # filesystem.denyWrite[0]: .env
            "$PWD/.env": deny("wcd"),
            # filesystem.denyWrite[1]: **/*.pem
            (glob("$PWD/**/*.pem"), glob("$PWD/**/*.pem/**")): deny("wcd"),
            # filesystem.denyWrite[2]: k[12].txt
            (glob("$PWD/k?.txt"), glob("$PWD/k?.txt/**")): deny("wcd"),
        },
        net = {
            # network.allowedDomains[0]: github.com
            exact("github.com:443"): allow(),
            # network.allowedDomains[0]: github.com
            exact("github.com:80"): allow(),
            # network.allowedDomains[1]: localhost:3000
            localhost(ports = [3000]): allow(),
            # network.deniedResolvedAddresses[0]: 10.0.0.0/8
            "10.0.0.0/8": deny(),
            default(): deny(),
        },
        env = {
            # credentials.envVars[0]: TOKEN
            "TOKEN": deny(),
        },
    )

    settings(default = ask(), default_sandbox = imported)
    "###);
}

#[test]
fn commands_of_fence_become_denies_and_no_allows() {
    let text = text_of(
        ImportFormat::Srt,
        r#"{"command": {"deny": ["git push", "npm publish"], "allow": ["git push origin docs"]}}"#,
    );
    assert!(text.contains("\"push\": deny()") && text.contains("\"publish\": deny()"), "{text}");
    assert!(text.contains("NOT ENFORCED") && text.contains("command.useDefaults"), "{text}");
    assert!(text.contains("command.allow[0]"), "{text}");
}

#[test]
fn inherited_settings_of_greywall_are_reported_as_missing() {
    let text = text_of(
        ImportFormat::Srt,
        r#"{"extends": "base", "filesystem": {"defaultDenyRead": true, "allowRead": ["/opt/x"]}, "ssh": {}}"#,
    );
    assert!(text.contains("NOT ENFORCED") && text.contains("extends:"), "{text}");
    assert!(!text.contains("\"/\": allow") && text.contains("\"/opt/x\": allow(\"rx\")"), "{text}");
}

#[test]
fn lists_of_the_wrong_shape_are_refused_whole() {
    for settings in [
        r#"{"network": {"allowedDomains": "x.org"}}"#,
        r#"{"network": 1}"#,
        r#"{"filesystem": {"denyRead": [1]}}"#,
        r#"{"credentials": {"files": ["x"]}}"#,
        r#"{"credentials": {"envVars": [{"mode": "deny"}]}}"#,
        "",
    ] {
        assert!(text_of(ImportFormat::Srt, settings).starts_with("error: "), "{settings}");
    }
}
