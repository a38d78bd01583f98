//! What the command line reads captures with: private there.

#[path = "../../src/capture/decode.rs"]
pub(crate) mod decode;
#[path = "../../src/capture/file.rs"]
pub(crate) mod file;
#[path = "../../src/capture/management.rs"]
mod management;
#[path = "../../src/capture/messages.rs"]
mod messages;
#[allow(dead_code, reason = "the command line uses the rest of this file")]
#[path = "../../src/capture/multipath.rs"]
mod multipath;
#[path = "../../src/capture/processes.rs"]
mod processes;
#[path = "../../src/capture/record.rs"]
pub(crate) mod record;
#[allow(dead_code, reason = "the command line uses the rest of this file")]
#[path = "../../src/capture/plan/sides.rs"]
mod sides;

#[path = "capture_timeline.rs"]
pub(crate) mod capture_timeline;

/// Of the plan, only what reads packets.
mod plan {
    pub(super) use super::sides::{Sighting, all_sightings};
}
