use super::*;

const PLACES: OraclePlaces<'_> = OraclePlaces { project: "/h/p", home: "/h", settings: "/h/p" };

fn matches(rule: &str, action: &OracleAction) -> bool {
    let claude = ClaudeLists { allow: vec![rule.to_owned()], ..ClaudeLists::default() };
    claude.decide(action, &PLACES).is_some()
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

#[test]
fn commands_match_as_claude_documents() {
    let bash = |rule: &str, text: &str| matches(rule, &OracleAction::Command(words(text)));
    assert!(
        bash("Bash(ls *)", "ls -la") && bash("Bash(ls *)", "ls") && !bash("Bash(ls *)", "lsof")
    );
    assert!(bash("Bash(ls*)", "lsof") && bash("Bash(git * main)", "git push origin main"));
    assert!(
        bash("Bash(npm run test)", "npm run test") && !bash("Bash(npm run test)", "npm run test x")
    );
    assert!(!bash("Bash(git push:*)", "git -C x push"));
}

#[test]
fn paths_match_as_gitignore_documents() {
    let read = |rule: &str, path: &str| matches(rule, &OracleAction::Read(path.to_owned()));
    assert!(read("Read(*.env)", "/h/p/a/b.env") && !read("Read(*.env)", "/h/b.env"));
    assert!(read("Read(secrets)", "/h/p/secrets/key") && read("Read(~/x/**)", "/h/x/y"));
    assert!(!read("Read(~/x/**)", "/h/x") && read("Read(//etc/*)", "/etc/a/b"));
    assert!(read("Read(/src)", "/h/p/src/a") && !read("Read(/src)", "/h/p/a/src"));
}

#[test]
fn the_first_list_decides() {
    let all = |name: &str| vec![name.to_owned()];
    let claude = ClaudeLists { deny: all("Bash(rm:*)"), ask: vec![], allow: all("Bash") };
    let decide = |text| claude.decide(&OracleAction::Command(words(text)), &PLACES);
    assert_eq!(decide("rm -rf x"), Some(Effect::Deny));
    assert_eq!(decide("ls"), Some(Effect::Allow));
}

#[test]
fn codex_takes_the_strictest_prefix() {
    let rule = |text: &str, decision| PrefixRule {
        pattern: words(text).into_iter().map(|word| vec![word]).collect(),
        decision,
    };
    let rules = [rule("git", Effect::Allow), rule("git push", Effect::Deny)];
    assert_eq!(decide_codex(&rules, &words("git push x")), Some(Effect::Deny));
    assert_eq!(decide_codex(&rules, &words("git -C x push")), Some(Effect::Allow));
    assert_eq!(decide_codex(&rules, &words("ls")), None);
}

#[test]
fn a_respelling_moves_options_and_nothing_else() {
    let all = respellings(&words("git -C x push"));
    assert!(all.contains(&words("git push -C x")) && all.contains(&words("git x push -C")));
    assert!(!all.contains(&words("git push x -C")));
    assert!(respellings(&words("rm -rf x")).contains(&words("rm -r x -f")));
}
