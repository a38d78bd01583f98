//! The `ibv_wr_*` calls: requests are put together between wr_start and wr_complete, and posted by
//! wr_complete.
//!
//! A refusal while requests are put together posts none of them. If the send queue fills up in the
//! middle of a series, those before stay posted, and wr_complete says ENOMEM.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::slice;
use std::sync::atomic::{AtomicBool, Ordering};

use pumice_transport::types::{
    AtomicOperation, FlushRange, QpCapacity, RemoteTarget, SendFlags, SendOpcode, SendRequest, Sge,
};

use crate::calls::post_recv::elements;
use crate::calls::post_send::{BATCH, destination};
use crate::calls::queue_pair::Qp;
use crate::calls::window_bind::{TYPE_2, show_not_posted, show_posted, window_bind};
use crate::ground::abi::operation;
use crate::ground::abi::{ibv_ah, ibv_data_buf, ibv_mw, ibv_mw_bind_info, ibv_qp_ex, ibv_sge};
use crate::ground::errno::{Errno, INVALID, NOT_SUPPORTED};
use crate::ground::handles::{held, held_or_none};
use crate::ground::outcome::data_path::{status, value};

/// Requests that are being put together, one thread at a time.
pub(crate) struct Builder {
    building: AtomicBool,
    series: UnsafeCell<Series>,
}

/// Requests, and the elements and inline bytes that they use. The memory is kept for the next series.
struct Series {
    requests: Vec<Part>,
    sges: Vec<Sge>,
    inline_data: Vec<u8>,
    refused: Option<Errno>,
}

struct Part {
    request: SendRequest<'static>,
    sges: Range<usize>,
    inline_data: Range<usize>,
    /// The window that this binds.
    window: Option<*mut ibv_mw>,
}

impl Builder {
    /// Requests that there is room for from the beginning.
    const ROOM: u32 = 64;

    pub(crate) fn new(capacity: &QpCapacity) -> Builder {
        let room = capacity.max_send_wr.min(Builder::ROOM) as usize;
        Builder {
            building: AtomicBool::new(false),
            series: UnsafeCell::new(Series {
                requests: Vec::with_capacity(room),
                sges: Vec::with_capacity(room * 2),
                inline_data: Vec::new(),
                refused: None,
            }),
        }
    }
}

impl Series {
    fn clear(&mut self) {
        self.requests.clear();
        self.sges.clear();
        self.inline_data.clear();
        self.refused = None;
    }

    fn add_inline(&mut self, data: &[u8]) {
        self.inline_data.extend_from_slice(data);
        let end = self.inline_data.len();
        if let Some(last) = self.requests.last_mut() {
            last.request.flags |= SendFlags::INLINE;
            last.inline_data.end = end;
        }
    }

    fn post(&mut self, qp: &Qp) -> Result<(), Errno> {
        if let Some(errno) = self.refused {
            return Err(errno);
        }
        for parts in self.requests.chunks(BATCH) {
            let mut batch = [const { SendRequest::new(0, SendOpcode::Send) }; BATCH];
            for (place, part) in batch.iter_mut().zip(parts) {
                *place = part.request.clone();
                place.sges = self.sges.get(part.sges.clone()).unwrap_or_default();
                place.inline_data = self.inline_data.get(part.inline_data.clone()).unwrap_or_default();
            }
            for part in parts {
                if let (Some(mw), Some(bind)) = (part.window, &part.request.bind) {
                    // SAFETY: live when the request was made, in this series.
                    unsafe { show_posted(qp, mw, bind) };
                }
            }
            let posted = qp.hca().post_sends(qp.number(), batch.get(..parts.len()).unwrap_or_default());
            posted.map_err(|(position, error)| {
                let unposted = parts.iter().skip(position).filter_map(|part| part.window);
                unposted.for_each(show_not_posted);
                Errno::from(error)
            })?;
        }
        Ok(())
    }
}

/// The series that is being put together.
///
/// # Safety
/// `qp` is null or live, and this thread has called wr_start.
unsafe fn series<'a>(qp: *mut ibv_qp_ex) -> Option<(&'a Qp, &'a mut Series)> {
    // SAFETY: the caller's promise: no other thread is between wr_start and wr_complete.
    unsafe {
        let qp = held_or_none::<Qp>(qp.cast())?;
        Some((qp, &mut *qp.builder()?.series.get()))
    }
}

/// Adds a request and fills it in.
///
/// # Safety
/// As [`series`].
unsafe fn add(
    qp: *mut ibv_qp_ex,
    opcode: SendOpcode,
    fill: impl FnOnce(&Qp, &mut Part) -> Result<(), Errno>,
) {
    value((), || {
        // SAFETY: the caller's promise.
        let Some((held, series)) = (unsafe { series(qp) }) else { return };
        // SAFETY: fields that the program sets before the call.
        let (wr_id, flags) = unsafe { ((*qp).wr_id, (*qp).wr_flags) };
        let mut request = SendRequest::new(wr_id, opcode);
        request.faults_complete = true;
        // INLINE comes with the data.
        request.flags = SendFlags::from_bits_truncate(flags) - SendFlags::INLINE;
        let (sges, inline) = (series.sges.len(), series.inline_data.len());
        let mut part = Part { request, sges: sges..sges, inline_data: inline..inline, window: None };
        match fill(held, &mut part) {
            Ok(()) => series.requests.push(part),
            Err(errno) => {
                series.refused.get_or_insert(errno);
            }
        }
    });
}

/// Changes the request that was added last.
///
/// # Safety
/// As [`series`].
unsafe fn set(qp: *mut ibv_qp_ex, change: impl FnOnce(&Qp, &mut Series) -> Result<(), Errno>) {
    value((), || {
        // SAFETY: the caller's promise.
        let Some((held, series)) = (unsafe { series(qp) }) else { return };
        if let Err(errno) = change(held, series) {
            series.refused.get_or_insert(errno);
        }
    });
}

unsafe extern "C" fn wr_start(qp: *mut ibv_qp_ex) {
    value((), || {
        // SAFETY: null or live.
        let Some(builder) = unsafe { held_or_none::<Qp>(qp.cast()) }.and_then(Qp::builder) else { return };
        while builder.building.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
        // SAFETY: this thread builds.
        unsafe { &mut *builder.series.get() }.clear();
    });
}

unsafe extern "C" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    status(|| {
        // SAFETY: null or live.
        let held = unsafe { held::<Qp>(qp.cast()) }?;
        let builder = held.builder().ok_or(INVALID)?;
        // SAFETY: this thread builds.
        let posted = unsafe { &mut *builder.series.get() }.post(held);
        builder.building.store(false, Ordering::Release);
        posted
    })
}

unsafe extern "C" fn wr_abort(qp: *mut ibv_qp_ex) {
    value((), || {
        // SAFETY: null or live.
        let Some(builder) = unsafe { held_or_none::<Qp>(qp.cast()) }.and_then(Qp::builder) else { return };
        builder.building.store(false, Ordering::Release);
    });
}

unsafe extern "C" fn wr_atomic_cmp_swp(qp: *mut ibv_qp_ex, rkey: u32, address: u64, compare: u64, swap: u64) {
    let fill = |_: &Qp, part: &mut Part| {
        part.request.remote = RemoteTarget { address, rkey };
        part.request.atomic = Some(AtomicOperation::CompareSwap { compare, swap });
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { add(qp, SendOpcode::CompareSwap, fill) }
}

unsafe extern "C" fn wr_atomic_fetch_add(qp: *mut ibv_qp_ex, rkey: u32, address: u64, addend: u64) {
    let fill = |_: &Qp, part: &mut Part| {
        part.request.remote = RemoteTarget { address, rkey };
        part.request.atomic = Some(AtomicOperation::FetchAdd { add: addend });
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { add(qp, SendOpcode::FetchAdd, fill) }
}

unsafe extern "C" fn wr_bind_mw(
    qp: *mut ibv_qp_ex,
    mw: *mut ibv_mw,
    rkey: u32,
    info: *const ibv_mw_bind_info,
) {
    let fill = |_: &Qp, part: &mut Part| {
        // SAFETY: null or the caller's structure, and live objects in it.
        part.request.bind = Some(unsafe { window_bind(mw, rkey, info.as_ref().ok_or(INVALID)?, TYPE_2) }?);
        part.window = Some(mw);
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { add(qp, SendOpcode::BindWindow, fill) }
}

unsafe extern "C" fn wr_local_inv(qp: *mut ibv_qp_ex, rkey: u32) {
    let fill = |_: &Qp, part: &mut Part| {
        part.request.invalidate_rkey = rkey;
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { add(qp, SendOpcode::LocalInvalidate, fill) }
}

/// Adds a request that names remote memory.
///
/// # Safety
/// As [`series`].
unsafe fn add_remote(qp: *mut ibv_qp_ex, opcode: SendOpcode, rkey: u32, address: u64, imm_data: u32) {
    let fill = |_: &Qp, part: &mut Part| {
        part.request.remote = RemoteTarget { address, rkey };
        part.request.imm_data = imm_data.to_ne_bytes();
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { add(qp, opcode, fill) }
}

unsafe extern "C" fn wr_rdma_read(qp: *mut ibv_qp_ex, rkey: u32, address: u64) {
    // SAFETY: the caller's promise.
    unsafe { add_remote(qp, SendOpcode::RdmaRead, rkey, address, 0) }
}

unsafe extern "C" fn wr_rdma_write(qp: *mut ibv_qp_ex, rkey: u32, address: u64) {
    // SAFETY: the caller's promise.
    unsafe { add_remote(qp, SendOpcode::RdmaWrite, rkey, address, 0) }
}

unsafe extern "C" fn wr_rdma_write_imm(qp: *mut ibv_qp_ex, rkey: u32, address: u64, imm_data: u32) {
    // SAFETY: the caller's promise.
    unsafe { add_remote(qp, SendOpcode::RdmaWriteWithImm, rkey, address, imm_data) }
}

unsafe extern "C" fn wr_send(qp: *mut ibv_qp_ex) {
    // SAFETY: the caller's promise.
    unsafe { add(qp, SendOpcode::Send, |_, _| Ok(())) }
}

unsafe extern "C" fn wr_send_imm(qp: *mut ibv_qp_ex, imm_data: u32) {
    // SAFETY: the caller's promise.
    unsafe { add_remote(qp, SendOpcode::SendWithImm, 0, 0, imm_data) }
}

unsafe extern "C" fn wr_send_inv(qp: *mut ibv_qp_ex, rkey: u32) {
    let fill = |_: &Qp, part: &mut Part| {
        part.request.invalidate_rkey = rkey;
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { add(qp, SendOpcode::SendWithInvalidate, fill) }
}

unsafe extern "C" fn wr_send_tso(qp: *mut ibv_qp_ex, _header: *mut c_void, _header_bytes: u16, _mss: u16) {
    // SAFETY: the caller's promise.
    unsafe { add(qp, SendOpcode::Send, |_, _| Err(NOT_SUPPORTED)) }
}

unsafe extern "C" fn wr_flush(
    qp: *mut ibv_qp_ex,
    rkey: u32,
    address: u64,
    length: usize,
    placement: u8,
    level: u8,
) {
    let fill = |_: &Qp, part: &mut Part| {
        part.request.remote = RemoteTarget { address, rkey };
        let length = u32::try_from(length).map_err(|_| INVALID)?;
        part.request.flush = Some(FlushRange { placement, selectivity: level, length });
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { add(qp, SendOpcode::Flush, fill) }
}

unsafe extern "C" fn wr_atomic_write(qp: *mut ibv_qp_ex, rkey: u32, address: u64, data: *const c_void) {
    // SAFETY: the caller's promise; eight bytes, or null.
    unsafe {
        add_remote(qp, SendOpcode::AtomicWrite, rkey, address, 0);
        set(qp, |_, series| {
            series.add_inline(data.cast::<[u8; 8]>().as_ref().ok_or(INVALID)?);
            Ok(())
        });
    }
}

unsafe extern "C" fn wr_set_ud_addr(qp: *mut ibv_qp_ex, ah: *mut ibv_ah, remote_qpn: u32, remote_qkey: u32) {
    let change = |qp: &Qp, series: &mut Series| {
        // SAFETY: null or live.
        let ud = unsafe { destination(qp, ah, remote_qpn, remote_qkey) }?;
        series.requests.last_mut().ok_or(INVALID)?.request.ud = ud;
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { set(qp, change) }
}

unsafe extern "C" fn wr_set_xrc_srqn(qp: *mut ibv_qp_ex, remote_srqn: u32) {
    let change = |_: &Qp, series: &mut Series| {
        series.requests.last_mut().ok_or(INVALID)?.request.xrc_srqn = remote_srqn;
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { set(qp, change) }
}

unsafe extern "C" fn wr_set_inline_data(qp: *mut ibv_qp_ex, address: *mut c_void, length: usize) {
    let buffer = ibv_data_buf { addr: address, length };
    // SAFETY: the caller's promise.
    unsafe { wr_set_inline_data_list(qp, 1, &buffer) }
}

unsafe extern "C" fn wr_set_inline_data_list(qp: *mut ibv_qp_ex, count: usize, buffers: *const ibv_data_buf) {
    let change = |held: &Qp, series: &mut Series| {
        let most = held.hca().limits().max_inline_data as usize;
        if buffers.is_null() && count > 0 {
            return Err(INVALID);
        }
        // SAFETY: the caller's list.
        let buffers = if count == 0 { &[] } else { unsafe { slice::from_raw_parts(buffers, count) } };
        series.add_inline(&[]);
        let mut total = 0_usize;
        for buffer in buffers.iter().filter(|buffer| buffer.length > 0) {
            total = total.saturating_add(buffer.length);
            if buffer.addr.is_null() || total > most {
                return Err(INVALID);
            }
            // SAFETY: the caller's memory.
            series.add_inline(unsafe { slice::from_raw_parts(buffer.addr.cast(), buffer.length) });
        }
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { set(qp, change) }
}

unsafe extern "C" fn wr_set_sge(qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    let element = ibv_sge { addr, length, lkey };
    // SAFETY: the caller's promise.
    unsafe { wr_set_sge_list(qp, 1, &element) }
}

unsafe extern "C" fn wr_set_sge_list(qp: *mut ibv_qp_ex, count: usize, list: *const ibv_sge) {
    let change = |_: &Qp, series: &mut Series| {
        // SAFETY: the caller's list.
        let list = unsafe { elements(list, c_int::try_from(count).map_err(|_| INVALID)?) }?;
        series.sges.extend_from_slice(list);
        series.requests.last_mut().ok_or(INVALID)?.sges.end = series.sges.len();
        Ok(())
    };
    // SAFETY: the caller's promise.
    unsafe { set(qp, change) }
}

/// Sets every `wr_*` slot.
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
