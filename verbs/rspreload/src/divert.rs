//! Functions that take a descriptor and have a counterpart in librdmacm with the same arguments, one line
//! each.

use std::ffi::{c_int, c_void};

use libc::{iovec, msghdr, size_t, sockaddr, socklen_t, ssize_t};

use crate::descriptors::is_rsocket;
use crate::functions::call;

/// Defines functions that call librdmacm for rsockets.
macro_rules! divert {
    ($(fn $name:literal $identifier:ident($($argument:ident: $type:ty),*) -> $result:ty = $other:literal;)*) => {
        $(
            /// Calls the C library's function, or librdmacm's for an rsocket.
            ///
            /// # Safety
            /// The requirements are those of the C library's function.
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C-unwind" fn $identifier(fd: c_int $(, $argument: $type)*) -> $result {
                if is_rsocket(fd) {
                    return call!(of_librdmacm $other, (fd: c_int $(, $argument: $type)*) -> $result);
                }
                call!(original $name, (fd: c_int $(, $argument: $type)*) -> $result)
            }
        )*
    };
}

divert! {
    fn "bind" bind(address: *const sockaddr, length: socklen_t) -> c_int = "rbind";
    fn "listen" listen(backlog: c_int) -> c_int = "rlisten";
    fn "connect" connect(address: *const sockaddr, length: socklen_t) -> c_int = "rconnect";
    fn "shutdown" shutdown(how: c_int) -> c_int = "rshutdown";
    fn "getpeername" getpeername(address: *mut sockaddr, length: *mut socklen_t) -> c_int = "rgetpeername";
    fn "getsockname" getsockname(address: *mut sockaddr, length: *mut socklen_t) -> c_int = "rgetsockname";
    fn "setsockopt" setsockopt(level: c_int, option: c_int, value: *const c_void, length: socklen_t) -> c_int
        = "rsetsockopt";
    fn "getsockopt" getsockopt(level: c_int, option: c_int, value: *mut c_void, length: *mut socklen_t) -> c_int
        = "rgetsockopt";
    fn "recv" recv(buffer: *mut c_void, length: size_t, flags: c_int) -> ssize_t = "rrecv";
    fn "recvfrom" recvfrom(buffer: *mut c_void, length: size_t, flags: c_int, address: *mut sockaddr,
        address_length: *mut socklen_t) -> ssize_t = "rrecvfrom";
    fn "recvmsg" recvmsg(message: *mut msghdr, flags: c_int) -> ssize_t = "rrecvmsg";
    fn "read" read(buffer: *mut c_void, length: size_t) -> ssize_t = "rread";
    fn "readv" readv(buffers: *const iovec, count: c_int) -> ssize_t = "rreadv";
    fn "send" send(buffer: *const c_void, length: size_t, flags: c_int) -> ssize_t = "rsend";
    fn "sendto" sendto(buffer: *const c_void, length: size_t, flags: c_int, address: *const sockaddr,
        address_length: socklen_t) -> ssize_t = "rsendto";
    fn "sendmsg" sendmsg(message: *const msghdr, flags: c_int) -> ssize_t = "rsendmsg";
    fn "write" write(buffer: *const c_void, length: size_t) -> ssize_t = "rwrite";
    fn "writev" writev(buffers: *const iovec, count: c_int) -> ssize_t = "rwritev";
}

/// Defines the variants that the compiler calls where it knows how large a buffer is.
macro_rules! divert_checked {
    ($(fn $name:literal $identifier:ident($buffer:ident, $length:ident, $room:ident
        $(, $argument:ident: $type:ty)*) = $other:literal;)*) => {
        $(
            /// Calls the C library's function, or librdmacm's for an rsocket.
            ///
            /// # Safety
            /// The requirements are those of the C library's function.
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C-unwind" fn $identifier(
                fd: c_int, $buffer: *mut c_void, $length: size_t, $room: size_t $(, $argument: $type)*
            ) -> ssize_t {
                if is_rsocket(fd) && $length <= $room {
                    return call!(of_librdmacm $other,
                        (fd: c_int, $buffer: *mut c_void, $length: size_t $(, $argument: $type)*) -> ssize_t);
                }
                call!(original $name, (fd: c_int, $buffer: *mut c_void, $length: size_t, $room: size_t
                    $(, $argument: $type)*) -> ssize_t)
            }
        )*
    };
}

divert_checked! {
    fn "__read_chk" __read_chk(buffer, length, room) = "rread";
    fn "__recv_chk" __recv_chk(buffer, length, room, flags: c_int) = "rrecv";
    fn "__recvfrom_chk" __recvfrom_chk(buffer, length, room, flags: c_int, address: *mut sockaddr,
        address_length: *mut socklen_t) = "rrecvfrom";
}
