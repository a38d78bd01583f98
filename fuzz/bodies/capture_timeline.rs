//! Any bytes as a capture that stands in for a trace: nothing panics, refusals are one sentence, and what is
//! read makes a timeline and reasons.

use pumice_device::trace::{MessageStories, Timeline, TimelineProcess};

use super::processes::processes;

/// How much of the input meant something.
pub(crate) fn survive(bytes: &[u8]) -> usize {
    let (half, _) = bytes.split_at(bytes.len() / 2);
    let name = |text: &str| format!("{text}\u{1b}.pcap");
    let alone = read(vec![(name("one"), bytes)]);
    // Two captures of the same packets, of which one was cut: what both have seen puts their clocks together.
    read(vec![(name("half"), half), (name("whole"), bytes)]);
    alone
}

/// Packets of the timeline of these captures.
fn read(captures: Vec<(String, &[u8])>) -> usize {
    let captured = match processes(captures) {
        Ok(captured) => captured,
        Err((_, why)) => {
            assert!(!why.is_empty() && !why.contains('\n'), "{why:?}");
            return 0;
        }
    };
    let no_traces: [(String, &[u8]); 0] = [];
    let timeline = Timeline::read_with(no_traces, captured).expect("there is no trace that could be wrong");
    for process in &timeline.processes {
        // What a capture is called goes to terminals.
        assert!(!process.header.tag.contains(char::is_control), "{:?}", process.header.tag);
    }
    let reasons = MessageStories::of(&timeline, 3);
    for story in reasons.slowest.iter().chain(&reasons.failed) {
        assert!(!story.to_string().contains(char::is_control), "{story}");
    }
    for arrow in &timeline.arrows {
        let [from, to] = [arrow.from, arrow.to].map(|index| {
            timeline.processes[index.process].queue_pairs[index.queue_pair].packets[index.packet].is_sent
        });
        assert!(from && !to, "{arrow:?}");
    }
    timeline.processes.iter().map(packets).sum()
}

fn packets(process: &TimelineProcess) -> usize {
    for qp in &process.queue_pairs {
        for packet in &qp.packets {
            assert!(packet.path.is_none_or(|path| (path as usize) < qp.paths.len()), "{packet:?}");
        }
    }
    process.queue_pairs.iter().map(|qp| qp.packets.len()).sum()
}
