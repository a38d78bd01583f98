//! The rendezvous of a device: messages whose payload is in the memory of their sender, and is read there.

use pumice_transport::types::{RemoteTarget, SendFlags, SendOpcode, SendRequest, Sge, WorkCompletion};
use pumice_transport::wire::Qpn;

use crate::objects::tag_list::RENDEZVOUS_HEADER_BYTES;

/// Kind of the message that ends a rendezvous (`IBV_TMH_FIN`).
pub(super) const FINISHED: u8 = 2;

/// A rendezvous that is not over.
#[derive(Debug)]
pub(crate) struct Rendezvous {
    pub(super) qpn: Qpn,
    /// Number among all rendezvous of the device, by which its requests are known.
    pub(super) number: u64,
    pub(super) step: Step,
    pub(super) source: RemoteTarget,
    /// The buffers of the payload, exactly as long as the payload.
    pub(super) sges: Vec<Sge>,
    /// Both headers as the answer has them.
    pub(super) headers: [u8; RENDEZVOUS_HEADER_BYTES],
    pub(super) completion: WorkCompletion,
    pub(super) cq: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Its READ has to be posted.
    Begins,
    Reads,
    /// Its payload has come; the sender has to be told.
    Answers,
}

/// A request that the device has to post on a queue pair: a READ, or an answer with inline data.
#[derive(Debug)]
pub(crate) struct DeviceRequest {
    pub(crate) qpn: Qpn,
    pub(crate) number: u64,
    pub(super) remote: RemoteTarget,
    pub(super) sges: Vec<Sge>,
    pub(super) answer: Option<[u8; RENDEZVOUS_HEADER_BYTES]>,
}

impl DeviceRequest {
    /// Returns the request as it is posted.
    pub(crate) fn request(&self) -> SendRequest<'_> {
        match &self.answer {
            Some(headers) => SendRequest {
                inline_data: headers,
                flags: SendFlags::INLINE,
                ..SendRequest::new(self.number, SendOpcode::Send)
            },
            None => SendRequest {
                sges: &self.sges,
                remote: self.remote,
                faults_complete: true,
                ..SendRequest::new(self.number, SendOpcode::RdmaRead)
            },
        }
    }
}

/// The rendezvous of a device.
#[derive(Debug, Default)]
pub(crate) struct AllRendezvous {
    pub(super) all: Vec<Rendezvous>,
    pub(super) made: u64,
    /// A request has to be posted.
    pub(crate) is_due: bool,
}
