//! Prints the records of a trace, and the differences between two runs.

use std::io::{Read, Write};

use pumice_device::findings::{Fields, json};
use pumice_device::trace::{Divergence, Item, Record, RunDifferences, Timeline, TraceHeader, TraceReader};
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

pub(super) fn run_diff(
    first: &Timeline,
    second: &Timeline,
    most: usize,
    as_json: bool,
    out: &mut dyn Write,
) -> CommandResult {
    let differences = RunDifferences::between(first, second);
    let written = if as_json {
        let object = Fields::of(&differences).with("are_alike", differences.are_alike());
        out.write_all(json::line(&object).as_bytes())
    } else {
        text(&differences, most, out)
    };
    written.map_err(CommandError::Output)?;
    Ok(if differences.are_alike() { Outcome::Good } else { Outcome::Bad })
}

fn text(differences: &RunDifferences, most: usize, out: &mut dyn Write) -> std::io::Result<()> {
    let RunDifferences { messages: [first, second], departures, more, parts, causes } = differences;
    writeln!(out, "{first} send requests in the first run, {second} in the second")?;
    if departures.is_empty() {
        writeln!(out, "No request departs.")?;
    }
    for (number, departure) in departures.iter().take(most).enumerate() {
        let mark = if number == 0 { "First departure: " } else { "" };
        writeln!(out, "{mark}{}", diff_line(departure))?;
    }
    let left = departures.len().saturating_sub(most) as u64 + more;
    if left > 0 {
        writeln!(out, "{left} more requests depart.")?;
    }
    writeln!(out, "\nTime of all requests, in us       first      second  difference")?;
    for (kind, [first, second]) in parts {
        let [a, b] = [first, second].map(|ns| *ns as f64 / 1e3);
        writeln!(out, "{a:>31.1} {b:>11.1} {:>+11.1}  {}", b - a, kind.words())?;
    }
    for (name, causes) in ["first", "second"].into_iter().zip(causes) {
        for cause in causes {
            writeln!(out, "\nIn the {name} run alone: {cause}.")?;
        }
    }
    Ok(())
}

fn diff_line(departure: &Divergence) -> String {
    let Divergence { at_ns, tag, qp, message, sentence, .. } = departure;
    format!(
        "request {message} of queue pair {qp} ({tag}), posted at {:.3} ms: {sentence}",
        *at_ns as f64 / 1e6
    )
}
