//! WRITEs on one queue pair, and the messages that tell of them on another.

use pumice_transport::types::{SendOpcode, SendRequest, WrClass};

use super::super::checker::{Checker, Found, counted, related};
use super::super::kind::NOTIFIED_ON_OTHER_QP;
use super::super::stack::Stack;

/// Times in sequence that a message follows WRITEs of another queue pair, before that is told. Messages that
/// have nothing to do with the WRITEs do not take turns with them for so long.
const TURNS: u32 = 8;

/// The WRITEs and the messages to one peer.
#[derive(Debug, Default)]
pub(super) struct Notices {
    /// The newest WRITE without a message after it.
    written: Option<Written>,
    /// The queue pairs of the WRITEs and of the messages.
    pair: (u32, u32),
    turns: u32,
    is_told: bool,
}

#[derive(Debug)]
struct Written {
    number: u32,
    message: u64,
    place: Stack,
}

impl Notices {
    /// The peer may have told that the WRITEs have arrived.
    pub(super) fn heard(&mut self) {
        self.written = None;
    }

    /// A message on `number`; `is_over`: the program knows that the WRITE before it is over. Returns the WRITE
    /// if the message is one too many.
    fn told_of(&mut self, number: u32, is_over: impl Fn(&Written) -> bool) -> Option<Written> {
        let Some(written) = self.written.take() else {
            if self.pair.1 == number {
                self.turns = 0;
            }
            return None;
        };
        let pair = (written.number, number);
        if written.number == number || is_over(&written) {
            self.turns = 0;
            return None;
        }
        self.turns = if pair == self.pair { self.turns + 1 } else { 1 };
        self.pair = pair;
        let is_one_too_many = self.turns >= TURNS && !std::mem::replace(&mut self.is_told, true);
        is_one_too_many.then_some(written)
    }
}

impl Checker {
    pub(super) fn look_at_notice(&mut self, number: u32, message: u64, request: &SendRequest<'_>) {
        let Some(peer) = self.ordering.qps.get(&number).map(|qp| qp.peer) else { return };
        if self.ordering.notices.get(&peer).is_some_and(|notices| notices.is_told) {
            return;
        }
        let opcode = request.opcode;
        if opcode == SendOpcode::RdmaWrite {
            let written = Written { number, message, place: self.place_of_post(number) };
            self.ordering.notices.entry(peer).or_default().written = Some(written);
            return;
        }
        if !matches!(opcode.info().class, WrClass::Send | WrClass::Write) {
            return;
        }
        let ordering = &mut self.ordering;
        let known =
            |written: &Written| ordering.qps.get(&written.number).is_none_or(|qp| written.message < qp.known);
        let Some(notices) = ordering.notices.get_mut(&peer) else { return };
        if let Some(written) = notices.told_of(number, known) {
            self.tell_notice(number, opcode.name(), &written);
        }
    }

    fn tell_notice(&mut self, number: u32, name: &'static str, written: &Written) {
        let place = self.here();
        let (object, other) = (self.name_of(number), self.name_of(written.number));
        let numbers = format!(
            "{name} on {object} followed RDMA_WRITEs on {other} to the same peer {}, each time before the WRITE's \
             completion was polled",
            counted(TURNS.into(), "time")
        );
        let related = vec![related("the last RDMA_WRITE was posted here", &written.place)];
        self.found(&NOTIFIED_ON_OTHER_QP, Found { object, numbers, place, related });
    }
}
