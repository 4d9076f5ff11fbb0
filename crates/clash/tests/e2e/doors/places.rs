//! Where doors are: patterns of names, scripts behind interpreters, version managers.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use super::SYSTEM_PATH;
use crate::support::{Machine, Ran, as_each_user, clash, copy_program, program};

/// `pytest` and files below `tools` may read a secret; `gh` has credentials.
const POLICY: &str = r#"
load("@clash//sandboxes.star", "project")
settings(default = allow(), default_sandbox = project)
_own = {
    subpath("$PWD"): allow(FULL),
    "$TMPDIR": allow(FULL),
    "$HOME/.pyenv": allow("rx"),
}
secrets = sandbox(name = "secrets", default = deny(), fs = _own | {"$HOME/secret": allow("r")})
tools = sandbox(name = "tools", default = deny(), fs = _own)
keys = sandbox(
    name = "keys",
    default = deny(),
    fs = _own | {"$HOME/.aws/credentials": allow("r"), "$HOME/secret": allow("r")},
)
when({"Bash": {
    "python3": allow(sandbox = tools),
    "pytest": allow(sandbox = secrets),
    glob("tools/*"): allow(sandbox = secrets),
    "gh": allow(sandbox = keys),
    "forbidden": deny(reason = "never"),
    "head": allow(sandbox = secrets),
    glob("sha*sum"): allow(sandbox = secrets),
    regex("md5.+"): deny(reason = "too old"),
}})
"#;

const SHOW: &str = "#!/usr/bin/python3\nimport os, sys\n\
    path = os.environ['HOME'] + '/' + sys.argv[1]\n\
    print(open(path).read() if os.access(path, os.R_OK) else 'closed', end='')\n";

fn machine(m: Machine) -> Machine {
    let m = m.policy(POLICY);
    m.write("secret", "hidden\n");
    m.write(".aws/credentials", "key\n");
    for dir in ["app/.venv/bin", "app/tools"] {
        m.make_dir(m.home().join(dir));
    }
    for script in [".venv/bin/pytest", ".venv/bin/gh", ".venv/bin/forbidden", "tools/show", "plain"]
    {
        program(m.project().join(script), SHOW);
    }
    m
}

/// Runs a script whose commands belong in different sandboxes.
fn mixed(m: &Machine, script: &str) -> Ran {
    let script = format!("{script}\nhead -n 1 /dev/null; python3 -c ''");
    let mut clash = m.command(clash());
    Ran::of(clash.env("PATH", SYSTEM_PATH).args(["exec", "--", "bash", "-c", &script]))
}

#[test]
fn a_pattern_of_names_gives_doors() {
    as_each_user(|m| {
        let m = machine(m);
        m.write("app/Makefile", "all:\n\tsha256sum $(HOME)/secret\n\t-md5sum Makefile\n");
        let ran = mixed(&m, "make -s all");
        assert!(ran.stdout.contains("/secret\n"), "{ran:?}");
        assert!(ran.stderr.contains("too old") && !ran.stdout.contains("Makefile"), "{ran:?}");
        let shown = m.clash(["sandbox", "show", "project"]).succeeds().stdout;
        let has_both = |line: &str| line.contains("sha*sum") && line.contains("secrets");
        assert!(shown.lines().any(has_both), "{shown}");
    });
}

#[test]
fn a_script_behind_an_interpreter_is_judged_by_its_own_rule() {
    as_each_user(|m| {
        let m = machine(m);
        let ran = mixed(&m, "PATH=$PWD/.venv/bin:$PATH; pytest secret");
        assert_eq!(ran.stdout, "hidden\n", "{ran:?}");
        let ran = mixed(&m, "tools/show secret; cd tools && ./show secret");
        assert_eq!(ran.stdout, "hidden\nhidden\n", "{ran:?}");
        // A script without a rule of its own is judged as its interpreter.
        let ran = mixed(&m, "./plain secret");
        assert_eq!(ran.stdout, "closed", "{ran:?}");
        let ran = mixed(&m, "PATH=$PWD/.venv/bin:$PATH; forbidden secret");
        assert!(ran.stderr.contains("never") && ran.stdout.is_empty(), "{ran:?}");
    });
}

#[test]
fn the_name_of_a_file_of_the_project_gives_no_credentials() {
    as_each_user(|m| {
        let m = machine(m);
        for form in [
            "PATH=$PWD/.venv/bin:$PATH; gh .aws/credentials",
            ".venv/bin/gh .aws/credentials",
            "python3 .venv/bin/gh .aws/credentials",
            "mkdir -p usr/bin; cp .venv/bin/gh usr/bin/gh; usr/bin/gh .aws/credentials",
            "cd .venv/bin; ln -s ../../plain git; ./git .aws/credentials; rm git",
        ] {
            let ran = mixed(&m, form);
            assert_eq!(ran.stdout, "closed", "{form}: {ran:?}");
        }
    });
}

#[test]
fn programs_of_version_managers_have_doors() {
    as_each_user(|m| {
        let m = machine(m);
        m.make_dir(m.home().join(".pyenv/versions/3.99/bin"));
        let own = m.home().join(".pyenv/versions/3.99/bin/head");
        copy_program("/usr/bin/head", &own);
        let ran = mixed(&m, &format!("{} -n 1 ~/secret", own.display()));
        assert_eq!(ran.stdout, "hidden\n", "{ran:?}");
        // A new version has doors, too.
        m.make_dir(m.home().join(".pyenv/versions/3.100/bin"));
        let own = m.home().join(".pyenv/versions/3.100/bin/head");
        copy_program("/usr/bin/head", &own);
        m.write("app/Makefile", &format!("all:\n\t{} -n 1 $(HOME)/secret\n", own.display()));
        let ran = mixed(&m, "make -s all");
        assert_eq!(ran.stdout, "hidden\n", "{ran:?}");
    });
}

#[test]
fn an_install_during_the_launch_does_not_stop_it() {
    as_each_user(|m| {
        let m = machine(m);
        let busy = m.home().join("busy");
        m.make_dir(&busy);
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    fs::write(busy.join("new"), "").unwrap();
                    fs::remove_file(busy.join("new")).unwrap();
                }
            });
            for _ in 0..5 {
                let path = format!("{}:{SYSTEM_PATH}", busy.display());
                let mut clash = m.command(clash());
                let ran = Ran::of(clash.env("PATH", path).args(["exec", "--", "bash", "-c", "ls"]));
                assert!(ran.stdout.contains("plain"), "{ran:?}");
            }
            is_done.store(true, Ordering::Relaxed);
        });
    });
}
