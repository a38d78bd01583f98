//! Errnos by number.
//!
//! This crate does not depend on a C library. The numbers are those of Linux on x86-64, aarch64 and riscv64,
//! and of every architecture that takes them from `asm-generic`; alpha, mips, parisc and sparc have others,
//! and pumice is not built for them. `device/model/src/fates/fired.rs` compares them with the C library's.

macro_rules! errnos {
    ($($name:ident = $number:literal,)*) => {
        $(pub(crate) const $name: i32 = $number;)*

        /// Every errno that a row has, by name and number.
        pub const ERRNOS: &[(&str, i32)] = &[$((stringify!($name), $number),)*];
    };
}

errnos! {
    EPERM = 1,
    ENOENT = 2,
    EINTR = 4,
    EIO = 5,
    EBADF = 9,
    EAGAIN = 11,
    ENOMEM = 12,
    EACCES = 13,
    EFAULT = 14,
    EBUSY = 16,
    EEXIST = 17,
    ENODEV = 19,
    EINVAL = 22,
    ENFILE = 23,
    EMFILE = 24,
    ENOSPC = 28,
    EPIPE = 32,
    ENOSYS = 38,
    ENODATA = 61,
    EPROTO = 71,
    ENOTSOCK = 88,
    EDESTADDRREQ = 89,
    EMSGSIZE = 90,
    ENOPROTOOPT = 92,
    EPROTONOSUPPORT = 93,
    EOPNOTSUPP = 95,
    EAFNOSUPPORT = 97,
    EADDRINUSE = 98,
    EADDRNOTAVAIL = 99,
    ENETUNREACH = 101,
    ECONNABORTED = 103,
    ECONNRESET = 104,
    ENOBUFS = 105,
    EISCONN = 106,
    ENOTCONN = 107,
    ETIMEDOUT = 110,
    ECONNREFUSED = 111,
    EHOSTUNREACH = 113,
    EALREADY = 114,
    EINPROGRESS = 115,
}
