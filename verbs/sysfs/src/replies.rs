//! Answers to questions about RDMA devices, as netlink messages (linux/netlink.h).

use crate::request::{DEVICE, DeviceSet, HEADER_BYTES, Name, NetlinkRequest, device_name};

/// Size of the buffer for the attributes of an answer, in bytes.
const ATTRIBUTES_BYTES: usize = 2048;
/// `NLMSG_ERROR`, `NLMSG_DONE`.
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// `NLM_F_MULTI`.
const MULTI: u16 = 2;

/// Messages that are sent together.
struct ReplyBuffer {
    bytes: [u8; ATTRIBUTES_BYTES + 128],
    length: usize,
}

impl ReplyBuffer {
    const fn new() -> ReplyBuffer {
        ReplyBuffer { bytes: [0; ATTRIBUTES_BYTES + 128], length: 0 }
    }

    fn put(&mut self, bytes: &[u8]) {
        let end = self.length.saturating_add(bytes.len());
        if let Some(room) = self.bytes.get_mut(self.length..end) {
            room.copy_from_slice(bytes);
            self.length = end;
        }
    }

    /// Reports whether there is room for a message with `attributes` bytes of attributes, and for the end of
    /// a dump.
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

/// A function that finds the attributes that the tree has for a device: it takes a file, the device's index
/// and its port, and a buffer for the contents of the file. It returns `None` if there is no such file.
pub(crate) type FindFile<'a> = &'a mut dyn FnMut(&Name, (u32, u32), &mut [u8]) -> Option<usize>;

/// Reports whether a question is to create a link of a device that exists already.
pub(crate) fn has_link(request: &NetlinkRequest<'_>, devices: DeviceSet, find: FindFile<'_>) -> bool {
    let Some((wanted, _)) = request.new_link() else { return false };
    let mut attributes = [0_u8; ATTRIBUTES_BYTES];
    (0..devices.count).filter(|device| devices.has(*device)).any(|device| {
        let length = find(&Name::of(device, DEVICE), (device, 1), &mut attributes);
        let found = length.and_then(|length| attributes.get(..length));
        found.and_then(device_name) == Some(wanted)
    })
}

/// Answers a question about these devices. `send` is called once per datagram, of which a dump may have
/// several.
pub(crate) fn replies(
    request: &NetlinkRequest<'_>,
    port: u32,
    devices: DeviceSet,
    find: FindFile<'_>,
    send: &mut dyn FnMut(&[u8]),
) {
    let refuse = |errno: i32, send: &mut dyn FnMut(&[u8])| {
        let mut out = ReplyBuffer::new();
        out.message(request, port, ERROR, 0, [&(-errno).to_ne_bytes(), request.header]);
        send(out.all());
    };
    // The device exists without a link, and stays without one: scripts for rdma_rxe can continue.
    if has_link(request, devices, &mut *find) || request.deletes_link(devices) {
        return refuse(0, send);
    }
    if let Some(errno) = request.fault(devices) {
        return refuse(errno, send);
    }
    let (flags, (first, end)) = (if request.is_dump() { MULTI } else { 0 }, request.about(devices.count));
    let mut attributes = [0_u8; ATTRIBUTES_BYTES];
    let mut out = ReplyBuffer::new();
    let (first_port, end_port) = request.ports();
    let ports = (first..end).flat_map(|device| (first_port..end_port).map(move |port| (device, port)));
    for whose in ports {
        let (device, port_num) = whose;
        if !request.is_about_system() && !devices.has(device) {
            continue;
        }
        let length = request.file_name(whose).and_then(|name| find(&name, whose, &mut attributes));
        match length.and_then(|length| attributes.get(..length)) {
            Some(found) => {
                if !out.has_room(found.len()) {
                    send(out.all());
                    out = ReplyBuffer::new();
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
    if request.requests_ack() {
        let mut ack = ReplyBuffer::new();
        ack.message(request, port, ERROR, 0, [&0_i32.to_ne_bytes(), request.header]);
        send(ack.all());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::tests::attribute;
    use crate::request::{
        DELETE_LINK, DEV_INDEX, DEV_NAME, LINK_TYPE, NEW_LINK, PORT_INDEX, STAT_RES, half, put_objects,
        put_states, put_statistics, word,
    };

    fn question(command: u16, flags: u16, attributes: &[u8]) -> Vec<u8> {
        let mut bytes = (16 + attributes.len() as u32).to_ne_bytes().to_vec();
        bytes.extend((5_u16 << 10 | command).to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend(77_u32.to_ne_bytes());
        bytes.extend([0; 4]);
        bytes.extend_from_slice(attributes);
        bytes
    }

    /// Returns kind, flags and contents behind the header of each message, for a tree with these files.
    fn replies_from(question: &[u8], devices: u32, files: &[(&str, &[u8])]) -> Vec<(u16, u16, Vec<u8>)> {
        let mut messages = Vec::new();
        let mut find = |name: &Name, _: (u32, u32), room: &mut [u8]| {
            let (_, found) = files.iter().find(|(file, _)| file.as_bytes() == name.bytes())?;
            room[..found.len()].copy_from_slice(found);
            Some(found.len())
        };
        let devices = DeviceSet { count: devices, removed: 0 };
        replies(&NetlinkRequest::parse(question).unwrap(), 4711, devices, &mut find, &mut |mut bytes| {
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
        assert_eq!(replies_from(&dump, 2, &files), both);
        let of_one = question(1, 0x301, &second);
        assert_eq!(replies_from(&of_one, 2, &files), [(kind, MULTI, second.clone()), done.clone()]);
        assert_eq!(replies_from(&question(10, 0x301, &[]), 2, &files), [done]);
        let one = question(1, 5, &second);
        let header = one[..16].to_vec();
        let acknowledged = [vec![0; 4], header].concat();
        let expected = [(kind, 0, second.clone()), (ERROR, 0, acknowledged)];
        assert_eq!(replies_from(&one, 2, &files), expected);
        assert_eq!(replies_from(&question(1, 1, &device), 2, &files).len(), 1);
        let system = question(6, 1, &[]);
        assert_eq!(replies_from(&system, 2, &files), [(5 << 10 | 6, 0, b"all".to_vec())]);
        let port = [attribute(DEV_INDEX, &[11, 0, 0, 0]), attribute(PORT_INDEX, &[1, 0, 0, 0])].concat();
        assert_eq!(replies_from(&question(17, 1, &port), 12, &files)[0].2, b"eleven");
    }

    #[test]
    fn a_device_that_is_pulled_out_is_not_answered_for() {
        let devices = DeviceSet { count: 3, removed: 0b010 };
        let handle_question = |question: &[u8]| {
            let (mut asked, mut first) = (Vec::new(), Vec::new());
            let mut find = |_: &Name, (device, _): (u32, u32), _: &mut [u8]| {
                asked.push(device);
                Some(0)
            };
            replies(&NetlinkRequest::parse(question).unwrap(), 1, devices, &mut find, &mut |bytes| {
                first.push((half(bytes, 4).unwrap(), word(bytes, 16)));
            });
            (asked, first)
        };
        assert_eq!(handle_question(&question(1, 0x301, &[])).0, [0, 2]);
        let of = |index: u32| attribute(DEV_INDEX, &index.to_ne_bytes());
        assert_eq!(handle_question(&question(1, 1, &of(2))).0, [2]);
        assert_eq!(
            handle_question(&question(1, 1, &of(1))),
            (vec![], vec![(ERROR, Some(-libc::EINVAL as u32))])
        );
    }

    #[test]
    fn a_dump_of_many_devices_is_whole() {
        let long = [7; 1500];
        let names: Vec<String> = (0..16).map(|device| format!("{device}/1")).collect();
        let files: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), &long[..])).collect();
        let messages = replies_from(&question(1, 0x301, &[]), 16, &files);
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
            let messages = replies_from(&question, 1, &[]);
            assert_eq!(messages.len(), 1);
            let (kind, _, body) = &messages[0];
            assert_eq!((*kind, word(body, 0)), (ERROR, Some((-errno) as u32)), "{question:?}");
        }
        let of_second = question(5, 5, &port(2));
        assert_eq!(replies_from(&of_second, 1, &[("0/5", b"one"), ("0/55", b"two")])[0].2, b"two");
        let all = question(5, 0x301, &device(0));
        let answered = replies_from(&all, 1, &[("0/5", b"one"), ("0/55", b"two")]);
        assert_eq!(
            answered.iter().map(|(_, _, body)| body.clone()).collect::<Vec<_>>(),
            [b"one".to_vec(), b"two".to_vec(), vec![0; 4]]
        );
        let fine = question(5, 5, &port(1));
        assert_eq!(replies_from(&fine, 1, &[("0/5", b"port")])[0].2, b"port");
        let of_queue_pairs = question(17, 0x301, &attribute(STAT_RES, &[0; 4]));
        assert_eq!(replies_from(&of_queue_pairs, 1, &[("0/17", b"numbers")]).len(), 1, "an empty dump");
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
            let messages = replies_from(&question, 1, &[("0/1", &device[..])]);
            assert_eq!(messages.len(), 1);
            assert_eq!((messages[0].0, word(&messages[0].2, 0)), (ERROR, Some((-errno) as u32)));
        }
    }

    #[test]
    fn nonsense_is_read_without_harm() {
        let good = question(17, 5, &attribute(DEV_INDEX, &[0; 4]));
        for length in 0..good.len() {
            if let Some(request) = NetlinkRequest::parse(&good[..length]) {
                replies(&request, 1, DeviceSet { count: 1, removed: 0 }, &mut |_, _, _| None, &mut |_| {});
            }
        }
        for offset in 0..good.len() {
            for value in [0, 1, 3, 0xff] {
                let mut bad = good.clone();
                bad[offset] = value;
                let request = NetlinkRequest::parse(&bad).unwrap();
                let devices = DeviceSet { count: 16, removed: 5 };
                replies(&request, 1, devices, &mut |_, _, room| Some(room.len()), &mut |_| {});
                put_statistics(&mut bad, &|marks| marks);
                put_objects(&mut bad, &[1, 2]);
                put_states(&mut bad, (1, 3));
                device_name(&bad);
            }
        }
    }
}
