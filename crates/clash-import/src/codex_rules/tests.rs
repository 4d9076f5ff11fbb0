use crate::ImportFormat;
use crate::tests::text_of;

fn imported(rules: &str) -> String {
    text_of(ImportFormat::CodexRules, rules)
}

#[test]
fn rules_become_policies_and_hosts_a_sandbox() {
    let text = imported(
        r#"
prefix_rule(
    pattern = ["git", ["push", "fetch"]],
    decision = "prompt",
    justification = "shared \"history\"",
    match = ["git push origin", ["git", "fetch"]],
    not_match = ["git status"],
)
prefix_rule(["rm", "-rf"], decision = "forbidden")
prefix_rule(pattern = ["cargo", "test"])
prefix_rule(pattern = ["python", "-m", "pytest"])
network_rule(host = "api.github.com", protocol = "https", decision = "allow")
network_rule(host = "evil.org", protocol = "http", decision = "forbidden")
network_rule(host = "dns.org", protocol = "socks5_udp", decision = "allow")
host_executable(name = "git", paths = ["/usr/bin/git"])
"#,
    );
    insta::assert_snapshot!(text, @r###"
    # Imported from file (codex rules).
    #
    # Left out:
    #   line 11: `prefix_rule(pattern = ["python", "-m", "pytest"])`: a word behind an option may be the option's value, and no key ties it to the option
    #   line 14: `network_rule(host = "dns.org", protocol = "socks5_udp", decision = "allow")`: clash lets no datagrams out
    #   line 15: `host_executable(name = "git", paths = ["/usr/bin/git"])`: clash matches a program by its name

    load("@clash//sandboxes.star", "project")

    imported = sandbox(
        name = "imported",
        extends = project,
        net = {
            # line 12: network_rule(host = "api.github.com", protocol = "https", decision = "allow")
            exact("api.github.com:443"): allow(),
            # line 13: network_rule(host = "evil.org", protocol = "http", decision = "forbidden")
            "evil.org": deny(),
            default(): deny(),
        },
    )

    settings(default = ask(), default_sandbox = imported)

    policy("imported denies", {
        "Bash": {
            "rm": {
                # line 9: prefix_rule(["rm", "-rf"], decision = "forbidden")
                "-rf": deny(),
            },
        },
    })

    policy("imported asks", {
        "Bash": {
            "git": {
                # line 2: prefix_rule( pattern = ["git", ["push", "fetch"]], decision = "prompt", justification = "shared \"history\"", match = ["git push origin", ["git", "fetch"]], not_match = ["git status"], )
                ("push", "fetch"): ask(reason = "shared \"history\""),
            },
        },
    })

    policy("imported allows", {
        "Bash": {
            "cargo": {
                # line 10: prefix_rule(pattern = ["cargo", "test"])
                "test": allow(),
            },
        },
    })
    "###);
}

#[test]
fn an_expression_that_is_no_literal_is_reported_with_its_line() {
    let text = imported(
        "X = 'c'\nprefix_rule(pattern = [X], decision = 'forbidden')\nfor x in ['a']:\n    prefix_rule(pattern = [x])\nprefix_rule(pattern = [f'{X}'])\n",
    );
    insta::assert_snapshot!(text, @r###"
    # Imported from file (codex rules).
    #
    # NOT ENFORCED: these restrictions could not be expressed.
    #   line 2: `prefix_rule(pattern = [X], decision = 'forbidden')`: it has values that clash does not evaluate, or unknown arguments
    #   line 3: `for x in ['a']: prefix_rule(pattern = [x])`: clash does not evaluate it: it reads only calls with plain values
    #
    # Left out:
    #   line 1: `X = 'c'`: clash does not read assignments
    #   line 5: `prefix_rule(pattern = [f'{X}'])`: it has values that clash does not evaluate, or unknown arguments

    settings(default = ask())
    "###);
}

#[test]
fn a_rule_that_contradicts_its_example_is_refused() {
    let wrong = "prefix_rule(pattern = ['git', 'status'], match = ['git -C x status'])";
    assert_eq!(
        imported(wrong),
        "error: line 1: the rule's own example `git -C x status` contradicts it"
    );
    let wrong = "prefix_rule(pattern = ['git'], not_match = [['git', 'push']])";
    assert_eq!(imported(wrong), "error: line 1: the rule's own example `git push` contradicts it");
}

#[test]
fn rules_of_the_wrong_shape_are_refused_whole() {
    for rules in [
        "prefix_rule(pattern = ['ls'], decision = 'deny')",
        "prefix_rule(pattern = [])",
        "prefix_rule(pattern = 'ls')",
        "prefix_rule(decision = 'allow')",
        "prefix_rule(pattern = ['ls', 3])",
        "network_rule(host = 'x', protocol = 'gopher', decision = 'allow')",
        "network_rule(host = 'x', protocol = 'http')",
        "prefix_rule(pattern = ['ls'",
    ] {
        assert!(imported(rules).starts_with("error: "), "{rules}: {}", imported(rules));
    }
}
