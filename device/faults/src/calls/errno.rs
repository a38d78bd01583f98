//! Errnos by their names.

use libc::{
    E2BIG, EACCES, EADDRINUSE, EADDRNOTAVAIL, EAFNOSUPPORT, EAGAIN, EALREADY, EBADF, EBUSY, ECANCELED,
    ECONNABORTED, ECONNREFUSED, ECONNRESET, EDESTADDRREQ, EDOM, EEXIST, EFAULT, EHOSTUNREACH, EINPROGRESS,
    EINTR, EINVAL, EIO, EISCONN, EMFILE, EMSGSIZE, ENETDOWN, ENETUNREACH, ENFILE, ENOBUFS, ENODATA, ENODEV,
    ENOENT, ENOMEM, ENOPROTOOPT, ENOSPC, ENOSYS, ENOTCONN, ENOTSOCK, ENXIO, EOPNOTSUPP, EPERM, EPIPE, EPROTO,
    EPROTONOSUPPORT, ERANGE, EREMOTEIO, ESTALE, ETIMEDOUT,
};

/// The largest number that Linux knows.
const MAX_ERRNO: i32 = 133;

/// Those that calls of libibverbs and librdmacm give.
const NAMES: [(&str, i32); 48] = [
    ("E2BIG", E2BIG),
    ("EACCES", EACCES),
    ("EADDRINUSE", EADDRINUSE),
    ("EADDRNOTAVAIL", EADDRNOTAVAIL),
    ("EAFNOSUPPORT", EAFNOSUPPORT),
    ("EAGAIN", EAGAIN),
    ("EALREADY", EALREADY),
    ("EBADF", EBADF),
    ("EBUSY", EBUSY),
    ("ECANCELED", ECANCELED),
    ("ECONNABORTED", ECONNABORTED),
    ("ECONNREFUSED", ECONNREFUSED),
    ("ECONNRESET", ECONNRESET),
    ("EDESTADDRREQ", EDESTADDRREQ),
    ("EDOM", EDOM),
    ("EEXIST", EEXIST),
    ("EFAULT", EFAULT),
    ("EHOSTUNREACH", EHOSTUNREACH),
    ("EINPROGRESS", EINPROGRESS),
    ("EINTR", EINTR),
    ("EINVAL", EINVAL),
    ("EIO", EIO),
    ("EISCONN", EISCONN),
    ("EMFILE", EMFILE),
    ("EMSGSIZE", EMSGSIZE),
    ("ENETDOWN", ENETDOWN),
    ("ENETUNREACH", ENETUNREACH),
    ("ENFILE", ENFILE),
    ("ENOBUFS", ENOBUFS),
    ("ENODATA", ENODATA),
    ("ENODEV", ENODEV),
    ("ENOENT", ENOENT),
    ("ENOMEM", ENOMEM),
    ("ENOPROTOOPT", ENOPROTOOPT),
    ("ENOSPC", ENOSPC),
    ("ENOSYS", ENOSYS),
    ("ENOTCONN", ENOTCONN),
    ("ENOTSOCK", ENOTSOCK),
    ("ENXIO", ENXIO),
    ("EOPNOTSUPP", EOPNOTSUPP),
    ("EPERM", EPERM),
    ("EPIPE", EPIPE),
    ("EPROTO", EPROTO),
    ("EPROTONOSUPPORT", EPROTONOSUPPORT),
    ("ERANGE", ERANGE),
    ("EREMOTEIO", EREMOTEIO),
    ("ESTALE", ESTALE),
    ("ETIMEDOUT", ETIMEDOUT),
];

/// The name of an errno, if it is one that calls of libibverbs and librdmacm give.
pub fn errno_name(errno: i32) -> Option<&'static str> {
    NAMES.iter().find(|(_, number)| *number == errno).map(|(name, _)| *name)
}

/// As text for plans and reports: its name, or its number.
pub fn errno_text(errno: i32) -> String {
    errno_name(errno).map_or_else(|| errno.to_string(), str::to_owned)
}

/// The errno of a name or a number.
///
/// # Errors
/// It is neither; the sentence says how to write one.
pub fn errno_from(text: &str) -> Result<i32, String> {
    // The other name of EOPNOTSUPP on Linux.
    let name = if text == "ENOTSUP" { "EOPNOTSUPP" } else { text };
    if let Some((_, number)) = NAMES.iter().find(|(known, _)| *known == name) {
        return Ok(*number);
    }
    match text.parse() {
        Ok(number) if (1..=MAX_ERRNO).contains(&number) => Ok(number),
        _ => {
            Err(format!("{text:?} is no errno: write a name like ENOMEM, or a number from 1 to {MAX_ERRNO}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of calls has no C library to ask.
    #[test]
    fn the_table_of_calls_has_the_numbers_of_the_c_library() {
        for (name, number) in pumice_calls::ERRNOS {
            assert_eq!(errno_from(name), Ok(*number), "{name}");
        }
        for info in pumice_calls::CALLS {
            assert!(info.errnos().iter().all(|errno| errno_name(*errno).is_some()), "{}", info.name);
        }
    }

    #[test]
    fn names_and_numbers_are_inverses() {
        for (name, number) in NAMES {
            assert_eq!((errno_from(name), errno_name(number)), (Ok(number), Some(name)));
            assert_eq!(errno_from(&number.to_string()), Ok(number));
        }
        assert_eq!(errno_from("ENOTSUP"), Ok(libc::EOPNOTSUPP));
        assert_eq!(errno_text(131), "131");
        for wrong in ["", "0", "-1", "134", "ENOPE", "enomem"] {
            assert!(errno_from(wrong).is_err(), "{wrong}");
        }
    }
}
