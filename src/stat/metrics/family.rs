//! Families of metrics: a name, a kind, a unit and a help text, and the samples of one scrape.

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
