//! Requests that were executed before.

use super::Responder;
use super::check::packets_of;
use crate::event::QpEvent;
use crate::host::{Counter, Host};
use crate::qp::inbound::remote_key;
use crate::qp::response::{ReadRequest, Replay, ReplayKind};
use crate::qp::settings::QpSettings;
use crate::types::Access;
use crate::wire::{OperationClass, Packet, Syndrome};

impl Responder {
    /// Handles a request that was executed before: acknowledges it or sends its answer again, but never
    /// executes it.
    pub(super) fn handle_duplicate<H: Host>(
        &mut self,
        settings: &QpSettings,
        packet: &Packet<'_>,
        host: &mut H,
    ) {
        let psn = packet.bth().psn;
        let class = packet.info().class;
        if class.needs_response() && self.responses.is_full(settings.max_dest_rd_atomic) {
            host.emit(&settings.context, QpEvent::dropped(packet, Counter::RxMessageDropped));
            return;
        }
        match class {
            //= linux:rxe_resp.c#duplicate_request
            //| A repeated READ is executed again, and a repeated atomic operation is answered from memory.
            OperationClass::Read => self.replay_read(settings, packet, host),
            //= statement:13
            //| A repeated atomic operation gets the first result, and memory changes once.
            _ if class.is_executed_once() => match self.responses.replay_of(psn) {
                Some(Replay { kind: ReplayKind::Atomic { original }, message, .. }) => {
                    self.responses.replay_saved(psn, Some(original), message, self.msn);
                }
                Some(Replay { kind: ReplayKind::Empty, message, .. }) => {
                    self.responses.replay_saved(psn, None, message, self.msn);
                }
                _ => host.emit(&settings.context, QpEvent::dropped(packet, Counter::RxReplayMissed)),
            },
            // The acknowledgement is sent whether or not the packet asks for it: a peer that sends again does
            // not know how far it got. rdma_rxe asks only in the last of 128 packets; if the local socket
            // holds fewer of its packets than that, it loses the question each time.
            _ => {
                //= statement:12
                //| A repeated SEND or WRITE is acknowledged with the newest PSN.
                let newest = self.expected.minus(1);
                self.responses.push_acknowledge(Syndrome::ACK_UNLIMITED, newest, self.msn);
            }
        }
    }

    fn replay_read<H: Host>(&mut self, settings: &QpSettings, packet: &Packet<'_>, host: &mut H) {
        let psn = packet.bth().psn;
        let found = self.responses.replay_of(psn);
        let (Some(reth), Some(replay)) = (packet.reth(), found) else {
            host.emit(&settings.context, QpEvent::dropped(packet, Counter::RxReplayMissed));
            return;
        };
        let ReplayKind::Read { rkey, address, length_bytes } = replay.kind else {
            host.emit(&settings.context, QpEvent::dropped(packet, Counter::RxReplayMissed));
            return;
        };
        //= statement:14
        //| A repeated READ may ask for the rest only, and never for more than the first one did.
        let skipped = u64::from(psn.since(replay.first_psn) as u32) * settings.mtu_bytes as u64;
        let inside = reth.rkey == rkey
            && reth.address == address.wrapping_add(skipped)
            && u64::from(reth.length) + skipped <= u64::from(length_bytes);
        let length = u64::from(reth.length);
        let key = match remote_key(settings, packet, reth.rkey, host) {
            //= statement:15
            //| A repeated READ whose R_Key is no longer valid is dropped without a NAK.
            Ok(key)
                if inside
                    && (length == 0
                        || host.check_remote(key, reth.address, length, Access::REMOTE_READ).is_ok()) =>
            {
                key
            }
            _ => {
                host.emit(&settings.context, QpEvent::dropped(packet, Counter::RxReplayMissed));
                return;
            }
        };
        //= statement:14
        //| The answer to a repeated READ begins at the PSN that the repetition asks for.
        let count = packets_of(reth.length, settings.mtu_bytes);
        let request =
            ReadRequest { key, first_psn: psn, address: reth.address, length_bytes: reth.length, count };
        self.responses.replay_read(request, replay.message, self.msn);
    }
}
