//! Traces that are written, and read again.

use std::io::Read;
use std::time::Duration;

use crate::format::{Item, ReadError, Record, TraceHeader, TraceReader};

use super::*;

fn header() -> TraceHeader {
    TraceHeader { monotonic_base_ns: 1 << 40, limit_bytes: 1 << 20, ..TraceHeader::default() }
}

/// Everything in a trace, as text, and how it ended.
fn read_all(source: impl Read) -> (Vec<String>, Option<ReadError>) {
    let mut lines = Vec::new();
    let mut reader = match TraceReader::open(source) {
        Ok(reader) => reader,
        Err(error) => return (lines, Some(error)),
    };
    loop {
        match reader.next() {
            Ok(Some(Item::Record(at_ns, record))) => lines.push(format!("{at_ns} {record:?}")),
            Ok(Some(Item::Section)) => lines.push("section".to_owned()),
            Ok(None) => return (lines, None),
            Err(error) => return (lines, Some(error)),
        }
    }
}

fn lines(records: &[(u64, Record<'_>)]) -> Vec<String> {
    records.iter().map(|(at_ns, record)| format!("{at_ns} {record:?}")).collect()
}

fn scratch(name: &str) -> std::path::PathBuf {
    let folder = std::env::temp_dir().join(format!("pumice-trace-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Of a simulation, in which no record says that the process lives.
fn virtual_header() -> TraceHeader {
    TraceHeader { monotonic_base_ns: 0, ..header() }
}

#[test]
fn a_trace_says_until_when_its_process_lived() {
    let folder = scratch("lived");
    let path = folder.join("a.trace");
    let now = TraceHeader { monotonic_base_ns: pumice_platform::outside::time::monotonic_ns(), ..header() };
    let queue = TraceQueue::start(create_private(&path).unwrap(), now, Box::new(|_| {})).unwrap();
    queue.put(1, &Record::QpDestroyed { qp: 1 });
    queue.finish();
    let (read, error) = read_all(std::fs::File::open(&path).unwrap());
    assert!(error.is_none(), "{error:?}");
    assert!(read[0] == "1 QpDestroyed { qp: 1 }" && read[read.len() - 1].ends_with("Alive"), "{read:?}");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn what_is_put_into_the_queue_is_in_the_file_and_a_second_device_is_a_section() {
    let folder = scratch("queue");
    let path = folder.join("a.trace");
    let records = [
        (10, Record::CnpSent { qp: 1 }),
        (20, Record::CnpSent { qp: 2 }),
        (30, Record::QpDestroyed { qp: 1 }),
    ];
    for _ in 0..2 {
        let file = create_private(&path).unwrap();
        let queue = TraceQueue::start(file, virtual_header(), Box::new(|_| {})).unwrap();
        for (at_ns, record) in &records {
            queue.put(*at_ns, record);
        }
        queue.settle(Duration::from_secs(60));
        queue.finish();
    }
    let (read, error) = read_all(std::fs::File::open(&path).unwrap());
    assert!(error.is_none(), "{error:?}");
    assert_eq!(read, [lines(&records), vec!["section".to_owned()], lines(&records)].concat());
    let reader = TraceReader::open(std::fs::File::open(&path).unwrap()).unwrap();
    assert!(reader.header().is_ended);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn beyond_the_limit_records_are_counted_and_a_sentence_says_so() {
    use std::sync::{Arc, Mutex};
    let folder = scratch("limit");
    let path = folder.join("a.trace");
    let reported: Arc<Mutex<Vec<String>>> = Arc::default();
    let hook = Arc::clone(&reported);
    let say = Box::new(move |text: &str| hook.lock().unwrap().push(text.to_owned()));
    let small = TraceHeader { limit_bytes: 1 << 16, ..virtual_header() };
    let queue = TraceQueue::start(create_private(&path).unwrap(), small, say).unwrap();
    for k in 0..40_000 {
        queue.put(
            k,
            &Record::Completed { qp: 1, cq: 1, wr_id: k, status: 0, opcode: 0, bytes: 8, released: 1 },
        );
    }
    queue.finish();
    let (read, error) = read_all(std::fs::File::open(&path).unwrap());
    assert!(error.is_none());
    assert!(std::fs::metadata(&path).unwrap().len() <= 1 << 16);
    let reader = TraceReader::open(std::fs::File::open(&path).unwrap()).unwrap();
    assert_eq!(reader.header().omitted_records, 40_000 - read.len() as u64);
    let reported = reported.lock().unwrap();
    assert!(reported.len() == 1 && reported[0].contains("were left out"), "{reported:?}");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn the_file_is_private_and_no_link_is_followed() {
    use std::os::unix::fs::{MetadataExt as _, symlink};
    let folder = scratch("private");
    let path = folder.join("a.trace");
    std::fs::write(&path, "old").unwrap();
    create_private(&path).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
    symlink(&path, folder.join("link")).unwrap();
    assert!(create_private(&folder.join("link")).unwrap_err().to_string().contains("symbolic link"));
    assert!(create_private(std::path::Path::new("/dev/null")).unwrap_err().to_string().contains("regular"));
    std::fs::remove_dir_all(&folder).unwrap();
}
