//! Tools: one name in policies for the different names that agents use.

use crate::effect::FileCaps;

/// Tools, by the name policies use and the names agents have for them.
const TOOLS: &[(&str, ToolKind, &[&str])] = &[
    (
        "Bash",
        ToolKind::Shell,
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
        ToolKind::File,
        &["read", "read_file", "fs_read", "view", "NotebookRead", "read_many_files", "view_image"],
    ),
    (
        "Write",
        ToolKind::File,
        &["write", "write_file", "fs_write", "create", "create_file", "Create"],
    ),
    (
        "Edit",
        ToolKind::File,
        &["edit", "replace", "str_replace", "edit_file", "apply_patch", "patch", "ApplyPatch"],
    ),
    ("MultiEdit", ToolKind::File, &["multiedit", "multi_edit"]),
    ("NotebookEdit", ToolKind::File, &["notebook_edit"]),
    ("Glob", ToolKind::File, &["glob", "find_files", "list_files"]),
    (
        "Grep",
        ToolKind::File,
        &["grep", "grep_search", "search_file_content", "search_files", "ripgrep"],
    ),
    ("LS", ToolKind::File, &["ls", "list", "list_directory", "list_dir"]),
    ("WebFetch", ToolKind::Host, &["web_fetch", "webfetch", "fetch", "fetch_url", "FetchUrl"]),
    ("WebSearch", ToolKind::Host, &["web_search", "websearch", "google_web_search"]),
];

/// The kind of input that the keys below a tool are compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolKind {
    Shell,
    File,
    Host,
    /// The fields of its input.
    Other,
}

/// The name of a tool in policies, and the kind of its input. A name that is not known here
/// stays as it is, with [`ToolKind::Other`]. Upper and lower case differ.
pub fn canonical(name: &str) -> (&str, ToolKind) {
    let is = |known: &&(&str, ToolKind, &[&str])| known.0 == name || known.2.contains(&name);
    match TOOLS.iter().find(is) {
        Some((known, kind, _)) => (known, *kind),
        None => (name, ToolKind::Other),
    }
}

/// The capabilities that a file tool needs, by its name in policies. An unknown tool
/// needs all but execution.
pub fn needs(name: &str) -> FileCaps {
    match name {
        "Read" | "Glob" | "Grep" | "LS" => FileCaps::READ,
        "Write" => FileCaps::WRITE.union(FileCaps::CREATE),
        "Edit" | "MultiEdit" | "NotebookEdit" => FileCaps::READ.union(FileCaps::WRITE),
        _ => FileCaps::ALL.without(FileCaps::EXECUTE),
    }
}

/// The names of known tools, for suggestions. A policy may also name tools that are not
/// known here.
pub fn known() -> impl Iterator<Item = &'static str> {
    TOOLS.iter().map(|(name, _, _)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_agents_use_map_to_one_tool() {
        assert_eq!(canonical("run_shell_command"), ("Bash", ToolKind::Shell));
        assert_eq!(canonical("fs_read"), ("Read", ToolKind::File));
        assert_eq!(canonical("mcp__db__query"), ("mcp__db__query", ToolKind::Other));
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
