//! A fault plan does the same to the same packets on both media.

use std::io::BufRead as _;
use std::process::Command;
use std::time::Instant;

use pumice_device::addresses::gid_table::GidEntry;
use pumice_device::hca::HcaConfig;
use pumice_device::opening::{Opening, UdpNetwork};
use pumice_device::settings::{CopyMode, Wire};
use pumice_device::sharing::inspect;
use pumice_transport::types::*;
use pumice_transport::wire::Qpn;

use crate::child::{self, is_udp_only, say};
use crate::fleet::{ChildProcess, Scene};
use crate::kit::planned::{FaultReport, plan};
use crate::kit::{Connection, Node};
use crate::node::PATIENCE;
use crate::remote::RING;

const MESSAGES: u64 = 60;
/// A bit longer than the longest message.
const SLOT_BYTES: usize = 10_000;
const PLAN: [&str; 11] = [
    "drop name=loss chance=3%",
    "drop name=bursts burst-begin=0.5% burst-end=40% side=responder",
    "duplicate chance=2%",
    "delay chance=3% time=10us..200us correlation=30%",
    "reorder chance=2% packets=2 within=100us",
    "corrupt chance=2% opcode=write,read-response",
    "truncate chance=1%",
    "mark every=7 opcode=ack",
    "answer name=not-ready with=rnr timer=20us chance=3%",
    "answer name=gap with=sequence chance=1%",
    "drop name=second nth=2 opcode=send transmission=1",
];

/// The role "planned": a device with the plan. "requester" sends, "responder" has posted what it receives.
pub(crate) fn run() {
    let config = child::config();
    let tag = std::env::var("PUMICE_MEDIA_TAG").unwrap();
    let (ip, report) = (config.udp.address, FaultReport::default());
    let wire = if is_udp_only() { Wire::Udp } else { Wire::Auto };
    let gid = GidEntry::new(ip, "test", 1, Mtu::Mtu4096);
    let out = report.clone();
    let opening = Opening {
        faults: plan(&PLAN),
        tag: Some(tag.clone()),
        fault_report: Some(Box::new(move || Ok(Box::new(out)))),
        ..Opening::new(HcaConfig::new("pumice0", vec![gid]))
    };
    let network = UdpNetwork {
        address: ip,
        exclusive: false,
        buffer_bytes: None,
        wire,
        copy: CopyMode::default(),
        one_of_several: false,
        ports: Vec::new(),
    };
    let opened = opening.on_udp(&network).unwrap_or_else(|error| panic!("{error}"));
    let node = Node::on(std::sync::Arc::new(opened.hca), ip, MESSAGES as usize * SLOT_BYTES, 256);
    let mut init = node.qp_init(QpType::Rc);
    init.capacity.max_recv_wr = MESSAGES as u32;
    let qpn = node.hca.create_qp(&init).unwrap().0;
    say(&format!("qp {} {}", qpn.value(), node.rkey));
    let mut done = 0;
    let mut rkey = 0;
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let words: Vec<u64> = line.split(' ').skip(1).map(|word| word.parse().unwrap()).collect();
        match line.split(' ').next().unwrap() {
            "connect" => {
                rkey = words[1] as u32;
                let c = Connection {
                    psn_here: 0xff_fff0,
                    psn_there: 0xff_fff0,
                    timeout: 15,
                    ..Connection::default()
                };
                node.to_rtr(qpn, true, ip, Qpn::new(words[0] as u32), c);
                for k in (0..MESSAGES).filter(|k| k % 4 == 0 && tag == "responder") {
                    node.post_recv(qpn, k, 0, length(k));
                }
                node.to_rts(qpn, true, c);
                say("connected");
            }
            "send" => {
                while done < words[0] {
                    done = send_some(&node, qpn, rkey, done, words[0]);
                }
                say("sent");
            }
            "report" => break,
            other => panic!("{other}?"),
        }
    }
    drop(node);
    for line in report.sorted().lines() {
        say(&format!("line {line}"));
    }
    say("end");
}

fn length(k: u64) -> u32 {
    if k % 4 == 3 { 8 } else { 100 + (k as u32 * 977) % 9_000 }
}

/// Messages from number `done` on, three at a time; the number behind them.
fn send_some(node: &Node, qpn: Qpn, rkey: u32, done: u64, goal: u64) -> u64 {
    let opcodes = [SendOpcode::Send, SendOpcode::RdmaWrite, SendOpcode::RdmaRead, SendOpcode::FetchAdd];
    let behind = goal.min(done + 3);
    for k in done..behind {
        let opcode = opcodes[(k % 4) as usize];
        let atomic = (opcode == SendOpcode::FetchAdd).then_some(AtomicOperation::FetchAdd { add: 1 });
        let request = SendRequest {
            sges: &[node.sge(k as usize * SLOT_BYTES, length(k))],
            remote: RemoteTarget { rkey, ..node.target(0) },
            atomic,
            flags: SendFlags::SIGNALED,
            ..SendRequest::new(k, opcode)
        };
        node.hca.post_send(qpn, &request).unwrap();
    }
    let end = Instant::now() + PATIENCE;
    let mut one = [WorkCompletion::default()];
    for k in done..behind {
        while node.hca.poll_cq(&node.cq, &mut one) == 0 {
            assert!(Instant::now() < end, "message {k}");
            std::thread::yield_now();
        }
        assert_eq!((one[0].wr_id, one[0].status), (k, WcStatus::Success));
    }
    behind
}

/// What carries the packets of both queue pairs.
fn media(scene: &Scene) -> Vec<String> {
    let folder = scene.folder().join("pumice");
    let processes = inspect(4791, Some(&folder), PATIENCE).unwrap();
    let qps = processes.into_iter().filter_map(|process| process.objects).flat_map(|objects| objects.qps);
    qps.filter_map(|qp| qp.medium).collect()
}

/// The reports of both ends.
fn reports(udp_only: bool) -> [Vec<String>; 2] {
    use std::os::unix::fs::DirBuilderExt as _;
    let scene = Scene::new();
    std::fs::DirBuilder::new().mode(0o700).create(scene.folder()).unwrap();
    let mut ends = ["requester", "responder"].map(|tag| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env("PUMICE_WIRE", if udp_only { "udp" } else { "auto" }).env("PUMICE_MEDIA_TAG", tag);
        command.env("XDG_RUNTIME_DIR", scene.folder());
        ChildProcess::run(command, &scene, "planned")
    });
    let numbers = ends.each_mut().map(|end| end.read_reply("qp"));
    for (end, peer) in ends.iter_mut().zip(numbers.iter().rev()) {
        end.say(&format!("connect {peer}"));
    }
    ends.iter_mut().for_each(|end| _ = end.read_reply("connected"));
    // The first message makes the processes meet.
    ends[0].say("send 1");
    ends[0].read_reply("sent");
    let begun = Instant::now();
    let met = |media: &[String]| media.len() == 2 && media.iter().all(|medium| medium == RING);
    while !udp_only && !met(&media(&scene)) {
        assert!(begun.elapsed() < PATIENCE, "{:?}", media(&scene));
    }
    ends[0].say(&format!("send {MESSAGES}"));
    ends[0].read_reply("sent");
    assert_eq!(met(&media(&scene)), !udp_only, "{:?}", media(&scene));
    ends.map(|mut end| {
        end.say("report");
        let lines = std::iter::from_fn(|| {
            let answer = end.answer().expect("a report");
            answer.strip_prefix("line ").map(str::to_owned)
        });
        lines.collect()
    })
}

#[test]
fn a_fault_plan_does_the_same_over_udp_and_through_rings() {
    let [udp, rings] = [true, false].map(reports);
    assert!(udp[0].len() > 20 && udp[1].len() > 20, "{udp:#?}");
    assert_eq!(udp, rings);
}
