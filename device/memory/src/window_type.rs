//! The two kinds of memory windows.

use pumice_platform::error::ResourceError;

/// The kind of a memory window (`IBV_MW_TYPE_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowType {
    /// The device chooses its keys; any queue pair of the domain may use it.
    Type1,
    /// The consumer chooses the low byte of its keys; only the queue pair it was bound on may use it (type
    /// 2B).
    Type2,
}

impl WindowType {
    /// Returns the type with this verbs number (1 or 2).
    ///
    /// # Errors
    /// Fails with `Invalid` for another number.
    pub fn from_verbs(number: u32) -> Result<WindowType, ResourceError> {
        match number {
            1 => Ok(WindowType::Type1),
            2 => Ok(WindowType::Type2),
            other => Err(ResourceError::invalid(format!("memory window type {other} is neither 1 nor 2"))),
        }
    }
}
