//! Random policies and actions over a vocabulary small enough that keys collide.

use clash_policy::net::{HostPattern, NetRule, NetworkAccess};
use clash_policy::rule::{
    KeyPattern, KeySubject, Layer, LayerGroup, LayerKind, LayerSettings, MatchBranch, MatchKey,
    MatchNode, OnViolation, PolicyRule,
};
use clash_policy::sandbox::{FsRule, PathPattern, ProtectSettings, Sandbox, WriteTarget};
use clash_policy::{
    Action, Effect, FileCaps, FileUse, HostUse, InputField, PolicyRegex, PolicySpan, ToolInput,
};
use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::*;
use proptest::sample::select;
use regex_automata::dfa::{StartKind, dense};

pub(crate) const TOOLS: [&str; 6] = ["Bash", "Read", "Write", "WebFetch", "mcp__x", "mcp__y"];
const MODES: [&str; 2] = ["default", "plan"];
const AGENTS: [&str; 2] = ["claude", "codex"];
const WORDS: [&str; 7] = ["git", "push", "a", "b", "ls", "echo", "cd"];
const OPTIONS: [&str; 4] = ["-f", "--force", "-v", "--no-x"];
const HOSTS: [&str; 6] = ["a.test", "b.a.test", "c.b.a.test", "10.1.2.3", "localhost", "test"];
const FIELDS: [&str; 3] = ["q", "r.s", "t"];
const VALUES: [&str; 3] = ["one", "two", "onetwo"];
const PATHS: [&str; 12] = [
    "/h/app",
    "/h/app/a",
    "/h/app/A/.env",
    "/h/app/a/.env",
    "/h/app/a/secret/x",
    "/h/app/secret",
    "/h/app/.clash/policy.star",
    "/h/app/.claude/worktrees/a",
    "/h/k",
    "/h/.own/x",
    "/usr/a",
    "/",
];

/// As the compiler makes them.
pub(crate) fn regex(pattern: &str) -> PolicyRegex {
    let config = dense::Config::new().start_kind(StartKind::Anchored);
    let automaton =
        dense::Builder::new().configure(config).build(&format!(r"\A(?:{pattern})\z")).unwrap();
    let automaton = automaton.to_sparse().unwrap().to_bytes_native_endian();
    PolicyRegex { pattern: pattern.to_owned(), automaton }
}

/// One of ten fixed expressions.
fn regexes() -> impl Strategy<Value = PolicyRegex> + Clone {
    thread_local! {
        static MADE: Vec<PolicyRegex> =
            ["g[a-z]*", "pu?s?h", "(push|a)", "-[a-z]*", "--f[a-z=]*", "mcp__[xy]", "on?e", "[a-z./]*a[a-z./]*", "b[.]a[a-z.]*", "A[A-Z/.]*"]
                .map(regex)
                .to_vec();
    }
    (0..10usize).prop_map(|at| MADE.with(|made| made[at].clone()))
}

/// An effect, half of the time `allow`.
fn effect() -> impl Strategy<Value = Effect> + Clone {
    select(vec![Effect::Allow, Effect::Allow, Effect::Ask, Effect::Deny])
}

/// A rule in one of three sandboxes or in none named; a deny has none.
fn rule() -> impl Strategy<Value = PolicyRule> + Clone {
    (effect(), prop_oneof![2 => Just(None), 1 => (0..3u8).prop_map(Some)]).prop_map(
        |(effect, sandbox)| PolicyRule {
            effect,
            // Named for its layer below; a deny needs no place to run in.
            sandbox: sandbox.filter(|_| effect < Effect::Deny).map(|at| at.to_string()),
            reason: None,
            span: PolicySpan::default(),
        },
    )
}

/// One or two of these texts as alternatives.
fn literals(of: &'static [&'static str]) -> BoxedStrategy<Vec<KeyPattern>> {
    let some = vec(select(of), 1..3);
    some.prop_map(|mut texts| {
        texts.dedup();
        texts.iter().map(|text| KeyPattern::Literal((*text).to_owned())).collect()
    })
    .boxed()
}

/// One of these globs.
fn globs(of: &'static [&'static str]) -> BoxedStrategy<Vec<KeyPattern>> {
    select(of).prop_map(|glob| vec![KeyPattern::Glob(glob.to_owned())]).boxed()
}

/// The key for everything else.
fn any_key(subject: KeySubject) -> BoxedStrategy<MatchKey> {
    Just(MatchKey { subject, patterns: vec![KeyPattern::Any] }).boxed()
}

/// A key with one of these lists of alternatives.
fn keys(subject: KeySubject, patterns: BoxedStrategy<Vec<KeyPattern>>) -> BoxedStrategy<MatchKey> {
    patterns.prop_map(move |patterns| MatchKey { subject, patterns }).boxed()
}

/// A key with one expression.
fn regex_keys(subject: KeySubject) -> BoxedStrategy<MatchKey> {
    regexes().prop_map(move |r| MatchKey { subject, patterns: vec![KeyPattern::Regex(r)] }).boxed()
}

/// A mode or an agent, which may be a key at any depth.
fn mode_or_agent() -> BoxedStrategy<MatchKey> {
    prop_oneof![
        keys(KeySubject::Mode, literals(&MODES)),
        keys(KeySubject::Agent, literals(&AGENTS)),
    ]
    .boxed()
}

/// A key below `Bash`: words, options, patterns, the end, a mode or an agent.
fn word_key() -> BoxedStrategy<MatchKey> {
    prop_oneof![
        6 => keys(KeySubject::Word, literals(&WORDS)),
        3 => keys(KeySubject::Option, literals(&OPTIONS)),
        1 => keys(KeySubject::Word, globs(&["g*", "p?sh", "*", "pu*", "*s*"])),
        1 => keys(KeySubject::Option, globs(&["--*", "-?", "--f*"])),
        1 => regex_keys(KeySubject::Word),
        1 => regex_keys(KeySubject::Option),
        2 => any_key(KeySubject::Word),
        1 => keys(KeySubject::End, Just(vec![KeyPattern::Literal(String::new())]).boxed()),
        1 => mode_or_agent(),
    ]
    .boxed()
}

/// A host as a sandbox names it.
pub(crate) fn host_patterns() -> BoxedStrategy<HostPattern> {
    prop_oneof![
        select(HOSTS.to_vec()).prop_map(|name| HostPattern::Name(name.to_owned())),
        Just(HostPattern::Name("*.a.test".to_owned())),
        select(HOSTS.to_vec()).prop_map(|name| HostPattern::Exact(name.to_owned())),
        (0..33u8).prop_map(|bits| HostPattern::Addresses { base: [10, 1, 0, 0].into(), bits }),
        Just(HostPattern::Localhost),
    ]
    .boxed()
}

/// A key below `WebFetch`, or a mode or agent.
fn host_key() -> BoxedStrategy<MatchKey> {
    const NAMES: [&str; 7] =
        ["a.test", "*.a.test", "=a.test", "b.a.test", "*.test", "=c.b.a.test", "localhost"];
    let host = |host| vec![KeyPattern::Host(host)];
    let addresses = host_patterns().prop_filter("a literal is none", |host| {
        !matches!(host, HostPattern::Name(_) | HostPattern::Exact(_))
    });
    prop_oneof![
        5 => keys(KeySubject::Host, literals(&NAMES)),
        1 => keys(KeySubject::Host, globs(&["*.test", "b*", "*"])),
        1 => keys(KeySubject::Host, addresses.prop_map(host).boxed()),
        1 => regex_keys(KeySubject::Host),
        1 => any_key(KeySubject::Host),
        1 => mode_or_agent(),
    ]
    .boxed()
}

/// A path pattern of any form, without linked worktrees.
pub(crate) fn path_pattern() -> BoxedStrategy<PathPattern> {
    let bases = select(vec!["/", "$PWD", "$PWD/a", "$HOME", "/usr", "$PWD/a/secret", "/h/app/A"]);
    let text = str::to_owned;
    prop_oneof![
        4 => bases.clone().prop_map(move |path| PathPattern::Subpath { path: text(path), follow_worktrees: false }),
        2 => select(PATHS.to_vec()).prop_map(move |path| PathPattern::Literal(text(path))),
        1 => bases.clone().prop_map(move |path| PathPattern::Children(text(path))),
        3 => (bases.clone(), select(vec!["**/.env", "*/secret", "**/a", "a/**", "**/s*", "?"]))
            .prop_map(move |(prefix, glob)| PathPattern::Glob { prefix: text(prefix), pattern: text(glob) }),
        2 => (bases, regexes()).prop_map(move |(prefix, regex)| PathPattern::Regex { prefix: text(prefix), regex }),
    ]
    .boxed()
}

/// A key below a file tool, or a mode or agent.
fn path_key() -> BoxedStrategy<MatchKey> {
    let paths = vec(path_pattern().prop_map(KeyPattern::Path), 1..3);
    prop_oneof![
        5 => keys(KeySubject::Path, paths.boxed()),
        1 => any_key(KeySubject::Path),
        1 => mode_or_agent(),
    ]
    .boxed()
}

/// The name of a field, the key for all fields, or a mode or agent.
fn field_key() -> BoxedStrategy<MatchKey> {
    prop_oneof![
        6 => keys(KeySubject::Field, literals(&FIELDS)),
        1 => any_key(KeySubject::Field),
        1 => mode_or_agent(),
    ]
    .boxed()
}

/// A value of a field.
fn value_key() -> BoxedStrategy<MatchKey> {
    prop_oneof![
        4 => keys(KeySubject::Value, literals(&VALUES)),
        2 => keys(KeySubject::Value, globs(&["one*", "*", "?wo"])),
        1 => regex_keys(KeySubject::Value),
        1 => any_key(KeySubject::Value),
    ]
    .boxed()
}

/// A subtree that may be below a key, up to the remaining depth.
fn below(key: &MatchKey, depth: u32, at: TreeLevel) -> BoxedStrategy<MatchNode> {
    let leaf = rule().prop_map(MatchNode::Rule).boxed();
    let next = match (key.subject, at) {
        (KeySubject::Mode | KeySubject::Agent, at) => at,
        (KeySubject::Field, _) if key.patterns != [KeyPattern::Any] => TreeLevel::Value,
        (KeySubject::Value, _) => TreeLevel::Field,
        (KeySubject::Host | KeySubject::Path | KeySubject::End, _) => return leaf,
        (_, at) => at,
    };
    if depth == 0 {
        return leaf;
    }
    prop_oneof![2 => leaf, 3 => tree(depth - 1, next, 1..4).prop_map(MatchNode::Tree)].boxed()
}

/// The kind of keys at one depth of a tree.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum TreeLevel {
    Top,
    Word,
    Host,
    Path,
    Field,
    Value,
}

/// Some branches of one level, up to the remaining depth.
fn tree(
    depth: u32,
    at: TreeLevel,
    size: std::ops::Range<usize>,
) -> BoxedStrategy<Vec<MatchBranch>> {
    vec(branch(depth, at), size).boxed()
}

/// One key with its subtree.
pub(crate) fn branch(depth: u32, at: TreeLevel) -> BoxedStrategy<MatchBranch> {
    let key = match at {
        TreeLevel::Top => return top_branch(depth),
        TreeLevel::Word => word_key(),
        TreeLevel::Host => host_key(),
        TreeLevel::Path => path_key(),
        TreeLevel::Field => field_key(),
        TreeLevel::Value => value_key(),
    };
    key.prop_flat_map(move |key| {
        below(&key, depth, at).prop_map(move |then| MatchBranch { key: key.clone(), then })
    })
    .boxed()
}

/// A key at the root: a tool with keys that fit it, or a mode or agent with more roots
/// below.
fn top_branch(depth: u32) -> BoxedStrategy<MatchBranch> {
    let tool = |name: &'static str, at| {
        let key = MatchKey {
            subject: KeySubject::Tool,
            patterns: vec![KeyPattern::Literal(name.into())],
        };
        node(depth, at).prop_map(move |then| MatchBranch { key: key.clone(), then }).boxed()
    };
    let several = |key: BoxedStrategy<MatchKey>, at| {
        (key, node(depth, at)).prop_map(|(key, then)| MatchBranch { key, then }).boxed()
    };
    let mut kinds = vec![
        (8, tool("Bash", TreeLevel::Word)),
        (2, tool("Read", TreeLevel::Path)),
        (2, several(keys(KeySubject::Tool, literals(&["Read", "Write"])), TreeLevel::Path)),
        (3, tool("WebFetch", TreeLevel::Host)),
        (2, tool("mcp__x", TreeLevel::Field)),
        (1, several(keys(KeySubject::Tool, literals(&TOOLS)), TreeLevel::Field)),
        (1, several(keys(KeySubject::Tool, globs(&["mcp__*", "B*", "*"])), TreeLevel::Field)),
        (1, several(regex_keys(KeySubject::Tool), TreeLevel::Field)),
        (1, leaf_branch(any_key(KeySubject::Tool))),
    ];
    if depth > 0 {
        let inner = (mode_or_agent(), tree(depth - 1, TreeLevel::Top, 1..3))
            .prop_map(|(key, below)| MatchBranch { key, then: MatchNode::Tree(below) });
        kinds.push((3, inner.boxed()));
    }
    proptest::strategy::Union::new_weighted(kinds).boxed()
}

/// A key with a rule directly below it.
fn leaf_branch(key: BoxedStrategy<MatchKey>) -> BoxedStrategy<MatchBranch> {
    (key, rule()).prop_map(|(key, rule)| MatchBranch { key, then: MatchNode::Rule(rule) }).boxed()
}

/// A rule, or more often a tree while depth remains.
fn node(depth: u32, at: TreeLevel) -> BoxedStrategy<MatchNode> {
    let leaf = rule().prop_map(MatchNode::Rule).boxed();
    if depth == 0 {
        return leaf;
    }
    prop_oneof![1 => leaf, 5 => tree(depth - 1, at, 1..5).prop_map(MatchNode::Tree)].boxed()
}

/// At least one capability.
fn caps() -> impl Strategy<Value = FileCaps> + Clone {
    (1..32u8).prop_map(|bits| FileCaps::from_bits(bits).unwrap())
}

/// Any place for changes.
fn writes() -> impl Strategy<Value = WriteTarget> {
    prop_oneof![Just(WriteTarget::InPlace), Just(WriteTarget::Session), Just(WriteTarget::Project)]
}

/// A file rule without a place in the source.
pub(crate) fn fs_rule() -> impl Strategy<Value = FsRule> {
    (path_pattern(), effect(), caps(), writes()).prop_map(|(pattern, effect, caps, writes)| {
        FsRule { pattern, effect, caps, writes, span: PolicySpan::default() }
    })
}

/// Any form of network access.
fn net() -> BoxedStrategy<NetworkAccess> {
    let ports = select(vec![vec![], vec![443], vec![80, 8080]]);
    let line = (host_patterns(), ports, effect()).prop_map(|(host, ports, effect)| NetRule {
        host,
        ports,
        effect,
        span: PolicySpan::default(),
    });
    prop_oneof![
        Just(NetworkAccess::Deny),
        Just(NetworkAccess::Allow),
        Just(NetworkAccess::Ask),
        (vec(line, 0..4), effect())
            .prop_map(|(rules, default)| NetworkAccess::Hosts { rules, default }),
    ]
    .boxed()
}

/// A sandbox without a name; one of eight is unrestricted.
fn sandbox() -> impl Strategy<Value = Sandbox> {
    (effect(), vec(fs_rule(), 0..5), net(), 0..8u8).prop_map(|(default, fs, net, unrestricted)| {
        Sandbox {
            default,
            fs,
            net,
            unrestricted: unrestricted == 0,
            lifetime: None,
            protect: ProtectSettings { standard: unrestricted > 3, ..ProtectSettings::default() },
            ..Sandbox::named("")
        }
    })
}

/// Settings with each field mostly left out. Sandboxes are numbers until [`number`] names
/// them.
fn settings() -> impl Strategy<Value = LayerSettings> {
    (
        weighted(0.3, rule()),
        weighted(0.3, 0..3u8),
        weighted(0.3, select(OnViolation::ALL.to_vec())),
        weighted(0.2, any::<bool>()),
    )
        .prop_map(|(default, sandbox, on_sandbox_violation, harness_defaults)| LayerSettings {
            default,
            default_sandbox: sandbox.map(|at| at.to_string()),
            on_sandbox_violation,
            harness_defaults,
            everywhere: vec![],
            grants: vec![],
        })
}

/// A layer with one or two groups and three sandboxes. Only a project may be untrusted.
pub(crate) fn layer(kind: LayerKind) -> impl Strategy<Value = Layer> {
    let group =
        (select(vec!["", "p"]), tree(3, TreeLevel::Top, 1..5)).prop_map(|(name, branches)| {
            LayerGroup { name: name.to_owned(), doc: String::new(), branches }
        });
    (settings(), vec(group, 1..3), vec(sandbox(), 3), any::<bool>()).prop_map(
        move |(settings, groups, sandboxes, trusted)| Layer {
            kind,
            origin: kind.word().to_owned(),
            trusted: kind != LayerKind::Project || trusted,
            settings,
            groups,
            sandboxes,
        },
    )
}

/// One to five layers, the built-in one always among them.
pub(crate) fn policy() -> impl Strategy<Value = Vec<Layer>> {
    let maybe = |kind| weighted(0.45, layer(kind));
    (
        maybe(LayerKind::Managed),
        maybe(LayerKind::Session),
        maybe(LayerKind::Project),
        maybe(LayerKind::User),
        (layer(LayerKind::BuiltIn), effect()),
    )
        .prop_map(|(managed, session, project, user, (mut built_in, effect))| {
            built_in.settings.default.get_or_insert(PolicyRule {
                effect,
                sandbox: None,
                reason: None,
                span: PolicySpan::default(),
            });
            built_in.settings.default_sandbox.get_or_insert("0".to_owned());
            let mut layers: Vec<Layer> =
                [managed, session, project, user].into_iter().flatten().collect();
            layers.push(built_in);
            number(&mut layers);
            layers
        })
}

/// Gives every rule a line of its own and every sandbox a name of its own.
pub(crate) fn number(layers: &mut [Layer]) {
    let mut line = 0;
    for layer in layers {
        let kind = layer.kind.word();
        let name = |short: &mut Option<String>| {
            if let Some(short) = short.as_mut().filter(|short| !short.starts_with(kind)) {
                *short = format!("{kind}-{short}");
            }
        };
        let mut next = |rule: &mut PolicyRule| {
            line += 1;
            rule.span = PolicySpan { file: kind.to_owned(), line, column: 1 };
            name(&mut rule.sandbox);
        };
        layer.settings.default.iter_mut().for_each(&mut next);
        for group in &mut layer.groups {
            each_rule(&mut group.branches, &mut next);
        }
        name(&mut layer.settings.default_sandbox);
        for (at, sandbox) in layer.sandboxes.iter_mut().enumerate() {
            sandbox.name = format!("{kind}-{at}");
            for rule in &mut sandbox.fs {
                line += 1;
                rule.span.line = line;
            }
            if let NetworkAccess::Hosts { rules, .. } = &mut sandbox.net {
                for rule in rules {
                    line += 1;
                    rule.span.line = line;
                }
            }
        }
    }
}

/// Calls `to` with every rule of a tree.
pub(crate) fn each_rule(branches: &mut [MatchBranch], to: &mut impl FnMut(&mut PolicyRule)) {
    for branch in branches {
        match &mut branch.then {
            MatchNode::Rule(rule) => to(rule),
            MatchNode::Tree(below) => each_rule(below, to),
        }
    }
}

/// Known and unknown words.
pub(crate) fn command() -> impl Strategy<Value = String> {
    const PROGRAMS: &[&str] = &[
        "git",
        "git",
        "a",
        "b",
        "ls",
        "echo",
        "cd",
        "$X",
        "/usr/bin/git",
        "./git",
        "/opt/a",
        "A=1",
        "cat",
        "\"g$X\"",
    ];
    const ARGUMENTS: &[&str] = &[
        "git",
        "push",
        "push",
        "a",
        "b",
        "ls",
        "-f",
        "--force",
        "--for",
        "-vf",
        "--force=x",
        "--",
        "+x",
        "$X",
        "-v",
        "--no-x",
        "*",
        "-C",
        "--no-pager",
        "\"p$X\"",
        "\"--fo$X\"",
        "\"$X\"",
        "\"--no-x=$X\"",
        "\"-v$X\"",
        "~/x",
    ];
    let arguments = vec(select(ARGUMENTS.to_vec()), 0..5);
    (select(PROGRAMS.to_vec()), arguments)
        .prop_map(|(program, arguments)| [vec![program], arguments].concat().join(" "))
}

/// One to three commands, or one inside `eval`.
fn script() -> impl Strategy<Value = String> {
    prop_oneof![
        8 => vec(command(), 1..4).prop_map(|commands| commands.join(" && ")),
        1 => command().prop_map(|command| format!("eval \"{command}\"")),
    ]
}

/// An action of any kind, with known and unknown words, paths, hosts or fields.
pub(crate) fn action() -> impl Strategy<Value = Action> {
    let file = (select(PATHS.to_vec()), caps(), any::<bool>())
        .prop_map(|(path, needs, caseless)| FileUse { path: path.into(), needs, caseless });
    let host = (select(HOSTS.to_vec()), select(vec![443, 80, 8080]))
        .prop_map(|(host, port)| HostUse { host: host.to_owned(), port });
    let values = vec(select(VALUES.to_vec()).prop_map(str::to_owned), 0..3);
    let field = (select(FIELDS.to_vec()), values)
        .prop_map(|(name, values)| InputField { name: name.to_owned(), values });
    let input = prop_oneof![
        5 => script().prop_map(|script| ("Bash", ToolInput::Script(script))),
        2 => (select(vec!["Read", "Write"]), vec(file, 0..3))
            .prop_map(|(tool, files)| (tool, ToolInput::Files(files))),
        1 => vec(host, 0..3).prop_map(|hosts| ("WebFetch", ToolInput::Hosts(hosts))),
        2 => (select(vec!["mcp__x", "mcp__y"]), vec(field, 0..3))
            .prop_map(|(tool, fields)| (tool, ToolInput::Fields(fields))),
    ];
    (input, select(MODES.to_vec()), select(AGENTS.to_vec())).prop_map(
        |((tool, input), mode, agent)| Action {
            agent: agent.to_owned(),
            tool: tool.to_owned(),
            mode: mode.to_owned(),
            input,
        },
    )
}
