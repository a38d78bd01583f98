//! Profiles from texts and files.

use std::io::Read as _;
use std::path::Path;

use pumice_platform::outside;
use pumice_platform::similar::suggestion;

use super::{Profile, bounds};
use crate::built_in::{BUILT_IN, BuiltIn, DEFAULT};
use crate::settings::{PROFILE, SettingError, Settings};

/// Most bytes of a profile that are read; the built-in ones have 2 KiB.
const MAX_PROFILE_BYTES: u64 = 1 << 18;

impl Profile {
    /// Parses a profile from the text of its file.
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
    /// Loads the profile that the settings name: a built-in one, or a file.
    ///
    /// # Errors
    /// No profile has this name, or it is wrong: EINVAL; the file cannot be read: the system's error.
    pub fn load_profile(&self) -> Result<Profile, SettingError> {
        let refused = |problem: String| SettingError::new(PROFILE, self.profile.to_string_lossy(), problem);
        if self.profile == *DEFAULT {
            return Ok(Profile::default());
        }
        if let Some(built_in) = self.profile.to_str().and_then(BuiltIn::of) {
            return Profile::parse(built_in.text).map_err(refused);
        }
        let path = Path::new(&self.profile);
        let mut text = String::new();
        let read = outside::files::open(path)
            .and_then(|file| file.take(MAX_PROFILE_BYTES + 1).read_to_string(&mut text));
        if let Err(error) = read {
            let names = || BUILT_IN.iter().map(|profile| profile.name);
            let meant = suggestion(&self.profile.to_string_lossy(), names());
            let names = names().collect::<Vec<_>>().join(", ");
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

/// Returns the problem and its line, in one line of text.
pub fn sentence(error: &toml::de::Error, text: &str) -> String {
    let message = error.message().trim().replace('\n', ", ");
    match error.span().and_then(|span| text.get(..span.start)) {
        Some(before) => format!("line {}: {message}", before.matches('\n').count() + 1),
        None => message,
    }
}
