//! Commands that an agent can make run other code. None of them gets a key, a token or the
//! network without a question.

use std::path::Path;
use std::process::{Child, Stdio};

use crate::support::{
    Machine, Ran, Who, as_each_user, clash, eventually, is_root, program, skipped,
};

const KEY: &str = "the private key";
const TOKEN: &str = "oauth_token: the token";

const POLICY: &str = r#"load("@clash//git.star", "git", "git_full", "git_safe", "git_checkout_safe", "git_rebase_safe")
load("@clash//github.star", "github")
load("@clash//kubernetes.star", "kubernetes")
load("@clash//rust.star", "rust")
load("@clash//node.star", "node")
load("@clash//java.star", "java")
load("@clash//python.star", "python", "python_full")
load("@clash//sandboxes.star", "project")
settings(default = ask(), default_sandbox = project)
policy("git", git)
policy("github", github)
policy("kubernetes", kubernetes)
policy("rust", rust)
policy("node", node)
policy("java", java)
policy("python", python)
"#;

/// Runs a script outside every sandbox, as the user does. Checks that it succeeds.
fn without_clash(m: &Machine, script: &str) -> Ran {
    let mut command = m.command("sh");
    let identity = [("GIT_AUTHOR_NAME", "a"), ("GIT_AUTHOR_EMAIL", "a@b")];
    let committer = [("GIT_COMMITTER_NAME", "a"), ("GIT_COMMITTER_EMAIL", "a@b")];
    command.args(["-c", script]).envs(identity).envs(committer);
    Ran::of(&mut command).succeeds()
}

/// Runs the command line that the hook gave, and checks that it succeeds.
fn run_rewritten(m: &Machine, line: &str) {
    let mut command = m.command("sh");
    command.args(["-c", line]).env("CLAUDE_CODE_SESSION_ID", "test-session");
    Ran::of(&mut command).succeeds();
}

/// A machine with the policy, a key, a token and a project with a git repository.
fn with_secrets(m: Machine) -> Machine {
    let m = m.policy(POLICY);
    m.write(".ssh/id_ed25519", KEY);
    m.write(".config/gh/hosts.yml", TOKEN);
    m.write(".gitconfig", "[init]\n\tdefaultBranch = main\n");
    without_clash(&m, "git init -q . && git remote add origin git@127.0.0.1:nowhere && mkdir src");
    m
}

/// The script that an attack makes git run.
const EVIL: &str =
    "#!/bin/sh\ncat ~/.ssh/id_ed25519 ~/.config/gh/hosts.yml > \"$PWD_OF_EVIL/leak\"\n";

/// Makes a repository, as an agent can, whose `core.sshCommand` names [`EVIL`].
fn plant(m: &Machine, at: &str) {
    let evil = m.project().join("evil.sh");
    program(&evil, &EVIL.replace("$PWD_OF_EVIL", &m.project().display().to_string()));
    without_clash(
        m,
        &format!("git init -q {at} && git -C {at} config core.sshCommand {}", evil.display()),
    );
    let origin = format!("git -C {at} remote add origin git@127.0.0.1:nowhere || true");
    without_clash(m, &origin);
}

/// Checks that hook and launcher ask or refuse, and that the command reads no secret.
#[track_caller]
fn is_not_run(m: &Machine, script: &str) {
    let answer = m.bash(script);
    assert!(matches!(answer.effect.as_str(), "ask" | "deny"), "{script}: {answer:?}");
    let ran = m.clash(["exec", "--", "sh", "-c", script]);
    assert_ne!(ran.code, Some(0), "{script}: {ran:?}");
    assert!(!m.project().join("leak").exists(), "{script}");
}

#[test]
fn a_planted_repository_gets_no_credentials() {
    as_each_user(|m| {
        let m = with_secrets(m);
        plant(&m, "x");
        without_clash(
            &m,
            "cp -r x/.git bare && mkdir file && echo 'gitdir: ../x/.git' > file/.git",
        );
        without_clash(
            &m,
            "mkdir h && printf '[core]\\n\\tsshCommand = ./evil.sh\\n' > h/.gitconfig",
        );
        without_clash(&m, "mkdir h/git && cp h/.gitconfig h/git/config");
        for script in [
            "git -C x fetch",
            "git -C ./src/../x fetch origin",
            "git -C bare fetch",
            "git -C file fetch",
            "git --git-dir=x/.git fetch",
            "git --git-dir x/.git --work-tree . fetch",
            "GIT_DIR=x/.git git fetch",
            "export GIT_DIR=x/.git; git fetch",
            "GIT_CONFIG_GLOBAL=h/.gitconfig git fetch",
            "HOME=h git fetch",
            "HOME=h; git fetch",
            "XDG_CONFIG_HOME=h git fetch",
            "env XDG_CONFIG_HOME=h timeout 5 git fetch",
            "cd x && git fetch",
            "(cd x && git pull)",
            "pushd x && git fetch",
            "cd x; git fetch",
            "f() { git fetch; }; cd x && f",
            "git clone --template=x/.git https://127.0.0.1/y",
            "git fetch --upload-pack=./evil.sh",
            "git fetch \"$(cat option)\"",
            "cd x && gh pr list",
        ] {
            is_not_run(&m, script);
        }
        m.bash("git -C x status").is("allow", "");
        m.bash("cd x && git log").is("allow", "");
    });
}

#[test]
fn a_repository_of_an_earlier_session_gets_no_credentials() {
    as_each_user(|m| {
        let m = with_secrets(m);
        plant(&m, ".");
        for script in ["git fetch", "git pull", "cd src && git fetch", "gh pr list"] {
            is_not_run(&m, script);
        }
        m.bash("git fetch").is("ask", "core.sshcommand");
        without_clash(&m, "git config --unset core.sshCommand");
        m.bash("git fetch").is("allow", "");
        let hook = m.project().join(".git/hooks/reference-transaction");
        without_clash(&m, "mkdir -p .git/hooks");
        program(hook, "#!/bin/sh\necho x\n");
        m.bash("git fetch").is("ask", "reference-transaction");
    });
}

#[test]
fn a_nested_repository_in_the_index_is_asked_about() {
    let m = with_secrets(Machine::new(Who::Me));
    without_clash(&m, "echo 1 > a && git add a && git commit -qm x");
    m.bash("git fetch").is("allow", "");
    plant(&m, "x");
    without_clash(&m, "git -C x commit -q --allow-empty -m x && git add x 2>/dev/null");
    m.bash("git fetch").is("ask", "x is a repository of its own");
    m.bash("git pull").is("ask", "x is a repository of its own");
    without_clash(&m, "git update-index --index-version 4");
    m.bash("git fetch").is("ask", "x is a repository of its own");
    without_clash(&m, "git update-index --force-remove x");
    m.bash("git fetch").is("allow", "");
}

#[test]
fn variables_that_steer_a_program_are_asked_about() {
    let m = with_secrets(Machine::new(Who::Me));
    for script in [
        "GH_PAGER=./evil.sh gh pr list",
        "GH_BROWSER=./evil.sh gh pr view --web",
        "PAGER=./evil.sh gh pr list",
        "GH_CONFIG_DIR=h gh pr list",
        "HELM_PLUGINS=h helm repo update",
        "KUBECONFIG=h helm repo update",
        "RUSTC=./evil.sh cargo fetch",
        "RUSTC_WRAPPER=./evil.sh cargo fetch",
        "MAVEN_OPTS=-javaagent:evil.jar mvn dependency:resolve",
        "HOME=h npm ci",
        "npm_config_script_shell=./evil.sh npm ci",
        "helm repo update --repository-config h",
        "cargo --config build.rustc='./evil.sh' fetch",
    ] {
        is_not_run(&m, script);
    }
}

#[test]
fn everyday_commands_need_no_question() {
    let m = with_secrets(Machine::new(Who::Me));
    let here = m.project();
    let here = here.display();
    for script in [
        "git fetch",
        "git fetch origin main",
        "git pull --rebase",
        "git clone https://127.0.0.1/o/r.git",
        &format!("cd {here} && git fetch"),
        &format!("git -C {here} fetch"),
        "cd src && git fetch",
        "git remote -v",
        "LC_ALL=C GIT_TERMINAL_PROMPT=0 git fetch",
        "gh pr list",
        "GH_PAGER=cat gh pr view 1",
        "NODE_ENV=test npm ci",
        "CI=1 npm install",
        "cd src && npm install",
        "RUST_BACKTRACE=1 cargo test",
        "MAVEN_OPTS=-Xmx1g mvn test",
        "git checkout -b x && git add -A && git commit -m y",
        "git stash && git stash pop",
        "git status && git checkout main",
        "git rebase main",
    ] {
        m.bash(script).is("allow", "");
    }
}

#[test]
fn a_rule_of_the_user_can_take_a_steering_option_on() {
    let m = with_secrets(Machine::new(Who::Me));
    plant(&m, "x");
    m.bash("git -C x fetch").is("ask", "repository of its own");
    let own = "load(\"@clash//git.star\", \"git_full\")\n\
               when({\"Bash\": {\"git\": {\"-C\": allow(sandbox = git_full)}}})\n";
    let m = m.policy(own);
    m.bash("git -C x fetch").is("allow", "");
}

#[test]
fn no_sandbox_of_git_shows_a_private_key() {
    as_each_user(|m| {
        let m = with_secrets(m);
        m.write(".ssh/id_ed25519.pub", "the public key");
        for sandbox in ["git_full", "git_safe", "git_checkout_safe"] {
            let ran = m.inside(sandbox, "cat ~/.ssh/id_ed25519 ~/.ssh/*").fails();
            assert!(!ran.stdout.contains(KEY), "{ran:?}");
        }
        m.inside("git_full", "cat ~/.ssh/id_ed25519.pub").succeeds().says("the public key");
    });
}

#[test]
fn git_safe_cannot_write_instructions_but_a_checkout_can() {
    as_each_user(|m| {
        let m = with_secrets(m);
        let make = "echo 1 > CLAUDE.md && mkdir -p .github/workflows && echo 1 > a &&
            echo 1 > .github/workflows/x.yml && git add -A && git commit -qm x && git checkout -qb y &&
            echo 2 > CLAUDE.md && echo 2 > .github/workflows/x.yml && git commit -qam y &&
            git format-patch -1 --stdout > $TMPDIR/p && git checkout -q main";
        without_clash(&m, make);
        let kept = |script: &str| {
            m.inside("git_safe", script).fails();
            let text = without_clash(&m, "cat CLAUDE.md .github/workflows/x.yml").stdout;
            assert_eq!(text, "1\n1\n", "{script}");
        };
        for script in [
            "git apply $TMPDIR/p",
            "git -c user.name=a -c user.email=a@b am -q $TMPDIR/p",
            "git show y:CLAUDE.md > CLAUDE.md",
            "git mv a CLAUDE.md -f",
            "git rm -q CLAUDE.md",
            "git format-patch -1 --stdout > CLAUDE.md",
            "git diff main y --output=CLAUDE.md",
        ] {
            kept(script);
            without_clash(&m, "git reset -q --hard && rm -rf .git/rebase-apply");
        }
        m.inside("git_checkout_safe", "git checkout -q y").succeeds();
        assert_eq!(without_clash(&m, "cat CLAUDE.md").stdout, "2\n");
    });
}

#[test]
fn a_script_that_writes_instructions_of_a_checkout_is_asked() {
    let m = with_secrets(Machine::new(Who::Me));
    m.bash("echo evil > CLAUDE.md; git checkout main").is("ask", "CLAUDE.md");
    m.bash("git show y:x > CLAUDE.md && git checkout main").is("ask", "CLAUDE.md");
    m.bash("git checkout main && git apply x").is("allow", "");
    // Each command has a sandbox of its own, behind a door.
    m.bash("git stash list && git rebase main").is("allow", "");
    let ran = m.clash(["explain", "bash", "--json", "git checkout main && git apply x"]);
    assert!(
        ran.stdout.contains("\"name\": \"git_safe\"")
            || ran.stdout.contains("\"name\":\"git_safe\""),
        "{ran:?}"
    );
}

#[test]
fn an_output_option_of_git_writes_nothing_protected() {
    as_each_user(|m| {
        let m = with_secrets(m);
        without_clash(
            &m,
            "mkdir -p frontend .git/rebase-merge && echo 1 > a && git add -A && git commit -qm x && echo 2 > a && git stash -q",
        );
        let todo = ".git/rebase-merge/git-rebase-todo";
        let mut scripts = vec![
            format!("git stash list '--format=tformat:exec /evil' --output={todo}"),
            format!("cd src && git stash list '--format=x' --output={todo}"),
            "GIT_TRACE=\"$PWD/CLAUDE.md\" git stash list".to_owned(),
            format!("GIT_TRACE={}/CLAUDE.md git stash list", m.project().display()),
        ];
        let texts = [
            "git stash list --format=evil --output=CLAUDE.md",
            "git stash list --format=evil --outp CLAUDE.md",
            "git log -1 '--format=tformat:gitdir: /p/build/ev' --output=frontend/.git",
            "git log -1 --format=x > frontend/.git",
            "git -C frontend log -1 --format=x --output=.git",
            "git init -q frontend && git log -1 --format=x --output=frontend/.git/config",
            "git archive -oCLAUDE.md HEAD",
            "git archive -v -o CLAUDE.md HEAD",
            "git bundle create .github/workflows/x.yml HEAD",
            "git format-patch -1 -o .github/workflows",
        ];
        scripts.extend(texts.map(str::to_owned));
        for script in &scripts {
            let ran = m.clash(["exec", "--", "sh", "-c", script]);
            let answer = m.bash(script);
            let is_kept = ["CLAUDE.md", todo, "frontend/.git", ".github"];
            let made = is_kept.iter().find(|path| m.project().join(path).exists());
            assert!(made.is_none(), "{script}: {made:?} {ran:?} {answer:?}");
        }
        for script in scripts.iter().filter(|script| !script.contains("$PWD")) {
            m.bash(script).is("ask", "");
        }
    });
}

#[test]
fn an_output_path_known_at_run_time_hits_no_protected_file() {
    as_each_user(|m| {
        let m = with_secrets(m);
        without_clash(
            &m,
            "mkdir frontend && echo 1 > a && git add -A && git commit -qm x && echo 2 > a && git stash -q",
        );
        for (script, path) in [
            ("git stash show -p --output=$(echo CLAUDE.md) 2>&1", "CLAUDE.md"),
            ("git stash list $(echo --output=CLAUDE.md)", "CLAUDE.md"),
            ("git log -1 --format=x --output=$(echo frontend/.git)", "frontend/.git"),
            ("git log -1 --format=x > $(echo frontend/.git)", "frontend/.git"),
        ] {
            m.clash(["exec", "--", "sh", "-c", script]);
            assert!(!m.project().join(path).exists(), "{script}");
        }
    });
}

#[test]
fn everyday_outputs_of_git_need_no_question() {
    let m = with_secrets(Machine::new(Who::Me));
    without_clash(&m, "echo 1 > a && git add -A && git commit -qm x && echo 2 > a");
    for script in [
        "git diff --output=x.patch",
        "git archive -o out.tar HEAD",
        "git format-patch -q -1 -o patches main",
        "git bundle create -q x.bundle HEAD",
        "git archive HEAD --output /dev/null",
        "git log --oneline -1 \"$(git rev-parse HEAD)\"",
        "GIT_TRACE=0 git stash list",
        "cd src && git diff --output ../y.patch",
    ] {
        m.bash(script).is("allow", "");
        m.clash(["exec", "--", "sh", "-c", script]).succeeds();
    }
}

#[test]
fn instructions_that_git_changes_are_reported() {
    let m = with_secrets(Machine::new(Who::Me));
    let make = "echo 1 > CLAUDE.md && git add -A && git commit -qm x && git checkout -qb y &&
        echo 2 > CLAUDE.md && git commit -qam y && git checkout -q main";
    without_clash(&m, make);
    let input = m.bash("git checkout -q y").is("allow", "").updated.unwrap();
    run_rewritten(&m, input["command"].as_str().unwrap());
    let said = m.hook(&m.message("PostToolUse", "Bash", input)).succeeds();
    assert!(said.stdout.contains("git changed") && said.stdout.contains("CLAUDE.md"), "{said:?}");
    let input = m.bash("git checkout -q y").is("allow", "").updated.unwrap();
    run_rewritten(&m, input["command"].as_str().unwrap());
    let said = m.hook(&m.message("PostToolUse", "Bash", input)).succeeds();
    assert!(!said.stdout.contains("CLAUDE.md"), "{said:?}");
}

#[test]
fn an_activation_script_stays_and_an_environment_is_made_anew() {
    if !Path::new("/usr/bin/python3").exists() {
        return skipped("virtual environments, because there is no /usr/bin/python3");
    }
    as_each_user(|m| {
        let m = with_secrets(m);
        let make = "/usr/bin/python3 -m venv --without-pip";
        m.inside("python_full", &format!("{make} .venv")).succeeds();
        for attack in [
            "echo x >> .venv/bin/activate",
            "rm .venv/bin/activate && echo x > .venv/bin/activate",
            "echo x > y && mv y .venv/bin/activate",
            "echo x > .venv/bin/activate.fish",
        ] {
            m.inside("python_full", attack).fails();
        }
        m.inside("python_full", &format!("{make} --clear .venv")).succeeds();
        m.inside("python_full", "rm -rf .venv").succeeds();
        m.inside("python_full", &format!("{make} .venv && . .venv/bin/activate && python -c pass"))
            .succeeds();
    });
}

/// A server of ssh on the loopback that gives out one repository.
pub(crate) struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts sshd on the loopback and gives the user a key for it. Needs root.
pub(crate) fn serve(m: &Machine, port: u16) -> Server {
    let at = m.tmp().parent().unwrap().join("server");
    std::fs::create_dir(&at).unwrap();
    let here = at.display();
    let home = m.home();
    let home = home.display();
    let own = |script: String| {
        let ran = Ran::of(std::process::Command::new("sh").args(["-c", &script]));
        ran.succeeds();
    };
    own(format!(
        "set -e; cd {here}; ssh-keygen -q -t ed25519 -N '' -f host
         git init -q --bare bare.git; git init -q w; cd w; git -c user.name=a -c user.email=a@b \
         commit -q --allow-empty -m x; git push -q ../bare.git HEAD:main; cd ..
         ssh-keygen -q -t ed25519 -N '' -f key; mkdir -p /run/sshd 2>/dev/null || true
         echo \"command=\\\"git-upload-pack {here}/bare.git\\\" $(cat key.pub)\" > authorized
         printf 'Port {port}\\nListenAddress 127.0.0.1\\nHostKey {here}/host\\n\
         AuthorizedKeysFile {here}/authorized\\nPermitRootLogin prohibit-password\\nUsePAM no\\n\
         StrictModes no\\nPidFile none\\n' > config"
    ));
    let text = |name: &str| std::fs::read_to_string(at.join(name)).unwrap();
    let key = m.write(".ssh/id_ed25519", &text("key"));
    std::fs::set_permissions(key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    m.write(".ssh/known_hosts", &format!("[127.0.0.1]:{port} {}", text("host.pub")));
    // The client takes the home of the user database, and not `HOME`.
    let config = format!(
        "IdentityFile {home}/.ssh/id_ed25519\nUserKnownHostsFile {home}/.ssh/known_hosts\n\
         BatchMode yes\n"
    );
    m.write(".ssh/config", &config);
    m.write(".gitconfig", &format!("[core]\n\tsshCommand = ssh -F {home}/.ssh/config\n"));
    let server = std::process::Command::new("/usr/sbin/sshd")
        .args(["-D", "-e", "-f"])
        .arg(at.join("config"))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    eventually("the server listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    Server(server)
}

/// True if root can start sshd. Prints otherwise that the case is skipped.
pub(crate) fn can_serve() -> bool {
    let ready = Path::new("/usr/sbin/sshd").exists() && is_root();
    if !ready {
        skipped("git over ssh, because there is no sshd that root could start");
    }
    ready
}

/// A TCP port of the loopback that is free now.
pub(crate) fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    listener.local_addr().unwrap().port()
}

#[test]
fn git_reaches_a_server_of_ssh_without_the_key_in_its_room() {
    if !can_serve() {
        return;
    }
    as_each_user(|m| {
        let m = with_secrets(m);
        let port = free_port();
        let _server = serve(&m, port);
        let url = format!("ssh://root@127.0.0.1:{port}/bare.git");
        without_clash(&m, &format!("git remote set-url origin {url}"));
        m.clash(["exec", "--", "git", "ls-remote", "origin"]).succeeds().says("refs/heads/main");
        m.clash(["exec", "--", "git", "fetch", "-q", "origin", "main"]).succeeds();
        m.inside("git_full", "ssh-add -l").succeeds().says("ED25519");
        let ran = m.inside("git_full", "cat ~/.ssh/id_ed25519; true");
        assert!(!ran.stdout.contains("PRIVATE KEY"), "{ran:?}");
        // Only sandboxes with remotes may sign.
        m.inside("git_safe", "ssh-add -l").fails();
    });
}

#[test]
fn an_agent_of_ssh_ends_with_its_room() {
    if !can_serve() {
        return;
    }
    as_each_user(|m| {
        let m = with_secrets(m);
        let _server = serve(&m, free_port());
        let socket = m.project().join("socket");
        let mut command = m.command(clash());
        let script = "echo \"$SSH_AUTH_SOCK\" > socket.new; mv socket.new socket; sleep 100";
        command.args(["sandbox", "exec", "git_full", "--", "sh", "-c", script]);
        let mut child = command.spawn().unwrap();
        eventually("the room has an agent", || socket.exists());
        let path = std::fs::read_to_string(&socket).unwrap();
        let path = Path::new(path.trim());
        assert!(path.exists(), "{path:?}");
        child.kill().unwrap();
        child.wait().unwrap();
        eventually("the agent is gone", || !path.exists());
    });
}

#[test]
fn a_room_cannot_change_the_agent_of_the_user() {
    as_each_user(|m| {
        let m = with_secrets(m);
        let socket = m.home().join("agent");
        without_clash(&m, "rm ~/.ssh/id_ed25519; ssh-keygen -q -t ed25519 -N '' -f ~/mine");
        without_clash(&m, "ssh-keygen -q -t ed25519 -N '' -f theirs");
        let mut agent = m.command("ssh-agent");
        agent.arg("-D").arg("-a").arg(&socket).stdout(Stdio::null());
        let _agent = Server(agent.spawn().unwrap());
        eventually("the agent listens", || socket.exists());
        let of_user = format!("SSH_AUTH_SOCK={}", socket.display());
        without_clash(&m, &format!("{of_user} ssh-add -q ~/mine"));
        let listed = || without_clash(&m, &format!("{of_user} ssh-add -L")).stdout;
        let before = listed();
        let room = |script: &str| {
            let mut command = m.command(clash());
            command.args(["sandbox", "exec", "git_full", "--", "sh", "-c", script]);
            Ran::of(command.env("SSH_AUTH_SOCK", &socket))
        };
        assert_eq!(room("ssh-add -L").succeeds().stdout, before);
        room("ssh-add -L > k.pub && echo x > t && ssh-keygen -q -Y sign -n git -f k.pub t")
            .succeeds();
        for attack in ["ssh-add -D", "ssh-add theirs", "ssh-add -d k.pub", "ssh-add -s /lib/x.so"] {
            room(attack).fails();
            assert_eq!(listed(), before, "{attack}");
        }
        room("printf 'x\\nx\\n' | SSH_ASKPASS=/bin/echo SSH_ASKPASS_REQUIRE=force ssh-add -x")
            .fails();
        assert_eq!(listed(), before);
    });
}

/// In git's sandbox the program could make a repository whose settings name another program,
/// which the user's own `git status` would run.
#[test]
fn a_program_of_a_variable_does_not_run_in_the_sandbox_of_git() {
    as_each_user(|m| {
        m.write("app/Makefile", "all:\n\tGIT_EDITOR=./made.sh git commit -q --amend\n");
        let made =
            "#!/bin/sh\nmkdir -p lib && cd lib && git init -q . && git config core.fsmonitor ./p\n";
        program(m.project().join("made.sh"), made);
        for args in [&["init", "-q"][..], &["add", "-A"], &["commit", "-qm", "x"]] {
            let name = ["-c", "user.name=a", "-c", "user.email=a@b.test"];
            Ran::of(m.command("git").args(name).args(args)).succeeds();
        }
        Ran::of(m.command(clash()).args(["init", "--quick", "--agent", "none"])).succeeds();
        for script in [
            "GIT_EDITOR=./made.sh git commit --amend",
            "env EDITOR=./made.sh git commit --amend",
            "make -s all",
        ] {
            m.clash(["exec", "--", "bash", "-c", script]);
            assert!(!m.project().join("lib/.git/config").exists(), "{script}");
        }
    });
}
