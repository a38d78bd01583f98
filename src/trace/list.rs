//! The records of a trace as text, for those who look for a mistake in a trace or in this program.

use std::io::{Read, Write};

use pumice_device::trace::{Item, TraceHeader, TraceReader};

use crate::outcome::{CommandError, CommandResult, Outcome};

pub(super) fn run(name: &str, source: impl Read, out: &mut dyn Write) -> CommandResult {
    let mut reader = TraceReader::open(source)
        .map_err(|error| CommandError::Failed(format!("{name} cannot be read as a trace: {error}")))?;
    head(reader.header(), out).map_err(CommandError::Output)?;
    loop {
        let text = match reader.next() {
            Ok(None) => return Ok(Outcome::Good),
            Ok(Some(Item::Record(at_ns, record))) => Some(format!("{at_ns:>14} ns  {record:?}")),
            Ok(Some(Item::Section)) => None,
            Err(error) => return Err(CommandError::Failed(format!("{name}: {error}"))),
        };
        let written = match text {
            Some(text) => writeln!(out, "{text}"),
            None => head(reader.header(), out),
        };
        written.map_err(CommandError::Output)?;
    }
}

fn head(header: &TraceHeader, out: &mut dyn Write) -> std::io::Result<()> {
    let TraceHeader { process, program, tag, device, addresses, .. } = header;
    let addresses = addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    writeln!(out, "process {process} ({program}), tag {tag}, device {device} with {addresses}")?;
    let ended = if header.is_ended { "in order" } else { "suddenly, or not yet" };
    let TraceHeader { omitted_records, lost_records, monotonic_base_ns, wall_base_ns, .. } = header;
    writeln!(
        out,
        "ended {ended}; {omitted_records} records omitted, {lost_records} lost; time 0 is \
         {monotonic_base_ns} ns of the monotonic clock, {wall_base_ns} ns since 1970"
    )
}
