//! Prints the records of a trace as text or JSON, to find a mistake in a trace or in this program.

use std::io::{Read, Write};

use pumice_device::trace::{Item, Record, TraceHeader, TraceReader};
use serde::Serialize;

use crate::outcome::{CommandError, CommandResult, Outcome};

pub(super) fn run(name: &str, source: impl Read, json: bool, out: &mut dyn Write) -> CommandResult {
    let mut reader = TraceReader::open(source)
        .map_err(|error| CommandError::Failed(format!("{name} cannot be read as a trace: {error}")))?;
    head(reader.header(), json, out)?;
    loop {
        match reader.next() {
            Ok(None) => return Ok(Outcome::Good),
            Ok(Some(Item::Record(at_ns, record))) => line(at_ns, &record, json, out)?,
            Ok(Some(Item::Section)) => head(reader.header(), json, out)?,
            Err(error) => return Err(CommandError::Failed(format!("{name}: {error}"))),
        }
    }
}

fn line(at_ns: u64, record: &Record<'_>, json: bool, out: &mut dyn Write) -> Result<(), CommandError> {
    #[derive(Serialize)]
    struct RecordLine<'a> {
        at_ns: u64,
        #[serde(flatten)]
        record: &'a Record<'a>,
    }
    if json {
        serde_json::to_writer(&mut *out, &RecordLine { at_ns, record })?;
        writeln!(out)?;
    } else {
        writeln!(out, "{at_ns:>14} ns  {record:?}")?;
    }
    Ok(())
}

fn head(header: &TraceHeader, json: bool, out: &mut dyn Write) -> Result<(), CommandError> {
    if json {
        serde_json::to_writer(&mut *out, header)?;
        writeln!(out)?;
        return Ok(());
    }
    let TraceHeader { process, program, tag, device, addresses, .. } = header;
    let addresses = addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    writeln!(out, "process {process} ({program}), tag {tag}, device {device} with {addresses}")?;
    let ended = if header.is_ended { "in order" } else { "suddenly, or not yet" };
    let TraceHeader { omitted_records, lost_records, monotonic_base_ns, wall_base_ns, .. } = header;
    writeln!(
        out,
        "ended {ended}; {omitted_records} records omitted, {lost_records} lost; time 0 is \
         {monotonic_base_ns} ns of the monotonic clock, {wall_base_ns} ns since 1970"
    )?;
    Ok(())
}
