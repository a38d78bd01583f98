//! `pumice capture`: the RoCE packets of a capture file, one line each, with their ICRCs checked.

mod decode;
pub(crate) mod file;
mod management;
mod messages;
mod multipath;
pub(crate) mod plan;
pub(crate) mod processes;
mod record;
mod totals;

use std::fs::File;
use std::io::{self, IsTerminal as _, Read, Write};
use std::path::PathBuf;

use crate::cli::CaptureOptions;
use crate::observe::ProgressReader;
use crate::outcome::{CommandError, CommandResult, Outcome};

use decode::{Decoded, decode};
use file::{Frame, FrameError, for_each_frame};
use totals::CaptureTotals;

/// Runs the command.
pub(crate) fn run(options: &CaptureOptions, out: &mut dyn Write) -> CommandResult {
    if options.faults {
        let files: Vec<&PathBuf> = std::iter::once(&options.file).chain(&options.receiver).collect();
        return plan::print(&files, out);
    }
    let name = options.file.display();
    let input: Box<dyn Read> = if options.file.as_os_str() == "-" {
        Box::new(io::stdin().lock())
    } else {
        let file = File::open(&options.file)
            .map_err(|error| CommandError::Failed(format!("{name} cannot be opened: {error}")))?;
        let length = file.metadata().map_or(0, |about| about.len());
        // A progress bar would mix with lines on the same terminal.
        if options.summary || !io::stdout().is_terminal() {
            Box::new(ProgressReader::new(file, length, &name.to_string()))
        } else {
            Box::new(file)
        }
    };
    list(&name.to_string(), input, options, out)
}

/// Lists a capture that messages call `name`.
fn list(name: &str, input: impl Read, options: &CaptureOptions, out: &mut dyn Write) -> CommandResult {
    let mut totals = CaptureTotals::default();
    let read = for_each_frame(input, |frame| show(frame, options, &mut totals, out));
    let damage = match read {
        Ok(()) => None,
        Err(FrameError::Callback(error)) => return Err(error),
        // If nothing could be read, there are no totals to print either.
        Err(FrameError::Broken(what)) if totals.frames == 0 => {
            return Err(CommandError::Failed(format!("{name} cannot be read: {what}")));
        }
        Err(FrameError::Broken(what)) => Some(what),
    };
    if options.json {
        totals.write_json(out)?;
    } else {
        totals.write_text(out, options.summary)?;
    }
    match damage {
        Some(what) => {
            let frames = totals.frames;
            Err(CommandError::Failed(format!("{name} cannot be read after frame {frames}: {what}")))
        }
        None if totals.well_formed() < options.expect => Err(too_few(name, &totals, options.expect)),
        None if totals.has_damage() => Ok(Outcome::Bad),
        None => Ok(Outcome::Good),
    }
}

/// Returns the error for too few packets: a check of a capture that is nearly empty must not pass.
fn too_few(name: &str, totals: &CaptureTotals, expected: u64) -> CommandError {
    let (found, malformed) = (totals.well_formed(), totals.malformed);
    let what = match (found, totals.packets) {
        (0, 0) => "it holds no RoCE packet".to_owned(),
        (0, _) => format!("it holds no well-formed RoCE packet: {malformed} are malformed"),
        _ => format!("it holds {found} well-formed RoCE packets"),
    };
    let more = if expected > 1 { format!(", and {expected} are expected (--expect)") } else { String::new() };
    CommandError::Failed(format!("{name}: {what}{more}"))
}

/// Counts a frame and, unless only totals are wanted, prints it if it is a RoCE packet.
fn show(
    frame: &Frame<'_>,
    options: &CaptureOptions,
    totals: &mut CaptureTotals,
    out: &mut dyn Write,
) -> Result<(), CommandError> {
    let first_ns = totals.start(frame.time);
    let decoded = decode(frame);
    totals.add(&decoded);
    let Decoded::Roce(records) = decoded else { return Ok(()) };
    if options.summary {
        return Ok(());
    }
    for record in &records {
        if options.json {
            serde_json::to_writer(&mut *out, record)?;
            writeln!(out)?;
        } else {
            record.write_text(first_ns, out)?;
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "../../fuzz/replay.rs"]
pub(crate) mod replay;

#[cfg(test)]
#[path = "../../fuzz/bodies/capture.rs"]
mod fuzzed;

#[cfg(test)]
#[path = "../../fuzz/bodies/capture_timeline.rs"]
mod fuzzed_timeline;

#[cfg(test)]
mod tests {
    use super::*;
    use pumice_transport::path::{Flow, Path};
    use pumice_transport::wire::{encapsulate, icrc};
    use std::net::IpAddr;

    /// Returns a pcap file of raw IP packets.
    fn pcap(packets: &[&[u8]]) -> Vec<u8> {
        let mut file = Vec::new();
        for word in [0xa1b2_c3d4_u32, 4 << 16 | 2, 0, 0, 65535, 101] {
            file.extend_from_slice(&word.to_le_bytes());
        }
        for (index, packet) in packets.iter().enumerate() {
            for word in [index as u32, 0, packet.len() as u32, packet.len() as u32] {
                file.extend_from_slice(&word.to_le_bytes());
            }
            file.extend_from_slice(packet);
        }
        file
    }

    /// RC SEND Only of "hello" from 192.0.2.1 to 192.0.2.2.
    const HELLO: [u8; 52] = [
        0x45, 0x00, 0x00, 0x34, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb6, 0xb5, 0xc0, 0x00, 0x02, 0x01, 0xc0,
        0x00, 0x02, 0x02, 0xc0, 0xde, 0x12, 0xb7, 0x00, 0x20, 0x00, 0x00, 0x04, 0xf0, 0xff, 0xff, 0x00, 0x00,
        0x00, 0x11, 0x80, 0x00, 0xab, 0xcd, 0x68, 0x65, 0x6c, 0x6c, 0x6f, 0x00, 0x00, 0x00, 0xa3, 0xbe, 0xa7,
        0x05,
    ];

    fn listed(file: &[u8], json: bool) -> (CommandResult, String) {
        let options = CaptureOptions {
            file: PathBuf::new(),
            receiver: None,
            json,
            summary: false,
            faults: false,
            expect: 1,
        };
        let mut out = Vec::new();
        let result = list("test", file, &options, &mut out);
        (result, String::from_utf8(out).expect("a listing is text"))
    }

    #[test]
    fn a_packet_is_one_line() {
        let (result, text) = listed(&pcap(&[&HELLO]), false);
        assert_eq!(
            text.lines().next(),
            Some(
                "  0.000000000  192.0.2.1 > 192.0.2.2  RC_SEND_ONLY  qp 0x000011  psn 43981 solicited \
                migrated \
                 ack-request  5 B  icrc ok"
            )
        );
        assert!(matches!(result, Ok(Outcome::Good)), "{result:?}");
    }

    #[test]
    fn a_flipped_bit_is_a_bad_icrc() {
        let mut damaged = HELLO;
        damaged[41] ^= 1;
        let (result, text) = listed(&pcap(&[&HELLO, &damaged]), false);
        assert!(text.contains("icrc BAD\n") && text.contains("1 ok, 1 bad"), "{text}");
        assert!(matches!(result, Ok(Outcome::Bad)), "{result:?}");
    }

    #[test]
    fn an_icrc_for_another_identification_is_distinguished_from_damage() {
        let mut renumbered = HELLO;
        renumbered[4..6].copy_from_slice(&[0x12, 0x34]);
        let (result, text) = listed(&pcap(&[&renumbered]), false);
        assert!(text.contains("icrc BAD (right for IP ID 0)"), "{text}");
        assert!(matches!(result, Ok(Outcome::Bad)), "{result:?}");
    }

    #[test]
    fn a_batch_captured_uncut_is_shown_packet_by_packet() {
        let address = |last| IpAddr::from([192, 0, 2, last]);
        let flow =
            Flow { source: address(1), destination: address(2), source_port: 4791, destination_port: 4791 };
        let mut batch = Vec::new();
        // Two packets of 100 bytes and a shorter one, each with the ICRC for its identification.
        for (ip_id, length) in [(0, 100), (1, 100), (2, 40)] {
            let mut packet = HELLO[28..40].to_vec();
            packet[11] = ip_id as u8;
            packet.resize(length, 0x55);
            packet[1] = 0;
            icrc::seal(&flow, ip_id, &mut packet);
            batch.extend(packet);
        }
        let path = Path { flow, traffic_class: 0, hop_limit: 64, flow_label: 0 };
        let (result, text) = listed(&pcap(&[&encapsulate(&path, 0, &batch)]), false);
        assert!(text.contains("batch[0] ack-request  84 B  icrc ok"), "{text}");
        assert!(text.contains("batch[2] ack-request  24 B  icrc ok"), "{text}");
        assert!(text.contains("3 RoCE packets with 192 bytes"), "{text}");
        assert!(matches!(result, Ok(Outcome::Good)), "{result:?}");
        batch[150] ^= 1;
        let (result, text) = listed(&pcap(&[&encapsulate(&path, 0, &batch)]), false);
        assert!(text.contains("2 ok, 1 bad"), "{text}");
        assert!(matches!(result, Ok(Outcome::Bad)), "{result:?}");
    }

    #[test]
    fn an_unknown_opcode_is_still_printed() {
        let mut unknown = HELLO;
        unknown[28] = 0x1f;
        let (_, text) = listed(&pcap(&[&unknown]), false);
        assert!(text.contains("opcode 0x1f") && text.contains("MALFORMED"), "{text}");
    }

    #[test]
    fn other_traffic_is_skipped_and_counted() {
        let mut other = HELLO;
        other[22..24].copy_from_slice(&[0, 53]);
        let (result, text) = listed(&pcap(&[&other, &[], &[0x45], &HELLO]), true);
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!((&lines[0]["kind"], &lines[0]["payload_bytes"]), (&"packet".into(), &5.into()));
        assert_eq!((&lines[1]["kind"], &lines[1]["others"]), (&"summary".into(), &3.into()));
        assert!(matches!(result, Ok(Outcome::Good)), "{result:?}");
    }

    /// Returns a pcap file of raw IP packets that was cut to `captured_length` bytes each.
    fn cut(packets: &[&[u8]], captured_length: usize) -> Vec<u8> {
        let mut file = pcap(&[]);
        for packet in packets {
            let bytes = packet.get(..captured_length).unwrap_or(packet);
            for word in [0, 0, bytes.len() as u32, packet.len() as u32] {
                file.extend_from_slice(&word.to_le_bytes());
            }
            file.extend_from_slice(bytes);
        }
        file
    }

    #[test]
    fn packets_that_the_capture_cut_are_shown_from_their_headers() {
        // IP, UDP and BTH are 40 bytes.
        for captured_length in 40..HELLO.len() {
            let (result, text) = listed(&cut(&[&HELLO, &HELLO], captured_length), false);
            let line =
                "RC_SEND_ONLY  qp 0x000011  psn 43981 solicited migrated ack-request  5 B  icrc not captured";
            assert_eq!(text.matches(line).count(), 2, "{captured_length}: {text}");
            assert!(text.contains("2 RoCE packets with 10 bytes"), "{text}");
            assert!(text.contains("ICRC: 0 ok, 0 bad, 2 not captured"), "{text}");
            assert!(matches!(result, Ok(Outcome::Good)), "{result:?}");
        }
        for captured_length in 0..40 {
            let (result, text) = listed(&cut(&[&HELLO], captured_length), false);
            assert!(text.contains("1 frames cut by the capture"), "{captured_length}: {text}");
            assert!(result.is_err(), "{captured_length}: nothing is known of it");
        }
    }

    #[test]
    fn timelines_and_replays_have_packets_that_the_capture_cut() {
        let file = cut(&[&HELLO, &HELLO], 40);
        let found = processes::processes(vec![("one".to_owned(), file.as_slice())]).expect("it has packets");
        let queue_pairs = found.iter().flat_map(|process| &process.queue_pairs);
        let packets: Vec<_> = queue_pairs.flat_map(|qp| &qp.packets).collect();
        assert!(packets.len() >= 2 && packets.iter().all(|packet| !packet.is_dropped && packet.psn == 43981));
        let seen = plan::all_sightings(file.as_slice(), 10).expect("it has packets");
        assert_eq!(seen.iter().filter(|one| !one.is_damaged && one.payload_bytes == 5).count(), 2);
    }

    #[test]
    fn headers_behind_the_cut_are_left_out() {
        let mut write = HELLO.to_vec();
        // RC RDMA WRITE Only: an RETH behind the BTH, and no payload.
        write[28] = 0x0a;
        write[29] = 0;
        write.truncate(40);
        write.resize(28 + 12 + 16 + 4, 0x11);
        write[2..4].copy_from_slice(&60_u16.to_be_bytes());
        write[24..26].copy_from_slice(&40_u16.to_be_bytes());
        let (_, text) = listed(&cut(&[&write], 56), false);
        assert!(text.contains("RC_RDMA_WRITE_ONLY") && text.contains("rkey 0x11111111"), "{text}");
        let (_, text) = listed(&cut(&[&write], 55), false);
        assert!(text.contains("RC_RDMA_WRITE_ONLY") && !text.contains("rkey"), "{text}");
    }

    #[test]
    fn a_check_of_nothing_does_not_pass() {
        let mut other = HELLO;
        other[22..24].copy_from_slice(&[0, 53]);
        let mut short = HELLO[..33].to_vec();
        short[2..4].copy_from_slice(&33_u16.to_be_bytes());
        short[24..26].copy_from_slice(&13_u16.to_be_bytes());
        for (packets, sentence) in [
            (&[][..], "test: it holds no RoCE packet"),
            (&[&other[..]], "test: it holds no RoCE packet"),
            (&[&short[..], &short], "test: it holds no well-formed RoCE packet: 2 are malformed"),
        ] {
            let (result, _) = listed(&pcap(packets), false);
            assert_eq!(result.expect_err("nothing to check").to_string(), sentence);
        }
        let (result, _) = listed(&pcap(&[&HELLO, &short]), false);
        assert!(matches!(result, Ok(Outcome::Bad)), "one is malformed: {result:?}");
    }

    #[test]
    fn fewer_packets_than_expected_are_reported() {
        let run = |file: &[u8], expect| {
            let (json, summary, faults) = (false, false, false);
            let options =
                CaptureOptions { file: PathBuf::new(), receiver: None, json, summary, faults, expect };
            list("test", file, &options, &mut Vec::new())
        };
        let two = pcap(&[&HELLO, &HELLO]);
        assert!(matches!(run(&two, 2), Ok(Outcome::Good)));
        let error = run(&two, 3).expect_err("one is missing").to_string();
        assert_eq!(error, "test: it holds 2 well-formed RoCE packets, and 3 are expected (--expect)");
        assert!(matches!(run(&pcap(&[]), 0), Ok(Outcome::Good)));
    }

    #[test]
    fn damaged_captures_of_the_corpus() {
        let fuzz = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz"));
        replay::replay(fuzz, "capture", 4_000, fuzzed::survive);
        replay::replay(fuzz, "capture_timeline", 4_000, fuzzed_timeline::survive);
    }

    #[test]
    fn no_damage_to_a_file_makes_it_panic() {
        let original = pcap(&[&HELLO, &HELLO]);
        for index in 0..original.len() {
            for flip in [0x01, 0x10, 0x80, 0xff] {
                let mut file = original.clone();
                file[index] ^= flip;
                for json in [false, true] {
                    let _ = listed(&file, json);
                }
            }
            let _ = listed(&original[..index], false);
        }
    }
}
