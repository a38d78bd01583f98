//! Proofs about single headers: reading undoes writing, and writing undoes reading except for reserved bits.

use core::fmt::Debug;

use crate::proofs::{Values, check, check_all};
use crate::wire::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Feth, HeaderSet, ICRC_BYTES, Ieth, ImmDt, Opcode, Packet, Psn,
    Qpn, Reth, XrcEth,
};

/// Length of the longest header and one byte more.
const ROOM: usize = 29;
const UNTOUCHED: u8 = 0xa5;

/// Checks that a header that is written is read again. A buffer that is one byte too short stays as it is,
/// and no header can be read from it.
fn survives<T: PartialEq + Debug>(
    header: &T,
    length: usize,
    emit: impl Fn(&T, &mut [u8]),
    parse: impl Fn(&[u8]) -> Option<T>,
) {
    let mut out = [UNTOUCHED; ROOM];
    emit(header, &mut out[..length - 1]);
    assert_eq!(out, [UNTOUCHED; ROOM]);
    emit(header, &mut out);
    assert_eq!(parse(&out).as_ref(), Some(header));
    assert!(parse(&out[..length - 1]).is_none());
    assert!(out[length..].iter().all(|byte| *byte == UNTOUCHED));
}

/// Checks that bytes that are read as a header are written again, without their reserved bits.
fn comes_again<const LEN: usize, T>(
    bytes: [u8; LEN],
    defined: [u8; LEN],
    emit: impl Fn(&T, &mut [u8]),
    parse: impl Fn(&[u8]) -> Option<T>,
) {
    let mut out = [UNTOUCHED; LEN];
    let header = parse(&bytes);
    assert!(header.is_some());
    if let Some(header) = header {
        emit(&header, &mut out);
    }
    for index in 0..LEN {
        assert_eq!(out[index], bytes[index] & defined[index]);
    }
}

fn bth(from: &mut Values) -> Bth {
    Bth {
        opcode: Opcode::from_byte(from.u8()),
        solicited: from.bool(),
        migrated: from.bool(),
        pad_count: from.up_to(3) as u8,
        version: from.up_to(15) as u8,
        pkey: from.u16(),
        fecn: from.bool(),
        becn: from.bool(),
        destination: Qpn::new(from.u24()),
        ack_request: from.bool(),
        psn: Psn::new(from.u24()),
    }
}

/// Reading a written BTH returns it.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(32))]
#[cfg_attr(not(kani), test)]
fn a_bth_survives_the_wire() {
    check(|from| survives(&bth(from), Bth::LEN, Bth::emit, Bth::parse));
}

/// Any twelve bytes are a BTH, and writing it restores them without their reserved bits.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(32))]
#[cfg_attr(not(kani), test)]
fn the_bytes_of_a_bth_come_again() {
    const DEFINED: [u8; 12] = [0xff, 0xff, 0xff, 0xff, 0xc0, 0xff, 0xff, 0xff, 0x80, 0xff, 0xff, 0xff];
    check(|from| comes_again(from.bytes(), DEFINED, Bth::emit, Bth::parse));
}

/// Reading a written RETH returns it, and writing a read one restores its bytes.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(32))]
#[cfg_attr(not(kani), test)]
fn a_reth_survives_the_wire() {
    check(|from| {
        let reth = Reth { address: from.u64(), rkey: from.u32(), length: from.u32() };
        survives(&reth, Reth::LEN, Reth::emit, Reth::parse);
        comes_again(from.bytes(), [0xff; Reth::LEN], Reth::emit, Reth::parse);
    });
}

/// Reading a written AETH returns it, and writing a read one restores its bytes.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(32))]
#[cfg_attr(not(kani), test)]
fn an_aeth_survives_the_wire() {
    check(|from| {
        let aeth = Aeth { syndrome: from.u8(), msn: from.u24() };
        survives(&aeth, Aeth::LEN, Aeth::emit, Aeth::parse);
        comes_again(from.bytes(), [0xff; Aeth::LEN], Aeth::emit, Aeth::parse);
    });
}

/// Reading a written header of an atomic request returns it, and writing a read one restores its bytes.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(32))]
#[cfg_attr(not(kani), test)]
fn the_header_of_an_atomic_request_survives_the_wire() {
    check(|from| {
        let header =
            AtomicEth { address: from.u64(), rkey: from.u32(), swap_or_add: from.u64(), compare: from.u64() };
        survives(&header, AtomicEth::LEN, AtomicEth::emit, AtomicEth::parse);
        comes_again(from.bytes(), [0xff; AtomicEth::LEN], AtomicEth::emit, AtomicEth::parse);
    });
}

/// Reading a written header of an atomic answer returns it, and writing a read one restores its bytes.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(32))]
#[cfg_attr(not(kani), test)]
fn the_header_of_an_atomic_answer_survives_the_wire() {
    check(|from| {
        let header = AtomicAckEth { original: from.u64() };
        survives(&header, AtomicAckEth::LEN, AtomicAckEth::emit, AtomicAckEth::parse);
        comes_again(from.bytes(), [0xff; AtomicAckEth::LEN], AtomicAckEth::emit, AtomicAckEth::parse);
    });
}

/// Reading a written DETH returns it, and writing a read one restores its bytes without the reserved one.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(32))]
#[cfg_attr(not(kani), test)]
fn a_deth_survives_the_wire() {
    const DEFINED: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff, 0xff];
    check(|from| {
        let deth = Deth { qkey: from.u32(), source: Qpn::new(from.u24()) };
        survives(&deth, Deth::LEN, Deth::emit, Deth::parse);
        comes_again(from.bytes(), DEFINED, Deth::emit, Deth::parse);
    });
}

/// Reading a written XRCETH or FETH returns it, and writing a read one restores its bytes without reserved
/// bits.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(32))]
#[cfg_attr(not(kani), test)]
fn an_xrceth_and_a_feth_survive_the_wire() {
    check(|from| {
        survives(&XrcEth { srqn: from.u24() }, XrcEth::LEN, XrcEth::emit, XrcEth::parse);
        comes_again(from.bytes(), [0, 0xff, 0xff, 0xff], XrcEth::emit, XrcEth::parse);
        let feth = Feth { placement: from.up_to(15) as u8, selectivity: from.up_to(3) as u8 };
        survives(&feth, Feth::LEN, Feth::emit, Feth::parse);
        comes_again(from.bytes(), [0, 0, 0, 0x3f], Feth::emit, Feth::parse);
    });
}

/// Reading written immediate data or a key to invalidate returns it, and writing a read one restores its
/// bytes.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(32))]
#[cfg_attr(not(kani), test)]
fn the_headers_at_the_end_of_a_message_survive_the_wire() {
    check(|from| {
        survives(&ImmDt(from.bytes()), ImmDt::LEN, ImmDt::emit, ImmDt::parse);
        survives(&Ieth { rkey: from.u32() }, Ieth::LEN, Ieth::emit, Ieth::parse);
        comes_again(from.bytes(), [0xff; Ieth::LEN], Ieth::emit, Ieth::parse);
    });
}

/// The headers of a set lie one behind the other: each begins where those before it end.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(12))]
#[cfg_attr(not(kani), test)]
fn the_headers_of_a_set_do_not_overlap() {
    check_all(|from| {
        let set = HeaderSet::from_bits_truncate(from.up_to(HeaderSet::all().bits().into()) as u16);
        let header = HeaderSet::from_bits_truncate(1 << from.up_to(9));
        let offset = set.offset_of(header);
        assert_eq!(offset.is_some(), set.contains(header));
        if let Some(offset) = offset {
            let behind = set.difference(HeaderSet::from_bits_retain(header.bits() | (header.bits() - 1)));
            assert_eq!(offset + header.bytes() + behind.bytes(), Bth::LEN + set.bytes());
            assert!(offset >= Bth::LEN && header.bytes() >= 4);
        }
    });
}

/// The row of an opcode is about that opcode, and its length is that of its headers.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(12))]
#[cfg_attr(not(kani), test)]
fn the_row_of_an_opcode_is_its_own() {
    check_all(|from| {
        let opcode = Opcode::from_byte(from.u8());
        let Some(info) = opcode.info() else { return };
        assert_eq!((info.opcode, info.service), (opcode, opcode.service()));
        assert_eq!(Opcode::new(info.service, info.operation), opcode);
        assert_eq!(info.header_bytes, Bth::LEN + info.headers.bytes());
        assert!(info.header_bytes + ICRC_BYTES >= Packet::MIN_BYTES);
        assert_eq!(info.is_request, info.class.is_request());
    });
}
