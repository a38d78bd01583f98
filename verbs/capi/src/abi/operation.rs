//! Slots of tables of operations.

/// An entry of a table of operations: a C function with the signature that verbs.h gives the entry.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Operation(pub(crate) *const std::ffi::c_void);

/// Names a function as the operation of an entry.
macro_rules! operation {
    ($function:expr) => {
        $crate::abi::Operation($function as *const std::ffi::c_void)
    };
}
pub(crate) use operation;
