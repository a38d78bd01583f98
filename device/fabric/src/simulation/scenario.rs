//! The run of a seed: bursts in which everything happens at once, calm times in which everything has to work,
//! and an end at which nothing may be left.

use std::cell::RefCell;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use pumice_platform::clock::Random;
use pumice_transport::host::Counter;
use pumice_transport::path::Flow;
use pumice_transport::wire::ProcessIndex;

use super::actor::{self, PORT, Plan, SharedLedger};
use super::kernel::{Packet, Pid, SimProcessState};
use super::ledger::{GRACE_NS, Ledger, LedgerTally, Phase, REQUEST_BOUND_NS};
use super::sockets::SocketName;
use super::world::World;
use super::{TaskWait, block, call, observe};
use crate::system::Guard;

/// User whose processes share the port.
const USER: u32 = 1000;
/// Another user, who is hostile.
const STRANGER: u32 = 1001;
const RUNTIME_FOLDER: &str = "/run/user/1000";
const BURSTS: u64 = 3;
/// Number of processes at a time.
const MAX_PROCESSES: usize = 6;
/// Time at the end after which all awaited packets have come and retries of locks are over, in nanoseconds.
const SETTLING_NS: u64 = 400_000_000;
/// Number of steps after which a phase counts as hanging.
const MAX_STEPS: u64 = 2_000_000;

/// Result of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ScenarioOutcome {
    pub(super) violation: Option<String>,
    pub(super) tally: LedgerTally,
    /// Number of system calls made.
    pub(super) calls: u64,
    /// Hash of all that happened, in order: equal for equal runs.
    pub(super) trace: u64,
}

/// Deviations of a run from the usual.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Options {
    /// Guards that are switched off.
    pub(super) without: &'static [Guard],
}

/// Runs a seed.
pub(super) fn run(seed: u64, options: Options) -> ScenarioOutcome {
    let mut run = ScenarioRun::new(seed, options);
    for _ in 0..BURSTS {
        run.burst();
        run.calm();
    }
    run.settle();
    run.close();
    run.check_what_is_left();
    run.outcome()
}

struct ScenarioRun {
    random: Random,
    /// Processes are killed, and fork.
    may_be_killed: bool,
    world: World,
    ledger: SharedLedger,
    /// Processes of the user that have not ended.
    own: Vec<Pid>,
    children: Vec<Pid>,
    last: Option<Pid>,
    /// Percentage of steps at which the process that ran last goes on.
    same_actor_bias: u64,
    trace: u64,
}

impl ScenarioRun {
    fn new(seed: u64, options: Options) -> ScenarioRun {
        let mut random = Random::new(seed);
        let mut world = World::new(options.without);
        world.kernel.borrow_mut().add_user_folder(Path::new(RUNTIME_FOLDER), USER);
        let ledger = Rc::new(RefCell::new(Ledger::new()));
        let same_actor_bias = [0, 50, 90, 98][random.below(4) as usize];
        let (impostor_seed, may_be_killed) = (random.next_u64(), random.below(3) > 0);
        world.start(STRANGER, move |_| be_an_impostor(impostor_seed));
        ScenarioRun {
            random,
            may_be_killed,
            world,
            ledger,
            own: Vec::new(),
            children: Vec::new(),
            last: None,
            same_actor_bias,
            trace: seed,
        }
    }

    fn now_ns(&self) -> u64 {
        self.world.kernel.borrow().now_ns
    }

    fn failed(&self) -> bool {
        self.ledger.borrow().violation.is_some() || self.world.kernel.borrow().violation.is_some()
    }

    fn start_process(&mut self) {
        let address = IpAddr::from([10, 0, 0, if self.random.below(4) == 0 { 2 } else { 1 }]);
        self.start_process_at(address, false);
    }

    fn start_process_at(&mut self, address: IpAddr, tidies: bool) {
        let folder = PathBuf::from(RUNTIME_FOLDER).join("pumice");
        let (seed, leaves) = (self.random.next_u64(), self.random.below(2) == 0);
        let plan = Plan { seed, address, folder, leaves, tidies };
        let ledger = Rc::clone(&self.ledger);
        let pid = self.world.start(USER, move |pid| actor::live(pid, &plan, &ledger));
        self.own.push(pid);
    }

    /// Makes one step of one process, or of none, and lets a little time pass.
    fn step(&mut self) {
        let ready = self.world.ready();
        let again =
            self.last.filter(|pid| ready.contains(pid) && self.random.below(100) < self.same_actor_bias);
        let chosen = again.or_else(|| ready.get(self.random.below(ready.len() as u64) as usize).copied());
        let Some(pid) = chosen else { return };
        self.last = Some(pid);
        self.world.step(pid);
        let pause_ns = 500 + self.random.below(10_000);
        self.trace =
            (self.trace ^ u64::from(pid) ^ pause_ns).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
        self.after_step(pause_ns);
        if self.world.is_over(pid) {
            self.own.retain(|own| *own != pid);
            self.note_change(pid);
        }
    }

    fn after_step(&mut self, pause_ns: u64) {
        let lost = {
            let mut kernel = self.world.kernel.borrow_mut();
            kernel.now_ns += pause_ns;
            std::mem::take(&mut kernel.lost)
        };
        let mut ledger = self.ledger.borrow_mut();
        lost.iter().for_each(|bytes| ledger.lost(bytes));
    }

    fn note_change(&mut self, process_ended: Pid) {
        let now_ns = self.now_ns();
        let mut ledger = self.ledger.borrow_mut();
        ledger.last_change_ns = now_ns;
        if self.world.kernel.borrow().state(process_ended) == SimProcessState::Exited {
            ledger.process_ended(process_ended);
        }
    }

    fn pick(&mut self, state: SimProcessState) -> Option<Pid> {
        let kernel = self.world.kernel.borrow();
        let all: Vec<Pid> = self.own.iter().copied().filter(|pid| kernel.state(*pid) == state).collect();
        drop(kernel);
        all.get(self.random.below(all.len() as u64) as usize).copied()
    }

    /// Starts, kills, stops, resumes or forks a process.
    fn disturb(&mut self) {
        match self.random.below(10) {
            0..=3 if self.own.len() < MAX_PROCESSES => self.start_process(),
            4 if self.may_be_killed => {
                if let Some(pid) = self.pick(SimProcessState::Runs) {
                    self.ledger.borrow_mut().tally.kills += 1;
                    self.kill(pid);
                }
            }
            5 | 6 => {
                if let Some(pid) = self.pick(SimProcessState::Runs) {
                    self.ledger.borrow_mut().tally.stops += 1;
                    self.world.kernel.borrow_mut().set_state(pid, SimProcessState::Stopped);
                    self.note_change(pid);
                }
            }
            7 => self.resume_one(),
            8 if self.may_be_killed => {
                if let Some(pid) = self.pick(SimProcessState::Runs) {
                    self.ledger.borrow_mut().tally.forks += 1;
                    let child = self.world.kernel.borrow_mut().fork(pid);
                    self.children.push(child);
                }
            }
            _ => self.end_child(),
        }
    }

    fn kill(&mut self, pid: Pid) {
        self.world.kill(pid);
        self.own.retain(|own| *own != pid);
        self.note_change(pid);
        self.after_step(0);
    }

    fn resume_one(&mut self) {
        if let Some(pid) = self.pick(SimProcessState::Stopped) {
            self.world.kernel.borrow_mut().set_state(pid, SimProcessState::Runs);
            self.note_change(pid);
        }
    }

    fn end_child(&mut self) {
        if let Some(child) = self.children.pop() {
            self.world.kernel.borrow_mut().end(child);
            self.note_change(child);
            self.after_step(0);
        }
    }

    /// Sends packets from another host.
    fn send_from_outside(&mut self) {
        let indices = self.ledger.borrow().indices();
        let unknown = (ProcessIndex::new(1 + self.random.below(12) as u8), IpAddr::from([10, 0, 0, 1]));
        let (index, to) =
            indices.get(self.random.below(indices.len() as u64 + 1) as usize).copied().unwrap_or(unknown);
        let number = self.ledger.borrow_mut().sends(None, index, 1).start;
        self.deliver(to, actor::data(index, number));
    }

    fn ask_for_a_service(&mut self) {
        let services = self.ledger.borrow().services();
        let Some(&(service, to, listener)) = services.get(self.random.below(services.len() as u64) as usize)
        else {
            return;
        };
        let number = self.ledger.borrow_mut().asks(service, listener, self.now_ns(), None);
        self.deliver(to, actor::request(service, number));
    }

    fn deliver(&mut self, destination: IpAddr, bytes: Vec<u8>) {
        let source = IpAddr::from([10, 9, 9, 9]);
        let flow = Flow { source, destination, source_port: PORT, destination_port: PORT };
        self.world.kernel.borrow_mut().deliver(Packet { flow, segment_bytes: bytes.len(), bytes });
        self.after_step(0);
    }

    /// Runs a phase in which everything happens.
    fn burst(&mut self) {
        let steps = 200 + self.random.below(800);
        for _ in 0..steps {
            match self.random.below(100) {
                0..=2 => self.disturb(),
                3..=5 => self.send_from_outside(),
                6 => self.ask_for_a_service(),
                _ => self.step(),
            }
            if self.failed() {
                return;
            }
        }
    }

    /// Runs a phase with traffic only: processes that were stopped stay so, or are resumed.
    fn calm(&mut self) {
        while self.random.below(2) == 0 {
            self.resume_one();
        }
        self.last_change_is_now();
        let end_ns = self.now_ns() + GRACE_NS + 2 * REQUEST_BOUND_NS;
        let mut next_ns = self.now_ns();
        while self.now_ns() < end_ns && !self.failed() {
            self.step_until(next_ns);
            next_ns = self.now_ns() + 10_000_000;
            self.ask_for_a_service();
            if self.random.below(2) == 0 {
                self.send_from_outside();
            }
            let now_ns = self.now_ns();
            let all_run = self.pick(SimProcessState::Stopped).is_none() && self.children.is_empty();
            let kernel = self.world.kernel.borrow();
            let certain = all_run || !self.may_be_killed && !kernel.registry_is_held_by_a_stopped_process();
            let runs = |pid| kernel.state(pid) == SimProcessState::Runs;
            self.ledger.borrow_mut().judge_requests(now_ns, certain, runs);
        }
    }

    fn last_change_is_now(&mut self) {
        self.ledger.borrow_mut().last_change_ns = self.now_ns();
    }

    /// Lets processes run until a time. If no process does anything before, the clock moves to that time.
    fn step_until(&mut self, at_ns: u64) {
        while self.now_ns() < at_ns && !self.failed() {
            if self.world.ready().is_empty() {
                self.world.kernel.borrow_mut().now_ns = at_ns;
                return;
            }
            self.step();
        }
    }

    /// Resumes all processes and lets them take what has come, and checks that no packet has disappeared.
    fn settle(&mut self) {
        self.ledger.borrow_mut().phase = Phase::Settle;
        while self.pick(SimProcessState::Stopped).is_some() {
            self.resume_one();
        }
        while !self.children.is_empty() {
            self.end_child();
        }
        let end_ns = self.now_ns() + SETTLING_NS;
        self.step_until(end_ns);
        if !self.failed() {
            self.ledger.borrow_mut().settle();
        }
    }

    /// Lets all processes leave; afterwards one more comes and goes at each address, as the next program
    /// does.
    fn close(&mut self) {
        self.ledger.borrow_mut().phase = Phase::Close;
        self.wait_for_the_last();
        for last_byte in [1, 2] {
            if !self.failed() {
                self.start_process_at(IpAddr::from([10, 0, 0, last_byte]), true);
                self.wait_for_the_last();
            }
        }
    }

    fn wait_for_the_last(&mut self) {
        let mut steps = 0;
        while !self.own.is_empty() && !self.failed() {
            self.step();
            steps += 1;
            if steps > MAX_STEPS {
                self.ledger.borrow_mut().violate(format!("processes {:?} do not end", self.own));
            }
        }
    }

    fn check_what_is_left(&mut self) {
        if self.failed() {
            return;
        }
        let kernel = self.world.kernel.borrow();
        let folder = Path::new(RUNTIME_FOLDER).join("pumice");
        let counted = format!("-counted{}", Counter::COUNT);
        let known = ["", "-backlog", "-services", &counted].map(|end| format!("udp4791-net7{end}"));
        let is_known = |path: &&PathBuf| {
            path.parent() != Some(&folder)
                || known.iter().any(|name| path.file_name().is_some_and(|file| *file == **name))
        };
        let strange: Vec<_> = kernel.files.names.keys().filter(|path| !is_known(path)).collect();
        let (locks, leaks) = (kernel.files.lock_count(), kernel.leaks());
        let mut ledger = self.ledger.borrow_mut();
        if !strange.is_empty() {
            ledger.violate(format!("left behind: {strange:?}"));
        }
        if locks + leaks > 0 {
            ledger.violate(format!("left behind: {locks} locks, {leaks} descriptions"));
        }
    }

    fn outcome(self) -> ScenarioOutcome {
        let ledger = self.ledger.borrow();
        let kernel = self.world.kernel.borrow();
        let violation = kernel.violation.clone().or_else(|| ledger.violation.clone());
        ScenarioOutcome { violation, tally: ledger.tally, calls: kernel.calls, trace: self.trace }
    }
}

/// Runs the hostile user, who binds every free name that a process once had, and reads what comes.
fn be_an_impostor(seed: u64) {
    let mut random = Random::new(seed);
    let mut wanted: Vec<SocketName> = Vec::new();
    let mut caught = Vec::new();
    loop {
        let seen: Vec<SocketName> =
            observe(|kernel, _| kernel.network.names().cloned().collect()).unwrap_or_default();
        for name in seen {
            if !wanted.contains(&name) && wanted.len() < 64 {
                wanted.push(name);
            }
        }
        if let Some(name) = wanted.get(random.below(wanted.len() as u64 + 1) as usize) {
            let bound = call(|kernel, pid| {
                let fd = kernel.open_unix(pid)?;
                match kernel.bind_unix(pid, fd, name) {
                    Ok(()) => Ok(fd),
                    Err(error) => kernel.close(pid, fd).and(Err(error)),
                }
            });
            caught.extend(bound);
        }
        for fd in &caught {
            while let Ok(Some(_)) = call(|kernel, pid| kernel.receive_unix(pid, *fd)) {}
        }
        // Some names are released again, or nothing would be left for others.
        if caught.len() > 4 {
            let fd = caught.remove(random.below(caught.len() as u64) as usize);
            let _ = call(|kernel, pid| kernel.close(pid, fd));
        }
        block(TaskWait::For(std::time::Duration::from_micros(100 + random.below(3_000))));
    }
}
