//! The counters of `pumice stat` and of reports.

use super::entry::ExplainEntry;

type Sentences = &'static [&'static str];

const fn counter(
    name: &'static str,
    meaning: &'static str,
    causes: Sentences,
    look_at: Sentences,
) -> ExplainEntry {
    ExplainEntry { name, number: None, meaning, causes, look_at }
}

const OTHER_SOFTWARE: &str = "Something that is no RoCE device sends to UDP port 4791.";
const CAPTURE: &str = "A capture: `pumice run --capture FILE`, then `pumice capture FILE`.";
const PEER: &str = "The same counters on the peer's host.";
const NO_ERROR: Sentences = &["This is no error."];
const BASE: Sentences =
    &["Others are to be compared with it: drops and retransmissions as a share of all packets."];

/// All counters, in the order of `pumice stat`.
pub(super) const COUNTERS: &[ExplainEntry] = &[
    counter(
        "rx_too_short",
        "A packet was shorter than its headers, and was dropped.",
        &[OTHER_SOFTWARE, "A packet was damaged or cut on the way."],
        &[CAPTURE],
    ),
    counter(
        "rx_bad_version",
        "A packet was of another transport version than 0, and was dropped.",
        &[OTHER_SOFTWARE],
        &[CAPTURE],
    ),
    counter(
        "rx_bad_opcode",
        "A packet had an opcode that is not known, and was dropped.",
        &[OTHER_SOFTWARE, "The peer uses a transport that pumice does not have (RD, vendor's own)."],
        &[CAPTURE],
    ),
    counter(
        "rx_bad_pad",
        "A packet had more bytes of padding than of payload, and was dropped.",
        &[OTHER_SOFTWARE, "A packet was damaged on the way."],
        &[CAPTURE],
    ),
    counter(
        "rx_bad_length",
        "A packet had a payload that does not fit its opcode, and was dropped.",
        &["The path MTUs of the two ends differ.", OTHER_SOFTWARE],
        &["path_mtu of both queue pairs.", CAPTURE],
    ),
    counter(
        "rx_bad_icrc",
        "A packet had a wrong ICRC, and was dropped.",
        &[
            "The packet was damaged on the way (a fault plan's `corrupt` does it on purpose).",
            "A router or NAT has changed addresses, which the ICRC covers.",
        ],
        &[
            "`pumice capture` marks packets with a bad ICRC.",
            "Whether addresses are translated between the hosts.",
        ],
    ),
    counter(
        "rx_unknown_qpn",
        "A packet was for a queue pair that does not exist here, and was dropped.",
        &[
            "The peer's dest_qp_num is wrong.",
            "The queue pair has been destroyed while the peer still sends or repeats.",
        ],
        &[
            "QP numbers as they were exchanged; byte order included.",
            "The sentence of `--log warn` names the number and the sender.",
        ],
    ),
    counter(
        "rx_wrong_service",
        "A packet was of another transport service than its queue pair, and was dropped.",
        &["The peer connected an RC queue pair with a UC one, or a datagram was sent to a connected queue \
            pair."],
        &["qp_type of both queue pairs.", CAPTURE],
    ),
    counter(
        "rx_wrong_state",
        "A packet was for a queue pair that is not ready to receive, and was dropped.",
        &["The peer sends before this side has moved its queue pair to RTR.", "The queue pair is in ERR."],
        &["ibv_query_qp: its state.", "That the programs tell each other when they are in RTR."],
    ),
    counter(
        "rx_bad_pkey",
        "A packet was of another partition, and was dropped.",
        &["pkey_index of the two queue pairs name different P_Keys."],
        &["ibv_query_pkey on both sides, and pkeys in the profile."],
    ),
    counter(
        "rx_bad_qkey",
        "A datagram had another Q_Key than its queue pair, and was dropped.",
        &["remote_qkey of the sender is not the qkey of the receiver's ibv_modify_qp."],
        &["The sentence of `--log warn` has both keys."],
    ),
    counter(
        "rx_wrong_address",
        "A packet came from, or was for, another address than the queue pair is connected to, and was \
        dropped.",
        &[
            "The peer sends from another of its addresses than the one whose GID was given.",
            "Two programs use the same queue pair number and PSN by chance.",
        ],
        &["sgid_index on both sides: the GID must be the one that was exchanged."],
    ),
    counter(
        "rx_wrong_port",
        "A packet of a connection came from another UDP source port than its peer's, and was dropped.",
        &[
            "Another program on the peer's host, or on the way, sends packets that look like the peer's.",
            "A NIC has changed its source port while packets out of turn came: what is lost is sent again.",
        ],
        &["The sentence of `--log warn` names both ports.", CAPTURE],
    ),
    counter(
        "rx_unknown_group",
        "A datagram was for a multicast group without members here, and was dropped.",
        &[
            "The last queue pair has left the group a moment ago.",
            "Another process of this host is in the group.",
        ],
        NO_ERROR,
    ),
    counter(
        "rx_truncated",
        "A packet was longer than the receive buffer, and was dropped.",
        &["The link carries longer packets than this device expects."],
        &["The MTU of the interface on both hosts."],
    ),
    counter(
        "rx_out_of_sequence",
        "A request came with a PSN beyond the expected one: a packet between was lost.",
        &[
            "Packets were lost: the network, a full socket buffer, or --loss.",
            "rq_psn of this queue pair is not sq_psn of the peer's.",
        ],
        &[
            "tx_dropped at the peer, and net.core.rmem_max here (`pumice doctor`).",
            "PSNs as they were exchanged, if no message arrives at all.",
        ],
    ),
    counter(
        "rx_duplicate_request",
        "A request came that has been executed before; it was acknowledged again, not executed again.",
        &["An acknowledgement was lost or late, and the peer repeated the request."],
        &["timeout and early_retransmit at the peer."],
    ),
    counter(
        "rx_stale_response",
        "A response came to a request that has been answered already.",
        &["The request had been repeated, and both copies were answered."],
        &["retransmitted_packets and timeout."],
    ),
    counter(
        "rx_unexpected_response",
        "A response came that fits no request.",
        &[
            "The packet is from an older connection of the same numbers.",
            "The peer answers for a PSN that was never sent: sq_psn and rq_psn do not match.",
            "The packet is forged.",
        ],
        &["PSNs as they were exchanged.", CAPTURE],
    ),
    counter(
        "rx_reserved_syndrome",
        "A response had a syndrome that is reserved.",
        &["The peer's device answers otherwise than RoCEv2 requires."],
        &[CAPTURE],
    ),
    counter(
        "rx_no_receive",
        "A message found no receive request posted.",
        &["RC: the peer is told to wait (RNR) and repeats.", "UC and UD: the message is lost."],
        &["max_recv_wr, and how soon receives are posted again."],
    ),
    counter(
        "rx_message_dropped",
        "An unreliable message was dropped.",
        &["A packet of it was lost, or it did not fit its receive request."],
        &["The sentence of `--log warn` says why."],
    ),
    counter(
        "rx_replay_missed",
        "A duplicate request could not be answered again, because its result is forgotten.",
        &["A READ or atomic was repeated after more of them than max_dest_rd_atomic."],
        &["max_rd_atomic of the peer and max_dest_rd_atomic here."],
    ),
    counter(
        "tx_nak_sequence",
        "A NAK was sent: PSN sequence error. It asks the peer to repeat from the lost packet.",
        &["Packets were lost, or overtook each other."],
        &["rx_out_of_sequence.", PEER],
    ),
    counter(
        "tx_nak_invalid",
        "A NAK was sent: invalid request. The connection is over.",
        &["The message did not fit the receive request.", "The queue pair does not allow the operation."],
        &["The sentence of `--log warn`: which request was refused, and why."],
    ),
    counter(
        "tx_nak_access",
        "A NAK was sent: remote access error. The connection is over.",
        &["The peer uses a wrong R_Key or a range outside of the memory region."],
        &["The sentence of `--log warn`: the R_Key and the range."],
    ),
    counter(
        "tx_nak_operation",
        "A NAK was sent: remote operational error. The connection is over.",
        &["A receive request names memory that its queue pair may not use."],
        &["The completion of the receive request, and `--log warn`."],
    ),
    counter(
        "tx_rnr_nak",
        "An RNR NAK was sent: no receive request is posted, and the peer is to wait.",
        &["The program posts receives more slowly than messages come."],
        &["max_recv_wr; min_rnr_timer is how long the peer waits."],
    ),
    counter(
        "rx_nak_sequence",
        "A NAK came: PSN sequence error. What follows the lost packet is sent again.",
        &["Packets were lost on the way to the peer."],
        &[PEER, "net.core.rmem_max on the peer's host."],
    ),
    counter(
        "rx_nak_fatal",
        "A NAK came that ends the connection.",
        &["The peer refused a request: wrong R_Key, range, right or length."],
        &["The failed completion, and the peer's `--log warn`."],
    ),
    counter(
        "rx_rnr_nak",
        "An RNR NAK came: the peer has no receive request posted.",
        &["The peer posts receives more slowly than messages are sent."],
        &["The peer's max_recv_wr; rnr_retry here."],
    ),
    counter(
        "rx_implied_nak",
        "A response showed that an earlier one was lost.",
        &["A response to a READ or an atomic was lost."],
        &[PEER],
    ),
    counter(
        "timeout",
        "An acknowledgement timer expired: the peer was silent for the time that the attribute timeout \
        gives.",
        &[
            "The request or its acknowledgement was lost.",
            "The peer's process did not run: no processor, stopped, or in a debugger.",
            "The peer is gone, or was never there: RETRY_EXC_ERR follows.",
        ],
        &["timeout and retry_cnt of ibv_modify_qp.", "The load of the peer's host."],
    ),
    counter(
        "early_retransmit",
        "Requests were repeated before the timer expired, because the path is known to lose packets.",
        &["Packets were lost before on the same path. It costs no retry."],
        &["retransmitted_packets."],
    ),
    counter(
        "starved_peer",
        "An acknowledgement timer expired and cost no retry, because the peer's process is on this host and \
        had no processor.",
        &["More threads want to run than there are processors."],
        &["The load of this host (uptime); the counter timeout has those that cost a retry."],
    ),
    counter(
        "retransmitted_packets",
        "A packet was sent again.",
        &[
            "A packet or its acknowledgement was lost: the network, a full socket buffer, or --loss.",
            "The peer was too slow for the timer.",
        ],
        &[
            "timeout, rx_nak_sequence and early_retransmit say what it was repeated for.",
            "net.core.rmem_max on the peer's host.",
        ],
    ),
    counter(
        "rx_cnp",
        "A congestion notification came.",
        &["The peer received packets with the ECN mark."],
        &["The switches between, and the traffic class."],
    ),
    counter(
        "tx_cnp",
        "A congestion notification was sent.",
        &["Packets arrived with the ECN mark."],
        &["rx_congestion_marked."],
    ),
    counter(
        "rx_congestion_marked",
        "A packet came with the ECN mark CE.",
        &["A switch or a queue on the way is congested, and marks."],
        &["The switches between; tc -s qdisc."],
    ),
    counter(
        "rx_icrc_recovered",
        "The ICRC of an IPv4 packet was right for an IP identification that could be solved for.",
        &["The sender numbers its packets, as rdma_rxe and adapters do; a socket does not show the number."],
        NO_ERROR,
    ),
    counter("tx_packets", "A packet was sent.", &["It counts traffic."], BASE),
    counter("rx_packets", "A packet was received.", &["It counts traffic."], BASE),
    counter("tx_bytes", "A byte was sent, as UDP payload.", &["It counts traffic."], BASE),
    counter("rx_bytes", "A byte was received, as UDP payload.", &["It counts traffic."], BASE),
    counter(
        "tx_batches",
        "A system call sent packets, up to dozens at a time.",
        &["It counts traffic."],
        &["tx_packets divided by it is how well segmentation offload works."],
    ),
    counter(
        "rx_batches",
        "A buffer of packets was received, up to dozens at a time.",
        &["It counts traffic."],
        &["rx_packets divided by it is how well receive offload works."],
    ),
    counter(
        "tx_dropped",
        "A packet was not sent, because the system refused.",
        &[
            "No route leads to the peer, or a firewall on this host forbids it.",
            "The link MTU is smaller than the packet.",
        ],
        &["`ip route get ADDRESS`; nft list ruleset.", "The MTU of the interface against path_mtu."],
    ),
    counter(
        "link_queued",
        "A packet waited in a queue of the device's link, or of a switch, behind others.",
        &[
            "The link has a rate (--rate, PUMICE_LINK, [link]), and more comes than it carries.",
            "A topology (--topology) has switches: their ports have a rate.",
        ],
        NO_ERROR,
    ),
    counter(
        "link_dropped",
        "A packet came to the device's link, or its own to a switch, found the queue full, and was lost.",
        &["Senders together are faster than the link (incast), for longer than its queue holds."],
        &[
            "--queue, --rate and --ecn; whether the senders react to congestion notifications.",
            "pumice topology FILE says which port of the switches dropped.",
        ],
    ),
    counter(
        "link_marked",
        "A packet joined a queue of the link or of a switch above the ECN threshold, and was marked.",
        &["More comes than the link carries."],
        &["rx_congestion_marked and tx_cnp count what follows from it."],
    ),
    counter(
        "link_busy",
        "The device had something to send and waited, because the queue of its link was full.",
        &["The program posts faster than the link carries."],
        NO_ERROR,
    ),
];
