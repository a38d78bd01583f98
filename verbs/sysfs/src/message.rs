//! Netlink messages about RDMA devices: what a question asks, and the messages of an answer (linux/netlink.h,
//! linux/rdma_netlink.h).

/// How many devices a tree has, and a bit for each that is pulled out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Devices {
    pub(crate) count: u32,
    pub(crate) gone: u64,
}

impl Devices {
    /// Whether there is a device of this index.
    pub(crate) const fn has(self, index: u32) -> bool {
        index < self.count && index < u64::BITS && self.gone >> index & 1 == 0
    }
}

/// Room for the attributes of an answer.
pub(crate) const ATTRIBUTES_BYTES: usize = 2048;
const HEADER_BYTES: usize = 16;
const ATTRIBUTE_HEADER_BYTES: usize = 4;
/// `NLMSG_ERROR`, `NLMSG_DONE`.
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// `NLM_F_MULTI`, `NLM_F_ACK`, `NLM_F_DUMP`.
const MULTI: u16 = 2;
const ACK: u16 = 4;
const DUMP: u16 = 0x300;
/// `RDMA_NL_NLDEV`, above the command.
const CLIENT: u16 = 5;
/// `RDMA_NLDEV_CMD_*`.
const DEVICE: u16 = 1;
const PORT: u16 = 5;
const SYSTEM: u16 = 6;
const RESOURCES: u16 = 9;
const STATISTICS: u16 = 17;
/// Those that make and remove the link of a software device.
const NEW_LINK: u16 = 3;
const DELETE_LINK: u16 = 4;
/// Of commands that read, the last; and those among them that set something.
const LAST: u16 = 24;
const SETTING: [u16; 6] = [2, 3, 4, 7, 16, 18];
/// `RDMA_NLDEV_ATTR_*`.
const DEV_INDEX: u16 = 1;
const DEV_NAME: u16 = 2;
const PORT_INDEX: u16 = 3;
const PORT_STATE: u16 = 12;
const PORT_PHYS_STATE: u16 = 13;
const RES_SUMMARY: u16 = 15;
const RES_SUMMARY_ENTRY: u16 = 16;
const RES_SUMMARY_ENTRY_CURR: u16 = 18;
const LINK_TYPE: u16 = 65;
const STAT_RES: u16 = 75;
const HWCOUNTERS: u16 = 80;
const HWCOUNTER_ENTRY: u16 = 81;
const HWCOUNTER_ENTRY_VALUE: u16 = 83;
/// Ports of a device at most.
const MOST_PORTS: u32 = 2;
/// What is added to the number of a command in the names of files about second ports:
/// `device/instruments/src/sysfs/netlink.rs` adds it.
const OF_SECOND_PORT: u16 = 50;
/// What is below the flags of an attribute's kind.
const KIND: u16 = 0x3fff;

/// A question.
pub(crate) struct NetlinkRequest<'a> {
    header: &'a [u8; HEADER_BYTES],
    kind: u16,
    flags: u16,
    sequence: u32,
    attributes: &'a [u8],
}

/// The name of a file: the index of a device, and the number of a command or a word.
pub(crate) struct Name {
    bytes: [u8; 16],
    length: usize,
}

impl Name {
    /// Of a device and a command.
    fn of(device: u32, command: u16) -> Name {
        let mut name = Name::of_device(device, b"");
        name.number(command.into());
        name
    }

    /// Of a device and a word.
    pub(crate) fn of_device(device: u32, word: &[u8]) -> Name {
        let mut name = Name { bytes: [0; 16], length: 0 };
        name.number(device);
        name.put(b'/');
        word.iter().for_each(|byte| name.put(*byte));
        name
    }

    /// That of a device among those of /dev/infiniband.
    pub(crate) fn of_uverbs(device: u32) -> Name {
        let mut name = Name { bytes: [0; 16], length: 0 };
        b"uverbs".iter().for_each(|byte| name.put(*byte));
        name.number(device);
        name
    }

    /// A number below 100.
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

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

impl<'a> NetlinkRequest<'a> {
    /// The first message of what was sent.
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

    fn is_dump(&self) -> bool {
        self.flags & DUMP != 0
    }

    fn number(&self, kind: u16) -> Option<u32> {
        let mut found = Attributes(self.attributes);
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

    /// What `rdma link add` asks for: the name of the device, and of which type its link is to be.
    pub(crate) fn new_link(&self) -> Option<(&'a [u8], &'a [u8])> {
        let is_asked = self.kind >> 10 == CLIENT && self.command() == NEW_LINK;
        is_asked.then_some(())?;
        Some((device_name(self.attributes)?, self.text(LINK_TYPE)?))
    }

    /// Whether it is `rdma link delete` of a device that is there.
    fn deletes_link(&self, devices: Devices) -> bool {
        let device = self.number(DEV_INDEX);
        self.kind >> 10 == CLIENT
            && self.command() == DELETE_LINK
            && device.is_some_and(|index| devices.has(index))
    }

    /// The value of an attribute that is a text.
    fn text(&self, kind: u16) -> Option<&'a [u8]> {
        let (_, value) = Attributes(self.attributes).find(|(other, _)| *other == kind)?;
        value.split(|byte| *byte == 0).next()
    }

    /// Whether its answer is about a port, and not about a device or the system.
    fn is_about_ports(&self) -> bool {
        matches!(self.command(), PORT | STATISTICS)
    }

    /// What is wrong with it where there are these devices, as Linux says it: a positive errno.
    fn fault(&self, devices: Devices) -> Option<i32> {
        let command = self.command();
        if self.kind >> 10 != CLIENT || command == 0 || command > LAST {
            return Some(libc::EINVAL);
        }
        if SETTING.contains(&command) {
            return Some(libc::EOPNOTSUPP);
        }
        if command == SYSTEM {
            return None;
        }
        let device = self.number(DEV_INDEX);
        let port = self.number(PORT_INDEX);
        // A dump need not name a device; one that is named must be there.
        let wrong_device = device.map_or(!self.is_dump(), |index| !devices.has(index));
        let is_port = |port: u32| (1..=MOST_PORTS).contains(&port);
        let wrong_port = self.is_about_ports() && !self.is_dump() && !port.is_some_and(is_port);
        (wrong_device || wrong_port).then_some(libc::EINVAL)
    }

    /// The file of the tree with the attributes of the answer for a device; none for what is not there.
    fn file_name(&self, (device, port): (u32, u32)) -> Option<Name> {
        // Statistics of queue pairs or regions: none is bound to a counter.
        let is_absent = self.is_about_statistics() && self.number(STAT_RES).is_some();
        let of_port = if port == 1 { 0 } else { OF_SECOND_PORT };
        (!is_absent).then(|| Name::of(device, self.command() + of_port))
    }

    /// The devices that the answer is about, from the first up to the one before the last.
    fn about(&self, devices: u32) -> (u32, u32) {
        match self.number(DEV_INDEX) {
            _ if self.command() == SYSTEM => (0, 1),
            Some(one) => (one, one.saturating_add(1)),
            None => (0, devices),
        }
    }

    /// The ports of each device that the answer is about, as above; a device may have fewer.
    fn ports(&self) -> (u32, u32) {
        match self.number(PORT_INDEX) {
            _ if !self.is_about_ports() => (1, 2),
            Some(one) if !self.is_dump() => (one, one + 1),
            _ => (1, MOST_PORTS + 1),
        }
    }
}

/// Attributes one after the other: kind and value.
struct Attributes<'a>(&'a [u8]);

impl<'a> Iterator for Attributes<'a> {
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

/// The name of the device that attributes are about.
pub(crate) fn device_name(attributes: &[u8]) -> Option<&[u8]> {
    let (_, name) = Attributes(attributes).find(|(kind, _)| *kind == DEV_NAME)?;
    let name = name.split(|byte| *byte == 0).next()?;
    (!name.is_empty() && !name.contains(&b'/') && name != b"." && name != b"..").then_some(name)
}

/// Puts the state and the physical state of a port where the attributes have them.
pub(crate) fn put_states(attributes: &mut [u8], (state, physical): (u8, u8)) {
    for (kind, number) in [(PORT_STATE, state), (PORT_PHYS_STATE, physical)] {
        each_of(attributes, kind, &mut |value| {
            if let Some(first) = value.first_mut() {
                *first = number;
            }
        });
    }
}

/// Puts numbers where the attributes have the marks of what they are made of.
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

/// Puts numbers of objects where the attributes have their ordinals.
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

/// Messages that go out together.
struct Out {
    bytes: [u8; ATTRIBUTES_BYTES + 128],
    length: usize,
}

impl Out {
    const fn new() -> Out {
        Out { bytes: [0; ATTRIBUTES_BYTES + 128], length: 0 }
    }

    fn put(&mut self, bytes: &[u8]) {
        let end = self.length.saturating_add(bytes.len());
        if let Some(room) = self.bytes.get_mut(self.length..end) {
            room.copy_from_slice(bytes);
            self.length = end;
        }
    }

    /// Whether there is room for a message with so many bytes of attributes, and for the end of a dump.
    const fn has_room(&self, attributes: usize) -> bool {
        self.length + 2 * HEADER_BYTES + size_of::<i32>() + attributes <= self.bytes.len()
    }

    fn message(&mut self, request: &NetlinkRequest<'_>, port: u32, kind: u16, flags: u16, parts: [&[u8]; 2]) {
        let length = parts.iter().fold(HEADER_BYTES, |length, part| length.saturating_add(part.len()));
        self.put(&(length as u32).to_ne_bytes());
        self.put(&kind.to_ne_bytes());
        self.put(&flags.to_ne_bytes());
        self.put(&request.sequence.to_ne_bytes());
        self.put(&port.to_ne_bytes());
        parts.iter().for_each(|part| self.put(part));
    }

    fn all(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

/// What finds the attributes that the tree has for a device: a file, the device's index and its port, and
/// room for what is in the file. None: there is no such file.
pub(crate) type Find<'a> = &'a mut dyn FnMut(&Name, (u32, u32), &mut [u8]) -> Option<usize>;

/// Whether a question is to make a link of a device that is there already.
pub(crate) fn has_link(request: &NetlinkRequest<'_>, devices: Devices, find: Find<'_>) -> bool {
    let Some((wanted, _)) = request.new_link() else { return false };
    let mut attributes = [0_u8; ATTRIBUTES_BYTES];
    (0..devices.count).filter(|device| devices.has(*device)).any(|device| {
        let length = find(&Name::of(device, DEVICE), (device, 1), &mut attributes);
        let found = length.and_then(|length| attributes.get(..length));
        found.and_then(device_name) == Some(wanted)
    })
}

/// The answer to a question where there are these devices. `send` is called once per datagram, of which a
/// dump may have several.
pub(crate) fn answers(
    request: &NetlinkRequest<'_>,
    port: u32,
    devices: Devices,
    find: Find<'_>,
    send: &mut dyn FnMut(&[u8]),
) {
    let refuse = |errno: i32, send: &mut dyn FnMut(&[u8])| {
        let mut out = Out::new();
        out.message(request, port, ERROR, 0, [&(-errno).to_ne_bytes(), request.header]);
        send(out.all());
    };
    // The device is there without a link, and stays without one: scripts for rdma_rxe go on.
    if has_link(request, devices, &mut *find) || request.deletes_link(devices) {
        return refuse(0, send);
    }
    if let Some(errno) = request.fault(devices) {
        return refuse(errno, send);
    }
    let (flags, (first, end)) = (if request.is_dump() { MULTI } else { 0 }, request.about(devices.count));
    let mut attributes = [0_u8; ATTRIBUTES_BYTES];
    let mut out = Out::new();
    let (first_port, end_port) = request.ports();
    let ports = (first..end).flat_map(|device| (first_port..end_port).map(move |port| (device, port)));
    for whose in ports {
        let (device, port_num) = whose;
        if request.command() != SYSTEM && !devices.has(device) {
            continue;
        }
        let length = request.file_name(whose).and_then(|name| find(&name, whose, &mut attributes));
        match length.and_then(|length| attributes.get(..length)) {
            Some(found) => {
                if !out.has_room(found.len()) {
                    send(out.all());
                    out = Out::new();
                }
                out.message(request, port, request.kind, flags, [found, &[]]);
            }
            None if request.is_dump() => {}
            // The device has no second port.
            None if port_num > 1 => return refuse(libc::EINVAL, send),
            None => return refuse(libc::EOPNOTSUPP, send),
        }
    }
    if request.is_dump() {
        out.message(request, port, DONE, MULTI, [&0_i32.to_ne_bytes(), &[]]);
    }
    send(out.all());
    if !request.is_dump() && request.flags & ACK != 0 {
        let mut ack = Out::new();
        ack.message(request, port, ERROR, 0, [&0_i32.to_ne_bytes(), request.header]);
        send(ack.all());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = [(4 + value.len() as u16).to_ne_bytes(), kind.to_ne_bytes()].concat();
        bytes.extend_from_slice(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn question(command: u16, flags: u16, attributes: &[u8]) -> Vec<u8> {
        let mut bytes = (16 + attributes.len() as u32).to_ne_bytes().to_vec();
        bytes.extend((5_u16 << 10 | command).to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend(77_u32.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes.extend_from_slice(attributes);
        bytes
    }

    /// Kind, flags and what comes behind the header of each message, where a tree has these files.
    fn answered_from(question: &[u8], devices: u32, files: &[(&str, &[u8])]) -> Vec<(u16, u16, Vec<u8>)> {
        let mut messages = Vec::new();
        let mut find = |name: &Name, _: (u32, u32), room: &mut [u8]| {
            let (_, found) = files.iter().find(|(file, _)| file.as_bytes() == name.bytes())?;
            room[..found.len()].copy_from_slice(found);
            Some(found.len())
        };
        let devices = Devices { count: devices, gone: 0 };
        answers(&NetlinkRequest::parse(question).unwrap(), 4711, devices, &mut find, &mut |mut bytes| {
            while !bytes.is_empty() {
                let length = word(bytes, 0).unwrap() as usize;
                assert_eq!((word(bytes, 8), word(bytes, 12)), (Some(77), Some(4711)));
                let (kind, flags) = (half(bytes, 4).unwrap(), half(bytes, 6).unwrap());
                messages.push((kind, flags, bytes[16..length].to_vec()));
                bytes = &bytes[length..];
            }
        });
        messages
    }

    #[test]
    fn a_dump_ends_with_done_and_a_question_with_what_it_asked_for() {
        let device = attribute(DEV_INDEX, &[0; 4]);
        let kind = 5 << 10 | 1;
        let second = attribute(DEV_INDEX, &[1, 0, 0, 0]);
        let files = [("0/1", device.as_slice()), ("1/1", &second), ("0/6", b"all"), ("11/17", b"eleven")];
        let done = (DONE, MULTI, vec![0; 4]);
        let dump = question(1, 0x301, &[]);
        let both = [(kind, MULTI, device.clone()), (kind, MULTI, second.clone()), done.clone()];
        assert_eq!(answered_from(&dump, 2, &files), both);
        let of_one = question(1, 0x301, &second);
        assert_eq!(answered_from(&of_one, 2, &files), [(kind, MULTI, second.clone()), done.clone()]);
        assert_eq!(answered_from(&question(10, 0x301, &[]), 2, &files), [done]);
        let one = question(1, 5, &second);
        let header = one[..16].to_vec();
        let acknowledged = [vec![0; 4], header].concat();
        let expected = [(kind, 0, second.clone()), (ERROR, 0, acknowledged)];
        assert_eq!(answered_from(&one, 2, &files), expected);
        assert_eq!(answered_from(&question(1, 1, &device), 2, &files).len(), 1);
        let system = question(6, 1, &[]);
        assert_eq!(answered_from(&system, 2, &files), [(5 << 10 | 6, 0, b"all".to_vec())]);
        let port = [attribute(DEV_INDEX, &[11, 0, 0, 0]), attribute(PORT_INDEX, &[1, 0, 0, 0])].concat();
        assert_eq!(answered_from(&question(17, 1, &port), 12, &files)[0].2, b"eleven");
    }

    #[test]
    fn a_device_that_is_pulled_out_is_not_answered_for() {
        let devices = Devices { count: 3, gone: 0b010 };
        let ask = |question: &[u8]| {
            let (mut asked, mut first) = (Vec::new(), Vec::new());
            let mut find = |_: &Name, (device, _): (u32, u32), _: &mut [u8]| {
                asked.push(device);
                Some(0)
            };
            answers(&NetlinkRequest::parse(question).unwrap(), 1, devices, &mut find, &mut |bytes| {
                first.push((half(bytes, 4).unwrap(), word(bytes, 16)));
            });
            (asked, first)
        };
        assert_eq!(ask(&question(1, 0x301, &[])).0, [0, 2]);
        let of = |index: u32| attribute(DEV_INDEX, &index.to_ne_bytes());
        assert_eq!(ask(&question(1, 1, &of(2))).0, [2]);
        assert_eq!(ask(&question(1, 1, &of(1))), (vec![], vec![(ERROR, Some(-libc::EINVAL as u32))]));
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
    fn a_dump_of_many_devices_is_whole() {
        let long = [7; 1500];
        let names: Vec<String> = (0..16).map(|device| format!("{device}/1")).collect();
        let files: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), &long[..])).collect();
        let messages = answered_from(&question(1, 0x301, &[]), 16, &files);
        assert_eq!(messages.len(), 17);
        assert!(messages[..16].iter().all(|(_, flags, body)| *flags == MULTI && body[..] == long));
        assert_eq!(messages[16].0, DONE);
    }

    #[test]
    fn faults_are_those_of_linux() {
        let device = |index: u32| attribute(DEV_INDEX, &index.to_ne_bytes());
        let port = |index: u32| [device(0), attribute(PORT_INDEX, &index.to_ne_bytes())].concat();
        for (question, errno) in [
            (question(1, 5, &[]), libc::EINVAL),
            (question(1, 5, &device(1)), libc::EINVAL),
            (question(5, 5, &port(2)), libc::EINVAL),
            (question(17, 5, &device(0)), libc::EINVAL),
            (question(2, 5, &device(0)), libc::EOPNOTSUPP),
            (question(15, 5, &device(0)), libc::EOPNOTSUPP),
            (question(99, 5, &device(0)), libc::EINVAL),
        ] {
            let messages = answered_from(&question, 1, &[]);
            assert_eq!(messages.len(), 1);
            let (kind, _, body) = &messages[0];
            assert_eq!((*kind, word(body, 0)), (ERROR, Some((-errno) as u32)), "{question:?}");
        }
        let of_second = question(5, 5, &port(2));
        assert_eq!(answered_from(&of_second, 1, &[("0/5", b"one"), ("0/55", b"two")])[0].2, b"two");
        let all = question(5, 0x301, &device(0));
        let answered = answered_from(&all, 1, &[("0/5", b"one"), ("0/55", b"two")]);
        assert_eq!(
            answered.iter().map(|(_, _, body)| body.clone()).collect::<Vec<_>>(),
            [b"one".to_vec(), b"two".to_vec(), vec![0; 4]]
        );
        let fine = question(5, 5, &port(1));
        assert_eq!(answered_from(&fine, 1, &[("0/5", b"port")])[0].2, b"port");
        let of_queue_pairs = question(17, 0x301, &attribute(STAT_RES, &[0; 4]));
        assert_eq!(answered_from(&of_queue_pairs, 1, &[("0/17", b"numbers")]).len(), 1, "an empty dump");
    }

    #[test]
    fn a_link_is_there_for_the_devices_that_are() {
        let device = attribute(DEV_NAME, b"rxe0\0");
        let add = |name: &[u8]| {
            let attributes = [attribute(DEV_NAME, name), attribute(LINK_TYPE, b"rxe\0")].concat();
            question(NEW_LINK, 5, &attributes)
        };
        let index = |device: u32| question(DELETE_LINK, 5, &attribute(DEV_INDEX, &device.to_ne_bytes()));
        for (question, errno) in [
            (add(b"rxe0\0"), 0),
            (add(b"rxe1\0"), libc::EOPNOTSUPP),
            (question(NEW_LINK, 5, &[]), libc::EOPNOTSUPP),
            (index(0), 0),
            (index(1), libc::EOPNOTSUPP),
        ] {
            let messages = answered_from(&question, 1, &[("0/1", &device[..])]);
            assert_eq!(messages.len(), 1);
            assert_eq!((messages[0].0, word(&messages[0].2, 0)), (ERROR, Some((-errno) as u32)));
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

    #[test]
    fn nonsense_is_read_without_harm() {
        let good = question(17, 5, &attribute(DEV_INDEX, &[0; 4]));
        for length in 0..good.len() {
            if let Some(request) = NetlinkRequest::parse(&good[..length]) {
                answers(&request, 1, Devices { count: 1, gone: 0 }, &mut |_, _, _| None, &mut |_| {});
            }
        }
        for offset in 0..good.len() {
            for value in [0, 1, 3, 0xff] {
                let mut bad = good.clone();
                bad[offset] = value;
                let request = NetlinkRequest::parse(&bad).unwrap();
                let devices = Devices { count: 16, gone: 5 };
                answers(&request, 1, devices, &mut |_, _, room| Some(room.len()), &mut |_| {});
                put_statistics(&mut bad, &|marks| marks);
                put_objects(&mut bad, &[1, 2]);
                put_states(&mut bad, (1, 3));
                device_name(&bad);
            }
        }
    }
}
