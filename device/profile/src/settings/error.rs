//! Why a setting cannot be used.

use std::borrow::Cow;

/// A variable, its value, and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{variable}={value}: {problem}")]
pub struct SettingError {
    /// Name of the variable, e.g. "PUMICE_LOSS".
    pub variable: &'static str,
    /// What it is set to.
    pub value: String,
    /// What is wrong, and the remedy.
    pub problem: Cow<'static, str>,
    /// What to return for it; positive.
    pub errno: i32,
}

impl SettingError {
    /// A value that is wrong in itself: EINVAL.
    pub fn new(
        variable: &'static str,
        value: impl Into<String>,
        problem: impl Into<Cow<'static, str>>,
    ) -> SettingError {
        SettingError { variable, value: value.into(), problem: problem.into(), errno: libc::EINVAL }
    }

    /// The same with another errno.
    #[must_use]
    pub fn with_errno(self, errno: i32) -> SettingError {
        SettingError { errno, ..self }
    }
}
