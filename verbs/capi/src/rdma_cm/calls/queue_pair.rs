//! Queue pairs and shared receive queues of identifiers, and their membership of multicast groups.
//!
//! Shared receive queues of identifiers, those for XRC included: a process has one XRC domain for all of its
//! identifiers whose programs name none.
//!
//! Multicast groups of identifiers. In RoCE no subnet administration grants a group: its GID follows from its
//! address, as Linux maps it, and this host joins it by IGMP or MLD when the identifier's queue pair is
//! attached.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;

use pumice_calls::Call;
use pumice_transport::cm::MadRoute;
use pumice_transport::types::Gid;

use crate::abi::plain::{ForwardedStruct, zeroed};
use crate::abi::{
    ibv_ah_attr, ibv_cq, ibv_pd, ibv_qp_attr, ibv_qp_init_attr, ibv_qp_init_attr_ex, ibv_srq_init_attr,
    ibv_srq_init_attr_ex, rdma_cm_join_mc_attr_ex, rdma_ud_param,
};
use crate::entry::{number_of, value};
use crate::platform::{Errno, INVALID};
use crate::rdma_cm::address::{AddressPointer, lookup};
use crate::rdma_cm::constants::{
    DATAGRAM_Q_KEY, HOP_LIMIT, MULTICAST_ERROR, MULTICAST_JOIN, QPT_UD, QPT_XRC_RECV,
};
use crate::rdma_cm::events::translation::{acknowledge_last, complete};
use crate::rdma_cm::id::acknowledgement::UnacknowledgedEvents;
use crate::rdma_cm::id::channel::EventParameters;
use crate::rdma_cm::id::queue_pair::{
    INIT, RTS, address_vector, attributes, destroy, destroy_completion_queues, detach, modify,
    receive_completion_queue, send_completion_queue, xrc_domain,
};
use crate::rdma_cm::id::{GroupMembership, Id, IdPointer, IdStage, IdState, LocalEvent, objects};

/// Flags `IBV_SRQ_INIT_ATTR_*`.
const MASK_TYPE: u32 = 1;
const SRQ_MASK_PD: u32 = 1 << 1;
const SRQ_MASK_XRCD: u32 = 1 << 2;
const MASK_CQ: u32 = 1 << 3;
/// Values of `IBV_SRQT_*`.
const TYPE_BASIC: u32 = 0;
const TYPE_XRC: u32 = 1;

/// Creates a shared receive queue of an identifier, which its queue pairs use. An identifier that receives by
/// XRC gets an XRC one.
pub(crate) extern "C" fn rdma_create_srq(
    id: IdPointer,
    pd: *mut ibv_pd,
    attr: Option<&mut ibv_srq_init_attr>,
) -> c_int {
    number_of(Call::rdma_create_srq, id.on(), || {
        let (own, given) = (id.known()?, attr.ok_or(INVALID)?);
        let mut all = ibv_srq_init_attr_ex {
            srq_context: given.srq_context,
            attr: given.attr,
            comp_mask: MASK_TYPE | SRQ_MASK_PD,
            pd,
            srq_type: if own.c.qp_type() == QPT_XRC_RECV { TYPE_XRC } else { TYPE_BASIC },
            ..zeroed()
        };
        create_srq(&own, &mut all)?;
        given.attr = all.attr;
        Ok(0)
    })
}

/// Creates a shared receive queue as `rdma_create_srq` does; a domain or a completion queue that is not given
/// is the identifier's.
pub(crate) extern "C" fn rdma_create_srq_ex(id: IdPointer, attr: Option<&mut ibv_srq_init_attr_ex>) -> c_int {
    number_of(Call::rdma_create_srq_ex, id.on(), || {
        let (own, given) = (id.known()?, attr.ok_or(INVALID)?);
        if given.comp_mask & MASK_TYPE == 0 {
            return Err(INVALID);
        }
        create_srq(&own, given)?;
        Ok(0)
    })
}

fn create_srq(id: &Id, attr: &mut ibv_srq_init_attr_ex) -> Result<(), Errno> {
    if id.c.verbs().is_null() {
        return Err(INVALID.because(|| "an identifier without an address is on no device yet".to_owned()));
    }
    if !id.c.srq().is_null() {
        return Err(INVALID.because(|| "this identifier has a shared receive queue already".to_owned()));
    }
    if attr.comp_mask & SRQ_MASK_PD == 0 || attr.pd.is_null() {
        attr.pd = id.c.pd();
        attr.comp_mask |= SRQ_MASK_PD;
    }
    objects::check_domain(attr.pd, id.c.verbs())?;
    if attr.srq_type == TYPE_XRC {
        if attr.comp_mask & SRQ_MASK_XRCD == 0 || attr.xrcd.is_null() {
            attr.xrcd = xrc_domain(id)?;
        }
        if attr.comp_mask & MASK_CQ == 0 || attr.cq.is_null() {
            attr.cq = receive_completion_queue(id, attr.attr.max_wr)?;
        }
        attr.comp_mask |= SRQ_MASK_XRCD | MASK_CQ;
    }
    match objects::create_shared_receive_queue(id.c.verbs(), attr) {
        Ok(srq) => {
            id.c.set_srq(srq);
            id.c.set_pd(attr.pd);
            Ok(())
        }
        Err(errno) => {
            if id.c.qp().is_null() {
                destroy_completion_queues(id);
            }
            Err(errno)
        }
    }
}

pub(crate) extern "C" fn rdma_destroy_srq(id: IdPointer) {
    value((), || {
        if let Ok(own) = id.known() {
            destroy_srq(&own);
        }
    });
}

/// Destroys the identifier's shared receive queue, if it has one.
pub(crate) fn destroy_srq(id: &Id) {
    if id.c.srq().is_null() {
        return;
    }
    objects::destroy_shared_receive_queue(id.c.srq());
    id.c.set_srq(ptr::null_mut());
    // An XRC one used the identifier's completion queue, which is destroyed unless a queue pair still uses
    // it.
    if id.c.qp().is_null() {
        destroy_completion_queues(id);
    }
}

/// Flags `IBV_QP_INIT_ATTR_PD`, `..._XRCD`.
const MASK_PD: u32 = 1;
const MASK_XRCD: u32 = 1 << 1;

pub(crate) extern "C" fn rdma_init_qp_attr(
    id: IdPointer,
    qp_attr: Option<&mut ibv_qp_attr>,
    qp_attr_mask: Option<&mut c_int>,
) -> c_int {
    number_of(Call::rdma_init_qp_attr, id.on(), || {
        let (own, attr, mask) = (id.id()?, qp_attr.ok_or(INVALID)?, qp_attr_mask.ok_or(INVALID)?);
        let wanted = attr.qp_state;
        let state = own.state();
        // Linux, too, checks only this as long as there is no connection, and for datagrams.
        let unconnected = state.connection.is_none() || own.is_datagram();
        if unconnected && own.c.verbs().is_null() {
            return Err(INVALID.because(|| "this identifier has no device yet".to_owned()));
        }
        let (filled, needed) = attributes(&own, &state, if unconnected { INIT } else { wanted })?;
        *attr = ibv_qp_attr { qp_state: wanted, ..filled };
        //= man:rdma_init_qp_attr
        //| The call returns the attributes and the mask for ibv_modify_qp.
        *mask = needed.bits() as c_int;
        Ok(0)
    })
}

pub(crate) extern "C" fn rdma_create_qp(
    id: IdPointer,
    pd: *mut ibv_pd,
    qp_init_attr: Option<&mut ibv_qp_init_attr>,
) -> c_int {
    number_of(Call::rdma_create_qp, id.about(), || {
        create(&*id.id()?, pd, qp_init_attr.ok_or(INVALID)?)?;
        Ok(0)
    })
}

/// Creates the identifier's queue pair in a domain, or in the identifier's if that is null.
///
/// # Errors
/// Fails with the errors of `rdma_create_qp`.
pub(crate) fn create(id: &Id, pd: *mut ibv_pd, given: &mut ibv_qp_init_attr) -> Result<(), Errno> {
    let mut all = ibv_qp_init_attr_ex {
        qp_context: given.qp_context,
        send_cq: given.send_cq,
        recv_cq: given.recv_cq,
        srq: given.srq,
        cap: given.cap,
        qp_type: given.qp_type,
        sq_sig_all: given.sq_sig_all,
        ..zeroed()
    };
    if !pd.is_null() {
        all.comp_mask = MASK_PD;
        all.pd = pd;
    }
    create_extended(id, &mut all)?;
    given.send_cq = all.send_cq;
    given.recv_cq = all.recv_cq;
    given.srq = all.srq;
    given.cap = all.cap;
    Ok(())
}

pub(crate) extern "C" fn rdma_create_qp_ex(
    id: IdPointer,
    qp_init_attr: Option<&mut ibv_qp_init_attr_ex>,
) -> c_int {
    number_of(Call::rdma_create_qp_ex, id.about(), || {
        create_extended(&*id.id()?, qp_init_attr.ok_or(INVALID)?)?;
        Ok(0)
    })
}

/// Creates the identifier's queue pair, and the completion queues that the attributes lack.
fn create_extended(id: &Id, attr: &mut ibv_qp_init_attr_ex) -> Result<(), Errno> {
    if id.c.verbs().is_null() {
        return Err(INVALID.because(|| "an identifier without an address is on no device yet".to_owned()));
    }
    let conflict = |own: *mut ibv_cq, given: *mut ibv_cq| !own.is_null() && !given.is_null() && own != given;
    let has_others = conflict(id.c.send_cq(), attr.send_cq) || conflict(id.c.recv_cq(), attr.recv_cq);
    //= man:rdma_create_qp
    //| An identifier has one queue pair at most.
    if !id.c.qp().is_null() || has_others {
        return Err(
            INVALID.because(|| "this identifier has a queue pair, or other queues, already".to_owned())
        );
    }
    if attr.comp_mask & MASK_PD == 0 {
        attr.comp_mask |= MASK_PD;
        //= man:rdma_create_qp
        //| Without a protection domain the identifier uses that of its device.
        attr.pd = if id.c.pd().is_null() { id.shared()?.pd() } else { id.c.pd() };
    }
    objects::check_domain(attr.pd, id.c.verbs())?;
    if id.c.qp_type() == QPT_XRC_RECV && (attr.comp_mask & MASK_XRCD == 0 || attr.xrcd.is_null()) {
        attr.xrcd = xrc_domain(id)?;
        attr.comp_mask |= MASK_XRCD;
    }
    let made = complete_queues(id, attr).and_then(|()| objects::create_queue_pair(id.c.verbs(), attr));
    let ready = made.and_then(|qp| {
        id.c.set_qp(qp);
        initialise(id)
    });
    match ready {
        Ok(()) => id.c.set_pd(attr.pd),
        Err(errno) => {
            destroy(id);
            return Err(errno);
        }
    }
    Ok(())
}

/// Moves a new queue pair as far as possible without a peer: to INIT, and one of datagrams to RTS.
fn initialise(id: &Id) -> Result<(), Errno> {
    let state = id.state();
    //= man:rdma_create_qp
    //| A new queue pair can receive, and an unconnected one can send, too.
    let last = if id.c.qp_type() == QPT_UD { RTS } else { INIT };
    for step in INIT..=last {
        let (mut attributes, mask) = attributes(id, &state, step)?;
        modify(id, &mut attributes, mask)?;
    }
    Ok(())
}

/// Creates the completion queues that are not given, with a channel each.
fn complete_queues(id: &Id, attr: &mut ibv_qp_init_attr_ex) -> Result<(), Errno> {
    //= man:rdma_create_qp
    //| Completion queues that are missing are made.
    if attr.send_cq.is_null() {
        let depth = attr.cap.max_send_wr;
        attr.send_cq = if depth > 0 { send_completion_queue(id, depth)? } else { id.c.send_cq() };
    }
    if attr.recv_cq.is_null() {
        let depth = attr.cap.max_recv_wr;
        attr.recv_cq = if depth > 0 { receive_completion_queue(id, depth)? } else { id.c.recv_cq() };
    }
    // A queue pair that only receives still names a queue for sending.
    if attr.send_cq.is_null() {
        attr.send_cq = attr.recv_cq;
    }
    if attr.recv_cq.is_null() {
        attr.recv_cq = attr.send_cq;
    }
    if !id.c.srq().is_null() && attr.srq.is_null() {
        attr.srq = id.c.srq();
    }
    Ok(())
}

pub(crate) extern "C" fn rdma_destroy_qp(id: IdPointer) {
    value((), || {
        if let Ok(own) = id.known() {
            destroy(&own);
        }
    });
}

/// Bits of `enum rdma_cm_join_mc_attr_mask`, and the unknown ones.
const MASK_ADDRESS: u32 = 1;
const MASK_JOIN_FLAGS: u32 = 1 << 1;
const MASK_END: u32 = 1 << 2;
/// Values of `enum rdma_cm_mc_join_flags`: to receive and send, to send only, and the unknown ones.
const FULL_MEMBER: u32 = 0;
const SEND_ONLY: u32 = 1;
const FLAGS_END: u32 = 2;
/// Queue pair number that stands for all members.
const ALL_MEMBERS: u32 = 0xff_ffff;
/// Largest number of groups of one identifier; the device has fewer in all.
const LIMIT: usize = 1024;

/// Joins a group, to receive as well as to send.
pub(crate) extern "C" fn rdma_join_multicast(
    id: IdPointer,
    addr: AddressPointer,
    context: *mut c_void,
) -> c_int {
    number_of(Call::rdma_join_multicast, id.on(), || join(&id.id()?, addr, FULL_MEMBER, context))
}

/// Joins a group, perhaps to send only.
pub(crate) extern "C" fn rdma_join_multicast_ex(
    id: IdPointer,
    mc_join_attr: Option<&rdma_cm_join_mc_attr_ex>,
    context: *mut c_void,
) -> c_int {
    number_of(Call::rdma_join_multicast_ex, id.on(), || {
        let (own, wanted) = (id.id()?, mc_join_attr.ok_or(INVALID)?);
        if wanted.comp_mask >= MASK_END {
            return Err(Errno(libc::ENOTSUP));
        }
        if wanted.comp_mask != MASK_ADDRESS | MASK_JOIN_FLAGS || wanted.join_flags >= FLAGS_END {
            return Err(INVALID.because(|| "joining takes an address and flags, both".to_owned()));
        }
        join(&own, AddressPointer::of_group(wanted), wanted.join_flags, context)
    })
}

fn join(own: &Arc<Id>, address: AddressPointer, flags: u32, context: *mut c_void) -> Result<c_int, Errno> {
    let (peer, address) = (address.parse()?, address.bytes()?);
    {
        let mut state = own.state();
        let group = Gid::from(peer.ip());
        let vector = vector(own, &state, group)?;
        if state.memberships.len() >= LIMIT {
            return Err(Errno(libc::ENOMEM));
        }
        //= man:rdma_join_multicast
        //| The context of the call comes back in the event.
        let param = rdma_ud_param { private_data: context, ..zeroed() };
        let qp = own.c.qp();
        //= man:rdma_join_multicast
        //| The queue pair of the identifier is attached to the group.
        let attached = (flags != SEND_ONLY && !qp.is_null()).then(|| objects::attach(qp, group));
        let member = rdma_ud_param { ah_attr: vector, qp_num: ALL_MEMBERS, qkey: DATAGRAM_Q_KEY, ..param };
        let (event, status) = match attached {
            Some(Err(Errno(errno))) => (MULTICAST_ERROR, -errno),
            _ => (MULTICAST_JOIN, 0),
        };
        // As in Linux, the program leaves a group even if the queue pair could not be attached.
        let unacknowledged = Arc::<UnacknowledgedEvents>::default();
        let parameters = EventParameters::Group(ForwardedStruct(member), Arc::clone(&unacknowledged));
        let attached = attached.is_some_and(|attached| attached.is_ok());
        state.memberships.push(GroupMembership { address, group, attached, unacknowledged });
        state.channel.push(LocalEvent { id: Arc::clone(own), event, status, parameters });
    }
    complete(own)
}

/// Returns the address vector of packets to the group.
fn vector(own: &Id, state: &IdState, group: Gid) -> Result<ibv_ah_attr, Errno> {
    if !own.is_datagram() {
        return Err(INVALID.because(|| "only identifiers of datagrams (RDMA_PS_UDP) join groups".to_owned()));
    }
    if !group.is_multicast() {
        return Err(INVALID.because(|| format!("{group} is not the address of a multicast group")));
    }
    let bound = state.addresses.local.map(|local| local.ip()).filter(|ip| !ip.is_unspecified());
    //= man:rdma_join_multicast
    //| An identifier that joins a group has an address.
    let Some(ip) = bound.filter(|_| matches!(state.stage, IdStage::Bound | IdStage::AddressResolved)) else {
        return Err(INVALID
            .because(|| "a group is joined from an address: bind, or resolve, the identifier".to_owned()));
    };
    let hca = own.shared()?.hca();
    let local = lookup::own(hca, ip)?.gid;
    if local.is_ipv4() != group.is_ipv4() {
        return Err(INVALID.because(|| format!("{ip} and {group} are of different IP versions")));
    }
    let traffic_class = state.options.type_of_service;
    let route = MadRoute { local, remote: group, traffic_class, hop_limit: HOP_LIMIT, flow_label: 0 };
    Ok(address_vector(hca, &route))
}

pub(crate) extern "C" fn rdma_leave_multicast(id: IdPointer, addr: AddressPointer) -> c_int {
    number_of(Call::rdma_leave_multicast, id.on(), || {
        let (own, address) = (id.id()?, addr.bytes().map_err(|_| INVALID)?);
        let mut state = own.state();
        let index = state.memberships.iter().position(|member| member.address == address);
        let Some(index) = index else {
            return Err(Errno(libc::EADDRNOTAVAIL)
                .because(|| "this identifier has not joined that group, or left it".to_owned()));
        };
        let member = state.memberships.remove(index);
        // Another membership in the same group may keep the queue pair in it.
        if !state.memberships.iter().any(|other| other.attached && other.group == member.group) {
            //= man:rdma_leave_multicast
            //| Leaving the group detaches the queue pair.
            detach(&own, &member);
        }
        state.channel.retract(&own, |parameters| is_of(parameters, &member));
        let is_synchronous = state.synchronous;
        drop(state);
        if is_synchronous {
            // This library acknowledges the event of joining. librdmacm does not, and waits for ever.
            acknowledge_last(&own);
        }
        member.unacknowledged.wait(Call::rdma_leave_multicast, own.as_ptr().addr());
        Ok(0)
    })
}

/// Reports whether an event is the one of joining by this membership.
fn is_of(parameters: &EventParameters, member: &GroupMembership) -> bool {
    let EventParameters::Group(_, count) = parameters else { return false };
    Arc::ptr_eq(count, &member.unacknowledged)
}
