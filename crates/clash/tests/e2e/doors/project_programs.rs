//! Programs of the project behind doors: scripts of shells, compiled programs, and links, by
//! their path and by the search path.

use super::SYSTEM_PATH;
use crate::support::{Machine, Ran, as_each_user, clash, copy_program, program};

/// `./gradlew`, tools of node and compiled programs may read a secret; `bin/keys` has
/// credentials.
const POLICY: &str = r#"
load("@clash//sandboxes.star", "project")
settings(default = allow(), default_sandbox = project)
_own = {subpath("$PWD"): allow(FULL), "$TMPDIR": allow(FULL)}
secrets = sandbox(name = "secrets", default = deny(), fs = _own | {"$HOME/secret": allow("r")})
keys = sandbox(name = "keys", default = deny(), fs = _own | {"$HOME/.aws/credentials": allow("r")})
when({"Bash": {
    glob("./gradlew*"): {"publish": ask(sandbox = secrets), "wipe": deny(reason = "never"), glob("**"): allow(sandbox = secrets)},
    glob("node_modules/.bin/*"): allow(sandbox = secrets),
    glob("target/*"): allow(sandbox = secrets),
    glob("bin/keys*"): allow(sandbox = keys),
    "head": allow(sandbox = secrets),
    "git": {"push": deny(reason = "no push")},
}})
"#;

/// Starts a program with `posix_spawn`, which shares the memory with the new process, and
/// prints the path in this memory.
const SPAWN: &str = r#"
import ctypes, os
libc, path, pid = ctypes.CDLL(None), ctypes.create_string_buffer(b"./gradlew"), ctypes.c_int()
words = (ctypes.c_char_p * 3)(b"./gradlew", b"x", None)
environ = ctypes.c_void_p.in_dll(libc, "environ")
libc.posix_spawn(ctypes.byref(pid), path, None, None, words, environ)
os.waitpid(pid.value, 0)
print(path.value)
"#;

fn machine(m: Machine) -> Machine {
    let m = m.policy(POLICY);
    m.write("secret", "hidden\n");
    m.write(".aws/credentials", "key\n");
    m.write("app/spawn.py", SPAWN);
    for dir in ["node_modules/.bin", "node_modules/tool", "target/debug", "bin", "web"] {
        m.make_dir(m.project().join(dir));
    }
    let show = "#!/bin/sh\necho \"$0 $*\"; cat ~/secret ~/.aws/credentials 2>/dev/null; exit 7\n";
    for script in ["gradlew", "node_modules/tool/run", "bin/keys", "other"] {
        program(m.project().join(script), show);
    }
    std::os::unix::fs::symlink("../tool/run", m.project().join("node_modules/.bin/tool")).unwrap();
    copy_program("/usr/bin/cat", m.project().join("target/debug/app"));
    m
}

/// Runs a script with `clash exec`, one of whose commands always needs a door.
fn mixed(m: &Machine, script: &str) -> Ran {
    let script = format!("{script}\nhead -n 1 /dev/null");
    let mut clash = m.command(clash());
    Ran::of(clash.env("PATH", SYSTEM_PATH).args(["exec", "--", "bash", "-c", &script]))
}

#[test]
fn a_program_of_the_project_runs_in_its_own_sandbox() {
    as_each_user(|m| {
        let m = machine(m);
        let project = m.project();
        let project = project.display();
        for script in [
            "./gradlew build; echo $?",
            "cd web && ../gradlew a 'b c'",
            "timeout 9 ./gradlew x",
            &format!("{project}/gradlew x"),
            "exec ./gradlew x",
            "(exec -a name ./gradlew x)",
            "node_modules/.bin/tool",
            "./node_modules/.bin/tool",
            "PATH=$PWD/node_modules/.bin:$PATH; tool 1",
            "PATH=./node_modules/.bin:$PATH; tool 1",
            "target/debug/app ~/secret",
            "sh -c './gradlew x; true'",
            "printf 'all:\\n\\t@./gradlew x\\n' > Makefile; make -s",
            "python3 -c \"import subprocess as s; print(s.run(['./gradlew', 'x']).args)\"",
            "python3 spawn.py",
            "find . -maxdepth 1 -name gradlew -exec {} x \\;",
        ] {
            let direct = Ran::of(m.command("bash").args(["-c", script])).stdout;
            let expected = direct.replace("key\n", "");
            assert!(expected.contains("hidden\n"), "{script}: {expected}");
            let ran = mixed(&m, script);
            assert_eq!(ran.stdout, expected, "{script}: {ran:?}");
        }
        let ran = mixed(&m, "./other x");
        assert_eq!(ran.stdout, "./other x\n", "{ran:?}");
    });
}

#[test]
fn a_file_of_the_project_stays_as_it_is_for_readers() {
    as_each_user(|m| {
        let m = machine(m);
        let ran =
            mixed(&m, "./gradlew x >/dev/null; head -c 9 gradlew; cut -c1-9 gradlew | head -n 1");
        assert_eq!(ran.stdout, "#!/bin/sh#!/bin/sh\n", "{ran:?}");
    });
}

#[test]
fn a_missing_program_of_the_project_fails_as_usual() {
    as_each_user(|m| {
        let m = machine(m);
        m.write("app/gradlew.txt", "x\n");
        m.make_dir(m.project().join("gradlew-dir"));
        let ran = mixed(&m, "./gradlew2; echo $?; ./gradlew.txt; echo $?; ./gradlew-dir; echo $?");
        assert_eq!(ran.stdout, "127\n126\n126\n", "{ran:?}");
        program(m.project().join("gradlew3"), "echo plain $0\n");
        let ran = mixed(&m, "./gradlew3");
        assert_eq!(ran.stdout, "plain ./gradlew3\n", "{ran:?}");
    });
}

#[test]
fn rules_about_arguments_hold_for_a_program_of_the_project() {
    as_each_user(|m| {
        let m = machine(m);
        m.write("app/x.sh", "./gradlew wipe; echo $?; ./gradlew publish; echo $?\n");
        let ran = mixed(&m, "sh x.sh");
        assert_eq!(ran.stdout, "126\n126\n", "{ran:?}");
        assert!(ran.stderr.contains("never"), "{ran:?}");
    });
}

#[test]
fn a_name_in_the_project_gives_no_credentials() {
    as_each_user(|m| {
        let m = machine(m);
        // The script names the command, as if the user had typed it alone.
        let ran = mixed(&m, "bin/keys");
        assert!(ran.stdout.contains("key\n"), "{ran:?}");
        m.write("app/x.sh", "bin/keys; cp bin/keys bin/keys2; bin/keys2\n");
        let ran = mixed(&m, "sh x.sh");
        assert!(ran.stdout.contains("bin/keys2") && !ran.stdout.contains("key\n"), "{ran:?}");
    });
}

#[test]
fn a_link_in_the_project_is_the_program_that_it_names() {
    as_each_user(|m| {
        let m = machine(m);
        let script = "ln -s /usr/bin/git gradlew-git; ./gradlew-git push; echo $?; \
                      echo 'ln -s $(git --exec-path)/git target/git; target/git push; echo $?' > x.sh; sh x.sh; \
                      cp /bin/cat secret-cat; ln -s $PWD/secret-cat target/c; ./secret-cat ~/secret";
        let ran = mixed(&m, script);
        assert_eq!(ran.stdout, "126\n126\n", "{ran:?}");
    });
}

#[test]
fn a_forged_visit_to_the_door_of_the_project_gives_nothing() {
    as_each_user(|m| {
        let m = machine(m);
        for form in [
            "/_/d",
            "exec -a /usr/bin/cat /_/d ~/secret",
            "exec -a ./other /_/d x",
            "exec -a ../../../usr/bin/cat /_/d ~/secret",
            "exec -a cat /_/d ~/secret",
            "cp /_/d d; ./d",
        ] {
            let ran = mixed(&m, &format!("({form}); true"));
            assert!(!ran.stdout.contains("hidden"), "{form}: {ran:?}");
        }
    });
}
