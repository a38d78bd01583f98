//! Datagrams that no queue pair gets. Neither the sender nor the program that waits for them is notified.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use pumice_calls::Call;
use pumice_model::addresses::multicast::MulticastGroups;
use pumice_platform::call_stack::Stack;
use pumice_transport::types::{Cause, DropReason, SendRequest};

use crate::check::context::{CheckContext, FindingParts, counted, related};
use crate::check::kind::{DATAGRAM_TO_NO_QP, RECEIVE_TOO_LATE};
use crate::check::notified::{Check, Hint, PerQueue, QueueName};

/// Number of destinations that are tracked; later ones are not checked.
const MAX_DESTINATIONS: usize = 256;
const ALL_MEMBERS: u32 = 0xff_ffff;

/// The check for datagrams that are sent where nothing receives, or of which none had a receive.
#[derive(Debug, Default)]
pub(super) struct Datagrams {
    /// Queue pair numbers that datagrams were sent to last, with the queue pair that did so and its call
    /// site.
    numbers: BTreeMap<u32, (String, Stack)>,
    /// Multicast groups that datagrams were sent to last, with the queue pair and its call site.
    groups: BTreeMap<IpAddr, (String, Stack)>,
    /// Groups to which a queue pair of this process was attached.
    attached: BTreeSet<IpAddr>,
    /// Queue pairs that send to groups: they may get what they send, and need not want it.
    to_groups: BTreeSet<u32>,
    /// The checker is notified of calls, and so of those that attach. It is not for programs of the Rust API.
    is_notified_of_calls: bool,
    /// Number of messages to queue pairs that found no receive.
    unready: PerQueue<u64>,
}

impl Check for Datagrams {
    fn forget(&mut self, of: Option<QueueName>) {
        self.unready.forget(of);
    }

    fn forked(&mut self, _: &mut CheckContext) {
        *self = Datagrams::default();
    }

    fn request_posted(
        &mut self,
        context: &mut CheckContext,
        qp: u32,
        _: u64,
        _: u32,
        request: &SendRequest<'_>,
    ) {
        let Some(ud) = &request.ud else { return };
        let (number, to) = (ud.qpn.value(), ud.path.flow.destination);
        let is_group = to.is_multicast();
        if is_group && self.to_groups.len() < MAX_DESTINATIONS {
            self.to_groups.insert(qp);
        }
        let is_known =
            if is_group { self.groups.contains_key(&to) } else { self.numbers.contains_key(&number) };
        let room = MAX_DESTINATIONS.saturating_sub(self.groups.len().max(self.numbers.len()));
        let Some(name) = context.qps.get(&qp).map(|qp| qp.name.clone()).filter(|_| !is_known && room > 0)
        else {
            return;
        };
        let sent = (name, context.here());
        if is_group && number != ALL_MEMBERS {
            report_number(context, sent.clone(), number, to);
        }
        if is_group {
            self.groups.insert(to, sent)
        } else {
            self.numbers.insert(number, sent)
        };
    }

    fn enters(&mut self, _: &mut CheckContext, _: Call, _: u64) {
        self.is_notified_of_calls = true;
    }

    fn group_attached(&mut self, group: IpAddr) {
        if self.attached.len() < MAX_DESTINATIONS {
            self.attached.insert(group);
        }
    }

    fn logged(&mut self, context: &mut CheckContext, number: u32, cause: &Cause, _: Option<&Hint>) {
        let Cause::PacketDropped { opcode, reason, .. } = cause else { return };
        // This is the same for all numbers of a process: the byte in which they differ is lost.
        let is_swapped = context.qps.iter().any(|(own, _)| own.swap_bytes() & ALL_MEMBERS == number);
        let is_it = match reason {
            DropReason::UnknownQpn { destroyed } => !destroyed,
            // The process of the number may have ended.
            DropReason::NoProcess => is_swapped && self.numbers.contains_key(&number),
            _ => false,
        };
        if !is_it || !opcode.service().is_datagram() {
            return;
        }
        let (sender, stack) = self.numbers.get(&number).cloned().unwrap_or_default();
        let by = if sender.is_empty() { String::new() } else { format!(", sent by {sender}") };
        let why = match is_swapped {
            true => "it is a number of this process with its bytes in the wrong order",
            false => "is remote_qpn the qp_num of the receiver?",
        };
        let numbers = format!(
            "a datagram came for queue pair number {number:#x}{by}, and no queue pair has that number: {why}"
        );
        let object = format!("queue pair number {number:#x}");
        context.found(&DATAGRAM_TO_NO_QP, FindingParts { object, numbers, stack, related: Vec::new() });
    }

    fn found_no_receive(&mut self, _: &mut CheckContext, number: u32) {
        *self.unready.of(QueueName::Qp(number)) += 1;
    }

    fn qp_destroyed(&mut self, context: &mut CheckContext, number: u32) {
        self.look_at(context, number);
    }

    fn is_ended_by_signal(&mut self, context: &mut CheckContext) {
        self.ends(context);
    }

    fn ends(&mut self, context: &mut CheckContext) {
        let all: Vec<u32> = context.qps.iter().map(|(number, _)| *number).collect();
        all.into_iter().for_each(|number| self.look_at(context, number));
    }
}

/// Reports a datagram to a number that no queue pair has. A datagram to a group goes to all members, and
/// names none.
fn report_number(context: &mut CheckContext, (object, stack): (String, Stack), number: u32, group: IpAddr) {
    let numbers = format!(
        "{object} sends to queue pair number {number:#x} at the group {group}: adapters drop what has \
         another number there than 0xffffff"
    );
    context.found(&DATAGRAM_TO_NO_QP, FindingParts { object, numbers, stack, related: Vec::new() });
}

impl Datagrams {
    /// Reports whether a queue pair that ends, or whose process ends, has waited for datagrams that could not
    /// come.
    fn look_at(&mut self, context: &mut CheckContext, number: u32) {
        let unready = std::mem::take(self.unready.of(QueueName::Qp(number)));
        let Some(qp) = context.qps.get(&number).filter(|qp| qp.service == "UD" && qp.counts.received == 0)
        else {
            return;
        };
        let made = vec![related(format!("{} was made here", qp.name), &qp.calls.made)];
        if unready > 0 && !self.to_groups.contains(&number) {
            let (object, stack) = (qp.name.clone(), qp.calls.made.clone());
            let is_own = self.numbers.get(&number).is_some_and(|(sender, _)| *sender == object);
            let by =
                if is_own { ". It sent to its own number: is remote_qpn that of the receiver?" } else { "" };
            let numbers = format!(
                "all that came to {object} (UD) was dropped, {}: no receive was posted{by}",
                counted(unready, "datagram")
            );
            return context.found(&RECEIVE_TOO_LATE, FindingParts { object, numbers, stack, related: made });
        }
        let may_look = self.is_notified_of_calls;
        let is_lost = |group, sender: &str| sender != qp.name && !self.attached.contains(group);
        let lost = self
            .groups
            .iter()
            .find(|(group, (sender, _))| may_look && qp.counts.receives > 0 && is_lost(group, sender));
        if let Some((group, (sender, stack))) = lost {
            let numbers = format!(
                "{sender} sends to the group {group}, to which nothing is attached in this process; {} has \
                 receives posted, and no datagram came: {}",
                qp.name,
                MulticastGroups::explain_undelivered(*group)
            );
            let (object, stack) = (qp.name.clone(), stack.clone());
            context.found(&DATAGRAM_TO_NO_QP, FindingParts { object, numbers, stack, related: made });
        }
    }
}
