//! What `pumice check` finds.

use std::sync::LazyLock;

use pumice_device::check::KINDS;

use super::entry::Entry;

/// An entry for each kind of finding.
pub(super) fn checks() -> &'static [Entry] {
    static CHECKS: LazyLock<Vec<Entry>> = LazyLock::new(|| {
        let kinds = KINDS.iter();
        kinds
            .map(|kind| Entry {
                name: kind.name,
                number: None,
                meaning: kind.what,
                causes: std::slice::from_ref(&kind.why),
                look_at: std::slice::from_ref(&kind.remedy),
            })
            .collect()
    });
    &CHECKS
}
