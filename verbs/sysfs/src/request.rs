//! Netlink messages about RDMA devices, and their attributes.
//!
//! Attributes of netlink messages about RDMA devices (linux/rdma_netlink.h): finds them, and puts numbers
//! into them.

/// `RDMA_NLDEV_ATTR_*`.
pub(crate) const DEV_INDEX: u16 = 1;
pub(crate) const DEV_NAME: u16 = 2;
pub(crate) const PORT_INDEX: u16 = 3;
const PORT_STATE: u16 = 12;
const PORT_PHYS_STATE: u16 = 13;
const RES_SUMMARY: u16 = 15;
const RES_SUMMARY_ENTRY: u16 = 16;
const RES_SUMMARY_ENTRY_CURR: u16 = 18;
pub(crate) const LINK_TYPE: u16 = 65;
pub(crate) const STAT_RES: u16 = 75;
const HWCOUNTERS: u16 = 80;
const HWCOUNTER_ENTRY: u16 = 81;
const HWCOUNTER_ENTRY_VALUE: u16 = 83;
/// Length of the header before the value of an attribute, in bytes.
const ATTRIBUTE_HEADER_BYTES: usize = 4;
/// Mask of the kind of an attribute, without its flags.
const KIND: u16 = 0x3fff;

/// Returns the 16 bits at an offset.
pub(crate) fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes))
}

/// Returns the 32 bits at an offset.
pub(crate) fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

/// A sequence of attributes, each with its kind and value.
pub(crate) struct NetlinkAttributes<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for NetlinkAttributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<(u16, &'a [u8])> {
        let length = usize::from(half(self.0, 0)?);
        let kind = half(self.0, 2)? & KIND;
        let value = self.0.get(ATTRIBUTE_HEADER_BYTES..length)?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    }
}

/// Calls `each` with the value of every attribute of a kind.
fn each_of(attributes: &mut [u8], wanted: u16, each: &mut dyn FnMut(&mut [u8])) {
    let mut rest = attributes;
    while let Some(length) = half(rest, 0).map(usize::from).filter(|length| *length >= ATTRIBUTE_HEADER_BYTES)
    {
        let kind = half(rest, 2).map(|kind| kind & KIND);
        if kind == Some(wanted)
            && let Some(value) = rest.get_mut(ATTRIBUTE_HEADER_BYTES..length)
        {
            each(value);
        }
        rest = rest.get_mut(length.next_multiple_of(4)..).unwrap_or_default();
    }
}

/// Returns the name of the device that attributes are about.
pub(crate) fn device_name(attributes: &[u8]) -> Option<&[u8]> {
    let (_, name) = NetlinkAttributes(attributes).find(|(kind, _)| *kind == DEV_NAME)?;
    let name = name.split(|byte| *byte == 0).next()?;
    (!name.is_empty() && !name.contains(&b'/') && name != b"." && name != b"..").then_some(name)
}

/// Puts the state and the physical state of a port into the attributes that have them.
pub(crate) fn put_states(attributes: &mut [u8], (state, physical): (u8, u8)) {
    for (kind, number) in [(PORT_STATE, state), (PORT_PHYS_STATE, physical)] {
        each_of(attributes, kind, &mut |value| {
            if let Some(first) = value.first_mut() {
                *first = number;
            }
        });
    }
}

/// Puts numbers in place of the marks that say how each number is computed.
pub(crate) fn put_statistics(attributes: &mut [u8], number: &dyn Fn(u64) -> u64) {
    each_of(attributes, HWCOUNTERS, &mut |counters| {
        each_of(counters, HWCOUNTER_ENTRY, &mut |entry| {
            each_of(entry, HWCOUNTER_ENTRY_VALUE, &mut |value| {
                if let Some(value) = value.first_chunk_mut::<8>() {
                    *value = number(u64::from_ne_bytes(*value)).to_ne_bytes();
                }
            });
        });
    });
}

/// Puts numbers of objects in place of their ordinals.
pub(crate) fn put_objects(attributes: &mut [u8], objects: &[u64]) {
    each_of(attributes, RES_SUMMARY, &mut |summary| {
        each_of(summary, RES_SUMMARY_ENTRY, &mut |entry| {
            each_of(entry, RES_SUMMARY_ENTRY_CURR, &mut |value| {
                if let Some(value) = value.first_chunk_mut::<8>() {
                    let ordinal = usize::try_from(u64::from_ne_bytes(*value)).ok();
                    let count = ordinal.and_then(|ordinal| objects.get(ordinal)).copied().unwrap_or(0);
                    *value = count.to_ne_bytes();
                }
            });
        });
    });
}

/// The number of devices in a tree, and a bit for each that is pulled out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct DeviceSet {
    pub(crate) count: u32,
    pub(crate) removed: u64,
}

impl DeviceSet {
    /// Reports whether a device of this index is present.
    pub(crate) const fn has(self, index: u32) -> bool {
        index < self.count && index < u64::BITS && self.removed >> index & 1 == 0
    }
}

/// Length of `nlmsghdr`, in bytes.
pub(crate) const HEADER_BYTES: usize = 16;
/// `NLM_F_ACK`, `NLM_F_DUMP`.
const ACK: u16 = 4;
const DUMP: u16 = 0x300;
/// `RDMA_NL_NLDEV`, above the command.
const CLIENT: u16 = 5;
/// `RDMA_NLDEV_CMD_*`.
pub(crate) const DEVICE: u16 = 1;
const PORT: u16 = 5;
const SYSTEM: u16 = 6;
const RESOURCES: u16 = 9;
const STATISTICS: u16 = 17;
/// Commands that create and remove the link of a software device.
pub(crate) const NEW_LINK: u16 = 3;
pub(crate) const DELETE_LINK: u16 = 4;
/// The last command that reads.
const LAST: u16 = 24;
/// Commands up to the last one that set something instead.
const SETTING: [u16; 6] = [2, 3, 4, 7, 16, 18];
/// Maximum number of ports of a device.
const MAX_PORTS: u32 = 2;
/// Addend to the number of a command in the names of files about second ports, as in
/// `device/analysis/src/sysfs/netlink.rs`.
const OF_SECOND_PORT: u16 = 50;

/// A parsed question.
pub(crate) struct NetlinkRequest<'a> {
    pub(crate) header: &'a [u8; HEADER_BYTES],
    pub(crate) kind: u16,
    flags: u16,
    pub(crate) sequence: u32,
    attributes: &'a [u8],
}

/// The name of a file: the index of a device, and the number of a command or a word.
pub(crate) struct Name {
    bytes: [u8; 16],
    length: usize,
}

impl Name {
    /// Returns the name of the file for a device and a command.
    pub(crate) fn of(device: u32, command: u16) -> Name {
        let mut name = Name::of_device(device, b"");
        name.number(command.into());
        name
    }

    /// Returns the name of the file for a device and a word.
    pub(crate) fn of_device(device: u32, word: &[u8]) -> Name {
        let mut name = Name { bytes: [0; 16], length: 0 };
        name.number(device);
        name.put(b'/');
        word.iter().for_each(|byte| name.put(*byte));
        name
    }

    /// Returns the name of a device in /dev/infiniband.
    pub(crate) fn of_uverbs(device: u32) -> Name {
        let mut name = Name { bytes: [0; 16], length: 0 };
        b"uverbs".iter().for_each(|byte| name.put(*byte));
        name.number(device);
        name
    }

    /// Appends a number below 100.
    fn number(&mut self, number: u32) {
        if number >= 10 {
            self.put(b'0' + (number / 10 % 10) as u8);
        }
        self.put(b'0' + (number % 10) as u8);
    }

    fn put(&mut self, byte: u8) {
        if let Some(next) = self.bytes.get_mut(self.length) {
            *next = byte;
            self.length += 1;
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

impl<'a> NetlinkRequest<'a> {
    /// Parses the first message of what was sent.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<NetlinkRequest<'a>> {
        let header: &[u8; HEADER_BYTES] = bytes.first_chunk()?;
        let length = usize::try_from(word(header, 0)?).ok()?.min(bytes.len());
        Some(NetlinkRequest {
            header,
            kind: half(header, 4)?,
            flags: half(header, 6)?,
            sequence: word(header, 8)?,
            attributes: bytes.get(HEADER_BYTES..length).unwrap_or_default(),
        })
    }

    fn command(&self) -> u16 {
        self.kind & 0x3ff
    }

    /// Reports whether the question asks for a dump of everything.
    pub(crate) fn is_dump(&self) -> bool {
        self.flags & DUMP != 0
    }

    /// Reports whether the question is about the system and not about devices.
    pub(crate) fn is_about_system(&self) -> bool {
        self.command() == SYSTEM
    }

    /// Reports whether the question requests an acknowledgement.
    pub(crate) fn requests_ack(&self) -> bool {
        !self.is_dump() && self.flags & ACK != 0
    }

    fn number(&self, kind: u16) -> Option<u32> {
        let mut found = NetlinkAttributes(self.attributes);
        found.find(|(other, _)| *other == kind).and_then(|(_, value)| word(value, 0))
    }

    pub(crate) fn is_about_statistics(&self) -> bool {
        self.kind >> 10 == CLIENT && self.command() == STATISTICS
    }

    pub(crate) fn is_about_objects(&self) -> bool {
        self.kind >> 10 == CLIENT && self.command() == RESOURCES
    }

    pub(crate) fn is_about_port(&self) -> bool {
        self.kind >> 10 == CLIENT && self.command() == PORT
    }

    /// Returns what `rdma link add` requests: the name of the device, and the type of its link.
    pub(crate) fn new_link(&self) -> Option<(&'a [u8], &'a [u8])> {
        let is_asked = self.kind >> 10 == CLIENT && self.command() == NEW_LINK;
        is_asked.then_some(())?;
        Some((device_name(self.attributes)?, self.text(LINK_TYPE)?))
    }

    /// Reports whether the question is `rdma link delete` for a device that is present.
    pub(crate) fn deletes_link(&self, devices: DeviceSet) -> bool {
        let device = self.number(DEV_INDEX);
        self.kind >> 10 == CLIENT
            && self.command() == DELETE_LINK
            && device.is_some_and(|index| devices.has(index))
    }

    /// Returns the value of an attribute that is a text.
    fn text(&self, kind: u16) -> Option<&'a [u8]> {
        let (_, value) = NetlinkAttributes(self.attributes).find(|(other, _)| *other == kind)?;
        value.split(|byte| *byte == 0).next()
    }

    /// Reports whether the answer is about a port, rather than a device or the system.
    fn is_about_ports(&self) -> bool {
        matches!(self.command(), PORT | STATISTICS)
    }

    /// Checks the question against these devices, and returns the error as Linux does: a positive errno.
    pub(crate) fn fault(&self, devices: DeviceSet) -> Option<i32> {
        let command = self.command();
        if self.kind >> 10 != CLIENT || command == 0 || command > LAST {
            return Some(libc::EINVAL);
        }
        if SETTING.contains(&command) {
            return Some(libc::EOPNOTSUPP);
        }
        if self.is_about_system() {
            return None;
        }
        let device = self.number(DEV_INDEX);
        let port = self.number(PORT_INDEX);
        // A dump need not name a device; one that is named must be present.
        let wrong_device = device.map_or(!self.is_dump(), |index| !devices.has(index));
        let is_port = |port: u32| (1..=MAX_PORTS).contains(&port);
        let wrong_port = self.is_about_ports() && !self.is_dump() && !port.is_some_and(is_port);
        (wrong_device || wrong_port).then_some(libc::EINVAL)
    }

    /// Returns the file of the tree with the attributes of the answer for a device; `None` if there is no
    /// answer.
    pub(crate) fn file_name(&self, (device, port): (u32, u32)) -> Option<Name> {
        // No queue pair or region is bound to a counter, so there are no such statistics.
        let is_absent = self.is_about_statistics() && self.number(STAT_RES).is_some();
        let of_port = if port == 1 { 0 } else { OF_SECOND_PORT };
        (!is_absent).then(|| Name::of(device, self.command() + of_port))
    }

    /// Returns the range of the devices that the answer is about, without its end.
    pub(crate) fn about(&self, devices: u32) -> (u32, u32) {
        match self.number(DEV_INDEX) {
            _ if self.is_about_system() => (0, 1),
            Some(one) => (one, one.saturating_add(1)),
            None => (0, devices),
        }
    }

    /// Returns the range of the ports of each device that the answer is about, without its end; a device may
    /// have fewer.
    pub(crate) fn ports(&self) -> (u32, u32) {
        match self.number(PORT_INDEX) {
            _ if !self.is_about_ports() => (1, 2),
            Some(one) if !self.is_dump() => (one, one + 1),
            _ => (1, MAX_PORTS + 1),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns an attribute as bytes.
    pub(crate) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = [(4 + value.len() as u16).to_ne_bytes(), kind.to_ne_bytes()].concat();
        bytes.extend_from_slice(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn states_of_ports_and_names_are_found() {
        let name = attribute(DEV_NAME, b"mlx5_3\0");
        let states = |state: u8, physical: u8| {
            [name.clone(), attribute(PORT_STATE, &[state]), attribute(PORT_PHYS_STATE, &[physical])].concat()
        };
        let mut attributes = states(4, 5);
        put_states(&mut attributes, (1, 3));
        assert_eq!(attributes, states(1, 3));
        assert_eq!(device_name(&attributes), Some(&b"mlx5_3"[..]));
        for wrong in [&b"\0"[..], b"", b"..\0", b"a/b\0"] {
            assert_eq!(device_name(&attribute(DEV_NAME, wrong)), None);
        }
    }

    #[test]
    fn statistics_get_their_numbers() {
        let entry = |value: u64| {
            attribute(
                HWCOUNTER_ENTRY | 1 << 15,
                &[attribute(82, b"x\0"), attribute(83, &value.to_ne_bytes())].concat(),
            )
        };
        let build = |values: [u64; 2]| {
            let counters = attribute(HWCOUNTERS | 1 << 15, &values.map(entry).concat());
            [attribute(DEV_INDEX, &[0; 4]), counters].concat()
        };
        let mut attributes = build([3, 9]);
        put_statistics(&mut attributes, &|marks| marks * 100);
        assert_eq!(attributes, build([300, 900]));
    }

    #[test]
    fn objects_get_their_numbers() {
        let entry = |value: u64| {
            let parts = [attribute(17, b"qp\0"), attribute(RES_SUMMARY_ENTRY_CURR, &value.to_ne_bytes())];
            attribute(RES_SUMMARY_ENTRY | 1 << 15, &parts.concat())
        };
        let build = |values: [u64; 3]| attribute(RES_SUMMARY | 1 << 15, &values.map(entry).concat());
        let mut attributes = build([0, 1, 9]);
        put_objects(&mut attributes, &[12, 3]);
        assert_eq!(attributes, build([12, 3, 0]));
    }
}
