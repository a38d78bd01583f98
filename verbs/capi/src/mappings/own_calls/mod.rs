//! System calls with which loaded objects change mappings without the C library: they are replaced by jumps.
//!
//! Allocators (tcmalloc, with `syscall`), the loader (in `dlclose`) and code with inline assembly make such
//! calls. All executable code of loaded objects is searched for them when memory is registered, and again
//! when objects have been loaded since. Instructions are decoded from the beginning of each function, which
//! the unwind tables give; elsewhere a call counts only directly behind the instruction that sets its number.

mod instruction;
mod object;
mod site;
mod stub;

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::sync::{Mutex, PoisonError};

use pumice_device::outside::fork_generation::PerProcess;

use object::LoadedObject;
use stub::NearPage;

/// The objects that were searched.
#[derive(Debug, Default)]
struct SearchState {
    /// Numbers of objects that had been loaded and unloaded then.
    counts: (u64, u64),
    /// First address and length in bytes of their code.
    codes: Vec<(u64, u64)>,
    /// True if a thread may be at the place of a jump: its object has to be searched again.
    is_disturbed: bool,
    /// Number of times that this was so.
    disturbances: u32,
}

/// Largest number of times that objects are searched again because of threads.
const MAX_DISTURBANCES: u32 = 4;

static SEARCHED: PerProcess<Mutex<SearchState>> = PerProcess::new(|_| Mutex::new(SearchState::default()));

/// State of an iteration over all objects.
struct ObjectWalk<'a> {
    searched: &'a mut SearchState,
    memory: &'a File,
    /// Names of the objects with calls that could not be watched, and the numbers of these calls.
    left: Vec<String>,
}

/// Watches the calls of all objects that are loaded now. Returns the calls that cannot be watched, of objects
/// loaded since the last time.
///
/// # Errors
/// Fails if `/proc/self/mem` cannot be written.
pub(super) fn watch() -> std::io::Result<Vec<String>> {
    let mut searched = SEARCHED.lock().unwrap_or_else(PoisonError::into_inner);
    let mut counts = (0, 0);
    // SAFETY: the function is called with the variable while it lives.
    unsafe { libc::dl_iterate_phdr(Some(take_counts), (&raw mut counts).cast()) };
    if counts == searched.counts && !searched.is_disturbed {
        return Ok(Vec::new());
    }
    if counts.1 != searched.counts.1 {
        // Another object may be at the address of an unloaded one.
        searched.codes.clear();
    }
    searched.counts = counts;
    searched.is_disturbed = false;
    stub::prepare();
    let memory = File::options().read(true).write(true).open("/proc/self/mem")?;
    let mut walk = ObjectWalk { searched: &mut searched, memory: &memory, left: Vec::new() };
    // SAFETY: as above. No object is unloaded during the walk.
    unsafe { libc::dl_iterate_phdr(Some(examine_object), (&raw mut walk).cast()) };
    Ok(walk.left)
}

/// Reads the counts of objects, which each object's description has, and ends the iteration.
unsafe extern "C" fn take_counts(info: *mut libc::dl_phdr_info, size: usize, counts: *mut c_void) -> c_int {
    if size >= size_of::<libc::dl_phdr_info>() {
        // SAFETY: the loader gives a description of this size, and `watch` the address of its variable.
        unsafe { *counts.cast::<(u64, u64)>() = ((*info).dlpi_adds, (*info).dlpi_subs) };
    }
    1
}

/// Examines a loaded object.
unsafe extern "C" fn examine_object(info: *mut libc::dl_phdr_info, _size: usize, walk: *mut c_void) -> c_int {
    // SAFETY: `watch` gives the address of its variable, and the loader a valid description.
    let (walk, object) = unsafe { (&mut *walk.cast::<ObjectWalk<'_>>(), LoadedObject::of(&*info)) };
    let Some(object) = object else { return 0 };
    if object.has_code_at(stub::own_address()) {
        return 0;
    }
    let mut outcome = WatchedCode::default();
    for code in &object.codes {
        if !walk.searched.codes.contains(code) {
            walk.searched.codes.push(*code);
            watch_code(&object, *code, walk.memory, &mut outcome);
        }
    }
    if outcome.is_disturbed && walk.searched.disturbances < MAX_DISTURBANCES {
        walk.searched.disturbances += 1;
        walk.searched.is_disturbed = true;
        walk.searched.codes.retain(|code| !object.codes.contains(code));
    }
    if outcome.left > 0 {
        walk.left.push(format!("{} ({})", object.name(), outcome.left));
    }
    0
}

/// Results for the calls of an object.
#[derive(Debug, Default)]
struct WatchedCode {
    left: usize,
    is_disturbed: bool,
}

fn watch_code(object: &LoadedObject, code: (u64, u64), memory: &File, outcome: &mut WatchedCode) {
    let Some(calls) = object.calls_in(code) else {
        // So much code is not searched.
        outcome.left += 1;
        return;
    };
    let mut sites = Vec::new();
    for call in calls {
        match object.inspect_call(call) {
            object::FoundCall::Nothing => {}
            // Their calls that change mappings have the number directly before, or are those of `syscall`.
            object::FoundCall::Left if object.is_of_c_library() => {}
            object::FoundCall::Site(found) if found.site.is_many && object.is_of_c_library() => {}
            object::FoundCall::Left => outcome.left += 1,
            object::FoundCall::Site(site) => sites.push(site),
        }
    }
    if sites.is_empty() {
        return;
    }
    let bytes = size_of::<u64>() + sites.len() * stub::MAX_BYTES;
    let Some(mut page) = NearPage::map(code, bytes, memory) else {
        outcome.left += sites.len();
        return;
    };
    for found in sites {
        let stub = stub::stub(&found.site, &found.code, found.first, page.next());
        let jump = stub::jump(&found.site, found.first, page.next().0);
        let (Some(stub), Some(jump)) = (stub, jump) else {
            outcome.left += 1;
            continue;
        };
        let at = found.first + found.site.replaced.start as u64;
        let range = at + 1..at + jump.len() as u64;
        if found.site.is_many && (outcome.is_disturbed || !object::is_quiet(&range)) {
            outcome.left += 1;
            outcome.is_disturbed = true;
        } else if !page.add(&stub, memory) || !stub::write(memory, at, &jump) {
            outcome.left += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Name of a searched object, and its numbers of calls, of watched ones and of ones that cannot be
    /// watched.
    type CallCounts = (String, [usize; 3]);

    /// The loader and the C library make calls in all ways that compilers use.
    #[test]
    fn calls_of_the_c_library_and_the_loader_are_understood() {
        unsafe extern "C" fn record_object(
            info: *mut libc::dl_phdr_info,
            _: usize,
            seen: *mut c_void,
        ) -> c_int {
            // SAFETY: the loader and the test give both.
            let (seen, object) = unsafe { (&mut *seen.cast::<Vec<CallCounts>>(), LoadedObject::of(&*info)) };
            let Some(object) = object else { return 0 };
            let calls = object.codes.iter().filter_map(|code| object.calls_in(*code)).flatten();
            let found: Vec<_> = calls.map(|call| object.inspect_call(call)).collect();
            let left = found.iter().filter(|one| matches!(one, object::FoundCall::Left)).count();
            let sites = found.iter().filter(|one| matches!(one, object::FoundCall::Site(_))).count();
            seen.push((object.name().to_owned(), [found.len(), sites, left]));
            0
        }
        let mut seen: Vec<CallCounts> = Vec::new();
        // SAFETY: the function is called with the variable while it lives.
        unsafe { libc::dl_iterate_phdr(Some(record_object), (&raw mut seen).cast()) };
        for part in ["libc.so", "ld-linux"] {
            let (name, [calls, sites, left]) = seen.iter().find(|(name, _)| name.contains(part)).unwrap();
            // A few are at a place where a jump leads between the instructions before them.
            assert!(*calls > 20 && *sites > 2 && left * 20 < *calls, "{name}: {calls}, {sites}, {left}");
        }
    }
}
