//! Finds the programs that the scripts of CI services run. The formats of these files
//! differ, but all have shell lines. So this reads the first word of a line, and the word
//! after `run:`, `script:`, a dash, `&&`, `;` or `|`.

use std::path::{Path, PathBuf};

use super::{ECOSYSTEMS, Ecosystem};

/// CI scripts with a fixed name.
const FILES: &[&str] = &[
    ".gitlab-ci.yml",
    ".circleci/config.yml",
    "azure-pipelines.yml",
    "bitbucket-pipelines.yml",
    ".travis.yml",
    "Jenkinsfile",
    ".drone.yml",
    ".woodpecker.yml",
    "appveyor.yml",
];
/// Directories with CI scripts.
const WORKFLOWS: &[&str] = &[".github/workflows", ".forgejo/workflows", ".gitea/workflows"];

const MAX_WORKFLOW_FILES: usize = 30;
/// Only this much of a file is read.
const MAX_WORKFLOW_BYTES: usize = 256 << 10;

/// The first program of each toolchain that the CI scripts of a project run: toolchain, file
/// and program.
pub(super) fn find_ci_programs(root: &Path) -> Vec<(&'static Ecosystem, PathBuf, &'static str)> {
    let mut found: Vec<(&'static Ecosystem, PathBuf, &'static str)> = Vec::new();
    for file in ci_files(root) {
        let Ok(bytes) = std::fs::read(root.join(&file)) else { continue };
        let text =
            String::from_utf8_lossy(bytes.get(..MAX_WORKFLOW_BYTES).unwrap_or(&bytes)).into_owned();
        for word in text.lines().flat_map(command_words) {
            for ecosystem in ECOSYSTEMS {
                let known = found.iter().any(|(known, _, _)| *known == ecosystem);
                let program = ecosystem.programs.iter().find(|program| **program == word);
                if let Some(program) = program.filter(|_| !known) {
                    found.push((ecosystem, file.clone(), program));
                }
            }
        }
    }
    found
}

/// The CI scripts of a project, from its root; at most 30 of each directory.
fn ci_files(root: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        FILES.iter().map(PathBuf::from).filter(|file| root.join(file).is_file()).collect();
    for dir in WORKFLOWS {
        let entries = std::fs::read_dir(root.join(dir)).into_iter().flatten().flatten();
        let mut names: Vec<PathBuf> =
            entries.take(1_000).map(|entry| Path::new(dir).join(entry.file_name())).collect();
        names.retain(|name| name.extension().is_some_and(|end| end == "yml" || end == "yaml"));
        names.sort();
        names.truncate(MAX_WORKFLOW_FILES);
        files.extend(names);
    }
    files
}

/// The words of a line that could be programs: the first of each command, without its
/// directory, `sudo` and assignments. None for a value of a key that holds no script.
fn command_words(line: &str) -> impl Iterator<Item = &str> {
    let line = line.trim_start().trim_start_matches("- ");
    let key = line.split_once(": ").filter(|(key, _)| {
        let key = key.trim();
        !key.is_empty() && key.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-')
    });
    let script = match key {
        Some((key, value)) if matches!(key.trim(), "run" | "script" | "sh" | "command") => value,
        // The value of another key is no shell line.
        Some(_) => "",
        None => line,
    };
    let parts = script.split(['&', '|', ';', '(']);
    parts.filter_map(|part| {
        let words = part.split_whitespace().map(|word| word.trim_matches(['"', '\'', '`']));
        let mut words = words.skip_while(|word| word.contains('=') || *word == "sudo");
        words.next().and_then(|word| word.rsplit('/').next())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_lines_of_workflows_name_programs() {
        let dir = tempfile::tempdir().unwrap();
        let workflows = dir.path().join(".github/workflows");
        std::fs::create_dir_all(&workflows).unwrap();
        let text = "name: make it\non: push\njobs:\n  a:\n    steps:\n      - uses: actions/checkout@v4\n      - run: CI=1 npm ci && npx tsc\n      - run: |\n          ./gradlew test\n          echo go\n      - name: cargo is not run\n";
        std::fs::write(workflows.join("ci.yml"), text).unwrap();
        std::fs::write(
            dir.path().join(".gitlab-ci.yml"),
            "test:\n  script:\n    - bundle exec rake\n",
        )
        .unwrap();
        let found = find_ci_programs(dir.path());
        let names: Vec<(&str, &str)> = found.iter().map(|(e, _, p)| (e.name, *p)).collect();
        assert_eq!(names, [("ruby", "bundle"), ("node", "npm"), ("java", "gradlew")]);
        assert_eq!(found[1].1, Path::new(".github/workflows/ci.yml"));
    }
}
