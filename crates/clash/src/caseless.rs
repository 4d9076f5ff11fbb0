//! Finds out whether a volume takes `A` and `a` for the same name. The hook asks it about
//! the paths of file tools: there a rule about `.env` has to hold for `.ENV` as well.

use std::path::Path;

use clash_sandbox::caseless::folds_names;

/// True if the nearest existing directory above a path ignores case. False if there is none.
pub(crate) fn is_caseless(path: &Path) -> bool {
    path.ancestors().skip(1).find(|dir| dir.is_dir()).is_some_and(folds_names)
}
