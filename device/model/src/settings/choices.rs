//! Settings that are one choice or one number: the log level, pinned memory, neighbours, the medium of
//! packets, the order of SRD.

use std::fs::{File, Metadata};
use std::net::IpAddr;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};

use pumice_platform::quantity::size;
use serde::{Deserialize, Serialize};

/// The levels of the log; each includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LogLevel {
    /// No sentences, except about wrong settings and a device that cannot be opened.
    Off,
    /// Also queue pairs that fail.
    Error,
    /// Also refused calls and dropped messages.
    Warn,
    /// Also the settings with which the device was opened.
    Info,
    /// Everything.
    Debug,
}

/// Reports whether the device may write sentences to standard error without being asked: then the level is
/// `warn` when the user sets none. It may not where standard error is closed, nor where it is the same socket
/// as standard input, as in a server that inetd starts: the peer would take the sentences for an answer.
pub fn standard_error_is_free() -> bool {
    let Some(standard_error) = about(std::io::stderr().as_fd()) else { return false };
    if !standard_error.file_type().is_socket() {
        return true;
    }
    let same = |input: Metadata| (input.dev(), input.ino()) == (standard_error.dev(), standard_error.ino());
    !about(std::io::stdin().as_fd()).is_some_and(same)
}

/// Returns the metadata of a descriptor's file; `None` if it is closed.
fn about(descriptor: BorrowedFd<'_>) -> Option<Metadata> {
    File::from(descriptor.try_clone_to_owned().ok()?).metadata().ok()
}

impl LogLevel {
    /// All levels, from silent to verbose.
    pub const ALL: [LogLevel; 5] =
        [LogLevel::Off, LogLevel::Error, LogLevel::Warn, LogLevel::Info, LogLevel::Debug];

    /// Returns the name of the level, as users write it.
    pub const fn name(self) -> &'static str {
        match self {
            LogLevel::Off => "off",
            LogLevel::Error => "error",
            LogLevel::Warn => "warn",
            LogLevel::Info => "info",
            LogLevel::Debug => "debug",
        }
    }

    /// Returns the level of a name.
    ///
    /// # Errors
    /// No level has this name; the sentence lists the levels.
    pub fn parse(name: &str) -> Result<LogLevel, String> {
        let found = LogLevel::ALL.into_iter().find(|level| level.name() == name);
        found.ok_or_else(|| format!("the levels are {}", LogLevel::ALL.map(LogLevel::name).join(", ")))
    }
}

/// The limit on the pages of all registered memory of a process. Adapters pin these pages, and the kernel
/// counts them against RLIMIT_MEMLOCK (drivers/infiniband/core/umem.c, `ib_umem_get`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemlockLimit {
    /// The RLIMIT_MEMLOCK of the process, as `ulimit -l` shows it.
    Ulimit,
    /// A limit of this many bytes.
    Bytes(u64),
}

impl MemlockLimit {
    /// Parses `ulimit`, or a number of bytes.
    ///
    /// # Errors
    /// The value is neither.
    pub fn parse(value: &str) -> Result<MemlockLimit, &'static str> {
        if value == "ulimit" {
            return Ok(MemlockLimit::Ulimit);
        }
        size(value).map(MemlockLimit::Bytes).ok_or("it is ulimit, or a number of bytes as in 64KiB or 8MiB")
    }
}

/// The peers whose hosts are assumed not to answer, so that no MAC address is found for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoNeighbour {
    /// All hosts but the device's own.
    All,
    /// The hosts with these addresses.
    Of(Vec<IpAddr>),
}

impl NoNeighbour {
    /// Parses `all`, or addresses with commas between them.
    ///
    /// # Errors
    /// Fails if the text is neither.
    pub fn parse(value: &str) -> Result<NoNeighbour, String> {
        if value == "all" {
            return Ok(NoNeighbour::All);
        }
        let one = |part: &str| {
            part.parse().map_err(|_| format!("{part:?} is not an IP address: write it as 192.0.2.7, or all"))
        };
        value.split(',').map(|part| one(part.trim())).collect::<Result<_, _>>().map(NoNeighbour::Of)
    }

    /// Reports whether the host of a peer is one of these hosts.
    pub fn has(&self, peer: IpAddr) -> bool {
        match self {
            NoNeighbour::All => true,
            NoNeighbour::Of(addresses) => addresses.contains(&peer),
        }
    }
}

/// The order in which messages of SRD leave. SRD promises none, so it can be chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SrdOrder {
    /// The seed decides: messages overtake each other.
    #[default]
    Seed,
    /// Messages leave in the order in which they were posted.
    InOrder,
    /// The newest of the messages that were posted within a short time leaves first.
    Reverse,
}

impl SrdOrder {
    /// Parses `seed`, `in-order` or `reverse`.
    ///
    /// # Errors
    /// The value is none of them.
    pub fn parse(value: &str) -> Result<SrdOrder, &'static str> {
        match value {
            "seed" => Ok(SrdOrder::Seed),
            "in-order" => Ok(SrdOrder::InOrder),
            "reverse" => Ok(SrdOrder::Reverse),
            _ => Err("it is seed, in-order or reverse"),
        }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_named_by_their_addresses() {
        let two = NoNeighbour::parse("192.0.2.7, fd00::2").unwrap();
        assert!(two.has([192, 0, 2, 7].into()) && two.has("fd00::2".parse().unwrap()));
        assert!(!two.has([192, 0, 2, 8].into()));
        assert!(NoNeighbour::parse("all").unwrap().has([192, 0, 2, 8].into()));
        for wrong in ["", "192.0.2.7,", "host", "192.0.2"] {
            assert!(NoNeighbour::parse(wrong).unwrap_err().contains("is not an IP address"), "{wrong}");
        }
    }
}
