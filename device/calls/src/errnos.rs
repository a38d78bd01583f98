//! Errnos by number, and the errnos with which calls fail.
//!
//! This crate does not depend on a C library. The numbers are those of Linux on x86-64, aarch64 and riscv64,
//! and of every architecture that takes them from `asm-generic`; alpha, mips, parisc and sparc have others,
//! and pumice is not built for them. `device/model/src/fates/fired.rs` compares them with the C library's.
//!
//! The manual pages are those of rdma-core 44. Few list errnos ([`Errnos::Listed`]): a rule may use only
//! those. Most say "the value of errno on failure" and no more ([`Errnos::Usual`]): a rule may use those that
//! libibverbs, librdmacm and the kernel's commands behind the call are known to give.

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

/// The errnos of a call. The first is what a rule without an errno uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Errnos {
    /// The manual page lists the errnos.
    Listed(&'static [i32]),
    /// The manual page says "errno", or the call has none.
    Usual(&'static [i32]),
}

impl Errnos {
    /// Returns all errnos; the first is the default.
    pub const fn all(self) -> &'static [i32] {
        match self {
            Errnos::Listed(errnos) | Errnos::Usual(errnos) => errnos,
        }
    }
}

/// Errnos of making an object.
pub(crate) const MAKE: Errnos =
    Errnos::Usual(&[ENOMEM, EINVAL, EAGAIN, ENOSPC, EPERM, EFAULT, EBUSY, EOPNOTSUPP, ENODEV, EIO]);
/// Errnos of making an address handle, for which the peer's host has to be found.
pub(crate) const MAKE_ADDRESS: Errnos = Errnos::Usual(&[
    ENOMEM,
    EINVAL,
    ETIMEDOUT,
    ENETUNREACH,
    EHOSTUNREACH,
    EAGAIN,
    ENOSPC,
    EPERM,
    EFAULT,
    EBUSY,
    EOPNOTSUPP,
    ENODEV,
    EIO,
]);
/// Errnos of making an object that has a descriptor.
pub(crate) const MAKE_FILE: Errnos =
    Errnos::Usual(&[ENOMEM, EINVAL, EMFILE, ENFILE, EAGAIN, EPERM, EBUSY, EOPNOTSUPP, ENODEV, EIO]);
/// Errnos of destroying an object.
pub(crate) const DESTROY: Errnos = Errnos::Usual(&[EBUSY, EINVAL, ENODEV, EIO]);
/// Errnos of changing an object.
pub(crate) const CHANGE: Errnos =
    Errnos::Usual(&[EINVAL, ENOMEM, EPERM, EBUSY, EOPNOTSUPP, ETIMEDOUT, ENODEV, EIO]);
/// Errnos of changing a queue pair, for which the peer's host has to be found.
pub(crate) const CHANGE_PATH: Errnos = Errnos::Usual(&[
    EINVAL,
    ENOMEM,
    EPERM,
    EBUSY,
    EOPNOTSUPP,
    ETIMEDOUT,
    ENETUNREACH,
    EHOSTUNREACH,
    ENODEV,
    EIO,
]);
/// Errnos of querying a value.
pub(crate) const QUERY: Errnos = Errnos::Usual(&[EINVAL, ENOMEM, ENOENT, EOPNOTSUPP, ENODEV, EIO]);
/// Errnos of posting requests: a full queue, a wrong request, a device that failed.
pub(crate) const POST: Errnos = Errnos::Usual(&[ENOMEM, EINVAL, EIO]);
/// Errnos of arming a completion queue.
pub(crate) const ARM: Errnos = Errnos::Usual(&[EIO, EINVAL]);
/// Errnos of polling: the manual page promises a negative number only.
pub(crate) const POLL: Errnos = Errnos::Usual(&[EIO, EINVAL]);
/// Errnos of waiting for an event, which is read(2) of a descriptor.
pub(crate) const WAIT: Errnos = Errnos::Usual(&[EIO, EINTR, EAGAIN, EBADF, EINVAL]);
/// Errnos of waiting for an event of connection management.
pub(crate) const CM_WAIT: Errnos =
    Errnos::Usual(&[EIO, EINTR, EAGAIN, EBADF, EINVAL, ENOMEM, ECONNREFUSED, ETIMEDOUT]);
/// Errnos of addresses and routes.
pub(crate) const ADDRESS: Errnos = Errnos::Usual(&[
    EADDRNOTAVAIL,
    EADDRINUSE,
    EAFNOSUPPORT,
    ENODEV,
    ENETUNREACH,
    EHOSTUNREACH,
    ETIMEDOUT,
    EINVAL,
    ENOMEM,
    EIO,
]);
/// Errnos of the steps of a connection.
pub(crate) const CONNECT: Errnos = Errnos::Usual(&[
    ECONNREFUSED,
    ETIMEDOUT,
    ENOTCONN,
    EISCONN,
    ENETUNREACH,
    EHOSTUNREACH,
    EINVAL,
    ENOMEM,
    ENODEV,
    EIO,
]);
/// Errnos of other calls of librdmacm.
pub(crate) const CM: Errnos = Errnos::Usual(&[EINVAL, ENOMEM, EOPNOTSUPP, EBUSY, ENODEV, EIO]);
pub(crate) const LIST: Errnos = Errnos::Listed(&[ENOMEM, EPERM, ENOSYS]);
pub(crate) const DEVICES: Errnos = Errnos::Usual(&[ENOMEM, ENODEV, EPERM, ENOSYS]);
pub(crate) const GID: Errnos = Errnos::Usual(&[ENODATA, EINVAL, EOPNOTSUPP, EIO]);
pub(crate) const FORK: Errnos = Errnos::Listed(&[EINVAL]);
pub(crate) const ADVISE: Errnos =
    Errnos::Listed(&[ENOMEM, EOPNOTSUPP, EFAULT, EINVAL, EPERM, ENOENT, ENOSYS]);
pub(crate) const ECE: Errnos = Errnos::Listed(&[EINVAL, EOPNOTSUPP]);
pub(crate) const NOTIFY: Errnos = Errnos::Usual(&[EINVAL, EISCONN, ENODEV, EIO]);

// Calls of rsockets: rsocket(7) lists no errnos, and says that they behave as those of sockets. So these are
// errnos that the calls of sockets are known to give, and those of rsockets when a peer has ended.
pub(crate) const SOCKET: Errnos = Errnos::Usual(&[
    ENOMEM,
    ENOBUFS,
    EMFILE,
    ENFILE,
    EACCES,
    EAFNOSUPPORT,
    EINVAL,
    EPROTONOSUPPORT,
    EOPNOTSUPP,
]);
pub(crate) const BIND: Errnos =
    Errnos::Usual(&[EADDRINUSE, EADDRNOTAVAIL, EACCES, EBADF, EINVAL, ENOTSOCK, EFAULT]);
pub(crate) const LISTEN: Errnos = Errnos::Usual(&[EADDRINUSE, EBADF, EINVAL, ENOTSOCK, EOPNOTSUPP]);
pub(crate) const ACCEPT: Errnos = Errnos::Usual(&[
    ECONNABORTED,
    EMFILE,
    ENFILE,
    ENOBUFS,
    ENOMEM,
    EAGAIN,
    EINTR,
    EBADF,
    EFAULT,
    EINVAL,
    ENOTSOCK,
    EOPNOTSUPP,
    EPERM,
    EPROTO,
]);
pub(crate) const CONNECT_SOCKET: Errnos = Errnos::Usual(&[
    ECONNREFUSED,
    ETIMEDOUT,
    ENETUNREACH,
    EHOSTUNREACH,
    ECONNRESET,
    EADDRINUSE,
    EADDRNOTAVAIL,
    EAFNOSUPPORT,
    EACCES,
    EPERM,
    EAGAIN,
    EALREADY,
    EINPROGRESS,
    EINTR,
    EISCONN,
    EBADF,
    EFAULT,
    EINVAL,
    ENOMEM,
    ENOTSOCK,
]);
pub(crate) const SHUTDOWN: Errnos = Errnos::Usual(&[ENOTCONN, EBADF, EINVAL, ENOTSOCK]);
pub(crate) const CLOSE: Errnos = Errnos::Usual(&[EIO, EBADF, EINTR]);
pub(crate) const SEND: Errnos = Errnos::Usual(&[
    ECONNRESET,
    EPIPE,
    ENOBUFS,
    ENOMEM,
    EAGAIN,
    EINTR,
    ENOTCONN,
    EMSGSIZE,
    EDESTADDRREQ,
    EISCONN,
    EACCES,
    EBADF,
    EFAULT,
    EINVAL,
    ENOTSOCK,
    EOPNOTSUPP,
    EIO,
]);
pub(crate) const RECEIVE: Errnos = Errnos::Usual(&[
    ECONNRESET,
    ECONNREFUSED,
    ENOMEM,
    EAGAIN,
    EINTR,
    ENOTCONN,
    ETIMEDOUT,
    EBADF,
    EFAULT,
    EINVAL,
    ENOTSOCK,
    EIO,
]);
pub(crate) const WAIT_SOCKETS: Errnos = Errnos::Usual(&[ENOMEM, EINTR, EINVAL, EFAULT, EBADF]);
pub(crate) const NAME: Errnos = Errnos::Usual(&[ENOTCONN, ENOBUFS, EBADF, EFAULT, EINVAL, ENOTSOCK]);
pub(crate) const OPTION: Errnos = Errnos::Usual(&[ENOPROTOOPT, EBADF, EFAULT, EINVAL, ENOTSOCK, EOPNOTSUPP]);
pub(crate) const FILE_FLAGS: Errnos = Errnos::Usual(&[EINVAL, EACCES, EAGAIN, EBADF, EPERM, EOPNOTSUPP]);
pub(crate) const MAP: Errnos = Errnos::Usual(&[ENOMEM, EINVAL, EBADF, ENOTSOCK, ENOTCONN, EOPNOTSUPP]);
pub(crate) const EPOLL: Errnos = Errnos::Usual(&[ENOMEM, EMFILE, ENFILE, EINVAL]);
pub(crate) const EPOLL_CONTROL: Errnos =
    Errnos::Usual(&[ENOMEM, ENOSPC, EEXIST, ENOENT, EBADF, EINVAL, EPERM, EFAULT]);
