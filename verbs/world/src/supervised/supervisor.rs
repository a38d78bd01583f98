//! The supervisor: lets one thread of the world go on after the other.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::alarms::Alarms;
use super::chance::{Ahead, Chance};
use super::clock::Clock;
use super::delivery::Delivery;
use super::devices::Devices;
use super::filter;
use super::lent::LentPoints;
use super::processor::Bound;
use super::readiness::Descriptors;
use super::spin::{Proof, prove};
use super::start::{NOT_FOUND, NOT_STARTED, start};
use super::stop::{Stop, TICK_US, await_stop, await_stop_within};
use super::system::Ticks;
use super::threads::{Call, Doing, ThreadId, Threads, VAIN};
use super::timers::Timers;
use super::tracee::Tracee;
use crate::certificate::{Doubt, Record};
use crate::ended::{Ended, Exit};
use crate::error::WorldError;
use crate::options::{Departure, WorldOptions};
use crate::recording::{Recorder, Recording};

/// Processor time without a call after which it is looked whether a thread loops in vain, at first and at
/// most, in ns. What does not is then left to do what it does, and at the end stopped.
const FIRST_SPIN_NS: u64 = 500_000;
const LONGEST_SPIN_NS: u64 = 500_000_000;
/// At most in a replay: the recorded thread made its call, on a machine that may have been faster by far.
const LONGEST_REPLAYED_SPIN_NS: u64 = 8_000_000_000;
/// Calls in vain for which a thread counts that ran for long without any.
const SPINS: u32 = 64;
/// What that costs, in ns of the world.
const SPIN_NS: u64 = 1_000_000;
/// Readings of the processor's counter in a row, without a call, after which others go first.
const MOST_COUNTED: u32 = 64;
/// Events before a departure that are shown.
const LATEST: usize = 8;
/// What a call costs at least, and how much more at most, in ns of the world.
const CALL_NS: u64 = 400;
const MORE_NS: u64 = 800;

/// A process has one world at a time: what one world starts would hold copies of sockets of another one,
/// which the supervisor has as well, until it executes its program, and the ends of connections would be
/// late.
static IN_THIS_PROCESS: Mutex<()> = Mutex::new(());

/// Runs a program, and all that it starts, in a world of its own; waits while this process has another world.
///
/// # Errors
/// The program cannot be started or traced, all threads wait for ever, or the run was to be strict and is not
/// sure to repeat.
pub(crate) fn run(options: &WorldOptions) -> Result<Ended, WorldError> {
    let _alone = IN_THIS_PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
    let _bound = Bound::here();
    let _ticks = Ticks::each(TICK_US);
    let mut supervisor = Supervisor::new(options)?;
    let ended = supervisor.run();
    // A run that stands still is there until this process ends: the first of its processes ends with it.
    if !matches!(ended, Err(WorldError::Stopped(_))) {
        supervisor.end();
    }
    ended
}

/// All that is known of a world.
pub(crate) struct Supervisor {
    pub(crate) options: WorldOptions,
    pub(crate) threads: Threads,
    pub(crate) clock: Clock,
    pub(crate) timers: Timers,
    pub(crate) alarms: Alarms,
    /// What was sent by loopback.
    pub(crate) delivery: Delivery,
    /// The descriptors of each process.
    pub(crate) descriptors: BTreeMap<u32, Descriptors>,
    /// Decides who is next, and what calls cost.
    pub(crate) order: Chance,
    /// Its draws about switches and rests that are made already.
    pub(crate) switches: Ahead,
    pub(crate) stalls: Ahead,
    /// What the thread that runs was told of points.
    pub(crate) lent: LentPoints,
    /// Who went last.
    pub(crate) last: Option<ThreadId>,
    /// How often in a row threads that look in vain were passed over.
    pub(crate) passed_over: u32,
    /// How often something changed that others may wait for.
    pub(crate) changes: u64,
    /// Calls that send to a socket.
    pub(crate) sent: u64,
    /// How many of these have been looked at.
    pub(crate) looked_at: u64,
    /// The next port for a socket that asks for any.
    pub(crate) next_port: u16,
    /// When the sleep of each thread that sleeps, or slept last, ends.
    pub(crate) sleeps: BTreeMap<ThreadId, u64>,
    /// Files that were looked at, by device and inode.
    pub(crate) files: BTreeMap<(u64, u64), u64>,
    /// A process has made a descriptor for signals.
    pub(crate) has_signal_files: bool,
    /// The devices of files without a name.
    pub(crate) devices: Devices,
    /// When the world began by the machine's clock, in s since 1970.
    pub(crate) began_s: u64,
    record: Record,
    recorder: Option<Recorder>,
    expected: Option<Recording>,
    /// The last events, to say how a departure came.
    latest: VecDeque<String>,
    /// Decisions of the schedule so far: whether a thread rests, and who goes on. Departures have their
    /// numbers.
    pub(crate) points: u64,
    /// Where the schedule departed from the plain order, and what went on there.
    pub(crate) departures: BTreeMap<u64, (Departure, String)>,
    /// What calls cost.
    costs: Chance,
    pub(crate) events: u64,
    /// How the first process ended.
    pub(crate) exit: Option<Exit>,
    /// The process that made the name spaces, or the first one.
    outer: Option<Pid>,
}

impl Supervisor {
    fn new(options: &WorldOptions) -> Result<Supervisor, WorldError> {
        let recorder = options.record.as_ref().map(|path| Recorder::create(path, options));
        let recorder = recorder.transpose().map_err(WorldError::Record)?;
        let expected = options.expected.as_ref().map(|path| Recording::open(path));
        let expected = expected.transpose().map_err(WorldError::Recording)?;
        Ok(Supervisor {
            threads: Threads::default(),
            clock: Clock::default(),
            timers: Timers::default(),
            alarms: Alarms::default(),
            delivery: Delivery::new(),
            descriptors: BTreeMap::new(),
            order: Chance::new(options.seed, 1),
            switches: Ahead::default(),
            stalls: Ahead::default(),
            lent: LentPoints::default(),
            last: None,
            passed_over: 0,
            changes: 1,
            sent: 0,
            looked_at: 0,
            next_port: 32_768,
            sleeps: BTreeMap::new(),
            files: BTreeMap::new(),
            has_signal_files: false,
            devices: Devices::of_kernel(),
            began_s: std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs()),
            record: Record::default(),
            recorder,
            expected,
            latest: VecDeque::new(),
            points: 0,
            departures: BTreeMap::new(),
            costs: Chance::new(options.seed, 2),
            events: 0,
            exit: None,
            outer: None,
            options: options.clone(),
        })
    }

    fn run(&mut self) -> Result<Ended, WorldError> {
        self.begin()?;
        while self.exit.is_none() {
            let id = self.choose()?;
            self.step(id)?;
        }
        if let Some(recorder) = &mut self.recorder {
            recorder.end().map_err(WorldError::Record)?;
        }
        if let Some(left) = self.expected.as_mut().and_then(Recording::next_event) {
            return Err(self.departed(&left, "the run has ended"));
        }
        Ok(Ended {
            exit: self.exit.unwrap_or(Exit::Code(0)),
            certificate: self.record.certificate(),
            virtual_ns: self.clock.now_ns(),
            events: self.events,
            departures: std::mem::take(&mut self.departures),
        })
    }

    /// Follows the first process until it runs the program.
    fn begin(&mut self) -> Result<(), WorldError> {
        let filter = filter::program().map_err(|error| WorldError::Start {
            what: "making the filter of calls",
            error: std::io::Error::other(error.to_string()),
        })?;
        let started = start(&self.options, &filter)?;
        self.outer = Some(started.outer);
        let options = Options::PTRACE_O_TRACESECCOMP
            | Options::PTRACE_O_TRACEFORK
            | Options::PTRACE_O_TRACEVFORK
            | Options::PTRACE_O_TRACECLONE
            | Options::PTRACE_O_TRACEEXEC
            | Options::PTRACE_O_TRACESYSGOOD
            | Options::PTRACE_O_EXITKILL;
        let outer = started.outer;
        ptrace::seize(outer, options)?;
        started.go()?;
        let mut tracee = Tracee(outer);
        loop {
            match await_stop(tracee)? {
                // The next one in: those outside only wait.
                Stop::Born(child, _) => {
                    ptrace::detach(tracee.0, None)?;
                    tracee = Tracee(child);
                }
                Stop::Exec => break,
                // Its call to become the program stops before the filter knows it.
                Stop::Call(_) | Stop::Quiet | Stop::CallEnd | Stop::Spins | Stop::Stuck => {
                    tracee.go_on(None)?
                }
                Stop::Signal(signal) => tracee.go_on(Some(signal))?,
                Stop::Gone(exit) => return Err(self.not_started(exit)),
            }
        }
        let id = self.threads.add_process(tracee.0, None, String::new(), self.options.seed);
        self.descriptors.insert(1, Descriptors::of(tracee.0));
        self.became_program(id)?;
        if outer == tracee.0 {
            self.doubt(
                id,
                "has the machine's own process numbers and network: name spaces are not allowed here",
            )?;
        }
        Ok(())
    }

    fn not_started(&self, exit: Exit) -> WorldError {
        let program = self.options.program.to_string_lossy().into_owned();
        let error = match exit {
            Exit::Code(NOT_FOUND) => Errno::ENOENT.into(),
            Exit::Code(NOT_STARTED) => Errno::EACCES.into(),
            other => std::io::Error::other(format!("it ended before it began ({other:?})")),
        };
        WorldError::Program { program, error }
    }

    /// A thread goes on, to its next call.
    fn step(&mut self, id: ThreadId) -> Result<(), WorldError> {
        let Some(thread) = self.threads.get_mut(id) else { return Ok(()) };
        match std::mem::replace(&mut thread.doing, Doing::Program) {
            Doing::Program => self.go(id, None),
            Doing::Call(call) => self.serve(id, call, None),
            Doing::Woken(call, why) => self.serve(id, call, Some(why)),
            other => {
                thread.doing = other;
                Ok(())
            }
        }
    }

    /// Lets a thread run in its program until it makes a call, or ends.
    pub(crate) fn go(&mut self, id: ThreadId, signal: Option<Signal>) -> Result<(), WorldError> {
        let now_ns = self.clock.now_ns();
        let Some(thread) = self.threads.get_mut(id) else { return Ok(()) };
        if thread.rests_until_ns > now_ns && signal.is_none() {
            // It rests where it is.
            thread.doing = Doing::Program;
            return Ok(());
        }
        let tracee = thread.tracee;
        let (mut signal, mut spin_ns) = (signal, FIRST_SPIN_NS);
        let longest_ns = if self.expected.is_some() { LONGEST_REPLAYED_SPIN_NS } else { LONGEST_SPIN_NS };
        let mut counted = 0;
        let mut is_stopped = true;
        loop {
            if is_stopped {
                self.lend_clock(id);
            }
            match if is_stopped { tracee.go_on(signal.take()) } else { Ok(()) } {
                // It was killed meanwhile: its end is what comes.
                Ok(()) | Err(Errno::ESRCH) => {}
                Err(errno) => return Err(errno.into()),
            }
            let mut stop = await_stop_within(tracee, spin_ns)?;
            is_stopped = !matches!(stop, Stop::Spins | Stop::Stuck);
            if matches!(stop, Stop::Spins) && spin_ns < longest_ns {
                spin_ns *= 4;
                // Stopped where it happens to be.
                tracee.interrupt()?;
                is_stopped = true;
                stop = match await_stop(tracee)? {
                    Stop::Quiet => match prove(tracee)? {
                        Proof::Loops => {
                            self.take_clock(id);
                            return self.loops(id);
                        }
                        Proof::Open => Stop::Quiet,
                        Proof::Stopped(stop) => stop,
                    },
                    other => other,
                };
            }
            if is_stopped {
                self.take_clock(id);
            }
            match stop {
                Stop::Call(call) => return self.called(id, *call),
                Stop::Signal(Signal::SIGSEGV) if super::tsc::answer(tracee, self.clock.cycles())? => {
                    self.clock.pass(20);
                    counted += 1;
                    if counted >= MOST_COUNTED {
                        return self.looks_at_counter(id);
                    }
                }
                Stop::Signal(one) => {
                    self.note(id, "signal", one as i64)?;
                    signal = Some(one);
                }
                Stop::Gone(exit) => return self.gone(id, exit),
                // Others go on first: it may wait for what one of them writes.
                Stop::Spins | Stop::Stuck => return self.interrupt(id),
                Stop::CallEnd | Stop::Born(..) | Stop::Exec | Stop::Quiet => {}
            }
        }
    }

    /// A thread makes a call: it is served when it is this thread's turn. A hint is taken at once: a point
    /// has one turn behind it, with a stop as without one.
    fn called(&mut self, id: ThreadId, call: Call) -> Result<(), WorldError> {
        if call.is_hint() {
            return self.take_hint(id, call);
        }
        if let Some(thread) = self.threads.get_mut(id) {
            thread.doing = Doing::Call(call);
        }
        Ok(())
    }

    /// A thread does nothing for long but to read the counter of the processor: others go first.
    fn looks_at_counter(&mut self, id: ThreadId) -> Result<(), WorldError> {
        if let Some(thread) = self.threads.get_mut(id) {
            thread.doing = Doing::Program;
            thread.vain = thread.vain.saturating_add(VAIN);
        }
        self.note(id, "rdtsc", 0)
    }

    /// A thread loops until memory changes: others go first.
    fn loops(&mut self, id: ThreadId) -> Result<(), WorldError> {
        if let Some(thread) = self.threads.get_mut(id) {
            thread.doing = Doing::Program;
            thread.vain = thread.vain.max(SPINS);
        }
        self.note(id, "loops", 0)
    }

    /// A thread that runs for long without a call is stopped where it is, which is elsewhere in the next run.
    fn interrupt(&mut self, id: ThreadId) -> Result<(), WorldError> {
        self.doubt(id, "ran for long without a call")?;
        let tracee = self.tracee(id)?;
        tracee.interrupt()?;
        loop {
            match await_stop(tracee)? {
                Stop::Quiet => break,
                Stop::Gone(exit) => return self.gone(id, exit),
                Stop::Call(call) => {
                    self.take_clock(id);
                    return self.called(id, *call);
                }
                _ => tracee.go_on(None)?,
            }
        }
        self.take_clock(id);
        if let Some(thread) = self.threads.get_mut(id) {
            thread.doing = Doing::Program;
            thread.vain = SPINS;
        }
        self.clock.pass(SPIN_NS);
        Ok(())
    }

    /// Something happened: it counts for the digest, and has a line in the log.
    pub(crate) fn note(&mut self, id: ThreadId, what: &str, result: i64) -> Result<(), WorldError> {
        self.events += 1;
        let now_ns = self.clock.now_ns();
        let word = what.bytes().fold(0_u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(u64::from(byte)));
        self.record.add(&[u64::from(id.0), word, result as u64, now_ns]);
        if self.recorder.is_some() || self.expected.is_some() {
            let name = self.threads.get(id).map_or("", |thread| thread.name.as_str());
            let event = format!("{now_ns} {name} {what} {result}");
            self.compare(&event)?;
            if let Some(recorder) = &mut self.recorder {
                recorder.event(&event).map_err(WorldError::Record)?;
            }
        }
        if self.options.stop_at == Some(self.events) {
            return Err(self.stand_still(id, what));
        }
        let cost_ns = CALL_NS + self.costs.below(MORE_NS);
        self.clock.pass(cost_ns);
        self.stall(id, what);
        Ok(())
    }

    /// Looks whether the event is the one that was recorded.
    fn compare(&mut self, event: &str) -> Result<(), WorldError> {
        let Some(expected) = &mut self.expected else { return Ok(()) };
        let recorded = expected.next_event().unwrap_or_else(|| "the run had ended".to_owned());
        if recorded != event {
            return Err(self.departed(&recorded, event));
        }
        if self.latest.len() >= LATEST {
            self.latest.pop_front();
        }
        self.latest.push_back(event.to_owned());
        Ok(())
    }

    /// Both sides of a departure. A line of an event: ns of the world, thread, call, result.
    fn departed(&self, recorded: &str, now: &str) -> WorldError {
        let before: Vec<&str> = self.latest.iter().map(String::as_str).collect();
        let mut programs: Vec<String> = Vec::new();
        for (id, thread) in &self.threads.threads {
            programs.push(format!("{} is {}", thread.name, self.threads.program(*id)));
        }
        let doubts = self.record.certificate().doubts;
        let doubts: String = doubts.iter().map(|doubt| format!("\n  perhaps because {doubt}")).collect();
        WorldError::Departed(format!(
            "the run departs from its recording at event {}\n  recorded: {recorded}\n  \
             now:      {now}\n  before:   {}\n  {}{doubts}",
            self.events,
            before.join("\n            "),
            programs.join(", "),
        ))
    }

    /// The seed, or a list of departures, may have a thread rest.
    pub(crate) fn stall(&mut self, id: ThreadId, what: &str) {
        let draws = self.options.draws;
        self.points += 1;
        let rest_ns = match &self.options.departures {
            Some(listed) => match listed.get(&self.points) {
                Some(Departure::Stall(ns)) => *ns,
                _ => return,
            },
            None if !self.stalls.strikes(&mut self.order, draws.stall_ppm) => return,
            None => self.order.below(draws.longest_stall_ns),
        };
        let until_ns = self.clock.now_ns().saturating_add(rest_ns);
        if let Some(thread) = self.threads.get_mut(id) {
            thread.rests_until_ns = until_ns;
            let us = rest_ns / 1_000;
            let words = format!("{} rested {us} us after {what} (event {})", thread.name, self.events);
            self.departures.insert(self.points, (Departure::Stall(rest_ns), words));
        }
    }

    /// All processes stand still for a debugger, until the supervisor is ended.
    fn stand_still(&mut self, id: ThreadId, what: &str) -> WorldError {
        let thread = self.threads.get(id).map_or_else(String::new, |thread| thread.name.clone());
        let mut leaders = Vec::new();
        for process in self.threads.processes.values() {
            leaders.push(format!(
                "  {} is process {}: gdb -p {}",
                process.program, process.leader, process.leader
            ));
        }
        // The signal is there before the first thread is let go: none of them goes on in its program.
        for process in self.threads.processes.values() {
            let _ = kill(process.leader, Signal::SIGSTOP);
        }
        while let Some((_, thread)) = self.threads.threads.pop_first() {
            let _ = thread.tracee.step_back();
            let _ = ptrace::detach(thread.tracee.0, None);
        }
        WorldError::Stopped(format!(
            "stopped at event {}: {thread} {what}\n{}",
            self.events,
            leaders.join("\n")
        ))
    }

    /// A thread did something that may come out otherwise in the next run.
    pub(crate) fn doubt(&mut self, id: ThreadId, did: &str) -> Result<(), WorldError> {
        let thread = self.threads.get(id).map_or_else(String::new, |thread| thread.name.clone());
        let doubt = Doubt { thread, program: self.threads.program(id), did: did.to_owned() };
        if self.options.strict {
            return Err(WorldError::Strict(doubt.to_string()));
        }
        self.record.doubt(doubt);
        Ok(())
    }

    /// Nothing of the world outlives it.
    fn end(&mut self) {
        let inner = self.threads.processes.values().map(|process| process.leader);
        // After the first process those that made the name spaces end by themselves: then what all of them
        // used of the processor counts for this process, which waited for them.
        let outer = self.outer.filter(|_| self.exit.is_none());
        for process in inner.chain(outer) {
            let _ = kill(process, Signal::SIGKILL);
        }
        while let Some((_, thread)) = self.threads.threads.pop_last() {
            let _ = super::stop::await_end(thread.tracee);
        }
        if let Some(outer) = self.outer.take() {
            while nix::sys::wait::waitpid(outer, None) == Err(Errno::EINTR) {}
        }
    }
}
