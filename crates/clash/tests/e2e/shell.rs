//! Bash is the oracle of the shell analysis: what it runs, the analysis has seen
//! or has said that it does not know.

use std::process::{Command, Stdio};

use clash_policy::shell::{self, Word};

use crate::support::{Machine, Who, skipped};

/// Pieces that mean something to a shell, alone or run together.
#[rustfmt::skip]
const PIECES: &[&str] = &[
    "evil", "evil", "evil", "ls", "git", "echo", "cat", "x", "A=1", "a+=1", "b=evil", "$b",
    "${b}", "$$", "$", "{", "}", "(", ")", "[", "]", "!", "`", "\"", "'", "\\", "\n", "\\\n",
    ";", "&&", "||", "|", "&", "|&", ";;", "<", ">", ">>", ">&", "<&", "2>&1", "2>", "<<",
    "<<<", "<(", ">(", "$(", "${", "$((", "))", "#", " #", " ", "\t", "*", "?", "~", "=", "+=",
    "-", "--", "time", "if", "then", "fi", "do", "done", "for", "in", "while", "case", "esac",
    "function", "coproc", "{a,b}", "$'", "$\"", "[[", "]]", "1", "2", "@", "^", ":", "true",
    "printf", "-v", "test", "read", "export", "set", "-x", "PS4=$(evil)", "a[$(evil)]", "exec",
    "eval", "command", "\r", "é", "&>", "&>>", "<>", ">|", "{evil,}", "$IFS", "./evil",
    "ev''il", "ev\\il", "e*l", "$0", "$@", "$#", "$?", "${#b}", "${b:0}", "${!b}", "\\;", "\\&",
    "alias", "ls=evil", "trap", "PATH=.",
];

/// A small generator, so that a failure can be repeated from its seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }

    fn script(&mut self) -> String {
        let mut script = ["ls ", "git ", "echo ", ""][self.below(4)].to_owned();
        for _ in 0..1 + self.below(9) {
            script += PIECES[self.below(PIECES.len())];
            script += ["", " ", " "][self.below(3)];
        }
        script
    }
}

/// Whether the analysis says that nothing but other programs runs.
fn says_harmless(script: &str) -> bool {
    shell::commands(script).iter().all(|command| {
        let program = command.words.first().map(Word::known);
        let known = program.is_none_or(|p| p.is_some_and(|p| p.rsplit('/').next() != Some("evil")));
        command.opaque.is_none() && (known || shell::is_inert(command))
    })
}

#[test]
fn bash_runs_nothing_that_the_analysis_has_not_seen() {
    let shells = ["/bin/bash", "/usr/bin/bash"];
    let Some(oracle) = shells.into_iter().find(|path| std::path::Path::new(path).exists()) else {
        return skipped("the oracle of the shell analysis, because there is no bash");
    };
    const SCRIPTS: usize = 6000;
    let m = Machine::new(Who::Me);
    let (bin, work) = (m.home().join("bin"), m.home().join("work"));
    let ran = m.home().join("ran");
    for (name, body) in [
        ("evil", format!("echo x >> {}", ran.display())),
        ("ls", String::new()),
        ("git", String::new()),
        ("cat", String::new()),
    ] {
        let path = m.write(format!("bin/{name}"), &format!("#!/bin/sh\n{body}\n"));
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    m.make_dir(&work);
    let mut random = Random(
        std::env::var("CLASH_TEST_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(20_261_115),
    );
    let mut asked = 0;
    for _ in 0..SCRIPTS {
        let seed = random.0;
        let script = random.script();
        if !says_harmless(&script) {
            continue;
        }
        asked += 1;
        let mut bash = Command::new(oracle);
        bash.env_clear().env("PATH", &bin).env("HOME", m.home()).current_dir(&work);
        bash.args(["-c", &format!("{script}\nwait")]).stdin(Stdio::null()).output().unwrap();
        assert!(
            !ran.exists(),
            "bash ran a program the analysis did not see in {script:?} (seed {seed})"
        );
    }
    assert!(asked > SCRIPTS / 20, "only {asked} scripts reached bash");
}
