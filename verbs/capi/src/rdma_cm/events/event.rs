//! Events as programs get them.

use std::ffi::{CStr, c_int};
use std::ptr;
use std::sync::Arc;

use pumice_device::settings::Log;

use crate::ground::abi::{rdma_cm_event, rdma_conn_param, rdma_event_param, rdma_ud_param};
use crate::ground::errno::Errno;
use crate::ground::handles::{Held, Identity, Listed, Shown, hand_out, live, take_back};
use crate::ground::log::{logs, print_step};
use crate::ground::plain::PassedOn;
use crate::ground::process::Thread;
use crate::ground::zeroed::zeroed;
use crate::rdma_cm::constants::CONNECT_REQUEST;
use crate::rdma_cm::id::acknowledgement::Unacknowledged;
use crate::rdma_cm::id::channel::EventParameters;
use crate::rdma_cm::id::identifier::{Id, LocalEvent};

/// An event, with what it points at.
#[repr(C)]
pub(crate) struct Event {
    c: Shown<rdma_cm_event>,
    event: u32,
    /// 0 or a negative errno or the peer's reason.
    status: c_int,
    /// Kept until the event is acknowledged, even if destroyed before.
    id: Arc<Id>,
    /// The listener that a request came to.
    listener: Option<Arc<Id>>,
    private_data: Box<[u8]>,
    fetched_by: Option<Thread>,
}

// SAFETY: the first field is the C structure.
unsafe impl Held for Event {
    type C = rdma_cm_event;
}

impl Listed for Event {
    const KIND: &'static str = "event of connection management";

    fn identity(_c: &rdma_cm_event) -> Identity {
        Identity::NONE
    }
}

impl Event {
    /// An event of an identifier.
    pub(crate) fn new(
        id: &Arc<Id>,
        event: u32,
        status: c_int,
        parameters: EventParameters,
        private_data: &[u8],
    ) -> Event {
        Event::with_listener(id, None, event, status, parameters, private_data)
    }

    /// A request, which is an event of the new identifier `id` that came to `listener`.
    pub(crate) fn request(
        id: &Arc<Id>,
        listener: Arc<Id>,
        parameters: EventParameters,
        private_data: &[u8],
    ) -> Event {
        Event::with_listener(id, Some(listener), CONNECT_REQUEST, 0, parameters, private_data)
    }

    /// An event of this library's own.
    pub(crate) fn local(local: LocalEvent) -> Event {
        Event::new(&local.id, local.event, local.status, local.parameters, &[])
    }

    fn with_listener(
        id: &Arc<Id>,
        listener: Option<Arc<Id>>,
        event: u32,
        status: c_int,
        parameters: EventParameters,
        private_data: &[u8],
    ) -> Event {
        if logs(Log::Debug) {
            let name = name(event as c_int).to_string_lossy();
            print_step(&format!("cm id {:p}  {name}  status {status}", id.as_ptr()));
        }
        let private_data: Box<[u8]> = private_data.into();
        let c = rdma_cm_event {
            id: id.as_ptr(),
            listen_id: listener.as_ref().map_or(ptr::null_mut(), |listener| listener.as_ptr()),
            event,
            status,
            param: c_parameters(parameters, &private_data),
        };
        let id = Arc::clone(id);
        Event { c: Shown::new(c), event, status, id, listener, private_data, fetched_by: None }
    }

    /// Its `RDMA_CM_EVENT_*`, and 0 or a negative errno or the peer's reason.
    pub(crate) const fn facts(&self) -> (u32, c_int) {
        (self.event, self.status)
    }

    /// The identifier whose event it is.
    pub(crate) const fn id(&self) -> &Arc<Id> {
        &self.id
    }

    /// The peer's private data.
    pub(crate) fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// A program's thread has it from now on, until it is acknowledged.
    pub(crate) fn fetched(mut self, by: Thread) -> Event {
        self.unacknowledged().fetched(by);
        self.fetched_by = Some(by);
        self
    }

    /// Gives the event to the program, until it is acknowledged. The identifier of a request is the
    /// program's, too.
    pub(crate) fn hand_out(self) -> *mut rdma_cm_event {
        if self.event == CONNECT_REQUEST {
            let _ = self.id.hand_out();
        }
        hand_out(self)
    }

    /// The count of the identifier that waits for the acknowledgement: that of a request is its listener.
    fn unacknowledged(&self) -> &Unacknowledged {
        self.listener.as_ref().unwrap_or(&self.id).unacknowledged()
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Some(thread) = self.fetched_by {
            self.unacknowledged().acknowledged(thread);
        }
    }
}

/// Takes an event back from the program.
///
/// # Errors
/// EINVAL: it is null. ENOENT: there is no such event (any more).
pub(crate) fn acknowledge(event: *mut rdma_cm_event) -> Result<(), Errno> {
    live::<Event>(event)?;
    take_back::<Event>(event);
    Ok(())
}

/// The parameters in their C form, which points at the private data.
fn c_parameters(parameters: EventParameters, private_data: &[u8]) -> rdma_event_param {
    let data = if private_data.is_empty() { ptr::null() } else { private_data.as_ptr().cast() };
    // No message has room for more than 255.
    let length = private_data.len().min(255) as u8;
    // The longest of the union first, so that no byte of it is left as it was.
    let mut c = rdma_event_param { ud: zeroed() };
    match parameters {
        EventParameters::None => {}
        EventParameters::Connection(PassedOn(param)) => {
            c.conn = rdma_conn_param { private_data: data, private_data_len: length, ..param };
        }
        EventParameters::Datagram(PassedOn(param)) => {
            c.ud = rdma_ud_param { private_data: data, private_data_len: length, ..param };
        }
        EventParameters::Group(PassedOn(param)) => c.ud = param,
        EventParameters::Number(number) => c.arg = number,
    }
    c
}

/// Parameters of a connection.
pub(crate) const fn of_connection(param: rdma_conn_param) -> EventParameters {
    EventParameters::Connection(PassedOn(param))
}

/// Parameters of datagrams.
pub(crate) const fn of_datagrams(param: rdma_ud_param) -> EventParameters {
    EventParameters::Datagram(PassedOn(param))
}

/// The name of a `RDMA_CM_EVENT_*`.
pub(crate) fn name(event: c_int) -> &'static CStr {
    const NAMES: [&CStr; 19] = [
        c"RDMA_CM_EVENT_ADDR_RESOLVED",
        c"RDMA_CM_EVENT_ADDR_ERROR",
        c"RDMA_CM_EVENT_ROUTE_RESOLVED",
        c"RDMA_CM_EVENT_ROUTE_ERROR",
        c"RDMA_CM_EVENT_CONNECT_REQUEST",
        c"RDMA_CM_EVENT_CONNECT_RESPONSE",
        c"RDMA_CM_EVENT_CONNECT_ERROR",
        c"RDMA_CM_EVENT_UNREACHABLE",
        c"RDMA_CM_EVENT_REJECTED",
        c"RDMA_CM_EVENT_ESTABLISHED",
        c"RDMA_CM_EVENT_DISCONNECTED",
        c"RDMA_CM_EVENT_DEVICE_REMOVAL",
        c"RDMA_CM_EVENT_MULTICAST_JOIN",
        c"RDMA_CM_EVENT_MULTICAST_ERROR",
        c"RDMA_CM_EVENT_ADDR_CHANGE",
        c"RDMA_CM_EVENT_TIMEWAIT_EXIT",
        c"RDMA_CM_EVENT_ADDRINFO_RESOLVED",
        c"RDMA_CM_EVENT_ADDRINFO_ERROR",
        c"RDMA_CM_EVENT_USER",
    ];
    let name = usize::try_from(event).ok().and_then(|index| NAMES.get(index));
    name.copied().unwrap_or(c"UNKNOWN EVENT")
}
