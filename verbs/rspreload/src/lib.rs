//! `libpumice_rsocket.so`: loaded with LD_PRELOAD, it makes rsockets of a program's TCP sockets. Both sides
//! of a connection must use rsockets. Everything else, UDP included, is left to the C library.
//!
//! A socket keeps the descriptor that librdmacm gives it, so all that is to be known of a descriptor is
//! whether it is one of them (`descriptors`). The functions that take the place of the C library's ask that,
//! and call librdmacm's or the C library's (`functions`): those of one descriptor in `divert`, others by hand
//! in `sockets` and `waiting`.
//!
//! **Invariant**: no locks and no allocation of its own: these functions are called before `main`, in fork
//! children and in signal handlers, and threads are cancelled in them: no frame owns anything, and all are of
//! "C-unwind". A descriptor that is no rsocket costs one look into a table.

// Unit tests are linked without the functions of the C library's names.
#![cfg_attr(test, allow(dead_code))]

mod borrower;
mod descriptors;

#[cfg(not(test))]
mod divert;
#[cfg(not(test))]
mod functions;
#[cfg(not(test))]
mod sockets;
#[cfg(not(test))]
mod waiting;
