//! Closing a device.

use std::ffi::c_int;

use crate::calls::window_bind;
use crate::ground::abi::ibv_context;
use crate::ground::handles::forget_context;
use crate::ground::outcome::status;
use crate::objects::context::Context;
use crate::objects::device::release;

/// Closes a device; what was made on it and not destroyed goes with it.
pub(crate) unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    status(|| {
        // SAFETY: null or an open context.
        let open = unsafe { Context::of(context) }?;
        if open.adapter.is_inherited() {
            // The parent's: its threads are not here to be waited for, and its objects are in use there.
            return Ok(());
        }
        // Acknowledgements that are owed leave before the socket closes.
        open.hca().drive_out();
        open.adapter.distributor.unregister(context);
        open.destroy_leftovers();
        window_bind::forget_all_of(context);
        forget_context(context);
        // SAFETY: it was boxed in `open`; the program does not use it any more.
        let Context { adapter, .. } = *unsafe { Box::from_raw(std::ptr::from_ref(open).cast_mut()) };
        release(adapter);
        Ok(())
    })
}
