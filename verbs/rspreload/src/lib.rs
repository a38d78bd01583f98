//! The preload `libpumice_rsocket.so`: loaded with LD_PRELOAD, it replaces a program's TCP sockets by
//! rsockets. Both sides of a connection must use rsockets. All other sockets, UDP included, are left to the C
//! library.
//!
//! A socket has the descriptor that librdmacm gives it, so only one fact about a descriptor is recorded:
//! whether it is one of them (`descriptors`). The functions that replace the C library's check that, and call
//! librdmacm's or the C library's (`functions`): those of one descriptor in `divert`, others by hand in
//! `sockets` and `waiting`.
//!
//! **Invariant**: no locks and no allocation of its own: these functions are called before `main`, in forked
//! children and in signal handlers, and threads are cancelled in them: no frame owns anything, and all are of
//! "C-unwind". A descriptor that is no rsocket costs one table lookup.

// Unit tests are linked without the functions of the C library's names.
#![cfg_attr(test, allow(dead_code))]

mod descriptors;

#[cfg(not(test))]
mod divert;
#[cfg(not(test))]
mod functions;
#[cfg(not(test))]
mod sockets;
#[cfg(not(test))]
mod waiting;
