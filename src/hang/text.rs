//! Writes the waits as text.

use std::io::{self, Write};

use pumice_device::inspect::{InspectedObjects, ThreadActivityView, ThreadView};
use pumice_device::waits::{ProcessStatus, WaitGraph, until};

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
