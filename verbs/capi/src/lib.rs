//! The C ABI: one shared object that is libibverbs.so.1, librdmacm.so.1, libmlx5.so.1, libefa.so.1,
//! libmlx4.so.1, libmana.so.1 and libmrc.so.1, through symbolic links to `libpumice.so`.
//!
//! `build.rs` exports every symbol of the table of calls (`pumice_calls`) with its version; the function of
//! that name in this crate implements it, and calls that the table marks as refused are refused
//! (`entry::unsupported`). The data path is inline in verbs.h and arrives through the tables of operations in
//! `tables`.
//!
//! Layers, from the lowest: `abi` (the ABI's structures), `platform` (what the operating system is asked),
//! `call_sites` (where the program is), `log`, `check`, `gate` (what happens at the entry of a call), `entry`
//! (arguments, results, the register of objects), `objects` (one file per object), `calls` (one file per
//! family of calls), `tables` (the function pointers; the only place that knows all calls), `rdma_cm`,
//! `rsocket`. A layer imports only layers below it.
//!
//! **Invariant**: an object that a program holds is an `Arc` in the register of objects (`entry::handles`),
//! with its C structure at the beginning, which the program's pointer leads to. Calls find it there by any
//! pointer that the program gives. Calls on the data path trust the pointer (`entry::arguments::Trusted`);
//! the verbs API requires programs not to destroy objects that they use. NULL is refused everywhere.

// Input from the network, from the program's arguments or from shared memory must not end the program.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)
)]
// These are the names of verbs.h.
#![allow(non_camel_case_types, non_snake_case)]
// Unit tests are linked without the exported symbols, which are the only users of most of this.
#![cfg_attr(test, allow(dead_code))]

pub(crate) mod abi;
mod call_sites;
mod calls;
pub(crate) mod check;
pub(crate) mod entry;
pub(crate) mod gate;
pub(crate) mod log;
pub(crate) mod mappings;
pub(crate) mod objects;
pub(crate) mod platform;
mod rdma_cm;
mod rsocket;
mod tables;
pub(crate) mod waits;

#[cfg(not(test))]
#[global_allocator]
static ALLOCATOR: crate::platform::reserve::Reserved = crate::platform::reserve::Reserved;

#[cfg(not(test))]
mod exports {
    include!(concat!(env!("OUT_DIR"), "/exports.rs"));
}
