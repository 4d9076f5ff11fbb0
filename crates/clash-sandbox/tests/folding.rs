//! Names on filesystems that fold case, on a real kernel in a virtual machine: ext4 with
//! `casefold`, and vfat. Few machines have such a filesystem mounted, so the test boots
//! Debian's 6.12 kernel with `tests/vm/boot.sh` and two images.
//!
//! Runs with `CLASH_NIGHTLY=1`: without hardware virtualisation a boot takes a minute.
#![cfg(target_os = "linux")]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "a test fails by panicking and says what it skips"
)]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Boots a kernel under qemu.
const BOOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/vm/boot.sh");

/// What the root directory and the images are made with.
const TOOLS: [&str; 7] =
    ["qemu-system-x86_64", "busybox", "cpio", "mkfs.ext4", "mkfs.vfat", "debugfs", "xz"];

/// Modules of the kernel, in the order in which they load.
const MODULES: [&str; 7] = [
    "drivers/block/loop",
    "fs/nls/nls_cp437",
    "fs/nls/nls_iso8859-1",
    "fs/nls/nls_utf8",
    "fs/nls/nls_ascii",
    "fs/fat/fat",
    "fs/fat/vfat",
];

/// Runs as root in the virtual machine. Each line of the output starts with the name of
/// a filesystem. At the end the attack runs once more without a sandbox, as a control.
const BOOTED: &str = r#"#!/bin/sh
for module in loop nls_cp437 nls_iso8859-1 nls_utf8 nls_ascii fat vfat; do
    insmod /images/$module.ko || exit 2
done
mkdir -p /home/u/ext4 /home/u/vfat
mount -t ext4 -o loop /images/ext4 /home/u/ext4 || exit 3
mount -t vfat -o loop,uid=1000,gid=1000 /images/vfat /home/u/vfat || exit 4
mkdir -p /home/u/vfat/p
for fs in ext4 vfat; do
    cd /home/u/$fs/p
    mkdir -p .git/hooks .git/objects .git/refs
    echo 'ref: refs/heads/main' > .git/HEAD; echo > .git/config; echo safe > .envrc
    [ -e .ENVRC ] && echo "$fs folds"
done
chown -R 1000:1000 /home/u 2>/dev/null
cat > /attack <<'S'
for name in .ENVRC .Envrc .GIT/hooks/pre-commit .git/HOOKS/post-checkout .Git/Config \
    .VSCODE/tasks.json .Mcp.JSON .gIt/hEaD; do
    mkdir -p $(dirname $name) 2>/dev/null
    echo bad 2>/dev/null >> $name && echo "$1 $2 writes $name"
    echo bad > x; mv x $name 2>/dev/null && echo "$1 $2 renames to $name"
    ln x $name 2>/dev/null && echo "$1 $2 links $name"
    rm -f x
done
mv .GIT away 2>/dev/null && echo "$1 $2 renames .GIT"
rm -rf .GIT 2>/dev/null
mkdir Src && echo good > Src/Main.rs && mv Src/Main.rs README.MD && rm README.MD &&
    rmdir Src && echo "$1 $2 works"
S
cat > /each <<'S'
cd /home/u/$1/p
inside="--rw $PWD --project $PWD --home /home/u"
room $inside -- /bin/sh /bin/attack $1 room
room $inside --simulate no-userns -- /bin/sh /bin/attack $1 watched
grep -q safe .envrc && [ "$(cat .git/HEAD)" = 'ref: refs/heads/main' ] && [ -d .git/hooks ] &&
    [ -z "$(grep -r bad .)" ] && echo "$1 is whole"
sh /bin/attack $1 bare
S
cp /attack /bin/attack
for fs in ext4 vfat; do su u -c "sh /each $fs" 2>&1; done
"#;

#[test]
fn protected_names_are_refused_in_any_case_on_folding_volumes() {
    let said = match boot() {
        Ok(said) => said,
        Err(missing) => return eprintln!("SKIPPED ({missing}): filesystems that fold case"),
    };
    let has = |line: &str| said.lines().any(|other| other == line);
    for fs in ["ext4", "vfat"] {
        assert!(has(&format!("{fs} folds")), "{said}");
        for tier in ["room", "watched"] {
            assert!(has(&format!("{fs} {tier} works")), "{said}");
        }
        assert!(has(&format!("{fs} is whole")), "{said}");
        let done = |line: &&str| {
            let attacks = ["writes", "renames", "links"];
            let mut words = line.split(' ');
            words.next() == Some(fs)
                && words.next().is_some_and(|tier| tier != "bare")
                && words.next().is_some_and(|word| attacks.contains(&word))
        };
        assert_eq!(said.lines().find(done), None, "{said}");
        for attack in ["writes .ENVRC", "writes .Git/Config", "renames .GIT"] {
            assert!(has(&format!("{fs} bare {attack}")), "{said}");
        }
    }
}

/// The output of the script, or the reason why there is none.
fn boot() -> Result<String, String> {
    if std::env::var_os("CLASH_NIGHTLY").is_none() {
        return Err("without CLASH_NIGHTLY=1".to_owned());
    }
    let missing = |tool: &&&str| !Path::new("/usr/sbin").join(tool).exists() && !on_path(tool);
    if let Some(tool) = TOOLS.iter().find(missing) {
        return Err(format!("no {tool}"));
    }
    let kernel = kernel()?;
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    furnish(&root, &kernel);
    let script = dir.path().join("script");
    fs::write(&script, BOOTED).unwrap();
    let mut boot = Command::new("bash");
    boot.arg(BOOT).args(["--timeout", "900", "--kernel"]).arg(image_of(&kernel).unwrap());
    boot.arg("--root").arg(&root).arg(&script).current_dir(dir.path());
    let output = boot.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}: {said}", output.status);
    Ok(said)
}

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).exists())
}

/// Debian's 6.12 kernel, unpacked. Fetched once.
fn kernel() -> Result<PathBuf, String> {
    let set = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let user = || set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
    let cache = set("VM_CACHE").or_else(|| Some(user()?.join("clash-vm")));
    let cache = cache.ok_or("no directory to keep a kernel in")?.join("6.12");
    if image_of(&cache).is_none() {
        let fetch = r#"mkdir -p "$0" && cd "$0" || exit 1
            package=$(apt-cache search --names-only \
                '^linux-image-6\.12\.[0-9]+\+deb12-cloud-amd64-unsigned$' |
                sort -V | tail -n 1 | cut -d' ' -f1)
            [ -n "$package" ] && apt-get download -qq "$package" &&
                dpkg -x linux-image-*.deb . && rm linux-image-*.deb"#;
        let fetched = Command::new("sh").args(["-c", fetch]).arg(&cache).output();
        fetched.map_err(|error| format!("no Debian to fetch a kernel from: {error}"))?;
    }
    image_of(&cache).map(|_| cache).ok_or_else(|| "no kernel 6.12 can be fetched".to_owned())
}

/// The kernel image in an unpacked package, if it is there.
fn image_of(kernel: &Path) -> Option<PathBuf> {
    let boot = fs::read_dir(kernel.join("boot")).ok()?;
    let mut files = boot.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    files.find(|file| {
        file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz"))
    })
}

/// Fills the root directory: the program `room` with its libraries, the modules, and an
/// image of each filesystem.
fn furnish(root: &Path, kernel: &Path) {
    let make = r#"set -e
        mkdir -p bin lib64 images seed/p; chown 1000:1000 seed/p 2>/dev/null || true
        cp "$0" bin/room
        for library in $(ldd "$0" | grep -o '/[^ ]*'); do
            mkdir -p ".$(dirname "$library")"; cp -L "$library" ".$library"
        done
        for module in $2; do
            xz -dc "$1"/lib/modules/*/kernel/$module.ko.xz > images/$(basename $module).ko
        done
        truncate -s 16M images/ext4 images/vfat
        PATH=$PATH:/usr/sbin:/sbin
        mkfs.ext4 -q -O casefold -E encoding=utf8 -d seed images/ext4
        # A directory takes the flag while it is empty: FS_CASEFOLD_FL and extents.
        debugfs -w -R 'sif /p flags 0x40080000' images/ext4 2>/dev/null
        mkfs.vfat images/vfat >/dev/null
        rm -r seed"#;
    fs::create_dir(root).unwrap();
    let mut command = Command::new("bash");
    command.args(["-c", make]).arg(support::room()).arg(kernel).arg(MODULES.join(" "));
    let made = command.current_dir(root).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}
