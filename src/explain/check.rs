//! The kinds of findings of `pumice check`.

use std::sync::LazyLock;

use pumice_device::check::KINDS;

use super::entry::ExplainEntry;

/// Returns an entry for each kind of finding.
pub(super) fn checks() -> &'static [ExplainEntry] {
    static CHECKS: LazyLock<Vec<ExplainEntry>> = LazyLock::new(|| {
        let kinds = KINDS.iter();
        kinds
            .map(|kind| ExplainEntry {
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
