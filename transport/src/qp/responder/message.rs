//! SEND and WRITE: into the receive request, or into the memory that the peer names.

use super::check::{check_remaining, room};
use super::{Inbound, Refused, Responder, Stop};
use crate::host::{Host, MemoryError};
use crate::qp::requester::fault_of;
use crate::qp::settings::Settings;
use crate::types::{Access, Detail, WcFlags, WcOpcode, WcStatus, WorkCompletion};
use crate::wire::{NakCode, Packet, Position};

impl Responder {
    pub(super) fn accept_send<H: Host>(
        &mut self,
        settings: &Settings,
        packet: &Packet<'_>,
        host: &mut H,
    ) -> Result<(), Stop> {
        let offset = match self.inbound {
            Inbound::Send { offset } => offset,
            _ => {
                self.take_recv(settings, packet, host)?;
                self.inbound = Inbound::Send { offset: 0 };
                0
            }
        };
        let payload = packet.payload();
        let end = offset + payload.len() as u64;
        if end > self.recv.length_bytes {
            let mut refused = Refused::invalid("the message is longer than its receive request")
                .with(room(&self.recv, end, packet));
            refused.status = WcStatus::LocLenErr;
            return Err(refused.into());
        }
        if let Err(error) = host.scatter(self.recv.pd, &self.recv.sges, offset, payload) {
            return Err(Stop::Refuse(Refused {
                code: Some(NakCode::RemoteOperation),
                status: WcStatus::LocProtErr,
                event: None,
                reason: "its receive request names memory that cannot be used",
                detail: Detail::Receive {
                    wr_id: self.recv.wr_id,
                    fault: fault_of(self.recv.pd, &self.recv.sges, error, true, host),
                },
            }));
        }
        if matches!(packet.info().position, Position::First | Position::Middle) {
            self.inbound = Inbound::Send { offset: end };
            return Ok(());
        }
        let mut completion = WorkCompletion {
            wr_id: self.recv.wr_id,
            status: WcStatus::Success,
            opcode: WcOpcode::Recv,
            byte_len: u32::try_from(end).unwrap_or(u32::MAX),
            qp_num: settings.context.qpn.value(),
            src_qp: settings.destination.value(),
            ..WorkCompletion::default()
        };
        if let Some(ieth) = packet.ieth() {
            let key = Self::remote_key(settings, packet, ieth.rkey, host)?;
            if let Err(error) = host.invalidate(key) {
                // IBTA 9.9.6.3, class J: the data has landed, so the peer gets neither NAK nor ACK.
                let refused = Refused { code: None, status: WcStatus::LocQpOpErr, ..Refused::access(error) };
                return Err(refused.into());
            }
            completion.flags |= WcFlags::WITH_INV;
            completion.invalidated_rkey = ieth.rkey;
        }
        if let Some(imm) = packet.imm() {
            completion.flags |= WcFlags::WITH_IMM;
            completion.imm_data = imm.0;
        }
        self.inbound = Inbound::Idle;
        host.complete_recv(&settings.context, self.recv.cq, completion, packet.bth().solicited);
        Ok(())
    }

    pub(super) fn accept_write<H: Host>(
        &mut self,
        settings: &Settings,
        packet: &Packet<'_>,
        host: &mut H,
    ) -> Result<(), Stop> {
        let payload = packet.payload();
        let (rkey, address, remaining, total) = match self.inbound {
            Inbound::Write { rkey, address, remaining, total } => (rkey, address, remaining, total),
            _ => {
                let Some(reth) = packet.reth() else {
                    return Err(Refused::invalid("WRITE without RETH").into());
                };
                (reth.rkey, reth.address, u64::from(reth.length), reth.length)
            }
        };
        check_remaining(settings, packet, remaining)?;
        let with_imm = packet.imm();
        let key = Self::remote_key(settings, packet, rkey, host)?;
        // The whole range at the first packet; at the last one before it takes a receive request.
        let range_bytes = match (packet.reth().is_some(), with_imm.is_some()) {
            (true, _) => u64::from(total),
            (false, true) => remaining,
            (false, false) => 0,
        };
        if range_bytes > 0
            && let Err(error) = host.check_remote(key, address, range_bytes, Access::REMOTE_WRITE)
        {
            // An immediate tells of the fault, if a receive request waits for it.
            if with_imm.is_some() && self.take_recv(settings, packet, host).is_ok() {
                self.inbound = Inbound::Send { offset: 0 };
            }
            return Err(refused_write(error).into());
        }
        if with_imm.is_some() {
            self.take_recv(settings, packet, host)?;
        }
        if !payload.is_empty()
            && let Err(error) = host.remote_write(key, address, payload)
        {
            if with_imm.is_some() {
                // The receive request was taken for this packet: it ends with the message.
                self.inbound = Inbound::Send { offset: 0 };
            }
            return Err(refused_write(error).into());
        }
        if matches!(packet.info().position, Position::First | Position::Middle) {
            self.inbound = Inbound::Write {
                rkey,
                address: address.wrapping_add(payload.len() as u64),
                remaining: remaining - payload.len() as u64,
                total,
            };
            return Ok(());
        }
        self.inbound = Inbound::Idle;
        if let Some(imm) = with_imm {
            let completion = WorkCompletion {
                wr_id: self.recv.wr_id,
                status: WcStatus::Success,
                opcode: WcOpcode::RecvRdmaWithImm,
                byte_len: total,
                imm_data: imm.0,
                qp_num: settings.context.qpn.value(),
                src_qp: settings.destination.value(),
                flags: WcFlags::WITH_IMM,
                ..WorkCompletion::default()
            };
            host.complete_recv(&settings.context, self.recv.cq, completion, packet.bth().solicited);
        }
        Ok(())
    }
}

/// A WRITE whose memory cannot be written; a receive request that was taken for its immediate says so here.
fn refused_write(error: MemoryError) -> Refused {
    Refused { status: WcStatus::LocAccessErr, ..Refused::access(error) }
}
