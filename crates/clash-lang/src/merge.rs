//! Joins the trees of several `when()` calls into one.

use clash_policy::rule::{MatchBranch, MatchNode};

use crate::diagnostic::PolicyWarning;

/// Joins two lists of branches. Of two rules for the same keys the stricter one stays,
/// with a warning if they differ. If one side has a rule and the other goes deeper,
/// both stay, the deeper first: the decision passes over a branch without a match.
pub(crate) fn branches(
    mut known: Vec<MatchBranch>,
    more: Vec<MatchBranch>,
    warn: &dyn Fn(PolicyWarning),
) -> Vec<MatchBranch> {
    for branch in more {
        merge_one(&mut known, branch, warn);
    }
    known
}

/// Merges a branch with the branch of the same key: two rules to the stricter one, two
/// trees to one. A tree goes before a rule of its key, and everything else to the end.
fn merge_one(known: &mut Vec<MatchBranch>, branch: MatchBranch, warn: &dyn Fn(PolicyWarning)) {
    for (index, have) in known.iter_mut().enumerate().filter(|(_, b)| b.key == branch.key) {
        match (&mut have.then, &branch.then) {
            (MatchNode::Rule(old), MatchNode::Rule(new)) => {
                let (stays, goes) =
                    if new.effect > old.effect { (new, &*old) } else { (&*old, new) };
                if stays.effect != goes.effect || stays.sandbox != goes.sandbox {
                    warn(
                        PolicyWarning::new(
                            "overlapping",
                            format!("{} is overruled by {} at {}", goes.effect, stays.effect, stays.span),
                            &goes.span,
                        )
                        .hint("two when() calls say different things about the same key; the stricter holds"),
                    );
                }
                *old = stays.clone();
                return;
            }
            (MatchNode::Tree(old), MatchNode::Tree(new)) => {
                *old = branches(std::mem::take(old), new.clone(), warn);
                return;
            }
            (MatchNode::Rule(_), MatchNode::Tree(_)) => {
                known.insert(index, branch);
                return;
            }
            (MatchNode::Tree(_), MatchNode::Rule(_)) => {}
        }
    }
    known.push(branch);
}
