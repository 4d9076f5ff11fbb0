use serde_json::Value;

use super::*;
use crate::claude::FORMAT;

fn uninstall(text: &str) -> Result<String, SettingsError> {
    super::uninstall(text, &FORMAT)
}

fn inspect(text: &str) -> Result<FoundEntries, SettingsError> {
    super::inspect(text, &FORMAT)
}

/// The entries of a clash whose path contains a space.
fn wiring() -> HookEntries {
    HookEntries {
        format: &FORMAT,
        hook_command: "/usr/bin/timeout -k 1 20 '/opt/my clash/clash' hook claude || { echo 'clash: hook failed, blocked' >&2; exit 2; }".into(),
        prefix: Some("/opt/my clash/clash-shell".into()),
    }
}

/// The text as JSON, without a byte order mark.
fn json(text: &str) -> Value {
    serde_json::from_str(text.trim_start_matches('\u{feff}')).expect(text)
}

/// Installs into a text, checks the entries, and uninstalls again.
fn there_and_back(text: &str) -> String {
    let installed = install(text, &wiring()).expect(text);
    let found = inspect(&installed).expect(&installed);
    assert!(found.is_complete(&FORMAT) && found.stale(&wiring()).is_empty(), "{installed}");
    assert_eq!(install(&installed, &wiring()).as_deref(), Ok(installed.as_str()), "{text}");
    assert_only_added(text, &installed);
    uninstall(&installed).expect(&installed)
}

/// Fails unless the second document is the first one with clash's hooks and prefix.
fn assert_only_added(before: &str, after: &str) {
    let (before, after) = (json(before), json(after));
    let empty = serde_json::Map::new();
    let part = |value: &Value, key: &str| value[key].as_object().unwrap_or(&empty).clone();
    let mut env = part(&after, "env");
    assert_eq!(env.remove(PREFIX), Some("/opt/my clash/clash-shell".into()));
    assert_eq!(env, part(&before, "env"));
    let (old, new) = (part(&before, "hooks"), part(&after, "hooks"));
    for (event, groups) in &new {
        let mut groups = groups.as_array().expect(event).clone();
        if FORMAT.events.iter().any(|(name, ..)| name == event) {
            let own = groups.pop().expect(event);
            assert_eq!(own["hooks"][0]["args"][1], wiring().hook_command.as_str());
            assert_eq!(own["hooks"][0]["onFailure"], "block");
        }
        let had = old.get(event).and_then(Value::as_array).cloned().unwrap_or_default();
        assert_eq!(groups, had, "{event}");
    }
    assert!(old.keys().all(|event| new.contains_key(event)));
    for (key, value) in before.as_object().expect("an object") {
        assert!(["env", "hooks"].contains(&key.as_str()) || after[key] == *value, "{key}");
    }
}

#[test]
fn an_empty_file_gets_all_entries() {
    let text = install("", &wiring()).expect("an empty file");
    let start = r#"{
  "env": {
    "CLAUDE_CODE_SHELL_PREFIX": "/opt/my clash/clash-shell"
  },
  "hooks": {
    "PreToolUse": [
      {
        "matcher": "*",
        "hooks": [
          {
            "type": "command",
            "command": "/bin/sh",
            "args": ["-c", "/usr/bin/timeout -k 1 20 '/opt/my clash/clash' hook claude || { echo 'clash: hook failed, blocked' >&2; exit 2; }"],
            "timeout": 30,
            "onFailure": "block"
          }
        ]
      }
    ],
    "PostToolUse": ["#;
    assert!(text.starts_with(start), "{text}");
    assert!(text.ends_with("    ]\n  }\n}\n"), "{text}");
    assert_eq!(install(&text, &wiring()).as_deref(), Ok(text.as_str()));
    // An empty text is a file that goes.
    assert_eq!(uninstall(&text).as_deref(), Ok(""));
    assert_eq!(install(" \n", &wiring()).as_deref(), Ok(text.as_str()));
}

#[test]
fn every_layout_comes_back_byte_for_byte() {
    for text in [
        "{}",
        "{}\n",
        "{ }",
        "{\n}\n",
        "{\r\n}\r\n",
        "\u{feff}{\n  \"model\": \"x\"\n}",
        "  {\n    \"model\": \"x\"\n  }  \n",
        r#"{"model":"x"}"#,
        r#"{ "model": "x", "n": [1, 2] }"#,
        r#"{"env":{},"hooks":{}}"#,
        r#"{"env":{ },"hooks":{"PreToolUse":[ ],"Stop":[]}}"#,
        "{\n\t\"env\": {},\n\t\"hooks\": {\n\t},\n\t\"model\": \"x\"\n}\n",
        "{\r\n  \"env\": { \"A\": \"1\" },\r\n  \"hooks\": {\r\n    \"PreToolUse\": []\r\n  }\r\n}\r\n",
        "{\n  \"env\": {}, \"hooks\": {}\n}",
        "{\n    \"hooks\": {\n        \"PreToolUse\": [\n            {\"matcher\": \"Bash\", \"hooks\": [{\"type\": \"command\", \"command\": \"lint\"}]}\n        ]\n    }\n}\n",
        "{\"model\":\"x\"\n,\n\"hooks\" : { \"SessionEnd\"\n: [ {\"hooks\":[]} , {\"hooks\":[]}\n] }\n}",
        r#"{"s":"}{][\",\\","t":"\u007b\ud83d\ude00☃","deep":[[[{"a":[]}]]],"n":-1.5e+3,"b":false}"#,
    ] {
        assert_eq!(there_and_back(text), text);
        assert_eq!(uninstall(text).as_deref(), Ok(text));
    }
}

#[test]
fn entries_take_the_indentation_of_the_file() {
    let text = "{\n\t\"env\": {\n\t\t\"A\": \"1\"\n\t}\n}\n";
    let text = install(text, &wiring()).expect(text);
    assert!(text.starts_with(
        "{\n\t\"env\": {\n\t\t\"A\": \"1\",\n\t\t\"CLAUDE_CODE_SHELL_PREFIX\": \"/opt/my clash/clash-shell\"\n\t},\n\t\"hooks\": {\n\t\t\"PreToolUse\": [\n\t\t\t{\n"
    ), "{text}");
    assert!(!install("{\"a\":1}", &wiring()).expect("one line").contains('\n'));
    let crlf = install("{\r\n  \"a\": 1\r\n}", &wiring()).expect("crlf");
    assert_eq!(crlf.matches('\n').count(), crlf.matches("\r\n").count());
}

#[test]
fn a_new_path_replaces_the_old_entries() {
    let text = "{\n  \"hooks\": {\n    \"Stop\": []\n  }\n}\n";
    let old = HookEntries {
        format: &FORMAT,
        hook_command: "/old/clash hook claude || exit 2".into(),
        prefix: Some("/old/clash-shell".into()),
    };
    let once = install(text, &old).expect("old");
    let found = inspect(&once).expect("old");
    assert_eq!(found.stale(&wiring()).len(), FORMAT.events.len() + 1);
    assert_eq!(install(&once, &wiring()), install(text, &wiring()));
}

#[test]
fn entries_that_the_user_added_later_stay() {
    let text = install("{}", &wiring()).expect("install");
    let more = text.replacen("\"hooks\": {", "\"hooks\": {\n    \"Stop\": [],", 1).replacen(
        "\"hooks\": [",
        "\"hooks\": [{\"type\":\"command\",\"command\":\"lint\"},",
        1,
    );
    let left = json(&uninstall(&more).expect("uninstall"));
    let want = r#"{"hooks":{"Stop":[],"PreToolUse":[{"matcher":"*","hooks":[{"type":"command","command":"lint"}]}]}}"#;
    assert_eq!(left, json(want));
    // Printed again by another program, as the client itself does.
    let printed = serde_json::to_string_pretty(&json(&text)).expect("print");
    assert_eq!(uninstall(&printed).as_deref(), Ok(""));
    assert_eq!(install(&printed, &wiring()).as_deref(), Ok(printed.as_str()));
}

#[test]
fn only_entries_of_clash_are_removed() {
    for text in [
        r#"{"env":{"CLAUDE_CODE_SHELL_PREFIX":"/usr/bin/nice"}}"#,
        r#"{"env":{"CLAUDE_CODE_SHELL_PREFIX":""}}"#,
        r#"{"hooks":{"PreToolUse":[{"hooks":[{"type":"command","command":"clash hook claude"}]}]}}"#,
        r#"{"hooks":{"PreToolUse":[{"hooks":[{"type":"command","command":"/bin/sh","args":["-c","log; /x/notclash hook claude"]}]}]}}"#,
        r#"{"hooks":{"PreToolUse":[{"hooks":[{"type":"command","command":"/bin/sh","args":["-c","/x/clash hook claudette"]}]}]}}"#,
        r#"{"hooks":[1,{"hooks":"x"}],"env":"CLAUDE_CODE_SHELL_PREFIX"}"#,
        r#"{"a":1,"a":2,"hooks":{"PreToolUse":{"hooks":3}}}"#,
        "[1, 2]",
        "3",
        "",
    ] {
        assert_eq!(uninstall(text).as_deref(), Ok(text));
    }
}

#[test]
fn an_error_names_the_key_and_the_line() {
    let refused = |text: &str| install(text, &wiring()).expect_err(text);
    for (text, message) in [
        ("{\n\"hooks\": []}", "`hooks` in line 2 is not an object"),
        ("{\"env\": 1}", "`env` in line 1 is not an object"),
        ("[]", "`settings` in line 1 is not an object"),
        ("{\"hooks\":{\n\n\"Stop\":{}}}", "`hooks.Stop` in line 3 is not an array"),
        ("{\"hooks\":{\"Stop\":[\n3]}}", "`hooks.Stop[]` in line 2 is not an object"),
        ("{\"hooks\":{\"Stop\":[{}]}}", "`hooks.Stop[].hooks` in line 1 is not there"),
        ("{\"hooks\":{},\n\"hooks\":{}}", "`hooks` stands twice, again in line 2"),
        ("{\"hooks\":{\"Stop\":[],\n\n\"Stop\":[]}}", "`Stop` stands twice, again in line 3"),
        (
            "{\"env\":{\"CLAUDE_CODE_SHELL_PREFIX\":\n\"/usr/bin/nice\"}}",
            "`CLAUDE_CODE_SHELL_PREFIX` in line 2 is already set to `/usr/bin/nice`",
        ),
        (
            "{\"env\":{\"CLAUDE_CODE_SHELL_PREFIX\":\"\"}}",
            "`CLAUDE_CODE_SHELL_PREFIX` in line 1 is already set to ``",
        ),
        (
            "{\"env\":{\"CLAUDE_CODE_SHELL_PREFIX\":1}}",
            "`CLAUDE_CODE_SHELL_PREFIX` in line 1 is not a string",
        ),
        ("{\n// mine\n}", "comment in line 2, which JSON does not have"),
        ("{\n\"a\": /* mine */ 1\n}", "comment in line 2, which JSON does not have"),
        ("{\n\"a\": 1,\n}", "comma before a closing bracket in line 3, which JSON does not have"),
        ("{\"a\": ", "not JSON: EOF while parsing a value at line 1 column 6"),
    ] {
        let error = refused(text);
        assert_eq!(error.to_string(), message);
        assert!(error.hint().is_some());
    }
    let odd = |hook: &str, prefix: &str| {
        let wiring =
            HookEntries { format: &FORMAT, hook_command: hook.into(), prefix: Some(prefix.into()) };
        install("{}", &wiring).is_err()
    };
    assert!(odd("clash hook claude", "/x/clash"));
    assert!(odd("/x/clash hook claude", "/x/shell"));
    assert!(odd("/x/clash hook claude", "x/clash"));
    assert!(odd("/x/clash hook claude", "/x -y/clash"));
    assert!(!odd("/x/clash hook claude", "/x/clash"));
}

#[test]
fn inspect_reports_settings_against_clash() {
    let text = "{\"disableAllHooks\": true,\n\"env\":{\"CLAUDE_CODE_SHELL_PREFIX\":\"\",\n\"BASH_ENV\":\"./x\"},\"hooks\":{\"Stop\":3}}";
    let problems = inspect(text).expect(text).problems;
    assert_eq!(problems.len(), 4);
    assert!(
        problems
            .contains(&SettingsProblem::HooksDisabled { key: "disableAllHooks".into(), line: 1 })
    );
    assert!(problems.contains(&SettingsProblem::ForeignPrefix { value: String::new(), line: 2 }));
    assert!(problems.contains(&SettingsProblem::GroundInEnv { name: "BASH_ENV".into(), line: 3 }));
    let half = install("{}", &wiring()).expect("install").replace("SessionEnd", "Stop");
    let half = half.replace("CLAUDE_CODE_SHELL_PREFIX", "X");
    let want = [SettingsProblem::MissingEvents(vec!["SessionEnd"]), SettingsProblem::MissingPrefix];
    assert_eq!(inspect(&half).expect("half").problems, want);
    assert_eq!(inspect("{}"), Ok(FoundEntries::default()));
    assert_eq!(inspect(""), Ok(FoundEntries::default()));
}

/// Random documents, randomly laid out: only our entries come and go.
#[test]
fn any_document_comes_back_byte_for_byte() {
    for seed in 1..1_500 {
        let mut random = Random(u64::wrapping_mul(seed, 0x9e37_79b9_7f4a_7c15));
        let style = random.below(4);
        let text = document(&mut random, style);
        assert_eq!(there_and_back(&text), text, "seed {seed}");
        assert_eq!(uninstall(&text).as_deref(), Ok(text.as_str()), "seed {seed}");
    }
}

/// A fixed random sequence.
struct Random(u64);

impl Random {
    /// A number below `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }
}

/// White space by the style: none, line ends with two sorts of indentation, or anything at
/// all.
fn space(random: &mut Random, style: u64, depth: usize) -> String {
    match style {
        0 => String::new(),
        1 => format!("\n{}", "  ".repeat(depth)),
        2 => format!("\r\n{}", "\t".repeat(depth)),
        _ => (0..random.below(4))
            .map(|_| [' ', '\t', '\n', '\r'][random.below(4) as usize])
            .collect(),
    }
}

/// Items between brackets, laid out in the style.
fn list(
    random: &mut Random,
    style: u64,
    depth: usize,
    ends: [char; 2],
    items: Vec<String>,
) -> String {
    let mut text = String::from(ends[0]);
    for (index, item) in items.iter().enumerate() {
        text += if index > 0 { "," } else { "" };
        text += &space(random, style, depth + 1);
        text += item;
        text += if style == 3 { " " } else { "" };
    }
    if !items.is_empty() || random.below(2) == 0 {
        text += &space(random, style, depth);
    }
    text.push(ends[1]);
    text
}

/// A JSON object, laid out in the style.
fn object(random: &mut Random, style: u64, depth: usize, members: Vec<(&str, String)>) -> String {
    let gap = if style == 0 { "" } else { " " };
    let members = members.into_iter().map(|(key, value)| format!("\"{key}\":{gap}{value}"));
    let members = members.collect();
    list(random, style, depth, ['{', '}'], members)
}

/// Any JSON value; beyond a depth only simple ones.
fn some(random: &mut Random, style: u64, depth: usize) -> String {
    match random.below(if depth > 4 { 4 } else { 6 }) {
        0 => "\"}],\\\" \\u00e9 ☃\"".into(),
        1 => "-1.5e3".into(),
        2 => "true".into(),
        3 => "null".into(),
        4 => {
            let items = (0..random.below(3)).map(|_| some(random, style, depth + 1)).collect();
            list(random, style, depth, ['[', ']'], items)
        }
        _ => {
            let keys = ["a", "hooks", "env", "PreToolUse"];
            let count = random.below(4) as usize;
            let members = keys.iter().take(count).map(|key| (*key, some(random, style, depth + 1)));
            let members = members.collect();
            object(random, style, depth, members)
        }
    }
}

/// Random groups of hooks for one event.
fn event(random: &mut Random, style: u64) -> String {
    let groups = (0..random.below(3)).map(|_| {
        let hooks = (0..random.below(3)).map(|_| some(random, style, 6)).collect();
        let hooks = list(random, style, 5, ['[', ']'], hooks);
        object(random, style, 4, vec![("matcher", "\"Bash\"".into()), ("hooks", hooks)])
    });
    let groups = groups.collect();
    list(random, style, 3, ['[', ']'], groups)
}

/// Random settings of Claude Code, each member in half of them.
fn document(random: &mut Random, style: u64) -> String {
    let mut members = Vec::new();
    for key in ["model", "env", "x", "hooks", "y"] {
        if random.below(2) == 0 {
            continue;
        }
        let value = match key {
            "env" => {
                let names = ["A", "B"].iter().take(random.below(3) as usize);
                let names = names.map(|name| (*name, "\"1\"".to_owned())).collect();
                object(random, style, 1, names)
            }
            "hooks" => {
                let names = ["PreToolUse", "Stop", "SessionEnd", "ConfigChange"];
                let names: Vec<_> = names.into_iter().filter(|_| random.below(2) == 0).collect();
                let events = names.into_iter().map(|name| (name, event(random, style))).collect();
                object(random, style, 1, events)
            }
            _ => some(random, style, 1),
        };
        members.push((key, value));
    }
    let root = object(random, style, 0, members);
    format!(
        "{}{root}{}",
        ["", "\u{feff}", " \n"][random.below(3) as usize],
        space(random, style, 0)
    )
}
