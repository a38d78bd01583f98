//! The parts of a world's state.
//!
//! The numbers of a thread do not depend on what other threads do. So a departure keeps its number when
//! others are left out.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::BorrowedFd;
use std::rc::Rc;

use libc::sock_filter;
use nix::sys::stat::fstat;

use super::clock::{Alarms, Clock};
use super::look::Occasions;
use super::priorities::Priorities;
use super::random::{DrawsAhead, SeededRandom};
use super::readiness::{Delivery, Descriptors};
use super::stepper::MAX_RUN_STEPS;
use super::threads::ThreadId;
use super::timers::Timers;
use super::waits::{MappingKey, WaitCheck, Watches};
use crate::certificate::Record;
use crate::error::{CodeLocation, WorldError};
use crate::options::{Departure, POINT, WorldOptions};
use crate::recording::{Recorder, Recording};

/// Number of bits of a decision's number for the choice at a point, and for the point.
const CHOICE_BITS: u32 = POINT.ilog2();
const POINT_BITS: u32 = 32;
/// Number of choices at a point that have a number.
const MAX_CHOICES: u64 = (1 << CHOICE_BITS) - 1;

/// How far a thread has come.
#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    /// Number of points of the thread.
    points: u64,
    /// Number of choices of the next thread since its last point.
    choices: u64,
}

/// The numbers of decisions so far.
#[derive(Debug, Default)]
pub(crate) struct Decisions(BTreeMap<ThreadId, Progress>);

impl Decisions {
    /// Counts a point of a thread. Returns the number of the decision whether it rests there.
    pub(crate) fn at_point(&mut self, id: ThreadId) -> u64 {
        let progress = self.0.entry(id).or_default();
        *progress = Progress { points: progress.points + 1, choices: 0 };
        number(id, *progress)
    }

    /// Counts a choice of the next thread, after `last` ran. Returns its number, if it has one.
    pub(crate) fn at_choice(&mut self, last: Option<ThreadId>) -> Option<u64> {
        let id = last.unwrap_or(ThreadId(0));
        let progress = self.0.entry(id).or_default();
        progress.choices += 1;
        (progress.choices <= MAX_CHOICES).then(|| number(id, *progress))
    }

    /// Counts points of a thread after each of which the same thread continued.
    pub(crate) fn pass(&mut self, id: ThreadId, points: u32) {
        let progress = self.0.entry(id).or_default();
        *progress = Progress { points: progress.points + u64::from(points), choices: 1 };
    }

    /// Returns the number of points of a thread before the first of these departures, which are sorted.
    pub(crate) fn points_before<T>(&self, id: ThreadId, listed: &BTreeMap<u64, T>) -> u64 {
        let now = self.0.get(&id).copied().unwrap_or_default();
        let end = number(ThreadId(id.0 + 1), Progress::default());
        let next = listed.range(number(id, now) + 1..end.max(number(id, now) + 1)).next();
        next.map_or(u64::MAX, |(next, _)| {
            (next >> CHOICE_BITS & ((1 << POINT_BITS) - 1)).saturating_sub(now.points + 1)
        })
    }
}

fn number(id: ThreadId, Progress { points, choices }: Progress) -> u64 {
    let points = points.min((1 << POINT_BITS) - 1);
    u64::from(id.0) << (POINT_BITS + CHOICE_BITS) | points << CHOICE_BITS | choices.min(MAX_CHOICES)
}

/// The device numbers of files without a name, as `stat` shows them.
pub(crate) struct DeviceNumbers {
    sockets: u64,
    pipes: u64,
    name_spaces: u64,
}

impl DeviceNumbers {
    /// Reads the device numbers of this kernel.
    pub(crate) fn of_kernel() -> DeviceNumbers {
        use std::os::unix::fs::MetadataExt as _;
        let of_file =
            |file: std::os::fd::OwnedFd| std::fs::File::from(file).metadata().map_or(0, |known| known.dev());
        let socket = std::os::unix::net::UnixDatagram::unbound();
        DeviceNumbers {
            sockets: socket.map_or(0, |socket| of_file(socket.into())),
            pipes: nix::unistd::pipe().map_or(0, |(reader, _)| of_file(reader)),
            name_spaces: std::fs::metadata("/proc/self/ns/net").map_or(0, |known| known.dev()),
        }
    }

    /// Returns the device number of sockets, pipes or namespaces, by the word in their links.
    pub(crate) fn of_kind(&self, kind: &str) -> u64 {
        match kind {
            "socket" => self.sockets,
            "pipe" => self.pipes,
            _ => self.name_spaces,
        }
    }
}

/// The points that the running thread may pass without a stop, and the conditions under which they were
/// counted.
#[derive(Debug, Default)]
pub(crate) struct PointBudget {
    pub(crate) count: u32,
    /// At each of them, other threads could continue as well.
    pub(crate) has_choice: bool,
    /// At each of them, threads with idle polls are passed over.
    pub(crate) skips_idle_threads: bool,
}

/// First port for sockets that ask for any.
pub(crate) const FIRST_PORT: u16 = 32_768;

/// The table and the address of a group.
pub(crate) type GroupName = (&'static str, String);

/// A filter as programs attach it; empty for none.
pub(crate) type Filter = Vec<sock_filter>;

/// All groups of sockets that share a port.
#[derive(Debug, Default)]
pub(crate) struct PortGroups {
    /// Sockets that may share their port, by inode, each with the process and the descriptor by which it was
    /// last found.
    pub(crate) sockets: BTreeMap<u64, (u32, i32)>,
    /// Filters of sockets that have no port yet.
    pub(crate) early_filters: BTreeMap<u64, Filter>,
    pub(crate) groups: BTreeMap<GroupName, Group>,
    pub(crate) is_stale: bool,
}

/// The sockets that share one port.
#[derive(Debug, Default)]
pub(crate) struct Group {
    /// Its sockets by inode, each with whether it is connected.
    pub(crate) members: BTreeMap<u64, bool>,
    /// Filter that a program has attached.
    pub(crate) filter: Filter,
}

impl PortGroups {
    /// Notes that sockets of a group may have come or gone.
    pub(crate) fn may_have_changed(&mut self) {
        self.is_stale = !self.sockets.is_empty();
    }

    /// Notes that a descriptor may be closed.
    pub(crate) fn may_lose(&mut self, file: BorrowedFd<'_>) {
        if !self.sockets.is_empty() && inode(file).is_some_and(|inode| self.sockets.contains_key(&inode)) {
            self.is_stale = true;
        }
    }
}

/// Returns the inode of a socket.
pub(crate) fn inode(file: BorrowedFd<'_>) -> Option<u64> {
    fstat(file).ok().filter(|about| about.st_mode & libc::S_IFMT == libc::S_IFSOCK).map(|about| about.st_ino)
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_thread_do_not_depend_on_others() {
        let (mut alone, mut among) = (Decisions::default(), Decisions::default());
        let (id, other) = (ThreadId(3), ThreadId(4));
        let wanted = [alone.at_point(id), alone.at_point(id)];
        let first = among.at_point(id);
        among.at_choice(Some(id));
        among.at_point(other);
        among.at_choice(Some(other));
        assert_eq!([first, among.at_point(id)], wanted);
    }

    #[test]
    fn points_that_pass_are_counted_like_those_that_stop() {
        let (mut stops, mut passes) = (Decisions::default(), Decisions::default());
        let id = ThreadId(1);
        for _ in 0..5 {
            stops.at_point(id);
            stops.at_choice(Some(id));
        }
        passes.pass(id, 5);
        assert_eq!(stops.at_choice(Some(id)), passes.at_choice(Some(id)));
        let sixth = stops.at_point(id);
        stops.at_point(id);
        let listed: BTreeMap<u64, ()> = [(sixth, ())].into();
        assert_eq!(passes.points_before(id, &listed), 0);
        assert_eq!(Decisions::default().points_before(id, &listed), 5);
        assert_eq!(stops.points_before(id, &listed), u64::MAX);
        assert_eq!(passes.points_before(ThreadId(0), &listed), u64::MAX);
    }

    #[test]
    fn a_choice_beyond_all_numbers_has_none() {
        let mut decisions = Decisions::default();
        assert!((0..MAX_CHOICES).all(|_| decisions.at_choice(None).is_some()));
        assert_eq!(decisions.at_choice(None), None);
    }
}
