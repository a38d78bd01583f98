//! Whose the time of a message was: the program's, its device's, the network's, the peer's.

use serde::Serialize;

use super::cause::{Cause, CauseKind, Whose};
use super::loss::Owner;
use super::times::{PartKind, spans};
use crate::timeline::Message;

/// A share of the time of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Share {
    /// Whose it was.
    pub whose: Whose,
    /// How long it was, in ns.
    pub ns: u64,
}

/// The shares of a message's time that ended at `end_ns`, in the order of its way; `cause`: why it took its
/// time.
pub(super) fn shares(owner: &Owner<'_>, message: &Message, end_ns: u64, cause: &Cause) -> Vec<Share> {
    let mut sums = [0_u64; Whose::ALL.len()];
    let mut add = |whose: Whose, ns: u64| {
        if let Some(sum) = sums.get_mut(whose as usize) {
            *sum = sum.saturating_add(ns);
        }
    };
    let mut network_ns = 0_u64;
    for span in spans(message, end_ns) {
        let has_own = message.end.map_or(message.signaled, |end| end.has_completion);
        let whose = match span.kind {
            PartKind::SendQueue if cause.kind == CauseKind::ReadDepth => Whose::Program,
            PartKind::SendQueue => Whose::OwnDevice,
            PartKind::Network => {
                network_ns = network_ns.saturating_add(span.ns());
                continue;
            }
            PartKind::Timeout | PartKind::Silence => match cause.kind {
                CauseKind::LossUnknown => Whose::Beyond,
                CauseKind::Frozen | CauseKind::PeerSilent | CauseKind::PeerGone => cause.kind.whose(),
                _ => Whose::Network,
            },
            PartKind::ReceiverNotReady | PartKind::PeerStarved => match &cause.rule {
                Some(_) => cause.kind.whose(),
                None => Whose::PeerProgram,
            },
            PartKind::Completion if has_own => Whose::OwnDevice,
            PartKind::Completion | PartKind::Poll => Whose::Program,
        };
        add(whose, span.ns());
    }
    match owner.on_the_way_ns(message) {
        Some(way_ns) => {
            let way_ns = way_ns.min(network_ns);
            add(Whose::Network, way_ns);
            add(Whose::PeerDevice, network_ns - way_ns);
        }
        None => add(Whose::Beyond, network_ns),
    }
    let all = Whose::ALL.into_iter().zip(sums);
    all.filter(|(_, ns)| *ns > 0).map(|(whose, ns)| Share { whose, ns }).collect()
}
