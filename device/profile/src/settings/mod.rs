//! What the environment says about the device: the PUMICE_* variables.
//!
//! [`Settings::parse`] is pure: it takes the variables through a function and touches neither files nor the
//! network. `pumice run` checks with it what it then hands to the program in the environment, where
//! `libpumice.so` reads it again.

mod check;
mod error;
mod faults;
mod log;
mod memlock;
pub mod record;
mod srd_order;
mod wire;

use std::ffi::OsString;
use std::hash::Hasher as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fnv::FnvHasher;

use crate::addresses::gid_table::MAX_FIRST_INDEX;
use pumice_ground::outside;
use pumice_ground::quantity::{size, time_ns};

pub use pumice_ground::link_words::{LinkSettings, WaySettings};
pub use pumice_ground::probability::probability_ppm;
use pumice_ground::similar::similar;

pub use check::{CHECK, CHECK_FORMAT, CHECK_MARK, CHECK_REPORT, CHECK_SUPPRESS, CheckSettings, Marks};
pub use error::SettingError;
pub use log::{Log, standard_error_is_free};
pub use memlock::Memlock;
pub use srd_order::SrdOrder;
pub use wire::Wire;

/// The local address of the device; of several devices one each, with commas between them.
pub const ADDR: &str = "PUMICE_ADDR";
/// Name of the device; of several devices that of the first. The name of a personality gives that one.
pub const DEVICE: &str = "PUMICE_DEVICE";
/// Number of devices.
pub const DEVICES: &str = "PUMICE_DEVICES";
/// Share of the packets that is lost on the way out.
pub const LOSS: &str = "PUMICE_LOSS";
/// Seed of everything in fault plans that looks random.
pub const SEED: &str = "PUMICE_SEED";
/// Seed of the schedule, if it is to be shuffled.
pub const SHUFFLE: &str = "PUMICE_SHUFFLE";
/// What fault plans call the process.
pub const TAG: &str = "PUMICE_TAG";
/// File with a fault plan, or a report of faults.
pub const FAULTS: &str = "PUMICE_FAULTS";
/// Rules of a fault plan, one a line.
pub const FAULT: &str = "PUMICE_FAULT";
/// File for the report of faults.
pub const FAULT_REPORT: &str = "PUMICE_FAULT_REPORT";
/// Folder of a record: each process that uses the device leaves its files there ([`record`]).
pub const RECORD: &str = "PUMICE_RECORD";
/// File for a capture of all packets.
pub const CAPTURE: &str = "PUMICE_CAPTURE";
/// File for a trace of everything that happens.
pub const TRACE: &str = "PUMICE_TRACE";
/// Bytes that it has at most.
pub const TRACE_LIMIT: &str = "PUMICE_TRACE_LIMIT";
/// Profile of the device: a name, or a file.
pub const PROFILE: &str = "PUMICE_PROFILE";
/// File for a report of the calls that the program makes.
pub const CALL_REPORT: &str = "PUMICE_CALL_REPORT";
/// How packets reach other processes of this host.
pub const WIRE: &str = "PUMICE_WIRE";
/// In which order messages of SRD leave.
pub const SRD_ORDER: &str = "PUMICE_SRD_ORDER";
/// Index of the first address in the GID table.
pub const GID_INDEX: &str = "PUMICE_GID_INDEX";
/// How much memory the program may register.
pub const MEMLOCK: &str = "PUMICE_MEMLOCK";
/// How long something waits in vain until that is told.
pub const HANG_AFTER: &str = "PUMICE_HANG_AFTER";
/// The link of the devices.
pub const LINK: &str = "PUMICE_LINK";
/// File with the switches between this user's processes on this host.
pub const TOPOLOGY: &str = "PUMICE_TOPOLOGY";
/// How much is explained on standard error.
pub const LOG: &str = "PUMICE_LOG";
/// The older way to say PUMICE_LOG=warn: set to anything but nothing or 0.
pub const EXPLAIN: &str = "PUMICE_EXPLAIN";

/// All variables that [`Settings::parse`] asks for.
pub const VARIABLES: [&str; 30] = [
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
    SRD_ORDER,
    GID_INDEX,
    MEMLOCK,
    HANG_AFTER,
    LINK,
    TOPOLOGY,
    LOG,
    EXPLAIN,
];

/// What the names of variables begin with.
const PREFIX: &str = "PUMICE_";

/// The variable that a user seems to mean by this name: the name is none of [`VARIABLES`], and like one.
pub fn misspelt(name: &str) -> Option<&'static str> {
    let bare = name.strip_prefix(PREFIX)?;
    let known = || VARIABLES.iter().filter_map(|variable| variable.strip_prefix(PREFIX));
    if known().any(|variable| variable == bare) {
        return None;
    }
    let meant = similar(bare, known())?;
    VARIABLES.into_iter().find(|variable| variable.strip_prefix(PREFIX) == Some(meant))
}

/// The built-in profiles that are personalities: they look like an adapter down to its driver, and a device
/// may be named after them (`--device efa`).
pub const PERSONALITIES: [&str; 2] = ["connectx-7", "efa"];
/// Name of the device when the user gives no other.
pub const DEFAULT_DEVICE: &str = "pumice0";
/// Devices of one process at most.
pub const MAX_DEVICES: usize = 16;
/// Longest name of a device in bytes: one less than `ibv_device` and sysfs have room for, with a margin.
const MAX_DEVICE_BYTES: usize = 59;
/// Longest name of a program that is used as it is, in characters.
const MAX_NAME_CHARS: usize = 60;
/// Longest tag of a process, in bytes.
const MAX_TAG_BYTES: usize = 100;
/// What waits in vain is told after so long, unless the user says otherwise.
pub const DEFAULT_HANG_AFTER: Duration = Duration::from_secs(2);
/// Seed when there is none, so that two runs lose the same packets.
pub const DEFAULT_SEED: u64 = 1;

/// The settings of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The local addresses to use, one for each device; when empty, one device has all of the host's.
    pub addresses: Vec<IpAddr>,
    /// Name of the device; of several devices that of the first, which the others continue.
    pub device: Option<String>,
    /// Number of devices, if it is said.
    pub devices: Option<usize>,
    /// Packets that are lost on the way out, in parts per million.
    pub loss_ppm: u32,
    /// Seed of fault plans; that of the plan, or [`DEFAULT_SEED`], when none.
    pub seed: Option<u64>,
    /// A file with a fault plan; see [`Settings::load_faults`].
    pub faults: Option<PathBuf>,
    /// Rules of a fault plan, one each.
    pub fault_lines: Vec<String>,
    /// Where a report of the faults is written to; `%p` stands for the process number.
    pub fault_report: Option<PathBuf>,
    /// The folder of a record, where the process leaves its files.
    pub record: Option<PathBuf>,
    /// Seed of the schedule; `None`: it is not shuffled.
    pub shuffle: Option<u64>,
    /// What fault plans call the process; see [`Settings::tag_of`].
    pub tag: Option<String>,
    /// Where all packets are written to, in pcapng; `%p` stands for the process number.
    pub capture: Option<PathBuf>,
    /// Where everything that happens is recorded; `%p` stands for the process number.
    pub trace: Option<PathBuf>,
    /// Bytes that the trace has at most; those of the trace's own choice when none.
    pub trace_limit_bytes: Option<u64>,
    /// Profile: the name of a built-in one, or a path.
    pub profile: OsString,
    /// Where a report of the calls that the program makes is written to.
    pub call_report: Option<PathBuf>,
    /// Whether and how to look for what the program does wrong.
    pub check: Option<CheckSettings>,
    /// How packets reach other processes of this host.
    pub wire: Wire,
    /// In which order messages of SRD leave.
    pub srd_order: SrdOrder,
    /// Index of the first address in the GID table; that of the profile when none.
    pub gid_index: Option<u32>,
    /// How much memory the program may register; `None`: as much as it likes.
    pub memlock: Option<Memlock>,
    /// How long something waits in vain until that is told; none: [`DEFAULT_HANG_AFTER`]. Zero: it is not
    /// told.
    pub hang_after: Option<Duration>,
    /// The link of each device; what it does not say, the profile does.
    pub link: LinkSettings,
    /// The same as it was written.
    pub link_text: String,
    /// A file with a topology: the switches between this user's processes. A port reads it
    /// (`Topology::parse`).
    pub topology: Option<PathBuf>,
    /// How much is explained on standard error.
    pub log: Log,
}

impl Settings {
    /// The settings that variables give; a variable that is empty is as good as not set. `free` says whether
    /// standard error takes sentences without harm ([`standard_error_is_free`]): it decides how much is
    /// explained when nothing is said.
    ///
    /// # Errors
    /// A value has the wrong form. What it names (an address, a file) is not looked for.
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
            // A personality has names of its own.
            (Some(name), None) if PERSONALITIES.contains(&name.as_str()) => (None, Some(name.into())),
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
            profile: profile.unwrap_or_else(|| "default".into()),
            call_report: path(CALL_REPORT).map(PathBuf::from),
            check: CheckSettings::parse(text(CHECK)?, text(CHECK_FORMAT)?, &path)?,
            wire: text(WIRE)?.map_or(Ok(Wire::default()), wire)?,
            srd_order: text(SRD_ORDER)?.map_or(Ok(SrdOrder::default()), srd_order)?,
            gid_index: text(GID_INDEX)?.map(|value| gid_index(&value)).transpose()?,
            memlock: text(MEMLOCK)?.map(|value| memlock(&value)).transpose()?,
            hang_after: text(HANG_AFTER)?.map(|value| hang_after(&value)).transpose()?,
            link_text: text(LINK)?.unwrap_or_default(),
            topology: path(TOPOLOGY).map(PathBuf::from),
            link: text(LINK)?.map_or_else(|| Ok(LinkSettings::default()), |value| link(&value))?,
            log: match text(LOG)? {
                Some(value) => {
                    Log::parse(&value).map_err(|problem| SettingError::new(LOG, value, problem))?
                }
                None if explain || free => Log::Warn,
                None => Log::Off,
            },
        })
    }

    /// How long something waits in vain until that is told; `None`: it is not told.
    pub fn patience(&self) -> Option<Duration> {
        Some(self.hang_after.unwrap_or(DEFAULT_HANG_AFTER)).filter(|after| !after.is_zero())
    }

    /// The settings of this process.
    ///
    /// # Errors
    /// As [`Settings::parse`].
    pub fn from_environment() -> Result<Settings, SettingError> {
        Settings::parse(outside::environment::variable, standard_error_is_free())
    }

    /// What fault plans call a process: the tag that is set, or else the program's name and eight digits that
    /// depend on the address and the arguments. So the two sides of a connection lose different packets, and
    /// the same command loses the same ones every time. `command`: the program, which may be a path, and its
    /// arguments.
    pub fn tag_of(&self, command: impl IntoIterator<Item = OsString>) -> String {
        if let Some(tag) = &self.tag {
            return tag.clone();
        }
        // FNV-1a: the same on every machine and with every compiler.
        let mut hasher = FnvHasher::default();
        let mut mix = |bytes: &[u8]| {
            hasher.write(bytes);
            // 0xff is in no address and in no UTF-8 text: it separates.
            hasher.write(&[0xff]);
        };
        let addresses: Vec<String> = self.addresses.iter().map(IpAddr::to_string).collect();
        mix(addresses.join(",").as_bytes());
        let mut command = command.into_iter();
        let program = command.next().unwrap_or_default();
        for argument in command {
            mix(argument.as_encoded_bytes());
        }
        // The folder by which a program is called is not what it is told to do.
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

/// Checks what a device is named.
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

fn srd_order(value: String) -> Result<SrdOrder, SettingError> {
    SrdOrder::parse(&value).map_err(|problem| SettingError::new(SRD_ORDER, value, problem))
}

fn gid_index(value: &str) -> Result<u32, SettingError> {
    let index = value.parse().ok().filter(|index| *index <= MAX_FIRST_INDEX);
    let problem = || format!("the index of the first address is 0 to {MAX_FIRST_INDEX}");
    index.ok_or_else(|| SettingError::new(GID_INDEX, value, problem()))
}

fn memlock(value: &str) -> Result<Memlock, SettingError> {
    Memlock::parse(value).map_err(|problem| SettingError::new(MEMLOCK, value, problem))
}

fn link(value: &str) -> Result<LinkSettings, SettingError> {
    LinkSettings::parse(value).map_err(|problem| SettingError::new(LINK, value, problem))
}

/// A time with a unit, 100 ms at least; or 0.
fn hang_after(value: &str) -> Result<Duration, SettingError> {
    let least = Duration::from_millis(100);
    let after =
        if value == "0" { Some(Duration::ZERO) } else { time_ns(value).ok().map(Duration::from_nanos) };
    let after = after.filter(|after| after.is_zero() || (least..=Duration::from_secs(3600)).contains(after));
    after.ok_or_else(|| {
        SettingError::new(HANG_AFTER, value, "it is a time from 100ms to 3600s, like 5s; 0 turns it off")
    })
}

/// A number of bytes with a unit, 1 MiB at least.
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
