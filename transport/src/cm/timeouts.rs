//! Expired timers: messages are repeated or given up, and timewait ends.

use super::{Cm, CmEvent, CmState, UnansweredMessage};
use crate::mad::CommId;

impl Cm {
    /// Largest number of timers that one call of [`Cm::handle_timeout`] handles: the rest stays due, so that
    /// one call sends a bounded number of messages.
    pub const TIMEOUTS_PER_CALL: usize = 256;

    /// Handles timers that are due. Drain the outputs, and call again while
    /// [`Cm::poll_timeout`] is not in the future.
    pub fn handle_timeout(&mut self, now_ns: u64) {
        for _ in 0..Cm::TIMEOUTS_PER_CALL {
            let Some(id) = self.table.pop_due(now_ns) else { break };
            self.on_timeout(id, now_ns);
        }
        self.send_waiting(now_ns);
    }

    fn on_timeout(&mut self, id: CommId, now_ns: u64) {
        let Some(connection) = self.table.get_mut(id) else { return };
        if connection.state == CmState::Timewait {
            self.enter_idle(id);
            //= man:rdma_get_cm_event
            //| The event TIMEWAIT_EXIT says that the queue pair may be used again.
            self.push_event(id, CmEvent::TimewaitExit { id });
            self.remove_if_forgotten(id);
        } else if let Some(left) = connection.repetition.retries_left.checked_sub(1) {
            connection.repetition.retries_left = left;
            let deadline_ns = now_ns.saturating_add(connection.repetition.interval_ns);
            self.table.arm(id, deadline_ns);
            self.resend(id);
        } else {
            let state = connection.state;
            self.give_up(id, state, now_ns);
        }
    }

    /// Gives up a request at once, because the consumer's host knows that no answer will arrive. The effect
    /// is that of the last timeout. An id that has no request under way is left alone.
    pub fn abandon(&mut self, id: CommId, now_ns: u64) {
        let Some(state) = self.table.get(id).map(|connection| connection.state) else { return };
        if matches!(state, CmState::ReqSent | CmState::MraReqReceived | CmState::SidrReqSent) {
            self.give_up(id, state, now_ns);
        }
    }

    /// Gives up a connection whose peer never answered.
    fn give_up(&mut self, id: CommId, state: CmState, now_ns: u64) {
        let unanswered = match state {
            CmState::ReqSent | CmState::MraReqReceived => {
                self.enter_idle(id);
                UnansweredMessage::Req
            }
            CmState::SidrReqSent => {
                self.enter_idle(id);
                UnansweredMessage::SidrReq
            }
            CmState::RepSent | CmState::MraRepReceived => {
                // The peer may be established, and its RTUs lost: it should learn that this end is gone.
                self.send_timeout_rej(id, now_ns);
                self.enter_idle(id);
                UnansweredMessage::Rep
            }
            //= linux:cm.c#cm_process_send_error
            //| A DREQ that gets no answer leads to timewait.
            CmState::DreqSent => {
                self.enter_timewait(id, now_ns);
                self.push_event(id, CmEvent::Disconnected { id, private_data: None, answered: false });
                return;
            }
            // These states have no timer.
            _ => return,
        };
        self.push_event(id, CmEvent::Unreachable { id, unanswered });
        self.remove_if_forgotten(id);
    }
}
