//! Tests of writing records and reading them again.

use std::io::{Cursor, Read};
use std::net::IpAddr;

use proptest::prelude::*;

use super::*;

fn header() -> TraceHeader {
    TraceHeader {
        process: 4711,
        monotonic_base_ns: 1 << 40,
        wall_base_ns: 1 << 60,
        limit_bytes: 1 << 20,
        boot: "a boot".to_owned(),
        program: "prog".to_owned(),
        tag: "client".to_owned(),
        device: "pumice0".to_owned(),
        addresses: vec![IpAddr::from([127, 0, 0, 1]), IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1])],
        ..TraceHeader::default()
    }
}

fn packet(psn: u32) -> Record<'static> {
    Record::PacketSent {
        qp: 1,
        side: 0,
        message: 7,
        psn: psn & 0xff_ffff,
        transmission: 1,
        opcode: 7,
        length: 4120,
        destination: 0x22,
    }
}

/// Reads a whole trace as text, and returns also the error that ended it.
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

/// Returns a trace with these records.
fn trace(records: &[(u64, Record<'_>)]) -> Vec<u8> {
    let mut bytes = header().emit();
    let mut encoder = Encoder::default();
    for (at_ns, record) in records {
        encoder.put(*at_ns, record, &mut bytes);
    }
    bytes
}

fn lines(records: &[(u64, Record<'_>)]) -> Vec<String> {
    records.iter().map(|(at_ns, record)| format!("{at_ns} {record:?}")).collect()
}

#[test]
fn headers_are_read_as_they_were_written() {
    let bytes = header().emit();
    assert_eq!(TraceHeader::parse(&bytes), Ok((header(), bytes.len())));
    for length in 0..bytes.len() {
        let error = TraceHeader::parse(&bytes[..length]).unwrap_err();
        assert_eq!(error, if length == 0 { HeaderError::Foreign } else { HeaderError::Short }, "{length}");
    }
    let mut newer = bytes.clone();
    newer[8] = 2;
    assert_eq!(TraceHeader::parse(&newer), Err(HeaderError::Newer(2)));
    assert_eq!(TraceHeader::parse(b"\x0a\x0d\x0d\x0a and more"), Err(HeaderError::Foreign));
}

#[test]
fn packets_of_a_message_take_two_or_three_bytes_each() {
    let records: Vec<_> = (0..1000).map(|k| (k * 500, packet(0xff_ff00 + k as u32))).collect();
    let bytes = trace(&records);
    assert!(bytes.len() < header().emit().len() + 3100, "{}", bytes.len());
    let (read, error) = read_all(&bytes[..]);
    assert_eq!((read, error.is_none()), (lines(&records), true));
}

#[test]
fn a_cut_trace_gives_all_whole_records_and_says_where_it_ends() {
    let records = [
        (10, packet(5)),
        (1_000_000, packet(6)),
        (9, Record::CallRefused { call: "ibv_reg_mr", ordinal: Some(3), errno: 12, why: "no memory" }),
    ];
    let (bytes, start) = (trace(&records), header().emit().len());
    let mut longest = 0;
    for length in start..bytes.len() {
        let (read, error) = read_all(&bytes[..length]);
        assert_eq!(read, lines(&records)[..read.len()]);
        assert!(matches!(error, None | Some(ReadError::Truncated { .. })), "{length}: {error:?}");
        longest = longest.max(read.len());
    }
    assert_eq!(longest, 2);
}

#[test]
fn records_of_a_newer_program_are_passed_over() {
    let mut bytes = trace(&[(10, packet(5))]);
    bytes.extend_from_slice(&[0x77, 3, 0, 40, 1, 2]);
    let known = trace(&[(10, packet(5)), (35, packet(9))]);
    // The first record's time now counts from the unknown record, which was made 20 ns later.
    let at = trace(&[(10, packet(5))]).len();
    let mut rest = known[at..].to_vec();
    rest[3] = 10;
    bytes.extend_from_slice(&rest);
    let (read, error) = read_all(&bytes[..]);
    assert!(error.is_none(), "{error:?}");
    assert_eq!(read, lines(&[(10, packet(5)), (35, packet(9))]));
}

#[test]
fn texts_are_cut_where_a_character_ends() {
    let long = "é".repeat(TEXT_BYTES);
    let bytes = trace(&[(1, Record::FaultNoted { text: &long })]);
    let (read, error) = read_all(&bytes[..]);
    assert!(error.is_none());
    assert_eq!(read[0].matches('é').count(), TEXT_BYTES / 2);
}

#[test]
fn control_characters_are_neither_written_nor_read() {
    let bytes = trace(&[(1, Record::FaultNoted { text: "a\x1b[2Jé\u{85}\nb" })]);
    let (read, error) = read_all(&bytes[..]);
    assert!(error.is_none());
    assert!(read[0].contains("\"a?[2Jé???b\""), "{}", read[0]);
    let mut hostile = trace(&[(1, Record::FaultNoted { text: "harmless" })]);
    let end = hostile.len();
    hostile[end - 3] = 0x1b;
    assert!(matches!(read_all(&hostile[..]), (read, Some(ReadError::Damaged { .. })) if read.is_empty()));
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic_or_read_for_ever(
        bytes in proptest::collection::vec(any::<u8>(), 0..2000)
    ) {
        let all = [trace(&[(10, packet(5))]), bytes].concat();
        let (read, _) = read_all(Cursor::new(&all));
        prop_assert!(!read.is_empty() && read.len() <= all.len());
    }

    #[test]
    fn what_is_read_of_any_bytes_is_written_as_bytes_that_say_the_same(
        bytes in proptest::collection::vec(any::<u8>(), 0..500)
    ) {
        let all = [header().emit(), bytes].concat();
        let mut reader = TraceReader::open(&all[..]).unwrap();
        let (mut again, mut encoder) = (header().emit(), Encoder::default());
        let mut first = Vec::new();
        while let Ok(Some(Item::Record(at_ns, record))) = reader.next() {
            encoder.put(at_ns, &record, &mut again);
            first.push(format!("{at_ns} {record:?}"));
        }
        prop_assert_eq!(read_all(&again[..]).0, first);
    }
}
