//! What is known of the memory that a refused request, or one of the program's own, names.

use pumice_transport::types::{Cause, Detail, MemoryError, MemoryFault, RemoteRange};

use super::super::context::{Context, related};
use super::super::told::Hint;
use super::regions::Region;
use super::state::Memory;

/// The bits of an address that a number of 32 bits does not have.
const UPPER: u64 = !0xffff_ffff;

impl Memory {
    /// What a request was probably meant to name, and where that was registered.
    pub(super) fn hint_of(&self, context: &Context, cause: &Cause) -> Option<Hint> {
        match cause {
            Cause::RequestRefused { detail: Detail::Remote(range), .. } => self.hint_of_range(context, range),
            Cause::RequestRefused { detail: Detail::Receive { fault, .. }, .. }
            | Cause::ReceiveFailed { detail: Detail::Receive { fault, .. }, .. } => {
                self.hint_of_own(context, fault)
            }
            Cause::SendFailed(failed) => self.hint_of_own(context, failed.fault.as_ref()?),
            _ => None,
        }
    }

    /// Memory that the peer's request names.
    fn hint_of_range(&self, context: &Context, range: &RemoteRange) -> Option<Hint> {
        let key = context.own.key(range.rkey);
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

    /// A key that is unknown, and would be known the other way round.
    fn hint_of_order(&self, context: &Context, key: u32) -> Option<Hint> {
        let other = self.regions.at(context.own.key(key.swap_bytes()))?;
        let text =
            "; the bytes of the key are in the wrong order: the other way round it is that of a region";
        Some(hint(text.to_owned(), other))
    }

    /// Memory of this side.
    fn hint_of_own(&self, context: &Context, fault: &MemoryFault) -> Option<Hint> {
        let element = fault.element?;
        let key = context.own.key(element.lkey);
        let named = self.regions.at(key);
        if matches!(fault.error, MemoryError::WrongDomain | MemoryError::AccessDenied) {
            return Some(hint(String::new(), named?));
        }
        if let Some(gone) = self.regions.gone(key).filter(|_| fault.error == MemoryError::UnknownKey) {
            let place = related("the region of that lkey was deregistered here", &gone.ended);
            return Some(Hint { text: String::new(), related: vec![place] });
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

fn hint(text: String, region: &Region) -> Hint {
    Hint { text, related: vec![related("the memory was registered here", &region.made)] }
}
