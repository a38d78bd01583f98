//! The threads and processes of a world, by their order of birth.

use std::collections::{BTreeMap, BTreeSet};

use nix::unistd::Pid;

use super::look::{DeviceLooks, HostNumber, Look, Round};
use super::random::SeededRandom;
use super::tracee::{Registers, Tracee};
use super::waits::{Wait, Woken};

/// Number of idle polls in a row after which a thread continues only if no other can.
pub(crate) const IDLE_THRESHOLD: u32 = 8;

/// Name of the random numbers of the threads, to which the order of birth is added.
const FIRST_STREAM: u64 = 0x7468_0000;

/// A thread, by its order of birth in the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ThreadId(pub(crate) u32);

/// A process of the world.
#[derive(Debug)]
pub(crate) struct Process {
    /// Id of its first thread in the supervisor's PID namespace.
    pub(crate) leader: Pid,
    /// Process that made it; `None` for the first one.
    pub(crate) parent: Option<u32>,
    /// Name of the program that it executes.
    pub(crate) program: String,
    /// Number of threads made so far.
    pub(crate) threads_made: u32,
    /// Address of its page with the clock, if it has one.
    pub(crate) page: Option<u64>,
    /// The process has ended, and its parent has not waited for it yet.
    pub(crate) has_ended: bool,
    /// Niceness: 0 for the first process, whatever that of the user's shell is.
    pub(crate) niceness: i32,
    /// What is known of its device, in a world of exact time.
    pub(crate) devices: DeviceLooks,
    /// Host that the process, or one before it, has entered, for its threads.
    host: HostNumber,
}

/// A preemption that the seed, or a list of departures, has decided at a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Preemption {
    /// Number of the point.
    pub(crate) point: u64,
    /// Number of instructions of the program that the thread runs before.
    pub(crate) steps: u64,
    /// Time for which the thread rests, in ns.
    pub(crate) rest_ns: u64,
}

/// A call before which a thread is stopped.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    /// Number of the call.
    pub(crate) number: u64,
    /// Registers at the stop.
    pub(crate) registers: Registers,
}

impl Call {
    /// Returns its arguments.
    pub(crate) const fn arguments(&self) -> [u64; 6] {
        let Registers { rdi, rsi, rdx, r10, r8, r9, .. } = self.registers;
        [rdi, rsi, rdx, r10, r8, r9]
    }

    /// Returns a number for what the call looks for, if it looks for something.
    pub(crate) fn looked_for(&self) -> u64 {
        let [descriptor, ..] = self.arguments();
        descriptor.rotate_left(32) ^ self.number
    }

    /// Reports whether the call is a hint of a program that knows that it is in a world.
    pub(crate) fn is_hint(&self) -> bool {
        /// Value that marks a hint, as in the library's `outside::world`.
        const HINT: u64 = 0x7075_6d69;
        let [option, ..] = self.arguments();
        self.number == syscalls::Sysno::prctl as u64 && option & 0xffff_ffff == HINT
    }

    /// Returns its name.
    pub(crate) fn name(&self) -> String {
        syscalls::Sysno::new(self.number as usize)
            .map_or_else(|| format!("call {}", self.number), |call| call.name().to_owned())
    }
}

/// A call that is made in parts, of which some are done.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PartialCall {
    /// Call as the program made it.
    pub(crate) original: Call,
    /// Number of bytes moved so far.
    pub(crate) done: u64,
}

/// The activity of a thread.
#[derive(Debug)]
pub(crate) enum Activity {
    /// The thread continues in the program when it is chosen.
    Program,
    /// The thread makes this call when it is chosen.
    Call(Call),
    /// The thread was woken from the wait in this call.
    Woken(Call, Woken),
    /// The thread waits in this call.
    Waiting(Call, Wait),
    /// The thread waits in the kernel until this child, by its order of birth, executes another program, or
    /// ends (`vfork`).
    InVfork(u32),
}

/// The kind of wait of a thread that has hinted that it waits without end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndlessWait {
    /// A completion event, which the program gets from the channel with this descriptor.
    CompletionEvent(i32),
    /// An event of a connection, which the program gets from the channel with this descriptor.
    ConnectionEvent(i32),
    /// Work for a thread of the library.
    Work,
}

/// The polls and waits of a thread that found nothing.
#[derive(Debug)]
pub(crate) struct ThreadPolls {
    /// Number of idle polls in a row: calls that found nothing.
    pub(crate) idle_polls: u32,
    /// The thread has hinted that a poll was idle, and has made no call of its library since.
    pub(crate) idle_poll: bool,
    /// The state of the thread's looks for something, in a world of exact time.
    pub(crate) look: Look,
    /// The round of these looks.
    pub(crate) round: Round,
    /// Number of calls of the kernel in a row without a hint, all at one instant.
    pub(crate) calls_in_row: u32,
    /// The instant of these calls, in ns of the world.
    pub(crate) calls_at_ns: u64,
    /// The thread has hinted that it waits without end, although its waits have time-outs.
    pub(crate) endless: Option<EndlessWait>,
}

/// A thread of the world.
#[derive(Debug)]
pub(crate) struct Thread {
    pub(crate) tracee: Tracee,
    /// Process, by order of birth.
    pub(crate) process: u32,
    /// Host that its process has entered.
    pub(crate) host: HostNumber,
    /// Name of the thread, as in "p1.t2".
    pub(crate) name: String,
    pub(crate) activity: Activity,
    pub(crate) polls: ThreadPolls,
    /// Processor time that it had used when it began to run, in ns, if computing is measured.
    pub(crate) computes_from_ns: Option<u64>,
    /// Time until which it rests, in ns.
    pub(crate) rests_until_ns: u64,
    /// Digest of its last point.
    pub(crate) last_point: u32,
    /// Rest between two instructions before its next point.
    pub(crate) preemption: Option<Preemption>,
    /// Progress of the call that it makes in parts.
    pub(crate) partial_call: Option<PartialCall>,
    /// Address of the word that its end sets to 0, and whose waiters it wakes.
    pub(crate) clear_child_tid: u64,
    /// Random bytes that it asks for.
    pub(crate) random: SeededRandom,
}

/// All threads and processes.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    pub(crate) threads: BTreeMap<ThreadId, Thread>,
    pub(crate) processes: BTreeMap<u32, Process>,
    made: u32,
    processes_made: u32,
    /// Ids of the first threads of all processes so far, also of those that have ended.
    leaders: BTreeSet<Pid>,
}

impl Threads {
    /// Adds a process, with its first thread.
    pub(crate) fn add_process(
        &mut self,
        leader: Pid,
        parent: Option<u32>,
        program: String,
        seed: u64,
    ) -> ThreadId {
        self.processes_made += 1;
        self.leaders.insert(leader);
        let number = self.processes_made;
        // The memory of a child is a copy of its parent's, or shared with it, so that it has the page at the
        // same address.
        let page = parent.and_then(|parent| self.processes.get(&parent)?.page);
        let parents = parent.and_then(|parent| self.processes.get(&parent));
        let (niceness, host) = parents.map_or((0, 0), |one| (one.niceness, one.host));
        let (threads_made, has_ended, devices) = (0, false, DeviceLooks::default());
        let process =
            Process { leader, parent, program, threads_made, page, has_ended, niceness, devices, host };
        self.processes.insert(number, process);
        self.add_thread(Tracee(leader), number, seed)
    }

    /// Adds a thread of a process.
    pub(crate) fn add_thread(&mut self, tracee: Tracee, process: u32, seed: u64) -> ThreadId {
        self.made += 1;
        let id = ThreadId(self.made);
        let (number, host) = self.processes.get_mut(&process).map_or((0, 0), |process| {
            process.threads_made += 1;
            (process.threads_made, process.host)
        });
        let thread = Thread {
            tracee,
            process,
            host,
            name: format!("p{process}.t{number}"),
            activity: Activity::Program,
            polls: ThreadPolls {
                idle_polls: 0,
                idle_poll: false,
                look: Look::Active,
                round: Round::default(),
                calls_in_row: 0,
                calls_at_ns: 0,
                endless: None,
            },
            computes_from_ns: None,
            rests_until_ns: 0,
            last_point: 0,
            preemption: None,
            partial_call: None,
            clear_child_tid: 0,
            random: SeededRandom::new(seed, FIRST_STREAM + u64::from(self.made)),
        };
        self.threads.insert(id, thread);
        id
    }

    /// Numbers threads anew from this one on, whose process has just executed the program of the run.
    pub(crate) fn restart_call(&mut self, id: ThreadId, seed: u64) {
        self.made = self.threads.keys().map(|one| one.0).max().unwrap_or(0);
        self.processes_made = self.processes.keys().copied().max().unwrap_or(0);
        let Some(thread) = self.threads.get_mut(&id) else { return };
        thread.random = SeededRandom::new(seed, FIRST_STREAM + u64::from(id.0));
        (thread.polls.idle_polls, thread.polls.idle_poll, thread.rests_until_ns) = (0, false, 0);
        (thread.polls.look, thread.polls.calls_in_row, thread.preemption) = (Look::Active, 0, None);
        thread.polls.round = Round::default();
        if let Some(process) = self.processes.get_mut(&thread.process) {
            process.threads_made = 1;
        }
    }

    pub(crate) fn get(&self, id: ThreadId) -> Option<&Thread> {
        self.threads.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: ThreadId) -> Option<&mut Thread> {
        self.threads.get_mut(&id)
    }

    /// Reports whether a process with this id is, or was, one of the world.
    pub(crate) fn has_leader(&self, id: i32) -> bool {
        self.leaders.contains(&Pid::from_raw(id))
    }

    /// Returns the threads of a process.
    pub(crate) fn of_process(&self, process: u32) -> Vec<ThreadId> {
        let own = self.threads.iter().filter(|(_, thread)| thread.process == process);
        own.map(|(id, _)| *id).collect()
    }

    /// Returns the host that a thread is on.
    pub(crate) fn host(&self, id: ThreadId) -> HostNumber {
        self.get(id).map_or(0, |thread| thread.host)
    }

    /// Notes that the process of a thread has entered a host.
    pub(crate) fn enter_host(&mut self, id: ThreadId, host: HostNumber) {
        let Some(number) = self.get(id).map(|thread| thread.process) else { return };
        if let Some(process) = self.processes.get_mut(&number) {
            process.host = host;
        }
        self.threads.values_mut().filter(|one| one.process == number).for_each(|one| one.host = host);
    }

    /// Returns the name of the program that a thread executes.
    pub(crate) fn program(&self, id: ThreadId) -> String {
        let process = self.get(id).and_then(|thread| self.processes.get(&thread.process));
        process.map_or_else(String::new, |process| process.program.clone())
    }
}
