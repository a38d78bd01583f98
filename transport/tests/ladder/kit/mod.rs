//! The ladder-test kit: a device made of vectors and a wire that writes everything down.
//!
//! * [`host::FakeHost`] stands for the device: memory, receive queues, and a record of completions,
//!   events, causes and counters.
//! * [`sink::Sink`] stands for the port: it keeps every packet, and its room can be taken away.
//! * [`rung::Rung`] is a queue pair between the two, brought to RTS by `modify`.
//! * [`literal::Literal`] is a packet as a test writes it. Headers are laid out here a second time,
//!   on purpose: a mistake in `wire` must not cancel out.
#![allow(dead_code, unused_imports, reason = "a vocabulary is complete before every word is used")]

pub(crate) mod host;
pub(crate) mod literal;
pub(crate) mod memory;
pub(crate) mod op;
pub(crate) mod rung;
pub(crate) mod sink;

use std::net::{IpAddr, Ipv4Addr};

use pumice_transport::host::QpContext;
use pumice_transport::path::{Flow, Path, ROCE_PORT};
use pumice_transport::wire::Qpn;

/// Number of the queue pair under test.
pub(crate) const LOCAL: Qpn = Qpn::new(0x11);
/// Number of its peer.
pub(crate) const PEER: Qpn = Qpn::new(0x22);
/// Protection domain of the queue pair.
pub(crate) const PD: u32 = 1;
/// Completion queue of sends.
pub(crate) const SEND_CQ: u32 = 100;
/// Completion queue of receives.
pub(crate) const RECV_CQ: u32 = 101;
/// Receive queue.
pub(crate) const RECV_QUEUE: u32 = 200;
/// XRC domain.
pub(crate) const XRCD: u32 = 300;
/// Address of the queue pair under test.
pub(crate) const LOCAL_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
/// Address of its peer.
pub(crate) const PEER_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

/// What the queue pair under test is attached to.
pub(crate) const CONTEXT: QpContext = QpContext {
    qpn: LOCAL,
    pd: PD,
    send_cq: SEND_CQ,
    recv_cq: RECV_CQ,
    recv_queue: RECV_QUEUE,
    xrcd: XRCD,
    ordinal: 0,
    out_of_order: false,
};

/// The path from the queue pair under test to its peer.
pub(crate) const fn path_to_peer() -> Path {
    Path {
        flow: Flow {
            source: LOCAL_ADDRESS,
            destination: PEER_ADDRESS,
            source_port: 0xc011,
            destination_port: ROCE_PORT,
        },
        traffic_class: 0,
        hop_limit: 64,
        flow_label: 0,
    }
}

/// `length` bytes of which no two neighbours, and no two neighbouring blocks of 256, are the same.
pub(crate) fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index * 7 + index / 256 * 31 + 1) as u8).collect()
}
