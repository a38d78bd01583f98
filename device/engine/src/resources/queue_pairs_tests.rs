//! Attaching and detaching queue pairs.

use pumice_memory::MappingCheck;
use pumice_platform::limits::Limits;
use pumice_transport::types::QpType;

use super::*;
use crate::resources::{CqSetup, SrqSetup};

struct Objects {
    resources: Resources,
    pd: Handle,
    xrcd: Handle,
    cq: Handle,
    other_cq: Handle,
    srq: Handle,
    xrc_srq: Handle,
}

fn objects() -> Objects {
    let mut resources = Resources::new(Limits::default()).unwrap();
    let (pd, xrcd) = (resources.objects.alloc_pd().unwrap(), resources.open_xrcd().unwrap());
    let mut cq = || resources.create_cq(CqSetup { depth: 8, ..CqSetup::default() }).unwrap().handle();
    let (cq, other_cq) = (cq(), cq());
    let srq = SrqSetup { pd, max_wr: 8, max_sge: 1, cookie: 0, xrc: None, tags: None };
    let xrc_srq = resources.create_srq(&SrqSetup { xrc: Some((xrcd, cq)), ..srq }).unwrap();
    let srq = resources.create_srq(&srq).unwrap();
    Objects { resources, pd, xrcd, cq, other_cq, srq, xrc_srq }
}

impl Objects {
    /// Returns a setup with everything that a queue pair could be attached to, but no SRQ.
    fn setup(&self, qp_type: QpType) -> QpSetup {
        QpSetup {
            qpn: Qpn::new(0x01_0011),
            qp_type,
            cookie: 5,
            pd: Some(self.pd),
            send_cq: Some(self.cq),
            recv_cq: Some(self.other_cq),
            srq: None,
            xrcd: Some(self.xrcd),
            capacity: QpCapacity {
                max_send_wr: 4,
                max_recv_wr: 2,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 16,
            },
        }
    }
}

#[test]
fn each_type_is_attached_to_what_it_uses_and_nothing_else() {
    let mut o = objects();
    let (pd, cq, other, xrcd) = (o.pd.index, o.cq.index, o.other_cq.index, o.xrcd.index);
    let none = NO_OBJECT;
    let table = [
        (QpType::Rc, [pd, cq, other, none], [4, 2]),
        (QpType::Uc, [pd, cq, other, none], [4, 2]),
        (QpType::Ud, [pd, cq, other, none], [4, 2]),
        (QpType::XrcDuplex, [pd, cq, none, xrcd], [4, 0]),
        (QpType::XrcInitiator, [pd, cq, none, none], [4, 0]),
        (QpType::XrcTarget, [none, none, none, xrcd], [0, 0]),
    ];
    for (qp_type, objects, depths) in table {
        let setup = o.setup(qp_type);
        let attached = o.resources.attach_qp(&setup).unwrap();
        let context = attached.context;
        assert_eq!([context.pd, context.send_cq, context.recv_cq, context.xrcd], objects, "{qp_type:?}");
        assert_eq!([attached.capacity.max_send_wr, attached.capacity.max_recv_wr], depths);
        assert_eq!(context.recv_queue == NO_OBJECT, depths[1] == 0);
        assert_eq!(o.resources.attach_qp(&setup).unwrap_err().errno(), libc::EINVAL, "number in use");
        o.resources.detach_qp(setup.qpn).unwrap().wait_all_acked();
        assert_eq!(o.resources.detach_qp(setup.qpn).unwrap_err().errno(), libc::EINVAL);
    }
    o.resources.destroy_cq(o.other_cq).unwrap();
    o.resources.destroy_srq(o.xrc_srq).unwrap();
    o.resources.destroy_cq(o.cq).unwrap();
    o.resources.close_xrcd(o.xrcd).unwrap();
}

#[test]
fn missing_wrong_and_oversized_arguments_are_refused() {
    let mut o = objects();
    let (rc, xrc) = (o.setup(QpType::Rc), o.setup(QpType::XrcTarget));
    let size = |change: fn(&mut QpCapacity)| {
        let mut setup = rc;
        change(&mut setup.capacity);
        setup
    };
    let cases = [
        (QpSetup { pd: None, ..rc }, "PD"),
        (QpSetup { send_cq: None, ..rc }, "send_cq"),
        (QpSetup { recv_cq: None, ..rc }, "recv_cq"),
        (QpSetup { srq: Some(o.xrc_srq), ..rc }, "XRC SRQ"),
        (QpSetup { srq: Some(Handle { index: 99, generation: 1 }), ..rc }, "does not exist"),
        (QpSetup { pd: Some(Handle { index: 0, generation: 9 }), ..rc }, "does not exist"),
        (QpSetup { xrcd: None, ..xrc }, "XRC domain"),
        (QpSetup { xrcd: None, qp_type: QpType::XrcDuplex, ..rc }, "XRC domain"),
        (QpSetup { srq: Some(o.srq), ..xrc }, "no SRQ"),
        (QpSetup { send_cq: None, qp_type: QpType::XrcInitiator, ..rc }, "send_cq"),
        (size(|capacity| capacity.max_send_wr = 16_385), "max_send_wr"),
        (size(|capacity| capacity.max_recv_wr = 16_385), "max_recv_wr"),
        (size(|capacity| capacity.max_send_sge = 33), "max_send_sge"),
        (size(|capacity| capacity.max_recv_sge = 33), "max_recv_sge"),
        (size(|capacity| capacity.max_inline_data = 513), "max_inline_data"),
    ];
    for (setup, part) in cases {
        let error = o.resources.attach_qp(&setup).unwrap_err();
        assert_eq!(error.errno(), libc::EINVAL, "{error}");
        assert!(error.to_string().contains(part), "{error}");
    }
    // The failed calls left nothing in use.
    o.resources.destroy_cq(o.other_cq).unwrap();
    o.resources.destroy_srq(o.srq).unwrap();
}

#[test]
fn objects_in_use_stay_and_an_srq_replaces_the_receive_queue() {
    let mut o = objects();
    let setup = QpSetup { srq: Some(o.srq), ..o.setup(QpType::Rc) };
    let attached = o.resources.attach_qp(&setup).unwrap();
    assert_eq!(attached.capacity.max_recv_wr, 0);
    assert!(o.resources.uses_srq(&attached.context));
    let request = RecvRequest { wr_id: 1, sges: &[] };
    assert_eq!(o.resources.post_recv(&attached.context, &request).unwrap_err().errno(), libc::EINVAL);
    assert_eq!(o.resources.destroy_srq(o.srq).unwrap_err().errno(), libc::EBUSY);
    assert_eq!(o.resources.destroy_cq(o.other_cq).unwrap_err().errno(), libc::EBUSY);
    o.resources.detach_qp(setup.qpn).unwrap();
    o.resources.destroy_srq(o.srq).unwrap();
    o.resources.destroy_cq(o.other_cq).unwrap();
}

#[test]
fn a_multicast_member_cannot_be_detached() {
    let mut o = objects();
    let setup = o.setup(QpType::Ud);
    o.resources.attach_qp(&setup).unwrap();
    let gid = pumice_transport::types::Gid::from(std::net::Ipv4Addr::new(239, 1, 1, 1));
    o.resources.port.groups.attach(gid, setup.qpn, QpType::Ud).unwrap();
    assert_eq!(o.resources.detach_qp(setup.qpn).unwrap_err().errno(), libc::EBUSY);
    o.resources.port.groups.detach(gid, setup.qpn, QpType::Ud).unwrap();
    o.resources.detach_qp(setup.qpn).unwrap();
}

#[test]
fn events_carry_the_cookie_and_vanish_with_the_queue_pair() {
    let mut o = objects();
    let setup = o.setup(QpType::Rc);
    let attached = o.resources.attach_qp(&setup).unwrap();
    o.resources.raise_qp_event(setup.qpn, AsyncEventType::CommEst);
    o.resources.raise_qp_event(setup.qpn, AsyncEventType::SqDrained);
    o.resources.raise_qp_event(Qpn::new(0x02_0011), AsyncEventType::CommEst);
    let event = o.resources.port.async_events.try_event().unwrap();
    assert_eq!(event.element, AsyncElement::Qp { qpn: 0x01_0011, cookie: 5 });
    let account = o.resources.detach_qp(setup.qpn).unwrap();
    assert!(Arc::ptr_eq(&account, &attached.account));
    assert!(o.resources.port.async_events.try_event().is_none());
    assert_eq!(account.unacked(), 1);
    event.ack();
    account.wait_all_acked();
}

/// A program that has armed its completion queue sleeps until a message comes, so the message must not be
/// left in the socket.
#[test]
fn a_queue_that_runs_out_is_not_spared_while_its_program_waits_for_an_event() {
    use pumice_transport::host::{Host, RecvWqe};
    let mut o = objects();
    let attached = o.resources.attach_qp(&o.setup(QpType::Ud)).unwrap();
    for wr_id in [1, 2] {
        o.resources.post_recv(&attached.context, &RecvRequest { wr_id, sges: &[] }).unwrap();
    }
    o.resources.note_receives(&attached.context);
    assert!(!o.resources.short_of_receives());
    for _ in 0..2 {
        o.resources
            .host(MappingCheck::Assumed)
            .take_recv(&attached.context, None, &mut RecvWqe::default())
            .unwrap();
    }
    o.resources.note_receives(&attached.context);
    assert!(o.resources.short_of_receives());
    let cq = Arc::clone(o.resources.cq(o.other_cq).unwrap());
    cq.arm(false);
    assert!(!o.resources.short_of_receives(), "its program sleeps");
    let _ = cq.push_of(0, &pumice_transport::types::WorkCompletion::default(), 0, true);
    assert!(o.resources.short_of_receives(), "the event has woken its program, which posts receives now");
}
