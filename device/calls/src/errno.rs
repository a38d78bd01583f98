//! Errnos by number.
//!
//! This crate has no C library to ask. The numbers are those of Linux on x86-64, aarch64 and riscv64, and of
//! every architecture that takes them from `asm-generic`; alpha, mips, parisc and sparc have others, and
//! pumice is not built for them. `device/src/faults/calls/errno.rs` compares them with the C library's.

pub(crate) const EPERM: i32 = 1;
pub(crate) const ENOENT: i32 = 2;
pub(crate) const EINTR: i32 = 4;
pub(crate) const EIO: i32 = 5;
pub(crate) const EBADF: i32 = 9;
pub(crate) const EAGAIN: i32 = 11;
pub(crate) const ENOMEM: i32 = 12;
pub(crate) const EACCES: i32 = 13;
pub(crate) const EFAULT: i32 = 14;
pub(crate) const EBUSY: i32 = 16;
pub(crate) const EEXIST: i32 = 17;
pub(crate) const ENODEV: i32 = 19;
pub(crate) const EINVAL: i32 = 22;
pub(crate) const ENFILE: i32 = 23;
pub(crate) const EMFILE: i32 = 24;
pub(crate) const ENOSPC: i32 = 28;
pub(crate) const EPIPE: i32 = 32;
pub(crate) const ENOSYS: i32 = 38;
pub(crate) const ENODATA: i32 = 61;
pub(crate) const EPROTO: i32 = 71;
pub(crate) const ENOTSOCK: i32 = 88;
pub(crate) const EDESTADDRREQ: i32 = 89;
pub(crate) const EMSGSIZE: i32 = 90;
pub(crate) const ENOPROTOOPT: i32 = 92;
pub(crate) const EPROTONOSUPPORT: i32 = 93;
pub(crate) const EOPNOTSUPP: i32 = 95;
pub(crate) const EAFNOSUPPORT: i32 = 97;
pub(crate) const EADDRINUSE: i32 = 98;
pub(crate) const EADDRNOTAVAIL: i32 = 99;
pub(crate) const ENETUNREACH: i32 = 101;
pub(crate) const ECONNABORTED: i32 = 103;
pub(crate) const ECONNRESET: i32 = 104;
pub(crate) const ENOBUFS: i32 = 105;
pub(crate) const EISCONN: i32 = 106;
pub(crate) const ENOTCONN: i32 = 107;
pub(crate) const ETIMEDOUT: i32 = 110;
pub(crate) const ECONNREFUSED: i32 = 111;
pub(crate) const EHOSTUNREACH: i32 = 113;
pub(crate) const EALREADY: i32 = 114;
pub(crate) const EINPROGRESS: i32 = 115;
