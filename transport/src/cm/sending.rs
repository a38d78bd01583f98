//! Outgoing messages: sent at once, or as soon as the pacing of their peer allows.

use super::pace::Pace;
use super::{Cm, MadOut, MadRoute};
use crate::mad::{CmMessage, CommId, MAD_BYTES};

impl Cm {
    pub(super) fn send(&mut self, route: MadRoute, message: &CmMessage, transaction: u64) {
        self.send_mad(route, message.emit(transaction));
    }

    pub(super) fn send_mad(&mut self, route: MadRoute, mad: [u8; MAD_BYTES]) {
        if self.transmits.len() < Cm::MAX_QUEUED_TRANSMITS {
            self.transmits.push_back(MadOut { route, mad });
        }
    }

    /// Sends the message of a connection and starts its timer, as soon as the pacing allows.
    pub(super) fn send_in_turn(&mut self, id: CommId, now_ns: u64) {
        self.settle(id);
        let Some(connection) = self.table.get_mut(id) else { return };
        connection.repetition.pace = self.pacer.admit(id, &connection.route.remote, now_ns);
        match connection.repetition.pace {
            Pace::Waiting(_) => self.table.disarm(id),
            _ => self.send_now(id, now_ns),
        }
    }

    /// Sends waiting messages if there is room. Every call that can make room ends with this.
    pub(super) fn send_waiting(&mut self, now_ns: u64) {
        for _ in 0..Cm::TIMEOUTS_PER_CALL {
            let Some((id, pace)) = self.pacer.next(now_ns) else { return };
            if let Some(connection) = self.table.get_mut(id) {
                connection.repetition.pace = pace;
                self.send_now(id, now_ns);
            }
        }
    }

    /// Ends the pacing of a connection's message, because it waits for no answer any more.
    pub(super) fn settle(&mut self, id: CommId) {
        if let Some(connection) = self.table.get_mut(id) {
            let pace = core::mem::take(&mut connection.repetition.pace);
            self.pacer.settle(id, &connection.route.remote, pace);
        }
    }

    /// Reports whether the message of a connection is still waiting to be sent.
    pub(super) fn has_to_wait(&self, id: CommId) -> bool {
        self.table.get(id).is_some_and(|connection| matches!(connection.repetition.pace, Pace::Waiting(_)))
    }

    /// Sends waiting messages without waiting for answers to others, because the process is about to end.
    /// Drain the outputs, and call again while it returns true: what one call sends is bounded.
    #[must_use = "it has to be called again if this is true"]
    pub fn send_all_waiting(&mut self, now_ns: u64) -> bool {
        self.pacer.open_window();
        self.send_waiting(now_ns);
        self.pacer.has_waiting()
    }

    fn send_now(&mut self, id: CommId, now_ns: u64) {
        let Some(interval_ns) = self.table.get(id).map(|connection| connection.repetition.interval_ns) else {
            return;
        };
        self.table.arm(id, now_ns.saturating_add(interval_ns));
        self.resend(id);
    }
}
