//! Any bytes as a capture file: nothing panics, and every packet that is found can be shown as text and as
//! JSON.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../bodies/capture.rs"]
mod capture;
#[allow(dead_code, reason = "the command line uses the rest of this file")]
#[path = "../../src/capture/decode.rs"]
mod decode;
#[allow(dead_code, reason = "the command line uses the rest of this file")]
#[path = "../../src/capture/file.rs"]
mod file;
#[path = "../../src/capture/management.rs"]
mod management;
#[allow(dead_code, reason = "the command line uses the rest of this file")]
#[path = "../../src/capture/multipath.rs"]
mod multipath;
#[allow(dead_code, reason = "the command line uses the rest of this file")]
#[path = "../../src/capture/record.rs"]
mod record;

fuzz_target!(|bytes: &[u8]| {
    let _ = capture::survive(bytes);
});
