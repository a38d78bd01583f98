//! The calls `modify_qp` and `query_qp`, and the options that two ends agree on (ECE).
//!
//! Enhanced connection establishment: options that two ends of a connection agree on. The device's profile
//! has the vendor and the options: by default none.

use std::ffi::c_int;

use pumice_calls::Call;
use pumice_device::check::ModifyFacts;
use pumice_transport::qp::{AttributeMask, QpAttributes};
use pumice_transport::types::{Gid, QpCapacity, QpState};

use super::address_handle::{vector_from, vector_to};
use crate::abi::{ibv_ece, ibv_qp, ibv_qp_attr, ibv_qp_cap, ibv_qp_init_attr, ibv_qp_rate_limit_attr};
use crate::call_sites::current_call::current;
use crate::check;
use crate::entry::arguments::{In, InOut, Out, OutTarget};
use crate::entry::handles::live;
use crate::entry::status_of;
use crate::gate::CallSubject;
use crate::log::refusal::check_mask;
use crate::objects::device::is_of_device;
use crate::objects::queue_pair::Qp;
use crate::objects::{peer_host, unused};
use crate::platform::{Errno, INVALID, NOT_SUPPORTED};

pub(crate) extern "C" fn ibv_query_ece(qp: *mut ibv_qp, ece: Out<'_, ibv_ece>) -> c_int {
    status_of(Call::ibv_query_ece, Qp::about(qp), || {
        let held = live::<Qp>(qp)?;
        let vendor_id = held.context()?.device().profile().ece.vendor_id;
        ece.required()?.set(ibv_ece { vendor_id, options: held.ece().get(), comp_mask: 0 });
        Ok(())
    })
}

/// Sets the options of a queue pair; a device without options clears the structure.
pub(crate) extern "C" fn ibv_set_ece(qp: *mut ibv_qp, ece: InOut<'_, ibv_ece>) -> c_int {
    status_of(Call::ibv_set_ece, Qp::about(qp), || {
        let held = live::<Qp>(qp)?;
        let vendor_id = held.context()?.device().profile().ece.vendor_id;
        let ece = ece.get()?;
        if ece.vendor_id != vendor_id || ece.comp_mask != 0 {
            return Err(INVALID.because(|| {
                format!(
                    "options of vendor {:#x} with mask {:#x}: those of this device are of vendor \
                     {vendor_id:#x}",
                    ece.vendor_id, ece.comp_mask
                )
            }));
        }
        match held.ece().of_device() {
            0 => ece.options = 0,
            _ => held.ece().set(ece.options),
        }
        Ok(())
    })
}

pub(crate) fn capacity_from(c: &ibv_qp_cap) -> QpCapacity {
    QpCapacity {
        max_send_wr: c.max_send_wr,
        max_recv_wr: c.max_recv_wr,
        max_send_sge: c.max_send_sge,
        max_recv_sge: c.max_recv_sge,
        max_inline_data: c.max_inline_data,
    }
}

pub(crate) fn capacity_to(capacity: &QpCapacity) -> ibv_qp_cap {
    ibv_qp_cap {
        max_send_wr: capacity.max_send_wr,
        max_recv_wr: capacity.max_recv_wr,
        max_send_sge: capacity.max_send_sge,
        max_recv_sge: capacity.max_recv_sge,
        max_inline_data: capacity.max_inline_data,
    }
}

pub(crate) fn attributes_from(c: &ibv_qp_attr) -> QpAttributes {
    QpAttributes {
        qp_state: c.qp_state,
        cur_qp_state: c.cur_qp_state,
        path_mtu: c.path_mtu,
        path_mig_state: c.path_mig_state,
        qkey: c.qkey,
        rq_psn: c.rq_psn,
        sq_psn: c.sq_psn,
        dest_qp_num: c.dest_qp_num,
        access: c.qp_access_flags,
        cap: capacity_from(&c.cap),
        address_vector: vector_from(&c.ah_attr),
        alt_address_vector: vector_from(&c.alt_ah_attr),
        pkey_index: c.pkey_index,
        alt_pkey_index: c.alt_pkey_index,
        en_sqd_async_notify: c.en_sqd_async_notify != 0,
        sq_draining: c.sq_draining != 0,
        max_rd_atomic: c.max_rd_atomic,
        max_dest_rd_atomic: c.max_dest_rd_atomic,
        min_rnr_timer: c.min_rnr_timer,
        port_num: c.port_num,
        timeout: c.timeout,
        retry_cnt: c.retry_cnt,
        rnr_retry: c.rnr_retry,
        alt_port_num: c.alt_port_num,
        alt_timeout: c.alt_timeout,
        rate_limit: c.rate_limit,
    }
}

pub(crate) fn attributes_to(attributes: &QpAttributes) -> ibv_qp_attr {
    ibv_qp_attr {
        qp_state: attributes.qp_state,
        cur_qp_state: attributes.cur_qp_state,
        path_mtu: attributes.path_mtu,
        path_mig_state: attributes.path_mig_state,
        qkey: attributes.qkey,
        rq_psn: attributes.rq_psn,
        sq_psn: attributes.sq_psn,
        dest_qp_num: attributes.dest_qp_num,
        qp_access_flags: attributes.access,
        cap: capacity_to(&attributes.cap),
        ah_attr: vector_to(&attributes.address_vector),
        alt_ah_attr: vector_to(&attributes.alt_address_vector),
        pkey_index: attributes.pkey_index,
        alt_pkey_index: attributes.alt_pkey_index,
        en_sqd_async_notify: attributes.en_sqd_async_notify.into(),
        sq_draining: attributes.sq_draining.into(),
        max_rd_atomic: attributes.max_rd_atomic,
        max_dest_rd_atomic: attributes.max_dest_rd_atomic,
        min_rnr_timer: attributes.min_rnr_timer,
        port_num: attributes.port_num,
        timeout: attributes.timeout,
        retry_cnt: attributes.retry_cnt,
        rnr_retry: attributes.rnr_retry,
        alt_port_num: attributes.alt_port_num,
        alt_timeout: attributes.alt_timeout,
        rate_limit: attributes.rate_limit,
    }
}

/// Returns the length of a program's structure for a mask: programs built before `rate_limit` have a shorter
/// one, with that field's bytes beyond its end. A mask with bits that have no name asks for all attributes,
/// and does not show how long the structure is.
const fn length_for(mask: AttributeMask) -> usize {
    if mask.contains(AttributeMask::RATE_LIMIT) {
        size_of::<ibv_qp_attr>()
    } else {
        std::mem::offset_of!(ibv_qp_attr, rate_limit)
    }
}

/// Reads as much of a program's structure as the mask needs.
///
/// # Errors
/// Fails with EINVAL if the pointer is null.
pub(crate) fn read_attributes(attr: In<'_, ibv_qp_attr>, mask: AttributeMask) -> Result<QpAttributes, Errno> {
    Ok(attributes_from(&attr.beginning(length_for(mask), ibv_qp_attr::default())?))
}

/// Writes as much of a program's structure as [`read_attributes`] would read.
pub(crate) fn write_attributes(attr: &OutTarget<'_, ibv_qp_attr>, c: &ibv_qp_attr, attr_mask: c_int) {
    let mask = AttributeMask::from_bits(attr_mask as u32).unwrap_or(AttributeMask::empty());
    attr.set_within(c, length_for(mask));
}

/// Values of `IBV_QPS_*` in which a connection is over, and of the state in which a queue pair has its number
/// at last.
const RESET: u32 = 0;
const READY_TO_RECEIVE: u32 = 2;
const ERROR: u32 = 6;

/// Reports a change to the checker: what follows from `rnr_retry`, and all of one that the program itself
/// asks for.
pub(super) fn report_modified(qp: &Qp, attributes: &QpAttributes, mask: AttributeMask, is_done: bool) {
    if !check::is_on() {
        return;
    }
    if is_done && mask.contains(AttributeMask::RNR_RETRY) {
        let (number, rnr_retry) = (qp.number().value(), attributes.rnr_retry);
        check::with_checker(|checker| checker.rnr_retry_set(number, rnr_retry));
    }
    let of_program = |call: Call| call.is_of_verbs() || call.is_of_mrc();
    let is_of_program = || current().is_some_and(|made| made.call().is_some_and(of_program));
    if !is_of_program() {
        return;
    }
    let (hca, vector) = (qp.hca(), &attributes.address_vector);
    let has_vector = mask.contains(AttributeMask::AV);
    let gids = if has_vector { hca.gids() } else { Vec::new() };
    let wanted = (vector.port_num, vector.sgid_index);
    let source = gids.iter().find(|(index, entry)| (entry.port_num, *index) == wanted);
    let facts = ModifyFacts {
        is_done,
        active_mtu: hca.active_mtu_of(vector.port_num),
        source_is_ipv4: source.map(|(_, entry)| entry.ip.is_ipv4()),
        peer_is_here: gids.iter().any(|(_, entry)| Gid::from(entry.ip) == vector.dgid)
            || (has_vector && is_of_device(vector.dgid)),
    };
    check::with_checker(|checker| checker.qp_modified(qp.number().value(), attributes, mask, &facts));
}

/// Reads the attributes of a change, finds the host of the peer, and lets acknowledgements leave before a
/// connection ends.
pub(super) fn prepare(
    held: &Qp,
    attr: In<'_, ibv_qp_attr>,
    mask: AttributeMask,
) -> Result<QpAttributes, Errno> {
    let mut attributes = read_attributes(attr, mask)?;
    for vector in [&mut attributes.address_vector, &mut attributes.alt_address_vector] {
        *vector = peer_host::resolve_lid(*vector, held.hca());
    }
    if mask.contains(AttributeMask::AV) && !held.is_datagram() {
        //= linux:verbs.c#_ib_modify_qp
        //| The host of the peer is found before the queue pair changes.
        peer_host::find(&attributes.address_vector, held.hca())?;
    }
    let ends = mask.contains(AttributeMask::STATE) && matches!(attributes.qp_state, RESET | ERROR);
    if ends && !held.is_datagram() {
        // Received messages are acknowledged: an adapter did so long ago, and the peer may wait for
        // nothing else.
        held.hca().drive_out();
    }
    Ok(attributes)
}

/// Shows the state that a queue pair has after a change.
pub(super) fn show_change(held: &Qp, attributes: &QpAttributes, mask: AttributeMask) {
    if mask.contains(AttributeMask::STATE) {
        held.show_state(attributes.qp_state);
        if let Some(way) = held.way().filter(|_| attributes.qp_state == RESET) {
            way.forget();
        }
        if attributes.qp_state == READY_TO_RECEIVE {
            held.show_number();
            unused::is_connected();
        }
    }
}

pub(crate) extern "C" fn ibv_modify_qp(
    qp: *mut ibv_qp,
    attr: In<'_, ibv_qp_attr>,
    attr_mask: c_int,
) -> c_int {
    let has_state = attr_mask as u32 & AttributeMask::STATE.bits() != 0;
    let given = attr.optional().filter(|_| has_state);
    let to = given.and_then(|given| QpState::from_verbs(given.qp_state));
    status_of(Call::ibv_modify_qp, Qp::about(qp).towards(to), || {
        let held = live::<Qp>(qp)?;
        let mask = AttributeMask::from_bits_retain(attr_mask as u32);
        let attributes = prepare(&held, attr, mask)?;
        let done = held.hca().modify_qp(held.number(), &attributes, mask);
        report_modified(&held, &attributes, mask, done.is_ok());
        //= man:ibv_modify_qp
        //| A call with an invalid attribute changes nothing, not even the state.
        done?;
        held.ece().modified();
        show_change(&held, &attributes, mask);
        Ok(())
    })
}

/// Changes the rate limit of a queue pair. The size of bursts and of frames do not matter: no frame leaves
/// early.
pub(crate) extern "C" fn modify_qp_rate_limit(
    qp: *mut ibv_qp,
    attr: In<'_, ibv_qp_rate_limit_attr>,
) -> c_int {
    status_of(Call::ibv_modify_qp_rate_limit, CallSubject::on(qp), || {
        let (held, attr) = (live::<Qp>(qp)?, attr.get()?);
        if !held.context()?.device().profile().packet_pacing {
            return Err(NOT_SUPPORTED);
        }
        check_mask(Call::ibv_modify_qp_rate_limit, attr.comp_mask, 0)?;
        let attributes = QpAttributes { rate_limit: attr.rate_limit, ..QpAttributes::default() };
        let changed = held.hca().modify_qp(held.number(), &attributes, AttributeMask::RATE_LIMIT);
        // Here the queue pair is the wrong argument.
        changed.map_err(Errno::from).map_err(|errno| if errno == NOT_SUPPORTED { INVALID } else { errno })
    })
}

/// Returns all attributes; the mask is a hint.
pub(crate) extern "C" fn ibv_query_qp(
    qp: *mut ibv_qp,
    attr: Out<'_, ibv_qp_attr>,
    attr_mask: c_int,
    init_attr: Out<'_, ibv_qp_init_attr>,
) -> c_int {
    status_of(Call::ibv_query_qp, Qp::about(qp), || {
        let held = live::<Qp>(qp)?;
        let (attr, init_attr) = (attr.required()?, init_attr.required()?);
        let attributes = held.hca().query_qp(held.number())?;
        let c = attributes_to(&attributes);
        write_attributes(&attr, &c, attr_mask);
        held.show_state(c.qp_state);
        //= man:ibv_query_qp
        //| The call returns the attributes and what the queue pair was made with.
        init_attr.set(held.made_with(c.cap));
        Ok(())
    })
}
