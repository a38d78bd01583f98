//! The structures that C programs see, with the field names of verbs.h.
//!
//! Sizes and offsets are those of rdma-core 65; `layout.tsv` lists them and every build asserts them.
//! Enumerations are integers: a C program can put any number into them.

mod attributes;
mod connection;
mod device;
mod objects;
mod work;

pub(crate) use attributes::*;
pub(crate) use connection::*;
pub(crate) use device::*;
pub(crate) use objects::*;
pub(crate) use work::*;

/// A slot of a table of operations: a C function of whatever signature verbs.h gives the slot.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Operation(pub(crate) *const std::ffi::c_void);

/// Names a function as a slot's operation.
macro_rules! operation {
    ($function:expr) => {
        crate::ground::abi::Operation($function as *const std::ffi::c_void)
    };
}
pub(crate) use operation;

#[cfg(target_arch = "x86_64")]
mod layout {
    use super::*;

    /// Size of the field that a projection points at.
    const fn size_of_field<S, F>(_: fn(&S) -> *const F) -> usize {
        size_of::<F>()
    }

    include!(concat!(env!("OUT_DIR"), "/layout.rs"));
}
