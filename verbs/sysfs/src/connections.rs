//! Reports TCP's connect(2) to libpumice.so: the order of connections decides which one a server accepts
//! first, and a replay reproduces that order.

use std::ffi::{c_int, c_void};
use std::mem::transmute;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{sockaddr, socklen_t};

use crate::kernel::{Original, errno, set_errno};

/// The C library's `connect`.
pub(crate) static ORIGINAL: Original = Original::new(c"connect");

type Connect = unsafe extern "C-unwind" fn(c_int, *const sockaddr, socklen_t) -> c_int;

/// The functions that libpumice.so registers: it has the same structure, in
/// `verbs/capi/src/gate/fired.rs`.
#[repr(C)]
struct ConnectionHooks {
    /// Called when a thread begins to connect, which it may delay.
    before_connect: extern "C" fn(),
    /// Called when the thread has connected (1), or has failed to (0).
    after_connect: extern "C" fn(c_int),
}

/// The registered functions; null if there are none.
static HOOKS: AtomicPtr<ConnectionHooks> = AtomicPtr::new(null_mut());

/// Registers functions. libpumice.so calls this once, if an order is to be recorded or reproduced.
///
/// # Safety
/// `hooks` stays valid as long as the process lives.
#[unsafe(no_mangle)]
unsafe extern "C" fn pumice_connections_told_to(hooks: *mut ConnectionHooks) {
    HOOKS.store(hooks, Ordering::Release);
}

/// Reports whether the descriptor is a stream socket, and the address one of IP.
///
/// # Safety
/// The address is readable, or null.
unsafe fn is_tcp(descriptor: c_int, to: *const sockaddr) -> bool {
    // SAFETY: the caller guarantees that the address is readable or null.
    let family = unsafe { to.as_ref() }.map(|to| c_int::from(to.sa_family));
    let (mut kind, mut length): (c_int, socklen_t) = (0, size_of::<c_int>() as socklen_t);
    // SAFETY: the pointers are to an integer and its length.
    let status = unsafe {
        let kind = (&raw mut kind).cast();
        libc::getsockopt(descriptor, libc::SOL_SOCKET, libc::SO_TYPE, kind, &raw mut length)
    };
    matches!(family, Some(libc::AF_INET | libc::AF_INET6)) && status == 0 && kind == libc::SOCK_STREAM
}

/// Calls connect(2), and the registered functions before and after it.
///
/// # Safety
/// The requirements of the C library's function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn connect(
    descriptor: c_int,
    to: *const sockaddr,
    length: socklen_t,
) -> c_int {
    let address = ORIGINAL.address();
    if address.is_null() {
        return -1;
    }
    // SAFETY: the C library's function of this name has this type.
    let original = unsafe { transmute::<*mut c_void, Connect>(address) };
    // SAFETY: the pointer is null, or what libpumice.so registered, which stays valid; the caller guarantees
    // the address.
    let hooks = unsafe { HOOKS.load(Ordering::Acquire).as_ref().filter(|_| is_tcp(descriptor, to)) };
    if let Some(hooks) = hooks {
        (hooks.before_connect)();
    }
    // SAFETY: the caller guarantees what the C library's function requires.
    let outcome = unsafe { original(descriptor, to, length) };
    if let Some(hooks) = hooks {
        let before = errno();
        (hooks.after_connect)(c_int::from(outcome == 0 || before == libc::EINPROGRESS));
        set_errno(before);
    }
    outcome
}
