//! Several `when()` calls are one tree: the same key in two of them is one key.

use clash_policy::rule::{Branch, Node};

/// Joins two lists of branches. On the same leaf the stricter rule stays. Where
/// one side has a rule and the other goes deeper, both stay, the deeper first,
/// because a branch that leads nowhere is passed over.
pub(crate) fn branches(mut known: Vec<Branch>, more: Vec<Branch>) -> Vec<Branch> {
    for branch in more {
        merge_one(&mut known, branch);
    }
    known
}

fn merge_one(known: &mut Vec<Branch>, branch: Branch) {
    for (index, have) in known.iter_mut().enumerate().filter(|(_, b)| b.key == branch.key) {
        match (&mut have.then, &branch.then) {
            (Node::Rule(old), Node::Rule(new)) => {
                if new.effect > old.effect {
                    *old = new.clone();
                }
                return;
            }
            (Node::Tree(old), Node::Tree(new)) => {
                *old = branches(std::mem::take(old), new.clone());
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
