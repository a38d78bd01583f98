//! The threads and processes of a world, by their order of birth.

use std::collections::BTreeMap;

use nix::unistd::Pid;

use super::chance::Chance;
use super::tracee::{Registers, Tracee};
use super::waits::{Wait, Woken};

/// Calls in vain in a row after which a thread goes on only if no other can.
pub(crate) const VAIN: u32 = 8;

/// A thread, by its order of birth in the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ThreadId(pub(crate) u32);

/// A process of the world.
#[derive(Debug)]
pub(crate) struct Process {
    /// The number of its first thread in the supervisor's name space.
    pub(crate) leader: Pid,
    /// That made it; `None`: the first one.
    pub(crate) parent: Option<u32>,
    /// The name of the program that it runs.
    pub(crate) program: String,
    /// Threads made so far.
    pub(crate) threads_made: u32,
    /// Where its page with the clock is, if it has one.
    pub(crate) page: Option<u64>,
    /// It has ended, and its parent has not looked yet.
    pub(crate) has_ended: bool,
}

/// A call before which a thread is stopped.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    /// Its number.
    pub(crate) number: u64,
    /// The registers at the stop.
    pub(crate) registers: Registers,
}

impl Call {
    /// Its arguments.
    pub(crate) const fn arguments(&self) -> [u64; 6] {
        let Registers { rdi, rsi, rdx, r10, r8, r9, .. } = self.registers;
        [rdi, rsi, rdx, r10, r8, r9]
    }

    /// Whether it is a hint of a program that knows that it is in a world.
    pub(crate) fn is_hint(&self) -> bool {
        /// As in the library's `outside::world`.
        const HINT: u64 = 0x7075_6d69;
        let [option, ..] = self.arguments();
        self.number == syscalls::Sysno::prctl as u64 && option & 0xffff_ffff == HINT
    }

    /// Its name.
    pub(crate) fn name(&self) -> String {
        syscalls::Sysno::new(self.number as usize)
            .map_or_else(|| format!("call {}", self.number), |call| call.name().to_owned())
    }
}

/// What a thread is doing.
#[derive(Debug)]
pub(crate) enum Doing {
    /// It goes on in the program when it is chosen.
    Program,
    /// It makes this call when it is chosen.
    Call(Call),
    /// It was woken from the wait in this call.
    Woken(Call, Woken),
    /// It waits in this call.
    Waiting(Call, Wait),
    /// It waits in the kernel until this child, by its order of birth, is another program, or ends (`vfork`).
    InVfork(u32),
}

/// A thread of the world.
#[derive(Debug)]
pub(crate) struct Thread {
    pub(crate) tracee: Tracee,
    /// Its process, by order of birth.
    pub(crate) process: u32,
    /// As in "p1.t2".
    pub(crate) name: String,
    pub(crate) doing: Doing,
    /// Calls in a row that found nothing.
    pub(crate) vain: u32,
    /// It has hinted so, and made no call of its library since.
    pub(crate) looked_in_vain: bool,
    /// It rests until then.
    pub(crate) rests_until_ns: u64,
    /// The word that its end sets to 0, and whose waiters it wakes.
    pub(crate) clear_word: u64,
    /// Random bytes that it asks for.
    pub(crate) chance: Chance,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    pub(crate) threads: BTreeMap<ThreadId, Thread>,
    pub(crate) processes: BTreeMap<u32, Process>,
    made: u32,
    processes_made: u32,
}

impl Threads {
    /// A process is born, with its first thread.
    pub(crate) fn add_process(
        &mut self,
        leader: Pid,
        parent: Option<u32>,
        program: String,
        seed: u64,
    ) -> ThreadId {
        self.processes_made += 1;
        let number = self.processes_made;
        // Memory is copied, or shared.
        let page = parent.and_then(|parent| self.processes.get(&parent)?.page);
        let process = Process { leader, parent, program, threads_made: 0, page, has_ended: false };
        self.processes.insert(number, process);
        self.add_thread(Tracee(leader), number, seed)
    }

    /// A thread of a process is born.
    pub(crate) fn add_thread(&mut self, tracee: Tracee, process: u32, seed: u64) -> ThreadId {
        self.made += 1;
        let id = ThreadId(self.made);
        let number = self.processes.get_mut(&process).map_or(0, |process| {
            process.threads_made += 1;
            process.threads_made
        });
        let thread = Thread {
            tracee,
            process,
            name: format!("p{process}.t{number}"),
            doing: Doing::Program,
            vain: 0,
            looked_in_vain: false,
            rests_until_ns: 0,
            clear_word: 0,
            chance: Chance::new(seed, 0x7468_0000 + u64::from(self.made)),
        };
        self.threads.insert(id, thread);
        id
    }

    pub(crate) fn get(&self, id: ThreadId) -> Option<&Thread> {
        self.threads.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: ThreadId) -> Option<&mut Thread> {
        self.threads.get_mut(&id)
    }

    /// The threads of a process.
    pub(crate) fn of_process(&self, process: u32) -> Vec<ThreadId> {
        let own = self.threads.iter().filter(|(_, thread)| thread.process == process);
        own.map(|(id, _)| *id).collect()
    }

    /// The program that a thread runs.
    pub(crate) fn program(&self, id: ThreadId) -> String {
        let process = self.get(id).and_then(|thread| self.processes.get(&thread.process));
        process.map_or_else(String::new, |process| process.program.clone())
    }
}
