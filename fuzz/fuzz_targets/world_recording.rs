//! Any bytes as the recording of a world: nothing panics, refusals are one sentence, and what is read can be
//! printed.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../bodies/world_recording.rs"]
mod world_recording;

fuzz_target!(|bytes: &[u8]| {
    let _ = world_recording::survive(bytes);
});
