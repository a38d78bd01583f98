//! `libpumice_sysfs.so`: loaded with LD_PRELOAD, it shows a program a private `/sys/class/infiniband` and
//! `/dev/infiniband`, those below the folder that PUMICE_SYSFS names. Everything else is left alone.
//!
//! It takes the place of the C library's functions that take paths (`calls`), compares the beginning of the
//! path (`place`), and calls the C library's own (`original`).
//!
//! **Invariant**: no locks and no allocation, because these functions are called before `main`, in fork
//! children, in signal handlers, and by allocators. No panics either: bytes are looked at through pointers and
//! checked slices only.

// Unit tests are linked without the functions of the C library's names.
#![cfg_attr(test, allow(dead_code))]

mod original;
mod place;
mod root;

#[cfg(not(test))]
mod calls;
