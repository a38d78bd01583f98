//! A capture of two rdma_rxe, A and B, and what the two programs wrote down: numbers, keys, completions.

use pumice_transport::types::WcStatus;
use pumice_transport::wire::{IcrcVerdict, Qpn, decapsulate, icrc};

use crate::capture;
use crate::kit::literal::Literal;

/// A packet of the capture.
#[derive(Debug, Clone)]
pub(crate) struct Shot {
    /// From the requester (A) to the responder (B), or back.
    pub(crate) from_a: bool,
    /// BTH … ICRC, as it was on the wire.
    pub(crate) bytes: Vec<u8>,
    /// The same, to compare; the destination is left out.
    pub(crate) literal: Literal,
}

/// A completion that a program saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Noted {
    pub(crate) status: WcStatus,
    pub(crate) byte_len: u32,
    /// Immediate data, where the flags say that there are.
    pub(crate) imm: Option<[u8; 4]>,
}

/// A capture with its notes.
#[derive(Debug)]
pub(crate) struct Tape {
    pub(crate) name: String,
    pub(crate) shots: Vec<Shot>,
    /// First PSNs of A and of B.
    pub(crate) a_psn: u32,
    pub(crate) b_psn: u32,
    /// B's memory: address and R_Key.
    pub(crate) b_memory: (u64, u32),
    pub(crate) a_saw: Vec<Noted>,
    pub(crate) b_saw: Vec<Noted>,
}

impl Tape {
    /// Reads `tests/golden/NAME.pcap` and `.txt`.
    pub(crate) fn read(name: &str) -> Tape {
        let golden = capture::golden();
        let file = |kind: &str| {
            let path = golden.join(format!("{name}.{kind}"));
            std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        };
        let notes = String::from_utf8(file("txt")).expect("notes are text");
        let line = notes.lines().find(|line| line.starts_with("A qpn")).expect("a line with the numbers");
        // A qpn 0x11 psn 0xa0000; B qpn 0x11 psn 0xb0000; B va 0x7f… rkey 0x2c6; …
        let numbers: Vec<u64> = line
            .split([' ', ';'])
            .filter_map(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok())
            .collect();
        let [a_qpn, a_psn, b_qpn, b_psn, b_address, b_rkey, ..] = numbers[..] else {
            panic!("{name}: numbers of {line}");
        };
        Tape {
            name: name.to_owned(),
            shots: shots(name, &file("pcap"), a_qpn as u32, b_qpn as u32),
            a_psn: a_psn as u32,
            b_psn: b_psn as u32,
            b_memory: (b_address, b_rkey as u32),
            a_saw: noted(&notes, "  A wc:"),
            b_saw: noted(&notes, "  B wc:"),
        }
    }

    /// What one of the two sent.
    pub(crate) fn sent(&self, by_a: bool) -> Vec<Literal> {
        self.shots.iter().filter(|shot| shot.from_a == by_a).map(|shot| shot.literal.clone()).collect()
    }
}

fn shots(name: &str, file: &[u8], a_qpn: u32, b_qpn: u32) -> Vec<Shot> {
    let (link, frames) = capture::frames(file);
    let shot = |frame: &&[u8]| {
        let datagram = decapsulate(link, frame).unwrap_or_else(|error| panic!("{name}: {error}"));
        // As from a socket, which does not see the identification.
        assert_ne!(icrc::verify(&datagram.flow, 0, datagram.payload), IcrcVerdict::Bad, "{name}");
        let from_a = datagram.flow.source.to_string().ends_with('2');
        let usual = Qpn::new(if from_a { b_qpn } else { a_qpn });
        let literal = Literal::parse(datagram.payload, usual);
        assert_eq!(literal.destination, None, "{name}: one pair of queue pairs");
        Shot { from_a, bytes: datagram.payload.to_vec(), literal }
    };
    frames.iter().map(shot).collect()
}

/// Lines such as `  B wc: wr_id 66536 status success opcode 128 len 64 flags 1 imm/inv 00000000 src_qp 0`.
fn noted(notes: &str, who: &str) -> Vec<Noted> {
    // Completions of binding a window are not of a message.
    let of_messages = |line: &&str| line.starts_with(who) && !line.contains(" opcode 5 ");
    notes.lines().filter(of_messages).map(note).collect()
}

fn note(line: &str) -> Noted {
    let between = |from: &str, to: &str| {
        let (_, rest) = line.split_once(from).unwrap_or_else(|| panic!("{from} in {line}"));
        rest.split_once(to).map_or(rest, |(word, _)| word)
    };
    let status = match between(" status ", " opcode ") {
        "success" => WcStatus::Success,
        "local QP operation error" => WcStatus::LocQpOpErr,
        "remote access error" => WcStatus::RemAccessErr,
        "remote invalid request error" => WcStatus::RemInvReqErr,
        "remote operation error" => WcStatus::RemOpErr,
        "transport retry counter exceeded" => WcStatus::RetryExcErr,
        "RNR retry counter exceeded" => WcStatus::RnrRetryExcErr,
        other => panic!("status {other}"),
    };
    let flags: u32 = u32::from_str_radix(between(" flags ", " "), 16).expect("flags");
    let imm = u32::from_str_radix(between("imm/inv ", " "), 16).expect("immediate data");
    Noted {
        status,
        byte_len: between(" len ", " ").parse().expect("a length"),
        imm: (flags & 2 != 0).then_some(imm.to_be_bytes()),
    }
}
