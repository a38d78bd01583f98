//! Captures of rdma_rxe (Linux 6.1 and 6.12) and of a UDP program talking to it: every packet
//! decapsulates, parses, carries a right ICRC and is written again byte for byte.
//!
//! Packets that are not so are listed one by one with the reason.

mod capture;

use std::path::PathBuf;

use capture::{frames, golden};
use pumice_transport::path::ROCE_PORT;
use pumice_transport::wire::{
    Datagram, ICRC_BYTES, IcrcVerdict, LinkType, Operation, Packet, decapsulate, icrc,
};

/// What is wrong with an excepted packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Exception {
    /// FLUSH of rdma_rxe 6.12: the ICRC covers BTH, FETH and RETH twice (see the documentation of
    /// `wire::icrc`).
    RxeFlush,
    /// Sealed for identification 0 by a program whose socket then counted identifications. The full
    /// header shows it; a UDP socket, which sees no identification, takes it for right.
    SocketChangedId,
    /// A bit flipped on purpose.
    WrongBit,
    /// A segmentation train seen before it was cut: four packets in one datagram, sealed for
    /// identifications 0, 1, 2, 3.
    TrainCounting,
    /// As before, all sealed for identification 0 (or IPv6, which has none).
    TrainOfZeros,
}

/// Bytes of each packet in the trains of the captures.
const TRAIN_SEGMENT_BYTES: usize = 104;

/// Capture, index of the first packet, how many, reason.
const EXCEPTIONS: &[(&str, usize, usize, Exception)] = &[
    ("6.12/rc-flush.pcap", 0, 1, Exception::RxeFlush),
    ("6.12/rc-flush.pcap", 2, 1, Exception::RxeFlush),
    ("6.12/rc-flush.pcap", 4, 1, Exception::RxeFlush),
    ("6.12/rc-flush-noaccess.pcap", 0, 1, Exception::RxeFlush),
    // Default path MTU discovery: counted identifications.
    ("peer/peer-blast-off.pcap", 8, 4, Exception::SocketChangedId),
    ("peer/peer-blast-on.pcap", 8, 4, Exception::SocketChangedId),
    // A train sealed for 0 throughout, cut by the sending kernel: only its first packet is right.
    ("peer/peer-blast-off.pcap", 25, 3, Exception::SocketChangedId),
    // A connected socket.
    ("peer/peer-blast-off.pcap", 28, 4, Exception::SocketChangedId),
    ("peer/peer-blast-on.pcap", 22, 4, Exception::SocketChangedId),
    ("peer/peer-blast-off.pcap", 33, 1, Exception::WrongBit),
    ("peer/peer-blast-on.pcap", 27, 1, Exception::WrongBit),
    ("peer/peer-blast-on.pcap", 20, 1, Exception::TrainCounting),
    ("peer/peer-blast-on.pcap", 21, 1, Exception::TrainOfZeros),
    ("peer/peer-blast-on.pcap", 42, 1, Exception::TrainOfZeros),
];

fn exception(capture: &str, index: usize) -> Option<Exception> {
    EXCEPTIONS
        .iter()
        .find(|(name, first, count, _)| *name == capture && (*first..first + count).contains(&index))
        .map(|row| row.3)
}

/// What was seen in the captures of one directory.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    captures: usize,
    /// Right in every respect.
    right: usize,
    /// Of the right ones: IPv4 with an identification other than 0, recovered from the ICRC alone.
    recovered: usize,
    /// Wrong as listed.
    excepted: usize,
}

#[test]
fn captures_of_linux_6_1() {
    assert_eq!(check_directory("6.1"), Tally { captures: 33, right: 766, recovered: 766, excepted: 0 });
}

#[test]
fn captures_of_linux_6_12() {
    assert_eq!(check_directory("6.12"), Tally { captures: 42, right: 952, recovered: 813, excepted: 4 });
}

#[test]
fn captures_of_a_udp_program_against_linux_6_12() {
    assert_eq!(check_directory("peer"), Tally { captures: 3, right: 111, recovered: 31, excepted: 24 });
}

fn check_directory(name: &str) -> Tally {
    let directory = golden().join(name);
    let mut captures: Vec<PathBuf> = std::fs::read_dir(&directory)
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "pcap"))
        .collect();
    captures.sort();
    let mut tally = Tally { captures: captures.len(), ..Tally::default() };
    let mut listed = 0;
    for path in captures {
        let capture = format!("{name}/{}", path.file_name().unwrap().to_str().unwrap());
        listed += EXCEPTIONS.iter().filter(|row| row.0 == capture).map(|row| row.2).sum::<usize>();
        let bytes = std::fs::read(&path).unwrap();
        let (link, frames) = frames(&bytes);
        for (index, frame) in frames.into_iter().enumerate() {
            check_frame(&capture, index, link, frame, &mut tally);
        }
    }
    assert_eq!(tally.excepted, listed, "every exception names a packet");
    tally
}

fn check_frame(capture: &str, index: usize, link: LinkType, frame: &[u8], tally: &mut Tally) {
    let label = format!("{capture} packet {index}");
    let datagram = decapsulate(link, frame).unwrap_or_else(|error| panic!("{label}: {error}"));
    assert_eq!(datagram.flow.destination_port, ROCE_PORT, "{label}");
    assert!(datagram.dont_fragment, "{label}");
    match exception(capture, index) {
        None => {
            let packet = check_packet(&label, datagram.payload);
            check_right(&label, &datagram, &packet, tally);
        }
        Some(reason) => {
            tally.excepted += 1;
            check_exception(&label, reason, &datagram);
        }
    }
}

/// The packet parses and is written again.
fn check_packet<'a>(label: &str, bytes: &'a [u8]) -> Packet<'a> {
    let packet = Packet::parse(bytes).unwrap_or_else(|error| panic!("{label}: {error}"));
    let body = &bytes[..bytes.len() - ICRC_BYTES];
    let mut out = vec![0xee; bytes.len()];
    let written = packet.headers().emit_packet(packet.payload(), &mut out);
    assert_eq!(&out[..written], body, "{label}: {} written again", packet.info().name);
    packet
}

/// The ICRC is right with the full header, and to a socket that does not see it.
fn check_right(label: &str, datagram: &Datagram<'_>, packet: &Packet<'_>, tally: &mut Tally) {
    tally.right += 1;
    assert!(
        icrc::verify_with_header(datagram.ip_header, datagram.udp_header, datagram.payload),
        "{label}: ICRC of {}",
        packet.info().name
    );
    let ip_id = datagram.ip_id.unwrap_or(0);
    let body = &datagram.payload[..datagram.payload.len() - ICRC_BYTES];
    assert_eq!(icrc::compute(&datagram.flow, ip_id, body), packet.icrc(), "{label}");
    assert_eq!(icrc::verify(&datagram.flow, ip_id, datagram.payload), IcrcVerdict::Exact, "{label}");
    let blind = icrc::verify(&datagram.flow, 0, datagram.payload);
    if ip_id == 0 {
        assert_eq!(blind, IcrcVerdict::Exact, "{label}");
    } else {
        tally.recovered += 1;
        assert_eq!(blind, IcrcVerdict::Recovered { ip_id }, "{label}");
    }
}

/// The packet is wrong in exactly the way the list says.
fn check_exception(label: &str, reason: Exception, datagram: &Datagram<'_>) {
    let Datagram { flow, payload, .. } = *datagram;
    let ip_id = datagram.ip_id.unwrap_or(0);
    let with_header = icrc::verify_with_header(datagram.ip_header, datagram.udp_header, payload);
    let blind = icrc::verify(&flow, 0, payload);
    match reason {
        Exception::RxeFlush => {
            let packet = check_packet(label, payload);
            assert_eq!(packet.operation(), Operation::Flush, "{label}");
            let body = &payload[..payload.len() - ICRC_BYTES];
            assert_ne!(icrc::compute(&flow, ip_id, body), packet.icrc(), "{label}: by the specification");
            assert!(with_header, "{label}: as rdma_rxe does");
            assert_eq!(blind, IcrcVerdict::Recovered { ip_id }, "{label}");
            let mut sealed = payload.to_vec();
            sealed[body.len()..].fill(0);
            icrc::seal_flush_for_rxe(&flow, ip_id, &mut sealed);
            assert_eq!(sealed, payload, "{label}: sealed as rdma_rxe does");
        }
        Exception::SocketChangedId => {
            check_packet(label, payload);
            assert_ne!(ip_id, 0, "{label}");
            assert!(!with_header, "{label}");
            assert_eq!(blind, IcrcVerdict::Exact, "{label}");
        }
        Exception::WrongBit => {
            check_packet(label, payload);
            assert!(!with_header, "{label}");
            assert_eq!(blind, IcrcVerdict::Bad, "{label}");
        }
        Exception::TrainCounting | Exception::TrainOfZeros => {
            assert!(!with_header, "{label}");
            assert_eq!(blind, IcrcVerdict::Bad, "{label}");
            assert_eq!(payload.len(), 4 * TRAIN_SEGMENT_BYTES, "{label}");
            for (ip_id, segment) in (0u16..).zip(payload.chunks(TRAIN_SEGMENT_BYTES)) {
                check_packet(label, segment);
                let counting = reason == Exception::TrainCounting && ip_id != 0;
                let expected = if counting { IcrcVerdict::Recovered { ip_id } } else { IcrcVerdict::Exact };
                assert_eq!(icrc::verify(&flow, 0, segment), expected, "{label} segment {ip_id}");
            }
        }
    }
}
