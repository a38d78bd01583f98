//! connect(2) of TCP, as libpumice.so wants to be told of it: which connection is made first decides which
//! one a server accepts first, and a replay brings that order about.

use std::ffi::{c_int, c_void};
use std::mem::transmute;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{sockaddr, socklen_t};

use crate::original::{Original, errno, set_errno};

/// The C library's.
pub(crate) static ORIGINAL: Original = Original::new(c"connect");

type Connect = unsafe extern "C-unwind" fn(c_int, *const sockaddr, socklen_t) -> c_int;

/// What libpumice.so gives: it has the same structure, in `verbs/capi/src/ground/connections.rs`.
#[repr(C)]
struct ConnectionHooks {
    /// A thread begins to connect; it may be held back.
    enters: extern "C" fn(),
    /// It has connected (1), or not (0).
    leaves: extern "C" fn(c_int),
}

/// Null: nothing is to be told.
static WATCH: AtomicPtr<ConnectionHooks> = AtomicPtr::new(null_mut());

/// libpumice.so calls this once, if there is an order to write down or to bring about.
///
/// # Safety
/// `watch` stays where it is as long as the process lives.
#[unsafe(no_mangle)]
unsafe extern "C" fn pumice_connections_told_to(watch: *mut ConnectionHooks) {
    WATCH.store(watch, Ordering::Release);
}

/// Whether it is a stream to an address of IP.
///
/// # Safety
/// The address is readable, or null.
unsafe fn is_tcp(descriptor: c_int, to: *const sockaddr) -> bool {
    // SAFETY: the caller's promise.
    let family = unsafe { to.as_ref() }.map(|to| c_int::from(to.sa_family));
    let (mut kind, mut length): (c_int, socklen_t) = (0, size_of::<c_int>() as socklen_t);
    // SAFETY: an integer and its length.
    let status = unsafe {
        let kind = (&raw mut kind).cast();
        libc::getsockopt(descriptor, libc::SOL_SOCKET, libc::SO_TYPE, kind, &raw mut length)
    };
    matches!(family, Some(libc::AF_INET | libc::AF_INET6)) && status == 0 && kind == libc::SOCK_STREAM
}

/// connect(2).
///
/// # Safety
/// That of the C library's function.
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
    // SAFETY: the C library's function of this name, which has this type.
    let original = unsafe { transmute::<*mut c_void, Connect>(address) };
    // SAFETY: null, or what libpumice.so gave, which stays; the caller's promise about the address.
    let watch = unsafe { WATCH.load(Ordering::Acquire).as_ref().filter(|_| is_tcp(descriptor, to)) };
    if let Some(watch) = watch {
        (watch.enters)();
    }
    // SAFETY: the caller's promise.
    let outcome = unsafe { original(descriptor, to, length) };
    if let Some(watch) = watch {
        let before = errno();
        (watch.leaves)(c_int::from(outcome == 0 || before == libc::EINPROGRESS));
        set_errno(before);
    }
    outcome
}
