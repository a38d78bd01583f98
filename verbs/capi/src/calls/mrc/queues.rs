//! Completion channels and completion queues, which are those of verbs.

use std::ffi::{c_int, c_uint, c_void};

use pumice_calls::Call;

use super::context_of;
use crate::abi::{ibv_comp_channel, ibv_cq, ibv_wc, mrc_context};
use crate::calls::completion_channel::{self, ibv_ack_cq_events, next_cq_event};
use crate::calls::completion_queue;
use crate::entry::arguments::{Out, OutArray, Trusted};
use crate::entry::handles::live;
use crate::entry::outcome::{data_path, number_of, pointer_about, status_of};
use crate::gate::CallSubject;
use crate::objects::completion_channel::CompChannel;

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
