//! The inputs with which fuzzing starts: the policies of the library and of the
//! documentation, their compiled images, and messages, settings and scripts by hand.

use std::fs;
use std::path::{Path, PathBuf};

/// The targets by their names.
pub const TARGETS: &[(&str, fn(&[u8]))] = &[
    ("hook_json", crate::hook_json),
    ("agent_settings", crate::agent_settings),
    ("policy_source", crate::policy_source),
    ("ir_image", crate::ir_image),
    ("shell", crate::shell),
    ("gate_bytes", crate::gate_bytes),
    ("imports", crate::imports),
    ("histories", crate::histories),
    ("syntax", crate::syntax),
    ("masks", crate::masks),
];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The seeds of a target; none for an unknown name.
pub fn seeds_for(target: &str) -> Vec<Vec<u8>> {
    let bytes = |texts: Vec<String>| texts.into_iter().map(String::into_bytes).collect();
    match target {
        "hook_json" => bytes(messages()),
        "agent_settings" => bytes(AGENT_SETTINGS.iter().map(|text| (*text).to_owned()).collect()),
        "policy_source" | "syntax" => bytes(policies()),
        "ir_image" => policies().iter().filter_map(|text| crate::image_of(text)).collect(),
        "gate_bytes" => gate_seeds(),
        "shell" => bytes(SCRIPTS.iter().map(|script| (*script).to_owned()).collect()),
        "imports" => {
            let tagged = |(kind, text): &(u8, &str)| [&[*kind], text.as_bytes()].concat();
            SETTINGS.iter().map(tagged).collect()
        }
        "histories" => histories(),
        "masks" => {
            let tagged = |(kind, text): &(u8, &str)| [&[*kind], text.as_bytes()].concat();
            MASKED.iter().map(tagged).collect()
        }
        _ => Vec::new(),
    }
}

/// Settings files of package managers, after the number of their syntax.
const MASKED: &[(u8, &str)] = &[
    (0, "registry=https://u:p@h/\n//h/:_authToken=abc\n[x]\npassword =\n  a\n"),
    (1, "a.password=b\\\n  c\n\"//h/:_authToken\" \"x\"\n"),
    (2, "a:\n  npmAuthToken: |\n    b\n  c: {token: 'd', e: f}\n"),
    (3, "BUNDLE_H__COM: \"u:p\"\n"),
    (4, "[registries.a]\ntoken = \"\"\"x\ny\"\"\"\nb = { secret = 'z', c = 1 }\n"),
    (5, "machine h login u password \"a b\"\nmacdef m\nx\n\n"),
    (
        6,
        "<a><server><id>i</id><password>x</password></server><add key='token' value='y'/><!-- <b> --></a>",
    ),
    (7, "{\"http-basic\": {\"h\": [\"x\", 12, true]}, \"a\": \"b\"}"),
    (8, "{\"a\": \"b\"}"),
];

/// Samples of histories that the clients themselves wrote, and one line of a trace.
fn histories() -> Vec<Vec<u8>> {
    let samples = repository().join("crates/clash-history/tests/samples");
    let files = [
        (1, "claude/projects/-work-app/session.jsonl"),
        (2, "codex/sessions/2026/11/16/rollout-2026-11-16T03-48-47.jsonl"),
        (3, "gemini/tmp/proj/chats/session-2026-11-16T03-49.jsonl"),
    ];
    let tagged = |(kind, file): (u8, &str)| {
        [&[kind], fs::read(samples.join(file)).expect("a file of ours").as_slice()].concat()
    };
    let trace = r#"{"v":1,"time":5,"session":"s","event":"decision","agent":"claude","call":"a","tool":"Bash","what":"git push; cargo test && gh auth token"}"#;
    files.into_iter().map(tagged).chain([[&[0], trace.as_bytes()].concat()]).collect()
}

/// Every policy of the library and the fenced ones of the documentation.
fn policies() -> Vec<String> {
    let mut found = vec![crate::POLICY.to_owned()];
    found.extend(POLICIES.iter().map(|text| (*text).to_owned()));
    let read = |dir: &str, ending: &str| {
        let entries = fs::read_dir(repository().join(dir)).expect("a directory of ours");
        let mut paths: Vec<_> = entries.map(|entry| entry.expect("readable").path()).collect();
        paths.sort();
        let named = move |path: &PathBuf| path.extension().is_some_and(|e| e == ending);
        paths.retain(named);
        paths.into_iter().map(|path| fs::read_to_string(path).expect("text")).collect::<Vec<_>>()
    };
    found.extend(read("crates/clash-lang/std", "star"));
    for page in read("docs", "md") {
        let mut blocks = page.split("```");
        blocks.next();
        let fenced = blocks.step_by(2).filter_map(|block| block.split_once('\n'));
        found.extend(fenced.filter(|(tag, _)| tag.starts_with("star")).map(|(_, s)| s.to_owned()));
    }
    found
}

/// Messages of Claude Code, of clients with similar words, and of Cline.
fn messages() -> Vec<String> {
    let message = |tool: &str, input: &str| {
        format!(
            r#"{{"session_id":"s","transcript_path":"/t","cwd":"/home/user/project","permission_mode":"default","hook_event_name":"PreToolUse","tool_name":"{tool}","tool_input":{input},"tool_use_id":"toolu_1"}}"#
        )
    };
    let mut found: Vec<String> = [
        (
            "Bash",
            r#"{"command":"git push --force $X && ls | head -3","description":"d","timeout":1}"#,
        ),
        ("Read", r#"{"file_path":"../project/./.env","offset":1}"#),
        ("Edit", r#"{"file_path":"~/x","old_string":"a","new_string":"b"}"#),
        ("MultiEdit", r#"{"file_path":"/tmp/x","edits":[{"old_string":"a","new_string":"b"}]}"#),
        ("Grep", r#"{"pattern":"x","path":"src","glob":"**/*.rs"}"#),
        ("WebFetch", r#"{"url":"https://u:p@API.github.com:8443/x?y#z","prompt":"p"}"#),
        ("WebSearch", r#"{"query":"x","allowed_domains":["docs.rs","10.0.0.1"]}"#),
        ("mcp__db__query", r#"{"a":["b","cc"],"n":{"x":1,"y":null,"z":[true,{"w":"v"}]}}"#),
        ("apply_patch", r#"{"input":"*** Begin Patch\n*** Update File: a\n"}"#),
    ]
    .iter()
    .map(|(tool, input)| message(tool, input))
    .collect();
    let events = ["PermissionRequest", "PostToolUse", "SessionStart", "ConfigChange"];
    let other = |event: &str| message("Bash", r#"{"command":"ls"}"#).replace("PreToolUse", event);
    found.extend(events.into_iter().map(other));
    found.extend([
        r#"{"session_id":"s","cwd":"/p","hook_event_name":"BeforeTool","tool_name":"mcp_lab_shout","tool_input":{"a":"b"},"mcp_context":{"server_name":"lab","tool_name":"shout"}}"#.to_owned(),
        r#"{"session_id":"s","cwd":"/p","hook_event_name":"BeforeTool","tool_name":"web_fetch","tool_input":{"prompt":"read https://docs.rs/x and http://10.0.0.1"}}"#.to_owned(),
        message("apply_patch", r#"{"command":"*** Begin Patch\n*** Update File: a\n*** Move to: b\n"}"#),
        message("Bash", r#"{"command":"cd a && apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: x\n+y\n*** End Patch\nEOF"}"#),
        r#"{"hookName":"tool_call","taskId":"t","workspaceRoots":["/p"],"tool_call":{"id":"c","name":"run_commands","input":{"commands":["ls"]}}}"#.to_owned(),
        message("lab___shout", r#"{"text":"a"}"#),
        message("Glob", r#"{"patterns":["*.rs","/etc/*"],"folder":"src"}"#),
    ]);
    found
}

const SCRIPTS: &[&str] = &[
    "cd app && FOO=1 npm test 2>&1 | tail -20; git status & ls\n# note\npwd",
    r#"g''it "pu"sh 'a b' \$x "it is $y" *.rs ~/x {a,b} $Z"#,
    "sort < in.txt > \"out file\" 2>>err.log",
    "echo $(git push) `ls` ${x:-$(id)} $((1+1))",
    "if true; then git push; fi; for x in a b; do echo $x; done",
    "f() { git push; }; f; case $x in a) ls;; esac",
    "cat <<EOF\n$(git push)\nEOF\ncat <<-'E'\n\tx\n\tE\n",
    "diff <(git push) x; ! git push; { ls; }; (cd x && ls)",
    "env A=1 sudo -u x timeout 5 nice git push; bash -c 'git push'; xargs -n1 git",
    "eval 'git push'; . ./x; trap 'git push' EXIT; exec ls",
    "echo $'a\\nb' $\"x\" a\\\nb; a[1]=2; x+=(1 2); [[ -f x ]] && y",
];

const POLICIES: &[&str] = &[
    r#"policy("p", {"Bash": {("a", "b c"): ask(), regex("x+y?"): deny(), glob("z*"): allow(), "e": {end(): ask()}}})
policy("q", {tool("Read", "Write"): {literal("/a"): allow(), glob("$PWD/*"): deny()}, agent("codex"): {default(): ask()}})"#,
    r#"s = sandbox("s", {default(): deny(), path("$HOME"): allow("r"), domain("a.b"): allow()}, env = {"A*": deny()}, limits = {"memory": "4G", "wall": "30m"}, protect = ["x"], unprotect = [".git"], serve = [80])
t = s.update(sandbox("t", fs = {"/x": {"y": cow(), glob("**/*.env"): deny()}, regex("/a.*b"): ask()}, net = {"a.b": allow(), "*.c.d:443": ask(), "10.0.0.0/8": deny(), localhost(8080): allow(), default(): deny()}))
settings(default = allow(), default_sandbox = t, on_sandbox_violation = "smart", harness_defaults = False)
when(merge({"Bash": {"git push": allow(sandbox = t)}}, {"Bash": {"git": {"push": deny(reason = "r")}}}))
expect(deny, "git push")"#,
    "def f(x):\n    return {x: allow()}\nwhen({\"Bash\": f(\"ls\") | f(\"cat\")})\n[when({\"Bash\": {x: ask()}}) for x in [\"p\", \"q\"]]\n",
];

/// By the number of the format.
const SETTINGS: &[(u8, &str)] = &[
    (
        0,
        r#"{"permissions":{"allow":["Bash(git log:*)","Bash(npm run test)","Read(./src/**)","WebFetch(domain:docs.rs)","mcp__x__y"],"deny":["Bash(curl:*)","Read(./.env)","Read(~/.ssh/**)","Edit(//etc/*)"],"ask":["Bash(git push *)"],"defaultMode":"acceptEdits","additionalDirectories":["../x"]},"sandbox":{"enabled":true,"network":{"allowedDomains":["*.example.org"],"allowLocalBinding":true},"filesystem":{"allowWrite":["/tmp/x"],"denyRead":["~/.aws"]},"excludedCommands":["docker"]}}"#,
    ),
    (5, r#"{"permissions":{"allow":["Bash","Edit","Bash(ls)"],"deny":["WebSearch"]}}"#),
    (
        1,
        r#"{"network":{"allowedDomains":["github.com","*.github.com"],"deniedDomains":["evil.com"],"allowUnixSockets":["/var/run/x"]},"filesystem":{"denyRead":["~/.ssh"],"allowWrite":[".","/tmp"],"denyWrite":[".env"]},"ignoreViolations":{"*":["/usr"]}}"#,
    ),
    (
        2,
        "prefix_rule(pattern=[\"git\", [\"push\", \"fetch\"]], decision=\"prompt\", match=[\"git push\"])\nprefix_rule(pattern=[\"ls\"], decision=\"allow\")\nprefix_rule(pattern=[\"rm\"], decision=\"forbidden\", justification=\"no\")\nnetwork_rule(host=\"api.github.com\", protocol=\"https\", decision=\"allow\")\n",
    ),
    (
        3,
        "approval_policy = \"on-request\"\nsandbox_mode = \"workspace-write\"\n[sandbox_workspace_write]\nwritable_roots = [\"/x\"]\nnetwork_access = true\n[permissions.p.filesystem]\n\":project_roots\" = \"write\"\n\"/y\" = \"read\"\n",
    ),
];

const AGENT_SETTINGS: &[&str] = &[
    "",
    "{}",
    "{ // mine\n  \"hooks\": {\"PreToolUse\": [{\"matcher\": \"*\", \"hooks\": []}]} /* too */\n}",
    "{\"env\":{\"A\":\"b\"},\"hooks\":{\"BeforeTool\":[]},\"hooksConfig\":{\"enabled\":false}}",
    "model = \"x\"\n[features]\nhooks = true\n[[hooks.PreToolUse]]\n[[hooks.PreToolUse.hooks]]\ncommand = 'x'\n",
    "a = 1",
    "{\"version\": 1,\n \"hooks\": {\"stop\": [{\"command\": \"x\"}], \"preToolUse\": []}}",
    "{\"hooks\":{\"preToolUse\":[{\"command\":\"/clash hook cursor\"}]},\"version\":1}",
    "{\"shell\": \"/x/clash-sh\" /* clash keeps \"/bin/zsh\" */, \"a\": 1}",
    "{\n  \"shell\" : \"/bin/zsh\" // mine\n}",
];

/// A TLS hello, a query, an answer and requests.
fn gate_seeds() -> Vec<Vec<u8>> {
    let name = b"a.test";
    let mut extension = vec![0, 0, 0, 11, 0, 9, 0, 0, 6];
    extension.extend(name);
    let mut body = [&[3, 3][..], &[7; 32], &[0, 0, 2, 0x13, 1, 1, 0, 0, 15]].concat();
    body.extend(extension);
    let mut hello = vec![22, 3, 1, 0, body.len() as u8 + 4, 1, 0, 0, body.len() as u8];
    hello.extend(body);
    let question = b"\x01a\x04test\0\0\x01\0\x01";
    let query = [&b"\0\x07\x01\0\0\x01\0\0\0\0\0\0"[..], question].concat();
    let answer = [
        &b"\0\x07\x81\x80\0\x01\0\x02\0\0\0\0"[..],
        question,
        b"\xc0\x0c\0\x05\0\x01\0\0\0\x3c\0\x04\x01b\xc0\x0e",
        b"\x01b\xc0\x0e\0\x01\0\x01\0\0\0\x3c\0\x04\x01\x02\x03\x04",
    ]
    .concat();
    let requests = b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 2\r\n\r\nhi\
        POST /b HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n\
        GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n";
    vec![hello, query, answer, requests.to_vec()]
}
