//! Converts a snapshot of the processes to metrics.

use std::collections::{BTreeMap, HashSet};

use pumice_device::inspect::QpView;
use pumice_device::platform::ordinal::Ordinal;
use pumice_transport::wire::Qpn;

use super::text::{MetricFamily, MetricGroup, MetricSample, MetricValue, label};
use crate::observe::{ProcessView, Snapshot, plain};

/// Returns all metrics. Of all processes together, the first `most_qps` queue pairs have series of their own.
pub(crate) fn scrape(found: &Snapshot, most_qps: Option<usize>) -> Vec<MetricGroup> {
    // A registry lists a process index once, so the labels of two processes always differ.
    let processes: Vec<(String, &ProcessView)> =
        found.processes.iter().map(|process| (labels(process), process)).collect();
    let mut groups = vec![MetricGroup {
        family: super::processes(),
        samples: vec![MetricSample { labels: String::new(), value: (found.processes.len() as u64).into() }],
    }];
    groups.push(group(super::answers(), &processes, |process| Some(process.answers().into())));
    for (name, family) in super::counter_families() {
        groups.push(group(family, &processes, |process| counter(process, name)));
    }
    for row in &super::PROCESS_METRICS {
        groups.push(group(super::of_process(row), &processes, |process| row.2(process.objects.as_ref()?)));
    }
    groups.push(states(&processes));
    groups.extend(rules(&processes));
    if let Some(most) = most_qps {
        groups.extend(queue_pairs(&processes, most));
    }
    groups
}

/// Returns the labels of all metrics of a process.
fn labels(process: &ProcessView) -> String {
    let objects = process.objects.as_ref();
    let [tag, device] = [objects.map_or("", |all| &all.tag), objects.map_or("", |all| &all.device)];
    [
        label("pid", &process.pid.to_string()),
        label("process_index", &process.index.to_string()),
        label("program", process.program.as_deref().unwrap_or("")),
        label("tag", &plain(tag)),
        label("device", &plain(device)),
        label("address", &process.address.to_string()),
    ]
    .join(",")
}

fn counter(process: &ProcessView, name: &str) -> Option<MetricValue> {
    let counters = process.counters.as_ref()?;
    counters.iter().find(|(other, _)| other == name).map(|(_, value)| MetricValue::Count(*value))
}

/// Returns a family with at most one sample of each process.
fn group(
    family: MetricFamily,
    processes: &[(String, &ProcessView)],
    value: impl Fn(&ProcessView) -> Option<MetricValue>,
) -> MetricGroup {
    let sample = |(labels, process): &(String, &ProcessView)| {
        Some(MetricSample { labels: labels.clone(), value: value(process)? })
    };
    MetricGroup { family, samples: processes.iter().filter_map(sample).collect() }
}

fn states(processes: &[(String, &ProcessView)]) -> MetricGroup {
    let mut samples = Vec::new();
    for (labels, process) in processes {
        let Some(objects) = &process.objects else { continue };
        let mut counts: BTreeMap<&str, u64> = super::STATES.iter().map(|state| (*state, 0)).collect();
        for qp in &objects.qps {
            let known = super::STATES.into_iter().find(|state| *state == qp.state);
            *counts.entry(known.unwrap_or("other")).or_default() += 1;
        }
        samples.extend(counts.into_iter().map(|(state, count)| MetricSample {
            labels: format!("{labels},{}", label("state", state)),
            value: count.into(),
        }));
    }
    MetricGroup { family: super::queue_pairs(), samples }
}

/// Returns the actions of fault plan rules. Rules of one name are added up, and those beyond the first
/// hundred are left out.
fn rules(processes: &[(String, &ProcessView)]) -> [MetricGroup; 2] {
    let (mut met, mut applied) = (Vec::new(), Vec::new());
    for (labels, process) in processes {
        let mut counts = BTreeMap::<String, (u64, u64)>::new();
        for rule in process.objects.iter().flat_map(|objects| &objects.rules).take(super::MAX_RULES) {
            let (met, applied) = counts.entry(label("rule", &plain(&rule.name))).or_default();
            (*met, *applied) = (met.saturating_add(rule.met), applied.saturating_add(rule.applied));
        }
        for (rule, counts) in counts {
            let labels = format!("{labels},{rule}");
            met.push(MetricSample { labels: labels.clone(), value: counts.0.into() });
            applied.push(MetricSample { labels, value: counts.1.into() });
        }
    }
    [
        MetricGroup { family: super::rule_met(), samples: met },
        MetricGroup { family: super::rule_applied(), samples: applied },
    ]
}

/// Returns the series of the first `most` queue pairs.
fn queue_pairs(processes: &[(String, &ProcessView)], most: usize) -> Vec<MetricGroup> {
    let mut known = HashSet::new();
    let mut found: Vec<(String, &QpView)> = Vec::new();
    let mut left_out = 0_u64;
    for (labels, process) in processes {
        for qp in process.objects.iter().flat_map(|objects| &objects.qps) {
            if found.len() >= most {
                left_out = left_out.saturating_add(1);
            } else if known.insert((process.key(), qp.qpn, qp.ordinal)) {
                let own = [
                    label("qp", &Qpn::new(qp.qpn).to_string()),
                    label("ordinal", &Ordinal(qp.ordinal).to_string()),
                ];
                found.push((format!("{labels},{}", own.join(",")), qp));
            }
        }
    }
    let info = |(labels, qp): &(String, &QpView)| {
        let (address, peer) = qp.peer.map_or((String::new(), String::new()), |peer| {
            (peer.address.to_string(), Qpn::new(peer.qpn).to_string())
        });
        let more = [
            label("service", &plain(&qp.service)),
            label("state", &plain(&qp.state)),
            label("peer_address", &address),
            label("peer_qp", &peer),
        ];
        MetricSample { labels: format!("{labels},{}", more.join(",")), value: MetricValue::Count(1) }
    };
    let mut groups =
        vec![MetricGroup { family: super::qp_info(), samples: found.iter().map(info).collect() }];
    for row in &super::QP_METRICS {
        let sample = |(labels, qp): &(String, &QpView)| {
            Some(MetricSample { labels: labels.clone(), value: row.3(qp)? })
        };
        groups.push(MetricGroup {
            family: super::of_qp(row),
            samples: found.iter().filter_map(sample).collect(),
        });
    }
    let left_out = MetricSample { labels: String::new(), value: left_out.into() };
    groups.push(MetricGroup { family: super::qps_left_out(), samples: vec![left_out] });
    groups
}

#[cfg(test)]
mod tests {
    use pumice_device::faults::live::RuleStatus;

    use super::super::text::{MetricsFormat, write};
    use super::*;
    use crate::observe::tests::{process, qp};

    fn text(processes: Vec<ProcessView>, most_qps: Option<usize>) -> String {
        write(&scrape(&Snapshot { processes }, most_qps), MetricsFormat::OpenMetrics)
    }

    const OWN: &str =
        r#"pid="7",process_index="1",program="paced",tag="one",device="pumice0",address="127.0.0.1""#;

    fn has(text: &str, line: &str) {
        let line = line.replace("OWN", OWN);
        assert!(text.lines().any(|other| other == line), "{line} is not in\n{text}");
    }

    #[test]
    fn a_process_has_counters_states_queues_and_rules() {
        let mut failed = qp(9);
        (failed.state, failed.posted, failed.rtt_ns) = ("ERR".to_owned(), 5, Some(42_000));
        let mut one = process(7, vec![qp(8), failed]);
        one.counters = Some(vec![("rx_bad_icrc".to_owned(), 3), ("of_the_future".to_owned(), 1)]);
        let rule = |applied| RuleStatus {
            name: "lossy \"x\"".to_owned(),
            does: "drop".to_owned(),
            live: true,
            paused: false,
            met: 10,
            applied,
        };
        one.objects.as_mut().expect("objects").rules = vec![rule(4), rule(5)];
        let text = text(vec![one], None);
        has(&text, "pumice_processes 1");
        has(&text, "pumice_process_answers{OWN} 1");
        has(&text, "pumice_rx_bad_icrc_total{OWN} 3");
        has(&text, "pumice_queue_pairs{OWN,state=\"ERR\"} 1");
        has(&text, "pumice_queue_pairs{OWN,state=\"SQD\"} 0");
        has(&text, "pumice_send_requests_outstanding{OWN} 5");
        has(&text, "pumice_longest_round_trip_seconds{OWN} 0.000042");
        has(&text, "pumice_cq_fill_ratio{OWN} 0.25");
        has(&text, "pumice_srq_receives_posted{OWN} 16");
        has(&text, "pumice_rule_applied_total{OWN,rule=\"lossy \\\"x\\\"\"} 9");
        assert!(!text.contains("of_the_future") && !text.contains("pumice_qp_"), "{text}");
    }

    #[test]
    fn a_process_that_does_not_answer_has_no_other_number() {
        let mut silent = process(7, Vec::new());
        (silent.counters, silent.objects) = (None, None);
        let text = text(vec![silent], Some(10));
        let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(samples.len(), 3, "{text}");
        assert!(samples[1].starts_with("pumice_process_answers{pid=\"7\"") && samples[1].ends_with(" 0"));
    }

    #[test]
    fn queue_pairs_have_series_up_to_a_number_and_each_once() {
        let qps = vec![qp(8), qp(8), qp(0x01_0009), qp(10), qp(11)];
        let text = text(vec![process(7, qps)], Some(2));
        has(&text, "pumice_qp_series_left_out 2");
        has(&text, "pumice_qp_window_packets{OWN,qp=\"0x000008\",ordinal=\"8\"} 64");
        let peer = "service=\"RC\",state=\"RTS\",peer_address=\"127.0.0.2\",peer_qp=\"0x020011\"";
        has(&text, &format!("pumice_qp_info{{OWN,qp=\"0x010009\",ordinal=\"9\",{peer}}} 1"));
        let count = text.lines().filter(|line| line.starts_with("pumice_qp_sends_total{")).count();
        assert_eq!(count, 2, "{text}");
    }

    #[test]
    fn no_series_comes_twice_and_names_are_harmless() {
        let mut odd = process(8, vec![qp(1)]);
        odd.objects.as_mut().expect("objects").tag = "\u{1b}\n\u{202e}".repeat(500);
        let text = text(vec![process(7, vec![qp(1)]), odd], Some(10));
        let mut series = HashSet::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (name, _) = line.rsplit_once(' ').expect("a value");
            assert!(series.insert(name), "{name} comes twice");
            assert!(line.len() < 1000 && !line.contains('\u{1b}') && !line.contains('\u{202e}'));
        }
    }
}
