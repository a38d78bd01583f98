//! A second program, in Python, that was written from the fact sheet: both build the same bytes of a
//! packet, and read the same from them.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::IpAddr;
use std::process::{Command, Stdio};

use pumice_transport::mrc::entropy::Entropy;
use pumice_transport::mrc::wire::{
    CcState, Eeth, EndpointOperation, Erth, MRC_OPCODES, Meth, MrcBody, MrcBth, MrcHeaderSet, MrcHeaders,
    MrcOpcode, MrcPacket, NackReason, Neth, PathMark, Peth, SackTrigger, Seth, Tseth, WriteHeaders,
};
use pumice_transport::path::{Flow, ROCE_PORT};
use pumice_transport::wire::{Aeth, ImmDt, Psn, Qpn, Reth, icrc};

use crate::golden::unhex;
use crate::simulation::Random;

const PACKETS: usize = 3000;

impl Random {
    fn bits(&mut self, count: u32) -> u64 {
        let drawn = self.below(1 << 31) << 62 | self.below(1 << 31) << 31 | self.below(1 << 31);
        let drawn = match self.below(8) {
            0 => 0,
            1 => u64::MAX,
            _ => drawn,
        };
        if count == 64 { drawn } else { drawn & ((1 << count) - 1) }
    }

    fn bit(&mut self) -> bool {
        self.below(2) == 1
    }

    fn tseth(&mut self) -> Tseth {
        Tseth { timestamp: self.bits(16) as u16, has_own_unit: self.bit() }
    }

    fn seth(&mut self) -> Seth {
        let marks = [PathMark::None, PathMark::SkipOnce, PathMark::AlwaysSkip, PathMark::Reserved];
        let offset = self.bits(16) as u16;
        Seth {
            mark: marks[self.below(4) as usize],
            trigger: match self.bit() {
                true => SackTrigger::Probe { probe_id: offset },
                false => SackTrigger::Packet { offset: offset as i16 },
            },
            entropy: Entropy(self.bits(32) as u32),
            spdcid: self.bits(16) as u16,
            dpdcid: self.bits(16) as u16,
            cack_psn: Psn::new(self.bits(24) as u32),
            cc_type: self.bits(4) as u8,
            cc_flags: self.bits(4) as u8,
            mpr: self.bits(8) as u8,
            sack_offset: self.bits(16) as i16,
            bitmap: self.bits(64),
        }
    }

    fn body(&mut self, opcode: MrcOpcode) -> MrcBody {
        match opcode.info().headers {
            MrcHeaderSet::Write | MrcHeaderSet::WriteImm => {
                let reth =
                    Reth { address: self.bits(64), rkey: self.bits(32) as u32, length: self.bits(32) as u32 };
                MrcBody::Write(WriteHeaders {
                    meth: Meth { rqmsn: self.bits(16) as u16, msn: self.bits(16) as u16 },
                    tseth: if self.bit() { Some(self.tseth()) } else { None },
                    reth,
                    imm: opcode.has_imm().then(|| ImmDt((self.bits(32) as u32).to_be_bytes())),
                })
            }
            MrcHeaderSet::Aeth => {
                MrcBody::Acknowledge(Aeth { syndrome: self.bits(8) as u8, msn: self.bits(24) as u32 })
            }
            MrcHeaderSet::Erth => MrcBody::EndpointRequest(Erth {
                operation: EndpointOperation::from_bits(self.below(2) as u8).unwrap(),
                vendor_info: self.bits(8) as u8,
                port_status_mask: self.bits(32) as u32,
                tseth: self.tseth(),
            }),
            MrcHeaderSet::Eeth => MrcBody::EndpointResponse(Eeth {
                operation_bits: self.bits(2) as u8,
                timestamp: self.bits(16) as u16,
            }),
            MrcHeaderSet::Seth => MrcBody::Sack(
                self.seth(),
                CcState {
                    timestamp: self.bits(16) as u16,
                    ooo_count: self.bits(15) as u16,
                    restore_cwnd: self.bit(),
                    rcv_cwnd_pen: self.bits(7) as u8,
                    rcvd_bytes: self.bits(24) as u32,
                },
            ),
            MrcHeaderSet::Neth => MrcBody::Nack(Neth {
                reason: NackReason::from_byte(self.bits(8) as u8),
                vendor_info: self.bits(8) as u8,
                entropy: Entropy(self.bits(32) as u32),
                spdcid: self.bits(16) as u16,
                dpdcid: self.bits(16) as u16,
                nack_psn: Psn::new(self.bits(24) as u32),
                cc_flags: self.bits(4) as u8,
                timestamp: self.bits(16) as u16,
            }),
            MrcHeaderSet::Peth => MrcBody::Probe(Peth {
                vendor_info: self.bits(8) as u8,
                probe_id: self.bits(16) as u16,
                spdcid: self.bits(16) as u16,
                dpdcid: self.bits(16) as u16,
                tseth: self.tseth(),
            }),
        }
    }

    fn packet(&mut self) -> (MrcHeaders, Vec<u8>) {
        let opcode = MRC_OPCODES[self.below(12) as usize].opcode;
        let body = self.body(opcode);
        let length = if opcode.is_write() { self.below(40) } else { 0 };
        let payload: Vec<u8> = (0..length).map(|_| self.bits(8) as u8).collect();
        let has_timestamp = matches!(&body, MrcBody::Write(write) if write.tseth.is_some());
        let bth = MrcBth {
            solicited: self.bit(),
            pad_count: (payload.len().wrapping_neg() & 3) as u8,
            pkey: self.bits(16) as u16,
            ack_request: self.bit(),
            retransmission: self.bit(),
            has_timestamp,
            ..MrcBth::new(opcode, Qpn::new(self.bits(24) as u32), Psn::new(self.bits(24) as u32))
        };
        (MrcHeaders { bth, body }, payload)
    }
}

fn stamped(text: &mut String, tseth: &Tseth) {
    let _ = write!(text, " stamp={} tsr={}", tseth.timestamp, u8::from(tseth.has_own_unit));
}

fn describe_sack(text: &mut String, seth: &Seth, state: &CcState) {
    let (is_probe, offset) = match seth.trigger {
        SackTrigger::Packet { offset } => (0, i32::from(offset)),
        SackTrigger::Probe { probe_id } => (1, i32::from(probe_id)),
    };
    let _ = write!(text, " m={} pr={is_probe} offset={offset}", seth.mark as u8);
    let _ = write!(text, " entropy={} spdcid={} dpdcid={}", seth.entropy.0, seth.spdcid, seth.dpdcid);
    let _ = write!(text, " cack={} cc_type={}", seth.cack_psn.value(), seth.cc_type);
    let _ = write!(text, " cc_fl={} mpr={} sack_offset={}", seth.cc_flags, seth.mpr, seth.sack_offset);
    let _ = write!(text, " bitmap={} stamp={} ooo={}", seth.bitmap, state.timestamp, state.ooo_count);
    let _ = write!(text, " restore={} penalty={}", u8::from(state.restore_cwnd), state.rcv_cwnd_pen);
    let _ = write!(text, " rcvd={}", state.rcvd_bytes);
}

/// A packet in the words of the other program.
fn describe(headers: &MrcHeaders, payload: &[u8]) -> String {
    let MrcHeaders { bth, body } = headers;
    let mut text = format!("op={} se={} pkey={}", bth.opcode.byte(), u8::from(bth.solicited), bth.pkey);
    let marks = [bth.ack_request, bth.retransmission, bth.has_timestamp].map(u8::from);
    let _ = write!(text, " dqp={} a={} rtx={} ts={}", bth.destination.value(), marks[0], marks[1], marks[2]);
    let _ = write!(text, " psn={}", bth.psn.value());
    match body {
        MrcBody::Write(write) => {
            let _ = write!(text, " rqmsn={} msn={}", write.meth.rqmsn, write.meth.msn);
            if let Some(tseth) = &write.tseth {
                stamped(&mut text, tseth);
            }
            let Reth { address, rkey, length } = write.reth;
            let _ = write!(text, " va={address} rkey={rkey} dmalen={length}");
            if let Some(ImmDt(imm)) = write.imm {
                let _ = write!(text, " imm={}", u32::from_be_bytes(imm));
            }
        }
        MrcBody::Acknowledge(aeth) => {
            let _ = write!(text, " syndrome={} ack_msn={}", aeth.syndrome, aeth.msn);
        }
        MrcBody::EndpointRequest(erth) => {
            let (operation, mask) = (erth.operation as u8, erth.port_status_mask);
            let _ = write!(text, " endpoint={operation} vendor={} mask={mask}", erth.vendor_info);
            stamped(&mut text, &erth.tseth);
        }
        MrcBody::EndpointResponse(eeth) => {
            let _ = write!(text, " endpoint={} stamp={}", eeth.operation_bits, eeth.timestamp);
        }
        MrcBody::Sack(seth, state) => describe_sack(&mut text, seth, state),
        MrcBody::Nack(neth) => {
            let _ = write!(text, " reason={} vendor={}", neth.reason.byte(), neth.vendor_info);
            let _ = write!(text, " entropy={} spdcid={} dpdcid={}", neth.entropy.0, neth.spdcid, neth.dpdcid);
            let _ = write!(text, " nack_psn={} cc_fl={}", neth.nack_psn.value(), neth.cc_flags);
            let _ = write!(text, " stamp={}", neth.timestamp);
        }
        MrcBody::Probe(peth) => {
            let _ = write!(text, " vendor={} probe={}", peth.vendor_info, peth.probe_id);
            let _ = write!(text, " spdcid={} dpdcid={}", peth.spdcid, peth.dpdcid);
            stamped(&mut text, &peth.tseth);
        }
    }
    let _ = write!(text, " payload={}", hex(payload));
    text
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn flow(is_ipv6: bool, source_port: u16) -> Flow {
    let address = |v4: &str, v6: &str| -> IpAddr { (if is_ipv6 { v6 } else { v4 }).parse().unwrap() };
    Flow {
        source: address("192.0.2.1", "fd00::1"),
        destination: address("192.0.2.2", "fd00::2"),
        source_port,
        destination_port: ROCE_PORT,
    }
}

/// What the other program says to these lines; `None`: there is no Python here.
fn answers(lines: &str) -> Option<Vec<String>> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mrc/counterpart.py");
    let started = Command::new("python3").arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let Ok(mut python) = started else {
        let _ = writeln!(std::io::stderr(), "**** SKIPPED: there is no python3");
        return None;
    };
    let mut input = python.stdin.take().unwrap();
    let text = lines.to_owned();
    let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
    let output = python.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success());
    Some(String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect())
}

#[test]
fn both_programs_build_and_read_the_same() {
    let mut random = Random(4);
    let (mut lines, mut expected, mut packets) = (String::new(), Vec::new(), Vec::new());
    for number in 0..PACKETS {
        let (headers, payload) = random.packet();
        let (is_ipv6, port) = (number % 2 == 0, random.bits(16) as u16);
        let mut bytes = vec![0; headers.packet_len(payload.len())];
        headers.emit(payload.len(), &mut bytes).unwrap().copy_from_slice(&payload);
        icrc::seal(&flow(is_ipv6, port), 0, &mut bytes);
        let kind = if is_ipv6 { "v6" } else { "v4" };
        let (words, digits) = (describe(&headers, &payload), hex(&bytes));
        let _ = writeln!(lines, "parse {kind}:{port} {digits}\nbuild {kind}:{port} {words}");
        expected.extend([words, digits]);
        packets.push((headers, payload));
    }
    let Some(found) = answers(&lines) else { return };
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(found, expected);
    }
    for (built, (headers, payload)) in found.iter().skip(1).step_by(2).zip(&packets) {
        let bytes = unhex(built);
        let packet = MrcPacket::parse(&bytes).unwrap();
        assert_eq!((&packet.headers, packet.payload), (headers, &payload[..]));
    }
}
