//! Profiles from texts and files, and the bounds of their numbers.

use std::io::Read as _;
use std::path::Path;

use pumice_platform::outside;
use pumice_platform::quantity::suggestion;

use super::{DeviceProfile, Profile, bounds};
use crate::addresses::MAX_PORTS;
use crate::addresses::gid_table::{GidTable, MAX_FIRST_INDEX};
use crate::built_in::{BUILT_IN, BuiltIn, DEFAULT};
use crate::settings::{PROFILE, SettingError, Settings, check_device_name};

/// The largest number that verbs report as a C `int`.
const INT_MAX: u64 = i32::MAX as u64;

/// A number of a profile, with its bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValueRange {
    /// The field, with the table that it is in: `limits.max_qp`.
    pub field: &'static str,
    /// The value in the profile.
    pub value: u64,
    /// The smallest allowed value.
    pub lowest: u64,
    /// The largest allowed value.
    pub highest: u64,
}

const fn range(field: &'static str, value: u64, lowest: u64, highest: u64) -> ValueRange {
    ValueRange { field, value, lowest, highest }
}

/// Returns every number of a profile that has bounds.
pub fn ranges(profile: &Profile) -> [ValueRange; 32] {
    let limits = &profile.limits;
    [
        range("vendor_id", profile.vendor_id.into(), 0, 0xff_ffff),
        range("max_mr_size", profile.max_mr_size, 1, u64::MAX),
        // 4096 bytes are the smallest page of the host.
        range("page_size_cap", profile.page_size_cap, 0x1000, u64::MAX),
        range("lag_ports", profile.lag_ports.into(), 0, 4),
        range("ece.vendor_id", profile.ece.vendor_id.into(), 0, 0xff_ffff),
        range("adaptive_timer.first_us", profile.adaptive_timer.first_us.into(), 0, 60_000_000),
        range("adaptive_timer.last_us", profile.adaptive_timer.last_us.into(), 0, 60_000_000),
        range("ack_delay", profile.ack_delay.into(), 0, 31),
        range("port.max_message_bytes", profile.port.max_message_bytes.into(), 1, 1 << 31),
        range("port.first_gid_index", profile.port.first_gid_index.into(), 0, MAX_FIRST_INDEX.into()),
        range("port.max_gids", profile.port.max_gids.into(), 1, GidTable::LEN.into()),
        range("limits.max_pd", limits.max_pd.into(), 1, 1 << 24),
        range("limits.max_mr", limits.max_mr.into(), 1, (1 << 24) - 1),
        range("limits.max_dm_size", limits.max_dm_size, 0, 1 << 30),
        range("limits.max_ah", limits.max_ah.into(), 1, INT_MAX),
        range("limits.max_cq", limits.max_cq.into(), 1, 1 << 24),
        range("limits.max_cqe", limits.max_cqe.into(), 1, 1 << 22),
        range("limits.num_comp_vectors", limits.num_comp_vectors.into(), 1, 1024),
        range("limits.max_qp", limits.max_qp.into(), 1, 1 << 16),
        range("limits.max_qp_wr", limits.max_qp_wr.into(), 1, 1 << 20),
        range("limits.max_sge", limits.max_sge.into(), 1, 256),
        range("limits.max_inline_data", limits.max_inline_data.into(), 0, 4096),
        range("limits.max_srq", limits.max_srq.into(), 0, 65_535),
        range("limits.max_srq_wr", limits.max_srq_wr.into(), 1, 1 << 20),
        range("limits.max_srq_sge", limits.max_srq_sge.into(), 1, 256),
        range("limits.max_xrcd", limits.max_xrcd.into(), 0, 1 << 24),
        range("limits.max_mcast_grp", limits.max_mcast_grp.into(), 0, 1 << 24),
        range("limits.max_mcast_qp_attach", limits.max_mcast_qp_attach.into(), 0, 1 << 16),
        range("limits.pkey_table_len", limits.pkey_table_len.into(), 1, 1024),
        range("limits.max_init_rd_atomic", limits.max_init_rd_atomic.into(), 1, 128),
        range("limits.max_rd_atomic", limits.max_rd_atomic.into(), 1, 128),
        range("limits.max_async_events", limits.max_async_events as u64, 1, 1 << 20),
    ]
}

/// Checks every number against its bounds.
pub(super) fn check(profile: &Profile) -> Result<(), String> {
    for ValueRange { field, value, lowest, highest } in ranges(profile) {
        if !(lowest..=highest).contains(&value) {
            return Err(format!("{field} is {value}, and must be from {lowest} to {highest}"));
        }
    }
    for (name, text) in [("fw_ver", &profile.fw_ver), ("board_id", &profile.board_id)] {
        if text.len() > 63 || text.bytes().any(|byte| !(b' '..0x7f).contains(&byte)) {
            return Err(format!("{name} must have at most 63 printable ASCII characters"));
        }
    }
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    if profile.driver.len() > 63 || !profile.driver.bytes().all(plain) {
        return Err("driver must be at most 63 letters, digits, '_' and '-', like mlx5_core".to_owned());
    }
    if profile.port.first_gid_index >= profile.port.max_gids {
        return Err("port.first_gid_index must be below port.max_gids".to_owned());
    }
    check_pkeys(&profile.port.pkeys, profile.limits.pkey_table_len)?;
    let congestion = profile.congestion.of_port(&profile.port);
    congestion.check().map_err(|problem| format!("congestion.{problem}"))?;
    for (index, device) in profile.devices.iter().enumerate() {
        check_device(device, profile).map_err(|problem| format!("device {}: {problem}", index + 1))?;
    }
    Ok(())
}

/// Checks that the values of a single device are within the bounds of those that they replace.
fn check_device(device: &DeviceProfile, profile: &Profile) -> Result<(), String> {
    if let Some(name) = &device.name {
        check_device_name(name).map_err(|rule| format!("name {name:?}: {rule}"))?;
    }
    if device.address.is_some() && device.interface.is_some() {
        return Err("name its address or its interface, not both".to_owned());
    }
    check_ports(device, profile)?;
    if let Some(node) = device.numa_node
        && !(-1..=1023).contains(&node)
    {
        return Err(format!("numa_node is {node}, and must be from -1 (none) to 1023"));
    }
    if let Some(address) = &device.pci_address
        && !is_pci_address(address)
    {
        return Err(format!("pci_address {address:?}: write it as 0000:18:00.0"));
    }
    check(&profile.with(device))
}

/// Checks that the values of a single port are within the bounds of those that they replace.
fn check_ports(device: &DeviceProfile, profile: &Profile) -> Result<(), String> {
    let count = device.ports.len();
    if count > MAX_PORTS {
        return Err(format!("it has {count} ports, and a device has one or two"));
    }
    if count > 0 && (device.address.is_some() || device.interface.is_some()) {
        return Err("name the address or the interface in each [[device.port]], not beside them".to_owned());
    }
    for (number, port) in (1..).zip(&device.ports) {
        if port.address.is_some() && port.interface.is_some() {
            return Err(format!("port {number}: name its address or its interface, not both"));
        }
    }
    for (number, port) in (2..).zip(profile.more_ports(device)) {
        let table_len = profile.limits.pkey_table_len;
        check_pkeys(&port.pkeys, table_len).map_err(|problem| format!("port {number}: {problem}"))?;
    }
    Ok(())
}

/// Reports whether a text is domain, bus, device and function, as Linux writes them.
fn is_pci_address(text: &str) -> bool {
    let form = b"hhhh:hh:hh.h";
    let fits = |(byte, form): (u8, &u8)| if *form == b'h' { byte.is_ascii_hexdigit() } else { byte == *form };
    text.len() == form.len() && text.bytes().zip(form).all(fits)
}

fn check_pkeys(pkeys: &[u16], table_len: u16) -> Result<(), String> {
    if pkeys.is_empty() {
        return Err("port.pkeys must not be empty: [0xffff] is the default partition".to_owned());
    }
    if pkeys.len() > usize::from(table_len) {
        let count = pkeys.len();
        return Err(format!(
            "port.pkeys has {count} keys, and limits.pkey_table_len has room for {table_len}"
        ));
    }
    for (index, pkey) in pkeys.iter().enumerate() {
        if pkey & 0x7fff == 0 && *pkey != 0 {
            return Err(format!("port.pkeys: {pkey:#06x} names no partition, its low 15 bits being 0"));
        }
        let earlier = pkeys.get(..index).unwrap_or_default();
        if *pkey != 0 && earlier.iter().any(|other| other & 0x7fff == pkey & 0x7fff) {
            return Err(format!("port.pkeys: the partition of {pkey:#06x} is there twice"));
        }
    }
    Ok(())
}

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
