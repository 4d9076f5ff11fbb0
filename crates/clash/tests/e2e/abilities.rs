//! The table of `docs/agents.md` is made from the tests and is current.

use std::path::Path;

use crate::claude_client::CLAUDE;
use crate::client::{Client, Shows, steps};
use crate::codex_client::CODEX;
use crate::droid_client::DROID;
use crate::gemini_client::GEMINI;
use crate::plugin_clients::{CLINE, COPILOT, KILO, OPENCODE, PI};
use crate::qwen_client::QWEN;
use crate::support::{Machine, Who};

/// Agents with a test that drives the real client.
const CLIENTS: [&Client; 10] =
    [&CLAUDE, &CODEX, &GEMINI, &QWEN, &DROID, &OPENCODE, &KILO, &COPILOT, &CLINE, &PI];

/// Agents of which only messages on record are tested: they cannot be installed here.
const BY_CONTRACT: [(&str, &[Shows]); 3] =
    [("q", &CONTRACT), ("kiro", &CONTRACT), ("cursor", &CONTRACT)];

/// What the tests in `contracts.rs` show with such messages.
const CONTRACT: [Shows; 6] =
    [Shows::Allow, Shows::Deny, Shows::Ask, Shows::FailClosed, Shows::Edit, Shows::Mcp];

/// The table of the page: a row for each agent, a column for each ability.
fn table() -> String {
    let m = Machine::new(Who::Me);
    let mut text = String::from("| agent |");
    for shows in Shows::ALL {
        text.push_str(&format!(" {} |", shows.word()));
    }
    text.push_str(&format!("\n|---|{}\n", "---|".repeat(Shows::ALL.len())));
    let proven = CLIENTS.iter().map(|client| {
        let shown: Vec<Shows> =
            steps(client, &m).iter().flat_map(|step| step.shows.iter().copied()).collect();
        (client.name, shown, "proven")
    });
    let by_contract =
        BY_CONTRACT.iter().map(|(name, shown)| (*name, shown.to_vec(), "by contract"));
    for (name, shown, word) in proven.chain(by_contract) {
        text.push_str(&format!("| {name} |"));
        for shows in Shows::ALL {
            let cell = if shown.contains(&shows) { word } else { "–" };
            text.push_str(&format!(" {cell} |"));
        }
        text.push('\n');
    }
    text
}

#[test]
fn the_table_in_the_docs_agrees_with_the_tests() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/agents.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, rest) = page.split_once("<!-- made by tests/e2e/abilities.rs -->\n").unwrap();
    let (written, _) = rest.split_once("<!-- end -->").unwrap();
    assert_eq!(written, table(), "put this into docs/agents.md:\n{}", table());
}

/// Of every case that was found with the real clients the page names the test.
#[test]
fn the_tests_that_the_documentation_names_are_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("../../docs/agents.md")).unwrap();
    let (_, cases) = page.split_once("## Found with the real clients").unwrap();
    let mut named = 0;
    for test in cases.split('`').filter(|word| word.contains("::")) {
        let (module, name) = test.rsplit_once("::").unwrap();
        let places = ["tests/e2e", "../clash-agents/src", "../clash-agents/src/wiring"]
            .map(|dir| root.join(dir).join(module));
        let found = places.iter().any(|place| {
            let text = std::fs::read_to_string(place.with_extension("rs")).unwrap_or_default();
            text.contains(&format!("fn {name}("))
        });
        assert!(found, "no test `{test}`");
        named += 1;
    }
    assert!(named > 40);
}

#[test]
fn every_agent_clash_knows_is_in_the_table() {
    let ran = Machine::new(Who::Me).clash(["hook", "nobody"]).exits(2);
    let (_, known) = ran.stderr.trim().split_once("known are ").unwrap();
    let rows = table();
    for name in known.split(", ") {
        assert!(rows.contains(&format!("| {name} |")), "{name}");
    }
}
