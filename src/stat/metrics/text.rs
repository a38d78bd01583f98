//! Families of metrics, and the two text formats.

use std::fmt::Write as _;

/// The kind of a family's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MetricKind {
    /// The number only grows, or begins again at 0.
    Counter,
    /// The number rises and falls.
    Gauge,
    /// The number is always 1; the information is in the labels.
    Info,
}

/// A family of metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MetricFamily {
    /// Name without the suffix that its kind adds to the names of samples.
    pub(crate) name: String,
    pub(crate) kind: MetricKind,
    pub(crate) help: &'static str,
}

/// The units that names of families may end with.
const UNITS: [&str; 4] = ["bytes", "packets", "seconds", "ratio"];

impl MetricFamily {
    pub(crate) fn new(name: impl Into<String>, kind: MetricKind, help: &'static str) -> MetricFamily {
        MetricFamily { name: name.into(), kind, help }
    }

    /// Returns the unit, with which the name ends.
    pub(crate) fn unit(&self) -> Option<&'static str> {
        let last = self.name.rsplit('_').next();
        UNITS.into_iter().find(|unit| Some(*unit) == last)
    }

    /// Returns the name of its samples.
    pub(crate) fn sample_name(&self) -> String {
        let end = match self.kind {
            MetricKind::Counter => "_total",
            MetricKind::Gauge => "",
            MetricKind::Info => "_info",
        };
        format!("{}{end}", self.name)
    }
}

/// A number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum MetricValue {
    Count(u64),
    Real(f64),
}

impl From<u64> for MetricValue {
    fn from(count: u64) -> MetricValue {
        MetricValue::Count(count)
    }
}

impl From<u32> for MetricValue {
    fn from(count: u32) -> MetricValue {
        MetricValue::Count(count.into())
    }
}

impl From<bool> for MetricValue {
    fn from(is: bool) -> MetricValue {
        MetricValue::Count(is.into())
    }
}

/// A number with its labels, as they are written between the braces.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MetricSample {
    pub(crate) labels: String,
    pub(crate) value: MetricValue,
}

/// A family with its samples.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MetricGroup {
    pub(crate) family: MetricFamily,
    pub(crate) samples: Vec<MetricSample>,
}

/// A text format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MetricsFormat {
    OpenMetrics,
    Older,
}

impl MetricsFormat {
    /// Returns its HTTP content type.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            MetricsFormat::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            MetricsFormat::Older => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Maximum length of a label value, in characters. Values come from other processes.
const MAX_LABEL: usize = 128;

/// Formats a label as it is written between the braces.
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

/// Writes all groups that have samples.
pub(crate) fn write(groups: &[MetricGroup], format: MetricsFormat) -> String {
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
                MetricValue::Count(count) => writeln!(text, " {count}"),
                MetricValue::Real(number) => writeln!(text, " {number}"),
            };
        }
    }
    if format == MetricsFormat::OpenMetrics {
        text.push_str("# EOF\n");
    }
    text
}

fn heading(group: &MetricGroup, format: MetricsFormat, text: &mut String) {
    let family = &group.family;
    let _ = match format {
        MetricsFormat::OpenMetrics => {
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
        MetricsFormat::Older => {
            let kind = if family.kind == MetricKind::Counter { "counter" } else { "gauge" };
            let name = family.sample_name();
            let _ = writeln!(text, "# HELP {name} {}", family.help);
            writeln!(text, "# TYPE {name} {kind}")
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups() -> Vec<MetricGroup> {
        let sample = |labels: String, value| MetricSample { labels, value };
        vec![
            MetricGroup {
                family: MetricFamily::new("pumice_tx_bytes", MetricKind::Counter, "bytes sent"),
                samples: vec![sample(label("tag", "a\"b\\c\nd"), MetricValue::Count(7))],
            },
            MetricGroup {
                family: MetricFamily::new("pumice_none", MetricKind::Gauge, "nothing"),
                samples: vec![],
            },
            MetricGroup {
                family: MetricFamily::new("pumice_round_trip_seconds", MetricKind::Gauge, "a time"),
                samples: vec![sample(String::new(), MetricValue::Real(0.000_021))],
            },
            MetricGroup {
                family: MetricFamily::new("pumice_qp", MetricKind::Info, "what it is"),
                samples: vec![sample(label("state", "RTS"), MetricValue::Count(1))],
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
        assert_eq!(write(&groups(), MetricsFormat::OpenMetrics), expected);
    }

    #[test]
    fn the_older_format_names_samples_in_its_headings() {
        let text = write(&groups(), MetricsFormat::Older);
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
