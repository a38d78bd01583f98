//! Keys of the wrong kind: an lkey that a peer was given as rkey, and an rkey that a buffer names as lkey.
//!
//! A checked device gives the regions of a program two numbers that differ, and serves either; so a program
//! goes on as on the adapters that have one number for both.

use pumice_transport::types::{RemoteRange, Sge};

use super::super::context::{CheckContext, FindingParts, counted, related};
use super::super::kind::KEYS_CROSSED;
use super::requests::QueueId;
use super::state::Memory;

impl Memory {
    /// Handles the first packet of a peer's request, which names this memory.
    #[inline]
    pub(super) fn peer_names(&self, context: &mut CheckContext, qp: u32, range: &RemoteRange) {
        let key = context.own.key(range.rkey);
        if self.regions.at(key).is_some_and(|region| region.rkey != key) {
            self.report_lkey_of_peer(context, qp, range);
        }
    }

    #[cold]
    fn report_lkey_of_peer(&self, context: &mut CheckContext, qp: u32, range: &RemoteRange) {
        let key = context.own.key(range.rkey);
        let Some(region) = self.regions.at(key) else { return };
        let (object, stack, rkey) = (region.name(key), region.made.clone(), region.rkey as u32);
        let owner = context.qps.get(&qp).map(|qp| qp.name.clone()).unwrap_or_default();
        let numbers = format!(
            "the peer of {owner} asked for {} at {:#x} with the rkey {:#x}, which is the lkey of {object}, \
             registered here; its rkey is {rkey:#x}",
            counted(range.length_bytes, "byte"),
            range.address,
            range.rkey,
        );
        context.found(&KEYS_CROSSED, FindingParts { object, numbers, stack, related: Vec::new() });
    }

    /// Handles a request that is posted with buffers of which not all are in regions that are known.
    #[cold]
    pub(super) fn buffers_name(&self, context: &mut CheckContext, queue: QueueId, wr_id: u64, sges: &[Sge]) {
        let crossed = sges.iter().find_map(|sge| {
            let lkey = self.regions.lkey_of(context.own.key(sge.lkey)).filter(|_| sge.length > 0)?;
            Some((sge.lkey, lkey, self.regions.at(lkey)?))
        });
        let Some((rkey, lkey, region)) = crossed else { return };
        let (object, made) = (region.name(lkey), region.made.clone());
        let owner = self.owner_of(context, queue);
        let numbers = format!(
            "request {wr_id:#x} of {owner}, posted here, names a buffer by the lkey {rkey:#x}, which is the \
             rkey of {object}; its lkey is {:#x}",
            lkey as u32,
        );
        let (stack, related) = (context.here(), vec![related("the memory was registered here", &made)]);
        context.found(&KEYS_CROSSED, FindingParts { object, numbers, stack, related });
    }
}
