//! Multicast groups of identifiers. In RoCE no subnet administration grants a group: its GID follows from its
//! address, as Linux maps it, and this host joins it by IGMP or MLD when the identifier's queue pair is
//! attached.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use pumice_calls::Call;
use pumice_transport::cm::MadRoute;
use pumice_transport::types::Gid;

use crate::abi::plain::ForwardedStruct;
use crate::abi::zeroed::zeroed;
use crate::abi::{ibv_ah_attr, rdma_cm_join_mc_attr_ex, rdma_ud_param};
use crate::entry::outcome::number_of;
use crate::platform::errno::{Errno, INVALID};
use crate::rdma_cm::address::local;
use crate::rdma_cm::address::socket_address::AddressPointer;
use crate::rdma_cm::constants::{DATAGRAM_Q_KEY, HOP_LIMIT, MULTICAST_ERROR, MULTICAST_JOIN};
use crate::rdma_cm::events::fetch::{acknowledge_last, complete};
use crate::rdma_cm::id::acknowledgement::UnacknowledgedEvents;
use crate::rdma_cm::id::channel::EventParameters;
use crate::rdma_cm::id::identifier::{GroupMembership, Id, IdPointer, IdStage, IdState, LocalEvent};
use crate::rdma_cm::id::memberships::detach;
use crate::rdma_cm::id::objects;
use crate::rdma_cm::id::queue_pair::address_vector;

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
    let local = local::own(hca, ip)?.gid;
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
