//! Outgoing answers of a target, and the data of RDMA READs.

use alloc::collections::VecDeque;
use alloc::sync::Arc;

use super::header::{DcHeader, DcPacketKind, DcReason, HEADER_BYTES, QKEY};
use crate::event::PacketSide;
use crate::host::{Host, RemoteKey, Transmit};
use crate::path::Path;
use crate::qp::outbound::{EmitOutcome, Progress};
use crate::qp::settings::QpSettings;
use crate::qp::srd::{PacketDestination, send_packet};
use crate::wire::{Psn, Qpn};

/// Largest number of answers that wait. One that finds no room is asked for again.
const MAX_ANSWERS: usize = 2048;

/// An answer.
#[derive(Debug)]
pub(super) struct DcAnswer {
    pub(super) path: Arc<Path>,
    pub(super) to: Qpn,
    pub(super) header: DcHeader,
    /// Original value that an atomic found.
    pub(super) value: u64,
}

impl DcAnswer {
    /// Reports whether the answer only says how far the message sequence is, so that a newer one replaces it.
    fn is_progress(&self) -> bool {
        self.header.kind == DcPacketKind::Ack
    }

    fn sequence_key(&self) -> (Qpn, u16, u64) {
        (self.to, self.header.stream, self.header.epoch)
    }
}

/// Answers that wait to be sent, the oldest first.
#[derive(Debug, Default)]
pub(super) struct DcAnswers(VecDeque<DcAnswer>);

impl DcAnswers {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds an answer. It replaces the newest one if that only reports progress of the same message sequence.
    pub(super) fn push(&mut self, answer: DcAnswer) {
        if let Some(newest) = self.0.back_mut()
            && newest.is_progress()
            && answer.header.kind != DcPacketKind::Data
            && (newest.sequence_key(), &newest.path) == (answer.sequence_key(), &answer.path)
            && newest.header.message <= answer.header.message
        {
            *newest = answer;
        } else if self.0.len() < MAX_ANSWERS {
            self.0.push_back(answer);
        }
    }

    pub(super) fn transmit<H: Host, T: Transmit>(
        &mut self,
        settings: &QpSettings,
        next_psn: &mut Psn,
        host: &mut H,
        sink: &mut T,
    ) -> Progress {
        while let Some(answer) = self.0.front_mut() {
            let DcAnswer { path, to, header, value } = answer;
            let message = header.message;
            let to = PacketDestination {
                path,
                qpn: *to,
                qkey: QKEY,
                side: PacketSide::Responder,
                message,
                transmission: 1,
            };
            let data_bytes = match header.kind {
                DcPacketKind::Data => header.length().unwrap_or(0),
                DcPacketKind::Value => size_of::<u64>(),
                _ => 0,
            };
            let key = RemoteKey { rkey: header.rkey, pd: settings.context.pd, qpn: settings.context.qpn };
            let address = header.address.wrapping_add(header.offset());
            let (kind, value) = (header.kind, *value);
            let bytes: [u8; HEADER_BYTES] = header.bytes();
            let sent =
                send_packet(settings, &to, (&bytes, data_bytes), next_psn, host, sink, |data, host| {
                    if kind == DcPacketKind::Data {
                        return host.remote_read(key, address, data);
                    }
                    data.copy_from_slice(&value.to_be_bytes());
                    Ok(())
                });
            match sent {
                Ok(EmitOutcome::NoRoom) => return Progress::Blocked,
                Ok(EmitOutcome::Packet) => {
                    self.0.pop_front();
                }
                // The memory was unregistered after the check.
                Err(_) => (header.kind, header.reason) = (DcPacketKind::Refused, DcReason::Memory as u8),
            }
        }
        Progress::Idle
    }
}
