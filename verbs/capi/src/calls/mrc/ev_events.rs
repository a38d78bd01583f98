//! Events of entropy values, which a controller reads from a completion queue, and endpoint requests.

use std::collections::BTreeSet;
use std::ffi::{c_int, c_void};
use std::time::Duration;

use pumice_calls::Call;
use pumice_device::hca::{EndpointRequest, Hca};
use pumice_device::outside;
use pumice_transport::types::{Gid, WorkCompletion};

use super::context_of;
use super::control::{device_of, has_event_state};
use super::control_profiles::{ev_of, name_of, number_of_state};
use crate::abi::{ibv_comp_channel, ibv_cq, mrc_context, mrc_ctl_ep_req, mrc_ctl_ep_rsp, mrc_ctl_ev_event};
use crate::calls::completion_queue;
use crate::entry::arguments::{Array, Out, OutArray, Trusted};
use crate::entry::handles::live;
use crate::entry::{data_path, number_of, pointer_about};
use crate::gate::CallSubject;
use crate::objects::completion_queue::Cq;
use crate::platform::{Errno, INVALID};

/// Length of an event for programs that were built before it had a state.
const SHORT_EVENT_BYTES: usize = 48;

pub(crate) extern "C" fn mrc_ctl_create_ev_event_cq(
    context: *mut mrc_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> *mut ibv_cq {
    pointer_about(Call::mrc_ctl_create_ev_event_cq, CallSubject::on(context), || {
        let (held, of_verbs) = context_of(context)?;
        let made = completion_queue::create(of_verbs, cqe, cq_context, channel, comp_vector)?;
        let queue = live::<Cq>(made)?;
        queue.hca().take_mrc_events(queue.queue().handle());
        queue.set_event_bytes(match has_event_state(held.version()) {
            true => size_of::<mrc_ctl_ev_event>(),
            false => SHORT_EVENT_BYTES,
        });
        Ok(made)
    })
}

/// Takes events: returns their number, or a negative errno.
pub(crate) extern "C" fn mrc_ctl_poll_ev_event(
    cq: Trusted<'_, ibv_cq>,
    num_entries: c_int,
    event: OutArray<'_, mrc_ctl_ev_event>,
) -> c_int {
    data_path::polled(Call::mrc_ctl_poll_ev_event, CallSubject::of(cq.as_ptr()), || {
        let queue = cq.held::<Cq>()?;
        let wanted = usize::try_from(num_entries).map_err(|_| INVALID)?;
        let Some(bytes) = queue.event_bytes() else {
            return Err(
                INVALID.because(|| "this completion queue has no events of entropy values".to_owned())
            );
        };
        if wanted == 0 {
            return Ok(0);
        }
        let mut out = event.elements(wanted)?;
        let mut one = [WorkCompletion::default()];
        while out.left() > 0 && queue.hca().poll_cq(queue.queue(), &mut one) > 0 {
            let Some(event) = queue.hca().next_mrc_event(queue.queue().handle()) else { continue };
            let c = mrc_ctl_ev_event {
                profile_id: event.profile,
                ev: ev_of(event.name),
                drop_count: event.drop_count,
                state: number_of_state(event.state),
            };
            out.put_within(&c, bytes);
        }
        Ok((wanted - out.left()) as c_int)
    })
}

/// The value `MRC_CTL_EP_OP_PORT_STATUS_UPDATE`; EV probes have 0.
const PORT_STATUS_UPDATE: u32 = 1;
/// Pause between two looks for answers.
const LOOK: Duration = Duration::from_micros(20);

/// Begins the requests of a batch, and returns the number that the device gave each.
fn begin(hca: &Hca, requests: &[mrc_ctl_ep_req], op_type: u32, dscp: u8) -> Result<Vec<u16>, Errno> {
    let mut known = BTreeSet::new();
    if let Some(twice) = requests.iter().find(|request| !known.insert(request.req_id)) {
        return Err(INVALID.because(|| format!("req_id {} is given twice", twice.req_id)));
    }
    let mut begun = Vec::with_capacity(requests.len());
    for request in requests {
        begun.push(hca.ask_mrc_endpoint(&EndpointRequest {
            own: Gid(request.sgid.raw).into(),
            peer: Gid(request.dgid.raw).into(),
            name: name_of(&request.req_ev)?,
            dscp,
            ports: (op_type == PORT_STATUS_UPDATE).then_some(request.op),
        })?);
    }
    Ok(begun)
}

/// Sends endpoint requests, and waits for the answers, which come in any order. If some are missing when the
/// time is over, the others are returned all the same.
pub(crate) extern "C" fn mrc_ctl_ep_batch_send_wait(
    context: *mut mrc_context,
    req_tc: u8,
    op_type: u32,
    req: Array<'_, mrc_ctl_ep_req>,
    num_req: c_int,
    rsp_timeout: u32,
    rsp: OutArray<'_, mrc_ctl_ep_rsp>,
    num_rsp: Out<'_, c_int>,
) -> c_int {
    number_of(Call::mrc_ctl_ep_batch_send_wait, CallSubject::on(context), || {
        let hca = device_of(context)?;
        let count = usize::try_from(num_req).map_err(|_| INVALID)?;
        let (requests, answered) = (req.get(count)?, num_rsp.required()?);
        answered.set(0);
        if op_type > PORT_STATUS_UPDATE || req_tc > MOST_DSCP {
            return Err(INVALID.because(|| format!("operation {op_type} with DSCP {req_tc}")));
        }
        if requests.is_empty() {
            return Ok(0);
        }
        let mut out = rsp.elements(count)?;
        let begun = begin(&hca, requests, op_type, req_tc)?;
        let mut waiting: Vec<(u16, &mrc_ctl_ep_req)> = begun.into_iter().zip(requests).collect();
        let end_ns = hca.clock().now_ns().saturating_add(rsp_timeout.into());
        loop {
            hca.drive();
            waiting.retain(|(id, request)| match hca.mrc_endpoint_end(*id) {
                Some(Some(rtt_ns)) => {
                    let rtt = u32::try_from(rtt_ns).unwrap_or(u32::MAX);
                    let (req_id, port) = (request.req_id, request.req_ev.port);
                    out.put(mrc_ctl_ep_rsp { req_id, port, rtt, adj_svc_time: 0 });
                    false
                }
                Some(None) | None => true,
            });
            answered.set((count - waiting.len()) as c_int);
            if waiting.is_empty() {
                return Ok(0);
            }
            if hca.clock().now_ns() >= end_ns {
                return Err(Errno(libc::ETIMEDOUT));
            }
            outside::sleep(LOOK);
        }
    })
}

/// Largest DSCP.
const MOST_DSCP: u8 = 63;
