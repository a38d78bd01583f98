//! Queue pairs of identifiers: made with their completion queues, and brought where the connection is.

use std::ffi::c_int;
use std::ptr;

use pumice_device::hca::Hca;
use pumice_transport::cm::{MadRoute, QpParameters};
use pumice_transport::qp::AttributeMask;
use pumice_transport::types::AddressVector;

use super::id::{Id, QPT_RC, QPT_UC, QPT_UD, QPT_XRC_RECV, QPT_XRC_SEND, State};
use super::multicast;
use super::shared::shared;
use super::shared_receive_queue::xrc_domain;
use crate::calls::address_handle::vector_to;
use crate::calls::completion_channel::{ibv_create_comp_channel, ibv_destroy_comp_channel};
use crate::calls::completion_queue::{ibv_create_cq, ibv_destroy_cq};
use crate::calls::queue_pair::{create_qp_ex, ibv_destroy_qp};
use crate::calls::queue_pair_attributes::ibv_modify_qp;
use crate::ground::abi::{
    ibv_ah_attr, ibv_comp_channel, ibv_cq, ibv_pd, ibv_qp_attr, ibv_qp_init_attr, ibv_qp_init_attr_ex,
    rdma_cm_id,
};
use crate::ground::arguments::Trusted;
use crate::ground::errno::{Errno, INVALID, errno};
use crate::ground::handles::zeroed;
use crate::ground::outcome::{number, value};

/// `IBV_QPS_*`.
const INIT: u32 = 1;
const RTR: u32 = 2;
const RTS: u32 = 3;
const ERROR: u32 = 6;
/// `IBV_ACCESS_REMOTE_WRITE`, and with it READ and ATOMIC.
const ACCESS_WRITE: u32 = 2;
const ACCESS_READ_ATOMIC: u32 = 4 | 8;
/// `IBV_QP_INIT_ATTR_PD`, `..._XRCD`.
const MASK_PD: u32 = 1;
const MASK_XRCD: u32 = 1 << 1;
/// `RDMA_MAX_RESP_RES`, `RDMA_MAX_INIT_DEPTH`: as much as there is.
pub(crate) const AS_MUCH_AS_THERE_IS: u8 = 0xff;
/// Q_Key of all datagram queue pairs of librdmacm.
pub(crate) const DATAGRAM_Q_KEY: u32 = 0x0123_4567;

/// READs and atomics that a queue pair of the device has at most.
pub(crate) fn rd_atomic_limit(hca: &Hca) -> u8 {
    hca.limits().max_rd_atomic.min(AS_MUCH_AS_THERE_IS - 1)
}

/// The address vector of a route.
pub(crate) fn address_vector(hca: &Hca, route: &MadRoute) -> ibv_ah_attr {
    let index = hca.gids().into_iter().find(|(_, entry)| entry.gid == route.local).map(|(index, _)| index);
    vector_to(&AddressVector {
        is_global: true,
        dgid: route.remote,
        sgid_index: index.unwrap_or_default(),
        hop_limit: if route.hop_limit == 0 { 64 } else { route.hop_limit },
        traffic_class: route.traffic_class,
        flow_label: route.flow_label,
        port_num: 1,
        ..AddressVector::default()
    })
}

/// What a queue pair of the identifier needs to get to a state.
///
/// # Errors
/// EINVAL: there is no connection yet that it could be ready for, or no such state.
fn attributes(id: &Id, state: &State, wanted: u32) -> Result<(ibv_qp_attr, AttributeMask), Errno> {
    let shared = shared()?;
    let hca = shared.hca();
    let known = state.connection.and_then(|connection| hca.cm_qp_parameters(connection));
    // SAFETY: a field of our own structure.
    let kind = unsafe { (*id.c()).qp_type };
    let mut attr = ibv_qp_attr { qp_state: wanted, port_num: 1, ..ibv_qp_attr::default() };
    let mut mask = AttributeMask::STATE;
    if kind == QPT_UD {
        attr.qkey = DATAGRAM_Q_KEY;
        mask |= match wanted {
            INIT => AttributeMask::PKEY_INDEX | AttributeMask::PORT | AttributeMask::QKEY,
            RTR => AttributeMask::empty(),
            RTS => AttributeMask::SQ_PSN,
            _ => return Err(INVALID),
        };
        return Ok((attr, mask));
    }
    if wanted == INIT {
        mask |= AttributeMask::PKEY_INDEX | AttributeMask::PORT | AttributeMask::ACCESS_FLAGS;
        if let Some(qp) = known {
            let reads = if qp.max_dest_rd_atomic != 0 { ACCESS_READ_ATOMIC } else { 0 };
            attr.qp_access_flags = ACCESS_WRITE | reads;
        }
        return Ok((attr, mask));
    }
    let qp = known.filter(|qp| qp.dest_qpn.value() != 0);
    let qp = qp.ok_or_else(|| INVALID.because(|| "the peer's queue pair is not known yet".to_owned()))?;
    let responds = matches!(kind, QPT_RC | QPT_XRC_RECV);
    let requests = matches!(kind, QPT_RC | QPT_XRC_SEND);
    let limit = rd_atomic_limit(hca);
    match wanted {
        RTR => {
            mask |=
                AttributeMask::AV | AttributeMask::PATH_MTU | AttributeMask::DEST_QPN | AttributeMask::RQ_PSN;
            attr.ah_attr = address_vector(hca, &route_of(&qp, state));
            attr.path_mtu = qp.path_mtu as u32;
            attr.dest_qp_num = qp.dest_qpn.value();
            attr.rq_psn = state.psn.value();
            if responds {
                mask |= AttributeMask::MAX_DEST_RD_ATOMIC | AttributeMask::MIN_RNR_TIMER;
                attr.max_dest_rd_atomic = qp.max_dest_rd_atomic.min(limit);
            }
        }
        RTS => {
            mask |= AttributeMask::SQ_PSN;
            attr.sq_psn = qp.sq_psn.value();
            if requests {
                mask |= AttributeMask::RETRY_CNT | AttributeMask::RNR_RETRY | AttributeMask::MAX_QP_RD_ATOMIC;
                attr.retry_cnt = qp.retry_count;
                attr.rnr_retry = qp.rnr_retry_count;
                attr.max_rd_atomic = qp.max_rd_atomic.min(limit);
            }
            if kind != QPT_UC {
                mask |= AttributeMask::TIMEOUT;
                attr.timeout = state.options.ack_timeout.unwrap_or(qp.timeout);
            }
        }
        _ => return Err(INVALID),
    }
    Ok((attr, mask))
}

/// The way to the peer, with this side's marks.
fn route_of(qp: &QpParameters, state: &State) -> MadRoute {
    let chosen = state.options.type_of_service;
    MadRoute {
        local: qp.local,
        remote: qp.remote,
        traffic_class: if chosen == 0 { qp.traffic_class } else { chosen },
        hop_limit: qp.hop_limit,
        flow_label: qp.flow_label,
    }
}

fn modify(id: &Id, attr: &mut ibv_qp_attr, mask: AttributeMask) -> Result<(), Errno> {
    // SAFETY: a live queue pair of the identifier's; our own structures.
    match unsafe { ibv_modify_qp((*id.c()).qp, (&*attr).into(), mask.bits() as c_int) } {
        0 => Ok(()),
        errno => Err(Errno(errno)),
    }
}

/// Takes the identifier's queue pair, if it has one, to RTS. `depths`: READs and atomics to serve, and to
/// have outstanding, where the program has said it.
///
/// # Errors
/// Those of the queue pair.
pub(crate) fn connect(id: &Id, state: &State, depths: Option<(u8, u8)>) -> Result<(), Errno> {
    // SAFETY: a field of our own structure.
    if unsafe { (*id.c()).qp.is_null() } {
        return Ok(());
    }
    // Now that the peer is known, so is what it may do.
    let (mut init, mask) = attributes(id, state, INIT)?;
    modify(id, &mut init, mask)?;
    let (mut ready, mask) = attributes(id, state, RTR)?;
    if let Some((serve, _)) = depths {
        ready.max_dest_rd_atomic = serve;
    }
    modify(id, &mut ready, mask)?;
    let (mut sends, mask) = attributes(id, state, RTS)?;
    if let Some((_, outstanding)) = depths {
        sends.max_rd_atomic = outstanding;
    }
    modify(id, &mut sends, mask)
}

/// Takes the identifier's queue pair, if it has one, to ERR.
pub(crate) fn to_error(id: &Id) {
    // SAFETY: a field of our own structure.
    if unsafe { !(*id.c()).qp.is_null() } {
        let mut attr = ibv_qp_attr { qp_state: ERROR, ..ibv_qp_attr::default() };
        // It may be there.
        let _ = modify(id, &mut attr, AttributeMask::STATE);
    }
}

pub(crate) unsafe extern "C" fn rdma_init_qp_attr(
    id: *mut rdma_cm_id,
    qp_attr: *mut ibv_qp_attr,
    qp_attr_mask: *mut c_int,
) -> c_int {
    number(|| {
        // SAFETY: null or live; null or the caller's structures.
        let (own, attr, mask) =
            unsafe { (Id::of(id)?, qp_attr.as_mut().ok_or(INVALID)?, qp_attr_mask.as_mut().ok_or(INVALID)?) };
        let (filled, needed) = attributes(&own, &own.state(), attr.qp_state)?;
        *attr = filled;
        *mask = needed.bits() as c_int;
        Ok(0)
    })
}

pub(crate) unsafe extern "C" fn rdma_create_qp(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    qp_init_attr: *mut ibv_qp_init_attr,
) -> c_int {
    number(|| {
        // SAFETY: null or the caller's structure; null or live.
        let (own, given) = unsafe { (Id::of(id)?, qp_init_attr.as_mut().ok_or(INVALID)?) };
        // SAFETY: numbers and pointers.
        let mut all: ibv_qp_init_attr_ex = unsafe { zeroed() };
        all.qp_context = given.qp_context;
        all.send_cq = given.send_cq;
        all.recv_cq = given.recv_cq;
        all.srq = given.srq;
        all.cap = given.cap;
        all.qp_type = given.qp_type;
        all.sq_sig_all = given.sq_sig_all;
        if !pd.is_null() {
            all.comp_mask = MASK_PD;
            all.pd = pd;
        }
        create(&own, &mut all)?;
        given.send_cq = all.send_cq;
        given.recv_cq = all.recv_cq;
        given.srq = all.srq;
        given.cap = all.cap;
        Ok(0)
    })
}

pub(crate) unsafe extern "C" fn rdma_create_qp_ex(
    id: *mut rdma_cm_id,
    qp_init_attr: *mut ibv_qp_init_attr_ex,
) -> c_int {
    number(|| {
        // SAFETY: null or the caller's structure; null or live.
        let (own, given) = unsafe { (Id::of(id)?, qp_init_attr.as_mut().ok_or(INVALID)?) };
        create(&own, given)?;
        Ok(0)
    })
}

/// Makes the identifier's queue pair, and the completion queues that nobody gave.
fn create(id: &Id, attr: &mut ibv_qp_init_attr_ex) -> Result<(), Errno> {
    // SAFETY: our own structure, which the program does not use meanwhile.
    let c = unsafe { &mut *id.c() };
    if c.verbs.is_null() {
        return Err(INVALID.because(|| "an identifier without an address is on no device yet".to_owned()));
    }
    let conflict = |own: *mut ibv_cq, given: *mut ibv_cq| !own.is_null() && !given.is_null() && own != given;
    if !c.qp.is_null() || conflict(c.send_cq, attr.send_cq) || conflict(c.recv_cq, attr.recv_cq) {
        return Err(
            INVALID.because(|| "this identifier has a queue pair, or other queues, already".to_owned())
        );
    }
    if attr.comp_mask & MASK_PD == 0 {
        attr.comp_mask |= MASK_PD;
        attr.pd = if c.pd.is_null() { shared()?.pd } else { c.pd };
    }
    // SAFETY: null or a live domain.
    if attr.pd.is_null() || unsafe { (*attr.pd).context } != c.verbs {
        return Err(INVALID.because(|| {
            "the protection domain is of another context than the identifier's (id->verbs)".to_owned()
        }));
    }
    if c.qp_type == QPT_XRC_RECV && (attr.comp_mask & MASK_XRCD == 0 || attr.xrcd.is_null()) {
        attr.xrcd = xrc_domain()?;
        attr.comp_mask |= MASK_XRCD;
    }
    let made = complete_queues(id, attr).and_then(|()| {
        let qp = create_qp_ex(c.verbs, attr.into());
        if qp.is_null() { Err(Errno(errno())) } else { Ok(qp) }
    });
    let ready = made.and_then(|qp| {
        c.qp = qp;
        let state = id.state();
        let last = if c.qp_type == QPT_UD { RTS } else { INIT };
        for step in INIT..=last {
            let (mut attributes, mask) = attributes(id, &state, step)?;
            modify(id, &mut attributes, mask)?;
        }
        Ok(())
    });
    match ready {
        Ok(()) => c.pd = attr.pd,
        Err(errno) => {
            destroy(id);
            return Err(errno);
        }
    }
    Ok(())
}

/// Makes the completion queues that are not given, with a channel each.
fn complete_queues(id: &Id, attr: &mut ibv_qp_init_attr_ex) -> Result<(), Errno> {
    // SAFETY: our own structure, which the program does not use meanwhile.
    let c = unsafe { &mut *id.c() };
    let depths = [attr.cap.max_send_wr, attr.cap.max_recv_wr];
    let queues = [
        (&mut c.send_cq_channel, &mut c.send_cq, &mut attr.send_cq),
        (&mut c.recv_cq_channel, &mut c.recv_cq, &mut attr.recv_cq),
    ];
    for ((channel, own, given), depth) in queues.into_iter().zip(depths) {
        if !given.is_null() {
            continue;
        }
        if own.is_null() && depth > 0 {
            (*channel, *own) = completion_queue(id, depth)?;
        }
        *given = *own;
    }
    // One that neither sends nor receives still names a queue for it.
    if attr.send_cq.is_null() {
        attr.send_cq = attr.recv_cq;
    }
    if attr.recv_cq.is_null() {
        attr.recv_cq = attr.send_cq;
    }
    if !c.srq.is_null() && attr.srq.is_null() {
        attr.srq = c.srq;
    }
    Ok(())
}

/// A completion queue with a channel of its own.
fn completion_queue(id: &Id, depth: u32) -> Result<(*mut ibv_comp_channel, *mut ibv_cq), Errno> {
    let depth = c_int::try_from(depth).map_err(|_| INVALID)?;
    // SAFETY: the shared context, which is open; a live channel.
    unsafe {
        let verbs = (*id.c()).verbs;
        let channel = ibv_create_comp_channel(verbs);
        if channel.is_null() {
            return Err(Errno(errno()));
        }
        let cq = ibv_create_cq(verbs, depth, id.c().cast(), channel, 0);
        if cq.is_null() {
            let failed = Errno(errno());
            ibv_destroy_comp_channel(channel);
            return Err(failed);
        }
        Ok((channel, cq))
    }
}

/// The identifier's completion queue for receives, made if there is none.
///
/// # Errors
/// Those of making it.
pub(crate) fn receive_completion_queue(id: &Id, depth: u32) -> Result<*mut ibv_cq, Errno> {
    // SAFETY: our own structure, which the program does not use meanwhile.
    let c = unsafe { &mut *id.c() };
    if c.recv_cq.is_null() {
        (c.recv_cq_channel, c.recv_cq) = completion_queue(id, depth)?;
    }
    Ok(c.recv_cq)
}

/// Destroys the identifier's queue pair and the queues that were made for it.
pub(crate) fn destroy(id: &Id) {
    multicast::detach_all(id);
    // SAFETY: our own structure and its live objects, which the program gives up.
    unsafe {
        let c = &mut *id.c();
        if !c.qp.is_null() {
            ibv_destroy_qp(c.qp);
            c.qp = ptr::null_mut();
        }
        // An XRC receive queue has the completion queue for as long as it is there.
        if c.qp_type != QPT_XRC_RECV || c.srq.is_null() {
            destroy_completion_queues(id);
        }
    }
}

/// Destroys the completion queues that were made for the identifier.
pub(crate) fn destroy_completion_queues(id: &Id) {
    // SAFETY: as above; nothing uses the queues any more.
    unsafe {
        let c = &mut *id.c();
        for (cq, channel) in
            [(&mut c.send_cq, &mut c.send_cq_channel), (&mut c.recv_cq, &mut c.recv_cq_channel)]
        {
            if !cq.is_null() {
                // Events that were fetched and not acknowledged would be waited for.
                crate::calls::completion_channel::ibv_ack_cq_events(Trusted::new(*cq), u32::MAX);
                ibv_destroy_cq(*cq);
                *cq = ptr::null_mut();
            }
            if !channel.is_null() {
                ibv_destroy_comp_channel(*channel);
                *channel = ptr::null_mut();
            }
        }
    }
}

pub(crate) unsafe extern "C" fn rdma_destroy_qp(id: *mut rdma_cm_id) {
    value((), || {
        // SAFETY: null or live.
        if let Ok(own) = unsafe { Id::of(id) } {
            destroy(&own);
        }
    });
}
