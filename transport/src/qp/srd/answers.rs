//! Outgoing answers, and the data of RDMA READs.

use alloc::collections::VecDeque;
use alloc::sync::Arc;

use super::header::{SrdHeader, SrdPacketKind, SrdReason};
use super::packet::{PacketDestination, send_packet};
use crate::event::PacketSide;
use crate::host::{Host, RemoteKey, Transmit};
use crate::path::Path;
use crate::qp::outbound::{EmitOutcome, Progress};
use crate::qp::settings::QpSettings;
use crate::wire::{Psn, Qpn};

/// Largest number of answers that wait. One that finds no room is asked for again.
const MAX_ANSWERS: usize = 512;

/// An answer.
#[derive(Debug)]
pub(super) struct SrdAnswer {
    pub(super) path: Arc<Path>,
    pub(super) to: Qpn,
    /// Q_Key of the queue pair that asked.
    pub(super) qkey: u32,
    pub(super) header: SrdHeader,
}

/// Answers that wait to be sent, the oldest first.
#[derive(Debug, Default)]
pub(super) struct SrdAnswers(VecDeque<SrdAnswer>);

impl SrdAnswers {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds an answer. It replaces the newest one if that is about the same message.
    pub(super) fn push(&mut self, answer: SrdAnswer) {
        if let Some(newest) = self.0.back_mut()
            && answer.header.kind != SrdPacketKind::Data
            && newest.header.kind != SrdPacketKind::Data
            && (newest.to, newest.header.message, newest.header.epoch)
                == (answer.to, answer.header.message, answer.header.epoch)
            && newest.path == answer.path
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
            let SrdAnswer { path, to, qkey, header } = answer;
            let message = header.message;
            let to = PacketDestination {
                path,
                qpn: *to,
                qkey: *qkey,
                side: PacketSide::Responder,
                message,
                transmission: 1,
            };
            let is_data = header.kind == SrdPacketKind::Data;
            let data_bytes = if is_data { header.length().unwrap_or(0) } else { 0 };
            let key = RemoteKey { rkey: header.rkey, pd: settings.context.pd, qpn: settings.context.qpn };
            let address = header.address.wrapping_add(header.offset());
            let bytes = header.bytes();
            let sent =
                send_packet(settings, &to, (&bytes, data_bytes), next_psn, host, sink, |data, host| {
                    host.remote_read(key, address, data)
                });
            match sent {
                Ok(EmitOutcome::NoRoom) => return Progress::Blocked,
                Ok(EmitOutcome::Packet) => {
                    self.0.pop_front();
                }
                Err(_) => (header.kind, header.reason) = (SrdPacketKind::Done, SrdReason::RemoteKey as u8),
            }
        }
        Progress::Idle
    }
}
