//! NSCC against the series of the fact sheet, which were compared with a public class of it.

use pumice_transport::mrc::congestion::{CongestionControl, LossSample, Nscc, NsccParameters, SackSample};

const SERIES: &str = include_str!("../data/mrc/nscc.txt");

fn begin(words: &[&str]) -> Nscc {
    let value = |name: &str| -> u64 {
        let word = words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        word.unwrap().parse().unwrap()
    };
    let (bdp, base_rtt) = (value("bdp"), value("base_rtt"));
    let rate = bdp as f64 / base_rtt as f64;
    let parameters = NsccParameters::new(value("mtu") as u32, rate, base_rtt, value("trimming") == 1);
    assert_eq!(parameters.target_delay_ns, value("T"));
    let nscc = Nscc::new(parameters);
    assert_eq!(nscc.window_bytes(), value("cwnd"));
    nscc
}

#[test]
fn windows_are_those_of_the_fact_sheet() {
    let mut nscc: Option<Nscc> = None;
    let mut count = 0;
    for line in SERIES.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words[0] == "start" {
            nscc = Some(begin(&words[1..]));
            continue;
        }
        let nscc = nscc.as_mut().unwrap();
        let number = |index: usize| -> u64 { words[index].parse().unwrap() };
        let (now_ns, bytes, rtt_ns, inflight_bytes) = (number(1), number(2), number(4), number(5));
        let loss = LossSample { now_ns, size_bytes: bytes, rtt_ns: Some(rtt_ns), inflight_bytes };
        match words[0] {
            "ack" => nscc.handle_sack(&SackSample {
                now_ns,
                new_bytes: bytes,
                is_marked: number(3) == 1,
                rtt_ns: Some(rtt_ns),
                inflight_bytes,
                penalty: number(6) as u8,
                restore_cwnd: false,
                is_limited_by_program: false,
            }),
            "trim" => nscc.handle_trim(&loss),
            "loss" => nscc.handle_loss(&LossSample { rtt_ns: None, ..loss }),
            other => panic!("{other} is no event"),
        }
        let found = format!("{} {} {:.1}", nscc.window_bytes(), nscc.base_rtt_ns(), nscc.avg_delay_ns());
        assert_eq!(found, words[8..].join(" "), "{line}");
        count += 1;
    }
    assert_eq!(count, 54);
}

#[test]
fn a_penalty_is_given_back() {
    let mut nscc = Nscc::new(NsccParameters::new(4096, 12.5, 12_000, true));
    let sample = |now_ns, penalty, restore_cwnd| SackSample {
        now_ns,
        new_bytes: 8192,
        is_marked: false,
        rtt_ns: Some(12_500),
        inflight_bytes: 100_000,
        penalty,
        restore_cwnd,
        is_limited_by_program: false,
    };
    nscc.handle_sack(&sample(1_000, 127, false));
    // (127 · 8192) >> 7 bytes are taken from what is on its way.
    assert_eq!(nscc.window_bytes(), 100_000 - 8128);
    nscc.handle_sack(&sample(2_000, 0, true));
    assert_eq!(nscc.window_bytes(), 225_000);
}
