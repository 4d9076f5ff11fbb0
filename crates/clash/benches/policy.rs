//! How the cost of a decision grows with the policy, and what a cold one costs.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a benchmark is a program for people"
)]
//!
//! Compared side by side in one run: policies of 10 and of 5,000 rules, decided in
//! this process on an opened image and by the whole program; and a hook that has to
//! compile a policy of 500 rules with one that finds it compiled.
//!
//! ```text
//! cargo build --release -p clash-compile --target x86_64-unknown-linux-musl
//! cargo bench -p clash --bench policy --target x86_64-unknown-linux-musl
//! ```

#[expect(dead_code, reason = "shared with benchmarks that measure other things")]
mod support;

use std::fs;
use std::hint::black_box;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clash_policy::ir::IrImage;
use clash_policy::path::PolicyPlaces;
use clash_policy::rule::LayerKind;
use clash_policy::{Action, HostUse, InputField, JudgeContext, ToolInput};
use clash_protocol::protocol_argument;
use clash_protocol::request::{
    CompileRequest, CompilerRequest, LayerFile, ReplacedText, TrustSource,
};
use clash_protocol::stamp::BUILD_STAMP;
use support::{BenchMachine, MeasuredCommand, bench_rounds, clear, compare};

const CLASH: &str = env!("CARGO_BIN_EXE_clash");

fn main() {
    let Some(rounds) = bench_rounds(200) else { return };
    in_process(rounds);
    whole_program(rounds);
    cold(rounds.min(60));
}

/// A policy with this many rules, a multiple of ten: programs with subcommands and
/// options, tools with fields, hosts, a mode.
fn policy(rules: usize) -> String {
    let (mut bash, mut tools, mut hosts, mut plan) = (vec![], vec![], vec![], vec![]);
    for n in 0..rules / 10 {
        bash.push(format!(
            r#""prog{n}": {{"build": allow(), "push": {{("--force", "-f"): deny(), glob("**"): allow()}}, ("a{n}", "b{n}"): ask(), "x": allow()}},
"simple{n}": allow(),"#
        ));
        tools.push(format!(r#""mcp__s{n}__t": {{"q": {{"v{n}": deny(), default(): allow()}}}},"#));
        hosts.push(format!(r#""h{n}.test": allow(),"#));
        plan.push(format!(r#""prog{n}": ask(),"#));
    }
    let [bash, tools, hosts, plan] = [bash, tools, hosts, plan].map(|lines| lines.join("\n"));
    format!(
        r#"when({{"Bash": {{{bash}}}, {tools} "WebFetch": {{{hosts}}}, mode("plan"): {{"Bash": {{{plan}}}}}}})"#
    )
}

/// The policy compiled as the user's.
fn image(rules: usize) -> Vec<u8> {
    let path = Path::new("/p/policy.star").to_path_buf();
    let (layer, trust) = (LayerKind::User, TrustSource::Assumed);
    let request = CompilerRequest::Compile(CompileRequest {
        layers: vec![LayerFile { layer, trust, path: path.clone() }],
        replaced_texts: vec![ReplacedText { path, text: policy(rules) }],
        ..Default::default()
    });
    let mut compiler = Command::new(Path::new(CLASH).with_file_name("clash-compile"));
    compiler.arg(protocol_argument()).stderr(Stdio::null());
    let mut child = compiler.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&serde_json::to_vec(&request).unwrap()).unwrap();
    child.wait_with_output().unwrap().stdout
}

/// Actions that match rules of every kind, and some that match none.
fn actions() -> Vec<(&'static str, Action)> {
    let script = |script: &str| Action::script("claude", "default", script);
    let tool = |tool: &str, input| Action { tool: tool.to_owned(), input, ..script("") };
    let host = |host: &str| ToolInput::Hosts(vec![HostUse { host: host.to_owned(), port: 443 }]);
    let field = |value: &str| {
        ToolInput::Fields(vec![InputField { name: "q".to_owned(), values: vec![value.to_owned()] }])
    };
    vec![
        ("prog0 build", script("prog0 build --release")),
        ("prog0 push, options", script("prog0 -v --depth 3 push -uf origin main")),
        ("a program no rule names", script("unknown build -f x")),
        ("three commands", script("simple0 a && prog0 x | prog0 a0")),
        ("$X build", script("$X build")),
        ("prog0 $X", script("prog0 $X")),
        ("prog0 push $X", script("prog0 push $X --dry-run")),
        ("prog0 x, in plan mode", Action { mode: "plan".to_owned(), ..script("prog0 x") }),
        ("WebFetch a.h0.test", tool("WebFetch", host("a.h0.test"))),
        ("WebFetch other.example", tool("WebFetch", host("other.example"))),
        ("mcp__s0__t", tool("mcp__s0__t", field("w"))),
        ("mcp__other__t", tool("mcp__other__t", field("w"))),
    ]
}

/// Compares decisions by a small and a large policy in this process.
fn in_process(rounds: usize) {
    let images = [10, 5000].map(image);
    println!("images: {} and {} bytes", images[0].len(), images[1].len());
    println!("{:<28} {:>10} {:>10} {:>7}", "in process, ns (p10)", "10 rules", "5000", "ratio");
    let places = PolicyPlaces::imagined();
    let world = JudgeContext::without_disk(&places);
    let row = |name: &str, times: [Duration; 2]| {
        let [few, many] = times.map(|time| time.as_secs_f64() * 1e9);
        println!("{name:<28} {few:>10.0} {many:>10.0} {:>7.2}", many / few);
        [few, many]
    };
    row(
        "open (checksum)",
        side_by_side(rounds, |at| drop(black_box(IrImage::open(&images[at], BUILD_STAMP)))),
    );
    let irs = [0, 1].map(|at: usize| IrImage::open(&images[at], BUILD_STAMP).unwrap());
    let mut sums = [0.0, 0.0];
    for (name, action) in actions() {
        let decide = |at: usize| drop(black_box(clash_policy::decide(irs[at], &action, &world)));
        let row = row(name, side_by_side(rounds, decide));
        sums = [sums[0] + row[0], sums[1] + row[1]];
    }
    println!(
        "{:<28} {:>10.0} {:>10.0} {:>7.2}\n",
        "all decisions",
        sums[0],
        sums[1],
        sums[1] / sums[0]
    );
}

/// The tenth percentile of both, taken in turn.
fn side_by_side(rounds: usize, run: impl Fn(usize)) -> [Duration; 2] {
    const TIMES: u32 = 20;
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        for (at, times) in times.iter_mut().enumerate() {
            let start = Instant::now();
            (0..TIMES).for_each(|_| run(at));
            times.push(start.elapsed() / TIMES);
        }
    }
    times.map(|mut times| {
        times.sort();
        times[times.len() / 10]
    })
}

/// A hook call in a place of its own.
struct Hook {
    place: BenchMachine,
}

impl Hook {
    /// Makes a machine with a policy of so many rules, and the message of a call.
    fn new(rules: usize) -> Self {
        let place = BenchMachine::new(&policy(rules));
        let message = format!(
            r#"{{"session_id":"bench","transcript_path":"/t","cwd":"{}","permission_mode":"default","hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{{"command":"prog0 build --release"}},"tool_use_id":"toolu_1"}}"#,
            place.project().display()
        );
        fs::write(place.dir.path().join("message.json"), message).unwrap();
        Self { place }
    }

    fn command(&self) -> Command {
        let mut command = self.place.command(CLASH, &["hook", "claude"]);
        command.stdin(fs::File::open(self.place.dir.path().join("message.json")).unwrap());
        command
    }

    /// Removes the compiled policy.
    fn forget(&self) {
        let _ = fs::remove_dir_all(self.place.home().join(".cache/clash"));
    }

    /// Removes the approvals.
    fn tidy(&self) {
        clear(&self.place.home().join(".local/state/clash/sessions/bench/approvals"));
    }

    /// Checks that every measured call was allowed.
    fn check(&self) {
        let trace = self.place.home().join(".local/state/clash/sessions/bench/trace.jsonl");
        let trace = fs::read_to_string(trace).unwrap();
        let allowed = |line: &str| line.contains(r#""effect":"allow""#);
        assert!(
            !trace.is_empty() && trace.lines().all(allowed),
            "the hook did not allow every call"
        );
    }
}

/// Compares hook calls with a small and a large policy.
fn whole_program(rounds: usize) {
    let (few, many) = (Hook::new(10), Hook::new(5000));
    let variants = vec![
        MeasuredCommand::new("clash hook claude, 10 rules, warm", || few.command()),
        MeasuredCommand::new("clash hook claude, 5,000 rules, warm", || many.command()),
    ];
    compare("the policy grows", rounds, variants, || {
        few.tidy();
        many.tidy();
    });
    few.check();
    many.check();
}

/// Compares a hook call that has to compile the policy with one that finds it compiled.
fn cold(rounds: usize) {
    let (warm, cold) = (Hook::new(500), Hook::new(500));
    let variants = vec![
        MeasuredCommand::new("clash hook claude, 500 rules, warm", || warm.command()),
        MeasuredCommand::new("clash hook claude, 500 rules, cold", || {
            cold.forget();
            cold.command()
        }),
    ];
    compare("the policy is not compiled yet", rounds, variants, || {
        warm.tidy();
        cold.tidy();
    });
    warm.check();
    cold.check();
}
