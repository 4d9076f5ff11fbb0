//! Compares the shell analysis with bash: every command that bash runs, the analysis has
//! either found or reported as unknown.

use std::collections::HashSet;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clash_shell::ShellWord;

use crate::support::{Machine, Who, program, skipped};

/// Pieces of scripts with a meaning to a shell, alone or together.
#[rustfmt::skip]
const PIECES: &[&str] = &[
    "evil", "evil", "evil", "ls", "git", "echo", "cat", "x", "A=1", "a+=1", "b=evil", "$b",
    "${b}", "$$", "$", "{", "}", "(", ")", "[", "]", "!", "`", "\"", "'", "\\", "\n", "\\\n",
    ";", "&&", "||", "|", "&", "|&", ";;", "<", ">", ">>", ">&", "<&", "2>&1", "2>", "<<",
    "<<<", "<(", ">(", "$(", "${", "$((", "))", "#", " #", " ", "\t", "*", "?", "~", "=", "+=",
    "-", "--", "time", "if", "then", "fi", "do", "done", "for", "in", "case", "esac",
    "function", "coproc", "{a,b}", "$'", "$\"", "[[", "]]", "1", "2", "@", "^", ":", "true",
    "printf", "-v", "test", "read", "export", "set", "-x", "PS4=$(evil)", "a[$(evil)]", "exec",
    "eval", "command", "\r", "é", "&>", "&>>", "<>", ">|", "{evil,}", "$IFS", "./evil",
    "ev''il", "ev\\il", "e*l", "$0", "$@", "$#", "$?", "${#b}", "${b:0}", "${!b}", "\\;", "\\&",
    "alias", "ls=evil", "trap", "PATH=.", "f(){ evil; }", "f", "env", "nice", "local", "declare",
    "-i", "readonly", "unset", "EOF", "<<EOF", "\nEOF\n", "((", "$[", "]=", "b[", "let", "xargs",
    "IFS=x", "b=exvil", "${b/x}", "${b:-evil}", "${c:=evil}", "$c", "return", "break", "sh -c",
];

/// Whole commands, with `@` for a program, `%` for a command, `&&&` for a list.
#[rustfmt::skip]
const SHAPES: &[&str] = &[
    "@", "@", "@ x", "@ \"a b\" c", "% && %", "% || %", "% | %", "% & wait", "! %", "time %",
    "(%)", "{ %; }", "(%; %)", "if %; then %; fi", "if %; then %; else %; fi",
    "for i in a b; do %; done", "for i in @; do $i; done", "case a in a) %;; b) %;; esac",
    "case $x in $(%)) ;; *) %;; esac", "f() { %; }; f", "f() { \"$@\"; }; f @",
    "function g { %; }; g x", "f() { $1; }; f @ y", "echo $(%)", "echo \"$(%)\"", "echo `%`",
    "x=$(%)", "x=`%` @", "cat <(%)", "% > >(cat)", "cat <<EOF\n$(%)\nEOF\n",
    "cat <<'EOF'\n$(evil)\nEOF\n", "cat <<-EOF\n\t`%`\n\tEOF\n", "cat <<A <<B\n$(%)\nA\n$(%)\nB\n",
    "cat <<< \"$(%)\"", "[[ -n $(%) ]]", "[[ a == b || -z $(%) ]] && %", "((1 + 1)) && %",
    "echo $((1 + $(echo 1; %)))", "echo ${x:-$(%)}", "echo \"${x:-`%`}\"", "a=(1 $(%)); echo ${a[0]}",
    "x=@; $x", "x='@ y'; $x", "x=@; y=$x; \"$y\"", "x=p; ${x}1", "x=@; eval \"$x\"", "eval '%'",
    "x=@; if true; then x=p4; fi; $x", "x=@; (x=p5); $x", "x=p1; true && x=@; $x",
    "x=p1; for i in 1 2; do $x; x=@; done", "f() { x=@; }; x=p1; f; $x",
    "f() { local x=@; $x; }; x=p1; f; $x", "x=p1; read x <<< @; $x", "x=p1; printf -v x @; $x",
    "x=@ eval '$x'", "readonly r=@; r=p1; $r", "env @", "env A=1 @ x", "env -i @", "nice @",
    "nice -n 5 @", "timeout 5 @", "nohup @", "command @", "exec @", "(exec @)", "builtin eval '%'",
    "sh -c '@ x'", "bash -c '%'", "bash -c '$0 x' @", "bash -c '\"$@\"' x @", "bash <<< '@'",
    "echo '@' | sh", "echo @ | bash", "echo x | xargs @", "echo @ | xargs -I{} {} x",
    "echo @ | xargs env", "find . -maxdepth 0 -exec @ {} \\;", "trap '@' EXIT", "trap '@' USR1; kill -USR1 $$",
    "shopt -s expand_aliases\nalias q=@\nq x", "shopt -s expand_aliases\nalias q='@ y; @'\nq x",
    "alias q=@\nq", "@() { p6; }; @", "@() { p6; }; command @", "(@() { p6; }); @", "unset -f f; @",
    "coproc @; wait", "coproc N { %; }; wait", "% > out", "% 2>&1 | cat", "> out %", "A=1 B=2 @",
    "p''1", "p\\1", "\"p1\"", "$'p1'", "p\\\n1", "{p1,x}", "{p1,p2}", "p?", "$(echo p1) x",
    "set -- @ x; \"$@\"", "set -- @ x; $1", "while read -r l; do $l; done <<< @",
    "while %; do break; done", "until %; do break; done", "select s in a; do %; break; done <<< 1",
    "for ((i=0; i<2; i++)); do %; done", "y=(@ z); \"${y[@]}\"", "y=@; ${y:-p1}", "${u:-@} x",
    "${u:=@}; $u", "v=@; w=v; ${!w}", "IFS=-; x=@-y; $x", "IFS=1; x=p1p1; $x", "x='$(evil)'; echo $x",
    "x='$(@)'; eval echo $x", "x='a[$(@)]'; echo $((x))", "x='a[$(@)]'; [[ x -eq 1 ]]",
    "x='a[$(@)]'; ((x))", "test -v 'a[$(@)]'", "x='a[$(@)]'; unset \"$x\"", "x='$(@)'; echo ${x@P}",
    "declare -i n; n='a[$(@)]'", "let 'x=a[$(@)]'", "x='a[$(@)]'; y=abc; echo ${y:x}", "z[$(%)]=1",
    "PS4='$(@)'; set -x; :", "printf -v 'a[$(@)]' x", "echo {$(%),x}", "echo \"a $(% \"q\") b\"",
    "echo $(case a in a) %;; esac)", "echo $(% # c )\n)", "echo \"${x:+$(%)}\"", "x=1; echo \"${x:+$(%)}\"",
    "f() { return; x=p1; }; x=@; f; $x", "f() { x=@; return; x=p1; }; x=p1; f; $x",
    "for i in 1; do x=@; break; x=p1; done; $x", "x=@\ny=$x z=$y\n$z", "x=@; x=p1 $x", "x=p1; x+=\"\"; x=@; $x",
    "false || { %; %; }", "true && (%) || %", "%; %", "%\n%", "% # %", "echo '%'", "\\\n%", ": \"$(%)\"",
    "a=b; case $a in b) x=@;; esac; $x", "x=; $x @", "x=; \"$x\" @", "set -f; x='@ *'; $x",
    "GIT_PAGER=@ git", "BASH_ENV=./be bash -c :", "PATH=.:$PATH; %", "exec 3< <(%)", "cat < <(%)",
    "echo a | while read -r q; do %; done", "{ %; } | { %; }", "cat <<EOF | sh\n@\nEOF\n",
    "cat <<'EOF' | bash\nif true; then @; fi\nEOF\n", "bash -s x <<'EOF'\n@ $1\nEOF\n", ". /dev/stdin <<< @",
];

/// Programs that write their name to a file and do nothing else.
const STUBS: &[&str] = &["evil", "ls", "git", "p1", "p2", "p3", "p4", "p5", "p6"];
/// Real programs that run other programs.
const REAL: &[&str] =
    &["sh", "bash", "env", "nice", "timeout", "nohup", "xargs", "find", "cat", "rm"];

/// A small generator, so that a failure can be repeated from its seed.
struct Random(u64);

impl Random {
    /// A number from 0 up to, not including, `end`.
    fn below(&mut self, end: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }

    /// A random script: pieces in a row, a nested shape, or several shapes with a little
    /// damage.
    fn script(&mut self) -> String {
        match self.below(3) {
            0 => self.soup(),
            1 => self.shaped(2),
            _ => {
                let mut script = self.shaped(1);
                for _ in 0..self.below(3) {
                    script += ["; ", "\n", " && ", " | ", " || "][self.below(5)];
                    script += &self.shaped(1);
                }
                // A little damage, anywhere.
                if self.below(4) == 0 {
                    let places: Vec<usize> = script.char_indices().map(|(at, _)| at).collect();
                    let at = places[self.below(places.len())];
                    script.insert_str(at, PIECES[self.below(PIECES.len())]);
                }
                script
            }
        }
    }

    /// Random pieces of shell syntax in a row.
    fn soup(&mut self) -> String {
        let mut script = ["ls ", "git ", "echo ", ""][self.below(4)].to_owned();
        for _ in 0..1 + self.below(9) {
            script += PIECES[self.below(PIECES.len())];
            script += ["", " ", " "][self.below(3)];
        }
        script
    }

    /// A random shape with stub programs in it, and other shapes up to this depth.
    fn shaped(&mut self, depth: usize) -> String {
        let shape = loop {
            let shape = SHAPES[self.below(SHAPES.len())];
            if depth > 0 || !shape.contains('%') {
                break shape;
            }
        };
        let mut script = String::new();
        for c in shape.chars() {
            match c {
                '@' if !shape.contains("$@") && !shape.contains("[@]") && !shape.contains("@P") => {
                    script += STUBS[3 + self.below(6)];
                }
                '@' if script.ends_with(['$', '[', 'x']) => script.push('@'),
                '@' => script += STUBS[3 + self.below(6)],
                '%' => script += &self.shaped(depth - 1),
                c => script.push(c),
            }
        }
        script
    }
}

/// The programs that the analysis found; `None` if it reports an unknown one.
fn seen(script: &str) -> Option<Vec<String>> {
    let mut names = Vec::new();
    for command in clash_shell::find_commands(script) {
        if command.opaque.is_some() {
            return None;
        }
        match command.words.first().map(ShellWord::known) {
            None => {}
            Some(None) => return None,
            Some(Some(program)) => {
                names.push(program.rsplit('/').next().unwrap_or(program).to_owned());
            }
        }
    }
    Some(names)
}

/// A directory for one thread, with its stub programs and their output.
struct Place {
    bin: PathBuf,
    work: PathBuf,
    ran: PathBuf,
}

impl Place {
    /// Makes the stub programs, and links to the real ones.
    fn new(m: &Machine, index: usize) -> Self {
        let base = m.home().join(format!("t{index}"));
        let ran = base.join("ran");
        for name in STUBS {
            let stub = format!("#!/bin/sh\necho {name} >> {}\n", ran.display());
            let path = m.home().join(format!("t{index}/bin/{name}"));
            m.make_dir(path.parent().unwrap());
            program(path, &stub);
        }
        for name in REAL {
            let found = ["/usr/bin", "/bin"].map(|dir| Path::new(dir).join(name));
            if let Some(real) = found.into_iter().find(|path| path.exists()) {
                symlink(real, base.join("bin").join(name)).unwrap();
            }
        }
        let work = base.join("work");
        m.make_dir(&work);
        Self { bin: base.join("bin"), work, ran }
    }

    /// The programs that bash runs.
    fn run(&self, oracle: &str, script: &str) -> Vec<String> {
        let mut bash = Command::new("timeout");
        bash.args(["-s", "KILL", "10", oracle, "-c", &format!("{script}\nwait")]);
        bash.env("PATH", &self.bin).current_dir(&self.work).stdin(Stdio::null());
        for name in ["BASH_ENV", "ENV", "IFS", "CDPATH", "x", "u", "b", "c"] {
            bash.env_remove(name);
        }
        bash.output().unwrap();
        let ran = std::fs::read_to_string(&self.ran).unwrap_or_default();
        if !ran.is_empty() {
            std::fs::remove_file(&self.ran).unwrap();
        }
        ran.lines().map(str::to_owned).collect()
    }
}

#[test]
fn bash_runs_nothing_that_the_analysis_has_not_seen() {
    let shells = ["/bin/bash", "/usr/bin/bash"];
    let Some(oracle) = shells.into_iter().find(|path| Path::new(path).exists()) else {
        return skipped("the oracle of the shell analysis, because there is no bash");
    };
    let number = |name: &str| std::env::var(name).ok().and_then(|s| s.parse::<u64>().ok());
    let scripts = number("CLASH_TEST_SCRIPTS").unwrap_or(20_000);
    let seed = number("CLASH_TEST_SEED").unwrap_or(20_261_115);
    let m = Machine::new(Who::Me);
    let threads = std::thread::available_parallelism().map_or(2, |n| n.get().min(8)) as u64;
    let misses: Vec<(u64, u64, Vec<String>)> = std::thread::scope(|scope| {
        let run = |index: u64| {
            let place = Place::new(&m, index as usize);
            scope.spawn(move || {
                let mut random = Random(seed.wrapping_add(index * 7_919));
                let (mut asked, mut ran_any, mut misses) = (0, 0, Vec::new());
                let mut different = HashSet::new();
                for _ in 0..scripts / threads {
                    let script = random.script();
                    if !different.insert(script.clone()) {
                        continue;
                    }
                    let Some(seen) = seen(&script) else { continue };
                    asked += 1;
                    let ran = place.run(oracle, &script);
                    ran_any += u64::from(!ran.is_empty());
                    if let Some(missed) = ran.iter().find(|name| !seen.contains(name)) {
                        misses.push(format!("{missed} in {script:?}"));
                    }
                }
                (asked, ran_any, misses)
            })
        };
        let handles: Vec<_> = (0..threads).map(run).collect();
        handles.into_iter().map(|handle| handle.join().unwrap()).collect()
    });
    let missed: Vec<&String> = misses.iter().flat_map(|(_, _, missed)| missed).collect();
    let missed: Vec<&str> = missed.iter().map(|text| text.as_str()).collect();
    assert!(missed.is_empty(), "not seen (seed {seed}):\n{}", missed.join("\n"));
    let asked: u64 = misses.iter().map(|(asked, _, _)| asked).sum();
    let ran: u64 = misses.iter().map(|(_, ran, _)| ran).sum();
    assert!(asked > scripts / 5, "only {asked} of {scripts} scripts reached bash");
    assert!(ran > scripts / 10, "only {ran} of {scripts} scripts ran a program");
}
