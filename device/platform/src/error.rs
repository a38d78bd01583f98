//! The errors of creating, changing, using and destroying objects.

use std::borrow::Cow;

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
}
