//! The C ABI: one shared object that is libibverbs.so.1, librdmacm.so.1, libmlx5.so.1, libefa.so.1,
//! libmlx4.so.1 and libmana.so.1, through symbolic links to `libpumice.so`.
//!
//! `build.rs` exports every symbol of `symbols/*.txt` with its version; the function of that name in
//! this crate serves it, and a name without such a function is refused (`ground::unserved`). The data path is
//! inline in verbs.h and arrives through the tables of operations in `tables`.
//!
//! **Invariant**: an object that a program holds is a box whose first field is its C structure. The
//! program's pointer is the box. Objects outlive their use and contexts outlive their objects because
//! the verbs API asks that of programs; NULL is refused everywhere.

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
