//! Attributes of completion queues and of a queue pair's packets in the API of mlx5.

use std::ffi::c_int;

use pumice_calls::Call;
use pumice_device::outside::environment;

use super::super::completion_queue_ex::create;
use super::mlx5::{CQE_FORMATS, check_mlx5, mlx5_of, serves};
use crate::abi::{ibv_context, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_qp, mlx5dv_cq_init_attr};
use crate::entry::arguments::{In, Out};
use crate::entry::handles::live;
use crate::entry::outcome::{pointer_about, status_of};
use crate::entry::unsupported;
use crate::gate::CallSubject;
use crate::objects::queue_pair::Qp;
use crate::platform::errno::{Errno, INVALID, NOT_SUPPORTED};

/// Bits of `MLX5DV_CQ_INIT_ATTR_MASK_*`: a format for compression, flags, bytes of an entry.
const MASK_COMPRESSED: u64 = 1;
const MASK_FLAGS: u64 = 1 << 1;
const MASK_CQE_SIZE: u64 = 1 << 2;
const MASK_KNOWN: u64 = MASK_COMPRESSED | MASK_FLAGS | MASK_CQE_SIZE;
/// The flag `MLX5DV_CQ_INIT_ATTR_FLAGS_CQE_PAD`: entries of 128 bytes are written whole.
const PAD: u32 = 1;
/// Lengths in bytes that an entry may have, the usual one first.
const CQE_BYTES: [u16; 2] = [64, 128];
/// Variable with which users choose the length of an entry, where the program does not.
const CQE_SIZE_VARIABLE: &str = "MLX5_CQE_SIZE";

/// Checks the attributes that a program asks for. None has an effect: programs read completions through
/// calls.
///
/// # Errors
/// Fails with EINVAL where mlx5 refuses.
fn check(wanted: Option<&mlx5dv_cq_init_attr>) -> Result<(), Errno> {
    let call = Call::mlx5dv_create_cq;
    let given = |bit| wanted.filter(|wanted| wanted.comp_mask & bit != 0);
    let invalid = |what: String| Err(INVALID.because(|| format!("{call} refused: {what}")));
    if wanted.is_some_and(|wanted| wanted.comp_mask & !MASK_KNOWN != 0) {
        return invalid("its comp_mask has bits that are not known".to_owned());
    }
    if let Some(format) = given(MASK_COMPRESSED).map(|wanted| wanted.cqe_comp_res_format)
        && (!format.is_power_of_two() || format & !CQE_FORMATS != 0)
    {
        return invalid(format!("cqe_comp_res_format {format:#x} is not one MLX5DV_CQE_RES_FORMAT_*"));
    }
    let chosen = given(MASK_CQE_SIZE).map(|wanted| wanted.cqe_size.to_string());
    let chosen = chosen.or_else(|| Some(environment::variable(CQE_SIZE_VARIABLE)?.to_string_lossy().into()));
    let bytes = chosen.as_ref().map_or(CQE_BYTES.first().copied(), |chosen| {
        CQE_BYTES.into_iter().find(|bytes| bytes.to_string() == *chosen)
    });
    let Some(bytes) = bytes else {
        let chosen = chosen.unwrap_or_default();
        return invalid(format!(
            "an entry has 64 or 128 bytes, not {chosen} (cqe_size or {CQE_SIZE_VARIABLE})"
        ));
    };
    let flags = given(MASK_FLAGS).map_or(0, |wanted| wanted.flags);
    if flags & !PAD != 0 {
        return invalid(format!("flags {flags:#x} has bits that are not known"));
    }
    if flags & PAD != 0 && bytes != 128 {
        return invalid("only entries of 128 bytes are padded: set cqe_size to 128".to_owned());
    }
    Ok(())
}

pub(crate) extern "C" fn mlx5dv_create_cq(
    context: *mut ibv_context,
    cq_attr: In<'_, ibv_cq_init_attr_ex>,
    mlx5_cq_attr: In<'_, mlx5dv_cq_init_attr>,
) -> *mut ibv_cq_ex {
    let call = Call::mlx5dv_create_cq;
    if !serves() {
        return unsupported::null(call, "").cast();
    }
    pointer_about(call, CallSubject::on(context), || {
        mlx5_of(context)?;
        check(mlx5_cq_attr.optional())?;
        create(context, cq_attr.get()?)
    })
}

/// Sets the UDP port that packets leave from, by which switches spread flows.
pub(crate) extern "C" fn mlx5dv_modify_qp_udp_sport(qp: *mut ibv_qp, udp_sport: u16) -> c_int {
    let call = Call::mlx5dv_modify_qp_udp_sport;
    if !serves() {
        return unsupported::int(call, "");
    }
    status_of(call, Qp::about(qp), || {
        let held = live::<Qp>(qp)?;
        check_mlx5(&*held.context()?)?;
        if held.hca().set_source_port(held.number(), udp_sport) {
            return Ok(());
        }
        Err(NOT_SUPPORTED.because(|| {
            format!(
                "{call} refused: it needs a queue pair of RC or UC in RTS, and a port that no other socket \
                 of this host has"
            )
        }))
    })
}

/// Returns the number of ports of the bond that the device of a queue pair looks like.
///
/// # Errors
/// Fails with EOPNOTSUPP if it looks like none, or is not of mlx5.
fn bond_of(call: Call, qp: &Qp) -> Result<u8, Errno> {
    let open = qp.context()?;
    check_mlx5(&open)?;
    match open.device().profile().lag_ports {
        0 | 1 => Err(NOT_SUPPORTED.because(|| {
            format!("{call} refused: the device looks like no bond; its profile may say lag_ports = 2")
        })),
        ports => Ok(ports),
    }
}

/// Returns the port of a bond that a queue pair is to use, and the one that it uses: all are up.
pub(crate) extern "C" fn mlx5dv_query_qp_lag_port(
    qp: *mut ibv_qp,
    port_num: Out<'_, u8>,
    active_port_num: Out<'_, u8>,
) -> c_int {
    let call = Call::mlx5dv_query_qp_lag_port;
    if !serves() {
        return unsupported::int(call, "");
    }
    status_of(call, Qp::about(qp), || {
        let held = live::<Qp>(qp)?;
        let port = held.lag_port(bond_of(call, &held)?);
        let (chosen, active) = (port_num.required()?, active_port_num.required()?);
        chosen.set(port);
        active.set(port);
        Ok(())
    })
}

/// Sets the port of a bond that a queue pair is to use. Here its packets use the only port.
pub(crate) extern "C" fn mlx5dv_modify_qp_lag_port(qp: *mut ibv_qp, port_num: u8) -> c_int {
    let call = Call::mlx5dv_modify_qp_lag_port;
    if !serves() {
        return unsupported::int(call, "");
    }
    status_of(call, Qp::about(qp), || {
        let held = live::<Qp>(qp)?;
        let ports = bond_of(call, &held)?;
        if port_num == 0 || port_num > ports {
            return Err(INVALID.because(|| {
                format!("{call} refused: the bond has the ports 1 to {ports}, and no port {port_num}")
            }));
        }
        held.choose_lag_port(port_num);
        Ok(())
    })
}
