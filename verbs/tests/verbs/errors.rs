//! Wrong use is answered by an error that names object, attribute and remedy.

use pumice_verbs::{
    Access, AsyncEventType, AttributeMask, Device, DeviceInfo, DeviceOptions, HcaError, ModifyError, Mtu,
    Notify, PathOptions, PostError, QpAttributes, QpState, Qpn, RcConnectOptions, RcEndpoint, RcQueuePair,
    RecvRequest, RequestError, SendList, SendRequest, UcEndpoint, VerbsError,
};

use crate::kit::{LIMIT, TestSide, connected, simulated, udp};

fn named(error: &VerbsError) -> (&'static str, String) {
    let text = error.to_string();
    assert!(text.ends_with(error.remedy()), "{text}");
    assert!(error.errno() > 0);
    (error.object(), error.attribute().unwrap_or_default())
}

#[test]
fn modify_names_the_attribute() {
    let (a, b) = simulated();
    let (qp, peer) = (a.rc(), b.rc());
    let options = RcConnectOptions { retry_count: 8, ..RcConnectOptions::default() };
    let error = qp.connect(&peer.endpoint(), &options).unwrap_err();
    assert_eq!(named(&error), ("queue pair", "retry_cnt".to_owned()));
    qp.reset().unwrap();
    let options = RcConnectOptions { min_rnr_timer: 32, ..RcConnectOptions::default() };
    let error = qp.connect(&peer.endpoint(), &options).unwrap_err();
    assert_eq!(named(&error).1, "min_rnr_timer");
    assert_eq!(qp.state().unwrap(), QpState::Init);
    // RTS cannot be reached from INIT.
    let attributes = QpAttributes { qp_state: QpState::Rts as u32, ..QpAttributes::default() };
    let error = qp.modify(&attributes, AttributeMask::STATE).unwrap_err();
    assert_eq!(named(&error).1, "qp_state");
    let attributes = QpAttributes { qp_state: QpState::Rtr as u32, ..QpAttributes::default() };
    let error = qp.modify(&attributes, AttributeMask::STATE | AttributeMask::AV).unwrap_err();
    let VerbsError::Refused { error: HcaError::Modify { error: ModifyError::Missing { .. }, .. }, .. } =
        &error
    else {
        panic!("{error}")
    };
    assert_eq!(named(&error).1, "path_mtu, rq_psn, min_rnr_timer, max_dest_rd_atomic, dest_qp_num");
    qp.connect(&peer.endpoint(), &RcConnectOptions::default()).unwrap();
    let error = qp.connect(&peer.endpoint(), &RcConnectOptions::default()).unwrap_err();
    assert_eq!(named(&error).1, "qp_state");
}

#[test]
fn posts_name_what_is_wrong() {
    let (a, b) = simulated();
    let idle = a.rc();
    let error = idle.post_send(&SendRequest::send(&[])).unwrap_err();
    assert_eq!(named(&error).1, "qp_state");
    let (qp, _peer) = connected(&a, &b);
    let slice = a.memory.slice(..8).unwrap();
    let error = qp.post_send(&SendRequest::send(&[slice; 5])).unwrap_err();
    assert_eq!(named(&error).1, "max_send_sge");
    let error = qp.post_send(&SendRequest::send(&[]).inline(&[0; 65])).unwrap_err();
    assert_eq!(named(&error).1, "max_inline_data");
    let word = b.memory.remote_slice(4..12).unwrap();
    let error = qp.post_send(&SendRequest::fetch_add(&[slice], word, 1)).unwrap_err();
    assert_eq!(named(&error).1, "remote");
    let local = [a.memory.slice(..9).unwrap()];
    let error = qp.post_send(&SendRequest::read(&local, word)).unwrap_err();
    let wrong = RequestError::RemoteTooShort { local_bytes: 9, remote_bytes: 8 };
    assert!(matches!(error, VerbsError::Request(found) if found == wrong), "{error}");
    assert_eq!(named(&error), ("send request", "remote".to_owned()));
    let error = qp.post_send(&SendRequest::read(&[slice], word).imm([0; 4])).unwrap_err();
    assert_eq!(named(&error).1, "imm_data");
    let error = SendList::of([SendRequest::<pumice_verbs::transport::Rc>::write(&local, word)]).unwrap_err();
    assert_eq!(named(&error).1, "remote");
    let error = qp.post_recv(&RecvRequest { wr_id: 0, sges: &[slice; 5] }).unwrap_err();
    assert!(error.to_string().contains("5 scatter/gather elements"), "{error}");
}

#[test]
fn a_full_queue_says_so_and_what_was_posted() {
    let (a, b) = simulated();
    let qp = RcQueuePair::builder(&a.domain, &a.cq, &a.cq).send_depth(4).build().unwrap();
    let peer = b.rc();
    qp.connect(&peer.endpoint(), &Default::default()).unwrap();
    peer.connect(&qp.endpoint(), &Default::default()).unwrap();
    let write = || SendRequest::write(&[], b.memory.remote()).inline(b"x").signaled();
    let list = SendList::of((0..6).map(|n| write().wr_id(n))).unwrap();
    let refused = qp.post_sends(&list).unwrap_err();
    assert_eq!(refused.position, 4);
    assert!(refused.to_string().starts_with("request 4 of the list: QP"), "{refused}");
    let full = PostError::QueueFull { depth: 4, all_unsignaled: false };
    let VerbsError::Refused { error: HcaError::Post { error, .. }, .. } = &refused.error else {
        panic!("{refused}");
    };
    assert_eq!(*error, full);
    (0..4).for_each(|n| {
        a.expect(n);
    });
    qp.post_send(&write()).unwrap();
    a.expect(0);
}

#[test]
fn sizes_ranges_and_endpoints_are_checked() {
    let (a, b) = simulated();
    assert_eq!(named(&a.device.completion_queue(0).unwrap_err()).0, "completion queue");
    let error = RcQueuePair::builder(&a.domain, &a.cq, &a.cq).send_depth(1 << 30).build().unwrap_err();
    assert!(error.to_string().contains("max_send_wr"), "{error}");
    let error = RcQueuePair::builder(&a.domain, &a.cq, &a.cq).gid_index(3).build().unwrap_err();
    assert_eq!(named(&error), ("queue pair", "gid_index".to_owned()));
    let error = RcQueuePair::builder(&a.domain, &b.cq, &a.cq).build().unwrap_err();
    assert_eq!(error.object(), "queue pair");
    assert_eq!(named(&a.memory.slice(..1 << 20).unwrap_err()), ("memory region", "range".to_owned()));
    assert_eq!(named(&a.memory.write(1 << 18, b"x").unwrap_err()).1, "offset");
    assert_eq!(named(&a.memory.atomic_u64(4).unwrap_err()).1, "offset");
    assert_eq!(named(&a.domain.allocate(usize::MAX / 2, Access::empty()).unwrap_err()).1, "length");
    let error = a.domain.allocate(1, Access::REMOTE_WRITE).unwrap_err();
    assert_eq!(named(&error).0, "memory region");
    let endpoint = a.rc().endpoint();
    assert_eq!(RcEndpoint::from_bytes(&endpoint.to_bytes()).unwrap(), endpoint);
    let error = UcEndpoint::from_bytes(&endpoint.to_bytes()).unwrap_err();
    assert_eq!(named(&error), ("endpoint", "bytes".to_owned()));
    assert_eq!(RcEndpoint::from_bytes(&[0; 24]).unwrap_err().object(), "endpoint");
    let golden = RcEndpoint::new(endpoint.gid, Qpn::new(0x0a_0b0c), 0x01_0203, Mtu::Mtu4096);
    let bytes = golden.to_bytes();
    assert_eq!(bytes[10..], [0xff, 0xff, 10, 0, 0, 1, 2, 0x0a, 0x0b, 0x0c, 5, 1, 2, 3]);
}

#[test]
fn the_smaller_mtu_of_both_ends_is_used_unless_one_is_asked_for() {
    let (a, b) = simulated();
    let (qp, peer) = (a.rc(), b.rc());
    let small = DeviceOptions::new().addresses(["10.0.0.3".parse().unwrap()]).active_mtu(Mtu::Mtu1024);
    let small = TestSide::new(a.device.simulation().unwrap().device_with(small).unwrap());
    assert_eq!((peer.endpoint().mtu, small.rc().endpoint().mtu), (Mtu::Mtu4096, Mtu::Mtu1024));
    let path = PathOptions { mtu: Some(Mtu::Mtu2048), ..PathOptions::default() };
    let options = RcConnectOptions { path, ..RcConnectOptions::default() };
    assert_eq!(named(&small.rc().connect(&peer.endpoint(), &options).unwrap_err()).1, "path_mtu");
    let mut theirs = peer.endpoint();
    theirs.mtu = Mtu::Mtu512;
    qp.connect(&theirs, &RcConnectOptions::default()).unwrap();
    assert_eq!(qp.query().unwrap().path_mtu, Mtu::Mtu512 as u32);
    qp.reset().unwrap();
    let path = PathOptions { mtu: Some(Mtu::Mtu256), ..PathOptions::default() };
    qp.connect(&theirs, &RcConnectOptions { path, ..RcConnectOptions::default() }).unwrap();
    assert_eq!(qp.query().unwrap().path_mtu, Mtu::Mtu256 as u32);
}

#[test]
fn opening_names_the_address() {
    let foreign = DeviceOptions::new().addresses(["203.0.113.77".parse().unwrap()]);
    let error = Device::open(foreign).unwrap_err();
    assert_eq!(error.attribute().as_deref(), Some("addresses"));
    assert!(error.to_string().contains("203.0.113.77"), "{error}");
    let (a, _b) = udp(80);
    let (_, entry) = a.device.gids().remove(0);
    let second = Device::open(DeviceOptions::new().addresses([entry.ip])).unwrap();
    assert_eq!(second.info().gids.len(), 1, "two devices of one user share an address");
    let error = Device::open(DeviceOptions::new().addresses([entry.ip]).exclusive(true)).unwrap_err();
    assert_eq!((error.object(), error.errno()), ("port", 98));
    assert!(error.to_string().contains("127.89.80.1"), "{error}");
    assert_eq!(a.device.info().gids.len(), 1);
    assert!(DeviceInfo::all().unwrap().iter().all(|info| info.name == "pumice0" && !info.gids.is_empty()));
}

/// A queue that overran gives what it held; then waiting for more, and arming, say what was wrong instead of
/// waiting for ever.
#[test]
fn a_queue_that_overran_says_so() {
    let (a, b) = simulated();
    let channel = a.device.completion_channel().unwrap();
    let small = channel.completion_queue(2, 1).unwrap();
    let qp = RcQueuePair::builder(&a.domain, &small, &small).build().unwrap();
    let peer = b.rc();
    qp.connect(&peer.endpoint(), &RcConnectOptions::default()).unwrap();
    peer.connect(&qp.endpoint(), &RcConnectOptions::default()).unwrap();
    let local = [a.memory.slice(..8).unwrap()];
    let depth = u64::from(small.depth());
    for wr_id in 0..depth + 1 {
        let remote = b.memory.remote_slice(..8).unwrap();
        qp.post_send(&SendRequest::write(&local, remote).wr_id(wr_id).signaled()).unwrap();
    }
    while a.device.async_event(LIMIT).unwrap().event != AsyncEventType::QpFatal {}
    assert!(small.is_failed() && qp.state().unwrap() == QpState::Err);
    for wr_id in 0..depth {
        assert_eq!(small.wait_success(LIMIT).unwrap().wr_id, wr_id);
    }
    assert_eq!(named(&small.wait_one(LIMIT).unwrap_err()), ("completion queue", "depth".to_owned()));
    assert_eq!(named(&small.arm(Notify::Any).unwrap_err()).1, "depth");
}
