//! Hints about the memory and the keys that a refused request names.
//!
//! A checked device gives the regions of a program two numbers that differ, and serves either; so a program
//! goes on as on the adapters that have one number for both.

use pumice_transport::types::{Cause, FailureDetail, MemoryError, MemoryFault, RemoteRange, Sge};

use super::super::context::{CheckContext, FindingParts, counted, related};
use super::super::kind::KEYS_CROSSED;
use super::super::notified::Hint;
use super::regions::RegionRecord;
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

    /// Returns the memory that a request was probably meant to name, and the call site that registered it.
    pub(super) fn hint_of(&self, context: &CheckContext, cause: &Cause) -> Option<Hint> {
        match cause {
            Cause::RequestRefused { detail: FailureDetail::Remote(range), .. } => {
                self.hint_of_range(context, range)
            }
            Cause::RequestRefused { detail: FailureDetail::Receive { fault, .. }, .. }
            | Cause::ReceiveFailed { detail: FailureDetail::Receive { fault, .. }, .. } => {
                self.hint_of_own(context, fault)
            }
            Cause::SendFailed(failed) => self.hint_of_own(context, failed.fault.as_ref()?),
            _ => None,
        }
    }

    /// Returns a hint about memory that the peer's request names.
    fn hint_of_range(&self, context: &CheckContext, range: &RemoteRange) -> Option<Hint> {
        let key = self.regions.named_by_peer(context.own.key(range.rkey));
        let Some(region) = self.regions.at(key) else {
            return self.hint_of_order(context, range.rkey);
        };
        let is_inside = |address| self.regions.locate(key, address, range.length_bytes).is_some();
        let address = range.address;
        let text = if is_inside(address) {
            String::new()
        } else if is_inside(region.iova & UPPER | address & !UPPER) {
            let how = if address & UPPER == 0 {
                "cut to 32 bits"
            } else {
                "cut to 32 bits and extended by its sign"
            };
            format!("; the address was {how}: with the upper half of the region's address it is inside")
        } else if is_inside(address.swap_bytes()) {
            "; the bytes of the address are in the wrong order: the other way round it is inside".to_owned()
        } else if is_inside(address.wrapping_add(region.iova)) {
            format!("; it looks like an offset: the region begins at {:#x}", region.iova)
        } else {
            format!("; the key is that of {} bytes at {:#x}", region.length, region.iova)
        };
        Some(hint(text, region))
    }

    /// Returns a hint about an unknown key that would be known in the other byte order.
    fn hint_of_order(&self, context: &CheckContext, key: u32) -> Option<Hint> {
        let other = self.regions.at(self.regions.named_by_peer(context.own.key(key.swap_bytes())))?;
        let text =
            "; the bytes of the key are in the wrong order: the other way round it is that of a region";
        Some(hint(text.to_owned(), other))
    }

    /// Returns a hint about memory of this side.
    fn hint_of_own(&self, context: &CheckContext, fault: &MemoryFault) -> Option<Hint> {
        let element = fault.element?;
        let key = context.own.key(element.lkey);
        let named = self.regions.at(key);
        if matches!(fault.error, MemoryError::WrongDomain | MemoryError::AccessDenied) {
            return Some(hint(String::new(), named?));
        }
        if let Some(former) = self.regions.former(key).filter(|_| fault.error == MemoryError::UnknownKey) {
            let call_site = related("the region of that lkey was deregistered here", &former.ended);
            return Some(Hint { text: String::new(), related: vec![call_site] });
        }
        let of_other =
            self.regions.around(element.address, element.length.into()).filter(|found| found.0 != key);
        let Some((other, region)) = of_other else {
            return match named {
                Some(named) => Some(hint("; no other region has these bytes either".to_owned(), named)),
                None => self.hint_of_order(context, element.lkey),
            };
        };
        Some(hint(format!("; these bytes are in the memory region of lkey {:#010x}", other as u32), region))
    }
}

/// Bits of an address that a number of 32 bits does not have.
const UPPER: u64 = !0xffff_ffff;

fn hint(text: String, region: &RegionRecord) -> Hint {
    Hint { text, related: vec![related("the memory was registered here", &region.made)] }
}
