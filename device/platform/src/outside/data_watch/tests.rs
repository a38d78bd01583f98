use std::cell::Cell;
use std::hint::black_box;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::*;

thread_local! {
    /// True if the accesses that `look` examines count.
    static COUNTS: Cell<bool> = const { Cell::new(true) };
}

fn look(instruction: usize, stack: usize, by_library: bool, frames: &mut [u64; FRAMES]) -> usize {
    if !COUNTS.get() {
        return 0;
    }
    frames[..3].copy_from_slice(&[instruction as u64, stack as u64, by_library.into()]);
    3
}

/// Lets one test at a time begin, end and take watches.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn word(of: &Cell<u64>, by_library: bool) -> WatchedWord {
    WatchedWord { address: (&raw const *of).addr() as u64, bytes: 8, by_library }
}

/// Checks whether words can be watched here; `None` where the machine does not let programs do so.
fn is_possible_here() -> Option<()> {
    let own = Cell::new(0);
    let begun = begin(look, &[word(&own, true)]);
    if begun.is_none() {
        eprintln!("**** SKIPPED: perf_event_open(2) gives no breakpoints here");
    }
    end(begun?);
    Some(())
}

/// Reads a word so that the compiler does not remove the access.
#[inline(never)]
fn touch(word: &Cell<u64>) -> u64 {
    // SAFETY: a live word of this thread.
    black_box(unsafe { std::ptr::read_volatile(word.as_ptr()) })
}

#[test]
fn an_access_is_noted_once_with_its_word_and_its_place() {
    let _turn = turn();
    let Some(()) = is_possible_here() else { return };
    let (words, beside) = ([Cell::new(1), Cell::new(2), Cell::new(3)], Cell::new(4));
    let [first, between, last] = &words;
    for (accessed, number) in [(first, 0_usize), (last, 1)] {
        let watch = begin(look, &[word(first, false), word(last, true)]).expect("it is possible");
        let mut frames = vec![7];
        assert_eq!((touch(between), touch(&beside), take(&mut frames)), (2, 4, None));
        assert_eq!(touch(accessed), number as u64 * 2 + 1);
        touch(accessed);
        assert_eq!(take(&mut frames), Some((watch, number)));
        let code = (touch as fn(&Cell<u64>) -> u64 as *const ()).addr() as u64;
        let [instruction, stack, by_library] = frames.as_slice() else { panic!("{frames:?}") };
        assert!((code..code + 64).contains(instruction), "{instruction:#x} of {code:#x}");
        assert!(stack.abs_diff((&raw const frames).addr() as u64) < 1 << 16);
        assert_eq!(*by_library, number as u64);
        assert_eq!(take(&mut frames), None, "the watch has ended");
        end(watch);
    }
}

#[test]
fn nothing_is_noted_after_the_end_of_a_watch_or_of_what_does_not_count() {
    let _turn = turn();
    let Some(()) = is_possible_here() else { return };
    let own = Cell::new(5);
    let mut frames = Vec::new();
    let watch = begin(look, &[word(&own, true)]).expect("it is possible");
    COUNTS.set(false);
    touch(&own);
    assert_eq!(take(&mut frames), None);
    COUNTS.set(true);
    end(watch);
    touch(&own);
    assert_eq!(take(&mut frames), None);
    let second = begin(look, &[word(&own, true)]).expect("it is possible");
    // The access was recorded, and nothing took the record.
    touch(&own);
    end(second);
    assert_eq!(take(&mut frames), None);
    let third = begin(look, &[word(&own, true)]).expect("it is possible");
    // This is the ID of an earlier watch.
    end(second);
    touch(&own);
    assert_eq!(take(&mut frames), Some((third, 0)));
}

#[test]
fn a_thread_watches_two_pieces_and_gives_them_back_when_it_ends() {
    let _turn = turn();
    let Some(()) = is_possible_here() else { return };
    // There are more threads than there is room for.
    for _ in 0..pair::PAIRS {
        let others = std::thread::spawn(|| {
            // The code that ends the thread uses its stack, and the words are watched until then.
            let [a, b, c, d, e, f] = Box::leak(Box::new([const { Cell::new(1) }; 6]));
            let of = |first, last| begin(look, &[word(first, true), word(last, true)]);
            let begun = [of(a, b), of(c, d), of(e, f)];
            touch(d);
            touch(e);
            begun
        });
        let [first, second, third] = others.join().expect("it does not panic");
        assert!(first.is_some() && second.is_some() && first != second && third.is_none());
        assert_eq!(take(&mut Vec::new()), second.map(|watch| (watch, 1)), "of a thread that has ended");
        assert_eq!(take(&mut Vec::new()), None);
    }
}

#[test]
fn another_thread_ends_a_watch_and_its_own_accesses_do_not_count() {
    let _turn = turn();
    let Some(()) = is_possible_here() else { return };
    let own = Box::leak(Box::new(Cell::new(6)));
    let watch = begin(look, &[word(own, true)]).expect("it is possible");
    let address = own.as_ptr().expose_provenance();
    let reads = move || {
        // SAFETY: the word is leaked, and nothing writes it meanwhile.
        let read = unsafe { std::ptr::with_exposed_provenance::<u64>(address).read_volatile() };
        let noted = take(&mut Vec::new());
        end(watch);
        (read, noted)
    };
    assert_eq!(std::thread::spawn(reads).join().expect("it does not panic"), (6, None));
    touch(own);
    assert_eq!(take(&mut Vec::new()), None);
}

#[test]
fn a_thread_that_blocks_the_signal_watches_nothing() {
    let _turn = turn();
    let Some(()) = is_possible_here() else { return };
    let blocks = || {
        let own = Cell::new(0);
        let mut only = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: a set of this frame is filled, then read; the thread ends soon.
        unsafe {
            libc::sigemptyset(only.as_mut_ptr());
            libc::sigaddset(only.as_mut_ptr(), libc::SIGTRAP);
            libc::pthread_sigmask(libc::SIG_BLOCK, only.as_ptr(), std::ptr::null_mut());
        }
        begin(look, &[word(&own, true)])
    };
    assert_eq!(std::thread::spawn(blocks).join().expect("it does not panic"), None);
}

#[test]
fn a_child_of_fork_watches_nothing_and_leaves_the_watch_of_its_parent() {
    let _turn = turn();
    let Some(()) = is_possible_here() else { return };
    let own = Cell::new(7);
    let watch = begin(look, &[word(&own, true)]).expect("it is possible");
    // SAFETY: the child looks at a word, closes descriptors and exits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        forked();
        touch(&own);
        end(watch);
        let is_well = take(&mut Vec::new()).is_none();
        // SAFETY: it ends the child without what the parent has registered.
        unsafe { libc::_exit(if is_well { 0 } else { 1 }) };
    }
    let mut status = -1;
    // SAFETY: a child of this test, and a variable of this frame.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    touch(&own);
    assert_eq!(take(&mut Vec::new()), Some((watch, 0)));
}

#[test]
fn kernels_are_told_by_their_names() {
    for old in ["5.17.15", "4.19.0-25-amd64", "5.4", "", "unknown"] {
        assert!(!is_new_enough(old), "{old}");
    }
    for new in ["5.18.0", "6.1.0-18-amd64", "6.18.44-fc-v595\n", "10.0"] {
        assert!(is_new_enough(new), "{new}");
    }
}
