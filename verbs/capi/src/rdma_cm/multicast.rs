//! Multicast groups of identifiers. RoCE asks nobody for a group: its GID follows from its address, as
//! Linux maps it, and this host joins it by IGMP or MLD when the identifier's queue pair is attached.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use libc::sockaddr;
use pumice_transport::cm::MadRoute;
use pumice_transport::types::Gid;

use super::address;
use super::channel::LocalEvent;
use super::endpoint::complete;
use super::event::{MULTICAST_ERROR, MULTICAST_JOIN, Said, no_ud};
use super::id::{Id, Stage, State};
use super::queue_pair::{DATAGRAM_Q_KEY, address_vector};
use super::shared::shared;
use crate::calls::multicast::{ibv_attach_mcast, ibv_detach_mcast};
use crate::ground::abi::{ibv_gid, rdma_cm_id, rdma_cm_join_mc_attr_ex, rdma_ud_param};
use crate::ground::errno::{Errno, INVALID};
use crate::ground::outcome::number;

/// `enum rdma_cm_join_mc_attr_mask`, and what is beyond it.
const MASK_ADDRESS: u32 = 1;
const MASK_JOIN_FLAGS: u32 = 1 << 1;
const MASK_END: u32 = 1 << 2;
/// `enum rdma_cm_mc_join_flags`: to receive and send, to send only, and what is beyond them.
const FULL_MEMBER: u32 = 0;
const SEND_ONLY: u32 = 1;
const FLAGS_END: u32 = 2;
/// Of packets to groups, as Linux has it.
const HOP_LIMIT: u8 = 64;
/// The queue pair of all members.
const EVERYBODY: u32 = 0xff_ffff;
/// Groups of one identifier at most; the device has fewer in all.
const LIMIT: usize = 1024;

/// A group that an identifier has joined.
pub(crate) struct Membership {
    /// As the program wrote it: it leaves by the same.
    address: Vec<u8>,
    group: Gid,
    /// A queue pair was attached.
    attached: bool,
}

/// Joins, to receive as well as to send.
pub(crate) unsafe extern "C" fn rdma_join_multicast(
    id: *mut rdma_cm_id,
    addr: *mut sockaddr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: null or live; null or the caller's address.
    number(|| unsafe { join(&Id::of(id)?, addr, FULL_MEMBER, context) })
}

/// Joins, perhaps to send only.
pub(crate) unsafe extern "C" fn rdma_join_multicast_ex(
    id: *mut rdma_cm_id,
    mc_join_attr: *mut rdma_cm_join_mc_attr_ex,
    context: *mut c_void,
) -> c_int {
    number(|| {
        // SAFETY: null or live; null or the caller's structure.
        let (own, wanted) = unsafe { (Id::of(id)?, mc_join_attr.as_ref().ok_or(INVALID)?) };
        if wanted.comp_mask >= MASK_END {
            return Err(Errno(libc::ENOTSUP));
        }
        if wanted.comp_mask != MASK_ADDRESS | MASK_JOIN_FLAGS || wanted.join_flags >= FLAGS_END {
            return Err(INVALID.because(|| "joining takes an address and flags, both".to_owned()));
        }
        // SAFETY: null or the caller's address.
        unsafe { join(&own, wanted.addr, wanted.join_flags, context) }
    })
}

/// # Safety
/// `address` is null or as long as its family says.
unsafe fn join(
    own: &Arc<Id>,
    address: *const sockaddr,
    flags: u32,
    context: *mut c_void,
) -> Result<c_int, Errno> {
    // SAFETY: the caller's promise.
    let (peer, address) = unsafe { (address::from_c(address)?, address::bytes(address)?) };
    {
        let mut state = own.state();
        let group = Gid::from(peer.ip());
        let vector = vector(own, &state, group)?;
        if state.groups.len() >= LIMIT {
            return Err(Errno(libc::ENOMEM));
        }
        let param = rdma_ud_param { private_data: context, ..no_ud() };
        // SAFETY: our own structure, and a live queue pair.
        let attached = unsafe {
            let qp = (*own.c()).qp;
            (flags != SEND_ONLY && !qp.is_null())
                .then(|| ibv_attach_mcast(qp, (&ibv_gid { raw: group.0 }).into(), 0))
        };
        let (event, status, param) = match attached {
            Some(errno) if errno != 0 => (MULTICAST_ERROR, -errno, param),
            _ => {
                state.groups.push(Membership { address, group, attached: attached.is_some() });
                let member =
                    rdma_ud_param { ah_attr: vector, qp_num: EVERYBODY, qkey: DATAGRAM_Q_KEY, ..param };
                (MULTICAST_JOIN, 0, member)
            }
        };
        let event = LocalEvent { id: Arc::clone(own), event, status };
        state.channel.push_saying(event, Said::Group(param));
    }
    complete(own)
}

/// How packets get to the group.
fn vector(own: &Id, state: &State, group: Gid) -> Result<crate::ground::abi::ibv_ah_attr, Errno> {
    if !own.is_datagram() {
        return Err(INVALID.because(|| "only identifiers of datagrams (RDMA_PS_UDP) join groups".to_owned()));
    }
    if !group.is_multicast() {
        return Err(INVALID.because(|| format!("{group} is not the address of a multicast group")));
    }
    let bound = state.local.map(|local| local.ip()).filter(|ip| !ip.is_unspecified());
    let Some(ip) = bound.filter(|_| matches!(state.stage, Stage::Bound | Stage::AddressResolved)) else {
        return Err(INVALID
            .because(|| "a group is joined from an address: bind, or resolve, the identifier".to_owned()));
    };
    let hca = shared()?.hca();
    let local = address::own(hca, ip)?.gid;
    if local.is_ipv4() != group.is_ipv4() {
        return Err(INVALID.because(|| format!("{ip} and {group} are of different IP versions")));
    }
    let traffic_class = state.options.type_of_service;
    let route = MadRoute { local, remote: group, traffic_class, hop_limit: HOP_LIMIT, flow_label: 0 };
    Ok(address_vector(hca, &route))
}

pub(crate) unsafe extern "C" fn rdma_leave_multicast(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int {
    number(|| {
        // SAFETY: null or live; null or the caller's address.
        let (own, address) = unsafe { (Id::of(id)?, address::bytes(addr)?) };
        let mut state = own.state();
        let place = state.groups.iter().position(|member| member.address == address);
        let Some(place) = place else {
            return Err(Errno(libc::EADDRNOTAVAIL)
                .because(|| "this identifier has not joined that group, or left it".to_owned()));
        };
        let member = state.groups.remove(place);
        // Another membership in the same group may keep the queue pair in it.
        if !state.groups.iter().any(|other| other.attached && other.group == member.group) {
            detach(&own, &member);
        }
        state.channel.retract(
            &own,
            |said| matches!(said, Said::Group(param) if param.ah_attr.grh.dgid.raw == member.group.0),
        );
        Ok(0)
    })
}

/// Takes the queue pair, which is about to go, out of its groups.
pub(crate) fn detach_all(own: &Id) {
    for member in &mut own.state().groups {
        detach(own, member);
        member.attached = false;
    }
}

fn detach(own: &Id, member: &Membership) {
    // SAFETY: our own structure, and a live queue pair.
    unsafe {
        let qp = (*own.c()).qp;
        if member.attached && !qp.is_null() {
            // The program may have detached it itself.
            let _ = ibv_detach_mcast(qp, (&ibv_gid { raw: member.group.0 }).into(), 0);
        }
    }
}
