//! The files of a patch in the `*** Begin Patch` format.
//!
//! Several clients apply such a patch inside their own process, where no sandbox confines
//! it. So the hook judges each of its paths. Every line that can be a header counts as one,
//! also if the client takes it for a line of a file: more paths only make the answer
//! stricter. A patch without a path is an error.

use clash_policy::{FileCaps, ToolInput};

use crate::tool_input::{CallContext, ToolError, file_use};

const BEGIN: &str = "*** Begin Patch";

const HEADERS: [(&str, FileCaps); 4] = [
    ("*** Add File:", FileCaps::WRITE.union(FileCaps::CREATE)),
    ("*** Update File:", FileCaps::READ.union(FileCaps::WRITE)),
    ("*** Delete File:", FileCaps::DELETE),
    ("*** Move to:", FileCaps::WRITE.union(FileCaps::CREATE)),
];

/// True if a text has the first line of a patch.
pub(super) fn is_patch(text: &str) -> bool {
    text.contains(BEGIN)
}

/// The files of the patch, as the tool `Edit` of policies. A patch without a path is an
/// error.
pub(super) fn patched_files(
    tool: &str,
    patch: &str,
    context: &CallContext<'_>,
) -> Result<(String, ToolInput), ToolError> {
    let mut files = Vec::new();
    let mut updated = None;
    for line in patch.lines().map(str::trim) {
        for (header, needs) in HEADERS {
            let Some(path) = line.strip_prefix(header).map(str::trim) else { continue };
            files.push(file_use(tool, path, needs, context)?);
            if header == "*** Move to:" {
                // A move deletes the old file.
                files.extend(updated.take());
            } else {
                updated = Some(file_use(tool, path, FileCaps::DELETE, context)?);
            }
        }
    }
    if files.is_empty() {
        return Err(ToolError::Field { tool: tool.to_owned(), field: "*** Add File" });
    }
    Ok(("Edit".to_owned(), ToolInput::Files(files)))
}

/// The directory and the patch of a shell line that is nothing but `apply_patch <<'WORD'`,
/// or that after a `cd`. Some clients carry out such a line themselves and run no shell.
/// Only the quoted form counts, in which a shell would expand nothing either.
pub(super) fn find_in_shell(script: &str) -> Option<(Option<&str>, &str)> {
    let (first, rest) = script.trim().split_once('\n')?;
    let (dir, call) = match first.strip_prefix("cd ") {
        Some(after) => {
            let (dir, call) = after.split_once(" && ")?;
            let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
            (Some(dir).filter(|dir| !dir.is_empty() && dir.chars().all(plain))?.into(), call)
        }
        None => (None, first),
    };
    let call = ["apply_patch", "applypatch"].iter().find_map(|name| call.strip_prefix(name))?;
    let word = call.trim().strip_prefix("<<")?.trim();
    let word = ['\'', '"'].iter().find_map(|q| word.strip_prefix(*q)?.strip_suffix(*q))?;
    let plain = !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let (patch, last) = rest.rsplit_once('\n')?;
    let closed_once = rest.lines().filter(|line| *line == word).count() == 1;
    (plain && last == word && closed_once && is_patch(patch)).then_some((dir, patch))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paths of a patch in `/p` with their capabilities; or the error, as text.
    fn paths(patch: &str) -> Vec<String> {
        let context = CallContext::imagined("/p");
        match patched_files("apply_patch", patch, &context) {
            Ok((_, ToolInput::Files(files))) => {
                files.iter().map(|file| format!("{} {}", file.path.display(), file.needs)).collect()
            }
            other => vec![format!("{other:?}")],
        }
    }

    #[test]
    fn every_path_of_a_patch_is_judged() {
        let patch = "*** Begin Patch\n*** Add File: a/b.txt\n+x\n*** Update File: c\n*** Move to: /etc/d\n@@\n-x\n+y\n*** Delete File: ../e\n*** End Patch";
        assert_eq!(paths(patch), ["/p/a/b.txt wc", "/p/c rw", "/etc/d wc", "/p/c d", "/e d"]);
    }

    #[test]
    fn a_header_hidden_by_white_space_still_counts() {
        assert_eq!(
            paths("*** Begin Patch\n*** Add File: a\n+x\n\t*** Delete File: /etc/x\n"),
            ["/p/a wc", "/etc/x d"]
        );
    }

    #[test]
    fn a_patch_that_touches_nothing_is_refused() {
        assert!(paths("*** Begin Patch\n*** End Patch")[0].contains("Err"));
        assert!(paths("")[0].contains("Err"));
    }

    #[test]
    fn a_patch_in_a_shell_command_is_found_only_alone_and_quoted() {
        let body = "*** Begin Patch\n*** Add File: a\n+x\n*** End Patch";
        let heredoc = |start: &str| format!("{start}\n{body}\nEOF");
        assert_eq!(find_in_shell(&heredoc("apply_patch <<'EOF'")), Some((None, body)));
        assert_eq!(
            find_in_shell(&heredoc("cd sub && applypatch << \"EOF\"")),
            Some((Some("sub"), body))
        );
        for other in [
            heredoc("apply_patch <<EOF"),
            heredoc("echo a && apply_patch <<'EOF'"),
            heredoc("cd $(id) && apply_patch <<'EOF'"),
            heredoc("cd a;id && apply_patch <<'EOF'"),
            heredoc("apply_patch <<'EOF' | sh"),
            heredoc("apply_patch <<'EOF'; id"),
            format!("{}\nid", heredoc("apply_patch <<'EOF'")),
            format!("apply_patch <<'EOF'\n{body}\nEOF\nid\nEOF"),
            format!("apply_patch '{body}'"),
            "apply_patch <<'EOF'\nEOF".to_owned(),
        ] {
            assert_eq!(find_in_shell(&other), None, "{other}");
        }
    }
}
