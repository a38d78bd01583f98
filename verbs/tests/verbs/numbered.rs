//! SRD and DC, on a real network and in simulations.

use std::net::{IpAddr, Ipv4Addr};

use pumice_device::sharing::inspect;
use pumice_device::trace::Timeline;
use pumice_verbs::{
    DcInitiator, DcTarget, Device, DeviceOptions, FabricConfig, Fault, FaultPlan, RecvRequest, SendRequest,
    Simulation, SrdQueuePair, WcOpcode, WcStatus, WirePlan,
};

use crate::kit::{LIMIT, TestSide};
use crate::options::scratch;

fn read(side: &TestSide, offset: usize, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    side.memory.read(offset, &mut bytes).unwrap();
    bytes
}

const QKEY: u32 = 0x1111_1111;

/// Messages of SRD arrive once each, and RDMA goes both ways.
fn srd(sides: [TestSide; 3]) {
    let [a, b, c] = &sides;
    let queue_pair = |side: &TestSide| {
        let qp = SrdQueuePair::builder(&side.domain, &side.cq, &side.cq).build().unwrap();
        qp.activate(QKEY, 7).unwrap();
        qp
    };
    let (from, second, third) = (queue_pair(a), queue_pair(b), queue_pair(c));
    let to = [&second, &third].map(|qp| a.domain.ud_address(&qp.endpoint().unwrap()).unwrap());
    // RDMA needs a way back.
    let _back = [b, c].map(|side| side.domain.ud_address(&from.endpoint().unwrap()).unwrap());
    for (side, qp) in [(b, &second), (c, &third)] {
        for wr_id in 0..8 {
            let slices = [side.memory.slice(wr_id as usize * 64..wr_id as usize * 64 + 64).unwrap()];
            qp.post_recv(&RecvRequest { wr_id, sges: &slices }).unwrap();
        }
    }
    let sent = a.pattern(0, 64);
    for wr_id in 0..16 {
        let slices = [a.memory.slice(0..64).unwrap()];
        from.post_send(&SendRequest::srd_send(&to[wr_id as usize % 2], &slices).wr_id(wr_id)).unwrap();
    }
    let mut ended: Vec<u64> = (0..16).map(|_| a.cq.wait_success(LIMIT).unwrap().wr_id).collect();
    ended.sort_unstable();
    assert_eq!(ended, (0..16).collect::<Vec<_>>());
    for side in [b, c] {
        for _ in 0..8 {
            let done = side.cq.wait_success(LIMIT).unwrap();
            assert_eq!((done.opcode, done.byte_len, done.src_qp), (WcOpcode::Recv, 64, from.qpn().value()));
            assert_eq!(read(side, done.wr_id as usize * 64, 64), sent);
        }
    }
    let remote = b.memory.remote_slice(4096..7096).unwrap();
    let data = a.pattern(1000, 3000);
    let local = [a.memory.slice(1000..1000 + 3000).unwrap()];
    from.post_send(&SendRequest::srd_write(&to[0], &local, remote).wr_id(30)).unwrap();
    a.expect(30);
    assert_eq!(read(b, 4096, 3000), data);
    let back = [a.memory.slice(8000..8000 + 3000).unwrap()];
    from.post_send(&SendRequest::srd_read(&to[0], &back, remote).wr_id(31)).unwrap();
    assert_eq!(a.expect(31).opcode, WcOpcode::Send);
    assert_eq!(read(a, 8000, 3000), data);
}

/// One initiator and two targets, in order; an error, and what is left after it.
fn dc(sides: [TestSide; 3]) {
    let [a, b, c] = &sides;
    let from = DcInitiator::builder(&a.domain, &a.cq).streams(1, 1).build().unwrap();
    from.activate(&Default::default()).unwrap();
    let target = |side: &TestSide, key| {
        let srq = side.domain.shared_receive_queue(64, 1).unwrap();
        let target = DcTarget::builder(&side.domain, &side.cq, &srq, key).build().unwrap();
        (srq, target.activate().unwrap(), target)
    };
    let (second, third) = (target(b, 7), target(c, u64::MAX));
    let to = [&second, &third].map(|(_, endpoint, _)| a.domain.dc_address(endpoint).unwrap());
    for (side, (srq, ..)) in [(b, &second), (c, &third)] {
        for wr_id in 0..8 {
            let slices = [side.memory.slice(wr_id as usize * 64..wr_id as usize * 64 + 64).unwrap()];
            srq.post_recv(&RecvRequest { wr_id, sges: &slices }).unwrap();
        }
    }
    for wr_id in 0..16_u32 {
        let slices = [a.memory.slice(0..64).unwrap()];
        let request = SendRequest::dc_send(&to[wr_id as usize / 2 % 2], &slices).imm(wr_id.to_be_bytes());
        from.post_send(&request.wr_id(wr_id.into()).signaled()).unwrap();
    }
    for wr_id in 0..16 {
        a.expect(wr_id);
    }
    for (index, (side, (_, endpoint, _))) in [(b, &second), (c, &third)].into_iter().enumerate() {
        let expected = (0..16_u32).filter(|wr_id| *wr_id as usize / 2 % 2 == index);
        for (wr_id, imm) in expected.enumerate() {
            let done = side.expect(wr_id as u64);
            assert_eq!((done.imm_data, done.qp_num), (imm.to_be_bytes(), endpoint.qpn.value()));
        }
    }
    let remote = b.memory.remote_slice(4096..4104).unwrap();
    let local = [a.memory.slice(0..8).unwrap()];
    for (wr_id, add) in [(20, 3), (21, 4)] {
        let request = SendRequest::dc_fetch_add(&to[0], &local, remote, add);
        from.post_send(&request.wr_id(wr_id).signaled()).unwrap();
        a.expect(wr_id);
    }
    assert_eq!(read(b, 4096, 8), 7_u64.to_ne_bytes());
    assert_eq!(read(a, 0, 8), 3_u64.to_ne_bytes());
    // A target refuses who does not know its key; only the stream fails.
    let mut wrong = second.1;
    wrong.access_key = 8;
    let wrong = a.domain.dc_address(&wrong).unwrap();
    from.post_send(&SendRequest::dc_write(&wrong, &local, remote).wr_id(22).on_stream(1)).unwrap();
    a.expect_failure(22, WcStatus::RemInvReqErr);
    from.post_send(&SendRequest::dc_write(&to[0], &local, remote).wr_id(23).signaled()).unwrap();
    a.expect(23);
    from.post_send(&SendRequest::dc_write(&to[0], &local, remote).wr_id(24).on_stream(1)).unwrap();
    a.expect_failure(24, WcStatus::WrFlushErr);
    from.reset_stream(1).unwrap();
    let works = SendRequest::dc_write(&to[0], &local, remote).wr_id(25).on_stream(1).signaled();
    from.post_send(&works).unwrap();
    a.expect(25);
}

#[test]
fn fault_plans_know_packets_of_srd_and_dc_by_their_services() {
    let folder = scratch("numbered");
    let report = |service: &str, last: u8| folder.join(format!("{service}-{last}.jsonl"));
    // Nothing here is a datagram of UD.
    let lines = [
        "drop name=ud service=ud",
        "drop name=srd service=srd side=requester times=1",
        "drop name=dc service=dc side=requester times=1",
        "drop name=answer service=dc side=responder times=1",
    ];
    let plan = lines.iter().try_fold(FaultPlan::seeded(1), |plan, line| plan.with_line(line)).unwrap();
    for (service, test) in [("srd", srd as fn([TestSide; 3])), ("dc", dc)] {
        let simulation = Simulation::new(FabricConfig::default());
        test([1, 2, 3].map(|last| {
            let options = DeviceOptions::new().addresses([IpAddr::V4(Ipv4Addr::new(10, 0, 0, last))]);
            let options = options.faults(plan.clone()).fault_report(report(service, last));
            TestSide::new(simulation.device_with(options).unwrap())
        }));
    }
    let reports = ["srd", "dc"].into_iter().flat_map(|service| [1, 2, 3].map(|last| report(service, last)));
    let text: String = reports.map(|report| std::fs::read_to_string(report).unwrap()).collect();
    let has = |rule: &str, service: &str, side: &str| {
        let rule = format!("\"rule\":\"{rule}\",");
        let service = format!("\"service\":\"{service}\",");
        let side = format!("\"side\":\"{side}\",");
        text.lines().any(|line| [&rule, &service, &side].into_iter().all(|part| line.contains(part.as_str())))
    };
    assert!(has("srd", "srd", "requester"), "{text}");
    assert!(has("dc", "dc", "requester"), "{text}");
    assert!(has("answer", "dc", "responder"), "{text}");
    assert!(!text.contains("\"rule\":\"ud\",\"tag\""), "{text}");
}

/// Runs a test on real devices, and on a simulated network that loses, repeats and overtakes.
fn on_both(net: u8, test: impl Fn([TestSide; 3])) {
    for seed in 0..5 {
        let faults = WirePlan::seeded(seed)
            .by_chance(20_000, Fault::Drop)
            .by_chance(50_000, Fault::Duplicate { copies: 1 })
            .by_chance(100_000, Fault::Reorder { packets: 3, within_ns: 20_000 });
        let simulation = Simulation::new(FabricConfig { seed, faults, ..FabricConfig::default() });
        test([1, 2, 3].map(|last| {
            TestSide::new(simulation.device(IpAddr::V4(Ipv4Addr::new(10, 0, 0, last))).unwrap())
        }));
    }
    test([1, 2, 3].map(|last| {
        let address = IpAddr::V4(Ipv4Addr::new(127, 89, net, last));
        TestSide::new(Device::open(DeviceOptions::new().addresses([address])).unwrap())
    }));
}

#[test]
fn messages_of_srd_arrive_once_each_from_any_peer() {
    on_both(91, srd);
}

#[test]
fn an_initiator_of_dc_sends_to_several_targets_in_order() {
    on_both(92, dc);
}

/// The services of the queue pairs of a trace.
fn services_in(trace: &std::path::Path) -> Vec<String> {
    let file = std::fs::File::open(trace).unwrap();
    let timeline = Timeline::read([("one".to_owned(), file)]).unwrap();
    let queue_pairs = timeline.processes.iter().flat_map(|process| &process.queue_pairs);
    queue_pairs.map(|qp| qp.service.clone()).collect()
}

#[test]
fn traces_and_inspection_call_queue_pairs_by_their_services() {
    let folder = scratch("services");
    let address = IpAddr::V4(Ipv4Addr::new(127, 93, 0, 1));
    let options = DeviceOptions::new().addresses([address]).tag("services").trace(folder.join("trace"));
    let device = Device::open(options).unwrap();
    let side = TestSide::new(device);
    let srd = SrdQueuePair::builder(&side.domain, &side.cq, &side.cq).build().unwrap();
    let initiator = DcInitiator::builder(&side.domain, &side.cq).build().unwrap();
    let srq = side.domain.shared_receive_queue(4, 1).unwrap();
    let target = DcTarget::builder(&side.domain, &side.cq, &srq, 7).build().unwrap();

    let own = std::process::id();
    let processes = inspect(4791, None, LIMIT).unwrap();
    let inspected =
        processes.iter().filter(|one| one.sharer.pid == own).filter_map(|one| one.objects.as_ref());
    let services: Vec<&str> =
        inspected.flat_map(|inspected| &inspected.qps).map(|qp| qp.service.as_str()).collect();
    for service in ["SRD", "DCI", "DCT"] {
        assert!(services.contains(&service), "{services:?}");
    }
    drop((target, srq, initiator, srd, side));
    assert_eq!(services_in(&folder.join("trace")), ["SRD", "DCI", "DCT"]);
}
