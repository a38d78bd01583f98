//! The whole table, compared with an expectation that is written down a second time, per type and in words.

use alloc::format;
use alloc::string::{String, ToString};
use core::net::Ipv4Addr;

use super::*;
use crate::types::Gid;

/// `FROM TO : required : optional`; a line for each transition that exists. `*` is any state but
/// RESET.
const EXPECTED: [(QpType, &str); 11] = [
    (
        QpType::Rc,
        "RESET RESET : :
         RESET INIT  : pki port acc :
         INIT  INIT  : : pki port acc
         INIT  RTR   : av pmtu dqpn rqpsn mdra mrt : alt acc pki
         RTR   RTS   : timeout retry rnr sqpsn mqra : cur alt acc mrt mig
         RTS   RTS   : : cur acc alt mig mrt
         RTS   SQD   : : notify
         SQD   RTS   : : cur alt acc mrt mig
         SQD   SQD   : : port av timeout retry rnr mqra mdra alt acc pki mrt mig
         *     RESET : :
         *     ERR   : :",
    ),
    (
        QpType::XrcDuplex,
        "RESET RESET : :
         RESET INIT  : pki port acc :
         INIT  INIT  : : pki port acc
         INIT  RTR   : av pmtu dqpn rqpsn mdra mrt : alt acc pki
         RTR   RTS   : timeout retry rnr sqpsn mqra : cur alt acc mrt mig
         RTS   RTS   : : cur acc alt mig mrt
         RTS   SQD   : : notify
         SQD   RTS   : : cur alt acc mrt mig
         SQD   SQD   : : port av timeout retry rnr mqra mdra alt acc pki mrt mig
         *     RESET : :
         *     ERR   : :",
    ),
    (
        QpType::XrcInitiator,
        "RESET RESET : :
         RESET INIT  : pki port acc :
         INIT  INIT  : : pki port acc
         INIT  RTR   : av pmtu dqpn rqpsn : alt acc pki
         RTR   RTS   : timeout retry rnr sqpsn mqra : cur alt acc mig
         RTS   RTS   : : cur acc alt mig
         RTS   SQD   : : notify
         SQD   RTS   : : cur alt acc mig
         SQD   SQD   : : port av timeout retry rnr mqra alt acc pki mig
         *     RESET : :
         *     ERR   : :",
    ),
    (
        QpType::XrcTarget,
        "RESET RESET : :
         RESET INIT  : pki port acc :
         INIT  INIT  : : pki port acc
         INIT  RTR   : av pmtu dqpn rqpsn mdra mrt : alt acc pki
         RTR   RTS   : timeout sqpsn : cur alt acc mrt mig
         RTS   RTS   : : cur acc alt mig mrt
         RTS   SQD   : : notify
         SQD   RTS   : : cur alt acc mrt mig
         SQD   SQD   : : port av timeout mdra alt acc pki mrt mig
         *     RESET : :
         *     ERR   : :",
    ),
    (
        QpType::Uc,
        "RESET RESET : :
         RESET INIT  : pki port acc :
         INIT  INIT  : : pki port acc
         INIT  RTR   : av pmtu dqpn rqpsn : alt acc pki
         RTR   RTS   : sqpsn : cur alt acc mig
         RTS   RTS   : : cur acc alt mig
         RTS   SQD   : : notify
         SQD   RTS   : : cur alt acc mig
         SQD   SQD   : : av alt acc pki mig
         SQE   RTS   : : cur acc
         *     RESET : :
         *     ERR   : :",
    ),
    (
        QpType::Ud,
        "RESET RESET : :
         RESET INIT  : pki port qkey :
         INIT  INIT  : : pki port qkey
         INIT  RTR   : : pki qkey
         RTR   RTS   : sqpsn : cur qkey
         RTS   RTS   : : cur qkey
         RTS   SQD   : : notify
         SQD   RTS   : : cur qkey
         SQD   SQD   : : pki qkey
         SQE   RTS   : : cur qkey
         *     RESET : :
         *     ERR   : :",
    ),
    (
        QpType::Srd,
        "RESET RESET : :
         RESET INIT  : pki port qkey :
         INIT  INIT  : : pki port qkey
         INIT  RTR   : : pki qkey
         RTR   RTS   : sqpsn : cur qkey rnr
         RTS   RTS   : : cur qkey
         RTS   SQD   : : notify
         SQD   RTS   : : cur qkey
         SQD   SQD   : : pki qkey
         SQE   RTS   : : cur qkey
         *     RESET : :
         *     ERR   : :",
    ),
    (
        QpType::Dci,
        "RESET RESET : :
         RESET INIT  : pki port :
         INIT  INIT  : : pki port
         INIT  RTR   : pmtu : av pki
         RTR   RTS   : timeout retry rnr sqpsn mqra : cur mrt
         RTS   RTS   : : cur
         RTS   SQD   : : notify
         SQD   RTS   : : cur
         SQD   SQD   : : pki
         *     RESET : :
         *     ERR   : :",
    ),
    (
        QpType::Dct,
        "RESET INIT  : pki port acc :
         INIT  RTR   : av pmtu mrt :",
    ),
    (
        QpType::RawPacket,
        "RESET RESET : :
         RESET INIT  : port :
         INIT  RTR   : :
         RTR   RTS   : : cur rate
         RTS   RTS   : : cur rate
         RTS   SQD   : : notify
         SQD   RTS   : : cur rate
         SQE   RTS   : : cur
         *     RESET : :
         *     ERR   : :",
    ),
    (
        QpType::Gsi,
        "RESET RESET : :
         RESET INIT  : pki qkey :
         INIT  INIT  : : pki port qkey
         INIT  RTR   : : pki qkey
         RTR   RTS   : sqpsn : cur qkey
         RTS   RTS   : : cur qkey
         RTS   SQD   : : notify
         SQD   RTS   : : cur qkey
         SQD   SQD   : : pki qkey
         SQE   RTS   : : cur qkey
         *     RESET : :
         *     ERR   : :",
    ),
];

/// Returns the verbs numbers of the words used above.
const WORDS: [(&str, u32); 21] = [
    ("cur", 0x2),
    ("notify", 0x4),
    ("acc", 0x8),
    ("pki", 0x10),
    ("port", 0x20),
    ("qkey", 0x40),
    ("av", 0x80),
    ("pmtu", 0x100),
    ("timeout", 0x200),
    ("retry", 0x400),
    ("rnr", 0x800),
    ("rqpsn", 0x1000),
    ("mqra", 0x2000),
    ("alt", 0x4000),
    ("mrt", 0x8000),
    ("sqpsn", 0x10000),
    ("mdra", 0x20000),
    ("mig", 0x40000),
    ("cap", 0x80000),
    ("dqpn", 0x100000),
    ("rate", 0x2000000),
];

pub(super) const LIMITS: ModifyLimits = ModifyLimits {
    active_mtu: Mtu::Mtu1024,
    max_rd_atomic_initiator: 16,
    max_rd_atomic_target: 64,
    pkey_table_len: 1,
    gid_table_len: 4,
    port_count: 1,
    privileged_qkey: false,
};

pub(super) fn words(text: &str) -> u32 {
    text.split_whitespace()
        .map(|word| WORDS.iter().find(|(name, _)| *name == word).unwrap_or_else(|| panic!("{word}")).1)
        .sum()
}

/// Returns the required and optional bits that the text expects, or `None` for no such transition.
fn expected(qp_type: QpType, from: QpState, to: QpState) -> Option<(u32, u32)> {
    let text = EXPECTED.iter().find(|(of, _)| *of == qp_type)?.1;
    text.lines().find_map(|line| {
        let mut columns = line.split(':');
        let mut states = columns.next()?.split_whitespace();
        let (first, second) = (states.next()?, states.next()?);
        let matches = first == from.name() || (first == "*" && from != QpState::Reset);
        (matches && second == to.name())
            .then(|| (words(columns.next().unwrap_or_default()), words(columns.next().unwrap_or_default())))
    })
}

/// Returns attributes whose values pass in any transition to `to` from `from`.
pub(super) fn valid(from: QpState, to: QpState) -> QpAttributes {
    let vector = AddressVector {
        is_global: true,
        dgid: Gid::from(Ipv4Addr::new(10, 0, 0, 2)),
        sgid_index: 1,
        port_num: 1,
        ..AddressVector::default()
    };
    QpAttributes {
        qp_state: to as u32,
        cur_qp_state: from as u32,
        path_mtu: 3,
        port_num: 1,
        alt_port_num: 1,
        qkey: 0x1111_1111,
        access: 0xf,
        address_vector: vector,
        alt_address_vector: vector,
        timeout: 14,
        retry_cnt: 7,
        rnr_retry: 7,
        min_rnr_timer: 12,
        max_rd_atomic: 16,
        max_dest_rd_atomic: 64,
        ..QpAttributes::default()
    }
}

pub(super) fn bits(mask: u32) -> AttributeMask {
    AttributeMask::from_bits_retain(mask)
}

fn run(qp_type: QpType, from: QpState, to: QpState, mask: u32) -> Result<QpState, ModifyError> {
    check(qp_type, from, &valid(from, to), bits(mask), &LIMITS)
}

/// Returns the attributes that the kernel drops for one half of XRC.
fn ignored(qp_type: QpType) -> u32 {
    match qp_type {
        QpType::XrcInitiator => words("mdra mrt"),
        QpType::XrcTarget => words("mqra retry rnr"),
        _ => 0,
    }
}

fn every_pair() -> impl Iterator<Item = (QpType, QpState, QpState)> {
    EXPECTED.into_iter().flat_map(|(qp_type, _)| {
        QpState::ALL
            .into_iter()
            .flat_map(move |from| QpState::ALL.into_iter().map(move |to| (qp_type, from, to)))
    })
}

fn single_bits(mask: u32) -> impl Iterator<Item = u32> {
    (0..32).map(|shift| 1 << shift).filter(move |bit| mask & bit != 0)
}

#[test]
fn exactly_the_expected_transitions_exist() {
    let mut existing = 0;
    for (qp_type, from, to) in every_pair() {
        let at = format!("{} {}→{}", qp_type.name(), from.name(), to.name());
        match expected(qp_type, from, to) {
            Some((required, optional)) => {
                existing += 1;
                assert_eq!(run(qp_type, from, to, 1 | required), Ok(to), "{at}, required only");
                assert_eq!(run(qp_type, from, to, 1 | required | optional), Ok(to), "{at}, everything");
            }
            None => {
                let step = Step { qp_type, from, to };
                assert_eq!(run(qp_type, from, to, 1), Err(ModifyError::NoTransition { step }), "{at}");
            }
        }
    }
    // Raw packets have neither a change in INIT nor one in SQD, and initiators of DC have none in SQE.
    // Targets of DC reach RTR and no further state.
    assert_eq!(existing, 5 * 21 + 4 * 22 + 20 + 2);
    let rows: usize = TRANSITIONS.iter().map(|row| row.types.len()).sum();
    assert_eq!(rows, existing, "a row shadows another one, or the text misses a transition");
}

#[test]
fn each_missing_required_attribute_is_refused_by_name() {
    let mut refused = 0;
    for (qp_type, from, to) in every_pair() {
        let Some((required, optional)) = expected(qp_type, from, to) else { continue };
        let step = Step { qp_type, from, to };
        for bit in single_bits(required) {
            for mask in [1 | required, 1 | required | optional] {
                let refusal = run(qp_type, from, to, mask & !bit);
                assert_eq!(refusal, Err(ModifyError::Missing { step, attributes: bits(bit) }));
                refused += 1;
            }
        }
    }
    // The numbers are: raw packets 1, UD and SRD 4, GSI 3, UC 8, RC and XRC 14, INI 12, TGT 11, DCI 8, DCT 6.
    assert_eq!(refused, 2 * (1 + 2 * 4 + 3 + 8 + 2 * 14 + 12 + 11 + 8 + 6));
}

#[test]
fn each_attribute_in_excess_is_refused_by_name() {
    let known = WORDS.iter().fold(0, |all, (_, bit)| all | bit);
    for (qp_type, from, to) in every_pair() {
        let Some((required, optional)) = expected(qp_type, from, to) else { continue };
        let step = Step { qp_type, from, to };
        for bit in single_bits(!1) {
            let attributes = bits(bit);
            let outcome = run(qp_type, from, to, 1 | required | bit);
            let is_known = bit & known != 0 && (bit != words("rate") || qp_type.is_raw());
            let expectation = if !is_known {
                Err(ModifyError::NotSupported { step, attributes })
            } else if bit & (required | optional | ignored(qp_type)) != 0 {
                Ok(to)
            } else if bit == words("cur")
                && !matches!(from, QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe)
            {
                Err(ModifyError::WrongCurrentState { step, claimed: from as u32 })
            } else {
                Err(ModifyError::NotAllowed { step, attributes })
            };
            assert_eq!(outcome, expectation, "{step:?} with {attributes}");
        }
    }
}

#[test]
fn without_the_state_bit_the_row_from_the_state_to_itself_decides() {
    for (qp_type, _) in EXPECTED {
        for state in QpState::ALL {
            // The value of `qp_state` does not count.
            let stated = check(qp_type, state, &valid(state, QpState::Rtr), bits(0), &LIMITS);
            let exists = expected(qp_type, state, state).is_some();
            assert_eq!(stated.is_ok(), exists, "{} in {}", qp_type.name(), state.name());
        }
    }
    let in_rtr = run(QpType::Rc, QpState::Rtr, QpState::Rtr, words("mrt")).unwrap_err();
    assert_eq!(in_rtr.to_string(), "RTR refused from RTR: no such transition for RC");
    assert_eq!(run(QpType::Rc, QpState::Rts, QpState::Rts, words("mrt cur")), Ok(QpState::Rts));
}

#[test]
fn cur_state_must_be_the_real_state_and_one_that_can_be_claimed() {
    for claimed in 0..9 {
        let mut attributes = valid(QpState::Sqd, QpState::Rts);
        attributes.cur_qp_state = claimed;
        let outcome = check(QpType::Rc, QpState::Sqd, &attributes, bits(1 | words("cur")), &LIMITS);
        assert_eq!(outcome.is_ok(), claimed == QpState::Sqd as u32, "claimed {claimed}");
    }
}

/// Statement 31: a bare STATE to ERR works from every state but RESET.
#[test]
fn statement_31_bare_state_to_err() {
    // Programs bring a target of DC to RTR, and not further.
    for (qp_type, _) in EXPECTED.into_iter().filter(|(qp_type, _)| *qp_type != QpType::Dct) {
        for from in &QpState::ALL[1..] {
            assert_eq!(run(qp_type, *from, QpState::Err, 1), Ok(QpState::Err));
        }
        let from_reset = run(qp_type, QpState::Reset, QpState::Err, 1).unwrap_err();
        assert_eq!(from_reset.errno_name(), "EINVAL");
    }
}

/// Statement 32: RTR without `min_rnr_timer` is EINVAL on RC; the full RC masks work on XRC.
#[test]
fn statement_32_rc_masks_and_xrc() {
    let to_rtr = 1 | words("av pmtu dqpn rqpsn mdra mrt");
    let to_rts = 1 | words("timeout retry rnr sqpsn mqra");
    let refusal = run(QpType::Rc, QpState::Init, QpState::Rtr, to_rtr & !words("mrt")).unwrap_err();
    assert_eq!(refusal.class(), ErrorClass::Invalid);
    assert_eq!(refusal.to_string(), "RTR refused: attribute min_rnr_timer missing for RC");
    for qp_type in [QpType::Rc, QpType::XrcDuplex, QpType::XrcInitiator, QpType::XrcTarget] {
        assert_eq!(run(qp_type, QpState::Init, QpState::Rtr, to_rtr), Ok(QpState::Rtr));
        assert_eq!(run(qp_type, QpState::Rtr, QpState::Rts, to_rts), Ok(QpState::Rts));
    }
    assert_eq!(effective_mask(QpType::XrcInitiator, bits(to_rtr)).bits(), to_rtr & !words("mdra mrt"));
    assert_eq!(effective_mask(QpType::XrcTarget, bits(to_rts)).bits(), to_rts & !words("mqra retry rnr"));
    assert_eq!(effective_mask(QpType::Uc, bits(u32::MAX)).bits(), u32::MAX);
}

#[test]
fn sentences_of_masks_and_transitions() {
    let sentence = |qp_type, from, to, mask| -> String {
        run(qp_type, from, to, mask).map_or_else(|refusal| refusal.to_string(), |_| "accepted".into())
    };
    use QpState::{Init, Reset, Rtr, Rts};
    assert_eq!(sentence(QpType::Rc, Init, Rts, 1), "RTS refused from INIT: no such transition for RC");
    assert_eq!(
        sentence(QpType::Uc, Init, Rtr, 1 | words("av pmtu")),
        "RTR refused: attributes rq_psn, dest_qp_num missing for UC"
    );
    assert_eq!(
        sentence(QpType::Ud, Reset, Init, 1 | words("pki port qkey acc")),
        "INIT refused: attribute qp_access_flags not allowed for UD"
    );
    assert_eq!(
        sentence(QpType::Rc, Rtr, Rts, 1 << 30 | 1),
        "RTS refused: attribute 0x40000000 not supported"
    );
    assert_eq!(
        sentence(QpType::Rc, Rts, Rts, words("rate")),
        "RTS→RTS refused: attribute rate_limit not supported"
    );
}
