//! Profiles of formats: the widths of the fields of entropy values.

use pumice_transport::mrc::paths::EvFormat;

use super::stage::{ControlError, ProfileStage};

/// The part of a packet that carries entropy values of a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FormatMode {
    /// A structured value of 32 bits: flow label and UDP source port.
    Stev = 1,
    /// The UDP source port alone.
    Udp = 4,
}

impl FormatMode {
    /// Bits of all modes.
    pub const MASK: u32 = 1 | 4;

    /// Returns the mode with this number.
    pub const fn of_number(number: u32) -> Option<FormatMode> {
        match number {
            1 => Some(FormatMode::Stev),
            4 => Some(FormatMode::Udp),
            _ => None,
        }
    }

    /// Returns the number of bits of a value.
    pub const fn width(self) -> u32 {
        match self {
            FormatMode::Stev => 32,
            FormatMode::Udp => 16,
        }
    }
}

/// A profile of a format.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FormatProfile {
    /// Its stage.
    pub stage: ProfileStage,
    /// Its mode; `None` before OFFLINE.
    pub mode: Option<FormatMode>,
    /// The widths of its fields in bits; empty before they are set.
    pub widths: Vec<u8>,
}

/// A controller's change of a format.
#[derive(Debug, Clone, Default)]
pub struct FormatChange {
    /// The stage to go to.
    pub stage: Option<ProfileStage>,
    /// The number of the mode.
    pub mode: Option<u32>,
    /// The widths of the fields.
    pub widths: Option<Vec<u8>>,
}

impl FormatProfile {
    /// Returns the format as values are expanded by it.
    pub(super) fn format(&self) -> EvFormat {
        EvFormat { widths: self.widths.iter().map(|width| u32::from(*width)).collect() }
    }

    pub(super) fn changed(&self, change: &FormatChange) -> Result<FormatProfile, ControlError> {
        let mut new = self.clone();
        if self.stage == ProfileStage::Online && (change.mode.is_some() || change.widths.is_some()) {
            return Err(ControlError::busy("a format that is ONLINE is not changed: bring it to OFFLINE"));
        }
        if let Some(number) = change.mode {
            let known = FormatMode::of_number(number);
            new.mode = Some(known.ok_or_else(|| {
                ControlError::invalid(format!("format mode {number}: the device has STEV (1) and UDP (4)"))
            })?);
        }
        if let Some(widths) = &change.widths {
            let bits: u32 = widths.iter().map(|width| u32::from(*width)).sum();
            let most = new.mode.map_or(FormatMode::Stev, |mode| mode).width();
            if widths.is_empty() || bits > most || widths.contains(&0) {
                let what = format!("{} fields of {bits} bits together: {most} bits fit", widths.len());
                return Err(ControlError::invalid(what));
            }
            new.widths.clone_from(widths);
        }
        let Some(to) = change.stage else { return Ok(new) };
        self.stage.check_step(to)?;
        match to {
            ProfileStage::Init => return Ok(FormatProfile::default()),
            _ if new.mode.is_none() => return Err(ControlError::missing(to, "MODE")),
            ProfileStage::Online if new.widths.is_empty() => {
                return Err(ControlError::missing(to, "OP with MODIFY_FIELDS"));
            }
            _ => new.stage = to,
        }
        Ok(new)
    }
}
