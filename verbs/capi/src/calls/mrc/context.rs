//! Contexts of libmrc, what the device says about MRC, and a context's hints, events and queues.
//!
//! Hints about the queue pairs that a program is about to make. This device needs none: it remembers them.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

use pumice_calls::Call;
use pumice_device::hca::MrcChosen;

use super::context_of;
use crate::abi::{
    ibv_async_event, ibv_comp_channel, ibv_context, ibv_cq, ibv_wc, mrc_async_event, mrc_context,
    mrc_context_attr, mrc_device_attr, mrc_mpr_limits, mrc_qp_hint, mrc_qp_hint_attr, mrc_qp_hint_init_attr,
    mrc_qp_limits, mrc_wimm_limits,
};
use crate::calls::completion_channel::{self, ibv_ack_cq_events, next_cq_event};
use crate::calls::completion_queue;
use crate::calls::device::{ibv_ack_async_event, next_event};
use crate::entry::arguments::{In, InOut, Out, OutArray, Trusted};
use crate::entry::handles::{find, hand_out, live, take_back};
use crate::entry::{data_path, number_of, pointer_about, status_of, value};
use crate::gate::CallSubject;
use crate::objects::Context;
use crate::objects::completion_queue::CompChannel;
use crate::objects::mrc::{MrcContext, MrcHint, check_unused, element_of, inner_of};
use crate::platform::{Errno, INVALID, set_errno};

/// Versions of the API: major, minor and sub number in the bytes from the top.
pub(super) const CURRENT_VERSION: u32 = 1 << 24 | 1;
const LAST_SUPPORTED_VERSION: u32 = 0;
const VENDOR_VERSION: u32 = 1 << 24;
/// The version that stands for the latest one.
const LATEST: u32 = u32::MAX;

/// Protocol versions of the device, as a bitmap: version 1.
const PROTOCOL_VERSIONS: u32 = 1 << 1;
/// Number of PSNs in a unit of the window.
const MPR_UNIT: u8 = 128;
/// Number of hints that a program may have.
const MOST_HINTS: u32 = 1 << 16;
/// Bits of `enum mrc_device_cap`: NACKs of trimmed packets, and windows that change.
const CAPABILITIES: u32 = 1 | 1 << 1;

/// Returns the limits of MRC on the device.
fn attributes() -> mrc_device_attr {
    mrc_device_attr {
        mrc_protocol_version: PROTOCOL_VERSIONS,
        wimm_attr: mrc_wimm_limits { max_wimm: MrcChosen::MOST_WIMM, max_wimm_dest: MrcChosen::MOST_WIMM },
        mpr_attr: mrc_mpr_limits { max_mpr: MrcChosen::MOST_MPR, mpr_resolution: MPR_UNIT },
        qp_attr: mrc_qp_limits { max_qp_hint: MOST_HINTS },
        cap: CAPABILITIES,
    }
}

/// Answers a query of the device: it has MRC.
fn query(
    call: Call,
    context: *mut ibv_context,
    attr: Out<'_, mrc_device_attr>,
    supported: Out<'_, c_int>,
) -> c_int {
    number_of(call, CallSubject::on(context), || {
        Context::of(context)?;
        let supported = supported.required()?;
        attr.required()?.set(attributes());
        supported.set(1);
        Ok(0)
    })
}

pub(crate) extern "C" fn mrc_query_device(
    context: *mut ibv_context,
    attr: Out<'_, mrc_device_attr>,
    supported: Out<'_, c_int>,
) -> c_int {
    query(Call::mrc_query_device, context, attr, supported)
}

/// Queries the device for a program whose context of libmrc may be NULL: its version changes nothing here.
pub(crate) extern "C" fn mrc_query_device_ex(
    context: *mut ibv_context,
    _mcontext: *mut mrc_context,
    attr: Out<'_, mrc_device_attr>,
    supported: Out<'_, c_int>,
) -> c_int {
    query(Call::mrc_query_device_ex, context, attr, supported)
}

/// Writes the versions of the API; each pointer may be NULL.
pub(super) fn tell_versions([current, last, vendor, last_vendor]: [Out<'_, u32>; 4]) {
    for (target, version) in [
        (current, CURRENT_VERSION),
        (last, LAST_SUPPORTED_VERSION),
        (vendor, VENDOR_VERSION),
        (last_vendor, VENDOR_VERSION),
    ] {
        if let Some(target) = target.optional() {
            target.set(version);
        }
    }
}

pub(crate) extern "C" fn mrc_query_version(
    current: Out<'_, u32>,
    last_supported: Out<'_, u32>,
    vendor: Out<'_, u32>,
    last_supported_vendor: Out<'_, u32>,
) {
    value((), || tell_versions([current, last_supported, vendor, last_supported_vendor]));
}

/// Returns the version of the API that a program was built with: 0 and the latest stand for the current one.
fn version_of(given: u32) -> Result<u32, Errno> {
    match given {
        0 | LATEST => Ok(CURRENT_VERSION),
        // Programs give the protocol's version 1, too.
        version if version <= CURRENT_VERSION => Ok(version),
        newer => Err(INVALID.because(|| {
            format!(
                "version {newer:#x} of the API is newer than {CURRENT_VERSION:#x}, which this library has"
            )
        })),
    }
}

pub(crate) extern "C" fn mrc_create_context(
    context: *mut ibv_context,
    attr: In<'_, mrc_context_attr>,
) -> *mut mrc_context {
    pointer_about(Call::mrc_create_context, CallSubject::on(context), || {
        let open = Context::of(context)?;
        open.hca().open_mrc();
        let version = version_of(attr.optional().map_or(0, |given| given.mrc_api_version_used))?;
        Ok(hand_out(MrcContext::new(context, version)))
    })
}

pub(crate) extern "C" fn mrc_destroy_context(context: *mut mrc_context) -> c_int {
    number_of(Call::mrc_destroy_context, CallSubject::of(context), || {
        check_unused(&*live::<MrcContext>(context)?)?;
        take_back::<MrcContext>(context);
        Ok(0)
    })
}

/// Bits of `enum mrc_qp_hint_attr_mask`.
const QPS_PER_PEER: c_int = 1;
const SEND_PEERS: c_int = 1 << 1;
const RECEIVE_PEERS: c_int = 1 << 2;
const VENDOR_CFG: c_int = c_int::MIN;
const KNOWN: c_int = QPS_PER_PEER | SEND_PEERS | RECEIVE_PEERS | VENDOR_CFG;

pub(crate) extern "C" fn mrc_create_qp_hint(
    context: *mut mrc_context,
    init_attr: In<'_, mrc_qp_hint_init_attr>,
) -> *mut mrc_qp_hint {
    pointer_about(Call::mrc_create_qp_hint, CallSubject::on(context), || {
        let (context, _) = context_of(context)?;
        let attributes = init_attr.get()?.attr;
        check(&attributes)?;
        Ok(hand_out(MrcHint::new(&context, attributes)))
    })
}

pub(crate) extern "C" fn mrc_destroy_qp_hint(hint: *mut mrc_qp_hint) -> c_int {
    number_of(Call::mrc_destroy_qp_hint, CallSubject::of(hint), || {
        live::<MrcHint>(hint)?.uses().check_unused("MRC hint", "queue pairs")?;
        take_back::<MrcHint>(hint);
        Ok(0)
    })
}

/// Writes the values of a hint that a mask names.
pub(crate) extern "C" fn mrc_query_qp_hint(
    hint: *mut mrc_qp_hint,
    attr: InOut<'_, mrc_qp_hint_attr>,
    mask: c_int,
) -> c_int {
    number_of(Call::mrc_query_qp_hint, CallSubject::on(hint), || {
        let attributes = live::<MrcHint>(hint)?.attributes();
        copy(&attributes, attr.get()?, mask)?;
        Ok(0)
    })
}

pub(crate) extern "C" fn mrc_modify_qp_hint(
    hint: *mut mrc_qp_hint,
    attr: In<'_, mrc_qp_hint_attr>,
    mask: c_int,
) -> c_int {
    number_of(Call::mrc_modify_qp_hint, CallSubject::on(hint), || {
        let (held, given) = (live::<MrcHint>(hint)?, attr.get()?);
        let mut changed = held.attributes();
        copy(given, &mut changed, mask)?;
        check(&changed)?;
        held.change(|attributes| *attributes = changed);
        Ok(0)
    })
}

fn check(attributes: &mrc_qp_hint_attr) -> Result<(), Errno> {
    let counts = [attributes.num_qps_per_peer, attributes.num_send_peers, attributes.num_remote_recv_peers];
    match counts.iter().find(|count| **count < 0) {
        None => Ok(()),
        Some(count) => Err(INVALID.because(|| format!("a hint has the negative number {count}"))),
    }
}

fn copy(from: &mrc_qp_hint_attr, to: &mut mrc_qp_hint_attr, mask: c_int) -> Result<(), Errno> {
    if mask & !KNOWN != 0 {
        return Err(INVALID.because(|| format!("attribute mask {mask:#x} of a hint has unknown bits")));
    }
    if mask & QPS_PER_PEER != 0 {
        to.num_qps_per_peer = from.num_qps_per_peer;
    }
    if mask & SEND_PEERS != 0 {
        to.num_send_peers = from.num_send_peers;
    }
    if mask & RECEIVE_PEERS != 0 {
        to.num_remote_recv_peers = from.num_remote_recv_peers;
    }
    if mask & VENDOR_CFG != 0 {
        to.vendor_cfg = from.vendor_cfg;
    }
    Ok(())
}

/// Returns the pointer to the context of verbs; NULL if there is no such context of libmrc.
#[inline(never)]
extern "C" fn of_verbs(context: *mut mrc_context) -> *mut ibv_context {
    value(ptr::null_mut(), || {
        find::<MrcContext>(context).map_or(ptr::null_mut(), |held| held.context_pointer())
    })
}

/// Waits for an event as `ibv_get_async_event` does.
pub(crate) extern "C-unwind" fn mrc_get_async_event(
    context: *mut mrc_context,
    event: Out<'_, mrc_async_event>,
) -> c_int {
    let Some(target) = event.optional() else {
        set_errno(INVALID.0);
        return -1;
    };
    let mut taken = ibv_async_event { element: ptr::null_mut(), event_type: 0 };
    let code = next_event(Call::mrc_get_async_event, of_verbs(context), Out::from(&mut taken));
    if code == 0 {
        target.set(as_mrc(&taken));
    }
    code
}

#[inline(never)]
extern "C" fn as_mrc(taken: &ibv_async_event) -> mrc_async_event {
    let element = value(taken.element, || element_of(taken.element));
    mrc_async_event { element, event_type: taken.event_type }
}

pub(crate) extern "C" fn mrc_ack_async_event(event: In<'_, mrc_async_event>) {
    let Some(given) = event.optional() else { return };
    let element = value(given.element, || inner_of(given.element));
    ibv_ack_async_event(In::from(&ibv_async_event { element, event_type: given.event_type }));
}

pub(crate) extern "C" fn mrc_create_comp_channel(
    context: *mut mrc_context,
    channel: Out<'_, *mut ibv_comp_channel>,
) -> c_int {
    number_of(Call::mrc_create_comp_channel, CallSubject::on(context), || {
        let (_, context) = context_of(context)?;
        let target = channel.required()?;
        target.set(completion_channel::create(context)?);
        Ok(0)
    })
}

pub(crate) extern "C" fn mrc_get_comp_channel_fd(
    channel: *mut ibv_comp_channel,
    fd: Out<'_, c_int>,
) -> c_int {
    number_of(Call::mrc_get_comp_channel_fd, CallSubject::on(channel), || {
        let descriptor = live::<CompChannel>(channel)?.descriptor();
        fd.required()?.set(descriptor);
        Ok(0)
    })
}

pub(crate) extern "C" fn mrc_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    status_of(Call::mrc_destroy_comp_channel, CallSubject::of(channel), || {
        completion_channel::destroy(channel)
    })
}

pub(crate) extern "C" fn mrc_create_cq(
    context: *mut mrc_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> *mut ibv_cq {
    pointer_about(Call::mrc_create_cq, CallSubject::on(context), || {
        let (_, context) = context_of(context)?;
        completion_queue::create(context, cqe, cq_context, channel, comp_vector)
    })
}

pub(crate) extern "C" fn mrc_destroy_cq(cq: *mut ibv_cq) -> c_int {
    let call = Call::mrc_destroy_cq;
    status_of(call, CallSubject::of(cq), || completion_queue::destroy(call, cq))
}

/// Takes at most `num_entries` completions: returns their number, or -1 and errno.
pub(crate) extern "C" fn mrc_poll_cq(
    cq: Trusted<'_, ibv_cq>,
    num_entries: c_int,
    wc: OutArray<'_, ibv_wc>,
) -> c_int {
    data_path::polled_number(Call::mrc_poll_cq, CallSubject::of(cq.as_ptr()), || {
        completion_queue::take(cq, num_entries, wc)
    })
}

pub(crate) extern "C" fn mrc_req_notify_cq(cq: Trusted<'_, ibv_cq>, solicited_only: c_int) -> c_int {
    completion_queue::notify(Call::mrc_req_notify_cq, cq, solicited_only)
}

pub(crate) extern "C-unwind" fn mrc_get_cq_event(
    channel: Trusted<'_, ibv_comp_channel>,
    cq: Out<'_, *mut ibv_cq>,
    cq_context: Out<'_, *mut c_void>,
) -> c_int {
    next_cq_event(Call::mrc_get_cq_event, channel, cq, cq_context)
}

pub(crate) extern "C" fn mrc_ack_cq_events(cq: Trusted<'_, ibv_cq>, nevents: c_uint) {
    ibv_ack_cq_events(cq, nevents);
}
