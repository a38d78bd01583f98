//! The state that all checks share, how a finding is made of it, and how checks reach into the process.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;

use pumice_platform::call_stack::{Stack, Stacks};
use pumice_platform::number_map::NumberMap;
use pumice_platform::outside::data_watch::WatchedWord;

use super::kind::{FindingFamily, FindingKind};
use super::objects::{DeviceTag, Objects};
use super::queues::{Cq, Qp, Srq};
use super::recorded::{Findings, RecordedFinding, RelatedCallSite};

/// A function that copies ranges (process address, bytes) one behind the other. It returns false if one of
/// them is not mapped. At most 64 ranges are passed at once.
pub type ReadMemory = fn(&[(u64, usize)], &mut [u8]) -> bool;

/// A function that fills ranges (process address, bytes) with a pattern. It returns false if one of them is
/// not mapped for writing.
pub type FillMemory = fn(&[(u64, usize)]) -> bool;

/// A function that is notified of the bounds of all memory of posted requests: the first address, and the one
/// behind the last.
pub type BoundsCallback = fn(u64, u64);

/// A function that returns the stack of the calling thread: its first byte, and the first one behind it.
pub type OwnStack = fn() -> (u64, u64);

/// A function that returns how often the calling thread has waited in the operating system since it began.
pub type WaitCounter = fn() -> u64;

/// A function that returns how often the calling thread has slept for a time that it named, as by usleep(3).
pub type SleepCounter = fn() -> u64;

/// Functions that watch words of memory for accesses of the calling thread.
#[derive(Debug, Clone, Copy)]
pub struct Watchpoints {
    /// Begins to watch one or two words, and returns the number of the watch; `None` if they are not watched.
    pub begin: fn(&[WatchedWord]) -> Option<u64>,
    /// Ends a watch.
    pub end: fn(u64),
    /// Takes an access, which has ended its watch: returns the watch, and which of its words it was. Return
    /// addresses of the access replace those of the list, the innermost first.
    pub take: fn(&mut Vec<u64>) -> Option<(u64, usize)>,
}

/// The functions that the owner of a checker provides. Without one of them, mistakes that need it are not
/// found.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Callbacks {
    pub(super) read: Option<ReadMemory>,
    /// Function like `read`, for memory that is known to be mapped.
    pub(super) read_at_once: Option<ReadMemory>,
    pub(super) own_stack: Option<OwnStack>,
    pub(super) fill: Option<FillMemory>,
    pub(super) watch: Option<BoundsCallback>,
    pub(super) switches: Option<WaitCounter>,
    pub(super) sleeps: Option<SleepCounter>,
    pub(super) watchpoints: Option<Watchpoints>,
}

thread_local! {
    static OWN_CALL: Cell<u64> = const { Cell::new(0) };
    static HOLDS: Cell<bool> = const { Cell::new(false) };
}

/// Reports whether this thread is in the checker.
pub fn holds_checker() -> bool {
    HOLDS.try_with(Cell::get).unwrap_or(true)
}

/// Sets whether this thread is in the checker from now on, and returns the value before.
pub fn set_holds_checker(holds: bool) -> bool {
    HOLDS.try_with(|own| own.replace(holds)).unwrap_or(true)
}

/// Runs `run`, with this thread in the checker meanwhile.
pub fn holding<T>(run: impl FnOnce() -> T) -> T {
    // The value has no destructor, so it exists for as long as the thread does.
    HOLDS.with(|own| {
        let before = own.replace(true);
        let outcome = run();
        own.set(before);
        outcome
    })
}

/// Returns a number of the calling thread that is not 0 and that no other living thread has: the address of a
/// thread-local variable.
#[inline]
pub(super) fn own_thread() -> u64 {
    OWN_CALL.try_with(|own| std::ptr::from_ref(own).addr() as u64).unwrap_or(1)
}

/// Sets the number of the call of the program that this thread is in, which no other call has; 0 for none.
/// Until the call ends, the program's call site does not change.
pub(super) fn set_own_call(number: u64) {
    let _ = OWN_CALL.try_with(|own| own.set(number));
}

/// Notes that the call that this thread was in has ended.
pub fn call_ends() {
    set_own_call(0);
}

/// Returns the number of the call that this thread is in, if it is in one.
#[inline]
fn own_call() -> Option<u64> {
    OWN_CALL.try_with(Cell::get).ok().filter(|number| *number != 0)
}

/// A function that puts the return addresses of the program's frames into a list, innermost first.
pub type CaptureStack = fn(&mut Vec<u64>);

/// The call sites of the program, as far as they were captured.
pub(super) struct CallSites {
    pub(super) capture: CaptureStack,
    stacks: Stacks,
    /// Return addresses of the stack that is being captured; the memory is used again.
    addresses: Vec<u64>,
    /// Stack that was captured last, if that was in a call of the program.
    pub(super) latest: Option<(u64, Stack)>,
}

/// The state that all checks share. The checker owns it; checks read it, ask it for the call site, and record
/// their findings in it.
pub(super) struct CheckContext {
    pub(super) sites: CallSites,
    /// Number of calls of the program that have begun.
    pub(super) calls: u64,
    /// Device time, in ns, of the latest event.
    pub(super) now_ns: u64,
    pub(super) findings: Findings,
    /// Slow ways are findings too.
    pub(super) checks_performance: bool,
    pub(super) callbacks: Callbacks,
    pub(super) objects: Objects,
    /// Device that the current notification is about.
    pub(super) own: DeviceTag,
    /// Completion queues by handle, as [`DeviceTag::handle`] makes it.
    pub(super) cqs: NumberMap<u32, Cq>,
    /// Handles of the completion queues by the addresses of the program's pointers.
    pub(super) cq_handles: NumberMap<u64, u32>,
    /// Descriptors of completion channels, by the addresses of the program's pointers.
    pub(super) channels: BTreeMap<u64, i32>,
    /// Queue pairs by number.
    pub(super) qps: NumberMap<u32, Qp>,
    /// Shared receive queues by handle, as for completion queues.
    pub(super) srqs: BTreeMap<u32, Srq>,
}

impl fmt::Debug for CheckContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("findings", &self.findings).finish_non_exhaustive()
    }
}

/// The parts of a finding, as a check provides them.
#[derive(Debug)]
pub(super) struct FindingParts {
    pub(super) object: String,
    pub(super) numbers: String,
    pub(super) stack: Stack,
    pub(super) related: Vec<RelatedCallSite>,
}

impl CheckContext {
    /// Creates a context without any objects. With `checks_performance`, slow ways are findings too.
    pub(super) fn new(capture: CaptureStack, checks_performance: bool) -> CheckContext {
        CheckContext {
            sites: CallSites { capture, stacks: Stacks::default(), addresses: Vec::new(), latest: None },
            calls: 0,
            now_ns: 0,
            findings: Findings::default(),
            checks_performance,
            callbacks: Callbacks::default(),
            objects: Objects::default(),
            own: DeviceTag::default(),
            cqs: NumberMap::default(),
            cq_handles: NumberMap::default(),
            channels: BTreeMap::new(),
            qps: NumberMap::default(),
            srqs: BTreeMap::new(),
        }
    }

    /// Returns the call site of the calling thread. That takes some 10 µs, once in a call.
    pub(super) fn here(&mut self) -> Stack {
        let call = own_call();
        if let Some((of, stack)) = &self.sites.latest
            && call == Some(*of)
        {
            return stack.clone();
        }
        self.sites.addresses.clear();
        (self.sites.capture)(&mut self.sites.addresses);
        let stack = self.sites.stacks.keep(&self.sites.addresses);
        self.sites.latest = call.map(|call| (call, stack.clone()));
        stack
    }

    /// Returns the stack with these return addresses, innermost first.
    pub(super) fn stack_of(&mut self, addresses: &[u64]) -> Stack {
        self.sites.stacks.keep(addresses)
    }

    /// Records a finding of this kind.
    pub(super) fn found(&mut self, kind: &'static FindingKind, found: FindingParts) {
        if kind.family == FindingFamily::Slow && !self.checks_performance {
            return;
        }
        let FindingParts { object, numbers, stack, related } = found;
        let is_other = |one: &RelatedCallSite| !one.call_site.is_unknown() && one.call_site != stack;
        let related = related.into_iter().filter(is_other).collect();
        self.findings.add(RecordedFinding { kind, call_site: stack, object, numbers, related, count: 1 });
    }

    /// Reports whether a finding names one of these objects, other than by a failure alone.
    pub(super) fn is_found_of(&self, names: &[String]) -> bool {
        let tells =
            |one: &&RecordedFinding| !matches!(one.kind.family, FindingFamily::Slow | FindingFamily::Failed);
        self.findings
            .all()
            .iter()
            .filter(tells)
            .any(|one| names.iter().any(|name| one.object.contains(name) || one.numbers.contains(name)))
    }

    /// Reports whether there is a finding at this call site, other than a failure alone.
    pub(super) fn is_found_at(&self, call_site: &Stack) -> bool {
        let tells =
            |one: &&RecordedFinding| !matches!(one.kind.family, FindingFamily::Slow | FindingFamily::Failed);
        self.findings.all().iter().filter(tells).any(|one| one.call_site == *call_site)
    }

    /// Counts a repetition of a finding, with a stack that need not be told apart.
    pub(super) fn found_again(&mut self, kind: &'static FindingKind, object: &str) {
        self.findings.again(kind, object);
    }

    /// Forgets the requests and completions of a queue pair that was reset or destroyed.
    pub(super) fn forget_requests(&mut self, qp: &mut Qp) {
        for (handle, expected, unpolled) in [
            (qp.send_cq, &mut qp.counts.signaled, &mut qp.counts.sends_unpolled),
            (qp.recv_cq, &mut qp.counts.receives, &mut qp.counts.receives_unpolled),
        ] {
            if let Some(cq) = self.cqs.get_mut(&handle) {
                cq.expected = cq.expected.saturating_sub(*expected);
                cq.unpolled = cq.unpolled.saturating_sub(*unpolled);
                cq.stir();
            }
            (*expected, *unpolled) = (0, 0);
        }
        qp.counts.sends = 0;
    }

    /// Counts a posted request that will complete on this queue.
    pub(super) fn expect(&mut self, handle: u32) {
        if let Some(cq) = self.cqs.get_mut(&handle) {
            cq.expected = cq.expected.saturating_add(1);
        }
    }

    /// Reports whether the peer of a queue pair is another one of this process.
    pub(super) fn is_connected_to_own(&self, number: u32) -> bool {
        let own = self.qps.get(&number).filter(|qp| qp.peer_is_here);
        own.and_then(|qp| qp.destination).is_some_and(|other| self.qps.contains_key(&other))
    }

    /// Clears the state in a fork child: its objects belong to the parent, which reports the findings.
    pub(super) fn forked(&mut self) {
        self.objects.forked();
        self.cqs.clear();
        self.cq_handles.clear();
        self.qps.clear();
        self.srqs.clear();
        self.findings = Findings::default();
    }
}

/// Returns another stack of a finding.
pub(super) fn related(what: impl Into<String>, stack: &Stack) -> RelatedCallSite {
    RelatedCallSite { what: what.into(), call_site: stack.clone() }
}

/// Returns a count with its noun, as in "1 packet" and "2 packets".
pub(super) fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Returns a sentence about waiting completions, as in "2 completions wait".
pub(super) fn waiting(count: u64) -> String {
    format!("{} {}", counted(count, "completion"), if count == 1 { "waits" } else { "wait" })
}
