//! Programs that run a program of a package: `npx`, `uvx`, `pnpm dlx`, `bundle exec`.
//!
//! The runner has a rule of its own, so the program behind it only counts if its rule is
//! stricter. An option that is not known may have a value: then both readings count.

use super::super::ShellWord;
use super::{InnerCommand, RunnerCommands};

/// A runner, its subcommand for running, and its options with a value.
struct PackageRunner {
    program: &'static str,
    /// Empty: the program follows at once. More words: each of them in this order.
    subcommand: &'static [&'static str],
    valued: &'static [&'static str],
}

const fn runs(
    program: &'static str,
    subcommand: &'static [&'static str],
    valued: &'static [&'static str],
) -> PackageRunner {
    PackageRunner { program, subcommand, valued }
}

const NPM: &[&str] = &["-p", "--package", "-w", "--workspace", "--prefix", "--cache"];
const PNPM: &[&str] = &["-C", "--dir", "--package", "-F", "--filter"];
const UV: &[&str] = &[
    "--from",
    "--with",
    "-p",
    "--python",
    "--index",
    "--directory",
    "--project",
    "--extra",
    "--group",
    "--env-file",
    "--with-requirements",
    "--with-editable",
];

const RUNNERS: &[PackageRunner] = &[
    runs("npx", &[], NPM),
    runs("pnpx", &[], PNPM),
    runs("bunx", &[], &["-p", "--package"]),
    runs("npm", &["exec"], NPM),
    runs("npm", &["x"], NPM),
    runs("pnpm", &["dlx"], PNPM),
    runs("pnpm", &["exec"], PNPM),
    runs("pnpm", &[], PNPM),
    runs("yarn", &["dlx"], &["-p", "--package"]),
    runs("yarn", &["exec"], &["--cwd"]),
    runs("yarn", &["run"], &["--cwd"]),
    runs("yarn", &[], &["--cwd"]),
    runs("bun", &["x"], &["--cwd"]),
    runs("bun", &["run"], &["--cwd"]),
    runs("corepack", &[], &[]),
    runs("uvx", &[], UV),
    runs("uv", &["tool", "run"], UV),
    runs("uv", &["run"], UV),
    runs("pipx", &["run"], &["--spec", "--python", "--index-url", "--pip-args"]),
    runs("poetry", &["run"], &["-C", "--directory", "-P", "--project"]),
    runs("pipenv", &["run"], &[]),
    runs("hatch", &["run"], &[]),
    runs("pdm", &["run"], &["-p", "--project"]),
    runs("rye", &["run"], &[]),
    runs("bundle", &["exec"], &["--gemfile"]),
];

/// The programs that a runner of packages may run; `None` for other commands.
pub(super) fn look_through_package(name: &str, args: &[ShellWord]) -> Option<RunnerCommands> {
    let mut through = RunnerCommands { package: true, ..RunnerCommands::new("a package runner") };
    for runner in RUNNERS.iter().filter(|runner| runner.program == name) {
        runner.add_programs(args, &mut through);
    }
    (!through.inner.is_empty()).then_some(through)
}

impl PackageRunner {
    /// Adds the programs behind the options and the subcommand.
    fn add_programs(&self, args: &[ShellWord], through: &mut RunnerCommands) {
        let mut wanted = self.subcommand;
        let mut args = args;
        while let Some((word, rest)) = args.split_first() {
            let text = word.known().unwrap_or_default();
            args = rest;
            if text == "--" {
                continue;
            }
            if matches!(text, "-c" | "--call") {
                return through.inner.push(InnerCommand::text(rest.first()));
            }
            if text.starts_with('-') {
                let takes = !text.contains('=') && self.valued.contains(&text);
                if takes {
                    args = rest.get(1..).unwrap_or_default();
                } else if wanted.is_empty() && !text.contains('=') {
                    // Its value, if it has one, is not the program.
                    add_program(rest.get(1..).unwrap_or_default(), through);
                }
                continue;
            }
            match wanted.split_first() {
                Some((first, others)) if *first == text => wanted = others,
                Some(_) => return,
                None => return add_program(&[std::slice::from_ref(word), rest].concat(), through),
            }
        }
    }
}

/// Adds a program by the name of its package: `wrangler@3`, `@scope/name@1`, `twine==5.1`,
/// `twine[all]`. A package with a scope counts by its whole name and by the last part.
fn add_program(words: &[ShellWord], through: &mut RunnerCommands) {
    let Some((package, args)) = words.split_first() else { return };
    let Some(text) = package.known() else {
        return through.inner.push(InnerCommand::Hidden(super::UNKNOWN_PROGRAM));
    };
    let end = text.char_indices().skip(1).find(|(_, c)| matches!(c, '@' | '=' | '[' | '<' | '>'));
    let name = end.and_then(|(at, _)| text.get(..at)).unwrap_or(text);
    let last = name.strip_prefix('@').and_then(|scoped| scoped.split_once('/'));
    for name in [Some(name), last.map(|(_, last)| last)].into_iter().flatten() {
        let program = [ShellWord::Known(name.to_owned())];
        through.inner.push(InnerCommand::program(&[&program, args].concat()));
    }
}

#[cfg(test)]
mod tests {
    use crate::{CommandPosition, find_commands};

    /// The commands that a script runs from packages.
    fn behind(script: &str) -> Vec<String> {
        let is_package = |position: &CommandPosition| matches!(position, CommandPosition::Package);
        let commands = find_commands(script);
        let behind = commands.iter().filter(|command| command.position.iter().any(is_package));
        let line = |words: &[crate::ShellWord]| {
            words.iter().map(|word| word.known().unwrap_or("?")).collect::<Vec<_>>().join(" ")
        };
        behind.map(|command| line(&command.words)).collect()
    }

    #[test]
    fn the_program_behind_a_runner_is_seen() {
        for (script, program) in [
            ("npx vercel --prod", "vercel --prod"),
            ("npx --yes wrangler@3 deploy", "wrangler deploy"),
            ("npx -p prisma prisma migrate deploy", "prisma migrate deploy"),
            ("npm exec -- vercel deploy", "vercel deploy"),
            ("npm x vercel", "vercel"),
            ("npx -c 'npm publish'", "npm publish"),
            ("pnpm dlx vercel", "vercel"),
            ("pnpm --dir web exec wrangler publish", "wrangler publish"),
            ("yarn dlx netlify deploy", "netlify deploy"),
            ("yarn vercel", "vercel"),
            ("bunx vercel", "vercel"),
            ("bun x vercel", "vercel"),
            ("uvx twine==5.1 upload dist/x", "twine upload dist/x"),
            ("uvx --from twine twine upload x", "twine upload x"),
            ("uv tool run twine upload x", "twine upload x"),
            ("uv run --with twine twine upload x", "twine upload x"),
            ("pipx run twine upload x", "twine upload x"),
            ("corepack pnpm@9 publish", "pnpm publish"),
            ("bundle exec rake release", "rake release"),
            ("npx @scope/deploy@1 go", "deploy go"),
        ] {
            assert!(behind(script).contains(&program.to_owned()), "{script}: {:?}", behind(script));
        }
        assert!(behind("npx --new-option x vercel").contains(&"vercel".to_owned()));
        assert_eq!(behind("npm install vercel"), [] as [String; 0]);
        assert_eq!(behind("uv pip install twine"), [] as [String; 0]);
    }
}
