//! Closing a device.

use std::ffi::c_int;
use std::sync::Arc;

use pumice_calls::Call;

use crate::abi::ibv_context;
use crate::entry::handles::{forget_all_of, is_inherited, take_back};
use crate::entry::outcome::status_of;
use crate::gate::{CallSubject, context_closed};
use crate::objects::adapter::release;
use crate::objects::context::Context;
use crate::objects::memory_window;

/// Closes a device, and destroys its remaining objects.
pub(crate) extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    status_of(Call::ibv_close_device, CallSubject::of(context), || {
        if is_inherited::<Context>(context) {
            // A child gives up its copy, and its parent continues to use the device.
            return Ok(());
        }
        let open = Context::of(context)?;
        let adapter = Arc::clone(open.adapter());
        // Owed acknowledgements are sent before the socket closes.
        adapter.hca().drive_out();
        adapter.distributor().unregister(context);
        open.destroy_leftovers();
        memory_window::forget_all_of(context);
        forget_all_of(context);
        context_closed(context.addr());
        take_back::<Context>(context);
        drop(open);
        release(adapter);
        Ok(())
    })
}
