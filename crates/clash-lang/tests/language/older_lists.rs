//! Lists of rules, in the form of Clash 0.5 to 0.7, never become weaker.

use clash_policy::Effect::{self, Allow, Ask, Deny};
use proptest::prelude::*;

use crate::support::{layer, on};

/// A rule of a list: the words of the command and the effect.
type ListedRule = (Vec<&'static str>, Effect);

/// Lists of one to five rules about `git`, `make` or every command.
fn listed() -> impl Strategy<Value = Vec<ListedRule>> {
    let words = prop::sample::select(vec![
        vec![],
        vec!["git"],
        vec!["git", "push"],
        vec!["git", "push", "main"],
        vec!["git", "log"],
        vec!["make"],
        vec!["make", "all"],
    ]);
    let effect = prop::sample::select(vec![Allow, Ask, Deny]);
    prop::collection::vec((words, effect), 1..6)
}

/// The list in the older form.
fn written(rules: &[ListedRule]) -> String {
    let rule = |(words, effect): &ListedRule| match words.split_first() {
        None => format!("tool([\"Bash\"]).{effect}()"),
        Some((program, args)) => format!("exe(\"{program}\", args = {args:?}).{effect}()"),
    };
    let rules: Vec<String> = rules.iter().map(rule).collect();
    format!("policy(default = ask, rules = [{}])", rules.join(", "))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// In Clash 0.5 to 0.7 the first matching rule of a list decided.
    #[test]
    fn a_list_is_never_weaker_than_its_first_match(rules in listed()) {
        let policy = written(&rules);
        // A list that the present language could only make weaker does not compile.
        let Ok(layer) = layer(&policy) else { return Ok(()) };
        for command in ["git push main", "git push", "git log x", "git", "make all", "make"] {
            let words: Vec<&str> = command.split(' ').collect();
            let first = rules.iter().find(|(about, _)| words.starts_with(about));
            let before = first.map_or(Ask, |(_, effect)| *effect);
            let now = on(&layer, command);
            prop_assert!(now.0 >= before, "{policy}\n{command}: {before} became {now:?}");
        }
    }
}
