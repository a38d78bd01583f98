//! The opening of a device: the one place where its parts are assembled.
//!
//! Settings and options become an [`Opening`]; it decides who subscribes, assembles the port and its layers,
//! lowest first — the network, switches, the link, the tap where captures are made — and starts the engine
//! and its driver. The C ABI, the Rust API and the command line open their devices here.

use std::io::{self, Write};
use std::net::IpAddr;
use std::sync::Arc;

use pumice_analysis::listeners::{
    AwaitedEvents, FaultOrigin, FaultReporter, LogHook, LogSubscriber, ReportSource, StepHook,
    StepSubscriber, UnusedRules,
};
use pumice_engine::hca::{CallGate, CallWatch, Decisions, Hca, HcaConfig, HcaError};
use pumice_engine::world::World;
use pumice_fabric::sharing::{SharedPort, SharedPortConfig, SharingError, switches};
use pumice_fabric::{FetchPort, LinkPort, SwitchedPort, Switching, TwoPorts, UdpConfig, UdpPort};
use pumice_faults::calls::{CallFaults, CallRules};
use pumice_faults::{ActivePlan, FaultPlan, PlanError, Triggers};
use pumice_model::counters::Counters;
use pumice_model::event::{Subscribers, Topics};
use pumice_model::network::Link;
use pumice_model::network::topology::Topology;
use pumice_model::performance::Costs;
use pumice_model::port::Port;
use pumice_model::settings::{CopyMode, Wire};
use pumice_model::shuffle::{Shuffle, ShuffleOptions};
use pumice_platform::clock::Clock;
use pumice_platform::outside;
use pumice_platform::outside::output_file::{OutputFile, on_standard_error};
use pumice_platform::udp::PortError;
use pumice_recording::capture::{CaptureSubscriber, TapPort, whole_blocks};
use pumice_recording::recorder::{ClockBase, TraceNetwork, TraceSource};
use pumice_transport::wire::ProcessIndex;

use crate::recording::{LiveTraces, TracedDevice};

/// A function that opens the destination of a capture, once the port exists.
pub type CaptureSource = Box<dyn FnOnce() -> io::Result<Box<dyn Write + Send>> + Send>;

/// The configuration of a device that is to be opened.
pub struct Opening {
    /// Name, addresses, limits, and subscribers.
    pub hca: HcaConfig,
    /// Faults to inject.
    pub faults: FaultPlan,
    /// Triggers of its rules, if they are counted elsewhere in the process too; otherwise the device counts.
    pub triggers: Option<Arc<Triggers>>,
    /// Tag of this process in the plan: its fates depend on it. By default the name of the device.
    pub tag: Option<String>,
    /// The device asks the plan about calls ([`Hca::calls`]); otherwise that happens before calls reach it.
    pub asks_about_calls: bool,
    /// Gate that holds the rules about calls, if the device does not ask about them.
    pub call_rules: Option<Arc<dyn CallRules>>,
    /// Seed that decides what the specification leaves open to a device.
    pub shuffle: Option<ShuffleOptions>,
    /// Link of the device, through which packets pass.
    pub link: Option<Link>,
    /// Switches between it and other processes of this user on this host. Only on UDP: a simulated network
    /// has its own.
    pub topology: Option<Arc<Topology>>,
    /// Hook that is called when queue pairs fail and messages are dropped: on a thread of its own, without
    /// locks (in virtual time at once, inside the call that caused it).
    pub log: Option<LogHook>,
    /// Hook that takes a line for every step of the queue pairs.
    pub steps: Option<StepHook>,
    /// Hook that takes a sentence for each fault that is applied.
    pub fault_log: Option<StepHook>,
    /// Destination of the report of the faults.
    pub fault_report: Option<ReportSource>,
    /// Record that reports at the end of the process which rules never applied; without it the device reports
    /// them at its end.
    pub unused_rules: Option<Arc<UnusedRules>>,
    /// The report and the sentences name the device, because the process has others.
    pub names_device: bool,
    /// Destination of a capture of the packets on the network, after the faults.
    pub capture: Option<CaptureSource>,
    /// File of a trace of everything that happens.
    pub trace: Option<TraceSource>,
}

/// UDP of the operating system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UdpNetwork {
    /// Address whose UDP port is taken; unspecified means that of all addresses.
    pub address: IpAddr,
    /// Keeps the UDP port to this process, instead of sharing it with others of the same user.
    pub exclusive: bool,
    /// Size asked for socket buffers, each way, in bytes; 4 MiB by default.
    pub buffer_bytes: Option<usize>,
    /// Medium by which packets reach other processes of this host.
    pub wire: Wire,
    /// Way in which long messages are copied to other processes of this host.
    pub copy: CopyMode,
    /// The process has other devices on other addresses, which its published counters are kept apart from.
    pub one_of_several: bool,
    /// Addresses of the device's ports, if it has two; `address` is that of all then.
    pub ports: Vec<IpAddr>,
}

/// A device on UDP.
pub struct Opened {
    /// Device that was opened.
    pub hca: Hca,
    /// Sentence for the user about how the port is shared.
    pub notice: Option<String>,
}

/// The reason why a device was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The UDP port cannot be opened.
    #[error(transparent)]
    Port(PortError),
    /// The UDP port cannot be shared.
    #[error(transparent)]
    Share(SharingError),
    /// The capture cannot be written.
    #[error("packets cannot be captured: {0}")]
    Capture(io::Error),
    /// The trace cannot be written.
    #[error("a trace cannot be written: {0}")]
    Trace(io::Error),
    /// The report of the faults cannot be written.
    #[error("the report of faults cannot be written: {0}")]
    Report(io::Error),
    /// The fault plan is invalid.
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
    /// Creates the configuration of a device without faults and captures.
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
            unused_rules: None,
            names_device: false,
            capture: None,
            trace: None,
        }
    }

    /// Adds a capture to a new file, which replaces an old one. A failure to write to it later is reported on
    /// standard error.
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

    /// Opens the device on UDP, with the operating system's clock and a background thread.
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
            let share = SharedPortConfig {
                udp_only: network.wire == Wire::Udp,
                copy: network.copy,
                counts_apart: network.one_of_several,
                ports: network.ports.clone(),
                ..SharedPortConfig::new(udp)
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
            let is_exact = outside::world::has_model();
            port = Box::new(SwitchedPort::new(port, &switching, &clock).each_at_its_time(is_exact));
        }
        let since_1970 = outside::since_1970();
        let time_base_ns = (since_1970.as_nanos() as u64).wrapping_sub(clock.now_ns());
        let hca = self.on_port(port, clock, time_base_ns, switches)?;
        Ok(Opened { hca, notice })
    }

    /// Returns the switches behind which the device is.
    fn switching(&self, topology: &Arc<Topology>) -> Result<Switching, OpenError> {
        topology.check().map_err(OpenError::Topology)?;
        let own: Vec<IpAddr> = self.hca.gids.iter().map(|entry| entry.ip).collect();
        topology.check_device(&self.hca.name, &own).map_err(OpenError::Topology)?;
        switches(topology).map_err(OpenError::Share)
    }

    /// Opens the device on the simulated network of a world, in virtual time.
    ///
    /// # Errors
    /// Fails with [`OpenError::Capture`] or [`OpenError::Hca`].
    pub fn in_world(self, world: &mut World) -> Result<Arc<Hca>, OpenError> {
        let addresses: Vec<IpAddr> = self.hca.gids.iter().map(|entry| entry.ip).collect();
        world.add_opened(&addresses, |port, clock| self.on_port(Box::new(port), clock, 0, String::new()))
    }

    /// Opens the device on a port. `time_base_ns` converts a time of the clock to that of a capture;
    /// `switches` are those that it is behind, in words.
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
        let mut faults = ActivePlan::new(&self.faults, &tag, &triggers, &clock).on(&self.hca.name);
        let own_plan = if self.asks_about_calls { self.faults.clone() } else { FaultPlan::new() };
        let own_calls = CallFaults::new(&own_plan, &tag, &triggers);
        if let Some(source) = self.capture.take() {
            faults.store_notes();
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
        let of = FaultOrigin { tag: tag.clone(), seed: self.faults.seed(), device };
        let fault_reporter = FaultReporter::new(of, names, report, hook);
        let fault_reporter = fault_reporter.map_err(OpenError::Report)?.of_calls(self.asks_about_calls);
        let fault_reporter = fault_reporter.of_process(self.unused_rules.take());
        self.hca.subscribers.push(Box::new(fault_reporter));
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
        let costs = costs_of_world(&clock);
        // What an adapter reads from memory costs time in a model, and lanes do not say it.
        self.hca.lanes &= costs.is_none();
        if is_tapped || self.link.is_some() || costs.is_some() {
            let link = self.link.unwrap_or_default().seeded(self.faults.seed(), &tag);
            port = Box::new(LinkPort::new(port, link, &clock).with_costs(costs));
        }
        if let Some(costs) = costs {
            port = Box::new(FetchPort::new(port, costs));
        }
        if is_tapped {
            port = Box::new(TapPort::new(port, Arc::clone(&subscribers)));
        }
        let shuffle = self.shuffle.map(|options| Arc::new(Shuffle::new(options, &tag, clock.is_virtual())));
        let calls = CallGate::new(calls, own_calls, Arc::clone(&triggers), Arc::clone(&subscribers));
        faults.calls = if self.asks_about_calls { Some(calls.rules()) } else { self.call_rules };
        let decisions = Decisions::new(Some(Box::new(faults)), shuffle);
        let hca = Hca::open_with(self.hca, port, clock, calls, decisions)?;
        triggers.add_hook(hca.call_hook());
        if !hca.clock().is_virtual() {
            hca.add_recorder(Box::new(LiveTraces::new(recorded, hca.events())));
        }
        Ok(hca)
    }

    /// Returns the description of the device for traces.
    fn recorded(&self, tag: &str, switches: String, clock: &Clock) -> TracedDevice {
        let link = self.link.map_or_else(String::new, |link| link.settings().to_string());
        TracedDevice {
            device: self.hca.name.clone(),
            tag: tag.to_owned(),
            addresses: self.hca.gids.iter().map(|entry| entry.ip).collect(),
            network: TraceNetwork { link, switches },
            base: ClockBase::of(clock),
        }
    }
}

/// Returns the costs of the performance model of the process's world, if it is in one that has a model.
fn costs_of_world(clock: &Clock) -> Option<Costs> {
    let text = outside::world::model().filter(|_| !clock.is_virtual())?;
    Costs::parse(&text)
}
