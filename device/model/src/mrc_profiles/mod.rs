//! The controller of MRC: profiles of formats, of entropy values and of congestion control, and their steps.

mod congestion;
mod entropy;

use std::collections::BTreeMap;

use pumice_transport::mrc::paths::EvProfile;

pub use congestion::{CcChange, CcProfile, ControlError, MOST_EVS, MOST_PROFILES, ProfileStage};
pub use entropy::{EvChange, EvMode, EvName, EvRecord, EvSlot, FormatChange, FormatMode, FormatProfile};

/// All profiles of a device. The controller chooses their numbers; a profile that was never named is in INIT.
#[derive(Debug, Default)]
pub struct MrcControl {
    formats: BTreeMap<u64, FormatProfile>,
    evs: BTreeMap<u64, EvRecord>,
    ccs: BTreeMap<u64, CcProfile>,
}

impl MrcControl {
    /// Returns all profiles of formats, with their numbers.
    pub fn formats(&self) -> impl Iterator<Item = (&u64, &FormatProfile)> {
        self.formats.iter()
    }

    /// Returns all profiles of entropy values, with their numbers.
    pub fn all_evs(&self) -> impl Iterator<Item = (&u64, &EvRecord)> {
        self.evs.iter()
    }

    /// Returns all profiles of congestion control, with their numbers.
    pub fn ccs(&self) -> impl Iterator<Item = (&u64, &CcProfile)> {
        self.ccs.iter()
    }

    /// Returns the number of entropy values of all profiles.
    pub fn ev_count(&self) -> u32 {
        self.evs.values().map(|record| record.slots.len() as u32).sum()
    }

    /// Returns a profile of entropy values that queue pairs can use.
    pub fn online_evs(&self, id: u64) -> Result<&EvRecord, ControlError> {
        let online = self.evs.get(&id).filter(|record| record.stage == ProfileStage::Online);
        online.ok_or_else(|| ControlError::absent(format!("no EV profile {id} is ONLINE")))
    }

    /// Returns the values of a profile that queue pairs can use, as [`EvRecord::values`] does.
    pub fn values(
        &self,
        id: u64,
        planes: u8,
        seed: u64,
    ) -> Result<Option<(EvProfile, Vec<EvName>)>, ControlError> {
        let record = self.online_evs(id)?;
        let format = self.format(record.format.unwrap_or_default());
        Ok(record.values(&format, planes, seed))
    }

    /// Returns a profile of congestion control that queue pairs can use.
    pub fn online_cc(&self, id: u64) -> Result<&CcProfile, ControlError> {
        let online = self.ccs.get(&id).filter(|profile| profile.stage == ProfileStage::Online);
        online.ok_or_else(|| ControlError::absent(format!("no CC profile {id} is ONLINE")))
    }

    /// Changes a format.
    ///
    /// # Errors
    /// EINVAL, EBUSY and ENOMEM, with the reason; nothing has changed.
    pub fn change_format(&mut self, id: u64, change: &FormatChange) -> Result<(), ControlError> {
        check_room(&self.formats, id)?;
        let before = self.formats.get(&id).cloned().unwrap_or_default();
        let new = before.changed(change)?;
        let leaves = before.stage == ProfileStage::Online && new.stage != ProfileStage::Online;
        let is_user = |record: &&EvRecord| record.format == Some(id) && record.stage == ProfileStage::Online;
        if leaves && self.evs.values().any(|record| is_user(&record)) {
            return Err(ControlError::busy(format!("an EV profile that is ONLINE uses format {id}")));
        }
        match new.stage {
            ProfileStage::Init if new == FormatProfile::default() => drop(self.formats.remove(&id)),
            _ => drop(self.formats.insert(id, new)),
        }
        Ok(())
    }

    /// Returns a format; one that was never named is in INIT.
    pub fn format(&self, id: u64) -> FormatProfile {
        self.formats.get(&id).cloned().unwrap_or_default()
    }

    /// Changes a profile of entropy values; `is_used` says whether queue pairs use it.
    ///
    /// # Errors
    /// EINVAL, EBUSY, E2BIG and ENOMEM, with the reason; nothing has changed.
    pub fn change_evs(&mut self, id: u64, change: &EvChange, is_used: bool) -> Result<(), ControlError> {
        check_room(&self.evs, id)?;
        let before = self.evs(id);
        let format = self.format(change.format.or(before.format).unwrap_or_default());
        let new = before.changed(change, &format)?;
        if is_used && new.stage != before.stage {
            return Err(ControlError::busy(format!("queue pairs use EV profile {id}")));
        }
        match new.stage {
            ProfileStage::Init if new == EvRecord::default() => drop(self.evs.remove(&id)),
            _ => drop(self.evs.insert(id, new)),
        }
        Ok(())
    }

    /// Returns a profile of entropy values; one that was never named is in INIT.
    pub fn evs(&self, id: u64) -> EvRecord {
        self.evs.get(&id).cloned().unwrap_or_default()
    }

    /// Returns a profile of entropy values that was named, to be changed.
    ///
    /// # Errors
    /// ENOENT: it was never named.
    pub fn evs_mut(&mut self, id: u64) -> Result<&mut EvRecord, ControlError> {
        self.evs.get_mut(&id).ok_or_else(|| ControlError::absent(format!("EV profile {id} is in INIT")))
    }

    /// Changes a profile of congestion control; `is_used` says whether queue pairs use it.
    ///
    /// # Errors
    /// EINVAL, EBUSY and ENOMEM, with the reason; nothing has changed.
    pub fn change_cc(&mut self, id: u64, change: &CcChange, is_used: bool) -> Result<(), ControlError> {
        check_room(&self.ccs, id)?;
        let before = self.cc(id);
        let new = before.changed(change)?;
        if is_used && new.stage != before.stage {
            return Err(ControlError::busy(format!("queue pairs use CC profile {id}")));
        }
        match new.stage {
            ProfileStage::Init if new == CcProfile::default() => drop(self.ccs.remove(&id)),
            _ => drop(self.ccs.insert(id, new)),
        }
        Ok(())
    }

    /// Returns a profile of congestion control; one that was never named is in INIT.
    pub fn cc(&self, id: u64) -> CcProfile {
        self.ccs.get(&id).cloned().unwrap_or_default()
    }
}

/// Checks that a table of profiles has room for one more.
fn check_room<T>(table: &BTreeMap<u64, T>, id: u64) -> Result<(), ControlError> {
    if table.len() < MOST_PROFILES || table.contains_key(&id) {
        return Ok(());
    }
    Err(ControlError {
        errno: libc::ENOMEM,
        what: format!("there are {MOST_PROFILES} profiles, and no more fit: bring one to INIT"),
    })
}
