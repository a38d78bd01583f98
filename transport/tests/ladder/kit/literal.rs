//! A packet as a test writes it, and as a test wants to see it.

use std::fmt;

use pumice_transport::wire::Qpn;

use super::op::{self, Header};

/// What a bit-exact ACK without flow control carries; ACKs with other credits compare as this one.
pub(crate) const ACK_SYNDROME: u8 = 0x1f;
/// NAK syndromes.
pub(crate) const NAK_SEQUENCE: u8 = 0x60;
pub(crate) const NAK_INVALID: u8 = 0x61;
pub(crate) const NAK_ACCESS: u8 = 0x62;
pub(crate) const NAK_OPERATION: u8 = 0x63;
pub(crate) const NAK_XRC: u8 = 0x64;

/// A packet from BTH to payload. Build one with [`rc`], [`uc`], [`ud`], [`xrc`] or a shortcut; the
/// headers written are those that were given, so a malformed packet is as easy as a right one.
/// Without `.to(…)` it goes to the usual destination: the other end.
#[derive(Clone, PartialEq, Eq, Default)]
pub(crate) struct Literal {
    pub(crate) opcode: u8,
    pub(crate) psn: u32,
    pub(crate) ack_req: bool,
    pub(crate) solicited: bool,
    pub(crate) becn: bool,
    pub(crate) destination: Option<u32>,
    pub(crate) pkey: Option<u16>,
    pub(crate) xrc: Option<u32>,
    pub(crate) deth: Option<(u32, u32)>,
    pub(crate) feth: Option<(u8, u8)>,
    pub(crate) reth: Option<(u64, u32, u32)>,
    pub(crate) atomic: Option<(u64, u32, u64, u64)>,
    pub(crate) aeth: Option<(u8, u32)>,
    pub(crate) atomic_ack: Option<u64>,
    pub(crate) imm: Option<[u8; 4]>,
    pub(crate) ieth: Option<u32>,
    pub(crate) payload: Vec<u8>,
}

/// An RC packet.
pub(crate) fn rc(operation: u8) -> Literal {
    Literal { opcode: operation, ..Literal::default() }
}

/// A UC packet.
pub(crate) fn uc(operation: u8) -> Literal {
    rc(0x20 | operation)
}

/// A UD packet with its Q_Key and source.
pub(crate) fn ud(operation: u8, qkey: u32, source: Qpn) -> Literal {
    Literal { deth: Some((qkey, source.value())), ..rc(0x60 | operation) }
}

/// An XRC request for an SRQ.
pub(crate) fn xrc(operation: u8, srqn: u32) -> Literal {
    Literal { xrc: Some(srqn), ..rc(0xa0 | operation) }
}

/// A positive acknowledgement.
pub(crate) fn ack(psn: u32, msn: u32) -> Literal {
    rc(op::ACK).psn(psn).aeth(ACK_SYNDROME, msn)
}

/// A negative acknowledgement with one of the `NAK_*` syndromes.
pub(crate) fn nak(syndrome: u8, psn: u32, msn: u32) -> Literal {
    rc(op::ACK).psn(psn).aeth(syndrome, msn)
}

/// An RNR NAK that asks for the wait of this timer code.
pub(crate) fn rnr(timer_code: u8, psn: u32, msn: u32) -> Literal {
    nak(0x20 | timer_code, psn, msn)
}

/// A READ response; Middle ones carry no AETH.
pub(crate) fn read_response(operation: u8, psn: u32, msn: u32, payload: &[u8]) -> Literal {
    let literal = rc(operation).psn(psn).payload(payload);
    if operation == op::READ_MIDDLE { literal } else { literal.aeth(ACK_SYNDROME, msn) }
}

/// The answer to an atomic.
pub(crate) fn atomic_ack(psn: u32, msn: u32, original: u64) -> Literal {
    Literal { atomic_ack: Some(original), ..rc(op::ATOMIC_ACK).psn(psn).aeth(ACK_SYNDROME, msn) }
}

/// A congestion notification.
pub(crate) fn cnp() -> Literal {
    Literal { becn: true, ..rc(op::CNP) }
}

impl Literal {
    pub(crate) fn psn(self, psn: u32) -> Literal {
        Literal { psn, ..self }
    }

    /// Asks for an answer.
    pub(crate) fn ack_req(self) -> Literal {
        Literal { ack_req: true, ..self }
    }

    pub(crate) fn solicited(self) -> Literal {
        Literal { solicited: true, ..self }
    }

    pub(crate) fn to(self, destination: u32) -> Literal {
        Literal { destination: Some(destination), ..self }
    }

    pub(crate) fn pkey(self, pkey: u16) -> Literal {
        Literal { pkey: Some(pkey), ..self }
    }

    pub(crate) fn reth(self, address: u64, rkey: u32, length: u32) -> Literal {
        Literal { reth: Some((address, rkey, length)), ..self }
    }

    pub(crate) fn atomic(self, address: u64, rkey: u32, swap_or_add: u64, compare: u64) -> Literal {
        Literal { atomic: Some((address, rkey, swap_or_add, compare)), ..self }
    }

    pub(crate) fn aeth(self, syndrome: u8, msn: u32) -> Literal {
        Literal { aeth: Some((syndrome, msn)), ..self }
    }

    pub(crate) fn feth(self, placement: u8, selectivity: u8) -> Literal {
        Literal { feth: Some((placement, selectivity)), ..self }
    }

    pub(crate) fn imm(self, imm: [u8; 4]) -> Literal {
        Literal { imm: Some(imm), ..self }
    }

    /// The key to invalidate.
    pub(crate) fn ieth(self, rkey: u32) -> Literal {
        Literal { ieth: Some(rkey), ..self }
    }

    pub(crate) fn payload(self, payload: &[u8]) -> Literal {
        Literal { payload: payload.to_vec(), ..self }
    }

    /// The same packet as the other half of XRC sends it: for answers, which have no XRCETH.
    pub(crate) fn over_xrc(self) -> Literal {
        Literal { opcode: self.opcode & 0x1f | 0xa0, ..self }
    }

    /// The bytes of the UDP payload, with an ICRC of zeros, to `usual` unless `.to(…)` said else.
    pub(crate) fn bytes(&self, usual: Qpn) -> Vec<u8> {
        let pad = self.payload.len().wrapping_neg() & 3;
        let flag = |set: bool, bit: u8| u8::from(set) << bit;
        let mut out = vec![self.opcode, flag(self.solicited, 7) | (pad as u8) << 4];
        out.extend(self.pkey.unwrap_or(0xffff).to_be_bytes());
        word(&mut out, flag(self.becn, 6), self.destination.unwrap_or(usual.value()));
        word(&mut out, flag(self.ack_req, 7), self.psn);
        if let Some(srqn) = self.xrc {
            word(&mut out, 0, srqn);
        }
        if let Some((qkey, source)) = self.deth {
            out.extend(qkey.to_be_bytes());
            word(&mut out, 0, source);
        }
        if let Some((placement, selectivity)) = self.feth {
            out.extend([0, 0, 0, selectivity << 4 | placement]);
        }
        if let Some((address, rkey, length)) = self.reth {
            out.extend(address.to_be_bytes());
            out.extend(rkey.to_be_bytes());
            out.extend(length.to_be_bytes());
        }
        if let Some((address, rkey, swap_or_add, compare)) = self.atomic {
            out.extend(address.to_be_bytes());
            out.extend(rkey.to_be_bytes());
            out.extend(swap_or_add.to_be_bytes());
            out.extend(compare.to_be_bytes());
        }
        if let Some((syndrome, msn)) = self.aeth {
            word(&mut out, syndrome, msn);
        }
        out.extend(self.atomic_ack.iter().flat_map(|original| original.to_be_bytes()));
        out.extend(self.imm.iter().flatten());
        out.extend(self.ieth.iter().flat_map(|rkey| rkey.to_be_bytes()));
        if self.opcode == op::CNP {
            out.extend([0; 16]);
        }
        out.extend(&self.payload);
        out.extend(std::iter::repeat_n(0, pad + 4));
        out
    }

    /// The packet in these bytes. The destination `usual` and the P_Key 0xffff are left out, ACKs
    /// get the syndrome [`ACK_SYNDROME`], for every number of credits.
    ///
    /// Panics when the bytes are too short, or break a rule that holds for every packet sent:
    /// version 0, reserved bits 0, pad bytes 0, a length that is a multiple of four.
    pub(crate) fn parse(bytes: &[u8], usual: Qpn) -> Literal {
        let (bth, rest) = bytes.split_at_checked(12).expect("a BTH");
        let (body, _icrc) = rest.split_last_chunk::<4>().expect("an ICRC");
        assert_eq!(bth[1] & 0x0f, 0, "header version");
        assert_eq!(bth[4] & 0x3f, 0, "reserved bits beside FECN and BECN");
        assert_eq!(bth[8] & 0x7f, 0, "reserved bits beside AckReq");
        assert_eq!(bytes.len() % 4, 0, "length {} is no multiple of four", bytes.len());
        let destination = number(bth, 4..8) & 0xff_ffff;
        let pkey = number(bth, 2..4);
        let mut literal = Literal {
            opcode: bth[0],
            psn: number(bth, 8..12) & 0xff_ffff,
            ack_req: bth[8] & 0x80 != 0,
            solicited: bth[1] & 0x80 != 0,
            becn: bth[4] & 0x40 != 0,
            destination: (destination != usual.value()).then_some(destination),
            pkey: (pkey != 0xffff).then_some(pkey as u16),
            ..Literal::default()
        };
        let mut at = 0;
        for header in op::headers(bth[0]) {
            at += literal.parse_header(header, &body[at..]);
        }
        let pad = usize::from(bth[1] >> 4 & 3);
        let (payload, padding) = body[at..].split_at(body.len() - at - pad);
        assert!(padding.iter().all(|byte| *byte == 0), "pad bytes {padding:02x?}");
        literal.payload = payload.to_vec();
        literal
    }

    /// Reads one header and returns its length.
    fn parse_header(&mut self, header: Header, bytes: &[u8]) -> usize {
        let low24 = |at: usize| number(bytes, at..at + 4) & 0xff_ffff;
        let word = |at: usize| number(bytes, at..at + 4);
        let long = |at: usize| u64::from(word(at)) << 32 | u64::from(word(at + 4));
        match header {
            Header::Xrc => self.xrc = Some(low24(0)),
            Header::Deth => self.deth = Some((word(0), low24(4))),
            Header::Feth => self.feth = Some((bytes[3] & 0xf, bytes[3] >> 4)),
            Header::Reth => self.reth = Some((long(0), word(8), word(12))),
            Header::Atomic => self.atomic = Some((long(0), word(8), long(12), long(20))),
            Header::Aeth => {
                let syndrome = if bytes[0] < 0x20 { ACK_SYNDROME } else { bytes[0] };
                self.aeth = Some((syndrome, low24(0)));
            }
            Header::AtomicAck => self.atomic_ack = Some(long(0)),
            Header::Imm => self.imm = Some(word(0).to_be_bytes()),
            Header::Ieth => self.ieth = Some(word(0)),
            Header::CnpReserved => assert_eq!(bytes[..16], [0; 16], "reserved bytes of a CNP"),
        }
        match header {
            Header::Xrc | Header::Feth | Header::Aeth | Header::Imm | Header::Ieth => 4,
            Header::Deth | Header::AtomicAck => 8,
            Header::Reth | Header::CnpReserved => 16,
            Header::Atomic => 28,
        }
    }
}

/// One line: `RC SEND_ONLY psn 0x5 A: 5 bytes 68 65 6c 6c 6f`.
impl fmt::Debug for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} psn {:#x}", op::service(self.opcode), op::name(self.opcode), self.psn)?;
        for (set, letter) in [(self.ack_req, " A"), (self.solicited, " SE"), (self.becn, " BECN")] {
            f.write_str(if set { letter } else { "" })?;
        }
        for (name, value) in [
            (" to", self.destination),
            (" pkey", self.pkey.map(u32::from)),
            (" srq", self.xrc),
            (" inv", self.ieth),
        ] {
            if let Some(value) = value {
                write!(f, "{name} {value:#x}")?;
            }
        }
        if let Some((qkey, source)) = self.deth {
            write!(f, " qkey {qkey:#x} from {source:#x}")?;
        }
        if let Some((placement, selectivity)) = self.feth {
            write!(f, " placement {placement} selectivity {selectivity}")?;
        }
        if let Some((address, rkey, length)) = self.reth {
            write!(f, " va {address:#x} rkey {rkey:#x} length {length}")?;
        }
        if let Some((address, rkey, swap_or_add, compare)) = self.atomic {
            write!(f, " va {address:#x} rkey {rkey:#x} swap/add {swap_or_add:#x} compare {compare:#x}")?;
        }
        if let Some((syndrome, msn)) = self.aeth {
            write!(f, " syndrome {syndrome:#04x} msn {msn}")?;
        }
        if let Some(original) = self.atomic_ack {
            write!(f, " original {original:#x}")?;
        }
        if let Some(imm) = self.imm {
            write!(f, " imm {imm:02x?}")?;
        }
        if !self.payload.is_empty() {
            write!(f, ": {} bytes", self.payload.len())?;
            for byte in self.payload.iter().take(16) {
                write!(f, " {byte:02x}")?;
            }
            f.write_str(if self.payload.len() > 16 { " …" } else { "" })?;
        }
        Ok(())
    }
}

/// Appends a byte and a 24-bit number.
fn word(out: &mut Vec<u8>, high: u8, low24: u32) {
    out.extend((u32::from(high) << 24 | low24 & 0xff_ffff).to_be_bytes());
}

/// The big-endian number in a range of at most four bytes.
fn number(bytes: &[u8], range: std::ops::Range<usize>) -> u32 {
    let field = bytes.get(range.clone()).unwrap_or_else(|| panic!("no bytes {range:?} in {bytes:02x?}"));
    field.iter().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::super::{LOCAL, PEER};
    use super::*;

    #[test]
    fn a_send_is_laid_out_as_the_standard_draws_it() {
        let literal = rc(op::SEND_ONLY_IMM).psn(0x01_0203).ack_req().imm([9, 8, 7, 6]).payload(b"hello");
        let expected = [
            [0x05, 0x30, 0xff, 0xff],
            [0x00, 0x00, 0x00, 0x11],
            [0x80, 0x01, 0x02, 0x03],
            [9, 8, 7, 6],
            *b"hell",
            [b'o', 0, 0, 0],
            [0; 4],
        ];
        assert_eq!(literal.bytes(LOCAL), expected.concat());
        assert_eq!(
            format!("{literal:?}"),
            "RC SEND_ONLY_IMM psn 0x10203 A imm [09, 08, 07, 06]: 5 bytes 68 65 6c 6c 6f"
        );
    }

    #[test]
    fn what_is_written_is_read_back() {
        let literals = [
            rc(op::SEND_FIRST).psn(0xff_ffff).payload(&[1; 256]),
            uc(op::WRITE_ONLY_IMM).reth(u64::MAX, 5, 6).imm([1, 2, 3, 4]).solicited(),
            ud(op::SEND_ONLY, 0x8001_0000, Qpn::GSI).to(1).pkey(0x7fff),
            xrc(op::WRITE_MIDDLE, 0x1234).payload(&[7; 3]),
            xrc(op::SEND_ONLY_INV, 0x1234).ieth(0xdead_beef),
            rc(op::CMP_SWAP).atomic(1 << 40, 2, 3, 4),
            rc(op::FLUSH).feth(3, 1).reth(1, 2, 3),
            read_response(op::READ_MIDDLE, 1, 2, &[3; 4]),
            read_response(op::READ_LAST, 1, 2, &[3; 1]).over_xrc(),
            atomic_ack(5, 6, 7),
            rnr(31, 5, 6),
            nak(NAK_SEQUENCE, 1, 0),
            cnp(),
        ];
        for literal in literals {
            assert_eq!(Literal::parse(&literal.bytes(PEER), PEER), literal);
        }
        assert_eq!(Literal::parse(&rc(op::ACK).aeth(3, 9).bytes(PEER), PEER), ack(0, 9));
    }
}
