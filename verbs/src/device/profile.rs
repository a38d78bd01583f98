//! The devices that a profile describes, as options to open them with.

use std::ffi::OsStr;

use pumice_device::addresses::gid_table::GidEntry;
use pumice_device::port::Link;
use pumice_device::profile::DeviceDescription;
use pumice_device::settings::{PROFILE, SettingError, Settings};

use super::options::{DeviceOptions, ProfileSettings, list};
use crate::error::{Result, VerbsError};

impl DeviceOptions {
    /// Options for each device of a profile, in its order: a built-in one, such as "dgx-h100" or "laptop", or
    /// a TOML file, as `pumice run --profile` takes it. Each has its name, address, limits, partition keys,
    /// congestion control and link. A profile that lists no devices describes one.
    ///
    /// ```no_run
    /// use pumice_verbs::{Device, DeviceOptions};
    ///
    /// let rails: Vec<Device> =
    ///     DeviceOptions::of_profile("laptop")?.into_iter().map(Device::open).collect::<Result<_, _>>()?;
    /// assert_eq!(rails.len(), 2);
    /// # Ok::<(), pumice_verbs::VerbsError>(())
    /// ```
    ///
    /// # Errors
    /// [`VerbsError::Invalid`]: there is no such profile, it says something that cannot be, or an address or
    /// an interface is not of this machine. [`VerbsError::Os`]: the interfaces cannot be listed.
    pub fn of_profile(profile: impl AsRef<OsStr>) -> Result<Vec<DeviceOptions>> {
        let given = |name| (name == PROFILE).then(|| profile.as_ref().to_owned());
        let settings = Settings::parse(given, false).map_err(refused)?;
        let profile = settings.load_profile().map_err(refused)?;
        let found = list()?;
        let described = settings.device_descriptions(&profile, &found).map_err(refused)?;
        let is_only = described.len() == 1;
        let each = described.iter().map(|device| {
            let gids = device.gid_entries(&found).map_err(refused)?;
            let guid = u64::from_be_bytes(device.guid(is_only, &found, &gids));
            Ok(options(device, guid, &gids, is_only))
        });
        each.collect()
    }

    /// Returns the name that the device will have, if it was set.
    pub fn chosen_name(&self) -> Option<&str> {
        self.name.as_deref()
    }
}

fn options(device: &DeviceDescription, guid: u64, gids: &[GidEntry], is_only: bool) -> DeviceOptions {
    let profile = &device.profile;
    let own = ProfileSettings {
        pkeys: profile.port.pkeys.clone(),
        guid,
        adaptive_timer: profile.adaptive_timer,
        completions_outlive_qp: profile.completions_outlive_qp,
        failures: profile.failures(),
        is_one_of_several: !is_only,
        qpn_reuse: profile.qpn_reuse,
    };
    let mut options = DeviceOptions::new()
        .name(&device.name)
        .addresses(device.address)
        .limits(profile.limits)
        .congestion(profile.congestion.of_port(&profile.port));
    if let Some(first) = gids.first() {
        options = options.active_mtu(first.mtu);
    }
    if let Some(link) = Link::of(&device.link) {
        options = options.link(link);
    }
    options.of_profile = Some(own);
    options
}

fn refused(error: SettingError) -> VerbsError {
    VerbsError::Invalid {
        object: "device",
        attribute: "profile",
        problem: format!("is {}: {}", error.value, error.problem),
        remedy: "name a built-in profile or a file that docs/devices.md describes",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Device;

    #[test]
    fn the_devices_of_a_profile_are_opened_as_it_says() {
        let own = std::process::id();
        let address = |last: u8| format!("127.{}.{}.{last}", 90 + (own >> 8 & 0x1f), own & 0xff);
        let text = format!(
            "[port]\nmax_mtu = 1024\npkeys = [0xffff, 0x8001]\n[limits]\nmax_qp = 77\npkey_table_len = 2\n\
             [[device]]\nname = \"rail_0\"\naddress = \"{}\"\n\
             [[device]]\nname = \"rail_1\"\naddress = \"{}\"\nnode_guid = \"0c42:a103:0065:1a90\"\n",
            address(1),
            address(2)
        );
        let file = std::env::temp_dir().join(format!("pumice-rails-{own}.toml"));
        std::fs::write(&file, text).unwrap();
        let rails = DeviceOptions::of_profile(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        let names: Vec<_> = rails.iter().filter_map(DeviceOptions::chosen_name).collect();
        assert_eq!(names, ["rail_0", "rail_1"]);
        let rails: Vec<Device> = rails.into_iter().map(|one| Device::open(one).unwrap()).collect();
        for (index, rail) in rails.iter().enumerate() {
            assert_eq!(rail.name(), names_of(index));
            let gids: Vec<String> = rail.gids().iter().map(|(_, entry)| entry.ip.to_string()).collect();
            assert_eq!(gids, [address(index as u8 + 1)]);
            assert_eq!((rail.limits().max_qp, rail.active_mtu().bytes()), (77, 1024));
            assert_eq!(rail.hca().port(1).unwrap().pkeys.pkey(1).unwrap(), 0x8001);
        }
    }

    fn names_of(index: usize) -> &'static str {
        ["rail_0", "rail_1"][index]
    }

    #[test]
    fn what_is_no_profile_is_refused() {
        assert_eq!(DeviceOptions::of_profile("dgx-h100").unwrap().len(), 8);
        assert_eq!(DeviceOptions::of_profile("laptop").unwrap().len(), 2);
        assert_eq!(DeviceOptions::of_profile("rxe").unwrap().len(), 1);
        let error = DeviceOptions::of_profile("mlx5").unwrap_err().to_string();
        assert!(error.contains("is mlx5: it is neither a built-in profile"), "{error}");
    }
}
