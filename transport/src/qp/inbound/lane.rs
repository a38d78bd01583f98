//! Messages of one packet that arrive by a lane.

use super::Inbound;
use crate::host::{Host, RemoteKey};
use crate::qp::lane::LaneRequest;
use crate::qp::settings::QpSettings;
use crate::types::{Access, WcFlags, WcOpcode};

impl Inbound {
    /// Stores a message of one packet, while none is in progress, and completes the receive request that it
    /// takes. Returns false if the message cannot be stored: the general way then finds the same fault, with
    /// the receive request that may have been taken.
    #[inline]
    pub(crate) fn accept_by_lane<H: Host>(
        &mut self,
        settings: &QpSettings,
        request: &LaneRequest<'_>,
        host: &mut H,
    ) -> bool {
        let stored = match request.reth {
            None => self.store_send(settings, request.payload, host),
            Some(_) => self.store_write(settings, request, host),
        };
        if !stored {
            return false;
        }
        self.messages += 1;
        if request.reth.is_some() && request.imm.is_none() {
            return true;
        }
        let opcode = if request.reth.is_some() { WcOpcode::RecvRdmaWithImm } else { WcOpcode::Recv };
        let mut completion = self.plain_completion(settings, opcode, request.payload.len() as u32);
        if let Some(imm) = request.imm {
            completion.flags |= WcFlags::WITH_IMM;
            completion.imm_data = imm;
        }
        self.finish(settings, completion, request.solicited, host);
        true
    }

    #[inline]
    fn store_send<H: Host>(&mut self, settings: &QpSettings, payload: &[u8], host: &mut H) -> bool {
        self.take_plain_recv(settings, host)
            && payload.len() as u64 <= self.recv.length_bytes
            && host.scatter(self.recv.pd, &self.recv.sges, 0, payload).is_ok()
    }

    #[inline]
    fn store_write<H: Host>(
        &mut self,
        settings: &QpSettings,
        request: &LaneRequest<'_>,
        host: &mut H,
    ) -> bool {
        let (Some(reth), payload) = (request.reth, request.payload) else { return false };
        let fits = reth.length as usize == payload.len() && !payload.is_empty();
        if !fits || !settings.access.contains(Access::REMOTE_WRITE) {
            return false;
        }
        let key = RemoteKey { rkey: reth.rkey, pd: settings.context.pd, qpn: settings.context.qpn };
        host.check_remote(key, reth.address, u64::from(reth.length), Access::REMOTE_WRITE).is_ok()
            // A missing receive request stops the message before its data is stored.
            && (request.imm.is_none() || self.take_plain_recv(settings, host))
            && host.remote_write(key, reth.address, payload).is_ok()
    }

    /// Takes a receive request, unless one is held. Returns false if there is none, or if the queue matches
    /// tags and has not chosen yet.
    #[inline]
    fn take_plain_recv<H: Host>(&mut self, settings: &QpSettings, host: &mut H) -> bool {
        let was_held = self.holds_recv;
        if self.take_recv_from(settings, None, host).is_err() {
            return false;
        }
        // A queue that matches tags has given nothing yet.
        self.holds_recv = was_held || !self.recv.matches_tags;
        !self.recv.matches_tags
    }
}
