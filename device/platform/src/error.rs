//! The errors of creating, changing, using and destroying objects, and text of others on its way to a
//! terminal.
//!
//! A terminal obeys control characters: it moves the cursor, hides text, changes the window's title. Marks of
//! direction make text read as other text. So both are shown as escapes, wherever sentences and tables are
//! printed.

use std::borrow::Cow;
use std::fmt::Write as _;

/// The caller's mistake or the device's limit, as one sentence and one errno.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResourceError {
    /// The object is still used by another one.
    #[error("still in use: {what}")]
    Busy {
        /// The object and its users.
        what: Cow<'static, str>,
    },
    /// An argument is wrong.
    #[error("invalid argument: {what}")]
    Invalid {
        /// The argument, and what it should be.
        what: Cow<'static, str>,
    },
    /// A table or queue is full.
    #[error("no room: {what}")]
    NoMemory {
        /// The full table or queue, and its limit.
        what: Cow<'static, str>,
    },
    /// The device does not support the operation.
    #[error("not supported: {what}")]
    NotSupported {
        /// The operation that was asked for.
        what: Cow<'static, str>,
    },
    /// The memory is not mapped, or not with the rights asked for.
    #[error("bad address: {length} bytes at {address:#x} are not mapped with the rights asked for")]
    BadAddress {
        /// Address of the first byte of the range.
        address: u64,
        /// Length of the range in bytes.
        length: u64,
    },
    /// The entry of the table exists and is empty.
    #[error("nothing there: {what}")]
    NoData {
        /// The empty entry.
        what: Cow<'static, str>,
    },
    /// No path leads to the destination.
    #[error("unreachable: {what}")]
    Unreachable {
        /// The source and the destination.
        what: Cow<'static, str>,
    },
    /// The operating system refused; the sentence has the reason.
    #[error("refused: {what}")]
    Refused {
        /// The refused operation, and the reason.
        what: Cow<'static, str>,
        /// The errno.
        errno: i32,
    },
    /// The operating system refused.
    #[error("{what}: {}", std::io::Error::from_raw_os_error(*errno))]
    Os {
        /// The operation that failed.
        what: &'static str,
        /// The errno.
        errno: i32,
    },
}

impl ResourceError {
    /// Returns [`ResourceError::Busy`] with this sentence.
    pub fn busy(what: impl Into<Cow<'static, str>>) -> ResourceError {
        ResourceError::Busy { what: what.into() }
    }

    /// Returns [`ResourceError::Invalid`] with this sentence.
    pub fn invalid(what: impl Into<Cow<'static, str>>) -> ResourceError {
        ResourceError::Invalid { what: what.into() }
    }

    /// Returns [`ResourceError::NoMemory`] with this sentence.
    pub fn no_memory(what: impl Into<Cow<'static, str>>) -> ResourceError {
        ResourceError::NoMemory { what: what.into() }
    }

    /// Returns [`ResourceError::NotSupported`] with this sentence.
    pub fn not_supported(what: impl Into<Cow<'static, str>>) -> ResourceError {
        ResourceError::NotSupported { what: what.into() }
    }

    /// Returns the errno that verbs return for the error; positive.
    pub const fn errno(&self) -> i32 {
        match self {
            ResourceError::Busy { .. } => libc::EBUSY,
            ResourceError::Invalid { .. } => libc::EINVAL,
            ResourceError::NoMemory { .. } => libc::ENOMEM,
            ResourceError::NotSupported { .. } => libc::EOPNOTSUPP,
            ResourceError::BadAddress { .. } => libc::EFAULT,
            ResourceError::NoData { .. } => libc::ENODATA,
            ResourceError::Unreachable { .. } => libc::EHOSTUNREACH,
            ResourceError::Os { errno, .. } | ResourceError::Refused { errno, .. } => *errno,
        }
    }
}

/// Returns the text as it may be printed; line breaks and tabs stay. The escapes are those of TOML and of
/// JSON.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_harmful) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_harmful(c) {
            // Writing to a string cannot fail.
            let _ = write!(shown, "\\u{:04x}", u32::from(c));
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

/// Reports whether a terminal does something else with a character than show it.
pub fn is_harmful(c: char) -> bool {
    let is_direction =
        matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() && c != '\n' && c != '\t' || is_direction
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_has_its_errno_and_names_the_wrong_thing() {
        let table = [
            (ResourceError::busy("PD 1 has 2 users"), libc::EBUSY, "PD 1 has 2 users"),
            (ResourceError::invalid("depth 0"), libc::EINVAL, "depth 0"),
            (ResourceError::no_memory("CQ table"), libc::ENOMEM, "CQ table"),
            (ResourceError::not_supported("implicit"), libc::EOPNOTSUPP, "implicit"),
            (ResourceError::BadAddress { address: 0x10, length: 3 }, libc::EFAULT, "0x10"),
            (ResourceError::NoData { what: "GID 3".into() }, libc::ENODATA, "GID 3"),
            (ResourceError::Unreachable { what: "fe80::1".into() }, libc::EHOSTUNREACH, "fe80::1"),
            (ResourceError::Refused { what: "no right".into(), errno: libc::EPERM }, libc::EPERM, "no right"),
            (ResourceError::Os { what: "eventfd", errno: libc::EMFILE }, libc::EMFILE, "eventfd"),
        ];
        for (error, errno, part) in table {
            assert_eq!(error.errno(), errno);
            assert!(error.to_string().contains(part), "{error}");
        }
    }

    #[test]
    fn control_characters_are_shown_and_do_nothing() {
        let title = "\u{1b}]0;owned\u{7} and\r more\u{9b}2J \u{202e}txt";
        let shown = r"\u001b]0;owned\u0007 and\u000d more\u009b2J \u202etxt";
        assert_eq!(printable(title), shown);
        let plain = "two\n\tlines: ä 漢 ✓";
        assert!(matches!(printable(plain), Cow::Borrowed(text) if text == plain));
    }
}
