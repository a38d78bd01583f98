//! Formats of entropy values. A value of a profile consists of fields, and the format gives their positions.

use alloc::vec::Vec;
use core::fmt;

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
