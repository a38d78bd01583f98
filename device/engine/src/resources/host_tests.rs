//! The services of the device for a queue pair's protocol: completions, events, receive requests.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::objects::completion_queue::CompletionQueue;
use crate::objects::srq::SrqChange;
use pumice_memory::MappingCheck;
use pumice_model::event::async_event::AsyncElement;
use pumice_model::event::{Event, Subscriber, Subscribers, Topics};
use pumice_platform::clock::Clock;
use pumice_platform::limits::Limits;
use pumice_platform::table::Handle;
use pumice_transport::event::QpEvent;
use pumice_transport::host::{Counter, Host as _, MemoryError, NoRecv, QpContext, RecvWqe, RemoteKey};
use pumice_transport::types::{
    Access, AsyncEventType, AtomicOperation, Cause, CqUse, QpCapacity, QpType, RecvRequest, Sge, WcStatus,
    WindowBind, WorkCompletion,
};
use pumice_transport::wire::{Psn, Qpn};

use super::host_impl::DeviceHost;
use super::tables::Resources;
use crate::resources::{CqSetup, QpFailure, QpSetup, SrqSetup};

struct Device {
    resources: Resources,
    pd: Handle,
    next_qpn: u32,
}

fn device() -> Device {
    device_with(Subscribers::default())
}

fn device_with(events: Subscribers) -> Device {
    let mut resources = Resources::with_subscribers(Limits::default(), Arc::new(events)).unwrap();
    let pd = resources.objects.alloc_pd().unwrap();
    Device { resources, pd, next_qpn: 0x11 }
}

impl Device {
    fn host(&mut self) -> DeviceHost<'_> {
        self.resources.host(MappingCheck::Assumed)
    }

    fn cq(&mut self, depth: u32) -> Arc<CompletionQueue> {
        let setup = CqSetup { depth, cookie: u64::from(depth), ..CqSetup::default() };
        self.resources.create_cq(setup).unwrap()
    }

    fn qp(&mut self, qp_type: QpType, send_cq: Handle, recv_cq: Handle, srq: Option<Handle>) -> QpContext {
        let qpn = Qpn::new(self.next_qpn);
        self.next_qpn += 1;
        let capacity = QpCapacity { max_recv_wr: 4, max_recv_sge: 1, ..QpCapacity::default() };
        let setup = QpSetup {
            qpn,
            qp_type,
            cookie: u64::from(qpn.value()),
            pd: Some(self.pd),
            send_cq: Some(send_cq),
            recv_cq: Some(recv_cq),
            srq,
            xrcd: None,
            capacity,
        };
        self.resources.attach_qp(&setup).unwrap().context
    }

    fn events(&self) -> Vec<(AsyncEventType, AsyncElement)> {
        let next = || {
            let event = self.resources.port.async_events.try_event()?;
            let seen = (event.event, event.element);
            event.ack();
            Some(seen)
        };
        std::iter::from_fn(next).collect()
    }
}

fn completion(qp: &QpContext, wr_id: u64) -> WorkCompletion {
    WorkCompletion { wr_id, qp_num: qp.qpn.value(), ..WorkCompletion::default() }
}

fn polled(cq: &CompletionQueue) -> Vec<(u64, WcStatus)> {
    let mut out = [WorkCompletion::default(); 16];
    let count = cq.poll(&mut out);
    out[..count].iter().map(|completion| (completion.wr_id, completion.status)).collect()
}

#[test]
fn an_overrun_ruins_every_queue_pair_of_the_queue_once() {
    let mut device = device();
    let (small, large) = (device.cq(1), device.cq(16));
    let first = device.qp(QpType::Rc, small.handle(), large.handle(), None);
    let second = device.qp(QpType::Rc, large.handle(), small.handle(), None);
    let third = device.qp(QpType::Rc, large.handle(), large.handle(), None);
    for wr_id in 1..=3 {
        device.host().complete_send(&first, completion(&first, wr_id), 1);
    }
    let ruined = |qp: &QpContext| {
        let cookie = u64::from(qp.qpn.value());
        (AsyncEventType::QpFatal, AsyncElement::Qp { qpn: qp.qpn.value(), cookie })
    };
    assert_eq!(
        device.events(),
        [(AsyncEventType::CqErr, AsyncElement::Cq { cookie: 1 }), ruined(&first), ruined(&second)]
    );
    let fault = |qp: &QpContext, completes| {
        let cq = small.handle().index;
        QpFailure { qpn: qp.qpn, cause: Cause::CqOverrun { cq, depth: 1, completes } }
    };
    let expected = [fault(&first, CqUse::Sends), fault(&second, CqUse::Receives)];
    assert_eq!(std::mem::take(&mut device.resources.completions.qp_failures), expected);
    assert_eq!(polled(&small), [(1, WcStatus::Success)]);

    // The other completion queue still takes flushed requests.
    device.resources.post_recv(&first, &RecvRequest { wr_id: 9, sges: &[] }).unwrap();
    device.host().flush_recv_queue(&first);
    assert_eq!(polled(&large), [(9, WcStatus::WrFlushErr)]);
    device.host().complete_send(&third, completion(&third, 7), 1);
    assert_eq!(polled(&large), [(7, WcStatus::Success)]);
    assert_eq!((device.events(), device.resources.completions.qp_failures.len()), (vec![], 0));

    // A queue pair that is attached later is failed at its first completion.
    let late = device.qp(QpType::Rc, small.handle(), large.handle(), None);
    device.host().complete_send(&late, completion(&late, 1), 1);
    assert_eq!(
        (device.events(), &device.resources.completions.qp_failures[..]),
        (vec![ruined(&late)], &[fault(&late, CqUse::Sends)][..])
    );
}

#[test]
fn destroying_or_resetting_a_queue_pair_removes_its_completions_and_their_count() {
    let mut device = device();
    let cq = device.cq(16);
    let qp = device.qp(QpType::Rc, cq.handle(), cq.handle(), None);
    let other = device.qp(QpType::Rc, cq.handle(), cq.handle(), None);
    device.resources.post_recv(&qp, &RecvRequest { wr_id: 8, sges: &[] }).unwrap();
    device.host().complete_send(&qp, completion(&qp, 1), 2);
    assert_eq!(polled(&cq).len(), 1);
    assert_eq!(device.resources.completions.cq_common.freed_send_slots.count(qp.qpn.value()), 2);
    device.host().complete_send(&qp, completion(&qp, 2), 1);
    device.host().complete_send(&other, completion(&other, 3), 1);
    device.resources.reset_qp(qp.qpn);
    assert_eq!(device.resources.completions.cq_common.freed_send_slots.count(qp.qpn.value()), 0);
    assert_eq!(device.host().take_recv(&qp, None, &mut RecvWqe::default()), Err(NoRecv::Empty));
    device.host().complete_send(&qp, completion(&qp, 4), 1);
    device.resources.detach_qp(qp.qpn).unwrap();
    assert_eq!(polled(&cq), [(3, WcStatus::Success)]);
}

#[test]
fn receives_come_from_the_queue_or_the_srq_with_their_domain_and_queue() {
    let mut device = device();
    let cq = device.cq(16);
    let srq_pd = device.resources.objects.alloc_pd().unwrap();
    let setup = SrqSetup { pd: srq_pd, max_wr: 4, max_sge: 1, cookie: 44, xrc: None, tags: None };
    let srq = device.resources.create_srq(&setup).unwrap();
    let own = device.qp(QpType::Ud, cq.handle(), cq.handle(), None);
    let sharing = device.qp(QpType::Rc, cq.handle(), cq.handle(), Some(srq));
    let sge = Sge { address: 1, length: 2, lkey: 3 };
    device.resources.post_recv(&own, &RecvRequest { wr_id: 1, sges: &[sge] }).unwrap();
    device.resources.post_srq_recv(srq, &RecvRequest { wr_id: 2, sges: &[sge] }).unwrap();
    device.resources.modify_srq(srq, SrqChange { limit: Some(1), max_wr: None }).unwrap();
    let mut wqe = RecvWqe::default();
    device.host().take_recv(&own, None, &mut wqe).unwrap();
    assert_eq!((wqe.wr_id, wqe.pd, wqe.cq, wqe.length_bytes), (1, device.pd.index, cq.handle().index, 2));
    assert_eq!(device.events(), []);
    device.host().take_recv(&sharing, None, &mut wqe).unwrap();
    assert_eq!((wqe.wr_id, wqe.pd, wqe.cq, &wqe.sges[..]), (2, srq_pd.index, cq.handle().index, &[sge][..]));
    assert_eq!(device.events(), [(AsyncEventType::SrqLimitReached, AsyncElement::Srq { cookie: 44 })]);
    assert_eq!(device.host().take_recv(&sharing, None, &mut wqe), Err(NoRecv::Empty));
    device.resources.post_srq_recv(srq, &RecvRequest { wr_id: 3, sges: &[] }).unwrap();
    device.host().flush_recv_queue(&sharing);
    assert_eq!(device.resources.objects.srq(srq).unwrap().len(), 1, "an SRQ is not flushed");
    assert!(cq.is_empty());
}

#[test]
fn an_xrc_target_finds_the_srqs_of_its_domain_by_number() {
    let mut device = device();
    let cq = device.cq(16);
    let srq = |device: &mut Device| {
        let xrcd = device.resources.open_xrcd().unwrap();
        let xrc = Some((xrcd, cq.handle()));
        let setup = SrqSetup { pd: device.pd, max_wr: 4, max_sge: 1, cookie: 0, xrc, tags: None };
        let srq = device.resources.create_srq(&setup).unwrap();
        (xrcd, srq, device.resources.objects.srq(srq).unwrap().xrc().unwrap().number)
    };
    let (xrcd, srq_handle, number) = srq(&mut device);
    let (_, _, foreign) = srq(&mut device);
    let setup = QpSetup {
        qpn: Qpn::new(0x99),
        qp_type: QpType::XrcTarget,
        cookie: 0,
        pd: None,
        send_cq: None,
        recv_cq: None,
        srq: None,
        xrcd: Some(xrcd),
        capacity: QpCapacity::default(),
    };
    let target = device.resources.attach_qp(&setup).unwrap().context;
    let mut wqe = RecvWqe::default();
    let resources = &mut device.resources;
    assert_eq!(
        resources.host(MappingCheck::Assumed).take_recv(&target, Some(number), &mut wqe),
        Err(NoRecv::Empty)
    );
    resources.post_srq_recv(srq_handle, &RecvRequest { wr_id: 6, sges: &[] }).unwrap();
    assert_eq!(
        resources.host(MappingCheck::Assumed).srq_protection_domain(&target, number),
        Ok(device.pd.index)
    );
    resources.host(MappingCheck::Assumed).take_recv(&target, Some(number), &mut wqe).unwrap();
    assert_eq!((wqe.wr_id, wqe.cq), (6, cq.handle().index));
    for wrong in [foreign, 0, number ^ 0x01_0000, 0xffff, u32::MAX] {
        assert_eq!(
            resources.host(MappingCheck::Assumed).take_recv(&target, Some(wrong), &mut wqe),
            Err(NoRecv::NoSuchSrq),
            "{wrong:#x}"
        );
        assert_eq!(
            resources.host(MappingCheck::Assumed).srq_protection_domain(&target, wrong),
            Err(NoRecv::NoSuchSrq)
        );
    }
    resources.host(MappingCheck::Assumed).complete_recv(&target, wqe.cq, completion(&target, 6), false);
    assert_eq!(polled(&cq), [(6, WcStatus::Success)]);
}

/// CQ_ERR also brings SRQ_ERR of the XRC SRQs that complete there: their receives cannot be reported any
/// more.
#[test]
fn an_srq_whose_completion_queue_overran_has_failed() {
    let mut device = device();
    let (cq, other) = (device.cq(1), device.cq(1));
    let xrcd = device.resources.open_xrcd().unwrap();
    let mut srq = |cookie, xrc| {
        let setup = SrqSetup { pd: device.pd, max_wr: 4, max_sge: 1, cookie, xrc, tags: None };
        device.resources.create_srq(&setup).unwrap()
    };
    let _plain = srq(7, None);
    let (ours, theirs) = (srq(8, Some((xrcd, cq.handle()))), srq(9, Some((xrcd, other.handle()))));
    assert_ne!(ours, theirs);
    let qp = device.qp(QpType::Rc, other.handle(), other.handle(), None);
    device.host().complete_recv(&qp, cq.handle().index, completion(&qp, 1), false);
    assert_eq!(device.events(), []);
    device.host().complete_recv(&qp, cq.handle().index, completion(&qp, 2), false);
    device.host().complete_recv(&qp, cq.handle().index, completion(&qp, 3), false);
    let expected = [
        (AsyncEventType::CqErr, AsyncElement::Cq { cookie: 1 }),
        (AsyncEventType::SrqErr, AsyncElement::Srq { cookie: 8 }),
    ];
    let events = device.events();
    assert_eq!(events[..2], expected);
    assert_eq!(events.len(), 3, "and QP_FATAL: {events:?}");
}

/// A subscriber that collects why queue pairs fail and messages are dropped.
struct Causes(Arc<Mutex<Vec<(Qpn, Cause)>>>);

impl Subscriber for Causes {
    fn topics(&self) -> Topics {
        Topics::LOG
    }

    fn on_event(&self, _at_ns: u64, event: &Event<'_>) {
        if let Event::Qp { qp, event: QpEvent::Logged(cause) } = event {
            self.0.lock().unwrap().push((qp.qpn, **cause));
        }
    }
}

#[test]
fn memory_counters_and_the_log_pass_through() {
    let word = AtomicU64::new(7);
    let address = word.as_ptr().expose_provenance() as u64;
    let log = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&log);
    let events = Subscribers::new(vec![Box::new(Causes(sink))], Clock::monotonic());
    let mut device = device_with(events);
    let access = Access::LOCAL_WRITE | Access::REMOTE_ATOMIC | Access::MW_BIND;
    // SAFETY: the word outlives the device, and is atomic.
    let keys = unsafe { device.resources.register_region(device.pd, address, 8, address, access) }.unwrap();
    let cq = device.cq(1);
    let qp = device.qp(QpType::Rc, cq.handle(), cq.handle(), None);
    let key = RemoteKey { rkey: keys.rkey, pd: device.pd.index, qpn: qp.qpn };
    let resources = &mut device.resources;
    let operation = AtomicOperation::FetchAdd { add: 1 };
    assert_eq!(resources.host(MappingCheck::Assumed).remote_atomic(key, address, operation), Ok(7));
    assert_eq!(
        resources.host(MappingCheck::Assumed).check_remote(key, address, 8, Access::REMOTE_ATOMIC),
        Ok(())
    );
    assert_eq!(
        resources.host(MappingCheck::Assumed).remote_read(key, address, &mut [0; 8]),
        Err(MemoryError::AccessDenied)
    );
    let sges = [Sge { address, length: 8, lkey: keys.lkey }];
    resources.host(MappingCheck::Assumed).scatter(qp.pd, &sges, 0, &9_u64.to_ne_bytes()).unwrap();
    assert_eq!(word.load(Ordering::Relaxed), 9);

    resources.count(Counter::RxPackets, 3);
    assert_eq!(resources.port.counters.value(Counter::RxPackets), 3);

    let cause = Cause::MessageDropped {
        psn: Psn::new(1),
        reason: "test",
        detail: pumice_transport::types::FailureDetail::None,
    };
    resources.log(&qp, cause);
    assert_eq!(*log.lock().unwrap(), [(qp.qpn, cause)]);
}

#[test]
fn a_type_2_window_dies_with_its_queue_pair() {
    let mut device = device();
    let access = Access::LOCAL_WRITE | Access::MW_BIND;
    // SAFETY: the range is never accessed.
    let region = unsafe { device.resources.register_region(device.pd, 0x1000, 8, 0x1000, access) }.unwrap();
    let window = device.resources.alloc_window(device.pd, pumice_memory::WindowType::Type2).unwrap();
    let cq = device.cq(1);
    let qp = device.qp(QpType::Rc, cq.handle(), cq.handle(), None);
    let bind = WindowBind {
        window_rkey: window.rkey,
        new_rkey: window.rkey ^ 1,
        region_lkey: region.lkey,
        address: 0x1000,
        length: 8,
        access: Access::REMOTE_READ,
    };
    device.host().bind_window(&qp, &bind).unwrap();
    assert_eq!(device.resources.deregister_region(region.handle).unwrap_err().errno(), libc::EBUSY);
    device.resources.detach_qp(qp.qpn).unwrap();
    device.resources.deregister_region(region.handle).unwrap();
}
