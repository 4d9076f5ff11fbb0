//! The names of agents and permission modes that a policy can use.

/// The names that `agent()` accepts without a warning. The first ones are those of
/// clash-agents; the last three have no support yet.
pub(crate) const AGENT_NAMES: &[&str] = &[
    "claude", "codex", "gemini", "opencode", "copilot", "q", "kiro", "cursor", "qwen", "droid",
    "cline", "kilo", "pi", "amp", "goose", "aider",
];

/// Permission modes by the agents' own names. Older policies have words for groups of
/// them: such a word has the list of its modes.
const MODE_NAMES: &[(&str, &[&str])] = &[
    ("default", &[]),
    ("plan", &[]),
    ("acceptEdits", &[]),
    ("auto", &[]),
    ("dontAsk", &[]),
    ("bypassPermissions", &[]),
    ("delegate", &[]),
    ("manual", &[]),
    ("autoEdit", &[]),
    ("auto_edit", &[]),
    ("yolo", &[]),
    ("build", &[]),
    ("edit", &["edit", "acceptEdits", "autoEdit", "auto_edit"]),
    (
        "unrestricted",
        &["unrestricted", "bypassPermissions", "yolo", "dangerously_skip_permissions"],
    ),
];

/// The modes that a name in a policy means: several for a word of older policies, otherwise
/// the name itself, known or not.
pub(crate) fn modes(name: &str) -> Vec<&str> {
    match MODE_NAMES.iter().find(|(known, _)| *known == name) {
        Some((_, [])) | None => vec![name],
        Some((_, several)) => several.to_vec(),
    }
}

/// Every name that `mode()` accepts without a warning.
pub(crate) fn known_modes() -> impl Iterator<Item = &'static str> {
    MODE_NAMES.iter().map(|(name, _)| *name)
}
