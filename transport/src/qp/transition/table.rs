//! The table of state transitions.

use super::super::attributes::AttributeMask;
use crate::types::{QpState, QpType};

/// A row of the table: a transition that exists for some types, with the attributes that it needs and allows.
#[derive(Debug, Clone, Copy)]
pub struct Transition {
    /// State before.
    pub from: QpState,
    /// State after; the same as `from` for a change of attributes only.
    pub to: QpState,
    /// Types of queue pairs that the row is for.
    pub types: &'static [QpType],
    /// Attributes that must be given, besides `STATE`.
    pub required: AttributeMask,
    /// Attributes that may be given.
    pub optional: AttributeMask,
}

/// Returns the row for a type and a pair of states; `None` if there is no such transition.
pub fn transition(qp_type: QpType, from: QpState, to: QpState) -> Option<&'static Transition> {
    TRANSITIONS.iter().find(|row| row.from == from && row.to == to && row.types.contains(&qp_type))
}

use QpState::{Err, Init, Reset, Rtr, Rts, Sqd, Sqe};
use QpType::{Dci, Dct, Gsi, RawPacket, Rc, Srd, Uc, Ud, XrcDuplex, XrcInitiator, XrcTarget};

/// All types but targets of DC, which only reach RTR.
const ALL: &[QpType] = &[Gsi, Rc, Uc, Ud, RawPacket, XrcDuplex, XrcInitiator, XrcTarget, Srd, Dci];
const RAW: &[QpType] = &[RawPacket];
const DATAGRAM: &[QpType] = &[Ud, Gsi, Srd];
/// Types without RNR_RETRY.
const UNRELIABLE: &[QpType] = &[Ud, Gsi];
const SRD: &[QpType] = &[Srd];
const DCI: &[QpType] = &[Dci];
const DCT: &[QpType] = &[Dct];
const CONNECTED: &[QpType] = &[Rc, Uc, XrcDuplex, XrcInitiator, XrcTarget];
/// Types that only request, or do not acknowledge: no responder attributes.
const NO_RESPONDER: &[QpType] = &[Uc, XrcInitiator];
/// Types that acknowledge.
const RESPONDER: &[QpType] = &[Rc, XrcDuplex, XrcTarget];
/// Types that request and acknowledge.
const BOTH: &[QpType] = &[Rc, XrcDuplex];

const NONE: AttributeMask = AttributeMask::empty();
const CUR: AttributeMask = AttributeMask::CUR_STATE;
const RATE: AttributeMask = AttributeMask::RATE_LIMIT;
const NOTIFY: AttributeMask = AttributeMask::EN_SQD_ASYNC_NOTIFY;
const ACCESS: AttributeMask = AttributeMask::ACCESS_FLAGS;
const PKEY: AttributeMask = AttributeMask::PKEY_INDEX;
const PORT: AttributeMask = AttributeMask::PORT;
const QKEY: AttributeMask = AttributeMask::QKEY;
const AV: AttributeMask = AttributeMask::AV;
const TIMEOUT: AttributeMask = AttributeMask::TIMEOUT;
const SQ_PSN: AttributeMask = AttributeMask::SQ_PSN;
const ALT: AttributeMask = AttributeMask::ALT_PATH;
const MIG: AttributeMask = AttributeMask::PATH_MIG_STATE;
const RNR_TIMER: AttributeMask = AttributeMask::MIN_RNR_TIMER;
const READS_OUT: AttributeMask = AttributeMask::MAX_QP_RD_ATOMIC;
const READS_IN: AttributeMask = AttributeMask::MAX_DEST_RD_ATOMIC;
const RETRIES: AttributeMask = all(&[AttributeMask::RETRY_CNT, AttributeMask::RNR_RETRY]);
/// Attributes that name the peer.
const PEER: AttributeMask =
    all(&[AV, AttributeMask::PATH_MTU, AttributeMask::DEST_QPN, AttributeMask::RQ_PSN]);

/// The table of all transitions. A transition that is not in it is refused.
#[rustfmt::skip]
pub const TRANSITIONS: &[Transition] = &[
    row(Reset, Reset, ALL,            NONE,                                               NONE),

    //= man:ibv_modify_qp
    //| A UD queue pair needs a P_Key index, a port and a Q_Key on its way to INIT.
    row(Reset, Init,  &[Ud, Srd],     all(&[PKEY, PORT, QKEY]),                           NONE),
    row(Reset, Init,  &[Gsi],         all(&[PKEY, QKEY]),                                 NONE),
    row(Reset, Init,  RAW,            PORT,                                               NONE),
    row(Reset, Init,  CONNECTED,      all(&[PKEY, PORT, ACCESS]),                         NONE),

    row(Reset, Init,  DCI,            all(&[PKEY, PORT]),                                 NONE),
    row(Reset, Init,  DCT,            all(&[PKEY, PORT, ACCESS]),                         NONE),

    row(Init,  Init,  DCI,            NONE,                                               all(&[PKEY, PORT])),
    row(Init,  Init,  DATAGRAM,       NONE,                                               all(&[PKEY, PORT, QKEY])),
    row(Init,  Init,  CONNECTED,      NONE,                                               all(&[PKEY, PORT, ACCESS])),

    row(Init,  Rtr,   DATAGRAM,       NONE,                                               all(&[PKEY, QKEY])),
    row(Init,  Rtr,   DCI,            AttributeMask::PATH_MTU,                            all(&[AV, PKEY])),
    row(Init,  Rtr,   DCT,            all(&[AV, AttributeMask::PATH_MTU, RNR_TIMER]),     NONE),
    row(Init,  Rtr,   RAW,            NONE,                                               NONE),
    row(Init,  Rtr,   NO_RESPONDER,   PEER,                                               all(&[ALT, ACCESS, PKEY])),
    //= statement:32
    //| The way of an RC queue pair to RTR needs the attribute MIN_RNR_TIMER.
    row(Init,  Rtr,   RESPONDER,      all(&[PEER, READS_IN, RNR_TIMER]),                  all(&[ALT, ACCESS, PKEY])),

    row(Rtr,   Rts,   SRD,            SQ_PSN,              all(&[CUR, QKEY, AttributeMask::RNR_RETRY])),
    row(Rtr,   Rts,   DCI,            all(&[TIMEOUT, RETRIES, SQ_PSN, READS_OUT]),        all(&[CUR, RNR_TIMER])),
    row(Rtr,   Rts,   UNRELIABLE,     SQ_PSN,                                             all(&[CUR, QKEY])),
    row(Rtr,   Rts,   RAW,            NONE,                                               all(&[CUR, RATE])),
    row(Rtr,   Rts,   &[Uc],          SQ_PSN,                                             all(&[CUR, ALT, ACCESS, MIG])),
    row(Rtr,   Rts,   BOTH,           all(&[TIMEOUT, RETRIES, SQ_PSN, READS_OUT]),        all(&[CUR, ALT, ACCESS, RNR_TIMER, MIG])),
    row(Rtr,   Rts,   &[XrcInitiator],all(&[TIMEOUT, RETRIES, SQ_PSN, READS_OUT]),        all(&[CUR, ALT, ACCESS, MIG])),
    row(Rtr,   Rts,   &[XrcTarget],   all(&[TIMEOUT, SQ_PSN]),                            all(&[CUR, ALT, ACCESS, RNR_TIMER, MIG])),

    row(Rts,   Rts,   DCI,            NONE,                                               CUR),
    row(Rts,   Rts,   DATAGRAM,       NONE,                                               all(&[CUR, QKEY])),
    row(Rts,   Rts,   RAW,            NONE,                                               all(&[CUR, RATE])),
    row(Rts,   Rts,   NO_RESPONDER,   NONE,                                               all(&[CUR, ALT, ACCESS, MIG])),
    row(Rts,   Rts,   RESPONDER,      NONE,                                               all(&[CUR, ALT, ACCESS, RNR_TIMER, MIG])),

    row(Rts,   Sqd,   ALL,            NONE,                                               NOTIFY),

    row(Sqd,   Rts,   DCI,            NONE,                                               CUR),
    row(Sqd,   Rts,   DATAGRAM,       NONE,                                               all(&[CUR, QKEY])),
    row(Sqd,   Rts,   RAW,            NONE,                                               all(&[CUR, RATE])),
    row(Sqd,   Rts,   NO_RESPONDER,   NONE,                                               all(&[CUR, ALT, ACCESS, MIG])),
    row(Sqd,   Rts,   RESPONDER,      NONE,                                               all(&[CUR, ALT, ACCESS, RNR_TIMER, MIG])),

    row(Sqd,   Sqd,   DCI,            NONE,                                               PKEY),
    row(Sqd,   Sqd,   DATAGRAM,       NONE,                                               all(&[PKEY, QKEY])),
    row(Sqd,   Sqd,   &[Uc],          NONE,                                               all(&[AV, ALT, ACCESS, PKEY, MIG])),
    row(Sqd,   Sqd,   BOTH,           NONE,                                             all(&[PORT, AV, TIMEOUT, RETRIES, READS_OUT, READS_IN, ALT, ACCESS, PKEY, RNR_TIMER, MIG])),
    row(Sqd,   Sqd,   &[XrcInitiator],NONE,                                               all(&[PORT, AV, TIMEOUT, RETRIES, READS_OUT, ALT, ACCESS, PKEY, MIG])),
    row(Sqd,   Sqd,   &[XrcTarget],   NONE,                                               all(&[PORT, AV, TIMEOUT, READS_IN, ALT, ACCESS, PKEY, RNR_TIMER, MIG])),

    row(Sqe,   Rts,   DATAGRAM,       NONE,                                               all(&[CUR, QKEY])),
    row(Sqe,   Rts,   RAW,            NONE,                                               CUR),
    row(Sqe,   Rts,   &[Uc],          NONE,                                               all(&[CUR, ACCESS])),

    row(Init,  Reset, ALL,            NONE,                                               NONE),
    row(Rtr,   Reset, ALL,            NONE,                                               NONE),
    row(Rts,   Reset, ALL,            NONE,                                               NONE),
    row(Sqd,   Reset, ALL,            NONE,                                               NONE),
    row(Sqe,   Reset, ALL,            NONE,                                               NONE),
    row(Err,   Reset, ALL,            NONE,                                               NONE),

    //= statement:31
    //| ERR can be reached from every state but RESET.
    row(Init,  Err,   ALL,            NONE,                                               NONE),
    row(Rtr,   Err,   ALL,            NONE,                                               NONE),
    row(Rts,   Err,   ALL,            NONE,                                               NONE),
    row(Sqd,   Err,   ALL,            NONE,                                               NONE),
    row(Sqe,   Err,   ALL,            NONE,                                               NONE),
    row(Err,   Err,   ALL,            NONE,                                               NONE),
];

const fn row(
    from: QpState,
    to: QpState,
    types: &'static [QpType],
    required: AttributeMask,
    optional: AttributeMask,
) -> Transition {
    Transition { from, to, types, required, optional }
}

const fn all(masks: &[AttributeMask]) -> AttributeMask {
    let mut union = AttributeMask::empty();
    let mut rest = masks;
    while let [first, tail @ ..] = rest {
        union = union.union(*first);
        rest = tail;
    }
    union
}
