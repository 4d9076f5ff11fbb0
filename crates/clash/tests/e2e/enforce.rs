//! The kernel enforces `rust_full`, for a plain user and for root: granted accesses work,
//! all others are refused.

use std::path::Path;
use std::process::Command;

use crate::support::{Machine, Ran, as_each_user, clash, copy_program, eventually, skipped};

const SECRET: &str = "secret-key-material";

/// Writes a key, a file outside the project, and the directories of cargo.
fn write_secret_and_toolchain(m: &Machine) {
    m.write(".ssh/id_ed25519", SECRET);
    m.write("other/file", "outside");
    m.make_dir(m.home().join(".cargo/bin"));
    m.make_dir(m.home().join(".cargo/registry"));
    m.make_dir(m.home().join(".rustup"));
}

#[test]
fn files_outside_the_grants_are_out_of_reach() {
    as_each_user(|m| {
        write_secret_and_toolchain(&m);
        let home = m.home().display().to_string();
        m.make_dir(m.home().join(".cargo/registry"));
        let ran = m.inside(
            "rust_full",
            "cat ~/.ssh/id_*; cat ~/.ssh/id_ed25519; cd ~/.ssh && cat id_ed25519",
        );
        assert!(!ran.stdout.contains(SECRET), "{ran:?}");
        for write in [
            "echo x > ~/other/new",
            "echo x >> ~/other/file",
            ": > ~/other/file",
            "rm ~/other/file",
            "mv ~/other/file .",
            "ln ~/other/file ./hard && echo x > hard",
            "ln -s ~/other/file ./soft && echo x > soft",
            "mkdir ~/other/dir",
            "truncate -s 0 ~/other/file",
            "echo x > ~/.bashrc",
            "echo x > ~/.local/state/clash/x",
            "echo x > /usr/local/clash-e2e",
            "echo x > /etc/clash-e2e",
            "echo x > ~/.cargo/bin/cargo",
            "echo x > ~/.cargo/config.toml",
        ] {
            m.inside("rust_full", write).fails();
        }
        assert_eq!(std::fs::read_to_string(m.outside().join("file")).unwrap(), "outside");
        for granted in [
            "echo x > new && rm new",
            "mkdir -p a/b && mv a c && rm -r c",
            "echo x > $TMPDIR/t",
            &format!("echo x > {home}/.cargo/registry/t"),
        ] {
            m.inside("rust_full", granted).succeeds();
        }
    });
}

#[test]
fn processes_outside_cannot_be_signalled_or_looked_into() {
    as_each_user(|m| {
        write_secret_and_toolchain(&m);
        let mut outside = m.command("sleep").arg("60").env("CANARY_IN_ENV", "yes").spawn().unwrap();
        let pid = outside.id();
        for attempt in [
            format!("kill -TERM {pid}"),
            format!("kill -0 {pid}"),
            format!("grep -a CANARY /proc/{pid}/environ"),
            format!("head -c 1 /proc/{pid}/mem"),
            format!("ls /proc/{pid}/root/"),
            format!("cat /proc/{pid}/maps"),
            format!("perl -e 'exit(syscall(101, 16, {pid}, 0, 0) == 0 ? 0 : 1)'"),
        ] {
            m.inside("rust_full", &attempt).fails();
        }
        assert!(outside.try_wait().unwrap().is_none(), "it was ended from inside");
        outside.kill().unwrap();
        outside.wait().unwrap();
        m.inside("rust_full", "sleep 30 & kill $!").succeeds();
    });
}

#[test]
fn descriptors_inherited_by_clash_are_closed() {
    as_each_user(|m| {
        write_secret_and_toolchain(&m);
        let script = r#"exec 7<"$HOME/.ssh/id_ed25519" 8>>"$HOME/other/file"; exec "$0" sandbox exec rust_full -- sh -c 'cat <&7; echo x >&8; ls /proc/self/fd | wc -l'"#;
        let ran = Ran::of(m.command("bash").args(["-c", script]).arg(clash()));
        assert!(!ran.stdout.contains(SECRET), "{ran:?}");
        assert_eq!(std::fs::read_to_string(m.outside().join("file")).unwrap(), "outside");
    });
}

/// For x86_64 only: system call numbers differ by machine. The calls are made in perl. Checks
/// also that only `rust_full` reaches a TCP port of the host, and `project` does not.
#[cfg(target_arch = "x86_64")]
#[test]
fn dangerous_system_calls_are_refused() {
    if Command::new("perl").arg("-e1").output().is_err() {
        return skipped("system calls from inside, because there is no perl");
    }
    as_each_user(|m| {
        write_secret_and_toolchain(&m);
        let call = |name: &str, args: &str| {
            let script =
                format!("perl -e '$b = \"\\0\" x 128; exit(syscall({args}) >= 0 ? 0 : 1)'");
            let ran = m.inside("rust_full", &script);
            assert_ne!(ran.code, Some(0), "{name}: {ran:?}");
            assert_eq!(ran.signal, None, "{name}: {ran:?}");
        };
        call("io_uring_setup", "425, 8, $b");
        call("unshare user", "272, 0x10000000");
        call("clone3", "435, $b, 64");
        call("bpf", "321, 5, $b, 48");
        call("perf_event_open", "298, $b, 0, -1, -1, 0");
        call("userfaultfd", "323, 0");
        call("keyctl", "250, 0, -3, 0");
        call("add_key", "248, $b, $b, $b, 0, -3");
        call("socket unix", "41, 1, 1, 0");
        call("socket vsock", "41, 40, 1, 0");
        call("socket mptcp", "41, 2, 1, 262");
        call("mount", "165, $b, $b, $b, 0, 0");
        call("chroot", "161, $b");
        let host = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = host.local_addr().unwrap().port();
        let connect = format!(
            "perl -MIO::Socket::INET -e 'exit(IO::Socket::INET->new(\"127.0.0.1:{port}\") ? 0 : 1)'"
        );
        m.inside("project", &connect).fails();
        m.inside("rust_full", &connect).succeeds();
    });
}

/// Simulates a kernel without Landlock by a filter that answers `ENOSYS`.
#[cfg(target_arch = "x86_64")]
#[test]
fn without_landlock_nothing_runs() {
    if Command::new("perl").arg("-e1").output().is_err() {
        return skipped("a kernel without Landlock, because there is no perl");
    }
    as_each_user(|m| {
        let without = r#"
            my @insns = (0x20,0,0,0, 0x15,0,1,444, 0x06,0,0,0x50026, 0x06,0,0,0x7fff0000);
            my $filter = pack("(SCCL)*", @insns);
            my $program = pack("Sx6P", @insns / 4, $filter);
            syscall(157, 38, 1, 0, 0, 0) == 0 && syscall(317, 1, 0, $program) == 0 or exit 99;
            exec @ARGV;
        "#;
        let run = |args: &[&str]| {
            Ran::of(m.command("perl").args(["-e", without]).arg(clash()).args(args))
        };
        let touch = ["sandbox", "exec", "project", "--", "touch", "ran"];
        run(&touch).exits(125).says("no Landlock").says("hint:");
        assert!(!m.project().join("ran").exists());
        run(&["doctor"]).exits(1).says("landlock");
    });
}

#[test]
fn nothing_can_be_typed_into_the_terminal() {
    if Command::new("script").arg("--version").output().is_err()
        || Command::new("perl").arg("-e1").output().is_err()
    {
        return skipped("TIOCSTI, because there is no script(1) or perl");
    }
    as_each_user(|m| {
        write_secret_and_toolchain(&m);
        let inject = |prefix: &str| {
            let inner = format!(
                "{prefix} perl -e 'exit(ioctl(STDIN, 0x5412, my $c = \"x\") ? 0 : 9)'; echo status=$?"
            );
            Ran::of(m.command("script").args(["-qec", &inner, "/dev/null"])).stdout
        };
        let sandboxed = inject(&format!("{} sandbox exec rust_full --", clash().display()));
        assert!(sandboxed.contains("status=9"), "{sandboxed}");
        if !inject("").contains("status=0") {
            skipped("the counter-check of TIOCSTI, because this kernel refuses it anyway");
        }
    });
}

#[test]
fn sandboxes_of_the_policy_are_enforced_as_written() {
    as_each_user(|m| {
        write_secret_and_toolchain(&m);
        let m = m.policy(
            r#"
sandbox(name = "reader", fs = {"$PWD": allow("rx"), "$HOME/other": allow("r")})
sandbox(name = "narrow", fs = {"$PWD": allow(), "$PWD/secret": deny()})
sandbox(name = "wide", fs = {"$HOME": allow()})
sandbox(name = "open", default = allow())
"#,
        );
        m.inside("reader", "cat ~/other/file").succeeds().says("outside");
        m.inside("reader", "echo x > x").fails();
        m.inside("narrow", "mkdir secret").fails();
        m.write("app/secret/key", SECRET);
        m.inside("narrow", "echo x > new && cat new").succeeds();
        for attack in ["cat secret/key", "mv secret s2", "echo x > secret/new", "rm -r secret"] {
            let ran = m.inside("narrow", attack).fails();
            assert!(!ran.stdout.contains(SECRET));
        }
        for sandbox in ["wide", "open"] {
            m.inside(sandbox, "cat ~/other/file").succeeds().says("outside");
            m.inside(sandbox, "cat ~/.clash/policy.star").fails();
            m.inside(sandbox, "echo x > ~/.clash/new").fails();
        }
    });
}

#[test]
fn a_sandbox_of_the_projects_own_policy_cannot_be_named() {
    as_each_user(|m| {
        let planted = r#"sandbox(name = "project", fs = {"$HOME/other": allow()})
sandbox(name = "planted", fs = {"$HOME/other": allow()})"#;
        m.write("app/.clash/policy.star", planted);
        m.inside("project", "echo x > ~/other/x").fails();
        m.inside("planted", "true").exits(125).says("there is no sandbox `planted`");
    });
}

#[test]
fn a_crate_with_a_dependency_builds_and_tests() {
    as_each_user(|m| {
        if let Err(missing) = give_rust_toolchain(&m) {
            return skipped(&format!("building a crate inside rust_full: {missing}"));
        }
        m.write("app/Cargo.toml", "[package]\nname = \"fresh\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[dependencies]\nitoa = \"1\"\n");
        m.write("app/src/lib.rs", "pub fn text(n: u32) -> String { itoa::Buffer::new().format(n).to_owned() }\n#[test]\nfn works() { assert_eq!(text(7), \"7\"); }\n");
        let bin = m.home().join(".rustup/toolchains/test/bin");
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", bin.display());
        let script = "cargo build --offline && cargo test --offline && ! cat ~/.ssh/id_ed25519";
        m.write(".ssh/id_ed25519", SECRET);
        let mut command = m.command(clash());
        command.env("PATH", &path).args(["sandbox", "exec", "rust_full", "--", "sh", "-c", script]);
        let ran = Ran::of(&mut command).succeeds().says("test works ... ok");
        assert!(!ran.stdout.contains(SECRET));
        eventually("the build directory is there", || m.project().join("target/debug").exists());
    });
}

/// Gives the machine the toolchain that built these tests and one dependency, by hard links
/// if possible.
fn give_rust_toolchain(m: &Machine) -> Result<(), String> {
    let sysroot =
        Command::new("rustc").args(["--print", "sysroot"]).output().map_err(|e| e.to_string())?;
    let sysroot = String::from_utf8_lossy(&sysroot.stdout).trim().to_owned();
    let toolchain = m.home().join(".rustup/toolchains/test");
    for part in ["bin", "lib"] {
        copy_tree(m, &Path::new(&sysroot).join(part), &toolchain.join(part))
            .map_err(|e| e.to_string())?;
    }
    let cargo_home = std::env::var_os("CARGO_HOME")
        .map(Into::into)
        .or_else(|| std::env::home_dir().map(|h| h.join(".cargo")));
    let registry = cargo_home.ok_or("no cargo home")?.join("registry");
    for part in ["index", "cache"] {
        for source in std::fs::read_dir(registry.join(part)).map_err(|e| e.to_string())? {
            let source = source.map_err(|e| e.to_string())?;
            let to = m.home().join(".cargo/registry").join(part).join(source.file_name());
            let keep = |path: &Path| {
                let text = path.to_string_lossy();
                text.ends_with("config.json")
                    || text.ends_with("/it/oa/itoa")
                    || text.contains("/itoa-1")
            };
            copy_some(m, &source.path(), &to, &keep).map_err(|e| e.to_string())?;
        }
    }
    Ok(())
}

/// Links or copies a directory with everything below, except the sources of the standard
/// library.
fn copy_tree(m: &Machine, from: &Path, to: &Path) -> std::io::Result<()> {
    copy_some(m, from, to, &|path| !path.to_string_lossy().contains("/rustlib/src"))
}

/// Links or copies the files of a tree that `keep` selects. Directories are always made.
fn copy_some(
    m: &Machine,
    from: &Path,
    to: &Path,
    keep: &dyn Fn(&Path) -> bool,
) -> std::io::Result<()> {
    m.make_dir(to);
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy_some(m, &from, &to, keep)?;
        } else if keep(&from) && std::fs::hard_link(&from, &to).is_err() {
            copy_program(&from, &to);
        }
    }
    Ok(())
}

#[test]
fn a_refused_host_is_told_and_recorded() {
    as_each_user(|m| {
        let m = m.policy(
            "web = sandbox(name = \"web\", fs = {\"$PWD\": allow()}, net = [\"allowed.test\"])\n\
             settings(default = allow(), default_sandbox = web)",
        );
        let ran = m.clash(["sandbox", "exec", "web", "--", "getent", "hosts", "evil.test"]);
        assert!(
            ran.stderr.contains(
                "clash: getent → evil.test is not in sandbox `web`; allowed: allowed.test; to allow \
                 it: clash sandbox allow web host evil.test"
            ),
            "{ran:?}"
        );
        m.clash(["net", "web"]).succeeds().says("allow  allowed.test  ports 443, 80");
    });
}
