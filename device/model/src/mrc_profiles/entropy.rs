//! Profiles of formats, and profiles of entropy values.

use pumice_transport::mrc::constants::{DEFAULT_ACTIVE_EVS, DEFAULT_MIN_ACTIVE_EVS};
use pumice_transport::mrc::entropy::{Entropy, Plane};
use pumice_transport::mrc::paths::{Ev, EvField, EvFormat, EvProfile, PathState, expand};

use super::congestion::{ControlError, MOST_EVS, ProfileStage};

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

/// The way in which a profile gets its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EvMode {
    /// The device chooses.
    Auto = 1,
    /// The controller lists them.
    Explicit = 2,
    /// The device makes them of fields.
    Generated = 4,
}

impl EvMode {
    /// Bits of all modes.
    pub const MASK: u32 = 7;

    /// Returns the mode with this number.
    pub const fn of_number(number: u32) -> Option<EvMode> {
        match number {
            1 => Some(EvMode::Auto),
            2 => Some(EvMode::Explicit),
            4 => Some(EvMode::Generated),
            _ => None,
        }
    }
}

/// The name of a value: its 32 bits, and the port of the API, from 1. Port 0 names an empty slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct EvName {
    /// The value, as the controller wrote it.
    pub value: u32,
    /// The port, from 1.
    pub port: u8,
}

impl EvName {
    /// The name of an empty slot.
    pub const EMPTY: EvName = EvName { value: 0, port: 0 };
}

/// A slot of a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EvSlot {
    /// The value in it.
    pub name: EvName,
    /// The state that was last heard of.
    pub state: PathState,
}

impl EvSlot {
    const EMPTY: EvSlot = EvSlot { name: EvName::EMPTY, state: PathState::Good };
}

/// A profile of entropy values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EvRecord {
    /// Its stage.
    pub stage: ProfileStage,
    /// Its mode; `None` before OFFLINE.
    pub mode: Option<EvMode>,
    /// Its format.
    pub format: Option<u64>,
    /// Number of values that stay usable, however many packets are lost.
    pub min_active: Option<u32>,
    /// States of which the controller wants events: GOOD 1, ASSUMED_BAD 2.
    pub event_mask: Option<u32>,
    /// Its fields.
    pub fields: Vec<EvField>,
    /// Its values.
    pub slots: Vec<EvSlot>,
}

/// A controller's change of a profile of entropy values.
#[derive(Debug, Clone, Default)]
pub struct EvChange {
    /// The stage to go to.
    pub stage: Option<ProfileStage>,
    /// The number of the mode.
    pub mode: Option<u32>,
    /// The format.
    pub format: Option<u64>,
    /// The number of values.
    pub count: Option<u32>,
    /// The number of values that stay usable.
    pub min_active: Option<u32>,
    /// The states of which the controller wants events.
    pub event_mask: Option<u32>,
    /// The fields.
    pub fields: Option<Vec<EvField>>,
}

/// States that events may be about.
const EVENTS: u32 = 3;

impl EvRecord {
    pub(super) fn changed(
        &self,
        change: &EvChange,
        format: &FormatProfile,
    ) -> Result<EvRecord, ControlError> {
        let mut new = self.clone();
        let sets = change.mode.is_some()
            || change.format.is_some()
            || change.count.is_some()
            || change.min_active.is_some()
            || change.event_mask.is_some()
            || change.fields.is_some();
        if self.stage == ProfileStage::Online && sets {
            return Err(ControlError::busy(
                "an EV profile that is ONLINE is not changed: bring it to OFFLINE",
            ));
        }
        if let Some(number) = change.mode {
            let known = EvMode::of_number(number);
            new.mode =
                Some(known.ok_or_else(|| ControlError::invalid(format!("there is no EV mode {number}")))?);
        }
        new.format = change.format.or(new.format);
        if let Some(count) = change.count {
            if count == 0 || count > MOST_EVS {
                return Err(ControlError::too_big(format!("{count} values: 1 to {MOST_EVS} fit")));
            }
            new.slots.resize(count as usize, EvSlot::EMPTY);
        }
        if let Some(mask) = change.event_mask {
            if mask & !EVENTS != 0 {
                return Err(ControlError::invalid(format!(
                    "events {mask:#x}: there are GOOD and ASSUMED_BAD"
                )));
            }
            new.event_mask = Some(mask);
        }
        new.min_active = change.min_active.or(new.min_active);
        if new.min_active.is_some_and(|least| least as usize > new.slots.len() && !new.slots.is_empty()) {
            return Err(ControlError::invalid("ev_min_active is more than ev_count"));
        }
        if let Some(fields) = &change.fields {
            new.fields.clone_from(fields);
            expand(0, fields, &format.format()).map_err(|error| ControlError::invalid(error.to_string()))?;
        }
        match change.stage {
            Some(to) => new.step(self.stage, to, format),
            None => Ok(new),
        }
    }

    /// Returns the profile after a step.
    fn step(
        mut self,
        from: ProfileStage,
        to: ProfileStage,
        format: &FormatProfile,
    ) -> Result<EvRecord, ControlError> {
        from.check_step(to)?;
        if to == ProfileStage::Init {
            return Ok(EvRecord::default());
        }
        let mode = self.mode.ok_or_else(|| ControlError::missing(to, "MODE"))?;
        if mode != EvMode::Auto && self.format.is_none() {
            return Err(ControlError::missing(to, "FMT_ID"));
        }
        if self.slots.is_empty() {
            if mode != EvMode::Auto {
                return Err(ControlError::missing(to, "COUNT"));
            }
            self.slots = vec![EvSlot::EMPTY; DEFAULT_ACTIVE_EVS.into()];
        }
        if mode == EvMode::Generated && self.fields.is_empty() {
            return Err(ControlError::missing(to, "EV_FIELDS_OP with MODIFY_FIELDS"));
        }
        if to == ProfileStage::Online {
            if let Some(id) = self.format
                && format.stage != ProfileStage::Online
            {
                return Err(ControlError::invalid(format!("format {id} is not ONLINE")));
            }
            if mode == EvMode::Explicit && self.slots.iter().any(|slot| slot.name.port == 0) {
                return Err(ControlError::missing(to, "a value in each slot: EV_OP with REPLACE_EV"));
            }
        }
        self.stage = to;
        Ok(self)
    }

    fn position(&self, name: EvName) -> Option<usize> {
        self.slots.iter().position(|slot| slot.name == name)
    }

    /// Returns the slots of a value: the first one, or all of them.
    pub fn slots_of(&self, name: EvName, all: bool) -> Result<Vec<usize>, ControlError> {
        let found: Vec<usize> =
            (0..).zip(&self.slots).filter(|(_, slot)| slot.name == name).map(|(index, _)| index).collect();
        if found.is_empty() {
            return Err(ControlError::absent(format!(
                "the profile has no value {:#x} of port {}",
                name.value, name.port
            )));
        }
        Ok(if all { found } else { found.into_iter().take(1).collect() })
    }

    /// Replaces a value by another one.
    pub fn replace(
        &mut self,
        old: EvName,
        new: EvName,
        state: PathState,
        all: bool,
    ) -> Result<(), ControlError> {
        if self.stage == ProfileStage::Online {
            return Err(ControlError::busy("values of a profile that is ONLINE are not replaced"));
        }
        for index in self.slots_of(old, all)? {
            if let Some(slot) = self.slots.get_mut(index) {
                *slot = EvSlot { name: new, state };
            }
        }
        Ok(())
    }

    /// Sets the state of a value.
    pub fn set_state(&mut self, name: EvName, state: PathState, all: bool) -> Result<(), ControlError> {
        for index in self.slots_of(name, all)? {
            if let Some(slot) = self.slots.get_mut(index) {
                slot.state = state;
            }
        }
        Ok(())
    }

    /// Records the state that a queue pair has found for a value. Returns whether the controller wants an
    /// event of it.
    pub fn note(&mut self, name: EvName, state: PathState) -> bool {
        if let Some(index) = self.position(name)
            && let Some(slot) = self.slots.get_mut(index)
        {
            slot.state = state;
        }
        let bit = match state {
            PathState::Good => 1,
            PathState::AssumedBad => 2,
            PathState::Skip | PathState::Denied => 0,
        };
        self.event_mask.unwrap_or_default() & bit != 0
    }

    /// Returns the values of the profile for a queue pair, with their names; `None` leaves the choice to the
    /// device. The bits of generated values are drawn from a seed.
    pub fn values(&self, format: &FormatProfile, planes: u8, seed: u64) -> Option<(EvProfile, Vec<EvName>)> {
        let least = self.min_active.map_or(DEFAULT_MIN_ACTIVE_EVS, |least| least as u16);
        let profile = match self.mode? {
            EvMode::Auto => return None,
            EvMode::Explicit => {
                let evs = self.slots.iter().map(|slot| Ev {
                    entropy: Entropy(slot.name.value),
                    plane: Plane(slot.name.port.saturating_sub(1)),
                });
                EvProfile::explicit(evs.collect(), least)
            }
            EvMode::Generated => {
                let count = self.slots.len() as u16;
                let made = EvProfile::generated(&self.fields, &format.format(), count, planes, seed).ok()?;
                EvProfile { min_active: least.min(count), ..made }
            }
        };
        let name = |ev: &Ev| EvName { value: ev.entropy.0, port: ev.plane.0 + 1 };
        let names = profile.evs.iter().map(name).collect();
        Some((profile, names))
    }
}
