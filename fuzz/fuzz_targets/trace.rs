//! Any bytes as a trace: nothing panics, refusals are one sentence, and what is read makes a timeline.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../bodies/trace.rs"]
mod trace;

fuzz_target!(|bytes: &[u8]| {
    let _ = trace::survive(bytes);
});
