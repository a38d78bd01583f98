//! A tree of small files that shows the device as Linux would below /sys/class/infiniband and
//! /dev/infiniband: for programs that read them instead of asking libibverbs, or before they do.
//!
//! The tree is a snapshot: addresses that come later are not in it. Counters are the exception: the tree
//! contains their recipes (`live`). Beside it are Linux's answers through netlink (`netlink`). The preload
//! `libpumice_sysfs.so`, which shows the tree to a program, puts its folder in front of `/sys` and `/dev`.
//!
//! The files of a tree and their contents.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use pumice_model::addresses::PkeyTable;
use pumice_model::addresses::gid_table::SHOWN_GIDS;
use pumice_model::profile::{LinkLayer, NodeType, PortProfile, Speed};
use pumice_transport::types::Gid;

/// A folder, a file or a link.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum SysfsEntry {
    Folder,
    /// Contents, including the newline at their end.
    File(String),
    /// Contents that are not text.
    Bytes(Vec<u8>),
    /// Target of the link.
    Link(String),
}

/// OUI of Mellanox, and the number of the same vendor on PCI.
const MELLANOX: (u32, u16) = (0x02c9, 0x15b3);
/// Version of the interface of /dev/infiniband/uverbs*.
const UVERBS_ABI: &str = "6";
/// Version of the interface of /dev/infiniband/umad*, of which there is none.
const UMAD_ABI: &str = "5";
/// Device file without any function: programs check whether one exists.
const DEVICE_FILE: &str = "/dev/null";
/// Number of the device file, as sysfs writes it.
const DEVICE_NUMBER: &str = "1:3";

/// PCI class of such a device.
const ETHERNET_CONTROLLER: &str = "0x020000";

/// `IBV_PORT_CM_SUP`.
const PORT_CAPABILITIES: u32 = 1 << 16;

/// Names of the counters of wire errors, which are really 0 because there is no wire.
const WIRE_COUNTERS: [&str; 8] = [
    "VL15_dropped",
    "excessive_buffer_overrun_errors",
    "link_downed",
    "link_error_recovery",
    "local_link_integrity_errors",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "symbol_error",
];
/// Names of the counters that no counter of the device corresponds to.
const OTHER_COUNTERS: [&str; 6] = [
    "multicast_rcv_packets",
    "multicast_xmit_packets",
    "port_xmit_constraint_errors",
    "port_xmit_wait",
    "unicast_rcv_packets",
    "unicast_xmit_packets",
];
/// Text of Linux for a counter that a device does not have.
const NOT_COUNTED: &str = "N/A (no PMA)";

fn entries(device: &SysfsDevice<'_>) -> BTreeMap<String, SysfsEntry> {
    let mut tree = TreeBuilder(BTreeMap::new());
    let (name, index, profile) = (device.name, device.index, device.profile);
    tree.link(format!("sys/class/infiniband/{name}"), format!("../../devices/virtual/infiniband/{name}"));
    tree.file("sys/class/infiniband_mad/abi_version", UMAD_ABI);
    tree.file("sys/class/infiniband_verbs/abi_version", UVERBS_ABI);
    tree.link(
        format!("sys/class/infiniband_verbs/uverbs{index}"),
        format!("../../devices/virtual/infiniband_verbs/uverbs{index}"),
    );
    tree.link(format!("dev/infiniband/uverbs{index}"), DEVICE_FILE);
    tree.link("dev/infiniband/rdma_cm", DEVICE_FILE);

    let uverbs = format!("sys/devices/virtual/infiniband_verbs/uverbs{index}");
    tree.file(format!("{uverbs}/abi_version"), "1");
    tree.file(format!("{uverbs}/dev"), DEVICE_NUMBER);
    tree.file(format!("{uverbs}/ibdev"), name);
    tree.link(format!("{uverbs}/device"), format!("../../infiniband/{name}/device"));
    tree.link(format!("{uverbs}/subsystem"), "../../../../class/infiniband_verbs");

    let top = format!("sys/devices/virtual/infiniband/{name}");
    tree.file(format!("{top}/node_type"), profile.node.sysfs());
    tree.file(format!("{top}/node_guid"), guid(device.guid));
    let image = if profile.node == NodeType::Ca { device.guid } else { [0; 8] };
    tree.file(format!("{top}/sys_image_guid"), guid(image));
    tree.file(format!("{top}/node_desc"), name);
    tree.file(format!("{top}/fw_ver"), profile.fw_ver.as_str());
    tree.file(format!("{top}/hw_rev"), format!("{:x}", profile.hw_ver));
    let mellanox = profile.vendor_id == MELLANOX.0;
    let kind = if mellanox { format!("MT{}", profile.part_id) } else { "pumice".to_owned() };
    tree.file(format!("{top}/hca_type"), kind);
    tree.link(format!("{top}/subsystem"), "../../../../class/infiniband");
    if !profile.board_id.is_empty() {
        tree.file(format!("{top}/board_id"), profile.board_id.as_str());
    }
    match device.pci_address.and_then(pci_folder) {
        Some(folder) => {
            // Programs that look for the path between devices take it from the real path of `device`.
            tree.link(format!("{top}/device"), format!("../../infiniband_pci/{folder}"));
            parent(&mut tree, &format!("sys/devices/virtual/infiniband_pci/{folder}"), device);
        }
        None => parent(&mut tree, &format!("{top}/device"), device),
    }
    let first = SysfsPort { profile: &profile.port, counted: device.counted };
    for (number, own) in (1..).zip([Some(&first), device.second_port.as_ref()]) {
        let Some(own) = own else { continue };
        port(&mut tree, &format!("{top}/ports/{number}"), device, number, own.profile);
        let mark = if number == 1 { String::new() } else { number.to_string() };
        // The other half of a rate of which only one half was changed.
        let (speed, lanes) = (own.profile.speed as u32, own.profile.width.lanes());
        tree.file(format!("live/{name}/rate{mark}"), format!("{speed} {lanes}"));
        if let Some(counted) = own.counted {
            // By name for the files of counters, by index for netlink; the preload makes the same names.
            tree.link(format!("live/{name}/counted{mark}"), counted.to_string_lossy());
            tree.link(format!("netlink/{index}/counted{mark}"), counted.to_string_lossy());
        }
    }
    for (command, answer) in netlink::answers(device) {
        tree.0.insert(format!("netlink/{index}/{command}"), SysfsEntry::Bytes(answer));
    }
    tree.0
}

/// Returns the folder, below the root of its bus, of a device with an address on PCI, such as "0000:18:00.0".
/// Linux names both so.
fn pci_folder(address: &str) -> Option<String> {
    let (bus, _) = address.rsplit_once(':')?;
    Some(format!("pci{bus}/{address}"))
}

/// Adds what a device on a bus has: its location, and its network interfaces, those of the first GIDs of its
/// ports.
fn parent(tree: &mut TreeBuilder, top: &str, device: &SysfsDevice<'_>) {
    tree.file(format!("{top}/numa_node"), device.numa_node.to_string());
    if let Some(address) = device.pci_address {
        tree.file(format!("{top}/uevent"), format!("PCI_SLOT_NAME={address}"));
        tree.file(format!("{top}/class"), ETHERNET_CONTROLLER);
        let own = format!("../../../../infiniband/{}", device.name);
        tree.link(format!("{top}/infiniband/{}", device.name), own);
    }
    if let Some(mask) = device.processors.and_then(processor_mask) {
        tree.file(format!("{top}/local_cpulist"), device.processors.unwrap_or_default());
        tree.file(format!("{top}/local_cpus"), mask);
    }
    let vendor = match device.profile.vendor_id {
        id if id == MELLANOX.0 => Some(MELLANOX.1),
        id if !device.profile.driver.is_empty() => u16::try_from(id).ok(),
        _ => None,
    };
    let driver = &device.profile.driver;
    if !driver.is_empty() {
        // Programs read the last part of the link's target, and libfabric follows the link.
        tree.folder(format!("sys/bus/pci/drivers/{driver}"));
        tree.link(format!("{top}/driver"), format!("../../../../../bus/pci/drivers/{driver}"));
    }
    if let Some(vendor) = vendor {
        tree.file(format!("{top}/vendor"), format!("0x{vendor:04x}"));
        tree.file(format!("{top}/device"), format!("0x{:04x}", device.profile.part_id));
    }
    tree.folder(format!("{top}/net"));
    for port_num in 1..=device.port_count() {
        if let Some(first) = device.gids_of(port_num).next() {
            let (interface, _) = device.interface_of(first);
            tree.link(format!("{top}/net/{interface}"), format!("/sys/class/net/{interface}"));
            // The link in the other direction.
            tree.link(
                format!("sys/class/net/{interface}/device/infiniband/{}", device.name),
                format!("../../../../../devices/virtual/infiniband/{}", device.name),
            );
        }
    }
}

fn port(tree: &mut TreeBuilder, top: &str, device: &SysfsDevice<'_>, port_num: u8, profile: &PortProfile) {
    tree.file(format!("{top}/state"), "4: ACTIVE");
    tree.file(format!("{top}/phys_state"), "5: LinkUp");
    let is_ethernet = profile.link_layer == LinkLayer::Ethernet;
    tree.file(format!("{top}/link_layer"), profile.link_layer.name());
    tree.file(format!("{top}/rate"), rate(profile));
    let capabilities = if is_ethernet { PORT_CAPABILITIES } else { 0 };
    tree.file(format!("{top}/cap_mask"), format!("0x{capabilities:08x}"));
    let lid_mask_count = if is_ethernet { "0" } else { "1" };
    for (name, text) in
        [("lid", "0x0"), ("lid_mask_count", lid_mask_count), ("sm_lid", "0x0"), ("sm_sl", "0")]
    {
        tree.file(format!("{top}/{name}"), text);
    }
    for folder in ["gids", "gid_attrs/types", "gid_attrs/ndevs", "hw_counters"] {
        tree.folder(format!("{top}/{folder}"));
    }
    let first = device.gids_of(port_num).next().map_or(0, |entry| entry.first_index as usize);
    let indices = first..first + device.gids_of(port_num).count();
    for (index, entry) in indices.clone().zip(device.gids_of(port_num)) {
        tree.file(format!("{top}/gids/{index}"), groups(&entry.gid.0));
        let kind = if is_ethernet { "RoCE v2" } else { "IB/RoCE v1" };
        tree.file(format!("{top}/gid_attrs/types/{index}"), kind);
        tree.file(format!("{top}/gid_attrs/ndevs/{index}"), device.interface_of(entry).0);
    }
    // Linux refuses to read the attributes of an index without an address.
    for index in (0..first).chain(indices.end..SHOWN_GIDS.min(profile.max_gids as usize)) {
        tree.file(format!("{top}/gids/{index}"), groups(&Gid::ZERO.0));
        for attribute in ["types", "ndevs"] {
            tree.empty_file(format!("{top}/gid_attrs/{attribute}/{index}"));
        }
    }
    let pkeys = PkeyTable::new(&profile.pkeys, device.profile.limits.pkey_table_len);
    for index in 0..u32::from(pkeys.len()) {
        let pkey = pkeys.pkey(index).unwrap_or_default();
        tree.file(format!("{top}/pkeys/{index}"), format!("0x{pkey:04x}"));
    }
    for counter in WIRE_COUNTERS {
        tree.file(format!("{top}/counters/{counter}"), "0");
    }
    for counter in OTHER_COUNTERS {
        tree.file(format!("{top}/counters/{counter}"), NOT_COUNTED);
    }
    for (folder, recipes) in [("counters", &live::PORT[..]), ("hw_counters", &live::HARDWARE[..])] {
        for counter_formula in recipes {
            tree.file(format!("{top}/{folder}/{}", counter_formula.name), "0");
            tree.file(format!("live/{folder}/{}", counter_formula.name), counter_formula.text());
        }
    }
}

struct TreeBuilder(BTreeMap<String, SysfsEntry>);

impl TreeBuilder {
    fn file(&mut self, path: impl Into<String>, line: impl Into<String>) {
        self.0.insert(path.into(), SysfsEntry::File(line.into() + "\n"));
    }

    fn empty_file(&mut self, path: impl Into<String>) {
        self.0.insert(path.into(), SysfsEntry::File(String::new()));
    }

    fn link(&mut self, path: impl Into<String>, target: impl Into<String>) {
        self.0.insert(path.into(), SysfsEntry::Link(target.into()));
    }

    fn folder(&mut self, path: impl Into<String>) {
        self.0.insert(path.into(), SysfsEntry::Folder);
    }
}

/// Formats bytes in groups of two: "0200:00ff:fe00:0001".
fn groups(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (index, byte) in bytes.iter().enumerate() {
        let colon = if index > 0 && index % 2 == 0 { ":" } else { "" };
        // Writing to a String does not fail.
        let _ = write!(text, "{colon}{byte:02x}");
    }
    text
}

fn guid(bytes: [u8; 8]) -> String {
    groups(&bytes)
}

/// Formats the bit rate of the link, as Linux writes it: "100 Gb/sec (4X EDR)".
fn rate(port: &PortProfile) -> String {
    // Rate of a lane, in tenths of Gbit/s.
    let (tenths, name) = match port.speed {
        Speed::Sdr => (25, "SDR"),
        Speed::Ddr => (50, "DDR"),
        Speed::Qdr => (100, "QDR"),
        Speed::Fdr10 => (100, "FDR10"),
        Speed::Fdr => (140, "FDR"),
        Speed::Edr => (250, "EDR"),
        Speed::Hdr => (500, "HDR"),
        Speed::Ndr => (1000, "NDR"),
        Speed::Xdr => (2000, "XDR"),
    };
    let lanes = u32::from(port.width.lanes());
    let total = lanes * tenths;
    let tenth = if total.is_multiple_of(10) { String::new() } else { format!(".{}", total % 10) };
    format!("{}{tenth} Gb/sec ({lanes}X {name})", total / 10)
}

/// Number of processors that a mask has room for; a longer list is left out.
const MAX_PROCESSORS: usize = 8192;

/// Returns the mask of a list such as "0-3,8", in groups of 32 bits, the highest first: "00000001,0000010f".
fn processor_mask(list: &str) -> Option<String> {
    let mut words: Vec<u32> = Vec::new();
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if last >= MAX_PROCESSORS {
            return None;
        }
        for processor in first..=last {
            let word = processor / 32;
            if words.len() <= word {
                words.resize(word + 1, 0);
            }
            *words.get_mut(word)? |= 1 << (processor % 32);
        }
    }
    let groups: Vec<String> = words.iter().rev().map(|word| format!("{word:08x}")).collect();
    (!groups.is_empty()).then(|| groups.join(","))
}

mod live;
mod netlink;
mod write;

pub use live::{SysfsDevice, SysfsPort};
pub use write::{Sysfs, SysfsError};

/// Longest path of the folder with the tree, in bytes: the preload puts it in front of paths in a buffer of
/// fixed size.
pub const MAX_FOLDER_BYTES: usize = 512;

#[cfg(test)]
mod tests {
    use pumice_model::addresses::gid_table::GidEntry;
    use pumice_model::profile::Profile;
    use pumice_transport::types::Mtu;

    use super::*;

    #[test]
    fn rates_are_written_as_linux_does() {
        let rate_of = |text: &str| rate(&Profile::parse(&format!("[port]\n{text}")).unwrap().port);
        assert_eq!(rate(&PortProfile::default()), "2.5 Gb/sec (1X SDR)");
        assert_eq!(rate_of("speed = 'edr'\nwidth = 4"), "100 Gb/sec (4X EDR)");
        assert_eq!(rate_of("speed = 'fdr'\nwidth = 4"), "56 Gb/sec (4X FDR)");
        assert_eq!(rate_of("speed = 'sdr'\nwidth = 12"), "30 Gb/sec (12X SDR)");
    }

    #[test]
    fn processors_are_a_mask() {
        assert_eq!(processor_mask("0-1").as_deref(), Some("00000003"));
        assert_eq!(processor_mask("0-3,8,32").as_deref(), Some("00000001,0000010f"));
        for wrong in ["", "x", "0-", "0-8192", "0-18446744073709551616"] {
            assert_eq!(processor_mask(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_tree_says_what_verbs_say() {
        let gids = [
            GidEntry::new([192, 0, 2, 1].into(), "eth0", 2, Mtu::Mtu1024),
            GidEntry::new("2001:db8::5".parse().unwrap(), "eth1", 3, Mtu::Mtu1024),
        ];
        let text = "vendor_id = 0x02c9\npart_id = 4119\nhw_ver = 0xa1\nfw_ver = '1.2.3'\n\
                    [port]\nspeed = 'edr'\nwidth = 4\npkeys = [0xffff, 0x8001]\n[limits]\npkey_table_len = 2";
        let profile = Profile::parse(text).unwrap();
        let device = SysfsDevice {
            index: 0,
            name: "pumice0",
            guid: [0, 0x11, 0x22, 0xff, 0xfe, 0x33, 0x44, 0x55],
            profile: &profile,
            gids: &gids,
            counted: Some("/run/pumice/counted".as_ref()),
            second_port: None,
            netdev: None,
            numa_node: 1,
            pci_address: Some("0000:18:00.0"),
            processors: Some("0-1"),
        };
        let entries = super::entries(&device);
        let top = "sys/devices/virtual/infiniband/pumice0";
        for (path, line) in [
            ("node_guid", "0011:22ff:fe33:4455"),
            ("fw_ver", "1.2.3"),
            ("hw_rev", "a1"),
            ("hca_type", "MT4119"),
            ("ports/1/rate", "100 Gb/sec (4X EDR)"),
            ("ports/1/cap_mask", "0x00010000"),
            ("ports/1/gids/0", "0000:0000:0000:0000:0000:ffff:c000:0201"),
            ("ports/1/gids/1", "2001:0db8:0000:0000:0000:0000:0000:0005"),
            ("ports/1/gids/2", "0000:0000:0000:0000:0000:0000:0000:0000"),
            ("ports/1/gids/7", "0000:0000:0000:0000:0000:0000:0000:0000"),
            ("ports/1/gid_attrs/types/1", "RoCE v2"),
            ("ports/1/gid_attrs/ndevs/1", "eth1"),
            ("ports/1/pkeys/1", "0x8001"),
            ("ports/1/counters/port_xmit_data", "0"),
            ("ports/1/counters/port_xmit_wait", "N/A (no PMA)"),
            ("ports/1/hw_counters/rcvd_pkts", "0"),
        ] {
            assert_eq!(
                entries.get(&format!("{top}/{path}")),
                Some(&SysfsEntry::File(format!("{line}\n"))),
                "{path}"
            );
        }
        let empty = [("types/2", true), ("types/7", true), ("ndevs/2", true), ("types/8", false)];
        for (attribute, is_there) in empty {
            let found = entries.get(&format!("{top}/ports/1/gid_attrs/{attribute}"));
            assert_eq!(found, Some(&SysfsEntry::File(String::new())).filter(|_| is_there), "{attribute}");
        }
        assert_eq!(entries.get("live/pumice0/rate"), Some(&SysfsEntry::File("32 4\n".to_owned())));
        assert_eq!(
            entries.get("live/pumice0/counted"),
            Some(&SysfsEntry::Link("/run/pumice/counted".to_owned()))
        );
        let target = "../../infiniband_pci/pci0000:18/0000:18:00.0".to_owned();
        assert_eq!(entries.get(&format!("{top}/device")), Some(&SysfsEntry::Link(target)));
        let parent = "sys/devices/virtual/infiniband_pci/pci0000:18/0000:18:00.0";
        for (path, line) in [
            ("vendor", "0x15b3"),
            ("device", "0x1017"),
            ("class", "0x020000"),
            ("local_cpus", "00000003"),
            ("local_cpulist", "0-1"),
            ("numa_node", "1"),
            ("uevent", "PCI_SLOT_NAME=0000:18:00.0"),
        ] {
            let file = entries.get(&format!("{parent}/{path}"));
            assert_eq!(file, Some(&SysfsEntry::File(format!("{line}\n"))), "{path}");
        }
        let link = |path: String, target: &str| {
            assert_eq!(entries.get(&path), Some(&SysfsEntry::Link(target.to_owned())), "{path}");
        };
        link(format!("{parent}/net/eth0"), "/sys/class/net/eth0");
        link(format!("{parent}/infiniband/pumice0"), "../../../../infiniband/pumice0");
        let back = "../../../../../devices/virtual/infiniband/pumice0";
        link("sys/class/net/eth0/device/infiniband/pumice0".to_owned(), back);
        let named = super::entries(&SysfsDevice { netdev: Some(("rail0", 9)), ..device.clone() });
        assert!(named.contains_key(&format!("{parent}/net/rail0")));
        assert!(named.contains_key("sys/class/net/rail0/device/infiniband/pumice0"));
        let shown = named.get(&format!("{top}/ports/1/gid_attrs/ndevs/1"));
        assert_eq!(shown, Some(&SysfsEntry::File("rail0\n".to_owned())));
        let second =
            SysfsDevice { index: 1, name: "pumice1", pci_address: Some("0000:40:00.0"), ..device.clone() };
        let both = crate::sysfs::Sysfs::of(&[device.clone(), second]).entries;
        assert!(entries.keys().all(|path| both.contains_key(path)), "the first is there as if it were alone");
        let of_second = "sys/devices/virtual/infiniband_verbs/uverbs1/ibdev";
        assert_eq!(both.get(of_second), Some(&SysfsEntry::File("pumice1\n".to_owned())));
        assert!(both.contains_key("netlink/1/17") && both.contains_key("live/pumice1/counted"));
        let gids = [gids[0].clone(), gids[1].clone().at_port(2)];
        let slow = Profile::default().port;
        let second_port = Some(SysfsPort { profile: &slow, counted: Some("/run/pumice/second".as_ref()) });
        let of_two = super::entries(&SysfsDevice { gids: &gids, second_port, ..device.clone() });
        let line = |path: &str| of_two.get(&format!("{top}/{path}"));
        let file = |line: &str| Some(SysfsEntry::File(format!("{line}\n")));
        assert_eq!(line("ports/2/rate"), file("2.5 Gb/sec (1X SDR)").as_ref());
        assert_eq!(line("ports/2/gids/0"), file("2001:0db8:0000:0000:0000:0000:0000:0005").as_ref());
        assert_eq!(line("ports/1/gids/1"), file("0000:0000:0000:0000:0000:0000:0000:0000").as_ref());
        assert_eq!(line("ports/2/pkeys/1"), file("0x0000").as_ref());
        let counted = Some(&SysfsEntry::Link("/run/pumice/second".to_owned()));
        assert_eq!(of_two.get("live/pumice0/counted2"), counted);
        assert_eq!(of_two.get("netlink/0/counted2"), counted);
        assert!(of_two.contains_key("netlink/0/55") && of_two.contains_key("netlink/0/67"));
        let plain = Profile::default();
        let without =
            super::entries(&SysfsDevice { profile: &plain, gids: &[], pci_address: None, ..device });
        assert!(!without.contains_key(&format!("{top}/device/vendor")));
        assert_eq!(without.get(&format!("{top}/device/net")), Some(&SysfsEntry::Folder));
    }
}
