//! The filter of calls: those that pass go on without a stop; all others stop, also those that are not known.

use std::collections::BTreeMap;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

use super::rows::{ROWS, Service};

/// The filter, for this processor.
pub(crate) fn program() -> Result<BpfProgram, seccompiler::BackendError> {
    let passing = ROWS.iter().filter(|(_, service)| *service == Service::Passes);
    let rules: BTreeMap<i64, _> = passing.map(|(call, _)| (i64::from(call.id()), Vec::new())).collect();
    let filter =
        SeccompFilter::new(rules, SeccompAction::Trace(0), SeccompAction::Allow, TargetArch::x86_64)?;
    filter.try_into()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_filter_can_be_made() {
        assert!(!super::program().unwrap().is_empty());
    }
}
