//! Promises about the messages of clash and about the user's settings. Each row has the old
//! defect, the promise, and the test that checks the promise.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::{Machine, Who};

struct Promise {
    /// The old defect.
    before: &'static str,
    /// The promise.
    now: &'static str,
    /// The test, as `file::name`. For a unit test, the file is the one in `src`.
    test: &'static str,
}

const fn row(before: &'static str, now: &'static str, test: &'static str) -> Promise {
    Promise { before, now, test }
}

const PROMISES: &[Promise] = &[
    row(
        "uninstall cut out what `codex mcp add` had written between our markers",
        "changes of the client and the user survive install, reinstall and uninstall",
        "client_settings::changes_of_the_client_and_the_user_survive_clash",
    ),
    row(
        "reinstall wrote the agent file of Q and Kiro anew, with what a client had added",
        "members that a client adds stay",
        "client_settings::a_server_added_to_the_agent_of_clash_survives",
    ),
    row(
        "settings of Cursor, Q and Kiro were tried by hand only",
        "edits like those of these clients survive",
        "client_settings::edits_like_those_of_absent_clients_survive_clash",
    ),
    row(
        "status said `commands are confined` beside broken settings",
        "confined is said after a trial of the very line in the settings",
        "wiring::confined_is_said_of_every_agent_after_a_trial",
    ),
    row(
        "doctor said `ok` of a hook that the client did not load",
        "broken settings are never called confined",
        "wiring::broken_settings_are_never_confined",
    ),
    row(
        "install stopped at the first broken agent",
        "install goes on and sums up",
        "wiring::install_goes_on_after_a_broken_agent_and_sums_up",
    ),
    row(
        "every allowed command of `codex exec` failed without a word why",
        "install asks, and the documented setting makes it work",
        "codex_sandbox::the_real_codex_runs_commands_without_flags",
    ),
    row(
        "a sandbox of Codex that was left on was not mentioned",
        "every screen says so",
        "codex_sandbox::a_sandbox_left_on_is_said_everywhere",
    ),
    row(
        "`init --posture strict` over another policy changed nothing and said it did",
        "it changes the policy or refuses",
        "init::a_posture_is_changed_or_refused_and_never_ignored",
    ),
    row(
        "an imported deny of a file held for file tools only",
        "it holds in every sandbox",
        "init::an_imported_deny_holds_in_every_sandbox",
    ),
    row(
        "one Yes gave a file tool the private key",
        "credentials are denied to file tools unless a rule names them",
        "postures::permissive_protects_credentials_hooks_and_clash_itself",
    ),
    row(
        "`every other path` was said to ask where the kernel blocks",
        "explain says who asks and who is blocked",
        "explain::a_command_is_explained_with_its_rule_and_its_sandbox",
    ),
    row(
        "`n` to init without a policy: `there is a policy already`",
        "a no says that nothing was written",
        "init::empty_answers_take_the_defaults_and_no_changes_nothing",
    ),
    row(
        "trust said `it would change nothing` where an ask became an allow",
        "what becomes permitted is shown against the policy in force",
        "trust::the_change_is_shown_against_the_policy_in_force",
    ),
    row(
        "learn proposed sandboxes that could not be enforced",
        "what was learned lets the command run and nothing else",
        "history::a_learned_sandbox_runs_its_command_and_nothing_else",
    ),
    row(
        "a config of OpenCode with comments was called ignored",
        "a value with comments is edited and comes back as it was",
        "src/one_key.rs::a_value_of_the_user_comes_back_as_it_was",
    ),
    row(
        "an `expect(ask, …)` refused `policy deny`",
        "an expectation never forbids a stricter rule",
        "policy_edit::an_expectation_never_forbids_a_stricter_rule",
    ),
    row(
        "`--scope session` named a list that `clash log` did not have",
        "without a session id the error lists the sessions",
        "policy_edit::without_a_session_id_the_error_lists_the_sessions",
    ),
    row(
        "`rm -rf build` asked, `git checkout -- .` did not",
        "what cannot be undone is asked about by one rule",
        "postures::like_commands_are_treated_alike",
    ),
    row(
        "permissive promised to ask and ran `rm -rf .git src`",
        "its text says that it removes directories, and it does",
        "postures::permissive_removes_directories_of_the_project_unasked",
    ),
    row(
        "a pipe between two sandboxes was refused with advice for two commands",
        "each command runs in its own sandbox, through a door",
        "trust_lines::a_script_may_hold_commands_of_two_sandboxes",
    ),
    row(
        "a session id such as `a@b` denied everything",
        "an id may be any text",
        "exec::a_session_id_may_be_any_text",
    ),
    row(
        "two ids could not be told apart once they were escaped",
        "every id has a directory of its own",
        "src/session.rs::every_id_has_a_directory_of_its_own",
    ),
    row(
        "`clash exec -- git push` at a terminal: no user to ask",
        "the person there is asked",
        "exec::a_person_at_a_terminal_is_asked_with_the_reason",
    ),
    row(
        "`clash explain \"cargo build\"` was an error",
        "a command is given as words or as one text",
        "explain::a_command_can_be_given_as_words_or_as_one_text",
    ),
    row(
        "init in the home succeeded, and then everything was refused",
        "it is refused before anything is written",
        "init::init_in_the_home_changes_nothing_and_says_where_to_go",
    ),
    row(
        "`--posture X` asked for the posture",
        "a given posture is not asked for",
        "init::a_given_posture_is_not_asked_for",
    ),
    row(
        "`Take them over?` showed nothing, and 140 lines scrolled away before the question",
        "rules are listed, the policy is one screen, its text comes on request",
        "init::the_policy_is_shown_in_short_and_whole_on_request",
    ),
    row(
        "`init --json` wrote and wired",
        "it only says what it would do unless --yes",
        "init::a_script_gets_json_and_a_dry_run_writes_nothing",
    ),
    row(
        "`--from-trace --yes` wired every agent found",
        "it wires the agents that are named",
        "init::a_learned_policy_is_written_after_a_yes",
    ),
    row(
        "`init --dry-run | head -1` said `Broken pipe`",
        "every command is quiet when its reader has gone",
        "screens::a_reader_that_has_gone_is_no_failure",
    ),
    row(
        "lines broke in the middle of a word",
        "lines break between words",
        "src/text.rs::lines_break_between_words_and_keep_their_column",
    ),
    row(
        "doctor said `not in a container` inside one and `plain user` to root",
        "every line of doctor is so on this machine",
        "screens::doctor_says_what_is_so_of_this_process",
    ),
    row(
        "`policy test` counted no expectation",
        "expectations are counted",
        "policy::expectations_are_run_for_every_policy_named",
    ),
    row(
        "examples showed `~`, the product printed absolute paths",
        "paths below the home begin with `~` on every screen",
        "src/text.rs::paths_below_the_home_begin_with_a_tilde",
    ),
    row(
        "the example of docs/run.md listed a home that no reader has",
        "every example of the documentation prints what it shows",
        "docs::every_example_runs_as_shown",
    ),
    row(
        "lists cut their remedy off",
        "a reason in a list is whole",
        "screens::status_shows_a_long_reason_whole",
    ),
    row(
        "`echo hi` and other harmless commands were asked about",
        "commands that only look need no rule",
        "trust_lines::commands_that_only_look_are_not_asked_about",
    ),
    row(
        "uninstall left files without a word",
        "they are listed",
        "uninstall::files_that_are_left_are_listed",
    ),
    row(
        "nothing removed them",
        "--purge does, and asks about the policy",
        "uninstall::purge_removes_everything_but_a_policy_without_a_yes",
    ),
    row("no screen was kept by a test", "init is", "screens::init_in_80_columns"),
    row("", "status is", "screens::status_in_80_columns"),
    row("", "doctor is", "screens::doctor_in_80_columns"),
    row("", "install is", "screens::install_in_80_columns"),
    row("", "explain is", "screens::explain_in_80_columns"),
    row("", "log is", "screens::log_in_80_columns"),
    row(
        "`init --help` said `Make a policy of what agents did`",
        "the first line of the help names the purpose of init",
        "trust_lines::help_of_init_names_its_purpose",
    ),
    row(
        "doctor advised to write rules into a file",
        "doctor advises `clash init`",
        "trust_lines::doctor_without_a_policy_advises_clash_init",
    ),
];

#[test]
fn every_promise_has_its_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut sources = Vec::new();
    collect_sources(root.parent().unwrap(), &mut sources);
    for Promise { before, now, test } in PROMISES {
        let (file, name) = test.rsplit_once("::").unwrap();
        let wanted = match file.strip_prefix("src/") {
            Some(file) => format!("/{file}"),
            None => format!("/tests/e2e/{file}.rs"),
        };
        let is_meant = |path: &&PathBuf| path.to_string_lossy().ends_with(&wanted);
        let has_test = |path: &PathBuf| {
            let text = fs::read_to_string(path).unwrap();
            text.split("#[test]").skip(1).any(|after| {
                let function = after.split_once("fn ").map(|(_, rest)| rest);
                function.is_some_and(|rest| rest.starts_with(&format!("{name}(")))
            })
        };
        let is_there = sources.iter().filter(is_meant).any(has_test);
        assert!(is_there, "no test {test} for: {before} → {now}");
    }
}

/// Adds all Rust files below a directory.
fn collect_sources(dir: &Path, sources: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect_sources(&path, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            sources.push(path);
        }
    }
}

#[test]
fn a_script_may_hold_commands_of_two_sandboxes() {
    let m = Machine::new(Who::Me).policy(
        "load(\"@clash//sandboxes.star\", \"git_safe\", \"readonly\")\n\
         when({\"Bash\": {\"git\": allow(sandbox = git_safe), \"cat\": allow(sandbox = readonly)}})\n",
    );
    for script in ["git --version | cat", "cat /dev/null $(git --version >/dev/null)"] {
        m.bash(script).is("allow", "");
        m.clash(["exec", "--", "bash", "-c", script]).succeeds();
    }
}

#[test]
fn commands_that_only_look_are_not_asked_about() {
    let m = Machine::new(Who::Me);
    m.clash(["init", "--quick", "--agent", "none"]).succeeds();
    for command in [
        "echo hi",
        "pwd",
        "true",
        ":",
        "cd x",
        "A=1",
        "printf x",
        "export A=1",
        "test -d x",
        "command -v git",
        "while read l; do echo $l; done < f",
        "kill 1",
        "ps",
        "mktemp",
        "nl f",
        "comm a b",
        "base64 f",
        "less f",
        "hostname",
        "free",
        "printenv",
    ] {
        m.bash(command).is("allow", "");
    }
}

#[test]
fn help_of_init_names_its_purpose() {
    let help = Machine::new(Who::Me).clash(["init", "--help"]).succeeds().stdout;
    let first = help.lines().next().unwrap();
    assert_eq!(first, "Make a policy for the toolchains of this project");
}

#[test]
fn doctor_without_a_policy_advises_clash_init() {
    let said = Machine::new(Who::Me).clash(["doctor"]).stdout;
    let (_, after) = said.split_once("no policy file").unwrap_or_else(|| panic!("{said}"));
    let advice: String = after.lines().take(3).collect();
    assert!(advice.contains("clash init"), "{said}");
}
