//! Any bytes as a capture that stands in for a trace: nothing panics, refusals are one sentence, and what is
//! read makes a timeline and reasons.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code)]
#[path = "../bodies/captures.rs"]
mod capture;

fuzz_target!(|bytes: &[u8]| {
    let _ = capture::capture_timeline::survive(bytes);
});
