//! What a program tells the supervisor of its world (`pumice world`), if it runs in one.
//!
//! The supervisor sees system calls. A call of verbs makes none as a rule, so it says here that another
//! thread may go on, or that it has found nothing: by a page of memory, and by a call if the page says so.

use std::sync::atomic::{AtomicU8, Ordering};

use super::{environment, system_call, world_page};

/// The variable that says that the program runs in a world.
pub const VARIABLE: &str = "PUMICE_WORLD";

/// Kinds of hints.
const POINT: u64 = 0;
const IN_VAIN: u64 = 1;

/// Whether the program runs in a world.
pub fn is_here() -> bool {
    const UNKNOWN: u8 = 0;
    const NO: u8 = 1;
    const YES: u8 = 2;
    static IS_HERE: AtomicU8 = AtomicU8::new(UNKNOWN);
    let known = IS_HERE.load(Ordering::Relaxed);
    if known != UNKNOWN {
        return known == YES;
    }
    let is_here = environment::variable(VARIABLE).is_some();
    IS_HERE.store(if is_here { YES } else { NO }, Ordering::Relaxed);
    is_here
}

/// Another thread may go on here.
pub fn point() {
    if !world_page::point() {
        system_call::hint(POINT);
    }
}

/// The thread has looked for something, and found nothing.
pub fn looked_in_vain() {
    if !world_page::looked_in_vain() {
        system_call::hint(IN_VAIN);
    }
}
