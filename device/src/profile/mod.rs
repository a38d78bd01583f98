//! Profiles: what the device says about itself, and where it stops.
//!
//! A profile is a TOML file. It says only what differs from [`default.toml`](Profile::default), which lists
//! everything there is to say. Three are built in: `default`, `rxe` and `connectx`.

mod bounds;
mod capability;
mod port;

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use serde::Deserialize;

use crate::ground::limits::Limits;
use crate::settings::{PROFILE, SettingError, Settings};

pub use capability::Capabilities;
pub use port::{PortProfile, Speed, Width};

/// The built-in profiles: name and text.
pub const BUILT_IN: [(&str, &str); 3] = [
    ("default", include_str!("default.toml")),
    ("rxe", include_str!("rxe.toml")),
    ("connectx", include_str!("connectx.toml")),
];

/// Bytes of a profile that are read; the built-in ones have 2 KiB.
const MAX_PROFILE_BYTES: u64 = 1 << 18;

/// Whether atomics are atomic; discriminants are those of `ibv_atomic_cap`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u32)]
pub enum Atomics {
    /// There are none, says the device. (They work nevertheless.)
    None = 0,
    /// Among the queue pairs of the device.
    Hca = 1,
}

/// What the device is like.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Profile {
    /// IEEE OUI of the vendor, 24 bits.
    pub vendor_id: u32,
    /// The vendor's number for the device.
    pub part_id: u32,
    /// Hardware version.
    pub hw_ver: u32,
    /// Firmware version; at most 63 bytes.
    pub fw_ver: String,
    /// The vendor's name for the board; at most 63 bytes.
    pub board_id: String,
    /// Flags of `ibv_device_attr::device_cap_flags`.
    pub capabilities: Capabilities,
    /// `ibv_device_attr::atomic_cap`.
    pub atomics: Atomics,
    /// Largest memory region in bytes; only reported.
    pub max_mr_size: u64,
    /// A bit for each page size; only reported.
    pub page_size_cap: u64,
    /// Exponent of the time from a packet to its acknowledgement, 0…31; only reported.
    pub ack_delay: u8,
    /// Whether arming a completion queue fires at once for completions that came after the application last
    /// found the queue empty. The manual page says that they do not fire; adapters that compare with what was
    /// polled do, and UCX needs it when it sleeps.
    pub fires_late: bool,
    /// The port.
    pub port: PortProfile,
    /// Sizes of tables and queues.
    pub limits: Limits,
}

impl Default for Profile {
    fn default() -> Profile {
        Profile {
            // No vendor has it: programs that know devices by vendor and part do not know this one.
            vendor_id: 0xff_ffff,
            part_id: 0,
            hw_ver: 0,
            fw_ver: env!("CARGO_PKG_VERSION").to_owned(),
            board_id: "pumice".to_owned(),
            capabilities: Capabilities::default(),
            atomics: Atomics::Hca,
            max_mr_size: u64::MAX,
            page_size_cap: 0xffff_f000,
            ack_delay: 15,
            fires_late: false,
            port: PortProfile::default(),
            limits: Limits::default(),
        }
    }
}

impl Profile {
    /// A profile from the text of its file.
    ///
    /// # Errors
    /// A sentence: where the text is no TOML, a name that means nothing, or a value out of bounds.
    pub fn parse(text: &str) -> Result<Profile, String> {
        let profile: Profile = toml::from_str(text).map_err(|error| sentence(&error, text))?;
        bounds::check(&profile)?;
        Ok(profile)
    }
}

impl Settings {
    /// The profile that the settings name: a built-in one, or a file.
    ///
    /// # Errors
    /// There is none of that name, or it is wrong: EINVAL; the file cannot be read: what the system says.
    pub fn load_profile(&self) -> Result<Profile, SettingError> {
        let refused = |problem: String| SettingError::new(PROFILE, self.profile.to_string_lossy(), problem);
        if self.profile == *BUILT_IN[0].0 {
            return Ok(Profile::default());
        }
        if let Some((_, text)) = BUILT_IN.iter().find(|(name, _)| self.profile == **name) {
            return Profile::parse(text).map_err(refused);
        }
        let path = Path::new(&self.profile);
        let mut text = String::new();
        let read =
            File::open(path).and_then(|file| file.take(MAX_PROFILE_BYTES + 1).read_to_string(&mut text));
        if let Err(error) = read {
            let names = BUILT_IN.map(|(name, _)| name).join(", ");
            let problem =
                format!("it is neither a built-in profile ({names}) nor a file that can be read: {error}");
            return Err(refused(problem).with_errno(error.raw_os_error().unwrap_or(libc::EINVAL)));
        }
        if text.len() as u64 > MAX_PROFILE_BYTES {
            return Err(refused(format!(
                "it has more than {MAX_PROFILE_BYTES} bytes, which no profile needs"
            )));
        }
        Profile::parse(&text).map_err(refused)
    }
}

/// What is wrong in which line, on one line itself.
fn sentence(error: &toml::de::Error, text: &str) -> String {
    let message = error.message().trim().replace('\n', ", ");
    match error.span().and_then(|span| text.get(..span.start)) {
        Some(before) => format!("line {}: {message}", before.matches('\n').count() + 1),
        None => message,
    }
}

#[cfg(test)]
mod tests;
