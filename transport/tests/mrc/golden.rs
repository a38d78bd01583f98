//! Headers and whole packets as the files of `tests/data/mrc` have them, and entropy values as the companion
//! program of the specification expands them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use pumice_transport::mrc::entropy::Entropy;
use pumice_transport::mrc::paths::{EvField, EvFormat, expand};
use pumice_transport::mrc::wire::{
    CcState, Eeth, EndpointOperation, Erth, Meth, MrcBody, MrcBth, MrcHeaders, MrcOpcode, MrcPacket,
    NackReason, Neth, PathMark, Peth, SackTrigger, Seth, Tseth, WriteHeaders,
};
use pumice_transport::path::Path;
use pumice_transport::wire::{
    Aeth, IcrcVerdict, ImmDt, LinkType, Psn, Qpn, Reth, decapsulate, encapsulate, icrc,
};

const HEADERS: &str = include_str!("../data/mrc/headers.txt");
const PACKETS: &str = include_str!("../data/mrc/packets.txt");
const EXPANSIONS: &str = include_str!("../data/mrc/ev-expansion.txt");

pub(crate) fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().map(|digit| (digit as char).to_digit(16).unwrap() as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// A line's values by their names.
struct Values<'a>(BTreeMap<&'a str, i64>);

impl<'a> Values<'a> {
    fn of(text: &'a str) -> Values<'a> {
        let number = |text: &str| match text.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok().map(|number| number as i64),
            None => text.parse().ok(),
        };
        let pairs = text.split_whitespace().filter_map(|word| word.split_once('='));
        Values(pairs.filter_map(|(name, value)| Some((name, number(value)?))).collect())
    }

    fn get(&self, name: &str) -> i64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    fn tseth(&self) -> Tseth {
        Tseth { timestamp: self.get("ts") as u16, has_own_unit: self.get("tsr") == 1 }
    }

    fn seth(&self) -> Seth {
        let mark = [PathMark::None, PathMark::SkipOnce, PathMark::AlwaysSkip, PathMark::Reserved];
        let offset = self.get("ack_psn_offset") as i16;
        let trigger = match self.get("pr") {
            1 => SackTrigger::Probe { probe_id: offset as u16 },
            _ => SackTrigger::Packet { offset },
        };
        Seth {
            mark: mark[self.get("m") as usize],
            trigger,
            entropy: Entropy(self.get("entropy") as u32),
            spdcid: self.get("spdcid") as u16,
            dpdcid: self.get("dpdcid") as u16,
            cack_psn: Psn::new(self.get("cack") as u32),
            cc_type: self.get("cc_type") as u8,
            cc_flags: self.get("cc_fl") as u8,
            mpr: self.get("mpr") as u8,
            sack_offset: self.get("sack_offset") as i16,
            bitmap: self.get("bitmap") as u64,
        }
    }

    fn neth(&self) -> Neth {
        Neth {
            reason: NackReason::from_byte(self.get("reason") as u8),
            vendor_info: self.get("vendor_info") as u8,
            entropy: Entropy(self.get("entropy") as u32),
            spdcid: self.get("spdcid") as u16,
            dpdcid: self.get("dpdcid") as u16,
            nack_psn: Psn::new(self.get("nack_psn") as u32),
            cc_flags: self.get("cc_fl") as u8,
            timestamp: self.get("ts") as u16,
        }
    }
}

/// Bytes and value of a header are what a line says, each way.
fn check_header(name: &str, values: &Values<'_>, bytes: &[u8]) {
    match name.split(' ').next().unwrap() {
        "METH" => {
            let meth = Meth { rqmsn: values.get("rqmsn") as u16, msn: values.get("msn") as u16 };
            assert_eq!((Meth::parse(bytes), &meth.bytes()[..]), (Some(meth), bytes));
        }
        "TSETH" => {
            let tseth = values.tseth();
            assert_eq!((Tseth::parse(bytes), &tseth.bytes()[..]), (Some(tseth), bytes));
        }
        "RETH" => {
            let (address, rkey) = (values.get("va") as u64, values.get("rkey") as u32);
            let reth = Reth { address, rkey, length: values.get("dmalen") as u32 };
            assert_eq!(Reth::parse(bytes), Some(reth));
        }
        "SETH" => {
            let seth = values.seth();
            assert_eq!((Seth::parse(bytes), &seth.bytes()[..]), (Ok(seth), bytes), "{name}");
        }
        "CC_STATE" => {
            let state = CcState {
                timestamp: values.get("ts") as u16,
                ooo_count: values.get("ooo") as u16,
                restore_cwnd: values.get("restore") == 1,
                rcv_cwnd_pen: values.get("penalty") as u8,
                rcvd_bytes: values.get("rcvd") as u32,
            };
            assert_eq!((CcState::parse(bytes), &state.bytes()[..]), (Some(state), bytes), "{name}");
        }
        "NETH" => {
            let neth = values.neth();
            assert_eq!((Neth::parse(bytes), &neth.bytes()[..]), (Ok(neth), bytes), "{name}");
        }
        "PETH" => {
            let peth = Peth {
                vendor_info: values.get("vendor_info") as u8,
                probe_id: values.get("probe_id") as u16,
                spdcid: values.get("spdcid") as u16,
                dpdcid: values.get("dpdcid") as u16,
                tseth: values.tseth(),
            };
            assert_eq!((Peth::parse(bytes), &peth.bytes()[..]), (Ok(peth), bytes), "{name}");
        }
        "ERTH" => {
            let erth = Erth {
                operation: EndpointOperation::from_bits(values.get("op") as u8).unwrap(),
                vendor_info: values.get("vendor_info") as u8,
                port_status_mask: values.get("mask") as u32,
                tseth: values.tseth(),
            };
            assert_eq!((Erth::parse(bytes), &erth.bytes()[..]), (Ok(erth), bytes), "{name}");
        }
        "EETH" => {
            let (operation_bits, timestamp) = (values.get("op") as u8, values.get("ts") as u16);
            let eeth = Eeth { operation_bits, timestamp };
            assert_eq!((Eeth::parse(bytes), &eeth.bytes()[..]), (Ok(eeth), bytes), "{name}");
        }
        _ => panic!("{name} is no header"),
    }
}

#[test]
fn headers_are_those_of_the_fact_sheet() {
    let lines = HEADERS.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let mut count = 0;
    for line in lines {
        let [name, values, hex] = line.splitn(3, " | ").collect::<Vec<_>>().try_into().unwrap();
        check_header(name, &Values::of(values), &unhex(hex));
        count += 1;
    }
    assert_eq!(count, 17);
}

/// The packets of the file, by the first words of their titles, with their IP packets.
fn packets() -> Vec<(&'static str, Vec<&'static str>)> {
    let mut packets: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in PACKETS.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        match line.strip_prefix("v4 ").or(line.strip_prefix("v6 ")) {
            Some(hex) => packets.last_mut().unwrap().1.push(hex),
            None => packets.push((line, Vec::new())),
        }
    }
    packets
}

const REQUESTER: Qpn = Qpn::new(0x12);
const RESPONDER: Qpn = Qpn::new(0x11);
const STAMP: Tseth = Tseth { timestamp: 345, has_own_unit: false };

fn write(opcode: MrcOpcode, psn: u32, meth: (u16, u16), length: u32) -> MrcHeaders {
    let reth = match length {
        0 => Reth { address: 0, rkey: 0, length: 0 },
        // The message of 520 bytes begins with PSN 0x100.
        520 => Reth { address: 0x7f00_0000_1000 + u64::from(psn - 0x100) * 256, rkey: 0x0a01, length },
        _ => Reth { address: 0x7f00_0000_1000, rkey: 0x0a01, length },
    };
    let (rqmsn, msn) = meth;
    let write = WriteHeaders { meth: Meth { rqmsn, msn }, tseth: None, reth, imm: None };
    MrcHeaders { bth: MrcBth::new(opcode, RESPONDER, Psn::new(psn)), body: MrcBody::Write(write) }
}

/// What is known of the packets apart from their bytes: opcode, PSN, destination, and what they carry.
fn check_meaning(title: &str, packet: &MrcPacket<'_>) {
    let MrcHeaders { bth, body } = packet.headers;
    let word = |number: usize| title.split(' ').nth(number).unwrap_or("");
    let psn = title.split("psn=").nth(1).and_then(|rest| rest.get(2..8));
    if let Some(psn) = psn.and_then(|hex| u32::from_str_radix(hex, 16).ok())
        && word(0) != "sack"
    {
        assert_eq!(bth.psn, Psn::new(psn), "{title}");
    }
    match (word(0), body) {
        ("ack", MrcBody::Acknowledge(aeth)) => {
            let syndrome = if word(1) == "NAK" { 0x61 } else { 0x1f };
            assert_eq!((aeth, bth.destination), (Aeth { syndrome, msn: 2 }, REQUESTER));
        }
        ("sack", MrcBody::Sack(seth, state)) => {
            assert_eq!((seth.entropy, seth.spdcid, seth.dpdcid), (Entropy(0x0001_c123), 0x12, 0x11));
            assert_eq!(bth.psn, seth.cack_psn);
            match word(1) {
                "probe" => assert_eq!(seth.trigger, SackTrigger::Probe { probe_id: 0x7788 }),
                "m=1" => assert_eq!(seth.mark, PathMark::SkipOnce),
                _ => {
                    assert_eq!((seth.bitmap, state.timestamp), (2, 345));
                    assert_eq!(seth.ack_psn(), Some(Psn::new(0x105)));
                }
            }
        }
        ("nack", MrcBody::Nack(neth)) => {
            let is_trim = word(1) == "TRIMMED";
            let reason = if is_trim { NackReason::Trimmed } else { NackReason::PsnOutOfWindow };
            assert_eq!((neth.reason, neth.nack_psn), (reason, bth.psn));
        }
        ("reliability", MrcBody::Probe(peth)) => assert_eq!(peth.probe_id, 0x7788),
        ("endpoint", MrcBody::EndpointRequest(erth)) => {
            let is_probe = word(2) == "EV";
            assert_eq!(erth.operation == EndpointOperation::EvProbe, is_probe);
            assert_eq!((erth.port_status_mask, bth.destination.value()), (if is_probe { 0 } else { 0xb }, 2));
        }
        ("endpoint", MrcBody::EndpointResponse(eeth)) => {
            assert_eq!(eeth.operation_bits, u8::from(word(2) == "EV"));
            assert!(matches!(bth.psn.value(), 0x42 | 0x43));
        }
        (name, MrcBody::Write(write)) => {
            assert!(name.starts_with("write_") && bth.destination == RESPONDER);
            assert_eq!(write.imm.is_some(), name.ends_with("imm"), "{title}");
            assert_eq!(write.tseth.is_some(), bth.has_timestamp);
        }
        _ => panic!("{title}: {body:?}"),
    }
}

/// Every packet is read, means what its title says, has a right ICRC, and comes again byte by byte, from
/// the IP header on. The UDP checksum of IPv6 is left at 0, as for all packets of RoCE.
#[test]
fn packets_are_those_of_the_fact_sheet() {
    let packets = packets();
    assert_eq!(packets.len(), 20);
    for (title, bytes) in &packets {
        assert!(!bytes.is_empty(), "{title}");
        for hex in bytes {
            let ip = unhex(hex);
            let datagram = decapsulate(LinkType::RawIp, &ip).unwrap();
            assert_eq!(icrc::verify(&datagram.flow, 0, datagram.payload), IcrcVerdict::Exact, "{title}");
            let packet = MrcPacket::parse(datagram.payload).unwrap();
            check_meaning(title, &packet);
            let mut again = vec![0; packet.headers.packet_len(packet.payload.len())];
            let room = packet.headers.emit(packet.payload.len(), &mut again).unwrap();
            room.copy_from_slice(packet.payload);
            icrc::seal(&datagram.flow, 0, &mut again);
            let is_ipv6 = datagram.flow.source.is_ipv6();
            let label = if is_ipv6 { u32::from_be_bytes([0, ip[1] & 0xf, ip[2], ip[3]]) } else { 0 };
            let entropy = Entropy::of(label, datagram.flow.source_port);
            assert_eq!((entropy.flow_label(), entropy.source_port()), (label, datagram.flow.source_port));
            let (traffic_class, hop_limit) = (datagram.traffic_class, datagram.hop_limit);
            let path = Path { flow: datagram.flow, traffic_class, hop_limit, flow_label: label };
            let mut expected = ip.clone();
            if matches!(datagram.flow.source, IpAddr::V6(_)) {
                (expected[46], expected[47]) = (0, 0);
            }
            assert_eq!(encapsulate(&path, 0, &again), expected, "{title}");
        }
    }
}

/// Values that are written down here become the bytes of the file.
#[test]
fn values_become_the_bytes_of_the_fact_sheet() {
    let imm = |headers: MrcHeaders, bytes: [u8; 4], stamp: Option<Tseth>| match headers.body {
        MrcBody::Write(write) => {
            let body = MrcBody::Write(WriteHeaders { imm: Some(ImmDt(bytes)), tseth: stamp, ..write });
            MrcHeaders { body, ..headers }
        }
        _ => headers,
    };
    let asks = |mut headers: MrcHeaders| {
        headers.bth.ack_request = true;
        headers
    };
    let full: Vec<u8> = (0..=255).collect();
    let cases = [
        ("write_first psn=0x000100", write(MrcOpcode::WriteFirst, 0x100, (0, 0), 520), full),
        ("write_last psn=0x000102", asks(write(MrcOpcode::WriteLast, 0x102, (0, 0), 520)), (0..8).collect()),
        (
            "write_only_imm psn=0x000103",
            asks(imm(
                write(MrcOpcode::WriteOnlyImm, 0x103, (0, 1), 6),
                [0x89, 0xab, 0xcd, 0xef],
                Some(STAMP),
            )),
            (1..=6).collect(),
        ),
        (
            "write_only_imm zero length",
            asks(imm(write(MrcOpcode::WriteOnlyImm, 0x106, (2, 3), 0), [0, 0, 0, 7], None)),
            Vec::new(),
        ),
        ("write_only psn=0x000107", write(MrcOpcode::WriteOnly, 0x107, (0, 4), 4), (1..=4).collect()),
    ];
    let packets = packets();
    for (title, headers, payload) in cases {
        let (_, bytes) = packets.iter().find(|(other, _)| other.starts_with(title)).unwrap();
        let ip = unhex(bytes[0]);
        let mut out = vec![0; headers.packet_len(payload.len())];
        headers.emit(payload.len(), &mut out).unwrap().copy_from_slice(&payload);
        // All but the ICRC, behind 48 bytes of IPv6 and UDP.
        let end = out.len() - 4;
        assert_eq!(out[..end], ip[48..ip.len() - 4], "{title}");
    }
}

/// A trimmed packet is read from its BTH on, however much is left.
#[test]
fn trimmed_packets_are_read_from_the_bth_on() {
    use pumice_transport::mrc::wire::{MrcPacketError, TrimmedPacket};
    let packets = packets();
    let (_, bytes) = packets.iter().find(|(title, _)| title.contains("ts=345")).unwrap();
    let udp = &unhex(bytes[0])[48..];
    for length in 0..udp.len() {
        let parsed = TrimmedPacket::parse(&udp[..length]);
        if length < 12 {
            assert_eq!(parsed, Err(MrcPacketError::Short));
            continue;
        }
        let trimmed = parsed.unwrap();
        assert_eq!(trimmed.bth.psn, Psn::new(0x103));
        assert_eq!(trimmed.tseth, (length >= 20).then_some(STAMP));
    }
}

#[test]
fn entropy_values_expand_as_the_companion_program_says() {
    let mut count = 0;
    for line in EXPANSIONS.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let (mode, rest) = line.split_once(' ').unwrap();
        let (fields, rest) = rest.split_once(" > ").unwrap();
        let (widths, rest) = rest.split_once(" ev ").unwrap();
        let (ev, result) = rest.split_once("->").unwrap();
        let fields: Vec<EvField> = fields.split(',').flat_map(field).collect();
        let widths = widths.trim().split(',').map(|width| width.parse().unwrap()).collect();
        let bits = u128::from_str_radix(ev.trim(), 16).unwrap();
        let expanded = expand(bits, &fields, &EvFormat { widths }).unwrap();
        let expected = result.split_once('=').unwrap().1.trim();
        let found = match mode {
            "STEV" => expanded.as_entropy().unwrap().to_be_bytes().to_vec(),
            _ => expanded.as_address().to_vec(),
        };
        assert_eq!(found, unhex(expected), "{line}");
        count += 1;
    }
    assert_eq!(count, 9);
}

/// `width/init/min/max/mask` in hex but for the width, "N times" before it if it is there more than once.
fn field(text: &str) -> Vec<EvField> {
    let (times, text) =
        text.split_once(" times ").map_or((1, text), |(times, rest)| (times.parse().unwrap(), rest));
    let mut parts = text.split('/');
    let width = parts.next().unwrap().parse().unwrap();
    let [init_value, min_value, max_value, mask] =
        [(); 4].map(|()| u32::from_str_radix(parts.next().unwrap(), 16).unwrap());
    vec![EvField { width, init_value, min_value, max_value, mask }; times]
}
