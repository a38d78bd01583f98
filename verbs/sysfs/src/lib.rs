//! `libpumice_sysfs.so`: loaded with LD_PRELOAD, it shows a program a private `/sys/class/infiniband` and
//! `/dev/infiniband`, those below the folder that PUMICE_SYSFS names, and leads Python packages that bundle a
//! libibverbs of their own to the library that PUMICE_LIBRARY names. Everything else is left alone.
//!
//! It replaces the C library's functions that take paths (`calls`), compares the beginning of the path
//! (`private_path`), and calls the original functions (`original`). Files of counters and port states have
//! present contents when they are opened (`live`, `condition`), and devices that are pulled out are hidden
//! (`removed_devices`). Questions to the kernel about RDMA devices are answered from the tree (`netlink`,
//! `request`, `replies`, `attributes`). `bundled` handles dlopen, `threads` the names of the program's
//! threads (`thread_names`), and `connections` connect(2).
//!
//! **Invariant**: no locks and no allocation, because these functions are called before `main`, in fork
//! children, in signal handlers, and by allocators. No panics either: bytes are accessed through pointers and
//! checked slices only. (dlopen and pthread_create themselves do this, so a program's first dlopen and its
//! calls of pthread_create may.)
//!
//! **Invariant**: a thread that is cancelled inside a call, open(2) being a cancellation point, is unwound
//! through these functions: they have the ABI that allows it, and nothing to clean up.

// Unit tests are linked without the functions that have the C library's names.
#![cfg_attr(test, allow(dead_code))]

mod condition;
mod kernel;
mod live;
mod private_path;
mod removed_devices;
mod replies;
mod request;
mod thread_names;

#[cfg(not(test))]
mod bundled;
#[cfg(not(test))]
mod calls;
#[cfg(not(test))]
mod connections;
#[cfg(not(test))]
mod netlink;
#[cfg(not(test))]
mod threads;
