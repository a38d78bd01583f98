//! The vendors whose calls programs may get, by the vendor ID of a profile.

use super::{DirectCalls, Profile};

/// A vendor whose calls may be available.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vendor {
    /// `mlx5dv_*`.
    Mellanox,
    /// `efadv_*`.
    Amazon,
}

/// The vendors by their IDs, and the names of their calls.
const VENDORS: [(u32, Vendor, &str); 2] =
    [(0x02c9, Vendor::Mellanox, "mlx5dv_*"), (0x1d0f, Vendor::Amazon, "efadv_*")];

/// Returns the vendor of an ID.
fn vendor_of(id: u32) -> Option<Vendor> {
    VENDORS.iter().find(|(known, ..)| *known == id).map(|(_, vendor, _)| *vendor)
}

impl Profile {
    /// Returns the vendor of the imitated adapter, if it is one whose calls are known here.
    pub fn vendor(&self) -> Option<Vendor> {
        vendor_of(self.vendor_id)
    }

    /// Reports whether a device of the profile imitates one of a vendor.
    pub fn has_device_of(&self, vendor: Vendor) -> bool {
        let own = self.devices.iter().filter_map(|own| own.vendor_id);
        own.chain([self.vendor_id]).any(|id| vendor_of(id) == Some(vendor))
    }

    /// Returns the vendor whose calls programs get.
    pub fn direct_calls(&self) -> Option<Vendor> {
        self.vendor().filter(|_| self.dv == DirectCalls::Calls)
    }

    /// Returns the names of the vendor's calls, if programs get them.
    pub fn direct_call_names(&self) -> Option<&'static str> {
        let vendor = self.direct_calls()?;
        VENDORS.iter().find(|(_, other, _)| *other == vendor).map(|(.., names)| *names)
    }
}

#[cfg(test)]
mod tests {
    use pumice_calls::Call;
    use pumice_transport::types::QpType;

    use super::*;

    #[test]
    fn the_default_device_looks_like_no_other() {
        let plain = Profile::default();
        assert_eq!((plain.vendor(), plain.direct_calls(), plain.direct_call_names()), (None, None, None));
        assert!(plain.refuses.calls().is_empty() && plain.driver.is_empty());
        for row in pumice_transport::types::QP_TYPES.iter().filter(|row| row.is_made_by_programs) {
            assert!(plain.queue_pairs.has(row.qp_type), "{}", row.name);
        }
    }

    #[test]
    fn a_personality_says_whose_calls_answer_and_which_are_refused() {
        let text = "vendor_id = 0x1d0f\ndv = 'calls'\nqueue_pairs = ['ud']\nrefuses = ['ibv_create_srq']";
        let profile = Profile::parse(text).unwrap();
        assert_eq!(profile.direct_call_names(), Some("efadv_*"));
        assert!(profile.queue_pairs.has(QpType::Ud) && !profile.queue_pairs.has(QpType::XrcTarget));
        assert_eq!(profile.queue_pairs.words(), "ud");
        assert!(profile.refuses.has(Call::ibv_create_srq) && !profile.refuses.has(Call::ibv_create_qp));
        assert_eq!(Profile::parse("vendor_id = 0x02c9").unwrap().direct_calls(), None);
    }

    #[test]
    fn what_cannot_be_refused_or_made_is_named() {
        for (text, part) in [
            ("refuses = ['ibv_destroy_qp']", "ibv_destroy_qp is no call that a device may refuse"),
            ("refuses = ['ibv_post_send']", "ibv_post_send is no call that"),
            ("refuses = ['ibv_make_coffee']", "ibv_make_coffee is no call that"),
            ("queue_pairs = ['rd']", "no kind of queue pairs is rd; there are rc, uc, ud, xrc, raw, srd, dc"),
            ("dv = 'rings'", "unknown variant `rings`"),
            ("node = 'switch'", "unknown variant `switch`"),
            ("driver = 'a/b'", "driver must be"),
        ] {
            let sentence = Profile::parse(text).unwrap_err();
            assert!(sentence.contains(part), "{text}\n{sentence}");
        }
    }
}
