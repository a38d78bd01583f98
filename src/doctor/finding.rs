//! What was found.

use serde::Serialize;

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// As it should be.
    Ok,
    /// Works, but slower or with less than there could be.
    Warning,
    /// The device does not work until this is remedied.
    Blocking,
}

/// One thing looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// What was looked at, in a word or two.
    pub(crate) check: &'static str,
    pub(crate) level: Level,
    /// What was found.
    pub(crate) found: String,
    /// What to do, in one sentence; none if it is as it should be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remedy: Option<String>,
}

impl Finding {
    pub(crate) fn ok(check: &'static str, found: impl Into<String>) -> Finding {
        Finding { check, level: Level::Ok, found: found.into(), remedy: None }
    }

    pub(crate) fn warning(
        check: &'static str,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Finding {
        Finding { check, level: Level::Warning, found: found.into(), remedy: Some(remedy.into()) }
    }

    pub(crate) fn blocking(
        check: &'static str,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Finding {
        Finding { check, level: Level::Blocking, found: found.into(), remedy: Some(remedy.into()) }
    }
}
