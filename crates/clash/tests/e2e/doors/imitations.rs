//! Programs that look like one with a door, and doors that are started in odd ways.

use super::{exec_script, with_secrets};
use crate::support::{Machine, as_each_user, copy_program};

/// A machine on which `head` may read a secret, with a copy of the real program.
fn machine(m: Machine) -> Machine {
    let m = with_secrets(m);
    copy_program("/usr/bin/head", m.project().join("real"));
    m
}

/// Executes a program from memory. `python3` has a rule, so this is a copy of it.
const FROM_MEMORY: &str = "\
import os, sys
for flags in (0, 1):
    try:
        f = os.memfd_create('head', flags)
        os.write(f, open(sys.argv[1], 'rb').read())
        if os.fork() == 0:
            os.execve(f, ['head', '-n', '1', os.environ['HOME'] + '/secret'], os.environ)
        os.wait()
    except OSError: pass
";

#[test]
fn an_imitation_of_a_program_has_the_rights_of_its_room() {
    as_each_user(|m| {
        let m = machine(m);
        copy_program("/usr/bin/python3.11", m.project().join("py"));
        m.write("app/memory.py", FROM_MEMORY);
        for form in [
            "./real -n 1 ~/secret",
            "cp real head; ./head -n 1 ~/secret; PATH=.:$PATH head -n 1 ~/secret",
            "mkdir -p usr/bin; cp real usr/bin/head; usr/bin/head -n 1 ~/secret",
            "ln real hard; ./hard -n 1 ~/secret",
            "ln /usr/bin/head hard2; ./hard2 -n 1 ~/secret",
            "cp /usr/bin/head door; ./door -n 1 ~/secret",
            "mv real moved; exec -a /usr/bin/head ./moved -n 1 ~/secret",
            "/lib64/ld-linux-x86-64.so.2 ./real -n 1 ~/secret",
            "./py memory.py ./real; ./py memory.py /usr/bin/head",
            "exec -a head cat ~/secret",
            "hash -p /bin/cat head; head ~/secret",
            "head() { cat ~/secret; }; head",
            "printf '#!/bin/sh\\ncat ~/secret\\n' > head; chmod +x head; PATH=.:$PATH head -n 1 ~/secret",
        ] {
            m.write("app/form.sh", form);
            copy_program("/usr/bin/head", m.project().join("real"));
            let ran = exec_script(&m, "bash ./form.sh; python3 -c 'print(1)'");
            assert_eq!(ran.stdout, "1\n", "{form}: {ran:?}");
        }
    });
}

#[test]
fn a_door_needs_neither_environment_nor_search_path() {
    as_each_user(|m| {
        let m = machine(m);
        let secret = m.home().join("secret").display().to_string();
        for form in [
            "env -i /usr/bin/head -n 1 SECRET",
            "env -i PATH=/nowhere /bin/head -n 1 SECRET",
            "PATH=/nowhere; /usr/bin/head -n 1 SECRET",
            "exec -a other /usr/bin/head -n 1 SECRET",
            "ln -s /usr/bin/head link; ./link -n 1 SECRET",
        ] {
            m.write("app/form.sh", &form.replace("SECRET", &secret));
            let ran = exec_script(&m, "rm -f link; bash ./form.sh; python3 -c 'print(1)'");
            assert_eq!(ran.stdout, "hidden\n1\n", "{form}: {ran:?}");
        }
        // So does a deny.
        for form in ["env -i /usr/bin/git push", "PATH=/nowhere /usr/bin/git push"] {
            m.write("app/form.sh", &format!("{form}; echo $?"));
            let ran = exec_script(&m, "bash ./form.sh; python3 -c 'print(1)'");
            assert_eq!(ran.stdout, "126\n1\n", "{form}: {ran:?}");
        }
    });
}
