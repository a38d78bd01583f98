//! Values of attributes: the legal limits, and one wrong value at a time.

use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use super::tests::{LIMITS, bits, valid, words};
use super::*;
use crate::types::Gid;

/// A wrong value in an otherwise legal call: type, states, mask, change of the value, expected sentence.
type WrongValue = (QpType, QpState, QpState, u32, fn(&mut QpAttributes), &'static str);

fn wrong_values() -> Vec<WrongValue> {
    use QpState::{Init, Reset, Rtr, Rts, Sqd};
    use QpType::{Rc, Uc, Ud};
    let init = words("pki port acc");
    let rtr = words("av pmtu dqpn rqpsn mdra mrt");
    let rts = words("timeout retry rnr sqpsn mqra");
    let alt = rtr + words("alt");
    let ud = words("pki port qkey");
    vec![
        (Rc, Reset, Init, init, |a| a.port_num = 3, "INIT refused: port_num 3 outside 1…1"),
        (Rc, Reset, Init, init, |a| a.port_num = 0, "INIT refused: port_num 0 outside 1…1"),
        (Rc, Reset, Init, init, |a| a.pkey_index = 1, "INIT refused: pkey_index 1 beyond a table of 1"),
        (
            Rc,
            Reset,
            Init,
            init,
            |a| a.access = 1 << 19,
            "INIT refused: qp_access_flags 524288 outside 0…1023",
        ),
        (
            Ud,
            Reset,
            Init,
            ud,
            |a| a.qkey = 0x8001_0000,
            "INIT refused: qkey 0x80010000 has its top bit set, which needs CAP_NET_RAW",
        ),
        (Rc, Init, Rtr, rtr, |a| a.path_mtu = 0, "RTR refused: path_mtu 0 outside 1…5"),
        (Rc, Init, Rtr, rtr, |a| a.path_mtu = 1024, "RTR refused: path_mtu 1024 outside 1…5"),
        (
            Uc,
            Init,
            Rtr,
            words("av pmtu dqpn rqpsn"),
            |a| a.path_mtu = 4,
            "RTR refused: path_mtu of 2048 bytes exceeds the port's active MTU of 1024",
        ),
        (
            Rc,
            Init,
            Rtr,
            rtr,
            |a| a.max_dest_rd_atomic = 65,
            "RTR refused: max_dest_rd_atomic 65 outside 0…64",
        ),
        (Rc, Init, Rtr, rtr, |a| a.min_rnr_timer = 32, "RTR refused: min_rnr_timer 32 outside 0…31"),
        (
            Rc,
            Init,
            Rtr,
            rtr,
            |a| a.address_vector.is_global = false,
            "RTR refused: ah_attr.is_global must be 1 on RoCE",
        ),
        (
            Rc,
            Init,
            Rtr,
            rtr,
            |a| a.address_vector.dgid = Gid::ZERO,
            "RTR refused: ah_attr.grh.dgid is all zeros: it was not filled in, or the peer asked for a GID \
             index that has no GID, for which ibv_query_gid gives zeros",
        ),
        (
            Rc,
            Init,
            Rtr,
            rtr,
            |a| a.address_vector.sgid_index = 4,
            "RTR refused: ah_attr.grh.sgid_index 4 beyond a table of 4",
        ),
        (
            Rc,
            Init,
            Rtr,
            rtr,
            |a| a.address_vector.port_num = 2,
            "RTR refused: ah_attr.port_num 2 outside 1…1",
        ),
        (Rc, Init, Rtr, alt, |a| a.alt_timeout = 32, "RTR refused: alt_timeout 32 outside 0…31"),
        (Rc, Init, Rtr, alt, |a| a.alt_port_num = 0, "RTR refused: alt_port_num 0 outside 1…1"),
        (Rc, Init, Rtr, alt, |a| a.alt_pkey_index = 9, "RTR refused: alt_pkey_index 9 beyond a table of 1"),
        (
            Rc,
            Init,
            Rtr,
            alt,
            |a| a.alt_address_vector.is_global = false,
            "RTR refused: alt_ah_attr.is_global must be 1 on RoCE",
        ),
        (Rc, Rtr, Rts, rts, |a| a.timeout = 32, "RTS refused: timeout 32 outside 0…31"),
        (Rc, Rtr, Rts, rts, |a| a.retry_cnt = 8, "RTS refused: retry_cnt 8 outside 0…7"),
        (Rc, Rtr, Rts, rts, |a| a.rnr_retry = 8, "RTS refused: rnr_retry 8 outside 0…7"),
        (Rc, Rtr, Rts, rts, |a| a.max_rd_atomic = 17, "RTS refused: max_rd_atomic 17 outside 0…16"),
        (
            Rc,
            Rts,
            Rts,
            words("mig"),
            |a| a.path_mig_state = 3,
            "RTS→RTS refused: path_mig_state 3 outside 0…2",
        ),
        (
            Rc,
            Rtr,
            Rts,
            rts + words("cur"),
            |a| a.cur_qp_state = 4,
            "RTS refused: cur_qp_state is RTR, not SQD",
        ),
        (
            Rc,
            Rtr,
            Rts,
            rts + words("cur"),
            |a| a.cur_qp_state = 7,
            "RTS refused: cur_qp_state 7 is no state (0…6)",
        ),
        (
            Rc,
            Init,
            Rtr,
            rtr + words("cur"),
            |_| (),
            "RTR refused: cur_qp_state may be RTR, RTS, SQD or SQE, not INIT",
        ),
        (Rc, Sqd, Sqd, 0, |a| a.qp_state = 7, "modify_qp refused: qp_state 7 is no state (0…6)"),
    ]
}

#[test]
fn wrong_values_are_refused_in_one_sentence() {
    for (qp_type, from, to, mask, spoil, sentence) in wrong_values() {
        let mask = bits(1 | mask);
        let mut attributes = valid(from, to);
        spoil(&mut attributes);
        let refusal = check(qp_type, from, &attributes, mask, &LIMITS).unwrap_err();
        assert_eq!(refusal.to_string(), sentence);
        let errno = if sentence.contains("qkey") { "EPERM" } else { "EINVAL" };
        assert_eq!(refusal.errno_name(), errno, "{sentence}");
    }
}

#[test]
fn values_whose_bit_is_absent_are_not_looked_at() {
    let nonsense = QpAttributes {
        qp_state: QpState::Rts as u32,
        path_mtu: 77,
        port_num: 200,
        timeout: 255,
        qkey: u32::MAX,
        ..QpAttributes::default()
    };
    let mask = bits(1 | words("sqpsn"));
    assert_eq!(check(QpType::Uc, QpState::Rtr, &nonsense, mask, &LIMITS), Ok(QpState::Rts));
}

#[test]
fn zero_reads_and_the_largest_values_are_legal() {
    let mut attributes = valid(QpState::Rtr, QpState::Rts);
    attributes.timeout = 31;
    attributes.max_rd_atomic = 0;
    let mask = bits(1 | words("timeout retry rnr sqpsn mqra"));
    assert_eq!(check(QpType::Rc, QpState::Rtr, &attributes, mask, &LIMITS), Ok(QpState::Rts));
}

#[test]
fn ports_of_a_path_must_agree_with_the_port_given() {
    let two_ports = ModifyLimits { port_count: 2, ..LIMITS };
    let mut attributes = valid(QpState::Sqd, QpState::Sqd);
    attributes.port_num = 2;
    let refusal =
        check(QpType::Rc, QpState::Sqd, &attributes, bits(words("av port")), &two_ports).unwrap_err();
    assert_eq!(refusal.to_string(), "SQD→SQD refused: ah_attr.port_num 1 differs from port_num 2");
    assert!(check(QpType::Rc, QpState::Sqd, &attributes, bits(words("av")), &two_ports).is_ok());
}

#[test]
fn privileged_qkeys_are_for_the_privileged_and_for_qp1() {
    let mut attributes = valid(QpState::Reset, QpState::Init);
    attributes.qkey = 0x8001_0000;
    let privileged = ModifyLimits { privileged_qkey: true, ..LIMITS };
    let mask = bits(1 | words("pki port qkey"));
    assert!(check(QpType::Ud, QpState::Reset, &attributes, mask, &privileged).is_ok());
    assert!(check(QpType::Gsi, QpState::Reset, &attributes, bits(1 | words("pki qkey")), &LIMITS).is_ok());
}
