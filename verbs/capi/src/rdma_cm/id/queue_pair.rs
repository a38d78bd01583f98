//! Queue pairs of identifiers, the groups that they are attached to, and the XRC domain of identifiers
//! without one.
//!
//! Queue pairs of identifiers: the attributes for their state transitions, and the objects that are destroyed
//! with them.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::ptr;
use std::sync::{Mutex, PoisonError};

use pumice_device::hca::Hca;
use pumice_device::outside::fork_generation::PerProcess;
use pumice_transport::cm::{CmState as DeviceState, MadRoute, QpParameters};
use pumice_transport::qp::AttributeMask;
use pumice_transport::types::AddressVector;

use super::objects::{CompletionObjects, destroy_queue_pair, modify_queue_pair, open_unnamed_xrc_domain};
use super::{GroupMembership, Id, IdState, objects};
use crate::abi::plain::ForwardedStruct;
use crate::abi::{ibv_ah_attr, ibv_cq, ibv_qp_attr, ibv_xrcd};
use crate::calls::address_handle::vector_to;
use crate::platform::{Errno, INVALID};
use crate::rdma_cm::constants::{
    AS_MUCH_AS_THERE_IS, DATAGRAM_Q_KEY, HOP_LIMIT, QPT_RC, QPT_UC, QPT_UD, QPT_XRC_RECV, QPT_XRC_SEND,
};

/// Detaches the queue pair, which is about to be destroyed, from its groups.
fn detach_all(id: &Id) {
    for member in &mut id.state().memberships {
        detach(id, member);
        member.attached = false;
    }
}

/// Detaches the queue pair, if it was attached, from the group of one membership.
pub(crate) fn detach(id: &Id, member: &GroupMembership) {
    if member.attached && !id.c.qp().is_null() {
        // The program may have detached it itself.
        let _ = objects::detach(id.c.qp(), member.group);
    }
}

/// Values of `IBV_QPS_*`.
pub(crate) const INIT: u32 = 1;
const RTR: u32 = 2;
pub(crate) const RTS: u32 = 3;
const ERROR: u32 = 6;
/// Flags `IBV_ACCESS_REMOTE_WRITE`, and those of READ and ATOMIC.
const ACCESS_WRITE: u32 = 2;
//= linux:cm.c#cm_init_qp_init_attr
//| READs and atomic operations are allowed if the connection serves any.
const ACCESS_READ_ATOMIC: u32 = 4 | 8;
/// Returns the largest number of READs and atomics of a queue pair of the device.
pub(crate) fn rd_atomic_limit(hca: &Hca) -> u8 {
    hca.limits().max_rd_atomic.min(AS_MUCH_AS_THERE_IS - 1)
}

/// Returns the address vector of a route.
pub(crate) fn address_vector(hca: &Hca, route: &MadRoute) -> ibv_ah_attr {
    let found = hca.gids().into_iter().find(|(_, entry)| entry.gid == route.local);
    let (sgid_index, port_num) = found.map_or((0, 1), |(index, entry)| (index, entry.port_num));
    vector_to(&AddressVector {
        is_global: true,
        dgid: route.remote,
        sgid_index,
        hop_limit: if route.hop_limit == 0 { HOP_LIMIT } else { route.hop_limit },
        traffic_class: route.traffic_class,
        flow_label: route.flow_label,
        port_num,
        ..AddressVector::default()
    })
}

/// Returns the attributes that a queue pair of the identifier needs to move to a state.
///
/// # Errors
/// Fails with EINVAL if there is no connection yet that it could be ready for, or no such state.
pub(crate) fn attributes(
    id: &Id,
    state: &IdState,
    wanted: u32,
) -> Result<(ibv_qp_attr, AttributeMask), Errno> {
    let hca = id.shared()?.hca();
    let known = state.connection.and_then(|connection| hca.cm_qp_parameters(connection));
    let kind = id.c.qp_type();
    // An identifier without an address is on no port: the first port is used.
    let port_num = id.c.port_num().max(1);
    let mut attr = ibv_qp_attr { qp_state: wanted, port_num, ..ibv_qp_attr::default() };
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
    if state.connection.is_some_and(|connection| !hca.cm_state(connection).is_some_and(has_attributes)) {
        return Err(connection_is_over());
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
    let qp = qp.ok_or_else(peer_is_unknown)?;
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
            attr.rq_psn = state.offer.psn.value();
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

fn connection_is_over() -> Errno {
    INVALID.because(|| {
        "the connection is over, or its peer has given the request up: a queue pair can be of use to another \
         identifier only"
            .to_owned()
    })
}

fn peer_is_unknown() -> Errno {
    INVALID.because(|| {
        "the peer's queue pair is not known: the peer has not answered yet, or its program connected without \
         a queue pair (rdma_create_qp comes before rdma_connect and rdma_accept)"
            .to_owned()
    })
}

/// Reports whether a queue pair can get ready for a connection in this state: that of a connection that is
/// over cannot, as in Linux.
const fn has_attributes(state: DeviceState) -> bool {
    !matches!(
        state,
        DeviceState::Idle | DeviceState::DreqSent | DeviceState::DreqReceived | DeviceState::Timewait
    )
}

/// Returns the route to the peer, with the traffic class of this side.
fn route_of(qp: &QpParameters, state: &IdState) -> MadRoute {
    let chosen = state.options.type_of_service;
    MadRoute {
        local: qp.local,
        remote: qp.remote,
        traffic_class: if chosen == 0 { qp.traffic_class } else { chosen },
        hop_limit: qp.hop_limit,
        flow_label: qp.flow_label,
    }
}

/// # Errors
/// Fails with the errors of the queue pair.
pub(crate) fn modify(id: &Id, attr: &mut ibv_qp_attr, mask: AttributeMask) -> Result<(), Errno> {
    modify_queue_pair(id.c.qp(), attr, mask)
}

/// Moves the identifier's queue pair, if it has one, to RTS. `depths` has the numbers of READs and atomics to
/// serve, and to have outstanding, if the program gave them.
///
/// # Errors
/// Fails with the errors of the queue pair.
pub(crate) fn connect(id: &Id, state: &IdState, depths: Option<(u8, u8)>) -> Result<(), Errno> {
    if id.c.qp().is_null() {
        return Ok(());
    }
    // The access rights are known now that the peer is known.
    let (mut init, mask) = attributes(id, state, INIT)?;
    modify(id, &mut init, mask)?;
    let (mut ready, mask) = attributes(id, state, RTR)?;
    if let Some((serve, _)) = depths {
        //= linux:cm.c#cm_init_qp_rtr_attr
        //| The responder serves as many READs as the connection has agreed on.
        ready.max_dest_rd_atomic = serve;
    }
    modify(id, &mut ready, mask)?;
    let (mut sends, mask) = attributes(id, state, RTS)?;
    if let Some((_, outstanding)) = depths {
        sends.max_rd_atomic = outstanding;
    }
    modify(id, &mut sends, mask)
}

/// Moves the identifier's queue pair, if it has one, to ERR.
pub(crate) fn to_error(id: &Id) {
    if !id.c.qp().is_null() {
        let mut attr = ibv_qp_attr { qp_state: ERROR, ..ibv_qp_attr::default() };
        // The queue pair may be in that state already.
        let _ = modify(id, &mut attr, AttributeMask::STATE);
    }
}

/// Returns the identifier's completion queue for receives, made if there is none.
///
/// # Errors
/// Fails with the errors of making it.
pub(crate) fn receive_completion_queue(id: &Id, depth: u32) -> Result<*mut ibv_cq, Errno> {
    if id.c.recv_cq().is_null() {
        let made = completion_queue(id, depth)?;
        id.c.set_recv_cq_channel(made.channel());
        id.c.set_recv_cq(made.cq());
    }
    Ok(id.c.recv_cq())
}

/// Returns the identifier's completion queue for sends, made if there is none.
///
/// # Errors
/// Fails with the errors of making it.
pub(crate) fn send_completion_queue(id: &Id, depth: u32) -> Result<*mut ibv_cq, Errno> {
    if id.c.send_cq().is_null() {
        let made = completion_queue(id, depth)?;
        id.c.set_send_cq_channel(made.channel());
        id.c.set_send_cq(made.cq());
    }
    Ok(id.c.send_cq())
}

fn completion_queue(id: &Id, depth: u32) -> Result<CompletionObjects, Errno> {
    let depth = c_int::try_from(depth).map_err(|_| INVALID)?;
    CompletionObjects::create(id.c.verbs(), depth, id.as_ptr().cast())
}

/// Destroys the identifier's queue pair and the queues that were made for it.
pub(crate) fn destroy(id: &Id) {
    detach_all(id);
    if !id.c.qp().is_null() {
        destroy_queue_pair(id.c.qp());
        id.c.set_qp(ptr::null_mut());
    }
    // An XRC receive queue uses the completion queue as long as it exists.
    if id.c.qp_type() != QPT_XRC_RECV || id.c.srq().is_null() {
        destroy_completion_queues(id);
    }
}

/// Destroys the completion queues that were made for the identifier, once no object uses them.
pub(crate) fn destroy_completion_queues(id: &Id) {
    CompletionObjects::new(id.c.send_cq_channel(), id.c.send_cq()).destroy();
    id.c.set_send_cq(ptr::null_mut());
    id.c.set_send_cq_channel(ptr::null_mut());
    CompletionObjects::new(id.c.recv_cq_channel(), id.c.recv_cq()).destroy();
    id.c.set_recv_cq(ptr::null_mut());
    id.c.set_recv_cq_channel(ptr::null_mut());
}

/// Returns the XRC domain of this process's identifiers on the device of one, which is never closed. A forked
/// process has its own.
///
/// # Errors
/// Fails with the errors of opening one.
pub(crate) fn xrc_domain(id: &Id) -> Result<*mut ibv_xrcd, Errno> {
    /// Domains by the index of the device.
    static DOMAINS: PerProcess<Mutex<BTreeMap<usize, ForwardedStruct<*mut ibv_xrcd>>>> =
        PerProcess::new(|_| Mutex::default());
    let shared = id.shared()?;
    let mut domains = DOMAINS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(open) = domains.get(&shared.index()) {
        return Ok(open.0);
    }
    let open = open_unnamed_xrc_domain(shared.context())?;
    domains.insert(shared.index(), ForwardedStruct(open));
    Ok(open)
}
