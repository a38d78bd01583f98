//! Asynchronous events of a context, whose elements are objects of libmrc.

use std::ffi::c_int;
use std::ptr;

use pumice_calls::Call;

use crate::abi::{ibv_async_event, ibv_context, mrc_async_event, mrc_context};
use crate::calls::async_event::{ibv_ack_async_event, next_event};
use crate::entry::arguments::{In, Out};
use crate::entry::handles::find;
use crate::entry::outcome::value;
use crate::objects::mrc::{MrcContext, element_of, inner_of};
use crate::platform::errno::{INVALID, set_errno};

/// Returns the pointer to the context of verbs; NULL if there is no such context of libmrc.
#[inline(never)]
extern "C" fn of_verbs(context: *mut mrc_context) -> *mut ibv_context {
    value(ptr::null_mut(), || {
        find::<MrcContext>(context).map_or(ptr::null_mut(), |held| held.context_pointer())
    })
}

/// Waits for an event as `ibv_get_async_event` does.
pub(crate) extern "C-unwind" fn mrc_get_async_event(
    context: *mut mrc_context,
    event: Out<'_, mrc_async_event>,
) -> c_int {
    let Some(target) = event.optional() else {
        set_errno(INVALID.0);
        return -1;
    };
    let mut taken = ibv_async_event { element: ptr::null_mut(), event_type: 0 };
    let code = next_event(Call::mrc_get_async_event, of_verbs(context), Out::from(&mut taken));
    if code == 0 {
        target.set(as_mrc(&taken));
    }
    code
}

#[inline(never)]
extern "C" fn as_mrc(taken: &ibv_async_event) -> mrc_async_event {
    let element = value(taken.element, || element_of(taken.element));
    mrc_async_event { element, event_type: taken.event_type }
}

pub(crate) extern "C" fn mrc_ack_async_event(event: In<'_, mrc_async_event>) {
    let Some(given) = event.optional() else { return };
    let element = value(given.element, || inner_of(given.element));
    ibv_ack_async_event(In::from(&ibv_async_event { element, event_type: given.event_type }));
}
