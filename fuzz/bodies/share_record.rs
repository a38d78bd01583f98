//! Any bytes as the registry of the processes that share a port: nothing panics, and what is read is the same
//! after it was written and read again.

/// How much of the input meant something.
pub(crate) fn survive(bytes: &[u8]) -> usize {
    let stable = pumice_device::fuzzing::registry_record_is_stable(bytes);
    assert_ne!(stable, Some(false));
    usize::from(stable.is_some())
}
