//! The extended completion queue: one completion at a time, read field by field. In the functions of its
//! table `ibv_cq` is used for `ibv_cq_ex`, which begins with one.

use std::ffi::{c_int, c_uint};

use pumice_calls::Call;
use pumice_transport::types::{WcStatus, WorkCompletion};

use super::completion_queue::imm_or_key;
use crate::abi::operation;
use crate::abi::{
    ibv_context, ibv_cq, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_modify_cq_attr, ibv_poll_cq_attr, ibv_wc_tm_info,
};
use crate::check;
use crate::entry::arguments::{In, Out, Trusted};
use crate::entry::handles::live;
use crate::entry::{data_path, pointer_about, status_of};
use crate::gate::CallSubject;
use crate::log::refusal::check_mask;
use crate::objects::Context;
use crate::objects::completion_queue::{Cq, CqCreateParameters, Polled};
use crate::objects::domains::Pd;
use crate::objects::memory_region::show_refused;
use crate::platform::{Errno, INVALID, NOT_SUPPORTED};

/// The flags `IBV_CQ_INIT_ATTR_MASK_FLAGS` and `..._MASK_PD`.
const MASK_FLAGS: u32 = 1;
const MASK_PD: u32 = 1 << 1;
/// The flag `IBV_CREATE_CQ_ATTR_SINGLE_THREADED`: a promise of the program, which `pumice check` verifies.
/// The locks of a queue are taken in any case, because the device's own threads add to it.
const SINGLE_THREADED: u32 = 1;
/// The flag `IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN`.
const IGNORE_OVERRUN: u32 = 1 << 1;
const KNOWN_FLAGS: u32 = SINGLE_THREADED | IGNORE_OVERRUN;
/// The flags `IBV_WC_EX_WITH_COMPLETION_TIMESTAMP` and `..._TIMESTAMP_WALLCLOCK`.
const WC_STAMP: u64 = 1 << 7;
const WC_WALLCLOCK: u64 = 1 << 11;
/// The flag `IBV_WC_EX_WITH_TM_INFO`.
const WC_TAG: u64 = 1 << 10;
/// Fields that programs may ask for: byte length, immediate, QP number, source QP, SLID, SL, DLID path bits,
/// timestamps, and the tags of messages. VLANs and flow tags are missing, because the device has none.
const KNOWN_WC_FLAGS: u64 = 0x7f | WC_STAMP | WC_TAG | WC_WALLCLOCK;

pub(crate) extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    attributes: In<'_, ibv_cq_init_attr_ex>,
) -> *mut ibv_cq_ex {
    pointer_about(Call::ibv_create_cq_ex, CallSubject::on(context), || create(context, attributes.get()?))
}

/// Creates an extended completion queue.
///
/// # Errors
/// Fails with EOPNOTSUPP for a feature that this device does not have, and as [`Cq::create`].
pub(crate) fn create(
    context: *mut ibv_context,
    attributes: &ibv_cq_init_attr_ex,
) -> Result<*mut ibv_cq_ex, Errno> {
    check_mask(Call::ibv_create_cq_ex, attributes.comp_mask, MASK_FLAGS | MASK_PD)?;
    let wc_flags = attributes.wc_flags;
    if wc_flags & !KNOWN_WC_FLAGS != 0 {
        return Err(NOT_SUPPORTED.because(|| {
            format!(
                "ibv_create_cq_ex refused: wc_flags {wc_flags:#x} ask for fields that completions of \
                this \
                 device do not have"
            )
        }));
    }
    let flags = if attributes.comp_mask & MASK_FLAGS != 0 { attributes.flags } else { 0 };
    if flags & !KNOWN_FLAGS != 0 {
        return Err(NOT_SUPPORTED
            .because(|| format!("ibv_create_cq_ex refused: flags {flags:#x} has bits that are not known")));
    }
    let domain =
        (attributes.comp_mask & MASK_PD != 0).then(|| live::<Pd>(attributes.parent_domain)).transpose()?;
    let domain_use = if let Some(domain) = &domain {
        Context::of(context)?.check_same("parent domain", &*domain.context()?)?;
        let not_parent = || INVALID.because(|| "completion queues are made in parent domains".to_owned());
        Some(domain.begin_use().ok_or_else(not_parent)?)
    } else {
        None
    };
    let ibv_cq_init_attr_ex { cqe, cq_context, channel, comp_vector, .. } = *attributes;
    let parameters = CqCreateParameters {
        cqe,
        cq_context,
        channel,
        comp_vector,
        stamps: wc_flags & (WC_STAMP | WC_WALLCLOCK) != 0,
        wall_clock: wc_flags & WC_WALLCLOCK != 0,
        //= man:ibv_create_cq_ex
        //| A queue with IGNORE_OVERRUN does not fail when it is full.
        overwrites: flags & IGNORE_OVERRUN != 0,
        domain_use,
        set_operations,
    };
    let cq = Cq::create(context, parameters)?;
    match domain {
        Some(domain) if domain.has_thread_domain() => domain.report_thread_domain(cq),
        _ if flags & SINGLE_THREADED != 0 => check::for_one_thread(cq.addr(), cq.addr()),
        _ => {}
    }
    Ok(cq.cast())
}

/// Takes the next completion into the structure. Returns ENOENT if there is none, and EIO if there will never
/// be one, because the queue overran.
fn take(cq: &Cq) -> c_int {
    let mut one = [WorkCompletion::default()];
    let none = || if cq.queue().is_failed() { libc::EIO } else { libc::ENOENT };
    let mut at_ns = 0;
    if cq.stamps() {
        let Some(stamped) = cq.hca().poll_cq_stamped(cq.queue()) else { return none() };
        (one, at_ns) = ([stamped.0], stamped.1);
    } else if cq.hca().poll_cq(cq.queue(), &mut one) == 0 {
        return none();
    }
    let [completion] = one;
    if completion.status != WcStatus::Success {
        show_refused(completion.qp_num);
    }
    cq.show_completion(&completion);
    cq.turn().with(|polled| {
        if let Some(wall_clock) = &mut polled.wall_clock {
            polled.wall_ns = wall_clock.translate(cq.hca().clock(), at_ns);
        }
        polled.completion = completion;
        polled.at_ns = at_ns;
    });
    0
}

/// Begins to poll: other threads wait until `end_poll`, unless there was no completion.
extern "C" fn start_poll(cq: Trusted<'_, ibv_cq>, attributes: In<'_, ibv_poll_cq_attr>) -> c_int {
    data_path::code(Call::ibv_start_poll, CallSubject::of(cq.as_ptr()), libc::ENOENT, || {
        let Some(cq) = cq.optional::<Cq>() else { return libc::EINVAL };
        if attributes.optional().is_some_and(|attributes| attributes.comp_mask != 0) {
            return libc::EINVAL;
        }
        cq.turn().begin();
        let outcome = take(cq);
        if outcome != 0 {
            cq.turn().end();
        }
        outcome
    })
}

extern "C" fn next_poll(cq: Trusted<'_, ibv_cq>) -> c_int {
    data_path::code(Call::ibv_next_poll, CallSubject::of(cq.as_ptr()), libc::ENOENT, || {
        let Some(cq) = cq.optional::<Cq>() else { return libc::EINVAL };
        // A shuffled schedule may end the batch here.
        if cq.queue().ends_batch() { libc::ENOENT } else { take(cq) }
    })
}

extern "C" fn end_poll(cq: Trusted<'_, ibv_cq>) {
    data_path::value((), || {
        if let Some(cq) = cq.optional::<Cq>() {
            cq.turn().end();
        }
    });
}

/// Reads a value of the current completion.
#[inline]
pub(crate) fn read<T: Default>(cq: Trusted<'_, ibv_cq>, run: impl FnOnce(&Polled) -> T) -> T {
    cq.optional::<Cq>().map_or_else(T::default, |cq| cq.turn().with(|polled| run(polled)))
}

extern "C" fn wc_read_opcode(cq: Trusted<'_, ibv_cq>) -> c_uint {
    read(cq, |polled| polled.completion.opcode as c_uint)
}

extern "C" fn wc_read_vendor_err(cq: Trusted<'_, ibv_cq>) -> u32 {
    read(cq, |polled| polled.completion.vendor_err)
}

extern "C" fn wc_read_byte_len(cq: Trusted<'_, ibv_cq>) -> u32 {
    read(cq, |polled| polled.completion.byte_len)
}

extern "C" fn wc_read_imm_data(cq: Trusted<'_, ibv_cq>) -> u32 {
    read(cq, |polled| imm_or_key(&polled.completion))
}

extern "C" fn wc_read_qp_num(cq: Trusted<'_, ibv_cq>) -> u32 {
    read(cq, |polled| polled.completion.qp_num)
}

extern "C" fn wc_read_src_qp(cq: Trusted<'_, ibv_cq>) -> u32 {
    read(cq, |polled| polled.completion.src_qp)
}

extern "C" fn wc_read_wc_flags(cq: Trusted<'_, ibv_cq>) -> c_uint {
    read(cq, |polled| polled.completion.flags.bits())
}

extern "C" fn wc_read_slid(cq: Trusted<'_, ibv_cq>) -> u32 {
    read(cq, |polled| polled.completion.slid.into())
}

extern "C" fn wc_read_sl(cq: Trusted<'_, ibv_cq>) -> u8 {
    read(cq, |polled| polled.completion.sl)
}

extern "C" fn wc_read_dlid_path_bits(cq: Trusted<'_, ibv_cq>) -> u8 {
    read(cq, |polled| polled.completion.dlid_path_bits)
}

/// Reports to the checker that a program reads a field that only a successful completion has.
fn check_field_read(cq: Trusted<'_, ibv_cq>, field: &str) {
    let address = cq.as_ptr().addr() as u64;
    let status = cq.optional::<Cq>().map(|cq| cq.turn().with(|polled| polled.completion.status));
    if let Some(status) = status.filter(|status| *status != WcStatus::Success) {
        check::with_checker(|checker| checker.field_of_error_read(address, field, status));
    }
}

/// Defines the functions that read fields, for checked programs.
macro_rules! checked {
    ($($checked:ident $plain:ident $field:literal $returns:ty;)*) => {
        $(extern "C" fn $checked(cq: Trusted<'_, ibv_cq>) -> $returns {
            check_field_read(cq, $field);
            $plain(cq)
        })*
    };
}

checked! {
    checked_opcode wc_read_opcode "opcode" c_uint;
    checked_byte_len wc_read_byte_len "byte_len" u32;
    checked_imm_data wc_read_imm_data "imm_data" u32;
    checked_src_qp wc_read_src_qp "src_qp" u32;
    checked_wc_flags wc_read_wc_flags "wc_flags" c_uint;
}

/// Returns the timestamp in cycles of the device's clock, as `ibv_query_rt_values_ex` reads it: ns.
extern "C" fn wc_read_completion_ts(cq: Trusted<'_, ibv_cq>) -> u64 {
    read(cq, |polled| polled.at_ns)
}

/// Returns the timestamp in ns since 1970: the same time on the system's clock, as that was set when the
/// completion was polled.
extern "C" fn wc_read_completion_wallclock_ns(cq: Trusted<'_, ibv_cq>) -> u64 {
    read(cq, |polled| polled.wall_ns)
}

extern "C" fn read_nothing(_cq: *mut ibv_cq_ex) -> u64 {
    0
}

/// Returns the tag of a message that has a buffer with its tag, and its sender's number.
extern "C" fn wc_read_tm_info(cq: Trusted<'_, ibv_cq>, info: Out<'_, ibv_wc_tm_info>) {
    let (tag, r#priv) = read(cq, |polled| polled.completion.tag());
    if let Some(info) = info.optional() {
        info.set(ibv_wc_tm_info { tag, r#priv });
    }
}

/// The flag `IBV_CQ_ATTR_MODERATE`.
const CHANGE_MODERATION: u32 = 1;

/// Accepts moderation, which is only a wish for fewer events: an armed queue reports its first completion
/// nevertheless.
pub(crate) extern "C" fn modify_cq(cq: *mut ibv_cq, attributes: In<'_, ibv_modify_cq_attr>) -> c_int {
    status_of(Call::ibv_modify_cq, CallSubject::on(cq), || {
        live::<Cq>(cq)?;
        let attributes = attributes.get()?;
        //= linux:uverbs_cmd.c#ib_uverbs_ex_modify_cq
        //| A change of nothing is refused.
        if attributes.attr_mask == 0 {
            return Err(INVALID.because(|| "ibv_modify_cq refused: attr_mask 0 changes nothing".to_owned()));
        }
        if attributes.attr_mask & !CHANGE_MODERATION != 0 {
            return Err(NOT_SUPPORTED.because(|| format!("modify_cq: mask {:#x}", attributes.attr_mask)));
        }
        Ok(())
    })
}

/// Sets every function of the table.
fn set_operations(c: &mut ibv_cq_ex) {
    c.start_poll = operation!(start_poll);
    c.next_poll = operation!(next_poll);
    c.end_poll = operation!(end_poll);
    c.read_opcode = operation!(wc_read_opcode);
    c.read_vendor_err = operation!(wc_read_vendor_err);
    c.read_byte_len = operation!(wc_read_byte_len);
    c.read_imm_data = operation!(wc_read_imm_data);
    c.read_qp_num = operation!(wc_read_qp_num);
    c.read_src_qp = operation!(wc_read_src_qp);
    c.read_wc_flags = operation!(wc_read_wc_flags);
    c.read_slid = operation!(wc_read_slid);
    c.read_sl = operation!(wc_read_sl);
    c.read_dlid_path_bits = operation!(wc_read_dlid_path_bits);
    c.read_completion_ts = operation!(wc_read_completion_ts);
    c.read_completion_wallclock_ns = operation!(wc_read_completion_wallclock_ns);
    if check::is_on() {
        c.read_opcode = operation!(checked_opcode);
        c.read_byte_len = operation!(checked_byte_len);
        c.read_imm_data = operation!(checked_imm_data);
        c.read_src_qp = operation!(checked_src_qp);
        c.read_wc_flags = operation!(checked_wc_flags);
    }
    // No program may ask for these fields; a program that reads them anyway gets zeros.
    c.read_cvlan = operation!(read_nothing);
    c.read_flow_tag = operation!(read_nothing);
    c.read_tm_info = operation!(wc_read_tm_info);
}
