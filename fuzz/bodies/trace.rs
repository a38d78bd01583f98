//! Any bytes as a trace: nothing panics, refusals are one sentence, and what is read makes a timeline.

use pumice_device::trace::{Item, MessageStories, Timeline, TraceReader};

/// How much of the input meant something.
pub(crate) fn survive(bytes: &[u8]) -> usize {
    let Ok(mut reader) = TraceReader::open(bytes) else { return 0 };
    let mut records = 0;
    loop {
        match reader.next() {
            Ok(Some(Item::Record(_, record))) => {
                assert!(!record.name().is_empty());
                records += 1;
            }
            Ok(Some(_)) => {}
            Ok(None) => break,
            Err(error) => {
                let sentence = error.to_string();
                assert!(!sentence.is_empty() && !sentence.contains('\n'), "{sentence:?}");
                break;
            }
        }
    }
    // Each record takes two bytes at least.
    assert!(records <= bytes.len() / 2, "{records} of {} bytes", bytes.len());
    let halves = bytes.split_at(bytes.len() / 2);
    let one = [("one".to_owned(), bytes), ("other".to_owned(), bytes)];
    if let Ok(timeline) = Timeline::read(one) {
        let reasons = MessageStories::of(&timeline, 3);
        for story in reasons.slowest.iter().chain(&reasons.failed) {
            // What a trace says goes to terminals.
            assert!(!story.to_string().contains(char::is_control), "{story}");
        }
    }
    let _ = Timeline::read([("half".to_owned(), halves.0)]);
    records
}
