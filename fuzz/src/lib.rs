//! The properties that hold for any input, one function for each target. A function panics
//! only if its property does not hold. Fuzzers (`fuzz_targets/`) and ordinary tests
//! (`tests/`) both call these.

pub mod seeds;

use std::io;
use std::path::Path;
use std::sync::OnceLock;

use clash_agents::tool_input::NoLinkPaths;
use clash_agents::wiring::{InstallScope, WiringState};
use clash_agents::{AGENTS, CallContext, HookAnswer, HookEvent, UserContext, tool_input};
use clash_lang::SourceReader;
use clash_policy::decide::Decision;
use clash_policy::ir::{self, IrImage};
use clash_policy::path::{NoLinks, PolicyPlaces};
use clash_policy::rule::{Layer, LayerKind};
use clash_policy::{
    Action, Effect, FileCaps, FileUse, HostUse, InputField, JudgeContext, ToolInput,
};

/// The policy that decides hook messages.
const POLICY: &str = r#"
load("@clash//sandboxes.star", "project", "git_safe", "git_full")
settings(default = ask(), default_sandbox = project)
when({
    "Bash": {
        "git": {
            "push": {("--force", "-f"): deny()},
            ("push", "fetch"): allow(sandbox = git_full),
            glob("**"): allow(sandbox = git_safe),
        },
        "sudo": deny(),
        glob("a*"): ask(),
    },
    ("Read", "Write", "Edit", "Glob", "Grep"): {"$PWD": allow(), glob("**/.env"): deny()},
    "WebFetch": {"docs.rs": allow(), "*.github.com": ask(), "10.0.0.0/8": deny()},
    "mcp__*": {"a": {"b": deny(), glob("c*"): allow()}, default(): ask()},
    mode("plan"): {"Bash": ask()},
})
"#;

/// One policy file, and no other file.
struct SinglePolicy<'a>(&'a str);

impl SourceReader for SinglePolicy<'_> {
    fn read(&self, path: &Path) -> io::Result<String> {
        if path == Path::new("/p/policy.star") {
            Ok(self.0.to_owned())
        } else {
            Err(io::ErrorKind::NotFound.into())
        }
    }
}

/// The layers of a policy above the built-in one; `None` if it does not compile.
fn layers_of(source: &str) -> Option<Vec<Layer>> {
    let one = SinglePolicy(source);
    let user = clash_lang::compile("/p/policy.star", LayerKind::User, true, &one).ok()?;
    let built_in =
        clash_lang::compile(clash_lang::BUILT_IN, LayerKind::BuiltIn, true, &one).expect("ours");
    Some(vec![user.layer, built_in.layer])
}

/// The image of a policy; `None` if it does not compile.
pub fn image_of(source: &str) -> Option<Vec<u8>> {
    layers_of(source).map(|layers| ir::encode(&layers, &[], 0))
}

/// A message of any agent is read or refused without a panic. The decision about it is
/// made, and the agent's words for a deny block the call.
pub fn hook_json(data: &[u8]) {
    static IMAGE: OnceLock<Vec<u8>> = OnceLock::new();
    let image = IMAGE.get_or_init(|| image_of(POLICY).expect("compiles"));
    for agent in AGENTS {
        let Ok((event, message)) = (agent.parse)(data) else { continue };
        let Ok(Some(action)) = agent.action(&message, Path::new("/home/user"), &NoLinkPaths) else {
            continue;
        };
        let decision =
            decided(IrImage::open(image, 0).expect("ours"), &action).expect("a sound policy");
        let reason = format!("{:?}", decision.effect);
        let reply = (agent.reply)(event, HookAnswer::Deny { reason });
        if event == HookEvent::BeforeTool {
            let said = reply.document.unwrap_or_default().to_string();
            let denies = said.contains("\"deny\"") || said.contains("\"cancel\":true");
            assert!(reply.blocks.is_some() || denies, "{}: {said}", agent.name);
        }
    }
}

/// An agent's settings: clash adds and removes its entries, and every other byte stays.
pub fn agent_settings(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let home = Path::new("/home/user");
    let user = UserContext {
        home: home.into(),
        tmp: "/tmp".into(),
        state: home.join("state/clash"),
        machine_state: "/usr/local/lib/clash".into(),
        user_id: 1000,
        variable: |_| None,
    };
    for agent in AGENTS {
        for wired in (agent.files)(&user, &InstallScope::User) {
            let Ok(installed) = wired.edit.install(text) else { continue };
            let without = wired.edit.uninstall(text).expect("what can be installed can go");
            let back = wired.edit.uninstall(&installed).expect("what was installed can go");
            // A file that was not there is taken away by who wrote it.
            let gone = text.trim().is_empty() && ["", "{}"].contains(&back.trim());
            assert!(back == without || gone, "{back:?} and not {without:?}");
            assert_eq!(wired.edit.install(&installed).as_deref(), Ok(installed.as_str()));
            assert_ne!(wired.edit.state(&installed), Ok(WiringState::Absent));
        }
    }
}

/// A policy's text compiles or is refused. A compiled policy can be written, read back with
/// the same size, and used for decisions.
pub fn policy_source(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if outgrows_this_process(text) {
        return;
    }
    let Some(layers) = layers_of(text) else { return };
    let image = ir::encode(&layers, &[], 0);
    let ir = IrImage::open(&image, 0).expect("just written");
    let read = ir.to_layers().expect("what was written can be read");
    assert_eq!(ir::encode(&read, &[], 0).len(), image.len());
    for action in actions() {
        // A path that cannot be placed is an error and no decision.
        let _ = decided(ir, &action);
    }
}

/// True if the text could outgrow this process. The evaluator checks its limits only now
/// and then, and large numbers pass them in between. Then the compiler's own process ends;
/// a fuzzer has only this one.
fn outgrows_this_process(text: &str) -> bool {
    let digits = |part: &str| part.len() > 3;
    text.split(|c: char| !c.is_ascii_hexdigit() && !matches!(c, 'x' | 'o' | 'b' | '_'))
        .any(|part| part.starts_with(|c: char| c.is_ascii_digit()) && digits(part))
        || text.matches("for ").count() > 3
        || text.matches('*').count() > 40
}

/// A compiled policy, whole or damaged, gives an answer or an error.
pub fn ir_image(data: &[u8]) {
    let mut image = data.to_vec();
    if let Ok(ir) = IrImage::open(&image, 0) {
        read_all(ir);
    }
    ir::reseal(&mut image, 0);
    if let Ok(ir) = IrImage::open(&image, 0) {
        read_all(ir);
    }
}

/// Reads the first 1000 inputs and every other record of an image, and decides some
/// actions.
fn read_all(ir: IrImage<'_>) {
    for input in ir.inputs().take(1000) {
        let _ = input.and_then(|input| input.to_input());
    }
    let _ = ir.to_layers();
    for action in actions() {
        let _ = decided(ir, &action);
    }
}

/// A script is analysed without a panic. With one more line behind it, the analysis sees
/// the program of that line or reports an unknown one.
pub fn shell(data: &[u8]) {
    let script = String::from_utf8_lossy(data);
    let commands = clash_shell::find_commands(&script);
    assert!(!commands.is_empty());
    for command in &commands {
        let _ = clash_shell::is_inert(command);
    }
    // After any script, the analysis sees the program of a further line or reports
    // something unknown. A backslash and a here-document consume that line.
    if script.ends_with('\\') || script.contains("<<") {
        return;
    }
    let seen = clash_shell::find_commands(&format!("{script}\nzzz")).iter().any(|command| {
        let zzz = |word: &clash_shell::ShellWord| word.known().is_none_or(|w| w.contains("zzz"));
        command.opaque.is_some() || command.words.iter().any(zzz)
    });
    assert!(seen, "a program is hidden");
}

/// A settings file in the syntax that the first byte chooses: refused, or a copy with the
/// same length and lines in which only bytes of secrets differ.
pub fn masks(data: &[u8]) {
    use clash_policy::mask::{MaskSyntax, mask};
    let Some((kind, text)) = data.split_first() else { return };
    let syntaxes = [
        MaskSyntax::Ini,
        MaskSyntax::Properties,
        MaskSyntax::Yaml,
        MaskSyntax::BundlerYaml,
        MaskSyntax::Toml,
        MaskSyntax::Netrc,
        MaskSyntax::Xml,
        MaskSyntax::Json,
        MaskSyntax::SecretJson,
    ];
    let Some(syntax) = syntaxes.get(usize::from(*kind) % syntaxes.len()) else { return };
    let Ok(masked) = mask(*syntax, text) else { return };
    assert_eq!(masked.len(), text.len(), "the length differs");
    for (old, new) in text.iter().zip(&masked) {
        let is_filled = !old.is_ascii_whitespace() && matches!(new, b'x' | b'1');
        assert!(old == new || is_filled, "a byte is neither kept nor masked");
    }
}

/// Settings of another tool, which the first byte chooses: refused, or a policy that
/// compiles.
pub fn imports(data: &[u8]) {
    use clash_import::{ImportFormat, ImportSource, SettingsBase};
    let Some((kind, bytes)) = data.split_first() else { return };
    let formats = [
        ImportFormat::Claude,
        ImportFormat::Srt,
        ImportFormat::CodexRules,
        ImportFormat::CodexConfig,
    ];
    let bases =
        [SettingsBase::Project, SettingsBase::Home(".claude"), SettingsBase::Directory("/srv/x")];
    let format = formats[usize::from(*kind) % formats.len()];
    let base = bases[usize::from(*kind) / formats.len() % bases.len()];
    let source = ImportSource { name: "settings", bytes, base };
    let _ = clash_import::detect("settings.json", bytes);
    let Ok(imported) = clash_import::import_as(format, &source) else { return };
    let one = SinglePolicy(&imported.source);
    if let Err(mistake) = clash_lang::compile("/p/policy.star", LayerKind::User, true, &one) {
        panic!("an import does not compile: {mistake}\n{}", imported.source);
    }
}

/// A history, whose agent the first byte chooses. From any content, clash learns no rule
/// that allows a program that runs its arguments.
pub fn histories(data: &[u8]) {
    use clash_history::evidence::{ActionScene, HistoryEvidence};
    use clash_history::{CallOutcome, HistoryFile, HistoryKind, policy};
    let Some((kind, bytes)) = data.split_first() else { return };
    let kinds = [HistoryKind::Clash, HistoryKind::Claude, HistoryKind::Codex, HistoryKind::Gemini];
    let kind = kinds[usize::from(*kind) % kinds.len()];
    let path = "/none/chats/session-1.jsonl".into();
    let history = HistoryFile { kind, path, changed: std::time::SystemTime::UNIX_EPOCH };
    let mut evidence = HistoryEvidence::default();
    let places = PolicyPlaces::imagined();
    let _ = history.read_bytes(bytes, &["claude"], &mut |seen| {
        let context = CallContext { cwd: &places.project, home: &places.home, paths: &NoLinkPaths };
        if let Ok((tool, input)) = tool_input::read_tool_use(&seen.tool, &seen.input, &context) {
            let action = Action { agent: seen.agent.into(), tool, mode: String::new(), input };
            let scene = ActionScene {
                when: seen.when,
                agent: seen.agent,
                project: &places.project,
                cwd: &places.project,
                home: &places.home,
            };
            evidence.note(&action, CallOutcome::Ran, &scene);
        }
        std::ops::ControlFlow::Continue(())
    });
    // A program that runs its arguments is never allowed.
    for rule in policy::rules(&evidence) {
        let runs = |key: &&str| ["bash", "env", "node", "perl", "python3", "sh"].contains(key);
        let allowed = rule.effect == Effect::Allow && rule.second.is_empty();
        assert!(!allowed || !rule.keys.iter().any(runs), "{rule:?}");
    }
}

/// A policy's text as a tree: formatted text parses, and a second pass changes nothing.
pub fn syntax(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(formatted) = clash_syntax::fmt::format(text) else { return };
    let again = clash_syntax::fmt::format(&formatted).expect("formatted text is still text");
    assert_eq!(again, formatted, "formatting what is formatted changes it");
}

/// Decides an action on an imagined machine. Fails if the decision is less strict than one
/// of its parts.
fn decided(
    ir: IrImage<'_>,
    action: &Action,
) -> Result<Decision, clash_policy::decide::DecideError> {
    let places = PolicyPlaces::imagined();
    let cage = ["/home/user/.claude".into()];
    let baseline = [("/usr", FileCaps::READ)];
    let world = JudgeContext {
        places: &places,
        cwd: &places.project,
        links: &NoLinks,
        baseline: &baseline,
        cage: &cage,
        lent: None,
    };
    let decision = clash_policy::decide(ir, action, &world)?;
    let strictest = decision.parts.iter().map(|part| part.effect).max();
    assert!(strictest.is_some_and(|strictest| decision.effect >= strictest));
    Ok(decision)
}

/// Actions of every kind of input.
fn actions() -> Vec<Action> {
    let tool = |tool: &str, input| Action {
        tool: tool.to_owned(),
        input,
        ..Action::script("claude", "default", "")
    };
    let file = |path: &str, caseless| FileUse { path: path.into(), needs: FileCaps::ALL, caseless };
    let field = |name: &str, values: &[&str]| InputField {
        name: name.to_owned(),
        values: values.iter().map(|value| (*value).to_owned()).collect(),
    };
    vec![
        Action::script("claude", "plan", "git push --force origin main"),
        Action::script("claude", "default", "git -C x push -uf $Y; sudo ls && cargo build"),
        Action::script("codex", "default", "$X; echo $(ls)"),
        Action::script("codex", "default", "a -b c -d e -f g -h i -j k -l m -n o -p q -r s"),
        tool("Read", ToolInput::Files(vec![file("/home/user/project/a/.env", false)])),
        tool(
            "Write",
            ToolInput::Files(vec![file("/home/user/Project/a", true), file("/usr/x", false)]),
        ),
        tool(
            "WebFetch",
            ToolInput::Hosts(vec![
                HostUse { host: "api.github.com".into(), port: 443 },
                HostUse { host: "10.1.2.3".into(), port: 80 },
            ]),
        ),
        tool("mcp__db__query", ToolInput::Fields(vec![field("a", &["b", "c"]), field("x", &[])])),
    ]
}

/// Bytes of a room and of its servers, as the gate reads them. A name that is read is one that
/// a rule could allow, and a request is passed on whole or not at all.
pub fn gate_bytes(data: &[u8]) {
    use clash_net::dns::{self, RecordKind};
    use clash_net::http::{HttpError, RequestStream};
    use clash_net::name::DomainName;
    use clash_net::tls::{ClientHello, read_client_hello};
    let is_plain = |name: &DomainName| DomainName::parse(name.as_str()).as_ref() == Some(name);
    if let ClientHello::Named(name) = read_client_hello(data) {
        assert!(is_plain(&name), "{name:?}");
    }
    if let Some(query) = dns::read_query(data) {
        assert!(query.name.as_ref().is_none_or(is_plain));
        let answer = query.answer(&dns::DnsAnswer::NoData);
        assert!(answer.len() <= data.len().max(12));
    }
    let asked = DomainName::parse("a.test").expect("a name");
    let _ = dns::read_answer(data, 7, &asked, RecordKind::V4);
    for piece in [1, 7, data.len().max(1)] {
        let (mut requests, mut passed) = (RequestStream::default(), Vec::new());
        for part in data.chunks(piece) {
            let taken = requests.take(part, &mut passed, |head| match &head.host {
                Some(host) if host.host == "a.test" => Ok(()),
                _ => Err(HttpError::NoHost),
            });
            if taken.is_err() {
                break;
            }
        }
        assert!(data.starts_with(&passed), "bytes were changed");
    }
}
