//! Errnos by their names.

macro_rules! errnos {
    ($($name:ident)+; $($of_kernel:ident = $number:literal)+) => {
        /// Every errno of Linux, including those of the kernel's own that drivers let through by mistake.
        const NAMES: &[(&str, i32)] =
            &[$((stringify!($name), libc::$name),)+ $((stringify!($of_kernel), $number),)+];
    };
}

errnos! {
    E2BIG EACCES EADDRINUSE EADDRNOTAVAIL EADV EAFNOSUPPORT EAGAIN EALREADY EBADE EBADF EBADFD EBADMSG
    EBADR EBADRQC EBADSLT EBFONT EBUSY ECANCELED ECHILD ECHRNG ECOMM ECONNABORTED ECONNREFUSED ECONNRESET
    EDEADLK EDESTADDRREQ EDOM EDOTDOT EDQUOT EEXIST EFAULT EFBIG EHOSTDOWN EHOSTUNREACH EHWPOISON EIDRM
    EILSEQ EINPROGRESS EINTR EINVAL EIO EISCONN EISDIR EISNAM EKEYEXPIRED EKEYREJECTED EKEYREVOKED EL2HLT
    EL2NSYNC EL3HLT EL3RST ELIBACC ELIBBAD ELIBEXEC ELIBMAX ELIBSCN ELNRNG ELOOP EMEDIUMTYPE EMFILE
    EMLINK EMSGSIZE EMULTIHOP ENAMETOOLONG ENAVAIL ENETDOWN ENETRESET ENETUNREACH ENFILE ENOANO ENOBUFS
    ENOCSI ENODATA ENODEV ENOENT ENOEXEC ENOKEY ENOLCK ENOLINK ENOMEDIUM ENOMEM ENOMSG ENONET ENOPKG
    ENOPROTOOPT ENOSPC ENOSR ENOSTR ENOSYS ENOTBLK ENOTCONN ENOTDIR ENOTEMPTY ENOTNAM ENOTRECOVERABLE
    ENOTSOCK ENOTTY ENOTUNIQ ENXIO EOPNOTSUPP EOVERFLOW EOWNERDEAD EPERM EPFNOSUPPORT EPIPE EPROTO
    EPROTONOSUPPORT EPROTOTYPE ERANGE EREMCHG EREMOTE EREMOTEIO ERESTART ERFKILL EROFS ESHUTDOWN
    ESOCKTNOSUPPORT ESPIPE ESRCH ESRMNT ESTALE ESTRPIPE ETIME ETIMEDOUT ETOOMANYREFS ETXTBSY EUCLEAN
    EUNATCH EUSERS EXDEV EXFULL;
    ERESTARTSYS = 512
    ERESTARTNOINTR = 513
    ERESTARTNOHAND = 514
    ENOIOCTLCMD = 515
    ERESTART_RESTARTBLOCK = 516
    EPROBE_DEFER = 517
    EOPENSTALE = 518
    ENOPARAM = 519
    EBADHANDLE = 521
    ENOTSYNC = 522
    EBADCOOKIE = 523
    ENOTSUPP = 524
    ETOOSMALL = 525
    ESERVERFAULT = 526
    EBADTYPE = 527
    EJUKEBOX = 528
    EIOCBQUEUED = 529
    ERECALLCONFLICT = 530
    ENOGRACE = 531
}

/// Returns the name of an errno, if Linux has it.
pub fn errno_name(errno: i32) -> Option<&'static str> {
    NAMES.iter().find(|(_, number)| *number == errno).map(|(name, _)| *name)
}

/// Returns an errno as text for plans and reports: its name, or else its number.
pub fn errno_text(errno: i32) -> String {
    errno_name(errno).map_or_else(|| errno.to_string(), str::to_owned)
}

/// Returns the errno of a name or a number.
///
/// # Errors
/// The text is neither; the sentence says how to write one.
pub fn errno_from(text: &str) -> Result<i32, String> {
    // These names share their number with another one.
    let name = match text {
        "ENOTSUP" => "EOPNOTSUPP",
        "EWOULDBLOCK" => "EAGAIN",
        "EDEADLOCK" => "EDEADLK",
        _ => text,
    };
    if let Some((_, number)) = NAMES.iter().find(|(known, _)| *known == name) {
        return Ok(*number);
    }
    let number = text.parse().ok().filter(|number| errno_name(*number).is_some());
    number.ok_or_else(|| {
        format!("{text:?} is no errno of Linux: write a name like ENOMEM, or its number, such as 12 or 524")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the errnos in the table of calls, whose crate does not depend on the C library.
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
        for &(name, number) in NAMES {
            assert_eq!((errno_from(name), errno_name(number)), (Ok(number), Some(name)));
            assert_eq!(errno_from(&number.to_string()), Ok(number));
        }
        assert_eq!(errno_from("ENOTSUP"), Ok(libc::EOPNOTSUPP));
        assert_eq!((errno_from("524"), errno_from("ENOTSUPP")), (Ok(524), Ok(524)));
        assert_eq!((errno_text(131), errno_text(600)), ("ENOTRECOVERABLE".to_owned(), "600".to_owned()));
        for wrong in ["", "0", "-1", "134", "511", "ENOPE", "enomem"] {
            assert!(errno_from(wrong).is_err(), "{wrong}");
        }
    }
}
