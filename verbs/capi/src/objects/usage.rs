//! Counting who uses an object that the device does not know, or knows by another one.

use std::sync::Arc;

use crate::ground::errno::Errno;

/// The users of an object.
#[derive(Default)]
pub(crate) struct Usage(Arc<()>);

/// One use, until it is dropped.
pub(crate) struct Use(#[expect(dead_code, reason = "counted by being there")] Arc<()>);

impl Usage {
    pub(crate) fn begin(&self) -> Use {
        Use(Arc::clone(&self.0))
    }

    /// # Errors
    /// EBUSY: `users` exist.
    pub(crate) fn check_unused(&self, object: &str, users: &str) -> Result<(), Errno> {
        let count = Arc::strong_count(&self.0) - 1;
        if count == 0 {
            return Ok(());
        }
        Err(Errno(libc::EBUSY).because(|| format!("the {object} has {count} {users}; destroy them first")))
    }
}
