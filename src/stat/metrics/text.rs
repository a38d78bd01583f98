//! The two text formats: OpenMetrics 1.0, and the older one of Prometheus (0.0.4).

use std::fmt::Write as _;

use super::family::{Group, MetricKind, Value};

/// A text format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    OpenMetrics,
    Older,
}

impl Format {
    /// As HTTP names it.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Older => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// The longest value of a label, in characters. Values come from other processes.
const MAX_LABEL: usize = 128;

/// A label as it stands between the braces.
pub(crate) fn label(name: &str, value: &str) -> String {
    let mut text = format!("{name}=\"");
    for letter in value.chars().take(MAX_LABEL) {
        match letter {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            other => text.push(other),
        }
    }
    text.push('"');
    text
}

/// All groups that have samples.
pub(crate) fn write(groups: &[Group], format: Format) -> String {
    let mut text = String::new();
    for group in groups.iter().filter(|group| !group.samples.is_empty()) {
        heading(group, format, &mut text);
        let name = group.family.sample_name();
        for sample in &group.samples {
            text.push_str(&name);
            if !sample.labels.is_empty() {
                // Writing to a String cannot fail, here and below.
                let _ = write!(text, "{{{}}}", sample.labels);
            }
            let _ = match sample.value {
                Value::Count(count) => writeln!(text, " {count}"),
                Value::Real(number) => writeln!(text, " {number}"),
            };
        }
    }
    if format == Format::OpenMetrics {
        text.push_str("# EOF\n");
    }
    text
}

fn heading(group: &Group, format: Format, text: &mut String) {
    let family = &group.family;
    let _ = match format {
        Format::OpenMetrics => {
            let kind = match family.kind {
                MetricKind::Counter => "counter",
                MetricKind::Gauge => "gauge",
                MetricKind::Info => "info",
            };
            let name = &family.name;
            let _ = writeln!(text, "# TYPE {name} {kind}");
            if let Some(unit) = family.unit() {
                let _ = writeln!(text, "# UNIT {name} {unit}");
            }
            writeln!(text, "# HELP {name} {}", family.help)
        }
        Format::Older => {
            let kind = if family.kind == MetricKind::Counter { "counter" } else { "gauge" };
            let name = family.sample_name();
            let _ = writeln!(text, "# HELP {name} {}", family.help);
            writeln!(text, "# TYPE {name} {kind}")
        }
    };
}

#[cfg(test)]
mod tests {
    use super::super::family::{Family, Sample};
    use super::*;

    fn groups() -> Vec<Group> {
        let sample = |labels: String, value| Sample { labels, value };
        vec![
            Group {
                family: Family::new("pumice_tx_bytes", MetricKind::Counter, "bytes sent"),
                samples: vec![sample(label("tag", "a\"b\\c\nd"), Value::Count(7))],
            },
            Group { family: Family::new("pumice_none", MetricKind::Gauge, "nothing"), samples: vec![] },
            Group {
                family: Family::new("pumice_round_trip_seconds", MetricKind::Gauge, "a time"),
                samples: vec![sample(String::new(), Value::Real(0.000_021))],
            },
            Group {
                family: Family::new("pumice_qp", MetricKind::Info, "what it is"),
                samples: vec![sample(label("state", "RTS"), Value::Count(1))],
            },
        ]
    }

    #[test]
    fn openmetrics_has_units_and_an_end() {
        let expected = "\
# TYPE pumice_tx_bytes counter
# UNIT pumice_tx_bytes bytes
# HELP pumice_tx_bytes bytes sent
pumice_tx_bytes_total{tag=\"a\\\"b\\\\c\\nd\"} 7
# TYPE pumice_round_trip_seconds gauge
# UNIT pumice_round_trip_seconds seconds
# HELP pumice_round_trip_seconds a time
pumice_round_trip_seconds 0.000021
# TYPE pumice_qp info
# HELP pumice_qp what it is
pumice_qp_info{state=\"RTS\"} 1
# EOF
";
        assert_eq!(write(&groups(), Format::OpenMetrics), expected);
    }

    #[test]
    fn the_older_format_names_samples_in_its_headings() {
        let text = write(&groups(), Format::Older);
        assert!(
            text.starts_with("# HELP pumice_tx_bytes_total bytes sent\n# TYPE pumice_tx_bytes_total counter")
        );
        assert!(text.contains("# TYPE pumice_qp_info gauge\npumice_qp_info{"), "{text}");
        assert!(!text.contains("UNIT") && !text.contains("EOF"), "{text}");
    }

    #[test]
    fn labels_are_short() {
        assert_eq!(label("tag", &"\"".repeat(1000)).len(), "tag=\"\"".len() + 2 * MAX_LABEL);
    }
}
