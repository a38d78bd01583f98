//! The call `ibv_open_qp`: another queue pair object for an XRC target that exists.

use pumice_calls::Call;
use pumice_transport::wire::Qpn;

use super::queue_pair::open_target;
use crate::abi::{ibv_context, ibv_qp, ibv_qp_open_attr};
use crate::entry::arguments::In;
use crate::entry::handles::live;
use crate::entry::outcome::pointer_about;
use crate::gate::CallSubject;
use crate::log::refusal::check_mask;
use crate::objects::context::Context;
use crate::objects::xrc_domain::Xrcd;
use crate::platform::errno::INVALID;

/// Bits of `ibv_qp_open_attr.comp_mask`.
const MASK_NUMBER: u32 = 1;
const MASK_XRCD: u32 = 1 << 1;
const MASK_CONTEXT: u32 = 1 << 2;
const MASK_TYPE: u32 = 1 << 3;
const MASK_KNOWN: u32 = (1 << 4) - 1;

/// The value `IBV_QPT_XRC_RECV`.
const XRC_RECV: u32 = 10;

pub(crate) extern "C" fn open_qp(context: *mut ibv_context, attr: In<'_, ibv_qp_open_attr>) -> *mut ibv_qp {
    pointer_about(Call::ibv_open_qp, CallSubject::on(context), || {
        let (open, attributes) = (Context::of(context)?, attr.get()?);
        let mask = attributes.comp_mask;
        let needed = MASK_NUMBER | MASK_XRCD | MASK_TYPE;
        check_mask(Call::ibv_open_qp, mask, MASK_KNOWN)?;
        if mask & needed != needed || attributes.qp_type != XRC_RECV {
            return Err(INVALID);
        }
        if attributes.qp_num > 0xff_ffff {
            return Err(INVALID);
        }
        let domain = live::<Xrcd>(attributes.xrcd)?;
        open.check_same("XRC domain", &*domain.context()?)?;
        let qp_context = if mask & MASK_CONTEXT != 0 { attributes.qp_context } else { std::ptr::null_mut() };
        let number = Qpn::new(attributes.qp_num);
        let state = open.hca().query_target(domain.handle(), number)?.qp_state;
        open_target(context, domain.handle(), number, qp_context, state)
    })
}
