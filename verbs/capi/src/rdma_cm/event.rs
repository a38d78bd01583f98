//! Events as programs get them.

use std::ffi::{CStr, c_char, c_int};
use std::ptr;
use std::sync::Arc;

use pumice_device::settings::Log;

use super::acknowledgement::Unacknowledged;
use super::channel::LocalEvent;
use super::id::Id;
use crate::ground::abi::{rdma_cm_event, rdma_cm_id, rdma_conn_param, rdma_event_param, rdma_ud_param};
use crate::ground::handles::{Held, Identity, Listed, Shown, live, take_back, zeroed};
use crate::ground::log::{logs, print_step};
use crate::ground::outcome::number;
use crate::ground::process::Thread;

/// `RDMA_CM_EVENT_*`.
pub(crate) const ADDR_RESOLVED: u32 = 0;
pub(crate) const ADDR_ERROR: u32 = 1;
pub(crate) const ROUTE_RESOLVED: u32 = 2;
pub(crate) const CONNECT_REQUEST: u32 = 4;
pub(crate) const CONNECT_RESPONSE: u32 = 5;
pub(crate) const CONNECT_ERROR: u32 = 6;
pub(crate) const UNREACHABLE: u32 = 7;
pub(crate) const REJECTED: u32 = 8;
pub(crate) const ESTABLISHED: u32 = 9;
pub(crate) const DISCONNECTED: u32 = 10;
pub(crate) const MULTICAST_JOIN: u32 = 12;
pub(crate) const MULTICAST_ERROR: u32 = 13;
pub(crate) const TIMEWAIT_EXIT: u32 = 15;
pub(crate) const ADDRINFO_RESOLVED: u32 = 16;
pub(crate) const ADDRINFO_ERROR: u32 = 17;
pub(crate) const USER: u32 = 18;

/// An event, with what it points at.
#[repr(C)]
pub(crate) struct Event {
    c: Shown<rdma_cm_event>,
    /// Kept until the event is acknowledged, even if destroyed before.
    id: Arc<Id>,
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

/// What an event says beside its name.
pub(crate) enum Said {
    /// Nothing.
    Nothing,
    /// Of a connection.
    Connection(rdma_conn_param),
    /// Of datagrams.
    Datagram(rdma_ud_param),
    /// Of a multicast group; the private data is the program's own pointer.
    Group(rdma_ud_param),
    /// A program's number.
    Number(u64),
}

// SAFETY: the pointers in it are the program's, and only handed on.
unsafe impl Send for Said {}

impl Event {
    /// An event of an identifier.
    pub(crate) fn new(id: &Arc<Id>, event: u32, status: c_int, said: Said, private_data: &[u8]) -> Event {
        if logs(Log::Debug) {
            // SAFETY: a name of this library's, which lives for ever.
            let name = unsafe { CStr::from_ptr(rdma_event_str(event as c_int)) }.to_string_lossy();
            print_step(&format!("cm id {:p}  {name}  status {status}", id.c()));
        }
        let private_data: Box<[u8]> = private_data.into();
        // SAFETY: numbers and pointers.
        let mut c: rdma_cm_event = unsafe { zeroed() };
        c.id = id.c();
        c.event = event;
        c.status = status;
        let data = if private_data.is_empty() { ptr::null() } else { private_data.as_ptr().cast() };
        // No message has room for more than 255.
        let length = private_data.len().min(255) as u8;
        match said {
            Said::Nothing => {}
            Said::Connection(param) => {
                let conn = rdma_conn_param { private_data: data, private_data_len: length, ..param };
                c.param = rdma_event_param { conn };
            }
            Said::Datagram(param) => {
                c.param = rdma_event_param {
                    ud: rdma_ud_param { private_data: data, private_data_len: length, ..param },
                };
            }
            Said::Group(ud) => c.param = rdma_event_param { ud },
            Said::Number(arg) => c.param = rdma_event_param { arg },
        }
        let id = Arc::clone(id);
        Event { c: Shown::new(c), id, listener: None, private_data, fetched_by: None }
    }

    /// Its name, and 0 or a negative errno or the peer's reason.
    pub(crate) fn facts(&self) -> (u32, c_int) {
        // SAFETY: our own structure.
        unsafe { ((*self.c.as_ptr()).event, (*self.c.as_ptr()).status) }
    }

    /// Whom it is of.
    pub(crate) fn subject(&self) -> *mut rdma_cm_id {
        // SAFETY: our own structure.
        unsafe { (*self.c.as_ptr()).id }
    }

    /// What the peer has said with it.
    pub(crate) fn said(&self) -> &[u8] {
        &self.private_data
    }

    /// Whom the request came to.
    pub(crate) fn at(mut self, listener: &Arc<Id>) -> Event {
        // SAFETY: our own structure.
        unsafe { (*self.c.as_ptr()).listen_id = listener.c() };
        self.listener = Some(Arc::clone(listener));
        self
    }

    /// A program's thread has it from now on, until it is acknowledged.
    pub(crate) fn fetched(mut self, by: Thread) -> Event {
        self.account().fetched(by);
        self.fetched_by = Some(by);
        self
    }

    /// A request is its listener's.
    fn account(&self) -> &Unacknowledged {
        self.listener.as_ref().unwrap_or(&self.id).unacknowledged()
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Some(thread) = self.fetched_by {
            self.account().acknowledged(thread);
        }
    }
}

/// An event of this library's own.
pub(crate) fn local(local: LocalEvent, said: Said) -> Event {
    Event::new(&local.id, local.event, local.status, said, &[])
}

/// Nothing said.
pub(crate) fn no_conn() -> rdma_conn_param {
    // SAFETY: numbers and pointers.
    unsafe { zeroed() }
}

/// Nothing said.
pub(crate) fn no_ud() -> rdma_ud_param {
    // SAFETY: numbers and pointers.
    unsafe { zeroed() }
}

pub(crate) extern "C" fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    number(|| {
        live::<Event>(event)?;
        take_back::<Event>(event);
        Ok(0)
    })
}

pub(crate) extern "C" fn rdma_event_str(event: c_int) -> *const c_char {
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
    name.copied().unwrap_or(c"UNKNOWN EVENT").as_ptr()
}
