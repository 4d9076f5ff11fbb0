use crate::ImportFormat;
use crate::tests::text_of;

fn imported(config: &str) -> String {
    text_of(ImportFormat::CodexConfig, config)
}

#[test]
fn a_profile_becomes_a_sandbox() {
    let text = imported(
        r#"
default_permissions = "work"
approval_policy = "on-request"
[permissions.work]
description = "My work"
extends = ":workspace"
[permissions.work.filesystem]
"~/.cargo" = "write"
"~/.cargo/credentials.toml" = "deny"
":workspace_roots" = {"**/.env" = "none", "vendor" = "read"}
":future" = "read"
[permissions.work.network]
enabled = true
domains = {"example.io" = "allow", "**.rust-lang.org" = "allow", "x.rust-lang.org" = "deny"}
unix_sockets = {"/run/x" = "allow"}
"#,
    );
    insta::assert_snapshot!(text, @r###"
    # Imported from file (codex configuration).
    #
    # Left out:
    #   permissions.work.filesystem.:future: `read`: this place is not known
    #   permissions.work.network.unix_sockets: `table`: a policy has no such setting

    codex_work = sandbox(
        name = "codex_work",
        doc = "My work",
        default = deny(),
        fs = {
            # permissions.work.extends: :workspace
            "/": allow("rx"),
            # permissions.work.filesystem.:workspace_roots.vendor: read
            "$PWD/vendor": allow("rx"),
            subpath("$PWD/vendor"): deny("wcd"),
            # permissions.work.filesystem.:workspace_roots.**/.env: none
            (glob("$PWD/vendor/**/.env"), glob("$PWD/vendor/**/.env/**")): deny("rx"),
            # permissions.work.filesystem.~/.cargo: write
            "$HOME/.cargo": allow(),
            # permissions.work.filesystem.:workspace_roots.**/.env: none
            (glob("$PWD/**/.env"), glob("$PWD/**/.env/**")): deny(),
            # permissions.work.filesystem.~/.cargo/credentials.toml: deny
            "$HOME/.cargo/credentials.toml": deny(),
            # permissions.work.extends: :workspace
            "$PWD": allow("wcd"),
            # permissions.work.extends: :workspace
            "$TMPDIR": allow("wcd"),
            # permissions.work.extends: :workspace
            "/tmp": allow("wcd"),
            # permissions.work.extends: :workspace
            "$PWD/.git": deny("wcd"),
            # permissions.work.extends: :workspace
            "$PWD/.codex": deny("wcd"),
            # permissions.work.extends: :workspace
            "$PWD/.agents": deny("wcd"),
        },
        net = {
            # permissions.work.network.domains.**.rust-lang.org: allow
            "rust-lang.org": allow(),
            # permissions.work.network.domains.example.io: allow
            exact("example.io"): allow(),
            # permissions.work.network.domains.x.rust-lang.org: deny
            "x.rust-lang.org": deny(),
            default(): deny(),
        },
    )

    settings(default = ask(), default_sandbox = codex_work)

    policy("imported allows", {
        # approval_policy: on-request
        "Bash": allow(),
    })
    "###);
}

#[test]
fn the_older_modes_become_a_sandbox() {
    let text = imported(
        "sandbox_mode = \"workspace-write\"\n[sandbox_workspace_write]\nwritable_roots = [\"/data\"]\nnetwork_access = true\nexclude_slash_tmp = true\n",
    );
    insta::assert_snapshot!(text, @r###"
    # Imported from file (codex configuration).

    imported = sandbox(
        name = "imported",
        default = deny(),
        fs = {
            # sandbox_mode: workspace-write
            "/": allow("rx"),
            # sandbox_mode: workspace-write
            "$PWD": allow("wcd"),
            # sandbox_mode: workspace-write
            "$TMPDIR": allow("wcd"),
            # sandbox_workspace_write.writable_roots[0]: /data
            "/data": allow("wcd"),
            # sandbox_mode: workspace-write
            "$PWD/.git": deny("wcd"),
            # sandbox_mode: workspace-write
            "$PWD/.codex": deny("wcd"),
            # sandbox_mode: workspace-write
            "$PWD/.agents": deny("wcd"),
        },
        net = allow(),
    )

    settings(default = ask(), default_sandbox = imported)
    "###);
}

#[test]
fn running_without_a_sandbox_is_not_imported() {
    for config in [
        "sandbox_mode = 'danger-full-access'\napproval_policy = 'never'",
        "default_permissions = ':danger-no-sandbox'\napproval_policy = 'never'",
    ] {
        let text = imported(config);
        assert!(!text.contains("allow(") && text.contains("Left out"), "{text}");
    }
}

#[test]
fn hosts_that_may_only_be_read_from_are_not_opened() {
    let text = imported(
        "[permissions.p.network]\nenabled = true\nmode = 'limited'\ndomains = {'x.org' = 'allow'}",
    );
    assert!(!text.contains("exact(") && text.contains("only reading"), "{text}");
}

#[test]
fn a_profile_with_a_name_that_is_no_name_gets_one() {
    let text = imported("[permissions.'a\"b']\n[permissions.'a b']\n");
    assert!(
        text.contains("codex_a_b = sandbox(") && text.contains("codex_a_b_2 = sandbox("),
        "{text}"
    );
}

#[test]
fn configurations_of_the_wrong_shape_are_refused_whole() {
    for config in [
        "sandbox_mode = ",
        "sandbox_mode = 3",
        "sandbox_mode = 'whatever'",
        "permissions = 1",
        "[permissions]\nx = 1",
        "[permissions.x.filesystem]\n'/a' = 'rw'",
        "[permissions.x.filesystem]\n'/a' = 1",
        "[permissions.x.network]\ndomains = {'a.org' = 'maybe'}",
        "[permissions.x.network]\nenabled = 'yes'",
        "[permissions.x]\nextends = 'x'",
        "sandbox_mode = 'workspace-write'\n[sandbox_workspace_write]\nwritable_roots = [1]",
    ] {
        assert!(imported(config).starts_with("error: "), "{config}: {}", imported(config));
    }
}
