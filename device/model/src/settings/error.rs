//! The errors of settings.

use std::borrow::Cow;

/// A variable, its value, and the problem with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{variable}={value}: {problem}")]
pub struct SettingError {
    /// The name of the variable, e.g. "PUMICE_LOSS".
    pub variable: &'static str,
    /// The value of the variable.
    pub value: String,
    /// The problem, and the remedy.
    pub problem: Cow<'static, str>,
    /// The errno to return for it; positive.
    pub errno: i32,
}

impl SettingError {
    /// Returns the error of a value that is wrong in itself: EINVAL.
    pub fn new(
        variable: &'static str,
        value: impl Into<String>,
        problem: impl Into<Cow<'static, str>>,
    ) -> SettingError {
        SettingError { variable, value: value.into(), problem: problem.into(), errno: libc::EINVAL }
    }

    /// Sets another errno.
    #[must_use]
    pub fn with_errno(self, errno: i32) -> SettingError {
        SettingError { errno, ..self }
    }
}
