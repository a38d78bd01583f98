//! The built-in profiles of devices.

/// A built-in profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuiltIn {
    /// The name, for `--profile NAME`.
    pub name: &'static str,
    /// The text, which is that of the file `NAME.toml` beside this one.
    pub text: &'static str,
}

/// The name of the default profile.
pub(crate) const DEFAULT: &str = "default";

/// Declares the built-in profiles by their names.
macro_rules! profiles {
    ($($name:literal)*) => {
        /// The built-in profiles. The first is the default.
        pub const BUILT_IN: &[BuiltIn] =
            &[$(BuiltIn { name: $name, text: include_str!(concat!("profile/", $name, ".toml")) }),*];
    };
}

profiles! {
    "default"
    "rxe"
    "connectx"
    "dgx-h100"
    "laptop"
    "two-port"
    "connectx-7"
    "efa"
}

impl BuiltIn {
    /// Returns the built-in profile of a name.
    pub fn of(name: &str) -> Option<&'static BuiltIn> {
        BUILT_IN.iter().find(|profile| profile.name == name)
    }

    /// Reports whether the profile is a personality: it imitates an adapter including its driver, and a
    /// device may be named after it (`--device efa`).
    pub fn is_personality(&self) -> bool {
        let mut drivers = self.text.lines().filter_map(|line| line.strip_prefix("driver = "));
        drivers.any(|driver| driver != "\"\"")
    }

    /// Returns the number of devices that the profile lists; 0 if it describes one device without a name.
    pub fn device_count(&self) -> usize {
        self.text.lines().filter(|line| *line == "[[device]]").count()
    }

    /// Returns the comment at the beginning of the profile.
    pub fn remark(&self) -> String {
        let comment = self.text.lines().map_while(|line| line.strip_prefix('#')).map(str::trim);
        comment.collect::<Vec<_>>().join(" ")
    }
}
