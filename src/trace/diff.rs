//! Prints the differences between two runs, the first departure first.

use std::io::Write;

use pumice_device::findings::{Fields, json};
use pumice_device::trace::{Divergence, RunDifferences, Timeline};

use crate::outcome::{CommandError, CommandResult, Outcome};

pub(super) fn run(
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
        writeln!(out, "{mark}{}", line(departure))?;
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

fn line(departure: &Divergence) -> String {
    let Divergence { at_ns, tag, qp, message, sentence, .. } = departure;
    format!(
        "request {message} of queue pair {qp} ({tag}), posted at {:.3} ms: {sentence}",
        *at_ns as f64 / 1e6
    )
}
