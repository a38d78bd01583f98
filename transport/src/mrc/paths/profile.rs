//! Profiles, which list the entropy values of a queue pair.

use alloc::vec::Vec;

use super::SplitMix64;
use super::format::{EvField, EvFormat, FormatError, expand};
use crate::mrc::constants::{
    DEFAULT_ACTIVE_EVS, DEFAULT_BACKUP_EVS, DEFAULT_MIN_ACTIVE_EVS, DEFAULT_MIN_ACTIVE_SHARE,
};
use crate::mrc::entropy::{Entropy, Plane};

/// An entropy value and the port through which its packets leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ev {
    /// The entropy value.
    pub entropy: Entropy,
    /// The port.
    pub plane: Plane,
}

/// A fixed list of entropy values. The first ones are the active set, and the others replace them if needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvProfile {
    /// All entropy values, the active ones first.
    pub evs: Vec<Ev>,
    /// Number of active entropy values.
    pub active_count: u16,
    /// Number of entropy values that stay usable, however many packets are lost.
    pub min_active: u16,
}

impl EvProfile {
    /// Returns the device's own choice (`AUTO`): values drawn from a seed, equally many for each plane. Over
    /// IPv4 only the UDP source port carries entropy. Ports below 0xc000 are left to programs.
    pub fn automatic(seed: u64, plane_count: u8, is_ipv4: bool) -> EvProfile {
        let planes = u16::from(plane_count.clamp(1, 32));
        let mut chance = SplitMix64(seed);
        let count = (DEFAULT_ACTIVE_EVS + DEFAULT_BACKUP_EVS).next_multiple_of(planes);
        let active_count = DEFAULT_ACTIVE_EVS.next_multiple_of(planes).min(count);
        let evs = (0..count).map(|index| {
            let drawn = chance.draw() as u32;
            let entropy = if is_ipv4 { 0xc000 | drawn & 0x3fff } else { drawn | 0xc000 };
            Ev { entropy: Entropy(entropy), plane: Plane((index % planes) as u8) }
        });
        let min_active = EvProfile::default_min_active(active_count);
        EvProfile { evs: evs.collect(), active_count, min_active }
    }

    /// Returns the number of values that stay usable, of so many active ones, where no controller says it.
    pub const fn default_min_active(active_count: u16) -> u16 {
        let least = match active_count / DEFAULT_MIN_ACTIVE_SHARE {
            few if few < DEFAULT_MIN_ACTIVE_EVS => DEFAULT_MIN_ACTIVE_EVS,
            share => share,
        };
        if least < active_count { least } else { active_count }
    }

    /// Returns a profile with a controller's list of values (`EXPLICIT`), all of them active.
    pub fn explicit(evs: Vec<Ev>, min_active: u16) -> EvProfile {
        let active_count = u16::try_from(evs.len()).unwrap_or(u16::MAX);
        EvProfile { evs, active_count, min_active: min_active.min(active_count) }
    }

    /// Returns a profile with values built from fields (`GENERATED`). The bits that the masks select are
    /// drawn from a seed, and the planes take turns.
    ///
    /// # Errors
    /// The fields do not fit the format, or the format produces values of more than 32 bits.
    pub fn generated(
        fields: &[EvField],
        format: &EvFormat,
        count: u16,
        plane_count: u8,
        seed: u64,
    ) -> Result<EvProfile, FormatError> {
        let planes = u16::from(plane_count.clamp(1, 32));
        let mut chance = SplitMix64(seed);
        let mut evs = Vec::with_capacity(count.into());
        for index in 0..count {
            let bits = u128::from(chance.draw()) << 64 | u128::from(chance.draw());
            let entropy = Entropy(expand(bits, fields, format)?.as_entropy()?);
            evs.push(Ev { entropy, plane: Plane((index % planes) as u8) });
        }
        let min_active = EvProfile::default_min_active(count);
        Ok(EvProfile { evs, active_count: count, min_active })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_has_as_many_values_for_each_plane() {
        for planes in [1, 3, 8, 32] {
            let profile = EvProfile::automatic(7, planes, planes == 8);
            let of = |plane| profile.evs.iter().filter(|ev| ev.plane == Plane(plane)).count();
            assert!((0..planes).all(|plane| of(plane) == profile.evs.len() / usize::from(planes)));
            assert!(profile.active_count > 100 && profile.evs.len() <= 256);
            assert!(profile.evs.iter().all(|ev| ev.entropy.source_port() >= 0xc000));
            assert_eq!(profile.min_active, profile.active_count / 4);
            assert!(planes != 8 || profile.evs.iter().all(|ev| ev.entropy.flow_label() == 0));
        }
    }

    #[test]
    fn few_values_have_no_fewer_usable_ones_than_eight() {
        let least = [1, 8, 32, 36, 128].map(EvProfile::default_min_active);
        assert_eq!(least, [1, 8, 8, 9, 32]);
    }

    #[test]
    fn generated_values_keep_what_their_fields_fix() {
        let field = |init_value, mask| EvField { width: 16, init_value, min_value: 0, max_value: 0, mask };
        let format = EvFormat { widths: [16, 16].to_vec() };
        let fields = [field(0x1230, 0xf), field(0xc000, 0xff)];
        let profile = EvProfile::generated(&fields, &format, 64, 4, 3).unwrap();
        assert_eq!(profile.evs.len(), 64);
        assert!(profile.evs.iter().all(|ev| ev.entropy.0 & 0xfff0_ff00 == 0x1230_c000));
        assert!(profile.evs.iter().any(|ev| ev.entropy != profile.evs[0].entropy));
        let wide = EvFormat { widths: [32, 16].to_vec() };
        assert_eq!(EvProfile::generated(&fields, &wide, 1, 1, 0), Err(FormatError::NotEntropy));
    }
}
