//! Doors on the search path, where no namespaces can be made.

use super::{SYSTEM_PATH, exec_script, with_secrets};
use crate::support::{Machine, Ran, as_each_user};

/// The machine of the other tests, whose host can make no rooms.
fn without_rooms(m: Machine) -> Machine {
    with_secrets(m).without_rooms()
}

#[test]
fn a_command_of_the_search_path_has_the_rights_of_its_rule() {
    as_each_user(|m| {
        let m = without_rooms(m);
        let ran =
            exec_script(&m, "head -n 1 ~/secret; cat ~/secret; head -n 1 ~/secret | tr a-z A-Z");
        assert_eq!(ran.stdout, "hidden\nHIDDEN\n", "{ran:?}");
        let ran = exec_script(&m, "python3 -c 'print(1)'; head -n 1 ~/secret > out && cat out");
        assert_eq!(ran.stdout, "1\nhidden\n", "{ran:?}");
        // An absolute path has the rights of the shell, which are fewer here.
        m.write("app/x.sh", "/usr/bin/head -n 1 ~/secret\n");
        let ran = exec_script(&m, "sh ./x.sh; head -n 1 ~/secret");
        assert_eq!(ran.stdout, "hidden\n", "{ran:?}");
    });
}

#[test]
fn a_deny_holds_for_programs_of_the_search_path() {
    as_each_user(|m| {
        let m = without_rooms(m);
        Ran::of(m.command("git").args(["init", "-q"])).succeeds();
        m.write("app/Makefile", "deploy:\n\tsh -c 'git push origin main'\n");
        let ran = exec_script(&m, "make -s deploy; python3 -c 'print(2)'");
        assert!(ran.stderr.contains("the release script pushes"), "{ran:?}");
        assert_eq!(ran.stdout, "2\n", "{ran:?}");
        for form in [
            "git push",
            "env git push",
            "git -c alias.p='!git push' p",
            "git -c alias.p=push p",
            "$(git --exec-path)/git-push",
            "python3 -c \"import os; raise SystemExit(os.system('git push') >> 8)\"",
            "env -C / git push",
        ] {
            m.write("app/x.sh", &format!("{form}\necho $?\n"));
            let ran = exec_script(&m, "sh ./x.sh");
            assert!(ran.stderr.contains("the release script pushes"), "{form}: {ran:?}");
            assert!(!ran.stdout.contains("\n0\n") && ran.stdout != "0\n", "{form}: {ran:?}");
        }
        // The text of the script names the program, wherever it is.
        let ran = exec_script(&m, "/usr/bin/git push");
        assert!(ran.stderr.contains("the release script pushes"), "{ran:?}");
    });
}

#[test]
fn a_command_behind_a_door_on_the_path_behaves_as_outside() {
    as_each_user(|m| {
        let m = without_rooms(m);
        Ran::of(m.command("git").args(["init", "-q"])).succeeds();
        for text in [
            "python3 -c 'import sys; sys.exit(7)'; echo $?",
            "python3 -c 'import sys; print(sys.argv, sys.executable)' a 'b c' ''",
            "echo in | python3 -c 'print(input())' | cat",
            "python3 -c 'import os; os.kill(os.getpid(), 9)'; echo $?",
            "printf '1\\n2\\n3\\n' | xargs -P 3 -n 1 python3 -c 'import sys; print(len(sys.argv))'",
            "umask 027; ulimit -n 99; python3 -c 'import os, resource as r; \
             print(os.umask(0), r.getrlimit(r.RLIMIT_NOFILE))'",
            "exec 5> five; python3 -c 'import os; os.write(5, b\"x\")'; cat five",
            "exec python3 -c 'print(3)'",
            "timeout 5 python3 -c 'print(4)'; X=1 python3 -c 'import os; print(os.environ[\"X\"])'",
            "git -c user.name=n -c user.email=e commit -q --allow-empty -m one && git log -1 \
             --format=%s | cat",
        ] {
            let outside =
                m.command("bash").env("PATH", SYSTEM_PATH).args(["-c", text]).output().unwrap();
            let outside = String::from_utf8_lossy(&outside.stdout).into_owned();
            let ran = exec_script(&m, text);
            assert_eq!(ran.stdout, outside, "{text}: {ran:?}");
        }
    });
}

#[test]
fn doors_of_the_search_path_give_no_rights_to_imitations() {
    as_each_user(|m| {
        let m = without_rooms(m);
        for form in [
            "cp $(command -v head) ./head; ./head -n 1 ~/secret",
            "ln $(command -v head) ./head; ./head -n 1 ~/secret",
            "cp /usr/bin/head ./h; ./h -n 1 ~/secret",
            "mkdir b; cp $(command -v tail) b/head; PATH=$PWD/b:$PATH; head -n 1 ~/secret",
            "echo x > $(dirname $(command -v head))/cat; rm $(command -v head); false",
        ] {
            let ran = exec_script(&m, &format!("{form}; python3 -c ''"));
            assert!(!ran.stdout.contains("hidden"), "{form}: {ran:?}");
            Ran::of(m.command("rm").args(["-rf", "head", "h", "b"]));
        }
        let ran = exec_script(&m, "head -n 1 ~/secret; python3 -c ''");
        assert_eq!(ran.stdout, "hidden\n", "{ran:?}");
    });
}

#[test]
fn variables_of_the_doors_do_not_reach_other_rooms() {
    as_each_user(|m| {
        let m = without_rooms(m);
        // The sandbox `tools` has doors for denied programs only.
        let text = "python3 -c \"import shutil; print(shutil.which('head'), shutil.which('git'))\"";
        let ran = exec_script(&m, &format!("head -n 1 ~/secret; {text}"));
        let (_, found) = ran.stdout.split_once('\n').unwrap();
        let (head, git) = found.trim().split_once(' ').unwrap();
        assert!(!head.contains("doors") && git.contains("/doors/"), "{ran:?}");
    });
}
