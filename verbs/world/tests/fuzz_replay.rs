//! The corpus of the fuzz target `world_recording`, and mutants of it.

use std::path::Path;

#[path = "../../../fuzz/replay.rs"]
mod replay;
#[path = "../../../fuzz/bodies/world_recording.rs"]
mod world_recording;

#[test]
fn what_replay_is_given_as_a_recording() {
    let fuzz = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz"));
    replay::replay(fuzz, "world_recording", 20_000, world_recording::survive);
}
