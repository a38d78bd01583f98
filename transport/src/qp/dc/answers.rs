//! Answers of a target on their way out, and what RDMA READs ask for.

use alloc::collections::VecDeque;
use alloc::sync::Arc;

use super::header::{HEADER_BYTES, Header, Kind, QKEY, Reason};
use crate::event::Side;
use crate::host::{Host, RemoteKey, Transmit};
use crate::path::Path;
use crate::qp::outbound::{Emitted, Progress};
use crate::qp::settings::Settings;
use crate::qp::srd::{To, send_packet};
use crate::wire::{Psn, Qpn};

/// Answers that wait at most. What finds no room is asked for again.
const MOST_ANSWERS: usize = 2048;

/// An answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) path: Arc<Path>,
    pub(super) to: Qpn,
    pub(super) header: Header,
    /// What an atomic found.
    pub(super) value: u64,
}

impl Answer {
    /// It says how far a way is, and nothing else: a newer one says it better.
    fn is_progress(&self) -> bool {
        self.header.kind == Kind::Ack
    }

    fn way(&self) -> (Qpn, u16, u64) {
        (self.to, self.header.stream, self.header.epoch)
    }
}

/// Answers that wait, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Answers(VecDeque<Answer>);

impl Answers {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds one. What the newest one says of the same way is out of date.
    pub(super) fn push(&mut self, answer: Answer) {
        if let Some(newest) = self.0.back_mut()
            && newest.is_progress()
            && answer.header.kind != Kind::Data
            && (newest.way(), &newest.path) == (answer.way(), &answer.path)
            && newest.header.message <= answer.header.message
        {
            *newest = answer;
        } else if self.0.len() < MOST_ANSWERS {
            self.0.push_back(answer);
        }
    }

    pub(super) fn transmit<H: Host, T: Transmit>(
        &mut self,
        settings: &Settings,
        next_psn: &mut Psn,
        host: &mut H,
        sink: &mut T,
    ) -> Progress {
        while let Some(answer) = self.0.front_mut() {
            let Answer { path, to, header, value } = answer;
            let message = header.message;
            let to = To { path, qpn: *to, qkey: QKEY, side: Side::Responder, message, transmission: 1 };
            let data_bytes = match header.kind {
                Kind::Data => header.length().unwrap_or(0),
                Kind::Value => size_of::<u64>(),
                _ => 0,
            };
            let key = RemoteKey { rkey: header.rkey, pd: settings.context.pd, qpn: settings.context.qpn };
            let address = header.address.wrapping_add(header.offset());
            let (kind, value) = (header.kind, *value);
            let bytes: [u8; HEADER_BYTES] = header.bytes();
            let sent =
                send_packet(settings, &to, (&bytes, data_bytes), next_psn, host, sink, |data, host| {
                    if kind == Kind::Data {
                        return host.remote_read(key, address, data);
                    }
                    data.copy_from_slice(&value.to_be_bytes());
                    Ok(())
                });
            match sent {
                Ok(Emitted::NoRoom) => return Progress::Blocked,
                Ok(Emitted::Packet) => {
                    self.0.pop_front();
                }
                // The memory has gone since it was looked at.
                Err(_) => (header.kind, header.reason) = (Kind::Refused, Reason::Memory as u8),
            }
        }
        Progress::Idle
    }
}
