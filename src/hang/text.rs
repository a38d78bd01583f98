//! The waits as text.

use std::io::{self, Write};

use pumice_device::inspect::{Collected, DoingView, ThreadView};
use pumice_device::waits::{Graph, Standing, until};

use crate::observe::plain;

/// Writes the verdicts, and all processes with their threads and waits.
pub(super) fn write(processes: &[Standing], graph: &Graph, out: &mut dyn Write) -> io::Result<()> {
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

fn write_process(index: usize, one: &Standing, graph: &Graph, out: &mut dyn Write) -> io::Result<()> {
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

fn write_threads(objects: &Collected, out: &mut dyn Write) -> io::Result<()> {
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

/// What a thread does, in words.
fn doing(thread: &ThreadView, objects: &Collected) -> String {
    let queues = |cqs: &[u32]| {
        let about = cqs.iter().map(|number| {
            let cq = objects.cqs.iter().find(|cq| cq.number == *number);
            let filled = cq.map(|cq| format!(" ({} completions wait)", cq.filled)).unwrap_or_default();
            format!("completion queue {number}{filled}")
        });
        about.collect::<Vec<_>>().join(", ")
    };
    let does = match &thread.doing {
        DoingView::Polls { cqs } => format!("polls {}", queues(cqs)),
        DoingView::SleepsOn { cqs } => format!("sleeps until there is an event of {}", queues(cqs)),
        DoingView::SleepsForConnections { .. } => "sleeps until something happens to a connection".to_owned(),
        DoingView::SleepsForDevice => {
            "sleeps until something happens to the device (ibv_get_async_event)".to_owned()
        }
        DoingView::Acknowledges { call, .. } => format!("waits in {} for acknowledgements", plain(call)),
        DoingView::Calls { call, awaits } => format!("is in {}{}", plain(call), until(*awaits)),
        DoingView::Runs => "computes".to_owned(),
    };
    match &thread.also {
        Some(call) => format!("{does}, and calls {}", plain(call)),
        None => does,
    }
}
