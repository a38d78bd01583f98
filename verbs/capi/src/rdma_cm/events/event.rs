//! Events as programs get them.

use std::ffi::c_int;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use pumice_device::settings::Log;

use crate::ground::abi::{rdma_cm_event, rdma_conn_param, rdma_event_param, rdma_ud_param};
use crate::ground::check::{self, LatePage};
use crate::ground::errno::Errno;
use crate::ground::handles::{Held, Identity, Listed, Shown, hand_out_shared, live, show, take_back};
use crate::ground::log::{logs, print_step};
use crate::ground::plain::PassedOn;
use crate::ground::zeroed::zeroed;
use crate::rdma_cm::constants::{CONNECT_REQUEST, event_name};
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
    private_data: PrivateData,
    /// Of joining a group: the count of the membership, which leaving waits for.
    membership: Option<Arc<Unacknowledged>>,
    fetched: bool,
    /// Where a program that is checked finds the private data.
    page: Mutex<Option<LatePage>>,
}

/// What the peer said, in the event itself as in rdma-core: a program that reads it after it acknowledged the
/// event finds it as long as the memory of the event stays, which the register decides.
struct PrivateData {
    bytes: [u8; PrivateData::MOST_BYTES],
    length: u8,
}

impl PrivateData {
    /// No message has room for more.
    const MOST_BYTES: usize = u8::MAX as usize;

    fn new(said: &[u8]) -> PrivateData {
        let mut bytes = [0; PrivateData::MOST_BYTES];
        bytes.iter_mut().zip(said).for_each(|(target, byte)| *target = *byte);
        PrivateData { bytes, length: said.len().min(PrivateData::MOST_BYTES) as u8 }
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length.into()).unwrap_or_default()
    }
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
            let name = event_name(event as c_int).to_string_lossy();
            print_step(&format!("cm id {:p}  {name}  status {status}", id.as_ptr()));
        }
        let private_data = PrivateData::new(private_data);
        let membership = parameters.membership();
        let c = rdma_cm_event {
            id: id.as_ptr(),
            listen_id: listener.as_ref().map_or(ptr::null_mut(), |listener| listener.as_ptr()),
            event,
            status,
            param: c_parameters(parameters, private_data.length),
        };
        let id = Arc::clone(id);
        let (c, page) = (Shown::new(c), Mutex::new(None));
        Event { c, event, status, id, listener, private_data, membership, fetched: false, page }
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
        self.private_data.bytes()
    }

    /// A program has it from now on, until it is acknowledged.
    pub(crate) fn fetched(mut self) -> Event {
        self.counts().for_each(|count| count.fetched(self.event));
        self.fetched = true;
        self
    }

    /// Gives the event to the program, until it is acknowledged. The identifier of a request is the
    /// program's, too.
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
            let said = page.as_ref().map_or(own, |page| ptr::with_exposed_provenance(page.address())).cast();
            *event.page.lock().unwrap_or_else(PoisonError::into_inner) = page;
            // The pointer is at the same offset for connections and datagrams.
            show!(event.c, param.conn.private_data = said);
        }
        hand_out_shared(&event)
    }

    /// The identifier that waits for the acknowledgement: that of a request is its listener.
    pub(crate) fn waiter(&self) -> &Arc<Id> {
        self.listener.as_ref().unwrap_or(&self.id)
    }

    /// The counts of what waits for the acknowledgement.
    fn counts(&self) -> impl Iterator<Item = &Unacknowledged> {
        std::iter::once(self.waiter().unacknowledged()).chain(self.membership.as_deref())
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.fetched {
            self.counts().for_each(|count| count.acknowledged(self.event));
        }
    }
}

/// Takes an event back from the program.
///
/// # Errors
/// EINVAL: it is null. ENOENT: there is no such event (any more).
pub(crate) fn acknowledge(event: *mut rdma_cm_event) -> Result<(), Errno> {
    let known = live::<Event>(event)?;
    if let Some(page) = known.page.lock().unwrap_or_else(PoisonError::into_inner).take() {
        page.give_back(event.addr(), &event_name(known.event as c_int).to_string_lossy());
    }
    drop(known);
    check::tell(|checker| checker.cm_event_acknowledged(event.addr() as u64));
    //= man:rdma_ack_cm_event
    //| The acknowledgement frees the event and its private data.
    take_back::<Event>(event);
    Ok(())
}

/// The parameters in their C form, with so much private data, to which the pointer is still missing.
fn c_parameters(parameters: EventParameters, length: u8) -> rdma_event_param {
    // The longest of the union first, so that no byte of it is left as it was.
    let mut c = rdma_event_param { ud: zeroed() };
    match parameters {
        EventParameters::None => {}
        EventParameters::Connection(PassedOn(param)) => {
            c.conn = rdma_conn_param { private_data: ptr::null(), private_data_len: length, ..param };
        }
        EventParameters::Datagram(PassedOn(param)) => {
            c.ud = rdma_ud_param { private_data: ptr::null(), private_data_len: length, ..param };
        }
        EventParameters::Group(PassedOn(param), _) => c.ud = param,
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
