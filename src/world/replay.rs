//! `pumice world replay`: runs a recorded run again, and compares it event by event.

use std::time::Duration;

use pumice_world::{Recording, WorldError};

use super::options::ReplayWorldOptions;
use super::outcome::{failed, finish};
use crate::observe::Interrupt;
use crate::outcome::{CommandError, CommandResult, Outcome, complain};
use crate::run::make_links_of_build;

/// Runs the command.
pub(super) fn run(options: &ReplayWorldOptions) -> CommandResult {
    let mut recording = Recording::open(&options.file).map_err(CommandError::Usage)?;
    let header = &recording.header;
    let other = header.other_variables();
    if !other.is_empty() {
        complain(&format!("the environment is not that of the recording: {}", other.join(", ")));
    }
    if let Some(user) = header.other_user() {
        complain(&format!("the user is not that of the recording, who has the number {user}"));
    }
    let file = std::path::absolute(&options.file)
        .map_err(|error| CommandError::Failed(format!("the current folder cannot be told: {error}")))?;
    std::env::set_current_dir(header.folder()).map_err(|error| {
        CommandError::Failed(format!(
            "{}, in which the run was recorded, cannot be entered: {error}",
            header.folder().display()
        ))
    })?;
    let mut world = header.options();
    world.expected = Some(file);
    if let Some(stop_at) = &options.stop_at {
        world.stop_at = Some(stop_at.event(&mut recording).map_err(CommandError::Usage)?);
    }
    make_links_of_build();
    match pumice_world::run(&world) {
        Err(stopped @ WorldError::Stopped(_)) => {
            complain(&stopped);
            wait_for_end()
        }
        Err(error) => Err(failed(&error)),
        Ok(ended) => {
            if let Some(event) = world.stop_at {
                let sentence = format!("--stop-at {event}: the run has {} events", ended.events);
                return Err(CommandError::Usage(sentence));
            }
            complain(&"the run is that of the recording, event by event");
            finish(Ok(ended), false)
        }
    }
}

/// Says that the stopped run waits for ^C, and waits for it.
fn wait_for_end() -> CommandResult {
    // Handlers come before the sentence: a reader may send the signal at once.
    let interrupt = Interrupt::new()?;
    complain(&"end this with ^C: then the processes end");
    while !interrupt.wait(Duration::from_secs(3600))? {}
    Ok(Outcome::Good)
}
