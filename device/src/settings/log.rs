//! How much is explained on standard error.

/// Levels of explanations; each includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Log {
    /// Nothing but wrong settings and a device that cannot be opened.
    Off,
    /// Queue pairs that fail.
    Error,
    /// Also refused calls and dropped messages.
    Warn,
    /// Also what the device was opened with.
    Info,
    /// Everything there is.
    Debug,
}

impl Log {
    /// All levels, from silent to talkative.
    pub const ALL: [Log; 5] = [Log::Off, Log::Error, Log::Warn, Log::Info, Log::Debug];

    /// Its name, as users write it.
    pub const fn name(self) -> &'static str {
        match self {
            Log::Off => "off",
            Log::Error => "error",
            Log::Warn => "warn",
            Log::Info => "info",
            Log::Debug => "debug",
        }
    }

    /// The level of a name.
    ///
    /// # Errors
    /// There is no level of this name; the sentence lists those that are.
    pub fn parse(name: &str) -> Result<Log, String> {
        let found = Log::ALL.into_iter().find(|level| level.name() == name);
        found.ok_or_else(|| format!("the levels are {}", Log::ALL.map(Log::name).join(", ")))
    }
}
