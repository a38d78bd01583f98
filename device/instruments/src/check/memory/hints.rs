//! What is known of the memory that a refused request names.

use pumice_transport::types::{Cause, Detail};

use super::super::context::{Context, related};
use super::super::told::Hint;
use super::regions::Region;
use super::state::Memory;

/// The bits of an address that a number of 32 bits does not have.
const UPPER: u64 = !0xffff_ffff;

impl Memory {
    /// What a request of the peer was probably meant to name, and where that was registered.
    pub(super) fn hint_of(&self, context: &Context, cause: &Cause) -> Option<Hint> {
        let Cause::RequestRefused { detail: Detail::Remote(range), .. } = cause else { return None };
        let key = context.own.key(range.rkey);
        let Some(region) = self.regions.at(key) else {
            let other = self.regions.at(context.own.key(range.rkey.swap_bytes()))?;
            let text =
                "; the bytes of the key are in the wrong order: the other way round it is that of a region";
            return Some(hint(text.to_owned(), other));
        };
        let is_inside = |address| self.regions.locate(key, address, range.length_bytes).is_some();
        let address = range.address;
        let text = if is_inside(address) {
            String::new()
        } else if address & UPPER == 0 && is_inside(region.iova & UPPER | address) {
            "; the address was cut to 32 bits: with the upper half of the region's address it is inside"
                .to_owned()
        } else if is_inside(address.swap_bytes()) {
            "; the bytes of the address are in the wrong order: the other way round it is inside".to_owned()
        } else if is_inside(address.wrapping_add(region.iova)) {
            format!("; it looks like an offset: the region begins at {:#x}", region.iova)
        } else {
            format!("; the key is that of {} bytes at {:#x}", region.length, region.iova)
        };
        Some(hint(text, region))
    }
}

fn hint(text: String, region: &Region) -> Hint {
    Hint { text, related: vec![related("the memory was registered here", &region.made)] }
}
