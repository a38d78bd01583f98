//! Slots of tables of operations.

/// A slot of a table of operations: a C function of whatever signature verbs.h gives the slot.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Operation(pub(crate) *const std::ffi::c_void);

/// Names a function as a slot's operation.
macro_rules! operation {
    ($function:expr) => {
        $crate::ground::abi::Operation($function as *const std::ffi::c_void)
    };
}
pub(crate) use operation;
