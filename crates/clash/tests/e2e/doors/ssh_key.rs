//! The key of ssh only for ssh: git has neither the key nor a network, and starts ssh, a door
//! with both.

use super::SYSTEM_PATH;
use crate::steering::{Server, can_serve, free_port, serve};
use crate::support::{Machine, Ran, as_each_user, clash, program};

/// ssh takes the home of the user database and not `HOME`. So the user of this test has an
/// `ssh` of their own, a shell script that adds `-F`.
const POLICY: &str = r#"
load("@clash//sandboxes.star", "project")
settings(default = allow(), default_sandbox = project)
git_only = sandbox(
    name = "git_only",
    default = deny(),
    fs = {
        subpath("$PWD"): allow(FULL),
        literal("$HOME/.gitconfig"): allow("r"),
    },
    net = deny(),
    unprotect = [".git"],
    doors = ["ssh"],
)
ssh_only = sandbox(
    name = "ssh_only",
    default = deny(),
    fs = {
        "$PWD": allow("r"),
        "$HOME/.ssh": allow("r"),
        "$HOME/bin": allow("rx"),
        "/usr/bin": deny("x"),
        "/usr/sbin": deny("x"),
        "/usr/local": deny("x"),
        (literal("/usr/bin/dash"), literal("/usr/bin/ssh")): allow("rx"),
    },
    net = allow(),
)
when({"Bash": {
    "git": {"push": deny(reason = "never"), glob("**"): allow(sandbox = git_only)},
    "ssh": allow(sandbox = ssh_only),
}})
"#;

fn machine(m: Machine) -> (Machine, Server) {
    let m = m.policy(POLICY);
    Ran::of(m.command("git").args(["init", "-q", "-b", "main"])).succeeds();
    let port = free_port();
    let server = serve(&m, port);
    let url = format!("ssh://root@127.0.0.1:{port}/bare.git");
    Ran::of(m.command("git").args(["remote", "add", "origin", &url])).succeeds();
    m.write(".gitconfig", "[user]\n\tname = n\n");
    m.make_dir(m.home().join("bin"));
    let config = m.home().join(".ssh/config");
    let own = format!("#!/bin/sh\nexec /usr/bin/ssh -F {} \"$@\"\n", config.display());
    program(m.home().join("bin/ssh"), &own);
    (m, server)
}

fn script(m: &Machine, text: &str) -> Ran {
    let mut clash = m.command(clash());
    let path = format!("{}:{SYSTEM_PATH}", m.home().join("bin").display());
    Ran::of(clash.env("PATH", path).args([
        "exec",
        "--",
        "bash",
        "-c",
        &format!("{text}\nls > /dev/null"),
    ]))
}

#[test]
fn git_fetches_through_ssh_and_has_neither_key_nor_network() {
    if !can_serve() {
        return;
    }
    as_each_user(|m| {
        let (m, _server) = machine(m);
        let ran = script(&m, "git fetch -q origin main && git log -1 --format=%s FETCH_HEAD");
        assert_eq!(ran.stdout, "x\n", "{ran:?}");
        let ran = m.inside("git_only", "cat ~/.ssh/id_ed25519; true");
        assert!(!ran.stdout.contains("PRIVATE"), "{ran:?}");
    });
}

#[test]
fn nothing_turns_the_ssh_of_git_into_reading_the_key() {
    if !can_serve() {
        return;
    }
    as_each_user(|m| {
        let (m, _server) = machine(m);
        let home = m.home().display().to_string();
        let key = format!("{home}/.ssh/id_ed25519");
        let hook = "#!/bin/sh\ncat ~/.ssh/id_ed25519 2>&1; ssh -V\n";
        m.write("app/hooks/post-checkout", hook);
        m.write("app/evil", &format!("#!/bin/sh\ncat {key}\n"));
        for path in ["hooks/post-checkout", "evil"] {
            Ran::of(m.command("chmod").args(["+x", path])).succeeds();
        }
        for form in [
            format!("GIT_SSH_COMMAND='cat {key}; false' git fetch origin"),
            "GIT_SSH_COMMAND=$PWD/evil git fetch origin".to_owned(),
            format!("git -c core.sshCommand='cat {key}; false' fetch origin"),
            format!("git -c core.sshCommand='ssh -o ProxyCommand=\"cat {key} >&2\"' fetch origin"),
            format!(
                "git -c core.sshCommand='ssh -o LocalCommand=\"cat {key}\" -o PermitLocalCommand=yes' fetch origin"
            ),
            format!("git -c core.sshCommand='ssh -F {key}' fetch origin"),
            format!("git -c core.sshCommand='ssh -E {key}.x' fetch origin"),
            "git -c core.hooksPath=hooks checkout -q -b other".to_owned(),
            format!("git -c alias.x='!cat {key}' x"),
            format!("git -c core.pager='cat {key};cat' -p log"),
            format!("git -c core.editor='cat {key};true' commit --allow-empty"),
            format!("git -c credential.helper='!cat {key} >&2;true' fetch https://127.0.0.1:1/x"),
            format!("git diff --no-index /dev/null {key}"),
            format!("ssh -o ProxyCommand='cat {key} >&2' host"),
            format!("ssh -i {key} -o KnownHostsCommand='cat {key}' host"),
            format!("printf 'Host *\\n ProxyCommand cat {key} >&2\\n' > c; ssh -F c host"),
        ] {
            m.write("app/x.sh", &format!("{form}\n"));
            for how in ["sh ./x.sh", form.as_str()] {
                let ran = script(&m, how);
                let said = format!("{}{}", ran.stdout, ran.stderr);
                assert!(!said.contains("PRIVATE") && !said.contains("b3Blbn"), "{how}: {ran:?}");
            }
        }
        let ran = script(&m, "git fetch -q origin main && echo fetched");
        assert_eq!(ran.stdout, "fetched\n", "{ran:?}");
    });
}
