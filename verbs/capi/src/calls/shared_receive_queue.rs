//! Shared receive queues: create, modify, query, destroy, and their lists of tags.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use pumice_calls::Call;
use pumice_device::hca::SrqSetup;
use pumice_device::objects::srq::SrqChange;
use pumice_device::objects::tag_list::{TagBuffer, TagChange, TagOperation};
use pumice_device::profile::Vendor;

use super::post_recv::refuse;
use super::vendors::dc::has_dc;
use crate::abi::plain::zeroed;
use crate::abi::{
    ibv_context, ibv_cq, ibv_ops_wr, ibv_pd, ibv_srq, ibv_srq_attr, ibv_srq_init_attr, ibv_srq_init_attr_ex,
    ibv_xrcd,
};
use crate::check;
use crate::entry::arguments::{In, InOut, Out};
use crate::entry::handles::{ObjectMemory, hand_out_shared, live, take_back};
use crate::entry::requests::{ListedRequest, RequestList};
use crate::entry::{pointer_about, status_of};
use crate::gate::CallSubject;
use crate::log::refusal::check_mask;
use crate::objects::command_file::OwnedObject;
use crate::objects::completion_queue::Cq;
use crate::objects::domains::{Pd, Xrcd};
use crate::objects::events::EventSource;
use crate::objects::receive_queues::{Srq, ofed_srq};
use crate::objects::{Context, mlx5};
use crate::platform::{Errno, INVALID, NOT_SUPPORTED};

/// Creates a shared receive queue, and returns its capacity in `attributes`.
///
/// # Errors
/// Fails with the errors of the HCA.
pub(crate) fn create(
    pd: *mut ibv_pd,
    srq_context: *mut c_void,
    attributes: &mut ibv_srq_attr,
    xrc: Option<(*mut ibv_xrcd, *mut ibv_cq)>,
    tags: Option<(*mut ibv_cq, u32)>,
) -> Result<*mut ibv_srq, Errno> {
    let domain = live::<Pd>(pd)?;
    let context = domain.context()?;
    mlx5::check(&context, mlx5::OF_SHARED_RECEIVE_QUEUES)?;
    let pointers = xrc;
    let xrc = match xrc {
        Some((xrcd, cq)) => {
            let (xrcd, cq) = (live::<Xrcd>(xrcd)?, live::<Cq>(cq)?);
            context.check_same("XRC domain", &*xrcd.context()?)?;
            context.check_same("completion queue", &*cq.context()?)?;
            Some((xrcd.handle(), cq.queue().handle()))
        }
        None => None,
    };
    let tags = match tags {
        Some((cq, max_num_tags)) => {
            let cq = live::<Cq>(cq)?;
            context.check_same("completion queue", &*cq.context()?)?;
            Some((cq.queue().handle(), max_num_tags))
        }
        None => None,
    };
    let room = ObjectMemory::<Srq>::new();
    let cookie = room.cookie();
    let events = EventSource::of_object(domain.context_pointer(), cookie);
    let (mut max_wr, max_sge) = (attributes.max_wr, attributes.max_sge);
    if max_wr == 0 && context.is_of(Vendor::Mellanox) {
        // mlx5 makes one, and returns its number of entries.
        max_wr = 1;
    }
    let setup = SrqSetup { pd: domain.handle(), max_wr, max_sge, cookie, xrc, tags };
    let handle = context.hca().create_srq(&setup)?;
    context.own(OwnedObject::SharedReceiveQueue(handle.pack()));
    if let Ok(granted) = context.hca().query_srq(handle) {
        //= man:ibv_create_srq
        //| The call returns the sizes that the queue has.
        (attributes.max_wr, attributes.max_sge) = (granted.max_wr, granted.max_sge);
    }
    let mut c: ofed_srq = zeroed();
    c.context = domain.context_pointer();
    c.srq_context = srq_context;
    c.pd = pd;
    c.handle = handle.index;
    if let Some((xrcd, cq)) = pointers {
        c.xrc_srq_num = context.hca().srq_number(handle).unwrap_or(0);
        (c.xrc_domain, c.xrc_cq) = (xrcd, cq);
    }
    let hca = Arc::clone(context.hca());
    let pointer = hand_out_shared(&room.fill(Srq::new(c, hca, handle, events, domain.begin_use())));
    check::with_checker_of(pointer.addr(), |checker| checker.srq_made(pointer.addr() as u64, handle.index));
    domain.report_thread_domain(pointer);
    Ok(pointer)
}

pub(crate) extern "C" fn ibv_create_srq(
    pd: *mut ibv_pd,
    init_attr: InOut<'_, ibv_srq_init_attr>,
) -> *mut ibv_srq {
    pointer_about(Call::ibv_create_srq, CallSubject::on(pd), || {
        let init = init_attr.get()?;
        create(pd, init.srq_context, &mut init.attr, None, None)
    })
}

/// Bits of `ibv_srq_init_attr_ex.comp_mask`.
const MASK_TYPE: u32 = 1;
const MASK_PD: u32 = 1 << 1;
const MASK_XRCD: u32 = 1 << 2;
const MASK_CQ: u32 = 1 << 3;
const MASK_TAGS: u32 = 1 << 4;
const MASK_KNOWN: u32 = (1 << 5) - 1;

/// Values of `IBV_SRQT_*`.
const TYPE_BASIC: u32 = 0;
const TYPE_XRC: u32 = 1;
const TYPE_TAG_MATCHING: u32 = 2;

pub(crate) extern "C" fn create_srq_ex(
    context: *mut ibv_context,
    init_attr: InOut<'_, ibv_srq_init_attr_ex>,
) -> *mut ibv_srq {
    pointer_about(Call::ibv_create_srq_ex, CallSubject::on(context), || {
        let open = Context::of(context)?;
        let init = init_attr.get()?;
        let given = |bit: u32| init.comp_mask & bit != 0;
        let kind = if given(MASK_TYPE) { init.srq_type } else { TYPE_BASIC };
        check_mask(Call::ibv_create_srq_ex, init.comp_mask, MASK_KNOWN)?;
        if !given(MASK_PD) {
            return Err(INVALID);
        }
        let mut tags = None;
        let xrc = match kind {
            TYPE_BASIC => None,
            //= man:ibv_create_srq_ex
            //| A shared receive queue for XRC has a domain and a completion queue of its own.
            TYPE_XRC if given(MASK_XRCD) && given(MASK_CQ) => Some((init.xrcd, init.cq)),
            TYPE_TAG_MATCHING if !matches_tags(&open) => return Err(NOT_SUPPORTED),
            //= man:ibv_create_srq_ex
            //| A shared receive queue that matches tags has a completion queue of its own, and the size of
            //| its list.
            TYPE_TAG_MATCHING if given(MASK_CQ) && given(MASK_TAGS) => {
                tags = Some((init.cq, init.tm_cap[0]));
                None
            }
            _ => return Err(INVALID),
        };
        open.check_same("protection domain", &*live::<Pd>(init.pd)?.context()?)?;
        create(init.pd, init.srq_context, &mut init.attr, xrc, tags)
    })
}

/// Reports whether a device matches tags.
pub(super) fn matches_tags(context: &Context) -> bool {
    context.device().profile().tag_matching
}

/// The flags `IBV_SRQ_MAX_WR` and `IBV_SRQ_LIMIT`.
const CHANGE_MAX_WR: c_int = 1;
const CHANGE_LIMIT: c_int = 2;

pub(crate) extern "C" fn ibv_modify_srq(
    srq: *mut ibv_srq,
    attributes: In<'_, ibv_srq_attr>,
    mask: c_int,
) -> c_int {
    status_of(Call::ibv_modify_srq, CallSubject::on(srq), || {
        let address = srq.addr();
        let (srq, attributes) = (live::<Srq>(srq)?, attributes.get()?);
        if mask & !(CHANGE_MAX_WR | CHANGE_LIMIT) != 0 {
            return Err(INVALID);
        }
        let change = SrqChange {
            max_wr: (mask & CHANGE_MAX_WR != 0).then_some(attributes.max_wr),
            limit: (mask & CHANGE_LIMIT != 0).then_some(attributes.srq_limit),
        };
        srq.hca().modify_srq(srq.handle(), change)?;
        if change.limit.is_some_and(|limit| limit > 0) {
            check::with_checker_of(address, |checker| checker.srq_limit_armed(srq.handle().index));
        }
        Ok(())
    })
}

pub(crate) extern "C" fn ibv_query_srq(srq: *mut ibv_srq, attributes: Out<'_, ibv_srq_attr>) -> c_int {
    status_of(Call::ibv_query_srq, CallSubject::on(srq), || {
        let srq = live::<Srq>(srq)?;
        let now = srq.hca().query_srq(srq.handle())?;
        let c = ibv_srq_attr { max_wr: now.max_wr, max_sge: now.max_sge, srq_limit: now.limit };
        attributes.required()?.set(c);
        Ok(())
    })
}

/// Returns the number by which remote senders name an XRC SRQ. Where there is DC, as on mlx5, every SRQ has
/// one: programs such as perftest ask for it without using it.
pub(crate) extern "C" fn get_srq_num(srq: *mut ibv_srq, srq_num: Out<'_, u32>) -> c_int {
    status_of(Call::ibv_get_srq_num, CallSubject::on(srq), || {
        let srq = live::<Srq>(srq)?;
        let number = match srq.hca().srq_number(srq.handle()) {
            Err(_) if has_dc(&*srq.context()?) => srq.handle().index,
            number => number?,
        };
        srq_num.required()?.set(number);
        Ok(())
    })
}

/// Destroys a shared receive queue; blocks until its asynchronous events are acknowledged.
pub(crate) extern "C" fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int {
    status_of(Call::ibv_destroy_srq, CallSubject::of(srq), || {
        let held = live::<Srq>(srq)?;
        let context = held.context()?;
        let events = held.events();
        check::waits_for_acknowledgements(
            srq.addr(),
            "asynchronous events",
            Call::ibv_ack_async_event,
            || events.unacknowledged(),
        );
        context.hca().destroy_srq(held.handle())?;
        context.disown(OwnedObject::SharedReceiveQueue(held.handle().pack()));
        context.forget_events(held.events());
        held.events().wait_acknowledged(Call::ibv_destroy_srq, srq.addr());
        take_back::<Srq>(srq);
        Ok(())
    })
}

/// Values of `IBV_WR_TAG_*`.
const ADD: u32 = 0;
const DELETE: u32 = 1;
const SYNC: u32 = 2;
/// The flags `IBV_OPS_SIGNALED` and `IBV_OPS_TM_SYNC`.
const SIGNALED: c_int = 1;
const REPORTS: c_int = 1 << 1;

pub(crate) extern "C" fn post_srq_ops<'a>(
    srq: *mut ibv_srq,
    list: RequestList<'a, ibv_ops_wr>,
    bad_op: Out<'_, RequestList<'a, ibv_ops_wr>>,
) -> c_int {
    status_of(Call::ibv_post_srq_ops, CallSubject::on(srq), || {
        let held = live::<Srq>(srq).inspect_err(|_| refuse(list, bad_op))?;
        let (mut rest, mut count) = (list, 0);
        while let Some((operation, next)) = rest.split_first() {
            let done = list.check_end(rest, count).and_then(|()| change(&held, &operation));
            done.inspect_err(|_| refuse(rest, bad_op))?;
            (rest, count) = (next, count + 1);
        }
        Ok(())
    })
}

fn change(srq: &Srq, listed: &ListedRequest<'_, ibv_ops_wr>) -> Result<(), Errno> {
    let c = listed.get();
    if c.flags & !(SIGNALED | REPORTS) != 0 {
        return Err(INVALID);
    }
    let change = match c.opcode {
        ADD => TagChange::Add(TagBuffer {
            wr_id: c.recv_wr_id,
            tag: c.tag,
            mask: c.mask,
            sges: listed.elements()?.to_vec(),
        }),
        DELETE => TagChange::Delete(c.handle.get()),
        SYNC => TagChange::None,
        _ => return Err(INVALID),
    };
    //= man:ibv_post_srq_ops
    //| The number of handled messages counts with the flag TM_SYNC, and for IBV_WR_TAG_SYNC.
    let reports = c.opcode == SYNC || c.flags & REPORTS != 0;
    let operation = TagOperation {
        wr_id: c.wr_id,
        signaled: c.flags & SIGNALED != 0,
        handled: reports.then_some(c.unexpected_cnt),
        change,
    };
    let handle = srq.hca().change_tags(srq.handle(), operation)?;
    if c.opcode == ADD {
        c.handle.set(handle);
    }
    Ok(())
}
