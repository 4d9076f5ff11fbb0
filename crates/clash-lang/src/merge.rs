//! Several `when()` calls are one tree: the same key in two of them is one key.

use clash_policy::rule::{Branch, Node};

use crate::diagnostic::PolicyWarning;

/// Joins two lists of branches. On the same leaf the stricter rule stays, and if
/// they differ that is worth a warning. Where one side has a rule and the other
/// goes deeper, both stay, the deeper first, because a branch that leads nowhere
/// is passed over.
pub(crate) fn branches(
    mut known: Vec<Branch>,
    more: Vec<Branch>,
    warn: &dyn Fn(PolicyWarning),
) -> Vec<Branch> {
    for branch in more {
        merge_one(&mut known, branch, warn);
    }
    known
}

fn merge_one(known: &mut Vec<Branch>, branch: Branch, warn: &dyn Fn(PolicyWarning)) {
    for (index, have) in known.iter_mut().enumerate().filter(|(_, b)| b.key == branch.key) {
        match (&mut have.then, &branch.then) {
            (Node::Rule(old), Node::Rule(new)) => {
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
            (Node::Tree(old), Node::Tree(new)) => {
                *old = branches(std::mem::take(old), new.clone(), warn);
                return;
            }
            (Node::Rule(_), Node::Tree(_)) => {
                known.insert(index, branch);
                return;
            }
            (Node::Tree(_), Node::Rule(_)) => {}
        }
    }
    known.push(branch);
}
