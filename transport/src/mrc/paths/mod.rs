//! Paths of a queue pair: its entropy values, which of them are active, and the state of each.
//!
//! Profiles, which list the entropy values of a queue pair, their formats, and reverse paths.
//!
//! Formats of entropy values. A value of a profile consists of fields, and the format gives their positions.

use alloc::vec::Vec;
use core::fmt;

use crate::mrc::constants::{
    DEFAULT_ACTIVE_EVS, DEFAULT_BACKUP_EVS, DEFAULT_MIN_ACTIVE_EVS, DEFAULT_MIN_ACTIVE_SHARE,
};
use crate::mrc::entropy::{Entropy, Plane, Planes};

/// A field of a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EvField {
    /// Width of the field in bits, up to 32.
    pub width: u32,
    /// Value of the bits that the mask leaves out.
    pub init_value: u32,
    /// Least value of the masked bits.
    pub min_value: u32,
    /// Largest value of the masked bits.
    pub max_value: u32,
    /// Mask of the bits that are filled with bits of the entropy.
    pub mask: u32,
}

/// A format of entropy values: the widths of its fields, the most significant first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvFormat {
    /// Width of each field in bits.
    pub widths: Vec<u32>,
}

/// The reason why fields do not form an entropy value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FormatError {
    /// The profile has more fields than the format.
    TooManyFields,
    /// A field is wider than 32 bits, or than its position in the format.
    TooWide,
    /// An initial value is wider than its field.
    InitialValue,
    /// A mask has bits outside of its field.
    Mask,
    /// A largest value needs more bits than its mask has.
    LargestValue,
    /// The format is wider than 128 bits.
    FormatTooWide,
    /// The format produces values of more than 32 bits.
    NotEntropy,
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FormatError::TooManyFields => "the profile has more fields than its format",
            FormatError::TooWide => "a field is wider than its place in the format",
            FormatError::InitialValue => "an initial value is wider than its field",
            FormatError::Mask => "a mask has bits outside of its field",
            FormatError::LargestValue => "a largest value needs more bits than its mask has",
            FormatError::FormatTooWide => "the format has more than 128 bits",
            FormatError::NotEntropy => "the format makes values of more than 32 bits",
        })
    }
}

impl core::error::Error for FormatError {}

/// An expanded value: the fields of a format, concatenated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expanded {
    /// The value, in the low bits.
    pub value: u128,
    /// Width of the value in bits.
    pub width: u32,
}

impl Expanded {
    /// Returns the value as a structured entropy value of 32 bits (STEV).
    ///
    /// # Errors
    /// The value is wider.
    pub fn as_entropy(&self) -> Result<u32, FormatError> {
        if self.width > 32 {
            return Err(FormatError::NotEntropy);
        }
        u32::try_from(self.value).map_err(|_| FormatError::NotEntropy)
    }

    /// Returns the value as the bytes of an IPv6 address (SRv6): its fields, followed by zeros.
    pub fn as_address(&self) -> [u8; 16] {
        self.value.checked_shl(128 - self.width).unwrap_or(0).to_be_bytes()
    }
}

fn fits(value: u32, width: u32) -> bool {
    value.checked_shr(width).unwrap_or(0) == 0
}

impl EvField {
    fn check(&self, place_width: u32) -> Result<(), FormatError> {
        if self.width > 32 || self.width > place_width {
            Err(FormatError::TooWide)
        } else if !fits(self.init_value, self.width) {
            Err(FormatError::InitialValue)
        } else if !fits(self.mask, self.width) {
            Err(FormatError::Mask)
        } else if !fits(self.max_value, self.mask.count_ones()) {
            Err(FormatError::LargestValue)
        } else {
            Ok(())
        }
    }
}

/// Puts the bits of an entropy value into the fields of a profile, and these into the format. Only as many
/// low bits of the value are used as all masks have together, the most significant first.
///
/// # Errors
/// The fields do not fit the format.
pub fn expand(bits: u128, fields: &[EvField], format: &EvFormat) -> Result<Expanded, FormatError> {
    if fields.len() > format.widths.len() {
        return Err(FormatError::TooManyFields);
    }
    let mut left: u32 = 0;
    for (field, width) in fields.iter().zip(&format.widths) {
        field.check(*width)?;
        left = left.saturating_add(field.mask.count_ones());
    }
    let mut whole = Expanded { value: 0, width: 0 };
    for (index, width) in format.widths.iter().enumerate() {
        let mut value = 0;
        if let Some(field) = fields.get(index) {
            value = field.init_value;
            for bit in (0..32).rev().filter(|bit| field.mask >> bit & 1 == 1) {
                left -= 1;
                let taken = bits.checked_shr(left).unwrap_or(0) & 1;
                value = value & !(1 << bit) | (taken as u32) << bit;
            }
        }
        whole.width = whole.width.saturating_add(*width);
        if whole.width > 128 {
            return Err(FormatError::FormatTooWide);
        }
        whole.value = whole.value.checked_shl(*width).unwrap_or(0) | u128::from(value);
    }
    Ok(whole)
}

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

/// Entropy values for control packets, on which packets are known to arrive.
#[derive(Debug, Clone, Default)]
pub struct ReversePaths {
    known: [Option<Entropy>; 32],
    changed_ns: u64,
}

impl ReversePaths {
    /// Records that a packet of this side has arrived by this value, as a SACK of data or the answer to an EV
    /// probe shows.
    pub fn confirm(&mut self, now_ns: u64, ev: Ev) {
        if let Some(known) = self.known.get_mut(usize::from(ev.plane.0)) {
            *known = Some(ev.entropy);
            self.changed_ns = now_ns;
        }
    }

    /// Returns the path of an answer to a packet that came by this value: the reverse path of its plane, or
    /// that of another plane if its plane is down. If none is known, the value that the packet came by is
    /// used.
    pub fn reverse_path(&self, trigger: Ev, up: Planes) -> Ev {
        let of = |plane: Plane| {
            let known = self.known.get(usize::from(plane.0)).copied().flatten()?;
            up.has(plane).then_some(Ev { entropy: known, plane })
        };
        of(trigger.plane)
            .or_else(|| {
                (!up.has(trigger.plane)).then(|| (0..32).find_map(|plane| of(Plane(plane)))).flatten()
            })
            .unwrap_or(trigger)
    }

    /// Returns the time at which a reverse path was last confirmed; 0 for never.
    pub fn confirmed_ns(&self) -> u64 {
        self.changed_ns
    }
}

mod set;

pub use set::{PathChange, PathReport, PathSet, PathState, PathStatus};

/// A pseudo-random generator that depends only on its seed (SplitMix64).
#[derive(Debug, Clone)]
pub(crate) struct SplitMix64(pub(crate) u64);

impl SplitMix64 {
    pub(crate) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut drawn = self.0;
        drawn = (drawn ^ (drawn >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        drawn = (drawn ^ (drawn >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        drawn ^ (drawn >> 31)
    }

    /// Returns a number below the bound, which must not be 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.draw()) * bound as u128) >> 64) as usize
    }

    pub(crate) fn shuffle<T>(&mut self, list: &mut [T]) {
        for last in (1..list.len()).rev() {
            let other = self.below(last + 1);
            list.swap(last, other);
        }
    }
}

#[cfg(any(test, kani))]
mod proofs;

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

    #[test]
    fn answers_take_the_way_that_is_known_of_their_plane() {
        let mut paths = ReversePaths::default();
        let trigger = Ev { entropy: Entropy(7), plane: Plane(1) };
        assert_eq!(paths.reverse_path(trigger, Planes::ALL), trigger);
        let other = Ev { entropy: Entropy(8), plane: Plane(2) };
        paths.confirm(1, other);
        assert_eq!(paths.reverse_path(trigger, Planes::ALL), trigger);
        assert_eq!(paths.reverse_path(trigger, Planes::ALL.without(Plane(1))), other);
        paths.confirm(2, Ev { entropy: Entropy(9), plane: Plane(1) });
        assert_eq!(paths.reverse_path(trigger, Planes::ALL).entropy, Entropy(9));
        assert_eq!(paths.reverse_path(trigger, Planes(0)), trigger);
        paths.confirm(3, Ev { entropy: Entropy(9), plane: Plane(77) });
        assert_eq!(paths.confirmed_ns(), 2);
    }
}
