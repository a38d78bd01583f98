//! The scheduler: processes are coroutines that make one system call at a time, and the world decides which
//! one runs next.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::ptr;
use std::rc::Rc;
use std::time::Duration;

use corosensei::{Coroutine, CoroutineResult, Yielder};

use super::kernel::{Fd, Kernel, Pid, SimProcessState};
use crate::system::Guard;

/// The condition that a process waits for before its next step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TaskWait {
    /// The process waits only for its turn.
    Turn,
    For(Duration),
    /// The process waits for data at one of these descriptors, or for the end of the duration.
    Readable(Vec<Fd>, Duration),
}

/// A wait for descriptors, with its end on the simulated clock.
#[derive(Debug)]
struct PollWait {
    fds: Vec<Fd>,
    until_ns: u64,
}

type Steps = Yielder<(), TaskWait>;

/// The process whose code this thread runs.
#[derive(Clone)]
struct Current {
    kernel: Rc<RefCell<Kernel>>,
    pid: Pid,
    yielder: Rc<Cell<*const Steps>>,
    /// The process was killed, and its stack is being unwound: it can do nothing any more.
    killed: bool,
}

thread_local! {
    static CURRENT: RefCell<Option<Current>> = const { RefCell::new(None) };
}

fn current() -> Option<Current> {
    CURRENT.with_borrow(Clone::clone)
}

/// Reports whether this thread runs the code of a simulated process.
pub(crate) fn is_simulated() -> bool {
    CURRENT.with_borrow(Option::is_some)
}

/// Makes a system call of the simulated process: waits for its turn and then runs `work` at once.
pub(crate) fn call<T>(work: impl FnOnce(&mut Kernel, Pid) -> io::Result<T>) -> io::Result<T> {
    block(TaskWait::Turn);
    let refused = || io::Error::from_raw_os_error(libc::ESRCH);
    let current = current().filter(|current| !current.killed).ok_or_else(refused)?;
    let mut kernel = current.kernel.borrow_mut();
    work(&mut kernel, current.pid)
}

/// Reads the kernel's state without a system call, or for a call whose order cannot matter. Returns `None`
/// outside of the simulation.
pub(crate) fn observe<T>(look: impl FnOnce(&Kernel, Pid) -> T) -> Option<T> {
    let current = current()?;
    let kernel = current.kernel.borrow();
    Some(look(&kernel, current.pid))
}

/// Lets other processes run until the awaited condition holds.
pub(crate) fn block(wait: TaskWait) {
    let Some(current) = current().filter(|current| !current.killed && !std::thread::panicking()) else {
        return;
    };
    let yielder = current.yielder.get();
    drop(current);
    // SAFETY: this code runs on the stack of the coroutine that was given this yielder, which lives until the
    // coroutine's end.
    unsafe { (*yielder).suspend(wait) };
}

struct Task {
    coroutine: Coroutine<(), TaskWait, ()>,
    yielder: Rc<Cell<*const Steps>>,
    waiting: PollWait,
}

/// All processes, and the kernel that they share.
pub(super) struct World {
    pub(super) kernel: Rc<RefCell<Kernel>>,
    tasks: BTreeMap<Pid, Task>,
}

impl World {
    pub(super) fn new(without: &[Guard]) -> World {
        World { kernel: Rc::new(RefCell::new(Kernel::new(without))), tasks: BTreeMap::new() }
    }

    /// Starts a process of a user.
    pub(super) fn start(&mut self, uid: u32, program: impl FnOnce(Pid) + 'static) -> Pid {
        let pid = self.kernel.borrow_mut().start(uid);
        let yielder = Rc::new(Cell::new(ptr::null()));
        let own = Rc::clone(&yielder);
        let coroutine = Coroutine::new(move |steps: &Steps, ()| {
            own.set(ptr::from_ref(steps));
            program(pid);
        });
        let waiting = PollWait { fds: Vec::new(), until_ns: 0 };
        self.tasks.insert(pid, Task { coroutine, yielder, waiting });
        pid
    }

    /// Returns the processes that have something to do now. Without any, time passes until one has; an empty
    /// result means that no process is left.
    pub(super) fn ready(&mut self) -> Vec<Pid> {
        loop {
            let mut kernel = self.kernel.borrow_mut();
            let now_ns = kernel.now_ns;
            let runs = |pid: &Pid| kernel.state(*pid) == SimProcessState::Runs;
            let all: Vec<(&Pid, &Task)> = self.tasks.iter().filter(|(pid, _)| runs(pid)).collect();
            let is_ready = |pid: Pid, task: &Task| {
                task.waiting.until_ns <= now_ns || kernel.is_readable(pid, &task.waiting.fds)
            };
            let ready: Vec<Pid> =
                all.iter().filter(|(pid, task)| is_ready(**pid, task)).map(|(pid, _)| **pid).collect();
            let Some(next_ns) = all.iter().map(|(_, task)| task.waiting.until_ns).min() else { return ready };
            if !ready.is_empty() {
                return ready;
            }
            kernel.now_ns = next_ns;
        }
    }

    /// Lets a process make its next system call and run up to the one after it.
    pub(super) fn step(&mut self, pid: Pid) {
        let Some(task) = self.tasks.get_mut(&pid) else { return };
        let current = Current {
            kernel: Rc::clone(&self.kernel),
            pid,
            yielder: Rc::clone(&task.yielder),
            killed: false,
        };
        let outer = CURRENT.replace(Some(current));
        let result = task.coroutine.resume(());
        CURRENT.set(outer);
        let mut kernel = self.kernel.borrow_mut();
        kernel.calls += 1;
        match result {
            CoroutineResult::Yield(wait) => {
                let now_ns = kernel.now_ns;
                let (fds, pause) = match wait {
                    TaskWait::Turn => (Vec::new(), Duration::ZERO),
                    TaskWait::For(pause) => (Vec::new(), pause),
                    TaskWait::Readable(fds, pause) => (fds, pause),
                };
                task.waiting = PollWait { fds, until_ns: now_ns + pause.as_nanos() as u64 };
            }
            CoroutineResult::Return(()) => {
                kernel.end(pid);
                drop(kernel);
                self.tasks.remove(&pid);
            }
        }
    }

    /// Kills a process between two system calls: the kernel takes back all that it had.
    pub(super) fn kill(&mut self, pid: Pid) {
        self.kernel.borrow_mut().end(pid);
        let Some(task) = self.tasks.remove(&pid) else { return };
        let (kernel, yielder) = (Rc::clone(&self.kernel), Rc::clone(&task.yielder));
        let outer = CURRENT.replace(Some(Current { kernel, pid, yielder, killed: true }));
        // Dropping the task unwinds its stack, so that its memory is freed.
        drop(task);
        CURRENT.set(outer);
    }

    pub(super) fn is_over(&self, pid: Pid) -> bool {
        !self.tasks.contains_key(&pid)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let all: Vec<Pid> = self.tasks.keys().copied().collect();
        all.into_iter().for_each(|pid| self.kill(pid));
    }
}
