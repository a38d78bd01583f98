//! Attributes the time of a message to the program, its device, the network, or the peer.

use serde::Serialize;

use super::cause::{CauseKind, MessageCause, Responsible};
use super::loss::Owner;
use super::times::{PartKind, spans};
use crate::timeline::Message;

/// A share of the time of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct TimeShare {
    /// Party that the time is attributed to.
    pub whose: Responsible,
    /// Length of the share, in ns.
    pub ns: u64,
}

/// Splits the time of a message that ended at `end_ns` into shares, in the order of its way. `cause` is why
/// it took its time.
pub(super) fn shares(
    owner: &Owner<'_>,
    message: &Message,
    end_ns: u64,
    cause: &MessageCause,
) -> Vec<TimeShare> {
    let mut sums = [0_u64; Responsible::ALL.len()];
    let mut add = |whose: Responsible, ns: u64| {
        if let Some(sum) = sums.get_mut(whose as usize) {
            *sum = sum.saturating_add(ns);
        }
    };
    let mut network_ns = 0_u64;
    for span in spans(message, end_ns) {
        let has_own = message.end.map_or(message.signaled, |end| end.has_completion);
        let whose = match span.kind {
            PartKind::SendQueue if cause.kind == CauseKind::ReadDepth => Responsible::Program,
            PartKind::SendQueue => Responsible::OwnDevice,
            PartKind::Network => {
                network_ns = network_ns.saturating_add(span.ns());
                continue;
            }
            PartKind::Timeout | PartKind::Silence | PartKind::Loss => match cause.kind {
                CauseKind::LossUnknown => Responsible::Beyond,
                CauseKind::Frozen | CauseKind::PeerSilent | CauseKind::PeerGone => cause.kind.whose(),
                _ => Responsible::Network,
            },
            PartKind::ReceiverNotReady | PartKind::PeerStarved => match &cause.rule {
                Some(_) => cause.kind.whose(),
                None => Responsible::PeerProgram,
            },
            PartKind::Completion if has_own => Responsible::OwnDevice,
            PartKind::Completion | PartKind::Poll => Responsible::Program,
        };
        add(whose, span.ns());
    }
    match owner.in_transit_ns(message) {
        Some(transit_ns) => {
            let transit_ns = transit_ns.min(network_ns);
            add(Responsible::Network, transit_ns);
            add(Responsible::PeerDevice, network_ns - transit_ns);
        }
        None => add(Responsible::Beyond, network_ns),
    }
    let all = Responsible::ALL.into_iter().zip(sums);
    all.filter(|(_, ns)| *ns > 0).map(|(whose, ns)| TimeShare { whose, ns }).collect()
}
