//! The settings of the device from the environment: the PUMICE_* variables.
//!
//! [`Settings::parse`] is pure: it takes the variables through a function and touches neither files nor the
//! network. `pumice run` uses it to check what it then passes to the program in the environment, where
//! `libpumice.so` reads it again.

mod check;
mod choices;
pub mod record;

use std::ffi::OsString;
use std::hash::Hasher as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fnv::FnvHasher;

use crate::addresses::gid_table::MAX_FIRST_INDEX;
use crate::built_in::{BuiltIn, DEFAULT};
use pumice_platform::outside;
use pumice_platform::quantity::{similar, size, time_ns};

pub use crate::port::batch::CopyMode;
pub use check::{
    CHECK, CHECK_FORMAT, CHECK_MARK, CHECK_REPORT, CHECK_SUPPRESS, CheckSettings, Marks, SettingError,
};
pub use choices::{LogLevel, MemlockLimit, NoNeighbour, SrdOrder, Wire, standard_error_is_free};
pub use pumice_platform::link_settings::{DirectionSettings, LinkSettings};
pub use pumice_platform::quantity::probability_ppm;
use pumice_transport::mrc::constants::OTHER_PORT;
use pumice_transport::path::ROCE_PORT;

/// The variable with the local address of the device; of several devices one each, with commas between them.
pub const ADDR: &str = "PUMICE_ADDR";
/// The variable with the name of the device; of several devices that of the first. The name of a personality
/// selects that personality.
pub const DEVICE: &str = "PUMICE_DEVICE";
/// The variable with the number of devices.
pub const DEVICES: &str = "PUMICE_DEVICES";
/// The variable with the share of the packets that is lost on the way out.
pub const LOSS: &str = "PUMICE_LOSS";
/// The variable with the seed of the random draws of fault plans.
pub const SEED: &str = "PUMICE_SEED";
/// The variable with the seed of the schedule, if it is to be shuffled.
pub const SHUFFLE: &str = "PUMICE_SHUFFLE";
/// The variable with the tag of the process in fault plans.
pub const TAG: &str = "PUMICE_TAG";
/// The variable with the file of a fault plan, or of a report of faults.
pub const FAULTS: &str = "PUMICE_FAULTS";
/// The variable with rules of a fault plan, one a line.
pub const FAULT: &str = "PUMICE_FAULT";
/// The variable with the file for the report of faults.
pub const FAULT_REPORT: &str = "PUMICE_FAULT_REPORT";
/// The variable with the folder of a record: each process that uses the device leaves its files there
/// ([`record`]).
pub const RECORD: &str = "PUMICE_RECORD";
/// The variable with the file for a capture of all packets.
pub const CAPTURE: &str = "PUMICE_CAPTURE";
/// The variable with the file for a trace of all events.
pub const TRACE: &str = "PUMICE_TRACE";
/// The variable with the largest size of the trace, in bytes.
pub const TRACE_LIMIT: &str = "PUMICE_TRACE_LIMIT";
/// The variable with the profile of the device: a name, or a file.
pub const PROFILE: &str = "PUMICE_PROFILE";
/// The variable with the file for a report of the calls that the program makes.
pub const CALL_REPORT: &str = "PUMICE_CALL_REPORT";
/// The variable with the medium of packets to other processes of this host.
pub const WIRE: &str = "PUMICE_WIRE";
/// The variable that makes all packets take the general way, set to 0.
pub const LANES: &str = "PUMICE_LANES";
/// The variable with the way in which long messages are copied to other processes of this host.
pub const COPY: &str = "PUMICE_COPY";
/// The variable with the order in which messages of SRD leave.
pub const SRD_ORDER: &str = "PUMICE_SRD_ORDER";
/// The variable that makes MRC carry WRITEs of RC queue pairs, set to 1.
pub const MRC: &str = "PUMICE_MRC";
/// The variable with the number of planes of MRC.
pub const PLANES: &str = "PUMICE_PLANES";
/// The variable with the UDP port that packets of MRC are sent to.
pub const MRC_PORT: &str = "PUMICE_MRC_PORT";
/// The variable with the index of the first address in the GID table.
pub const GID_INDEX: &str = "PUMICE_GID_INDEX";
/// The variable with the limit of memory that the program may register.
pub const MEMLOCK: &str = "PUMICE_MEMLOCK";
/// The variable with the time after which a wait that cannot end is reported.
pub const HANG_AFTER: &str = "PUMICE_HANG_AFTER";
/// The variable with the link settings of the devices.
pub const LINK: &str = "PUMICE_LINK";
/// The variable with the file of the switches between this user's processes on this host.
pub const TOPOLOGY: &str = "PUMICE_TOPOLOGY";
/// The variable with the peers whose hosts answer no ARP.
pub const NO_NEIGHBOUR: &str = "PUMICE_NO_NEIGHBOUR";
/// The variable with the log level of standard error.
pub const LOG: &str = "PUMICE_LOG";
/// The older variable for PUMICE_LOG=warn: set to anything but nothing or 0.
pub const EXPLAIN: &str = "PUMICE_EXPLAIN";

/// All variables that [`Settings::parse`] reads.
pub const VARIABLES: &[&str] = &[
    ADDR,
    DEVICE,
    DEVICES,
    LOSS,
    SEED,
    SHUFFLE,
    TAG,
    FAULTS,
    FAULT,
    FAULT_REPORT,
    RECORD,
    CAPTURE,
    TRACE,
    TRACE_LIMIT,
    PROFILE,
    CALL_REPORT,
    CHECK,
    CHECK_REPORT,
    CHECK_FORMAT,
    CHECK_SUPPRESS,
    CHECK_MARK,
    WIRE,
    LANES,
    COPY,
    SRD_ORDER,
    MRC,
    PLANES,
    MRC_PORT,
    GID_INDEX,
    MEMLOCK,
    HANG_AFTER,
    LINK,
    TOPOLOGY,
    NO_NEIGHBOUR,
    LOG,
    EXPLAIN,
];

/// The beginning of the names of variables.
const PREFIX: &str = "PUMICE_";

/// Returns the variable that a user seems to mean by this name: the name is not one of [`VARIABLES`], but
/// similar to one.
pub fn misspelt(name: &str) -> Option<&'static str> {
    let bare = name.strip_prefix(PREFIX)?;
    let known = || VARIABLES.iter().filter_map(|variable| variable.strip_prefix(PREFIX));
    if known().any(|variable| variable == bare) {
        return None;
    }
    let meant = similar(bare, known())?;
    VARIABLES.iter().copied().find(|variable| variable.strip_prefix(PREFIX) == Some(meant))
}

/// The name of the device when the user gives no other.
pub const DEFAULT_DEVICE: &str = "pumice0";
/// Most devices of one process.
pub const MAX_DEVICES: usize = 16;
/// The longest name of a device in bytes: one less than `ibv_device` and sysfs have room for, with a margin.
const MAX_DEVICE_BYTES: usize = 59;
/// The longest name of a program that is used as it is, in characters.
const MAX_NAME_CHARS: usize = 60;
/// The longest tag of a process, in bytes.
const MAX_TAG_BYTES: usize = 100;
/// The time after which a wait that cannot end is reported, unless the user sets another.
pub const DEFAULT_HANG_AFTER: Duration = Duration::from_secs(2);
/// The seed when there is none, so that two runs lose the same packets.
pub const DEFAULT_SEED: u64 = 1;

/// The settings of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The local addresses to use, one for each device; when empty, one device has all of the host's.
    pub addresses: Vec<IpAddr>,
    /// The name of the device; of several devices that of the first, which the others continue.
    pub device: Option<String>,
    /// The number of devices, if it is given.
    pub devices: Option<usize>,
    /// The share of packets that are lost on the way out, in parts per million.
    pub loss_ppm: u32,
    /// The seed of fault plans; `None`: that of the plan, or [`DEFAULT_SEED`].
    pub seed: Option<u64>,
    /// The file of a fault plan; see `FaultPlan::of_settings`.
    pub faults: Option<PathBuf>,
    /// Rules of a fault plan, one each.
    pub fault_lines: Vec<String>,
    /// The file for a report of the faults; `%p` stands for the process number.
    pub fault_report: Option<PathBuf>,
    /// The folder of a record, where the process leaves its files.
    pub record: Option<PathBuf>,
    /// The seed of the schedule; `None`: it is not shuffled.
    pub shuffle: Option<u64>,
    /// The tag of the process in fault plans; see [`Settings::tag_of`].
    pub tag: Option<String>,
    /// The file for a capture of all packets, in pcapng; `%p` stands for the process number.
    pub capture: Option<PathBuf>,
    /// The file for a trace of all events; `%p` stands for the process number.
    pub trace: Option<PathBuf>,
    /// The largest size of the trace in bytes; `None`: the trace's own default.
    pub trace_limit_bytes: Option<u64>,
    /// The profile: the name of a built-in one, or a path.
    pub profile: OsString,
    /// The file for a report of the calls that the program makes.
    pub call_report: Option<PathBuf>,
    /// The settings of the checks of the program; `None`: nothing is checked.
    pub check: Option<CheckSettings>,
    /// The medium of packets to other processes of this host.
    pub wire: Wire,
    /// The way in which long messages are copied to other processes of this host.
    pub copy: CopyMode,
    /// The order in which messages of SRD leave.
    pub srd_order: SrdOrder,
    /// True if packets that need no decision take the short way.
    pub lanes: bool,
    /// True if MRC carries WRITEs of RC queue pairs.
    pub mrc: bool,
    /// The number of planes of MRC.
    pub planes: u8,
    /// The UDP port that packets of MRC are sent to.
    pub mrc_port: u16,
    /// The index of the first address in the GID table; `None`: that of the profile.
    pub gid_index: Option<u32>,
    /// The limit of memory that the program may register; `None`: there is none.
    pub memlock: Option<MemlockLimit>,
    /// The time after which a wait that cannot end is reported; `None`: [`DEFAULT_HANG_AFTER`]. Zero: it is
    /// not reported.
    pub hang_after: Option<Duration>,
    /// The link settings of each device; the profile completes them.
    pub link: LinkSettings,
    /// The link settings as they were written.
    pub link_text: String,
    /// The file of a topology: the switches between this user's processes. A port reads it
    /// (`Topology::parse`).
    pub topology: Option<PathBuf>,
    /// Peers whose hosts answer no ARP and no neighbour discovery.
    pub no_neighbour: Option<NoNeighbour>,
    /// The log level of standard error.
    pub log: LogLevel,
}

impl Settings {
    /// Parses the settings that variables give; a variable that is empty counts as not set. `free` is whether
    /// standard error takes sentences without harm ([`standard_error_is_free`]): it decides the log level
    /// when none is set.
    ///
    /// # Errors
    /// A value has the wrong form. Whether a named address or file exists is not checked.
    pub fn parse(
        variable: impl Fn(&'static str) -> Option<OsString>,
        free: bool,
    ) -> Result<Settings, SettingError> {
        let path = |name| variable(name).filter(|value| !value.is_empty());
        let text = |name| {
            let as_text = |value: OsString| {
                value
                    .into_string()
                    .map_err(|value| SettingError::new(name, value.to_string_lossy(), "it is not UTF-8"))
            };
            path(name).map(as_text).transpose()
        };
        let device = text(DEVICE)?.map(device).transpose()?;
        let (device, profile) = match (device, path(PROFILE)) {
            // A personality has device names of its own.
            (Some(name), None) if BuiltIn::of(&name).is_some_and(BuiltIn::is_personality) => {
                (None, Some(name.into()))
            }
            said => said,
        };
        let explain = text(EXPLAIN)?.is_some_and(|set| set != "0");
        Ok(Settings {
            addresses: text(ADDR)?.map_or_else(|| Ok(Vec::new()), |value| addresses(&value))?,
            device,
            devices: text(DEVICES)?.map(|value| devices(&value)).transpose()?,
            loss_ppm: text(LOSS)?.map_or(Ok(0), |value| loss(&value))?,
            seed: text(SEED)?.map(|value| seed(SEED, &value)).transpose()?,
            faults: path(FAULTS).map(PathBuf::from),
            fault_lines: text(FAULT)?.map_or_else(Vec::new, |value| {
                value.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect()
            }),
            fault_report: path(FAULT_REPORT).map(PathBuf::from),
            record: path(RECORD).map(PathBuf::from),
            shuffle: text(SHUFFLE)?.map(|value| seed(SHUFFLE, &value)).transpose()?,
            tag: text(TAG)?.map(tag).transpose()?,
            capture: path(CAPTURE).map(PathBuf::from),
            trace: path(TRACE).map(PathBuf::from),
            trace_limit_bytes: text(TRACE_LIMIT)?.map(|value| trace_limit(&value)).transpose()?,
            profile: profile.unwrap_or_else(|| DEFAULT.into()),
            call_report: path(CALL_REPORT).map(PathBuf::from),
            check: CheckSettings::parse(text(CHECK)?, text(CHECK_FORMAT)?, &path)?,
            wire: text(WIRE)?.map_or(Ok(Wire::default()), wire)?,
            copy: text(COPY)?.map_or(Ok(CopyMode::default()), copy)?,
            srd_order: text(SRD_ORDER)?.map_or(Ok(SrdOrder::default()), srd_order)?,
            lanes: text(LANES)?.is_none_or(|set| set != "0"),
            mrc: text(MRC)?.is_some_and(|set| set != "0"),
            planes: text(PLANES)?.map_or(Ok(1), |value| planes(&value))?,
            mrc_port: text(MRC_PORT)?.map_or(Ok(ROCE_PORT), |value| mrc_port(&value))?,
            gid_index: text(GID_INDEX)?.map(|value| gid_index(&value)).transpose()?,
            memlock: text(MEMLOCK)?.map(|value| memlock(&value)).transpose()?,
            hang_after: text(HANG_AFTER)?.map(|value| hang_after(&value)).transpose()?,
            link_text: text(LINK)?.unwrap_or_default(),
            topology: path(TOPOLOGY).map(PathBuf::from),
            no_neighbour: text(NO_NEIGHBOUR)?.map(|value| no_neighbour(&value)).transpose()?,
            link: text(LINK)?.map_or_else(|| Ok(LinkSettings::default()), |value| link(&value))?,
            log: match text(LOG)? {
                Some(value) => {
                    LogLevel::parse(&value).map_err(|problem| SettingError::new(LOG, value, problem))?
                }
                None if explain || free => LogLevel::Warn,
                None => LogLevel::Off,
            },
        })
    }

    /// Returns the time after which a wait that cannot end is reported; `None`: it is not reported.
    pub fn patience(&self) -> Option<Duration> {
        Some(self.hang_after.unwrap_or(DEFAULT_HANG_AFTER)).filter(|after| !after.is_zero())
    }

    /// Returns the settings of this process.
    ///
    /// # Errors
    /// As [`Settings::parse`].
    pub fn from_environment() -> Result<Settings, SettingError> {
        Settings::parse(outside::environment::variable, standard_error_is_free())
    }

    /// Returns the tag of a process in fault plans: the tag that is set, or else the program's name and eight
    /// digits that depend on the address and the arguments. So the two sides of a connection lose different
    /// packets, and the same command loses the same ones every time. `command`: the program, which may be a
    /// path, and its arguments.
    pub fn tag_of(&self, command: impl IntoIterator<Item = OsString>) -> String {
        if let Some(tag) = &self.tag {
            return tag.clone();
        }
        // FNV-1a gives the same result on every machine and with every compiler.
        let mut hasher = FnvHasher::default();
        let mut mix = |bytes: &[u8]| {
            hasher.write(bytes);
            // The byte 0xff is in no address and in no UTF-8 text, so it separates.
            hasher.write(&[0xff]);
        };
        let addresses: Vec<String> = self.addresses.iter().map(IpAddr::to_string).collect();
        mix(addresses.join(",").as_bytes());
        let mut command = command.into_iter();
        let program = command.next().unwrap_or_default();
        for argument in command {
            mix(argument.as_encoded_bytes());
        }
        // The folder of the program is left out, because it does not change what the program does.
        let name = Path::new(&program).file_name().unwrap_or_default().to_string_lossy();
        let name: String =
            name.chars().filter(|c| !c.is_control() && *c != '*').take(MAX_NAME_CHARS).collect();
        format!("{name}-{:08x}", hasher.finish() as u32)
    }
}

fn addresses(value: &str) -> Result<Vec<IpAddr>, SettingError> {
    let one = |part: &str| {
        let bare = part.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(part);
        bare.parse().map_err(|_| {
            let which = if part == value { "it".to_owned() } else { format!("{part:?}") };
            let problem = format!("{which} is not an IP address: write it as 192.0.2.7 or 2001:db8::7");
            SettingError::new(ADDR, value, problem)
        })
    };
    value.split(',').map(|part| one(part.trim())).collect()
}

fn device(value: String) -> Result<String, SettingError> {
    check_device_name(&value).map_err(|rule| SettingError::new(DEVICE, value.clone(), rule))?;
    Ok(value)
}

/// Checks the name of a device.
///
/// # Errors
/// The rule, as a sentence.
pub(crate) fn check_device_name(name: &str) -> Result<(), String> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    if !name.is_empty() && name.len() <= MAX_DEVICE_BYTES && name.bytes().all(plain) {
        return Ok(());
    }
    Err(format!(
        "a device is named with at most {MAX_DEVICE_BYTES} letters, digits, '_' and '-', like \
        {DEFAULT_DEVICE}"
    ))
}

fn devices(value: &str) -> Result<usize, SettingError> {
    value
        .parse()
        .ok()
        .filter(|count| (1..=MAX_DEVICES).contains(count))
        .ok_or_else(|| SettingError::new(DEVICES, value, format!("a process has 1 to {MAX_DEVICES} devices")))
}

fn tag(value: String) -> Result<String, SettingError> {
    if value.len() <= MAX_TAG_BYTES && value.chars().all(|c| !c.is_control() && c != '*') {
        return Ok(value);
    }
    let rule = format!("a tag has at most {MAX_TAG_BYTES} bytes, without control characters and '*'");
    Err(SettingError::new(TAG, value, rule))
}

fn loss(value: &str) -> Result<u32, SettingError> {
    probability_ppm(value).map_err(|problem| SettingError::new(LOSS, value, problem))
}

fn wire(value: String) -> Result<Wire, SettingError> {
    Wire::parse(&value).map_err(|problem| SettingError::new(WIRE, value, problem))
}

fn copy(value: String) -> Result<CopyMode, SettingError> {
    CopyMode::parse(&value).map_err(|problem| SettingError::new(COPY, value, problem))
}

fn srd_order(value: String) -> Result<SrdOrder, SettingError> {
    SrdOrder::parse(&value).map_err(|problem| SettingError::new(SRD_ORDER, value, problem))
}

fn gid_index(value: &str) -> Result<u32, SettingError> {
    let index = value.parse().ok().filter(|index| *index <= MAX_FIRST_INDEX);
    let problem = || format!("the index of the first address is 0 to {MAX_FIRST_INDEX}");
    index.ok_or_else(|| SettingError::new(GID_INDEX, value, problem()))
}

fn memlock(value: &str) -> Result<MemlockLimit, SettingError> {
    MemlockLimit::parse(value).map_err(|problem| SettingError::new(MEMLOCK, value, problem))
}

fn link(value: &str) -> Result<LinkSettings, SettingError> {
    LinkSettings::parse(value).map_err(|problem| SettingError::new(LINK, value, problem))
}

/// Parses a number of planes.
fn planes(value: &str) -> Result<u8, SettingError> {
    let number = value.parse().ok().filter(|planes| (1..=31).contains(planes));
    number.ok_or_else(|| SettingError::new(PLANES, value, "it is a number from 1 to 31"))
}

/// Parses the UDP port that packets of MRC are sent to: one of the two at which they are received.
fn mrc_port(value: &str) -> Result<u16, SettingError> {
    let port = value.parse().ok().filter(|port| [ROCE_PORT, OTHER_PORT].contains(port));
    port.ok_or_else(|| SettingError::new(MRC_PORT, value, "packets of MRC go to 4791 or 4971"))
}

/// Parses the peers whose hosts answer no ARP.
fn no_neighbour(value: &str) -> Result<NoNeighbour, SettingError> {
    NoNeighbour::parse(value).map_err(|problem| SettingError::new(NO_NEIGHBOUR, value, problem))
}

/// Parses a time with a unit, 100 ms at least; or 0.
fn hang_after(value: &str) -> Result<Duration, SettingError> {
    let least = Duration::from_millis(100);
    let after =
        if value == "0" { Some(Duration::ZERO) } else { time_ns(value).ok().map(Duration::from_nanos) };
    let after = after.filter(|after| after.is_zero() || (least..=Duration::from_secs(3600)).contains(after));
    after.ok_or_else(|| {
        SettingError::new(HANG_AFTER, value, "it is a time from 100ms to 3600s, like 5s; 0 turns it off")
    })
}

/// Parses a number of bytes with a unit, 1 MiB at least.
fn trace_limit(value: &str) -> Result<u64, SettingError> {
    size(value).filter(|bytes| *bytes >= 1 << 20).ok_or_else(|| {
        SettingError::new(TRACE_LIMIT, value, "it is a number of bytes with KiB, MiB or GiB, 1MiB at least")
    })
}

fn seed(variable: &'static str, value: &str) -> Result<u64, SettingError> {
    let parsed = match value.strip_prefix("0x").or_else(|| value.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => value.parse(),
    };
    parsed.map_err(|_| {
        SettingError::new(variable, value, "a seed is a whole number from 0 to 18446744073709551615, like 7")
    })
}

#[cfg(test)]
mod tests;
