//! Events as programs get them, converted from the device's when a program fetches them ([`translation`]).

use std::ffi::c_int;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use pumice_device::settings::LogLevel;

use crate::abi::plain::{ForwardedStruct, zeroed};
use crate::abi::{rdma_cm_event, rdma_conn_param, rdma_event_param, rdma_ud_param};
use crate::check::{self, LatePage};
use crate::entry::handles::{
    CObject, HandleIdentity, RegisteredObject, SharedStruct, hand_out_shared, live, show, take_back,
};
use crate::log::{logs, print_step};
use crate::platform::Errno;
use crate::rdma_cm::constants::{CONNECT_REQUEST, event_name};
use crate::rdma_cm::id::acknowledgement::UnacknowledgedEvents;
use crate::rdma_cm::id::channel::EventParameters;
use crate::rdma_cm::id::{Id, LocalEvent};

/// An event, with the data that it points at.
#[repr(C)]
pub(crate) struct RdmaCmEvent {
    c: SharedStruct<rdma_cm_event>,
    event: u32,
    /// Status: 0, a negative errno, or the peer's reason.
    status: c_int,
    /// Identifier, referenced until the event is acknowledged, even if destroyed before.
    id: Arc<Id>,
    /// Listener that a request came to.
    listener: Option<Arc<Id>>,
    private_data: EventPrivateData,
    /// Event count of the membership in a group, for the event of joining: leaving waits for it.
    membership: Option<Arc<UnacknowledgedEvents>>,
    fetched: bool,
    /// Page with the private data, in a program that is checked.
    page: Mutex<Option<LatePage>>,
}

/// Private data of the peer, stored in the event itself as in rdma-core: a program that reads it after it
/// acknowledged the event finds it as long as the event's memory is not reused, which the register decides.
struct EventPrivateData {
    bytes: [u8; EventPrivateData::MAX_BYTES],
    length: u8,
}

impl EventPrivateData {
    /// Largest length in bytes: no message has room for more.
    const MAX_BYTES: usize = u8::MAX as usize;

    fn new(data: &[u8]) -> EventPrivateData {
        let mut bytes = [0; EventPrivateData::MAX_BYTES];
        bytes.iter_mut().zip(data).for_each(|(target, byte)| *target = *byte);
        EventPrivateData { bytes, length: data.len().min(EventPrivateData::MAX_BYTES) as u8 }
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length.into()).unwrap_or_default()
    }
}

// SAFETY: the first field is the C structure.
unsafe impl CObject for RdmaCmEvent {
    type C = rdma_cm_event;
}

impl RegisteredObject for RdmaCmEvent {
    const KIND: &'static str = "event of connection management";

    fn identity(_c: &rdma_cm_event) -> HandleIdentity {
        HandleIdentity::NONE
    }
}

impl RdmaCmEvent {
    /// Creates an event of an identifier.
    pub(crate) fn new(
        id: &Arc<Id>,
        event: u32,
        status: c_int,
        parameters: EventParameters,
        private_data: &[u8],
    ) -> RdmaCmEvent {
        RdmaCmEvent::with_listener(id, None, event, status, parameters, private_data)
    }

    /// Creates a request, which is an event of the new identifier `id` that came to `listener`.
    pub(crate) fn request(
        id: &Arc<Id>,
        listener: Arc<Id>,
        parameters: EventParameters,
        private_data: &[u8],
    ) -> RdmaCmEvent {
        RdmaCmEvent::with_listener(id, Some(listener), CONNECT_REQUEST, 0, parameters, private_data)
    }

    /// Creates an event of this library's own.
    pub(crate) fn local(local: LocalEvent) -> RdmaCmEvent {
        RdmaCmEvent::new(&local.id, local.event, local.status, local.parameters, &[])
    }

    fn with_listener(
        id: &Arc<Id>,
        listener: Option<Arc<Id>>,
        event: u32,
        status: c_int,
        parameters: EventParameters,
        private_data: &[u8],
    ) -> RdmaCmEvent {
        if logs(LogLevel::Debug) {
            let name = event_name(event as c_int).to_string_lossy();
            print_step(&format!("cm id {:p}  {name}  status {status}", id.as_ptr()));
        }
        let private_data = EventPrivateData::new(private_data);
        let membership = parameters.membership();
        let c = rdma_cm_event {
            id: id.as_ptr(),
            listen_id: listener.as_ref().map_or(ptr::null_mut(), |listener| listener.as_ptr()),
            event,
            status,
            param: c_parameters(parameters, private_data.length),
        };
        let id = Arc::clone(id);
        let (c, page) = (SharedStruct::new(c), Mutex::new(None));
        RdmaCmEvent { c, event, status, id, listener, private_data, membership, fetched: false, page }
    }

    /// Returns its `RDMA_CM_EVENT_*`, and its status: 0, a negative errno, or the peer's reason.
    pub(crate) const fn facts(&self) -> (u32, c_int) {
        (self.event, self.status)
    }

    /// Returns the identifier whose event it is.
    pub(crate) const fn id(&self) -> &Arc<Id> {
        &self.id
    }

    /// Returns the peer's private data.
    pub(crate) fn private_data(&self) -> &[u8] {
        self.private_data.bytes()
    }

    /// Records that a program has fetched it, until it is acknowledged.
    pub(crate) fn fetched(mut self) -> RdmaCmEvent {
        self.counts().for_each(|count| count.fetched(self.event));
        self.fetched = true;
        self
    }

    /// Gives the event to the program, until it is acknowledged. The identifier of a request then belongs to
    /// the program, too.
    pub(crate) fn hand_out(self) -> *mut rdma_cm_event {
        //= man:rdma_accept
        //| A request comes with an identifier of its own.
        if self.event == CONNECT_REQUEST {
            let _ = self.id.hand_out();
        }
        let event = Arc::new(self);
        if event.private_data.length > 0 {
            let page = LatePage::with(event.private_data());
            let own = event.private_data.bytes.as_ptr();
            let data = page.as_ref().map_or(own, |page| ptr::with_exposed_provenance(page.address())).cast();
            *event.page.lock().unwrap_or_else(PoisonError::into_inner) = page;
            // The pointer is at the same offset for connections and datagrams.
            show!(event.c, param.conn.private_data = data);
        }
        hand_out_shared(&event)
    }

    /// Returns the identifier that waits for the acknowledgement: for a request it is the listener.
    pub(crate) fn waiter(&self) -> &Arc<Id> {
        self.listener.as_ref().unwrap_or(&self.id)
    }

    /// Returns the counts that wait for the acknowledgement.
    fn counts(&self) -> impl Iterator<Item = &UnacknowledgedEvents> {
        std::iter::once(self.waiter().unacknowledged()).chain(self.membership.as_deref())
    }
}

impl Drop for RdmaCmEvent {
    fn drop(&mut self) {
        if self.fetched {
            self.counts().for_each(|count| count.acknowledged(self.event));
        }
    }
}

/// Acknowledges an event for the program.
///
/// # Errors
/// Fails with EINVAL if the pointer is null, and with ENOENT if there is no such event (any more).
pub(crate) fn acknowledge(event: *mut rdma_cm_event) -> Result<(), Errno> {
    let known = live::<RdmaCmEvent>(event)?;
    if let Some(page) = known.page.lock().unwrap_or_else(PoisonError::into_inner).take() {
        page.give_back(event.addr(), &event_name(known.event as c_int).to_string_lossy());
    }
    drop(known);
    check::with_checker(|checker| checker.cm_event_acknowledged(event.addr() as u64));
    //= man:rdma_ack_cm_event
    //| The acknowledgement frees the event and its private data.
    take_back::<RdmaCmEvent>(event);
    Ok(())
}

/// Converts the parameters to their C form, with this length of private data; the pointer to it is set later.
fn c_parameters(parameters: EventParameters, length: u8) -> rdma_event_param {
    // The longest member of the union is written first, so that all its bytes are initialised.
    let mut c = rdma_event_param { ud: zeroed() };
    match parameters {
        EventParameters::None => {}
        EventParameters::Connection(ForwardedStruct(param)) => {
            c.conn = rdma_conn_param { private_data: ptr::null(), private_data_len: length, ..param };
        }
        EventParameters::Datagram(ForwardedStruct(param)) => {
            c.ud = rdma_ud_param { private_data: ptr::null(), private_data_len: length, ..param };
        }
        EventParameters::Group(ForwardedStruct(param), _) => c.ud = param,
        EventParameters::Number(number) => c.arg = number,
    }
    c
}

/// Returns parameters of a connection.
pub(crate) const fn of_connection(param: rdma_conn_param) -> EventParameters {
    EventParameters::Connection(ForwardedStruct(param))
}

/// Returns parameters of datagrams.
pub(crate) const fn of_datagrams(param: rdma_ud_param) -> EventParameters {
    EventParameters::Datagram(ForwardedStruct(param))
}

pub(crate) mod translation;
