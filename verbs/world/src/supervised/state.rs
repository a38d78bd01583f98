//! The parts of a world's state.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use super::alarms::Alarms;
use super::clock::Clock;
use super::decisions::Decisions;
use super::delivery::Delivery;
use super::devices::DeviceNumbers;
use super::memory::MappingKey;
use super::occasions::Occasions;
use super::point_budget::PointBudget;
use super::priorities::Priorities;
use super::random::{DrawsAhead, SeededRandom};
use super::readiness::Descriptors;
use super::shared_ports::{FIRST_PORT, PortGroups};
use super::stepper::MAX_RUN_STEPS;
use super::threads::ThreadId;
use super::timers::Timers;
use super::waits::WaitCheck;
use super::watches::Watches;
use crate::certificate::Record;
use crate::ended::CodeLocation;
use crate::error::WorldError;
use crate::options::{Departure, WorldOptions};
use crate::recording::{Recorder, Recording};

/// The time of a world, and what happens at a time.
pub(crate) struct WorldTime {
    pub(crate) clock: Clock,
    pub(crate) timers: Timers,
    pub(crate) alarms: Alarms,
    /// Time by the machine's clock at which the world began, in s since 1970.
    pub(crate) began_s: u64,
}

impl WorldTime {
    pub(crate) fn new() -> WorldTime {
        WorldTime {
            clock: Clock::default(),
            timers: Timers::default(),
            alarms: Alarms::default(),
            began_s: std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs()),
        }
    }
}

/// The state of the schedule: which threads have had their turn, and which of them wait.
pub(crate) struct Turns {
    /// Thread that ran last.
    pub(crate) last: Option<ThreadId>,
    /// Number of times in a row that threads with idle polls were passed over.
    pub(crate) idle_threads_skipped: u32,
    /// Number of changes that other threads may wait for.
    pub(crate) changes: u64,
    /// Occasions on which threads that have looked in vain look again, in a world of exact time.
    pub(crate) occasions: Occasions,
    /// The thread that runs, or has run last, unless it has said what that means for its device.
    pub(crate) segment: Option<Segment>,
    /// Time since which all threads wait without end, in ns.
    pub(crate) at_rest_since_ns: Option<u64>,
    /// The last check of waits.
    pub(crate) last_check: WaitCheck,
    /// End of the current or the last sleep of each thread, in ns.
    pub(crate) sleeps: BTreeMap<ThreadId, u64>,
}

/// What a thread does from the choice of the scheduler until the next one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Segment {
    pub(crate) id: ThreadId,
    pub(crate) process: u32,
    /// Number of the occasion to look at the device of its process, when it began.
    pub(crate) occasion: u64,
}

impl Default for Turns {
    fn default() -> Turns {
        Turns {
            last: None,
            idle_threads_skipped: 0,
            changes: 1,
            occasions: Occasions::default(),
            segment: None,
            at_rest_since_ns: None,
            last_check: WaitCheck::default(),
            sleeps: BTreeMap::new(),
        }
    }
}

/// The draws of the seed that decide how a run goes.
pub(crate) struct Draws {
    /// Random numbers that decide the next thread, and how long it rests.
    pub(crate) order: SeededRandom,
    /// Draws about switches and rests that are made in advance.
    pub(crate) switches: DrawsAhead,
    pub(crate) stalls: DrawsAhead,
    pub(crate) preemptions: DrawsAhead,
    /// Random numbers that decide after how many instructions a thread rests.
    pub(crate) instructions: SeededRandom,
    /// Random numbers of the costs of calls.
    pub(crate) costs: SeededRandom,
    /// Priorities of threads, if the seed decides by them.
    pub(crate) priorities: Priorities,
    /// Points that the running thread may pass without a stop.
    pub(crate) point_budget: PointBudget,
    /// Single steps that the run may still make on the way to preemptions that the seed draws.
    pub(crate) steps_left: Rc<Cell<u64>>,
}

impl Draws {
    pub(crate) fn new(seed: u64) -> Draws {
        Draws {
            order: SeededRandom::new(seed, 1),
            switches: DrawsAhead::default(),
            stalls: DrawsAhead::default(),
            preemptions: DrawsAhead::default(),
            instructions: SeededRandom::new(seed, 3),
            costs: SeededRandom::new(seed, 2),
            priorities: Priorities::new(seed),
            point_budget: PointBudget::default(),
            steps_left: Rc::new(Cell::new(MAX_RUN_STEPS)),
        }
    }
}

/// The course of a run: which decisions were made, and where it left the plain order.
#[derive(Default)]
pub(crate) struct Course {
    /// Numbers of the decisions of the schedule so far: whether a thread rests, and which one continues.
    pub(crate) decisions: Decisions,
    /// Departures of the schedule from the plain order, each with a description.
    pub(crate) departures: BTreeMap<u64, (Departure, String)>,
    /// Places of these departures, if they are listed.
    pub(crate) locations: BTreeMap<u64, CodeLocation>,
    /// Pairs of points that followed each other in two threads.
    pub(crate) met: BTreeSet<(u32, u32)>,
}

/// The files of a world's processes.
pub(crate) struct Files {
    /// Descriptors of each process.
    pub(crate) descriptors: BTreeMap<u32, Descriptors>,
    /// Watches of descriptors that threads wait for.
    pub(crate) watches: Watches,
    /// Numbers of files that programs asked for, by device and inode.
    pub(crate) file_numbers: BTreeMap<(u64, u64), u64>,
    /// Device numbers of files without a name.
    pub(crate) devices: DeviceNumbers,
    /// Offsets of instructions for random numbers in mapped files.
    pub(crate) random_instructions: BTreeMap<MappingKey, Vec<u64>>,
    /// A process has made a descriptor for signals.
    pub(crate) has_signal_files: bool,
}

impl Files {
    pub(crate) fn new() -> Files {
        Files {
            descriptors: BTreeMap::new(),
            watches: Watches::new(),
            file_numbers: BTreeMap::new(),
            devices: DeviceNumbers::of_kernel(),
            random_instructions: BTreeMap::new(),
            has_signal_files: false,
        }
    }
}

/// The sockets of a world's processes.
pub(crate) struct Network {
    /// Packets sent by loopback that may not have arrived.
    pub(crate) delivery: Delivery,
    /// Sockets that share a port.
    pub(crate) port_groups: PortGroups,
    /// Next port for a socket that asks for any.
    pub(crate) next_port: u16,
    /// Number of calls that send to a socket.
    pub(crate) sent: u64,
}

impl Network {
    pub(crate) fn new() -> Network {
        Network {
            delivery: Delivery::new(),
            port_groups: PortGroups::default(),
            next_port: FIRST_PORT,
            sent: 0,
        }
    }
}

/// The events of a run: their digest, and the recordings that it makes or follows.
pub(crate) struct EventLog {
    pub(crate) record: Record,
    pub(crate) recorder: Option<Recorder>,
    pub(crate) expected: Option<Recording>,
    /// The last events, which explain a departure from a recording.
    pub(crate) latest: VecDeque<String>,
    /// Number of events.
    pub(crate) events: u64,
}

impl EventLog {
    /// # Errors
    /// A recording cannot be made, or read.
    pub(crate) fn new(options: &WorldOptions) -> Result<EventLog, WorldError> {
        let recorder = options.record.as_ref().map(|path| Recorder::create(path, options));
        let expected = options.expected.as_ref().map(|path| Recording::open(path));
        Ok(EventLog {
            record: Record::default(),
            recorder: recorder.transpose().map_err(WorldError::Record)?,
            expected: expected.transpose().map_err(WorldError::Recording)?,
            latest: VecDeque::new(),
            events: 0,
        })
    }
}
