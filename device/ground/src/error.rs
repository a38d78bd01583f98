//! Why an object could not be made, changed, used or destroyed.

use std::borrow::Cow;

/// The caller's mistake or the device's limit, as one sentence and one errno.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResourceError {
    /// Something else still uses the object.
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
        /// Which one, and its limit.
        what: Cow<'static, str>,
    },
    /// The device does not do that.
    #[error("not supported: {what}")]
    NotSupported {
        /// What was asked for.
        what: Cow<'static, str>,
    },
    /// The memory is not mapped, or not with the rights asked for.
    #[error("bad address: {length} bytes at {address:#x} are not mapped with the rights asked for")]
    BadAddress {
        /// First byte of the range.
        address: u64,
        /// Bytes of the range.
        length: u64,
    },
    /// The entry of the table exists and is empty.
    #[error("nothing there: {what}")]
    NoData {
        /// Which entry.
        what: Cow<'static, str>,
    },
    /// No path leads there.
    #[error("unreachable: {what}")]
    Unreachable {
        /// From where to where.
        what: Cow<'static, str>,
    },
    /// The operating system refused; the sentence has the reason.
    #[error("refused: {what}")]
    Refused {
        /// What was refused, and why.
        what: Cow<'static, str>,
        /// Its errno.
        errno: i32,
    },
    /// The operating system refused.
    #[error("{what}: {}", std::io::Error::from_raw_os_error(*errno))]
    Os {
        /// What was tried.
        what: &'static str,
        /// Its errno.
        errno: i32,
    },
}

impl ResourceError {
    /// [`ResourceError::Busy`] with this sentence.
    pub fn busy(what: impl Into<Cow<'static, str>>) -> ResourceError {
        ResourceError::Busy { what: what.into() }
    }

    /// [`ResourceError::Invalid`] with this sentence.
    pub fn invalid(what: impl Into<Cow<'static, str>>) -> ResourceError {
        ResourceError::Invalid { what: what.into() }
    }

    /// [`ResourceError::NoMemory`] with this sentence.
    pub fn no_memory(what: impl Into<Cow<'static, str>>) -> ResourceError {
        ResourceError::NoMemory { what: what.into() }
    }

    /// [`ResourceError::NotSupported`] with this sentence.
    pub fn not_supported(what: impl Into<Cow<'static, str>>) -> ResourceError {
        ResourceError::NotSupported { what: what.into() }
    }

    /// The errno that verbs return for it; positive.
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
