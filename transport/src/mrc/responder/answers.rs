//! Answers of a responder that wait for transmission. If there is no room, the oldest SACKs and NACKs are
//! dropped first, as the network may also lose them.

use alloc::collections::VecDeque;

use crate::host::Host;
use crate::mrc::constants::MAX_ANSWERS;
use crate::mrc::entropy::{MrcNetwork, MrcOutgoingPacket, MrcSent, Planes, TrafficClass};
use crate::mrc::paths::{Ev, ReversePaths};
use crate::mrc::wire::{CcState, MrcBody, MrcBth, MrcHeaders, MrcOpcode, Neth, Seth};
use crate::mrc::{MrcSettings, MrcStatistics};
use crate::wire::{Aeth, NakCode, Psn, Syndrome};

/// A SACK or a NACK.
#[derive(Debug, Clone, Copy)]
struct ReadyAnswer {
    body: MrcBody,
    psn: Psn,
    is_retransmission: bool,
    /// Path of the packet that is answered.
    trigger: Ev,
}

#[derive(Debug, Default)]
pub(crate) struct MrcAnswers {
    waiting: VecDeque<ReadyAnswer>,
    /// Path of the packet that made a transport ACK due.
    ack: Option<Ev>,
    /// Code and PSN of the refused message.
    refused: Option<(NakCode, Psn)>,
    nak: Option<Ev>,
}

impl MrcAnswers {
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.ack.is_none() && self.nak.is_none()
    }

    fn push(&mut self, answer: ReadyAnswer) {
        if self.waiting.len() >= MAX_ANSWERS {
            self.waiting.pop_front();
        }
        self.waiting.push_back(answer);
    }

    pub(crate) fn sack(&mut self, seth: Seth, state: CcState, is_retransmission: bool, trigger: Ev) {
        let (body, psn) = (MrcBody::Sack(seth, state), seth.cack_psn);
        self.push(ReadyAnswer { body, psn, is_retransmission, trigger });
    }

    pub(crate) fn nack(&mut self, neth: Neth, trigger: Ev) {
        let (body, psn) = (MrcBody::Nack(neth), neth.nack_psn);
        self.push(ReadyAnswer { body, psn, is_retransmission: false, trigger });
    }

    /// Schedules one transport ACK for all messages that have completed.
    pub(crate) fn acknowledge(&mut self, trigger: Ev) {
        self.ack = Some(trigger);
    }

    pub(crate) fn refuse(&mut self, code: NakCode, psn: Psn, trigger: Ev) {
        self.refused = Some((code, psn));
        self.nak = Some(trigger);
    }

    /// Schedules the NAK again for a peer that retransmits, as the first NAK may be lost.
    pub(crate) fn repeat_refusal(&mut self, trigger: Ev) {
        if self.refused.is_some() {
            self.nak = Some(trigger);
        }
    }

    /// Sends the waiting answers. Returns false if the network has no room.
    pub(crate) fn transmit<H: Host, N: MrcNetwork>(
        &mut self,
        settings: &MrcSettings,
        (cack_psn, completed): (Psn, u32),
        (reverse, up): (&ReversePaths, Planes),
        statistics: &mut MrcStatistics,
        (host, network): (&mut H, &mut N),
    ) -> bool {
        let mut send = |body: MrcBody, psn: Psn, is_retransmission: bool, trigger: Ev| {
            let opcode = match &body {
                MrcBody::Sack(..) => MrcOpcode::Sack,
                MrcBody::Nack(_) => MrcOpcode::Nack,
                _ => MrcOpcode::Acknowledge,
            };
            let bth = MrcBth {
                pkey: settings.pkey,
                retransmission: is_retransmission,
                ..MrcBth::new(opcode, settings.peer, psn)
            };
            let headers = MrcHeaders { bth, body };
            let way = reverse.reverse_path(trigger, up);
            let class = TrafficClass::Control;
            let departure = MrcOutgoingPacket { entropy: way.entropy, plane: way.plane, class };
            let length_bytes = headers.packet_len(0);
            let Some(room) = network.begin(&departure, length_bytes) else { return false };
            let _ = headers.emit(0, room);
            network.seal();
            let sent = MrcSent::control(opcode, psn, length_bytes);
            network.sent(&settings.context, &sent, host);
            count(statistics, opcode);
            true
        };
        while let Some(answer) = self.waiting.front() {
            if !send(answer.body, answer.psn, answer.is_retransmission, answer.trigger) {
                return false;
            }
            self.waiting.pop_front();
        }
        let aeth =
            |syndrome: Syndrome| MrcBody::Acknowledge(Aeth { syndrome: syndrome.byte(), msn: completed });
        if let Some(trigger) = self.ack {
            if !send(aeth(Syndrome::ACK_UNLIMITED), cack_psn, false, trigger) {
                return false;
            }
            self.ack = None;
        }
        if let (Some(trigger), Some((code, psn))) = (self.nak, self.refused) {
            if !send(aeth(Syndrome::Nak(code)), psn, false, trigger) {
                return false;
            }
            self.nak = None;
        }
        true
    }
}

/// Counts an answer that was sent.
fn count(statistics: &mut MrcStatistics, opcode: MrcOpcode) {
    match opcode {
        MrcOpcode::Sack => statistics.sacks_sent += 1,
        MrcOpcode::Nack => statistics.nacks_sent += 1,
        _ => statistics.acks_sent += 1,
    }
}
