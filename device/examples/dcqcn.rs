//! DCQCN's curves: runs the scenarios in virtual time, prints a table and draws pictures (SVG).
//!
//! `cargo run -p pumice-device --example dcqcn -- FOLDER` writes the pictures to a folder.
#![allow(clippy::print_stdout)]

#[path = "../tests/kit/mod.rs"]
mod kit;
#[path = "../tests/dcqcn/scenario.rs"]
mod scenario;

use std::fmt::Write as _;
use std::path::Path;

use scenario::{Outcome, Scenario};

const MS: u64 = 1_000_000;
/// Pictures, in points.
const WIDTH: u64 = 640;
const PLOT_HEIGHT: u64 = 180;
const MARGIN: u64 = 56;
const COLOURS: [&str; 8] =
    ["#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#7f7f7f"];

/// A run that is drawn.
struct Figure {
    file: &'static str,
    title: &'static str,
    scenario: Scenario,
    /// Shares are those from here on.
    settled_ns: u64,
}

fn figures() -> Vec<Figure> {
    let mut two = Scenario::paper(2, 40_000, 100 * MS);
    two.begins_ns[1] = 10 * MS;
    let incast = |senders| Scenario::paper(senders, 40_000, 200 * MS);
    let figure = |file, title, scenario: Scenario| {
        let scenario = Scenario { sample_ns: 500_000, ..scenario };
        Figure { file, title, settled_ns: scenario.duration_ns / 2, scenario }
    };
    vec![
        figure("dcqcn-two.svg", "two flows, the second begins at 10 ms", two),
        figure("dcqcn-incast-3.svg", "3:1 incast", incast(3)),
        figure("dcqcn-incast-8.svg", "8:1 incast", incast(8)),
        figure("dcqcn-incast-20.svg", "20:1 incast", incast(20)),
    ]
}

fn main() -> std::io::Result<()> {
    let folder = std::env::args().nth(1);
    println!(
        "scenario | total Gbit/s | least and most share | queue p90, most, kB | marks | CNPs | lost | digest"
    );
    for figure in figures() {
        let outcome = figure.scenario.run();
        print_row(&figure, &outcome);
        if let Some(folder) = &folder {
            std::fs::write(Path::new(folder).join(figure.file), draw(&figure, &outcome))?;
        }
    }
    Ok(())
}

fn print_row(figure: &Figure, outcome: &Outcome) {
    let shares = outcome.shares(figure.settled_ns);
    let mean = shares.iter().sum::<u64>() as f64 / shares.len() as f64;
    let of_mean = |share: Option<&u64>| *share.unwrap_or(&0) as f64 / mean;
    let late = outcome.samples.iter().filter(|sample| sample.at_ns > figure.settled_ns);
    let mut queue: Vec<u64> = late.map(|sample| sample.queue_bytes).collect();
    queue.sort_unstable();
    println!(
        "{} | {:.1} | {:.3} {:.3} | {:.1} {:.0} | {} | {} (by rule {}), {} handled | {} | {:016x}",
        figure.title,
        mean * shares.len() as f64 / 1e3,
        of_mean(shares.iter().min()),
        of_mean(shares.iter().max()),
        queue[queue.len() * 9 / 10] as f64 / 1e3,
        outcome.most_queue_bytes as f64 / 1e3,
        outcome.marks_counted,
        outcome.cnps_sent,
        outcome.cnps_by_rule(50_000),
        outcome.cnps_handled,
        outcome.stats.queue_drops + outcome.sent_again,
        outcome.digest,
    );
}

/// Rates above, the queue below, over time.
fn draw(figure: &Figure, outcome: &Outcome) -> String {
    let height = 2 * PLOT_HEIGHT + 3 * MARGIN;
    let full_ns = figure.scenario.duration_ns;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{MARGIN}\" y=\"24\" font-size=\"14\">{}</text>\n",
        WIDTH + 2 * MARGIN,
        figure.title
    );
    let senders = outcome.samples.first().map_or(0, |sample| sample.mbps.len());
    let most_mbps = u64::from(figure.scenario.link.rate_mbps);
    axes(&mut svg, MARGIN, ("Gbit/s", most_mbps / 1_000), full_ns);
    for sender in 0..senders {
        let values = outcome.samples.iter().map(|sample| (sample.at_ns, sample.mbps[sender]));
        line(&mut svg, MARGIN, (full_ns, most_mbps), COLOURS[sender % COLOURS.len()], values);
    }
    let most_bytes =
        outcome.samples.iter().map(|sample| sample.queue_bytes).max().unwrap_or(0).next_multiple_of(100_000);
    let top = 2 * MARGIN + PLOT_HEIGHT;
    axes(&mut svg, top, ("queue, kB", most_bytes / 1_000), full_ns);
    let values = outcome.samples.iter().map(|sample| (sample.at_ns, sample.queue_bytes));
    line(&mut svg, top, (full_ns, most_bytes), "#333333", values);
    svg.push_str("</svg>\n");
    svg
}

fn axes(svg: &mut String, top: u64, (label, most): (&str, u64), full_ns: u64) {
    let bottom = top + PLOT_HEIGHT;
    let right = MARGIN + WIDTH;
    let _ = writeln!(
        svg,
        "<path d=\"M{MARGIN} {top}V{bottom}H{right}\" fill=\"none\" stroke=\"black\"/>\n\
         <text x=\"{}\" y=\"{}\" text-anchor=\"end\">{most}</text>\n\
         <text x=\"{}\" y=\"{bottom}\" text-anchor=\"end\">0</text>\n\
         <text x=\"{}\" y=\"{}\">{label}</text>\n\
         <text x=\"{right}\" y=\"{}\" text-anchor=\"end\">{} ms</text>",
        MARGIN - 6,
        top + 10,
        MARGIN - 6,
        MARGIN + 6,
        top + 10,
        bottom + 16,
        full_ns / MS
    );
}

fn line(
    svg: &mut String,
    top: u64,
    (full_ns, most): (u64, u64),
    colour: &str,
    values: impl Iterator<Item = (u64, u64)>,
) {
    let points: Vec<String> = values
        .step_by(2)
        .map(|(at_ns, value)| {
            let x = MARGIN as f64 + WIDTH as f64 * at_ns as f64 / full_ns as f64;
            let share = value as f64 / most.max(1) as f64;
            format!("{x:.0},{:.0}", top as f64 + PLOT_HEIGHT as f64 * (1.0 - share.min(1.05)))
        })
        .collect();
    let _ = writeln!(svg, "<polyline fill=\"none\" stroke=\"{colour}\" points=\"{}\"/>", points.join(" "));
}
