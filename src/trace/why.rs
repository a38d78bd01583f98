//! Where the time of slow and failed messages went, a paragraph each.

use std::io::{self, Write};

use pumice_device::trace::{Reasons, Timeline};

use crate::outcome::{CommandError, CommandResult, Outcome};

pub(super) fn run(timeline: &Timeline, slowest: usize, json: bool, out: &mut dyn Write) -> CommandResult {
    let reasons = Reasons::of(timeline, slowest);
    let written = if json {
        serde_json::to_writer(&mut *out, &reasons).map_err(io::Error::from).and_then(|()| writeln!(out))
    } else {
        text(&reasons, out)
    };
    written.map_err(CommandError::Output)?;
    Ok(Outcome::Good)
}

fn text(reasons: &Reasons, out: &mut dyn Write) -> io::Result<()> {
    let Reasons { failed, more_failed, flushed, unfinished, slowest, messages } = reasons;
    let failures = failed.len() as u64 + more_failed;
    writeln!(
        out,
        "{messages} send requests: {failures} failed, {flushed} were flushed after a failure, \
         {unfinished} had not ended"
    )?;
    for story in failed {
        writeln!(out, "\nFAILED  {story}")?;
    }
    if *more_failed > 0 {
        writeln!(out, "\n{more_failed} more failed.")?;
    }
    for (number, story) in slowest.iter().enumerate() {
        writeln!(out, "\n{:>6}  {story}", number + 1)?;
    }
    Ok(())
}
