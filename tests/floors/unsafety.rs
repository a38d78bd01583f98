//! Where `unsafe` may be, and that every block says why it is sound.

use super::assert_no;
use super::source::{code_lines, first_test_line, has_unsafe, safety_comment_above};
use super::tree::{read, sources};

/// Where `unsafe` may be, tests apart: the edges at which the device meets the kernel and application
/// memory, and the C ABI. A name that ends in `/` covers the folder.
const UNSAFE_ALLOWED: &[&str] = &[
    // Application memory.
    "device/memory/src/",
    // A lock of our own: the standard library's costs two exchanges.
    "device/platform/src/spin_lock.rs",
    // System calls.
    "device/platform/src/outside/system_call.rs",
    "device/platform/src/outside/data_watch/",
    "device/platform/src/outside/fault_guard/",
    "device/platform/src/outside/interface.rs",
    "device/platform/src/outside/interface.rs",
    "device/platform/src/outside/late_reads.rs",
    "device/platform/src/outside/process.rs",
    "device/platform/src/outside/fork_generation.rs",
    "device/platform/src/outside/process.rs",
    "device/platform/src/outside/system_call.rs",
    "device/platform/src/outside/thread.rs",
    "device/platform/src/outside/thread.rs",
    "device/platform/src/outside/process.rs",
    "device/platform/src/outside/system_call.rs",
    "device/platform/src/outside/system_call.rs",
    "device/platform/src/outside/world_page.rs",
    "device/fabric/src/udp/",
    "device/platform/src/packet_socket/",
    "device/platform/src/udp/",
    "device/fabric/src/system/datagram.rs",
    // Tests only: from deep in the code under test to the coroutine that runs it.
    "device/fabric/src/simulation/world.rs",
    "device/fabric/src/system/",
    // Registering memory that is not owned is the caller's promise; these hand it on.
    "device/engine/src/hca/memory.rs",
    "device/engine/src/hca/owned_memory.rs",
    "device/engine/src/resources/memory.rs",
    // Memory that the safe API owns.
    "verbs/src/buffers/buffer.rs",
    "verbs/src/objects/memory.rs",
    // The C ABI.
    "verbs/capi/",
    // Tracing processes: the first one of a world, and calls that no crate offers.
    "verbs/world/src/supervised/clock_code.rs",
    "verbs/world/src/supervised/start.rs",
    "verbs/world/src/supervised/tracee.rs",
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
