//! The names of threads, as numbers.
//!
//! A name is a 1, then for each ancestor below the first thread, and for the thread itself, the number of
//! threads that its creator had created before it, plus one, in Elias gamma code: as many zeros as binary
//! digits follow the first. libpumice.so reads them, in `device/platform/src/outside/thread.rs`.

/// Name of a thread that the program did not create, or that was created without pthread_create(3).
pub(crate) const UNNAMED: u32 = 0;
/// Name of the first thread of a process.
pub(crate) const MAIN: u32 = 1;
/// Number of bits of a name; a thread whose name needs more has none.
const BITS: u32 = 20;

/// Returns the name of the thread that the thread `name` creates after `before` others.
pub(crate) fn child(name: u32, before: u32) -> u32 {
    let number = before.saturating_add(1);
    let digits = 2 * number.ilog2() + 1;
    if name == UNNAMED || name.ilog2() + 1 + digits > BITS { UNNAMED } else { name << digits | number }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_thread_has_another_name_and_what_has_no_room_has_none() {
        let mut known = vec![MAIN];
        for maker in [MAIN, child(MAIN, 0), child(MAIN, 6), child(child(MAIN, 0), 2)] {
            known.extend((0..8).map(|before| child(maker, before)));
        }
        known.sort_unstable();
        let all = known.len();
        known.dedup();
        assert_eq!(all - known.len(), 0);
        assert!(!known.contains(&UNNAMED) && known.iter().all(|name| *name < 1 << BITS));
        assert_eq!(child(MAIN, 1021), 1 << 19 | 1022);
        for (name, before) in [(MAIN, 1023), (MAIN, u32::MAX), (UNNAMED, 0), (child(MAIN, 500), 3)] {
            assert_eq!(child(name, before), UNNAMED, "{name} {before}");
        }
    }
}
