//! The calls of libmrc: queue pairs over many paths beside those of verbs, on the same device, protection
//! domains and memory. Its completion queues and channels are those of verbs.
//!
//! Queue pairs of MRC: create, modify, query, destroy, post.

use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;

use pumice_calls::Call;
use pumice_device::hca::{MrcAttributes, MrcChosen};
use pumice_transport::qp::{AttributeMask, QpAttributes};
use pumice_transport::types::QpState;

use crate::abi::plain::zeroed;
use crate::abi::{
    ibv_context, ibv_qp_attr, ibv_qp_init_attr, ibv_recv_wr, ibv_send_wr, mrc_context, mrc_mpr,
    mrc_profile_ids, mrc_qp, mrc_qp_attr, mrc_qp_init_attr, mrc_retry, mrc_wimm_limits,
};
use crate::calls::queue_pair::{QpCreateParameters, create, destroy};
use crate::calls::queue_pair_attributes::{
    attributes_to, prepare, report_modified, show_change, write_attributes,
};
use crate::calls::{post_recv, post_send};
use crate::entry::arguments::{In, InOut, Out, Trusted};
use crate::entry::handles::live;
use crate::entry::requests::RequestList;
use crate::entry::{number_of, pointer_about, status_of};
use crate::gate::CallSubject;
use crate::objects::mrc::{MrcContext, MrcHint, MrcQp};
use crate::objects::queue_pair::Qp;
use crate::platform::{Errno, INVALID, NOT_SUPPORTED, set_errno};

/// The value `IBV_QPT_RC`, which an MRC queue pair has in verbs.
const QPT_RC: u32 = 2;
/// Latest version of the protocol.
const PROTOCOL_VERSION: u32 = 1;
/// The service of a peer's memory: what `send_ops_flags` may ask for.
const OPERATIONS: u64 = 1 | 1 << 1;

/// Attributes whose values mean something else in MRC, or nothing.
const OF_RC: AttributeMask = AttributeMask::TIMEOUT
    .union(AttributeMask::RETRY_CNT)
    .union(AttributeMask::RNR_RETRY)
    .union(AttributeMask::MIN_RNR_TIMER)
    .union(AttributeMask::MAX_QP_RD_ATOMIC)
    .union(AttributeMask::MAX_DEST_RD_ATOMIC);

/// Bits of `enum mrc_qp_attr_mask`.
mod bit {
    pub(super) const MAX_WIMM: u32 = 1;
    pub(super) const MAX_WIMM_DEST: u32 = 1 << 1;
    pub(super) const MPR: u32 = 1 << 2;
    pub(super) const MPR_DEST: u32 = 1 << 3;
    pub(super) const TIMEOUT: u32 = 1 << 4;
    pub(super) const EV_PROFILE_ID: u32 = 1 << 5;
    pub(super) const CC_PROFILE_ID: u32 = 1 << 6;
    pub(super) const HINT: u32 = 1 << 7;
    pub(super) const RETRY_CNT: u32 = 1 << 8;
    pub(super) const CAP: u32 = 1 << 9;
    pub(super) const VENDOR_CFG: u32 = 1 << 31;
    pub(super) const KNOWN: u32 = ((1 << 10) - 1) | VENDOR_CFG;
}

pub(crate) extern "C" fn mrc_create_qp(
    context: *mut mrc_context,
    init_attr: InOut<'_, mrc_qp_init_attr>,
) -> *mut mrc_qp {
    pointer_about(Call::mrc_create_qp, CallSubject::on(context), || {
        let (held, of_verbs) = context_of(context)?;
        let given = init_attr.get()?;
        if given.protocol_version > PROTOCOL_VERSION {
            let version = given.protocol_version;
            return Err(NOT_SUPPORTED
                .because(|| format!("the device has version {PROTOCOL_VERSION} of MRC, and not {version}")));
        }
        if given.send_ops_flags & !OPERATIONS != 0 {
            let flags = given.send_ops_flags;
            return Err(NOT_SUPPORTED.because(|| {
                format!("send_ops_flags {flags:#x}: MRC has RDMA WRITE, with or without immediate")
            }));
        }
        let wanted = QpCreateParameters {
            own: None,
            is_mrc: true,
            context: of_verbs,
            pd: given.pd,
            xrcd: ptr::null_mut(),
            attributes: ibv_qp_init_attr {
                qp_context: given.qp_context,
                send_cq: given.send_cq,
                recv_cq: given.recv_cq,
                srq: ptr::null_mut(),
                cap: given.cap,
                qp_type: QPT_RC,
                sq_sig_all: given.sq_sig_all,
            },
            spread: None,
            send_operations: None,
        };
        let (inner, granted) = create(&wanted)?;
        given.cap = granted.cap;
        Ok(MrcQp::hand_out(&held, inner, live::<Qp>(inner)?))
    })
}

/// Destroys a queue pair; blocks until its asynchronous events are acknowledged.
pub(crate) extern "C" fn mrc_destroy_qp(qp: *mut mrc_qp) -> c_int {
    let call = Call::mrc_destroy_qp;
    status_of(call, CallSubject::of(qp), || {
        let held = live::<MrcQp>(qp)?;
        let inner = held.qp_pointer();
        destroy(call, inner)?;
        MrcQp::take_back(qp, inner);
        Ok(())
    })
}

pub(crate) extern "C" fn mrc_get_qpn(qp: *mut mrc_qp, qpn: Out<'_, u32>) -> c_int {
    number_of(Call::mrc_get_qpn, CallSubject::on(qp), || {
        let number = live::<MrcQp>(qp)?.qp().number().value();
        qpn.required()?.set(number);
        Ok(0)
    })
}

/// Returns the attributes of MRC that a program sets.
fn attributes_from(attr: In<'_, mrc_qp_attr>, mask: u32) -> Result<MrcAttributes, Errno> {
    if mask & !bit::KNOWN != 0 {
        return Err(INVALID.because(|| format!("attribute mask {mask:#x} of MRC has unknown bits")));
    }
    if mask & !bit::VENDOR_CFG == 0 {
        return Ok(MrcAttributes::default());
    }
    let c = attr.get()?;
    let has = |bit: u32| mask & bit != 0;
    Ok(MrcAttributes {
        mpr: has(bit::MPR).then_some(c.mpr.mpr),
        mpr_dest: has(bit::MPR_DEST).then_some(c.mpr.mpr_dest),
        max_wimm: has(bit::MAX_WIMM).then_some(c.wimm.max_wimm),
        max_wimm_dest: has(bit::MAX_WIMM_DEST).then_some(c.wimm.max_wimm_dest),
        timeout: has(bit::TIMEOUT).then_some(c.timeout),
        retries: has(bit::RETRY_CNT).then_some((c.retry.linear_cnt, c.retry.exp_cnt)),
        ev_profile: has(bit::EV_PROFILE_ID).then_some(c.profile.ev_profile_id),
        cc_profile: has(bit::CC_PROFILE_ID).then_some(c.profile.cc_profile_id),
        cap: has(bit::CAP).then_some(c.cap),
    })
}

/// Changes state and attributes. Programs may pass a mask of 0 for MRC: every attribute has a default.
pub(crate) extern "C" fn mrc_modify_qp(
    qp: *mut mrc_qp,
    attr: In<'_, ibv_qp_attr>,
    attr_mask: c_int,
    mrc_attr: In<'_, mrc_qp_attr>,
    mrc_mask: c_int,
) -> c_int {
    let has_state = attr_mask as u32 & AttributeMask::STATE.bits() != 0;
    let to = attr.optional().filter(|_| has_state).and_then(|given| QpState::from_verbs(given.qp_state));
    status_of(Call::mrc_modify_qp, CallSubject::of(qp).towards(to), || {
        let held = live::<MrcQp>(qp)?;
        let inner = held.qp();
        let mask = AttributeMask::from_bits_retain(attr_mask as u32);
        let set = attributes_from(mrc_attr, mrc_mask as u32)?;
        let attributes = match attr_mask {
            0 => QpAttributes::default(),
            _ => prepare(inner, attr, mask)?,
        };
        let hint = match mrc_mask as u32 & bit::HINT {
            0 => None,
            _ => Some(mrc_attr.get()?.qp_hint),
        };
        let known = hint.map(live::<MrcHint>).transpose()?;
        let done = inner.hca().modify_mrc_qp(inner.number(), &attributes, mask, &set);
        report_modified(inner, &attributes, mask - OF_RC, done.is_ok());
        done?;
        if let (Some(pointer), Some(hint)) = (hint, known) {
            held.set_hint(pointer, &hint);
        }
        show_change(inner, &attributes, mask);
        Ok(())
    })
}

/// Returns the attributes of MRC for the program.
fn attributes_of(held: &MrcQp, chosen: &MrcChosen) -> mrc_qp_attr {
    mrc_qp_attr {
        mpr: mrc_mpr { mpr: chosen.mpr, mpr_dest: chosen.mpr_dest },
        wimm: mrc_wimm_limits { max_wimm: chosen.max_wimm, max_wimm_dest: chosen.max_wimm_dest },
        timeout: chosen.timeout,
        profile: mrc_profile_ids {
            ev_profile_id: chosen.ev_profile.unwrap_or_default(),
            cc_profile_id: chosen.cc_profile.unwrap_or_default(),
        },
        retry: mrc_retry { linear_cnt: chosen.linear_cnt, exp_cnt: chosen.exp_cnt },
        qp_hint: held.hint(),
        cap: chosen.cap,
        ..zeroed()
    }
}

/// Returns all attributes; the masks are hints, and each structure may be NULL.
pub(crate) extern "C" fn mrc_query_qp(
    qp: *mut mrc_qp,
    attr: Out<'_, ibv_qp_attr>,
    attr_mask: c_int,
    mrc_attr: Out<'_, mrc_qp_attr>,
    _mrc_mask: c_int,
    init_attr: Out<'_, mrc_qp_init_attr>,
) -> c_int {
    status_of(Call::mrc_query_qp, CallSubject::on(qp), || {
        let held = live::<MrcQp>(qp)?;
        let inner = held.qp();
        let c = attributes_to(&inner.hca().query_qp(inner.number())?);
        let chosen = inner.hca().query_mrc_qp(inner.number())?;
        inner.show_state(c.qp_state);
        if let Some(target) = attr.optional() {
            write_attributes(&target, &c, attr_mask);
        }
        if let Some(target) = mrc_attr.optional() {
            target.set(attributes_of(&held, &chosen));
        }
        if let Some(target) = init_attr.optional() {
            let made = inner.made_with(c.cap);
            target.set(mrc_qp_init_attr {
                qp_context: made.qp_context,
                send_cq: made.send_cq,
                recv_cq: made.recv_cq,
                cap: made.cap,
                sq_sig_all: made.sq_sig_all,
                pd: inner.domain_pointer(),
                send_ops_flags: OPERATIONS,
                protocol_version: PROTOCOL_VERSION,
            });
        }
        Ok(())
    })
}

/// Reports that a queue pair of the data path is none.
#[cold]
fn refused(Errno(errno): Errno) -> c_int {
    set_errno(errno);
    errno
}

pub(crate) extern "C" fn mrc_post_recv<'a>(
    qp: Trusted<'a, mrc_qp>,
    list: RequestList<'a, ibv_recv_wr>,
    bad_wr: Out<'a, RequestList<'a, ibv_recv_wr>>,
) -> c_int {
    match qp.held::<MrcQp>() {
        Ok(held) => post_recv::post_for(Call::mrc_post_recv, held.trusted(), list, bad_wr),
        Err(errno) => refused(errno),
    }
}

pub(crate) extern "C" fn mrc_post_send<'a>(
    qp: Trusted<'a, mrc_qp>,
    list: RequestList<'a, ibv_send_wr>,
    bad_wr: Out<'a, RequestList<'a, ibv_send_wr>>,
) -> c_int {
    match qp.held::<MrcQp>() {
        Ok(held) => post_send::post_for(Call::mrc_post_send, held.trusted(), list, bad_wr),
        Err(errno) => refused(errno),
    }
}

pub(crate) mod context;
pub(crate) mod control;
pub(crate) mod control_profiles;
pub(crate) mod ev_events;

/// Returns a context of libmrc, and the pointer to its context of verbs.
fn context_of(context: *mut mrc_context) -> Result<(Arc<MrcContext>, *mut ibv_context), Errno> {
    let held = live::<MrcContext>(context)?;
    let of_verbs = held.context_pointer();
    Ok((held, of_verbs))
}
