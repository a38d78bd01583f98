//! The medium of packets to other processes of this host.

use serde::{Deserialize, Serialize};

/// The medium to processes of this user in this network namespace. To all others it is UDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Wire {
    /// Rings in shared memory, where both processes can have them, else UDP.
    #[default]
    Auto,
    /// UDP on the loopback interface.
    Udp,
}

impl Wire {
    /// Parses `auto` or `udp`.
    ///
    /// # Errors
    /// The value is neither.
    pub fn parse(value: &str) -> Result<Wire, &'static str> {
        match value {
            "auto" => Ok(Wire::Auto),
            "udp" => Ok(Wire::Udp),
            _ => Err("it is auto or udp"),
        }
    }

    /// Returns the value of the setting.
    pub fn name(self) -> &'static str {
        match self {
            Wire::Auto => "auto",
            Wire::Udp => "udp",
        }
    }
}
