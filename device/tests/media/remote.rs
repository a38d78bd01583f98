//! Two processes of one host: this one, and one that does what it is told.

use std::net::IpAddr;
use std::process::Command;
use std::time::Instant;

use pumice_device::hca::QpInit;
use pumice_device::port::UdpConfig;
use pumice_device::sharing::SharedPortConfig;
use pumice_transport::types::*;
use pumice_transport::wire::Qpn;

use crate::fleet::{ChildProcess, Scene};
use crate::kit::memory::IOVA;
use crate::kit::{Connection, Node, address_vector};
use crate::node::{Local, PATIENCE, Size, words};

pub(crate) const RING: &str = "shared memory";

/// A process in the role "node".
pub(crate) struct Remote {
    process: ChildProcess,
    pub(crate) ip: IpAddr,
    pub(crate) index: u8,
    pub(crate) rkey: u32,
}

impl Remote {
    pub(crate) fn start(scene: &Scene, udp_only: bool) -> Remote {
        Remote::start_with(Command::new(std::env::current_exe().unwrap()), scene, udp_only)
    }

    /// Started by `command`, which runs this program.
    pub(crate) fn start_with(command: Command, scene: &Scene, udp_only: bool) -> Remote {
        Remote::admit(Remote::launch(command, scene, udp_only), scene)
    }

    /// A process that has not said yet that it is ready.
    pub(crate) fn launch(mut command: Command, scene: &Scene, udp_only: bool) -> ChildProcess {
        command.env("PUMICE_WIRE", if udp_only { "udp" } else { "auto" });
        ChildProcess::run(command, scene, "node")
    }

    pub(crate) fn admit(mut process: ChildProcess, scene: &Scene) -> Remote {
        let (index, rkey) = index_and_key(&mut process);
        Remote { process, ip: scene.address(), index, rkey }
    }

    pub(crate) fn ask(&mut self, question: &str) -> String {
        self.process.say(question);
        self.read_reply()
    }

    pub(crate) fn number<T: std::str::FromStr<Err: std::fmt::Debug>>(&mut self, question: &str) -> T {
        self.ask(question).parse().unwrap()
    }

    /// Says what takes a while; [`read_reply`](Remote::read_reply) has the answer.
    pub(crate) fn say(&mut self, question: &str) {
        self.process.say(question);
    }

    pub(crate) fn read_reply(&mut self) -> String {
        self.process.read_reply("done")
    }

    /// A child of it, which has a device of its own: its index and its key.
    pub(crate) fn fork(&mut self) -> (u8, u32) {
        self.process.say("fork child=open");
        index_and_key(&mut self.process)
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    pub(crate) fn stop(&mut self) {
        self.process.stop();
    }

    pub(crate) fn resume(&mut self) {
        self.process.resume();
    }

    pub(crate) fn quit(&mut self) {
        self.process.quit();
    }
}

fn index_and_key(process: &mut ChildProcess) -> (u8, u32) {
    let answer = process.read_reply("index");
    let (index, rkey) = answer.split_once(' ').unwrap();
    (index.parse().unwrap(), rkey.parse().unwrap())
}

/// The device of this process on a scene.
pub(crate) fn local(scene: &Scene, udp_only: bool, cq_depth: u32) -> Local {
    let udp = UdpConfig::new(scene.address());
    let config =
        SharedPortConfig { folder: Some(scene.folder().to_owned()), udp_only, ..SharedPortConfig::new(udp) };
    Local::open(&config, Size { cq_depth, ..Size::DEFAULT }).unwrap()
}

/// A connection between this process and another one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Link {
    pub(crate) here: Qpn,
    pub(crate) there: Qpn,
}

/// Numbers with which nothing is repeated because an answer is late on a busy machine.
pub(crate) const PATIENT: Connection = Connection {
    mtu: Mtu::Mtu1024,
    psn_here: 0x10,
    psn_there: 0x10,
    timeout: 21,
    retry_cnt: 7,
    rnr_retry: 7,
    min_rnr_timer: 1,
    rd_atomic: 4,
};

impl Local {
    fn setup(&self, qp_type: QpType) -> QpInit {
        let mut init = self.node.qp_init(qp_type);
        init.signal_all = true;
        if qp_type == QpType::XrcInitiator {
            init.recv_cq = None;
        }
        init
    }

    /// A connected pair of queue pairs of this type. `options` are those of the peer's.
    pub(crate) fn connect(&self, peer: &mut Remote, qp_type: QpType, c: Connection, options: &str) -> Link {
        self.connect_to(peer, "", qp_type, [c; 2], options)
    }

    /// As `connect`, with the numbers of each side; `to` is put before what the peer is told.
    pub(crate) fn connect_to(
        &self,
        peer: &mut Remote,
        to: &str,
        qp_type: QpType,
        [c, there]: [Connection; 2],
        options: &str,
    ) -> Link {
        let (node, reliable) = (&self.node, qp_type.is_reliable());
        let name = match qp_type {
            QpType::Rc => "rc",
            QpType::Uc => "uc",
            QpType::Ud => "ud",
            _ => "xrc",
        };
        let number = peer.number(&format!("{to}qp type={name} {options}"));
        let link =
            Link { here: node.hca.create_qp(&self.setup(qp_type)).unwrap().0, there: Qpn::new(number) };
        if qp_type.is_datagram() {
            node.to_rts_datagram(link.here, 0);
            peer.ask(&format!("{to}datagram qp={number}"));
            return link;
        }
        node.to_rtr(link.here, reliable, peer.ip, link.there, c);
        let (own, ip) = (link.here.value(), node.ip);
        let unreliable = if reliable { "" } else { "unreliable=1" };
        let numbers = words(there);
        peer.ask(&format!("{to}connect qp={number} peer={own} ip={ip} {numbers} {unreliable}"));
        node.to_rts(link.here, reliable, c);
        link
    }

    /// Exchanges messages until both directions go through rings.
    pub(crate) fn meet(&self, peer: &mut Remote) -> Link {
        let link = self.connect(peer, QpType::Rc, PATIENT, "");
        let there = link.there.value();
        let end = Instant::now() + PATIENCE;
        loop {
            peer.ask(&format!("receive qp={there} id=1 length=8"));
            self.node.send(link.here, 1, 0, 8);
            let sent = self.poll(1);
            assert_eq!((sent.len(), sent[0].status), (1, WcStatus::Success));
            peer.ask("poll count=1");
            let media = [self.medium(link.here), peer.ask(&format!("medium qp={there}"))];
            if media == [RING, RING] {
                return link;
            }
            assert!(Instant::now() < end, "{media:?}");
        }
    }

    /// What carries the packets of both ends.
    pub(crate) fn media(&self, peer: &mut Remote, link: Link) -> [String; 2] {
        [self.medium(link.here), peer.ask(&format!("medium qp={}", link.there.value()))]
    }
}

/// A request of 8 bytes of this node, or as long as `length`.
pub(crate) fn request<'s>(opcode: SendOpcode, sges: &'s [Sge], rkey: u32) -> SendRequest<'s> {
    let atomic = match opcode {
        SendOpcode::FetchAdd => Some(AtomicOperation::FetchAdd { add: 1 }),
        SendOpcode::CompareSwap => Some(AtomicOperation::CompareSwap { compare: 0, swap: 1 }),
        _ => None,
    };
    SendRequest {
        sges,
        atomic,
        remote: RemoteTarget { address: IOVA, rkey },
        flags: SendFlags::SIGNALED,
        ..SendRequest::new(1, opcode)
    }
}

/// Where datagrams for a queue pair go.
pub(crate) fn destination(node: &Node, ip: IpAddr, qpn: Qpn, qkey: u32) -> UdDestination {
    let (_, path) = node.hca.create_ah(node.pd, &address_vector(ip)).unwrap();
    UdDestination { path, qpn, qkey }
}

/// Connects queue pairs of two other processes; `options` are those of the first one's.
pub(crate) fn join([one, other]: [&mut Remote; 2], options: &str) -> [u32; 2] {
    let numbers = [one.number(&format!("qp type=rc {options}")), other.number("qp type=rc recv=200")];
    let (words, [ip, peer_ip]) = (words(PATIENT), [one.ip, other.ip]);
    let [own, peer]: [u32; 2] = numbers;
    one.ask(&format!("connect qp={own} peer={peer} ip={peer_ip} {words}"));
    other.ask(&format!("connect qp={peer} peer={own} ip={ip} {words}"));
    numbers
}
