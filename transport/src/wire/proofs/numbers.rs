//! Proofs about PSNs, queue pair numbers, codes of timers and credits, and source ports.

use crate::proofs::{Values, check, check_all};
use crate::wire::{
    NakCode, ProcessIndex, Psn, Qpn, Syndrome, credits, rnr_timer_ns, source_port, transport_timer_ns,
};

/// Half of the circle of PSNs.
const HALF: u32 = 1 << 23;

fn psn(from: &mut Values) -> Psn {
    Psn::new(from.u32())
}

/// A distance is from −2^23 to 2^23 − 1, and leads from the one PSN to the other.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(not(kani), test)]
fn the_distance_of_two_psns_leads_from_one_to_the_other() {
    check(|from| {
        let (origin, target) = (psn(from), psn(from));
        let distance = target.since(origin);
        assert!((-(HALF as i32)..HALF as i32).contains(&distance));
        assert_eq!(origin.plus(distance as u32), target);
        assert!(target.value() < 1 << 24);
    });
}

/// The distance back is the negative one, except from the opposite side of the circle.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(not(kani), test)]
fn the_distance_of_two_psns_is_antisymmetric() {
    check(|from| {
        let (one, other) = (psn(from), psn(from));
        let there = one.since(other);
        let back = if there == -(HALF as i32) { there } else { -there };
        assert_eq!(other.since(one), back);
    });
}

/// Exactly one of two different PSNs is before the other, unless they are opposite; of opposite ones, each is
/// before the other.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(not(kani), test)]
fn of_two_psns_exactly_one_is_before_the_other() {
    check(|from| {
        let (one, other) = (psn(from), psn(from));
        let is_opposite = one.plus(HALF) == other;
        assert_eq!(one.is_before(other) && other.is_before(one), is_opposite);
        assert_eq!(one.is_before(other) || other.is_before(one), one != other);
        assert_eq!(one.is_after(other), other.is_before(one) && !is_opposite);
    });
}

/// The order is transitive as long as both steps together stay within half of the circle.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(not(kani), test)]
fn the_order_of_psns_is_transitive_within_half_of_the_circle() {
    check(|from| {
        let first = psn(from);
        let step = from.between(1, u64::from(HALF) - 2) as u32;
        let next = from.between(1, u64::from(HALF - 1 - step)) as u32;
        let (second, third) = (first.plus(step), first.plus(step).plus(next));
        assert!(first.is_before(second) && second.is_before(third) && first.is_before(third));
        assert!(third.is_after(first) && !third.is_before(first));
    });
}

/// A step forward and the same step back lead to the start, and a short step is the distance.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(not(kani), test)]
fn steps_of_psns_undo_each_other() {
    check(|from| {
        let (start, count) = (psn(from), from.u32());
        assert_eq!(start.plus(count).minus(count), start);
        assert_eq!(start.plus(1), start.next());
        let short = from.up_to(u64::from(HALF) - 1) as u32;
        assert_eq!(start.plus(short).since(start), short as i32);
        assert_eq!(start.minus(short).since(start), -(short as i32));
    });
}

/// A queue pair number and the pair of process and index are each other's inverse.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(not(kani), test)]
fn a_queue_pair_number_is_a_process_and_an_index() {
    check(|from| {
        let (process, index) = (ProcessIndex::new(from.u8()), from.u16());
        let qpn = Qpn::of(process, index);
        assert!(qpn.value() < 1 << 24);
        assert_eq!((qpn.process(), qpn.index()), (process, index));
        let any = Qpn::new(from.u32());
        assert_eq!(Qpn::of(any.process(), any.index()), any);
    });
}

/// Two processes have no number in common, and no process has the number of multicast or of QP0 and QP1.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(not(kani), test)]
fn processes_have_numbers_of_their_own() {
    check(|from| {
        let (one, other) = (ProcessIndex::new(from.u8()), ProcessIndex::new(from.u8()));
        let (first, second) = (Qpn::of(one, from.u16()), Qpn::of(other, from.u16()));
        assert!(one == other || first != second);
        assert_eq!(ProcessIndex::of_srqn(first.value()), one);
        assert!(first.value() - one.number_base() < 1 << 16);
        if one.is_of_process() {
            assert!(first != Qpn::MULTICAST && first != Qpn::GSI && first != Qpn::SMI);
        }
    });
}

/// Decoding and encoding of a syndrome byte are inverse.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(not(kani), test)]
fn a_syndrome_byte_has_one_meaning_and_back() {
    check_all(|from| {
        let byte = from.u8();
        assert_eq!(Syndrome::from_byte(byte).byte(), byte);
    });
}

/// Decoding an encoded syndrome returns it, and codes of more than five bits never become another class.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(not(kani), test)]
fn the_meaning_of_a_syndrome_survives_its_byte() {
    check_all(|from| {
        let code = from.u8();
        let nak = from.one_of(&[
            NakCode::Sequence,
            NakCode::InvalidRequest,
            NakCode::RemoteAccess,
            NakCode::RemoteOperation,
            NakCode::InvalidReadRequest,
        ]);
        let again = |syndrome: Syndrome| Syndrome::from_byte(syndrome.byte());
        assert_eq!(again(Syndrome::Ack { credit_code: code }), Syndrome::Ack { credit_code: code & 0x1f });
        assert_eq!(
            again(Syndrome::RnrNak { timer_code: code }),
            Syndrome::RnrNak { timer_code: code & 0x1f }
        );
        assert_eq!(again(Syndrome::Nak(nak)), Syndrome::Nak(nak));
    });
}

/// An RNR timer is from 10 µs to 655.36 ms, and a larger code stands for a longer time, except code 0, the
/// longest.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(not(kani), test)]
fn rnr_timers_grow_with_their_codes() {
    check_all(|from| {
        let code = from.u8();
        assert!((10_000..=655_360_000).contains(&rnr_timer_ns(code)));
        assert_eq!(rnr_timer_ns(code), rnr_timer_ns(code & 0x1f));
        if !matches!(code & 0x1f, 0 | 0x1f) {
            assert!(rnr_timer_ns(code) < rnr_timer_ns(code + 1));
        }
        assert!(rnr_timer_ns(code) <= rnr_timer_ns(0));
    });
}

/// A larger credit code announces more requests, up to the code that means no flow control.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(not(kani), test)]
fn credits_grow_with_their_codes() {
    check_all(|from| {
        let code = from.up_to(0x1f) as u8;
        assert_eq!(credits(code).is_none(), code == 0x1f);
        assert_eq!(credits(code), credits(code | 0xe0));
        if code < 0x1e {
            assert!(credits(code) < credits(code + 1));
        }
        assert!(credits(code).is_none_or(|count| count <= 1 << 15));
    });
}

/// A transport timer is 4.096 µs to 8796 s, and doubles with each step of its exponent; 0 has none.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(not(kani), test)]
fn transport_timers_double() {
    check_all(|from| {
        let exponent = from.u8();
        let timer = transport_timer_ns(exponent);
        assert_eq!(timer.is_none(), exponent & 0x1f == 0);
        assert!(timer.is_none_or(|ns| (8192..=4096 << 31).contains(&ns)));
        if !matches!(exponent & 0x1f, 0 | 0x1f) {
            assert_eq!(timer.map(|ns| 2 * ns), transport_timer_ns(exponent + 1));
        }
    });
}

/// The source port of a connection is one of the computed ones, and both ends compute the same one.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(not(kani), test)]
fn both_ends_of_a_connection_compute_the_same_source_port() {
    check(|from| {
        let (label, local, remote) = (from.u32(), Qpn::new(from.u32()), Qpn::new(from.u32()));
        let port = source_port::of_connection(label, local, remote);
        assert!(source_port::is_computed(port) && port >= source_port::FIRST);
        assert_eq!(port, source_port::of_connection(label, remote, local));
        assert_eq!(port, source_port::of_connection(label & 0xf_ffff, local, remote));
    });
}

/// Flow labels that differ only in their low 14 bits have different source ports, and so have those that
/// differ only in their high 6 bits. Bits above the 20 of a label do not count.
#[cfg_attr(kani, kani::proof)]
#[cfg_attr(kani, kani::unwind(4))]
#[cfg_attr(not(kani), test)]
fn flow_labels_spread_over_the_source_ports() {
    check(|from| {
        let high = from.u32() & !0x3fff;
        let (one, other) = (from.up_to(0x3fff) as u32, from.up_to(0x3fff) as u32);
        let ports = [one, other].map(|low| source_port::from_flow_label(high | low));
        assert_eq!(ports[0] == ports[1], one == other);
        let highs = [from.up_to(0x3f) as u32, from.up_to(0x3f) as u32];
        let ports = highs.map(|high| source_port::from_flow_label(high << 14 | one));
        assert_eq!(ports[0] == ports[1], highs[0] == highs[1]);
        let label = highs[0] << 14 | one;
        assert_eq!(
            source_port::from_flow_label(label | high & !0xf_ffff),
            source_port::from_flow_label(label)
        );
    });
}
