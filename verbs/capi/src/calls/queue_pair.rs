//! Queue pairs: create and destroy.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::AtomicU8;
use std::sync::{Arc, OnceLock};

use pumice_calls::Call;
use pumice_device::check::QpMade;
use pumice_device::ethernet::RssTable;
use pumice_device::hca::QpInit;
use pumice_device::platform::table::Handle;
use pumice_transport::types::{LocalData, QpCapacity, QpType, SendOpcode, VendorService, WR_OPCODES, WrInfo};
use pumice_transport::wire::Qpn;

use super::frames::spread_of;
use super::queue_pair_attributes::{capacity_from, capacity_to};
use super::queue_pair_ex::{complete_by_mrc, fill_operations};
use crate::abi::plain::zeroed;
use crate::abi::{
    QPT_XRC, ibv_context, ibv_pd, ibv_qp, ibv_qp_ex, ibv_qp_init_attr, ibv_qp_init_attr_ex, ibv_xrcd,
    ofed_qp_init_attr,
};
use crate::check;
use crate::entry::arguments::InOut;
use crate::entry::handles::{ObjectMemory, find, hand_out_shared, live, live_or_none, take_back};
use crate::entry::{pointer_about, status_of};
use crate::gate::CallSubject;
use crate::log::refusal::check_mask;
use crate::objects::command_file::OwnedObject;
use crate::objects::completion_queue::Cq;
use crate::objects::domains::{Pd, Xrcd, is_ofed_program, is_open_by_ofed};
use crate::objects::events::EventSource;
use crate::objects::queue_pair::{EceOptions, MrcWay, Qp, QpParts, SendSeries};
use crate::objects::receive_queues::{IndirectionTable, Srq};
use crate::objects::{Context, mlx5};
use crate::platform::threads::TurnCell;
use crate::platform::{Errno, INVALID, NOT_SUPPORTED};

fn qp_type(number: u32) -> Result<QpType, Errno> {
    match number {
        QPT_DRIVER => Err(NOT_SUPPORTED.because(|| {
            "IBV_QPT_DRIVER is refused: queue pairs of a vendor's own kind (DC of mlx5, SRD of efa) are only \
             on that vendor's adapters; use RC, or UD for datagrams (for example UCX_TLS=rc,ud, or \
             FI_PROVIDER=verbs of libfabric)"
                .to_owned()
        })),
        _ => QpType::of_verbs(number)
            .ok_or_else(|| INVALID.because(|| format!("there is no queue pair type {number}"))),
    }
}

/// The value `IBV_QPT_DRIVER`.
pub(super) const QPT_DRIVER: u32 = 0xff;

/// Parameters of a new queue pair, for both ways to ask for one.
pub(super) struct QpCreateParameters {
    /// Vendor's service, if a vendor call asks for one: otherwise the attributes have the type.
    pub(super) own: Option<VendorService>,
    /// True for a queue pair of MRC, which has the type RC here.
    pub(super) is_mrc: bool,
    pub(super) context: *mut ibv_context,
    pub(super) pd: *mut ibv_pd,
    pub(super) xrcd: *mut ibv_xrcd,
    pub(super) attributes: ibv_qp_init_attr,
    /// Table over which frames are spread, and the hash for it.
    pub(super) spread: Option<(Arc<IndirectionTable>, RssTable)>,
    /// Operations `IBV_QP_EX_WITH_*`, if the `ibv_wr_*` calls are wanted.
    pub(super) send_operations: Option<u64>,
}

/// Length of a scatter element in a queue, in bytes.
const ELEMENT_BYTES: u32 = 16;

/// Creates a queue pair: returns the program's pointer, and the attributes with the capacity that it got.
pub(super) fn create(parameters: &QpCreateParameters) -> Result<(*mut ibv_qp, ibv_qp_init_attr), Errno> {
    let mut attributes = parameters.attributes;
    let qp_type = parameters.own.map_or_else(|| qp_type(attributes.qp_type), |own| Ok(own.qp_type()))?;
    let context = Context::of(parameters.context)?;
    check_kind(&context, qp_type)?;
    mlx5::check(&context, mlx5::OF_QUEUE_PAIRS)?;
    let pd = live_or_none::<Pd>(parameters.pd)?;
    let xrcd = live_or_none::<Xrcd>(parameters.xrcd)?;
    let [send_cq, recv_cq] = [attributes.send_cq, attributes.recv_cq].map(live_or_none::<Cq>);
    let (send_cq, recv_cq) = (send_cq?, recv_cq?);
    let srq = live_or_none::<Srq>(attributes.srq)?;
    check_contexts(
        &context,
        [
            ("protection domain", pd.as_ref().map(|pd| pd.context())),
            ("XRC domain", xrcd.as_ref().map(|xrcd| xrcd.context())),
            ("send completion queue", send_cq.as_ref().map(|cq| cq.context())),
            ("receive completion queue", recv_cq.as_ref().map(|cq| cq.context())),
            ("shared receive queue", srq.as_ref().map(|srq| srq.context())),
        ],
    )?;
    let domain = pd.as_ref().map(|pd| pd.handle());
    let room = ObjectMemory::<Qp>::new();
    let events = EventSource::of_object(parameters.context, room.cookie());
    let init = QpInit {
        qp_type,
        pd: domain,
        send_cq: queue_of(parameters, send_cq),
        recv_cq: queue_of(parameters, recv_cq),
        srq: srq.map(|srq| srq.handle()),
        xrcd: xrcd.filter(|_| matches!(attributes.qp_type, XRC_RECV | QPT_XRC)).map(|xrcd| xrcd.handle()),
        capacity: requested_capacity(parameters, context.hca().limits().max_inline_data),
        signal_all: attributes.sq_sig_all != 0,
        cookie: room.cookie(),
    };
    let (number, capacity) = number_of(&context, parameters, &init)?;
    context.own(OwnedObject::QueuePair(number.value()));
    if let Some((_, spread)) = &parameters.spread {
        context.hca().spread(number, spread.clone())?;
    }
    //= man:ibv_create_qp
    //| The call returns the sizes that the queue pair has.
    attributes.cap = capacity_to(&capacity);
    let mut c = structure(parameters, &attributes, number);
    let (series, way) = ways_to_post(parameters, &context, &capacity, &mut c);
    let qp = Qp::new(
        c,
        QpParts {
            hca: Arc::clone(context.hca()),
            number,
            domain,
            is_datagram: qp_type.is_datagram(),
            signals_all: attributes.sq_sig_all != 0,
            events,
            vendor: OnceLock::new(),
            lag_port: AtomicU8::new(0),
            ece: EceOptions::new(context.device().profile().ece.options),
            way,
            own: parameters.own,
            registration: None,
            series,
            _domain_use: pd.as_ref().and_then(|pd| pd.begin_use()),
            _table_use: parameters.spread.as_ref().map(|(table, _)| table.begin_use()),
        },
    );
    let pointer = hand_out_shared(&room.fill(qp));
    report_created(pointer, qp_type, &attributes);
    pd.iter().for_each(|pd| pd.report_thread_domain(pointer));
    Ok((pointer, attributes))
}

/// Creates the queue pair of the device, and returns its number and sizes.
fn number_of(
    context: &Context,
    parameters: &QpCreateParameters,
    init: &QpInit,
) -> Result<(Qpn, QpCapacity), Errno> {
    let hca = context.hca();
    Ok(if parameters.is_mrc { hca.create_mrc_qp(init)? } else { hca.create_vendor_qp(init, parameters.own)? })
}

/// Returns what the `ibv_wr_*` calls need, and the way of an RC queue pair whose WRITEs MRC may carry.
fn ways_to_post(
    parameters: &QpCreateParameters,
    context: &Context,
    capacity: &QpCapacity,
    c: &mut ibv_qp_ex,
) -> (Option<Box<TurnCell<SendSeries>>>, Option<MrcWay>) {
    let series = parameters.send_operations.map(|_| Box::new(TurnCell::new(SendSeries::new(capacity))));
    series.iter().for_each(|_| fill_operations(c));
    let is_plain = !parameters.is_mrc && parameters.own.is_none();
    let is_rc = QpType::of_verbs(parameters.attributes.qp_type) == Some(QpType::Rc);
    let carries = is_plain && is_rc && context.hca().carries_by_mrc();
    if carries {
        complete_by_mrc(c);
    }
    (series, carries.then(MrcWay::new))
}

/// Checks that the device has queue pairs of a type.
fn check_kind(context: &Context, qp_type: QpType) -> Result<(), Errno> {
    let kinds = context.device().profile().queue_pairs;
    if kinds.has(qp_type) {
        return Ok(());
    }
    Err(NOT_SUPPORTED.because(|| {
        let (name, has) = (qp_type.name(), kinds.words());
        format!("this device's profile is without queue pairs of {name}: it has {has}")
    }))
}

/// Returns the queue in which a new queue pair completes. One that spreads its frames completes nothing
/// itself.
fn queue_of(parameters: &QpCreateParameters, cq: Option<Arc<Cq>>) -> Option<Handle> {
    match &parameters.spread {
        Some((table, _)) => Some(table.cq()),
        None => cq.map(|cq| cq.queue().handle()),
    }
}

/// Returns the capacity that the program asks for, with room for inline data.
fn requested_capacity(parameters: &QpCreateParameters, max_inline_bytes: u32) -> QpCapacity {
    let mut capacity = capacity_from(&parameters.attributes.cap);
    // Inline data uses the room of the scatter elements, as on adapters: rdma_xclient asks for none and sends
    // some.
    let spare = capacity.max_send_sge.saturating_mul(ELEMENT_BYTES).min(max_inline_bytes);
    capacity.max_inline_data = capacity.max_inline_data.max(spare);
    if parameters.send_operations.is_some_and(sends_words) {
        capacity.max_inline_data = capacity.max_inline_data.max(WORD_BYTES);
    }
    capacity
}

/// Returns the structure of a queue pair for the program.
fn structure(parameters: &QpCreateParameters, attributes: &ibv_qp_init_attr, number: Qpn) -> ibv_qp_ex {
    let mut c: ibv_qp_ex = zeroed();
    let base = &mut c.qp_base;
    base.context = parameters.context;
    base.qp_context = attributes.qp_context;
    base.pd = parameters.pd;
    base.send_cq = attributes.send_cq;
    base.recv_cq = attributes.recv_cq;
    base.srq = attributes.srq;
    base.handle = number.index().into();
    // A target of DC gets its number on its way to RTR.
    let is_late = matches!(parameters.own, Some(VendorService::DcTarget { .. }));
    base.qp_num = if is_late { 0 } else { number.value() };
    base.qp_type = attributes.qp_type;
    if attributes.qp_type == QPT_XRC {
        // OFED 1.x has its domain behind today's `ibv_qp`.
        c.comp_mask = parameters.xrcd.expose_provenance() as u64;
    }
    c
}

/// Context of an object that a queue pair may have.
type NamedContext = Option<Result<Arc<Context>, Errno>>;

/// Checks that the objects of a new queue pair are of its context.
fn check_contexts<const N: usize>(
    context: &Context,
    objects: [(&str, NamedContext); N],
) -> Result<(), Errno> {
    for (object, other) in objects {
        if let Some(other) = other {
            context.check_same(object, &*other?)?;
        }
    }
    Ok(())
}

/// Reports a new queue pair to the checker.
fn report_created(pointer: *mut ibv_qp, qp_type: QpType, attributes: &ibv_qp_init_attr) {
    // The program posts nothing on a queue pair whose SRQ matches tags: its requests are the device's.
    let is_of_device = || find::<Srq>(attributes.srq).is_some_and(|srq| srq.hca().matches_tags(srq.handle()));
    if !check::is_on() || is_of_device() {
        return;
    }
    let Some(made) = find::<Qp>(pointer) else { return };
    let handle = |cq| find::<Cq>(cq).map(|cq| cq.queue().handle().index);
    let has_own_receives = attributes.srq.is_null();
    let made = QpMade {
        address: pointer.addr() as u64,
        number: made.number().value(),
        ordinal: made.hca().ordinal_of(made.number()).unwrap_or_default(),
        service: qp_type.name(),
        send_cq: handle(attributes.send_cq),
        recv_cq: handle(attributes.recv_cq).filter(|_| has_own_receives),
        capacity: capacity_from(&attributes.cap),
    };
    check::with_checker_of(pointer.addr(), |checker| checker.qp_made(&made));
}

/// Returns the domain of an OFED 1.x queue pair; NULL for any other type. Only OFED's structure has it:
/// behind today's shorter one is memory that may not be the program's.
///
/// # Errors
/// Fails with EINVAL if the type is OFED's, and the program or its domain is not.
fn ofed_domain_of(qp_type: u32, init: InOut<'_, ibv_qp_init_attr>) -> Result<*mut ibv_xrcd, Errno> {
    if qp_type != QPT_XRC {
        return Ok(ptr::null_mut());
    }
    if is_ofed_program() {
        // SAFETY: the program has called a function that only OFED's header declares, so it was built with
        // that header, in which the structure is this long.
        let longer = unsafe { init.cast::<ofed_qp_init_attr>() }.get()?;
        if is_open_by_ofed(longer.xrc_domain) {
            return Ok(longer.xrc_domain);
        }
    }
    Err(INVALID.because(|| {
        format!(
            "queue pair type {QPT_XRC} is OFED 1.x's IBV_QPT_XRC, and needs a domain of ibv_open_xrc_domain"
        )
    }))
}

pub(crate) extern "C" fn ibv_create_qp(
    pd: *mut ibv_pd,
    init_attr: InOut<'_, ibv_qp_init_attr>,
) -> *mut ibv_qp {
    pointer_about(Call::ibv_create_qp, CallSubject::on(pd), || {
        let domain = live::<Pd>(pd)?;
        let given = *init_attr.get()?;
        let xrcd = ofed_domain_of(given.qp_type, init_attr)?;
        let parameters = QpCreateParameters {
            own: None,
            is_mrc: false,
            context: domain.context_pointer(),
            pd,
            xrcd,
            attributes: given,
            spread: None,
            send_operations: None,
        };
        let (qp, granted) = create(&parameters)?;
        init_attr.get()?.cap = granted.cap;
        Ok(qp)
    })
}

/// Creates an object for an XRC target that exists.
///
/// # Errors
/// Fails with EINVAL if there is no such target in the domain.
pub(crate) fn open_target(
    context: *mut ibv_context,
    xrcd: Handle,
    number: Qpn,
    qp_context: *mut c_void,
    state: u32,
) -> Result<*mut ibv_qp, Errno> {
    let open = Context::of(context)?;
    let room = ObjectMemory::<Qp>::new();
    let cookie = room.cookie();
    let events = EventSource::of_object(context, cookie);
    let mut c: ibv_qp_ex = zeroed();
    let base = &mut c.qp_base;
    base.context = context;
    base.qp_context = qp_context;
    base.handle = number.index().into();
    base.qp_num = number.value();
    base.state = state;
    base.qp_type = XRC_RECV;
    //= man:ibv_open_qp
    //| A target is opened by its domain and its number.
    let registration = open.hca().open_target(xrcd, number, cookie)?;
    open.own(OwnedObject::Target(registration));
    let qp = Qp::new(
        c,
        QpParts {
            hca: Arc::clone(open.hca()),
            number,
            is_datagram: false,
            signals_all: false,
            events,
            domain: None,
            vendor: OnceLock::new(),
            lag_port: AtomicU8::new(0),
            ece: EceOptions::new(open.device().profile().ece.options),
            way: None,
            own: None,
            registration: Some(registration),
            series: None,
            _domain_use: None,
            _table_use: None,
        },
    );
    Ok(hand_out_shared(&room.fill(qp)))
}

/// The value `IBV_QPT_XRC_RECV`.
const XRC_RECV: u32 = 10;

/// Bits of `ibv_qp_init_attr_ex.comp_mask`.
const MASK_PD: u32 = 1;
const MASK_XRCD: u32 = 1 << 1;
const MASK_CREATE_FLAGS: u32 = 1 << 2;
const MASK_IND_TABLE: u32 = 1 << 4;
const MASK_RX_HASH: u32 = 1 << 5;
const MASK_SPREAD: u32 = MASK_IND_TABLE | MASK_RX_HASH;
const MASK_SEND_OPERATIONS: u32 = 1 << 6;
const MASK_KNOWN: u32 = (1 << 7) - 1;

/// The flag `IBV_QP_CREATE_BLOCK_SELF_MCAST_LB`: its own multicast datagrams are not looped back to it.
const BLOCK_SELF_MULTICAST: u32 = 1 << 1;

/// Length in bytes of a word that an operation sends.
const WORD_BYTES: u32 = 8;

/// Reports whether one of the operations sends a word, which the extended interface takes at once, as inline
/// data.
fn sends_words(operations: u64) -> bool {
    WR_OPCODES.iter().any(|info| info.data == LocalData::SentWord && operations & info.extended_flag != 0)
}

/// Checks that a type of queue pairs has all of the operations (`IBV_QP_EX_WITH_*`). As on adapters, a set
/// that a program asks for may have SEND_WITH_INV on UC (ibv_wr_post(3) lists it): no packet of UC can carry
/// it, so such a request ends with LOC_QP_OP_ERR.
///
/// # Errors
/// Fails with EOPNOTSUPP if it has not, or if no queue pair of this device has; for example TSO.
pub(super) fn check_operations(qp_type: QpType, operations: u64) -> Result<(), Errno> {
    let has = |info: &WrInfo| {
        info.qp_types.contains(qp_type)
            || (qp_type.is_connected()
                && qp_type.is_sent_once()
                && info.opcode == SendOpcode::SendWithInvalidate)
    };
    if let Some(info) = WR_OPCODES.iter().find(|info| operations & info.extended_flag != 0 && !has(info)) {
        let (name, of) = (info.name, qp_type.name());
        return Err(NOT_SUPPORTED.because(|| {
            format!(
                "ibv_create_qp_ex refused: send_ops_flags ask for {name}, which {of} queue pairs do not have"
            )
        }));
    }
    let unknown = WR_OPCODES.iter().fold(operations, |rest, info| rest & !info.extended_flag);
    if unknown != 0 {
        return Err(NOT_SUPPORTED.because(|| {
            format!(
                "ibv_create_qp_ex refused: send_ops_flags {unknown:#x} ask for operations that this device \
                 does not have"
            )
        }));
    }
    Ok(())
}

/// Returns the table and the hash of a queue pair that spreads its frames over work queues.
///
/// # Errors
/// Fails with EINVAL for one without the other, or for queue pairs of another type, and as [`spread_of`].
fn spread(attributes: &ibv_qp_init_attr_ex) -> Result<(Arc<IndirectionTable>, RssTable), Errno> {
    let is_raw = qp_type(attributes.qp_type)?.is_raw();
    if !is_raw || attributes.comp_mask & MASK_SPREAD != MASK_SPREAD {
        let what = "frames of raw packet queue pairs are spread, by a table and a hash";
        return Err(INVALID.because(|| format!("ibv_create_qp_ex refused: {what}")));
    }
    let table = live::<IndirectionTable>(attributes.rwq_ind_tbl)?;
    let spread = spread_of(&table, &attributes.rx_hash_conf)?;
    Ok((table, spread))
}

pub(crate) extern "C" fn create_qp_ex(
    context: *mut ibv_context,
    init_attr: InOut<'_, ibv_qp_init_attr_ex>,
) -> *mut ibv_qp {
    pointer_about(Call::ibv_create_qp_ex, CallSubject::on(context), || {
        create_extended(context, init_attr.get()?)
    })
}

/// Creates a queue pair as the extended call does.
///
/// # Errors
/// Fails with EOPNOTSUPP for a feature that this device does not have, and as [`create`].
pub(super) fn create_extended(
    context: *mut ibv_context,
    attributes: &mut ibv_qp_init_attr_ex,
) -> Result<*mut ibv_qp, Errno> {
    let mask = attributes.comp_mask;
    check_mask(Call::ibv_create_qp_ex, mask, MASK_KNOWN)?;
    let flags = if mask & MASK_CREATE_FLAGS != 0 { attributes.create_flags } else { 0 };
    // TSO is for raw packets, and so are most creation flags.
    let kind = qp_type(attributes.qp_type)?;
    let unsupported = mask & !(MASK_PD | MASK_XRCD | MASK_CREATE_FLAGS | MASK_SPREAD | MASK_SEND_OPERATIONS);
    if unsupported != 0 || flags & !BLOCK_SELF_MULTICAST != 0 {
        return Err(NOT_SUPPORTED.because(|| {
            format!(
                "ibv_create_qp_ex refused: comp_mask {mask:#x} and create_flags {flags:#x} ask for TSO, \
                     receive hashing or other options of raw packet queue pairs"
            )
        }));
    }
    let operations = (mask & MASK_SEND_OPERATIONS != 0).then_some(attributes.send_ops_flags);
    if let Some(operations) = operations {
        check_operations(kind, operations)?;
    }
    if attributes.qp_type == QPT_XRC {
        return Err(INVALID
            .because(|| "ibv_create_qp_ex refused: OFED 1.x's IBV_QPT_XRC is for ibv_create_qp".to_owned()));
    }
    let given = |bit: u32| mask & bit != 0;
    let spread = if given(MASK_SPREAD) { Some(spread(attributes)?) } else { None };
    let parameters = QpCreateParameters {
        own: None,
        is_mrc: false,
        context,
        pd: if given(MASK_PD) { attributes.pd } else { ptr::null_mut() },
        xrcd: if given(MASK_XRCD) { attributes.xrcd } else { ptr::null_mut() },
        attributes: ibv_qp_init_attr {
            qp_context: attributes.qp_context,
            send_cq: attributes.send_cq,
            recv_cq: attributes.recv_cq,
            srq: attributes.srq,
            cap: attributes.cap,
            qp_type: attributes.qp_type,
            sq_sig_all: attributes.sq_sig_all,
        },
        spread,
        send_operations: operations,
    };
    let (qp, granted) = create(&parameters)?;
    //= man:ibv_create_qp_ex
    //| A flag of the call keeps a queue pair from the copies of its own multicast.
    if flags & BLOCK_SELF_MULTICAST != 0 {
        let made = live::<Qp>(qp)?;
        if let Err(error) = made.hca().set_multicast_loopback(made.number(), false) {
            ibv_destroy_qp(qp);
            return Err(error.into());
        }
    }
    attributes.cap = granted.cap;
    Ok(qp)
}

/// Returns the extended queue pair of one that was made with send operations; otherwise NULL.
pub(crate) extern "C" fn ibv_qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    pointer_about(Call::ibv_qp_to_qp_ex, CallSubject::on(qp), || {
        let held = live::<Qp>(qp)?;
        match held.own_service() {
            _ if held.series().is_some() => Ok(qp.cast()),
            // It sends nothing, but perftest asks nevertheless.
            Some(VendorService::DcTarget { .. }) => Ok(ptr::null_mut()),
            _ => Err(INVALID),
        }
    })
}

/// Destroys a queue pair; blocks until its asynchronous events are acknowledged.
pub(crate) extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    status_of(Call::ibv_destroy_qp, Qp::about(qp), || destroy(Call::ibv_destroy_qp, qp))
}

/// Destroys a queue pair for a call; blocks until its asynchronous events are acknowledged.
pub(super) fn destroy(call: Call, qp: *mut ibv_qp) -> Result<(), Errno> {
    let held = live::<Qp>(qp)?;
    let (context, events) = (held.context()?, held.events());
    check::waits_for_acknowledgements(qp.addr(), "asynchronous events", Call::ibv_ack_async_event, || {
        events.unacknowledged()
    });
    // The peer gets the acknowledgements that it is owed before they can no longer be made. Datagrams owe
    // none, and programs such as UCX have freed their memory by now.
    if !held.is_datagram() {
        context.hca().drive_out();
    }
    match held.registration() {
        Some(registration) => {
            //= man:ibv_open_qp
            //| The target is destroyed when its last reference goes.
            context.hca().close_target(registration)?;
            context.disown(OwnedObject::Target(registration));
        }
        None => {
            context.hca().destroy_qp(held.number())?;
            context.disown(OwnedObject::QueuePair(held.number().value()));
        }
    }
    context.forget_events(held.events());
    held.events().wait_acknowledged(call, qp.addr());
    take_back::<Qp>(qp);
    Ok(())
}

/// Returns 0: messages of this device are stored in the order of their packets, but the promise is about
/// caches.
pub(crate) extern "C" fn ibv_query_qp_data_in_order(_qp: *mut ibv_qp, _operation: u32, _flags: u32) -> c_int {
    0
}
