//! The C ABI: one shared object that is libibverbs.so.1, librdmacm.so.1, libmlx5.so.1, libefa.so.1,
//! libmlx4.so.1 and libmana.so.1, through symbolic links to `libpumice.so`.
//!
//! `build.rs` exports every symbol of `symbols/*.txt` with its version; the function of that name in
//! this crate serves it, and a name that nobody defines is refused (`refusal`). The data path is
//! inline in verbs.h and arrives through the tables of operations in `context`.
//!
//! **Invariant**: an object that a program holds is a box whose first field is its C structure. The
//! program's pointer is the box. Objects outlive their use and contexts outlive their objects because
//! the verbs API asks that of programs; NULL is refused everywhere.

// The names of verbs.h.
#![allow(non_camel_case_types, non_snake_case)]
// Unit tests are linked without the exported symbols, which are all that uses most of this.
#![cfg_attr(test, allow(dead_code))]

mod abi;
mod address_handle;
mod async_event;
mod buffer;
mod cancellation;
mod command_file;
mod completion_channel;
mod completion_queue;
mod completion_queue_ex;
mod connection_establishment;
mod context;
mod device;
mod device_memory;
mod explanation;
mod fork;
mod import;
mod local_identifier;
mod memory;
mod multicast;
mod names;
mod object;
mod ofed_xrc;
mod outcome;
mod parent_domain;
mod port;
mod post_recv;
mod post_send;
mod process;
mod protection_domain;
mod query;
mod queue_pair;
mod queue_pair_attributes;
mod queue_pair_ex;
mod rates;
mod rdma_cm;
mod refusal;
mod rsocket;
mod shared_receive_queue;
mod sysfs;
mod unexplained;
mod wall_clock;
mod window_bind;
mod xrc_domain;
mod xrc_target;

#[cfg(not(test))]
mod exports {
    include!(concat!(env!("OUT_DIR"), "/exports.rs"));
}
