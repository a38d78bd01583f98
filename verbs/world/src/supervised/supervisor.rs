//! The supervisor: lets the threads of the world run, one at a time.

use std::sync::{Mutex, PoisonError};

use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::clock::{Clock, PinnedThread};
use super::filter;
use super::readiness::Descriptors;
use super::start::{NO_FILTER, NOT_FOUND, NOT_STARTED, start};
use super::state::{Course, Decisions, Draws, EventLog, FIRST_PORT, Files, Network, Turns, WorldTime};
use super::stepper::{self, Stop, TICK_US, await_stop, await_stop_or_preemption};
use super::threads::{Activity, Call, ThreadId, Threads};
use super::tracee::{TickTimer, Tracee};
use crate::certificate::Doubt;
use crate::error::{Ended, Exit, WorldError};
use crate::options::{Departure, WorldOptions};
use crate::recording::Recording;

/// Processor time without a call after which a thread is first checked for an idle loop, in ns.
const FIRST_SPIN_NS: u64 = 500_000;
/// Limit of this time, at which a thread that does not loop is stopped.
const MAX_SPIN_NS: u64 = 500_000_000;
/// Limit of this time in a replay: the recorded thread made its call, perhaps on a much faster machine.
const MAX_REPLAYED_SPIN_NS: u64 = 8_000_000_000;
/// Number of readings of the time stamp counter in a row, without a call, after which other threads go first.
const MAX_TSC_READS: u32 = 64;
/// Time that a reading of the time stamp counter takes, in ns of the world.
const TSC_NS: u64 = 20;
/// Number of events before a departure that are shown.
const LATEST: usize = 8;
/// Minimum cost of a call, in ns of the world, to which up to [`RANDOM_CALL_NS`] are added at random.
pub(crate) const CALL_NS: u64 = 400;
const RANDOM_CALL_NS: u64 = 800;

/// Steps that a container may forbid, with the remedy.
const NO_PTRACE: &str = "tracing its first process (allow ptrace: docker run --cap-add SYS_PTRACE; \
                         kernel.yama.ptrace_scope below 3; not under another tracer)";
const NO_SECCOMP: &str = "installing a filter of calls (allow seccomp: a profile that has it, a kernel with \
                          CONFIG_SECCOMP_FILTER)";

/// Lock that gives a process one world at a time. Processes started by one world would hold copies of another
/// world's sockets, which the supervisor has as well, until they execute their program, and connections would
/// end late.
static ONE_WORLD: Mutex<()> = Mutex::new(());

/// Runs a program, and all that it starts, in a world of its own; waits while this process has another world.
///
/// # Errors
/// The program cannot be started or traced, all threads wait for ever, or the run was to be strict and is not
/// certain to repeat.
pub(crate) fn run(options: &WorldOptions) -> Result<Ended, WorldError> {
    let _alone = ONE_WORLD.lock().unwrap_or_else(PoisonError::into_inner);
    let _bound = PinnedThread::current();
    let _ticks = TickTimer::every(TICK_US);
    let mut supervisor = Supervisor::new(options)?;
    let ended = supervisor.run();
    // A stopped run stays until this process ends: the first of its processes ends with it.
    if !matches!(ended, Err(WorldError::Stopped(_))) {
        supervisor.end();
    }
    ended
}

/// Returns a digest of a point: the thread, and what it did.
fn digest_of_point(thread: &str, what: &str) -> u32 {
    let bytes = thread.bytes().chain([0]).chain(what.bytes());
    // FNV-1a.
    bytes.fold(0x811c_9dc5_u32, |digest, byte| (digest ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// The state of a world.
pub(crate) struct Supervisor {
    pub(crate) options: WorldOptions,
    pub(crate) threads: Threads,
    pub(crate) time: WorldTime,
    pub(crate) turns: Turns,
    pub(crate) draws: Draws,
    pub(crate) course: Course,
    pub(crate) files: Files,
    pub(crate) network: Network,
    pub(crate) log: EventLog,
    /// End of the first process, once it has ended.
    pub(crate) exit: Option<Exit>,
    /// Process that created the namespaces, or the first one.
    outer: Option<Pid>,
    /// A program prepares the run, which has not begun.
    pub(crate) is_preparing: bool,
}

impl Supervisor {
    fn new(options: &WorldOptions) -> Result<Supervisor, WorldError> {
        Ok(Supervisor {
            threads: Threads::default(),
            time: WorldTime::new(),
            turns: Turns::default(),
            draws: Draws::new(options.seed),
            course: Course::default(),
            files: Files::new(),
            network: Network::new(),
            log: EventLog::new(options)?,
            exit: None,
            outer: None,
            is_preparing: options.is_starter,
            options: options.clone(),
        })
    }

    fn run(&mut self) -> Result<Ended, WorldError> {
        self.begin()?;
        while self.exit.is_none() {
            let id = self.choose()?;
            self.step(id)?;
        }
        if let Some(recorder) = &mut self.log.recorder {
            recorder.end().map_err(WorldError::Record)?;
        }
        if let Some(left) = self.log.expected.as_mut().and_then(Recording::next_event) {
            return Err(self.departed(&left, "the run has ended"));
        }
        Ok(Ended {
            exit: self.exit.unwrap_or(Exit::Code(0)),
            certificate: self.log.record.certificate(),
            virtual_ns: self.time.clock.now_ns(),
            events: self.log.events,
            departures: std::mem::take(&mut self.course.departures),
            locations: std::mem::take(&mut self.course.locations),
            met: std::mem::take(&mut self.course.met),
        })
    }

    /// Follows the first process until it executes the program.
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
        ptrace::seize(outer, options)
            .map_err(|errno| WorldError::Start { what: NO_PTRACE, error: errno.into() })?;
        started.go()?;
        let mut tracee = Tracee(outer);
        loop {
            match await_stop(tracee)? {
                // The child is one level further in; processes outside of it only wait.
                Stop::NewChild(child, _) => {
                    ptrace::detach(tracee.0, None)?;
                    tracee = Tracee(child);
                }
                Stop::Exec => break,
                // Its call of execve stops before the filter is known.
                Stop::Call(_)
                | Stop::NoEvent
                | Stop::CallEnd
                | Stop::Spinning
                | Stop::Stuck
                | Stop::Preempted => tracee.resume(None)?,
                Stop::Signal(signal) => tracee.resume(Some(signal))?,
                Stop::Exited(exit) => return Err(self.not_started(exit)),
            }
        }
        let id = self.threads.add_process(tracee.0, None, String::new(), self.options.seed);
        self.files.descriptors.insert(1, Descriptors::of(tracee.0));
        let is_preparing = std::mem::take(&mut self.is_preparing);
        self.became_program(id)?;
        self.is_preparing = is_preparing;
        if !is_preparing {
            self.doubt_measured_computing(id)?;
        }
        if outer == tracee.0 {
            self.doubt(
                id,
                "has the machine's own process numbers and network: name spaces are not allowed here \
                 (pumice doctor says how to allow them)",
            )?;
        }
        Ok(())
    }

    fn not_started(&self, exit: Exit) -> WorldError {
        let program = self.options.program.to_string_lossy().into_owned();
        let error = match exit {
            Exit::Code(NOT_FOUND) => Errno::ENOENT.into(),
            Exit::Code(NOT_STARTED) => Errno::EACCES.into(),
            Exit::Code(NO_FILTER) => {
                return WorldError::Start { what: NO_SECCOMP, error: Errno::EPERM.into() };
            }
            other => std::io::Error::other(format!("it ended before it began ({other:?})")),
        };
        WorldError::Program { program, error }
    }

    /// Lets a thread continue to its next call.
    fn step(&mut self, id: ThreadId) -> Result<(), WorldError> {
        let Some(thread) = self.threads.get_mut(id) else { return Ok(()) };
        match std::mem::replace(&mut thread.activity, Activity::Program) {
            Activity::Program => self.go(id, None),
            Activity::Call(call) => self.serve(id, call, None),
            Activity::Woken(call, why) => self.serve(id, call, Some(why)),
            other => {
                thread.activity = other;
                Ok(())
            }
        }
    }

    /// Lets a thread run in its program until it makes a call, or ends.
    pub(crate) fn go(&mut self, id: ThreadId, signal: Option<Signal>) -> Result<(), WorldError> {
        let now_ns = self.time.clock.now_ns();
        let Some(thread) = self.threads.get_mut(id) else { return Ok(()) };
        if thread.rests_until_ns > now_ns && signal.is_none() {
            // The thread rests at this point.
            thread.activity = Activity::Program;
            return Ok(());
        }
        let tracee = thread.tracee;
        let (mut signal, mut spin_ns) = (signal, FIRST_SPIN_NS);
        let longest_ns = if self.log.expected.is_some() { MAX_REPLAYED_SPIN_NS } else { MAX_SPIN_NS };
        let tsc_ns = if self.is_exact() { 0 } else { TSC_NS };
        let mut counted = 0;
        let mut is_stopped = true;
        let mut stepping = self.begin_preemption(id)?;
        loop {
            if is_stopped {
                self.publish_clock(id);
                match stepper::resume(tracee, stepping.as_mut(), signal.take()) {
                    // The thread was killed meanwhile, and its end follows.
                    Ok(()) | Err(Errno::ESRCH) => {}
                    Err(errno) => return Err(errno.into()),
                }
            }
            let mut stop = await_stop_or_preemption(tracee, &mut stepping, spin_ns)?;
            is_stopped = !matches!(stop, Stop::Spinning | Stop::Stuck);
            if !is_stopped && (spin_ns < longest_ns && matches!(stop, Stop::Spinning) || stepping.is_some()) {
                is_stopped = true;
                match self.examine_long_run(id, &mut stepping, spin_ns >= longest_ns)? {
                    Some(found) => stop = found,
                    None => return self.loops(id),
                }
                spin_ns *= 4;
            }
            if is_stopped {
                self.reclaim_clock(id);
            }
            match stop {
                Stop::Call(call) => return self.called(id, *call),
                Stop::Signal(Signal::SIGSEGV) if super::tracee::answer(tracee, self.time.clock.cycles())? => {
                    self.time.clock.pass(tsc_ns);
                    counted += 1;
                    if counted >= MAX_TSC_READS {
                        return self.reads_tsc(id);
                    }
                }
                Stop::Signal(Signal::SIGILL) if self.answer_instruction(id)? => self.time.clock.pass(tsc_ns),
                Stop::Signal(one) => {
                    if one == Signal::SIGCHLD {
                        // The signal may come from a process, or the thread may have been killed meanwhile.
                        let _ = tracee.clear_times_of_child();
                    }
                    self.note(id, "signal", one as i64)?;
                    signal = Some(one);
                }
                Stop::Preempted => {
                    self.preempt(id);
                    return Ok(());
                }
                Stop::Exited(exit) => return self.thread_exited(id, exit),
                // Other threads go first, because this one may wait for a value that one of them writes.
                Stop::Spinning | Stop::Stuck => return self.interrupt(id),
                Stop::CallEnd | Stop::NewChild(..) | Stop::Exec | Stop::NoEvent => {}
            }
        }
    }

    /// Notes the call of a thread, which is served at its turn. A hint is served at once: a point is followed
    /// by one turn, with a stop as without one.
    pub(crate) fn called(&mut self, id: ThreadId, call: Call) -> Result<(), WorldError> {
        if call.is_hint() {
            return self.take_hint(id, call);
        }
        if let Some(thread) = self.threads.get_mut(id) {
            thread.activity = Activity::Call(call);
        }
        Ok(())
    }

    /// Begins the run, because the program that prepares it executes the one that it is about: whatever the
    /// first one did has no effect on the decisions of the seed.
    pub(crate) fn begin_run(&mut self, id: ThreadId) {
        let seed = self.options.seed;
        self.is_preparing = false;
        self.time.clock = Clock::default();
        self.draws = Draws::new(seed);
        self.network.next_port = FIRST_PORT;
        self.network.sent = 0;
        self.files.file_numbers.clear();
        self.turns.sleeps.clear();
        self.turns.idle_threads_skipped = 0;
        self.course.decisions = Decisions::default();
        self.threads.restart_call(id, seed);
    }

    /// Notes an event: adds it to the digest and to the recording.
    pub(crate) fn note(&mut self, id: ThreadId, what: &str, result: i64) -> Result<(), WorldError> {
        self.note_bytes(id, what, None, result)
    }

    /// Notes an event that moved bytes, of which `digest` is the digest.
    pub(crate) fn note_bytes(
        &mut self,
        id: ThreadId,
        what: &str,
        digest: Option<u32>,
        result: i64,
    ) -> Result<(), WorldError> {
        if self.is_preparing {
            self.time.clock.pass(CALL_NS);
            return Ok(());
        }
        if self.threads.get(id).is_none_or(|thread| thread.polls.endless.is_none()) {
            self.turns.at_rest_since_ns = None;
        }
        self.log.events += 1;
        let now_ns = self.time.clock.now_ns();
        let word = what.bytes().fold(0_u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(u64::from(byte)));
        self.log.record.add(&[u64::from(id.0), word, result as u64, now_ns, u64::from(digest.unwrap_or(0))]);
        if self.log.recorder.is_some() || self.log.expected.is_some() {
            let name = self.threads.get(id).map_or("", |thread| thread.name.as_str());
            let digest = digest.map_or_else(String::new, |digest| format!(" {digest:08x}"));
            let event = format!("{now_ns} {name} {what}{digest} {result}");
            self.compare(&event)?;
            if let Some(recorder) = &mut self.log.recorder {
                recorder.event(&event).map_err(WorldError::Record)?;
            }
        }
        if self.options.stop_at == Some(self.log.events) {
            return Err(self.stand_still(id, what));
        }
        if self.is_exact() {
            self.count_call(id);
        } else {
            let cost_ns = CALL_NS + self.draws.costs.below(RANDOM_CALL_NS);
            self.time.clock.pass(cost_ns);
        }
        self.stall(id, what);
        Ok(())
    }

    /// Compares the event with the recorded one.
    fn compare(&mut self, event: &str) -> Result<(), WorldError> {
        let Some(expected) = &mut self.log.expected else { return Ok(()) };
        let recorded = expected.next_event().unwrap_or_else(|| "the run had ended".to_owned());
        if recorded != event {
            return Err(self.departed(&recorded, event));
        }
        if self.log.latest.len() >= LATEST {
            self.log.latest.pop_front();
        }
        self.log.latest.push_back(event.to_owned());
        Ok(())
    }

    /// Returns the error with both sides of a departure. An event is a line: ns of the world, thread, call,
    /// result.
    fn departed(&self, recorded: &str, now: &str) -> WorldError {
        let before: Vec<&str> = self.log.latest.iter().map(String::as_str).collect();
        let mut programs: Vec<String> = Vec::new();
        for (id, thread) in &self.threads.threads {
            programs.push(format!("{} is {}", thread.name, self.threads.program(*id)));
        }
        let doubts = self.log.record.certificate().doubts;
        let doubts: String = doubts.iter().map(|doubt| format!("\n  perhaps because {doubt}")).collect();
        WorldError::Departed(format!(
            "the run departs from its recording at event {}\n  recorded: {recorded}\n  \
             now:      {now}\n  before:   {}\n  {}{doubts}",
            self.log.events,
            before.join("\n            "),
            programs.join(", "),
        ))
    }

    /// Makes a thread rest, if the seed or a list of departures says so.
    pub(crate) fn stall(&mut self, id: ThreadId, what: &str) {
        if self.is_preparing {
            return;
        }
        let draws = self.options.draws;
        let point = self.course.decisions.at_point(id);
        if let Some(thread) = self.threads.get_mut(id) {
            thread.last_point = digest_of_point(&thread.name, what);
        }
        let rest_ns = match &self.options.departures {
            Some(listed) => match listed.get(&point) {
                Some(Departure::Stall(ns)) => *ns,
                _ => return self.draw_preemption(id, point),
            },
            None if !self.draws.stalls.hits(&mut self.draws.order, draws.stall_ppm) => {
                return self.draw_preemption(id, point);
            }
            None => self.draws.order.below(draws.longest_stall_ns),
        };
        let until_ns = self.time.clock.now_ns().saturating_add(rest_ns);
        if let Some(thread) = self.threads.get_mut(id) {
            thread.rests_until_ns = until_ns;
            let us = rest_ns / 1_000;
            let words = format!("{} rested {us} us after {what} (event {})", thread.name, self.log.events);
            self.course.departures.insert(point, (Departure::Stall(rest_ns), words));
            self.locate(id, point);
        }
    }

    /// Stops all processes for a debugger, until the supervisor ends.
    fn stand_still(&mut self, id: ThreadId, what: &str) -> WorldError {
        let thread = self.threads.get(id).map_or_else(String::new, |thread| thread.name.clone());
        let mut leaders = Vec::new();
        for process in self.threads.processes.values() {
            leaders.push(format!(
                "  {} is process {}: gdb -p {}",
                process.program, process.leader, process.leader
            ));
        }
        // The signal is sent before the first thread is detached, so that none continues in its program.
        for process in self.threads.processes.values() {
            let _ = kill(process.leader, Signal::SIGSTOP);
        }
        while let Some((_, thread)) = self.threads.threads.pop_first() {
            let _ = thread.tracee.step_back();
            let _ = ptrace::detach(thread.tracee.0, None);
        }
        WorldError::Stopped(format!(
            "stopped at event {}: {thread} {what}\n{}",
            self.log.events,
            leaders.join("\n")
        ))
    }

    /// Notes that a thread did something whose result may differ in the next run.
    pub(crate) fn doubt(&mut self, id: ThreadId, did: &str) -> Result<(), WorldError> {
        let thread = self.threads.get(id).map_or_else(String::new, |thread| thread.name.clone());
        let doubt = Doubt { thread, program: self.threads.program(id), did: did.to_owned() };
        if self.options.strict {
            return Err(WorldError::Strict(doubt.to_string()));
        }
        self.log.record.doubt(doubt);
        Ok(())
    }

    /// Ends all processes of the world.
    fn end(&mut self) {
        let inner = self.threads.processes.values().map(|process| process.leader);
        // After the end of the first process, those that created the namespaces end by themselves, so that
        // the processor time of all of them is accounted to this process, which waits for them.
        let outer = self.outer.filter(|_| self.exit.is_none());
        for process in inner.chain(outer) {
            let _ = kill(process, Signal::SIGKILL);
        }
        while let Some((_, thread)) = self.threads.threads.pop_last() {
            let _ = super::stepper::await_end(thread.tracee);
        }
        if let Some(outer) = self.outer.take() {
            while nix::sys::wait::waitpid(outer, None) == Err(Errno::EINTR) {}
        }
    }
}
