//! Answers on their way out, and what RDMA READs ask for.

use alloc::collections::VecDeque;
use alloc::sync::Arc;

use super::header::{Header, Kind, Reason};
use super::packet::{To, send_packet};
use crate::event::Side;
use crate::host::{Host, RemoteKey, Transmit};
use crate::path::Path;
use crate::qp::outbound::{Emitted, Progress};
use crate::qp::settings::Settings;
use crate::wire::{Psn, Qpn};

/// Answers that wait at most. What finds no place is asked for again.
const MOST_ANSWERS: usize = 512;

/// An answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) path: Arc<Path>,
    pub(super) to: Qpn,
    /// Q_Key of the queue pair that asked.
    pub(super) qkey: u32,
    pub(super) header: Header,
}

/// Answers that wait, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Answers(VecDeque<Answer>);

impl Answers {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds one. What the newest one says of the same message is out of date.
    pub(super) fn push(&mut self, answer: Answer) {
        if let Some(newest) = self.0.back_mut()
            && answer.header.kind != Kind::Data
            && newest.header.kind != Kind::Data
            && (newest.to, newest.header.message, newest.header.epoch)
                == (answer.to, answer.header.message, answer.header.epoch)
            && newest.path == answer.path
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
            let Answer { path, to, qkey, header } = answer;
            let message = header.message;
            let to = To { path, qpn: *to, qkey: *qkey, side: Side::Responder, message, transmission: 1 };
            let is_data = header.kind == Kind::Data;
            let data_bytes = if is_data { header.length().unwrap_or(0) } else { 0 };
            let key = RemoteKey { rkey: header.rkey, pd: settings.context.pd, qpn: settings.context.qpn };
            let address = header.address.wrapping_add(header.offset());
            let bytes = header.bytes();
            let sent =
                send_packet(settings, &to, (&bytes, data_bytes), next_psn, host, sink, |data, host| {
                    host.remote_read(key, address, data)
                });
            match sent {
                Ok(Emitted::NoRoom) => return Progress::Blocked,
                Ok(Emitted::Packet) => {
                    self.0.pop_front();
                }
                Err(_) => (header.kind, header.reason) = (Kind::Done, Reason::RemoteKey as u8),
            }
        }
        Progress::Idle
    }
}
