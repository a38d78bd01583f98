//! Where `unsafe` may be, and that every block says why it is sound.

use super::assert_no;
use super::source::{code_lines, first_test_line, has_unsafe, safety_comment_above};
use super::tree::{read, sources};

/// Where `unsafe` may be, tests apart: the edges at which the device meets the kernel and application
/// memory, and the C ABI. A name that ends in `/` covers the folder.
const UNSAFE_ALLOWED: &[&str] = &[
    // Application memory.
    "device/objects/src/memory/",
    // A lock of our own: the standard library's costs two exchanges.
    "device/ground/src/brief_lock.rs",
    // System calls.
    "device/ground/src/outside/cancellation.rs",
    "device/ground/src/outside/data_watch/",
    "device/ground/src/outside/fault_guard/",
    "device/ground/src/outside/interface.rs",
    "device/ground/src/outside/interface_list.rs",
    "device/ground/src/outside/late_reads.rs",
    "device/ground/src/outside/lineage.rs",
    "device/ground/src/outside/system_call.rs",
    "device/ground/src/outside/thread.rs",
    "device/ground/src/outside/thread_name.rs",
    "device/ground/src/outside/clocks.rs",
    "device/ground/src/outside/unsignalled.rs",
    "device/ground/src/outside/wait.rs",
    "device/ground/src/outside/world_page.rs",
    "device/ports/src/",
    "device/share/src/datagram.rs",
    // Tests only: from deep in the code under test to the coroutine that runs it.
    "device/share/src/simulation/world.rs",
    "device/share/src/system/",
    // Registering memory that is not owned is the caller's promise; these hand it on.
    "device/engine/src/hca/memory.rs",
    "device/engine/src/hca/owned_memory.rs",
    "device/engine/src/resources/memory.rs",
    // Memory that the safe API owns.
    "verbs/src/ground/buffer.rs",
    "verbs/src/objects/memory.rs",
    // The C ABI.
    "verbs/capi/",
    // Tracing processes: the first one of a world, and calls that no crate offers.
    "verbs/world/src/supervised/clock_code.rs",
    "verbs/world/src/supervised/start.rs",
    "verbs/world/src/supervised/system.rs",
    // In the place of the C library's functions.
    "verbs/sysfs/",
    "verbs/rspreload/",
    "verbs/checkpreload/",
];

#[test]
fn unsafe_stays_at_the_edges() {
    let mut faults = Vec::new();
    for source in sources() {
        let path = source.to_string_lossy().into_owned();
        if UNSAFE_ALLOWED.iter().any(|edge| path == *edge || (edge.ends_with('/') && path.starts_with(edge)))
        {
            continue;
        }
        let text = read(&source);
        let tests_from = first_test_line(&source, &text);
        for (number, line) in code_lines(&text) {
            if number < tests_from && has_unsafe(&line) {
                faults.push(format!("{path}:{number}: {line}"));
            }
        }
    }
    assert_no(faults);
}

#[test]
fn every_unsafe_block_says_why_it_is_sound() {
    let mut faults = Vec::new();
    for source in sources() {
        let text = read(&source);
        let lines: Vec<&str> = text.lines().collect();
        for (number, line) in code_lines(&text) {
            let opens = line.contains("unsafe {") || line.contains("unsafe impl");
            if opens && !safety_comment_above(&lines, number) {
                faults.push(format!("{}:{number}: {line}", source.display()));
            }
        }
    }
    assert_no(faults);
}
