//! Connections: attributes that mean something else than they look, receives that come too late, packets that
//! are dropped because both sides do not fit, requests under way at the end.

use std::cmp::Ordering;

use pumice_transport::host::QpContext;
use pumice_transport::qp::{AttributeMask, QpAttributes};
use pumice_transport::types::{Mtu, QpCapacity, QpState};

use super::checker::{Checker, Found, counted, related};
use super::kind::{
    CONNECTED_TOO_LATE, FindingKind, GID_OF_OTHER_FAMILY, IN_FLIGHT_AT_DESTROY, MTU_ABOVE_ACTIVE,
    MTU_BELOW_PATH, PKEY_MISMATCH, QKEY_MISMATCH, READ_DEPTH_MISMATCH, READ_DEPTH_ZERO, RECEIVE_TOO_LATE,
    RETRIES_ZERO, RNR_TIMER_LONGEST, TIMEOUT_FOR_EVER,
};
use super::queues::Qp;
use super::stack::Stack;

/// Messages without a receive before that is told, and as which share of those received.
const LATE_POSTS: u64 = 4;
const LATE_SHARE: u64 = 8;
/// Stacks of late receives that are told apart for a queue pair.
const LATE_STACKS: u32 = 16;
/// The largest code that looks like that of an MTU.
const MAX_MTU_CODE: u32 = 9;

/// A queue pair that the program has made.
#[derive(Debug, Clone, Copy)]
pub struct QpMade {
    /// Of the program's pointer.
    pub address: u64,
    /// Its number.
    pub number: u32,
    /// How many queue pairs the device had made before it.
    pub ordinal: u32,
    /// Its transport service.
    pub service: &'static str,
    /// Handle of the completion queue of send requests.
    pub send_cq: Option<u32>,
    /// Handle of the completion queue of receives of its own.
    pub recv_cq: Option<u32>,
    /// What it has room for.
    pub capacity: QpCapacity,
}

/// What the device knows about the attributes of a `ibv_modify_qp`.
#[derive(Debug, Clone, Copy)]
pub struct ModifyFacts {
    /// The call succeeded.
    pub is_done: bool,
    /// Of the port.
    pub active_mtu: Mtu,
    /// Whether the GID at `sgid_index` is an IPv4 address; `None` if there is none, or no address vector.
    pub source_is_ipv4: Option<bool>,
    /// The destination is an address of this device, or of another one of the program.
    pub peer_is_here: bool,
}

impl Checker {
    /// The program has made a queue pair, of which [`Checker::object_made`] was told.
    pub fn qp_made(&mut self, qp: &QpMade) {
        let Some(object) = self.objects.at_mut(qp.address) else { return };
        object.ordinal = qp.ordinal;
        let name = format!("{} (number {:#x})", object.name(), qp.number);
        let made = object.made.clone();
        let known = Qp {
            name,
            service: qp.service,
            // No queue has the last handle.
            send_cq: qp.send_cq.map_or(u32::MAX, |cq| self.own.handle(cq)),
            recv_cq: qp.recv_cq.map_or(u32::MAX, |cq| self.own.handle(cq)),
            capacity: qp.capacity,
            made,
            ..Qp::default()
        };
        self.qps.insert(qp.number, known);
    }

    /// The program has called `ibv_modify_qp`.
    pub fn qp_modified(
        &mut self,
        number: u32,
        attributes: &QpAttributes,
        mask: AttributeMask,
        facts: &ModifyFacts,
    ) {
        let stack = self.here();
        let Some(qp) = self.qps.get_mut(&number) else { return };
        let to = QpState::from_verbs(attributes.qp_state).filter(|_| mask.contains(AttributeMask::STATE));
        if facts.is_done {
            match to {
                Some(QpState::Init) => qp.to_init = stack.clone(),
                Some(QpState::Rtr) => qp.to_rtr = stack.clone(),
                Some(QpState::Rts) => qp.to_rts = stack.clone(),
                _ => {}
            }
            let given = |bit: AttributeMask| mask.contains(bit);
            if given(AttributeMask::DEST_QPN) {
                qp.destination = Some(attributes.dest_qp_num);
                qp.peer_is_here = facts.peer_is_here;
            }
            if given(AttributeMask::MAX_QP_RD_ATOMIC) {
                qp.max_rd_atomic = Some(attributes.max_rd_atomic);
            }
            if given(AttributeMask::MAX_DEST_RD_ATOMIC) {
                qp.max_dest_rd_atomic = Some(attributes.max_dest_rd_atomic);
            }
        }
        self.check_attributes(number, attributes, mask, facts, &stack);
        if facts.is_done {
            self.check_read_depth(number, &stack);
            if to == Some(QpState::Rtr) {
                self.tell_early(number, &stack);
            }
        }
    }

    fn check_attributes(
        &mut self,
        number: u32,
        attributes: &QpAttributes,
        mask: AttributeMask,
        facts: &ModifyFacts,
        stack: &Stack,
    ) {
        let given = |bit: AttributeMask| mask.contains(bit);
        let mut found: Vec<(&'static FindingKind, String)> = Vec::new();
        if facts.is_done && given(AttributeMask::TIMEOUT) && attributes.timeout == 0 {
            let retries = attributes.retry_cnt;
            found.push((&TIMEOUT_FOR_EVER, format!("timeout is 0; retry_cnt {retries} is never used")));
        } else if facts.is_done && given(AttributeMask::RETRY_CNT) && attributes.retry_cnt == 0 {
            found.push((&RETRIES_ZERO, format!("retry_cnt is 0, timeout {}", attributes.timeout)));
        }
        let is_rnr_zero = given(AttributeMask::MIN_RNR_TIMER) && attributes.min_rnr_timer == 0;
        if facts.is_done && is_rnr_zero && !self.asks_for_attributes {
            found.push((&RNR_TIMER_LONGEST, "min_rnr_timer is 0, which is 655.36 ms".to_owned()));
        }
        if given(AttributeMask::PATH_MTU) && (1..=MAX_MTU_CODE).contains(&attributes.path_mtu) {
            let (wanted, active) = (128_u32 << attributes.path_mtu, facts.active_mtu.bytes());
            let numbers = format!("path_mtu is {wanted} bytes, and the port's active MTU {active}");
            match wanted.cmp(&(active as u32)) {
                Ordering::Greater => found.push((&MTU_ABOVE_ACTIVE, numbers)),
                Ordering::Less => found.push((&MTU_BELOW_PATH, numbers)),
                Ordering::Equal => {}
            }
        }
        let vector = &attributes.address_vector;
        let is_ipv4 = vector.dgid.is_ipv4();
        if given(AttributeMask::AV) && facts.source_is_ipv4.is_some_and(|source| source != is_ipv4) {
            let family = |is_ipv4| if is_ipv4 { "IPv4" } else { "IPv6" };
            let (own, peer) = (family(!is_ipv4), family(is_ipv4));
            let index = vector.sgid_index;
            let numbers =
                format!("the GID at sgid_index {index} is an {own} address, the peer's an {peer} one");
            found.push((&GID_OF_OTHER_FAMILY, numbers));
        }
        let Some(object) = self.qps.get(&number).map(|qp| qp.name.clone()) else { return };
        for (kind, numbers) in found {
            let (object, stack) = (object.clone(), stack.clone());
            self.found(kind, Found { object, numbers, stack, related: Vec::new() });
        }
    }

    /// A READ or atomic was posted to a queue pair that may have none under way.
    pub(super) fn has_no_read_depth(&mut self, number: u32, request: &str) {
        let stack = self.here();
        let Some(qp) = self.qps.get(&number) else { return };
        let numbers = format!("{request} is posted to {}, whose max_rd_atomic is 0", qp.name);
        let related = vec![related(format!("{} went to RTS here", qp.name), &qp.to_rts)];
        let object = qp.name.clone();
        self.found(&READ_DEPTH_ZERO, Found { object, numbers, stack, related });
    }

    /// Compares a queue pair with its peer, if that is of this process.
    fn check_read_depth(&mut self, number: u32, stack: &Stack) {
        let Some(qp) = self.qps.get(&number).filter(|qp| qp.peer_is_here) else { return };
        let Some(other) = qp.destination else { return };
        let is_mutual = self.qps.get(&other).is_some_and(|peer| peer.destination == Some(number));
        if !is_mutual {
            return;
        }
        for (one, other) in [(number, other), (other, number)] {
            let (Some(from), Some(to)) = (self.qps.get(&one), self.qps.get(&other)) else { continue };
            let (Some(most), Some(served)) = (from.max_rd_atomic, to.max_dest_rd_atomic) else { continue };
            if most <= served || from.told_depth {
                continue;
            }
            let numbers = format!(
                "max_rd_atomic of {} is {most}, and max_dest_rd_atomic of its peer, {}, is {served}",
                from.name, to.name
            );
            let related = vec![
                related(format!("{} went to RTS here", from.name), &from.to_rts),
                related(format!("{} went to RTR here", to.name), &to.to_rtr),
            ];
            let object = from.name.clone();
            self.found(&READ_DEPTH_MISMATCH, Found { object, numbers, stack: stack.clone(), related });
            if let Some(from) = self.qps.get_mut(&one) {
                from.told_depth = true;
            }
        }
    }

    pub(super) fn state_changed(&mut self, number: u32, to: QpState) {
        let Some(mut qp) = self.qps.remove(&number) else { return };
        qp.state = to;
        if to == QpState::Reset {
            self.forget_requests(&mut qp);
        }
        self.qps.insert(number, qp);
    }

    /// A message came and found no receive.
    pub(super) fn found_no_receive(&mut self, context: &QpContext, psn: u32) {
        let Some(qp) = self.qps.get_mut(&context.qpn.value()) else { return };
        if qp.unready_psn != Some(psn) {
            qp.unready = qp.unready.saturating_add(1);
            (qp.unready_psn, qp.is_late) = (Some(psn), true);
            self.srq_was_empty(self.own.handle(context.recv_queue));
        }
    }

    /// A receive is posted; messages may have come for it before.
    pub(super) fn receive_was_late(&mut self, number: u32) {
        let Some(qp) = self.qps.get_mut(&number) else { return };
        if !std::mem::replace(&mut qp.is_late, false) {
            return;
        }
        qp.late_posts = qp.late_posts.saturating_add(1);
        if qp.late_posts < LATE_POSTS || qp.late_posts.saturating_mul(LATE_SHARE) < qp.received {
            return;
        }
        let object = qp.name.clone();
        if qp.told_late >= LATE_STACKS {
            return self.found_again(&RECEIVE_TOO_LATE, &object);
        }
        qp.told_late += 1;
        let stack = self.here();
        self.tell_late(number, stack);
    }

    fn tell_late(&mut self, number: u32, stack: Stack) {
        let Some(qp) = self.qps.get(&number) else { return };
        let numbers = format!(
            "{} messages came to {} ({}) without a receive, {} were received",
            qp.unready, qp.name, qp.service, qp.received
        );
        let related = vec![related(format!("{} was made here", qp.name), &qp.made)];
        let object = qp.name.clone();
        self.found(&RECEIVE_TOO_LATE, Found { object, numbers, stack, related });
    }

    pub(super) fn other_qkey(&mut self, number: u32) {
        let Some(qp) = self.qps.get_mut(&number) else { return };
        if !std::mem::replace(&mut qp.told_qkey, true) {
            let (object, stack) = (qp.name.clone(), qp.to_init.clone());
            let numbers = format!("a datagram with another Q_Key came to {object}");
            let related = vec![related(format!("{object} was made here"), &qp.made)];
            self.found(&QKEY_MISMATCH, Found { object, numbers, stack, related });
        }
    }

    pub(super) fn other_pkey(&mut self, number: u32, given: u16, own: u16) {
        let Some(qp) = self.qps.get_mut(&number) else { return };
        if !std::mem::replace(&mut qp.told_pkey, true) {
            let (object, stack) = (qp.name.clone(), qp.to_init.clone());
            let numbers =
                format!("a packet with P_Key {given:#06x} came to {object}, whose P_Key is {own:#06x}");
            let related = vec![related(format!("{object} was made here"), &qp.made)];
            self.found(&PKEY_MISMATCH, Found { object, numbers, stack, related });
        }
    }

    /// A packet came before the queue pair receives.
    pub(super) fn came_early(&mut self, number: u32) {
        if let Some(qp) = self.qps.get_mut(&number) {
            qp.early_packets = qp.early_packets.saturating_add(1);
        }
    }

    fn tell_early(&mut self, number: u32, stack: &Stack) {
        let Some(qp) = self.qps.get_mut(&number) else { return };
        let count = std::mem::take(&mut qp.early_packets);
        if count > 0 {
            let object = qp.name.clone();
            let numbers = format!("{} came to {object} before it was in RTR", counted(count, "packet"));
            let related = vec![related(format!("{object} was made here"), &qp.made)];
            self.found(&CONNECTED_TOO_LATE, Found { object, numbers, stack: stack.clone(), related });
        }
    }

    pub(super) fn qp_destroyed(&mut self, context: &QpContext) {
        let number = context.qpn.value();
        let is_unready = |qp: &Qp| qp.unready >= LATE_POSTS && qp.told_late == 0 && qp.is_late;
        if let Some(made) = self.qps.get(&number).filter(|qp| is_unready(qp)).map(|qp| qp.made.clone()) {
            self.tell_late(number, made);
        }
        let Some(mut qp) = self.qps.remove(&number) else { return };
        if qp.signaled > 0 && qp.state == QpState::Rts && qp.service == "RC" {
            let (object, count) = (qp.name.clone(), qp.signaled);
            let stack = self.here();
            let numbers = format!("not completed of {object}: {}", counted(count, "signaled send request"));
            let related = vec![related(format!("{object} was made here"), &qp.made)];
            self.found(&IN_FLIGHT_AT_DESTROY, Found { object, numbers, stack, related });
        }
        self.tell_signals(&qp);
        self.forget_requests(&mut qp);
    }
}
