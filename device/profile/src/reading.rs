//! Profiles from texts and files.

use std::io::Read as _;
use std::path::Path;

use pumice_ground::outside;
use pumice_ground::similar::suggestion;

use super::{Profile, bounds};
use crate::settings::{PROFILE, SettingError, Settings};

/// The built-in profiles: name and text.
pub const BUILT_IN: [(&str, &str); 8] = [
    ("default", include_str!("default.toml")),
    ("rxe", include_str!("rxe.toml")),
    ("connectx", include_str!("connectx.toml")),
    ("dgx-h100", include_str!("dgx-h100.toml")),
    ("laptop", include_str!("laptop.toml")),
    ("two-port", include_str!("two-port.toml")),
    ("connectx-7", include_str!("connectx-7.toml")),
    ("efa", include_str!("efa.toml")),
];

/// Bytes of a profile that are read; the built-in ones have 2 KiB.
const MAX_PROFILE_BYTES: u64 = 1 << 18;

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
        let read = outside::files::open(path)
            .and_then(|file| file.take(MAX_PROFILE_BYTES + 1).read_to_string(&mut text));
        if let Err(error) = read {
            let names = BUILT_IN.map(|(name, _)| name).join(", ");
            let meant = suggestion(&self.profile.to_string_lossy(), BUILT_IN.map(|(name, _)| name));
            let problem = format!(
                "it is neither a built-in profile ({names}) nor a file that can be read: {error}{meant}"
            );
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
pub fn sentence(error: &toml::de::Error, text: &str) -> String {
    let message = error.message().trim().replace('\n', ", ");
    match error.span().and_then(|span| text.get(..span.start)) {
        Some(before) => format!("line {}: {message}", before.matches('\n').count() + 1),
        None => message,
    }
}
