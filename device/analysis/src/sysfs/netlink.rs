//! Linux's answers about the device through netlink (NETLINK_RDMA, linux/rdma_netlink.h), as `rdma link` and
//! others ask: the attributes of each answer. The preload puts the headers around them.

use pumice_platform::limits::ObjectSummary;

use super::SysfsDevice;
use super::live::HARDWARE;

/// Commands that are answered, as `RDMA_NLDEV_CMD_*` numbers them.
pub(super) const DEVICE: u32 = 1;
pub(super) const PORT: u32 = 5;
pub(super) const SYSTEM: u32 = 6;
pub(super) const RESOURCES: u32 = 9;
pub(super) const STATISTICS: u32 = 17;

/// `RDMA_NLDEV_ATTR_*` and `RDMA_NLDEV_SYS_ATTR_*`.
const DEV_INDEX: u16 = 1;
const DEV_NAME: u16 = 2;
const PORT_INDEX: u16 = 3;
const FW_VERSION: u16 = 5;
const NODE_GUID: u16 = 6;
const SYS_IMAGE_GUID: u16 = 7;
const PORT_STATE: u16 = 12;
const PORT_PHYS_STATE: u16 = 13;
const DEV_NODE_TYPE: u16 = 14;
const RES_SUMMARY: u16 = 15;
const RES_SUMMARY_ENTRY: u16 = 16;
const RES_SUMMARY_ENTRY_NAME: u16 = 17;
const RES_SUMMARY_ENTRY_CURR: u16 = 18;
const NDEV_INDEX: u16 = 50;
const NDEV_NAME: u16 = 51;
const NETNS_MODE: u16 = 66;
const DEV_PROTOCOL: u16 = 67;
const HWCOUNTERS: u16 = 80;
const HWCOUNTER_ENTRY: u16 = 81;
const HWCOUNTER_ENTRY_NAME: u16 = 82;
const HWCOUNTER_ENTRY_VALUE: u16 = 83;
const DEV_DIM: u16 = 84;
const COPY_ON_FORK: u16 = 93;
/// `NLA_F_NESTED`.
const NESTED: u16 = 1 << 15;

/// A list of attributes.
#[derive(Default)]
struct NetlinkAttributes(Vec<u8>);

impl NetlinkAttributes {
    fn put(&mut self, kind: u16, value: &[u8]) {
        const HEADER_BYTES: usize = 4;
        // The values are names of devices and interfaces, and lists of a few counters: far below 64 KiB.
        let length = u16::try_from(HEADER_BYTES + value.len()).unwrap_or(u16::MAX);
        self.0.extend_from_slice(&length.to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    fn number(&mut self, kind: u16, value: u32) {
        self.put(kind, &value.to_ne_bytes());
    }

    fn text(&mut self, kind: u16, value: &str) {
        self.put(kind, &[value.as_bytes(), b"\0"].concat());
    }

    fn nested(&mut self, kind: u16, inner: &NetlinkAttributes) {
        self.put(kind | NESTED, &inner.0);
    }

    /// Returns the attributes of the device, with the port's number, or the number of ports, where that
    /// belongs to the answer.
    fn of(device: &SysfsDevice<'_>, port: Option<u8>) -> NetlinkAttributes {
        let mut all = NetlinkAttributes::default();
        // There are 16 devices at most.
        all.number(DEV_INDEX, u32::try_from(device.index).unwrap_or(u32::MAX));
        all.text(DEV_NAME, device.name);
        if let Some(port) = port {
            all.number(PORT_INDEX, port.into());
        }
        all
    }
}

/// Number that is added to a command for its answer about the second port; the preload adds the same.
const OF_SECOND_PORT: u32 = 50;

/// Returns the answers, by command.
pub(super) fn answers(device: &SysfsDevice<'_>) -> Vec<(u32, Vec<u8>)> {
    let mut answers = vec![
        (DEVICE, about_device(device)),
        (PORT, about_port(device, 1)),
        (SYSTEM, about_system()),
        (RESOURCES, about_resources(device)),
        (STATISTICS, about_statistics(device, 1)),
    ];
    if device.second_port.is_some() {
        answers.push((PORT + OF_SECOND_PORT, about_port(device, 2)));
        answers.push((STATISTICS + OF_SECOND_PORT, about_statistics(device, 2)));
    }
    answers.into_iter().map(|(command, attributes)| (command, attributes.0)).collect()
}

fn about_device(device: &SysfsDevice<'_>) -> NetlinkAttributes {
    let guid = u64::from_be_bytes(device.guid).to_ne_bytes();
    let mut all = NetlinkAttributes::of(device, Some(device.port_count()));
    if !device.profile.fw_ver.is_empty() {
        all.text(FW_VERSION, &device.profile.fw_ver);
    }
    all.put(NODE_GUID, &guid);
    all.put(SYS_IMAGE_GUID, &guid);
    all.put(DEV_NODE_TYPE, &[device.profile.node as u8]);
    all.put(DEV_DIM, &[0]);
    all.text(DEV_PROTOCOL, "roce");
    all
}

fn about_port(device: &SysfsDevice<'_>, port_num: u8) -> NetlinkAttributes {
    const ACTIVE: u8 = 4;
    const LINK_UP: u8 = 5;
    let mut all = NetlinkAttributes::of(device, Some(port_num));
    all.put(PORT_STATE, &[ACTIVE]);
    all.put(PORT_PHYS_STATE, &[LINK_UP]);
    if let Some(first) = device.gids_of(port_num).next() {
        let (name, index) = device.interface_of(first);
        all.number(NDEV_INDEX, index);
        all.text(NDEV_NAME, name);
    }
    all
}

fn about_system() -> NetlinkAttributes {
    const SHARED: u8 = 1;
    let mut all = NetlinkAttributes::default();
    all.put(NETNS_MODE, &[SHARED]);
    // Registered memory is memory like other memory: a child has its copy.
    all.put(COPY_ON_FORK, &[1]);
    all
}

/// Returns how many objects the living processes have: the preload replaces the ordinals by the numbers.
fn about_resources(device: &SysfsDevice<'_>) -> NetlinkAttributes {
    let mut all = NetlinkAttributes::of(device, None);
    let mut summary = NetlinkAttributes::default();
    for (kind, ordinal) in ObjectSummary::KINDS.into_iter().zip(0_u64..) {
        let mut entry = NetlinkAttributes::default();
        entry.text(RES_SUMMARY_ENTRY_NAME, kind);
        entry.put(RES_SUMMARY_ENTRY_CURR, &ordinal.to_ne_bytes());
        summary.nested(RES_SUMMARY_ENTRY, &entry);
    }
    all.nested(RES_SUMMARY, &summary);
    all
}

fn about_statistics(device: &SysfsDevice<'_>, port_num: u8) -> NetlinkAttributes {
    let mut all = NetlinkAttributes::of(device, Some(port_num));
    let mut counters = NetlinkAttributes::default();
    for counter_formula in &HARDWARE {
        let mut entry = NetlinkAttributes::default();
        entry.text(HWCOUNTER_ENTRY_NAME, counter_formula.name);
        entry.put(HWCOUNTER_ENTRY_VALUE, &counter_formula.marks().to_ne_bytes());
        counters.nested(HWCOUNTER_ENTRY, &entry);
    }
    all.nested(HWCOUNTERS, &counters);
    all
}

#[cfg(test)]
mod tests {
    use pumice_model::addresses::gid_table::GidEntry;
    use pumice_model::profile::Profile;
    use pumice_transport::types::Mtu;

    use super::*;

    /// Returns kind and value of each attribute.
    fn parse(mut bytes: &[u8]) -> Vec<(u16, &[u8])> {
        let mut found = Vec::new();
        while let Some((&[l0, l1, k0, k1], _)) = bytes.split_first_chunk::<4>() {
            let length = usize::from(u16::from_ne_bytes([l0, l1]));
            found.push((u16::from_ne_bytes([k0, k1]), &bytes[4..length]));
            bytes = &bytes[length.next_multiple_of(4)..];
        }
        found
    }

    #[test]
    fn answers_have_the_attributes_of_linux() {
        let gids = [GidEntry::new([192, 0, 2, 1].into(), "eth0", 7, Mtu::Mtu1024)];
        let profile = Profile::parse("fw_ver = '1.2.3'").unwrap();
        let guid = [0, 0x11, 0x22, 0xff, 0xfe, 0x33, 0x44, 0x55];
        let device = SysfsDevice {
            index: 0,
            name: "pumice0",
            guid,
            profile: &profile,
            gids: &gids,
            counted: None,
            second_port: None,
            netdev: None,
            numa_node: -1,
            pci_address: None,
            processors: None,
        };
        let answers = answers(&device);
        let of = |command| parse(&answers.iter().find(|(other, _)| *other == command).unwrap().1);
        let first = [(DEV_INDEX, &[0, 0, 0, 0][..]), (DEV_NAME, b"pumice0\0"), (PORT_INDEX, &[1, 0, 0, 0])];
        assert_eq!(of(DEVICE)[..3], first);
        assert!(of(DEVICE).contains(&(FW_VERSION, b"1.2.3\0")));
        assert!(
            of(DEVICE).contains(&(NODE_GUID, &[0x55, 0x44, 0x33, 0xfe, 0xff, 0x22, 0x11, 0])),
            "a number"
        );
        assert_eq!(of(PORT)[..3], first);
        assert!(of(PORT).contains(&(PORT_STATE, &[4])) && of(PORT).contains(&(NDEV_INDEX, &[7, 0, 0, 0])));
        assert!(of(PORT).contains(&(NDEV_NAME, b"eth0\0")));
        assert_eq!(of(SYSTEM)[0], (NETNS_MODE, &[1][..]));
        let summary = parse(of(RESOURCES)[2].1);
        assert_eq!((of(RESOURCES)[2].0, summary.len()), (RES_SUMMARY | NESTED, ObjectSummary::KINDS.len()));
        let second = [(RES_SUMMARY_ENTRY_NAME, &b"cq\0"[..]), (RES_SUMMARY_ENTRY_CURR, &1_u64.to_ne_bytes())];
        assert_eq!((summary[1].0, parse(summary[1].1)), (RES_SUMMARY_ENTRY | NESTED, second.to_vec()));
        let statistics = of(STATISTICS);
        let counters = parse(statistics.iter().find(|(kind, _)| *kind == HWCOUNTERS | NESTED).unwrap().1);
        assert_eq!(counters.len(), HARDWARE.len());
        let entry = parse(counters[0].1);
        assert_eq!(entry[0], (HWCOUNTER_ENTRY_NAME, &b"sent_pkts\0"[..]));
        assert_eq!(entry[1], (HWCOUNTER_ENTRY_VALUE, &HARDWARE[0].marks().to_ne_bytes()[..]));
        // The preload has room for 2048 bytes.
        assert!(answers.iter().all(|(_, attributes)| attributes.len() <= 2048));
    }
}
