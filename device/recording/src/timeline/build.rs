//! Builds a timeline from traces.

use std::collections::HashSet;
use std::io::Read;
use std::net::IpAddr;

use super::evidence::TimelineBudget;
use super::process::ProcessBuilder;
use super::{Timeline, TimelineProcess, clock, hosts};
use crate::format::{Item, ReadError, TraceReader};

impl Timeline {
    /// Builds the timeline of several traces. The name of a trace is used in sentences.
    ///
    /// Of a trace that is damaged or ends in the middle of a record, all records before are used, and a
    /// remark says where it ends.
    ///
    /// # Errors
    /// The header of a trace cannot be read: the name of the trace, and the reason.
    pub fn read<R: Read>(
        traces: impl IntoIterator<Item = (String, R)>,
    ) -> Result<Timeline, (String, ReadError)> {
        Timeline::read_with(traces, Vec::new())
    }

    /// Builds the timeline of traces and of processes that are known from another source. The times of these
    /// processes are ns since the bases in their headers, and another boot id means another clock. A process
    /// with an address that a trace has is left out, because the trace has more detail.
    ///
    /// # Errors
    /// The same as for [`Timeline::read`].
    pub fn read_with<R: Read>(
        traces: impl IntoIterator<Item = (String, R)>,
        others: Vec<TimelineProcess>,
    ) -> Result<Timeline, (String, ReadError)> {
        let (mut timeline, mut budget) = (Timeline::default(), TimelineBudget::default());
        for (name, source) in traces {
            let reader = TraceReader::open(source).map_err(|error| (name.clone(), error))?;
            timeline.take(&name, reader, &mut budget);
        }
        if budget.left_out > 0 {
            timeline.remarks.push(format!(
                "{} records are not shown: there are more than fit in memory; record less with --trace-limit",
                budget.left_out
            ));
        }
        let traced: HashSet<IpAddr> =
            timeline.processes.iter().flat_map(|process| &process.header.addresses).copied().collect();
        let is_traced =
            |process: &TimelineProcess| process.header.addresses.iter().any(|one| traced.contains(one));
        timeline.processes.extend(others.into_iter().filter(|other| !is_traced(other)));
        clock::align(&mut timeline);
        hosts::draw(&mut timeline);
        clock::check(&mut timeline);
        Ok(timeline)
    }

    /// Adds the records of a trace.
    fn take<R: Read>(&mut self, name: &str, mut reader: TraceReader<R>, budget: &mut TimelineBudget) {
        let mut builder = ProcessBuilder::new(reader.header().clone());
        loop {
            match reader.next() {
                Ok(Some(Item::Record(at_ns, record))) => builder.take(at_ns, &record, budget),
                Ok(Some(Item::Section)) => {
                    let next = ProcessBuilder::new(reader.header().clone());
                    let whole = std::mem::replace(&mut builder, next);
                    self.end(name, whole);
                }
                Ok(None) => break,
                Err(error) => {
                    self.remarks.push(format!("{name}: {error}; everything before is shown"));
                    break;
                }
            }
        }
        if reader.unknown_records() > 0 {
            let count = reader.unknown_records();
            self.remarks
                .push(format!("{name}: {count} records are of kinds that this program does not know"));
        }
        self.end(name, builder);
    }

    fn end(&mut self, name: &str, builder: ProcessBuilder) {
        let process = builder.finish();
        let header = &process.header;
        if header.omitted_records > 0 {
            self.remarks.push(format!(
                "{name}: {} records are missing at the end, because the trace reached its limit of {} MiB",
                header.omitted_records,
                header.limit_bytes >> 20
            ));
        }
        if process.began_ns.is_some() {
            let unseen = process.queue_pairs.iter().fold(0, |sum: u64, qp| sum.saturating_add(qp.unseen));
            let open = match unseen {
                0 => String::new(),
                some => format!("; {some} requests of before have not ended in it"),
            };
            self.remarks
                .push(format!("{name}: it begins while the program runs, and has nothing of before{open}"));
        }
        if header.lost_records > 0 {
            self.remarks.push(format!(
                "{name}: {} records were lost, because they came faster than they could be written",
                header.lost_records
            ));
        }
        self.processes.push(process);
    }
}
