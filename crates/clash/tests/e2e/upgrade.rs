//! `clash fmt --upgrade` rewrites the forms of Clash 0.5 to 0.7.

use crate::support::{Machine, Who};

/// A policy with older forms.
const OLDER: &str = r#"
load("@clash//sandboxes.star", "project")
policy("x", {
    tool("Bash"): {"git": {"push": {("--force", "-f"): deny()}, glob("**"): allow(sandbox = project)}},
    tool(["Read", "Glob"]): allow(sandbox = project),
    mode("plan"): {tool("Write"): deny()},
    tool(regex("mcp__.*")): ask(),
})
"#;

#[test]
fn an_upgrade_changes_no_decision_and_can_be_undone() {
    let m = Machine::new(Who::Me).policy(OLDER);
    m.write("app/old.star", OLDER);
    m.clash(["fmt", "--upgrade", "--check"]).exits(1).says("policy.star");
    m.clash(["policy", "fmt", "--upgrade"]).exits(1).says("clash cannot ask");
    m.clash(["fmt", "--upgrade", "--yes"]).succeeds().says("-    tool(\"Bash\"): {");
    let new = m.home().join(".clash/policy.star");
    let diff = m.clash(["policy", "diff", "old.star", new.to_str().unwrap()]).succeeds();
    assert_eq!(diff.stdout, "");
    m.clash(["fmt", "--upgrade", "--check"]).exits(0);
    m.clash(["policy", "undo", "--yes"]).succeeds();
    assert_eq!(std::fs::read_to_string(&new).unwrap(), OLDER);
}
