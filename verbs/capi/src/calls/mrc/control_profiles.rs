//! Profiles of MRC, as a controller changes and queries them: formats, entropy values, congestion control.

use std::ffi::{CStr, c_char, c_int};
use std::ptr;

use pumice_calls::Call;
use pumice_device::hca::{CcChange, EvChange, EvName, EvRecord, FormatChange, Hca, ProfileStage};
use pumice_transport::mrc::congestion::{NSCC_NAME, NsccParameters};
use pumice_transport::mrc::paths::{EvField, PathState};

use super::control::device_of;
use crate::abi::{
    mrc_context, mrc_ctl_cc_nscc_cfg, mrc_ctl_cc_profile_attr, mrc_ctl_ev, mrc_ctl_ev_field,
    mrc_ctl_ev_fmt_field, mrc_ctl_ev_fmt_profile_attr, mrc_ctl_ev_op_entry, mrc_ctl_ev_profile_attr,
};
use crate::entry::arguments::{Array, In, InOut, OutArray, Text};
use crate::entry::number_of;
use crate::gate::CallSubject;
use crate::platform::{Errno, INVALID};

/// Bits of masks that all kinds of profiles have.
const STATE: c_int = 1;
const CUR_STATE: c_int = 1 << 1;
const VENDOR_CFG: c_int = c_int::MIN;
/// Bits of formats.
const FORMAT_MODE: c_int = 1 << 2;
const FORMAT_OP: c_int = 1 << 3;
/// Bits of profiles of entropy values.
const EV_MODE: c_int = 1 << 2;
const EV_FMT_ID: c_int = 1 << 3;
const EV_COUNT: c_int = 1 << 4;
const EV_MIN_ACTIVE: c_int = 1 << 5;
const EV_EVENT_MASK: c_int = 1 << 6;
const EV_OP: c_int = 1 << 7;
const EV_FIELDS_OP: c_int = 1 << 8;
/// Bits of profiles of congestion control.
const CC_ALGORITHM: c_int = 1 << 2;
const CC_CONFIG: c_int = 1 << 3;
/// Operations on fields.
const MODIFY_FIELDS: u32 = 0;
const QUERY_FIELDS: u32 = 1;
/// Operations on values.
const REPLACE_EV: u32 = 0;
const MODIFY_EV_STATE: u32 = 1;
const QUERY_EV_STATE: u32 = 2;
const QUERY_EV_ARRAY: u32 = 3;
/// The flag of an entry that is about all equal values.
const ALL_COPIES: u32 = 1;
/// The error of an array that is too small: the needed number is returned in its place.
const TOO_SMALL: Errno = Errno(libc::E2BIG);

fn check_mask(mask: c_int, known: c_int) -> Result<(), Errno> {
    match mask & !(known | STATE | CUR_STATE | VENDOR_CFG) {
        0 => Ok(()),
        unknown => Err(INVALID.because(|| format!("attribute mask {unknown:#x} of a profile is not known"))),
    }
}

fn stage_of(number: u32, mask: c_int) -> Result<Option<ProfileStage>, Errno> {
    if mask & STATE == 0 {
        return Ok(None);
    }
    let unknown = || INVALID.because(|| format!("there is no profile state {number}"));
    ProfileStage::of_number(number).map(Some).ok_or_else(unknown)
}

/// Returns the number of elements of an array.
fn count_of(count: c_int) -> Result<usize, Errno> {
    usize::try_from(count).map_err(|_| INVALID.because(|| format!("a number of elements is {count}")))
}

/// Checks that a program has asked for the present stage only if it is the one that it believes.
fn check_current(hca_stage: ProfileStage, believed: u32, mask: c_int) -> Result<(), Errno> {
    if mask & CUR_STATE == 0 || believed == hca_stage as u32 {
        return Ok(());
    }
    Err(INVALID
        .because(|| format!("the profile is {}, and cur_profile_state says {believed}", hca_stage.name())))
}

pub(crate) extern "C" fn mrc_ctl_modify_ev_fmt_profile(
    context: *mut mrc_context,
    id: u64,
    attr: In<'_, mrc_ctl_ev_fmt_profile_attr>,
    mask: c_int,
) -> c_int {
    number_of(Call::mrc_ctl_modify_ev_fmt_profile, CallSubject::on(context), || {
        check_mask(mask, FORMAT_MODE | FORMAT_OP)?;
        let (hca, given) = (device_of(context)?, attr.get()?);
        check_current(hca.mrc_format(id).stage, given.cur_profile_state, mask)?;
        // Programs set the fields together with the mode, too, as the examples for this API do.
        let op = &given.ev_fmt_op;
        let has_fields = mask & FORMAT_OP != 0 && op.op == MODIFY_FIELDS;
        let widths = has_fields.then(|| {
            // SAFETY: by the program's word this many fields are at the pointer.
            let fields = unsafe { Array::new(op.fmt_fields.cast_const()) };
            Ok::<_, Errno>(
                fields.get(count_of(op.fmt_field_count)?)?.iter().map(|field| field.width).collect(),
            )
        });
        hca.change_mrc_format(
            id,
            &FormatChange {
                stage: stage_of(given.profile_state, mask)?,
                mode: (mask & FORMAT_MODE != 0).then_some(given.ev_fmt_mode),
                widths: widths.transpose()?,
            },
        )?;
        Ok(0)
    })
}

pub(crate) extern "C" fn mrc_ctl_query_ev_fmt_profile(
    context: *mut mrc_context,
    id: u64,
    attr: InOut<'_, mrc_ctl_ev_fmt_profile_attr>,
    mask: c_int,
) -> c_int {
    number_of(Call::mrc_ctl_query_ev_fmt_profile, CallSubject::on(context), || {
        check_mask(mask, FORMAT_MODE | FORMAT_OP)?;
        let (format, target) = (device_of(context)?.mrc_format(id), attr.get()?);
        (target.profile_state, target.cur_profile_state) = (format.stage as u32, format.stage as u32);
        if mask & FORMAT_MODE != 0 {
            target.ev_fmt_mode = format.mode.map_or(0, |mode| mode as u32);
        }
        if mask & FORMAT_OP != 0 {
            let op = &mut target.ev_fmt_op;
            let room = count_of(op.fmt_field_count)?;
            op.fmt_field_count = format.widths.len() as c_int;
            if room < format.widths.len() {
                return Err(TOO_SMALL);
            }
            if !format.widths.is_empty() {
                // SAFETY: by the program's word there is room for this many fields.
                let mut out = unsafe { OutArray::new(op.fmt_fields) }.elements(room)?;
                format.widths.iter().for_each(|width| {
                    out.put(mrc_ctl_ev_fmt_field { width: *width });
                });
            }
        }
        Ok(0)
    })
}

/// Returns the name of a value: the first four bytes are the number, in the host's order.
pub(super) fn name_of(ev: &mrc_ctl_ev) -> Result<EvName, Errno> {
    let [a, b, c, d, rest @ ..] = ev.val;
    if rest.iter().any(|byte| *byte != 0) {
        return Err(
            INVALID.because(|| "an entropy value has 32 bits, and the bytes behind them are 0".to_owned())
        );
    }
    Ok(EvName { value: u32::from_ne_bytes([a, b, c, d]), port: ev.port })
}

/// Returns a value for the program.
pub(super) fn ev_of(name: EvName) -> mrc_ctl_ev {
    let mut val = [0; 32];
    for (target, byte) in val.iter_mut().zip(name.value.to_ne_bytes()) {
        *target = byte;
    }
    mrc_ctl_ev { val, port: name.port }
}

/// Returns the number of a state for the program: a skipped value is good.
pub(super) const fn number_of_state(state: PathState) -> u32 {
    match state {
        PathState::Good | PathState::Skip => 1,
        PathState::AssumedBad => 2,
        PathState::Denied => 4,
    }
}

fn state_of(number: u32) -> Result<PathState, Errno> {
    match number {
        1 => Ok(PathState::Good),
        2 => Ok(PathState::AssumedBad),
        4 => Ok(PathState::Denied),
        other => Err(INVALID.because(|| format!("there is no state {other:#x} of an entropy value"))),
    }
}

/// Executes the entries of an operation one by one; the first error ends it.
fn change_values(hca: &Hca, id: u64, op: u32, entries: &[mrc_ctl_ev_op_entry]) -> Result<(), Errno> {
    for entry in entries {
        let (name, all) = (name_of(&entry.ev)?, entry.flags & ALL_COPIES != 0);
        match op {
            REPLACE_EV => {
                let new = name_of(&entry.ev_new)?;
                hca.replace_mrc_ev(id, (name, new), state_of(entry.state)?, all)?;
            }
            _ => hca.set_mrc_ev_state(id, name, state_of(entry.state)?, all)?,
        }
    }
    Ok(())
}

pub(crate) extern "C" fn mrc_ctl_modify_ev_profile(
    context: *mut mrc_context,
    id: u64,
    attr: In<'_, mrc_ctl_ev_profile_attr>,
    mask: c_int,
) -> c_int {
    number_of(Call::mrc_ctl_modify_ev_profile, CallSubject::on(context), || {
        let (op, fields) = (EV_OP, EV_FIELDS_OP);
        check_mask(mask, EV_MODE | EV_FMT_ID | EV_COUNT | EV_MIN_ACTIVE | EV_EVENT_MASK | op | fields)?;
        if mask & op != 0 && mask & fields != 0 {
            return Err(INVALID.because(|| "EV_OP and EV_FIELDS_OP are for calls of their own".to_owned()));
        }
        let (hca, given) = (device_of(context)?, attr.get()?);
        check_current(hca.mrc_evs(id).stage, given.cur_profile_state, mask)?;
        let has = |bit: c_int| mask & bit != 0;
        let stage = stage_of(given.profile_state, mask)?;
        let of_values = has(op).then_some(&given.ev_op);
        if of_values.is_some_and(|values| !matches!(values.op, REPLACE_EV | MODIFY_EV_STATE)) {
            return Err(INVALID.because(|| "this operation on values is a query".to_owned()));
        }
        let change = EvChange {
            // With values, the step comes behind them.
            stage: stage.filter(|_| of_values.is_none()),
            mode: has(EV_MODE).then_some(given.ev_mode),
            format: has(EV_FMT_ID).then_some(given.ev_fmt_profile_id),
            count: has(EV_COUNT).then_some(given.ev_count),
            min_active: has(EV_MIN_ACTIVE).then_some(given.ev_min_active),
            event_mask: has(EV_EVENT_MASK).then_some(given.ev_event_mask as u32),
            fields: match has(fields) && given.ev_fields_op.op == MODIFY_FIELDS {
                false => None,
                true => {
                    // SAFETY: by the program's word this many fields are at the pointer.
                    let array = unsafe { Array::new(given.ev_fields_op.fields.cast_const()) };
                    let all = array.get(count_of(given.ev_fields_op.field_count)?)?;
                    Some(all.iter().map(field_from).collect())
                }
            },
        };
        hca.change_mrc_evs(id, &change)?;
        if let Some(values) = of_values {
            // SAFETY: by the program's word this many entries are at the pointer.
            let entries = unsafe { Array::new(values.entries.cast_const()) };
            change_values(&hca, id, values.op, entries.get(count_of(values.entry_count)?)?)?;
            if stage.is_some() {
                hca.change_mrc_evs(id, &EvChange { stage, ..EvChange::default() })?;
            }
        }
        Ok(0)
    })
}

fn field_from(c: &mrc_ctl_ev_field) -> EvField {
    EvField {
        width: c.width,
        init_value: c.init_val,
        min_value: c.min_val,
        max_value: c.max_val,
        mask: c.mask,
    }
}

fn field_to(field: &EvField) -> mrc_ctl_ev_field {
    mrc_ctl_ev_field {
        width: field.width,
        init_val: field.init_value,
        min_val: field.min_value,
        max_val: field.max_value,
        mask: field.mask,
    }
}

/// Answers a query about values.
fn query_values(target: &mut mrc_ctl_ev_profile_attr, record: &EvRecord) -> Result<(), Errno> {
    let op = &mut target.ev_op;
    let count = count_of(op.entry_count)?;
    match op.op {
        QUERY_EV_STATE => {
            // SAFETY: by the program's word this many entries are at the pointer, and only this call accesses
            // them until it returns.
            let entries = unsafe { Array::new(op.entries.cast_const()) }.get(count)?.to_vec();
            // SAFETY: as above.
            let mut out = unsafe { OutArray::new(op.entries) }.elements(count.max(1))?;
            for entry in entries {
                let first = record.slots_of(name_of(&entry.ev)?, false)?;
                let slot = first.first().and_then(|index| record.slots.get(*index)).ok_or(INVALID)?;
                out.put(mrc_ctl_ev_op_entry { state: number_of_state(slot.state), ..entry });
            }
        }
        QUERY_EV_ARRAY => {
            op.entry_count = record.slots.len() as c_int;
            if count < record.slots.len() {
                return Err(TOO_SMALL);
            }
            // SAFETY: by the program's word there is room for this many entries.
            let mut out = unsafe { OutArray::new(op.entries) }.elements(count)?;
            for slot in &record.slots {
                let (ev, state) = (ev_of(slot.name), number_of_state(slot.state));
                out.put(mrc_ctl_ev_op_entry { ev, state, ..mrc_ctl_ev_op_entry::default() });
            }
        }
        other => return Err(INVALID.because(|| format!("operation {other} on values is no query"))),
    }
    Ok(())
}

pub(crate) extern "C" fn mrc_ctl_query_ev_profile(
    context: *mut mrc_context,
    id: u64,
    attr: InOut<'_, mrc_ctl_ev_profile_attr>,
    mask: c_int,
) -> c_int {
    number_of(Call::mrc_ctl_query_ev_profile, CallSubject::on(context), || {
        let (op, fields) = (EV_OP, EV_FIELDS_OP);
        check_mask(mask, EV_MODE | EV_FMT_ID | EV_COUNT | EV_MIN_ACTIVE | EV_EVENT_MASK | op | fields)?;
        let (record, target) = (device_of(context)?.mrc_evs(id), attr.get()?);
        (target.profile_state, target.cur_profile_state) = (record.stage as u32, record.stage as u32);
        target.ev_mode = record.mode.map_or(0, |mode| mode as u32);
        target.ev_fmt_profile_id = record.format.unwrap_or_default();
        target.ev_count = record.slots.len() as u32;
        target.ev_min_active = record.min_active.unwrap_or_default();
        target.ev_event_mask = record.event_mask.unwrap_or_default() as c_int;
        if mask & op != 0 {
            query_values(target, &record)?;
        }
        if mask & fields != 0 && target.ev_fields_op.op == QUERY_FIELDS {
            let own = &mut target.ev_fields_op;
            let room = count_of(own.field_count)?;
            own.field_count = record.fields.len() as c_int;
            if room < record.fields.len() {
                return Err(TOO_SMALL);
            }
            if !record.fields.is_empty() {
                // SAFETY: by the program's word there is room for this many fields.
                let mut out = unsafe { OutArray::new(own.fields) }.elements(room)?;
                record.fields.iter().for_each(|field| {
                    out.put(field_to(field));
                });
            }
        }
        Ok(0)
    })
}

/// Rate by which the defaults of congestion control are computed: 100 Gb/s, in bytes per ns.
const REFERENCE_RATE: f64 = 12.5;
/// Payload bytes of a packet for the defaults; a queue pair uses its own.
const REFERENCE_MTU: u32 = 4096;

/// Returns the configuration of NSCC. A value of 0 leaves the default.
fn nscc_from(c: &mrc_ctl_cc_nscc_cfg) -> Result<NsccParameters, Errno> {
    let floats = [c.eta, c.fi, c.fi_scale, c.gamma, c.max_md_jump];
    if floats.iter().any(|float| !float.is_finite() || *float < 0.0) {
        return Err(INVALID.because(|| "a factor of NSCC is negative, or no number".to_owned()));
    }
    let base_rtt_ns = if c.base_rtt == 0 { 50_000 } else { u64::from(c.base_rtt) };
    let mut parameters = NsccParameters::new(REFERENCE_MTU, REFERENCE_RATE, base_rtt_ns, false);
    for (target, given) in [
        (&mut parameters.eta, c.eta),
        (&mut parameters.fi, c.fi),
        (&mut parameters.fi_scale, c.fi_scale),
        (&mut parameters.gamma, c.gamma),
        (&mut parameters.max_md_jump, c.max_md_jump),
    ] {
        if given != 0.0 {
            *target = given.into();
        }
    }
    for (target, given) in [
        (&mut parameters.adjust_bytes, c.adjust_bytes_threshold),
        (&mut parameters.adjust_period_ns, c.adjust_period_threshold),
        (&mut parameters.qa_threshold_ns, c.qa_threshold),
        (&mut parameters.target_delay_ns, c.target_delay),
    ] {
        if given != 0 {
            *target = given.into();
        }
    }
    if c.disable_qa != 0 {
        parameters.qa_gate = None;
    } else if c.qa_gate != 0 {
        parameters.qa_gate = Some(c.qa_gate.min(63));
    }
    if c.max_cwnd != 0 {
        parameters.max_cwnd = Some(c.max_cwnd.into());
    }
    Ok(parameters)
}

fn nscc_to(parameters: &NsccParameters) -> mrc_ctl_cc_nscc_cfg {
    let short = |ns: u64| u32::try_from(ns).unwrap_or(u32::MAX);
    mrc_ctl_cc_nscc_cfg {
        disable_qa: parameters.qa_gate.is_none().into(),
        adjust_bytes_threshold: short(parameters.adjust_bytes),
        adjust_period_threshold: short(parameters.adjust_period_ns),
        base_rtt: short(parameters.base_rtt_ns),
        eta: parameters.eta as f32,
        fi: parameters.fi as f32,
        fi_scale: parameters.fi_scale as f32,
        gamma: parameters.gamma as f32,
        max_md_jump: parameters.max_md_jump as f32,
        max_cwnd: parameters.max_cwnd.map_or(0, short),
        qa_gate: parameters.qa_gate.unwrap_or_default(),
        qa_threshold: short(parameters.qa_threshold_ns),
        target_delay: short(parameters.target_delay_ns),
    }
}

/// Returns the name of an algorithm that a program gives.
fn algorithm_from(name: *const c_char) -> Result<Option<String>, Errno> {
    // SAFETY: the pointer is NULL or to a string of the program.
    let text: Option<&CStr> = unsafe { Text::new(name) }.optional();
    text.map(|name| name.to_str().map(str::to_owned).map_err(|_| INVALID)).transpose()
}

pub(crate) extern "C" fn mrc_ctl_modify_cc_profile(
    context: *mut mrc_context,
    id: u64,
    attr: In<'_, mrc_ctl_cc_profile_attr>,
    mask: c_int,
) -> c_int {
    number_of(Call::mrc_ctl_modify_cc_profile, CallSubject::on(context), || {
        check_mask(mask, CC_ALGORITHM | CC_CONFIG)?;
        let (hca, given) = (device_of(context)?, attr.get()?);
        let before = hca.mrc_cc(id);
        check_current(before.stage, given.cur_profile_state, mask)?;
        let algorithm = match mask & CC_ALGORITHM {
            0 => None,
            _ => Some(algorithm_from(given.algorithm)?),
        };
        let name = algorithm.clone().unwrap_or(before.algorithm);
        let config = match (mask & CC_CONFIG, name.as_deref()) {
            (0, _) | (_, None) => None,
            (_, Some(NSCC_NAME)) => {
                // SAFETY: the configuration of this algorithm is this structure.
                let config = unsafe { In::new(given.cc_config.cast::<mrc_ctl_cc_nscc_cfg>()) };
                Some(nscc_from(config.get()?)?)
            }
            (_, Some(other)) => {
                let what = format!("algorithm {other}: the device has {NSCC_NAME}");
                return Err(INVALID.because(|| what));
            }
        };
        hca.change_mrc_cc(id, &CcChange { stage: stage_of(given.profile_state, mask)?, algorithm, config })?;
        Ok(0)
    })
}

pub(crate) extern "C" fn mrc_ctl_query_cc_profile(
    context: *mut mrc_context,
    id: u64,
    attr: InOut<'_, mrc_ctl_cc_profile_attr>,
    mask: c_int,
) -> c_int {
    number_of(Call::mrc_ctl_query_cc_profile, CallSubject::on(context), || {
        check_mask(mask, CC_ALGORITHM | CC_CONFIG)?;
        let (profile, target) = (device_of(context)?.mrc_cc(id), attr.get()?);
        (target.profile_state, target.cur_profile_state) = (profile.stage as u32, profile.stage as u32);
        if mask & CC_ALGORITHM != 0 {
            target.algorithm =
                if profile.algorithm.is_some() { c"uet-1.0-nscc".as_ptr() } else { ptr::null() };
        }
        if let (true, Some(config)) = (mask & CC_CONFIG != 0, &profile.config) {
            // SAFETY: the program's room for the configuration of this algorithm is this structure.
            let out = unsafe { InOut::new(target.cc_config.cast_mut().cast::<mrc_ctl_cc_nscc_cfg>()) };
            *out.get()? = nscc_to(config);
        }
        Ok(0)
    })
}
