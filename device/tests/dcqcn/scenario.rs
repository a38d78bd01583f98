//! Senders that share a bottleneck: what each sent when, how long the queue was, what was marked and told.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use pumice_device::addresses::gid_table::GidEntry;
use pumice_device::event::{Event, Subscriber, Topics};
use pumice_device::hca::HcaConfig;
use pumice_device::port::{EcnMarking, FabricConfig, FabricStats, SwitchLink, SwitchQueues, Topology};
use pumice_device::world::World;
use pumice_transport::event::QpEvent;
use pumice_transport::host::Counter;
use pumice_transport::qp::{Congestion, DcqcnParameters, NotificationParameters};
use pumice_transport::types::*;
use pumice_transport::wire::Qpn;

use crate::kit::{Connection, Node, connect};

const MESSAGE_BYTES: u32 = 256 << 10;
const OUTSTANDING: usize = 8;
/// Between two looks at completions.
const TURN_NS: u64 = 20_000;

/// Senders to one receiver on a star.
#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    pub(crate) seed: u64,
    /// When each sender begins; one per sender.
    pub(crate) begins_ns: Vec<u64>,
    /// When each ends.
    pub(crate) ends_ns: Vec<u64>,
    pub(crate) duration_ns: u64,
    /// Between two samples.
    pub(crate) sample_ns: u64,
    pub(crate) link: SwitchLink,
    pub(crate) queues: SwitchQueues,
    pub(crate) congestion: Congestion,
}

/// The marking of the paper: Kmin 5 kB, Kmax 200 kB, Pmax 1 %.
pub(crate) const PAPER_MARKING: EcnMarking =
    EcnMarking::Ramp { min_bytes: 5_000, max_bytes: 200_000, most_ppm: 10_000 };

impl Scenario {
    /// So many senders that all begin at once, with the parameters of the paper at this rate.
    pub(crate) fn paper(senders: usize, rate_mbps: u32, duration_ns: u64) -> Scenario {
        let parameters = DcqcnParameters { line_rate: rate_mbps, ..DcqcnParameters::PAPER };
        Scenario {
            seed: 1,
            begins_ns: vec![0; senders],
            ends_ns: vec![u64::MAX; senders],
            duration_ns,
            sample_ns: 1_000_000,
            link: SwitchLink { rate_mbps, delay_ns: 1_000 },
            queues: SwitchQueues {
                queue_bytes: 12_000_000,
                buffer_bytes: None,
                ecn: Some(PAPER_MARKING),
                pause: None,
            },
            congestion: Congestion::dcqcn(parameters, NotificationParameters::default()),
        }
    }
}

/// What happened between two samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) at_ns: u64,
    /// What each sender's link carried, in Mbit/s.
    pub(crate) mbps: Vec<u64>,
    /// The queue in front of the receiver's link, in bytes.
    pub(crate) queue_bytes: u64,
}

/// What happened.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) samples: Vec<Sample>,
    /// The most that the queue in front of the receiver ever held.
    pub(crate) most_queue_bytes: u64,
    pub(crate) stats: FabricStats,
    /// Marked packets as they arrived: times, by queue pair of the receiver.
    pub(crate) marks: Vec<Vec<u64>>,
    pub(crate) marks_counted: u64,
    pub(crate) cnps_sent: u64,
    pub(crate) cnps_handled: u64,
    pub(crate) sent_again: u64,
    pub(crate) digest: u64,
}

/// Notes marks: queue pair and time.
struct Marks(Arc<Mutex<Vec<(Qpn, u64)>>>);

impl Subscriber for Marks {
    fn topics(&self) -> Topics {
        Topics::REFUSALS
    }

    fn on_event(&self, at_ns: u64, event: &Event<'_>) {
        if let Event::Qp { qp, event: QpEvent::CongestionMarked { .. } } = event {
            self.0.lock().unwrap().push((qp.qpn, at_ns));
        }
    }
}

struct Flow {
    sender: Node,
    sends: Qpn,
    receives: Qpn,
    posted: u64,
    completed: u64,
}

impl Flow {
    /// Keeps messages posted.
    fn turn(&mut self, receiver: &Node, active: bool) {
        for completion in self.sender.drain() {
            assert_eq!(completion.status, WcStatus::Success);
            self.completed += 1;
        }
        while active && self.posted - self.completed < OUTSTANDING as u64 {
            let request = SendRequest {
                sges: &[self.sender.sge(0, MESSAGE_BYTES)],
                remote: receiver.target(0),
                ..SendRequest::new(self.posted, SendOpcode::RdmaWrite)
            };
            self.sender.hca.post_send(self.sends, &request).unwrap();
            self.posted += 1;
        }
    }
}

impl Scenario {
    fn node(&self, world: &mut World, number: usize, marks: Option<Marks>) -> Node {
        let ip = IpAddr::from([10, 0, 0, 1 + number as u8]);
        let gid = GidEntry::new(ip, "sim", 0, Mtu::Mtu4096);
        let mut config = HcaConfig {
            congestion: self.congestion.clone(),
            ..HcaConfig::new(&format!("pumice{number}"), vec![gid])
        };
        if let Some(marks) = marks {
            config.subscribers.push(Box::new(marks));
        }
        Node::on(world.add_hca_with(config, |port| Box::new(port)).unwrap(), ip, MESSAGE_BYTES as usize, 256)
    }

    /// Runs it.
    pub(crate) fn run(&self) -> Outcome {
        let senders = self.begins_ns.len();
        let topology = Topology {
            seed: self.seed,
            queues: self.queues,
            ..Topology::star(1 + senders as u16, self.link)
        };
        let mut world =
            World::new(FabricConfig { seed: self.seed, topology: Some(topology), ..FabricConfig::default() });
        let heard = Arc::new(Mutex::new(Vec::new()));
        let receiver = self.node(&mut world, 0, Some(Marks(Arc::clone(&heard))));
        let mut flows: Vec<Flow> = (1..=senders)
            .map(|number| {
                let sender = self.node(&mut world, number, None);
                let (sends, receives) = (sender.create_qp(QpType::Rc), receiver.create_qp(QpType::Rc));
                let numbers = Connection { mtu: Mtu::Mtu1024, ..Connection::default() };
                connect(&sender, sends, &receiver, receives, true, numbers);
                Flow { sender, sends, receives, posted: 0, completed: 0 }
            })
            .collect();
        let samples = self.watch(&mut world, &receiver, &mut flows);
        let heard = heard.lock().unwrap();
        let of_flow = |flow: &Flow| {
            heard.iter().filter(|(qpn, _)| *qpn == flow.receives).map(|(_, at_ns)| *at_ns).collect()
        };
        let sum = |counter| flows.iter().map(|flow| flow.sender.counter(counter)).sum();
        Outcome {
            samples,
            most_queue_bytes: world.fabric().queues()[1 + senders].most_bytes,
            stats: world.fabric().stats(),
            marks: flows.iter().map(of_flow).collect(),
            marks_counted: receiver.counter(Counter::RxCongestionMarked),
            cnps_sent: receiver.counter(Counter::TxCnp),
            cnps_handled: sum(Counter::RxCnp),
            sent_again: sum(Counter::RetransmittedPackets),
            digest: world.fabric().digest(),
        }
    }

    fn watch(&self, world: &mut World, receiver: &Node, flows: &mut [Flow]) -> Vec<Sample> {
        let mut samples = Vec::new();
        let mut sent = vec![0; flows.len()];
        let mut next_sample_ns = self.sample_ns;
        while world.now_ns() < self.duration_ns {
            let now_ns = world.now_ns();
            for (number, flow) in flows.iter_mut().enumerate() {
                let active = (self.begins_ns[number]..self.ends_ns[number]).contains(&now_ns);
                flow.turn(receiver, active);
            }
            world.run_for(TURN_NS.min(next_sample_ns - now_ns));
            if world.now_ns() >= next_sample_ns {
                let queues = world.fabric().queues();
                let rate = |number: usize, sent: &mut u64| {
                    let before = std::mem::replace(sent, queues[1 + number].sent_bytes);
                    (*sent - before) * 8_000 / self.sample_ns
                };
                let mbps = sent.iter_mut().enumerate().map(|(number, sent)| rate(number, sent)).collect();
                let queue_bytes = queues[1 + flows.len()].bytes;
                samples.push(Sample { at_ns: next_sample_ns, mbps, queue_bytes });
                next_sample_ns += self.sample_ns;
            }
        }
        samples
    }
}

impl Outcome {
    /// What each sender had from `from_ns` on, in Mbit/s.
    pub(crate) fn shares(&self, from_ns: u64) -> Vec<u64> {
        let late: Vec<&Sample> = self.samples.iter().filter(|sample| sample.at_ns > from_ns).collect();
        let flows = late.first().map_or(0, |sample| sample.mbps.len());
        (0..flows)
            .map(|flow| late.iter().map(|sample| sample.mbps[flow]).sum::<u64>() / late.len() as u64)
            .collect()
    }

    /// The CNPs that the marks lead to by the rule: one for a mark if the last one for that queue pair is so
    /// long ago.
    pub(crate) fn cnps_by_rule(&self, interval_ns: u64) -> u64 {
        let of_flow = |marks: &Vec<u64>| {
            let mut last = None;
            let mut cnps = 0;
            for at_ns in marks {
                if last.is_none_or(|last| at_ns - last >= interval_ns) {
                    (last, cnps) = (Some(*at_ns), cnps + 1);
                }
            }
            cnps
        };
        self.marks.iter().map(of_flow).sum()
    }
}
