//! All headers of one packet as a value, and the packet written from it.

use super::header_set::CNP_RESERVED_BYTES;
use super::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Feth, Ieth, ImmDt, Opcode, Operation, Reth, Service, XrcEth,
};

/// The headers of a packet. Those that are present are written, in the order of the fields; a CNP's sixteen
/// reserved bytes follow from its opcode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // each field is documented by its type
pub struct Headers {
    pub bth: Bth,
    pub xrceth: Option<XrcEth>,
    pub deth: Option<Deth>,
    pub feth: Option<Feth>,
    pub reth: Option<Reth>,
    pub atomic_eth: Option<AtomicEth>,
    pub aeth: Option<Aeth>,
    pub atomic_ack_eth: Option<AtomicAckEth>,
    pub imm: Option<ImmDt>,
    pub ieth: Option<Ieth>,
}

impl Headers {
    const CNP: Opcode = Opcode::new(Service::Cnp, Operation::Cnp);

    /// Creates a BTH without further headers.
    #[inline]
    pub const fn new(bth: Bth) -> Headers {
        Headers {
            bth,
            xrceth: None,
            deth: None,
            feth: None,
            reth: None,
            atomic_eth: None,
            aeth: None,
            atomic_ack_eth: None,
            imm: None,
            ieth: None,
        }
    }

    /// Returns the length of all headers in bytes, BTH included.
    #[allow(clippy::len_without_is_empty)] // there is always a BTH
    #[inline]
    pub fn len(&self) -> usize {
        let present = |is_some: bool, bytes: usize| if is_some { bytes } else { 0 };
        Bth::LEN
            + present(self.xrceth.is_some(), XrcEth::LEN)
            + present(self.deth.is_some(), Deth::LEN)
            + present(self.feth.is_some(), Feth::LEN)
            + present(self.reth.is_some(), Reth::LEN)
            + present(self.atomic_eth.is_some(), AtomicEth::LEN)
            + present(self.aeth.is_some(), Aeth::LEN)
            + present(self.atomic_ack_eth.is_some(), AtomicAckEth::LEN)
            + present(self.imm.is_some(), ImmDt::LEN)
            + present(self.ieth.is_some(), Ieth::LEN)
            + present(self.bth.opcode == Headers::CNP, CNP_RESERVED_BYTES)
    }

    /// Writes the headers at the start of `out` and returns their length. If `out` is too short
    /// nothing is written and 0 returned.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let length_bytes = self.len();
        let Some(out) = out.get_mut(..length_bytes) else { return 0 };
        self.bth.emit(out);
        let mut at = Bth::LEN;
        macro_rules! put {
            ($($field:ident: $header:ident),*) => {$(
                if let Some(header) = &self.$field {
                    // The range is valid: `length_bytes` counts this header too.
                    header.emit(out.get_mut(at..).unwrap_or_default());
                    at += $header::LEN;
                }
            )*};
        }
        put!(
            xrceth: XrcEth,
            deth: Deth,
            feth: Feth,
            reth: Reth,
            atomic_eth: AtomicEth,
            aeth: Aeth,
            atomic_ack_eth: AtomicAckEth,
            imm: ImmDt,
            ieth: Ieth
        );
        if at < length_bytes {
            out.get_mut(at..).unwrap_or_default().fill(0); // a CNP's reserved bytes
        }
        length_bytes
    }

    /// Writes headers, payload and zero pad (not the ICRC) at the start of `out` and returns the bytes
    /// written, a multiple of 4. The pad count in the BTH is computed from `payload`; the value of
    /// `self.bth.pad_count` has no effect. If `out` is too short nothing is written and 0 returned.
    #[inline]
    pub fn emit_packet(&self, payload: &[u8], out: &mut [u8]) -> usize {
        let pad_count = payload.len().wrapping_neg() & 3;
        let header_bytes = self.len();
        let total_bytes = header_bytes + payload.len() + pad_count;
        let Some((head, body)) =
            out.get_mut(..total_bytes).and_then(|out| out.split_at_mut_checked(header_bytes))
        else {
            return 0;
        };
        //= statement:7
        //| A SEND of 5 bytes is padded with three zeros.
        Headers { bth: Bth { pad_count: pad_count as u8, ..self.bth }, ..*self }.emit(head);
        if let Some((data, pad)) = body.split_at_mut_checked(payload.len()) {
            data.copy_from_slice(payload);
            pad.fill(0);
        }
        total_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Psn, Qpn};

    fn headers(opcode: u8) -> Headers {
        Headers::new(Bth::new(Opcode::from_byte(opcode), Qpn::new(0x22), Psn::new(0x33)))
    }

    #[test]
    fn flush_has_feth_before_reth() {
        let flush = Headers {
            feth: Some(Feth { placement: 1, selectivity: 1 }),
            reth: Some(Reth { address: 0x0102_0304_0506_0708, rkey: 0x090a_0b0c, length: 0x0d0e_0f10 }),
            ..headers(0x1c)
        };
        let mut out = [0xee; 36];
        assert_eq!(flush.emit_packet(&[], &mut out), 32);
        let expected = [
            0x1c, 0, 0xff, 0xff, 0, 0, 0, 0x22, 0, 0, 0, 0x33, // BTH
            0, 0, 0, 0x11, // FETH
            1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, // RETH
        ];
        assert_eq!(out[..32], expected);
    }

    #[test]
    fn xrc_write_with_immediate_has_the_receive_queue_first_and_the_immediate_last() {
        let write = Headers {
            xrceth: Some(XrcEth { srqn: 0x44 }),
            reth: Some(Reth { address: 0, rkey: 1, length: 1 }),
            imm: Some(ImmDt(*b"imm!")),
            ..headers(0xab)
        };
        let mut out = [0xee; 40];
        assert_eq!(write.emit_packet(b"x", &mut out), 40);
        assert_eq!(out[1] >> 4, 3, "pad count follows from the payload");
        assert_eq!(out[12..16], [0, 0, 0, 0x44]);
        assert_eq!(out[16..32], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1]);
        assert_eq!(out[32..40], *b"imm!x\0\0\0");
    }

    #[test]
    fn a_cnp_has_sixteen_zero_bytes() {
        let mut out = [0xee; 29];
        assert_eq!(headers(0x81).emit(&mut out), 28);
        assert_eq!(out[12..28], [0; 16]);
        assert_eq!(out[28], 0xee);
    }

    #[test]
    fn a_short_buffer_is_left_alone() {
        let mut out = [7; 19];
        assert_eq!(headers(0x04).emit_packet(b"hello", &mut out), 0);
        assert_eq!(headers(0x81).emit(&mut out), 0);
        assert_eq!(out, [7; 19]);
    }
}
