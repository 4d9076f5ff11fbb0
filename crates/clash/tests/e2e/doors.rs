//! Commands of one script run in sandboxes of their own, at any depth.

mod boundary;
mod chaos;
mod imitations;
mod kept;
mod live_questions;
mod places;
mod project_programs;
mod ssh_key;
mod without_rooms;

use std::os::unix::fs::PermissionsExt;

use crate::support::{Machine, Ran, as_each_user, clash};

/// `head` may read a secret of the home, and `python3` runs in a sandbox of its own.
/// `printenv` has the credentials of aws. Everything else runs in `project`.
const POLICY: &str = r#"
load("@clash//sandboxes.star", "project")
settings(default = allow(), default_sandbox = project)
_own = {subpath("$PWD"): allow(FULL), "$TMPDIR": allow(FULL)}
secrets = sandbox(name = "secrets", default = deny(), fs = _own | {"$HOME/secret": allow("r")})
tools = sandbox(name = "tools", default = deny(), fs = _own)
keys = sandbox(name = "keys", default = deny(), fs = _own | {"$HOME/.aws/credentials": allow("r")})
when({"Bash": {
    "head": allow(sandbox = secrets),
    "python3": allow(sandbox = tools),
    "printenv": allow(sandbox = keys),
    "tail": ask(sandbox = secrets),
    "wc": ask(),
    "git": {
        "push": deny(reason = "the release script pushes"),
        "fetch": allow(sandbox = keys),
        glob("**"): allow(),
    },
}})
"#;

/// A machine with the policy and two secrets in the home.
fn with_secrets(m: Machine) -> Machine {
    let m = m.policy(POLICY);
    m.write("secret", "hidden\n");
    m.write(".aws/credentials", "key\n");
    m
}

/// The programs of the system alone: no sandbox of this policy shows other toolchains.
const SYSTEM_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Runs a bash script with `clash exec`, with the search path of the system.
fn exec_script(m: &Machine, script: &str) -> Ran {
    let mut clash = m.command(clash());
    Ran::of(clash.env("PATH", SYSTEM_PATH).args(["exec", "--", "bash", "-c", script]))
}

#[test]
fn each_command_has_the_rights_of_its_own_rule() {
    as_each_user(|m| {
        let m = with_secrets(m);
        let ran =
            exec_script(&m, "head -n 1 ~/secret; cat ~/secret; head -n 1 ~/secret | tr a-z A-Z");
        assert_eq!(ran.stdout, "hidden\nHIDDEN\n", "{ran:?}");
        // The shell opens the file of a redirection, and the shell is in `project`.
        let ran = exec_script(&m, "head -n 1 < ~/secret; python3 -c 'print(1)'");
        assert_ne!(ran.stdout, "hidden\n1\n", "{ran:?}");
        // A sandbox of a rule has no doors unless it names them.
        let nested = "import subprocess as s; s.run(['head', '-n', '1', '/etc/hostname']); \
                      s.run('cat $HOME/secret || head -n 1 $HOME/secret', shell=True)";
        let ran = exec_script(&m, &format!("head -n 1 ~/secret; python3 -c \"{nested}\""));
        assert_eq!(ran.stdout.matches("hidden").count(), 1, "{ran:?}");
    });
}

#[test]
fn a_deny_holds_at_any_depth_and_shows_the_chain() {
    as_each_user(|m| {
        let m = with_secrets(m);
        m.write("app/Makefile", "deploy:\n\tsh -c 'git push origin main; true'\n");
        let ran = exec_script(&m, "make -s deploy; python3 -c 'print(2)'");
        assert!(ran.stderr.contains("the release script pushes"), "{ran:?}");
        assert_eq!(ran.stdout, "2\n", "{ran:?}");
        // In a sandbox that opens no door, too.
        let ran = exec_script(&m, "python3 -c \"import os; print(os.system('git push') >> 8)\"");
        assert_eq!(ran.stdout, "126\n", "{ran:?}");
        for form in ["/usr/bin/git push", "$(command -v git) push", "$(git --exec-path)/git-push"] {
            let ran = exec_script(&m, &format!("echo '{form}' > x.sh; sh ./x.sh; echo $?"));
            assert_eq!(ran.stdout, "126\n", "{form}: {ran:?}");
        }
    });
}

#[test]
fn a_copied_program_has_no_door_and_no_rights() {
    as_each_user(|m| {
        let m = with_secrets(m);
        for form in [
            "cp /usr/bin/head ./h; ./h -n 1 ~/secret",
            "ln -s /usr/bin/head ./l; ./l -n 1 ~/secret >/dev/null; cat ~/secret",
            "/lib64/ld-linux-x86-64.so.2 /usr/bin/head -n 1 ~/secret",
            "cat /usr/bin/head > h; chmod +x h; ./h -n 1 ~/secret",
        ] {
            let ran = exec_script(&m, &format!("{form}; python3 -c ''"));
            assert!(!ran.stdout.contains("hidden"), "{form}: {ran:?}");
        }
    });
}

#[test]
fn a_question_that_only_shows_at_run_time_is_refused() {
    as_each_user(|m| {
        let m = with_secrets(m);
        m.write("app/Makefile", "all:\n\ttail -n 1 $(HOME)/secret\n");
        let ran = exec_script(&m, "make -s all; head -n 1 ~/secret");
        assert_eq!(ran.stdout, "hidden\n", "{ran:?}");
        assert!(ran.stderr.contains("needs your approval"), "{ran:?}");
        // Also if the answer would give the command no other sandbox.
        m.write("app/Makefile", "all:\n\twc -c Makefile\n");
        let ran = exec_script(&m, "make -s all; head -n 1 ~/secret");
        assert_eq!(ran.stdout, "hidden\n", "{ran:?}");
    });
}

#[test]
fn a_command_that_runs_another_gives_it_no_rights() {
    as_each_user(|m| {
        let m = with_secrets(m);
        Ran::of(m.command("git").args(["init", "-q"])).succeeds();
        let makefile = "all:\n\tgit -c core.sshCommand='cat $(HOME)/.aws/credentials; false' \
                        fetch ssh://host.invalid/x; true\n";
        m.write("app/Makefile", makefile);
        let ran = exec_script(&m, "make -s all 2>&1; head -n 1 ~/secret");
        assert!(!ran.stdout.contains("key\n"), "{ran:?}");
        assert!(ran.stdout.ends_with("hidden\n"), "{ran:?}");
    });
}

#[test]
fn a_program_gets_the_name_that_the_policy_judged() {
    as_each_user(|m| {
        let m = with_secrets(m);
        let forms = "exec -a git-push $$(command -v git) ssh://host.invalid/x main";
        m.write("app/Makefile", &format!("SHELL = /bin/bash\nall:\n\t{forms}\n"));
        let ran = exec_script(&m, "make -s all; head -n 1 ~/secret");
        assert!(ran.stderr.contains("is not a git command"), "{ran:?}");
    });
}

#[test]
fn a_program_of_the_project_is_no_door() {
    as_each_user(|m| {
        let m = with_secrets(m);
        let own = m.project().join("bin/printenv");
        m.make_dir(m.project().join("bin"));
        std::fs::copy(clash().with_file_name("clash-door"), &own).unwrap();
        let mut clash = m.command(clash());
        let path = format!("{}:{SYSTEM_PATH}", m.project().join("bin").display());
        let text = "bin/printenv HOME; head -n 1 ~/secret";
        let ran = Ran::of(clash.env("PATH", path).args(["exec", "--", "bash", "-c", text]));
        assert_eq!(ran.stdout, "hidden\n", "{ran:?}");
        assert!(ran.stderr.contains("there is no door of this name"), "{ran:?}");
    });
}

#[test]
fn doors_are_listed_and_widening_ones_warned_about() {
    as_each_user(|m| {
        let m = m.policy(
            &POLICY.replace("name = \"tools\",", "name = \"tools\", doors = [\"printenv\"],"),
        );
        m.clash(["sandbox", "show", "project"]).succeeds().says("  head      secrets\n");
        let tools = m.clash(["sandbox", "show", "tools"]).succeeds();
        tools.says("  git       deny\n").says("  printenv  keys\n");
        let warned = m.clash(["policy", "check"]).succeeds();
        warned
            .says("the door `printenv` of sandbox `tools` leads to `keys`, which adds credentials");
    });
}

#[test]
fn a_door_with_credentials_takes_no_variable_of_its_caller() {
    as_each_user(|m| {
        let m = with_secrets(m);
        let makefile = "export OWN = evil\nexport LANG = C.UTF-8\nexport LD_PRELOAD = ./x.so\nall:\n\
                        \tprintenv OWN; printenv LANG; printenv LD_PRELOAD; true\n";
        m.write("app/Makefile", makefile);
        let named = "printenv OWN; printenv LANG; printenv LD_PRELOAD";
        let ran = exec_script(&m, &format!("make -s all; false && ({named}); head -n 1 ~/secret"));
        assert_eq!(ran.stdout, "C.UTF-8\nhidden\n", "{ran:?}");
    });
}

#[test]
fn a_program_without_a_table_gets_no_credentials_from_a_caller() {
    as_each_user(|m| {
        let m = with_secrets(m);
        let key = m.home().join(".aws/credentials");
        // The sandbox of printenv has the credentials; the script names another command.
        let makefile = format!("all:\n\tprintenv CLASH_SANDBOX; cat {}\n", key.display());
        m.write("app/Makefile", &makefile);
        let ran = exec_script(&m, "make -s all; printenv LANG; head -n 1 ~/secret");
        assert_eq!(ran.stdout, "project\nC.UTF-8\nhidden\n", "{ran:?}");
        let ran = exec_script(&m, "printenv CLASH_SANDBOX; head -n 1 ~/secret");
        assert_eq!(ran.stdout, "keys\nhidden\n", "{ran:?}");
    });
}

/// Scripts that must print the same inside and outside.
const SAME_AS_OUTSIDE: [&str; 20] = [
    "cd /; python3 -c 'import os; print(os.getcwd())'",
    "cd /usr/bin; python3 -c 'import os; print(os.getcwd())'",
    "python3 -c 'import sys; sys.exit(7)'; echo $?",
    "python3 -c 'import os; os.kill(os.getpid(), 9)'; echo $?",
    "python3 -c 'import os; os.kill(os.getpid(), 15)' & wait $!; echo $?",
    "(exec -a ./python9 python3 -c 'import sys; print(sys.orig_argv[0])')",
    "mkdir -p d/e; cd d/e; python3 -c 'import os; print(os.path.relpath(os.getcwd(), os.environ[\"HOME\"]))'",
    "umask 027; python3 -c 'import os; print(os.umask(0))'",
    "ulimit -n 123; python3 -c 'import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE))'",
    "exec 7>out; python3 -c 'import os; os.write(7, b\"seven\")'; cat out",
    "seq 100000 | python3 -c 'import sys; print(len(sys.stdin.readlines()))'",
    "yes | python3 -c 'import sys; print(sys.stdin.readline().strip())'",
    "python3 -c 'print(\"a\\n\" * 100000)' | head -c 3; echo ${PIPESTATUS[0]} | grep -c .",
    "echo in > f; python3 -c 'print(input())' < f; python3 -c 'print(1)' >> f; cat f",
    "cat <(python3 -c 'print(1)') <(python3 -c 'print(2)')",
    "A='a b' python3 -c 'import os, sys; print(os.environ[\"A\"], sys.argv[1:])' '' '*' $'\\n'",
    "seq 20 | xargs -P 8 -I{} python3 -c 'print({} * {})' | sort -n",
    "timeout 0.3 python3 -c 'import time; time.sleep(20)'; echo $?",
    "nohup python3 -c 'import signal; print(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN)' 2>/dev/null",
    "python3 -c 'import os; print(os.getpgid(0) == os.getpgid(os.getppid()))' | cat",
];

#[test]
fn a_command_behind_a_door_behaves_as_outside() {
    as_each_user(|m| {
        let m = with_secrets(m);
        for script_text in SAME_AS_OUTSIDE {
            let text = format!("{script_text}\ncat /dev/null");
            let outside = Ran::of(m.command("bash").env("PATH", SYSTEM_PATH).args(["-c", &text]));
            let inside = exec_script(&m, &text);
            assert_eq!(
                (&inside.stdout, inside.code),
                (&outside.stdout, outside.code),
                "{script_text}\n{inside:?}\n{outside:?}"
            );
        }
    });
}

#[test]
fn the_descriptors_of_a_door_are_closed_when_its_command_runs() {
    as_each_user(|m| {
        let m = with_secrets(m);
        // `yes` ends only when no process reads its pipe any more.
        let ran = exec_script(
            &m,
            "yes | python3 -c 'import sys; sys.stdin.readline()'; echo ${PIPESTATUS[0]}",
        );
        assert_eq!(ran.stdout, "141\n", "{ran:?}");
    });
}

#[test]
fn a_killed_door_takes_its_command_with_it() {
    as_each_user(|m| {
        let m = with_secrets(m);
        let text = "python3 -c 'import time; open(\"up\", \"w\"); time.sleep(1.5); open(\"alive\", \"w\")' & \
                    for i in $(seq 200); do [ -e up ] && break; sleep 0.05; done; kill -9 $!; wait $!; echo $?; sleep 2; ls alive";
        let ran = exec_script(&m, text);
        assert_eq!(ran.stdout, "137\n", "{ran:?}");
    });
}

#[test]
fn a_process_that_lives_on_does_not_hold_the_script() {
    as_each_user(|m| {
        let lives =
            "lives = sandbox(name = \"lives\", default = deny(), lifetime = \"detached\")\nwhen(";
        let policy = POLICY.replace("when(", lives);
        let policy =
            policy.replace("\"wc\": ask(),", "\"wc\": ask(), \"perl\": allow(sandbox = lives),");
        let m = m.policy(&policy);
        let started = std::time::Instant::now();
        let ran = exec_script(
            &m,
            "perl -e 'fork or sleep 20' < /dev/null > /dev/null 2>&1; python3 -c 'print(3)'",
        );
        assert_eq!(ran.stdout, "3\n", "{ran:?}");
        assert!(started.elapsed().as_secs() < 15, "{:?}", started.elapsed());
    });
}

#[test]
fn the_directory_of_the_doors_is_private() {
    as_each_user(|m| {
        let m = with_secrets(m);
        exec_script(&m, "head -n 1 ~/secret; python3 -c ''").succeeds();
        let doors = m.home().join(".local/state/clash/doors");
        let mode = std::fs::metadata(doors).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    });
}
