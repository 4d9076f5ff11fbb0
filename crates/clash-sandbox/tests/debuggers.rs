//! Debuggers and sanitizers on the processes of one's own command.
#![cfg(target_os = "linux")]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "helpers of tests"
)]

mod support;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use support::*;

fn has(program: &str) -> bool {
    let there = Path::new("/usr/bin").join(program).exists();
    if !there {
        eprintln!("SKIPPED (no {program}): debuggers");
    }
    there
}

#[test]
fn a_debugger_traces_its_own_command() {
    if !has("gcc") {
        return;
    }
    each_tier(|world| {
        let source = "#include <stdlib.h>\nint twice(int n) { return 2 * n; }\nint main(void) { return twice(21) != 42; }\n";
        fs::write(world.project().join("a.c"), source).unwrap();
        assert!(world.sh("gcc -g -O0 -o a a.c").status.success());
        if has("strace") {
            let output = world.sh("strace -f -o log ./a && grep -c exit_group log");
            assert_eq!(text(&output), "1", "{output:?}");
        }
        // Without a room, memory and threads of other processes in /proc stay hidden.
        let in_room = !world.options.iter().any(|option| option == "no-userns");
        if in_room && has("gdb") {
            let command = "gdb -batch -nx -ex 'break twice' -ex run -ex 'print n' ./a 2>/dev/null";
            let output = world.sh(command);
            assert!(text(&output).contains("$1 = 21"), "{output:?}");
        }
        // LeakSanitizer traces its own process, and lists its threads in /proc.
        let sanitized = world.sh("gcc -fsanitize=address -o leak a.c && ./leak");
        assert!(!in_room || sanitized.status.success(), "{sanitized:?}");
    });
}

#[test]
fn no_debugger_reaches_a_process_outside() {
    if python_is_missing() {
        return;
    }
    each_tier(|world| {
        let mut sleeper = world.prepare(Command::new("/bin/sleep"));
        let mut sleeper = sleeper.arg("60").stdout(Stdio::null()).spawn().unwrap();
        let script = format!(
            r"
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
parents, pid = [], os.getppid()
targets = [{pid}, 1, os.getppid()] + list(range({pid} - 300, {pid} + 300))
own = set()
for target in targets:
    if target in (os.getpid(), 0): continue
    for request in (0x4206, 16):
        assert libc.ptrace(request, target, 0, 0) == -1, (target, request)
    buffer = ctypes.create_string_buffer(64)
    class Vector(ctypes.Structure): _fields_ = [('base', ctypes.c_void_p), ('length', ctypes.c_size_t)]
    local = Vector(ctypes.addressof(buffer), 8); remote = Vector(ctypes.addressof(buffer), 8)
    assert libc.process_vm_readv(target, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0) == -1, target
    for name in ('mem', 'environ', 'maps'):
        try: os.close(os.open('/proc/%d/%s' % (target, name), 0))
        except OSError: continue
        if name == 'mem': raise AssertionError(target)
print('fine')
",
            pid = sleeper.id()
        );
        let output = world.run(&[PYTHON, "-c", &script]);
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        assert_eq!(text(&output), "fine", "{output:?}");
    });
}
