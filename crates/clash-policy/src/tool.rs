//! Tools, under the one name policies use for what every agent calls differently.

use crate::effect::Caps;

/// Tools, by the name policies use and the names agents have for them.
const TOOLS: &[(&str, Kind, &[&str])] = &[
    (
        "Bash",
        Kind::Shell,
        &[
            "shell",
            "run_shell_command",
            "execute_bash",
            "exec_command",
            "execute_command",
            "run_command",
            "run_terminal_cmd",
            "Monitor",
            "monitor",
            "bash",
            "Execute",
        ],
    ),
    (
        "Read",
        Kind::File,
        &["read", "read_file", "fs_read", "view", "NotebookRead", "read_many_files", "view_image"],
    ),
    ("Write", Kind::File, &["write", "write_file", "fs_write", "create", "create_file", "Create"]),
    (
        "Edit",
        Kind::File,
        &["edit", "replace", "str_replace", "edit_file", "apply_patch", "patch", "ApplyPatch"],
    ),
    ("MultiEdit", Kind::File, &["multiedit", "multi_edit"]),
    ("NotebookEdit", Kind::File, &["notebook_edit"]),
    ("Glob", Kind::File, &["glob", "find_files", "list_files"]),
    (
        "Grep",
        Kind::File,
        &["grep", "grep_search", "search_file_content", "search_files", "ripgrep"],
    ),
    ("LS", Kind::File, &["ls", "list", "list_directory", "list_dir"]),
    ("WebFetch", Kind::Host, &["web_fetch", "webfetch", "fetch", "fetch_url", "FetchUrl"]),
    ("WebSearch", Kind::Host, &["web_search", "websearch", "google_web_search"]),
];

/// What the keys below a tool are compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Shell,
    File,
    Host,
    /// The fields of its input.
    Other,
}

/// The name policies use for a tool, and what it works on.
pub fn canonical(name: &str) -> (&str, Kind) {
    let is = |known: &&(&str, Kind, &[&str])| known.0 == name || known.2.contains(&name);
    match TOOLS.iter().find(is) {
        Some((known, kind, _)) => (known, *kind),
        None => (name, Kind::Other),
    }
}

/// What a tool that works on a file needs there, by its name in policies. An
/// unknown one may do anything to it.
pub fn needs(name: &str) -> Caps {
    match name {
        "Read" | "Glob" | "Grep" | "LS" => Caps::READ,
        "Write" => Caps::WRITE.union(Caps::CREATE),
        "Edit" | "MultiEdit" | "NotebookEdit" => Caps::READ.union(Caps::WRITE),
        _ => Caps::ALL.without(Caps::EXECUTE),
    }
}

/// Tools that can be misspelt; any other name is taken for a tool we do not know.
pub fn known() -> impl Iterator<Item = &'static str> {
    TOOLS.iter().map(|(name, _, _)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_agent_s_word_for_a_tool_is_one_tool() {
        assert_eq!(canonical("run_shell_command"), ("Bash", Kind::Shell));
        assert_eq!(canonical("fs_read"), ("Read", Kind::File));
        assert_eq!(canonical("mcp__db__query"), ("mcp__db__query", Kind::Other));
    }

    #[test]
    fn no_word_means_two_tools() {
        let mut words: Vec<&str> = TOOLS
            .iter()
            .flat_map(|(name, _, others)| others.iter().copied().chain([*name]))
            .collect();
        let count = words.len();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), count);
    }
}
