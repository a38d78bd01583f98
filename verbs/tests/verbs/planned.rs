//! Calls of this crate that a fault plan makes fail, or take longer, and calls after the device is lost.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use pumice_verbs::{
    Access, AsyncEventType, Connection, ConnectionParams, DeviceOptions, FabricConfig, FaultPlan,
    RcQueuePair, RecvRequest, SendList, SendRequest, Simulation, VerbsError,
};

use crate::kit::{LIMIT, TestSide, on_udp_with};

fn plan(lines: &[&str]) -> FaultPlan {
    let plan = lines.iter().try_fold(FaultPlan::seeded(7), |plan, line| plan.with_line(line)).unwrap();
    plan.check().unwrap();
    plan
}

fn options(last: u8, plan: FaultPlan) -> DeviceOptions {
    DeviceOptions::new().addresses([IpAddr::V4(Ipv4Addr::new(10, 0, 0, last))]).faults(plan)
}

fn scratch(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("pumice-planned-{name}-{}", std::process::id()))
}

#[test]
fn calls_fail_by_their_names_and_ordinals() {
    let rules = [
        "fail name=pd call=ibv_alloc_pd nth=1",
        "fail name=mr call=ibv_reg_mr nth=2 errno=ENOSPC",
        "fail name=qp call=ibv_create_qp nth=1",
        "fail name=send call=ibv_post_send qp=0 nth=2 errno=EIO",
        "fail name=recv call=ibv_post_recv nth=2",
        "fail name=poll call=ibv_poll_cq nth=2",
        "slow name=slow call=ibv_modify_qp qp=0 time=5ms",
        "fail name=never call=rdma_listen",
    ];
    let report = scratch("report");
    let simulation = Simulation::new(FabricConfig::default());
    let device = simulation.device_with(options(1, plan(&rules)).fault_report(&report)).unwrap();
    let refused = device.protection_domain().unwrap_err();
    assert_eq!((refused.errno(), refused.object()), (libc::ENOMEM, "ibv_alloc_pd"));
    assert!(refused.to_string().starts_with("ibv_alloc_pd fails with ENOMEM by a rule of the fault plan; "));
    let a = TestSide::new(device);
    assert_eq!(a.domain.allocate(64, Access::LOCAL_WRITE).unwrap_err().errno(), libc::ENOSPC);
    let built = RcQueuePair::builder(&a.domain, &a.cq, &a.cq).build();
    assert!(matches!(built, Err(VerbsError::Planned { call: "ibv_create_qp", .. })));
    let b = TestSide::new(simulation.device(Ipv4Addr::new(10, 0, 0, 2).into()).unwrap());
    let (one, other) = (a.rc(), b.rc());
    let before_ns = simulation.now_ns();
    one.connect(&other.endpoint(), &Default::default()).unwrap();
    assert_eq!(simulation.now_ns() - before_ns, 5_000_000);
    other.connect(&one.endpoint(), &Default::default()).unwrap();
    let request = || SendRequest::write(&[], b.memory.remote()).inline(b"x").signaled();
    one.post_send(&request()).unwrap();
    a.expect(0);
    assert_eq!(one.post_send(&request()).unwrap_err().errno(), libc::EIO);
    let list = SendList::of([request(), request()]).unwrap();
    one.post_sends(&list).unwrap();
    assert_eq!(a.cq.wait_one(LIMIT).unwrap_err().errno(), libc::EIO);
    one.post_recv(&RecvRequest { wr_id: 1, sges: &[] }).unwrap();
    let receives = [RecvRequest { wr_id: 2, sges: &[] }, RecvRequest { wr_id: 3, sges: &[] }];
    let error = one.post_recvs(&receives).unwrap_err();
    assert_eq!((error.position, error.error.errno()), (0, libc::ENOMEM));
    drop((one, other, a, b, simulation));
    check_report(&report);
}

/// It names what happened, and is a plan by which the same happens again.
fn check_report(report: &std::path::Path) {
    let text = std::fs::read_to_string(report).unwrap();
    std::fs::remove_file(report).unwrap();
    for line in [
        r#"{"rule":"mr","tag":"pumice0","call":"ibv_reg_mr","nth":2,"errno":"ENOSPC"}"#,
        r#"{"rule":"send","tag":"pumice0","call":"ibv_post_send","nth":2,"qp":0,"errno":"EIO"}"#,
        r#"{"rule":"slow","tag":"pumice0","call":"ibv_modify_qp","nth":1,"qp":0,"delay_ns":5000000}"#,
        r#"{"process":"pumice0","never":["never"]}"#,
    ] {
        assert!(text.lines().any(|known| known == line), "{line}\n{text}");
    }
    let again = FaultPlan::parse(&text, 0).unwrap();
    let simulation = Simulation::new(FabricConfig::default());
    let device = simulation.device_with(options(1, again)).unwrap();
    assert_eq!(device.protection_domain().unwrap_err().errno(), libc::ENOMEM);
    assert!(device.protection_domain().is_ok());
}

#[test]
fn connections_fail_by_rule_and_the_peer_is_notified() {
    let simulation = Simulation::new(FabricConfig::default());
    let rules = [
        "fail name=listen call=rdma_listen nth=1 errno=EADDRINUSE",
        "fail name=events call=rdma_get_cm_event nth=1 errno=EBADF",
        "fail call=rdma_accept",
    ];
    let server = TestSide::new(simulation.device_with(options(1, plan(&rules))).unwrap());
    let rules = ["fail call=rdma_connect nth=1 errno=ENETUNREACH"];
    let client = TestSide::new(simulation.device_with(options(2, plan(&rules))).unwrap());
    assert_eq!(server.device.listen(7471).unwrap_err().errno(), libc::EADDRINUSE);
    let listener = server.device.listen(7471).unwrap();
    let (server_qp, client_qp) = (server.rc(), client.rc());
    let connect = || {
        let params = ConnectionParams::default();
        Connection::start(&client_qp, ([10, 0, 0, 1], 7471).into(), &params, &())
    };
    assert_eq!(connect().unwrap_err().errno(), libc::ENETUNREACH);
    let connection = connect().unwrap();
    // A wait that a rule ends takes nothing.
    assert_eq!(listener.request(LIMIT).unwrap_err().errno(), libc::EBADF);
    let request = listener.request(LIMIT).unwrap();
    let accepted = request.accept(&server_qp, &ConnectionParams::default(), &());
    assert!(matches!(accepted, Err(VerbsError::Planned { call: "rdma_accept", .. })));
    assert!(matches!(connection.established(LIMIT), Err(VerbsError::Rejected(_))));
}

#[test]
fn every_call_of_a_lost_device_says_so() {
    let simulation = Simulation::new(FabricConfig::default());
    let rules = ["event kind=device-fatal qp=0 message=2"];
    let a = TestSide::new(simulation.device_with(options(1, plan(&rules))).unwrap());
    let b = TestSide::new(simulation.device(Ipv4Addr::new(10, 0, 0, 2).into()).unwrap());
    let (one, _other) = crate::kit::connected(&a, &b);
    let post = || one.post_send(&SendRequest::write(&[], b.memory.remote()).inline(b"x").signaled());
    for _ in 0..3 {
        post().unwrap();
    }
    let event = a.device.async_event(LIMIT).unwrap();
    assert_eq!(event.event, AsyncEventType::DeviceFatal);
    let lost = |outcome: Result<(), VerbsError>| {
        let error = outcome.unwrap_err();
        assert!(matches!(error, VerbsError::DeviceLost) && error.errno() == libc::EIO, "{error}");
    };
    lost(post());
    lost(one.post_recv(&RecvRequest { wr_id: 1, sges: &[] }));
    lost(a.cq.wait_one(LIMIT).map(drop));
    lost(one.query().map(drop));
    lost(one.reset());
    lost(a.device.protection_domain().map(drop));
    lost(a.device.completion_queue(1).map(drop));
    lost(a.domain.allocate(64, Access::LOCAL_WRITE).map(drop));
    lost(a.device.listen(0).map(drop));
    assert!(matches!(a.device.async_event(Duration::ZERO), Err(VerbsError::TimedOut { .. })));
}

#[test]
fn something_happens_to_the_device_at_a_call_though_nothing_is_sent() {
    let report = scratch("at-calls");
    let run = |plan: FaultPlan| {
        let simulation = Simulation::new(FabricConfig::default());
        let device = simulation.device_with(options(1, plan).fault_report(&report)).unwrap();
        let _cq = device.completion_queue(1).unwrap();
        assert!(matches!(device.async_event(Duration::ZERO), Err(VerbsError::TimedOut { .. })));
        let _cq = device.completion_queue(1).unwrap();
        assert_eq!(device.async_event(LIMIT).unwrap().event, AsyncEventType::LidChange);
        assert!(device.protection_domain().is_ok());
        assert_eq!(device.async_event(LIMIT).unwrap().event, AsyncEventType::DeviceFatal);
        assert!(matches!(device.protection_domain(), Err(VerbsError::DeviceLost)));
        drop((device, simulation));
        let text = std::fs::read_to_string(&report).unwrap();
        let lines = text.lines().filter(|line| line.contains("\"call\"")).map(str::to_owned);
        (lines.collect::<Vec<_>>(), text)
    };
    let (lines, text) = run(plan(&[
        "event name=lid kind=lid-change after=\"call ibv_create_cq 2\"",
        "event name=end kind=device-fatal after=\"call ibv_alloc_pd\"",
    ]));
    assert_eq!(
        lines[0],
        r#"{"rule":"lid","tag":"pumice0","call":"ibv_create_cq","nth":2,"event":"lid-change"}"#
    );
    assert_eq!(run(FaultPlan::parse(&text, 0).unwrap()).0, lines);
    std::fs::remove_file(&report).unwrap();
}

#[test]
fn a_rule_waits_for_calls() {
    let simulation = Simulation::new(FabricConfig::default());
    let rules = ["fail call=ibv_reg_mr after=\"call ibv_create_cq 2\" nth=1"];
    let a = TestSide::new(simulation.device_with(options(1, plan(&rules))).unwrap());
    a.domain.allocate(64, Access::LOCAL_WRITE).unwrap();
    let _cq = a.device.completion_queue(1).unwrap();
    assert!(a.domain.allocate(64, Access::LOCAL_WRITE).is_err());
    a.domain.allocate(64, Access::LOCAL_WRITE).unwrap();
}

#[test]
fn sentences_and_captures_have_calls_that_fail() {
    let (sender, sentences) = std::sync::mpsc::channel();
    let capture = scratch("capture");
    let rules = plan(&["fail name=full call=ibv_reg_mr nth=2"]);
    let options = DeviceOptions::new().faults(rules).capture(&capture);
    let options = options.explain_faults(move |sentence| drop(sender.send(sentence.to_owned())));
    let (a, b) = on_udp_with(244, options);
    assert!(a.domain.allocate(64, Access::LOCAL_WRITE).is_err());
    let sentence = sentences.recv_timeout(LIMIT).unwrap();
    assert_eq!(sentence, "fault \"full\" fails ibv_reg_mr with ENOMEM (call 2 of this name)");
    let (one, _other) = crate::kit::connected(&a, &b);
    one.post_send(&SendRequest::write(&[], b.memory.remote()).inline(b"x").signaled()).unwrap();
    a.expect(0);
    drop((one, a));
    let file = std::fs::read(&capture).unwrap();
    std::fs::remove_file(&capture).unwrap();
    assert!(file.windows(sentence.len()).any(|part| part == sentence.as_bytes()));
}
