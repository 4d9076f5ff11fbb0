//! The AppArmor profile that `clash doctor --fix` installs. On Ubuntu 24.04 and later,
//! AppArmor takes away the capabilities of a new user namespace unless a profile of the
//! program permits them.
//!
//! Doctor looks at the kernel's setting only after the launcher has failed to make a room:
//! the setting explains the failure.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clash_sandbox::facts::{HostFacts, RoomSupport};

use super::super::unless_closed;
use crate::dirs::Dirs;
use crate::exit;
use crate::remedy::Remedy;
use crate::replace_file::replace;
use crate::ui::{CommandOutput, Failure, confirm};

/// The root directory and the AppArmor parser. Each test has its own.
pub(super) struct AppArmorSystem {
    root: PathBuf,
    parser: PathBuf,
}

const PROFILE: &str = "etc/apparmor.d/clash";
const RESTRICTION: &str = "proc/sys/kernel/apparmor_restrict_unprivileged_userns";

impl AppArmorSystem {
    /// This machine's root directory and parser.
    pub(super) fn own() -> Self {
        Self { root: "/".into(), parser: "apparmor_parser".into() }
    }

    /// True if this host has no rooms and AppArmor restricts user namespaces: then AppArmor
    /// is the likely reason.
    pub(super) fn explains(&self, host: &HostFacts) -> bool {
        let restricted = fs::read_to_string(self.root.join(RESTRICTION));
        matches!(host.rooms, RoomSupport::Impossible { .. })
            && restricted.is_ok_and(|value| value.trim() == "1")
    }

    fn profile(&self) -> PathBuf {
        self.root.join(PROFILE)
    }

    /// Writes the profile with mode 644 and loads it. A second call changes nothing.
    fn install(&self, text: &str) -> Result<(), Failure> {
        let file = self.profile();
        let cannot =
            |error: io::Error| Failure::new(format!("cannot write {}: {error}", file.display()));
        let there = fs::read_to_string(&file).unwrap_or_default();
        replace(&file, &there, text).map_err(cannot)?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).map_err(cannot)?;
        self.load(Command::new(&self.parser))
    }

    /// Runs the parser to load the profile from the file.
    fn load(&self, mut parser: Command) -> Result<(), Failure> {
        let output = parser.arg("-r").arg(self.profile()).stdin(Stdio::null()).output();
        let output = output.map_err(|error| {
            Failure::new(format!("cannot run apparmor_parser: {error}"))
                .hint("it comes with the package `apparmor`")
        })?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(Failure::new(format!("apparmor_parser refuses the profile: {}", said.trim())))
    }

    /// Installs the profile with `sudo`, which asks for the password.
    fn install_with_sudo(&self, text: &str) -> Result<(), Failure> {
        let mut tee = Command::new("sudo");
        tee.arg("tee").arg(self.profile()).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = tee.spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(text.as_bytes())?;
        }
        if !child.wait()?.success() {
            return Err(Failure::new(format!("{} was not written", self.profile().display())));
        }
        let mut parser = Command::new("sudo");
        parser.arg(&self.parser);
        self.load(parser)
    }
}

/// The programs that make rooms: this one, and the copy that agents call.
pub(super) fn programs(dirs: &Dirs) -> Vec<PathBuf> {
    let own = std::env::current_exe().ok().and_then(|path| path.canonicalize().ok());
    let mut programs: Vec<PathBuf> = own.into_iter().collect();
    let installed = dirs.installed("clash");
    if !programs.contains(&installed) {
        programs.push(installed);
    }
    programs
}

/// A profile that permits user namespaces and confines nothing else: clash confines the
/// commands.
fn profile(programs: &[PathBuf]) -> Result<String, Failure> {
    let mut text = "# Lets clash make the user namespaces that its rooms are made of.\n\
                    # Written by `clash doctor --fix`.\n\
                    abi <abi/4.0>,\n\
                    include <tunables/global>\n"
        .to_owned();
    for (number, program) in programs.iter().enumerate() {
        let name = if number == 0 { "clash".to_owned() } else { format!("clash-{number}") };
        let path = attachment(program)?;
        text.push_str(&format!("\nprofile {name} {path} flags=(unconfined) {{\n  userns,\n}}\n"));
    }
    Ok(text)
}

/// The path as a quoted literal in AppArmor's language. Fails for control characters and text
/// that is not UTF-8.
fn attachment(path: &Path) -> Result<String, Failure> {
    let text = path.to_str().filter(|text| !text.contains(|c: char| c.is_control()));
    let Some(text) = text else {
        return Err(Failure::new(format!("no profile can name {}", path.display()))
            .hint("install clash under a path of plain letters"));
    };
    let mut quoted = String::from("\"");
    for c in text.chars() {
        if matches!(c, '\\' | '"' | '*' | '?' | '[' | ']' | '{' | '}' | '^' | ',' | '@') {
            quoted.push('\\');
        }
        quoted.push(c);
    }
    quoted.push('"');
    Ok(quoted)
}

/// The shell commands that write and load the profile with sudo.
fn commands(file: &Path, text: &str) -> String {
    let file = file.display();
    format!("sudo tee {file} <<'END'\n{text}END\nsudo apparmor_parser -r {file}\n")
}

/// The options of `clash doctor --fix`.
#[derive(Clone, Copy, Debug)]
pub(super) struct FixOptions {
    pub(super) dry_run: bool,
    pub(super) yes: bool,
}

/// Runs `clash doctor --fix`: explains and shows the commands; then root installs the profile
/// at once, and other users with sudo after a yes. Fails if AppArmor is not the reason, or if
/// it cannot ask.
pub(super) fn fix(
    out: &mut CommandOutput,
    system: &AppArmorSystem,
    host: &HostFacts,
    programs: &[PathBuf],
    how: FixOptions,
) -> Result<u8, Failure> {
    let why = match &host.rooms {
        RoomSupport::Impossible { why } => why,
        RoomSupport::Unprivileged | RoomSupport::Root => {
            return unless_closed(out.line("nothing to fix: rooms can be made on this machine"));
        }
    };
    if !system.explains(host) {
        return Err(Failure::new(format!("rooms cannot be made here: {why}")).hint(format!(
            "AppArmor is not the reason, so it cannot be fixed here; `{}` says more",
            Remedy::Doctor
        )));
    }
    let text = profile(programs)?;
    let file = system.profile();
    unless_closed(print_explanation(out, why, &file, &text))?;
    if how.dry_run {
        return Ok(exit::OK);
    }
    if rustix::process::geteuid().is_root() {
        system.install(&text)?;
    } else if how.yes || io::stdin().is_terminal() {
        if !how.yes && !confirm("Run these commands now?")? {
            return Err(Failure::new("nothing was changed"));
        }
        system.install_with_sudo(&text)?;
    } else {
        return Err(Failure::new("nothing was changed: only root can install the profile")
            .hint(format!("run the commands above, or `{}` in a terminal", Remedy::DoctorFix)));
    }
    unless_closed(out.line(format!("The profile is loaded. `{}` looks again.", Remedy::Doctor)))
}

/// Prints the reason and the commands.
fn print_explanation(
    out: &mut CommandOutput,
    why: &str,
    file: &Path,
    text: &str,
) -> io::Result<()> {
    out.line(format!(
        "AppArmor forbids this user the user namespaces that rooms need ({why}).\n\
         A profile permits them for clash alone. To install it:\n"
    ))?;
    for line in commands(file, text).lines() {
        out.line(format!("  {line}").trim_end())?;
    }
    out.line(
        "\nA process that can replace the programs named there gets the same permission;\n\
         sandboxed commands cannot replace them.\n",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn system(restricted: &str, parser: &str) -> (tempfile::TempDir, AppArmorSystem) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().to_path_buf();
        for path in [PROFILE, RESTRICTION] {
            fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
        }
        fs::write(root.join(RESTRICTION), restricted).unwrap();
        let stub = root.join("parser");
        let text = format!("#!/bin/sh\necho \"$@\" >> {}/calls\n{parser}\n", root.display());
        // Another process writes the file. A child of another test would inherit a file
        // open for writing here, and `execve` would fail with ETXTBSY.
        let write = r#"printf %s "$1" > "$0" && chmod 755 "$0""#;
        let mut shell = Command::new("sh");
        assert!(shell.args(["-c", write]).arg(&stub).arg(text).status().unwrap().success());
        (dir, AppArmorSystem { root, parser: stub })
    }

    fn roomless() -> HostFacts {
        let why = "the user's identity in the new namespace: Operation not permitted".to_owned();
        HostFacts { rooms: RoomSupport::Impossible { why }, ..HostFacts::bare() }
    }

    #[test]
    fn only_a_room_that_failed_is_blamed_on_apparmor() {
        let (_dir, restricted) = system("1\n", "");
        let (_dir, open) = system("0\n", "");
        assert!(restricted.explains(&roomless()));
        assert!(!open.explains(&roomless()));
        assert!(
            !restricted
                .explains(&HostFacts { rooms: RoomSupport::Unprivileged, ..HostFacts::bare() })
        );
    }

    #[test]
    fn the_profile_names_the_programs_and_permits_one_thing() {
        let programs = ["/usr/bin/clash".into(), "/home/a b/{x}/clash".into()];
        insta::assert_snapshot!(profile(&programs).unwrap(), @r#"
        # Lets clash make the user namespaces that its rooms are made of.
        # Written by `clash doctor --fix`.
        abi <abi/4.0>,
        include <tunables/global>

        profile clash "/usr/bin/clash" flags=(unconfined) {
          userns,
        }

        profile clash-1 "/home/a b/\{x\}/clash" flags=(unconfined) {
          userns,
        }
        "#);
        assert!(profile(&["/home/a\n/clash".into()]).is_err());
    }

    #[test]
    fn the_commands_can_be_typed_as_they_stand() {
        let text = profile(&["/usr/bin/clash".into()]).unwrap();
        insta::assert_snapshot!(commands(Path::new("/etc/apparmor.d/clash"), &text), @r#"
        sudo tee /etc/apparmor.d/clash <<'END'
        # Lets clash make the user namespaces that its rooms are made of.
        # Written by `clash doctor --fix`.
        abi <abi/4.0>,
        include <tunables/global>

        profile clash "/usr/bin/clash" flags=(unconfined) {
          userns,
        }
        END
        sudo apparmor_parser -r /etc/apparmor.d/clash
        "#);
    }

    #[test]
    fn installing_writes_the_file_loads_it_and_may_be_repeated() {
        let (dir, system) = system("1", "");
        for round in 1..=2 {
            system.install("text\n").unwrap();
            assert_eq!(fs::read_to_string(system.profile()).unwrap(), "text\n");
            let calls = fs::read_to_string(dir.path().join("calls")).unwrap();
            assert_eq!(calls, format!("-r {}\n", system.profile().display()).repeat(round));
        }
        let files = fs::read_dir(system.profile().parent().unwrap()).unwrap();
        assert_eq!(files.count(), 1);
        let mode = fs::metadata(system.profile()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o644);
    }

    #[test]
    fn what_the_parser_says_is_passed_on() {
        let (_dir, refusing) = system("1", "echo 'syntax error' >&2; exit 1");
        let failure = refusing.install("text").unwrap_err();
        assert_eq!(failure.message, "apparmor_parser refuses the profile: syntax error");
        let (_dir, mut missing) = system("1", "");
        missing.parser = "/nonexistent/apparmor_parser".into();
        assert!(missing.install("text").unwrap_err().hint.is_some());
    }
}
