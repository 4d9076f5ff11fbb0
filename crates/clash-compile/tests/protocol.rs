//! The compiler as a program: requests in, events and products out.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Output, Stdio};

use clash_policy::ir::IrImage;
use clash_policy::rule::LayerKind;
use clash_protocol::protocol_argument;
use clash_protocol::report::{CompileReport, CompilerEvent, LanguageDocs};
use clash_protocol::request::{
    CompileRequest, CompilerRequest, LayerFile, ReplacedText, TrustSource,
};
use clash_protocol::stamp::BUILD_STAMP;

const COMPILER: &str = env!("CARGO_BIN_EXE_clash-compile");
const SIGXCPU: i32 = 24;
const POLICY: &str = "/p/policy.star";

/// Starts the compiler with an empty environment and this input.
fn start(input: &[u8]) -> Child {
    let mut command = Command::new(COMPILER);
    command.arg(protocol_argument()).env_clear();
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child
}

/// The output of the compiler and the events among the lines of its error output.
fn ask(request: &CompilerRequest) -> (Output, Vec<CompilerEvent>) {
    let output = start(&serde_json::to_vec(request).unwrap()).wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let events = said.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    (output, events)
}

/// A request to compile this text as the user's policy.
fn policy(text: &str) -> CompilerRequest {
    let (path, text) = (POLICY.into(), text.to_owned());
    CompilerRequest::Compile(CompileRequest {
        layers: vec![LayerFile {
            layer: LayerKind::User,
            trust: TrustSource::Assumed,
            path: POLICY.into(),
        }],
        replaced_texts: vec![ReplacedText { path, text }],
        ..Default::default()
    })
}

/// The report of a compilation; fails if the last event is none.
fn report(events: &[CompilerEvent]) -> &CompileReport {
    match events.last() {
        Some(CompilerEvent::Compiled(report)) => report,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_policy_becomes_an_image_of_this_version() {
    let (output, events) = ask(&policy("when({\"Bash\": {\"x\": allow()}})\n"));
    assert_eq!(events.first(), Some(&CompilerEvent::started()));
    assert!(events.contains(&CompilerEvent::Evaluating { place: POLICY.to_owned() }));
    assert_eq!(report(&events).mistakes, []);
    assert!(output.status.success());
    let layers = IrImage::open(&output.stdout, BUILD_STAMP).unwrap().to_layers().unwrap();
    let kinds: Vec<LayerKind> = layers.iter().map(|layer| layer.kind).collect();
    assert_eq!(kinds, [LayerKind::User, LayerKind::BuiltIn]);
}

#[test]
fn a_mistake_has_its_place_and_leaves_no_image() {
    let (output, events) = ask(&policy("x = 1\nwhen({\"Bash\": {\"x\": alow()}})\n"));
    let [mistake] = report(&events).mistakes.as_slice() else { panic!("{events:?}") };
    assert_eq!((mistake.file.as_str(), mistake.line, mistake.column), (POLICY, 2, 21));
    assert_eq!((mistake.kind.as_str(), mistake.layer.as_str()), ("mistake", "user"));
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
}

#[test]
fn a_policy_without_end_hits_the_time_limit() {
    let (output, events) = ask(&policy("def f(n):\n    return max(range(n))\nf(2000000000)\n"));
    // On a busy machine the kernel's limit may come first.
    let by_kernel = output.status.signal() == Some(SIGXCPU);
    let place = Some(format!("{POLICY}:2"));
    let by_itself = events.last() == Some(&CompilerEvent::TimeLimit { place });
    assert!(by_itself || by_kernel, "{:?} {events:?}", output.status);
    assert!(!output.status.success() && output.stdout.is_empty());
}

/// Starlark panics if one list needs more than 4 GiB.
#[test]
fn a_panic_is_reported_with_its_place() {
    let (output, events) = ask(&policy("def f(n):\n    return list(range(n))\nf(2000000000)\n"));
    let Some(CompilerEvent::Panicked { place, message }) = events.last() else {
        panic!("{events:?}")
    };
    assert_eq!(place.as_deref(), Some("/p/policy.star:2"));
    assert!(message.contains("AlignedSize"), "{message}");
    assert!(!output.status.success() && output.stdout.is_empty());
}

/// The text that `clash` recognises this failure by.
#[test]
fn a_huge_string_ends_in_a_failed_allocation() {
    let (output, _) = ask(&policy("x = \"a\" * 2000000000\n"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.lines().any(|line| line.starts_with("memory allocation of ")), "{said}");
    assert!(!output.status.success() && output.stdout.is_empty());
}

#[test]
fn a_compiler_that_only_waits_ends_by_itself() {
    let rules: String = (0..1500)
        .map(|n| format!("\"program-{n}\": deny(reason = \"{}\"),\n", "x".repeat(99)))
        .collect();
    let request = policy(&format!("when({{\"Bash\": {{{rules}}}}})"));
    // This test reads nothing, so the compiler waits at its image and uses no time.
    let mut child = start(&serde_json::to_vec(&request).unwrap());
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

#[test]
fn a_wrong_request_is_refused() {
    for wrong in ["", "{", r#"{"command":"run"}"#] {
        let output = start(wrong.as_bytes()).wait_with_output().unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
        let said = String::from_utf8_lossy(&output.stderr);
        let last = serde_json::from_str(said.lines().last().unwrap()).unwrap();
        assert!(matches!(last, CompilerEvent::BadRequest { .. }), "{said}");
    }
}

#[test]
fn a_call_without_the_protocol_is_refused() {
    let output = Command::new(COMPILER).arg("user").output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
}

#[test]
fn docs_and_the_library_go_to_the_output() {
    let (output, events) = ask(&CompilerRequest::Docs { name: Some("when".to_owned()) });
    assert_eq!(events, [CompilerEvent::started(), CompilerEvent::Answered]);
    let docs: LanguageDocs = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(docs.builders.len(), 1);
    let (_, events) = ask(&CompilerRequest::Docs { name: Some("rust_ful".to_owned()) });
    let Some(CompilerEvent::UnknownName { nearest, .. }) = events.last() else { panic!() };
    assert_eq!(nearest.as_deref(), Some("rust_full"));
    let (output, _) = ask(&CompilerRequest::Library);
    let library: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(library.get("@clash//rust.star").is_some());
}
