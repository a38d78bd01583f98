//! The `ibv_wr_*` calls: requests are assembled between wr_start and wr_complete, and posted by wr_complete.
//! In the functions of this table `ibv_qp` is used for `ibv_qp_ex`, which begins with one.
//!
//! All requests of a series are posted, or none: if one is refused, or the send queue has no room for all of
//! them, wr_complete returns the error, and the queue is unchanged.

use std::ffi::{c_int, c_void};

use pumice_calls::Call;
use pumice_device::profile::PostCall;
use pumice_transport::qp::{LaneData, LaneSend, may_leave_by_lane};
use pumice_transport::types::{
    AtomicOperation, FlushRange, PostError, RemoteTarget, SendFlags, SendOpcode, SendRequest, Sge,
};

use super::by_mrc;
use super::post_recv::{TYPE_2, window_bind};
use super::post_send::{BATCH, MAX_MTU_BYTES, destination, report_if_full};
use crate::abi::operation;
use crate::abi::{ibv_ah, ibv_data_buf, ibv_mw, ibv_mw_bind_info, ibv_qp, ibv_qp_ex, ibv_sge};
use crate::entry::arguments::{Array, Bytes, In, Trusted};
use crate::entry::data_path::{status_or, value};
use crate::entry::requests::elements;
use crate::objects::memory_region::{show_not_posted, show_posted};
use crate::objects::queue_pair::{Qp, SendSeries, SeriesRequest};
use crate::platform::{Errno, INVALID, NOT_SUPPORTED, reserve};

/// Queue pair of a call, as the program's pointer.
type QpExPointer<'a> = Trusted<'a, ibv_qp>;

/// Assembles the requests of these parts of a series, in the order of `requests`.
fn assemble_request<'a>(series: &'a SendSeries, parts: &[SeriesRequest], requests: &mut [SendRequest<'a>]) {
    for (request, part) in requests.iter_mut().zip(parts) {
        *request = part.request.clone();
        request.sges = series.sges.get(part.sges.clone()).unwrap_or_default();
        request.inline_data = series.inline_data.get(part.inline_data.clone()).unwrap_or_default();
    }
}

/// Checks that no setter of the last request is missing.
///
/// # Errors
/// Fails with EINVAL if setters of a memory key are missing.
#[inline]
fn check_series(series: &SendSeries) -> Result<(), Errno> {
    match series.setters_left {
        0 => Ok(()),
        left => Err(INVALID.because(|| {
            format!("a request to configure a memory key lacks {left} of the setters that were announced")
        })),
    }
}

/// Posts the requests of a series, all or none.
fn post(series: &SendSeries, qp: &Qp) -> Result<(), Errno> {
    if let Some(errno) = series.refused {
        return Err(errno);
    }
    check_series(series)?;
    if !reserve::has_room_to_post() {
        return Err(no_memory(qp));
    }
    let parts = series.requests.as_slice();
    if let [only] = parts
        && lane_send(series, only).is_some_and(|send| qp.hca().post_by_lane(qp.number(), &send))
    {
        return Ok(());
    }
    post_parts(series, parts, qp)
}

/// Posts the requests of a series that no lane takes.
#[inline(never)]
fn post_parts(series: &SendSeries, parts: &[SeriesRequest], qp: &Qp) -> Result<(), Errno> {
    if parts.len() > BATCH {
        let mut requests = vec![const { SendRequest::new(0, SendOpcode::Send) }; parts.len()];
        assemble_request(series, parts, &mut requests);
        return post_assembled(parts, &requests, qp);
    }
    let mut requests = [const { SendRequest::new(0, SendOpcode::Send) }; BATCH];
    assemble_request(series, parts, &mut requests);
    post_assembled(parts, requests.get(..parts.len()).unwrap_or_default(), qp)
}

/// Returns the request of a series as a lane takes it; `None` for other operations, and for messages of
/// several elements.
#[inline]
fn lane_send<'a>(series: &'a SendSeries, part: &SeriesRequest) -> Option<LaneSend<'a>> {
    let &SendRequest { wr_id, opcode, flags, imm_data, remote, .. } = &part.request;
    let data = if flags.contains(SendFlags::INLINE) {
        LaneData::Inline(series.inline_data.get(part.inline_data.clone())?)
    } else {
        match series.sges.get(part.sges.clone())? {
            [] => LaneData::Nothing,
            [only] if only.length <= MAX_MTU_BYTES => LaneData::Buffer(*only),
            _ => return None,
        }
    };
    let is_plain = may_leave_by_lane(opcode) && part.request.completes_as.is_none();
    is_plain.then_some(LaneSend { wr_id, opcode, flags, imm_data, remote, data })
}

/// Posts the requests of a series by MRC, which has WRITEs alone.
fn post_by_mrc(series: &SendSeries, qp: &Qp) -> Result<(), Errno> {
    if let Some(errno) = series.refused {
        return Err(errno);
    }
    let parts = series.requests.as_slice();
    let mut requests = vec![const { SendRequest::new(0, SendOpcode::Send) }; parts.len()];
    assemble_request(series, parts, &mut requests);
    if qp.signals_all() {
        requests.iter_mut().for_each(|request| request.flags |= SendFlags::SIGNALED);
    }
    qp.hca().post_by_mrc(qp.number(), &requests).map_err(|(_, error)| {
        report_if_full(qp, &error);
        Errno::from(error)
    })
}

/// Posts requests that were assembled.
#[inline]
fn post_assembled(parts: &[SeriesRequest], requests: &[SendRequest<'_>], qp: &Qp) -> Result<(), Errno> {
    for part in parts {
        if let (Some(window), Some(bind)) = (&part.window, &part.request.bind) {
            show_posted(qp.number(), qp.hca(), window, bind.new_rkey);
        }
    }
    qp.hca().post_series(qp.number(), requests).map_err(|(_, error)| {
        parts.iter().filter_map(|part| part.window.as_ref()).for_each(|window| show_not_posted(window));
        report_if_full(qp, &error);
        Errno::from(error)
    })
}

/// Returns the errno of requests for which there is no memory.
#[cold]
fn no_memory(qp: &Qp) -> Errno {
    qp.hca().refused_send(qp.number(), PostError::NoMemory, PostCall::WrComplete).into()
}

/// Changes the series that is being assembled; wr_complete returns an error of this function.
#[inline]
pub(super) fn set(qp: QpExPointer<'_>, change: impl FnOnce(&Qp, &mut SendSeries) -> Result<(), Errno>) {
    value((), || {
        let Some(qp) = qp.optional::<Qp>() else { return };
        let Some(turn) = qp.series() else { return };
        turn.with(|series| {
            if !reserve::has_room_to_post() {
                series.refused.get_or_insert_with(|| no_memory(qp));
                return;
            }
            if let Err(errno) = change(qp, series) {
                series.refused.get_or_insert(errno);
            }
        });
    });
}

/// Adds a request and fills it in.
#[inline]
pub(super) fn add(
    qp: QpExPointer<'_>,
    opcode: SendOpcode,
    fill: impl FnOnce(&mut SeriesRequest) -> Result<(), Errno>,
) {
    set(qp, |qp, series| {
        check_series(series)?;
        let (wr_id, flags) = qp.next_request();
        let mut request = SendRequest::new(wr_id, opcode);
        request.faults_complete = true;
        // The flag INLINE is set with the data.
        request.flags = SendFlags::from_bits_truncate(flags) - SendFlags::INLINE;
        let mut part = series.start(request);
        fill(&mut part)?;
        series.requests.push(part);
        Ok(())
    });
}

/// Adds a request that names remote memory.
#[inline]
fn add_remote(
    qp: QpExPointer<'_>,
    opcode: SendOpcode,
    remote: RemoteTarget,
    fill: impl FnOnce(&mut SendRequest<'static>),
) {
    add(qp, opcode, |part| {
        part.request.remote = remote;
        fill(&mut part.request);
        Ok(())
    });
}

extern "C" fn wr_start(qp: QpExPointer<'_>) {
    value((), || {
        let Some(turn) = qp.optional::<Qp>().and_then(Qp::series) else { return };
        turn.begin();
        turn.with(SendSeries::clear);
    });
}

extern "C" fn wr_complete(qp: QpExPointer<'_>) -> c_int {
    let end = || {
        if let Some(turn) = qp.optional::<Qp>().and_then(Qp::series) {
            turn.end();
        }
    };
    status_or(Call::ibv_wr_complete, Qp::about(qp.as_ptr()), end, || {
        let qp = qp.held::<Qp>()?;
        let turn = qp.series().ok_or(INVALID)?;
        let posted = turn.with(|series| {
            let posted = post(series, qp);
            series.clear();
            posted
        });
        turn.end();
        posted
    })
}

/// Posts the requests as [`wr_complete`] does, by MRC where it carries them.
extern "C" fn wr_complete_by_mrc(qp: QpExPointer<'_>) -> c_int {
    status_or(
        Call::ibv_wr_complete,
        Qp::about(qp.as_ptr()),
        || (),
        || {
            let qp = qp.held::<Qp>()?;
            let turn = qp.series().ok_or(INVALID)?;
            let posted = turn.with(|series| {
                let posted = match by_mrc::goes_by_mrc(qp, series.opcodes()) {
                    Ok(true) => post_by_mrc(series, qp),
                    Ok(false) => post(series, qp),
                    Err(errno) => Err(errno),
                };
                series.clear();
                posted
            });
            turn.end();
            posted
        },
    )
}

extern "C" fn wr_abort(qp: QpExPointer<'_>) {
    value((), || {
        if let Some(turn) = qp.optional::<Qp>().and_then(Qp::series) {
            turn.with(SendSeries::clear);
            turn.end();
        }
    });
}

extern "C" fn wr_atomic_cmp_swp(qp: QpExPointer<'_>, rkey: u32, address: u64, compare: u64, swap: u64) {
    add_remote(qp, SendOpcode::CompareSwap, RemoteTarget { address, rkey }, |request| {
        request.atomic = Some(AtomicOperation::CompareSwap { compare, swap });
    });
}

extern "C" fn wr_atomic_fetch_add(qp: QpExPointer<'_>, rkey: u32, address: u64, addend: u64) {
    add_remote(qp, SendOpcode::FetchAdd, RemoteTarget { address, rkey }, |request| {
        request.atomic = Some(AtomicOperation::FetchAdd { add: addend });
    });
}

extern "C" fn wr_bind_mw(qp: QpExPointer<'_>, mw: In<'_, ibv_mw>, rkey: u32, info: In<'_, ibv_mw_bind_info>) {
    add(qp, SendOpcode::BindWindow, |part| {
        let (window, bind) = window_bind(mw, rkey, info.get()?, TYPE_2)?;
        part.request.bind = Some(bind);
        part.window = window;
        Ok(())
    });
}

extern "C" fn wr_local_inv(qp: QpExPointer<'_>, rkey: u32) {
    add(qp, SendOpcode::LocalInvalidate, |part| {
        part.request.invalidate_rkey = rkey;
        Ok(())
    });
}

extern "C" fn wr_rdma_read(qp: QpExPointer<'_>, rkey: u32, address: u64) {
    add_remote(qp, SendOpcode::RdmaRead, RemoteTarget { address, rkey }, |_| {});
}

extern "C" fn wr_rdma_write(qp: QpExPointer<'_>, rkey: u32, address: u64) {
    add_remote(qp, SendOpcode::RdmaWrite, RemoteTarget { address, rkey }, |_| {});
}

extern "C" fn wr_rdma_write_imm(qp: QpExPointer<'_>, rkey: u32, address: u64, imm_data: u32) {
    add_remote(qp, SendOpcode::RdmaWriteWithImm, RemoteTarget { address, rkey }, |request| {
        request.imm_data = imm_data.to_ne_bytes();
    });
}

extern "C" fn wr_send(qp: QpExPointer<'_>) {
    add(qp, SendOpcode::Send, |_| Ok(()));
}

extern "C" fn wr_send_imm(qp: QpExPointer<'_>, imm_data: u32) {
    add(qp, SendOpcode::SendWithImm, |part| {
        part.request.imm_data = imm_data.to_ne_bytes();
        Ok(())
    });
}

extern "C" fn wr_send_inv(qp: QpExPointer<'_>, rkey: u32) {
    add(qp, SendOpcode::SendWithInvalidate, |part| {
        part.request.invalidate_rkey = rkey;
        Ok(())
    });
}

extern "C" fn wr_send_tso(qp: QpExPointer<'_>, _header: *mut c_void, _header_bytes: u16, _mss: u16) {
    add(qp, SendOpcode::Send, |_| Err(NOT_SUPPORTED));
}

extern "C" fn wr_flush(
    qp: QpExPointer<'_>,
    rkey: u32,
    address: u64,
    length: usize,
    placement: u8,
    level: u8,
) {
    add(qp, SendOpcode::Flush, |part| {
        part.request.remote = RemoteTarget { address, rkey };
        let length = u32::try_from(length).map_err(|_| INVALID)?;
        part.request.flush = Some(FlushRange { placement, selectivity: level, length });
        Ok(())
    });
}

/// Adds an ATOMIC WRITE, whose data is eight bytes.
extern "C" fn wr_atomic_write(qp: QpExPointer<'_>, rkey: u32, address: u64, data: Bytes<'_>) {
    add_remote(qp, SendOpcode::AtomicWrite, RemoteTarget { address, rkey }, |_| {});
    set(qp, |_, series| {
        series.add_inline(&data.eight()?);
        Ok(())
    });
}

extern "C" fn wr_set_ud_addr(
    qp: QpExPointer<'_>,
    ah: Trusted<'_, ibv_ah>,
    remote_qpn: u32,
    remote_qkey: u32,
) {
    set(qp, |qp, series| {
        let ud = destination(qp, ah, remote_qpn, remote_qkey)?;
        series.requests.last_mut().ok_or(INVALID)?.request.ud = ud;
        Ok(())
    });
}

extern "C" fn wr_set_xrc_srqn(qp: QpExPointer<'_>, remote_srqn: u32) {
    set(qp, |_, series| {
        series.requests.last_mut().ok_or(INVALID)?.request.xrc_srqn = remote_srqn;
        Ok(())
    });
}

/// Adds a piece of inline data. Fails with EINVAL if there is none at the address, and with the error of the
/// device's library if the total exceeds the device's limit.
fn add_piece(
    qp: &Qp,
    series: &mut SendSeries,
    piece: Bytes<'_>,
    length: usize,
    total: &mut usize,
) -> Result<(), Errno> {
    *total = total.saturating_add(length);
    if *total > qp.hca().limits().max_inline_data as usize {
        return Err(qp.hca().refused_inline(qp.number(), *total as u64, PostCall::WrComplete).into());
    }
    series.add_inline(piece.get(length)?);
    Ok(())
}

extern "C" fn wr_set_inline_data(qp: QpExPointer<'_>, data: Bytes<'_>, length: usize) {
    set(qp, |qp, series| add_piece(qp, series, data, length, &mut 0));
}

extern "C" fn wr_set_inline_data_list(qp: QpExPointer<'_>, count: usize, buffers: Array<'_, ibv_data_buf>) {
    set(qp, |qp, series| {
        check_count(qp, count)?;
        let buffers = buffers.get(count)?;
        series.add_inline(&[]);
        let mut total = 0;
        for buffer in buffers {
            // SAFETY: the program's list names memory that is valid until the call returns.
            let piece = unsafe { Bytes::new(buffer.addr) };
            add_piece(qp, series, piece, buffer.length, &mut total)?;
        }
        Ok(())
    });
}

/// Sets the elements of the last request.
#[inline]
pub(super) fn set_elements(series: &mut SendSeries, list: &[Sge]) -> Result<(), Errno> {
    series.sges.extend_from_slice(list);
    series.requests.last_mut().ok_or(INVALID)?.sges.end = series.sges.len();
    Ok(())
}

extern "C" fn wr_set_sge(qp: QpExPointer<'_>, lkey: u32, address: u64, length: u32) {
    set(qp, |_, series| set_elements(series, &[Sge { address, length, lkey }]));
}

extern "C" fn wr_set_sge_list(qp: QpExPointer<'_>, count: usize, list: Array<'_, ibv_sge>) {
    set(qp, |qp, series| {
        check_count(qp, count)?;
        set_elements(series, elements(list, count)?)
    });
}

/// Refuses a list with more elements than a request has: it may be as invalid as its length, and is not read.
///
/// # Errors
/// Fails with EINVAL.
fn check_count(qp: &Qp, count: usize) -> Result<(), Errno> {
    let most = qp.hca().limits().max_sge as usize;
    match count <= most {
        true => Ok(()),
        false => Err(INVALID.because(|| format!("{count} elements of data; a request has at most {most}"))),
    }
}

/// Sets every `wr_*` function.
/// Makes a queue pair post its series by MRC where that carries them.
pub(super) fn complete_by_mrc(c: &mut ibv_qp_ex) {
    c.wr_complete = operation!(wr_complete_by_mrc);
}

pub(crate) fn fill_operations(c: &mut ibv_qp_ex) {
    c.wr_start = operation!(wr_start);
    c.wr_complete = operation!(wr_complete);
    c.wr_abort = operation!(wr_abort);
    c.wr_atomic_cmp_swp = operation!(wr_atomic_cmp_swp);
    c.wr_atomic_fetch_add = operation!(wr_atomic_fetch_add);
    c.wr_bind_mw = operation!(wr_bind_mw);
    c.wr_local_inv = operation!(wr_local_inv);
    c.wr_rdma_read = operation!(wr_rdma_read);
    c.wr_rdma_write = operation!(wr_rdma_write);
    c.wr_rdma_write_imm = operation!(wr_rdma_write_imm);
    c.wr_send = operation!(wr_send);
    c.wr_send_imm = operation!(wr_send_imm);
    c.wr_send_inv = operation!(wr_send_inv);
    c.wr_send_tso = operation!(wr_send_tso);
    c.wr_flush = operation!(wr_flush);
    c.wr_atomic_write = operation!(wr_atomic_write);
    c.wr_set_ud_addr = operation!(wr_set_ud_addr);
    c.wr_set_xrc_srqn = operation!(wr_set_xrc_srqn);
    c.wr_set_inline_data = operation!(wr_set_inline_data);
    c.wr_set_inline_data_list = operation!(wr_set_inline_data_list);
    c.wr_set_sge = operation!(wr_set_sge);
    c.wr_set_sge_list = operation!(wr_set_sge_list);
}
