//! The limits of this process. A policy that never ends, or that asks for ever more
//! memory, ends here and the last event says why.
//!
//! The evaluator has limits of its own, but it checks them only now and then: a list
//! that doubles in a loop outruns them.

use std::time::{Duration, Instant};

use clash_protocol::report::CompilerEvent;
use clash_protocol::request::CompilerRequest;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

use crate::answer::send_event;

/// The processor time of a request by a hook. Not the time of the clock: on a busy
/// machine an honest policy would exceed that.
const HOOK_CPU_TIME: Duration = Duration::from_millis(1900);
/// The processor time of a request by a person.
const INTERACTIVE_CPU_TIME: Duration = Duration::from_secs(10);
/// The time of the clock after which the process ends even if it only waits.
const MAX_WAIT: Duration = Duration::from_secs(15);
const MAX_ADDRESS_SPACE_BYTES: u64 = 1 << 30;
const WATCH_STACK_BYTES: usize = 64 << 10;

/// The panic message of the evaluator's arena if the kernel refuses it memory.
const ARENA_OUT_OF_MEMORY: &str = "out of memory";

/// Sets the limits for a request: memory, processor time, and the time of the clock. A
/// thread of its own ends the process with an event before the kernel would.
pub(crate) fn limit_process(request: &CompilerRequest) {
    let cpu_time = if request.is_interactive() { INTERACTIVE_CPU_TIME } else { HOOK_CPU_TIME };
    // The watch below normally ends the process before the kernel does.
    let seconds = cpu_time.as_secs() + 1;
    limit_resource(Resource::As, MAX_ADDRESS_SPACE_BYTES, MAX_ADDRESS_SPACE_BYTES);
    // At the first limit the kernel sends SIGXCPU, which `clash` understands, and only at
    // the second SIGKILL.
    limit_resource(Resource::Cpu, seconds, seconds + 1);
    // Without this thread the limit of processor time still holds.
    let watch = std::thread::Builder::new().stack_size(WATCH_STACK_BYTES);
    let _ = watch.spawn(move || {
        wait_for_limit(cpu_time);
        let place = clash_lang::latest().map(|span| span.to_string());
        send_event(&CompilerEvent::TimeLimit { place });
        std::process::exit(1)
    });
}

/// Lowers a limit of this process. A lower limit of the caller stays. If the kernel
/// refuses, the limit stays as it was.
fn limit_resource(resource: Resource, current: u64, maximum: u64) {
    let before = getrlimit(resource).maximum;
    let at_most = |limit: u64| Some(before.map_or(limit, |before| before.min(limit)));
    let _ = setrlimit(resource, Rlimit { current: at_most(current), maximum: at_most(maximum) });
}

/// Waits until the processor time of this process is used up, or [`MAX_WAIT`] has passed.
fn wait_for_limit(cpu_time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < MAX_WAIT {
        let spent = clock_gettime(ClockId::ProcessCPUTime);
        let spent = Duration::try_from(spent).unwrap_or(cpu_time);
        let Some(left) = cpu_time.checked_sub(spent).filter(|left| !left.is_zero()) else { return };
        // At most two threads use processor time at once.
        std::thread::sleep((left / 2).max(Duration::from_millis(5)));
    }
}

/// Sends an event for each panic, with the statement that was being evaluated.
pub(crate) fn report_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = clash_lang::evaluating().map(|span| span.to_string());
        let message = panic.payload_as_str().unwrap_or("no message");
        send_event(&panic_event(message, place));
    }));
}

/// The event for a panic: the evaluator's arena panics if it gets no memory.
fn panic_event(message: &str, place: Option<String>) -> CompilerEvent {
    if message == ARENA_OUT_OF_MEMORY {
        CompilerEvent::MemoryLimit { place }
    } else {
        CompilerEvent::Panicked { place, message: message.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    const PANICS: &str = "CLASH_TEST_PANICS";

    /// Runs this test once more in a process of its own, which panics for real.
    #[test]
    fn a_panic_is_reported_as_a_panic() {
        if std::env::var_os(PANICS).is_some() {
            report_panics();
            panic!("the test panics");
        }
        let ran = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", "limits::tests::a_panic_is_reported_as_a_panic"])
            .env(PANICS, "1")
            .output()
            .unwrap();
        assert!(!ran.status.success());
        let said = String::from_utf8_lossy(&ran.stderr);
        let mut events = said.lines().filter_map(|line| serde_json::from_str(line).ok());
        let message = "the test panics".to_owned();
        assert_eq!(events.next(), Some(CompilerEvent::Panicked { place: None, message }), "{said}");
    }

    #[test]
    fn an_exhausted_arena_is_a_memory_limit() {
        let place = || Some("/p:1:1".to_owned());
        let event = panic_event(ARENA_OUT_OF_MEMORY, place());
        assert_eq!(event, CompilerEvent::MemoryLimit { place: place() });
    }
}
