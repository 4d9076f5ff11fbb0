use super::*;

#[test]
fn the_remote_that_git_uses_has_addresses() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join(".git")).unwrap();
    let config = |text: &str| fs::write(dir.path().join(".git/config"), text).unwrap();
    let of = |words: &[&str]| remote_addresses(dir.path(), words);
    config("[remote \"up\"]\n\turl = https://up.test/a\n");
    assert_eq!(of(&["fetch"]), ["https://up.test/a"]);
    config(
        "[remote \"up\"]\n\turl = https://up.test/a\n[remote \"origin\"]\n\turl = git@o.test:a\n",
    );
    assert_eq!(of(&["fetch"]), ["git@o.test:a"]);
    assert_eq!(of(&["fetch", "up", "main"]), ["https://up.test/a"]);
    config("[remote \"a\"]\n\turl = x\n[remote \"b\"]\n\turl = y\n");
    assert_eq!(of(&["fetch"]), [] as [&str; 0]);
    fs::remove_file(dir.path().join(".git/config")).unwrap();
    assert_eq!(of(&["fetch"]), [] as [&str; 0]);
}

struct TestProject {
    _dir: tempfile::TempDir,
    root: PathBuf,
}

impl TestProject {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(dir.path()).unwrap().join("app");
        let project = Self { _dir: dir, root };
        project.repository("");
        project.settings("[core]\n\tbare = false\n[remote \"origin\"]\n\turl = git@host:o/r\n");
        project
    }

    fn repository(&self, at: &str) {
        for name in ["objects", "refs", "hooks"] {
            fs::create_dir_all(self.root.join(at).join(".git").join(name)).unwrap();
        }
        fs::write(self.root.join(at).join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
    }

    fn settings(&self, text: &str) {
        fs::write(self.root.join(".git/config"), text).unwrap();
    }

    /// Writes an index in git's format.
    fn index(&self, version: u32, entries: &[(&str, u32)]) {
        let mut bytes = b"DIRC".to_vec();
        bytes.extend(version.to_be_bytes());
        bytes.extend((entries.len() as u32).to_be_bytes());
        let mut last = "";
        for (name, mode) in entries {
            let start = bytes.len();
            bytes.extend([0; 24]);
            bytes.extend(mode.to_be_bytes());
            bytes.extend([0; 12 + 20]);
            bytes.extend((name.len() as u16).to_be_bytes());
            if version == 4 {
                let same = last.bytes().zip(name.bytes()).take_while(|(a, b)| a == b).count();
                bytes.push((last.len() - same) as u8);
                bytes.extend(&name.as_bytes()[same..]);
                bytes.push(0);
            } else {
                bytes.extend(name.as_bytes());
                bytes.push(0);
                while !(bytes.len() - start).is_multiple_of(8) {
                    bytes.push(0);
                }
            }
            last = name;
        }
        bytes.extend(b"TREE\0\0\0\x02xx");
        bytes.extend([0; 20]);
        fs::write(self.root.join(".git/index"), bytes).unwrap();
    }

    fn hook(&self, name: &str, text: &str) {
        let path = self.root.join(".git/hooks").join(name);
        fs::write(&path, text).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&path, mode).unwrap();
    }

    fn find_steering(&self, at: &str, subcommand: &str) -> Option<String> {
        let dir = if at.is_empty() { self.root.clone() } else { self.root.join(at) };
        find_steering(&dir, &self.root, subcommand)
    }
}

#[test]
fn the_projects_own_repository_steers_nothing() {
    let project = TestProject::new();
    fs::create_dir_all(project.root.join("src/deep")).unwrap();
    for at in ["", "src", "src/deep"] {
        assert_eq!(project.find_steering(at, "fetch"), None, "{at}");
    }
}

#[test]
fn without_a_repository_nothing_steers_a_clone() {
    let dir = tempfile::tempdir().unwrap();
    let root = fs::canonicalize(dir.path()).unwrap();
    assert_eq!(find_steering(&root, &root, "clone"), None);
}

#[test]
fn a_repository_below_the_project_steers() {
    let project = TestProject::new();
    project.repository("x");
    assert!(project.find_steering("x", "fetch").is_some());
    fs::create_dir_all(project.root.join("bare/objects")).unwrap();
    fs::create_dir_all(project.root.join("bare/refs")).unwrap();
    fs::write(project.root.join("bare/HEAD"), "").unwrap();
    assert!(project.find_steering("bare", "fetch").is_some());
    fs::create_dir_all(project.root.join("borrows")).unwrap();
    fs::write(project.root.join("borrows/commondir"), "../x").unwrap();
    assert!(project.find_steering("borrows", "fetch").is_none());
    fs::write(project.root.join("borrows/HEAD"), "").unwrap();
    assert!(project.find_steering("borrows", "fetch").is_some());
    fs::create_dir_all(project.root.join("file")).unwrap();
    fs::write(project.root.join("file/.git"), "gitdir: ../x/.git\n").unwrap();
    assert!(project.find_steering("file", "fetch").is_some());
    assert!(find_steering(Path::new("/"), &project.root, "fetch").is_some());
}

#[test]
fn settings_that_can_name_a_program_steer() {
    let project = TestProject::new();
    for text in [
        "[core]\nsshCommand = ./evil",
        "[core] sshCommand = ./evil",
        "[CORE]\nSSHCOMMAND=./evil",
        "[core]\nsshCommand = ssh -F evil",
        "[core]\nsshCommand = ssh -i a -o ProxyCommand=x",
        "[core]\nfsmonitor = ./evil",
        "[core]\ngitProxy = ./evil",
        "[core]\naskPass = ./evil",
        "[core]\nworktree = /",
        "[credential]\nhelper = !./evil",
        "[credential \"https://github.com\"]\nhelper = /tmp/evil",
        "[include]\npath = ../evil",
        "[includeIf \"gitdir:/\"]\npath = ../evil",
        "[filter \"lfs\"]\nsmudge = ./evil",
        "[filter \"x\"]\nprocess = git-lfs filter-process",
        "[gpg]\nprogram = ./evil",
        "[gc]\nrecentObjectsHook = ./evil",
        "[remote \"origin\"]\nuploadpack = ./evil",
        "[remote \"origin\"]\nvcs = evil",
        "[remote \"origin\"]\nurl = ext::sh -c evil",
        "[url \"ext::sh -c evil \"]\ninsteadOf = https://",
        "[protocol \"ext\"]\nallow = always",
        "[merge \"x\"]\ndriver = ./evil",
        "[http]\nproxy = http://evil",
        "[http]\nsslVerify = false",
        "[submodule \"x\"]\nupdate = !evil",
        "[core]\n\tbare = false \\\n\n sshCommand",
        "[a \"b\nc\"]\nd = e",
        "nothing",
    ] {
        project.settings(text);
        assert!(project.find_steering("", "fetch").is_some(), "{text}");
    }
}

#[test]
fn settings_of_everyday_steer_nothing() {
    let project = TestProject::new();
    for text in [
        "",
        "# comment\n; another\n[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\tlogallrefupdates = true\n",
        "[remote \"origin\"]\n\turl = https://github.com/o/r.git\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n[branch \"main\"]\n\tremote = origin\n\tmerge = refs/heads/main\n",
        "[filter \"lfs\"]\n\tclean = git-lfs clean -- %f\n\tsmudge = git-lfs smudge -- %f\n\tprocess = git-lfs filter-process\n\trequired = true\n[lfs]\n\trepositoryformatversion = 0\n[lfs \"https://host/o/r.git/info/lfs\"]\n\taccess = basic\n",
        "[user]\n\tname = \"A # B\" ; x\n\temail = a@b\n[commit]\n\tgpgsign = true\n[pull]\n\trebase\n",
        "[submodule \"lib\"]\n\tactive = true\n\turl = https://host/lib\n",
        "[core]\n\tsshCommand = ssh -i ~/.ssh/work -o IdentitiesOnly=yes\n\tfsmonitor = true\n",
        "[alias]\n\tst = status\n\tx = !evil\n[extensions]\n\tworktreeConfig = true\n",
        "[url \"git@github.com:\"]\n\tinsteadOf = https://github.com/\n[credential]\n\thelper = cache\n",
    ] {
        project.settings(text);
        assert_eq!(project.find_steering("", "fetch"), None, "{text}");
    }
}

#[test]
fn hooks_steer_the_commands_that_run_them() {
    let project = TestProject::new();
    project.hook("pre-commit", "#!/bin/sh\nevil\n");
    project.hook("post-merge.sample", "#!/bin/sh\n");
    project.hook(
        "post-merge",
        "#!/bin/sh\ncommand -v git-lfs >/dev/null 2>&1 || { printf >&2 \"\\n%s\\n\\n\" \"No 'git-lfs'.\"; exit 2; }\ngit lfs post-merge \"$@\"\n",
    );
    assert_eq!(project.find_steering("", "fetch"), None);
    assert_eq!(project.find_steering("", "pull"), None);
    project.hook("post-checkout", "#!/bin/sh\nevil\ngit lfs post-checkout \"$@\"\n");
    assert_eq!(project.find_steering("", "fetch"), None);
    assert!(project.find_steering("", "pull").is_some());
    project.hook("reference-transaction", "#!/bin/sh\nevil\n");
    assert!(project.find_steering("", "fetch").is_some());
}

#[test]
fn hooks_are_looked_for_where_the_settings_say() {
    let project = TestProject::new();
    project.settings("[core]\n\thooksPath = .githooks\n");
    assert_eq!(project.find_steering("", "fetch"), None);
    fs::create_dir(project.root.join(".githooks")).unwrap();
    project.hook("reference-transaction", "#!/bin/sh\nevil\n");
    assert_eq!(project.find_steering("", "fetch"), None);
    let hook = project.root.join(".githooks/reference-transaction");
    fs::rename(project.root.join(".git/hooks/reference-transaction"), hook).unwrap();
    assert!(project.find_steering("", "fetch").is_some());
}

#[test]
fn a_submodule_with_a_repository_of_its_own_steers() {
    let project = TestProject::new();
    for version in [2, 3, 4] {
        project
            .index(version, &[("a", 0o100_644), ("xa", 0o100_644), ("xyz/long-name", 0o100_755)]);
        assert_eq!(project.find_steering("", "fetch"), None);
        project.index(version, &[("a", 0o100_644), ("x", 0o160_000), ("xa", 0o100_644)]);
        let found = index::gitlinks(&project.root.join(".git"), 20).unwrap();
        assert_eq!(found, [PathBuf::from("x")], "{version}");
        assert_eq!(project.find_steering("", "fetch"), None);
    }
    let own = project.root.join(".git/modules/x");
    fs::create_dir_all(&own).unwrap();
    fs::create_dir(project.root.join("x")).unwrap();
    fs::write(project.root.join("x/.git"), "gitdir: ../.git/modules/x\n").unwrap();
    fs::write(own.join("config"), "[core]\n\tworktree = ../../../x\n").unwrap();
    assert_eq!(project.find_steering("", "submodule"), None);
    fs::write(own.join("config"), "[core]\n\tsshCommand = ./evil\n").unwrap();
    assert!(project.find_steering("", "fetch").is_some());
    fs::remove_file(project.root.join("x/.git")).unwrap();
    project.repository("x");
    assert!(project.find_steering("", "pull").is_some());
    fs::write(project.root.join(".git/index"), "DIRC").unwrap();
    assert!(project.find_steering("", "pull").is_some());
}
