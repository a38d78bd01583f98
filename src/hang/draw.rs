//! Shows the waits, as text and as a picture.

use std::f64::consts::TAU;
use std::fmt::Write as _;
use std::io::{self, Write};

use pumice_device::inspect::{InspectedObjects, ThreadActivityView, ThreadView};
use pumice_device::waits::{ProcessStatus, WaitGraph, WaitReason, until};

use crate::observe::plain;

/// Writes the verdicts, and all processes with their threads and waits.
pub(super) fn write(processes: &[ProcessStatus], graph: &WaitGraph, out: &mut dyn Write) -> io::Result<()> {
    if processes.is_empty() {
        return writeln!(out, "no process of this user has a device open");
    }
    if graph.verdicts.is_empty() {
        writeln!(out, "nothing waits in vain, as far as can be seen")?;
    }
    for verdict in &graph.verdicts {
        let certain = if verdict.is_certain { "" } else { " (as far as can be seen from here)" };
        writeln!(out, "hang: {}{certain}", plain(&verdict.sentence))?;
    }
    for (index, process) in processes.iter().enumerate() {
        writeln!(out)?;
        write_process(index, process, graph, out)?;
    }
    Ok(())
}

fn write_process(
    index: usize,
    one: &ProcessStatus,
    graph: &WaitGraph,
    out: &mut dyn Write,
) -> io::Result<()> {
    let address = one.address.map(|address| format!("  {address}")).unwrap_or_default();
    let host = if one.host.is_empty() { String::new() } else { format!("  on {}", plain(&one.host)) };
    let stopped = if one.is_stopped { "  stopped" } else { "" };
    writeln!(out, "process {} ({}){address}{host}{stopped}", one.pid, plain(&one.program))?;
    match &one.objects {
        None => writeln!(out, "  it did not answer")?,
        Some(objects) => write_threads(objects, out)?,
    }
    let waits = graph.waits.iter().filter(|wait| wait.from == index);
    for wait in waits {
        writeln!(out, "  {}", plain(&wait.words))?;
    }
    Ok(())
}

fn write_threads(objects: &InspectedObjects, out: &mut dyn Write) -> io::Result<()> {
    let Some(view) = &objects.waits else {
        return writeln!(
            out,
            "  its threads are not known: it uses no libpumice.so, or was started with --hang-after 0"
        );
    };
    for thread in &view.threads {
        writeln!(out, "  thread {} {}  {}", thread.thread, plain(&thread.name), doing(thread, objects))?;
        for frame in &thread.stack {
            writeln!(out, "      {}", plain(frame))?;
        }
    }
    if view.threads_left_out > 0 {
        writeln!(out, "  {} more threads", view.threads_left_out)?;
    }
    Ok(())
}

/// Describes what a thread does.
fn doing(thread: &ThreadView, objects: &InspectedObjects) -> String {
    let queues = |cqs: &[u32]| {
        let about = cqs.iter().map(|number| {
            let cq = objects.cqs.iter().find(|cq| cq.number == *number);
            let filled = cq.map(|cq| format!(" ({} completions wait)", cq.filled)).unwrap_or_default();
            format!("{}{filled}", objects.cq_name(*number))
        });
        about.collect::<Vec<_>>().join(", ")
    };
    let does = match &thread.doing {
        ThreadActivityView::Polls { cqs } => format!("polls {}", queues(cqs)),
        ThreadActivityView::SleepsOn { cqs } => format!("sleeps until there is an event of {}", queues(cqs)),
        ThreadActivityView::SleepsForConnections { .. } => {
            "sleeps until something happens to a connection".to_owned()
        }
        ThreadActivityView::SleepsForDevice => {
            "sleeps until something happens to the device (ibv_get_async_event)".to_owned()
        }
        ThreadActivityView::Acknowledges { call, .. } => {
            format!("waits in {} for acknowledgements", plain(call))
        }
        ThreadActivityView::Calls { call, awaits } => format!("is in {}{}", plain(call), until(*awaits)),
        ThreadActivityView::Runs => "computes".to_owned(),
    };
    match &thread.also {
        Some(call) => format!("{does}, and calls {}", plain(call)),
        None => does,
    }
}

/// Width of the picture, in which the processes are arranged on a circle.
const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 560.0;
/// Half of the width and of the height of a box.
const BOX: (f64, f64) = (95.0, 24.0);
const RED: &str = "#b3261e";
const GREY: &str = "#5f6368";

/// Draws the waits for graphviz.
pub(super) fn dot(processes: &[ProcessStatus], graph: &WaitGraph) -> String {
    let mut out = String::from("digraph hang {\n  node [shape=box fontname=\"sans-serif\"];\n");
    for (index, one) in processes.iter().enumerate() {
        let colour = if is_held(graph, index) { format!(" color=\"{RED}\"") } else { String::new() };
        let _ = writeln!(out, "  p{index} [label={}{colour}];", quoted(&name(one)));
    }
    for (index, wait) in graph.waits.iter().enumerate() {
        let (from, label) = (wait.from, quoted(label(wait.why)));
        let to = wait.to.map_or_else(|| format!("w{index}"), |to| format!("p{to}"));
        if wait.to.is_none() {
            let _ = writeln!(out, "  w{index} [shape=plaintext label={}];", quoted(&wait.words));
        }
        let _ = writeln!(out, "  p{from} -> {to} [label={label}];");
    }
    for verdict in &graph.verdicts {
        let _ = writeln!(out, "  label={};", quoted(&verdict.sentence));
    }
    out.push_str("}\n");
    out
}

/// Draws the waits as SVG: the processes on a circle, and an arrow from each that waits.
pub(super) fn svg(processes: &[ProcessStatus], graph: &WaitGraph) -> String {
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n<defs><marker id=\"end\" viewBox=\"0 0 8 8\" \
         refX=\"7\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" orient=\"auto\">\
         <path d=\"M0 0L8 4L0 8z\" fill=\"{GREY}\"/></marker></defs>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let count = processes.len().max(1) as f64;
    let position_of = |index: usize| {
        let angle = TAU * index as f64 / count - TAU / 4.0;
        (WIDTH / 2.0 + 300.0 * angle.cos(), 230.0 + 160.0 * angle.sin())
    };
    for (index, wait) in graph.waits.iter().enumerate() {
        let from = position_of(wait.from);
        let to = wait.to.map_or((from.0, from.1 + 70.0), position_of);
        arrow(&mut out, from, to, index, label(wait.why));
    }
    for (index, one) in processes.iter().enumerate() {
        let (x, y) = position_of(index);
        let colour = if is_held(graph, index) { RED } else { GREY };
        let (left, top, width, height) = (x - BOX.0, y - BOX.1, 2.0 * BOX.0, 2.0 * BOX.1);
        let _ = writeln!(
            out,
            "<rect x=\"{left:.0}\" y=\"{top:.0}\" width=\"{width}\" height=\"{height}\" rx=\"6\" \
             fill=\"#f8f9fa\" stroke=\"{colour}\" stroke-width=\"2\"/>\n\
             <text x=\"{x:.0}\" y=\"{:.0}\" text-anchor=\"middle\">{}</text>",
            y + 4.0,
            escaped(&name(one))
        );
    }
    for (index, verdict) in graph.verdicts.iter().enumerate().take(3) {
        for (row, line) in wrapped(&verdict.sentence, 120).iter().enumerate() {
            let y = 440.0 + 45.0 * index as f64 + 16.0 * row as f64;
            let _ = writeln!(out, "<text x=\"20\" y=\"{y:.0}\" fill=\"{RED}\">{}</text>", escaped(line));
        }
    }
    out.push_str("</svg>\n");
    out
}

/// Draws an arrow between boxes. Arrows of one pair are drawn side by side.
fn arrow(out: &mut String, from: (f64, f64), to: (f64, f64), index: usize, label: &str) {
    let (dx, dy) = (to.0 - from.0, to.1 - from.1);
    let length = dx.hypot(dy).max(1.0);
    let (ux, uy) = (dx / length, dy / length);
    let aside = 14.0 + 5.0 * (index % 3) as f64;
    let (ox, oy) = (-uy * aside, ux * aside);
    // The arrow reaches to the edge of the box.
    let reach = (BOX.0 / ux.abs().max(1e-6)).min(BOX.1 / uy.abs().max(1e-6)).min(length / 2.0);
    let (x1, y1) = (from.0 + ox + ux * reach, from.1 + oy + uy * reach);
    let (x2, y2) = (to.0 + ox - ux * reach, to.1 + oy - uy * reach);
    let _ = writeln!(
        out,
        "<line x1=\"{x1:.0}\" y1=\"{y1:.0}\" x2=\"{x2:.0}\" y2=\"{y2:.0}\" stroke=\"{GREY}\" \
         marker-end=\"url(#end)\"/>\n<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"middle\" fill=\"{GREY}\" \
         font-size=\"11\">{}</text>",
        (x1 + x2) / 2.0 + ox,
        (y1 + y2) / 2.0 + oy,
        escaped(label)
    );
}

fn is_held(graph: &WaitGraph, process: usize) -> bool {
    graph.verdicts.iter().any(|verdict| verdict.processes.contains(&process))
}

fn name(one: &ProcessStatus) -> String {
    let host = if one.host.is_empty() { String::new() } else { format!(" on {}", one.host) };
    format!("{} ({}){host}", one.pid, one.program)
}

/// Returns a label for a wait.
const fn label(why: WaitReason) -> &'static str {
    match why {
        WaitReason::Told => "waits in vain",
        WaitReason::NobodyListens => "asks where no program listens",
        WaitReason::Unread => "asks; the event is not read",
        WaitReason::Stopped => "waits; it is stopped",
        WaitReason::Ended => "waits; it has ended",
        WaitReason::Destroyed => "waits; its queue pair is destroyed",
        WaitReason::NotReady => "sends; not in RTR",
        WaitReason::Failed => "waits; its queue pair has failed",
        WaitReason::Nothing => "waits for nothing",
        WaitReason::Halted => "waits; its own queue is halted",
        WaitReason::Unacknowledged => "waits; events are not acknowledged",
        WaitReason::WrongNumber => "waits; dest_qp_num is wrong",
        WaitReason::Lost => "waits for a datagram; it was lost",
        WaitReason::NoReceive => "sends; no receive is posted",
        WaitReason::Answer => "asks for a connection",
        WaitReason::Message => "waits for a message",
        WaitReason::Acknowledgement => "waits for an acknowledgement",
    }
}

/// Escapes text for XML.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            c if c.is_control() => out.push('?'),
            c => out.push(c),
        }
    }
    out
}

/// Quotes text.
fn quoted(text: &str) -> String {
    let plain: String = text.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    format!("\"{}\"", plain.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Wraps text into lines of at most `width` characters, broken between words.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
