//! How a device is opened: the one place where its parts are put together.
//!
//! Settings and options become an [`Opening`]; it decides who listens, puts the port and its layers together,
//! lowest first — the network, switches, the link, the tap where captures are made — and starts the engine
//! and its driver. The C ABI, the Rust API and the command line open their devices here.

use std::io::{self, Write};
use std::net::IpAddr;
use std::sync::Arc;

use pumice_engine::hca::{CallGate, CallWatch, Decisions, Hca, HcaConfig, HcaError};
use pumice_engine::world::World;
use pumice_events::counters::Counters;
use pumice_events::{Subscribers, Topics};
use pumice_faults::calls::{CallFaults, CallRules};
use pumice_faults::shuffle::{Shuffle, ShuffleOptions};
use pumice_faults::{FaultPlan, PlanAtWork, PlanError, Triggers};
use pumice_ground::clock::Clock;
use pumice_ground::outside;
use pumice_ground::outside::output_file::{OutputFile, on_standard_error};
use pumice_instruments::capture::{CaptureSubscriber, whole_blocks};
use pumice_instruments::listeners::{
    AwaitedEvents, FaultWitness, Faulted, LogHook, LogSubscriber, ReportSource, StepHook, StepSubscriber,
};
use pumice_instruments::trace::{ClockBase, TraceNetwork, TraceSource};
use pumice_ports::{
    Link, LinkPort, Port, PortError, SwitchedPort, Switching, TapPort, Topology, TwoPorts, UdpConfig, UdpPort,
};
use pumice_profile::settings::Wire;
use pumice_share::{ShareConfig, ShareError, SharedPort, switches};
use pumice_transport::wire::ProcessIndex;

use crate::recording::{LiveTraces, Recorded};

/// Opens what a capture is written to, once the port is there.
pub type CaptureSource = Box<dyn FnOnce() -> io::Result<Box<dyn Write + Send>> + Send>;

/// A device that is to be opened.
pub struct Opening {
    /// Name, addresses, limits, and who listens.
    pub hca: HcaConfig,
    /// What goes wrong on purpose.
    pub faults: FaultPlan,
    /// What its rules wait for, if that is counted elsewhere in the process too; else the device counts.
    pub triggers: Option<Arc<Triggers>>,
    /// What the plan calls this process: its fates depend on it. By default the name of the device.
    pub tag: Option<String>,
    /// The device asks the plan about calls ([`Hca::calls`]); else that happens before calls reach it.
    pub asks_about_calls: bool,
    /// The gate that holds the rules about calls, if the device does not ask about them.
    pub call_rules: Option<Arc<dyn CallRules>>,
    /// A seed decides what the specification leaves open to a device.
    pub shuffle: Option<ShuffleOptions>,
    /// What the link of the device does to packets.
    pub link: Option<Link>,
    /// The switches between it and other processes of this user on this host. Only on UDP: a simulated
    /// network has its own.
    pub topology: Option<Arc<Topology>>,
    /// Told why queue pairs fail and messages are dropped: on a thread of its own, without locks
    /// (in virtual time at once, inside the call that caused it).
    pub log: Option<LogHook>,
    /// Takes a line for every step of the queue pairs.
    pub steps: Option<StepHook>,
    /// What takes a sentence for each fault that is applied.
    pub fault_log: Option<StepHook>,
    /// Where the report of the faults is written to.
    pub fault_report: Option<ReportSource>,
    /// The report and the sentences name the device: the process has others.
    pub names_device: bool,
    /// Where packets are written to as they meet the network, after the faults.
    pub capture: Option<CaptureSource>,
    /// Where everything that happens is recorded.
    pub trace: Option<TraceSource>,
}

/// UDP of the operating system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UdpNetwork {
    /// The address whose UDP port is taken; unspecified: that of all addresses.
    pub address: IpAddr,
    /// Keeps the UDP port to this process, instead of sharing it with others of the same user.
    pub exclusive: bool,
    /// Bytes asked for as socket buffers, each way; 4 MiB by default.
    pub buffer_bytes: Option<usize>,
    /// How packets reach other processes of this host.
    pub wire: Wire,
    /// The process has other devices on other addresses, which its published counters are kept apart from.
    pub one_of_several: bool,
    /// The addresses of the device's ports, if it has two; `address` is that of all then.
    pub ports: Vec<IpAddr>,
}

/// A device on UDP.
pub struct Opened {
    /// The device.
    pub hca: Hca,
    /// What the user should know about how the port is shared.
    pub notice: Option<String>,
}

/// Why a device was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The UDP port cannot be had.
    #[error(transparent)]
    Port(PortError),
    /// The UDP port cannot be shared.
    #[error(transparent)]
    Share(ShareError),
    /// The capture cannot be written.
    #[error("packets cannot be captured: {0}")]
    Capture(io::Error),
    /// The trace cannot be written.
    #[error("a trace cannot be written: {0}")]
    Trace(io::Error),
    /// The report of the faults cannot be written.
    #[error("the report of faults cannot be written: {0}")]
    Report(io::Error),
    /// The fault plan makes no sense.
    #[error("the fault plan cannot be used: {0}")]
    Faults(#[from] PlanError),
    /// The switches cannot be used.
    #[error("the topology cannot be used: {0}")]
    Topology(String),
    /// The device refused.
    #[error(transparent)]
    Hca(#[from] HcaError),
}

impl Opening {
    /// A device without faults and captures.
    pub fn new(hca: HcaConfig) -> Opening {
        Opening {
            hca,
            faults: FaultPlan::new(),
            triggers: None,
            tag: None,
            asks_about_calls: false,
            call_rules: None,
            shuffle: None,
            link: None,
            topology: None,
            log: None,
            steps: None,
            fault_log: None,
            fault_report: None,
            names_device: false,
            capture: None,
            trace: None,
        }
    }

    /// The same with a capture to a new file, which replaces an old one. That it cannot be written any more
    /// is said on standard error.
    #[must_use]
    pub fn captured_to(mut self, file: impl Into<std::path::PathBuf>) -> Opening {
        let file = file.into();
        self.capture = Some(Box::new(move || {
            let say = Box::new(on_standard_error);
            let out = OutputFile::create(&file, "the capture", whole_blocks, say)?;
            let out: Box<dyn Write + Send> = Box::new(io::BufWriter::with_capacity(1 << 18, out));
            Ok(out)
        }));
        self
    }

    /// Opens it on UDP, with the operating system's clock and a background thread.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn on_udp(mut self, network: &UdpNetwork) -> Result<Opened, OpenError> {
        let topology = self.topology.take();
        let switches = topology.as_ref().map_or_else(String::new, |topology| topology.in_words());
        let switching = topology.map(|topology| self.switching(&topology)).transpose()?;
        let mut udp = UdpConfig::new(network.address);
        udp.buffer_bytes = network.buffer_bytes.unwrap_or(udp.buffer_bytes);
        let mut notice = None;
        let mut port: Box<dyn Port> = if network.exclusive {
            self.hca.process = ProcessIndex::NONE;
            Box::new(UdpPort::bind(&udp).map_err(OpenError::Port)?)
        } else {
            let share = ShareConfig {
                udp_only: network.wire == Wire::Udp,
                counts_apart: network.one_of_several,
                ports: network.ports.clone(),
                ..ShareConfig::new(udp)
            };
            let mut shared = SharedPort::open(&share).map_err(OpenError::Share)?;
            self.hca.process = shared.process();
            notice = shared.notice().map(str::to_owned);
            match network.ports[..] {
                [first, second] => {
                    let counters = [Arc::new(Counters::new()), Arc::new(Counters::new())];
                    shared.observe_ports(&counters);
                    self.hca.port_counters = counters.to_vec();
                    Box::new(TwoPorts::new(shared, [first, second], counters))
                }
                _ => Box::new(shared),
            }
        };
        let clock = Clock::monotonic();
        if let Some(switching) = switching {
            port = Box::new(SwitchedPort::new(port, &switching, &clock));
        }
        let since_1970 = outside::since_1970();
        let time_base_ns = (since_1970.as_nanos() as u64).wrapping_sub(clock.now_ns());
        let hca = self.on_port(port, clock, time_base_ns, switches)?;
        Ok(Opened { hca, notice })
    }

    /// The switches behind which the device is.
    fn switching(&self, topology: &Arc<Topology>) -> Result<Switching, OpenError> {
        topology.check().map_err(OpenError::Topology)?;
        let own: Vec<IpAddr> = self.hca.gids.iter().map(|entry| entry.ip).collect();
        topology.check_device(&self.hca.name, &own).map_err(OpenError::Topology)?;
        switches(topology).map_err(OpenError::Share)
    }

    /// Opens it on the simulated network of a world, in virtual time.
    ///
    /// # Errors
    /// [`OpenError::Capture`], [`OpenError::Hca`].
    pub fn in_world(self, world: &mut World) -> Result<Arc<Hca>, OpenError> {
        let addresses: Vec<IpAddr> = self.hca.gids.iter().map(|entry| entry.ip).collect();
        world.add_opened(&addresses, |port, clock| self.on_port(Box::new(port), clock, 0, String::new()))
    }

    /// `time_base_ns` makes the time of a capture of the clock's; `switches`: those that it is behind, in
    /// words.
    fn on_port(
        mut self,
        mut port: Box<dyn Port>,
        clock: Clock,
        time_base_ns: u64,
        switches: String,
    ) -> Result<Hca, OpenError> {
        self.faults.check()?;
        let tag = self.tag.take().unwrap_or_else(|| self.hca.name.clone());
        let triggers = self.triggers.take().unwrap_or_else(|| Triggers::new(&self.faults, &clock));
        self.faults = self.faults.of_device(&self.hca.name);
        let mut faults = PlanAtWork::new(&self.faults, &tag, &triggers, &clock).on(&self.hca.name);
        let own_plan = if self.asks_about_calls { self.faults.clone() } else { FaultPlan::new() };
        let own_calls = CallFaults::new(&own_plan, &tag, &triggers);
        if let Some(source) = self.capture.take() {
            faults.keep_notes();
            let out = source().map_err(OpenError::Capture)?;
            let capture = CaptureSubscriber::new(out, time_base_ns).map_err(OpenError::Capture)?;
            self.hca.subscribers.push(Box::new(capture));
        }
        let recorded = self.recorded(&tag, switches, &clock);
        if let Some(source) = self.trace.take() {
            let trace = source().and_then(|trace| recorded.begin(trace)).map_err(OpenError::Trace)?;
            self.hca.subscribers.push(Box::new(trace));
        }
        self.hca.subscribers.push(Box::new(AwaitedEvents(Arc::clone(&triggers))));
        let (report, hook) = (self.fault_report.take(), self.fault_log.take());
        let mut names = faults.names();
        names.extend(own_calls.names().map(str::to_owned));
        let device = self.names_device.then(|| self.hca.name.clone());
        let of = Faulted { tag: tag.clone(), seed: self.faults.seed(), device };
        let witness = FaultWitness::new(of, names, report, hook);
        let witness = witness.map_err(OpenError::Report)?.of_calls(self.asks_about_calls);
        self.hca.subscribers.push(Box::new(witness));
        let calls = CallWatch::default();
        self.hca.subscribers.push(Box::new(calls.clone()));
        if let Some(hook) = self.log.take() {
            // In virtual time there are no threads: the hook is called at once.
            let log = if clock.is_virtual() {
                LogSubscriber::at_once(hook)
            } else {
                LogSubscriber::on_thread(hook).map_err(HcaError::from)?
            };
            self.hca.subscribers.push(Box::new(log));
        }
        if let Some(hook) = self.steps.take() {
            self.hca.subscribers.push(Box::new(StepSubscriber::on_thread(hook).map_err(HcaError::from)?));
        }
        let subscribers: Arc<Subscribers> = Arc::new(self.hca.subscribe(&clock));
        let is_tapped = subscribers.listen(Topics::BATCHES);
        // A link that a plan makes later is below the tap as well.
        if is_tapped || self.link.is_some() {
            let link = self.link.unwrap_or_default().seeded(self.faults.seed(), &tag);
            port = Box::new(LinkPort::new(port, link, &clock));
        }
        if is_tapped {
            port = Box::new(TapPort::new(port, Arc::clone(&subscribers)));
        }
        let shuffle = self.shuffle.map(|options| Arc::new(Shuffle::new(options, &tag, clock.is_virtual())));
        let calls = CallGate::new(calls, own_calls, Arc::clone(&triggers), Arc::clone(&subscribers));
        faults.calls = if self.asks_about_calls { Some(calls.rules()) } else { self.call_rules };
        let decisions = Decisions::new(Some(Box::new(faults)), shuffle);
        let hca = Hca::open_with(self.hca, port, clock, calls, decisions)?;
        triggers.attend(hca.call_attendant());
        if !hca.clock().is_virtual() {
            hca.add_recorder(Box::new(LiveTraces::new(recorded, hca.events())));
        }
        Ok(hca)
    }

    /// What traces say of the device.
    fn recorded(&self, tag: &str, switches: String, clock: &Clock) -> Recorded {
        let link = self.link.map_or_else(String::new, |link| link.settings().to_string());
        Recorded {
            device: self.hca.name.clone(),
            tag: tag.to_owned(),
            addresses: self.hca.gids.iter().map(|entry| entry.ip).collect(),
            network: TraceNetwork { link, switches },
            base: ClockBase::of(clock),
        }
    }
}
