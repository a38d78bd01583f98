//! All headers of one packet as a value, and the packet written from it.

use super::opcode::CNP_RESERVED_BYTES;
use super::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Feth, Ieth, ImmDt, Opcode, Operation, Reth, Service, XrcEth,
};

/// The headers of a packet. Which ones are written is decided by which are present, in the order of
/// the fields; a CNP's sixteen reserved bytes follow from its opcode.
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

    /// A BTH and nothing after it.
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

    /// Bytes of all headers, BTH included.
    #[allow(clippy::len_without_is_empty)] // there is always a BTH
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
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let length_bytes = self.len();
        let Some(out) = out.get_mut(..length_bytes) else { return 0 };
        self.bth.emit(out);
        let mut at = Bth::LEN;
        macro_rules! put {
            ($($field:ident: $header:ident),*) => {$(
                if let Some(header) = &self.$field {
                    // In range: `length_bytes` counts this header too.
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
        out.get_mut(at..).unwrap_or_default().fill(0); // a CNP's reserved bytes
        length_bytes
    }

    /// Writes headers, payload and zero pad (not the ICRC) at the start of `out` and returns the
    /// bytes written, a multiple of 4. The pad count in the BTH is that of `payload`, whatever
    /// `self.bth.pad_count` says. If `out` is too short nothing is written and 0 returned.
    pub fn emit_packet(&self, payload: &[u8], out: &mut [u8]) -> usize {
        let pad_count = payload.len().wrapping_neg() & 3;
        let header_bytes = self.len();
        let total_bytes = header_bytes + payload.len() + pad_count;
        let Some((head, body)) =
            out.get_mut(..total_bytes).and_then(|out| out.split_at_mut_checked(header_bytes))
        else {
            return 0;
        };
        Headers { bth: Bth { pad_count: pad_count as u8, ..self.bth }, ..*self }.emit(head);
        if let Some((data, pad)) = body.split_at_mut_checked(payload.len()) {
            data.copy_from_slice(payload);
            pad.fill(0);
        }
        total_bytes
    }
}
