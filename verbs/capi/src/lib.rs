//! The C ABI: one shared object that is libibverbs.so.1, librdmacm.so.1, libmlx5.so.1, libefa.so.1,
//! libmlx4.so.1 and libmana.so.1, through symbolic links to `libpumice.so`.
//!
//! `build.rs` exports every symbol of the table of calls (`pumice_calls`) with its version; the function of
//! that name in this crate serves it, and what the table says to be refused is (`ground::unserved`). The data
//! path is inline in verbs.h and arrives through the tables of operations in `tables`.
//!
//! Rooms, from the lowest: `ground` (the ABI's structures, the types of arguments, errno, the log, how calls
//! end, the register of objects), `objects` (one file per object), `calls` (one file per family of calls),
//! `tables` (the function pointers; the only place that knows all calls), `rdma_cm`, `rsocket`. A room
//! imports only rooms below it.
//!
//! **Invariant**: an object that a program holds is an `Arc` in the register of objects (`ground::handles`),
//! with its C structure at the beginning, which the program's pointer leads to. Calls find it there by
//! any pointer that the program gives. Calls on the data path trust the pointer
//! (`ground::arguments::Trusted`); the verbs API asks of programs that they do not destroy what they use.
//! NULL is refused everywhere.

// A program must not be ended by what comes from the network, from its arguments or from shared memory.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)
)]
// The names of verbs.h.
#![allow(non_camel_case_types, non_snake_case)]
// Unit tests are linked without the exported symbols, which are all that uses most of this.
#![cfg_attr(test, allow(dead_code))]

mod calls;
mod ground;
mod objects;
mod rdma_cm;
mod rsocket;
mod tables;

#[cfg(not(test))]
mod exports {
    include!(concat!(env!("OUT_DIR"), "/exports.rs"));
}
