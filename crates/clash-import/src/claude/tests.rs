use crate::ImportFormat;
use crate::tests::text_of;

fn imported(settings: &str) -> String {
    text_of(ImportFormat::Claude, settings)
}

const THREE_LISTS: &str = r#"{"permissions": {
    "deny": ["Bash(rm -rf /)", "Bash(git push --force:*)", "mcp__db", "Cd(x)", "nonsense rule"],
    "ask": ["Bash(git push:*)"],
    "allow": ["Bash(npm run test)", "Bash(git * main)", "Bash(python -m pytest:*)",
              "WebFetch(domain:docs.rs)", "mcp__github__get_issue", "Read", "bash"]
}}"#;

#[test]
fn rules_become_three_policies() {
    insta::assert_snapshot!(imported(THREE_LISTS), @r###"
    # Imported from file (Claude Code settings).
    #
    # NOT ENFORCED: these restrictions could not be expressed.
    #   permissions.deny[4]: `nonsense rule`: it is not `Tool` or `Tool(…)`
    #
    # Left out:
    #   permissions.allow[2]: `Bash(python -m pytest:*)`: a word behind an option may be the option's value, and no key ties it to the option
    #   permissions.allow[6]: `bash`: clash knows no tool of this name
    #
    # Stricter than the original:
    #   permissions.deny[0]: `Bash(rm -rf /)`: it covers every command with this beginning
    #   permissions.deny[3]: `Cd(x)`: clash cannot read a rule about the input of this tool, so it covers the whole tool
    #   permissions.allow[1]: `Bash(git * main)`: `*` stands for one word here

    load("@clash//node.star", "node_full")
    load("@clash//sandboxes.star", "git_full")

    settings(default = ask())

    policy("imported denies", {
        "Bash": {
            "rm": {
                # permissions.deny[0]: Bash(rm -rf /)
                "-rf": deny(),
            },
            "git": {
                "push": {
                    # permissions.deny[1]: Bash(git push --force:*)
                    "--force": deny(),
                },
            },
        },
        # permissions.deny[2]: mcp__db
        "mcp__db": deny(),
        # permissions.deny[2]: mcp__db
        glob("mcp__db__*"): deny(),
        # permissions.deny[3]: Cd(x)
        "Cd": deny(),
    })

    policy("imported asks", {
        "Bash": {
            "git": {
                # permissions.ask[0]: Bash(git push:*)
                "push": ask(),
            },
        },
    })

    policy("imported allows", {
        "Bash": {
            "npm": {
                "run": {
                    "test": {
                        # permissions.allow[0]: Bash(npm run test)
                        end(): allow(sandbox = node_full),
                    },
                },
            },
            "git": {
                glob("?*"): {
                    "main": {
                        # permissions.allow[1]: Bash(git * main)
                        end(): allow(sandbox = git_full),
                    },
                },
            },
        },
        "WebFetch": {
            # permissions.allow[3]: WebFetch(domain:docs.rs)
            exact("docs.rs"): allow(),
        },
        # permissions.allow[4]: mcp__github__get_issue
        "mcp__github__get_issue": allow(),
        # permissions.allow[5]: Read
        ("Read", "Glob", "Grep"): allow(),
    })
    "###);
}

#[test]
fn rules_about_files_also_hold_for_commands() {
    let text = imported(
        r#"{"permissions": {"deny": ["Read(./.env)", "Edit(~/**)"], "allow": ["Edit(src/**)", "Read(~/notes/**)"]}}"#,
    );
    insta::assert_snapshot!(text, @r###"
    # Imported from file (Claude Code settings).
    #
    # Stricter than the original:
    #   permissions.allow[0]: `Edit(src/**)`: a deny rule covers it, and in clash the deny wins even over a longer path

    load("@clash//sandboxes.star", "project")

    imported = sandbox(
        name = "imported",
        extends = project,
        fs = {
            # permissions.allow[1]: Read(~/notes/**)
            "$HOME/notes": allow("rx"),
            # permissions.allow[0]: Edit(src/**)
            "$PWD/src": allow("rx"),
            # permissions.deny[0]: Read(./.env)
            (glob("$PWD/src/**/.env"), glob("$PWD/src/**/.env/**")): deny("rx"),
            # permissions.deny[0]: Read(./.env)
            (glob("$PWD/**/.env"), glob("$PWD/**/.env/**")): deny(),
            # permissions.deny[1]: Edit(~/**)
            "$PWD": deny("wcd"),
            # permissions.deny[1]: Edit(~/**)
            "$HOME": deny("wcd"),
        },
    )

    # These hold in every sandbox.
    everywhere(
        fs = {
            # permissions.deny[0]: Read(./.env)
            (glob("$PWD/**/.env"), glob("$PWD/**/.env/**")): deny(),
            # permissions.deny[1]: Edit(~/**)
            "$HOME": deny("wcd"),
        },
    )

    settings(default = ask(), default_sandbox = imported)

    policy("imported denies", {
        ("Read", "Glob", "Grep"): {
            # permissions.deny[0]: Read(./.env)
            (glob("$PWD/**/.env"), glob("$PWD/**/.env/**")): deny(),
        },
        ("Edit", "Write", "MultiEdit", "NotebookEdit"): {
            # permissions.deny[1]: Edit(~/**)
            "$HOME": deny(),
        },
    })

    policy("imported allows", {
        ("Edit", "Write", "MultiEdit", "NotebookEdit"): {
            # permissions.allow[0]: Edit(src/**)
            glob("$PWD/src/*/**"): allow(),
        },
        ("Read", "Glob", "Grep"): {
            # permissions.allow[1]: Read(~/notes/**)
            glob("$HOME/notes/*/**"): allow(),
        },
    })
    "###);
}

const SANDBOX_BLOCK: &str = r#"{"permissions": {"deny": ["Read(**/.env)"], "allow": ["Edit(docs/**)", "WebFetch(domain:docs.rs)"]},
            "sandbox": {"enabled": true, "excludedCommands": ["docker"], "allowAppleEvents": true,
                "filesystem": {"allowWrite": ["~/.cache", "/opt/log/app"], "denyWrite": ["~/.cache/keep", "/opt"],
                               "denyRead": ["~/"], "allowRead": ["."]},
                "network": {"allowedDomains": ["github.com", "*.example.org", "a.evil.org"],
                            "deniedDomains": ["*.evil.org"], "allowUnixSockets": ["/run/x.sock"]}}}"#;

/// The text of the imported sandbox block before its policies, and the policies.
fn imported_sandbox_block() -> (String, String) {
    let text = imported(SANDBOX_BLOCK);
    let (sandbox, policies) = text.split_once("settings(").unwrap();
    (sandbox.to_owned(), format!("settings({policies}"))
}

#[test]
fn the_sandbox_block_becomes_a_sandbox() {
    let (sandbox, _) = imported_sandbox_block();
    insta::assert_snapshot!(sandbox, @r###"
    # Imported from file (Claude Code settings).
    #
    # Left out:
    #   sandbox.network.allowUnixSockets: `["/run/x.sock"]`: sockets of other programs are not opened by an import
    #   sandbox.allowAppleEvents: `true`: a policy has no such setting
    #
    # Stricter than the original:
    #   sandbox.excludedCommands[0]: `docker`: an import lets no command run without its sandbox: it asks
    #   sandbox.filesystem.allowWrite[1]: `/opt/log/app`: a deny rule covers it, and in clash the deny wins even over a longer path
    #   sandbox.network.allowedDomains[2]: `a.evil.org`: a deny rule covers it, and in clash the deny wins even over a longer path

    imported = sandbox(
        name = "imported",
        default = deny(),
        fs = {
            # sandbox.enabled: everything can be read
            "/": allow("rx"),
            # sandbox.filesystem.allowRead[0]: .
            # sandbox.enabled: the project can be written
            "$PWD": allow(),
            # sandbox.filesystem.denyRead[0]: ~/
            "$HOME": deny(),
            # permissions.deny[0]: Read(**/.env)
            (glob("$PWD/**/.env"), glob("$PWD/**/.env/**")): deny(),
            # sandbox.enabled: temporary files can be written
            "$TMPDIR": allow("wcd"),
            # sandbox.filesystem.allowWrite[0]: ~/.cache
            "$HOME/.cache": allow("wcd"),
            # permissions.allow[0]: Edit(docs/**)
            "$PWD/docs": allow("wcd"),
            # permissions.deny[0]: Read(**/.env)
            (glob("$PWD/docs/**/.env"), glob("$PWD/docs/**/.env/**")): deny("wcd"),
            # sandbox.filesystem.denyWrite[0]: ~/.cache/keep
            "$HOME/.cache/keep": deny("wcd"),
            # sandbox.filesystem.denyWrite[1]: /opt
            "/opt": deny("wcd"),
        },
        net = {
            # sandbox.network.deniedDomains[0]: *.evil.org
            "*.evil.org": deny(),
            # sandbox.network.allowedDomains[0]: github.com
            exact("github.com"): allow(),
            # sandbox.network.allowedDomains[1]: *.example.org
            "*.example.org": allow(),
            # permissions.allow[1]: WebFetch(domain:docs.rs)
            exact("docs.rs"): allow(),
            default(): ask(),
        },
    )

    # These hold in every sandbox.
    everywhere(
        fs = {
            # permissions.deny[0]: Read(**/.env)
            (glob("$PWD/**/.env"), glob("$PWD/**/.env/**")): deny(),
        },
    )
    "###);
}

#[test]
fn the_sandbox_block_becomes_rules_about_tools() {
    let (_, policies) = imported_sandbox_block();
    insta::assert_snapshot!(policies, @r###"
    settings(default = ask(), default_sandbox = imported)

    policy("imported denies", {
        ("Read", "Glob", "Grep"): {
            # permissions.deny[0]: Read(**/.env)
            (glob("$PWD/**/.env"), glob("$PWD/**/.env/**")): deny(),
        },
    })

    policy("imported asks", {
        "Bash": {
            # sandbox.excludedCommands[0]: docker
            "docker": ask(),
        },
    })

    policy("imported allows", {
        ("Edit", "Write", "MultiEdit", "NotebookEdit"): {
            # permissions.allow[0]: Edit(docs/**)
            glob("$PWD/docs/*/**"): allow(),
        },
        "WebFetch": {
            # permissions.allow[1]: WebFetch(domain:docs.rs)
            exact("docs.rs"): allow(),
        },
        # sandbox.autoAllowBashIfSandboxed: true
        "Bash": allow(),
    })
    "###);
}

#[test]
fn a_mode_is_imported_for_that_mode_only() {
    let text = imported(
        r#"{"permissions": {"defaultMode": "acceptEdits", "disableBypassPermissionsMode": "disable"}}"#,
    );
    insta::assert_snapshot!(text, @r###"
    # Imported from file (Claude Code settings).

    settings(default = ask())

    policy("imported denies", {
        # permissions.disableBypassPermissionsMode: disable
        mode("bypassPermissions"): deny(),
    })

    policy("imported asks", {
        mode("acceptEdits"): {
            ("Edit", "Write", "MultiEdit", "NotebookEdit"): {
                # permissions.defaultMode: acceptEdits
                "$PWD/.git": ask(),
                # permissions.defaultMode: acceptEdits
                "$PWD/.claude": ask(),
                # permissions.defaultMode: acceptEdits
                "$PWD/.vscode": ask(),
                # permissions.defaultMode: acceptEdits
                "$PWD/.idea": ask(),
                # permissions.defaultMode: acceptEdits
                "$PWD/.husky": ask(),
            },
        },
    })

    policy("imported allows", {
        mode("acceptEdits"): {
            ("Edit", "Write", "MultiEdit", "NotebookEdit"): {
                # permissions.defaultMode: acceptEdits
                "$PWD": allow(),
            },
        },
    })
    "###);
}

#[test]
fn a_mode_that_lets_everything_pass_is_not_imported() {
    for mode in ["bypassPermissions", "auto", "delegate", "whatever"] {
        let text = imported(&format!(r#"{{"permissions": {{"defaultMode": "{mode}"}}}}"#));
        assert!(!text.contains("allow()") && text.contains("does not import a mode"), "{text}");
    }
}

#[test]
fn a_mode_without_questions_denies_what_would_ask() {
    let text = imported(r#"{"permissions": {"defaultMode": "dontAsk", "ask": ["Bash(curl:*)"]}}"#);
    assert!(text.contains("settings(default = deny())"), "{text}");
    assert!(text.contains("\"curl\": deny()") && !text.contains("ask()"), "{text}");
}

#[test]
fn a_sandbox_that_is_off_gives_nothing_but_still_denies() {
    let text = imported(
        r#"{"sandbox": {"filesystem": {"allowWrite": ["/data"], "denyRead": ["~/.ssh"]},
                        "network": {"allowedDomains": ["x.org"], "deniedDomains": ["y.org"]}}}"#,
    );
    assert!(text.contains(r#""$HOME/.ssh": deny()"#), "{text}");
    assert!(!text.contains("allow()") && !text.contains("net ="), "{text}");
    assert!(text.contains("NOT ENFORCED") && text.contains("deniedDomains[0]: `y.org`"), "{text}");
}

#[test]
fn settings_of_the_wrong_shape_are_refused_whole() {
    for (settings, message) in [
        ("{\"permissions\": ", "error: not JSON: EOF while parsing a value at line 1 column 16"),
        ("[]", "error: the file: expected an object"),
        (r#"{"permissions": []}"#, "error: permissions: expected an object"),
        (r#"{"permissions": {"deny": "Bash"}}"#, "error: permissions.deny: expected a list"),
        (
            r#"{"permissions": {"allow": ["Bash", 1]}}"#,
            "error: permissions.allow[1]: expected a string",
        ),
        (r#"{"sandbox": {"enabled": "yes"}}"#, "error: sandbox.enabled: expected true or false"),
        (
            r#"{"sandbox": {"filesystem": {"denyRead": {}}}}"#,
            "error: sandbox.filesystem.denyRead: expected a list",
        ),
    ] {
        assert_eq!(imported(settings), message);
    }
}

#[test]
fn a_deny_that_cannot_be_read_covers_the_whole_tool() {
    let text =
        imported(r#"{"permissions": {"deny": ["Bash(*sudo*)", "Task(Explore)", "WebFetch(x)"]}}"#);
    for tool in ["Bash", "Task", "WebFetch"] {
        assert!(text.contains(&format!("    \"{tool}\": deny(),")), "{text}");
    }
    assert!(text.contains("EVERY command"), "{text}");
}
