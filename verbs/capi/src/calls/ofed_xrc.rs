//! XRC of OFED 1.x: receive queue pairs without an object. Their number and domain name them, and they live
//! as long as a process is registered. `include/pumice/ofed_xrc.h` is the header.

use std::ffi::c_int;

use pumice_calls::Call;
use pumice_device::hca::{QpInit, TargetRegistration};
use pumice_transport::qp::AttributeMask;
use pumice_transport::types::{QpCapacity, QpType};
use pumice_transport::wire::Qpn;

use super::queue_pair_attributes::{attributes_to, read_attributes, write_attributes};
use super::shared_receive_queue;
use crate::abi::zeroed::zeroed;
use crate::abi::{
    QPT_XRC, ibv_cq, ibv_pd, ibv_qp_attr, ibv_qp_init_attr, ibv_srq, ibv_srq_init_attr, ibv_xrcd,
    ofed_qp_init_attr,
};
use crate::entry::arguments::{In, InOut, Out};
use crate::entry::handles::live;
use crate::entry::outcome::{pointer_about, status, status_of};
use crate::gate::CallSubject;
use crate::objects::events::EventSource;
use crate::objects::xrc_domain::Xrcd;
use crate::platform::errno::{Errno, INVALID};

fn number_of(xrc_qp_num: u32) -> Result<Qpn, Errno> {
    if xrc_qp_num > 0xff_ffff { Err(INVALID) } else { Ok(Qpn::new(xrc_qp_num)) }
}

/// Creates a receive queue pair; the context is its first registered user. Only the domain of `init_attr`,
/// which has OFED 1.x's length, is used.
pub(crate) extern "C" fn ibv_create_xrc_rcv_qp(
    init_attr: In<'_, ofed_qp_init_attr>,
    xrc_rcv_qpn: Out<'_, u32>,
) -> c_int {
    status(Call::ibv_create_xrc_rcv_qp, || {
        let (init, number_target) = (init_attr.get()?, xrc_rcv_qpn.required()?);
        let domain = live::<Xrcd>(init.xrc_domain)?;
        let context = domain.context()?;
        let source = EventSource::of_number(domain.context_pointer());
        let made = context.hca().create_qp(&QpInit {
            qp_type: QpType::XrcTarget,
            pd: None,
            send_cq: None,
            recv_cq: None,
            srq: None,
            xrcd: Some(domain.handle()),
            capacity: QpCapacity::default(),
            signal_all: false,
            cookie: source.cookie(),
        });
        let (number, _) = made?;
        // An event that was queued already shows the number that it has when the program gets it.
        source.set_number(number);
        context.registered(TargetRegistration::of_creator(number), source);
        number_target.set(number.value());
        Ok(())
    })
}

pub(crate) extern "C" fn ibv_modify_xrc_rcv_qp(
    xrc_domain: *mut ibv_xrcd,
    xrc_qp_num: u32,
    attr: In<'_, ibv_qp_attr>,
    attr_mask: c_int,
) -> c_int {
    status_of(Call::ibv_modify_xrc_rcv_qp, CallSubject::on(xrc_domain), || {
        let domain = live::<Xrcd>(xrc_domain)?;
        let mask = AttributeMask::from_bits_retain(attr_mask as u32);
        let attributes = read_attributes(attr, mask)?;
        let number = number_of(xrc_qp_num)?;
        Ok(domain.context()?.hca().modify_target(domain.handle(), number, &attributes, mask)?)
    })
}

/// Returns all attributes; the mask is a hint.
pub(crate) extern "C" fn ibv_query_xrc_rcv_qp(
    xrc_domain: *mut ibv_xrcd,
    xrc_qp_num: u32,
    attr: Out<'_, ibv_qp_attr>,
    attr_mask: c_int,
    init_attr: Out<'_, ofed_qp_init_attr>,
) -> c_int {
    status_of(Call::ibv_query_xrc_rcv_qp, CallSubject::on(xrc_domain), || {
        let domain = live::<Xrcd>(xrc_domain)?;
        let (attr, init_attr) = (attr.required()?, init_attr.required()?);
        let number = number_of(xrc_qp_num)?;
        let attributes = domain.context()?.hca().query_target(domain.handle(), number)?;
        let c = attributes_to(&attributes);
        let mut base: ibv_qp_init_attr = zeroed();
        base.cap = c.cap;
        base.qp_type = QPT_XRC;
        write_attributes(&attr, &c, attr_mask);
        init_attr.set(ofed_qp_init_attr { base, xrc_domain });
        Ok(())
    })
}

/// Registers a user; registering twice is the same as once.
pub(crate) extern "C" fn ibv_reg_xrc_rcv_qp(xrc_domain: *mut ibv_xrcd, xrc_qp_num: u32) -> c_int {
    status_of(Call::ibv_reg_xrc_rcv_qp, CallSubject::on(xrc_domain), || {
        let domain = live::<Xrcd>(xrc_domain)?;
        let (context, number) = (domain.context()?, number_of(xrc_qp_num)?);
        context.hca().query_target(domain.handle(), number)?;
        if context.is_registered(number) {
            return Ok(());
        }
        let source = EventSource::of_number(domain.context_pointer());
        source.set_number(number);
        let opened = context.hca().open_target(domain.handle(), number, source.cookie())?;
        context.registered(opened, source);
        Ok(())
    })
}

/// Removes a user; the last one destroys the queue pair.
pub(crate) extern "C" fn ibv_unreg_xrc_rcv_qp(xrc_domain: *mut ibv_xrcd, xrc_qp_num: u32) -> c_int {
    status_of(Call::ibv_unreg_xrc_rcv_qp, CallSubject::on(xrc_domain), || {
        let domain = live::<Xrcd>(xrc_domain)?;
        let (context, number) = (domain.context()?, number_of(xrc_qp_num)?);
        context.hca().query_target(domain.handle(), number)?;
        //= statement:48
        //| A receive queue pair lives until the last registration is ended.
        let (registration, source) = context.unregistered(number).ok_or(INVALID)?;
        // The peer gets the acknowledgements that it is owed before they can no longer be made.
        context.hca().drive_out();
        context.hca().close_target(registration)?;
        context.forget_events(&source);
        Ok(())
    })
}

pub(crate) extern "C" fn ibv_create_xrc_srq(
    pd: *mut ibv_pd,
    xrc_domain: *mut ibv_xrcd,
    xrc_cq: *mut ibv_cq,
    srq_init_attr: InOut<'_, ibv_srq_init_attr>,
) -> *mut ibv_srq {
    pointer_about(Call::ibv_create_xrc_srq, CallSubject::on(pd), || {
        let init = srq_init_attr.get()?;
        shared_receive_queue::create(pd, init.srq_context, &mut init.attr, Some((xrc_domain, xrc_cq)), None)
    })
}
