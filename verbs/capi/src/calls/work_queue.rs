//! Receive work queues, indirection tables, and the attributes of a queue pair that spreads frames.

use std::ffi::c_int;
use std::sync::Arc;

use pumice_calls::Call;
use pumice_device::ethernet::{RSS_KEY_BYTES, RssTable};
use pumice_device::hca::{Hca, QpInit};
use pumice_transport::qp::{AttributeMask, QpAttributes};
use pumice_transport::types::{QpCapacity, QpState, QpType};
use pumice_transport::wire::Qpn;

use super::post_recv::post_wq_recv;
use crate::abi::zeroed::zeroed;
use crate::abi::{
    ibv_context, ibv_rwq_ind_table, ibv_rwq_ind_table_init_attr, ibv_rx_hash_conf, ibv_wq, ibv_wq_attr,
    ibv_wq_init_attr, operation,
};
use crate::entry::arguments::{Array, Bytes, In, InOut};
use crate::entry::handles::{hand_out, live, take_back};
use crate::entry::outcome::{pointer_about, status_of};
use crate::gate::CallSubject;
use crate::log::refusal::check_mask;
use crate::objects::command_file::OwnedObject;
use crate::objects::completion_queue::Cq;
use crate::objects::context::Context;
use crate::objects::protection_domain::Pd;
use crate::objects::work_queue::{IndirectionTable, Wq};
use crate::platform::errno::{Errno, INVALID, NOT_SUPPORTED};

/// The value `IBV_WQT_RQ`, the only type.
const RECEIVES: u32 = 0;
/// The flag `IBV_WQ_INIT_ATTR_FLAGS`.
const MASK_FLAGS: u32 = 1;

pub(crate) extern "C" fn create_wq(
    context: *mut ibv_context,
    init_attr: InOut<'_, ibv_wq_init_attr>,
) -> *mut ibv_wq {
    pointer_about(Call::ibv_create_wq, CallSubject::on(context), || {
        let (open, attributes) = (Context::of(context)?, init_attr.get()?);
        check_mask(Call::ibv_create_wq, attributes.comp_mask, MASK_FLAGS)?;
        if attributes.comp_mask & MASK_FLAGS != 0 && attributes.create_flags != 0 {
            return Err(NOT_SUPPORTED.because(|| "ibv_create_wq refused: it has no flags".to_owned()));
        }
        if attributes.wq_type != RECEIVES {
            return Err(INVALID.because(|| format!("there is no work queue type {}", attributes.wq_type)));
        }
        let (domain, cq) = (live::<Pd>(attributes.pd)?, live::<Cq>(attributes.cq)?);
        open.check_same("protection domain", &*domain.context()?)?;
        open.check_same("completion queue", &*cq.context()?)?;
        let cq = cq.queue().handle();
        let (number, capacity) = open.hca().create_qp(&QpInit {
            qp_type: QpType::RawPacket,
            pd: Some(domain.handle()),
            send_cq: Some(cq),
            recv_cq: Some(cq),
            srq: None,
            xrcd: None,
            capacity: QpCapacity {
                max_recv_wr: attributes.max_wr,
                max_recv_sge: attributes.max_sge,
                ..QpCapacity::default()
            },
            signal_all: false,
            // It has no asynchronous events.
            cookie: 0,
        })?;
        open.own(OwnedObject::QueuePair(number.value()));
        (attributes.max_wr, attributes.max_sge) = (capacity.max_recv_wr, capacity.max_recv_sge);
        let mut c: ibv_wq = zeroed();
        c.context = context;
        c.wq_context = attributes.wq_context;
        c.pd = attributes.pd;
        c.cq = attributes.cq;
        c.wq_num = number.value();
        c.handle = number.index().into();
        c.post_recv = operation!(post_wq_recv);
        Ok(hand_out(Wq::new(c, Arc::clone(open.hca()), number, cq)))
    })
}

/// Flags of `IBV_WQ_ATTR_*`.
const ATTR_STATE: u32 = 1;
const ATTR_CURRENT_STATE: u32 = 1 << 1;
const ATTR_FLAGS: u32 = 1 << 2;
/// Values of `IBV_WQS_*`.
const RESET: u32 = 0;
const READY: u32 = 1;
const ERROR: u32 = 2;

fn enter(hca: &Hca, number: Qpn, state: QpState, mask: AttributeMask) -> Result<(), Errno> {
    let attributes = QpAttributes { qp_state: state as u32, port_num: 1, ..QpAttributes::default() };
    Ok(hca.modify_qp(number, &attributes, mask | AttributeMask::STATE)?)
}

pub(crate) extern "C" fn modify_wq(wq: *mut ibv_wq, attr: In<'_, ibv_wq_attr>) -> c_int {
    status_of(Call::ibv_modify_wq, CallSubject::of(wq), || {
        let (held, attributes) = (live::<Wq>(wq)?, attr.get()?);
        let mask = attributes.attr_mask;
        if mask & ATTR_FLAGS != 0 {
            return Err(NOT_SUPPORTED);
        }
        let wrong =
            || INVALID.because(|| "a work queue goes from RESET to RDY, and from any to ERR or RESET".into());
        let (now, next) = (held.state(), attributes.wq_state);
        let claims_other = mask & ATTR_CURRENT_STATE != 0 && attributes.curr_wq_state != now;
        if mask & !(ATTR_STATE | ATTR_CURRENT_STATE) != 0 || mask & ATTR_STATE == 0 || claims_other {
            return Err(wrong());
        }
        let (hca, number) = (held.hca(), held.number());
        //= man:ibv_modify_wq
        //| The attribute wq_state names the state to which the work queue moves.
        match (now, next) {
            (READY, READY) => {}
            (RESET, READY) => {
                enter(hca, number, QpState::Init, AttributeMask::PORT)?;
                enter(hca, number, QpState::Rtr, AttributeMask::empty())?;
            }
            (_, RESET) => enter(hca, number, QpState::Reset, AttributeMask::empty())?,
            (READY | ERROR, ERROR) => enter(hca, number, QpState::Err, AttributeMask::empty())?,
            _ => return Err(wrong()),
        }
        held.show_state(next);
        Ok(())
    })
}

pub(crate) extern "C" fn destroy_wq(wq: *mut ibv_wq) -> c_int {
    status_of(Call::ibv_destroy_wq, CallSubject::of(wq), || {
        let held = live::<Wq>(wq)?;
        held.check_unused()?;
        held.hca().destroy_qp(held.number())?;
        held.context()?.disown(OwnedObject::QueuePair(held.number().value()));
        take_back::<Wq>(wq);
        Ok(())
    })
}

/// Binary logarithm of the largest table.
const MAX_LOG_TABLE: u32 = 12;

pub(crate) extern "C" fn create_rwq_ind_table(
    context: *mut ibv_context,
    init_attr: In<'_, ibv_rwq_ind_table_init_attr>,
) -> *mut ibv_rwq_ind_table {
    pointer_about(Call::ibv_create_rwq_ind_table, CallSubject::on(context), || {
        let (open, attributes) = (Context::of(context)?, init_attr.get()?);
        check_mask(Call::ibv_create_rwq_ind_table, attributes.comp_mask, 0)?;
        if attributes.log_ind_tbl_size > MAX_LOG_TABLE {
            return Err(
                INVALID.because(|| format!("an indirection table has at most 2^{MAX_LOG_TABLE} places"))
            );
        }
        // SAFETY: the program's structure names a list of this length that is valid until the call returns.
        let list = unsafe { Array::<*mut ibv_wq>::new(attributes.ind_tbl) };
        let queues = list.get(1 << attributes.log_ind_tbl_size)?.iter().map(|wq| live::<Wq>(*wq));
        let queues = queues.collect::<Result<Vec<_>, Errno>>()?;
        for queue in &queues {
            open.check_same("work queue", &*queue.context()?)?;
        }
        Ok(hand_out(IndirectionTable::new(context, &queues).ok_or(INVALID)?))
    })
}

pub(crate) extern "C" fn destroy_rwq_ind_table(table: *mut ibv_rwq_ind_table) -> c_int {
    status_of(Call::ibv_destroy_rwq_ind_table, CallSubject::of(table), || {
        live::<IndirectionTable>(table)?.check_unused()?;
        take_back::<IndirectionTable>(table);
        Ok(())
    })
}

/// The value `IBV_RX_HASH_FUNC_TOEPLITZ`.
const TOEPLITZ: u8 = 1;
/// Bits of `IBV_RX_HASH_*` that are implemented, and those of them that exclude each other.
const FIELDS_KNOWN: u64 = 0xff;
const FIELDS_IPV4: u64 = 0b11;
const FIELDS_IPV6: u64 = 0b1100;
const FIELDS_TCP: u64 = 0b11_0000;
const FIELDS_UDP: u64 = 0b1100_0000;

/// Returns how a queue pair is to spread its frames.
///
/// # Errors
/// Fails with EOPNOTSUPP for another function, or fields in tunnels and of IPsec, and with EINVAL for a key
/// of another length, or fields of IPv4 and IPv6, or of TCP and UDP, together, as adapters do.
pub(crate) fn spread_of(table: &IndirectionTable, hash: &ibv_rx_hash_conf) -> Result<RssTable, Errno> {
    let fields = hash.rx_hash_fields_mask;
    if hash.rx_hash_function != TOEPLITZ || fields & !FIELDS_KNOWN != 0 {
        return Err(NOT_SUPPORTED.because(|| format!("there is no hash of the fields {fields:#x}")));
    }
    let has = |bits: u64| fields & bits != 0;
    if (has(FIELDS_IPV4) && has(FIELDS_IPV6)) || (has(FIELDS_TCP) && has(FIELDS_UDP)) {
        return Err(INVALID.because(|| format!("fields {fields:#x}: either IPv4 or IPv6, either TCP or UDP")));
    }
    // SAFETY: the program's structure names a key of the given length, which is valid until the call returns.
    let key = unsafe { Bytes::new(hash.rx_hash_key.cast()) }.get(hash.rx_hash_key_len.into())?;
    let wrong = || INVALID.because(|| format!("a key of the Toeplitz hash has {RSS_KEY_BYTES} bytes"));
    let key = key.try_into().map_err(|_| wrong())?;
    Ok(RssTable { table: table.queues().to_vec(), key, fields })
}
