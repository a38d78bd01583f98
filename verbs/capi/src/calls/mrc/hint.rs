//! Hints about the queue pairs that a program is about to make. This device needs none: it remembers them.

use std::ffi::c_int;

use pumice_calls::Call;

use super::context_of;
use crate::abi::{mrc_context, mrc_qp_hint, mrc_qp_hint_attr, mrc_qp_hint_init_attr};
use crate::entry::arguments::{In, InOut};
use crate::entry::handles::{hand_out, live, take_back};
use crate::entry::outcome::{number_of, pointer_about};
use crate::gate::CallSubject;
use crate::objects::mrc::MrcHint;
use crate::platform::errno::{Errno, INVALID};

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
