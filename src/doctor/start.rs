//! Examines what `pumice run` needs to start a program, and fails where `pumice run` would.

use pumice_device::findings::Finding;

use super::kind::{LIBRARY, blocking, ok, warning};
use crate::run::loaded_objects;

/// Finds the libraries as `pumice run` does, and makes the folder with links to them as it does.
pub(crate) fn start() -> Vec<Finding> {
    let found = match loaded_objects() {
        Ok(found) => found,
        Err(sentence) => {
            let remedy = "Install the whole of pumice (its package, or the whole archive): \
                          pumice run, check and world need its libraries beside it.";
            return vec![blocking(&LIBRARY, format!("pumice run would fail: {sentence}"), remedy)];
        }
    };
    let mut findings = vec![ok(
        &LIBRARY,
        format!("programs load {}, by the names in {}", found.object.display(), found.folder.display()),
    )];
    findings.extend(found.missing.into_iter().map(|sentence| {
        let remedy =
            "Put it beside libpumice.so: it comes with the same package or build (cargo build --workspace).";
        warning(&LIBRARY, sentence, remedy)
    }));
    findings
}
