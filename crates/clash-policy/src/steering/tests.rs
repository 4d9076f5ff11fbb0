use super::*;
use crate::net::NetRule;
use crate::path::PolicyPlaces;
use crate::sandbox::{EnvRule, FsRule, PathPattern, WriteTarget};
use crate::span::PolicySpan;
use clash_shell::find_commands;

fn places() -> PolicyPlaces {
    PolicyPlaces::new("/h/app".into(), "/h".into(), "/tmp".into(), |_| None)
}

/// Runs a test on an imagined machine without repositories of others.
fn in_context<T>(test: impl FnOnce(&JudgeContext<'_>) -> T) -> T {
    let places = places();
    test(&JudgeContext::without_disk(&places))
}

/// A sandbox that allows reading below one path.
fn grants(path: &str, net: NetworkAccess) -> Sandbox {
    let rule = FsRule {
        pattern: PathPattern::Subpath { path: path.into(), follow_worktrees: false },
        effect: Effect::Allow,
        caps: FileCaps::READ,
        writes: WriteTarget::InPlace,
        span: PolicySpan::default(),
    };
    Sandbox { fs: vec![rule], net, ..Sandbox::named("x") }
}

/// Why the last command of a script is steered.
fn last(script: &str, widening: SandboxWidening, named: &[&str]) -> Option<String> {
    let named: Vec<String> = named.iter().map(|it| (*it).to_owned()).collect();
    let commands = find_commands(script);
    in_context(|context| steered(commands.last().unwrap(), widening, &named, context))
}

#[test]
fn a_sandbox_widens_by_network_or_by_credentials() {
    let project = grants("$PWD", NetworkAccess::Deny);
    let widens = |sandbox: &Sandbox| in_context(|context| widening(sandbox, &project, context));
    assert_eq!(widens(&project), None);
    assert_eq!(widens(&grants("$HOME/.cache/x", NetworkAccess::Deny)), None);
    assert_eq!(widens(&grants("$HOME/.ssh/known_hosts", NetworkAccess::Deny)), None);
    assert_eq!(widens(&grants("$PWD", NetworkAccess::Allow)), Some(SandboxWidening::Network));
    let hosts = NetworkAccess::Hosts { rules: Vec::<NetRule>::new(), default: Effect::Deny };
    assert_eq!(widens(&grants("$PWD", hosts)), Some(SandboxWidening::Network));
    for path in [
        "$HOME",
        "$HOME/.ssh",
        "$XDG_CONFIG_HOME/gh",
        "$HOME/.kube",
        "/run/docker.sock",
        "$HOME/.aws/credentials",
    ] {
        assert_eq!(
            widens(&grants(path, NetworkAccess::Deny)),
            Some(SandboxWidening::Credentials),
            "{path}"
        );
    }
    let socket = EnvRule {
        name: SSH_AGENT_SOCKET.into(),
        effect: Effect::Allow,
        span: PolicySpan::default(),
    };
    let lent = Sandbox { env: vec![socket], ..project.clone() };
    assert_eq!(widens(&lent), Some(SandboxWidening::Credentials));
    let wide = grants("$HOME", NetworkAccess::Allow);
    assert_eq!(in_context(|context| widening(&wide, &wide, context)), None);
}

#[test]
fn programs_of_git_steer_where_repositories_are_made() {
    let project = grants("$PWD", NetworkAccess::Deny);
    let mut git = project.clone();
    git.protect.except.push(".git".to_owned());
    let widens = |sandbox: &Sandbox, default: &Sandbox| {
        in_context(|context| widening(sandbox, default, context))
    };
    assert_eq!(widens(&git, &project), Some(SandboxWidening::Repositories));
    assert_eq!(widens(&git, &git), None);
    for script in [
        "GIT_EDITOR=./evil git commit --amend",
        "env EDITOR=./evil git commit --amend",
        "GIT_SEQUENCE_EDITOR='sed -i s/x/id/e' git rebase -i HEAD~1",
        "GIT_SEQUENCE_EDITOR='sed -i s/x/y/;e' git rebase -i HEAD~1",
        "GIT_EXTERNAL_DIFF=./evil git diff",
        "XDG_CONFIG_HOME=x git status",
        "HOME=x git status",
        "GIT_PAGER='sh evil' git -p log",
    ] {
        assert!(last(script, SandboxWidening::Repositories, &[]).is_some(), "{script}");
    }
    for script in [
        "git commit -m \"$(cat message)\"",
        "GIT_EDITOR=true git commit --amend",
        "GIT_SEQUENCE_EDITOR='sed -i 1s/pick/drop/' git rebase -i HEAD~1",
        "GIT_SEQUENCE_EDITOR='sed -i \"s/^pick/edit/g\"' GIT_EDITOR=: git rebase -i HEAD~1",
        "GIT_PAGER=cat git log",
        "GIT_INDEX_FILE=x git add .",
        "git --git-dir=x status",
    ] {
        assert_eq!(last(script, SandboxWidening::Repositories, &[]), None, "{script}");
    }
}

#[test]
fn variables_steer_programs_that_read_credentials() {
    for script in [
        "GIT_DIR=x git fetch",
        "HOME=x git fetch",
        "HOME=$PWD git fetch",
        "export HOME=x; git fetch",
        "export HOME; git fetch",
        "HOME=x; git fetch",
        "declare -x ANYTHING=1; git fetch",
        "set -a; ANYTHING=1; git fetch",
        "read HOME; git fetch",
        "for HOME in a b; do git fetch; done",
        "XDG_CONFIG_HOME=x git fetch",
        "env XDG_CONFIG_HOME=x git fetch",
        "env -u LANG GIT_DIR=x timeout 5 git fetch",
        "f() { git fetch; }; GIT_DIR=x f",
        "GIT_DIR=x command git fetch",
        "GIT_DIR=x eval git fetch",
        "GH_PAGER=./evil gh pr list",
        "GH_BROWSER=./evil gh pr list",
        "PAGER=./evil gh pr list",
        "GH_CONFIG_DIR=x gh pr list",
        "HELM_PLUGINS=x helm repo update",
        "KUBECONFIG=x kubectl get pods",
        "SOMETHING_NEW=x git fetch",
        "https_proxy=http://evil git fetch",
        "GIT_SSL_NO_VERIFY=1 git fetch",
    ] {
        let found = |command: &ShellCommand| {
            in_context(|context| steered(command, SandboxWidening::Credentials, &[], context))
        };
        // An opaque command needs a decision anyway.
        let all = find_commands(script);
        let caught = all.iter().any(|command| found(command).is_some() || command.opaque.is_some());
        assert!(caught, "{script}");
    }
}

#[test]
fn everyday_commands_are_not_steered() {
    for script in [
        "git fetch",
        "git fetch origin main --tags",
        "git pull --rebase",
        "git clone https://github.com/o/r.git x",
        "git clone --depth 1 -b main URL",
        "cd /h/app && git fetch",
        "git -C /h/app fetch",
        "git -c color.ui=never fetch",
        "git --no-pager fetch",
        "BRANCH=main; git fetch origin $BRANCH",
        "(BRANCH=main; true); git fetch",
        "LC_ALL=C git fetch",
        "GIT_TERMINAL_PROMPT=0 git fetch",
        "GH_PAGER=cat gh pr list",
        "PAGER= gh pr list",
        "NO_COLOR=1 gh pr view 1 --json title",
        "gh pr list --repo o/r",
        "gh pr view $N",
        "timeout 60 git fetch",
        "export FORCE_COLOR=1; git fetch",
    ] {
        assert_eq!(last(script, SandboxWidening::Credentials, &[]), None, "{script}");
    }
    for script in [
        "NODE_ENV=test npm ci",
        "CI=1 npm install",
        "RUST_BACKTRACE=1 cargo test",
        "RUSTFLAGS='-D warnings' cargo build",
        "CARGO_TARGET_DIR=/tmp/t cargo build",
        "CC=clang cargo build",
        "cd web && npm install",
        "npm --prefix web install",
        "API_URL=http://x npx vite build",
        "MAVEN_OPTS='-Xmx2g -Xss512k' mvn test",
        "CGO_ENABLED=0 GOOS=linux go build",
        "PYTHONPATH=. pip install -e .",
        "cargo test --manifest-path crates/x/Cargo.toml",
        "pip install $X",
    ] {
        assert_eq!(last(script, SandboxWidening::Network, &[]), None, "{script}");
    }
}

#[test]
fn a_replaced_toolchain_steers_if_there_is_a_network() {
    for script in [
        "RUSTC=./evil cargo fetch",
        "RUSTC_WRAPPER=./evil cargo build",
        "CARGO_BUILD_RUSTC=./evil cargo build",
        "CARGO_HOME=x cargo fetch",
        "HOME=x npm ci",
        "MAVEN_OPTS=-javaagent:evil.jar mvn test",
        "npm_config_script_shell=./evil npm ci",
        "GRADLE_USER_HOME=x gradle build",
        "HTTPS_PROXY=http://evil pip install x",
        "cargo --config build.rustc=\"./evil\" fetch",
        "npm ci --script-shell=./evil",
        "npm --userconfig x ci",
        "mvn -s evil.xml test",
        "gradle -Ievil build",
    ] {
        let all = find_commands(script);
        let found = |command: &ShellCommand| {
            in_context(|context| steered(command, SandboxWidening::Network, &[], context)).is_some()
        };
        assert!(all.iter().any(|it| found(it) || it.opaque.is_some()), "{script}");
    }
}

#[test]
fn options_that_name_settings_or_programs_steer() {
    for script in [
        "git --git-dir=x fetch",
        "git --git-dir x fetch",
        "git --work-tree=x fetch",
        "git --exec-path=x fetch",
        "git fetch --upload-pack=./evil",
        "git fetch --upload-pa ./evil",
        "git clone --template=x URL",
        "git fetch \"$X\"",
        "git fetch $(cat x)",
        "kubectl --kubeconfig=x get pods",
        "helm repo update --repository-config x",
        "helm template x --post-renderer ./evil",
        "ssh -F x host",
        "ssh -oProxyCommand=evil host",
        "rsync -e ./evil a host:b",
    ] {
        let all = find_commands(script);
        let found = |command: &ShellCommand| {
            in_context(|context| steered(command, SandboxWidening::Credentials, &[], context))
                .is_some()
        };
        assert!(all.iter().any(found), "{script}");
    }
}

#[test]
fn an_option_that_the_rule_names_does_not_steer() {
    let named = &["Bash", "git", "--git-dir"];
    assert_eq!(last("git --git-dir=x fetch", SandboxWidening::Credentials, named), None);
    assert!(last("git --work-tree=x fetch", SandboxWidening::Credentials, named).is_some());
}

#[test]
fn an_unknown_directory_steers_git() {
    for script in ["cd $X && git fetch", "cd x; git fetch", "cd - && gh pr list"] {
        assert!(last(script, SandboxWidening::Credentials, &[]).is_some(), "{script}");
    }
    assert_eq!(last("cd $X && npm ci", SandboxWidening::Network, &[]), None);
}

/// Every directory but the project is another repository.
#[derive(Debug)]
struct OtherRepository;

impl crate::path::LinkResolver for OtherRepository {
    fn real(&self, path: &Path) -> PathBuf {
        path.to_path_buf()
    }

    fn git_is_steered(&self, dir: &Path, project: &Path, _subcommand: &str) -> Option<String> {
        (crate::path::normalise(dir) != project).then(|| "elsewhere".to_owned())
    }
}

#[test]
fn git_is_judged_by_the_directory_it_works_in() {
    let places = places();
    let context = JudgeContext { links: &OtherRepository, ..JudgeContext::without_disk(&places) };
    let found = |script: &str| {
        let commands = find_commands(script);
        steered(commands.last().unwrap(), SandboxWidening::Credentials, &[], &context).is_some()
    };
    for script in [
        "git -C x fetch",
        "git -C . -C x fetch",
        "cd x && git fetch",
        "(cd x && git fetch)",
        "pushd x && git fetch",
        "f() { cd x && git fetch; }; f",
        "cd x && gh pr list",
        "env -C x git fetch",
        "cd /h/app/x && git -C .. -C y fetch",
        "git -C ~/other fetch",
    ] {
        assert!(found(script), "{script}");
    }
    for script in ["git fetch", "git -C x -C .. fetch", "cd x && git -C .. fetch"] {
        assert!(!found(script), "{script}");
    }
}
