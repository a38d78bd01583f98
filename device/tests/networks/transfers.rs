//! Transfers between hosts of a simulated network that all begin at once, and when each of them has ended.

use std::net::IpAddr;

use pumice_device::addresses::gid_table::GidEntry;
use pumice_device::hca::HcaConfig;
use pumice_device::port::{FabricConfig, FabricStats, QueueReport, Topology};
use pumice_device::world::World;
use pumice_transport::host::Counter;
use pumice_transport::qp::Congestion;
use pumice_transport::types::*;
use pumice_transport::wire::Qpn;

use crate::kit::{Connection, Node, connect};

/// Longest WRITE of a transfer.
const MESSAGE_BYTES: u32 = 1 << 18;
/// Largest number of WRITEs that a queue pair has at a time.
const OUTSTANDING: usize = 8;
/// Interval between two looks at the queue in front of the receiver, in ns.
const LOOK_NS: u64 = 50_000;
/// Virtual time after which a run counts as one that does not end, in ns.
const LIMIT_NS: u64 = 1_000_000_000;

/// A host that writes so many bytes to another one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Transfer {
    pub(crate) from: u16,
    pub(crate) to: u16,
    pub(crate) bytes: u32,
}

/// Transfers, and the network in which they begin at time 0.
#[derive(Debug, Clone)]
pub(crate) struct Start {
    pub(crate) topology: Topology,
    pub(crate) congestion: Congestion,
    pub(crate) mtu: Mtu,
    /// Queue pairs of each transfer, which share its bytes. Each has a source port, and so a way.
    pub(crate) queue_pairs: u32,
    pub(crate) transfers: Vec<Transfer>,
}

/// When each transfer has ended at its sender, in ns, and what the network did.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) ends_ns: Vec<u64>,
    /// Bytes in the queue to the receiver of the first transfer, each 50 us.
    pub(crate) looks: Vec<u64>,
    pub(crate) stats: FabricStats,
    pub(crate) queues: Vec<QueueReport>,
    pub(crate) sent_again: u64,
    pub(crate) cnps: u64,
}

impl End {
    pub(crate) fn last_us(&self) -> f64 {
        self.ends_ns.iter().max().map_or(0.0, |ns| *ns as f64 / 1e3)
    }

    /// The longest that a queue of a switch was, in bytes.
    pub(crate) fn longest_queue_bytes(&self) -> u64 {
        let of_switches = self.queues.iter().filter(|queue| !queue.name.starts_with("host"));
        of_switches.map(|queue| queue.most_bytes).max().unwrap_or(0)
    }
}

/// Hosts 1 to `senders` to host 0.
pub(crate) fn incast(senders: u16, bytes: u32) -> Vec<Transfer> {
    (1..=senders).map(|from| Transfer { from, to: 0, bytes }).collect()
}

/// Transfers of so many bytes between pairs of hosts.
pub(crate) fn transfers(pairs: &[(u16, u16)], bytes: u32) -> Vec<Transfer> {
    pairs.iter().map(|&(from, to)| Transfer { from, to, bytes }).collect()
}

/// A queue pair that sends.
struct Sender {
    qpn: Qpn,
    unposted_bytes: u32,
    /// Messages without a completion.
    outstanding: usize,
}

/// A transfer that has begun.
struct Running {
    transfer: Transfer,
    senders: Vec<Sender>,
    ended_ns: Option<u64>,
}

impl Start {
    fn node(&self, world: &mut World, host: u16) -> Node {
        let [high, low] = (host + 1).to_be_bytes();
        let ip = IpAddr::from([10, 0, high, low]);
        let gid = GidEntry::new(ip, "sim", 0, Mtu::Mtu4096);
        let congestion = self.congestion.clone();
        let config = HcaConfig { congestion, ..HcaConfig::new(&format!("pumice{host}"), vec![gid]) };
        let hca = world.add_hca_with(config, |port| Box::new(port)).unwrap();
        Node::on(hca, ip, MESSAGE_BYTES as usize, 1 << 12)
    }

    fn connect(&self, nodes: &[Node], transfer: Transfer) -> Running {
        let [from, to] = [transfer.from, transfer.to].map(|host| &nodes[usize::from(host)]);
        let share = transfer.bytes.div_ceil(self.queue_pairs);
        let mut bytes_left = transfer.bytes;
        let sender = |_| {
            let unposted_bytes = share.min(bytes_left);
            bytes_left -= unposted_bytes;
            Sender { qpn: self.connect_pair(from, to), unposted_bytes, outstanding: 0 }
        };
        Running { transfer, senders: (0..self.queue_pairs).map(sender).collect(), ended_ns: None }
    }

    /// Connects two queue pairs. Returns that of the sender.
    fn connect_pair(&self, from: &Node, to: &Node) -> Qpn {
        let (sends, receives) = (from.create_qp(QpType::Rc), to.create_qp(QpType::Rc));
        // 67 ms: nothing is sent again because a queue is long.
        let numbers = Connection { mtu: self.mtu, timeout: 14, ..Connection::default() };
        connect(from, sends, to, receives, true, numbers);
        sends
    }

    /// Runs it to its end.
    pub(crate) fn run(&self) -> End {
        let topology = self.topology.clone();
        let (seed, hosts) = (topology.seed, topology.hosts);
        let mut world =
            World::new(FabricConfig { seed, topology: Some(topology), ..FabricConfig::default() });
        let nodes: Vec<Node> = (0..hosts).map(|host| self.node(&mut world, host)).collect();
        let mut running: Vec<Running> =
            self.transfers.iter().map(|transfer| self.connect(&nodes, *transfer)).collect();
        for (number, one) in running.iter_mut().enumerate() {
            one.post(number as u64, &nodes);
        }
        let receiver = self.transfers.first().map_or(0, |first| first.to);
        let watched = format!(" to host {receiver}");
        let (mut looks, mut next_look_ns) = (Vec::new(), LOOK_NS);
        while running.iter().any(|one| one.ended_ns.is_none()) {
            assert!(world.now_ns() < LIMIT_NS && world.step(), "it does not end");
            for completion in nodes.iter().flat_map(Node::drain) {
                running[completion.wr_id as usize].handle(&completion, &nodes, world.now_ns());
            }
            if world.now_ns() >= next_look_ns {
                let queues = world.fabric().queues();
                looks.extend(
                    queues.iter().find(|queue| queue.name.ends_with(&watched)).map(|queue| queue.bytes),
                );
                next_look_ns += LOOK_NS;
            }
        }
        let sum = |counter| nodes.iter().map(|node| node.counter(counter)).sum();
        End {
            ends_ns: running.iter().filter_map(|one| one.ended_ns).collect(),
            looks,
            stats: world.fabric().stats(),
            queues: world.fabric().queues(),
            sent_again: sum(Counter::RetransmittedPackets),
            cnps: sum(Counter::TxCnp),
        }
    }
}

impl Running {
    /// Keeps messages posted; `number` is that of the transfer.
    fn post(&mut self, number: u64, nodes: &[Node]) {
        let [from, to] = [self.transfer.from, self.transfer.to].map(|host| &nodes[usize::from(host)]);
        for sender in &mut self.senders {
            while sender.unposted_bytes > 0 && sender.outstanding < OUTSTANDING {
                let length = sender.unposted_bytes.min(MESSAGE_BYTES);
                let request = SendRequest {
                    sges: &[from.sge(0, length)],
                    remote: to.target(0),
                    ..SendRequest::new(number, SendOpcode::RdmaWrite)
                };
                from.hca.post_send(sender.qpn, &request).unwrap();
                sender.outstanding += 1;
                sender.unposted_bytes -= length;
            }
        }
    }

    fn handle(&mut self, completion: &WorkCompletion, nodes: &[Node], now_ns: u64) {
        assert_eq!(completion.status, WcStatus::Success);
        let sender = self.senders.iter_mut().find(|sender| sender.qpn.value() == completion.qp_num);
        sender.expect("it is one of its queue pairs").outstanding -= 1;
        self.post(completion.wr_id, nodes);
        if self.senders.iter().all(|sender| sender.outstanding == 0) {
            self.ended_ns = Some(now_ns);
        }
    }
}
