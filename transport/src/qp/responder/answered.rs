//! Requests with a response of their own: READ, atomics, FLUSH.

use super::Responder;
use super::check::{flush_access, packets_of, range_of};
use super::refusal::{RefusedRequest, RequestStopReason};
use crate::event::{QpEvent, Topic};
use crate::host::{CountedOperation, Host, MemoryError, RemoteKey};
use crate::qp::inbound::remote_key;
use crate::qp::response::{ReadRequest, Replay, ReplayKind};
use crate::qp::settings::QpSettings;
use crate::types::{Access, AtomicOperation, RemoteRange};
use crate::wire::{OperationClass, Packet};

impl Responder {
    /// Checks that the queue has a slot for a request with a response of its own.
    fn check_resources(&self, settings: &QpSettings) -> Result<(), RequestStopReason> {
        //= statement:27
        //| A responder of depth 0 answers a READ with NAK 0x61.
        if settings.max_dest_rd_atomic == 0 {
            return Err(RefusedRequest::invalid("max_dest_rd_atomic is 0").into());
        }
        if self.responses.exceeds(settings.max_dest_rd_atomic) {
            let reason = "the peer has more READs and atomics under way than max_dest_rd_atomic allows";
            return Err(RefusedRequest::invalid(reason).into());
        }
        if self.responses.is_full(settings.max_dest_rd_atomic) {
            return Err(RequestStopReason::Overloaded);
        }
        Ok(())
    }

    fn remember(&mut self, settings: &QpSettings, count: u32, kind: ReplayKind) {
        //= linux:rxe_resp.c#rxe_prepare_res
        //| The responder keeps what a repeated READ or atomic operation needs.
        let replay = Replay { first_psn: self.expected, count, message: self.msn, kind };
        self.responses.remember(replay, settings.max_dest_rd_atomic);
        //= linux:rxe_resp.c#read_reply
        //| A READ takes as many PSNs as it has response packets.
        self.expected = self.expected.plus(count);
        self.msn = (self.msn + 1) & 0xff_ffff;
        self.inbound.messages += 1;
    }

    pub(super) fn accept_read<H: Host>(
        &mut self,
        settings: &QpSettings,
        packet: &Packet<'_>,
        host: &mut H,
    ) -> Result<(), RequestStopReason> {
        self.check_resources(settings)?;
        let Some(reth) = packet.reth() else {
            return Err(RefusedRequest::invalid("READ without RETH").into());
        };
        //= statement:9
        //| A READ of no bytes succeeds with any R_Key and any address.
        let key = if reth.length == 0 {
            RemoteKey { rkey: reth.rkey, pd: settings.context.pd, qpn: settings.context.qpn }
        } else {
            let key = remote_key(settings, packet, reth.rkey, host)?;
            host.check_remote(key, reth.address, u64::from(reth.length), Access::REMOTE_READ)
                .map_err(|error| RefusedRequest::without(error, Access::REMOTE_READ))?;
            key
        };
        let count = packets_of(reth.length, settings.mtu_bytes);
        let request = ReadRequest {
            key,
            first_psn: self.expected,
            address: reth.address,
            length_bytes: reth.length,
            count,
        };
        let kind = ReplayKind::Read { rkey: reth.rkey, address: reth.address, length_bytes: reth.length };
        self.remember(settings, count, kind);
        self.responses.push_read(request, self.msn);
        if reth.length > 0 && host.listens(Topic::Accesses) {
            let range =
                RemoteRange { rkey: reth.rkey, address: reth.address, length_bytes: reth.length.into() };
            let class = OperationClass::Read;
            host.emit(&settings.context, QpEvent::RemoteAccess { class, range, ends: true });
        }
        if host.counts() {
            host.ended(&settings.context, CountedOperation::RemoteRead, true);
        }
        Ok(())
    }

    pub(super) fn accept_atomic<H: Host>(
        &mut self,
        settings: &QpSettings,
        packet: &Packet<'_>,
        host: &mut H,
    ) -> Result<(), RequestStopReason> {
        self.check_resources(settings)?;
        let (Some(operation), Some(range)) = (AtomicOperation::of(packet), range_of(packet)) else {
            return Err(RefusedRequest::invalid("an atomic without its headers").into());
        };
        //= linux:rxe_resp.c#check_rkey
        //| An ATOMIC WRITE names exactly eight bytes.
        if range.length_bytes != 8 {
            return Err(RefusedRequest::invalid("ATOMIC WRITE carries exactly 8 bytes").into());
        }
        //= statement:49
        //| An atomic operation at an unaligned address gets NAK 0x61.
        if !range.address.is_multiple_of(8) {
            return Err(RefusedRequest::access(MemoryError::Misaligned).into());
        }
        let key = remote_key(settings, packet, range.rkey, host)?;
        let original = host.remote_atomic(key, range.address, operation);
        let original = original.map_err(|error| RefusedRequest::without(error, right_of(&operation)))?;
        if host.listens(Topic::Accesses) {
            let class = OperationClass::Atomic;
            host.emit(&settings.context, QpEvent::RemoteAccess { class, range, ends: true });
        }
        let psn = self.expected;
        //= linux:rxe_resp.c#send_atomic_ack
        //| The answer to an atomic operation carries the value that the memory had before.
        if operation.returns_original() {
            self.remember(settings, 1, ReplayKind::Atomic { original });
            self.responses.push_atomic(psn, original, self.msn);
        } else {
            //= statement:50
            //| ATOMIC WRITE and FLUSH are answered as a READ of no bytes is.
            self.remember(settings, 1, ReplayKind::Empty);
            self.responses.push_empty(psn, self.msn);
        }
        Ok(())
    }

    pub(super) fn accept_flush<H: Host>(
        &mut self,
        settings: &QpSettings,
        packet: &Packet<'_>,
        host: &mut H,
    ) -> Result<(), RequestStopReason> {
        self.check_resources(settings)?;
        let (Some(feth), Some(reth)) = (packet.feth(), packet.reth()) else {
            return Err(RefusedRequest::invalid("FLUSH without FETH or RETH").into());
        };
        let range = match feth.selectivity {
            0 => Some((reth.address, u64::from(reth.length))),
            //= linux:rxe_resp.c#process_flush
            //| Selectivity 1 means the whole memory region, and the range is ignored.
            1 => None,
            _ => return Err(RefusedRequest::invalid("FLUSH with a reserved selectivity").into()),
        };
        let key = remote_key(settings, packet, reth.rkey, host)?;
        //= statement:50
        //| FLUSH needs rights of its own.
        host.remote_flush(key, range, flush_access(feth.placement)).map_err(RefusedRequest::access)?;
        let psn = self.expected;
        self.remember(settings, 1, ReplayKind::Empty);
        self.responses.push_empty(psn, self.msn);
        Ok(())
    }
}

/// Returns the access right that an atomic needs.
const fn right_of(operation: &AtomicOperation) -> Access {
    match operation {
        AtomicOperation::Write { .. } => Access::REMOTE_WRITE,
        _ => Access::REMOTE_ATOMIC,
    }
}
