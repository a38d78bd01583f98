//! Any bytes as the memory of a ring that another process writes, as what its consumer claims, and as a
//! message about it: nothing panics, no more is taken than a ring holds, and a message is the same when it is
//! written again.

/// How much of the input meant something.
pub(crate) fn survive(bytes: &[u8]) -> usize {
    let stable = pumice_device::fuzzing::ring_message_is_stable(bytes);
    assert_ne!(stable, Some(false));
    usize::from(stable.is_some()) + pumice_device::fuzzing::survive_ring(bytes)
}
