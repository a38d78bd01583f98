//! Parameters of the consumer's calls, and time codes of CM.

use crate::mad::{Ece, RejectReason, ServiceId, SidrStatus, TransportType};
use crate::types::{Gid, Mtu};
use crate::wire::{Psn, Qpn};

/// Returns the duration of a time code in nanoseconds, as Linux computes it: 2^(t − 8) milliseconds, at least
/// one.
pub const fn time_code_ns(code: u8) -> u64 {
    let code = if code > 31 { 31 } else { code };
    //= linux:cm.c#cm_convert_to_ms
    //| A time code t stands for 2 to the power of t minus 8 milliseconds, and for one at least.
    (1 << code.saturating_sub(8)) * 1_000_000
}

/// Returns the time code of a queue pair's ACK timeout: twice the packet life time, plus the remote adapter's
/// delay, rounded up to a power of two.
pub const fn ack_timeout(ca_ack_delay: u8, packet_life_time: u8) -> u8 {
    //= linux:cm.c#cm_ack_timeout
    //| The ACK timeout is two packet life times and the delay of the adapter of the peer.
    let round_trip = packet_life_time.saturating_add(1);
    // The sum of two powers of two is at most twice the larger one: the code is one more if they are close.
    let sum = if round_trip >= ca_ack_delay {
        round_trip.saturating_add((ca_ack_delay >= packet_life_time) as u8)
    } else {
        ca_ack_delay.saturating_add((round_trip >= ca_ack_delay.saturating_sub(1)) as u8)
    };
    if sum > 31 { 31 } else { sum }
}

/// Route of MADs between this process and a peer, seen from here. Replies take the route of the message back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct MadRoute {
    /// Own address: the source of what is sent, the destination of what was received.
    pub local: Gid,
    /// The peer's address.
    pub remote: Gid,
    /// TOS byte / IPv6 traffic class.
    pub traffic_class: u8,
    /// TTL / hop limit.
    pub hop_limit: u8,
    /// IPv6 flow label (20 bits).
    pub flow_label: u32,
}

/// A resolved path, for MADs and for the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CmPath {
    /// Addresses and packet marks. A hop limit of 0 or 1 says that the peer is on the same link.
    pub route: MadRoute,
    /// Service level (4 bits).
    pub sl: u8,
    /// Partition key: 0xffff.
    pub pkey: u16,
    /// Path MTU.
    pub mtu: Mtu,
    /// Packet rate of the verbs enumeration; 0 means the rate of the port, as rdma_rxe says.
    pub packet_rate: u8,
    /// Packet life time as a time code; Linux: 16.
    pub packet_life_time: u8,
}

impl CmPath {
    /// Creates the path that Linux describes for rdma_rxe.
    pub const fn new(route: MadRoute, mtu: Mtu) -> CmPath {
        CmPath { route, sl: 0, pkey: 0xffff, mtu, packet_rate: 0, packet_life_time: 16 }
    }
}

/// Parameters of a request for a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectParams<'a> {
    /// Service that the request is for.
    pub service_id: ServiceId,
    /// Path to the peer.
    pub path: CmPath,
    /// Transport: RC, UC or XRC.
    pub transport: TransportType,
    /// Number of the own queue pair, which is in INIT.
    pub local_qpn: Qpn,
    /// First PSN of the peer's packets: random.
    pub starting_psn: Psn,
    /// READs and atomics that the own queue pair serves at once.
    pub responder_resources: u8,
    /// READs and atomics that the own queue pair wants to have outstanding.
    pub initiator_depth: u8,
    /// End-to-end flow control.
    pub flow_control: bool,
    /// Transport retries of both sides, 0 to 7.
    pub retry_count: u8,
    /// RNR retries of the peer, 0 to 7; 7 is for ever.
    pub rnr_retry_count: u8,
    /// True if the own queue pair has a shared receive queue.
    pub srq: bool,
    /// Time within which the peer has to answer: a time code. Linux: 20, four seconds.
    pub remote_response_timeout: u8,
    /// Time within which this side answers: a time code.
    pub local_response_timeout: u8,
    /// Number of repetitions of a message without answer, 0 to 15. Linux: 15.
    pub max_cm_retries: u8,
    /// Enhanced connection establishment: options of vendors.
    pub ece: Ece,
    /// Private data, up to 92 bytes; RDMA-CM's begin with [`IpHeader`](crate::mad::IpHeader).
    pub private_data: &'a [u8],
}

impl<'a> ConnectParams<'a> {
    /// Creates the request for a reliable connection with the times and retries that Linux uses.
    pub const fn new(service_id: ServiceId, path: CmPath, local_qpn: Qpn, starting_psn: Psn) -> Self {
        ConnectParams {
            service_id,
            path,
            transport: TransportType::Rc,
            local_qpn,
            starting_psn,
            responder_resources: 1,
            initiator_depth: 1,
            flow_control: false,
            retry_count: 7,
            rnr_retry_count: 7,
            srq: false,
            remote_response_timeout: 20,
            local_response_timeout: 20,
            max_cm_retries: 15,
            ece: Ece { vendor_id: 0, options: 0 },
            private_data: &[],
        }
    }
}

/// Parameters of the passive side's consent. Its queue pair must be in RTS: data may arrive at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AcceptParams<'a> {
    /// Number of the own queue pair.
    pub local_qpn: Qpn,
    /// First PSN of the peer's packets: random; the own queue pair expects it.
    pub starting_psn: Psn,
    /// READs and atomics that the own queue pair serves at once; no more than the peer wants.
    pub responder_resources: u8,
    /// READs and atomics that the own queue pair will have outstanding; no more than the peer serves.
    pub initiator_depth: u8,
    /// End-to-end flow control.
    pub flow_control: bool,
    /// RNR retries of the peer, 0 to 7.
    pub rnr_retry_count: u8,
    /// True if the own queue pair has a shared receive queue.
    pub srq: bool,
    /// Enhanced connection establishment: options of vendors.
    pub ece: Ece,
    /// Private data, up to 196 bytes.
    pub private_data: &'a [u8],
}

impl AcceptParams<'_> {
    /// Creates the consent with one READ at a time, and RNR retries for ever.
    pub const fn new(local_qpn: Qpn, starting_psn: Psn) -> Self {
        AcceptParams {
            local_qpn,
            starting_psn,
            responder_resources: 1,
            initiator_depth: 1,
            flow_control: false,
            rnr_retry_count: 7,
            srq: false,
            ece: Ece { vendor_id: 0, options: 0 },
            private_data: &[],
        }
    }
}

/// Parameters of a rejection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RejectParams<'a> {
    /// Reason of the rejection.
    pub reason: RejectReason,
    /// Additional information, up to 72 bytes.
    pub info: &'a [u8],
    /// Private data, up to 148 bytes.
    pub private_data: &'a [u8],
}

impl<'a> RejectParams<'a> {
    /// Creates a rejection by the consumer.
    pub const fn consumer(private_data: &'a [u8]) -> Self {
        RejectParams { reason: RejectReason::CONSUMER, info: &[], private_data }
    }
}

/// Parameters of a question for a datagram queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResolveParams<'a> {
    /// Service that the question is for.
    pub service_id: ServiceId,
    /// Route to the peer.
    pub route: MadRoute,
    /// Partition key: 0xffff.
    pub pkey: u16,
    /// Time after which the question is repeated: a time code. Linux: 20, four seconds.
    pub response_timeout: u8,
    /// Number of repetitions, 0 to 15. Linux: 15.
    pub max_cm_retries: u8,
    /// Private data, up to 216 bytes; RDMA-CM's begin with [`IpHeader`](crate::mad::IpHeader).
    pub private_data: &'a [u8],
}

impl<'a> ResolveParams<'a> {
    /// Creates a question with the times and retries that Linux uses.
    pub const fn new(service_id: ServiceId, route: MadRoute, private_data: &'a [u8]) -> Self {
        ResolveParams {
            service_id,
            route,
            pkey: 0xffff,
            response_timeout: 20,
            max_cm_retries: 15,
            private_data,
        }
    }
}

/// The answer to a question for a datagram queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SidrReply<'a> {
    /// [`SidrStatus::SUCCESS`], or the reason of the refusal.
    pub status: SidrStatus,
    /// Number of the queue pair; 0 if there is none.
    pub qpn: Qpn,
    /// Q_Key of the queue pair.
    pub q_key: u32,
    /// Additional information, up to 72 bytes.
    pub info: &'a [u8],
    /// Private data, up to 136 bytes.
    pub private_data: &'a [u8],
}

impl<'a> SidrReply<'a> {
    /// Creates the answer that names a queue pair.
    pub const fn queue_pair(qpn: Qpn, q_key: u32, private_data: &'a [u8]) -> Self {
        SidrReply { status: SidrStatus::SUCCESS, qpn, q_key, info: &[], private_data }
    }

    /// Creates a refusal.
    pub const fn refused(status: SidrStatus, private_data: &'a [u8]) -> Self {
        SidrReply { status, qpn: Qpn::new(0), q_key: 0, info: &[], private_data }
    }
}

/// Values that both sides agreed on, as a queue pair needs them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QpParameters {
    /// Kind of connection.
    pub transport: TransportType,
    /// Source address.
    pub local: Gid,
    /// Destination address.
    pub remote: Gid,
    /// IPv6 flow label; also chooses the UDP source port.
    pub flow_label: u32,
    /// TOS byte / IPv6 traffic class.
    pub traffic_class: u8,
    /// TTL / hop limit.
    pub hop_limit: u8,
    /// Service level.
    pub sl: u8,
    /// Partition key.
    pub pkey: u16,
    /// Path MTU.
    pub path_mtu: Mtu,
    /// Number of the peer's queue pair.
    pub dest_qpn: Qpn,
    /// First PSN to expect: the own starting PSN. `None` on the passive side before `accept`, which gets it
    /// as a parameter.
    pub rq_psn: Option<Psn>,
    /// First PSN to send: the peer's starting PSN.
    pub sq_psn: Psn,
    /// READs and atomics that the peer may have outstanding here.
    pub max_dest_rd_atomic: u8,
    /// READs and atomics that may be outstanding at the peer.
    pub max_rd_atomic: u8,
    /// ACK timeout (time code).
    pub timeout: u8,
    /// Transport retries.
    pub retry_count: u8,
    /// RNR retries.
    pub rnr_retry_count: u8,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_powers_of_two_in_milliseconds() {
        assert_eq!(time_code_ns(0), 1_000_000);
        assert_eq!(time_code_ns(8), 1_000_000);
        assert_eq!(time_code_ns(20), 4_096_000_000);
        assert_eq!(time_code_ns(24), 65_536_000_000);
        assert_eq!(time_code_ns(255), time_code_ns(31));
    }

    #[test]
    fn ack_timeouts_are_those_of_linux() {
        // rdma_rxe: packet life time 16, delay 15: 17 as in the captures.
        assert_eq!(ack_timeout(15, 16), 17);
        assert_eq!(ack_timeout(16, 16), 18);
        assert_eq!(ack_timeout(17, 16), 18);
        assert_eq!(ack_timeout(18, 16), 19);
        assert_eq!(ack_timeout(19, 16), 19);
        assert_eq!(ack_timeout(0, 16), 17);
        assert_eq!(ack_timeout(255, 255), 31);
        assert_eq!(ack_timeout(0, 0), 2);
    }
}
