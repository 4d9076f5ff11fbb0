//! `clash request`: an agent asks for one more right for one command, through its own prompt.
//!
//! The hook reads the line, decides the command in it, and answers with a question to the
//! user. If the user says yes, the client runs the command itself, and the slip gives the
//! right to that one run. The command has a mark at its end, a comment, so that the slip
//! belongs to no other run of the same command.

use std::path::Path;

use clash_agents::HookAnswer;
use clash_policy::{Action, Effect};
use clash_shell::{ShellWord, command_line, find_commands};

use super::launcher_line::LaunchWay;
use super::{HookCall, HookError};
use crate::approval::random_name;
use crate::blocks::file_block;
use crate::rights::{ExtraRight, absolute};
use crate::say;

/// A request for rights, for one command.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RightRequest {
    pub(super) rights: Vec<ExtraRight>,
    /// The command, as a line for a shell.
    pub(super) command: String,
}

/// The way to write a request.
pub(super) const USAGE: &str =
    "clash request [--read PATH] [--write PATH] [--exec PATH] [--host HOST] -- COMMAND";

impl RightRequest {
    /// Reads a script that is one request and nothing else. `None` for other scripts; an
    /// error for a request that cannot be read.
    pub(super) fn read(script: &str, cwd: &Path, home: &Path) -> Result<Option<Self>, HookError> {
        if !script.trim_start().contains("clash request") {
            return Ok(None);
        }
        let commands = find_commands(script);
        let is_request = |words: &[ShellWord]| {
            let known: Vec<Option<&str>> = words.iter().take(2).map(ShellWord::known).collect();
            let program = known.first().copied().flatten().and_then(|it| it.rsplit('/').next());
            program == Some("clash") && known.get(1) == Some(&Some("request"))
        };
        if !commands.iter().any(|command| is_request(&command.words)) {
            return Ok(None);
        }
        let [command] = commands.as_slice() else { return Err(HookError::Request) };
        if !command.redirections.is_empty() || !command.assignments.is_empty() {
            return Err(HookError::Request);
        }
        let text = |word: &ShellWord| match word {
            ShellWord::Known(text) => Some(text.clone()),
            ShellWord::Home(below) => Some(format!("{}{below}", home.display())),
            ShellWord::Partial(_) | ShellWord::Unknown => None,
        };
        let words: Option<Vec<String>> = command.words.iter().skip(2).map(text).collect();
        let words = words.ok_or(HookError::Request)?;
        Self::of_words(&words, cwd, home).map(Some).ok_or(HookError::Request)
    }

    /// Reads the words after `clash request`: at least one option with its value, then `--`
    /// and the command. `None` if anything else is there. Makes paths absolute from `cwd`.
    fn of_words(words: &[String], cwd: &Path, home: &Path) -> Option<Self> {
        let dashes = words.iter().position(|word| word == "--")?;
        let (options, command) = words.split_at_checked(dashes)?;
        let command = command.get(1..).filter(|command| !command.is_empty())?;
        let mut rights = Vec::new();
        let mut options = options.iter();
        while let Some(option) = options.next() {
            let (name, value) = match option.split_once('=') {
                Some((name, value)) => (name, value.to_owned()),
                None => (option.as_str(), options.next()?.clone()),
            };
            let path = || absolute(&value, cwd, home);
            rights.push(match name {
                "--read" => ExtraRight::Read(path()),
                "--write" => ExtraRight::Change(path()),
                "--exec" => ExtraRight::Execute(path()),
                "--host" => ExtraRight::Host(value.clone()),
                _ => return None,
            });
        }
        (!rights.is_empty()).then(|| Self { rights, command: command_line(command) })
    }

    /// The rights in words, for example `` read `~/.npmrc` and reach `docs.rs` ``.
    fn words(&self, home: &Path) -> String {
        let words: Vec<String> = self.rights.iter().map(|right| right.words(home)).collect();
        words.join(" and ")
    }
}

impl HookCall<'_> {
    /// Answers a request: the question to the user, or a refusal with its reason. Refuses if
    /// the command is denied anyway, if no policy may give the right, and if the client
    /// cannot ask. Records the decision in the trace, and leaves an approval with the rights
    /// for the launcher.
    pub(super) fn answer_request(&self, request: &RightRequest) -> Result<HookAnswer, HookError> {
        let action = Action::script(self.agent.name, &self.message.mode, &request.command);
        let mut decision = self.decide(&action)?;
        let command = say::brief(&request.command);
        let mut reason = say::reason(&decision);
        if decision.effect < Effect::Deny {
            decision.effect = Effect::Ask;
            let title = self.agent.title;
            let sandbox = decision.sandbox.as_ref().map_or("none", |it| it.name.as_str());
            reason = format!(
                "{title} asks for one more right, once: to {} for `{command}` in sandbox {sandbox}",
                request.words(&self.dirs.home)
            );
            if let Some(why) = self.refused_right(request, &decision) {
                decision.effect = Effect::Deny;
                reason = format!("{reason}; it cannot be asked for: {why}");
            } else if !self.can_ask() {
                decision.effect = Effect::Deny;
                reason = format!("{reason}; {title} cannot ask here: tell the user and stop");
            }
        }
        self.decision_record(&action, &decision, &reason).append(self.session)?;
        let reason = format!("clash: {reason}");
        if decision.effect == Effect::Deny {
            return Ok(HookAnswer::Deny { reason });
        }
        let mark = random_name().map_err(HookError::Random)?;
        let mark: String = mark.chars().take(8).collect();
        let line = format!("{} # clash request {mark}", request.command);
        self.note_carried_files(&decision);
        let updated_input = match self.approve(&line, &decision, &request.rights)? {
            LaunchWay::ByClient => (self.agent.rewrite)(self.message, &line),
            LaunchWay::Rewritten(input) => Some(input),
            LaunchWay::Instructed(line) => {
                let reason = format!("{reason}; run it with exactly this command: {line}");
                return Ok(HookAnswer::Deny { reason });
            }
        };
        match updated_input {
            Some(input) => Ok(HookAnswer::Ask { reason, updated_input: Some(input) }),
            None => Ok(HookAnswer::Deny { reason: format!("{reason}; this client cannot do it") }),
        }
    }

    /// Why a right can never be asked for: a rule denies it, or it steers clash or the agent.
    fn refused_right(
        &self,
        request: &RightRequest,
        decision: &clash_policy::decide::Decision,
    ) -> Option<String> {
        use clash_policy::LinkResolver;
        let sandbox = decision.sandbox.as_ref()?;
        let disk = clash_sandbox::disk::Disk::default();
        let cage = self.dirs.cage(&self.session.project, &disk);
        request.rights.iter().find_map(|right| {
            if let ExtraRight::Host(host) = right {
                let name = host.split(':').next().unwrap_or(host);
                let (effect, rule) = sandbox.net.judge(name, 443);
                return (effect == Effect::Deny)
                    .then_some(rule)
                    .flatten()
                    .map(|rule| format!("the rule at {} denies it", rule.span));
            }
            let path = right.path()?;
            let real = disk.real(path);
            if cage.iter().any(|own| real.starts_with(own)) {
                return Some("it belongs to clash or steers the agent".to_owned());
            }
            let (project, home) = (&self.session.project, &self.dirs.home);
            let block = file_block(sandbox, &real, right.caps(), project, home);
            (block.is_by_rule || block.grant.is_none()).then(|| block.why.clone())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(script: &str) -> Result<Option<RightRequest>, HookError> {
        RightRequest::read(script, Path::new("/p"), Path::new("/h"))
    }

    #[test]
    fn a_request_is_read_with_its_rights_and_command() {
        let request = read("clash request --read ~/.npmrc --host=docs.rs -- npm install 'a b'");
        let request = request.unwrap().unwrap();
        assert_eq!(request.command, "npm install 'a b'");
        assert_eq!(
            request.rights,
            [ExtraRight::Read("/h/.npmrc".into()), ExtraRight::Host("docs.rs".into())]
        );
    }

    #[test]
    fn only_a_whole_script_is_a_request() {
        assert!(matches!(read("echo clash request"), Ok(None)));
        assert!(matches!(read("make"), Ok(None)));
        for script in [
            "clash request --read x -- a; b",
            "clash request --read x -- a | b",
            "clash request --read $X -- a",
            "clash request --read x",
            "clash request -- a",
            "clash request --read x -- a > b",
            "X=1 clash request --read x -- a",
        ] {
            assert!(matches!(read(script), Err(HookError::Request)), "{script}");
        }
    }
}
