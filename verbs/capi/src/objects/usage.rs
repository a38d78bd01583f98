//! Counts of the uses of an object that the device does not know, or knows as another one.

use std::sync::Arc;

use crate::platform::errno::Errno;

/// The uses of an object.
#[derive(Default)]
pub(crate) struct UseCount(Arc<()>);

/// A use of an object, until it is dropped.
pub(crate) struct UseGuard(#[expect(dead_code, reason = "counted by being there")] Arc<()>);

impl UseCount {
    pub(crate) fn begin(&self) -> UseGuard {
        UseGuard(Arc::clone(&self.0))
    }

    /// # Errors
    /// Fails with EBUSY if there are uses by `users`.
    pub(crate) fn check_unused(&self, object: &str, users: &str) -> Result<(), Errno> {
        let count = Arc::strong_count(&self.0) - 1;
        if count == 0 {
            return Ok(());
        }
        Err(Errno(libc::EBUSY).because(|| format!("the {object} has {count} {users}; destroy them first")))
    }
}
