//! Acknowledgement, names and writing of events.

use std::ffi::{c_char, c_int};

use pumice_calls::Call;

use crate::abi::rdma_cm_event;
use crate::check;
use crate::entry::outcome::{number, number_of};
use crate::platform::errno::INVALID;
use crate::rdma_cm::constants::{USER, event_name};
use crate::rdma_cm::events::event::acknowledge;
use crate::rdma_cm::id::channel::EventParameters;
use crate::rdma_cm::id::identifier::{IdPointer, LocalEvent};

pub(crate) extern "C" fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    number(Call::rdma_ack_cm_event, || {
        let done = acknowledge(event);
        if check::is_on() {
            check::misuse::acknowledges_event(event.addr(), done.is_ok());
        }
        done.map(|()| 0)
    })
}

pub(crate) extern "C" fn rdma_event_str(event: c_int) -> *const c_char {
    event_name(event).as_ptr()
}

/// Queues RDMA_CM_EVENT_USER with this status and number, which wakes the threads that wait at the
/// identifier's channel.
pub(crate) extern "C" fn rdma_write_cm_event(id: IdPointer, event: u32, status: c_int, arg: u64) -> c_int {
    number_of(Call::rdma_write_cm_event, id.on(), || {
        let id = id.id()?;
        if event != USER {
            return Err(INVALID.because(|| "programs write RDMA_CM_EVENT_USER only".to_owned()));
        }
        let channel = id.state().channel.clone();
        channel.push(LocalEvent { id, event, status, parameters: EventParameters::Number(arg) });
        Ok(0)
    })
}
