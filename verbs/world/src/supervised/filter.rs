//! The seccomp filter: calls of the service `Passes` do not stop, nor those that map memory without
//! code; all others do, including unknown ones.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};

use super::rows::{ROWS, SyscallClass};

/// Index of the argument of `mmap` with the rights of the memory.
const PROTECTION: u8 = 2;

/// Returns the filter, for this processor.
pub(crate) fn program() -> Result<BpfProgram, seccompiler::BackendError> {
    let passing = ROWS.iter().filter(|(_, syscall_class)| *syscall_class == SyscallClass::Passes);
    let mut rules: BTreeMap<i64, _> = passing.map(|(call, _)| (i64::from(call.id()), Vec::new())).collect();
    // Memory that is no code.
    let code = libc::PROT_EXEC as u64;
    let is_data =
        SeccompCondition::new(PROTECTION, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(code), 0)?;
    rules.insert(libc::SYS_mmap, vec![SeccompRule::new(vec![is_data])?]);
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
