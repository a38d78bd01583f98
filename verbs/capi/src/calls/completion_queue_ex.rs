//! The extended completion queue: one completion at a time, read field by field.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::Ordering;

use pumice_transport::types::{WcStatus, WorkCompletion};

use crate::calls::completion_queue::{Cq, Wanted, create, imm_or_key};
use crate::calls::protection_domain::Pd;
use crate::calls::window_bind::show_refused;
use crate::ground::abi::operation;
use crate::ground::abi::{
    ibv_context, ibv_cq, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_modify_cq_attr, ibv_poll_cq_attr,
};
use crate::ground::errno::{INVALID, NOT_SUPPORTED};
use crate::ground::handles::{held, held_or_none, live};
use crate::ground::outcome::data_path::{self, value};
use crate::ground::outcome::{pointer, status};
use crate::ground::refusal::check_mask;

/// `IBV_CQ_INIT_ATTR_MASK_FLAGS` and `..._MASK_PD`.
const MASK_FLAGS: u32 = 1;
const MASK_PD: u32 = 1 << 1;
/// `IBV_CREATE_CQ_ATTR_SINGLE_THREADED` and `..._IGNORE_OVERRUN`: true or harmless here.
const KNOWN_FLAGS: u32 = 3;
/// `IBV_WC_EX_WITH_COMPLETION_TIMESTAMP` and `..._TIMESTAMP_WALLCLOCK`.
const WC_STAMP: u64 = 1 << 7;
const WC_WALLCLOCK: u64 = 1 << 11;
/// Byte length, immediate, QP number, source QP, SLID, SL, DLID path bits, and time stamps. Not VLANs,
/// flow tags, tag matching: the device has none.
const KNOWN_WC_FLAGS: u64 = 0x7f | WC_STAMP | WC_WALLCLOCK;

pub(crate) unsafe extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    attributes: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    pointer(|| {
        // SAFETY: null or the caller's structure.
        let attributes = unsafe { attributes.as_ref() }.ok_or(INVALID)?;
        check_mask("ibv_create_cq_ex", attributes.comp_mask, MASK_FLAGS | MASK_PD)?;
        if attributes.wc_flags & !KNOWN_WC_FLAGS != 0 {
            let wanted = attributes.wc_flags;
            return Err(NOT_SUPPORTED
                .because(|| format!("ibv_create_cq_ex refused: wc_flags {wanted:#x} ask for fields that completions of this device do not have")));
        }
        if attributes.comp_mask & MASK_FLAGS != 0 && attributes.flags & !KNOWN_FLAGS != 0 {
            return Err(NOT_SUPPORTED);
        }
        let domain_use = if attributes.comp_mask & MASK_PD != 0 {
            // SAFETY: null or live.
            let domain = unsafe { live::<Pd>(attributes.parent_domain) }?;
            let not_parent = || INVALID.because(|| "completion queues are made in parent domains".to_owned());
            Some(domain.begin_use().ok_or_else(not_parent)?)
        } else {
            None
        };
        let ibv_cq_init_attr_ex { cqe, cq_context, channel, comp_vector, .. } = *attributes;
        let stamps = attributes.wc_flags & (WC_STAMP | WC_WALLCLOCK) != 0;
        let wall_clock = attributes.wc_flags & WC_WALLCLOCK != 0;
        let wanted = Wanted { cqe, cq_context, channel, comp_vector, stamps, wall_clock, domain_use };
        // SAFETY: the caller's promise.
        let cq = unsafe { create(context, wanted) }?;
        // SAFETY: just made, and nobody else has it.
        let c = unsafe { &mut *cq };
        c.start_poll = operation!(start_poll);
        c.next_poll = operation!(next_poll);
        c.end_poll = operation!(end_poll);
        c.read_opcode = operation!(read_opcode);
        c.read_vendor_err = operation!(read_vendor_err);
        c.read_byte_len = operation!(read_byte_len);
        c.read_imm_data = operation!(read_imm_data);
        c.read_qp_num = operation!(read_qp_num);
        c.read_src_qp = operation!(read_src_qp);
        c.read_wc_flags = operation!(read_wc_flags);
        c.read_slid = operation!(read_slid);
        c.read_sl = operation!(read_sl);
        c.read_dlid_path_bits = operation!(read_dlid_path_bits);
        c.read_completion_ts = operation!(read_completion_ts);
        c.read_completion_wallclock_ns = operation!(read_completion_wallclock_ns);
        // Nobody may ask for these; a program that does so anyway reads zeros.
        c.read_cvlan = operation!(read_nothing);
        c.read_flow_tag = operation!(read_nothing);
        c.read_tm_info = operation!(read_no_tag);
        Ok(cq)
    })
}

/// Takes the next completion into the structure. ENOENT: there is none. EIO: there will never be one, for the
/// queue overran.
fn take(cq: &Cq) -> c_int {
    let mut one = [WorkCompletion::default()];
    let none = || if cq.queue().is_failed() { libc::EIO } else { libc::ENOENT };
    let mut at_ns = 0;
    if cq.stamps {
        let Some(stamped) = cq.hca().poll_cq_stamped(cq.queue()) else { return none() };
        (one, at_ns) = ([stamped.0], stamped.1);
    } else if cq.hca().poll_cq(cq.queue(), &mut one) == 0 {
        return none();
    }
    let [completion] = one;
    if completion.status != WcStatus::Success {
        show_refused(completion.qp_num);
    }
    if let Some(wall_clock) = &cq.wall_clock {
        // SAFETY: one thread at a time polls; a field of our own structure.
        unsafe { cq.current_wall_ns.as_ptr().write(wall_clock.translate(cq.hca().clock(), at_ns)) };
    }
    // SAFETY: fields of our own structure, which one thread at a time polls.
    unsafe {
        (*cq.as_ptr()).status = completion.status as u32;
        (*cq.as_ptr()).wr_id = completion.wr_id;
        cq.current.as_ptr().write(completion);
        cq.current_at_ns.as_ptr().write(at_ns);
    }
    0
}

/// Begins to poll: other threads wait until `end_poll`, unless there was nothing.
unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, attributes: *mut ibv_poll_cq_attr) -> c_int {
    value(libc::EIO, || {
        // SAFETY: null or live; null or the caller's structure.
        let (Ok(cq), attributes) = (unsafe { held::<Cq>(cq.cast()) }, unsafe { attributes.as_ref() }) else {
            return libc::EINVAL;
        };
        if attributes.is_some_and(|attributes| attributes.comp_mask != 0) {
            return libc::EINVAL;
        }
        while cq.polling.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
        let outcome = take(cq);
        if outcome != 0 {
            cq.polling.store(false, Ordering::Release);
        }
        outcome
    })
}

unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: null or live.
    value(libc::EIO, || unsafe { held::<Cq>(cq.cast()) }.map_or(libc::EINVAL, take))
}

unsafe extern "C" fn end_poll(cq: *mut ibv_cq_ex) {
    data_path::status(|| {
        // SAFETY: null or live.
        unsafe { held::<Cq>(cq.cast()) }?.polling.store(false, Ordering::Release);
        Ok(())
    });
}

/// Reads a field of the current completion.
///
/// # Safety
/// `cq` is null or live, and between start_poll and end_poll.
unsafe fn read<T: Default>(cq: *mut ibv_cq_ex, field: impl FnOnce(&WorkCompletion) -> T) -> T {
    // SAFETY: the caller's promise; only the polling thread writes the completion.
    unsafe { held_or_none::<Cq>(cq.cast()).map(|cq| field(&*cq.current.as_ptr())).unwrap_or_default() }
}

unsafe extern "C" fn read_opcode(cq: *mut ibv_cq_ex) -> c_uint {
    // SAFETY: the caller's promise.
    unsafe { read(cq, |completion| completion.opcode as c_uint) }
}

unsafe extern "C" fn read_vendor_err(cq: *mut ibv_cq_ex) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { read(cq, |completion| completion.vendor_err) }
}

unsafe extern "C" fn read_byte_len(cq: *mut ibv_cq_ex) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { read(cq, |completion| completion.byte_len) }
}

unsafe extern "C" fn read_imm_data(cq: *mut ibv_cq_ex) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { read(cq, imm_or_key) }
}

unsafe extern "C" fn read_qp_num(cq: *mut ibv_cq_ex) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { read(cq, |completion| completion.qp_num) }
}

unsafe extern "C" fn read_src_qp(cq: *mut ibv_cq_ex) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { read(cq, |completion| completion.src_qp) }
}

unsafe extern "C" fn read_wc_flags(cq: *mut ibv_cq_ex) -> c_uint {
    // SAFETY: the caller's promise.
    unsafe { read(cq, |completion| completion.flags.bits()) }
}

unsafe extern "C" fn read_slid(cq: *mut ibv_cq_ex) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { read(cq, |completion| completion.slid.into()) }
}

unsafe extern "C" fn read_sl(cq: *mut ibv_cq_ex) -> u8 {
    // SAFETY: the caller's promise.
    unsafe { read(cq, |completion| completion.sl) }
}

unsafe extern "C" fn read_dlid_path_bits(cq: *mut ibv_cq_ex) -> u8 {
    // SAFETY: the caller's promise.
    unsafe { read(cq, |completion| completion.dlid_path_bits) }
}

/// In cycles of the device's clock, as `ibv_query_rt_values_ex` reads it: ns.
unsafe extern "C" fn read_completion_ts(cq: *mut ibv_cq_ex) -> u64 {
    value(0, || {
        // SAFETY: the caller's promise; only the polling thread writes it.
        unsafe { held_or_none::<Cq>(cq.cast()).map_or(0, |cq| *cq.current_at_ns.as_ptr()) }
    })
}

/// In ns since 1970: the same moment on the system's clock, as that was set when the completion was polled.
unsafe extern "C" fn read_completion_wallclock_ns(cq: *mut ibv_cq_ex) -> u64 {
    value(0, || {
        // SAFETY: the caller's promise; only the polling thread writes it.
        unsafe { held_or_none::<Cq>(cq.cast()).map_or(0, |cq| *cq.current_wall_ns.as_ptr()) }
    })
}

/// `IBV_CQ_ATTR_MODERATE`.
const CHANGE_MODERATION: u32 = 1;

/// Moderation is taken for what it is, a wish for fewer events: an armed queue reports its first
/// completion all the same.
pub(crate) unsafe extern "C" fn modify_cq(cq: *mut ibv_cq, attributes: *mut ibv_modify_cq_attr) -> c_int {
    status(|| {
        // SAFETY: null or live; null or the caller's structure.
        let attributes = unsafe {
            live::<Cq>(cq)?;
            attributes.as_ref().ok_or(INVALID)?
        };
        if attributes.attr_mask & !CHANGE_MODERATION != 0 {
            return Err(NOT_SUPPORTED.because(|| format!("modify_cq: mask {:#x}", attributes.attr_mask)));
        }
        Ok(())
    })
}

extern "C" fn read_nothing(_cq: *mut ibv_cq_ex) -> u64 {
    0
}

extern "C" fn read_no_tag(_cq: *mut ibv_cq_ex, _info: *mut c_void) {}
