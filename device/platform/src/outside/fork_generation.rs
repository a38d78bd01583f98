//! The generation of this process in a line of forks, and state that a forked child creates anew.
//!
//! A fork copies the memory of the process, but only one thread: locks that other threads held stay locked in
//! the copy for ever, and its state of sockets, rings and files belongs to the parent. So the library's state
//! for the whole process is in one of two kinds of static:
//!
//! * [`PerProcess`]: a child creates it anew at its first use. The parent's value stays in memory, unused; no
//!   lock in it is ever waited for.
//! * [`InheritedOnce`]: it is determined once, without a lock, and a child has its parent's value.
//!
//! A child is detected by a page of memory that the kernel zeroes in it (`MADV_WIPEONFORK`), after fork(3) as
//! well as after a bare system call. Where the kernel does not do so, a handler of pthread_atfork(3) does,
//! which does not see bare system calls. A check costs one load.
//!
//! A child that shares its parent's memory (vfork(2), `CLONE_VM`) is no copy: it has its parent's generation,
//! locks included, but a table of descriptors of its own. [`shares_parent_memory`] detects it.
//!
//! tests/floors/forks.tsv lists the statics.

use std::fmt;
use std::ops::Deref;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

/// A page, as large as the kernel of the processor may have them: it is wiped as a whole.
#[cfg_attr(not(target_arch = "aarch64"), repr(C, align(4096)))]
#[cfg_attr(target_arch = "aarch64", repr(C, align(65536)))]
struct ForkWipedPage {
    /// The generation of this process; zero: nothing has asked for it yet.
    generation: AtomicU32,
    /// The number of the process; zero: nothing has asked for it yet.
    process: AtomicU32,
}

static PAGE: ForkWipedPage = ForkWipedPage { generation: AtomicU32::new(0), process: AtomicU32::new(0) };

/// The newest generation of this process and its ancestors. It is not wiped.
static NEWEST_GENERATION: AtomicU32 = AtomicU32::new(0);

/// The generation of a process in a line of forks: its ancestors have others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Generation(u32);

impl Generation {
    /// Returns the generation of this process.
    #[inline]
    pub fn own() -> Generation {
        match PAGE.generation.load(Ordering::Relaxed) {
            0 => begin_generation(),
            known => Generation(known),
        }
    }

    /// Reports whether the generation is that of this process, and not of one that it was forked from.
    #[inline]
    pub fn is_own(self) -> bool {
        // Zero, in a child that has not asked yet, is no generation.
        PAGE.generation.load(Ordering::Relaxed) == self.0
    }
}

/// The sentence that says why a forked child cannot use objects of its parent.
pub const INHERITED: &str = "the device belongs to the parent process, and this child process can do nothing \
                             with it: the child must open the device anew";

/// Reports whether this process was forked from one that had a generation.
pub fn is_forked() -> bool {
    Generation::own().0 > 1
}

/// Returns the number of this process. The C library asks the kernel at each call, and some callers ask
/// often.
#[inline]
pub fn current_pid() -> u32 {
    match PAGE.process.load(Ordering::Relaxed) {
        0 => read_pid(),
        known => known,
    }
}

/// Reports whether the caller is a child that shares the memory of its parent, which waits for it: changes of
/// memory are the parent's as well, but changes of descriptors are those of the child's own table. This is a
/// system call.
pub fn shares_parent_memory() -> bool {
    let (now, known) = (std::process::id(), current_pid());
    if now == known {
        return false;
    }
    if std::os::unix::process::parent_id() == known {
        return true;
    }
    // A child that shared memory was the first to ask.
    PAGE.process.store(now, Ordering::Relaxed);
    false
}

#[cold]
fn read_pid() -> u32 {
    register_fork_handlers();
    let own = std::process::id();
    PAGE.process.store(own, Ordering::Relaxed);
    own
}

#[cold]
fn begin_generation() -> Generation {
    register_fork_handlers();
    // The number is taken before the page is written: a fork between them wastes a number.
    let next = NEWEST_GENERATION.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
    match PAGE.generation.compare_exchange(0, next, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => Generation(next),
        Err(other) => Generation(other),
    }
}

/// Makes the page zero in every child from now on.
fn register_fork_handlers() {
    static REGISTERED: AtomicBool = AtomicBool::new(false);
    extern "C" fn forked() {
        PAGE.generation.store(0, Ordering::Relaxed);
        PAGE.process.store(0, Ordering::Relaxed);
    }
    if REGISTERED.swap(true, Ordering::Relaxed) {
        // A child has inherited the advice and the handler from its parent.
        return;
    }
    let page = (&raw const PAGE).cast_mut().cast();
    // SAFETY: whole pages of a static of this file; the advice changes nothing in this process. In a child
    // all of the page is atomics, for which zero is a value. The handler takes and returns nothing, and may
    // run in a child at any time.
    unsafe {
        libc::madvise(page, size_of::<ForkWipedPage>(), libc::MADV_WIPEONFORK);
        libc::pthread_atfork(None, None, Some(forked));
    }
}

/// Returns the `Once` of a [`PerProcess`] for something that is done once: a child need not repeat what its
/// parent has done.
pub fn once(parents: Option<&'static Once>) -> Once {
    let own = Once::new();
    if parents.is_some_and(Once::is_completed) {
        own.call_once(|| ());
    }
    own
}

/// A value of this process alone: a forked child creates it anew.
pub struct PerProcess<T: 'static> {
    newest: AtomicPtr<CreatedValue<T>>,
    make: fn(Option<&'static T>) -> T,
}

/// A value that a process has created, which is never freed.
struct CreatedValue<T: 'static> {
    generation: Generation,
    before: Option<&'static CreatedValue<T>>,
    value: T,
}

// SAFETY: only shared references to the values are given away, and values are made in the thread that asks.
unsafe impl<T: Send + Sync> Sync for PerProcess<T> {}

impl<T: 'static> PerProcess<T> {
    /// Returns an instance without a value. `make` gets the value of the process that this one was forked
    /// from, in which locks may be held for ever.
    pub const fn new(make: fn(Option<&'static T>) -> T) -> PerProcess<T> {
        PerProcess { newest: AtomicPtr::new(ptr::null_mut()), make }
    }

    /// Returns the values of the processes that this one was forked from, the nearest first. Locks in them
    /// may be held for ever, so they are tried and never waited for.
    pub fn inherited(&'static self) -> impl Iterator<Item = &'static T> {
        let newest = self.newest();
        let own = newest.filter(|made| made.generation.is_own());
        let first = own.map_or(newest, |made| made.before);
        std::iter::successors(first, |made| made.before).map(|made| &made.value)
    }

    /// Returns the value of this process, if it has been created.
    pub fn get_if_created(&'static self) -> Option<&'static T> {
        self.newest().filter(|made| made.generation.is_own()).map(|made| &made.value)
    }

    #[inline]
    fn newest(&self) -> Option<&'static CreatedValue<T>> {
        // SAFETY: null, or a leaked box of `make_own`, which nothing changes.
        unsafe { self.newest.load(Ordering::Acquire).as_ref() }
    }

    #[cold]
    fn make_own(&self) -> &'static T {
        let generation = Generation::own();
        let before = self.newest();
        let value = (self.make)(before.map(|made| &made.value));
        let made = Box::into_raw(Box::new(CreatedValue { generation, before, value }));
        let expected = before.map_or(ptr::null_mut(), |made| ptr::from_ref(made).cast_mut());
        let exchange = self.newest.compare_exchange(expected, made, Ordering::AcqRel, Ordering::Acquire);
        if let Err(other) = exchange {
            // SAFETY: this thread's own box, which no other thread has seen; another thread was quicker, and
            // its box, which is leaked, is not null.
            return unsafe {
                drop(Box::from_raw(made));
                &(*other).value
            };
        }
        // SAFETY: leaked from now on.
        unsafe { &(*made).value }
    }
}

impl<T: 'static> Deref for PerProcess<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        match self.newest() {
            Some(made) if made.generation.is_own() => &made.value,
            _ => self.make_own(),
        }
    }
}

impl<T> fmt::Debug for PerProcess<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerProcess").finish_non_exhaustive()
    }
}

/// A value that is determined once and stays, in children too. Threads that ask at the same time all
/// determine it, and the first result wins: no thread waits for another, which a child might not have.
pub struct InheritedOnce<T: 'static>(AtomicPtr<T>);

// SAFETY: only shared references to the value are given away; it is made in the thread that asks.
unsafe impl<T: Send + Sync> Sync for InheritedOnce<T> {}

impl<T: 'static> InheritedOnce<T> {
    /// Returns an instance without a value.
    pub const fn new() -> InheritedOnce<T> {
        InheritedOnce(AtomicPtr::new(ptr::null_mut()))
    }

    /// Returns the value, if there is one.
    pub fn get(&self) -> Option<&'static T> {
        // SAFETY: null, or the leaked box of `set`, which nothing changes.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// Returns the value, which `find` determines if there is none.
    pub fn get_or_init(&self, find: impl FnOnce() -> T) -> &'static T {
        self.get().unwrap_or_else(|| self.set(find()))
    }

    /// Sets the value if there is none, and returns the value.
    pub fn set(&self, value: T) -> &'static T {
        let own = Box::into_raw(Box::new(value));
        let exchange = self.0.compare_exchange(ptr::null_mut(), own, Ordering::AcqRel, Ordering::Acquire);
        match exchange {
            // SAFETY: leaked from now on.
            Ok(_) => unsafe { &*own },
            // SAFETY: this thread's own box, which no other thread has seen; the other one is leaked.
            Err(other) => unsafe {
                drop(Box::from_raw(own));
                &*other
            },
        }
    }
}

impl<T> Default for InheritedOnce<T> {
    fn default() -> InheritedOnce<T> {
        InheritedOnce::new()
    }
}

impl<T> fmt::Debug for InheritedOnce<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settled").field("is_set", &self.get().is_some()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Runs `claims` in a child, and returns whether all held.
    fn in_child(fork: impl FnOnce() -> libc::pid_t, claims: impl FnOnce() -> bool) -> bool {
        let child = fork();
        assert!(child >= 0);
        if child == 0 {
            let held = claims();
            // SAFETY: ends the child without running what the parent registered.
            unsafe { libc::_exit(if held { 0 } else { 1 }) };
        }
        let mut status = -1;
        // SAFETY: our own child, and a live variable.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        status == 0
    }

    fn fork() -> libc::pid_t {
        // SAFETY: the children of these tests look at numbers, allocate a little, and exit.
        unsafe { libc::fork() }
    }

    /// Forks by a bare system call, which no handler of pthread_atfork(3) sees. The allocator may be locked
    /// in its child.
    fn bare() -> libc::pid_t {
        // SAFETY: as above, and no memory is shared.
        unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as libc::pid_t }
    }

    #[test]
    fn a_child_has_a_generation_and_a_number_of_its_own() {
        let (parent, number) = (Generation::own(), current_pid());
        assert_eq!((Generation::own(), current_pid()), (parent, std::process::id()));
        assert!(parent.is_own() && number == std::process::id());
        for fork in [fork as fn() -> libc::pid_t, bare] {
            let is_another = in_child(fork, || {
                let before = parent.is_own();
                let own = Generation::own();
                let grandchild = in_child(fork, || !own.is_own() && Generation::own() > own);
                !before
                    && own > parent
                    && own.is_own()
                    && current_pid() != number
                    && grandchild
                    && is_forked()
            });
            assert!(is_another);
        }
        assert_eq!(Generation::own(), parent, "the parent is as it was");
    }

    #[test]
    fn a_lock_that_is_held_at_a_fork_is_free_in_the_child() {
        static COUNT: PerProcess<Mutex<u32>> = PerProcess::new(|before| {
            let known = before.and_then(|before| before.try_lock().ok().map(|count| *count));
            Mutex::new(known.map_or(1, |count| count + 10))
        });
        *COUNT.lock().unwrap() += 1;
        let held = COUNT.lock().unwrap();
        assert!(in_child(fork, || *COUNT.lock().unwrap() == 1 && COUNT.inherited().count() == 1));
        drop(held);
        let knows_both = || {
            let mine = *COUNT.lock().unwrap() == 12;
            mine && in_child(fork, || COUNT.inherited().count() == 2 && *COUNT.lock().unwrap() == 22)
        };
        assert!(in_child(fork, knows_both));
        assert_eq!((*COUNT.lock().unwrap(), COUNT.inherited().count()), (2, 0));
    }

    #[test]
    fn what_is_settled_stays_and_is_found_once() {
        static FOUND: InheritedOnce<String> = InheritedOnce::new();
        assert_eq!(FOUND.get(), None);
        std::thread::scope(|scope| {
            for number in 0..4 {
                scope.spawn(move || FOUND.get_or_init(|| number.to_string()));
            }
        });
        let found = FOUND.get().unwrap();
        assert!(ptr::eq(FOUND.set("another".to_owned()), found));
        assert!(in_child(fork, || FOUND.get_or_init(|| "other".to_owned()) == found));
    }

    #[test]
    fn a_child_that_shares_memory_is_told_from_a_process_of_its_own() {
        assert!(!shares_parent_memory());
        assert!(in_child(fork, || !shares_parent_memory()));
        static TOLD: AtomicU32 = AtomicU32::new(0);
        extern "C" fn child(_: *mut libc::c_void) -> libc::c_int {
            TOLD.store(if shares_parent_memory() { 1 } else { 2 }, Ordering::SeqCst);
            0
        }
        let mut stack = vec![0_u128; 4096];
        let top = stack.as_mut_ptr_range().end;
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        // SAFETY: the child has a stack of its own, which lives until it has ended, and ends by returning.
        let pid = unsafe { libc::clone(child, top.cast(), flags, ptr::null_mut()) };
        assert!(pid > 0);
        // SAFETY: our own child; its status is not wanted.
        unsafe { libc::waitpid(pid, ptr::null_mut(), 0) };
        assert_eq!(TOLD.load(Ordering::SeqCst), 1);
        assert!(!shares_parent_memory());
    }
}
