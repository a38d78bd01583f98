//! Ethernet frames that queue pairs receive: rules that select them, work queues over which they are spread.

use std::ffi::c_int;
use std::mem::offset_of;
use std::sync::Arc;

use pumice_calls::Call;
use pumice_device::ethernet::{FlowAction, FlowKind, FlowMatch, FlowRule, Header, RSS_KEY_BYTES, RssTable};
use pumice_device::hca::{Hca, QpInit};
use pumice_transport::qp::{AttributeMask, QpAttributes};
use pumice_transport::types::{QpCapacity, QpState, QpType};
use pumice_transport::wire::Qpn;

use super::post_recv::post_wq_recv;
use crate::abi::plain::zeroed;
use crate::abi::{
    ibv_context, ibv_flow, ibv_flow_attr, ibv_flow_eth_filter, ibv_flow_ipv4_ext_filter,
    ibv_flow_ipv4_filter, ibv_flow_ipv6_filter, ibv_flow_spec_action_drop, ibv_flow_spec_eth,
    ibv_flow_spec_ipv4, ibv_flow_spec_ipv4_ext, ibv_flow_spec_ipv6, ibv_flow_spec_tcp_udp,
    ibv_flow_tcp_udp_filter, ibv_qp, ibv_rwq_ind_table, ibv_rwq_ind_table_init_attr, ibv_rx_hash_conf,
    ibv_wq, ibv_wq_attr, ibv_wq_init_attr, operation,
};
use crate::entry::arguments::{Array, Bytes, In, InOut};
use crate::entry::handles::{hand_out, live, take_back};
use crate::entry::{pointer_about, status_of};
use crate::gate::CallSubject;
use crate::log::refusal::check_mask;
use crate::objects::Context;
use crate::objects::command_file::OwnedObject;
use crate::objects::completion_queue::Cq;
use crate::objects::domains::Pd;
use crate::objects::queue_pair::Qp;
use crate::objects::receive_queues::{Flow, IndirectionTable, Wq};
use crate::platform::{Errno, INVALID, NOT_SUPPORTED};

/// Bits of `IBV_FLOW_ATTR_FLAGS_*`: frames that this process sends are looped back to its own rules in any
/// case.
const FLAG_ALLOW_LOOP_BACK: u32 = 1;
const FLAG_DONT_TRAP: u32 = 1 << 1;
const FLAG_EGRESS: u32 = 1 << 2;

/// The value `IBV_FLOW_SPEC_ACTION_DROP`.
const SPEC_DROP: u32 = 0x1001;
/// Types of `IBV_FLOW_SPEC_*` that this device does not have: ESP, tunnels, GRE, MPLS; tags, handles,
/// counters.
const SPECS_UNSERVED: [u32; 7] = [0x34, 0x50, 0x51, 0x60, 0x1000, 0x1002, 0x1003];
/// The flag `IBV_FLOW_SPEC_INNER`: a header inside of a tunnel.
const SPEC_INNER: u32 = 0x100;

/// A specification that compares the fields of a header.
struct FlowSpec {
    /// Type of the specification (`IBV_FLOW_SPEC_*`).
    number: u32,
    header: Header,
    /// Length of the whole structure in bytes.
    bytes: usize,
    value_at: usize,
    mask_at: usize,
    /// Length of the fields in bytes.
    field_bytes: usize,
}

macro_rules! spec {
    ($number:literal, $header:ident, $spec:ident, $field_bytes:expr) => {
        FlowSpec {
            number: $number,
            header: Header::$header,
            bytes: size_of::<$spec>(),
            value_at: offset_of!($spec, val),
            mask_at: offset_of!($spec, mask),
            field_bytes: $field_bytes,
        }
    };
}

const SPECS: [FlowSpec; 6] = [
    spec!(0x20, Ethernet, ibv_flow_spec_eth, size_of::<ibv_flow_eth_filter>()),
    spec!(0x30, Ipv4, ibv_flow_spec_ipv4, size_of::<ibv_flow_ipv4_filter>()),
    spec!(0x32, Ipv4, ibv_flow_spec_ipv4_ext, size_of::<ibv_flow_ipv4_ext_filter>()),
    // The byte that fills the structure up does not count.
    spec!(0x31, Ipv6, ibv_flow_spec_ipv6, offset_of!(ibv_flow_ipv6_filter, hop_limit) + 1),
    spec!(0x40, Tcp, ibv_flow_spec_tcp_udp, size_of::<ibv_flow_tcp_udp_filter>()),
    spec!(0x41, Udp, ibv_flow_spec_tcp_udp, size_of::<ibv_flow_tcp_udp_filter>()),
];

/// Length in bytes of the beginning of every specification: its type and its size.
const SPEC_HEADER_BYTES: usize = offset_of!(ibv_flow_spec_action_drop, size) + size_of::<u16>();

fn refused(errno: Errno, why: String) -> Errno {
    errno.because(|| format!("ibv_create_flow refused: {why}"))
}

/// Reads the attributes, which specifications follow.
fn attributes(given: Bytes<'_>) -> Result<ibv_flow_attr, Errno> {
    let bytes = given.get(size_of::<ibv_flow_attr>())?;
    let word =
        |at: usize| bytes.get(at..).and_then(|rest| rest.first_chunk()).map(|b| u32::from_ne_bytes(*b));
    let half =
        |at: usize| bytes.get(at..).and_then(|rest| rest.first_chunk()).map(|b| u16::from_ne_bytes(*b));
    let byte = |at: usize| bytes.get(at).copied();
    let read = || {
        Some(ibv_flow_attr {
            comp_mask: word(offset_of!(ibv_flow_attr, comp_mask))?,
            r#type: word(offset_of!(ibv_flow_attr, r#type))?,
            size: half(offset_of!(ibv_flow_attr, size))?,
            priority: half(offset_of!(ibv_flow_attr, priority))?,
            num_of_specs: byte(offset_of!(ibv_flow_attr, num_of_specs))?,
            port: byte(offset_of!(ibv_flow_attr, port))?,
            flags: word(offset_of!(ibv_flow_attr, flags))?,
        })
    };
    read().ok_or(INVALID)
}

/// Reads the rule that a program describes: attributes, with specifications one after the other behind them.
///
/// # Errors
/// Fails with EOPNOTSUPP for a field or action that this device does not have, and with EINVAL for an invalid
/// rule.
fn rule(given: Bytes<'_>) -> Result<FlowRule, Errno> {
    let attributes = attributes(given)?;
    check_mask(Call::ibv_create_flow, attributes.comp_mask, 0)?;
    let flags = attributes.flags;
    if flags & FLAG_EGRESS != 0 {
        return Err(refused(NOT_SUPPORTED, "rules are for frames that arrive".to_owned()));
    }
    if flags & !(FLAG_ALLOW_LOOP_BACK | FLAG_DONT_TRAP) != 0 {
        return Err(refused(INVALID, format!("flags {flags:#x} have bits without meaning")));
    }
    let kind = match attributes.r#type {
        //= man:ibv_create_flow
        //| A rule follows its specifications, or takes what no queue pair takes, or all frames.
        0 => FlowKind::Normal,
        1 => FlowKind::AllDefault,
        2 => FlowKind::MulticastDefault,
        3 => FlowKind::Sniffer,
        other => return Err(refused(INVALID, format!("there is no type {other} of rules"))),
    };
    let is_default = matches!(kind, FlowKind::AllDefault | FlowKind::MulticastDefault);
    //= linux:uverbs_cmd.c#ib_uverbs_ex_create_flow
    //| What takes the frames that no other rule takes does not pass them on.
    if is_default && flags & FLAG_DONT_TRAP != 0 {
        return Err(refused(INVALID, "default rules have no DONT_TRAP: no rule is behind them".to_owned()));
    }
    let mut rule = FlowRule {
        kind,
        priority: attributes.priority,
        port_num: attributes.port,
        matches: Vec::new(),
        action: FlowAction::Deliver,
        //= man:ibv_create_flow
        //| A rule with DONT_TRAP lets frames go on to rules behind it.
        lets_through: flags & FLAG_DONT_TRAP != 0,
    };
    let mut at = size_of::<ibv_flow_attr>();
    for _ in 0..attributes.num_of_specs {
        at = add_spec(&mut rule, given, at)?;
    }
    Ok(rule)
}

/// Adds the specification at an offset to the rule; returns the offset behind it.
fn add_spec(rule: &mut FlowRule, given: Bytes<'_>, at: usize) -> Result<usize, Errno> {
    let beginning = given.get(at + SPEC_HEADER_BYTES)?.get(at..).unwrap_or_default();
    let [t0, t1, t2, t3, s0, s1] = *beginning else { return Err(INVALID) };
    let (number, bytes) = (u32::from_ne_bytes([t0, t1, t2, t3]), usize::from(u16::from_ne_bytes([s0, s1])));
    let check_size = |expected: usize| {
        if bytes == expected {
            return Ok(());
        }
        Err(refused(INVALID, format!("specification {number:#x} has {bytes} bytes instead of {expected}")))
    };
    if number == SPEC_DROP {
        check_size(size_of::<ibv_flow_spec_action_drop>())?;
        rule.action = FlowAction::Drop;
        return Ok(at + bytes);
    }
    let Some(spec) = SPECS.iter().find(|spec| spec.number == number) else {
        let known = SPECS_UNSERVED.contains(&(number & !SPEC_INNER))
            || SPECS.iter().any(|spec| spec.number | SPEC_INNER == number);
        let errno = if known { NOT_SUPPORTED } else { INVALID };
        return Err(refused(errno, format!("this device has no specification {number:#x}")));
    };
    check_size(spec.bytes)?;
    let structure = given.get(at + bytes)?.get(at..).unwrap_or_default();
    let part = |from: usize| structure.get(from..from + spec.field_bytes).map(Box::from).ok_or(INVALID);
    rule.matches.push(FlowMatch {
        header: spec.header,
        value: part(spec.value_at)?,
        mask: part(spec.mask_at)?,
    });
    Ok(at + bytes)
}

pub(crate) extern "C" fn create_flow(qp: *mut ibv_qp, flow_attr: Bytes<'_>) -> *mut ibv_flow {
    pointer_about(Call::ibv_create_flow, Qp::about(qp), || {
        let held = live::<Qp>(qp)?;
        let context = held.context()?;
        let id = context.hca().create_flow(held.number(), rule(flow_attr)?)?;
        context.own(OwnedObject::Flow(id));
        Ok(hand_out(Flow::new(held.context_pointer(), id)))
    })
}

pub(crate) extern "C" fn destroy_flow(flow: *mut ibv_flow) -> c_int {
    status_of(Call::ibv_destroy_flow, CallSubject::of(flow), || {
        let held = live::<Flow>(flow)?;
        let context = held.context()?;
        context.hca().destroy_flow(held.id())?;
        context.disown(OwnedObject::Flow(held.id()));
        take_back::<Flow>(flow);
        Ok(())
    })
}

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
